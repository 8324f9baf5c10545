//! A Job submitted to the manager runs on a worker, and looks as if it ran where it was submitted.

use std::time::Duration;

use fleet::{Fleet, QUEUE, Quota, Runtime, Settings};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use serde_json::{Value, json};

fn settings() -> Settings {
    Settings {
        workers: vec!["east".to_owned(), "west".to_owned()],
        data: None,
        port_base: 0,
        runtime: Runtime::Simulated,
        hidden: Vec::new(),
        quota: Quota { cpu: "8".to_owned(), memory: "32Gi".to_owned() },
        kept_logs: fleet::KEPT_LOGS,
    }
}

fn job(name: &str, labels: Value, spec: Value) -> Job {
    let mut spec = spec;
    let container = json!({ "name": "main", "image": "busybox", "command": ["true"], "resources": { "requests": { "cpu": "1" } } });
    spec["template"] = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }))
        .expect("a Job")
}

/// The Job once `what` holds of it.
async fn until(api: &Api<Job>, name: &str, what: impl Condition<Job>) -> Job {
    let waiting = await_condition(api.clone(), name, what);
    let job =
        tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("in time").expect("a watch");
    job.expect("the Job")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_on_one_worker_and_completes_on_the_manager() -> anyhow::Result<()> {
    let fleet = Fleet::start(&settings()).await?;
    let client = fleet.manager().client();
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let queued = job(
        "render",
        json!({ "kueue.x-k8s.io/queue-name": QUEUE }),
        json!({ "completions": 3, "parallelism": 3 }),
    );
    let made = jobs.create(&PostParams::default(), &queued).await?;
    let spec = made.spec.expect("a spec");
    assert_eq!(spec.suspend, Some(true), "it waits for quota");
    assert_eq!(spec.managed_by.as_deref(), Some("kueue.x-k8s.io/multikueue"));

    let done = until(&jobs, "render", conditions::is_job_completed()).await;
    assert_eq!(done.status.and_then(|status| status.succeeded), Some(3));

    let pods = |client| async move {
        let api: Api<Pod> = Api::all(client);
        Ok::<_, kube::Error>(api.list(&ListParams::default()).await?.items.len())
    };
    assert_eq!(pods(client.clone()).await?, 0, "no pods on the manager");
    fleet.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_names_no_queue_runs_where_it_is() -> anyhow::Result<()> {
    let fleet = Fleet::start(&settings()).await?;
    let jobs: Api<Job> = Api::default_namespaced(fleet.manager().client());
    jobs.create(&PostParams::default(), &job("local", json!({}), json!({}))).await?;
    until(&jobs, "local", conditions::is_job_completed()).await;
    let pods: Api<Pod> = Api::default_namespaced(fleet.manager().client());
    assert_eq!(pods.list(&ListParams::default()).await?.items.len(), 1);
    for worker in fleet.workers() {
        let jobs: Api<Job> = Api::all(worker.client());
        assert!(jobs.list(&ListParams::default()).await?.items.is_empty(), "{}", worker.name());
    }
    fleet.stop().await;
    Ok(())
}

fn of_pods(kind: &str, name: &str) -> Value {
    let container = json!({
        "name": "main", "image": "busybox", "command": ["sleep", "3600"], "resources": { "requests": { "cpu": "1" } },
    });
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": { "name": name, "labels": { "kueue.x-k8s.io/queue-name": QUEUE } },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "terminationGracePeriodSeconds": 1, "containers": [container] },
            },
        },
    });
    if kind == "StatefulSet" {
        object["spec"]["serviceName"] = json!(name);
    }
    object
}

/// MK-DEP-01, MK-STS-01, MK-STS-02: with everything that a cluster brings along. The pods on the manager wait for as long as
/// they are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_made_of_pods_runs_on_workers() -> anyhow::Result<()> {
    let fleet = Fleet::start(&settings()).await?;
    let client = fleet.manager().client();
    let (deployments, sets) = (
        Api::<Deployment>::default_namespaced(client.clone()),
        Api::<StatefulSet>::default_namespaced(client.clone()),
    );
    deployments
        .create(&PostParams::default(), &serde_json::from_value(of_pods("Deployment", "web"))?)
        .await?;
    sets.create(&PostParams::default(), &serde_json::from_value(of_pods("StatefulSet", "db"))?).await?;
    let ready = |it: Option<&Deployment>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|status| status.ready_replicas == Some(2))
    };
    tokio::time::timeout(Duration::from_secs(60), await_condition(deployments.clone(), "web", ready))
        .await??;
    let db_is_ready = async || -> Result<bool, kube::Error> {
        for worker in fleet.workers() {
            let there = Api::<StatefulSet>::default_namespaced(worker.client()).get_opt("db").await?;
            let status = there.and_then(|it| it.status);
            if status.is_some_and(|status| status.ready_replicas == Some(2)) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    eventually("both pods of the StatefulSet are ready on a worker", db_is_ready).await?;
    let here = Api::<Pod>::default_namespaced(client).list(&ListParams::default()).await?.items;
    assert!(here.len() >= 3, "{} pods", here.len());
    assert!(here.iter().all(rules::framework::pod::is_gated), "nothing runs on the manager");
    deployments.delete("web", &DeleteParams::background()).await?;
    sets.delete("db", &DeleteParams::background()).await?;
    let is_empty = async || -> Result<bool, kube::Error> {
        for worker in fleet.workers() {
            if !Api::<Pod>::all(worker.client()).list(&ListParams::default()).await?.items.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    };
    eventually("nothing is left on workers", is_empty).await?;
    fleet.stop().await;
    Ok(())
}

async fn eventually(what: &str, is: impl AsyncFn() -> Result<bool, kube::Error>) -> anyhow::Result<()> {
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while !is().await? {
        anyhow::ensure!(tokio::time::Instant::now() < until, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
