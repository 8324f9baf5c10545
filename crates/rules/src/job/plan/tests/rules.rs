//! The rules that hold for every Job, one by one.

use serde_json::json;

use super::super::super::Settings;
use super::super::super::memory::Memory;
use super::super::super::metrics::Action;
use super::super::{Fate, PodStep};
use super::fixture::{NOW, Seen, at, job, names, pod, time};

#[test]
fn j_10_to_j_15_before_anything_else() {
    let finished = json!([{"type": "Failed", "status": "True"}]);
    job(json!({}))
        .status(json!({"conditions": finished}))
        .pod(pod("a").failed())
        .check("J-12 nothing is redone", "nothing, because the Job is finished");
    job(json!({})).remember(|memory| memory.finished = true).check(
        "J-13 the terminal status is written, but not seen",
        "nothing, because the Job was just finished",
    );
    let odd = job(json!({"completionMode": "Sideways"}));
    odd.check("J-14", "nothing, because the completion mode is unknown");
    let event = "Warning UnknownCompletionMode: Skipped Job sync because completion mode is unknown";
    assert_eq!(odd.outcome().events, [event]);
    let status = job(json!({"parallelism": 0})).outcome().status.unwrap();
    assert!(status.uncounted_terminated_pods.is_some(), "J-15");
}

#[test]
fn j_16_claims_come_first_and_count() {
    let seen = job(json!({"parallelism": 2, "completions": 2})).status(json!({})).pods([
        pod("mine"),
        pod("found").orphaned(),
        pod("lost").with_label("other"),
    ]);
    seen.check(
        "A-02, A-03",
        "adopt found, release lost, status active=2, because 2 of 2 wanted pods are active",
    );
    job(json!({})).status(json!({})).pod(pod("found").orphaned().succeeded()).check(
        "an adopted pod is tracked",
        "adopt found, status uncounted.succeeded=[found] SuccessCriteriaMet=True/CompletionsReached, free found, \
         status succeeded=1 uncounted.succeeded=[] completionTime=now Complete=True/CompletionsReached, \
         because 0 of 0 wanted pods are active",
    );
}

#[test]
fn j_17_which_pods_are_counted() {
    let spec = json!({"parallelism": 1, "completions": 9});
    let seen = |status| job(spec.clone()).status(status);
    seen(json!({"active": 1, "succeeded": 1}))
        .pods([pod("a"), pod("b").succeeded().without_finalizer()])
        .check("counted before", "nothing, because 1 of 1 wanted pods are active");
    seen(json!({"active": 1, "uncountedTerminatedPods": {"succeeded": ["b"], "failed": ["c"]}}))
        .pods([pod("a"), pod("b").succeeded(), pod("c").failed()])
        .check(
            "recorded before, and the finalizers are still there",
            "free b c, status succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[], \
             because 1 of 1 wanted pods are active",
        );
    seen(json!({"active": 1, "uncountedTerminatedPods": {"succeeded": ["b"], "failed": ["c"]}}))
        .pods([pod("a"), pod("b").succeeded().without_finalizer()])
        .check(
            "J-46 recorded before, and the finalizers are gone",
            "status succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[], \
             because 1 of 1 wanted pods are active",
        );
    let released = |memory: &mut Memory| {
        memory.begin_release(&[super::super::PodRef { name: "b".into(), uid: "b".into() }]);
    };
    seen(json!({"active": 1, "succeeded": 1}))
        .pods([pod("a"), pod("b").succeeded()])
        .remember(released)
        .check(
            "its finalizer is off, though it still shows it",
            "nothing, because 1 of 1 wanted pods are active",
        );
    seen(json!({"active": 1, "uncountedTerminatedPods": {"failed": ["b"]}}))
        .pods([pod("a"), pod("b").succeeded()])
        .check(
            "J-47 a failed pod that turns succeeded stays failed",
            "free b, status failed=1 uncounted.failed=[], because 1 of 1 wanted pods are active",
        );
}

#[test]
fn j_19_start_time() {
    job(json!({"parallelism": 0})).check(
        "J-49, J-40 parallelism 0 is a pause",
        "status ready=0 terminating=0 startTime=now, because 0 of 0 wanted pods are active",
    );
    job(json!({"suspend": true})).check(
        "J-53 created suspended",
        "status ready=0 terminating=0 Suspended=True/JobSuspended, because the Job is suspended",
    );
}

