//! What steps do to the Workload on the manager: one write for all of them.
//!
//! The write is a merge patch of the status that names the version it was decided on, so it fails if somebody else wrote
//! in between; and it clears the list of nominated clusters whoever wrote that (MK-DISP-15).

use jiff::Timestamp;
use serde_json::{Value, json};
use types::kueue::{AdmissionCheckState, CheckState, DelayedTopologyRequestState, Workload, WorkloadStatus};

use super::{ClusterName, FINISHED, HELD, Step, condition, observed};
use crate::workload::change;

/// The Workload after these steps, as far as they concern it.
pub fn apply(workload: &Workload, check: &str, steps: &[&Step], now: Timestamp) -> Workload {
    let mut next = workload.clone();
    let generation = workload.metadata.generation;
    let status = next.status.get_or_insert_default();
    for step in steps {
        match step {
            Step::Reject(message) => set_check(status, check, CheckState::Rejected, message, now),
            Step::Retry { message, .. } => set_check(status, check, CheckState::Retry, message, now),
            Step::Say(message) => {
                let state =
                    status.admission_checks.iter().find(|state| state.name == check).map(|state| state.state);
                set_check(status, check, state.unwrap_or(CheckState::Pending), message, now);
            }
            Step::Nominate(clusters) => {
                status.nominated_cluster_names = clusters.iter().map(ToString::to_string).collect();
            }
            Step::Assign(cluster) => {
                status.cluster_name = Some(cluster.to_string());
                status.nominated_cluster_names.clear();
                hold(status, cluster, generation, now);
            }
            Step::Hold(cluster) => hold(status, cluster, generation, now),
            Step::Unassign => {
                status.cluster_name = None;
                forget(status);
            }
            Step::Forget => forget(status),
            Step::Ready(cluster) => {
                set_check(status, check, CheckState::Ready, &admitted_on(cluster), now);
                status.cluster_name.get_or_insert_with(|| cluster.to_string());
                status.nominated_cluster_names.clear();
                hold(status, cluster, generation, now);
            }
            Step::Place(pod_sets) => {
                let assignments =
                    status.admission.iter_mut().flat_map(|admission| &mut admission.pod_set_assignments);
                for assignment in assignments.filter(|assignment| pod_sets.contains(&assignment.name)) {
                    assignment.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
                }
            }
            Step::Finish { reason, message } => {
                condition::set(&mut status.conditions, FINISHED, reason, message, generation, now);
            }
            Step::Mirror { .. }
            | Step::Settle(_)
            | Step::Create(_)
            | Step::Start(_)
            | Step::Update(..)
            | Step::Forward(..)
            | Step::Deactivate(..)
            | Step::Delete(..)
            | Step::Prune(_)
            | Step::Look(_)
            | Step::Refuse(..) => {}
        }
    }
    let is_ready = steps.iter().any(|step| matches!(step, Step::Ready(_)));
    if is_ready && workload.spec.active != Some(false) {
        // The last check is often this one: whoever would find that out would write once more.
        change::sync_admitted(&mut next, now);
    }
    next
}

/// A slice that takes the place of another one runs where that one does (JF-83, MK-ELA-02), and nowhere else, whatever
/// becomes of the two from now on.
pub fn follow(next: &mut Workload, before: &Workload, now: Timestamp) {
    let chosen = before.status.as_ref().and_then(|status| status.cluster_name.clone());
    let held = observed::held(before).or_else(|| chosen.as_deref().map(ClusterName::from));
    let generation = next.metadata.generation;
    let status = next.status.get_or_insert_default();
    status.cluster_name = chosen;
    if let Some(cluster) = held {
        hold(status, &cluster, generation, now);
        let identity = observed::held_identity(before).map(str::to_owned);
        *next = identified(std::mem::take(next), |_| identity);
    }
}

