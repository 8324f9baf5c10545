//! The lives of Jobs that are compared.

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::script::Step::{
    self, Delete, DeleteJob, Edit, End, FailNow, FailWith, Quota, Relabel, Remove, Restart, Start,
};
use crate::script::Which::{Ended, Index, New, Running, Terminating};

/// A life: how it begins, and what happens then.
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) spec: Value,
    pub(crate) pods_before: Vec<Value>,
    pub(crate) script: Script,
}

/// Who says what happens.
pub(crate) enum Script {
    /// These things, one after the other.
    Steps(Vec<Step>),
    /// Chance, so many times.
    Chance(Chance, usize),
}

/// A scenario with a Job of this spec; the template is filled in.
fn scenario(name: &str, spec: Value, steps: &[Step]) -> Scenario {
    Scenario {
        name: name.to_owned(),
        spec: with_template(spec),
        pods_before: Vec::new(),
        script: Script::Steps(steps.to_vec()),
    }
}

/// A spec with the template filled in.
pub(crate) fn with_template(mut spec: Value) -> Value {
    if spec["template"]["spec"]["restartPolicy"].is_null() {
        spec["template"]["spec"]["restartPolicy"] = json!("Never");
    }
    spec["template"]["spec"]["containers"] = json!([{"name": "main", "image": "x"}]);
    spec
}

/// A pod failure policy with one rule about exit code 3.
fn on_exit_code(action: &str) -> Value {
    json!({"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [3]}}]})
}

fn numbers(parallelism: i32, completions: i32) -> Value {
    json!({"parallelism": parallelism, "completions": completions})
}

pub(crate) fn with(mut spec: Value, more: Value) -> Value {
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    spec
}

fn indexed(parallelism: i32, completions: i32, more: Value) -> Value {
    with(with(numbers(parallelism, completions), json!({"completionMode": "Indexed"})), more)
}

pub(crate) fn suspend(suspend: bool) -> Step {
    Edit(json!({"spec": {"suspend": suspend}}))
}

pub(crate) fn scale(count: i32) -> Step {
    Edit(json!({"spec": {"parallelism": count, "completions": count}}))
}

pub(crate) fn parallelism(count: i32) -> Step {
    Edit(json!({"spec": {"parallelism": count}}))
}

pub(crate) fn scenarios() -> Vec<Scenario> {
    let mut scenarios = ends();
    scenarios.extend(indexed_jobs());
    scenarios.extend(policies());
    scenarios.extend(edits());
    scenarios.push(adoption());
    scenarios
}

fn ends() -> Vec<Scenario> {
    vec![
        scenario(
            "complete",
            numbers(2, 3),
            &[Start(New), Start(New), End(Running, 0), End(Running, 0), Start(New), End(Running, 0)],
        ),
        scenario("nothing-to-do", numbers(1, 0), &[]),
        scenario(
            "backoff-limit",
            with(numbers(2, 4), json!({"backoffLimit": 1})),
            &[
                Start(New),
                Start(New),
                End(Running, 1),
                Start(New),
                End(Running, 1),
                End(Terminating, 143),
                Remove(Ended),
            ],
        ),
        scenario(
            "delay",
            with(numbers(1, 1), json!({"backoffLimit": 3})),
            &[Start(New), FailNow(Running), End(New, 0)],
        ),
        scenario("deadline", with(numbers(2, 2), json!({"activeDeadlineSeconds": 4})), &[]),
        scenario(
            "work-queue",
            json!({"parallelism": 3}),
            &[
                Start(New),
                Start(New),
                Start(New),
                End(Running, 1),
                Start(New),
                End(Running, 0),
                End(Running, 1),
                End(Running, 0),
            ],
        ),
        scenario(
            "restarts",
            with(
                numbers(2, 2),
                json!({"backoffLimit": 3, "template": {"spec": {"restartPolicy": "OnFailure"}}}),
            ),
            &[
                Start(New),
                Start(New),
                Restart(Running, 2),
                Restart(Running, 3),
                Remove(Terminating),
                Remove(Terminating),
            ],
        ),
    ]
}

fn indexed_jobs() -> Vec<Scenario> {
    vec![
        scenario(
            "indexed",
            indexed(2, 5, json!({})),
            &[
                End(Index(1), 0),
                End(Index(0), 1),
                End(Index(2), 0),
                End(Index(3), 0),
                End(Index(4), 0),
                End(Index(0), 0),
            ],
        ),
        scenario(
            "per-index",
            indexed(3, 3, json!({"backoffLimitPerIndex": 1})),
            &[
                Start(Index(0)),
                End(Index(0), 1),
                End(Index(1), 0),
                End(Index(0), 1),
                End(Index(2), 1),
                End(Index(2), 0),
            ],
        ),
        scenario(
            "max-failed-indexes",
            indexed(4, 4, json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1})),
            &[Start(Index(0)), End(Index(1), 1), End(Index(2), 1), Remove(Terminating)],
        ),
        scenario(
            "success-policy",
            indexed(
                3,
                4,
                json!({"successPolicy": {"rules": [{"succeededIndexes": "1-3", "succeededCount": 2}]}}),
            ),
            &[
                Start(Index(0)),
                End(Index(2), 0),
                Start(Index(3)),
                End(Index(1), 0),
                End(Terminating, 143),
                Remove(Ended),
                Remove(Terminating),
            ],
        ),
        scenario(
            "elastic",
            indexed(3, 3, json!({})),
            &[End(Index(2), 0), Start(Index(0)), scale(2), scale(4), End(Index(0), 0), scale(1)],
        ),
        scenario(
            "elastic-to-nothing",
            indexed(2, 2, json!({})),
            &[Start(Index(0)), scale(0), Remove(Terminating)],
        ),
    ]
}

