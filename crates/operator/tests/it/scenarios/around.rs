//! What stands around a Job: other queues, other Jobs, and what its queues show of it.

use anyhow::Context as _;
use serde_json::json;

use super::World;
use crate::world::suspended;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// AC-2: a check that is deleted stays for as long as a queue asks for it.
pub(super) async fn ac_2_a_check_is_held_while_it_is_asked_for(world: &World) -> anyhow::Result<()> {
    let check = world.name_of("check");
    world.check(&check).await?;
    let checks = json!({ "admissionChecks": [{ "name": check }] });
    let queue = world.queue("a", "1", json!({ "admissionChecksStrategy": checks })).await?;
    let ready = |reason: &'static str| {
        move |queue: &types::kueue::ClusterQueue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.reason == reason))
        }
    };
    world.sees_queue(&queue, "ready", ready("Ready")).await?;
    world.holds("AdmissionCheck", &check).await?;
    world.delete("AdmissionCheck", &check).await?;
    // The queue sees the check for as long as it is held, and so does everybody else.
    let workload = world.job("late", "a", "1", json!({})).await?;
    world
        .workload(&workload, "given quota and the check", |it| {
            rules::workload::has_quota(it) && !rules::workload::state::checks(it).is_empty()
        })
        .await?;
    world.patch("ClusterQueue", &queue, json!({ "spec": { "admissionChecksStrategy": null } })).await?;
    world.gone("AdmissionCheck", &check).await
}

/// LQ-3: a LocalQueue shows who waits in it, who is in, and what those use.
pub(super) async fn lq_3_a_local_queue_shows_what_is_used(world: &World) -> anyhow::Result<()> {
    world.queue("a", "3", json!({})).await?;
    let first = world.job("first", "a", "2", json!({})).await?;
    world.shows(&first, &ADMITTED).await?;
    world.job("second", "a", "2", json!({})).await?;
    let shown = world
        .sees_local_queue("a", "used", |queue| {
            queue.status.as_ref().is_some_and(|it| it.pending_workloads == 1 && it.admitted_workloads == 1)
        })
        .await?;
    let status = shown.status.unwrap_or_default();
    assert_eq!(status.reserving_workloads, 1);
    let used = json!([{ "name": "default", "resources": [{ "name": "cpu", "total": "2" }] }]);
    assert_eq!(serde_json::to_value(&status.flavors_usage)?, used);
    assert_eq!(serde_json::to_value(&status.flavors_reservation)?, used);
    world.patch("LocalQueue", "a", json!({ "spec": { "stopPolicy": "Hold" } })).await?;
    world
        .sees_local_queue("a", "stopped", |queue| {
            queue.status.as_ref().is_some_and(|it| it.pending_workloads == 0 && it.admitted_workloads == 1)
        })
        .await?;
    Ok(())
}

/// QU-5: the first of every queue is looked at, whatever becomes of the first of another.
pub(super) async fn qu_5_every_queue_has_its_turn(world: &World) -> anyhow::Result<()> {
    world.queue("full", "0", json!({ "queueingStrategy": "StrictFIFO" })).await?;
    world.queue("free", "1", json!({})).await?;
    let stuck = world.job("stuck", "full", "1", json!({})).await?;
    world.shows(&stuck, &["QuotaReserved=False/Pending"]).await?;
    let other = world.job("other", "free", "1", json!({})).await?;
    world.shows(&other, &ADMITTED).await?;
    world.shows(&stuck, &["QuotaReserved=False/Pending"]).await?;
    Ok(())
}

/// QU-11: whoever waits is tried again when another is deleted, deactivated, or asks for less.
pub(super) async fn qu_11_who_leaves_makes_room(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let first = world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    let second = world.job("second", "a", "1", json!({})).await?;
    world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    world.delete("Job", "first").await?;
    world.shows(&second, &ADMITTED).await?;
    world.runs("second").await?;
    let third = world.job("third", "a", "1", json!({})).await?;
    world.shows(&third, &["QuotaReserved=False/Pending"]).await?;
    world.patch("Workload", &second, json!({ "spec": { "active": false } })).await?;
    world.stops("second").await?;
    world.shows(&third, &ADMITTED).await?;
    assert!(first != second && second != third);
    Ok(())
}

/// JF-2, JF-5: a Job that is part of another has no Workload of its own, and runs only while that one may.
pub(super) async fn jf_5_a_part_runs_while_the_whole_may(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    let whole = world.job("whole", "a", "1", json!({})).await?;
    world.shows(&whole, &["QuotaReserved=False/Pending"]).await?;
    let uid = world.jobs().get("whole").await?.metadata.uid.context("a uid")?;
    let owner =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "whole", "uid": uid, "controller": true }]);
    let part = json!({
        "metadata": { "labels": { "kueue.x-k8s.io/queue-name": null }, "ownerReferences": owner },
        "spec": { "suspend": false },
    });
    let of_part = world.job("part", "a", "1", part).await?;
    world.sees_job("part", "suspended", suspended).await?;
    assert!(world.no_workload(&of_part).await?);
    world.completes("first").await?;
    world.shows(&whole, &ADMITTED).await?;
    world.patch("Job", "part", json!({ "spec": { "suspend": false } })).await?;
    world.runs("part").await
}
