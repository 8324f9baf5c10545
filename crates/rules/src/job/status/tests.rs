//! Each rule of part 4, by its number. A row is a stored status, a written one, and what is then answered.

use serde_json::{Value, json};

use super::*;
use crate::job::defaults::apply_defaults;

const T0: &str = "2025-01-01T00:00:00Z";
const T1: &str = "2025-01-01T00:01:00Z";

fn job(spec: &Value, status: &Value) -> Job {
    let mut job: Job = serde_json::from_value(json!({
        "metadata": {"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": spec,
        "status": status,
    }))
    .expect("a test's Job");
    apply_defaults(&mut job);
    job
}

/// Conditions that are true.
fn conditions(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"type": name, "status": "True"})).collect()
}

/// A status that is right for a Complete Job.
fn complete() -> Value {
    json!({"startTime": T0, "completionTime": T1, "succeeded": 1, "conditions": conditions(&["SuccessCriteriaMet", "Complete"])})
}

/// A status that is right for a Failed Job.
fn failed() -> Value {
    json!({"startTime": T0, "failed": 1, "conditions": conditions(&["FailureTarget", "Failed"])})
}

fn with(mut status: Value, field: &str, value: Value) -> Value {
    status[field] = value;
    status
}

fn check_of(spec: Value, old: Value, new: Value, expected: &[&str]) {
    let errors = validate_status_update(&job(&spec, &new), &job(&spec, &old));
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected, "{old} -> {new} of {spec}");
}

fn check(old: Value, new: Value, expected: &[&str]) {
    check_of(json!({}), old, new, expected);
}

#[test]
fn s_06_counters() {
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        let why = format!("status.{field}: Invalid value: -1: must be greater than or equal to 0");
        let mut expected = vec![why.as_str()];
        if field == "active" {
            expected.push("status.ready: Invalid value: 0: cannot set more ready pods than active");
        }
        if field == "succeeded" || field == "failed" {
            let decreased = format!("status.{field}: Invalid value: -1: cannot decrease the {field} counter");
            check(json!({}), with(json!({}), field, json!(-1)), &[&why, &decreased]);
        } else {
            check(json!({"ready": 0}), with(json!({"ready": 0}), field, json!(-1)), &expected);
        }
    }
}

#[test]
fn s_07_s_08_uncounted_pods() {
    let pods = |succeeded: &[&str], failed: &[&str]| json!({"uncountedTerminatedPods": {"succeeded": succeeded, "failed": failed}});
    check(json!({}), pods(&["a"], &["b"]), &[]);
    check(
        json!({}),
        pods(&["a", "", "a"], &["b", "a", ""]),
        &[
            "status.uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty",
            "status.uncountedTerminatedPods.succeeded[2]: Duplicate value: \"a\"",
            "status.uncountedTerminatedPods.failed[1]: Duplicate value: \"a\"",
            "status.uncountedTerminatedPods.failed[2]: Invalid value: \"\": must not be empty",
        ],
    );
}

const COMPLETE_AND_FAILED: &str =
    "status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions";
const COMPLETE_AND_TARGET: &str =
    "status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions";
const NO_TARGET: &str = "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition";
const NO_CRITERIA: &str = "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
const CRITERIA_AND_FAILED: &str =
    "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions";
const CRITERIA_AND_TARGET: &str =
    "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions";

#[test]
fn s_09a_s_09b_one_end_only() {
    let ended = |names: &[&str]| with(complete(), "conditions", conditions(names));
    check(
        json!({"startTime": T0}),
        ended(&["Complete", "Failed"]),
        &[COMPLETE_AND_FAILED, NO_TARGET, NO_CRITERIA],
    );
    check(
        json!({"startTime": T0}),
        ended(&["Complete", "FailureTarget"]),
        &[COMPLETE_AND_TARGET, NO_CRITERIA],
    );
    check(
        complete(),
        ended(&["SuccessCriteriaMet", "Complete", "FailureTarget"]),
        &[COMPLETE_AND_TARGET, CRITERIA_AND_TARGET],
    );
}

