//! Random queues and Workloads, given to us and to real Kueue: the same Workloads get in, with the same flavors, and the
//! others are told the same.
//!
//! All queues open at once when everything is there, and no two Workloads are equally important, so that nothing depends
//! on who is seen first. Evictions are completed as a Job controller would: nothing runs here.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use operator::Settings;
use rules::quota::fair::Strategy;
use rules::workload::{change, has_quota, is_evicted, state};
use serde_json::{Value, json};
use types::kueue::Workload;

use crate::world::World;

/// How many independent trees of queues there are, unless `TREES` says otherwise.
const TREES: u64 = 30;
/// Nothing changed for so long: it is over.
const QUIET: Duration = Duration::from_secs(4);
const NAMESPACE: &str = "random";
/// The check that all queues lack until everything is there: then they open at once.
const OPEN: &str = "open";

/// Numbers that look random and are the same in every run with the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.roll(from.len() as u64)).expect("a small number")]
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }
}

/// What kind of game is played.
#[derive(Clone, Copy, PartialEq)]
enum Sharing {
    /// Queues borrow first come, first served.
    Classical,
    /// Queues and cohorts have weights.
    Fair,
}

/// All objects of one tree of queues, and the Workloads that come later and are more important.
fn tree(number: u64, dice: &mut Dice, sharing: Sharing) -> (Vec<Value>, Vec<Value>) {
    let kueue = "kueue.x-k8s.io/v1beta2";
    let mut objects = Vec::new();
    let root = format!("t{number}");
    let resources = *dice.pick(&[Resources::Cpu, Resources::Together, Resources::Apart]);
    let mut cohorts = vec![String::new(), root.clone()];
    // A branch that grows by one cohort after the other.
    while cohorts.len() < 4 && dice.one_in(2) {
        let sub = format!("{root}-sub{}", cohorts.len() - 1);
        let mut spec = json!({ "parentName": cohorts.last() });
        if dice.one_in(2) {
            spec["resourceGroups"] = resources.groups(dice, true, &["f0"]);
        }
        if sharing == Sharing::Fair {
            spec["fairSharing"] = weight(dice);
        }
        objects.push(
            json!({ "apiVersion": kueue, "kind": "Cohort", "metadata": { "name": sub }, "spec": spec }),
        );
        cohorts.push(sub);
    }
    let queues = 1 + dice.roll(4);
    for queue in 0..queues {
        let name = format!("{root}-q{queue}");
        let cohort = dice.pick(&cohorts).clone();
        let spec = cluster_queue(dice, resources, &cohort, sharing);
        objects.push(json!({ "apiVersion": kueue, "kind": "ClusterQueue", "metadata": { "name": name }, "spec": spec }));
        let leads = json!({ "clusterQueue": name });
        objects.push(
            json!({ "apiVersion": kueue, "kind": "LocalQueue", "metadata": { "name": name }, "spec": leads }),
        );
    }
    for number in 0..3 + dice.roll(8) {
        // The number of the Workload among all of its tree decides where the dice do not.
        let priority = 100 * dice.roll(5) + number;
        let queue = format!("{root}-q{}", dice.roll(queues));
        objects.push(workload(dice, &format!("{root}-w{number}"), &queue, resources, priority));
    }
    let more_to_come = 1 + dice.roll(4);
    let mut more = |number| {
        let queue = format!("{root}-q{}", dice.roll(queues));
        workload(dice, &format!("{root}-x{number}"), &queue, resources, 1000 + number)
    };
    let later = (0..more_to_come).map(&mut more).collect();
    (objects, later)
}

