//! Our Job controller beside the real one: kube-controller-manager runs one copy of a Job on a cluster of its own, our
//! controller another on an API server without controllers, and the same happens to the pods of both. The statuses that
//! the two Jobs go through must be the same, one by one, and so must their pods and their events.
//!
//! With `--embedded` our API server takes the place of the real one beneath our controller; with `--swapped` it does so
//! beneath another kube-controller-manager.
//!
//! The lives are those by which the decision alone is judged (`rules`, `--test controller`), and some that pods lead by
//! themselves on our simulated node, which is then in both clusters.

#[path = "../../../rules/tests/chance/mod.rs"]
mod chance;
#[path = "../../../rules/tests/controller/lives.rs"]
mod lives;
mod played;
#[path = "../../../rules/tests/controller/scenarios.rs"]
mod scenarios;
#[path = "../../../rules/tests/controller/script.rs"]
mod script;
#[path = "../../../rules/tests/controller/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use apiserver::{Cluster, Setup};
use clap::Parser as _;
use controllers::{Selection, Settings};
use futures::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use played::Played;
use reconcile::{Clock, Tasks};
use scenarios::{Scenario, Script, scenarios};
use store::{Options, Store};
use testkit::{ControlPlane, ControllerManager};
use tokio::time::{Instant, sleep};
use world::{Snapshot, World};

/// The real controller waits a second before it looks at a change, and ten before it replaces a failed pod; the rest is
/// for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Whoever has come to rest writes nothing for this long: two of the real controller's batches.
const REST: Duration = Duration::from_millis(2500);
/// Our controller does not wait for others: it is at rest when it has written nothing for this long.
const OUR_REST: Duration = Duration::from_millis(600);
/// Lives at the same time. They wait more than they do.
const AT_ONCE: usize = 20;

