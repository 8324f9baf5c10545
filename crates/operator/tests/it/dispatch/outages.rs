//! Real control planes that die, freeze, and lose what they answered. Whatever happens, no Job has pods on two workers, and
//! none is lost.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use rules::dispatch::Adapter;
use serde_json::json;
use testkit::ControlPlane;

use super::{
    connections::says,
    faults::Fault,
    fleet::{Fleet, NAMESPACE, Site, WORKERS, delete_job, eventually},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real() -> anyhow::Result<()> {
    let Some(mut fleet) = Box::pin(Fleet::real()).await? else { return Ok(()) };
    a_worker_dies_and_comes_back(&fleet).await?;
    a_worker_freezes_for_less_than_the_lost_timeout(&mut fleet).await?;
    answers_are_lost_at_every_step(&fleet).await?;
    the_manager_dies_and_comes_back(&fleet).await?;
    fleet.check();
    a_worker_freezes_for_longer_than_the_lost_timeout(&mut fleet).await
}

/// A worker that does not say which Jobs it has may have them: nothing there is touched, and others go elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_not_shown_are_not_gone() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    fleet.submit("hidden", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("hidden").await?;
    let before = uids(&fleet.workers[cluster.as_str()], "hidden").await?;
    assert!(before.0.is_some() && before.1.is_some(), "{before:?}");
    fleet.fault(&cluster, Fault::HidesJobs);
    fleet.kill().await;
    fleet.start().await;
    fleet.until_active(&cluster, true).await?;
    fleet.submit("meanwhile", json!({})).await?;
    fleet.condition("meanwhile", "Complete").await?;
    assert_ne!(fleet.cluster_of("meanwhile").await?.as_deref(), Some(cluster.as_str()));
    let after = uids(&fleet.workers[cluster.as_str()], "hidden").await?;
    assert_eq!(after, before, "it is left alone");
    fleet.fault(&cluster, Fault::None);
    assert_eq!(fleet.running("hidden").await?, cluster);
    delete_job(&fleet.manager.client, "hidden").await?;
    fleet.clean().await?;
    fleet.check();
    Ok(())
}

/// MK-CONN-13: a worker that may be listed and not watched is not connected; and one whose Jobs may not be seen is left alone,
/// which those that wait for it say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_watched_is_not_connected() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    fleet.submit("unseen", json!({"seconds": "forever"})).await?;
    let name = fleet.running("unseen").await?;
    let before = uids(&fleet.workers[name.as_str()], "unseen").await?;
    fleet.kill().await;
    fleet.fault(&name, Fault::ForbidsWatches);
    fleet.start().await;
    let lost = "False ClientConnectionFailed: that is forbidden";
    says(&fleet, "MultiKueueCluster", &name, lost).await?;
    fleet.kill().await;
    fleet.fault(&name, Fault::ForbidsJobs);
    fleet.start().await;
    eventually("the check says why it waits", async || {
        let said = fleet.check_of("unseen").await?;
        let why = "which does not show its jobs: that is forbidden";
        if said.contains(why) { Ok(Some(())) } else { anyhow::bail!("it says {said:?}") }
    })
    .await?;
    says(&fleet, "MultiKueueCluster", &name, "True Active: Connected").await?;
    fleet.fault(&name, Fault::None);
    eventually("it is seen again", async || {
        let said = fleet.check_of("unseen").await?;
        Ok((said == format!("The workload was admitted on \"{name}\"")).then_some(()))
    })
    .await?;
    assert_eq!(uids(&fleet.workers[name.as_str()], "unseen").await?, before, "it was left alone");
    delete_job(&fleet.manager.client, "unseen").await?;
    fleet.clean().await?;
    fleet.check();
    Ok(())
}

