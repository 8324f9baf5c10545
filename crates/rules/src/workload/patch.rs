//! What of a Workload is written by server-side apply, and under whose name (SM-14).

use serde_json::{Map, Value, json};
use types::kueue::{API_VERSION, ReclaimablePod, Workload, WorkloadStatus};

use super::{
    ADMITTED, BLOCKED_ON_PREEMPTION_GATES, DEACTIVATION_TARGET, EVICTED, FINISHED, PODS_READY, PREEMPTED,
    QUOTA_RESERVED, REQUEUED, condition,
};

/// Under this name quota, checks and all that belongs to admission is written.
pub const ADMISSION_MANAGER: &str = "kueue-admission";
/// Under this name a Job's pods are said to be ready.
pub const PODS_READY_MANAGER: &str = "kueue-job-controller-PodsReady";
/// Under this name pods are said to need nothing any more.
pub const RECLAIMABLE_PODS_MANAGER: &str = "kueue-reclaimable-pods";

/// Under this name it is said that pods of a group are to be replaced.
pub const REPLACEMENTS_MANAGER: &str = "kueue-pod-controller";

/// The conditions that belong to admission: Kueue's nine, and the record of dispatch, which whoever writes the others
/// must not drop.
pub const ADMISSION_CONDITIONS: [&str; 10] = [
    QUOTA_RESERVED,
    BLOCKED_ON_PREEMPTION_GATES,
    EVICTED,
    ADMITTED,
    PREEMPTED,
    REQUEUED,
    DEACTIVATION_TARGET,
    FINISHED,
    PODS_READY,
    crate::dispatch::HELD,
];

/// Whether a write that comes too late is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It is, if the object changed in any way since it was read.
    Strict,
    /// It is not, if it is still the same object: its writer knows all that counts.
    Loose,
}

/// All that belongs to admission.
pub fn admission(workload: &Workload, status: &WorkloadStatus, manner: Manner) -> Value {
    let mut applied = WorkloadStatus {
        admission: status.admission.clone(),
        requeue_state: status
            .requeue_state
            .clone()
            .filter(|requeue| requeue.count.is_some() || requeue.requeue_at.is_some()),
        admission_checks: status.admission_checks.clone(),
        accumulated_past_execution_time_seconds: status.accumulated_past_execution_time_seconds,
        scheduling_stats: status.scheduling_stats.clone(),
        nominated_cluster_names: status.nominated_cluster_names.clone(),
        cluster_name: status.cluster_name.clone(),
        unhealthy_nodes: status.unhealthy_nodes.clone(),
        preemption_gates: status.preemption_gates.clone(),
        ..WorkloadStatus::default()
    };
    if status.admission.is_none() {
        applied.resource_requests.clone_from(&status.resource_requests);
    }
    let conditions = ADMISSION_CONDITIONS.iter().filter_map(|kind| condition::find(&status.conditions, kind));
    applied.conditions = conditions.cloned().collect();
    object(workload, manner, value(&applied))
}

/// One condition alone.
pub fn one_condition(workload: &Workload, status: &WorkloadStatus, kind: &str, manner: Manner) -> Value {
    let conditions = condition::find(&status.conditions, kind).cloned().into_iter().collect();
    object(workload, manner, value(&WorkloadStatus { conditions, ..WorkloadStatus::default() }))
}

/// The pods that need nothing any more.
pub fn reclaimable_pods(workload: &Workload, pods: &[ReclaimablePod], manner: Manner) -> Value {
    let reclaimable_pods = pods.to_vec();
    object(workload, manner, value(&WorkloadStatus { reclaimable_pods, ..WorkloadStatus::default() }))
}

fn value(status: &WorkloadStatus) -> Value {
    serde_json::to_value(status).expect("a status has string keys and finite numbers")
}

fn object(workload: &Workload, manner: Manner, status: Value) -> Value {
    let metadata = &workload.metadata;
    let mut named = Map::new();
    let mut name = |key: &str, value: &Option<String>| {
        if let Some(value) = value {
            named.insert(key.to_owned(), value.as_str().into());
        }
    };
    name("name", &metadata.name);
    name("namespace", &metadata.namespace);
    name("uid", &metadata.uid);
    if manner == Manner::Strict {
        name("resourceVersion", &metadata.resource_version);
    }
    json!({ "apiVersion": API_VERSION, "kind": "Workload", "metadata": named, "status": status })
}

/// What is still there although it was taken away, because somebody else had written it, too: as a merge patch of the
/// status that takes it away from all. `None` if nothing is. What others wrote since `of` was read is theirs. An eviction
/// takes back to whom a Workload was offered and who got it, whoever wrote that (MK-DISP-14).
pub fn left_over(of: &Workload, wanted: &WorkloadStatus, got: &Workload) -> Option<Value> {
    let none = WorkloadStatus::default();
    let before = of.status.as_ref().unwrap_or(&none);
    let got = got.status.as_ref().unwrap_or(&none);
    let is_taken_away = |kind: &str| {
        ADMISSION_CONDITIONS.contains(&kind)
            && condition::find(&before.conditions, kind).is_some()
            && condition::find(&wanted.conditions, kind).is_none()
    };
    let stays = got.conditions.iter().any(|it| is_taken_away(&it.type_));
    let mut left = Map::new();
    if stays {
        let rest: Vec<_> = got.conditions.iter().filter(|it| !is_taken_away(&it.type_)).collect();
        left.insert("conditions".to_owned(), json!(rest));
    }
    if before.requeue_state.is_some() && wanted.requeue_state.is_none() && got.requeue_state.is_some() {
        left.insert("requeueState".to_owned(), Value::Null);
    }
    let is_evicted = condition::is_true(&wanted.conditions, EVICTED);
    if is_evicted && wanted.nominated_cluster_names.is_empty() && !got.nominated_cluster_names.is_empty() {
        left.insert("nominatedClusterNames".to_owned(), Value::Null);
    }
    if is_evicted && wanted.cluster_name.is_none() && got.cluster_name.is_some() {
        left.insert("clusterName".to_owned(), Value::Null);
    }
    (!left.is_empty()).then_some(Value::Object(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(conditions: &[&str]) -> Workload {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|kind| {
                json!({
                    "type": kind, "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "w"}, "spec": {"podSets": []}, "status": {"conditions": conditions},
        }))
        .expect("a Workload")
    }

    /// G-19: what was taken away goes, whoever wrote it; what somebody wrote meanwhile, or that is none of ours, stays.
    #[test]
    fn g_19_only_what_was_taken_away_is_left_over() {
        let wanted = with(&[QUOTA_RESERVED]).status.expect("a status");
        let left = |of: &[&str], got: &[&str]| {
            left_over(&with(of), &wanted, &with(got)).map(|left| {
                let conditions = left["conditions"].as_array().expect("conditions").iter();
                conditions.map(|it| it["type"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
            })
        };
        assert_eq!(left(&[QUOTA_RESERVED], &[QUOTA_RESERVED]), None);
        assert_eq!(left(&[QUOTA_RESERVED], &[QUOTA_RESERVED, PODS_READY]), None);
        assert_eq!(
            left(&[QUOTA_RESERVED, EVICTED], &[QUOTA_RESERVED, EVICTED, PODS_READY, "ferry.dev/Held"]),
            Some(vec![QUOTA_RESERVED.to_owned(), PODS_READY.to_owned(), "ferry.dev/Held".to_owned()])
        );
    }
}