#[test]
fn s_09i_a_job_that_ends_before_it_was_seen_to_start() {
    job(json!({"backoffLimit": 0, "suspend": true})).pod(pod("a").failed()).check(
        "the controller died between the creation of its pods and the first status, and the Job was suspended",
        "status ready=0 terminating=0 uncounted.failed=[a] startTime=now FailureTarget=True/BackoffLimitExceeded, \
         free a, status failed=1 uncounted.failed=[] Failed=True/BackoffLimitExceeded, because BackoffLimitExceeded",
    );
}

/// A Job that could end for several reasons at once.
fn ends_for(reasons: &[&str]) -> Seen {
    let has = |reason: &str| reasons.contains(&reason);
    let conditions: Vec<_> = ["SuccessCriteriaMet", "FailureTarget"]
        .into_iter()
        .filter(|kind| has(kind))
        .map(|kind| json!({"type": kind, "status": "True", "reason": "Told", "message": "before"}))
        .collect();
    let mut spec = json!({
        "parallelism": 9, "completions": 9, "completionMode": "Indexed",
        "backoffLimit": if has("BackoffLimitExceeded") { 0 } else { 99 },
        "backoffLimitPerIndex": 0,
        "podFailurePolicy": {"rules": [{"action": if has("PodFailurePolicy") { "FailJob" } else { "Count" },
            "onExitCodes": {"operator": "In", "values": [3]}}]},
    });
    if has("DeadlineExceeded") {
        spec["activeDeadlineSeconds"] = json!(100);
    }
    if has("MaxFailedIndexesExceeded") {
        spec["maxFailedIndexes"] = json!(0);
    }
    if has("SuccessPolicy") {
        spec["successPolicy"] = json!({"rules": [{"succeededCount": 1}]});
    }
    let completed = if has("FailedIndexes") { "1-8" } else { "1" };
    let status = json!({"conditions": conditions, "completedIndexes": completed, "failedIndexes": ""});
    job(spec).status(status).pod(pod("a").index(0).failed().with_exit_code(3))
}

#[test]
fn j_20_j_61_the_first_reason_to_end_wins() {
    let order = [
        ("SuccessCriteriaMet", "Told"),
        ("FailureTarget", "Told"),
        ("PodFailurePolicy", "PodFailurePolicy"),
        ("BackoffLimitExceeded", "BackoffLimitExceeded"),
        ("DeadlineExceeded", "DeadlineExceeded"),
        ("MaxFailedIndexesExceeded", "MaxFailedIndexesExceeded"),
        ("FailedIndexes", "FailedIndexes"),
        ("SuccessPolicy", "SuccessPolicy"),
    ];
    for (place, (first, reason)) in order.iter().enumerate() {
        let all: Vec<&str> = order[place..].iter().map(|(name, _)| *name).collect();
        for reasons in [&all[..], &[*first][..]] {
            let end = ends_for(reasons).decide().because.to_string();
            assert_eq!(end, *reason, "J-20 row {}: {reasons:?}", place + 1);
        }
    }
    assert_eq!(ends_for(&[]).decide().because.to_string(), "8 of 8 wanted pods are missing");
}

#[test]
fn j_20_p_07_messages() {
    for (reason, message) in [
        (
            "PodFailurePolicy",
            "Container main for pod ns/a failed with exit code 3 matching FailJob rule at index 0",
        ),
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
        ("DeadlineExceeded", "Job was active longer than specified deadline"),
        ("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"),
        ("FailedIndexes", "Job has failed indexes"),
    ] {
        let outcome = ends_for(&[reason]).outcome();
        assert_eq!(outcome.events, [format!("Warning {reason}: {message}")], "V-07");
        let conditions = outcome.status.unwrap().conditions.unwrap();
        let told: Vec<_> =
            conditions.iter().map(|c| (c.type_.as_str(), c.message.as_deref().unwrap())).collect();
        assert_eq!(told, [("FailureTarget", message), ("Failed", message)], "J-48");
    }
}

