//! The simulation of faults: a management cluster, two workers and the operator in one thread, with simulated time.
//!
//! Requests, answers and watch events are delayed, lost, doubled and reordered; clusters freeze; the operator is killed
//! and started again; users and vandals delete and change things; all of it by chance that a seed determines, so that any
//! run can be repeated exactly. After every moment it is checked that nothing happened that must never happen, and in
//! the end, when everything works again, that every Job has ended and nothing is left behind.
//!
//! The operator is the real one. What it talks to is played: `memory` is an API server as far as it can tell,
//! `network` the way there, `worker` a worker's own Kueue, Job controller and nodes.

mod memory;
mod network;
mod random;
mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use operator::Settings;
use reconcile::{Clock, Tasks};
use serde_json::{Value, json};

use memory::{Memory, Place};
use network::{Way, Weather};
use random::Random;
use worker::{Pods, condition};

/// The names of the workers.
const WORKERS: [&str; 2] = ["east", "west"];
/// The namespace of all Jobs.
const NAMESPACE: &str = "team";
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

/// Runs one simulation of an operator with other settings.
pub fn run_with(seed: u64, settings: Settings) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread needs nothing that can be missing");
    runtime.block_on(async { World::new(seed, settings).live().await })
}

struct World {
    seed: u64,
    clock: Clock,
    random: Random,
    settings: Settings,
    manager: Way,
    workers: BTreeMap<&'static str, Way>,
    pods: Arc<Mutex<BTreeMap<&'static str, Pods>>>,
    operator: Option<Tasks>,
    /// Clusters that thaw, and the operator that starts, in so many moments.
    thaws: BTreeMap<&'static str, u64>,
    starts: Option<u64>,
    submitted: u64,
    violations: BTreeSet<String>,
    /// The uids of Jobs that had pods.
    ran: BTreeSet<String>,
    /// Mirrors that have ended, by worker and place, with the uid of their Job.
    ended_there: BTreeMap<(&'static str, Place), String>,
}

impl World {
    fn new(seed: u64, mut settings: Settings) -> World {
        // The clusters here know batch Jobs only.
        settings.frameworks.retain(|framework| *framework == "batch/job");
        settings.dispatch.kinds.retain(|kind| kind.integration == "batch/job");
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
            settings,
            manager,
            workers,
            pods,
            operator: None,
            thaws: BTreeMap::new(),
            starts: None,
            submitted: 0,
            violations: BTreeSet::new(),
            ran: BTreeSet::new(),
            ended_there: BTreeMap::new(),
        }
    }

    async fn live(mut self) -> Outcome {
        self.set_up();
        self.start();
        let storm = Weather { lost: 8, unheard: 12, twice: 8, late: 20, ended: 20 };
        // The manager's own API server is a friend: it is slow, and that is all.
        self.workers.values().for_each(|way| way.set_weather(storm));
        for _ in 0..STORM {
            self.mischief();
            self.moment(false).await;
        }
        self.heal();
        let mut moments = 0;
        while moments < CALM && !self.is_over() {
            self.moment(true).await;
            moments += 1;
        }
        self.judge_the_end();
        if let Some(mut tasks) = self.operator.take() {
            tasks.stop().await;
        }
        self.outcome()
    }

    /// Time goes on a little.
    async fn moment(&mut self, calm: bool) {
        tokio::time::sleep(MOMENT).await;
        let now = self.clock.now();
        for (name, way) in &self.workers {
            if self.thaws.contains_key(name) {
                continue;
            }
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            let pods = pods.entry(name).or_default();
            let started = worker::play(&mut way.memory(), pods, &mut self.random, now, calm);
            for of in started {
                if self.manager_job(&of).is_some_and(|job| is_finished(&job)) {
                    let what = format!("the pods of {of} were started after its end was recorded");
                    self.violations.insert(what);
                }
                self.ran.insert(of);
            }
        }
        self.collect_garbage();
        self.check();
    }

