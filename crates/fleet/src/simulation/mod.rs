//! The simulation of faults: a management cluster, two workers and the operator in one thread, with simulated time.
//!
//! Requests, answers and watch events are delayed, lost, doubled and reordered; clusters freeze; the operator is killed
//! and started again; users and vandals delete and change things; all of it by chance that a seed determines, so that any
//! run can be repeated exactly. After every moment it is checked that nothing happened that must never happen, and in
//! the end, when everything works again, that every Job has ended and nothing is left behind.
//!
//! The operator is the real one. What it talks to is played: `memory` is an API server as far as it can tell,
//! `network` the way there, `worker` a worker's own Kueue, Job controller and nodes, of which `pods` plays what becomes of
//! pods that are sent themselves. `climate` is how rough a run is, `scene` how it begins, `mischief` what goes wrong and
//! what people do, `judge` what must never happen.

mod climate;
mod judge;
mod memory;
mod mischief;
mod network;
mod pods;
mod random;
mod scene;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;
use operator::Settings;
use reconcile::{Clock, Tasks};
use rules::dispatch::Dispatcher;
use serde_json::{Value, json};
use tracing::info;

use climate::Climate;
use memory::{Memory, Place, WORKLOADS};
use network::{Way, Weather};
use random::Random;
use worker::{Pods, condition};

/// The names of the workers.
const WORKERS: [&str; 2] = ["east", "west"];
/// The namespace of all Jobs.
const NAMESPACE: &str = "team";
/// The kinds that users submit, as Kueue calls them.
const KINDS: [&str; 2] = ["batch/job", "pod"];
/// How far time goes on between two looks.
const MOMENT: Duration = Duration::from_millis(200);
/// Moments in which everything may fail.
const STORM: u64 = 600;
/// Moments in which nothing fails any more, at most.
const CALM: u64 = 3_000;

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What determined it.
    pub seed: u64,
    /// What happened that must never happen.
    pub violations: Vec<String>,
    /// Jobs that ended.
    pub ended: usize,
    /// A number that is the same only if all that happened is the same.
    pub fingerprint: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} jobs ended, {:016x}", self.seed, self.ended, self.fingerprint)?;
        self.violations.iter().try_for_each(|what| write!(f, "\n  {what}"))
    }
}

/// Runs one simulation.
pub fn run(seed: u64) -> Outcome {
    run_with(seed, Settings::default())
}

/// Runs many, on all cores, until `enough` says so of one of them. Which run is told of first is chance; what a seed
/// determines is not.
pub fn run_all(seeds: Range<u64>, settings: &Settings, enough: impl Fn(Outcome) -> bool + Sync) {
    run_all_in(None, seeds, settings, enough);
}

fn run_all_in(
    climate: Option<Climate>,
    seeds: Range<u64>,
    settings: &Settings,
    enough: impl Fn(Outcome) -> bool + Sync,
) {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if enough(run_in(climate, seed, settings.clone())) {
                next.store(seeds.end, Ordering::Relaxed);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
}

/// Runs one simulation of an operator with other settings.
pub fn run_with(seed: u64, settings: Settings) -> Outcome {
    run_in(None, seed, settings)
}

/// Runs one simulation in a climate that is given.
fn run_in(climate: Option<Climate>, seed: u64, settings: Settings) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread needs nothing that can be missing");
    runtime.block_on(async {
        let mut world = World::new(seed, settings);
        world.climate = climate.unwrap_or(world.climate);
        world.live().await
    })
}