#[test]
fn j_21_a_false_condition_is_ignored_and_j_48_rewritten() {
    let by_hand = json!([
        {"type": "FailureTarget", "status": "False"}, {"type": "SuccessCriteriaMet", "status": "False"},
        {"type": "Complete", "status": "False"},
    ]);
    let seen = job(json!({})).status(json!({"active": 1, "conditions": by_hand})).pod(pod("a"));
    seen.check("J-21", "nothing, because 1 of 1 wanted pods are active");
    let seen = job(json!({})).status(json!({"active": 1, "conditions": by_hand})).pod(pod("a").succeeded());
    let conditions = seen.outcome().status.unwrap().conditions.unwrap();
    let list: Vec<_> = conditions.iter().map(|c| format!("{}={}", c.type_, c.status)).collect();
    assert_eq!(
        list,
        ["FailureTarget=False", "SuccessCriteriaMet=False", "Complete=True", "SuccessCriteriaMet=True"],
        "J-48: the interim condition is appended, the terminal one rewritten where it stands"
    );
}

#[test]
fn j_22_the_end_is_decided_again_when_pods_may_be_left() {
    let spec = json!({"parallelism": 3, "completions": 3, "backoffLimit": 0});
    let seen = job(spec).status(json!({"active": 3, "ready": 2}));
    let seen = seen.pods([pod("a").failed(), pod("b").ready(), pod("c").ready()]);
    let plan = seen.decide();
    let record = plan.record(&[Fate::Done, Fate::Failed]);
    let status = record.status.clone().unwrap();
    assert_eq!((status.active, status.ready, status.terminating), (Some(1), Some(1), Some(1)));
    assert_eq!(status.conditions, None, "no end while a pod may be left");
    assert_eq!(record.release.len(), 1, "only the failed pod is counted");

    let unseen = seen.clone().unseen_creation();
    unseen.check(
        "J-22 expectations not satisfied: pods go, the end waits",
        "delete b c, status active=0 ready=0 terminating=2 uncounted.failed=[a], free a, \
         status failed=1 uncounted.failed=[], look again in 5m, because BackoffLimitExceeded",
    );
}

#[test]
fn j_23_no_pods_while_writes_are_unseen_or_the_job_goes() {
    let seen = job(json!({"parallelism": 3, "completions": 3})).status(json!({"active": 1})).pod(pod("a"));
    seen.clone().unseen_creation().check("J-23", "look again in 5m, because earlier writes are not seen yet");
    seen.clone().deleting().check("X-05", "free a, because the Job is being deleted");
    let suspended = job(json!({"suspend": true})).status(json!({"active": 1})).pod(pod("a"));
    suspended.clone().deleting().check("J-24, X-05", "free a, because the Job is being deleted");
    suspended.unseen_creation().check("J-24", "look again in 5m, because earlier writes are not seen yet");
    job(json!({})).status(json!({"active": 1})).pod(pod("a").succeeded()).deleting().check(
        "a deleted Job may complete",
        "status active=0 uncounted.succeeded=[a] SuccessCriteriaMet=True/CompletionsReached, free a, \
         status succeeded=1 uncounted.succeeded=[] completionTime=now Complete=True/CompletionsReached, \
         because the Job is being deleted",
    );
}

#[test]
fn j_25_completion() {
    let spec = json!({"parallelism": 2, "completions": 2});
    let seen = job(spec.clone()).status(json!({"active": 1, "succeeded": 1}));
    let seen = seen.pods([pod("a").succeeded(), pod("b")]);
    seen.check(
        "superfluous pods go first, and the end is told with it",
        "free and delete b, status active=0 terminating=1 uncounted.succeeded=[a] \
         SuccessCriteriaMet=True/CompletionsReached, free a, status succeeded=2 uncounted.succeeded=[], \
         because 1 pods are active and 0 wanted",
    );
    let record = seen.decide().record(&[Fate::Failed]);
    assert_eq!(record.status.unwrap().conditions, None, "not while it could not be deleted");
    let too_many = job(spec).status(json!({"succeeded": 3}));
    assert_eq!(
        too_many.outcome().events,
        [
            "Warning TooManySucceededPods: Too many succeeded pods running after completion count reached",
            "Normal Completed: Job completed"
        ],
        "V-08"
    );
}