/// The patch of `workloads/status` that makes `old` into `new`; `None` if they are the same.
pub fn patch(old: &Workload, new: &Workload) -> Option<Value> {
    let none = WorkloadStatus::default();
    let (was, is) = (old.status.as_ref().unwrap_or(&none), new.status.as_ref().unwrap_or(&none));
    let mut status = serde_json::Map::new();
    if was.conditions != is.conditions {
        status.insert("conditions".to_owned(), json!(is.conditions));
    }
    if was.admission_checks != is.admission_checks {
        status.insert("admissionChecks".to_owned(), json!(is.admission_checks));
    }
    if was.admission != is.admission {
        status.insert("admission".to_owned(), json!(is.admission));
    }
    if was.nominated_cluster_names != is.nominated_cluster_names {
        let names = &is.nominated_cluster_names;
        let value = if names.is_empty() { Value::Null } else { json!(names) };
        status.insert("nominatedClusterNames".to_owned(), value);
    }
    if was.cluster_name != is.cluster_name {
        status.insert("clusterName".to_owned(), json!(is.cluster_name));
    }
    let metadata = json!({"uid": old.metadata.uid, "resourceVersion": old.metadata.resource_version});
    (!status.is_empty()).then(|| json!({"metadata": metadata, "status": status}))
}

/// What a check says when a cluster has admitted the Workload (MK-FLOW-26).
pub fn admitted_on(cluster: &ClusterName) -> String {
    format!("The workload was admitted on \"{cluster}\"")
}

fn set_check(status: &mut WorkloadStatus, check: &str, state: CheckState, message: &str, now: Timestamp) {
    let message = condition::truncated(message);
    let Some(there) = status.admission_checks.iter_mut().find(|there| there.name == check) else {
        status.admission_checks.push(AdmissionCheckState {
            name: check.to_owned(),
            state,
            last_transition_time: Some(condition::time(now)),
            message,
            requeue_after_seconds: None,
            retry_count: None,
            pod_set_updates: Vec::new(),
        });
        return;
    };
    if there.state != state {
        there.last_transition_time = Some(condition::time(now));
    }
    there.state = state;
    there.message = message;
}

/// Nobody chooses any more where a Workload runs, and until the cluster that was chosen holds nothing of it, that is on
/// record, also if the choice was that of a manager that keeps no record (MK-SM-04).
pub(crate) fn let_go(status: &mut WorkloadStatus, generation: Option<i64>, now: Timestamp) {
    let Some(cluster) = status.cluster_name.take() else { return };
    if observed::record(&status.conditions).is_none() {
        hold(status, &ClusterName::from(cluster), generation, now);
    }
}

/// Records the cluster. A record that names it already stays as it is: it may say more.
fn hold(status: &mut WorkloadStatus, cluster: &ClusterName, generation: Option<i64>, now: Timestamp) {
    let known = observed::record(&status.conditions).filter(|record| record.cluster == *cluster);
    let identity = known.and_then(|record| record.identity).map(str::to_owned);
    let message = observed::held_message(cluster, identity.as_deref());
    condition::set(&mut status.conditions, HELD, "Assigned", &message, generation, now);
}

/// The Workload with what tells the cluster of its record from others that may come to have that name. What it says of that
/// already stays, whoever has the name now.
pub fn identified(mut workload: Workload, identity: impl FnOnce(&ClusterName) -> Option<String>) -> Workload {
    let Some(cluster) = observed::held(&workload) else { return workload };
    if observed::held_identity(&workload).is_some() {
        return workload;
    }
    let message = observed::held_message(&cluster, identity(&cluster).as_deref());
    let conditions = workload.status.iter_mut().flat_map(|status| &mut status.conditions);
    if let Some(record) = conditions.into_iter().find(|condition| condition.type_ == HELD) {
        record.message = message;
    }
    workload
}

fn forget(status: &mut WorkloadStatus) {
    status.conditions.retain(|condition| condition.type_ != HELD);
}