fn policies() -> Vec<Scenario> {
    let disrupted =
        json!({"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
    vec![
        scenario(
            "ignore",
            with(numbers(1, 1), json!({"backoffLimit": 0, "podFailurePolicy": on_exit_code("Ignore")})),
            &[Start(New), End(Running, 3), End(New, 0)],
        ),
        scenario(
            "count",
            with(numbers(1, 1), json!({"backoffLimit": 1, "podFailurePolicy": on_exit_code("Count")})),
            &[End(New, 3), End(New, 3)],
        ),
        scenario(
            "fail-job",
            with(numbers(2, 2), json!({"podFailurePolicy": on_exit_code("FailJob")})),
            &[Start(New), Start(New), End(Running, 3), End(Terminating, 143), Remove(Ended)],
        ),
        scenario(
            "fail-index",
            indexed(2, 2, json!({"backoffLimitPerIndex": 3, "podFailurePolicy": on_exit_code("FailIndex")})),
            &[End(Index(0), 3), End(Index(1), 1), End(Index(1), 0)],
        ),
        scenario(
            "fail-by-condition",
            with(numbers(1, 1), json!({"podFailurePolicy": disrupted})),
            &[Start(New), FailWith(Running, "DisruptionTarget")],
        ),
        scenario(
            "replace-failed",
            with(numbers(2, 3), json!({"podReplacementPolicy": "Failed"})),
            &[
                Start(New),
                Start(New),
                Delete(Running),
                End(Terminating, 143),
                Remove(Ended),
                Start(New),
                Delete(Running),
                End(Terminating, 0),
                End(Running, 0),
                End(New, 0),
            ],
        ),
        scenario(
            "replace-terminating",
            with(numbers(1, 1), json!({"podReplacementPolicy": "TerminatingOrFailed"})),
            &[Start(New), Delete(Running), Start(New), Remove(Terminating), End(Running, 0)],
        ),
    ]
}

fn edits() -> Vec<Scenario> {
    vec![
        scenario(
            "suspend",
            numbers(2, 2),
            &[Start(New), suspend(true), Remove(Terminating), suspend(false), End(New, 0), End(New, 0)],
        ),
        scenario(
            "suspended-at-first",
            with(numbers(1, 1), json!({"suspend": true})),
            &[suspend(false), End(New, 0)],
        ),
        scenario("suspended-with-nothing-to-do", with(numbers(0, 0), json!({"suspend": true})), &[]),
        scenario(
            "parallelism",
            numbers(3, 9),
            &[Start(New), parallelism(1), parallelism(0), Remove(Terminating), parallelism(2), End(New, 0)],
        ),
        scenario(
            "deadline-by-edit",
            numbers(2, 2),
            &[Start(New), Edit(json!({"spec": {"activeDeadlineSeconds": 1}})), Remove(Terminating)],
        ),
        scenario(
            "refused-creations",
            numbers(0, 9),
            &[Quota(1), parallelism(4), Quota(3), Quota(9), Start(New), End(Running, 0)],
        ),
        scenario("deleted", numbers(2, 2), &[Start(New), DeleteJob, End(Running, 0)]),
    ]
}

fn adoption() -> Scenario {
    let labels = json!({"app": "adopted"});
    let spec = with(
        numbers(1, 2),
        json!({
            "manualSelector": true,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}},
        }),
    );
    let orphan = json!({
        "metadata": {"name": "orphan", "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
    });
    let steps = [Start(New), Relabel(Running, "free"), End(New, 0)];
    Scenario { pods_before: vec![orphan], ..scenario("adoption", spec, &steps) }
}
