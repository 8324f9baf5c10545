//! The rules of Indexed Jobs, one by one.

use serde_json::{Value, json};

use super::super::super::pods::{INDEX_FAILURES_KEY, INDEX_IGNORED_FAILURES_KEY, INDEX_KEY};
use super::super::{Because, Fate, PodStep};
use super::fixture::{NOW, Seen, at, job, pod};

fn indexed(parallelism: i32, completions: i32, extra: &Value) -> Seen {
    let mut spec =
        json!({"parallelism": parallelism, "completions": completions, "completionMode": "Indexed"});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    job(spec)
}

/// A Job that limits failures per index.
fn per_index(limit: i32, extra: &Value) -> Seen {
    let mut extra = extra.clone();
    extra["backoffLimitPerIndex"] = json!(limit);
    indexed(3, 3, &extra)
}

#[test]
fn i_05_the_lowest_free_indexes() {
    indexed(2, 5, &json!({})).check(
        "at first",
        "create index 0,1, status active=2 ready=0 terminating=0 startTime=now, \
         because 2 of 2 wanted pods are missing",
    );
    indexed(3, 9, &json!({}))
        .status(json!({"active": 1, "completedIndexes": "0,2", "succeeded": 2}))
        .pod(pod("a").index(1))
        .check("around others", "create index 3,4, status active=3, because 2 of 3 wanted pods are missing");
    indexed(3, 9, &json!({"podReplacementPolicy": "Failed"}))
        .status(json!({"active": 1, "terminating": 1}))
        .pods([pod("a").index(1), pod("b").index(0).deleted(60)])
        .check(
            "R-02 a terminating pod keeps its index",
            "create index 2, status active=2, because 2 of 3 wanted pods are missing",
        );
    indexed(3, 9, &json!({}))
        .status(json!({"active": 1, "failed": 1, "terminating": 1}))
        .pods([pod("a").index(1), pod("b").index(0).deleted(60).without_finalizer()])
        .check("R-01 or not", "create index 0,2, status active=3, because 2 of 3 wanted pods are missing");
    per_index(0, &json!({}))
        .status(json!({"active": 1, "failed": 1, "failedIndexes": "0"}))
        .pod(pod("b").index(2))
        .check(
            "I-11 not a failed one",
            "create index 1, status active=2, because 2 of 3 wanted pods are missing",
        );
}

#[test]
fn i_08_pods_that_should_not_be() {
    indexed(3, 3, &json!({}))
        .status(json!({"active": 6}))
        .pods([
            pod("a").index(0),
            pod("b").index(0).ready(),
            pod("c").index(0).pending(),
            pod("d").index(1),
            pod("e"),
            pod("f").index(3),
        ])
        .check(
            "duplicates, no index, out of range",
            "free and delete c a e f, status active=2 ready=1 terminating=4, \
             because 6 pods are active and 3 wanted",
        );
    indexed(1, 9, &json!({}))
        .status(json!({"active": 3}))
        .pods([pod("a").index(0).ready(), pod("b").index(0), pod("c").index(1)])
        .check(
            "and those too many",
            "free and delete b c, status active=1 ready=1 terminating=2, because 3 pods are active and 1 wanted",
        );
}

#[test]
fn i_09_an_index_completes_once() {
    indexed(2, 4, &json!({}))
        .status(json!({"active": 2}))
        .pods([
            pod("a").index(1).succeeded(),
            pod("b").index(1).succeeded(),
            pod("c").index(3).succeeded(),
            pod("d").succeeded(),
            pod("e").index(4).succeeded(),
            pod("f").index(2).succeeded().without_finalizer(),
        ])
        .check(
            "I-09",
            "create index 0,2, status succeeded=2 completedIndexes=1,3, free d a b c e, \
             because 2 of 2 wanted pods are missing",
        );
    indexed(2, 4, &json!({}))
        .status(json!({"active": 1, "succeeded": 1, "completedIndexes": "0"}))
        .pods([pod("a").index(1), pod("b").index(0).succeeded(), pod("c").index(9).failed()])
        .check(
            "nothing new, but finalizers",
            "create index 2, status active=2, free b c, because 1 of 2 wanted pods are missing",
        );
}