#[test]
fn j_30_to_j_33_too_many_pods() {
    let seen = job(json!({"parallelism": 2, "completions": 9})).status(json!({"active": 4, "ready": 2}));
    let seen = seen.pods([pod("a").ready(), pod("b"), pod("c").pending(), pod("d").ready()]);
    seen.check(
        "J-32 the least advanced go",
        "free and delete c b, status active=2 terminating=2, because 4 pods are active and 2 wanted",
    );
    let record = seen.decide().record(&[Fate::Gone, Fate::Failed]);
    let status = record.status.unwrap();
    assert_eq!((status.active, status.ready, status.terminating), (Some(3), Some(2), Some(1)));

    let many: Vec<_> = (0..600).map(|i| pod(&format!("p{i}"))).collect();
    let crowd = job(json!({"parallelism": 2})).status(json!({"active": 600})).pods(many.clone());
    assert_eq!(crowd.decide().pods.len(), 500, "J-32");
    let crowd = job(json!({"suspend": true})).status(json!({"active": 600})).pods(many);
    assert_eq!(crowd.decide().pods.len(), 600, "J-30 no limit");
    let remaining =
        job(json!({"parallelism": 5, "completions": 4})).status(json!({"active": 2, "succeeded": 3}));
    assert_eq!(remaining.pods([pod("a"), pod("b")]).decide().pods.len(), 1, "J-31 the completions left");
}

#[test]
fn j_35_too_few_pods() {
    assert_eq!(job(json!({"parallelism": 700, "completions": 999})).decide().pods.len(), 500);
    let seen = job(json!({"parallelism": 3, "completions": 9})).status(json!({"active": 1, "ready": 1}));
    seen.clone().pod(pod("a").ready()).failures(1, 3).check(
        "J-35 active pods are kept in the count",
        "look again in 7s, because pods failed and the next one waits",
    );
    let mut almost = seen.clone().pod(pod("a").ready()).failures(1, 10);
    almost.memory.backoff.last_failure = Some(at(NOW - 10) + std::time::Duration::from_millis(300));
    almost.check("J-35 at least a second", "look again in 1s, because pods failed and the next one waits");
    seen.pod(pod("a").ready()).failures(3, 40).check(
        "B-03 the delay is over",
        "create 2 pods, status active=3, because 2 of 3 wanted pods are missing",
    );
}

#[test]
fn j_37_failed_creations() {
    let seen = job(json!({"parallelism": 4, "completions": 4})).status(json!({}));
    let plan = seen.decide();
    let record = plan.record(&[Fate::Done, Fate::Failed, Fate::Done, Fate::Skipped]);
    assert_eq!(record.status.unwrap().active, Some(2));
    let metrics = plan.pod_metrics(&[Fate::Done, Fate::Failed, Fate::Done, Fate::Skipped]);
    assert_eq!(metrics.iter().map(|m| m.by).collect::<Vec<_>>(), [3, 1], "N-08 a failed one counts twice");
}

#[test]
fn j_39_pods_without_labels() {
    let spec = json!({"selector": {"matchLabels": null}, "template": {"metadata": {"labels": null}}});
    let seen = job(spec);
    seen.check(
        "J-39",
        "unable to create pods, no labels, status ready=0 terminating=0 startTime=now, \
         because 1 of 1 wanted pods are missing",
    );
    assert_eq!(seen.outcome().metrics.len(), 2, "N-08");
}

#[test]
fn j_42_who_counts_as_failed_when_the_job_ends() {
    let ending = |kind: &str, pods: Vec<super::fixture::PodIs>| {
        let condition = json!([{"type": kind, "status": "True", "reason": "R"}]);
        job(json!({"parallelism": 3, "completions": 3})).status(json!({"conditions": condition})).pods(pods)
    };
    ending("FailureTarget", vec![pod("a"), pod("b").failed(), pod("c").succeeded()]).check(
        "J-42 a failing Job's pods fail, those that succeeded did",
        "delete a, status terminating=1 uncounted.succeeded=[c] uncounted.failed=[a b], free a b c, \
         status succeeded=1 failed=2 uncounted.succeeded=[] uncounted.failed=[], because R",
    );
    ending("SuccessCriteriaMet", vec![pod("a"), pod("b").failed(), pod("c").succeeded()]).check(
        "J-42 a succeeding Job's pods do not, unless they did",
        "delete a, status terminating=1 uncounted.succeeded=[c] uncounted.failed=[b], free a b c, \
         status succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[], because R",
    );
    let ignore = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]});
    let target = json!([{"type": "FailureTarget", "status": "True", "reason": "R"}]);
    job(json!({"parallelism": 2, "podFailurePolicy": ignore}))
        .status(json!({"conditions": target, "active": 2}))
        .pods([pod("a").with_condition("DisruptionTarget"), pod("b")])
        .check(
            "J-42 what the policy ignores is not counted even then",
            "delete a b, status active=0 terminating=2 uncounted.failed=[b], free a b, \
             status failed=1 uncounted.failed=[], because R",
        );
}

