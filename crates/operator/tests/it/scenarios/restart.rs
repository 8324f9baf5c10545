//! An operator that ends at any point and begins again changes no outcome.

use serde_json::json;

use super::World;
use crate::world::message;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// SM-42: everything that is needed after a restart is in the objects. The operator is killed at each step of a
/// preemption, the longest way that there is.
pub(super) async fn sm_42_restart(world: &mut World) -> anyhow::Result<()> {
    world.kill().await;
    world.queue("a", "1", json!({ "preemption": { "withinClusterQueue": "LowerPriority" } })).await?;
    world.class("low", 1).await?;
    world.class("high", 100).await?;
    let lesser = world.job("lesser", "a", "1", world.priority("low")).await?;
    world.start().await;
    world.shows(&lesser, &ADMITTED).await?;
    world.kill().await;
    world.start().await;
    world.runs("lesser").await?;
    world.kill().await;
    let greater = world.job("greater", "a", "1", world.priority("high")).await?;
    world.start().await;
    world.workload(&lesser, "evicted", rules::workload::is_evicted).await?;
    world.kill().await;
    world.start().await;
    world.sees_job("lesser", "stopped", crate::world::suspended).await?;
    world.kill().await;
    world.stops("lesser").await?;
    world.start().await;
    world.shows(&greater, &ADMITTED).await?;
    world.kill().await;
    world.start().await;
    world.runs("greater").await?;
    world.kill().await;
    world.completes("greater").await?;
    world.start().await;
    world
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
    let lesser = world.workload(&lesser, "there", |_| true).await?;
    let stats = lesser.status.and_then(|status| status.scheduling_stats).unwrap_or_default();
    assert_eq!(stats.evictions.iter().map(|it| it.count).sum::<i32>(), 1, "evicted once and not again");
    Ok(())
}

/// SM-42, SM-30: the same at each step of a check that first wants another attempt and then lets the Job run.
pub(super) async fn sm_42_restart_between_checks(world: &mut World) -> anyhow::Result<()> {
    let check = world.name_of("check");
    world.check(&check).await?;
    let checks = json!({ "admissionChecks": [{ "name": check }] });
    world.queue("a", "1", json!({ "admissionChecksStrategy": checks })).await?;
    world.kill().await;
    let workload = world.job("checked", "a", "1", json!({})).await?;
    world.start().await;
    let listed = |it: &types::kueue::Workload| {
        let quota = rules::workload::has_quota(it);
        quota && it.status.as_ref().is_some_and(|status| status.admission_checks.len() == 1)
    };
    world.workload(&workload, "waiting for its check", listed).await?;
    world.kill().await;
    world
        .check_says(
            &workload,
            json!({ "name": check, "state": "Retry", "message": "", "requeueAfterSeconds": 1 }),
        )
        .await?;
    world.start().await;
    world.workload(&workload, "evicted", rules::workload::is_evicted).await?;
    world.kill().await;
    world.start().await;
    let again = |it: &types::kueue::Workload| listed(it) && !rules::workload::is_evicted(it);
    world.workload(&workload, "given quota again", again).await?;
    world.kill().await;
    world.check_says(&workload, json!({ "name": check, "state": "Ready", "message": "" })).await?;
    world.start().await;
    world.workload(&workload, "admitted", rules::workload::is_admitted).await?;
    world.kill().await;
    world.start().await;
    world.runs("checked").await?;
    world.kill().await;
    world.completes("checked").await?;
    world.start().await;
    world.workload(&workload, "finished", rules::workload::is_finished).await?;
    Ok(())
}

/// SM-43: who was not tried any more before a restart is tried after it, with whatever changed meanwhile. Who still does not
/// fit says the same as before.
pub(super) async fn sm_43_restart_tries_everyone(world: &mut World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    let first = world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    let second = world.job("second", "a", "1", json!({})).await?;
    let large = world.job("large", "a", "9", json!({})).await?;
    world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    let before = world.shows(&large, &["QuotaReserved=False/Pending"]).await?;
    world.kill().await;
    world.patch("ClusterQueue", &queue, World::quota("2")).await?;
    world.start().await;
    world.shows(&second, &ADMITTED).await?;
    world.shows(&first, &ADMITTED).await?;
    let said = "maximum capacity (2)";
    let after = world
        .workload(&large, "told of the new quota", |it| message(it, "QuotaReserved").contains(said))
        .await?;
    let since =
        |it| rules::workload::state::find(it, "QuotaReserved").map(|it| it.last_transition_time.clone());
    assert_eq!(since(&before), since(&after), "it waits as long as before");
    Ok(())
}

/// QU-5, QU-6: who cannot get in holds up nobody behind it, even if there is nothing new to be said of it.
pub(super) async fn qu_6_nobody_is_held_up(world: &mut World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    // Each asks for something else, so that what is true of one is not known of the next.
    for number in 1..=5 {
        let container = json!({
            "name": "c", "image": "i", "resources": { "limits": { "example.com/none": number.to_string() } },
        });
        let template = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
        let hopeless = world.job(&format!("hopeless-{number}"), "a", "1", template).await?;
        let waiting = world.shows(&hopeless, &["QuotaReserved=False/Pending"]).await?;
        assert_eq!(
            message(&waiting, "QuotaReserved"),
            "couldn't assign flavors to pod set main: resource example.com/none unavailable in ClusterQueue"
        );
    }
    let last = world.job("last", "a", "1", json!({})).await?;
    world.shows(&last, &["QuotaReserved=False/Pending"]).await?;
    world.kill().await;
    world.patch("ClusterQueue", &queue, World::quota("2")).await?;
    world.start().await;
    world.shows(&last, &ADMITTED).await?;
    Ok(())
}
