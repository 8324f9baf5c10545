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
use rules::workload::{change, has_quota, is_evicted, state};
use serde_json::{Value, json};
use types::kueue::Workload;

use crate::world::World;

/// How many independent trees of queues there are, unless `TREES` says otherwise.
const TREES: u64 = 30;
/// Nothing changed for so long: it is over.
const QUIET: Duration = Duration::from_secs(4);
const NAMESPACE: &str = "random";
/// Queues have the first of them or both, and Workloads ask for either, for both or for nothing.
const RESOURCES: [&str; 2] = ["cpu", "example.com/gpu"];
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

/// All objects of one tree of queues, and the Workloads that come later and are more important.
fn tree(number: u64, dice: &mut Dice) -> (Vec<Value>, Vec<Value>) {
    let kueue = "kueue.x-k8s.io/v1beta2";
    let mut objects = Vec::new();
    let root = format!("t{number}");
    let mut cohorts = vec![String::new(), root.clone()];
    if dice.one_in(2) {
        let sub = format!("{root}-sub");
        let mut spec = json!({ "parentName": root });
        if dice.one_in(2) {
            spec["resourceGroups"] = groups(dice, true, &["f0"]);
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
        let flavors = dice.pick(&[vec!["f0"], vec!["f0", "f1"], vec!["f1", "f0"], vec!["f2", "f0"]]).clone();
        let mut spec = json!({
            "namespaceSelector": {},
            "admissionChecksStrategy": { "admissionChecks": [{ "name": OPEN }] },
            "queueingStrategy": dice.pick(&["StrictFIFO", "BestEffortFIFO", "BestEffortFIFO"]),
            "resourceGroups": groups(dice, !cohort.is_empty(), &flavors),
            "flavorFungibility": {
                "whenCanBorrow": dice.pick(&["MayStopSearch", "TryNextFlavor"]),
                "whenCanPreempt": dice.pick(&["MayStopSearch", "TryNextFlavor"]),
            },
        });
        let reclaim = *dice.pick(&["Never", "LowerPriority", "Any"]);
        spec["preemption"] = json!({
            "reclaimWithinCohort": reclaim,
            "withinClusterQueue": dice.pick(&["Never", "LowerPriority"]),
        });
        if reclaim != "Never" && dice.one_in(3) {
            spec["preemption"]["borrowWithinCohort"] = json!({ "policy": "LowerPriority" });
        }
        if !cohort.is_empty() {
            spec["cohortName"] = cohort.into();
        }
        objects.push(json!({ "apiVersion": kueue, "kind": "ClusterQueue", "metadata": { "name": name }, "spec": spec }));
        let leads = json!({ "clusterQueue": name });
        objects.push(
            json!({ "apiVersion": kueue, "kind": "LocalQueue", "metadata": { "name": name }, "spec": leads }),
        );
    }
    for number in 0..3 + dice.roll(8) {
        // The number of the Workload among all of its tree decides where the dice do not.
        let priority = 100 * dice.roll(5) + number;
        objects.push(workload(dice, &format!("{root}-w{number}"), &root, queues, priority));
    }
    let later = (0..=dice.roll(4))
        .map(|number| workload(dice, &format!("{root}-x{number}"), &root, queues, 1000 + number))
        .collect();
    (objects, later)
}

fn workload(dice: &mut Dice, name: &str, root: &str, queues: u64, priority: u64) -> Value {
    let queue = format!("{root}-q{}", dice.roll(queues));
    let mut requests = json!({});
    for resource in RESOURCES {
        // Not to name a resource and to ask for none of it are two ways to say the same.
        let amount = *dice.pick(&[None, Some(0), Some(1), Some(1), Some(2), Some(3), Some(4)]);
        if let Some(amount) = amount {
            requests[resource] = amount.to_string().into();
        }
    }
    let mut spec = json!({ "restartPolicy": "Never", "containers": [{
        "name": "c", "image": "i", "resources": { "requests": requests },
    }] });
    if dice.one_in(3) {
        spec["tolerations"] = json!([{ "key": "spot", "operator": "Exists" }]);
    }
    if dice.one_in(5) {
        spec["nodeSelector"] = json!({ "pool": dice.pick(&["f0", "f1"]) });
    }
    let count = 1 + dice.roll(3);
    let mut pods = json!({ "name": "main", "count": count, "template": { "spec": spec } });
    if count > 1 && dice.one_in(3) {
        pods["minCount"] = 1.into();
    }
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": name },
        "spec": { "queueName": queue, "priority": priority, "podSets": [pods] },
    })
}

