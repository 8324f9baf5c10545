//! Operators that die at any write: whoever comes after them goes on where they stopped (SM-42).
//!
//! Each story is told once to the end, to count the writes; then again and again, and each time the operator dies at another
//! write, which has or has not arrived. Another one takes over, and the end has to be the same.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use futures::future::BoxFuture;
use http::{Method, Request};
use kube::{Client, client::Body};
use operator::Settings;
use reconcile::{Clock, Tasks};
use rules::workload::{is_admitted, is_evicted, is_finished};
use serde_json::json;
use tokio::sync::Notify;
use types::kueue::Workload;

use crate::{
    way::{Passed, through},
    world::{World, shown},
};

/// A way to a cluster that breaks at some write about Jobs or Workloads.
#[derive(Clone)]
struct Mortal {
    client: Client,
    /// Writes that are still answered.
    left: Arc<AtomicI64>,
    /// Whether the one at which it breaks arrives.
    arrives: bool,
    broken: Arc<Notify>,
}

impl Mortal {
    fn pass(self, request: Request<Body>) -> Passed {
        let path = request.uri().path();
        let counts =
            request.method() != Method::GET && (path.contains("/workloads") || path.contains("/jobs"));
        let left =
            if counts { self.left.fetch_sub(1, Ordering::SeqCst) } else { self.left.load(Ordering::SeqCst) };
        Box::pin(async move {
            if left > 0 {
                return self.client.send(request).await.map_err(std::io::Error::other);
            }
            if counts && left == 0 && self.arrives {
                self.client.send(request).await.map_err(std::io::Error::other)?;
            }
            self.broken.notify_one();
            std::future::pending().await
        })
    }
}

type Story = for<'a> fn(&'a World) -> BoxFuture<'a, anyhow::Result<String>>;

/// Tells a story with an operator that dies at a write. Returns its end, and how many writes were left.
async fn tell(story: Story, writes: i64, arrives: bool) -> anyhow::Result<(String, i64)> {
    let mut world = World::embedded().await?;
    world.kill().await;
    world.begin("story").await?;
    let mortal = Mortal {
        client: world.client.clone(),
        left: Arc::new(AtomicI64::new(writes)),
        arrives,
        broken: Arc::default(),
    };
    let (left, broken) = (Arc::clone(&mortal.left), Arc::clone(&mortal.broken));
    let start = |client: Client| {
        let mut tasks = Tasks::new();
        operator::start(client, Settings::default(), Clock::system(), &mut tasks);
        tasks
    };
    let mut first = start(through(move |request| mortal.clone().pass(request)));
    let replacement = async {
        broken.notified().await;
        first.stop().await;
        let _second = start(world.client.clone());
        std::future::pending::<()>().await;
    };
    let end = tokio::select! {
        end = story(&world) => end?,
        () = replacement => unreachable!("it goes on for ever"),
    };
    Ok((end, left.load(Ordering::SeqCst)))
}

async fn survives(story: Story) -> anyhow::Result<()> {
    const MANY: i64 = 10_000;
    let (expected, left) = tell(story, MANY, true).await?;
    let writes = MANY - left;
    println!("{writes} writes lead to {expected}");
    assert!(writes > 5, "the operator has something to do");
    for death in 0..writes {
        for arrives in [true, false] {
            let (end, _) = tell(story, death, arrives).await?;
            assert_eq!(end, expected, "died at write {death} of {writes}, which arrived: {arrives}");
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