/// Never twice: an address, which may be that of a load balancer, leads to another cluster from one moment to the next. What is
/// not there is not gone from the first, which is noticed with the next heartbeat, and before anything is believed to be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_leads_to_another_cluster() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    fleet.submit("switched", json!({"seconds": "forever"})).await?;
    let name = fleet.running("switched").await?;
    let other = WORKERS.into_iter().find(|other| *other != name).expect("there are two");
    let faults = fleet.workers[name.as_str()].faults.clone();
    let elsewhere = fleet.workers[other].client.clone();
    let before = uids(&fleet.workers[name.as_str()], "switched").await?;
    faults.lead(Some(elsewhere.clone()));
    says(&fleet, "MultiKueueCluster", &name, "False AnotherCluster: the cluster ").await?;
    faults.lead(None);
    says(&fleet, "MultiKueueCluster", &name, "True Active: Connected").await?;
    assert_eq!(fleet.running("switched").await?, name);
    assert_eq!(uids(&fleet.workers[name.as_str()], "switched").await?, before, "it was left alone");
    // No heartbeat comes before it is looked for.
    fleet.kill().await;
    fleet.settings.dispatch.heartbeat = Duration::from_secs(30);
    fleet.start().await;
    says(&fleet, "MultiKueueCluster", &name, "True Active: Connected").await?;
    assert_eq!(fleet.running("switched").await?, name);
    faults.lead(Some(elsewhere));
    delete_job(&fleet.workers[name.as_str()].client, "switched").await?;
    says(&fleet, "MultiKueueCluster", &name, "False AnotherCluster: the cluster ").await?;
    assert_eq!(fleet.cluster_of("switched").await?.as_deref(), Some(name.as_str()), "it waits");
    assert!(fleet.workers[other].job("switched").await?.is_none(), "it is not run again");
    delete_job(&fleet.manager.client, "switched").await?;
    fleet.check();
    Ok(())
}

/// Never twice: somebody deletes a mirror as `kubectl` does, and it is gone before its pods are. One of them does not go, and
/// nothing runs elsewhere until it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mirror_is_deleted_and_its_pods_are_not_gone() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    fleet.kill().await;
    fleet.settings.dispatch.kinds.extend(Adapter::of("v1", "Pod"));
    fleet.start().await;
    fleet.submit("outlived", json!({"seconds": "forever"})).await?;
    let name = fleet.running("outlived").await?;
    let worker = &fleet.workers[name.as_str()];
    let pods: Api<Pod> = Api::namespaced(worker.client.clone(), NAMESPACE);
    let pod = eventually("its pod is there", async || {
        let there = pods.list(&ListParams::default()).await?.items;
        Ok(there.into_iter().find_map(|pod| pod.metadata.name))
    })
    .await?;
    let keep = |finalizers: serde_json::Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let with = PatchParams::default();
    pods.patch(&pod, &with, &keep(json!(["batch.kubernetes.io/job-tracking", "example.com/stays"]))).await?;
    // It gets nothing new.
    let queue =
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"}});
    worker.patch(queue, json!({"spec": {"stopPolicy": "Hold"}})).await?;
    delete_job(&worker.client, "outlived").await?;
    eventually("its check says what is waited for", async || {
        let said = fleet.check_of("outlived").await?;
        if said.contains("1 of its pods") { Ok(Some(())) } else { anyhow::bail!("it says {said:?}") }
    })
    .await?;
    let others = fleet.workers.iter().filter(|(other, _)| **other != name);
    for (_, other) in others {
        assert!(other.job("outlived").await?.is_none(), "it is not run again");
    }
    pods.patch(&pod, &with, &keep(json!([]))).await?;
    eventually("it runs elsewhere", async || {
        let active = fleet.manager.job("outlived").await?.and_then(|job| job.status?.active);
        Ok(fleet.cluster_of("outlived").await?.filter(|now| *now != name && active > Some(0)))
    })
    .await?;
    fleet.check();
    Ok(())
}

/// The mirror and the copy that a worker has of a Job.
async fn uids(worker: &Site, job: &str) -> anyhow::Result<(Option<String>, Option<String>)> {
    let (mirror, copy) = (worker.job(job).await?, worker.workload(job).await?);
    Ok((mirror.and_then(|it| it.metadata.uid), copy.and_then(|it| it.metadata.uid)))
}

fn plane(site: &Site) -> &ControlPlane {
    site.plane.as_ref().expect("a real control plane")
}