#[test]
fn j_43_five_hundred_at_a_time() {
    let pods = (0..600).map(|i| pod(&format!("p{i}")).succeeded());
    let seen = job(json!({"parallelism": 1, "completions": 600})).status(json!({})).pods(pods);
    let plan = seen.decide();
    let record = plan.record(&[]);
    let status = record.status.as_ref().unwrap();
    assert_eq!(status.uncounted_terminated_pods.as_ref().unwrap().succeeded.as_ref().unwrap().len(), 500);
    assert_eq!(record.release.len(), 500);
    let settled = record.settle(&[Fate::Done; 500]);
    assert!(!settled.finished, "the Job cannot finish with pods left to count");
    assert_eq!(settled.status.unwrap().succeeded, Some(500));
}

#[test]
fn j_44_the_terminal_condition_waits_for_every_pod() {
    let seen = job(json!({"parallelism": 2, "completions": 2})).status(json!({"active": 2}));
    let seen = seen.pods([pod("a").succeeded(), pod("b").succeeded()]);
    let record = seen.decide().record(&[]);
    let settled = record.settle(&[Fate::Done, Fate::Failed]);
    let status = settled.status.unwrap();
    assert!(!settled.finished, "J-45");
    assert_eq!(status.succeeded, Some(1), "J-45 what was done is written");
    assert_eq!(status.uncounted_terminated_pods.unwrap().succeeded.unwrap(), ["b"]);
    let settled = record.settle(&[Fate::Gone, Fate::Done]);
    assert!(settled.finished, "J-44 gone is as good as removed");
    let none = record.settle(&[Fate::Failed, Fate::Failed]);
    assert_eq!((none.status, none.finished), (None, false), "J-45 nothing to write");
}

