//! Lives in which nobody takes a hand: pods do what their annotations say, on our simulated node, beneath the real
//! controller as beneath ours.
//!
//! What happens to a pod is further apart than the real controller's batches, so that there is one status for each.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::ControlPlane;
use tokio::time::{Instant, sleep};

use crate::scenarios::{Scenario, Script, with, with_template};
use crate::world::World;
use crate::{Ours, REST, print, same_events};

/// The node of both worlds.
pub(crate) const NODE: &str = "simulated";
/// Two pods may fail one after the other, and the real controller waits longer before each.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Job, and what its pods do.
pub(crate) struct Played {
    pub(crate) name: String,
    spec: Value,
    /// Pods do things at the same time, which two controllers put into words in different portions: only how it ends is
    /// compared.
    at_once: bool,
}

pub(crate) fn all() -> Vec<Played> {
    let indexed = |more: Value| with(json!({ "completionMode": "Indexed", "parallelism": 1 }), more);
    let rule = |rule: Value| json!({ "backoffLimit": 3, "podFailurePolicy": { "rules": [rule] } });
    let one_by_one = |name: &str, spec, acts: &[(&str, &str)]| Played {
        name: format!("played-{name}"),
        spec: job(spec, acts),
        at_once: false,
    };
    let at_once =
        |name, spec, acts: &[(&str, &str)]| Played { at_once: true, ..one_by_one(name, spec, acts) };
    let sidecar = json!({ "template": { "spec": {
        "initContainers": [{ "name": "beside", "image": "x", "restartPolicy": "Always" }],
    } } });
    let again = json!({ "backoffLimit": 1, "template": { "spec": { "restartPolicy": "OnFailure" } } });
    let on_42 = json!({ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } });
    let disrupted =
        json!({ "action": "FailJob", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] });
    vec![
        one_by_one("complete", json!({}), &[("start-ms", "2500")]),
        one_by_one("never-ready", json!({}), &[("never-ready", "true")]),
        one_by_one("ready-later", json!({}), &[("ready-ms", "2500"), ("duration-ms", "5000")]),
        one_by_one("sidecar", sidecar, &[]),
        one_by_one("failed", json!({ "backoffLimit": 0 }), &[("exit-code", "1")]),
        one_by_one("failed-twice", json!({ "backoffLimit": 1 }), &[("exit-code.main", "1")]),
        one_by_one("restarted", again, &[("exit-code", "1")]),
        one_by_one("indexes", indexed(json!({ "completions": 3 })), &[]),
        one_by_one(
            "indexes-failed",
            indexed(json!({ "completions": 2, "backoffLimitPerIndex": 0 })),
            &[("exit-code", "1")],
        ),
        one_by_one(
            "success-policy",
            indexed(json!({ "completions": 3, "successPolicy": { "rules": [{ "succeededIndexes": "0" }] } })),
            &[],
        ),
        one_by_one("failure-policy", rule(on_42), &[("exit-code", "42")]),
        one_by_one("disrupted", rule(disrupted), &[("disruption", "PreemptionByScheduler")]),
        one_by_one(
            "deadline",
            json!({ "activeDeadlineSeconds": 5 }),
            &[("duration-ms", "forever"), ("stop-ms", "2500")],
        ),
        at_once("at-once", json!({ "parallelism": 3, "completions": 7 }), &[]),
        at_once("work-queue", json!({ "parallelism": 3 }), &[("start-ms", "500")]),
    ]
}

/// A Job whose pods are on the simulated node and do this. Unless it is said otherwise, they run for a while.
fn job(spec: Value, acts: &[(&str, &str)]) -> Value {
    let mut spec = with_template(spec);
    let annotations = [("duration-ms", "3000")].iter().chain(acts);
    for (what, value) in annotations {
        spec["template"]["metadata"]["annotations"][format!("sim.ferry.dev/{what}")] = json!(value);
    }
    spec["template"]["spec"]["nodeName"] = json!(NODE);
    spec
}

/// Lets a Job live in both worlds until it has ended. Returns the number of statuses that it went through in ours.
pub(crate) async fn run(theirs: &ControlPlane, ours: &Ours, played: &Played) -> anyhow::Result<usize> {
    let scenario = Scenario {
        name: played.name.clone(),
        spec: played.spec.clone(),
        pods_before: Vec::new(),
        script: Script::Steps(Vec::new()),
    };
    let namespace = theirs.namespace(&played.name).await?;
    let theirs =
        World::create(theirs.client(), namespace, &scenario, None).await.context("the real world")?;
    let namespace = ours.namespace(&played.name).await?;
    let ours = World::create(ours.client(), namespace, &scenario, None).await.context("our world")?;
    let (theirs_ended, ours_ended) = (ended(&theirs).await?, ended(&ours).await?);
    ensure!(
        same(&theirs_ended, &ours_ended, played.at_once),
        "the statuses differ\ntheirs:\n{}\nours:\n{}",
        print(&theirs_ended),
        print(&ours_ended)
    );
    let (their_pods, our_pods) = (theirs.snapshot().await?, ours.snapshot().await?);
    ensure!(their_pods == our_pods, "the pods differ\ntheirs: {their_pods:#?}\nours: {our_pods:#?}");
    let events = ours.events(1).await?;
    let their_events = theirs.events(events.len()).await?;
    ensure!(
        same_events(&their_events, &events),
        "the events differ\ntheirs: {their_events:#?}\nours: {events:#?}"
    );
    Ok(ours_ended.len())
}

/// All statuses of a Job that has ended and to which nothing happens any more.
async fn ended(world: &World) -> anyhow::Result<Vec<Value>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = world.statuses().await?;
        sleep(REST).await;
        let now = world.statuses().await?;
        if before == now && now.last().is_some_and(has_ended) {
            return Ok(now);
        }
        ensure!(Instant::now() < deadline, "it does not end:\n{}", print(&now));
    }
}

fn has_ended(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| (it["type"] == "Complete" || it["type"] == "Failed") && it["status"] == "True")
}

fn same(theirs: &[Value], ours: &[Value], only_the_end: bool) -> bool {
    if only_the_end { theirs.last() == ours.last() } else { theirs == ours }
}
