//! Pods that run on workers: alone, in groups, and as parts of Deployments and StatefulSets. On the manager they wait behind
//! their gates all the time, and show how those on the worker fare. Webhooks are played by the test: what they would write is
//! in the objects that it creates.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use rules::framework::pod::is_gated;
use serde_json::{Value, json};

use super::fleet::{Fleet, NAMESPACE, Site, eventually};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

fn spec() -> Value {
    json!({
        "restartPolicy": "Never",
        "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }, { "name": "kueue.x-k8s.io/topology" }],
        "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }],
    })
}

/// A pod as webhooks leave it.
fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "finalizers": [MANAGED], "annotations": annotations,
            "labels": { QUEUE: "team", MANAGED: "true" },
        },
        "spec": spec(),
    })
}

fn member(name: &str, annotations: Value) -> Value {
    let mut pod = pod(name, &annotations);
    let annotations = &mut pod["metadata"]["annotations"];
    annotations["kueue.x-k8s.io/pod-group-name"] = json!("crew");
    annotations["kueue.x-k8s.io/pod-group-total-count"] = json!("2");
    annotations["kueue.x-k8s.io/role-hash"] = json!("role");
    pod
}

fn pods(site: &Site) -> Api<Pod> {
    Api::namespaced(site.client.clone(), NAMESPACE)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Waits until a pod on the manager is in this phase, and sees to it that it never left its gate.
async fn shows(fleet: &Fleet, name: &str, wanted: &str) -> anyhow::Result<Pod> {
    eventually(&format!("{name} is {wanted} on the manager"), async || {
        let shown = pods(&fleet.manager).get(name).await?;
        anyhow::ensure!(is_gated(&shown), "{name} left its gate on the manager");
        Ok((phase(&shown) == wanted).then_some(shown))
    })
    .await
}

/// The worker on which a Workload runs.
async fn worker_of<'a>(fleet: &'a Fleet, starts_with: &str) -> anyhow::Result<&'a Site> {
    eventually(&format!("{starts_with} is on a worker"), async || {
        let all = fleet.manager.workloads().await?;
        let found = all
            .into_iter()
            .find(|it| it.metadata.name.as_deref().is_some_and(|name| name.starts_with(starts_with)));
        let cluster = found.and_then(|it| it.status?.cluster_name);
        Ok(cluster.map(|cluster| &fleet.workers[cluster.as_str()]))
    })
    .await
}

async fn nothing_left(fleet: &Fleet) -> anyhow::Result<()> {
    for site in fleet.workers.values() {
        eventually("nothing is left on workers", async || {
            let left = pods(site).list(&ListParams::default()).await?.items;
            Ok((left.is_empty() && site.workloads().await?.is_empty()).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// MK-POD-01, MK-POD-04.
async fn a_pod(fleet: &Fleet) -> anyhow::Result<()> {
    fleet.manager.create(pod("alone", &json!({}))).await?;
    let shown = shows(fleet, "alone", "Succeeded").await?;
    eventually("it is let go", async || {
        let finalizers = pods(&fleet.manager).get("alone").await?.metadata.finalizers;
        Ok(finalizers.is_none_or(|all| all.is_empty()).then_some(()))
    })
    .await?;
    assert!(shown.spec.unwrap_or_default().node_name.is_none());
    nothing_left(fleet).await?;
    // One that goes on is stopped there when it is deleted here.
    fleet.manager.create(pod("endless", &json!({ "seconds": "forever" }))).await?;
    shows(fleet, "endless", "Running").await?;
    pods(&fleet.manager).delete("endless", &DeleteParams::default()).await?;
    eventually("it is gone", async || {
        Ok(pods(&fleet.manager).get_opt("endless").await?.is_none().then_some(()))
    })
    .await?;
    nothing_left(fleet).await
}

/// MK-POD-02, MK-POD-03, MK-POD-05: all pods of a group run on one worker; who is replaced here is replaced there.
async fn a_group(fleet: &Fleet) -> anyhow::Result<()> {
    let endless = json!({ "seconds": "forever" });
    fleet.manager.create(member("one", endless.clone())).await?;
    fleet.manager.create(member("two", endless)).await?;
    let worker = worker_of(fleet, "crew").await?;
    for name in ["one", "two"] {
        shows(fleet, name, "Running").await?;
        let mirror = pods(worker).get(name).await?;
        assert!(!is_gated(&mirror));
        assert_eq!(
            mirror.metadata.labels.unwrap_or_default()["kueue.x-k8s.io/multikueue-worker-workload-pod"],
            "true"
        );
    }
    // Somebody replaces one of them.
    let failed = json!({ "status": { "phase": "Failed" } });
    worker.patch_status(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "one", "namespace": NAMESPACE } }), failed).await?;
    shows(fleet, "one", "Failed").await?;
    fleet.manager.create(member("three", json!({}))).await?;
    pods(&fleet.manager).delete("one", &DeleteParams::default()).await?;
    shows(fleet, "three", "Succeeded").await?;
    eventually("the one that failed is gone there, too", async || {
        Ok(pods(worker).get_opt("one").await?.is_none().then_some(()))
    })
    .await?;
    let done = json!({ "status": { "phase": "Succeeded" } });
    worker.patch_status(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "two", "namespace": NAMESPACE } }), done).await?;
    shows(fleet, "two", "Succeeded").await?;
    let message = eventually("the group is over", async || {
        let all = fleet.manager.workloads().await?;
        let group =
            all.into_iter().find(|it| it.metadata.name.as_deref() == Some("crew")).context("its Workload")?;
        let conditions = group.status.unwrap_or_default().conditions;
        Ok(conditions
            .into_iter()
            .find(|it| it.type_ == "Finished" && it.status == "True")
            .map(|it| it.message))
    })
    .await?;
    assert_eq!(message, "Pods succeeded: 2/2.");
    nothing_left(fleet).await
}

