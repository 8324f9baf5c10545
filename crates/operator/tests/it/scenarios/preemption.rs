//! Who has to go for whom.

use serde_json::json;

use super::World;
use crate::world::message;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// SM-T4: a more important Job pushes a lesser one out, which gives back its quota when its pods are gone, and not
/// before.
pub(super) async fn sm_t4_preemption(world: &World) -> anyhow::Result<()> {
    let queue =
        world.queue("a", "1", json!({ "preemption": { "withinClusterQueue": "LowerPriority" } })).await?;
    world.class("low", 1).await?;
    world.class("high", 100).await?;
    let lesser = world.job("lesser", "a", "1", world.priority("low")).await?;
    world.shows(&lesser, &ADMITTED).await?;
    world.runs("lesser").await?;
    let greater = world.job("greater", "a", "1", world.priority("high")).await?;
    let evicted = world
        .shows(
            &lesser,
            &[
                "Admitted=True/Admitted",
                "Evicted=True/Preempted",
                "Preempted=True/InClusterQueue",
                "QuotaReserved=True/QuotaReserved",
            ],
        )
        .await?;
    let waiting = world.shows(&greater, &["QuotaReserved=False/Pending"]).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, \
         1 more needed. Pending the preemption of 1 workload(s)"
    );
    let uid = waiting.metadata.uid.clone().unwrap_or_default();
    let job_uid = waiting.metadata.labels.clone().unwrap_or_default()["kueue.x-k8s.io/job-uid"].clone();
    assert_eq!(
        message(&evicted, "Evicted"),
        format!(
            "Preempted to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to prioritization in the \
             ClusterQueue; preemptor path: /{queue}; preemptee path: /{queue}"
        )
    );
    world.stops("lesser").await?;
    world.shows(&greater, &ADMITTED).await?;
    let back = world
        .shows(
            &lesser,
            &[
                "Admitted=False/NoReservation",
                "Evicted=True/Preempted",
                "Preempted=True/InClusterQueue",
                "QuotaReserved=False/Pending",
                "Requeued=True/Preempted",
            ],
        )
        .await?;
    let stats = back.status.and_then(|status| status.scheduling_stats).unwrap_or_default();
    assert_eq!(
        serde_json::to_value(&stats.evictions)?,
        json!([{ "reason": "Preempted", "underlyingCause": "", "count": 1 }])
    );
    let job = world.sees_job("lesser", "stopped", crate::world::suspended).await?;
    let template = job.spec.unwrap_or_default().template;
    assert_eq!(template.spec.unwrap_or_default().node_selector, None);
    world.runs("greater").await?;
    world.completes("greater").await?;
    let again = world
        .shows(
            &lesser,
            &[
                "Admitted=True/Admitted",
                "Evicted=False/QuotaReserved",
                "Preempted=False/QuotaReserved",
                "QuotaReserved=True/QuotaReserved",
                "Requeued=True/Preempted",
            ],
        )
        .await?;
    assert!(message(&again, "Evicted").starts_with("Previously: Preempted to accommodate"));
    Ok(())
}

/// PR-3, QM-V1: a queue lends what it does not need, and takes it back.
pub(super) async fn pr_3_reclaim_in_cohort(world: &World) -> anyhow::Result<()> {
    let cohort = world.name_of("cohort");
    let more = json!({ "cohortName": cohort, "preemption": { "reclaimWithinCohort": "Any" } });
    let lender = world.queue("lender", "1", more.clone()).await?;
    let borrower = world.queue("borrower", "1", more).await?;
    // Of equals the one that got in last has to go, to the second. Priority makes it certain.
    world.class("high", 100).await?;
    let own = world.job("own", "borrower", "1", world.priority("high")).await?;
    world.runs("own").await?;
    let borrowed = world.job("borrowed", "borrower", "1", json!({})).await?;
    world.shows(&borrowed, &ADMITTED).await?;
    world.runs("borrowed").await?;
    world
        .sees_queue(&borrower, "borrowing", |queue| {
            let usage = queue.status.as_ref().and_then(|it| it.flavors_usage.first().cloned());
            usage.is_some_and(|it| serde_json::to_value(&it.resources[0].borrowed).ok() == Some(json!("1")))
        })
        .await?;
    let back = world.job("back", "lender", "1", json!({})).await?;
    let evicted = world.workload(&borrowed, "evicted", rules::workload::is_evicted).await?;
    let told = message(&evicted, "Preempted");
    assert!(told.contains("due to reclamation within the cohort"), "{told}");
    assert!(told.contains(&format!("preemptor path: /{cohort}/{lender}")), "{told}");
    world.stops("borrowed").await?;
    world.shows(&back, &ADMITTED).await?;
    world.shows(&own, &ADMITTED).await?;
    Ok(())
}

/// WPC-2: Workloads follow their class, those that run included; JF-33: and the label of their Job.
pub(super) async fn wpc_2_class_changes(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    world.class("some", 10).await?;
    world.class("other", 20).await?;
    let workload = world.job("job", "a", "1", world.priority("some")).await?;
    world.runs("job").await?;
    world.patch("WorkloadPriorityClass", &world.name_of("some"), json!({ "value": 15 })).await?;
    world.workload(&workload, "more important", |it| it.spec.priority == Some(15)).await?;
    let label =
        json!({ "metadata": { "labels": { "kueue.x-k8s.io/priority-class": world.name_of("other") } } });
    world.patch("Job", "job", label).await?;
    world.workload(&workload, "more important still", |it| it.spec.priority == Some(20)).await?;
    Ok(())
}

/// SC-11: all who have to go for one are told at once and once each, and that one says how many it waits for until the
/// last of them is gone.
pub(super) async fn sc_11_several_go_for_one(world: &World) -> anyhow::Result<()> {
    world.queue("a", "3", json!({ "preemption": { "withinClusterQueue": "LowerPriority" } })).await?;
    world.class("low", 1).await?;
    world.class("high", 100).await?;
    let jobs = ["one", "two", "three"];
    let mut lesser = Vec::new();
    for job in jobs {
        lesser.push(world.job(job, "a", "1", world.priority("low")).await?);
        world.runs(job).await?;
    }
    let greater = world.job("greater", "a", "3", world.priority("high")).await?;
    let waiting = world
        .workload(&greater, "waiting for those", |it| {
            message(it, "QuotaReserved").contains("Pending the preemption")
        })
        .await?;
    let told = message(&waiting, "QuotaReserved");
    assert!(told.ends_with("3 more needed. Pending the preemption of 3 workload(s)"), "{told}");
    for workload in &lesser {
        world.workload(workload, "evicted", rules::workload::is_evicted).await?;
    }
    for job in &jobs[..2] {
        world.stops(job).await?;
    }
    for workload in &lesser[..2] {
        world.workload(workload, "released", |it| !rules::workload::has_quota(it)).await?;
    }
    assert!(!rules::workload::has_quota(&world.workload(&greater, "there", |_| true).await?));
    world.stops(jobs[2]).await?;
    world.shows(&greater, &ADMITTED).await?;
    for workload in &lesser {
        let evicted = world.workload(workload, "released", |it| !rules::workload::has_quota(it)).await?;
        let stats = evicted.status.and_then(|status| status.scheduling_stats).unwrap_or_default();
        assert_eq!(stats.evictions.iter().map(|it| it.count).sum::<i32>(), 1, "evicted once and not again");
        let told = world.told("Workload", workload, &["EvictedDueToPreempted", "Preempted"]).await?;
        assert_eq!(told.iter().filter(|told| told.starts_with("Preempted: ")).count(), 1, "{told:#?}");
    }
    Ok(())
}