fn groups(dice: &mut Dice, limits: bool, flavors: &[&str]) -> Value {
    let covered = if dice.one_in(4) { &RESOURCES[..1] } else { &RESOURCES };
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
    let flavors = flavors.iter().map(|flavor| {
        let resources: Vec<Value> = covered.iter().map(&mut quota).collect();
        json!({ "name": flavor, "resources": resources })
    });
    json!([{ "coveredResources": covered, "flavors": flavors.collect::<Vec<_>>() }])
}

fn all(seed: u64) -> (Vec<Value>, Vec<Value>) {
    let flavor = |name: &str, taints: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": name },
            "spec": { "nodeLabels": { "pool": name }, "nodeTaints": taints },
        })
    };
    let spot = json!([{ "key": "spot", "value": "true", "effect": "NoSchedule" }]);
    let mut objects = vec![flavor("f0", json!([])), flavor("f1", json!([])), flavor("f2", spot)];
    let trees = std::env::var("TREES").ok().and_then(|trees| trees.parse().ok()).unwrap_or(TREES);
    let mut dice = Dice(seed);
    let mut later = Vec::new();
    for number in 0..trees {
        let (first, second) = tree(number, &mut dice);
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
            (it.metadata.name.unwrap_or_default(), (given, told))
        })
        .collect())
}

async fn fill(world: &World, objects: &[Value]) -> anyhow::Result<()> {
    let creating = objects.iter().map(|object| world.create(object.clone()));
    futures::stream::iter(creating).buffered(8).try_collect::<Vec<_>>().await?;
    Ok(())
}

type Outcome = BTreeMap<String, (String, String)>;

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

/// The same objects to us and to real Kueue. `SEED` plays another game.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_workloads_get_in_as_with_kueue() -> anyhow::Result<()> {
    let Some(plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (objects, later) = all(seed);
    let mut theirs = World::before_kueue(&plane).await?;
    theirs.begin(NAMESPACE).await?;
    fill(&theirs, &objects).await?;
    let kueue = plane.kueue(&json!({})).await?;
    let expected = play(&theirs, &later).await?;
    drop(kueue);
    let mut ours = World::embedded().await?;
    ours.kill().await;
    ours.begin(NAMESPACE).await?;
    fill(&ours, &objects).await?;
    ours.start().await;
    let got = play(&ours, &later).await?;
    let mut differences = compare("at first", &expected.0, &got.0);
    differences.extend(compare("later", &expected.1, &got.1));
    let evicted = expected.0.iter().filter(|(name, (given, _))| {
        given != "waits" && expected.1.get(*name).is_some_and(|(given, _)| given == "waits")
    });
    println!("{} had to go", evicted.count());
    anyhow::ensure!(differences.is_empty(), "with seed {seed}:\n{}", differences.join("\n"));
    Ok(())
}

fn compare(when: &str, expected: &Outcome, got: &Outcome) -> Vec<String> {
    let admitted = expected.values().filter(|(given, _)| given != "waits").count();
    println!("{when}: {} workloads, {admitted} of them get in", expected.len());
    let mut differences = Vec::new();
    for (name, (given, told)) in expected {
        let (our_given, our_told) = &got[name];
        // Those who ask for the same as one who did not get in are not told so, and what is missing just now depends on who
        // was in when it was last looked at. What they could never have does not.
        let is_lasting =
            |part: &&str| !part.contains("insufficient unused quota") && !part.ends_with("more needed");
        let words = |told: &str| {
            let told = told.replace(|c: char| c.is_ascii_digit(), "");
            told.split([',', ':']).map(str::trim).filter(is_lasting).collect::<Vec<_>>().join(",")
        };
        let untried =
            |told: &str| told.is_empty() || told.contains("inactive") || told.starts_with("Preempted");
        let same_words = untried(told) || untried(our_told) || words(told) == words(our_told);
        if given != our_given || !same_words {
            let lines = format!("  Kueue: {given} {told}\n  Ferry: {our_given} {our_told}");
            differences.push(format!("{name} {when}\n{lines}"));
        }
    }
    differences
}
