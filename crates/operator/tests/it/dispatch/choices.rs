//! Which clusters a Workload is offered to, as the configuration and the dispatchers have it, and what is counted.

use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rules::dispatch::Dispatcher;
use serde_json::{Value, json};
use types::kueue::{ClusterQueue, Workload};

use super::fleet::{Fleet, NAMESPACE, WORKERS, delete_job, eventually};

/// A Job that runs until it is stopped.
async fn submit(fleet: &Fleet, name: &str) -> anyhow::Result<()> {
    fleet.submit(name, json!({"seconds": "forever"})).await
}

/// The clusters that hold a copy of a Job's Workload.
async fn offered(fleet: &Fleet, job: &str) -> anyhow::Result<Vec<&'static str>> {
    let mut holders = Vec::new();
    for (name, worker) in &fleet.workers {
        if worker.workload(job).await?.is_some() {
            holders.push(*name);
        }
    }
    Ok(holders)
}

pub(super) async fn until_offered(fleet: &Fleet, job: &str, clusters: &[&str]) -> anyhow::Result<()> {
    eventually(&format!("{job} is offered to {clusters:?}"), async || {
        Ok((offered(fleet, job).await? == clusters).then_some(()))
    })
    .await
}

/// No worker admits anything any more, or again.
pub(super) async fn close_workers(fleet: &Fleet, closed: bool) -> anyhow::Result<()> {
    let queue =
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"}});
    let policy = if closed { "Hold" } else { "None" };
    for worker in fleet.workers.values() {
        worker.patch(queue.clone(), json!({"spec": {"stopPolicy": policy}})).await?;
    }
    Ok(())
}

async fn configure(fleet: &Fleet, clusters: &[&str]) -> anyhow::Result<()> {
    let config = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "all"}});
    fleet.manager.patch(config, json!({"spec": {"clusters": clusters}})).await
}

async fn nominated(fleet: &Fleet, job: &str) -> anyhow::Result<Vec<String>> {
    let workload = fleet.manager.workload(job).await?;
    Ok(workload
        .and_then(|workload| workload.status)
        .map(|status| status.nominated_cluster_names)
        .unwrap_or_default())
}

/// Copies may be there before it is written down to whom they were offered.
async fn until_nominated(fleet: &Fleet, job: &str, clusters: &[&str]) -> anyhow::Result<()> {
    eventually(&format!("{clusters:?} are nominated for {job}"), async || {
        Ok((nominated(fleet, job).await? == clusters).then_some(()))
    })
    .await
}

/// MK-TRG-01, MK-AC-04: "Should re-evaluate pending workloads when the MultiKueueConfig changes".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_workloads_follow_the_configuration() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    close_workers(&fleet, true).await?;
    configure(&fleet, &["east"]).await?;
    submit(&fleet, "waits").await?;
    until_offered(&fleet, "waits", &["east"]).await?;
    configure(&fleet, &WORKERS).await?;
    until_offered(&fleet, "waits", &WORKERS).await?;
    configure(&fleet, &["west"]).await?;
    until_offered(&fleet, "waits", &["west"]).await?;
    close_workers(&fleet, false).await?;
    assert_eq!(fleet.running("waits").await?, "west");
    // MK-FLOW-24: it is stopped where it is no longer wanted before it runs elsewhere.
    configure(&fleet, &["east"]).await?;
    eventually("it runs on east", async || {
        let active = fleet.manager.job("waits").await?.and_then(|job: Job| job.status?.active);
        Ok(fleet.cluster_of("waits").await?.filter(|now| now == "east" && active > Some(0)))
    })
    .await?;
    fleet.check();
    delete_job(&fleet.manager.client, "waits").await?;
    fleet.clean().await
}

/// MK-AC-01, MK-AC-02, MK-AC-04, MK-API-04 as the configuration changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_follow_the_configuration() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    let says = async |expected: &str| {
        eventually(&format!("the check says {expected}"), async || {
            let said = fleet.active("AdmissionCheck", "mk").await?;
            if said == expected { Ok(Some(())) } else { anyhow::bail!("it says {said}") }
        })
        .await
    };
    says("True Active: The admission check is active").await?;
    configure(&fleet, &["east", "nowhere"]).await?;
    says("True SomeActiveClusters: Missing clusters: [nowhere]").await?;
    configure(&fleet, &["nowhere", "neither"]).await?;
    says("False NoUsableClusters: Missing clusters: [nowhere neither]").await?;
    configure(&fleet, &WORKERS).await?;
    says("True Active: The admission check is active").await
}

