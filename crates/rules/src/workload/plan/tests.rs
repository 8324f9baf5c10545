mod phases;

use serde_json::{Value, json};
use types::kueue::Admission;

use super::*;
use crate::workload::{change as changes, conditions};

/// A Workload, its queues and the clock.
struct Life {
    workload: Workload,
    local_queue: Option<LocalQueue>,
    cluster_queue: Option<ClusterQueue>,
    active: bool,
    lost_hosts: Vec<String>,
    settings: Settings,
    now: Timestamp,
}

fn life() -> Life {
    let from = |value: Value| serde_json::from_value(value).expect("an object");
    Life {
        workload: from_value(json!({
            "metadata": {
                "name": "wl", "namespace": "ns", "uid": "1", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2" }],
            },
            "spec": { "queueName": "lq", "podSets": [{ "name": "main", "count": 1 }] },
        })),
        local_queue: Some(from_value(
            json!({ "metadata": { "name": "lq" }, "spec": { "clusterQueue": "cq" } }),
        )),
        cluster_queue: Some(from(json!({ "metadata": { "name": "cq" }, "spec": { "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{ "name": "f", "resources": [{ "name": "cpu", "nominalQuota": "1" }] }],
        }] } }))),
        active: true,
        lost_hosts: Vec::new(),
        settings: Settings::default(),
        now: "2026-01-01T00:00:10Z".parse().expect("a time"),
    }
}

fn from_value<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

impl Life {
    fn decide(&self) -> Plan {
        let seen = Seen {
            workload: &self.workload,
            local_queue: self.local_queue.as_ref(),
            cluster_queue: self.cluster_queue.as_ref(),
            active: self.active,
            lost_hosts: &self.lost_hosts,
        };
        decide(&seen, &self.settings, self.now)
    }

    /// Does what is decided, as long as there is something to do, and checks what that was.
    #[track_caller]
    fn expect(&mut self, expected: &[&str]) {
        let mut done = Vec::new();
        for _ in 0..20 {
            let plan = self.decide();
            done.push(plan.to_string());
            match plan.step {
                Step::Wait | Step::Delete => break,
                Step::Status { next, .. } => self.workload.status = Some(*next),
                Step::Checks(checks) => self.status().admission_checks = checks,
                Step::Deactivate => self.workload.spec.active = Some(false),
                Step::Finalize => self.workload.metadata.finalizers = None,
            }
        }
        assert_eq!(done, expected);
    }

    /// Checks the conditions, each as `Type=Status/Reason`.
    #[track_caller]
    fn shows(&self, expected: &[&str]) {
        let shown =
            conditions(&self.workload).iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    fn message(&self, kind: &str) -> &str {
        &state::find(&self.workload, kind).expect("the condition").message
    }

    fn status(&mut self) -> &mut WorkloadStatus {
        self.workload.status.get_or_insert_default()
    }

    fn wait(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).expect("a time");
    }

    /// The scheduler gives it quota.
    fn reserve(&mut self) {
        let admission: Admission = from_value(json!({ "clusterQueue": "cq", "podSetAssignments": [
            { "name": "main", "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": "1" }, "count": 1 },
        ] }));
        changes::reserve(&mut self.workload, admission, self.now);
    }

    /// Its Job is stopped and has no pods any more.
    fn stop_job(&mut self) {
        assert!(changes::release(&mut self.workload, self.now));
    }

    fn with_check(mut self) -> Life {
        let queue = self.cluster_queue.as_mut().expect("a queue");
        queue.spec.admission_checks_strategy =
            Some(from_value(json!({ "admissionChecks": [{ "name": "check" }] })));
        self
    }

    fn check_says(&mut self, state: CheckState, message: &str, after: Option<i32>) {
        let now = condition::time(self.now);
        let check = &mut self.status().admission_checks[0];
        check.state = state;
        check.message = message.into();
        check.requeue_after_seconds = after;
        check.last_transition_time = Some(now);
    }

    fn stop(&mut self, policy: StopPolicy) {
        self.cluster_queue.as_mut().expect("a queue").spec.stop_policy = Some(policy);
        self.active = policy == StopPolicy::None;
    }
}

