//! The Job controller's plan beside the real thing: kube-controller-manager runs one copy of a Job, our plan another,
//! both on the same real API server, and the same happens to the pods of both. The statuses that the two Jobs go
//! through must be the same, one by one, and so must their pods and their events.
//!
//! After each thing that happens the script waits until our side is at rest and the real one has come to the same
//! status. So a status is never compared with one that saw more or less of the script, however the real controller
//! batches what it sees; and it may not write anything else on the way, for the whole sequences are compared.
//!
//! After the scripted lives come random ones: `cargo test -p rules --test controller -- --lives 200 --seed 7`.

#[path = "../chance/mod.rs"]
mod chance;
mod lives;
mod ours;
mod scenarios;
mod script;
mod world;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use futures::{StreamExt as _, stream};
use ours::Ours;
use scenarios::{Scenario, Script, scenarios};
use testkit::ControlPlane;
use tokio::time::{Instant, sleep};
use world::{Snapshot, World};

/// The real controller waits a second before it looks at a change, and ten before it replaces a failed pod; the rest is
/// for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Whoever has come to rest writes nothing for this long: two of the real controller's batches.
const REST: Duration = Duration::from_millis(2500);
/// Lives at the same time. They wait more than they do.
const AT_ONCE: usize = 40;

#[derive(clap::Parser)]
struct Arguments {
    /// Only lives whose name contains one of these.
    names: Vec<String>,
    /// How many random lives, after the scripted ones.
    #[arg(long, default_value_t = 12)]
    lives: u64,
    /// Where chance begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How much happens in a random life.
    #[arg(long, default_value_t = 7)]
    steps: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse_from(std::env::args().filter(|argument| argument != "--nocapture"));
    let first = arguments.seed.wrapping_mul(1_000_003);
    let lives = (0..arguments.lives).map(|life| lives::life_from(first.wrapping_add(life), arguments.steps));
    let mut all: Vec<Scenario> = scenarios().into_iter().chain(lives).collect();
    let wanted =
        |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|part| name.contains(part));
    all.retain(|scenario| wanted(&scenario.name));
    if all.is_empty() {
        return ExitCode::SUCCESS;
    }
    let builder = ControlPlane::builder().controller_manager(["job-controller"]);
    let Some(cluster) = builder.for_test().await else { return ExitCode::SUCCESS };
    let runs = all.into_iter().map(|scenario| async {
        let name = scenario.name.clone();
        (name, run(&cluster, scenario).await)
    });
    let (mut passed, mut failed) = (0, 0);
    let mut results = stream::iter(runs).buffer_unordered(AT_ONCE);
    while let Some((name, result)) = results.next().await {
        match result {
            Ok(statuses) => {
                passed += 1;
                println!("{name}: {statuses} statuses, the same");
            }
            Err(error) => {
                failed += 1;
                println!("{name}: {error:?}\n");
            }
        }
    }
    println!("seed {}: {passed} passed, {failed} failed", arguments.seed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays a scenario in both worlds. Returns the number of statuses that the Jobs went through.
async fn run(cluster: &ControlPlane, mut scenario: Scenario) -> anyhow::Result<usize> {
    let client = || cluster.client();
    let namespace = cluster.namespace(&scenario.name).await?;
    let theirs = World::create(client(), namespace, &scenario, None).await.context("the real world")?;
    let namespace = cluster.namespace(&scenario.name).await?;
    let ours =
        World::create(client(), namespace, &scenario, Some(ours::MANAGER)).await.context("our world")?;
    let mut controller = Ours::default();
    let mut story = vec![format!("a Job of {}", scenario.spec)];
    let mut steps = 0;
    loop {
        let told = || format!("after {}", story.join(", "));
        converge(&theirs, &ours, &mut controller).await.with_context(told)?;
        let next = match &mut scenario.script {
            Script::Steps(script) => script.get(steps).cloned(),
            Script::Chance(chance, limit) if steps < *limit => chance.step(&ours).await?,
            Script::Chance(..) => None,
        };
        let Some(step) = next else { break };
        steps += 1;
        step.apply(&theirs).await.with_context(|| format!("{step:?}, the real world")).with_context(told)?;
        step.apply(&ours).await.with_context(|| format!("{step:?}, our world")).with_context(told)?;
        story.push(format!("{step:?}"));
    }
    sleep(REST).await;
    let (their_statuses, our_statuses) = (theirs.statuses().await?, ours.statuses().await?);
    ensure!(
        their_statuses == our_statuses,
        "the statuses differ after {}\ntheirs:\n{}\nours:\n{}",
        story.join(", "),
        print(&their_statuses),
        print(&our_statuses)
    );
    let events = controller.events();
    let theirs = theirs.events(events.len()).await?;
    ensure!(
        same_events(&theirs, &events),
        "the events differ after {}\ntheirs: {theirs:#?}\nours: {events:#?}",
        story.join(", ")
    );
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

/// Whether the same was told. How often a refused creation is tried again is not a matter of the plan, so such an event
/// counts once. And the real controller tells of a suspension before it writes the status, hence again when that write
/// met a newer version of the Job; we tell of it once it is written.
fn same_events(theirs: &[String], ours: &[String]) -> bool {
    let told_once = |events: &[String]| -> Vec<String> {
        let mut events = events.to_vec();
        events.dedup_by(|next, event| next == event && event.starts_with("Warning FailedCreate: "));
        events
    };
    let (mut theirs, ours) = (told_once(theirs), told_once(ours));
    for event in &ours {
        let Some(place) = theirs.iter().position(|other| other == event) else { return false };
        theirs.remove(place);
    }
    let suspension =
        |event: &String| event.starts_with("Normal Suspended: ") || event.starts_with("Normal Resumed: ");
    theirs.iter().all(|event| suspension(event) && ours.contains(event))
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