/// MK-POD-06: a group that a worker takes back waits again on the manager, and runs again.
async fn a_group_is_taken_back(fleet: &Fleet) -> anyhow::Result<()> {
    let endless = json!({ "seconds": "forever" });
    for name in ["four", "five"] {
        let mut pod = member(name, endless.clone());
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"] = json!("crew-two");
        fleet.manager.create(pod).await?;
    }
    let worker = worker_of(fleet, "crew-two").await?;
    for name in ["four", "five"] {
        shows(fleet, name, "Running").await?;
    }
    let before = pods(worker).get("four").await?.metadata.uid;
    let group = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": "crew-two", "namespace": NAMESPACE },
    });
    worker.patch(group, json!({ "spec": { "active": false } })).await?;
    eventually("it runs again", async || {
        for site in fleet.workers.values() {
            let there = pods(site).get_opt("four").await?.filter(|pod| phase(pod) == "Running");
            if there.is_some_and(|pod| pod.metadata.uid != before) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })
    .await?;
    for name in ["four", "five"] {
        shows(fleet, name, "Running").await?;
        pods(&fleet.manager).delete(name, &DeleteParams::default()).await?;
    }
    nothing_left(fleet).await
}

fn of_apps(kind: &str, name: &str, replicas: i32) -> Value {
    let mut labels = json!({ "app": name, MANAGED: "true" });
    if kind == "Deployment" {
        labels[QUEUE] = json!("team");
    }
    let mut pod = spec();
    pod["restartPolicy"] = json!("Always");
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { QUEUE: "team" } },
        "spec": {
            "replicas": replicas, "serviceName": (kind == "StatefulSet").then_some(name),
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": {
                    "labels": labels, "annotations": { PARENT: kind.to_lowercase(), "seconds": "forever" },
                },
                "spec": pod,
            },
        },
    })
}

/// MK-DEP-01: each pod of a Deployment is sent by itself, and its Deployment counts it as ready.
async fn a_deployment(fleet: &Fleet) -> anyhow::Result<()> {
    let mut deployment = of_apps("Deployment", "web", 2);
    deployment["spec"].as_object_mut().context("a spec")?.remove("serviceName");
    fleet.manager.create(deployment.clone()).await?;
    let ready = async |count: i64| {
        eventually(&format!("{count} are ready"), async || {
            let shown = fleet.manager.api(&deployment)?.get("web").await?;
            Ok((shown.data["status"]["readyReplicas"].as_i64().unwrap_or(0) == count).then_some(()))
        })
        .await
    };
    ready(2).await?;
    fleet.manager.patch(deployment.clone(), json!({ "spec": { "replicas": 1 } })).await?;
    ready(1).await?;
    eventually("one is left", async || {
        let mut there = 0;
        for site in fleet.workers.values() {
            there += pods(site).list(&ListParams::default()).await?.items.len();
        }
        Ok((there == 1).then_some(()))
    })
    .await?;
    for pod in pods(&fleet.manager).list(&ListParams::default().labels("app=web")).await? {
        assert!(is_gated(&pod), "it runs elsewhere");
    }
    fleet.manager.api(&deployment)?.delete("web", &DeleteParams::background()).await?;
    nothing_left(fleet).await
}