/// The Job on a worker that died runs on when the worker is back; meanwhile others complete on the other worker.
async fn a_worker_dies_and_comes_back(fleet: &Fleet) -> anyhow::Result<()> {
    fleet.submit("survives", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("survives").await?;
    let worker = &fleet.workers[cluster.as_str()];
    let mirror = worker.job("survives").await?.expect("a mirror").metadata.uid;
    plane(worker).kill();
    fleet.until_active(&cluster, false).await?;
    fleet.submit("meanwhile", json!({})).await?;
    fleet.condition("meanwhile", "Complete").await?;
    assert_eq!(fleet.cluster_of("survives").await?.as_deref(), Some(cluster.as_str()), "it waits");
    plane(worker).restart().await?;
    fleet.until_active(&cluster, true).await?;
    let after = worker.job("survives").await?.expect("a mirror").metadata.uid;
    assert_eq!(mirror, after, "it was left alone");
    assert_eq!(fleet.running("survives").await?, cluster);
    delete_job(&fleet.manager.client, "survives").await?;
    fleet.clean().await
}

/// MK-LOST-02, MK-LOST-05.
async fn a_worker_freezes_for_less_than_the_lost_timeout(fleet: &mut Fleet) -> anyhow::Result<()> {
    restart_with_timeout(fleet, Some(SignedDuration::from_secs(120))).await;
    fleet.submit("frozen", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("frozen").await?;
    let worker = &fleet.workers[cluster.as_str()];
    let mirror = worker.job("frozen").await?.expect("a mirror").metadata.uid;
    plane(worker).freeze()?;
    fleet.until_active(&cluster, false).await?;
    plane(worker).thaw()?;
    fleet.until_active(&cluster, true).await?;
    assert_eq!(fleet.running("frozen").await?, cluster);
    assert_eq!(mirror, worker.job("frozen").await?.expect("a mirror").metadata.uid, "it was left alone");
    delete_job(&fleet.manager.client, "frozen").await?;
    fleet.clean().await?;
    restart_with_timeout(fleet, None).await;
    Ok(())
}

/// Requests are applied and the answers lost, from wherever a dispatch has come to by then.
async fn answers_are_lost_at_every_step(fleet: &Fleet) -> anyhow::Result<()> {
    for after in [10_u64, 40, 70, 100, 150, 200, 300] {
        let name = format!("unheard-{after}");
        fleet.submit(&name, json!({})).await?;
        tokio::time::sleep(Duration::from_millis(after)).await;
        for worker in WORKERS {
            fleet.fault(worker, Fault::LosesAnswers);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        for worker in WORKERS {
            fleet.fault(worker, Fault::None);
        }
        fleet.condition(&name, "Complete").await?;
    }
    fleet.clean().await
}

/// The manager's API server dies with Jobs of which one runs and one was just accepted; both end.
async fn the_manager_dies_and_comes_back(fleet: &Fleet) -> anyhow::Result<()> {
    fleet.submit("runs", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("runs").await?;
    let mirror = fleet.workers[cluster.as_str()].job("runs").await?.expect("a mirror").metadata.uid;
    fleet.submit("accepted", json!({})).await?;
    plane(&fleet.manager).restart().await?;
    fleet.condition("accepted", "Complete").await?;
    fleet.submit("new", json!({})).await?;
    fleet.condition("new", "Complete").await?;
    assert_eq!(fleet.running("runs").await?, cluster);
    let after = fleet.workers[cluster.as_str()].job("runs").await?.expect("a mirror").metadata.uid;
    assert_eq!(mirror, after, "it was left alone");
    delete_job(&fleet.manager.client, "runs").await?;
    fleet.clean().await
}

/// MK-LOST-03, MK-LOST-04: it runs elsewhere, which may be twice while the worker is away, and what was left there goes.
async fn a_worker_freezes_for_longer_than_the_lost_timeout(fleet: &mut Fleet) -> anyhow::Result<()> {
    restart_with_timeout(fleet, Some(SignedDuration::from_secs(3))).await;
    fleet.submit("moved", json!({"seconds": "forever"})).await?;
    let first = fleet.running("moved").await?;
    plane(&fleet.workers[first.as_str()]).freeze()?;
    let second = eventually("it runs elsewhere", async || {
        let active = fleet.manager.job("moved").await?.and_then(|job| job.status?.active);
        Ok(fleet.cluster_of("moved").await?.filter(|now| *now != first && active > Some(0)))
    })
    .await?;
    plane(&fleet.workers[first.as_str()]).thaw()?;
    eventually("what was left there is gone", async || {
        Ok(fleet.workers[first.as_str()].job("moved").await?.is_none().then_some(()))
    })
    .await?;
    assert_eq!(fleet.running("moved").await?, second, "it was left alone where it runs now");
    delete_job(&fleet.manager.client, "moved").await?;
    fleet.clean().await?;
    fleet.witness.forgive(&format!("{NAMESPACE}/moved"));
    fleet.check();
    Ok(())
}

async fn restart_with_timeout(fleet: &mut Fleet, timeout: Option<SignedDuration>) {
    fleet.kill().await;
    fleet.settings.dispatch.policy.worker_lost_timeout = timeout;
    fleet.start().await;
}