fn cluster_queue(dice: &mut Dice, resources: Resources, cohort: &str, sharing: Sharing) -> Value {
    let flavors = dice.pick(&[vec!["f0"], vec!["f0", "f1"], vec!["f1", "f0"], vec!["f2", "f0"]]).clone();
    let reclaim = *dice.pick(&["Never", "LowerPriority", "Any"]);
    let mut spec = json!({
        "namespaceSelector": {},
        "admissionChecksStrategy": { "admissionChecks": [{ "name": OPEN }] },
        "queueingStrategy": dice.pick(&["StrictFIFO", "BestEffortFIFO", "BestEffortFIFO"]),
        "resourceGroups": resources.groups(dice, !cohort.is_empty(), &flavors),
        "flavorFungibility": {
            "whenCanBorrow": dice.pick(&["MayStopSearch", "TryNextFlavor"]),
            "whenCanPreempt": dice.pick(&["MayStopSearch", "TryNextFlavor"]),
        },
        "preemption": {
            "reclaimWithinCohort": reclaim,
            "withinClusterQueue": dice.pick(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        },
    });
    if sharing == Sharing::Fair {
        spec["fairSharing"] = weight(dice);
    } else if reclaim != "Never" && dice.one_in(3) {
        let mut borrowing = json!({ "policy": "LowerPriority" });
        if dice.one_in(2) {
            borrowing["maxPriorityThreshold"] = (100 * dice.roll(5)).into();
        }
        spec["preemption"]["borrowWithinCohort"] = borrowing;
    }
    if !cohort.is_empty() {
        spec["cohortName"] = cohort.into();
    }
    spec
}

fn weight(dice: &mut Dice) -> Value {
    json!({ "weight": dice.pick(&["1", "1", "2", "500m", "0"]) })
}

fn workload(dice: &mut Dice, name: &str, queue: &str, resources: Resources, priority: u64) -> Value {
    let mut pod_sets = vec![pods(dice, "main", resources)];
    if dice.one_in(4) {
        pod_sets.push(pods(dice, "more", resources));
    } else if pod_sets[0]["count"] != 1 && dice.one_in(3) {
        pod_sets[0]["minCount"] = 1.into();
    }
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": name },
        "spec": { "queueName": queue, "priority": priority, "podSets": pod_sets },
    })
}

fn pods(dice: &mut Dice, name: &str, resources: Resources) -> Value {
    let requests: BTreeMap<&str, String> =
        resources.names().iter().map(|resource| (*resource, (1 + dice.roll(4)).to_string())).collect();
    let mut spec = json!({ "restartPolicy": "Never", "containers": [{
        "name": "c", "image": "i", "resources": { "requests": requests },
    }] });
    if dice.one_in(3) {
        spec["tolerations"] = json!([{ "key": "spot", "operator": "Exists" }]);
    }
    if dice.one_in(5) {
        spec["nodeSelector"] = json!({ "pool": dice.pick(&["f0", "f1"]) });
    }
    json!({ "name": name, "count": 1 + dice.roll(3), "template": { "spec": spec } })
}

/// What the queues of a tree have.
#[derive(Clone, Copy)]
enum Resources {
    /// One resource.
    Cpu,
    /// Two, of which a pod gets both in the same flavor.
    Together,
    /// Two, each with flavors of its own.
    Apart,
}

impl Resources {
    fn names(self) -> &'static [&'static str] {
        match self {
            Resources::Cpu => &["cpu"],
            Resources::Together | Resources::Apart => &["cpu", "memory"],
        }
    }

    fn groups(self, dice: &mut Dice, limits: bool, flavors: &[&str]) -> Value {
        match self {
            Resources::Cpu | Resources::Together => json!([group(dice, limits, self.names(), flavors)]),
            Resources::Apart => {
                let (cpu, disk) = self.names().split_at(1);
                json!([group(dice, limits, cpu, flavors), group(dice, limits, disk, &["d0", "d1"])])
            }
        }
    }
}

fn group(dice: &mut Dice, limits: bool, resources: &[&str], flavors: &[&str]) -> Value {
    let mut quota = |resource: &&str| {
        let nominal = dice.roll(7);
        let mut quota = json!({ "name": resource, "nominalQuota": nominal.to_string() });
        if limits && dice.one_in(3) {
            quota["borrowingLimit"] = dice.roll(4).to_string().into();
        }
        if limits && dice.one_in(3) {
            quota["lendingLimit"] = dice.roll(nominal + 1).to_string().into();
        }
        quota
    };
    let mut flavor = |name: &&str| {
        let quotas: Vec<Value> = resources.iter().map(&mut quota).collect();
        json!({ "name": name, "resources": quotas })
    };
    let flavors: Vec<Value> = flavors.iter().map(&mut flavor).collect();
    json!({ "coveredResources": resources, "flavors": flavors })
}

