//! Jobs that run to their end, and Jobs that are somebody else's.

use std::time::Duration;

use controllers::{Selection, Settings};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use reconcile::{Clock, Tasks};
use serde_json::{Value, json};

use crate::cluster::{api, api_server, create, embedded, eventually, pods, set_phase};

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
    let looks = "job_controller_job_sync_duration_seconds_bucket{completion_mode=\"NonIndexed\",result=\"success\",\
                 action=\"pods_created\",le=\"65.536\"}";
    assert!(metrics.contains(looks), "N-01: {metrics}");
}

/// J-20: a Job has its time, and no more, even if nothing can be made for it. Making it is tried less and less often.
#[tokio::test]
async fn a_deadline_is_kept_where_no_pods_can_be_made() {
    let cluster = embedded("job-controller").await;
    let client = &cluster.client;
    let hard = json!({"hard": {"pods": "0"}});
    create::<ResourceQuota>(client, json!({"metadata": {"name": "none"}, "spec": hard})).await;
    let quotas: Api<ResourceQuota> = api(client);
    let given = Patch::Merge(json!({"status": hard}));
    quotas.patch_status("none", &PatchParams::default(), &given).await.expect("a quota that is in force");
    create::<Job>(client, job("late", json!({"activeDeadlineSeconds": 6}))).await;
    let status = finished(client, "late").await;
    let end = status.conditions.iter().flatten().find(|condition| condition.type_ == "Failed");
    let end = end.expect("an end by failure");
    assert_eq!(end.reason.as_deref(), Some("DeadlineExceeded"));
    let (began, ended) =
        (status.start_time.expect("a start").0, end.last_transition_time.clone().expect("a time").0);
    // The next attempt would be ten seconds after the start.
    assert!(ended.duration_since(began).as_secs() <= 8, "{began} to {ended}");
}

/// J-44, J-45: whose change is refused is not gone. It counts until it is, and is ended once it may be.
#[tokio::test]
async fn a_pod_that_may_not_be_changed_is_not_taken_for_gone() {
    let cluster = embedded("job-controller").await;
    let client = &cluster.client;
    let jobs: Api<Job> = api(client);
    create::<Job>(client, job("a", json!({}))).await;
    let pod = pods(client, 1).await.remove(0);
    set_phase(client, &pod, "Running").await;
    let running = |active: i32, suspended: bool| {
        let jobs = jobs.clone();
        async move {
            let status = jobs.get("a").await.expect("a Job").status.unwrap_or_default();
            let is_suspended = status.conditions.iter().flatten().any(|it| it.type_ == "Suspended");
            (status.active.unwrap_or(0) == active && is_suspended == suspended).then_some(())
        }
    };
    eventually("a pod that counts", || running(1, false)).await;

    refuse_changes_of_pods(client).await;
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    jobs.patch("a", &PatchParams::default(), &suspend).await.expect("a change");
    eventually("a stop that is refused", || async {
        let is_refused = |line: &str| {
            line.starts_with("job_controller_job_syncs_total") && line.contains("result=\"error\"")
        };
        cluster.metrics.to_string().lines().any(is_refused).then_some(())
    })
    .await;
    let there = pods(client, 1).await.remove(0);
    assert_eq!((&there.metadata.uid, there.metadata.deletion_timestamp), (&pod.metadata.uid, None));
    let status = jobs.get("a").await.expect("a Job").status.expect("a status");
    assert_eq!((status.active, status.terminating.unwrap_or(0)), (Some(1), 0));

    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.delete("as-they-are", &DeleteParams::default()).await.expect("a binding");
    eventually("a stop", || running(0, true)).await;
    eventually("no pod", || async {
        let left = api::<Pod>(client).list(&ListParams::default()).await.expect("a list");
        left.items.is_empty().then_some(())
    })
    .await;
}

/// Makes the API server refuse every change of a pod, and waits until it does.
async fn refuse_changes_of_pods(client: &Client) {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "as-they-are"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]},
            ]},
            "validations": [{"expression": "false", "message": "pods stay as they are"}],
        },
    });
    let policy = serde_json::from_value(policy).expect("a policy");
    policies.create(&PostParams::default(), &policy).await.expect("a policy");
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "as-they-are"},
        "spec": {"policyName": "as-they-are", "validationActions": ["Deny"]},
    });
    let binding = serde_json::from_value(binding).expect("a binding");
    bindings.create(&PostParams::default(), &binding).await.expect("a binding");
    let pod = pods(client, 1).await.remove(0).metadata.name.expect("a name");
    eventually("a policy in force", || async {
        let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "changed"}}}));
        api::<Pod>(client).patch(&pod, &PatchParams::default(), &note).await.err().map(drop)
    })
    .await;
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