struct World {
    seed: u64,
    clock: Clock,
    random: Random,
    climate: Climate,
    settings: Settings,
    manager: Way,
    workers: BTreeMap<&'static str, Way>,
    pods: Arc<Mutex<BTreeMap<&'static str, Pods>>>,
    operator: Option<Tasks>,
    /// Clusters that thaw, clusters whose controllers go on, and the operator that starts, in so many moments.
    thaws: BTreeMap<&'static str, u64>,
    wakes: BTreeMap<&'static str, u64>,
    starts: Option<u64>,
    /// Workloads that are activated again, in so many moments.
    returns: Vec<(u64, Place)>,
    submitted: u64,
    replaced: u64,
    /// The number of its group, for every pod that was ever submitted in one, by uid.
    groups: BTreeMap<String, u64>,
    violations: BTreeSet<String>,
    /// The uids of Jobs that had pods, and of pods that ran.
    ran: BTreeSet<String>,
    /// Mirrors that have ended, by worker and place, with the uid of their Job.
    ended_there: BTreeMap<(&'static str, Place), String>,
    /// Groups all of whose pods have ended, by worker and number, with the uids of the pods.
    ended_groups: BTreeMap<(&'static str, u64), BTreeSet<String>>,
    /// How far all clusters were when they were last looked at.
    looked: Vec<u64>,
}

impl World {
    fn new(seed: u64, mut settings: Settings) -> World {
        // The clusters here know batch Jobs and pods only.
        settings.frameworks.retain(|framework| KINDS.contains(framework));
        settings.dispatch.kinds.retain(|kind| KINDS.contains(&kind.integration));
        // Half of the runs ask all workers at once, as Kueue does, and half as an embedded fleet does.
        if seed % 2 == 1 {
            settings.dispatch.policy.dispatcher = Dispatcher::LeastLoaded;
        }
        let clock = Clock::manual(Timestamp::from_second(1_800_000_000).expect("a time"));
        let mut random = Random::new(seed);
        let pods: Arc<Mutex<BTreeMap<&'static str, Pods>>> = Arc::default();
        let mut way = |name: &'static str| {
            let memory = Arc::new(Mutex::new(Memory::new(name, clock.clone())));
            let of = Arc::clone(&pods);
            let has_pods = Arc::new(move |place: &Place| {
                let pods = of.lock().unwrap_or_else(PoisonError::into_inner);
                pods.get(name).is_some_and(|pods| pods.values().any(|(of, _)| of == place))
            });
            Way::new(memory, random.fork(), has_pods)
        };
        let manager = way("manager");
        let workers: BTreeMap<&'static str, Way> = WORKERS.map(|name| (name, way(name))).into();
        let climate = Climate::draw(seed, &mut random);
        let ways = workers.clone();
        settings.dispatch.connect = Arc::new(move |config| {
            let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or("");
            let name = server.trim_start_matches("https://").to_owned();
            let way = ways.get(name.as_str()).map(Way::client);
            Box::pin(
                async move { way.ok_or_else(|| kube::Error::Service(format!("no such host {name}").into())) },
            )
        });
        World {
            seed,
            clock,
            random,
            climate,
            settings,
            manager,
            workers,
            pods,
            operator: None,
            thaws: BTreeMap::new(),
            wakes: BTreeMap::new(),
            starts: None,
            returns: Vec::new(),
            submitted: 0,
            replaced: 0,
            groups: BTreeMap::new(),
            violations: BTreeSet::new(),
            ran: BTreeSet::new(),
            ended_there: BTreeMap::new(),
            ended_groups: BTreeMap::new(),
            looked: Vec::new(),
        }
    }

    async fn live(mut self) -> Outcome {
        scene::set_up(&self.manager, &self.workers);
        self.start();
        self.workers.values().for_each(|way| way.set_weather(self.climate.workers));
        self.manager.set_weather(self.climate.manager);
        for _ in 0..STORM {
            self.mischief();
            self.moment().await;
        }
        self.heal();
        let (mut moments, mut is_over) = (0, self.is_over());
        while moments < CALM && !is_over {
            if self.moment().await {
                is_over = self.is_over();
            }
            moments += 1;
        }
        self.judge_the_end();
        if let Some(mut tasks) = self.operator.take() {
            tasks.stop().await;
        }
        self.outcome()
    }

    /// Time goes on a little. Says whether anything happened.
    async fn moment(&mut self) -> bool {
        tokio::time::sleep(MOMENT).await;
        self.complete_groups();
        let now = self.clock.now();
        for (name, way) in &self.workers {
            if self.thaws.contains_key(name) || self.wakes.contains_key(name) {
                continue;
            }
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            let pods = pods.entry(name).or_default();
            let started =
                worker::play(&mut way.memory(), pods, &mut self.random, now, self.climate.evictions);
            for of in started {
                if self.manager_job(&of).is_some_and(|job| is_finished(&job)) {
                    let what = format!("the pods of {of} were started after its end was recorded");
                    self.violations.insert(what);
                }
                self.ran.insert(of);
            }
        }
        let ways = std::iter::once(&self.manager).chain(self.workers.values());
        let versions: Vec<u64> = ways.map(|way| way.memory().version()).collect();
        if self.looked == versions {
            return false;
        }
        self.looked = versions;
        self.collect_garbage();
        self.check();
        true
    }

    fn heal(&mut self) {
        info!(at = %self.clock.now(), "the storm is over");
        for name in std::mem::take(&mut self.thaws).keys() {
            self.workers[name].freeze(false);
        }
        self.wakes.clear();
        for (_, place) in std::mem::take(&mut self.returns) {
            self.set_active(&place, true);
        }
        self.climate = Climate::default();
        self.workers.values().chain([&self.manager]).for_each(|way| way.set_weather(Weather::default()));
        if self.operator.is_none() {
            self.start();
        }
        self.starts = None;
    }

    fn start(&mut self) {
        info!(at = %self.clock.now(), "the operator starts");
        let mut tasks = Tasks::new();
        operator::start(self.manager.client(), self.settings.clone(), self.clock.clone(), &mut tasks);
        self.operator = Some(tasks);
    }

    /// Workloads whose owners are gone go, too.
    fn collect_garbage(&self) {
        let mut memory = self.manager.memory();
        for (place, workload) in memory.all(WORKLOADS) {
            let mut owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let is_there = owners.any(|owner| memory.has(owner, &json!(NAMESPACE)));
            if !is_there && workload["metadata"]["deletionTimestamp"].is_null() {
                // It is there: it was just listed.
                let _ = memory.delete(&place, &json!({}), false);
            }
        }
    }

    fn outcome(self) -> Outcome {
        let mut hasher = DefaultHasher::new();
        for way in std::iter::once(&self.manager).chain(self.workers.values()) {
            way.memory().fingerprint(&mut hasher);
        }
        self.violations.iter().for_each(|what| what.hash(&mut hasher));
        let jobs = self.submitted_objects();
        Outcome {
            seed: self.seed,
            violations: self.violations.into_iter().collect(),
            ended: jobs.iter().filter(|(_, job)| is_finished(job)).count(),
            fingerprint: hasher.finish(),
        }
    }
}

fn place_of(resource: &str, namespace: &str, name: &str) -> Place {
    (resource.to_owned(), namespace.to_owned(), name.to_owned())
}

/// Whether a Job or a pod has ended.
fn is_finished(job: &Value) -> bool {
    ["Complete", "Failed"].iter().any(|kind| condition(job, kind) == Some("True")) || pods::has_ended(job)
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue"
}

#[cfg(test)]
mod tests;
