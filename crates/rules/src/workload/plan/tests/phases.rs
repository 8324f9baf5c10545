//! Each change of a Workload's status, alone.

use super::*;

#[test]
fn sm_1_where_a_workload_stands() {
    use crate::workload::State;
    let mut life = life();
    assert_eq!(state::state(&life.workload), State::Pending);
    life.reserve();
    assert_eq!(state::state(&life.workload), State::QuotaReserved);
    life.expect(&["write admitted", "wait"]);
    assert_eq!(state::state(&life.workload), State::Admitted);
    assert!(changes::finish(&mut life.workload, "Succeeded", "done", life.now));
    assert_eq!(state::state(&life.workload), State::Finished);
}

#[test]
fn sm_2_who_may_stand_in_a_queue() {
    let check = |change: &dyn Fn(&mut Life), admissible: bool| {
        let mut life = life();
        change(&mut life);
        assert_eq!(state::is_admissible(&life.workload), admissible, "{:?}", life.workload);
    };
    check(&|_| {}, true);
    check(&|life| life.reserve(), false);
    check(&|life| life.workload.spec.active = Some(false), false);
    let finished = |life: &mut Life| {
        changes::finish(&mut life.workload, "Failed", "", life.now);
    };
    check(&finished, false);
    let gated = |gates: &str| Some([(crate::workload::ADMISSION_GATED_BY.into(), gates.into())].into());
    check(&|life| life.workload.metadata.annotations = gated("a.b/c"), false);
    check(&|life| life.workload.metadata.annotations = gated(""), true);
    let not_reserved = |life: &mut Life, reason: &str| {
        changes::not_reserved(&mut life.workload, reason, "", life.now);
    };
    check(&|life| not_reserved(life, reason::ON_HOLD), false);
    check(&|life| not_reserved(life, reason::PENDING), true);
    let replacing = crate::workload::WAITING_FOR_REPLACEMENT_PODS;
    check(
        &|life| {
            let waits = condition::new(replacing, true, "x", "", None, life.now);
            condition::set(&mut life.status().conditions, waits);
        },
        false,
    );
}

#[test]
fn sm_5_nothing_is_said_before_something_is_known() {
    let mut life = life();
    life.expect(&["wait"]);
    life.shows(&[]);
    assert!(!changes::sync_admitted(&mut life.workload, life.now));
    life.shows(&[]);
}

/// Evicts an admitted Workload for another one.
fn preempted() -> Life {
    let mut life = life();
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    changes::preempted(&mut life.workload, "InClusterQueue", "for another", life.now);
    evict(&mut life, reason::PREEMPTED, "for another");
    life
}

fn evict(life: &mut Life, reason: &'static str, message: &str) -> bool {
    let eviction = changes::Eviction { reason, cause: String::new(), message: message.into() };
    changes::evict(&mut life.workload, &eviction, life.now)
}

#[test]
fn sm_10_a_reservation_makes_history_of_what_was_before() {
    let mut life = preempted();
    life.stop_job();
    life.status().resource_requests = from_value(json!([{ "name": "main", "resources": { "cpu": "1" } }]));
    life.reserve();
    life.shows(&[
        "QuotaReserved=True/QuotaReserved",
        "Admitted=False/NoReservation",
        "Preempted=False/QuotaReserved",
        "Evicted=False/QuotaReserved",
        "Requeued=True/Preempted",
    ]);
    assert_eq!(life.message("QuotaReserved"), "Quota reserved in ClusterQueue cq");
    assert_eq!(life.message("Preempted"), "Previously: for another");
    assert!(life.status().resource_requests.is_empty());
    assert_eq!(state::cluster_queue(&life.workload), Some("cq"));
}

#[test]
fn sm_11_admitted_when_every_check_and_every_placement_is_there() {
    use types::kueue::DelayedTopologyRequestState::{Pending, Ready};
    let mut life = life().with_check();
    life.reserve();
    life.expect(&[r#"list checks ["check"]"#, "wait"]);
    life.shows(&["QuotaReserved=True/QuotaReserved"]);
    let placing = |life: &mut Life, state| {
        let admission = life.status().admission.as_mut().expect("it has quota");
        admission.pod_set_assignments[0].delayed_topology_request = Some(state);
    };
    placing(&mut life, Pending);
    life.check_says(CheckState::Ready, "", None);
    life.expect(&["wait"]);
    placing(&mut life, Ready);
    life.expect(&["write admitted", "wait"]);
}

#[test]
fn sm_12_time_that_it_ran_adds_up() {
    let mut life = life();
    for (ran, total) in [(7, 7), (5, 12)] {
        life.reserve();
        assert!(changes::sync_admitted(&mut life.workload, life.now));
        life.wait(ran);
        evict(&mut life, reason::PREEMPTED, "for another");
        life.stop_job();
        assert_eq!(life.status().accumulated_past_execution_time_seconds, Some(total));
        life.wait(100);
    }
}

#[test]
fn sm_13_sm_14_a_failed_attempt_says_why_and_what_was_asked_for() {
    use crate::workload::patch::{self, Manner};
    let mut life = life();
    life.workload.metadata.resource_version = Some("7".into());
    life.reserve();
    assert!(changes::unreserve(&mut life.workload, reason::PENDING, "no room", life.now));
    let foreign = condition::new("Foreign", true, "x", "", None, life.now);
    life.status().conditions.push(foreign);
    life.status().resource_requests = from_value(json!([{ "name": "main", "resources": { "cpu": "1" } }]));
    let status = life.status().clone();
    assert_eq!(status.admission, None);
    let written = patch::admission(&life.workload, &status, Manner::Strict);
    assert_eq!(
        written,
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": { "name": "wl", "namespace": "ns", "uid": "1", "resourceVersion": "7" },
            "status": {
                "conditions": [{
                    "type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no room",
                    "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:10Z",
                }],
                "resourceRequests": [{ "name": "main", "resources": { "cpu": "1" } }],
            },
        }),
        "and nothing that belongs to others"
    );
    let loose = patch::admission(&life.workload, &status, Manner::Loose);
    assert_eq!(loose["metadata"], json!({ "name": "wl", "namespace": "ns", "uid": "1" }));
    assert_eq!(patch::ADMISSION_MANAGER, "kueue-admission");
    assert_eq!(patch::PODS_READY_MANAGER, "kueue-job-controller-PodsReady");
}

