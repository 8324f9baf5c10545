//! Clusters that do more than one thing: managers with Jobs of their own, workers with Jobs and managers of others.

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, api::ListParams};
use serde_json::json;

use super::{
    faults::Fault,
    fleet::{Fleet, NAMESPACE, delete_job, eventually, job},
};

/// MK-ORI-03, MK-INT-07: "Share manager cluster between MultiKueue and regular Kueue", "Share worker cluster between MultiKueue and regular
/// Kueue": a Job in a queue that leads nowhere runs where it is, on the manager as on a worker, beside those that travel.
pub(super) async fn jobs_that_stay_where_they_are(fleet: &mut Fleet) -> anyhow::Result<()> {
    let kueue = "kueue.x-k8s.io/v1beta2";
    let quota = json!([{"name": "cpu", "nominalQuota": "10"}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": quota}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    fleet
        .manager
        .create(
            json!({"apiVersion": kueue, "kind": "ClusterQueue", "metadata": {"name": "local"}, "spec": spec}),
        )
        .await?;
    let metadata = json!({"name": "local", "namespace": NAMESPACE});
    let spec = json!({"clusterQueue": "local"});
    fleet
        .manager
        .create(json!({"apiVersion": kueue, "kind": "LocalQueue", "metadata": metadata, "spec": spec}))
        .await?;
    let stays = |name: &str, queue: &str| {
        let mut object = job(name, json!({}));
        object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
        object["spec"]["managedBy"] = json!(null);
        object
    };
    fleet.manager.create(stays("stays", "local")).await?;
    fleet.workers["east"].create(stays("native", "team")).await?;
    fleet.submit("travels", json!({})).await?;
    for name in ["stays", "travels"] {
        fleet.condition(name, "Complete").await?;
    }
    eventually("the worker's own completes", async || {
        let job = fleet.workers["east"].job("native").await?;
        Ok(job.filter(|job| job.status.as_ref().is_some_and(|status| status.completion_time.is_some())))
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(fleet.manager.client.clone(), NAMESPACE);
    let of = |name: &str| ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    assert_eq!(pods.list(&of("stays")).await?.items.len(), 1);
    assert_eq!(pods.list(&of("travels")).await?.items.len(), 0);
    for worker in fleet.workers.values() {
        assert!(worker.job("stays").await?.is_none());
    }
    delete_job(&fleet.workers["east"].client, "native").await?;
    delete_job(&fleet.manager.client, "stays").await?;
    fleet.clean().await
}

/// MK-COPY-05: a Workload of the same name that is somebody else's is neither used nor deleted; the worker is not asked
/// for that long, and says why.
pub(super) async fn somebody_elses_workload_is_in_the_way(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.fault("east", Fault::Refuses);
    fleet.fault("west", Fault::Refuses);
    fleet.until_active("east", false).await?;
    fleet.until_active("west", false).await?;
    // It gets no quota while no worker can be reached; its name is known all the same.
    fleet.submit("taken", json!({})).await?;
    let workload = eventually("it has a Workload", async || fleet.manager.workload("taken").await).await?;
    let name = workload.metadata.name.clone().expect("a name");
    let theirs = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"queueName": "nowhere", "podSets": workload.spec.pod_sets},
    });
    fleet.workers["east"].create(theirs.clone()).await?;
    let uid = fleet.workers["east"].workload("taken").await?.expect("theirs").metadata.uid;
    fleet.fault("east", Fault::None);
    let why = "east: a Workload of this name there belongs to somebody else";
    eventually("the check says so", async || {
        let workload = fleet.manager.workload("taken").await?;
        let checks = workload.and_then(|it| it.status).map(|it| it.admission_checks).unwrap_or_default();
        Ok(checks.into_iter().find(|check| check.message.contains(why)))
    })
    .await?;
    fleet.fault("west", Fault::None);
    fleet.condition("taken", "Complete").await?;
    let there = fleet.workers["east"].workload("taken").await?.expect("it is still there");
    assert_eq!(there.metadata.uid, uid);
    let api = fleet.workers["east"].api(&theirs)?;
    api.delete(&name, &kube::api::DeleteParams::default()).await?;
    fleet.clean().await
}

/// MK-ORI-02: a manager that calls itself something else finds nothing of what it created before. What it knows to be
/// somewhere is not started elsewhere, and when it has its name back, all is as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_forgets_its_name() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    fleet.submit("mine", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("mine").await?;
    let uid = async |fleet: &Fleet| -> anyhow::Result<Option<String>> {
        Ok(fleet.workers[cluster.as_str()].job("mine").await?.and_then(|job: Job| job.metadata.uid))
    };
    let mirror = uid(&fleet).await?;
    let rename = async |fleet: &mut Fleet, origin: &str| {
        fleet.kill().await;
        fleet.settings.dispatch.origin = origin.to_owned();
        fleet.start().await;
    };
    rename(&mut fleet, "somebody").await;
    let note = format!(
        "Worker cluster \"{cluster}\" refused the workload: a Workload of this name there belongs to somebody else"
    );
    eventually("it is told", async || {
        let events: Api<k8s_openapi::api::events::v1::Event> =
            Api::namespaced(fleet.manager.client.clone(), NAMESPACE);
        let events = events.list(&ListParams::default()).await?;
        Ok(events.items.into_iter().find(|event| event.note.as_deref() == Some(&note)))
    })
    .await?;
    // Others go their way meanwhile, which takes longer than to look once more.
    fleet.submit("other", json!({})).await?;
    fleet.condition("other", "Complete").await?;
    // What it leaves behind under that name is nobody's under another.
    for (name, worker) in &fleet.workers {
        let is_gone = async || {
            Ok((worker.job("other").await?.is_none() && worker.workload("other").await?.is_none())
                .then_some(()))
        };
        eventually(&format!("{name} holds nothing of the other"), is_gone).await?;
    }
    assert_eq!(fleet.cluster_of("mine").await?.as_deref(), Some(cluster.as_str()));
    assert_eq!(uid(&fleet).await?, mirror, "it was left alone");
    rename(&mut fleet, "multikueue").await;
    fleet.running("mine").await?;
    delete_job(&fleet.manager.client, "mine").await?;
    fleet.clean().await?;
    fleet.check();
    Ok(())
}
