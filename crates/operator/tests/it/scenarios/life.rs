//! What else can happen to a Workload.

use jiff::Timestamp;
use serde_json::json;

use super::World;
use crate::world::message;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// SM-T6: deactivated and activated again.
pub(super) async fn sm_t6_deactivated(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    world.runs("job").await?;
    world.patch("Workload", &workload, json!({ "spec": { "active": false } })).await?;
    world.workload(&workload, "evicted", rules::workload::is_evicted).await?;
    world.stops("job").await?;
    world
        .shows(
            &workload,
            &[
                "Admitted=False/NoReservation",
                "Evicted=True/Deactivated",
                "QuotaReserved=False/Pending",
                "Requeued=False/Deactivated",
            ],
        )
        .await?;
    world.patch("Workload", &workload, json!({ "spec": { "active": true } })).await?;
    let again = world
        .shows(
            &workload,
            &[
                "Admitted=True/Admitted",
                "Evicted=False/QuotaReserved",
                "QuotaReserved=True/QuotaReserved",
                "Requeued=True/Reactivated",
            ],
        )
        .await?;
    assert_eq!(message(&again, "Evicted"), "Previously: The workload is deactivated");
    Ok(())
}

/// JF-66: a Job that runs for too long is deactivated.
pub(super) async fn jf_66_runs_too_long(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let limit = json!({ "metadata": { "labels": { "kueue.x-k8s.io/max-exec-time-seconds": "1" } } });
    let workload = world.job("job", "a", "1", limit).await?;
    world.runs("job").await?;
    world.stops("job").await?;
    world
        .shows(
            &workload,
            &[
                "Admitted=False/NoReservation",
                "Evicted=True/DeactivatedDueToMaximumExecutionTimeExceeded",
                "QuotaReserved=False/Pending",
                "Requeued=False/DeactivatedDueToMaximumExecutionTimeExceeded",
            ],
        )
        .await?;
    Ok(())
}

/// JF-60: pods that are done give back their share.
pub(super) async fn jf_60_reclaimable(world: &World) -> anyhow::Result<()> {
    world.queue("a", "2", json!({})).await?;
    let both = json!({ "spec": { "parallelism": 2, "completions": 2 } });
    let first = world.job("first", "a", "1", both).await?;
    world.runs("first").await?;
    let second = world.job("second", "a", "1", json!({})).await?;
    world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    world
        .patch_status("Job", "first", json!({ "active": 1, "succeeded": 1, "uncountedTerminatedPods": {} }))
        .await?;
    let shown = world
        .workload(&first, "reclaimed from", |it| {
            it.status.as_ref().is_some_and(|it| !it.reclaimable_pods.is_empty())
        })
        .await?;
    let pods = shown.status.unwrap_or_default().reclaimable_pods;
    assert_eq!(serde_json::to_value(pods)?, json!([{ "name": "main", "count": 1 }]));
    world.shows(&second, &ADMITTED).await?;
    Ok(())
}

/// SM-27: somebody has to let it first.
pub(super) async fn sm_27_gated(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let gate =
        json!({ "metadata": { "annotations": { "kueue.x-k8s.io/admission-gated-by": "example.com/gate" } } });
    let workload = world.job("job", "a", "1", gate).await?;
    let gated = world.shows(&workload, &["QuotaReserved=False/AdmissionGated"]).await?;
    assert_eq!(message(&gated, "QuotaReserved"), "Admission is gated by: example.com/gate");
    let open = json!({ "metadata": { "annotations": { "kueue.x-k8s.io/admission-gated-by": null } } });
    world.patch("Job", "job", open).await?;
    world.shows(&workload, &ADMITTED).await?;
    Ok(())
}

/// MK-3, MK-8: a copy that a manager made is admitted without a Job, and deactivated when the manager says so.
pub(super) async fn mk_3_copy_without_job(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": { "name": "copy", "labels": { "kueue.x-k8s.io/multikueue-origin": "multikueue" } },
            "spec": { "queueName": "a", "podSets": [{ "name": "main", "count": 1, "template": { "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }],
            } } }] },
        }))
        .await?;
    let copy = world.shows("copy", &ADMITTED).await?;
    let mut conditions = copy.status.unwrap_or_default().conditions;
    conditions.push(rules::workload::condition::new(
        "DeactivationTarget",
        true,
        "EvictedOnManagerCluster",
        "evicted on the manager",
        None,
        Timestamp::now(),
    ));
    world.patch_status("Workload", "copy", json!({ "conditions": conditions })).await?;
    let evicted = world
        .shows(
            "copy",
            &[
                "Admitted=True/Admitted",
                "Evicted=True/DeactivatedDueToEvictedOnManagerCluster",
                "QuotaReserved=True/QuotaReserved",
            ],
        )
        .await?;
    assert_eq!(message(&evicted, "Evicted"), "The workload is deactivated due to evicted on the manager");
    assert_eq!(evicted.spec.active, Some(false));
    Ok(())
}

/// JF-63: whether all pods are ready is said of the Workload.
pub(super) async fn jf_63_pods_ready(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    let reason = |reason: &'static str| {
        move |it: &types::kueue::Workload| {
            rules::workload::state::find(it, "PodsReady").is_some_and(|it| it.reason == reason)
        }
    };
    world.workload(&workload, "waiting for its start", reason("WaitForStart")).await?;
    world.runs("job").await?;
    world.workload(&workload, "started", reason("Started")).await?;
    world.patch_status("Job", "job", json!({ "ready": 0 })).await?;
    world.workload(&workload, "waiting for recovery", reason("WaitForRecovery")).await?;
    world.patch_status("Job", "job", json!({ "ready": 1 })).await?;
    world.workload(&workload, "recovered", reason("Recovered")).await?;
    world.patch("Workload", &workload, json!({ "spec": { "active": false } })).await?;
    world.stops("job").await?;
    world.workload(&workload, "without quota", |it| !rules::workload::has_quota(it)).await?;
    let labels = format!(r#"cluster_queue="{queue}",reason="Deactivated",underlying_cause="""#);
    let line = format!("kueue_pods_ready_to_evicted_time_seconds_count{{{labels},");
    assert!(world.counts(&line), "OB-1: {line}");
    Ok(())
}
