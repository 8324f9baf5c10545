//! Worked scenarios, from the first look at a Job to its end.

use serde_json::json;

use super::super::slow_start;
use super::fixture::{NOW, job, names, pod, time};

#[test]
fn scenario_01_a_new_job() {
    let new = job(json!({"parallelism": 2, "completions": 4}));
    new.check(
        "1",
        "create 2 pods, status active=2 ready=0 terminating=0 startTime=now, \
         because 2 of 2 wanted pods are missing",
    );
    let status = serde_json::to_value(new.outcome().status).unwrap();
    assert_eq!(
        status,
        json!({"active": 2, "ready": 0, "terminating": 0, "startTime": time(NOW), "uncountedTerminatedPods": {}})
    );
}

#[test]
fn scenario_02_slow_start() {
    let sizes = |count| slow_start(count).map(|batch| batch.len()).collect::<Vec<_>>();
    assert_eq!(sizes(10), [1, 2, 4, 3]);
    assert_eq!(sizes(1), [1]);
    assert_eq!(sizes(0), [0usize; 0]);
    assert_eq!(slow_start(500).last(), Some(255..500));
    assert_eq!(job(json!({"parallelism": 10, "completions": 10})).decide().pods.len(), 10);
}

#[test]
fn scenario_03_two_succeed_and_two_follow() {
    job(json!({"parallelism": 2, "completions": 4}))
        .status(json!({"active": 2}))
        .pods([pod("a").succeeded(), pod("b").succeeded()])
        .check(
            "3",
            "create 2 pods, status uncounted.succeeded=[a b], free a b, \
             status succeeded=2 uncounted.succeeded=[], because 2 of 2 wanted pods are missing",
        );
}

#[test]
fn scenario_04_the_only_pod_succeeds() {
    let seen = job(json!({"completions": 1})).status(json!({"active": 1})).pod(pod("a").succeeded());
    seen.check(
        "4",
        "status active=0 uncounted.succeeded=[a] SuccessCriteriaMet=True/CompletionsReached, free a, \
         status succeeded=1 uncounted.succeeded=[] completionTime=now Complete=True/CompletionsReached, \
         because 0 of 0 wanted pods are active",
    );
    let outcome = seen.outcome();
    assert_eq!(outcome.events, ["Normal Completed: Job completed"]);
    let conditions = outcome.status.unwrap().conditions.unwrap();
    let message = Some("Reached expected number of succeeded pods");
    assert!(conditions.iter().all(|condition| condition.message.as_deref() == message));
}

#[test]
fn scenario_05_backoff_limit() {
    let spec = json!({"parallelism": 2, "completions": 2, "backoffLimit": 0});
    job(spec.clone()).status(json!({"active": 2})).pods([pod("a").failed(), pod("b")]).check(
        "5, the limit is exceeded",
        "delete b, status active=0 terminating=1 uncounted.failed=[a b] FailureTarget=True/BackoffLimitExceeded, \
         free a b, status failed=2 uncounted.failed=[], because BackoffLimitExceeded",
    );
    let target = json!([{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded",
        "message": "Job has reached the specified backoff limit"}]);
    let failing = job(spec).status(json!({"failed": 2, "terminating": 1, "conditions": target}));
    failing
        .clone()
        .pod(pod("b").without_finalizer().deleted(3))
        .check("5, the deleted pod is still there", "nothing, because BackoffLimitExceeded");
    for (how, seen) in
        [("gone", failing.clone()), ("ended", failing.pod(pod("b").without_finalizer().deleted(3).failed()))]
    {
        seen.check(
            how,
            "status terminating=0, status Failed=True/BackoffLimitExceeded, because BackoffLimitExceeded",
        );
        let message = "Warning BackoffLimitExceeded: Job has reached the specified backoff limit";
        assert_eq!(seen.outcome().events, [message]);
    }
}

#[test]
fn scenario_06_an_indexed_job_fails() {
    let seen =
        job(json!({"parallelism": 3, "completions": 3, "backoffLimit": 0, "completionMode": "Indexed"}))
            .status(json!({"active": 3}))
            .pods([pod("a").index(0).succeeded(), pod("b").index(1).failed(), pod("c").index(2)]);
    seen.check(
        "6",
        "delete c, status active=0 terminating=1 succeeded=1 completedIndexes=0 uncounted.failed=[b c] \
         FailureTarget=True/BackoffLimitExceeded, free a b c, status failed=2 uncounted.failed=[], \
         because BackoffLimitExceeded",
    );
}