    /// Something goes wrong, or somebody does something.
    fn mischief(&mut self) {
        for (name, left) in std::mem::take(&mut self.thaws) {
            if left > 1 {
                self.thaws.insert(name, left - 1);
            } else {
                self.workers[name].freeze(false);
            }
        }
        if let Some(left) = self.starts.take() {
            if left > 1 {
                self.starts = Some(left - 1);
            } else {
                self.start();
            }
        }
        if self.submitted < 12 && self.random.happens(30) {
            self.submit();
        }
        let worker = WORKERS[usize::try_from(self.random.below(2)).unwrap_or(0)];
        match self.random.below(250) {
            0 if self.thaws.is_empty() => {
                let moments = 1 + self.random.below(400);
                self.workers[worker].freeze(true);
                self.thaws.insert(worker, moments);
            }
            1 if self.operator.is_some() => {
                self.operator = None;
                self.starts = Some(1 + self.random.below(100));
            }
            2 | 3 => self.delete_a_job(),
            5..=10 => self.evict_a_workload(),
            11 | 12 => self.vandalise(worker),
            _ => {}
        }
    }

    fn heal(&mut self) {
        for name in std::mem::take(&mut self.thaws).keys() {
            self.workers[name].freeze(false);
        }
        self.workers.values().for_each(|way| way.set_weather(Weather::CALM));
        if self.operator.is_none() {
            self.start();
        }
        self.starts = None;
    }

    fn start(&mut self) {
        let mut tasks = Tasks::new();
        operator::start(self.manager.client(), self.settings.clone(), self.clock.clone(), &mut tasks);
        self.operator = Some(tasks);
    }

    fn submit(&mut self) {
        self.submitted += 1;
        let name = format!("job-{}", self.submitted % 5);
        self.create_job(&name);
    }