#[test]
fn s_09c_s_09d_s_09e_completion_time() {
    check(
        json!({"startTime": T0}),
        json!({"startTime": T0, "completionTime": T1}),
        &[concat!(
            "status.completionTime: Invalid value: \"2025-01-01T00:01:00Z\": ",
            "cannot set completionTime when there is no Complete=True condition"
        )],
    );
    check(
        json!({"startTime": T0}),
        with(complete(), "completionTime", json!(null)),
        &["status.completionTime: Required value: completionTime is required for Complete jobs"],
    );
    let early = with(with(complete(), "startTime", json!(T1)), "completionTime", json!(T0));
    check(
        json!({"startTime": T1}),
        early,
        &[
            "status.completionTime: Invalid value: \"2025-01-01T00:00:00Z\": must be equal to or after `startTime`",
        ],
    );
    let at_once = with(complete(), "completionTime", json!(T0));
    check(json!({"startTime": T0}), at_once, &[]);
}

#[test]
fn s_09f_s_09g_ends_are_announced() {
    check(json!({"startTime": T0}), with(failed(), "conditions", conditions(&["Failed"])), &[NO_TARGET]);
    check(
        json!({"startTime": T0}),
        with(complete(), "conditions", conditions(&["Complete"])),
        &[NO_CRITERIA],
    );
    // The rule about Failed is asked again when the failed indexes change.
    let spec = json!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1});
    let bad = with(failed(), "conditions", conditions(&["Failed"]));
    check_of(spec.clone(), bad.clone(), with(bad.clone(), "failedIndexes", json!("1")), &[NO_TARGET]);
    check_of(spec, bad.clone(), with(bad, "failed", json!(2)), &[]);
}

#[test]
fn s_09h_s_15_no_pods_after_the_end() {
    for end in [complete(), failed()] {
        check(
            json!({"startTime": T0}),
            with(end.clone(), "active", json!(1)),
            &["status.active: Invalid value: 1: active>0 is invalid for finished job"],
        );
        check(
            json!({"startTime": T0}),
            with(end.clone(), "terminating", json!(1)),
            &["status.terminating: Invalid value: 1: terminating>0 is invalid for finished job"],
        );
        check(json!({"startTime": T0}), with(end, "terminating", json!(0)), &[]);
    }
}

#[test]
fn s_09i_a_finished_job_started() {
    let why = "status.startTime: Required value: startTime is required for finished job";
    check(json!({}), with(failed(), "startTime", json!(null)), &[why]);
    check(json!({}), with(complete(), "startTime", json!(null)), &[why]);
    let never_starts = json!({"suspend": true, "completions": 0});
    check_of(never_starts, json!({}), with(complete(), "startTime", json!(null)), &[]);
    check_of(json!({"suspend": true}), json!({}), with(complete(), "startTime", json!(null)), &[why]);
}

#[test]
fn s_09j_a_finished_job_has_counted_its_pods() {
    let pods = json!({"succeeded": ["a"], "failed": []});
    check(
        json!({"startTime": T0}),
        with(complete(), "uncountedTerminatedPods", pods),
        &[
            r#"status.uncountedTerminatedPods: Invalid value: {"Succeeded":["a"],"Failed":[]}: must be empty for finished job"#,
        ],
    );
    let empty = json!({"succeeded": [], "failed": []});
    check(json!({"startTime": T0}), with(complete(), "uncountedTerminatedPods", empty), &[]);
}