#[test]
fn j_50_to_j_54_suspension() {
    let suspended = json!([{"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended",
        "lastTransitionTime": time(5)}]);
    job(json!({"suspend": true}))
        .status(json!({"conditions": suspended}))
        .check("J-50 said before", "nothing, because the Job is suspended");
    let resumed =
        json!([{"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "Job resumed"}]);
    job(json!({}))
        .status(json!({"conditions": resumed, "active": 1}))
        .pod(pod("a"))
        .check("J-51 said before", "nothing, because 1 of 1 wanted pods are active");
    let gated = Settings { mutable_scheduling_directives: true, ..Settings::default() };
    job(json!({"suspend": true}))
        .status(json!({}))
        .settings(gated)
        .check("J-52", "status startTime=none Suspended=True/JobSuspended, because the Job is suspended");
    job(json!({"suspend": true}))
        .status(json!({"conditions": suspended}))
        .settings(gated)
        .check("J-52 only when it is news", "nothing, because the Job is suspended");
    let kept = job(json!({"completions": 9, "suspend": true, "activeDeadlineSeconds": 1, "backoffLimit": 1}));
    kept.status(json!({"active": 1, "failed": 1, "succeeded": 2})).pod(pod("a")).check(
        "J-54 counters stay, the deadline sleeps",
        "free and delete a, status active=0 terminating=1 Suspended=True/JobSuspended, because the Job is suspended",
    );
    let over = job(json!({"suspend": true, "backoffLimit": 0})).status(json!({"active": 1}));
    let because = over.pods([pod("a"), pod("b").failed()]).decide().because.to_string();
    assert_eq!(because, "BackoffLimitExceeded", "J-54 the backoff limit does not");
}

#[test]
fn j_60_deadline() {
    let seen = |deadline: i64, suspend: bool| {
        let spec = json!({"activeDeadlineSeconds": deadline, "suspend": suspend});
        job(spec).status(json!({"active": 1})).pod(pod("a"))
    };
    assert_eq!(seen(100, false).decide().because.to_string(), "DeadlineExceeded", "J-60 just now");
    seen(101, false).check("J-60 not yet", "look again in 1s, because 1 of 1 wanted pods are active");
    assert_eq!(seen(1, true).decide().because.to_string(), "the Job is suspended", "J-60");
    let new = job(json!({"activeDeadlineSeconds": 10})).decide();
    assert_eq!(new.look_again, Some(at(NOW + 10)), "J-60 from the first look on");
    assert_eq!(job(json!({"activeDeadlineSeconds": 0})).decide().because.to_string(), "DeadlineExceeded");
    let waits = job(json!({"activeDeadlineSeconds": 104})).status(json!({})).failures(1, 1).decide();
    assert_eq!(waits.look_again, Some(at(NOW + 4)), "the sooner of two");
}

#[test]
fn b_05_and_b_10_limits() {
    let failed = |limit: i32, before: i32, pods: u8| {
        let seen = job(json!({"parallelism": 5, "backoffLimit": limit})).status(json!({"failed": before}));
        let plan = seen.pods(names(pods).map(|name| pod(&name).failed())).decide();
        plan.because.to_string() == "BackoffLimitExceeded"
    };
    for (limit, before, pods, expected) in [
        (0, 0, 0, false),
        (0, 0, 1, true),
        (1, 0, 1, false),
        (1, 1, 1, true),
        (6, 0, 6, false),
        (6, 2, 5, true),
    ] {
        assert_eq!(failed(limit, before, pods), expected, "B-05 {limit} {before} {pods}");
    }
    let restarted = |policy: &str, limit: i32, counts: &[i32]| {
        let spec =
            json!({"parallelism": 5, "backoffLimit": limit, "template": {"spec": {"restartPolicy": policy}}});
        let pods = names(9).zip(counts).map(|(name, count)| pod(&name).restarted(*count));
        job(spec).status(json!({})).pods(pods).decide().because.to_string() == "BackoffLimitExceeded"
    };
    for (policy, limit, counts, expected) in [
        ("OnFailure", 0, &[0][..], false),
        ("OnFailure", 0, &[1], true),
        ("OnFailure", 1, &[0], false),
        ("OnFailure", 1, &[1], true),
        ("OnFailure", 6, &[2, 3], false),
        ("OnFailure", 6, &[3, 3], true),
        ("Never", 1, &[5], false),
    ] {
        assert_eq!(restarted(policy, limit, counts), expected, "B-10 {policy} {limit} {counts:?}");
    }
}

#[test]
fn b_01_the_record_follows_the_written_status() {
    let seen = job(json!({"parallelism": 2, "completions": 9})).status(json!({"active": 1})).failures(1, 50);
    let record = seen.clone().pods([pod("a"), pod("b").failed().ended(2)]).decide().record(&[]);
    assert!(record.status.is_some());
    assert_eq!((record.backoff.failures, record.backoff.last_failure), (2, Some(at(NOW - 2))));
    let pods = [pod("a"), pod("b").failed().ended(9), pod("c").succeeded().ended(5)];
    let record = seen.pods(pods).decide().record(&[]);
    assert_eq!(record.backoff, Memory::default().backoff, "B-02 a success after it");
}

#[test]
fn r_01_to_r_03_replacement() {
    let seen = |policy: &str| {
        job(json!({"parallelism": 2, "completions": 9, "podReplacementPolicy": policy}))
            .status(json!({"active": 2}))
            .pods([pod("a"), pod("b").deleted(60)])
    };
    seen("TerminatingOrFailed").check(
        "R-01 replaced while it ends",
        "create 1 pod, status terminating=1 uncounted.failed=[b], free b, status failed=1 uncounted.failed=[], \
         because 1 of 2 wanted pods are missing",
    );
    seen("Failed").check(
        "R-02 it keeps its place",
        "status active=1 terminating=1, because 1 of 2 wanted pods are active",
    );
    let more = job(json!({"parallelism": 2, "completions": 9, "podReplacementPolicy": "Failed"}));
    let more = more.status(json!({"terminating": 3}));
    more.pods(names(3).map(|name| pod(&name).deleted(60)))
        .check("R-02 more terminating than wanted", "nothing, because 0 of 2 wanted pods are active");
}

#[test]
fn p_01_to_p_06_failure_policy() {
    let spec = |action: &str| {
        let rule = json!({"action": action, "onExitCodes": {"operator": "In", "values": [3]}});
        json!({"parallelism": 2, "completions": 2, "podFailurePolicy": {"rules": [rule]}})
    };
    let seen = |action: &str| job(spec(action)).status(json!({"active": 2}));
    seen("FailJob").pods([pod("a").failed().with_exit_code(3), pod("b")]).check(
        "P-03, P-06 the message is written before the pods go",
        "delete b, status active=0 terminating=1 uncounted.failed=[a b] FailureTarget=True/PodFailurePolicy, \
         free a b, status failed=2 uncounted.failed=[], because PodFailurePolicy",
    );
    seen("FailJob").pods([pod("a").with_exit_code(3), pod("b")]).check(
        "P-01 a running pod has not failed, whatever its containers did",
        "nothing, because 2 of 2 wanted pods are active",
    );
    seen("FailJob").pods([pod("a").deleted(60).with_exit_code(3), pod("b")]).check(
        "P-01 nor has a terminating one",
        "status active=1 terminating=1, because 1 of 2 wanted pods are active",
    );
    for action in ["Count", "FailJob"] {
        let code = if action == "Count" { 3 } else { 4 };
        seen(action).pods([pod("a").failed().with_exit_code(code), pod("b")]).check(
            "P-03 counted, by a rule or by none",
            "create 1 pod, status uncounted.failed=[a], free a, status failed=1 uncounted.failed=[], \
             because 1 of 2 wanted pods are missing",
        );
    }
    let outcome = seen("Count").pods([pod("a").failed().with_exit_code(3), pod("b")]).outcome();
    assert!(
        outcome.metrics.contains(&"pod_failures_handled_by_failure_policy_total{action=Count} 1".to_owned())
    );
}

#[test]
fn n_01_n_02_actions() {
    let running = || job(json!({"parallelism": 1, "completions": 5})).status(json!({"active": 1}));
    for (rule, seen, expected) in vec![
        ("not ours", job(json!({"managedBy": "x.y/z"})), None),
        ("created", running(), Some(Action::PodsCreated)),
        ("backing off", running().failures(1, 1), Some(Action::PodsCreated)),
        ("deleted", running().pods([pod("a"), pod("b")]), Some(Action::PodsDeleted)),
        ("suspended", job(json!({"suspend": true})), Some(Action::PodsDeleted)),
        ("enough", running().pod(pod("a")), Some(Action::Tracking)),
        ("being deleted", running().deleting(), Some(Action::Reconciling)),
        ("writes unseen", running().unseen_creation(), Some(Action::Reconciling)),
        ("ended", ends_for(&["DeadlineExceeded"]), Some(Action::Reconciling)),
    ] {
        assert_eq!(seen.decide().action(), expected, "{rule}");
    }
}

#[test]
fn n_03_to_n_08_metrics() {
    let seen = job(json!({"completions": 1})).status(json!({"active": 1})).pod(pod("a").succeeded());
    assert_eq!(
        seen.outcome().metrics,
        [
            "jobs_finished_total{completion_mode=NonIndexed,result=succeeded,reason=CompletionsReached} 1",
            "job_pods_finished_total{completion_mode=NonIndexed,result=succeeded} 1",
        ]
    );
    let spec =
        json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    let seen = job(spec).status(json!({"active": 2}));
    let seen = seen.pods([pod("a").index(0).succeeded(), pod("b").index(1).failed()]);
    assert_eq!(
        seen.outcome().metrics,
        [
            "job_finished_indexes_total{status=succeeded,backoffLimit=perIndex} 1",
            "job_finished_indexes_total{status=failed,backoffLimit=perIndex} 1",
            "job_pods_finished_total{completion_mode=Indexed,result=succeeded} 1",
            "jobs_finished_total{completion_mode=Indexed,result=failed,reason=FailedIndexes} 1",
            "job_pods_finished_total{completion_mode=Indexed,result=failed} 1",
        ]
    );
    let created = |policy: &str, failed: i32, terminating: bool| {
        let spec = json!({"parallelism": 3, "completions": 9, "podReplacementPolicy": policy});
        let mut seen = job(spec).status(json!({"failed": failed}));
        if terminating {
            seen = seen.pod(pod("t").without_finalizer().deleted(60));
        }
        let plan = seen.decide();
        assert!(matches!(plan.pods, PodStep::Create(_)));
        plan.pod_metrics(&vec![Fate::Done; plan.pods.len()])[0].labels[0].1.clone()
    };
    for (policy, failed, terminating, reason) in [
        ("Failed", 0, false, "new"),
        ("Failed", 1, false, "recreate_failed"),
        ("Failed", 0, true, "recreate_terminating_or_failed"),
        ("TerminatingOrFailed", 1, false, "recreate_terminating_or_failed"),
        ("TerminatingOrFailed", 0, true, "recreate_terminating_or_failed"),
        ("TerminatingOrFailed", 0, false, "new"),
    ] {
        assert_eq!(created(policy, failed, terminating), reason, "N-08 {policy} {failed} {terminating}");
    }
}