/// MK-DISP-09, MK-DISP-10, MK-DISP-11, MK-DISP-12: one cluster at a time, in the order of the configuration, and a restart begins no round anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_incremental_dispatcher_asks_a_few() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    close_workers(&fleet, true).await?;
    configure(&fleet, &["west", "east"]).await?;
    with_dispatcher(&mut fleet, Dispatcher::Incremental { step: 1 }).await;
    submit(&fleet, "few").await?;
    until_offered(&fleet, "few", &["west"]).await?;
    with_dispatcher(&mut fleet, Dispatcher::Incremental { step: 1 }).await;
    until_offered(&fleet, "few", &["west"]).await?;
    until_nominated(&fleet, "few", &["west"]).await?;
    // Five minutes later.
    let quota =
        quota_since(&fleet, "few", jiff::Timestamp::now() - jiff::SignedDuration::from_secs(301)).await?;
    assert!(quota, "its quota is older now");
    with_dispatcher(&mut fleet, Dispatcher::Incremental { step: 1 }).await;
    until_offered(&fleet, "few", &WORKERS).await?;
    until_nominated(&fleet, "few", &["west", "east"]).await?;
    close_workers(&fleet, false).await?;
    fleet.running("few").await?;
    assert_eq!(nominated(&fleet, "few").await?, Vec::<String>::new(), "a cluster is chosen");
    fleet.check();
    Ok(())
}

/// MK-DISP-17: who has the least to do gets the next one, and who has no room is not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_with_the_least_to_do_gets_the_next_job() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    with_dispatcher(&mut fleet, Dispatcher::LeastLoaded).await;
    for (job, cluster) in [("first", "east"), ("second", "west"), ("third", "east")] {
        submit(&fleet, job).await?;
        assert_eq!(fleet.running(job).await?, cluster, "{job}");
    }
    close_workers(&fleet, true).await?;
    submit(&fleet, "late").await?;
    until_offered(&fleet, "late", &WORKERS).await?;
    until_nominated(&fleet, "late", &["west", "east"]).await?;
    close_workers(&fleet, false).await?;
    fleet.running("late").await?;
    fleet.check();
    Ok(())
}

/// MK-DISP-13, MK-DISP-14, MK-DISP-15, MK-DISP-16: somebody else says who is asked, under whatever name that is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_dispatcher_decides() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    close_workers(&fleet, true).await?;
    with_dispatcher(&mut fleet, Dispatcher::External).await;
    submit(&fleet, "told").await?;
    fleet.workload_condition("told", "QuotaReserved", "QuotaReserved").await?;
    assert_eq!(offered(&fleet, "told").await?, Vec::<&str>::new(), "nobody said so yet");
    let say = async |clusters: &[&str]| -> anyhow::Result<()> {
        let object = fleet.workload_object("told").await?;
        fleet.manager.patch_status(object, json!({"status": {"nominatedClusterNames": clusters}})).await
    };
    say(&["west", "unknown"]).await?;
    until_offered(&fleet, "told", &["west"]).await?;
    say(&["east"]).await?;
    until_offered(&fleet, "told", &["east"]).await?;
    close_workers(&fleet, false).await?;
    assert_eq!(fleet.running("told").await?, "east");
    assert_eq!(
        nominated(&fleet, "told").await?,
        Vec::<String>::new(),
        "the list is cleared, whoever wrote it"
    );
    // MK-DISP-16: nor does anything of it stay after an eviction, so that it can be said anew.
    let queue =
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"}});
    fleet.manager.patch(queue.clone(), json!({"spec": {"stopPolicy": "HoldAndDrain"}})).await?;
    fleet.clean().await?;
    eventually("its quota is free", async || {
        let workload = fleet.manager.workload("told").await?;
        Ok(workload.filter(|it| it.status.as_ref().is_some_and(|status| status.admission.is_none())))
    })
    .await?;
    assert_eq!(fleet.cluster_of("told").await?, None);
    assert_eq!(nominated(&fleet, "told").await?, Vec::<String>::new());
    fleet.manager.patch(queue, json!({"spec": {"stopPolicy": "None"}})).await?;
    eventually("it has quota again", async || {
        let workload = fleet.manager.workload("told").await?;
        Ok(workload.filter(|it| it.status.as_ref().is_some_and(|status| status.admission.is_some())))
    })
    .await?;
    say(&["west"]).await?;
    assert_eq!(fleet.running("told").await?, "west");
    fleet.check();
    Ok(())
}