/// The controllers that live beside kube-controller-manager's.
const OURS: [&str; 2] = ["job-controller", "serviceaccount-controller"];

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
    /// Our controller runs on our API server, in this process, instead of on a real one.
    #[arg(long)]
    embedded: bool,
    /// A second kube-controller-manager runs on our API server, instead of our controller.
    #[arg(long, conflicts_with = "embedded")]
    swapped: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse_from(std::env::args().filter(|argument| argument != "--nocapture"));
    let (all, played) = (arguments.lives(), arguments.played());
    if all.is_empty() && played.is_empty() {
        return ExitCode::SUCCESS;
    }
    let builder = ControlPlane::builder().controller_manager(["job-controller"]);
    let Some(theirs) = builder.for_test().await else { return ExitCode::SUCCESS };
    let ours = if arguments.embedded {
        Ours::Embedded(Client::new(embedded().await, "default"))
    } else if arguments.swapped {
        Ours::Swapped(Box::new(Swapped::start().await.expect("our API server, and the real controllers")))
    } else {
        let Some(ours) = ControlPlane::builder().for_test().await else { return ExitCode::SUCCESS };
        Ours::Real(Box::new(ours))
    };
    let mut tasks = Tasks::new();
    if !arguments.swapped {
        let names: Selection = OURS.join(",").parse().expect("controllers");
        controllers::start(ours.client(), &names, Settings::default(), Clock::system(), &mut tasks);
    }
    for client in [theirs.client(), ours.client()] {
        let node = runner::Settings::simulated(played::NODE);
        runner::Node::start(client, node, Clock::system(), &mut tasks).await.expect("a node");
    }
    let runs = all.into_iter().map(|scenario| {
        let name = scenario.name.clone();
        run(&theirs, &ours, scenario).map(|result| (name, result)).boxed_local()
    });
    let plays = played.iter().map(|played| {
        played::run(&theirs, &ours, played).map(|result| (played.name.clone(), result)).boxed_local()
    });
    let (mut passed, mut differed) = (0, BTreeSet::new());
    let mut results = stream::iter(plays.chain(runs)).buffer_unordered(AT_ONCE);
    while let Some((name, result)) = results.next().await {
        if told(&name, result) {
            passed += 1;
        } else {
            differed.insert(name);
        }
    }
    drop(results);
    // With much to do the real controller sees two changes as one; with nothing else to do it does not.
    let mut failed = 0;
    for mut scenario in arguments.lives().into_iter().filter(|it| differed.contains(&it.name)) {
        scenario.name.push_str("-again");
        if told(&scenario.name.clone(), run(&theirs, &ours, scenario).await) {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    for mut played in played.into_iter().filter(|it| differed.contains(&it.name)) {
        played.name.push_str("-again");
        if told(&played.name, played::run(&theirs, &ours, &played).await) {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    println!("seed {}: {passed} passed, {failed} failed", arguments.seed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Arguments {
    /// The lives that are asked for.
    fn lives(&self) -> Vec<Scenario> {
        let first = self.seed.wrapping_mul(1_000_003);
        let lives = (0..self.lives).map(|life| lives::life_from(first.wrapping_add(life), self.steps));
        scenarios().into_iter().chain(lives).filter(|scenario| self.wants(&scenario.name)).collect()
    }

    /// Those of them that pods lead by themselves.
    fn played(&self) -> Vec<Played> {
        played::all().into_iter().filter(|played| self.wants(&played.name)).collect()
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|part| name.contains(part))
    }
}

/// Tells what came of a life, and returns whether both went through the same.
fn told(name: &str, result: anyhow::Result<usize>) -> bool {
    match &result {
        Ok(statuses) => println!("{name}: {statuses} statuses, the same"),
        Err(error) => println!("{name}: {error:?}\n"),
    }
    result.is_ok()
}

/// Where our controller runs.
enum Ours {
    Real(Box<ControlPlane>),
    Embedded(Client),
    Swapped(Box<Swapped>),
}

/// kube-controller-manager on our API server.
struct Swapped {
    client: Client,
    _manager: ControllerManager,
    _server: Server,
    _directory: tempfile::TempDir,
}

impl Swapped {
    async fn start() -> anyhow::Result<Self> {
        let credentials = Arc::new(Credentials::ephemeral()?);
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(embedded().await, credentials.clone(), anywhere).await?;
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("kubeconfig");
        credentials.write_kubeconfig(&path, "ours", &format!("https://{}", server.address()))?;
        let kubeconfig = Kubeconfig::read_from(&path)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let manager = ControllerManager::start(&path, OURS).await?;
        let client = Client::try_from(config)?;
        Ok(Swapped { client, _manager: manager, _server: server, _directory: directory })
    }
}

impl Ours {
    fn client(&self) -> Client {
        match self {
            Ours::Real(cluster) => cluster.client(),
            Ours::Embedded(client) => client.clone(),
            Ours::Swapped(swapped) => swapped.client.clone(),
        }
    }

    /// Whoever has written nothing for this long has come to rest.
    fn rest(&self) -> Duration {
        if matches!(self, Ours::Swapped(_)) { REST } else { OUR_REST }
    }

    async fn namespace(&self, name: &str) -> anyhow::Result<String> {
        match self {
            Ours::Real(cluster) => Ok(cluster.namespace(name).await?),
            Ours::Embedded(_) | Ours::Swapped(_) => {
                let client = &self.client();
                // A name that occurs in no message.
                let name = &format!("life-of-{name}");
                let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                let namespace = Namespace { metadata, ..Namespace::default() };
                Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
                let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
                while accounts.get_opt("default").await?.is_none() {
                    sleep(Duration::from_millis(20)).await;
                }
                Ok(name.clone())
            }
        }
    }
}

async fn embedded() -> Cluster {
    let store = Store::open(Options::ephemeral()).expect("a store");
    let setup = Setup { service_accounts: true, ..Setup::default() };
    Cluster::open_with(store, setup).await.expect("a cluster")
}

/// Plays a scenario in both worlds. Returns the number of statuses that the Jobs went through.
async fn run(theirs: &ControlPlane, ours: &Ours, mut scenario: Scenario) -> anyhow::Result<usize> {
    let namespace = theirs.namespace(&scenario.name).await?;
    let theirs =
        World::create(theirs.client(), namespace, &scenario, None).await.context("the real world")?;
    let (rest, namespace) = (ours.rest(), ours.namespace(&scenario.name).await?);
    let ours = World::create(ours.client(), namespace, &scenario, None).await.context("our world")?;
    let mut story = vec![format!("a Job of {}", scenario.spec)];
    let mut steps = 0;
    loop {
        let told = || format!("after {}", story.join(", "));
        converge(&theirs, &ours, rest).await.with_context(told)?;
        let next = match &mut scenario.script {
            Script::Steps(script) => script.get(steps).cloned(),
            Script::Chance(chance, limit) if steps < *limit => chance.step(&ours).await?,
            Script::Chance(..) => None,
        };
        let Some(step) = next else { break };
        steps += 1;
        // A replacement that waits for its delay comes in its own time.
        for (world, name) in [(&theirs, "the real world"), (&ours, "our world")] {
            let deadline = Instant::now() + PATIENCE;
            while let Err(error) = step.apply(world).await {
                ensure!(
                    error.to_string().starts_with("there is no pod") && Instant::now() < deadline,
                    "{step:?}, {name}, {}: {error:?}",
                    told()
                );
                world.changed().await;
            }
        }
        story.push(format!("{step:?}"));
    }
    // A deadline may end one Job a moment before the other.
    let deadline = Instant::now() + PATIENCE;
    let (mut their_statuses, mut our_statuses);
    loop {
        sleep(REST).await;
        (their_statuses, our_statuses) = (theirs.statuses().await?, ours.statuses().await?);
        if their_statuses == our_statuses || Instant::now() > deadline {
            break;
        }
    }
    ensure!(
        their_statuses == our_statuses,
        "the statuses differ after {}\ntheirs:\n{}\nours:\n{}",
        story.join(", "),
        print(&their_statuses),
        print(&our_statuses)
    );
    let ours = ours.events(1).await?;
    let theirs = theirs.events(ours.len()).await?;
    ensure!(
        same_events(&theirs, &ours),
        "the events differ after {}\ntheirs: {theirs:#?}\nours: {ours:#?}",
        story.join(", ")
    );
    Ok(our_statuses.len())
}

/// Waits until our world is at rest and the other is like it.
async fn converge(theirs: &World, ours: &World, rest: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let expected = at_rest(ours, rest).await?;
        let seen = theirs.snapshot().await?;
        if seen == expected {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the worlds do not become alike\ntheirs: {seen:#?}\nours: {expected:#?}\ntheir statuses:\n{}\nours:\n{}",
            print(&theirs.statuses().await?),
            print(&ours.statuses().await?)
        );
        theirs.changed().await;
    }
}

/// What our world is like once nothing has changed in it for a while.
async fn at_rest(ours: &World, rest: Duration) -> anyhow::Result<Snapshot> {
    let (mut since, mut last) = (Instant::now(), ours.snapshot().await?);
    while since.elapsed() < rest {
        ours.changed().await;
        let now = ours.snapshot().await?;
        if now != last {
            (since, last) = (Instant::now(), now);
        }
    }
    Ok(last)
}

/// Whether the same was told. How often a refused creation is tried again is not a matter of the plan, so such an event
/// counts once. And the real controller tells of a suspension before it writes the status, hence again when that write
/// met a newer version of the Job; we tell of it once it is written.
fn same_events(theirs: &[String], ours: &[String]) -> bool {
    let told_once = |events: &[String]| -> Vec<String> {
        // On a busy machine there are so many that they are told together.
        let plain = |event: &String| event.replace("(combined from similar events): ", "");
        let mut events: Vec<String> = events.iter().map(plain).collect();
        events.sort();
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
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

fn print(statuses: &[serde_json::Value]) -> String {
    statuses.iter().map(|status| format!("  {status}")).collect::<Vec<_>>().join("\n")
}