fn per_index() -> Value {
    json!({"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1})
}

#[test]
fn s_10_s_11_index_lists_parse() {
    for (field, text, why) in [
        ("completedIndexes", "5", "too large index: \"5\""),
        ("completedIndexes", "2-1", "non-increasing order, previous: 2, current: 1"),
        ("failedIndexes", "1,1", "non-increasing order, previous: 1, current: 1"),
        ("failedIndexes", " 0", "cannot convert string to integer for index: \" 0\""),
    ] {
        check_of(
            per_index(),
            json!({}),
            with(json!({}), field, json!(text)),
            &[&format!("status.{field}: Invalid value: \"{text}\": error parsing {field}: {why}")],
        );
    }
    check_of(per_index(), json!({}), json!({"completedIndexes": "0-1,3", "failedIndexes": "2"}), &[]);
    check_of(json!({"parallelism": 1}), json!({}), json!({"completedIndexes": ""}), &[]);
}

#[test]
fn s_12_s_13_index_lists_where_they_make_sense() {
    check(
        json!({}),
        json!({"completedIndexes": "0"}),
        &[
            "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode",
        ],
    );
    let indexed = json!({"completionMode": "Indexed", "completions": 5});
    for text in ["", "1"] {
        check_of(
            indexed.clone(),
            json!({}),
            json!({"failedIndexes": text}),
            &[&format!(
                "status.failedIndexes: Invalid value: \"{text}\": cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            )],
        );
    }
}

#[test]
fn s_14_index_lists_do_not_overlap() {
    check_of(
        per_index(),
        json!({}),
        json!({"completedIndexes": "0-2", "failedIndexes": "1-3"}),
        &[
            "status.failedIndexes: Invalid value: \"1-3\": failedIndexes and completedIndexes overlap at index: 1",
        ],
    );
    check_of(per_index(), json!({}), json!({"completedIndexes": "0,2", "failedIndexes": "1,3"}), &[]);
}

#[test]
fn s_16_ready_pods_are_active() {
    check(
        json!({}),
        json!({"ready": 2, "active": 1}),
        &["status.ready: Invalid value: 2: cannot set more ready pods than active"],
    );
    check(json!({}), json!({"ready": 1, "active": 1}), &[]);
}

#[test]
fn s_17a_s_46_ends_are_final() {
    let disabled = |name: &str| {
        format!("status.conditions: Invalid value: cannot disable the terminal {name}=True condition")
    };
    let criteria = "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition";
    let running = json!({"startTime": T0, "succeeded": 1, "failed": 1});
    check(complete(), running.clone(), &[&disabled("Complete"), criteria]);
    check(failed(), running, &[&disabled("Failed"), &disabled("FailureTarget")]);
    let unknown = json!([{"type": "FailureTarget", "status": "Unknown"}]);
    check(
        json!({"conditions": conditions(&["FailureTarget"])}),
        json!({"conditions": unknown}),
        &[&disabled("FailureTarget")],
    );
    let switched = with(failed(), "succeeded", json!(1));
    check(complete(), switched, &[&disabled("Complete"), criteria]);
}

#[test]
fn s_17b_s_17c_counters_count_up() {
    check(
        json!({"failed": 2}),
        json!({"failed": 1}),
        &["status.failed: Invalid value: 1: cannot decrease the failed counter"],
    );
    let why = "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter";
    check(json!({"succeeded": 2}), json!({"succeeded": 1}), &[why]);
    let elastic = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2});
    check_of(elastic, json!({"succeeded": 2}), json!({"succeeded": 1}), &[]);
    let fixed = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 1});
    check_of(fixed, json!({"succeeded": 2}), json!({"succeeded": 1}), &[why]);
}

#[test]
fn s_17d_completion_time_is_final() {
    check(
        complete(),
        with(complete(), "completionTime", json!("2025-01-01T00:02:00Z")),
        &["status.completionTime: Invalid value: \"2025-01-01T00:02:00Z\": field is immutable"],
    );
}

#[test]
fn s_18_s_41_s_42_s_43_start_time() {
    let why = "status.startTime: Required value: startTime cannot be removed for unsuspended job";
    check(json!({}), json!({"startTime": T0}), &[]);
    check(json!({"startTime": T0}), json!({"startTime": T1}), &[why]);
    check(json!({"startTime": T0}), json!({}), &[why]);
    let suspended = json!({"suspend": true});
    check_of(suspended.clone(), json!({"startTime": T0}), json!({}), &[]);
    check_of(suspended.clone(), json!({"startTime": T0}), json!({"startTime": T1}), &[]);
    check_of(
        suspended,
        failed(),
        with(failed(), "startTime", json!(null)),
        &["status.startTime: Required value: startTime is required for finished job"],
    );
    let condition = |value: &str, start: &str| json!({"startTime": start, "conditions": [{"type": "Suspended", "status": value}]});
    check(condition("True", T0), condition("False", T1), &[]);
    check(condition("True", T0), condition("True", T1), &[why]);
    check(condition("False", T0), condition("False", T1), &[why]);
}

