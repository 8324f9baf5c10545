//! What a Workload is, read from its conditions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use types::kueue::{AdmissionCheckState, CheckState, DelayedTopologyRequestState, Workload};

use super::{
    ADMISSION_GATED_BY, ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED, WAITING_FOR_REPLACEMENT_PODS, condition,
    reason,
};

/// Where a Workload stands (SM-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits.
    Pending,
    /// It holds quota, and waits for its checks.
    QuotaReserved,
    /// It may run.
    Admitted,
    /// It has ended.
    Finished,
}

/// Where a Workload stands (SM-1).
pub fn state(workload: &Workload) -> State {
    if is_finished(workload) {
        State::Finished
    } else if is_admitted(workload) {
        State::Admitted
    } else if has_quota(workload) {
        State::QuotaReserved
    } else {
        State::Pending
    }
}

/// Its conditions.
pub fn conditions(workload: &Workload) -> &[Condition] {
    workload.status.as_ref().map_or(&[], |status| &status.conditions)
}

/// The condition of this type.
pub fn find<'a>(workload: &'a Workload, kind: &str) -> Option<&'a Condition> {
    condition::find(conditions(workload), kind)
}

/// What its checks say.
pub fn checks(workload: &Workload) -> &[AdmissionCheckState] {
    workload.status.as_ref().map_or(&[], |status| &status.admission_checks)
}

/// Whether it may run if it gets in.
pub fn is_active(workload: &Workload) -> bool {
    workload.spec.active.unwrap_or(true)
}

/// Whether it has ended.
pub fn is_finished(workload: &Workload) -> bool {
    condition::is_true(conditions(workload), FINISHED)
}

/// Whether it may run.
pub fn is_admitted(workload: &Workload) -> bool {
    condition::is_true(conditions(workload), ADMITTED)
}

/// Whether quota is set aside for it.
pub fn has_quota(workload: &Workload) -> bool {
    condition::is_true(conditions(workload), QUOTA_RESERVED)
}

/// Whether it is on its way out, or is out and not in again.
pub fn is_evicted(workload: &Workload) -> bool {
    condition::is_true(conditions(workload), EVICTED)
}

/// Why it is on its way out.
pub fn evicted(workload: &Workload) -> Option<&Condition> {
    find(workload, EVICTED).filter(|evicted| evicted.status == "True")
}

/// Whether its Job asked for it to be kept back.
pub fn is_on_hold(workload: &Workload) -> bool {
    find(workload, QUOTA_RESERVED)
        .is_some_and(|reserved| reserved.status == "False" && reserved.reason == reason::ON_HOLD)
}

/// Who keeps it from being admitted, if anybody does.
pub fn admission_gates(workload: &Workload) -> Option<&str> {
    let gates = workload.metadata.annotations.as_ref()?.get(ADMISSION_GATED_BY)?;
    Some(gates.as_str()).filter(|gates| !gates.is_empty())
}

/// Whether it may stand in a queue (SM-2).
pub fn is_admissible(workload: &Workload) -> bool {
    admission_gates(workload).is_none()
        && !is_finished(workload)
        && is_active(workload)
        && !has_quota(workload)
        && !is_on_hold(workload)
        && !condition::is_true(conditions(workload), WAITING_FOR_REPLACEMENT_PODS)
}

/// Whether all the checks that it has are passed.
pub fn all_checks_ready(workload: &Workload) -> bool {
    checks(workload).iter().all(|check| check.state == CheckState::Ready)
}

/// The checks in this state.
pub fn checks_in(workload: &Workload, state: CheckState) -> Vec<&AdmissionCheckState> {
    checks(workload).iter().filter(|check| check.state == state).collect()
}

/// Whether it was decided where its pods go.
pub fn has_placement(workload: &Workload) -> bool {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let mut assigned = admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
    assigned.any(|assigned| assigned.topology_assignment.is_some())
}

/// Whether a placement of its pods is still to come.
pub fn has_topology_pending(workload: &Workload) -> bool {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    admission.into_iter().flat_map(|admission| &admission.pod_set_assignments).any(|assigned| {
        assigned.topology_assignment.is_none()
            && assigned.delayed_topology_request == Some(DelayedTopologyRequestState::Pending)
    })
}

/// The name of the class that its priority comes from, or nothing.
pub fn priority_class(workload: &Workload) -> &str {
    workload.spec.priority_class_ref.as_ref().map_or("", |class| &class.name)
}

/// The ClusterQueue that it holds quota in.
pub fn cluster_queue(workload: &Workload) -> Option<&str> {
    workload.status.as_ref()?.admission.as_ref().map(|admission| admission.cluster_queue.as_str())
}

/// Its queue, as it names it.
pub fn queue_name(workload: &Workload) -> &str {
    workload.spec.queue_name.as_deref().unwrap_or_default()
}