#[test]
fn i_10_elastic() {
    indexed(2, 2, &json!({}))
        .status(json!({"active": 4, "succeeded": 2, "completedIndexes": "0,5", "failed": 3}))
        .pods([pod("a").index(1), pod("b").index(3)])
        .check(
            "scaled down: what is out of range leaves uncounted, failures stay",
            "free and delete b, status active=1 terminating=1 succeeded=1 completedIndexes=0, \
             because 2 pods are active and 1 wanted",
        );
    indexed(3, 2, &json!({})).status(json!({"succeeded": 2, "completedIndexes": "0,5"})).check(
        "S-17c no more elastic when it comes to writing: the counter cannot sink",
        "create index 1, status active=1 completedIndexes=0, because 1 of 1 wanted pods are missing",
    );
    indexed(0, 0, &json!({})).status(json!({"active": 1})).pod(pod("a").index(0)).check(
        "scaled to nothing",
        "free and delete a, status active=0 terminating=1 SuccessCriteriaMet=True/CompletionsReached, \
         because 1 pods are active and 0 wanted",
    );
}

#[test]
fn i_11_failed_indexes() {
    let policy = |action: &str| {
        let rule = json!({"action": action, "onExitCodes": {"operator": "In", "values": [3]}});
        json!({"podFailurePolicy": {"rules": [rule]}})
    };
    let fails = |seen: Seen, failures: i32| {
        let pods = [
            pod("a").index(0).failed().with_exit_code(3).after_failures(failures, 0),
            pod("b").index(1),
            pod("c").index(2),
        ];
        let seen = seen.status(json!({"active": 3, "failedIndexes": ""})).pods(pods);
        let plan = seen.decide();
        let record = plan.record(&vec![Fate::Done; plan.pods.len()]);
        let status = record.status.or(seen.job.status).unwrap();
        (status.failed_indexes.unwrap() == "0", record.release.len())
    };
    for (rule, limit, extra, failures, expected) in [
        ("the limit is reached", 1, json!({}), 1, (true, 1)),
        ("not yet", 1, json!({}), 0, (false, 0)),
        ("no retry at all", 0, json!({}), 0, (true, 1)),
        ("FailIndex", 5, policy("FailIndex"), 0, (true, 1)),
        ("Count", 5, policy("Count"), 0, (false, 0)),
        ("Ignore", 0, policy("Ignore"), 9, (false, 0)),
    ] {
        assert_eq!(fails(per_index(limit, &extra), failures), expected, "I-11, I-14 {rule}");
    }
    let first = per_index(1, &json!({})).outcome().status.unwrap();
    assert_eq!(first.failed_indexes.as_deref(), Some(""), "I-11 from the first look on");
}

#[test]
fn i_12_i_14_a_failure_is_handed_on_before_it_is_counted() {
    let failed = pod("a").index(0).failed().after_failures(1, 2);
    let others = [pod("b").index(1), pod("c").index(2)];
    let seen = per_index(3, &json!({})).status(json!({"active": 3, "failedIndexes": ""}));
    let waiting = seen.clone().pods(others.clone()).pod(failed.clone().ended(3));
    waiting.check(
        "I-14 its replacement waits, and so does its finalizer",
        "status active=2, look again in 1m 17s, because pods failed and the next one waits",
    );
    let due = seen.clone().pods(others.clone()).pod(failed.clone().ended(80));
    due.check("B-06 it is due", "create index 0, because 1 of 3 wanted pods are missing");
    let PodStep::Create(pods) = due.decide().pods else { panic!("a pod is created") };
    let annotations = pods[0].metadata.annotations.clone().unwrap();
    assert_eq!(annotations[INDEX_KEY], "0");
    assert_eq!(
        (&*annotations[INDEX_FAILURES_KEY], &*annotations[INDEX_IGNORED_FAILURES_KEY]),
        ("2", "2"),
        "I-12"
    );
    let replaced = seen.pods(others).pods([failed.ended(80), pod("d").index(0).after_failures(2, 2)]);
    replaced.check(
        "I-14 its replacement is there",
        "status uncounted.failed=[a], free a, status failed=1 uncounted.failed=[], \
         because 3 of 3 wanted pods are active",
    );
}

#[test]
fn i_12_ignored_failures() {
    let ignore = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}]});
    let seen =
        per_index(3, &json!({"podFailurePolicy": ignore})).status(json!({"active": 3, "failedIndexes": ""}));
    let failed = pod("a").index(0).failed().with_exit_code(3).after_failures(1, 0);
    let plan = seen.pods([failed, pod("b").index(1), pod("c").index(2)]).decide();
    let PodStep::Create(pods) = plan.pods else { panic!("a pod is created") };
    let annotations = pods[0].metadata.annotations.clone().unwrap();
    assert_eq!((&*annotations[INDEX_FAILURES_KEY], &*annotations[INDEX_IGNORED_FAILURES_KEY]), ("1", "1"));
}

