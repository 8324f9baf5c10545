//! Clusters come, go and are named in other ways, and what they run goes on.

use std::path::Path;

use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use types::kueue::ClusterQueue;

use super::fleet::{Fleet, WORKERS, delete_job, eventually};

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

fn cluster(name: &str) -> Value {
    json!({"apiVersion": KUEUE, "kind": "MultiKueueCluster", "metadata": {"name": name}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kueue-system"}})
}

async fn delete(fleet: &Fleet, object: &Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    fleet.manager.api(object)?.delete(name, &kube::api::DeleteParams::default()).await?;
    Ok(())
}

pub(super) async fn says(fleet: &Fleet, kind: &str, name: &str, expected: &str) -> anyhow::Result<()> {
    eventually(&format!("{kind} {name} says {expected}"), async || {
        let said = fleet.active(kind, name).await?;
        if said.starts_with(expected) { Ok(Some(())) } else { anyhow::bail!("it says {said}") }
    })
    .await
}

/// MK-CONN-02, MK-FLOW-23, MK-AC-04: a cluster that nobody knows any more keeps what it runs until it is known again.
pub(super) async fn a_cluster_is_forgotten_and_known_again(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("kept", json!({"seconds": "forever"})).await?;
    let name = fleet.running("kept").await?;
    let mirror = fleet.workers[name.as_str()].job("kept").await?.expect("a mirror").metadata.uid;
    delete(fleet, &cluster(&name)).await?;
    let missing = format!("True SomeActiveClusters: Missing clusters: [{name}]");
    says(fleet, "AdmissionCheck", "mk", &missing).await?;
    // Others go where they can, and it waits.
    fleet.submit("meanwhile", json!({})).await?;
    fleet.condition("meanwhile", "Complete").await?;
    assert_eq!(fleet.cluster_of("kept").await?.as_deref(), Some(name.as_str()));
    let mut object = cluster(&name);
    object["spec"] = json!({"clusterSource": {"kubeConfig": {"location": name}}});
    fleet.manager.create(object).await?;
    says(fleet, "MultiKueueCluster", &name, "True Active: Connected").await?;
    assert_eq!(fleet.running("kept").await?, name);
    let after = fleet.workers[name.as_str()].job("kept").await?.expect("a mirror").metadata.uid;
    assert_eq!(mirror, after, "it was left alone");
    delete_job(&fleet.manager.client, "kept").await?;
    fleet.clean().await
}

/// MK-CONN-10, MK-CONN-12, MK-API-08: the Secret goes and comes back; nobody has to say so twice.
pub(super) async fn a_secret_goes_and_comes_back(fleet: &mut Fleet) -> anyhow::Result<()> {
    delete(fleet, &secret("east")).await?;
    let missing = "False BadKubeConfig: load client config failed: Secret \"east\" not found";
    says(fleet, "MultiKueueCluster", "east", missing).await?;
    let mut object = secret("east");
    object["stringData"] = json!({"kubeconfig": fleet.kubeconfig("east")});
    fleet.manager.create(object).await?;
    says(fleet, "MultiKueueCluster", "east", "True Active: Connected").await
}

/// A name that comes to mean another cluster says nothing about what the first one runs: that is neither run again nor taken
/// for gone.
pub(super) async fn a_name_is_given_to_another_cluster(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("stays", json!({"seconds": "forever"})).await?;
    let name = fleet.running("stays").await?;
    let other = WORKERS.into_iter().find(|other| *other != name).expect("there are two");
    let config = |of: &str| json!({"stringData": {"kubeconfig": fleet.kubeconfig(of)}});
    fleet.manager.patch(secret(&name), config(other)).await?;
    says(fleet, "MultiKueueCluster", &name, "False AnotherCluster: the cluster ").await?;
    assert_eq!(fleet.cluster_of("stays").await?.as_deref(), Some(name.as_str()));
    assert!(fleet.workers[other].job("stays").await?.is_none(), "it is not run again");
    let mirror = fleet.workers[name.as_str()].job("stays").await?.expect("a mirror").metadata.uid;
    fleet.manager.patch(secret(&name), config(&name)).await?;
    says(fleet, "MultiKueueCluster", &name, "True Active: Connected").await?;
    let after = fleet.workers[name.as_str()].job("stays").await?.expect("a mirror").metadata.uid;
    assert_eq!(after, mirror, "it goes on where it was");
    delete_job(&fleet.manager.client, "stays").await?;
    fleet.clean().await
}

/// MK-CONN-21: a worker that is there under a second name keeps what it runs, whoever starts first, and is one worker to who
/// knows it by the second only.
pub(super) async fn a_cluster_has_two_names(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("doubled", json!({"seconds": "forever"})).await?;
    let name = fleet.running("doubled").await?;
    let mirror = fleet.workers[name.as_str()].job("doubled").await?.expect("a mirror").metadata.uid;
    let mut second = cluster("a-second-name");
    second["spec"] = json!({"clusterSource": {"kubeConfig": {"location": name}}});
    fleet.manager.create(second.clone()).await?;
    says(fleet, "MultiKueueCluster", "a-second-name", "True Active: Connected").await?;
    for _ in 0..2 {
        // Whatever is decided now is decided with both in view.
        fleet.submit("besides", json!({})).await?;
        fleet.done("besides").await?;
        delete_job(&fleet.manager.client, "besides").await?;
        let after = fleet.workers[name.as_str()].job("doubled").await?.and_then(|job| job.metadata.uid);
        assert_eq!(after, mirror, "it was left alone");
        fleet.kill().await;
        fleet.start().await;
        says(fleet, "MultiKueueCluster", "a-second-name", "True Active: Connected").await?;
    }
    delete_job(&fleet.manager.client, "doubled").await?;
    fleet.clean().await?;
    let config = json!({"apiVersion": KUEUE, "kind": "MultiKueueConfig", "metadata": {"name": "all"}});
    let clusters = |names: &[&str]| json!({"spec": {"clusters": names}});
    fleet.manager.patch(config.clone(), clusters(&["a-second-name"])).await?;
    fleet.submit("theirs", json!({})).await?;
    fleet.done("theirs").await?;
    assert_eq!(fleet.cluster_of("theirs").await?.as_deref(), Some("a-second-name"));
    delete_job(&fleet.manager.client, "theirs").await?;
    fleet.manager.patch(config, clusters(&WORKERS)).await?;
    delete(fleet, &second).await?;
    fleet.clean().await
}

/// MK-CONN-08, MK-CONN-09, MK-CONN-11, MK-CONN-12: a kubeconfig in a file, which may change or be missing, and a profile,
/// which is nothing that we use.
pub(super) async fn a_kubeconfig_is_in_a_file(fleet: &mut Fleet) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("east");
    let of = |path: &Path| json!({"kubeConfig": {"location": path, "locationType": "Path"}});
    let source = |source: Value| json!({"spec": {"clusterSource": source}});
    fleet.manager.patch(cluster("east"), source(of(&path))).await?;
    says(fleet, "MultiKueueCluster", "east", "False BadKubeConfig: load client config failed: open ").await?;
    std::fs::write(&path, fleet.kubeconfig("east"))?;
    says(fleet, "MultiKueueCluster", "east", "True Active: Connected").await?;
    eventually("somebody is told that files are not the way", async || {
        let events: Api<Event> = Api::all(fleet.manager.client.clone());
        let events = events.list(&ListParams::default()).await?;
        Ok(events.items.into_iter().find(|event| {
            let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
            event.reason.as_deref() == Some("DeprecatedPathUsage") && about == Some("east")
        }))
    })
    .await?;
    std::fs::write(&path, "{")?;
    let broken =
        "False InsecureKubeConfig: load client config failed: failed to parse kubeconfig(apiconfig): ";
    says(fleet, "MultiKueueCluster", "east", broken).await?;
    fleet
        .manager
        .patch(cluster("east"), source(json!({"kubeConfig": null, "clusterProfileRef": {"name": "p"}})))
        .await?;
    let profile = "False MultiKueueClusterProfileFeatureDisabled: load client config failed: MultiKueueClusterProfile feature gate is disabled";
    says(fleet, "MultiKueueCluster", "east", profile).await?;
    let back =
        json!({"kubeConfig": {"location": "east", "locationType": "Secret"}, "clusterProfileRef": null});
    fleet.manager.patch(cluster("east"), source(back)).await?;
    says(fleet, "MultiKueueCluster", "east", "True Active: Connected").await
}

/// MK-AC-05: while no worker can be used, nothing new gets quota; it does once one can.
pub(super) async fn nobody_gets_quota_without_a_worker(fleet: &mut Fleet) -> anyhow::Result<()> {
    for worker in WORKERS {
        delete(fleet, &secret(worker)).await?;
    }
    says(fleet, "AdmissionCheck", "mk", "False NoUsableClusters: Inactive clusters: [east west]").await?;
    eventually("the queue is inactive", async || {
        let queue: ClusterQueue = Api::all(fleet.manager.client.clone()).get("team").await?;
        let conditions = queue.status.map(|status| status.conditions).unwrap_or_default();
        let active = conditions.into_iter().find(|condition| condition.type_ == "Active");
        Ok(active.filter(|active| {
            (active.reason.as_str(), active.message.as_str())
                == (
                    "AdmissionCheckInactive",
                    "Can't admit new workloads: references inactive AdmissionCheck(s): mk.",
                )
        }))
    })
    .await?;
    fleet.submit("early", json!({})).await?;
    eventually("its Workload says that it waits", async || {
        let workload = fleet.manager.workload("early").await?;
        let conditions = workload.and_then(|it| it.status).map(|it| it.conditions).unwrap_or_default();
        Ok(conditions.into_iter().find(|it| it.type_ == "QuotaReserved" && it.status == "False"))
    })
    .await?;
    for worker in WORKERS {
        let mut object = secret(worker);
        object["stringData"] = json!({"kubeconfig": fleet.kubeconfig(worker)});
        fleet.manager.create(object).await?;
    }
    fleet.condition("early", "Complete").await?;
    fleet.clean().await
}