/// MK-STS-01, MK-STS-02: a StatefulSet is sent whole, and comes back when it has no replicas.
async fn a_stateful_set(fleet: &Fleet) -> anyhow::Result<()> {
    let set = of_apps("StatefulSet", "db", 2);
    fleet.manager.create(set.clone()).await?;
    let worker = worker_of(fleet, "statefulset-db-").await?;
    eventually("both are ready there", async || {
        let there = worker.api(&set)?.get_opt("db").await?;
        let ready = there.and_then(|set| set.data["status"]["readyReplicas"].as_i64());
        Ok((ready == Some(2)).then_some(()))
    })
    .await?;
    let here = pods(&fleet.manager).list(&ListParams::default().labels("app=db")).await?.items;
    assert!(!here.is_empty() && here.iter().all(is_gated), "they wait on the manager");
    fleet.manager.patch(set.clone(), json!({ "spec": { "replicas": 0 } })).await?;
    eventually("it is gone there", async || {
        let holds = fleet.manager.workloads().await?.into_iter().find_map(|it| {
            let conditions = it.status?.conditions;
            conditions.into_iter().find(|it| it.type_ == "QuotaReserved" && it.reason == "OnHold")
        });
        let left = worker.api(&set)?.get_opt("db").await?;
        Ok((left.is_none() && holds.is_some()).then_some(()))
    })
    .await?;
    nothing_left(fleet).await?;
    fleet.manager.patch(set.clone(), json!({ "spec": { "replicas": 1 } })).await?;
    // It may be another worker this time.
    eventually("it is there again", async || {
        for worker in fleet.workers.values() {
            let there = worker.api(&set)?.get_opt("db").await?;
            let ready = there.and_then(|set| set.data["status"]["readyReplicas"].as_i64());
            if ready.is_some_and(|ready| ready > 0) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })
    .await?;
    fleet.manager.api(&set)?.delete("db", &DeleteParams::background()).await?;
    nothing_left(fleet).await
}

/// Never twice: a manager that starts anew finds the pods of a group where they are, and sends none of them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_starts_anew_finds_its_pods() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    let endless = json!({ "seconds": "forever" });
    for name in ["one", "two"] {
        fleet.manager.create(member(name, endless.clone())).await?;
    }
    for name in ["one", "two"] {
        shows(&fleet, name, "Running").await?;
    }
    let there = async |fleet: &Fleet| -> anyhow::Result<Vec<Option<String>>> {
        let mut uids = Vec::new();
        for site in fleet.workers.values() {
            let pods = pods(site).list(&ListParams::default()).await?.items;
            uids.extend(pods.into_iter().map(|pod| pod.metadata.uid));
        }
        Ok(uids)
    };
    let before = there(&fleet).await?;
    assert_eq!(before.len(), 2);
    fleet.kill().await;
    // While nobody looks, one of them ends.
    let worker = worker_of(&fleet, "crew").await?;
    let one =
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "one", "namespace": NAMESPACE } });
    worker.patch_status(one, json!({ "status": { "phase": "Succeeded" } })).await?;
    fleet.start().await;
    shows(&fleet, "one", "Succeeded").await?;
    assert_eq!(there(&fleet).await?, before, "the same pods, and no others");
    for name in ["one", "two"] {
        pods(&fleet.manager).delete(name, &DeleteParams::default()).await?;
    }
    nothing_left(&fleet).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_run_on_workers() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    Box::pin(a_pod(&fleet)).await.context("a pod")?;
    Box::pin(a_group(&fleet)).await.context("a group")?;
    Box::pin(a_group_is_taken_back(&fleet)).await.context("a group that is taken back")?;
    Box::pin(a_deployment(&fleet)).await.context("a Deployment")?;
    Box::pin(a_stateful_set(&fleet)).await.context("a StatefulSet")
}