    fn create_job(&mut self, name: &str) {
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]}});
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
            "spec": {
                "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "parallelism": 1, "completions": 1,
                "completionMode": "NonIndexed", "backoffLimit": 0, "template": template,
            },
        });
        // A Job of that name may still be there.
        let _ = self.manager.memory().create(place_of("batch/jobs", NAMESPACE, name), job);
    }

    fn delete_a_job(&mut self) {
        let jobs = self.manager.memory().all("batch/jobs");
        if let Some((place, _)) = self.pick(jobs) {
            // It is there: it was just listed.
            let _ = self.manager.memory().delete(&place, &json!({"propagationPolicy": "Background"}), false);
            if self.random.happens(600) {
                self.create_job(&place.2);
            }
        }
    }

    /// As preemption does it: by the operator's own core, which is asked by deactivating and activating again.
    fn evict_a_workload(&mut self) {
        let workloads = self.manager.memory().all("kueue.x-k8s.io/workloads");
        if let Some((place, workload)) = self.pick(workloads) {
            let active = workload["spec"]["active"] == false;
            self.manager.memory().change(&place, |object| object["spec"]["active"] = json!(active));
        }
    }

    /// Somebody on a worker deletes what is not his.
    fn vandalise(&mut self, worker: &'static str) {
        let way = self.workers[worker].clone();
        let mut ours = way.memory().all("kueue.x-k8s.io/workloads");
        ours.retain(|(_, object)| is_ours(object));
        if let Some((place, _)) = self.pick(ours) {
            // It is there: it was just listed.
            let _ = way.memory().delete(&place, &json!({}), false);
        }
    }

    fn pick(&mut self, from: Vec<(Place, Value)>) -> Option<(Place, Value)> {
        let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
        let index = usize::try_from(self.random.below(count)).ok()?;
        from.into_iter().nth(index)
    }

    /// Workloads whose Job is gone go, too.
    fn collect_garbage(&self) {
        let mut memory = self.manager.memory();
        for (place, workload) in memory.all("kueue.x-k8s.io/workloads") {
            let owner = &workload["metadata"]["ownerReferences"][0];
            let job = place_of("batch/jobs", NAMESPACE, owner["name"].as_str().unwrap_or(""));
            let is_there = memory.get(&job).is_some_and(|job| job["metadata"]["uid"] == owner["uid"]);
            if !is_there && workload["metadata"]["deletionTimestamp"].is_null() {
                // It is there: it was just listed.
                let _ = memory.delete(&place, &json!({}), false);
            }
        }
    }

    /// Nothing happened that must never happen.
    fn check(&mut self) {
        let mut where_pods_are: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
        for (cluster, pods) in self.pods.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (_, of) in pods.values() {
                where_pods_are.entry(of.clone()).or_default().insert(cluster);
            }
        }
        for (of, clusters) in where_pods_are.iter().filter(|(_, clusters)| clusters.len() > 1) {
            self.violations.insert(format!("the pods of {of} run on {clusters:?} at once"));
        }
        let mut ended = BTreeMap::new();
        for (name, way) in &self.workers {
            for (place, mirror) in way.memory().all("batch/jobs") {
                let of = mirror["metadata"]["annotations"]["kueue.x-k8s.io/multikueue-origin-uid"].as_str();
                if let Some(of) = of.filter(|_| is_finished(&mirror)) {
                    ended.insert((*name, place), of.to_owned());
                }
            }
        }
        for ((cluster, place), of) in std::mem::replace(&mut self.ended_there, ended) {
            let is_gone = self.workers[cluster].memory().get(&place).is_none();
            if is_gone && self.manager_job(&of).is_some_and(|job| !is_finished(&job)) {
                self.violations.insert(format!(
                    "{of} ended on {cluster} and was removed there before its end was recorded"
                ));
            }
        }
        for (_, job) in self.manager.memory().all("batch/jobs") {
            let uid = job["metadata"]["uid"].as_str().unwrap_or("").to_owned();
            if is_finished(&job) && !self.ran.contains(&uid) {
                self.violations.insert(format!("{uid} ended without having run"));
            }
        }
        for way in self.workers.values() {
            self.violations.extend(way.memory().violations.iter().cloned());
        }
        self.violations.extend(self.manager.memory().violations.iter().cloned());
    }

    /// The Job on the manager that has this uid.
    fn manager_job(&self, uid: &str) -> Option<Value> {
        let all = self.manager.memory().all("batch/jobs");
        all.into_iter().map(|(_, job)| job).find(|job| job["metadata"]["uid"] == *uid)
    }

    /// Whether every Job has ended and every worker is empty.
    fn is_over(&self) -> bool {
        let jobs = self.manager.memory().all("batch/jobs");
        let deactivated = |job: &Value| {
            let workloads = self.manager.memory().all("kueue.x-k8s.io/workloads");
            workloads.iter().any(|(_, it)| {
                it["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
                    && it["spec"]["active"] == false
            })
        };
        let is_clean = |way: &Way| {
            let of = |resource: &str| way.memory().all(resource).iter().any(|(_, object)| is_ours(object));
            !of("batch/jobs") && !of("kueue.x-k8s.io/workloads")
        };
        jobs.iter().all(|(_, job)| is_finished(job) || deactivated(job))
            && self.workers.values().all(is_clean)
    }

    fn judge_the_end(&mut self) {
        if !self.is_over() {
            let jobs = self.manager.memory().all("batch/jobs");
            let workloads = self.manager.memory().all("kueue.x-k8s.io/workloads");
            let says = |job: &Value| {
                let is_its = |it: &&(Place, Value)| {
                    it.1["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
                };
                workloads.iter().find(is_its).map_or(Value::Null, |(_, it)| it["status"].clone())
            };
            let open = jobs.iter().filter(|(_, job)| !is_finished(job));
            let open: Vec<String> = open.map(|(place, job)| format!("{} ({})", place.2, says(job))).collect();
            let mut left = Vec::new();
            for (name, way) in &self.workers {
                for resource in ["batch/jobs", "kueue.x-k8s.io/workloads"] {
                    let all = way.memory().all(resource);
                    left.extend(
                        all.iter()
                            .filter(|(_, it)| is_ours(it))
                            .map(|(place, _)| format!("{name}: {}", place.2)),
                    );
                }
            }
            self.violations.insert(format!("not over in the end: open {open:?}, left {left:?}"));
        }
        for (name, way) in &self.workers {
            for resource in ["batch/jobs", "kueue.x-k8s.io/workloads"] {
                let theirs = way.memory().get(&place_of(resource, NAMESPACE, "theirs")).cloned();
                if theirs
                    .is_none_or(|it| it["metadata"]["resourceVersion"] != it["metadata"]["labels"]["version"])
                {
                    self.violations.insert(format!("{name}: somebody else's {resource} was touched"));
                }
            }
        }
    }

    fn outcome(self) -> Outcome {
        let mut hasher = DefaultHasher::new();
        for way in std::iter::once(&self.manager).chain(self.workers.values()) {
            way.memory().fingerprint(&mut hasher);
        }
        self.violations.iter().for_each(|what| what.hash(&mut hasher));
        let jobs = self.manager.memory().all("batch/jobs");
        Outcome {
            seed: self.seed,
            violations: self.violations.into_iter().collect(),
            ended: jobs.iter().filter(|(_, job)| is_finished(job)).count(),
            fingerprint: hasher.finish(),
        }
    }

    /// Queues, a check and its clusters; and on every worker something that is somebody else's.
    fn set_up(&self) {
        let kueue = "kueue.x-k8s.io/v1beta2";
        let mut memory = self.manager.memory();
        let mut create =
            |resource: &str, kind: &str, version: &str, namespace: &str, name: &str, rest: Value| {
                let mut object = rest;
                object["apiVersion"] = json!(version);
                object["kind"] = json!(kind);
                object["metadata"] = json!({"name": name});
                if !namespace.is_empty() {
                    object["metadata"]["namespace"] = json!(namespace);
                }
                memory.create(place_of(resource, namespace, name), object).expect("nothing is there yet");
            };
        for name in [NAMESPACE, "kueue-system"] {
            create("/namespaces", "Namespace", "v1", "", name, json!({}));
        }
        create("kueue.x-k8s.io/resourceflavors", "ResourceFlavor", kueue, "", "default", json!({"spec": {}}));
        let flavors = json!([{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "3"}]}]);
        let spec = json!({
            "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]},
        });
        create("kueue.x-k8s.io/clusterqueues", "ClusterQueue", kueue, "", "team", json!({"spec": spec}));
        let spec = json!({"clusterQueue": "team"});
        create("kueue.x-k8s.io/localqueues", "LocalQueue", kueue, NAMESPACE, "team", json!({"spec": spec}));
        let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
        let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
        create("kueue.x-k8s.io/admissionchecks", "AdmissionCheck", kueue, "", "mk", json!({"spec": spec}));
        let spec = json!({"clusters": WORKERS});
        create(
            "kueue.x-k8s.io/multikueueconfigs",
            "MultiKueueConfig",
            kueue,
            "",
            "all",
            json!({"spec": spec}),
        );
        for name in WORKERS {
            let config = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": format!("https://{name}")}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            });
            let data = k8s_openapi::ByteString(config.to_string().into_bytes());
            create("/secrets", "Secret", "v1", "kueue-system", name, json!({"data": {"kubeconfig": data}}));
            let spec = json!({"clusterSource": {"kubeConfig": {"location": name, "locationType": "Secret"}}});
            create(
                "kueue.x-k8s.io/multikueueclusters",
                "MultiKueueCluster",
                kueue,
                "",
                name,
                json!({"spec": spec}),
            );
        }
        drop(memory);
        for way in self.workers.values() {
            for (resource, kind, version) in
                [("batch/jobs", "Job", "batch/v1"), ("kueue.x-k8s.io/workloads", "Workload", kueue)]
            {
                let place = place_of(resource, NAMESPACE, "theirs");
                let mut memory = way.memory();
                let metadata = json!({"name": "theirs", "namespace": NAMESPACE, "labels": {}});
                let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}});
                let there = memory.create(place.clone(), object).expect("nothing is there yet");
                let next = there["metadata"]["resourceVersion"]
                    .as_str()
                    .and_then(|it| it.parse::<u64>().ok())
                    .unwrap_or(0)
                    + 1;
                memory.change(&place, |object| {
                    object["metadata"]["labels"]["version"] = json!(next.to_string());
                });
            }
        }
    }
}

fn place_of(resource: &str, namespace: &str, name: &str) -> Place {
    (resource.to_owned(), namespace.to_owned(), name.to_owned())
}

fn is_finished(job: &Value) -> bool {
    ["Complete", "Failed"].iter().any(|kind| condition(job, kind) == Some("True"))
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue"
}

#[cfg(test)]
mod tests;
