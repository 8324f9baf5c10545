//! Jobs that run to their end, and Jobs that are somebody else's.

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{api, create, embedded, eventually, pods, set_phase};

pub(crate) fn job(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["template"] =
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}});
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn finished(client: &Client, name: &str) -> JobStatus {
    let jobs: Api<Job> = api(client);
    eventually("a finished Job", || async {
        let job = jobs.get(name).await.expect("a Job");
        rules::job::is_finished(&job).then(|| job.status.expect("a status"))
    })
    .await
}

async fn events(client: &Client) -> Vec<String> {
    let events: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &ApiResource::erase::<Event>(&()));
    let events = events.list(&ListParams::default()).await.expect("a list");
    events.into_iter().map(|event| event.data["reason"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn a_job_runs_to_its_end() {
    let cluster = embedded("job-controller").await;
    let client = &cluster.client;
    create::<Job>(client, job("a", json!({"completions": 2, "parallelism": 1, "backoffLimit": 0}))).await;
    let first = pods(client, 1).await.remove(0);
    set_phase(client, &first, "Succeeded").await;
    let second = pods(client, 2).await.into_iter().find(|pod| pod.metadata.uid != first.metadata.uid);
    set_phase(client, &second.expect("a second pod"), "Succeeded").await;
    let status = finished(client, "a").await;
    assert_eq!((status.succeeded, status.failed), (Some(2), None));
    for pod in pods(client, 2).await {
        assert_eq!(pod.metadata.finalizers, None, "X-06: nobody keeps a counted pod");
    }
    eventually("all events", || async {
        let told = events(client).await;
        let count = |reason: &str| told.iter().filter(|told| *told == reason).count();
        (count("SuccessfulCreate") == 2 && count("Completed") == 1).then_some(())
    })
    .await;
    let metrics = cluster.metrics.to_string();
    let labels = "completion_mode=\"NonIndexed\",result=\"succeeded\",reason=\"CompletionsReached\"";
    let finished = format!("job_controller_jobs_finished_total{{{labels}}} 1");
    assert!(metrics.contains(&finished), "{metrics}");
}

/// E-02, E-03, E-05: whatever its spec, whatever happens to it.
#[tokio::test]
async fn the_job_of_another_controller_is_left_alone() {
    let cluster = embedded("job-controller").await;
    let client = &cluster.client;
    let jobs: Api<Job> = api(client);
    let theirs = [
        ("plain", json!({})),
        ("suspended", json!({"suspend": true})),
        ("deadline", json!({"activeDeadlineSeconds": 1})),
        ("nothing-to-do", json!({"completions": 0})),
        ("indexed", json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3})),
    ];
    for (name, spec) in &theirs {
        let mut job = job(name, spec.clone());
        job["spec"]["managedBy"] = json!("example.com/x");
        create::<Job>(client, job).await;
    }
    // A pod that looks like one of theirs stays as it is: it is not adopted, and keeps its finalizer.
    let plain = jobs.get("plain").await.expect("a Job");
    let template = plain.spec.as_ref().and_then(|spec| spec.template.metadata.clone());
    let pod = json!({
        "metadata": {
            "name": "of-plain",
            "labels": template.and_then(|meta| meta.labels),
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "plain", "uid": plain.metadata.uid,
                "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    });
    let pod: Pod = create(client, pod).await;
    set_phase(client, &pod, "Succeeded").await;
    let edit = Patch::Merge(json!({"spec": {"suspend": false}}));
    jobs.patch("suspended", &PatchParams::default(), &edit).await.expect("an edit");

    // One of its own, created after all that, shows that the controller has seen everything.
    create::<Job>(client, job("own", json!({"completions": 1}))).await;
    let own = pods(client, 2).await.into_iter().find(|pod| pod.metadata.name.as_deref() != Some("of-plain"));
    set_phase(client, &own.expect("a pod of its own"), "Succeeded").await;
    finished(client, "own").await;

    for (name, _) in &theirs {
        let job = jobs.get(name).await.expect("a Job");
        assert_eq!(job.status.unwrap_or_default(), JobStatus::default(), "E-01 {name}");
        assert_eq!(job.metadata.finalizers, None, "{name}");
    }
    let pod = api::<Pod>(client).get("of-plain").await.expect("the pod is there");
    assert_eq!(
        pod.metadata.finalizers.as_deref(),
        Some(&["batch.kubernetes.io/job-tracking".to_owned()][..])
    );
    let told = eventually("the events about its own", || async {
        let told = events(client).await;
        (told.len() >= 2).then_some(told)
    })
    .await;
    assert_eq!(told.len(), 2, "only about its own: {told:?}");
    let by = "controller_name=\"example.com/x\"";
    let metrics = cluster.metrics.to_string();
    for line in [
        format!("job_controller_jobs_by_external_controller_total{{{by}}} 5"),
        format!("job_controller_jobs_without_status_from_external_controller{{{by}}} 0"),
    ] {
        assert!(metrics.contains(&line), "{metrics}");
    }

    // Once the Job is gone, so is the reason to keep its pod.
    jobs.delete("plain", &DeleteParams::background()).await.expect("deleted");
    eventually("the finalizer is gone", || async {
        let pod = api::<Pod>(client).get("of-plain").await.expect("the pod is there");
        pod.metadata.finalizers.is_none().then_some(())
    })
    .await;
}
