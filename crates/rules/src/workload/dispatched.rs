//! What the core does to Workloads that run on other clusters, and what of it a peer relies on.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use types::kueue::{PreemptionGatePosition, Workload};

use super::{
    change::{self, Eviction},
    patch::{self, Manner},
    reason, state,
};
use crate::dispatch;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a time")
}

/// A Workload that a worker has admitted, with other checks than MultiKueue's besides.
fn dispatched() -> Workload {
    let check = |name: &str, state: &str| json!({"name": name, "state": state, "message": "so", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "because", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    serde_json::from_value(json!({
        "metadata": {"name": "w", "namespace": "ns", "uid": "1", "resourceVersion": "7"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {}}]},
        "status": {
            "clusterName": "east",
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main"}]},
            "admissionChecks": [check("budget", "Ready"), check("mk", "Retry"), check("other", "Pending")],
            "conditions": [
                condition("QuotaReserved"), condition("Admitted"), condition("BlockedOnPreemptionGates"), condition("ferry.dev/Held"),
                condition("Unknown"),
            ],
            "preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }))
    .expect("a Workload")
}

fn eviction() -> Eviction {
    Eviction { reason: reason::ADMISSION_CHECK, cause: String::new(), message: "go".to_owned() }
}

/// MK-SM-04, MK-PRE-01: an eviction takes back the choice of a cluster, all checks and all gates, in one write; what may still
/// exist on the cluster is kept on record.
#[test]
fn mk_sm_04_an_eviction_starts_all_over() {
    let mut workload = dispatched();
    workload.status.as_mut().expect("a status").nominated_cluster_names = vec!["east".to_owned()];
    change::evict(&mut workload, &eviction(), at(0));
    let status = workload.status.as_ref().expect("a status");
    assert_eq!((&status.cluster_name, status.nominated_cluster_names.len()), (&None, 0));
    let checks = status.admission_checks.iter();
    let checks: Vec<String> =
        checks.map(|it| format!("{} {:?} {:?} {}", it.name, it.state, it.retry_count, it.message)).collect();
    assert_eq!(
        checks,
        [
            "budget Pending None Reset to Pending after eviction. Previously: Ready",
            "mk Pending Some(1) Reset to Pending after eviction. Previously: Retry",
            "other Pending None so",
        ]
    );
    assert_eq!(status.preemption_gates[0].position, PreemptionGatePosition::Closed);
    let is = |kind: &str| state::find(&workload, kind).map(|it| it.status == "True");
    assert_eq!((is("Evicted"), is("BlockedOnPreemptionGates")), (Some(true), Some(false)));
    assert_eq!(is("QuotaReserved"), Some(true), "until nothing of it runs (MK-SM-05)");
    assert_eq!(is("ferry.dev/Held"), Some(true), "until nothing of it is there");
}

/// MK-SM-04: a manager that keeps no record chose the cluster, and took the last word of it with it. What ran there was
/// forgotten, and still ran when the Job was started elsewhere.
#[test]
fn mk_sm_04_an_eviction_keeps_on_record_what_was_chosen() {
    let mut workload = dispatched();
    workload.status.as_mut().expect("a status").conditions.retain(|it| it.type_ != dispatch::HELD);
    change::evict(&mut workload, &eviction(), at(0));
    assert_eq!(dispatch::held(&workload), Some("east".into()));
    assert_eq!(workload.status.as_ref().and_then(|status| status.cluster_name.as_deref()), None);
    // What is on record stays, and what was never chosen is not.
    change::evict(&mut workload, &eviction(), at(1));
    assert_eq!(dispatch::held(&workload), Some("east".into()));
    let mut waits = dispatched();
    let status = waits.status.as_mut().expect("a status");
    (status.cluster_name, status.conditions) = (None, Vec::new());
    change::evict(&mut waits, &eviction(), at(0));
    assert_eq!(state::find(&waits, dispatch::HELD), None);
}

/// MK-WRK-07: quota that is reserved anew makes history of what was said before.
#[test]
fn mk_wrk_07_what_was_evicted_and_is_back_is_evicted_no_more() {
    let mut workload = dispatched();
    let admission = workload.status.clone().and_then(|status| status.admission).expect("an admission");
    change::evict(&mut workload, &eviction(), at(0));
    change::preempted(&mut workload, "InClusterQueue", "for another", at(0));
    change::reserve(&mut workload, (*admission).clone(), at(1));
    for (kind, message) in [("Evicted", "Previously: go"), ("Preempted", "Previously: for another")] {
        let condition = state::find(&workload, kind).expect("a condition");
        assert_eq!((condition.status.as_str(), condition.message.as_str()), ("False", message), "{kind}");
    }
}

/// MK-SM-07, MK-SM-08: one write as `kueue-admission` with all that belongs to admission and nothing else, on the version
/// that was read; besides Kueue's conditions it carries our record, which an eviction must not drop.
#[test]
fn mk_sm_07_all_of_admission_is_written_at_once() {
    assert_eq!(patch::ADMISSION_MANAGER, "kueue-admission");
    let workload = dispatched();
    let body = patch::admission(&workload, workload.status.as_ref().expect("a status"), Manner::Strict);
    assert_eq!(body["metadata"], json!({"name": "w", "namespace": "ns", "uid": "1", "resourceVersion": "7"}));
    assert_eq!(body.get("spec"), None);
    let fields: BTreeSet<&str> =
        body["status"].as_object().expect("a status").keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        BTreeSet::from(["admission", "admissionChecks", "clusterName", "conditions", "preemptionGates"])
    );
    let kinds: Vec<&Value> =
        body["status"]["conditions"].as_array().expect("a list").iter().map(|it| &it["type"]).collect();
    assert_eq!(kinds, ["QuotaReserved", "BlockedOnPreemptionGates", "Admitted", "ferry.dev/Held"]);
    let loose = patch::admission(&workload, workload.status.as_ref().expect("a status"), Manner::Loose);
    assert_eq!(loose["metadata"], json!({"name": "w", "namespace": "ns", "uid": "1"}));
}

/// MK-WL-06: words that peers look for.
#[test]
fn mk_wl_06_reasons_are_spelled_as_kueue_spells_them() {
    assert_eq!(
        [
            reason::PREEMPTED,
            reason::PODS_READY_TIMEOUT,
            reason::ADMISSION_CHECK,
            reason::CLUSTER_QUEUE_STOPPED,
            reason::LOCAL_QUEUE_STOPPED,
            reason::NODE_FAILURES,
            reason::DEACTIVATED,
        ],
        [
            "Preempted",
            "PodsReadyTimeout",
            "AdmissionCheck",
            "ClusterQueueStopped",
            "LocalQueueStopped",
            "NodeFailures",
            "Deactivated",
        ]
    );
    let due = Eviction {
        reason: reason::DEACTIVATED,
        cause: "EvictedOnManagerCluster".to_owned(),
        message: String::new(),
    };
    assert_eq!(due.condition_reason(), "DeactivatedDueToEvictedOnManagerCluster");
    assert_eq!(due.event_reason(), "EvictedDueToDeactivatedDueToEvictedOnManagerCluster");
}
