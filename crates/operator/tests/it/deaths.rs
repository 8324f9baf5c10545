//! Operators that die at any write: whoever comes after them goes on where they stopped (SM-42).
//!
//! Each story is told once to the end, to count the writes; then again and again, and each time the operator dies at another
//! write, which has or has not arrived. Another one takes over, and the end has to be the same.

use futures::future::BoxFuture;
use kube::Client;
use operator::Settings;
use reconcile::{Clock, Tasks};
use rules::workload::{is_admitted, is_evicted, is_finished};
use serde_json::json;
use types::kueue::Workload;

use crate::{
    dispatch::written::{Moment, Of, Written},
    world::{World, shown},
};

type Story = for<'a> fn(&'a World) -> BoxFuture<'a, anyhow::Result<String>>;

/// Tells a story with an operator that dies at a write, if it is to. Returns its end, and how many writes there were.
async fn tell(story: Story, death: Option<(usize, Moment)>) -> anyhow::Result<(String, usize)> {
    let mut world = World::embedded().await?;
    world.kill().await;
    world.begin("story").await?;
    let written = Written::default();
    let death = death.map(|(after, moment)| written.death(Of::Anything, after, moment));
    let start = |client: Client| {
        let mut tasks = Tasks::new();
        operator::start(client, Settings::default(), Clock::system(), &mut tasks);
        tasks
    };
    let mut first = start(written.on(world.client.clone(), "manager", "manager"));
    let replacement = async {
        let Some(death) = death else { return std::future::pending().await };
        death.await;
        first.stop().await;
        let _second = start(world.client.clone());
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = story(&world) => end?,
        () = replacement => unreachable!("it goes on for ever"),
    };
    Ok((end, written.number(&Of::Anything)))
}

async fn survives(story: Story) -> anyhow::Result<()> {
    let (expected, writes) = tell(story, None).await?;
    println!("{writes} writes lead to {expected}");
    assert!(writes > 5, "the operator has something to do");
    for after in 0..writes {
        for moment in [Moment::Before, Moment::After] {
            let (end, _) = tell(story, Some((after, moment))).await?;
            assert_eq!(end, expected, "died {moment:?} write {after} of {writes}");
        }
    }
    Ok(())
}

/// What a Workload says of itself, and how often it was evicted.
fn told(workload: &Workload) -> String {
    let stats =
        workload.status.as_ref().and_then(|status| status.scheduling_stats.clone()).unwrap_or_default();
    let evictions: i32 = stats.evictions.iter().map(|it| it.count).sum();
    format!("{:?}, evicted {evictions} times", shown(workload))
}

fn preempted(world: &World) -> BoxFuture<'_, anyhow::Result<String>> {
    Box::pin(async move {
        world.queue("a", "1", json!({ "preemption": { "withinClusterQueue": "LowerPriority" } })).await?;
        world.class("low", 1).await?;
        world.class("high", 100).await?;
        let lesser = world.job("lesser", "a", "1", world.priority("low")).await?;
        world.runs("lesser").await?;
        let greater = world.job("greater", "a", "1", world.priority("high")).await?;
        world.stops("lesser").await?;
        world.runs("greater").await?;
        world.completes("greater").await?;
        world.runs("lesser").await?;
        world.completes("lesser").await?;
        let greater = world.workload(&greater, "finished", is_finished).await?;
        let lesser = world.workload(&lesser, "finished", is_finished).await?;
        Ok(format!("greater {}; lesser {}", told(&greater), told(&lesser)))
    })
}

fn tried_again_by_a_check(world: &World) -> BoxFuture<'_, anyhow::Result<String>> {
    Box::pin(async move {
        let check = world.name_of("check");
        world.check(&check).await?;
        let checks = json!({ "admissionChecks": [{ "name": check }] });
        world.queue("a", "1", json!({ "admissionChecksStrategy": checks })).await?;
        let name = world.job("checked", "a", "1", json!({})).await?;
        let asks = |it: &Workload| {
            let listed = it.status.as_ref().is_some_and(|status| status.admission_checks.len() == 1);
            listed && rules::workload::has_quota(it) && !is_evicted(it)
        };
        let before = world.workload(&name, "asking its check", asks).await?;
        world.check_says(&name, json!({ "name": check, "state": "Retry", "message": "" })).await?;
        let reserved =
            |it: &Workload| rules::workload::state::find(it, "Requeued").map(|it| it.last_transition_time.0);
        let since = reserved(&before);
        world.workload(&name, "asking once more", |it| asks(it) && reserved(it) != since).await?;
        world.check_says(&name, json!({ "name": check, "state": "Ready", "message": "" })).await?;
        world.workload(&name, "admitted", is_admitted).await?;
        world.runs("checked").await?;
        world.completes("checked").await?;
        Ok(told(&world.workload(&name, "finished", is_finished).await?))
    })
}

fn deactivated_and_activated(world: &World) -> BoxFuture<'_, anyhow::Result<String>> {
    Box::pin(async move {
        world.queue("a", "1", json!({})).await?;
        let name = world.job("idle", "a", "1", json!({})).await?;
        world.runs("idle").await?;
        world.patch("Workload", &name, json!({ "spec": { "active": false } })).await?;
        world.stops("idle").await?;
        world
            .workload(&name, "without quota", |it| is_evicted(it) && !rules::workload::has_quota(it))
            .await?;
        world.patch("Workload", &name, json!({ "spec": { "active": true } })).await?;
        world.runs("idle").await?;
        world.completes("idle").await?;
        Ok(told(&world.workload(&name, "finished", is_finished).await?))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_42_a_preemption() -> anyhow::Result<()> {
    survives(preempted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_42_a_check_that_wants_another_attempt() -> anyhow::Result<()> {
    survives(tried_again_by_a_check).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_42_a_workload_that_is_deactivated() -> anyhow::Result<()> {
    survives(deactivated_and_activated).await
}