#[test]
fn scenario_07_deadline() {
    job(json!({"parallelism": 1, "completions": 2, "activeDeadlineSeconds": 10}))
        .status(json!({"active": 1, "startTime": time(NOW - 15)}))
        .pods([pod("a").succeeded(), pod("b")])
        .check(
            "7",
            "delete b, status active=0 terminating=1 uncounted.succeeded=[a] uncounted.failed=[b] \
             FailureTarget=True/DeadlineExceeded, free a b, \
             status succeeded=1 failed=1 uncounted.succeeded=[] uncounted.failed=[], because DeadlineExceeded",
        );
}

#[test]
fn scenario_08_a_terminating_pod_is_replaced_at_once() {
    let spec = json!({"parallelism": 1, "completions": 1, "podReplacementPolicy": "TerminatingOrFailed"});
    job(spec.clone()).status(json!({"active": 1})).pod(pod("a").deleted(0)).check(
        "8, just deleted",
        "status active=0 terminating=1 uncounted.failed=[a], free a, status failed=1 uncounted.failed=[], \
         look again in 10s, because pods failed and the next one waits",
    );
    let later = job(spec).status(json!({"failed": 1, "terminating": 1})).failures(1, 10);
    later.pod(pod("a").without_finalizer().deleted(10)).check(
        "8, ten seconds later",
        "create 1 pod, status active=1, because 1 of 1 wanted pods are missing",
    );
}

#[test]
fn scenario_09_a_terminating_pod_is_replaced_when_it_ended() {
    let spec = json!({"parallelism": 1, "completions": 1, "podReplacementPolicy": "Failed"});
    job(spec.clone())
        .status(json!({"active": 1}))
        .pod(pod("a").deleted(20))
        .check("9, terminating", "status active=0 terminating=1, because 0 of 1 wanted pods are active");
    let terminating = job(spec).status(json!({"terminating": 1}));
    terminating.clone().pod(pod("a").deleted(20).failed().ended(0)).check(
        "9, ended",
        "status terminating=0 uncounted.failed=[a], free a, status failed=1 uncounted.failed=[], \
         look again in 10s, because pods failed and the next one waits",
    );
    terminating.pod(pod("a").deleted(20).succeeded()).check(
        "R-02 it may still succeed",
        "status terminating=0 uncounted.succeeded=[a] SuccessCriteriaMet=True/CompletionsReached, free a, \
         status succeeded=1 uncounted.succeeded=[] completionTime=now Complete=True/CompletionsReached, \
         because 0 of 0 wanted pods are active",
    );
}

#[test]
fn scenario_10_an_ignored_failure() {
    let ignore = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [5]}}]});
    let spec = json!({"parallelism": 1, "completions": 1, "backoffLimit": 0, "podFailurePolicy": ignore});
    let seen = job(spec).status(json!({"active": 1}));
    let seen = seen.pod(pod("a").failed().with_exit_code(5).ended(0));
    seen.check(
        "10",
        "status active=0, free a, look again in 10s, because pods failed and the next one waits",
    );
    assert_eq!(seen.outcome().metrics, ["pod_failures_handled_by_failure_policy_total{action=Ignore} 1"]);
}

#[test]
fn scenario_11_suspend() {
    let seen = job(json!({"parallelism": 2, "completions": 4, "suspend": true}))
        .status(json!({"active": 2, "ready": 1}))
        .pods([pod("a").ready(), pod("b")]);
    seen.check(
        "11",
        "free and delete b a, status active=0 ready=0 terminating=2 Suspended=True/JobSuspended, \
         because the Job is suspended",
    );
    let outcome = seen.outcome();
    assert_eq!(outcome.events, ["Normal Suspended: Job suspended"]);
    assert_eq!(outcome.status.unwrap().start_time, seen.job.status.unwrap().start_time);
}