/// E-01 to E-06: restarts change nothing, any client may drive its status within the rules, and it is missed for as long as
/// nobody does; then its time to live and its dependents are looked after as ever.
#[tokio::test]
async fn the_job_of_another_controller_lives_through_restarts_to_its_end() {
    let names = "job-controller,ttl-after-finished-controller,garbage-collector-controller";
    let client = &Client::new(api_server().await, "default");
    let mut theirs = job("theirs", json!({"ttlSecondsAfterFinished": 0}));
    theirs["spec"]["managedBy"] = json!("example.com/mistyped");
    let jobs: Api<Job> = api(client);
    let theirs: Job = create(client, theirs).await;
    let owner = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": "theirs", "uid": theirs.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let spec = json!({"containers": [{"name": "main", "image": "x"}]});
    create::<Pod>(client, json!({"metadata": {"name": "its-pod", "ownerReferences": owner}, "spec": spec}))
        .await;
    let settings = Settings { external_job_patience: Duration::ZERO, ..Settings::default() };
    let by = "controller_name=\"example.com/mistyped\"";
    let counted = format!("job_controller_jobs_by_external_controller_total{{{by}}} 1");
    let missed =
        |count: u32| format!("job_controller_jobs_without_status_from_external_controller{{{by}}} {count}");
    for own in ["first", "second"] {
        let mut tasks = Tasks::new();
        let selection: Selection = names.parse().expect("names of controllers");
        let running =
            controllers::start(client.clone(), &selection, settings.clone(), Clock::system(), &mut tasks);
        // One of its own shows that the controller has seen everything.
        create::<Job>(client, job(own, json!({"completions": 0}))).await;
        finished(client, own).await;
        let metrics = running.metrics.to_string();
        assert!(metrics.contains(&counted), "E-03, at every start: {metrics}");
        eventually("it is missed", || async {
            running.metrics.to_string().contains(&missed(1)).then_some(())
        })
        .await;
        let job = jobs.get("theirs").await.expect("a Job");
        assert_eq!(job.status.unwrap_or_default(), JobStatus::default(), "{own}");
        assert_eq!(job.metadata.finalizers, None, "{own}");
        tasks.stop().await;
    }
    assert_eq!(pods(client, 1).await[0].metadata.name.as_deref(), Some("its-pod"), "and nobody made another");

    let status = async |status: Value| {
        let patch = Patch::Merge(json!({"status": status}));
        jobs.patch_status("theirs", &PatchParams::default(), &patch).await
    };
    let done = json!({"type": "Complete", "status": "True", "lastTransitionTime": "2025-01-01T00:00:01Z"});
    let refused = status(json!({"conditions": [done]})).await.expect_err("it has not met its criteria");
    assert!(refused.to_string().contains("status.conditions"), "{refused}");
    status(json!({"startTime": "2025-01-01T00:00:00Z", "active": 1})).await.expect("it starts");
    let mut tasks = Tasks::new();
    let selection: Selection = names.parse().expect("names of controllers");
    let running = controllers::start(client.clone(), &selection, settings, Clock::system(), &mut tasks);
    eventually("it is not missed", || async {
        let metrics = running.metrics.to_string();
        (metrics.contains(&counted) && metrics.contains(&missed(0))).then_some(())
    })
    .await;
    let met =
        json!({"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2025-01-01T00:00:01Z"});
    let end = json!({
        "active": 0, "succeeded": 1, "completionTime": "2025-01-01T00:00:01Z", "conditions": [met, done],
    });
    status(end).await.expect("it ends");
    eventually("its time to live is over, and its pod follows", || async {
        let job = jobs.get_opt("theirs").await.expect("an answer");
        let pod = api::<Pod>(client).get_opt("its-pod").await.expect("an answer");
        (job.is_none() && pod.is_none()).then_some(())
    })
    .await;
    eventually("L-06: how long its deletion took", || async {
        let counted = "ttl_after_finished_controller_job_deletion_duration_seconds_count 1";
        running.metrics.to_string().contains(counted).then_some(())
    })
    .await;
    let about: Api<Event> = api(client);
    let about =
        about.list(&ListParams::default().fields("involvedObject.name=theirs")).await.expect("a list");
    assert!(about.items.is_empty(), "nobody told anything about it: {about:?}");
}

/// E-04: who is meant is decided when a Job is looked at, not when the look was called for.
#[tokio::test]
async fn a_job_that_comes_back_under_another_controller_is_left_alone() {
    let cluster = embedded("job-controller,garbage-collector-controller").await;
    let client = &cluster.client;
    let jobs: Api<Job> = api(client);
    for round in 0..10 {
        let name = format!("job-{round}");
        create::<Job>(client, job(&name, json!({}))).await;
        jobs.delete(&name, &DeleteParams::background()).await.expect("deleted");
        let mut theirs = job(&name, json!({}));
        theirs["spec"]["managedBy"] = json!("example.com/x");
        let theirs: Job = create(client, theirs).await;
        create::<Job>(client, job(&format!("own-{round}"), json!({"completions": 0}))).await;
        finished(client, &format!("own-{round}")).await;
        let of_theirs = |pod: &Pod| {
            let owners = pod.metadata.owner_references.iter().flatten();
            owners.into_iter().any(|owner| Some(&owner.uid) == theirs.metadata.uid.as_ref())
        };
        let all = api::<Pod>(client).list(&ListParams::default()).await.expect("a list").items;
        assert!(!all.iter().any(of_theirs), "round {round}");
        let status = jobs.get(&name).await.expect("a Job").status.unwrap_or_default();
        assert_eq!(status, JobStatus::default(), "round {round}");
    }
}