#[test]
fn sm_20_the_first_phase_of_an_eviction_holds_on_to_quota() {
    let mut life = life().with_check();
    life.reserve();
    life.expect(&[r#"list checks ["check"]"#, "wait"]);
    life.check_says(CheckState::Ready, "fine", None);
    life.status().admission_checks[0].pod_set_updates = from_value(json!([{ "name": "main" }]));
    life.status().cluster_name = Some("east".into());
    life.status().nominated_cluster_names = vec!["east".into()];
    life.status().unhealthy_nodes = from_value(json!([{ "name": "node" }]));
    life.status().preemption_gates = from_value(json!([{ "name": "g", "position": "Open" }]));
    assert!(evict(&mut life, reason::PREEMPTED, "for another"));
    assert!(!evict(&mut life, reason::PREEMPTED, "for another"), "it is not the first for that reason");
    assert!(state::has_quota(&life.workload) && state::is_evicted(&life.workload));
    let status = life.status();
    assert_eq!((&status.cluster_name, status.nominated_cluster_names.len()), (&None, 0));
    assert!(status.unhealthy_nodes.is_empty());
    assert_eq!(status.preemption_gates[0].position, types::kueue::PreemptionGatePosition::Closed);
    let check = &status.admission_checks[0];
    assert_eq!(check.message, "Reset to Pending after eviction. Previously: Ready");
    assert_eq!((check.state, check.retry_count), (CheckState::Pending, None));
    assert!(check.pod_set_updates.is_empty());
    let counted = &status.scheduling_stats.as_ref().expect("it was counted").evictions;
    assert_eq!((counted.len(), counted[0].count), (1, 2));
}

#[test]
fn sm_21_the_second_phase_gives_quota_back_and_says_whether_it_is_tried_again() {
    let check = |reason: &'static str, requeued: &str| {
        let mut life = life();
        life.reserve();
        life.expect(&["write admitted", "wait"]);
        evict(&mut life, reason, "why");
        life.stop_job();
        life.shows(&[
            "QuotaReserved=False/Pending",
            "Admitted=False/NoReservation",
            &format!("Evicted=True/{reason}"),
            &format!("Requeued={requeued}/{reason}"),
        ]);
        assert_eq!(life.message("QuotaReserved"), "why");
        assert_eq!(life.status().admission, None);
    };
    check(reason::PREEMPTED, "True");
    check(reason::NODE_FAILURES, "True");
    check(reason::PODS_READY_TIMEOUT, "False");
    check(reason::ADMISSION_CHECK, "False");
}

#[test]
fn sm_26_who_is_deactivated_by_hand_is_not_put_off() {
    let mut life = life();
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    changes::back_off(&mut life.workload, &BackOff::default(), life.now);
    life.workload.spec.active = Some(false);
    life.expect(&["write evicted, because Deactivated", "wait"]);
    assert_eq!(life.message("Evicted"), "The workload is deactivated");
    assert_eq!(life.status().requeue_state, None);
}

#[test]
fn sm_31_a_back_off_ends() {
    let mut life = life();
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    changes::back_off(&mut life.workload, &BackOff::default(), life.now);
    evict(&mut life, reason::PODS_READY_TIMEOUT, "not ready");
    life.stop_job();
    life.expect(&["wait until 2026-01-01T00:01:10Z"]);
    life.wait(60);
    life.expect(&["write back-off over", "wait"]);
    let requeued = state::find(&life.workload, "Requeued").expect("the condition");
    assert_eq!((requeued.status.as_str(), requeued.reason.as_str()), ("True", "BackoffFinished"));
    let requeue = life.status().requeue_state.clone().expect("how often is kept");
    assert_eq!((requeue.count, requeue.requeue_at), (Some(1), None));
}

#[test]
fn sm_33_a_drained_local_queue_evicts_and_a_restarted_one_requeues() {
    let mut life = life();
    life.reserve();
    life.expect(&["write admitted", "wait"]);
    let stop = |life: &mut Life, policy| {
        life.local_queue.as_mut().expect("a queue").spec.stop_policy = Some(policy);
    };
    stop(&mut life, StopPolicy::HoldAndDrain);
    life.expect(&["write evicted, because LocalQueueStopped", "wait"]);
    life.stop_job();
    life.expect(&["write inadmissible", "wait"]);
    assert_eq!(life.message("QuotaReserved"), "LocalQueue lq is inactive");
    stop(&mut life, StopPolicy::None);
    life.expect(&["write requeued, because LocalQueueRestarted", "wait"]);
}