fn all(seed: u64, sharing: Sharing) -> (Vec<Value>, Vec<Value>) {
    let flavor = |name: &str, label: &str, taints: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": name },
            "spec": { "nodeLabels": { label: name }, "nodeTaints": taints },
        })
    };
    let spot = json!([{ "key": "spot", "value": "true", "effect": "NoSchedule" }]);
    let mut objects: Vec<Value> = [("f0", "pool"), ("f1", "pool"), ("d0", "disks"), ("d1", "disks")]
        .map(|(name, label)| flavor(name, label, json!([])))
        .into();
    objects.push(flavor("f2", "pool", spot));
    let trees = std::env::var("TREES").ok().and_then(|trees| trees.parse().ok()).unwrap_or(TREES);
    let mut dice = Dice(seed);
    let mut later = Vec::new();
    for number in 0..trees {
        let (first, second) = tree(number, &mut dice, sharing);
        objects.extend(first);
        later.extend(second);
    }
    (objects, later)
}

/// Completes evictions until nothing changes any more, and returns how each Workload stands.
async fn outcome(client: &Client) -> anyhow::Result<Outcome> {
    let api: Api<Workload> = Api::namespaced(client.clone(), NAMESPACE);
    let mut events = watcher::watcher(api.clone(), watcher::Config::default()).applied_objects().boxed();
    loop {
        match tokio::time::timeout(QUIET, events.try_next()).await {
            Err(_) => break,
            Ok(event) => {
                let workload = event?.context("a watch does not end")?;
                if has_quota(&workload) && is_evicted(&workload) {
                    let mut next = workload.clone();
                    change::release(&mut next, jiff::Timestamp::now());
                    let status = next.status.unwrap_or_default();
                    let body = json!({
                        "metadata": { "resourceVersion": workload.metadata.resource_version },
                        "status": { "conditions": status.conditions, "admission": null },
                    });
                    let name = workload.metadata.name.as_deref().unwrap_or_default();
                    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(&body)).await {
                        Err(kube::Error::Api(status)) if status.code == 409 => {}
                        other => drop(other?),
                    }
                }
            }
        }
    }
    let workloads = api.list(&ListParams::default()).await?;
    Ok(workloads
        .items
        .into_iter()
        .map(|it| {
            let admission = it.status.as_ref().and_then(|status| status.admission.clone());
            let given = admission.map_or_else(|| "waits".to_owned(), |given| json!(given).to_string());
            let reserved = state::find(&it, "QuotaReserved").filter(|reserved| reserved.status == "False");
            let told = reserved.map(|reserved| reserved.message.clone()).unwrap_or_default();
            let pushed_out = state::find(&it, "Preempted").filter(|preempted| preempted.status == "True");
            let pushed_out = pushed_out.map(|preempted| preempted.reason.clone());
            (it.metadata.name.unwrap_or_default(), Stands { given, told, pushed_out })
        })
        .collect())
}

async fn fill(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    let creating = objects.iter().map(|object| world.create(object.clone()));
    futures::stream::iter(creating).buffered(8).try_collect::<Vec<_>>().await?;
    Ok(())
}

type Outcome = BTreeMap<String, Stands>;

/// How a Workload stands.
struct Stands {
    /// What it has, or that it waits.
    given: String,
    /// Why it waits.
    told: String,
    /// Why it had to go, if it did and has not come back.
    pushed_out: Option<String>,
}

impl Stands {
    fn waits(&self) -> bool {
        self.given == "waits"
    }
}

