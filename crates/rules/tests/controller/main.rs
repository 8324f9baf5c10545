//! The Job controller's plan beside the real thing: kube-controller-manager runs one copy of a Job, our plan another,
//! both on the same real API server, and the same happens to the pods of both. The statuses that the two Jobs go
//! through must be the same, one by one, and so must their pods and their events.
//!
//! After each thing that happens the script waits until our side is at rest and the real one has come to the same
//! status. So a status is never compared with one that saw more or less of the script, however the real controller
//! batches what it sees; and it may not write anything else on the way, for the whole sequences are compared.

mod ours;
mod scenarios;
mod script;
mod world;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use ours::Ours;
use scenarios::{Scenario, scenarios};
use testkit::ControlPlane;
use tokio::time::{Instant, sleep};
use world::{Snapshot, World};

/// The real controller waits a second before it looks at a change, and ten before it replaces a failed pod; the rest is
/// for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Whoever has come to rest writes nothing for this long: two of the real controller's batches.
const REST: Duration = Duration::from_millis(2500);

#[tokio::test(flavor = "multi_thread")]
async fn statuses_pods_and_events_are_those_of_kube_controller_manager() {
    let builder = ControlPlane::builder().controller_manager(["job-controller"]);
    let Some(cluster) = builder.for_test().await else { return };
    let scenarios = scenarios();
    let runs = scenarios.iter().map(|scenario| async {
        let result = run(&cluster, scenario).await;
        (scenario.name, result)
    });
    let results = join_all(runs).await;
    let mut failures = Vec::new();
    for (name, result) in &results {
        match result {
            Ok(statuses) => println!("{name}: {statuses} statuses, the same"),
            Err(error) => failures.push(format!("{name}: {error:?}")),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} differ\n\n{}",
        failures.len(),
        results.len(),
        failures.join("\n\n")
    );
}

/// Plays a scenario in both worlds. Returns the number of statuses that the Jobs went through.
async fn run(cluster: &ControlPlane, scenario: &Scenario) -> anyhow::Result<usize> {
    let theirs = World::create(cluster, scenario, None).await.context("the real world")?;
    let ours = World::create(cluster, scenario, Some(ours::MANAGER)).await.context("our world")?;
    let mut controller = Ours::default();
    converge(&theirs, &ours, &mut controller).await.context("at first")?;
    for (number, step) in scenario.steps.iter().enumerate() {
        let what = || format!("step {number}, {step:?}");
        step.apply(&theirs).await.with_context(what).context("the real world")?;
        step.apply(&ours).await.with_context(what).context("our world")?;
        converge(&theirs, &ours, &mut controller).await.with_context(what)?;
    }
    sleep(REST).await;
    let (their_statuses, our_statuses) = (theirs.statuses().await?, ours.statuses().await?);
    ensure!(
        their_statuses == our_statuses,
        "the statuses differ\ntheirs:\n{}\nours:\n{}",
        print(&their_statuses),
        print(&our_statuses)
    );
    let events = controller.events();
    let theirs = theirs.events(events.len()).await?;
    ensure!(theirs == events, "the events differ\ntheirs: {theirs:#?}\nours: {events:#?}");
    Ok(our_statuses.len())
}

/// Waits until both worlds are alike.
async fn converge(theirs: &World, ours: &World, controller: &mut Ours) -> anyhow::Result<()> {
    Box::pin(controller.run_until_at_rest(ours)).await.context("our controller")?;
    let (deadline, expected) = (Instant::now() + PATIENCE, ours.snapshot().await?);
    let mut seen: Option<Snapshot> = None;
    while seen.as_ref() != Some(&expected) {
        if let Some(seen) = &seen {
            ensure!(
                Instant::now() < deadline,
                "the worlds do not become alike\ntheirs: {seen:#?}\nours: {expected:#?}\ntheir statuses:\n{}\nours:\n{}",
                print(&theirs.statuses().await?),
                print(&ours.statuses().await?)
            );
        }
        theirs.changed().await;
        seen = Some(theirs.snapshot().await?);
    }
    Ok(())
}

/// Both worlds live in real time.
#[expect(
    clippy::disallowed_methods,
    reason = "rules take `now` as an argument, and this is where it comes from"
)]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

fn print(statuses: &[serde_json::Value]) -> String {
    statuses.iter().map(|status| format!("  {status}")).collect::<Vec<_>>().join("\n")
}