#[test]
fn s_20_s_21_s_22_success_criteria() {
    let target = |names: &[&str]| json!({"startTime": T0, "conditions": conditions(names)});
    check(
        target(&["FailureTarget", "Failed"]),
        target(&["FailureTarget", "Failed", "SuccessCriteriaMet"]),
        &[CRITERIA_AND_FAILED, CRITERIA_AND_TARGET],
    );
    check(target(&[]), target(&["FailureTarget", "SuccessCriteriaMet"]), &[CRITERIA_AND_TARGET]);
    check(target(&[]), target(&["SuccessCriteriaMet"]), &[]);
    let policy = json!({"completionMode": "Indexed", "completions": 2, "successPolicy": {"rules": [{"succeededCount": 1}]}});
    check_of(
        policy,
        target(&[]),
        with(complete(), "conditions", conditions(&["Complete"])),
        &[
            NO_CRITERIA,
            "status.conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ],
    );
}

#[test]
fn s_30_s_31_success_criteria_come_first_and_stay() {
    let criteria = |names: &[&str]| json!({"conditions": conditions(names)});
    check(
        criteria(&["SuccessCriteriaMet"]),
        criteria(&[]),
        &["status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"],
    );
    check(
        criteria(&["Complete"]),
        criteria(&["Complete", "SuccessCriteriaMet"]),
        &[concat!(
            "status.conditions: Invalid value: ",
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        )],
    );
}

#[test]
fn s_40_s_52_what_was_bad_already_blocks_nothing_else() {
    for bad in [
        json!({"completionTime": T0}),
        json!({"ready": 3, "active": 1}),
        with(complete(), "uncountedTerminatedPods", json!({"succeeded": ["a"]})),
        json!({"completedIndexes": "7"}),
        json!({"failedIndexes": "x"}),
    ] {
        check(bad.clone(), with(bad, "failed", json!(5)), &[]);
    }
    check(
        json!({"ready": 3, "active": 1}),
        json!({"ready": 3, "active": 2}),
        &["status.ready: Invalid value: 3: cannot set more ready pods than active"],
    );
}

#[test]
fn s_44_completion_time_can_be_removed_from_an_unfinished_job() {
    check(json!({"completionTime": T0}), json!({}), &[]);
    check(
        complete(),
        with(complete(), "completionTime", json!(null)),
        &["status.completionTime: Required value: completionTime is required for Complete jobs"],
    );
}

#[test]
fn s_45_s_47_s_48_s_49_the_ways_to_an_end() {
    check(json!({}), complete(), &[]);
    check(json!({}), failed(), &[]);
    for interim in ["FailureTarget", "SuccessCriteriaMet"] {
        let status = json!({"active": 3, "uncountedTerminatedPods": {"failed": ["a"]}, "conditions": conditions(&[interim])});
        check(json!({}), status, &[]);
    }
}

#[test]
fn s_05_s_50_s_51_s_53_what_nobody_asks() {
    check(json!({}), json!({"active": 99, "conditions": [{"type": "Suspended", "status": "True"}]}), &[]);
    check_of(json!({"completions": 9}), json!({}), complete(), &[]);
    check(
        json!({}),
        json!({"conditions": [{"type": "Custom", "status": "Perhaps"}, {"type": "Custom", "status": "True"}]}),
        &[],
    );
}

#[test]
fn s_03_the_spec_is_not_judged() {
    check_of(json!({"parallelism": -1, "managedBy": "no path"}), json!({}), json!({"startTime": T0}), &[]);
}

#[test]
fn s_04_the_rules_hold_for_every_writer() {
    for managed_by in [json!(null), json!("kubernetes.io/job-controller"), json!("example.com/x")] {
        let bad = json!({"ready": 1});
        let why = "status.ready: Invalid value: 1: cannot set more ready pods than active";
        check_of(json!({"managedBy": managed_by}), json!({}), bad, &[why]);
    }
}