#[test]
fn sm_t1_reserved_without_checks_is_admitted() {
    let mut life = life();
    life.expect(&["wait"]);
    life.shows(&[]);
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    life.shows(&["QuotaReserved=True/QuotaReserved", "Admitted=True/Admitted"]);
    assert!(changes::finish(&mut life.workload, "Succeeded", "done", life.now));
    life.expect(&["wait"]);
}

/// MK-QR-02, MK-QR-04.
#[test]
fn sm_t2_checks_are_listed_and_waited_for() {
    let mut life = life().with_check();
    life.expect(&[r#"list checks ["check"]"#, "wait"]);
    life.reserve();
    life.expect(&["wait"]);
    life.check_says(CheckState::Ready, "", None);
    let told = life.decide().events.remove(0);
    assert_eq!(told.message, "Admitted by ClusterQueue cq, wait time since reservation was 0s");
    life.expect(&["write admitted", "wait"]);
    life.check_says(CheckState::Pending, "", None);
    life.shows(&["QuotaReserved=True/QuotaReserved", "Admitted=True/Admitted"]);
}

#[test]
fn new_workloads_are_left_to_the_scheduler_first() {
    let mut life = life().with_check();
    life.now = "2026-01-01T00:00:01Z".parse().expect("a time");
    life.expect(&["wait until 2026-01-01T00:00:02Z"]);
    life.active = false;
    life.expect(&[r#"list checks ["check"]"#, "write inadmissible", "wait"]);
}

#[test]
fn sm_t6_deactivated_and_activated_again() {
    let mut life = life();
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    life.workload.spec.active = Some(false);
    let told = life.decide().events.remove(0);
    assert_eq!(
        (told.reason.as_str(), told.message.as_str()),
        ("EvictedDueToDeactivated", "The workload is deactivated")
    );
    life.expect(&["write evicted, because Deactivated", "wait"]);
    life.stop_job();
    life.expect(&["wait"]);
    life.shows(&[
        "QuotaReserved=False/Pending",
        "Admitted=False/NoReservation",
        "Evicted=True/Deactivated",
        "Requeued=False/Deactivated",
    ]);
    life.workload.spec.active = Some(true);
    life.expect(&["write requeued, because Reactivated", "wait"]);
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    life.shows(&[
        "QuotaReserved=True/QuotaReserved",
        "Admitted=True/Admitted",
        "Evicted=False/QuotaReserved",
        "Requeued=True/Reactivated",
    ]);
    assert_eq!(life.message("Evicted"), "Previously: The workload is deactivated");
}

#[test]
fn sm_t7_a_check_that_wants_another_attempt_puts_it_off_first() {
    let mut life = life().with_check();
    life.expect(&[r#"list checks ["check"]"#, "wait"]);
    life.reserve();
    life.check_says(CheckState::Retry, "no room", Some(10));
    life.expect(&["write put off by checks", "wait until 2026-01-01T00:00:20Z"]);
    life.wait(10);
    // The time is over, but it is still there to be evicted (G-5).
    life.expect(&["write evicted, because AdmissionCheck", "wait"]);
    assert_eq!(life.message("Evicted"), r#"Evicted due to AdmissionCheck in Retry state: "check" (no room)"#);
    let check = life.status().admission_checks[0].clone();
    assert_eq!((check.state, check.retry_count), (CheckState::Pending, Some(1)));
    assert_eq!(check.message, "Reset to Pending after eviction. Previously: Retry");
    life.stop_job();
    life.expect(&["write back-off over", "wait"]);
    life.shows(&[
        "QuotaReserved=False/Pending",
        "Evicted=True/AdmissionCheck",
        "Requeued=True/BackoffFinished",
    ]);
    assert_eq!(life.status().requeue_state, Some(types::kueue::RequeueState::default()));
}

/// MK-SM-06.
#[test]
fn sm_25_a_check_that_rejects_deactivates() {
    let mut life = life().with_check();
    life.expect(&[r#"list checks ["check"]"#, "wait"]);
    life.reserve();
    life.check_says(CheckState::Rejected, "never", None);
    let told = life.decide().events.remove(0);
    assert!(told.warning && told.reason == "AdmissionCheckRejected");
    life.expect(&[
        "write to be deactivated, because AdmissionCheck",
        "deactivate",
        "write evicted, because DeactivatedDueToAdmissionCheck",
        "wait",
    ]);
    life.shows(&["QuotaReserved=True/QuotaReserved", "Evicted=True/DeactivatedDueToAdmissionCheck"]);
    assert_eq!(
        life.message("Evicted"),
        r#"The workload is deactivated due to AdmissionCheck in Rejected state: "check" (never)"#
    );
    life.stop_job();
    // SM-32: any reason that starts like that.
    life.workload.spec.active = Some(true);
    life.expect(&["write requeued, because Reactivated", "wait"]);
}

/// MK-SM-03: a cluster that was lost is no reason to wait.
#[test]
fn mk_sm_03_a_check_that_names_no_time_evicts_at_once() {
    let mut life = life().with_check();
    life.expect(&[r#"list checks ["check"]"#, "wait"]);
    life.reserve();
    life.check_says(CheckState::Ready, "", None);
    life.expect(&["write admitted", "wait"]);
    life.check_says(CheckState::Retry, "Admitting remote lost, Previously: \"Ready\"", None);
    let told = life.decide().events.remove(0);
    assert_eq!(told.reason, "EvictedDueToAdmissionCheck");
    life.expect(&["write evicted, because AdmissionCheck", "wait"]);
    let said = r#"Evicted due to AdmissionCheck in Retry state: "check" (Admitting remote lost, Previously: "Ready")"#;
    assert_eq!(life.message("Evicted"), said);
    life.stop_job();
    life.shows(&[
        "QuotaReserved=False/Pending",
        "Admitted=False/NoReservationUnsatisfiedChecks",
        "Evicted=True/AdmissionCheck",
        "Requeued=False/AdmissionCheck",
    ]);
}

/// MK-WRK-06: what a manager takes back, its worker stops, in the manager's words; the request for it is gone then.
#[test]
fn mk_wrk_06_a_worker_stops_what_its_manager_takes_back() {
    let mut life = life();
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    let (reason, message) =
        ("EvictedOnManagerCluster", "Evicted on manager: Preempted to accommodate a workload");
    changes::deactivation_target(&mut life.workload, reason, message, life.now);
    life.expect(&["deactivate", "write evicted, because DeactivatedDueToEvictedOnManagerCluster", "wait"]);
    life.shows(&[
        "QuotaReserved=True/QuotaReserved",
        "Admitted=True/Admitted",
        "Evicted=True/DeactivatedDueToEvictedOnManagerCluster",
    ]);
    assert_eq!(life.message("Evicted"), format!("The workload is deactivated due to {message}"));
}

/// MK-EVI-02.
#[test]
fn sm_t8_a_drained_queue_evicts_and_a_restarted_one_requeues() {
    let mut life = life();
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    life.stop(StopPolicy::Hold);
    life.expect(&["wait"]);
    life.stop(StopPolicy::HoldAndDrain);
    life.expect(&["write evicted, because ClusterQueueStopped", "wait"]);
    life.stop_job();
    life.expect(&["write inadmissible", "wait"]);
    assert_eq!(life.message("QuotaReserved"), "ClusterQueue cq is inactive");
    life.stop(StopPolicy::None);
    life.expect(&["write requeued, because ClusterQueueRestarted", "wait"]);
}

#[test]
fn ta_7_who_lost_a_node_is_placed_anew() {
    let mut life = life();
    life.lost_hosts = vec!["x1".to_owned(), "x2".to_owned()];
    life.reserve();
    life.expect(&["write admitted", "write evicted, because NodeFailures", "wait"]);
    assert_eq!(
        life.message("Evicted"),
        "Workload was evicted as there was no replacement for unhealthy node(s): x1,x2"
    );
}

#[test]
fn sm_24_a_stopped_queue_takes_back_what_is_not_admitted() {
    let mut life = life().with_check();
    life.expect(&[r#"list checks ["check"]"#, "wait"]);
    life.reserve();
    life.stop(StopPolicy::Hold);
    life.expect(&["write inadmissible", "write inadmissible", "wait"]);
    life.shows(&["QuotaReserved=False/Inadmissible"]);
    life.stop(StopPolicy::None);
    life.reserve();
    life.local_queue.as_mut().expect("a queue").spec.stop_policy = Some(StopPolicy::Hold);
    let mut at_once = life.decide();
    let Step::Status { next, .. } = std::mem::replace(&mut at_once.step, Step::Wait) else {
        panic!("{at_once}")
    };
    assert_eq!(next.conditions[0].message, "LocalQueue lq is stopped");
    assert!(next.admission.is_none());
    life.expect(&["write inadmissible", "write inadmissible", "wait"]);
    assert_eq!(life.message("QuotaReserved"), "LocalQueue lq is inactive");
}

#[test]
fn queues_that_are_missing_are_named() {
    let mut life = life();
    life.local_queue = None;
    life.cluster_queue = None;
    life.expect(&["write inadmissible", "wait"]);
    life.shows(&["QuotaReserved=False/Inadmissible"]);
    assert_eq!(life.message("QuotaReserved"), "LocalQueue lq doesn't exist");
    life.local_queue = Some(from_value(json!({ "spec": { "clusterQueue": "cq" } })));
    life.expect(&["write inadmissible", "wait"]);
    assert_eq!(life.message("QuotaReserved"), "ClusterQueue cq doesn't exist");
}

#[test]
fn sm_27_gates_hold_it_back() {
    let mut life = life();
    life.reserve();
    life.workload.metadata.annotations =
        Some([(crate::workload::ADMISSION_GATED_BY.into(), "a.b/c".into())].into());
    life.expect(&["write gated", "wait"]);
    life.shows(&["QuotaReserved=False/AdmissionGated"]);
    assert_eq!(life.message("QuotaReserved"), "Admission is gated by: a.b/c");
    life.workload.metadata.annotations = None;
    life.expect(&["write gate cleared", "wait"]);
    assert_eq!(life.message("QuotaReserved"), "AdmissionGatedBy cleared, waiting for quota reservation");
}

#[test]
fn sm_t5_pods_that_are_not_ready_in_time() {
    let mut life = life();
    life.settings.pods_ready = Some(PodsReady {
        timeout: SignedDuration::from_secs(30),
        recovery_timeout: Some(SignedDuration::from_secs(5)),
        back_off: BackOff { limit: Some(1), ..BackOff::default() },
    });
    life.reserve();
    life.expect(&["write admitted", "wait until 2026-01-01T00:00:40Z"]);
    life.wait(30);
    life.expect(&["write evicted, because PodsReadyTimeout", "wait until 2026-01-01T00:01:40Z"]);
    assert_eq!(life.message("Evicted"), "Exceeded the PodsReady timeout ns/wl");
    let stats = life.status().scheduling_stats.clone().expect("stats").evictions;
    assert_eq!(
        (stats[0].reason.as_str(), stats[0].underlying_cause.as_str(), stats[0].count),
        ("PodsReadyTimeout", "WaitForStart", 1)
    );
    life.stop_job();
    assert_eq!(life.status().requeue_state.as_ref().and_then(|it| it.count), Some(1));
    life.wait(60);
    life.expect(&["write back-off over", "wait"]);
    life.reserve();
    // Ready, not ready any more, and too late again.
    life.expect(&["write admitted", "wait until 2026-01-01T00:02:10Z"]);
    changes::pods_ready(&mut life.workload, true, reason::STARTED, "", life.now);
    life.expect(&["wait"]);
    changes::pods_ready(&mut life.workload, false, reason::WAIT_FOR_RECOVERY, "", life.now);
    life.expect(&["wait until 2026-01-01T00:01:45Z"]);
    life.wait(5);
    life.expect(&[
        "write to be deactivated, because RequeuingLimitExceeded",
        "deactivate",
        "write evicted, because DeactivatedDueToRequeuingLimitExceeded",
        "wait",
    ]);
    assert_eq!(life.status().requeue_state, None);
}

#[test]
fn jf_64_waits_double() {
    let back_off = BackOff::default();
    let waits = [1, 2, 3, 6, 7, 8, 100].map(|count| back_off.wait(count).as_secs());
    assert_eq!(waits, [60, 120, 240, 1920, 3600, 3600, 3600]);
}

#[test]
fn jf_66_time_counts_over_all_attempts() {
    let mut life = life();
    life.workload.spec.maximum_execution_time_seconds = Some(100);
    life.reserve();
    life.expect(&["write admitted", "wait until 2026-01-01T00:01:50Z"]);
    life.wait(60);
    let eviction =
        Eviction { reason: reason::PREEMPTED, cause: String::new(), message: "for another".into() };
    changes::evict(&mut life.workload, &eviction, life.now);
    life.stop_job();
    assert_eq!(life.status().accumulated_past_execution_time_seconds, Some(60));
    life.wait(1000);
    life.expect(&["wait"]);
    life.reserve();
    life.expect(&["write admitted", "wait until 2026-01-01T00:18:30Z"]);
    life.wait(40);
    let told = life.decide().events.remove(0);
    assert_eq!(told.message, "The maximum execution time (100s) exceeded");
    life.expect(&[
        "write to be deactivated, because MaximumExecutionTimeExceeded",
        "deactivate",
        "write evicted, because DeactivatedDueToMaximumExecutionTimeExceeded",
        "wait",
    ]);
    assert_eq!(life.status().accumulated_past_execution_time_seconds, None);
}

#[test]
fn sm_40_workloads_whose_job_is_gone_end() {
    let mut life = life();
    life.workload.metadata.owner_references = None;
    life.workload.metadata.finalizers = Some(vec![types::kueue::RESOURCE_IN_USE.into()]);
    life.expect(&["wait"]);
    life.workload.metadata.labels = Some([(JOB_UID_LABEL.into(), "2".into())].into());
    life.expect(&["write finished, because OwnerNotFound", "let go", "wait"]);
    life.shows(&["Finished=True/OwnerNotFound"]);
}

#[test]
fn sm_22_bare_workloads_give_back_quota_by_themselves() {
    let mut life = life();
    life.workload.metadata.owner_references = None;
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    let eviction =
        Eviction { reason: reason::PREEMPTED, cause: String::new(), message: "for another".into() };
    changes::evict(&mut life.workload, &eviction, life.now);
    let mut copy = life.workload.clone();
    life.expect(&["write quota given back", "wait"]);
    life.shows(&[
        "QuotaReserved=False/Pending",
        "Admitted=False/NoReservation",
        "Evicted=True/Preempted",
        "Requeued=True/Preempted",
    ]);
    copy.metadata.labels = Some([(ORIGIN_LABEL.into(), "manager".into())].into());
    life.workload = copy;
    life.expect(&["wait"]);
}

#[test]
fn jf_67_finished_workloads_are_kept_for_a_while() {
    let mut life = life();
    life.settings.retention = Some(SignedDuration::from_secs(60));
    changes::finish(&mut life.workload, "Succeeded", "", life.now);
    life.expect(&["wait until 2026-01-01T00:01:10Z"]);
    life.wait(60);
    life.expect(&["delete"]);
}

/// JF-67, SM-40: also those of which the Job was deleted, and they were not.
#[test]
fn jf_67_orphans_are_kept_no_longer_than_others() {
    let mut life = life();
    life.settings.retention = Some(SignedDuration::from_secs(60));
    life.workload.metadata.owner_references = None;
    life.workload.metadata.labels = Some([(JOB_UID_LABEL.into(), "2".into())].into());
    life.expect(&["write finished, because OwnerNotFound", "wait until 2026-01-01T00:01:10Z"]);
    life.wait(60);
    life.expect(&["delete"]);
}

#[test]
fn qm_28_devices_that_are_not_counted_are_not_given() {
    let mut life = life();
    let claims = json!({ "spec": { "containers": [], "resourceClaims": [{ "name": "gpu", "resourceClaimName": "x" }] } });
    life.workload.spec.pod_sets[0].template = from_value(claims);
    life.expect(&["write inadmissible", "wait"]);
    life.shows(&["QuotaReserved=False/Inadmissible", "Requeued=False/Inadmissible"]);
}

/// OB-2: seconds are rounded, not cut off.
#[test]
fn ob_2_how_long_it_took_is_told_in_whole_seconds() {
    let at = |milliseconds: i64| Timestamp::from_millisecond(milliseconds).expect("within the calendar");
    for (took, told) in [(0, "0"), (1400, "1"), (1600, "2"), (-3000, "0")] {
        assert_eq!(whole_seconds(at(5000), at(5000 + took)), told, "{took} ms");
    }
}