/// What becomes of the first Workloads, and what of all when more important ones come.
async fn play(world: &World, later: &[Value]) -> anyhow::Result<(Outcome, Outcome)> {
    outcome(&world.client).await?;
    world.check(OPEN).await?;
    let first = outcome(&world.client).await?;
    let active = |status: &str| {
        json!({ "conditions": [{
            "type": "Active", "status": status, "reason": "Played", "message": "",
            "lastTransitionTime": jiff::Timestamp::now().to_string(),
        }] })
    };
    world.patch_status("AdmissionCheck", OPEN, active("False")).await?;
    fill(world, later).await?;
    outcome(&world.client).await?;
    world.patch_status("AdmissionCheck", OPEN, active("True")).await?;
    Ok((first, outcome(&world.client).await?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_workloads_get_in_as_with_kueue() -> anyhow::Result<()> {
    same_as_with_kueue(Sharing::Classical).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_workloads_get_in_as_with_kueue_where_shares_are_fair() -> anyhow::Result<()> {
    same_as_with_kueue(Sharing::Fair).await
}

/// The same objects to us and to real Kueue. `SEED` plays another game.
async fn same_as_with_kueue(sharing: Sharing) -> anyhow::Result<()> {
    let Some(plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (objects, later) = all(seed, sharing);
    let (their_settings, our_settings) = settings(sharing);
    let mut theirs = World::before_kueue(&plane).await?;
    theirs.begin(NAMESPACE).await?;
    fill(&theirs, &objects).await?;
    let kueue = plane.kueue(&their_settings).await?;
    let expected = play(&theirs, &later).await?;
    drop(kueue);
    let mut ours = World::with(World::embedded_cluster().await?, our_settings).await?;
    ours.kill().await;
    ours.begin(NAMESPACE).await?;
    fill(&ours, &objects).await?;
    ours.start().await;
    let got = play(&ours, &later).await?;
    let mut differences = compare("at first", &expected.0, &got.0);
    differences.extend(compare("later", &expected.1, &got.1));
    let pushed_out = expected.0.iter().filter(|(name, before)| !before.waits() && expected.1[*name].waits());
    let pushed_out = pushed_out.count();
    println!("{pushed_out} had to go");
    anyhow::ensure!(pushed_out > 0, "with seed {seed} nobody has to go, which shows little");
    anyhow::ensure!(differences.is_empty(), "with seed {seed}:\n{}", differences.join("\n"));
    Ok(())
}

/// The same settings, as Kueue's configuration has them and as ours.
fn settings(sharing: Sharing) -> (Value, Settings) {
    let mut ours = Settings::default();
    if sharing == Sharing::Classical {
        return (json!({}), ours);
    }
    ours.quota.fair_sharing =
        Some(vec![Strategy::LessThanOrEqualToFinalShare, Strategy::LessThanInitialShare]);
    let strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"];
    (json!({ "fairSharing": { "preemptionStrategies": strategies } }), ours)
}

fn compare(when: &str, expected: &Outcome, got: &Outcome) -> Vec<String> {
    let admitted = expected.values().filter(|stands| !stands.waits()).count();
    println!("{when}: {} workloads, {admitted} of them get in", expected.len());
    let mut differences = Vec::new();
    for (name, theirs) in expected {
        let ours = &got[name];
        // Those who ask for the same as one who did not get in are not told so, and how much is missing depends on who
        // was in when it was last looked at. That it is missing does not.
        let words = |told: &str| told.replace(|c: char| c.is_ascii_digit(), "");
        let untried =
            |told: &str| told.is_empty() || told.contains("inactive") || told.starts_with("Preempted");
        let same_words =
            untried(&theirs.told) || untried(&ours.told) || words(&theirs.told) == words(&ours.told);
        if theirs.given != ours.given || theirs.pushed_out != ours.pushed_out || !same_words {
            let line = |who: &str, Stands { given, told, pushed_out }: &Stands| {
                format!("  {who}: {given} {told} {}", pushed_out.as_deref().unwrap_or_default())
            };
            differences.push(format!("{name} {when}\n{}\n{}", line("Kueue", theirs), line("Ferry", ours)));
        }
    }
    differences
}
