//! Queues that are stopped, incomplete or deleted.

use serde_json::json;

use super::World;
use crate::world::message;

/// CQ-4: a queue that lacks something says what, and admits when it is there.
pub(super) async fn cq_4_what_is_missing(world: &World) -> anyhow::Result<()> {
    let checks = json!({ "admissionChecks": [{ "name": world.name_of("check") }] });
    let queue = world.queue("a", "1", json!({ "admissionChecksStrategy": checks })).await?;
    let workload = world.job("early", "a", "1", json!({})).await?;
    let waiting = world.shows(&workload, &["QuotaReserved=False/Inadmissible"]).await?;
    assert_eq!(message(&waiting, "QuotaReserved"), format!("ClusterQueue {queue} is inactive"));
    let shown = world
        .sees_queue(&queue, "inactive", |queue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.status == "False"))
        })
        .await?;
    let condition = &shown.status.unwrap_or_default().conditions[0];
    assert_eq!(condition.reason, "AdmissionCheckNotFound");
    let check = world.name_of("check");
    assert_eq!(
        condition.message,
        format!("Can't admit new workloads: references missing AdmissionCheck(s): {check}.")
    );
    world.check(&check).await?;
    world
        .sees_queue(&queue, "active", |queue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.reason == "Ready"))
        })
        .await?;
    world.workload(&workload, "given quota", rules::workload::has_quota).await?;
    Ok(())
}

/// SM-T8: a queue that is drained stops its Jobs, and lets them in again when it is restarted.
pub(super) async fn sm_t8_drain(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    let running = world.job("running", "a", "1", json!({})).await?;
    world.runs("running").await?;
    let waiting = world.job("waiting", "a", "1", json!({})).await?;
    world.shows(&waiting, &["QuotaReserved=False/Pending"]).await?;
    world.patch("ClusterQueue", &queue, json!({ "spec": { "stopPolicy": "HoldAndDrain" } })).await?;
    world
        .shows(
            &running,
            &[
                "Admitted=True/Admitted",
                "Evicted=True/ClusterQueueStopped",
                "QuotaReserved=True/QuotaReserved",
            ],
        )
        .await?;
    world.stops("running").await?;
    world
        .shows(
            &running,
            &[
                "Admitted=False/NoReservation",
                "Evicted=True/ClusterQueueStopped",
                "QuotaReserved=False/Inadmissible",
                "Requeued=False/ClusterQueueStopped",
            ],
        )
        .await?;
    let told = world.shows(&waiting, &["QuotaReserved=False/Inadmissible"]).await?;
    assert_eq!(message(&told, "QuotaReserved"), format!("ClusterQueue {queue} is inactive"));
    // Who is tried first after the restart depends on who is seen first, so one of them leaves.
    world.delete("Job", "waiting").await?;
    world.workload(&waiting, "finished", rules::workload::is_finished).await?;
    world.patch("ClusterQueue", &queue, json!({ "spec": { "stopPolicy": "None" } })).await?;
    world
        .workload(&running, "requeued", |it| {
            rules::workload::state::find(it, "Requeued")
                .is_some_and(|it| it.reason == "ClusterQueueRestarted")
        })
        .await?;
    world
        .shows(
            &running,
            &[
                "Admitted=True/Admitted",
                "Evicted=False/QuotaReserved",
                "QuotaReserved=True/QuotaReserved",
                "Requeued=True/ClusterQueueRestarted",
            ],
        )
        .await?;
    Ok(())
}

/// SM-24, LQ-4: a LocalQueue on hold lets run what runs, and keeps the others out.
pub(super) async fn sm_24_local_queue_hold(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let running = world.job("running", "a", "1", json!({})).await?;
    world.runs("running").await?;
    world.patch("LocalQueue", "a", json!({ "spec": { "stopPolicy": "Hold" } })).await?;
    let shown = world
        .sees_local_queue("a", "stopped", |queue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.reason == "Stopped"))
        })
        .await?;
    assert_eq!(shown.status.unwrap_or_default().conditions[0].message, "LocalQueue is stopped");
    let late = world.job("late", "a", "1", json!({})).await?;
    let waiting = world.shows(&late, &["QuotaReserved=False/Inadmissible"]).await?;
    assert_eq!(message(&waiting, "QuotaReserved"), "LocalQueue a is inactive");
    world.shows(&running, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    world.completes("running").await?;
    world.patch("LocalQueue", "a", json!({ "spec": { "stopPolicy": "None" } })).await?;
    world.shows(&late, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    Ok(())
}

/// CQ-7, RF-3: a queue that is deleted goes when nobody is in it any more.
pub(super) async fn cq_7_deletion_waits(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    world.job("running", "a", "1", json!({})).await?;
    world.runs("running").await?;
    world
        .sees_queue(&queue, "held", |queue| {
            queue.metadata.finalizers.as_ref().is_some_and(|it| !it.is_empty())
        })
        .await?;
    world.delete("ClusterQueue", &queue).await?;
    world
        .sees_queue(&queue, "terminating", |queue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.reason == "Terminating"))
        })
        .await?;
    let late = world.job("late", "a", "1", json!({})).await?;
    world.shows(&late, &["QuotaReserved=False/Inadmissible"]).await?;
    world.completes("running").await?;
    world.gone("ClusterQueue", &queue).await
}