/// Section 9.3 of the rules: what was offered, what was admitted, who can be reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatch_is_counted() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    fleet.submit("counted", json!({})).await?;
    fleet.condition("counted", "Complete").await?;
    let cluster = {
        let text = fleet.operator.as_ref().expect("an operator").metrics();
        let admitted = text.lines().find(|line| line.starts_with("multikueue_workloads_admitted_total{"));
        let admitted = admitted.expect("an admission was counted").to_owned();
        assert!(
            admitted.contains("cluster_queue=\"team\"") && admitted.ends_with(",replica_role=\"leader\"} 1"),
            "{admitted}"
        );
        WORKERS.into_iter().find(|name| admitted.contains(&format!("cluster=\"{name}\""))).expect("a cluster")
    };
    let has = |line: &str| {
        let text = fleet.operator.as_ref().expect("an operator").metrics();
        assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
    };
    has(&format!(
        "multikueue_workloads_dispatched_total{{cluster_queue=\"team\",cluster=\"{cluster}\",replica_role=\"leader\"}} 1"
    ));
    for worker in WORKERS {
        has(&format!("ferry_worker_connected{{cluster=\"{worker}\",replica_role=\"leader\"}} 1"));
    }
    fleet.fault("east", super::faults::Fault::Refuses);
    fleet.until_active("east", false).await?;
    has("ferry_worker_connected{cluster=\"east\",replica_role=\"leader\"} 0");
    Ok(())
}

/// MK-QA-01, MK-QA-03, MK-QA-04, MK-QA-05, MK-CQ-05, MK-WRK-11: where it is asked for, the manager's quota is what its workers offer together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_follows_the_workers() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    let queue =
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"}});
    let says = async |expected: &str| {
        eventually(&format!("the queue says {expected}"), async || {
            let object: ClusterQueue = Api::all(fleet.manager.client.clone()).get("team").await?;
            let quota = &object.spec.resource_groups[0].flavors[0].resources[0].nominal_quota;
            let conditions = object.status.map(|status| status.conditions).unwrap_or_default();
            let said = conditions.iter().find(|it| it.type_ == "MultiKueueManagerQuotaAutomation");
            let said = format!("{quota} {}", said.map_or("nothing", |it| it.reason.as_str()));
            if said == expected { Ok(Some(())) } else { anyhow::bail!("it says {said}") }
        })
        .await
    };
    says("10 nothing").await?;
    let config = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": "all"}});
    fleet.manager.patch(config.clone(), json!({"spec": {"quotaManagement": "Automated"}})).await?;
    says("20 QuotaAutomated").await?;
    let resources = json!([{"name": "cpu", "nominalQuota": "500m"}]);
    let groups =
        json!([{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": resources}]}]);
    fleet.workers["east"].patch(queue.clone(), json!({"spec": {"resourceGroups": groups}})).await?;
    says("10500m QuotaAutomated").await?;
    // MK-QA-02, MK-QA-05: a queue that leads to no workers says nothing of them, and one that does again says so again.
    let checks = |all: Value| json!({"spec": {"admissionChecksStrategy": all}});
    fleet.manager.patch(queue.clone(), checks(json!(null))).await?;
    says("10500m nothing").await?;
    fleet.manager.patch(queue, checks(json!({"admissionChecks": [{"name": "mk"}]}))).await?;
    says("10500m QuotaAutomated").await?;
    fleet.manager.patch(config, json!({"spec": {"quotaManagement": "Manual"}})).await?;
    says("10500m NotRequested").await
}

async fn with_dispatcher(fleet: &mut Fleet, dispatcher: Dispatcher) {
    fleet.kill().await;
    fleet.settings.dispatch.policy.dispatcher = dispatcher;
    fleet.start().await;
}

/// Moves the time at which a Job's quota was reserved. Says whether it was.
async fn quota_since(fleet: &Fleet, job: &str, since: jiff::Timestamp) -> anyhow::Result<bool> {
    let Some(workload) = fleet.manager.workload(job).await? else { return Ok(false) };
    let mut status: Value = serde_json::to_value(&workload.status)?;
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "QuotaReserved" {
            condition["lastTransitionTime"] = json!(format!("{since:.0}"));
        }
    }
    let api: Api<Workload> = Api::namespaced(fleet.manager.client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"status": {"conditions": status["conditions"]}}));
    let name = workload.metadata.name.unwrap_or_default();
    Ok(api.patch_status(&name, &PatchParams::default(), &patch).await.is_ok())
}