#[test]
fn scenario_12_resume() {
    let suspended = json!([{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]);
    let seen = job(json!({"parallelism": 2, "completions": 4})).status(json!({"conditions": suspended}));
    seen.check(
        "12",
        "create 2 pods, status active=2 startTime=now Suspended=False/JobResumed, \
         because 2 of 2 wanted pods are missing",
    );
    assert_eq!(seen.outcome().events, ["Normal Resumed: Job resumed"]);
}

#[test]
fn scenario_13_suspended_with_nothing_to_do() {
    let seen = job(json!({"completions": 0, "parallelism": 0, "suspend": true}));
    seen.check(
        "13",
        "status ready=0 terminating=0 SuccessCriteriaMet=True/CompletionsReached, \
         status completionTime=now Complete=True/CompletionsReached, because the Job is suspended",
    );
    assert_eq!(seen.outcome().status.unwrap().start_time, None);
}

#[test]
fn scenario_14_work_queue() {
    let queue = job(json!({"parallelism": 2})).status(json!({"active": 2}));
    queue.clone().pods([pod("a").succeeded(), pod("b")]).check(
        "14, one is done",
        "status active=1 uncounted.succeeded=[a], free a, status succeeded=1 uncounted.succeeded=[], \
         because 1 of 1 wanted pods are active",
    );
    let rest = job(json!({"parallelism": 2})).status(json!({"active": 1, "succeeded": 1}));
    rest.clone().pod(pod("b").succeeded()).check(
        "14, the other, too",
        "status active=0 uncounted.succeeded=[b] SuccessCriteriaMet=True/CompletionsReached, free b, \
         status succeeded=2 uncounted.succeeded=[] completionTime=now Complete=True/CompletionsReached, \
         because 0 of 0 wanted pods are active",
    );
    rest.pod(pod("b").failed()).check(
        "14, the other fails",
        "status active=0 uncounted.failed=[b] SuccessCriteriaMet=True/CompletionsReached, free b, \
         status failed=1 uncounted.failed=[] completionTime=now Complete=True/CompletionsReached, \
         because 0 of 0 wanted pods are active",
    );
}

#[test]
fn scenario_15_even_indexes_fail_twice() {
    let pods = names(10).zip(0..).map(|(name, index)| {
        let pod = pod(&name).index(index);
        if index % 2 == 0 { pod.failed().after_failures(1, 0) } else { pod.succeeded() }
    });
    let spec = json!({
        "parallelism": 10, "completions": 10, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
    });
    let seen = job(spec).status(json!({"active": 10, "failed": 5, "failedIndexes": ""})).pods(pods);
    seen.check(
        "15",
        "status active=0 succeeded=5 completedIndexes=1,3,5,7,9 failedIndexes=0,2,4,6,8 \
         uncounted.failed=[a c e g i] FailureTarget=True/FailedIndexes, free 10 pods, \
         status failed=10 uncounted.failed=[] Failed=True/FailedIndexes, because FailedIndexes",
    );
    assert_eq!(seen.outcome().events, ["Warning FailedIndexes: Job has failed indexes"]);
}

#[test]
fn scenario_16_elastic() {
    let spec = |count: i32| json!({"parallelism": count, "completions": count, "completionMode": "Indexed"});
    let done = pod("c").index(2).succeeded().without_finalizer();
    let pods = || [pod("a").index(0), pod("b").index(1), done.clone()];
    job(spec(2)).status(json!({"active": 2, "succeeded": 1, "completedIndexes": "2"})).pods(pods()).check(
        "16, scaled down",
        "status succeeded=0 completedIndexes=, because 2 of 2 wanted pods are active",
    );
    job(spec(3)).status(json!({"active": 2})).pods(pods()).check(
        "16, scaled up again",
        "create index 2, status active=3, because 1 of 3 wanted pods are missing",
    );
}

#[test]
fn scenario_17_success_policy() {
    let spec = json!({
        "parallelism": 2, "completions": 2, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
    });
    let seen = job(spec.clone())
        .status(json!({"active": 2}))
        .pods([pod("a").index(0).succeeded(), pod("b").index(1)]);
    seen.check(
        "17, met",
        "delete b, status active=0 terminating=1 succeeded=1 completedIndexes=0 \
         SuccessCriteriaMet=True/SuccessPolicy, free a b, because SuccessPolicy",
    );
    let met = json!([{"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy",
        "message": "Matched rules at index 0"}]);
    let conditions = seen.outcome().status.unwrap().conditions.unwrap();
    assert_eq!(conditions[0].message.as_deref(), Some("Matched rules at index 0"));
    job(spec)
        .status(json!({"terminating": 1, "succeeded": 1, "completedIndexes": "0", "conditions": met}))
        .pod(pod("b").index(1).deleted(5).failed().without_finalizer())
        .check(
            "17, the other has ended",
            "status terminating=0, status completionTime=now Complete=True/SuccessPolicy, because SuccessPolicy",
        );
}

#[test]
fn scenario_18_e_02_j_11_managed_by_another() {
    for suspend in [true, false] {
        let seen = job(json!({"parallelism": 2, "suspend": suspend, "managedBy": "example.com/x"}));
        seen.check("18", "nothing, because not ours: managed by example.com/x");
        let outcome = seen.outcome();
        assert!(outcome.status.is_none() && outcome.events.is_empty() && outcome.metrics.is_empty());
    }
}

#[test]
fn scenario_19_e_09_managed_by_the_reserved_name() {
    let reserved = job(json!({"parallelism": 2, "managedBy": "kubernetes.io/job-controller"}));
    assert_eq!(reserved.decide().to_string(), job(json!({"parallelism": 2})).decide().to_string());
}