#[test]
fn i_14_which_of_several_is_kept() {
    let kept = |pods: Vec<super::fixture::PodIs>| {
        let seen = per_index(9, &json!({})).status(json!({"failedIndexes": ""})).pods(pods);
        let plan = seen.decide();
        let record = plan.record(&vec![Fate::Done; plan.pods.len()]);
        record.release.into_iter().map(|pod| pod.name).collect::<Vec<_>>()
    };
    let failed = |name: &str, failures: i32, ended: i64| {
        pod(name).index(0).failed().after_failures(failures, 0).ended(ended)
    };
    assert_eq!(kept(vec![failed("a", 1, 5), failed("b", 2, 4)]), ["a"], "more failures, later");
    assert_eq!(kept(vec![failed("a", 1, 4), failed("b", 1, 5)]), ["b"], "the later one");
    assert_eq!(kept(vec![failed("a", 2, 5), failed("b", 1, 4)]), ["b"], "fewer failures, though later");
}

#[test]
fn i_15_other_indexes_go_on() {
    per_index(0, &json!({"maxFailedIndexes": 1}))
        .status(json!({"active": 3, "failedIndexes": ""}))
        .pods([pod("a").index(0).failed(), pod("b").index(1), pod("c").index(2)])
        .check(
            "I-15",
            "status active=2 failedIndexes=0 uncounted.failed=[a], free a, status failed=1 uncounted.failed=[], \
             because no index is free",
        );
    per_index(0, &json!({"maxFailedIndexes": 1}))
        .status(json!({"active": 2, "failed": 1, "failedIndexes": "0"}))
        .pods([pod("b").index(1).failed(), pod("c").index(2)])
        .check(
            "J-20 row 6",
            "delete c, status active=0 terminating=1 failedIndexes=0,1 uncounted.failed=[b c] \
             FailureTarget=True/MaxFailedIndexesExceeded, free b c, status failed=3 uncounted.failed=[], \
             because MaxFailedIndexesExceeded",
        );
}

#[test]
fn b_06_delays_are_per_index() {
    let failed = |name: &str, index: u32, ended: i64| {
        pod(name).index(index).failed().after_failures(0, 0).ended(ended)
    };
    let seen = per_index(3, &json!({})).status(json!({"active": 3, "failedIndexes": ""}));
    let some = seen.clone().pods([failed("a", 0, 3), failed("b", 1, 10), failed("c", 2, 5)]).failures(9, 0);
    let plan = some.decide();
    assert_eq!(plan.pods.len(), 1, "B-03 is not used, only index 1 is due");
    assert_eq!(plan.look_again, Some(at(NOW + 5)), "the next is");
    let none = seen.pods([failed("a", 0, 3), pod("b").index(1), failed("c", 2, 5)]).decide();
    assert_eq!(none.because, Because::BackingOff(at(NOW + 5)), "J-36 the smallest delay");
}

#[test]
fn an_index_ends_once() {
    per_index(0, &json!({}))
        .status(json!({"active": 1, "failed": 0, "failedIndexes": "0", "uncountedTerminatedPods": {"failed": ["a"]}}))
        .pods([pod("a").index(0).succeeded(), pod("b").index(1), pod("c").index(2)])
        .check(
            "an index that failed does not complete, though its pod succeeds in the end",
            "status active=2, free a, status failed=1 uncounted.failed=[], because no index is free",
        );
    per_index(0, &json!({}))
        .status(json!({"active": 1, "failedIndexes": ""}))
        .pods([
            pod("a").index(0).succeeded(),
            pod("d").index(0).failed(),
            pod("b").index(1),
            pod("c").index(2),
        ])
        .check(
            "an index that completes does not fail with another pod of it",
            "status active=2 succeeded=1 completedIndexes=0 uncounted.failed=[d], free a d, \
             status failed=1 uncounted.failed=[], because 2 of 2 wanted pods are active",
        );
}

#[test]
fn y_04_success_and_failure_exclude_each_other() {
    let spec = json!({"backoffLimit": 0, "successPolicy": {"rules": [{"succeededCount": 1}]}});
    let told = |kind: &str, reason: &str| json!([{"type": kind, "status": "True", "reason": reason}]);
    let pods = [pod("a").index(0).succeeded(), pod("b").index(1).failed(), pod("c").index(2)];
    for (rule, conditions, reason) in [
        ("failure goes before success", json!([]), "BackoffLimitExceeded"),
        ("success told stays", told("SuccessCriteriaMet", "SuccessPolicy"), "SuccessPolicy"),
        ("failure told stays", told("FailureTarget", "DeadlineExceeded"), "DeadlineExceeded"),
    ] {
        let status = json!({"active": 3, "conditions": conditions});
        let plan = indexed(3, 3, &spec).status(status).pods(pods.clone()).decide();
        assert_eq!(plan.because.to_string(), reason, "Y-04 {rule}");
    }
}
