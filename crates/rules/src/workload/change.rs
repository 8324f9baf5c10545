//! Every change of a Workload's status, as a function on the object. Each says whether it changed anything.

use jiff::{SignedDuration, Timestamp};
use types::kueue::{
    Admission, AdmissionCheckState, CheckState, PreemptionGatePosition, ReclaimablePod, RequeueState,
    SchedulingStats, Workload, WorkloadSchedulingStatsEviction, WorkloadStatus,
};

use super::{
    ADMITTED, BLOCKED_ON_PREEMPTION_GATES, DEACTIVATION_TARGET, EVICTED, FINISHED, PODS_READY, PREEMPTED,
    QUOTA_RESERVED, REQUEUED, condition, reason, state,
};
use crate::dispatch::local;

/// What is said of pods before they are ready for the first time.
pub const NOT_STARTED: &str = "Not all pods are ready or succeeded";

fn status(workload: &mut Workload) -> &mut WorkloadStatus {
    workload.status.get_or_insert_default()
}

fn set(
    workload: &mut Workload,
    kind: &str,
    value: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let generation = workload.metadata.generation;
    condition::set(
        &mut status(workload).conditions,
        condition::new(kind, value, reason, message, generation, now),
    )
}

/// Sets quota aside (SM-10). What was said about an earlier eviction becomes history.
pub fn reserve(workload: &mut Workload, admission: Admission, now: Timestamp) {
    let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
    status(workload).admission = Some(admission.into());
    status(workload).resource_requests.clear();
    set(workload, QUOTA_RESERVED, true, "QuotaReserved", &message, now);
    for kind in [EVICTED, PREEMPTED, BLOCKED_ON_PREEMPTION_GATES] {
        if let Some(before) = state::find(workload, kind).filter(|before| before.status == "True") {
            let message = format!("Previously: {}", before.message);
            set(workload, kind, false, "QuotaReserved", &message, now);
        }
    }
}

/// Takes quota back, or says why there is none (SM-13, SM-21, SM-24).
pub fn unreserve(workload: &mut Workload, reason: &str, message: &str, now: Timestamp) -> bool {
    let mut changed = set(workload, QUOTA_RESERVED, false, reason, message, now);
    changed |= status(workload).admission.take().is_some();
    changed | sync_admitted(workload, now)
}

/// Sets the condition `QuotaReserved` to false without touching anything else.
pub fn not_reserved(workload: &mut Workload, reason: &str, message: &str, now: Timestamp) -> bool {
    set(workload, QUOTA_RESERVED, false, reason, message, now)
}

/// Brings the condition `Admitted` in line with quota, checks and placement (SM-11, SM-12). A Workload that was never
/// admitted and is not now has no such condition (SM-5).
pub fn sync_admitted(workload: &mut Workload, now: Timestamp) -> bool {
    let quota = state::has_quota(workload);
    let checked = state::all_checks_ready(workload);
    let placed = !state::has_topology_pending(workload);
    let admitted = state::is_admitted(workload);
    if admitted == (quota && checked && placed) {
        return false;
    }
    let (reason, message) = match (quota, checked) {
        (false, false) => {
            ("NoReservationUnsatisfiedChecks", "The workload has no reservation and not all checks ready")
        }
        (false, true) => ("NoReservation", "The workload has no reservation"),
        (true, false) => ("UnsatisfiedChecks", "The workload has not all checks ready"),
        (true, true) if !placed => {
            ("PendingDelayedTopologyRequests", "There are pending delayed topology requests")
        }
        (true, true) => ("Admitted", "The workload is admitted"),
    };
    if admitted && let Some(since) = state::find(workload, ADMITTED) {
        let ran = seconds(now.duration_since(since.last_transition_time.0));
        let past = &mut status(workload).accumulated_past_execution_time_seconds;
        *past = Some(past.unwrap_or(0).saturating_add(ran));
    }
    set(workload, ADMITTED, !admitted, reason, message, now)
}

fn seconds(duration: SignedDuration) -> i32 {
    duration.as_secs().max(0).try_into().unwrap_or(i32::MAX)
}

/// Why a Workload has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The reason, one of [`reason`].
    pub reason: &'static str,
    /// What is behind it; may be empty.
    pub cause: String,
    /// The same in words.
    pub message: String,
}

impl Eviction {
    /// The reason as its condition has it: a deactivation names its cause.
    pub fn condition_reason(&self) -> String {
        if self.reason == reason::DEACTIVATED && !self.cause.is_empty() {
            format!("{}DueTo{}", self.reason, self.cause)
        } else {
            self.reason.to_owned()
        }
    }

    /// The reason of its event.
    pub fn event_reason(&self) -> String {
        format!("EvictedDueTo{}", self.condition_reason())
    }
}

/// The first phase of an eviction (SM-20): everybody can see that it has to go, and it holds its quota until its pods
/// are gone. True if it is the first eviction for that reason.
pub fn evict(workload: &mut Workload, eviction: &Eviction, now: Timestamp) -> bool {
    let condition_reason = eviction.condition_reason();
    set(workload, EVICTED, true, &condition_reason, &eviction.message, now);
    if condition::is_true(state::conditions(workload), BLOCKED_ON_PREEMPTION_GATES) {
        set(workload, BLOCKED_ON_PREEMPTION_GATES, false, &condition_reason, &eviction.message, now);
    }
    let generation = workload.metadata.generation;
    let status = status(workload);
    local::let_go(status, generation, now);
    status.nominated_cluster_names.clear();
    status.unhealthy_nodes.clear();
    status.admission_checks.iter_mut().for_each(|check| reset(check, now));
    for gate in &mut status.preemption_gates {
        gate.position = PreemptionGatePosition::Closed;
        gate.last_transition_time = Some(condition::time(now));
    }
    count_eviction(status.scheduling_stats.get_or_insert_default(), eviction)
}

fn reset(check: &mut AdmissionCheckState, now: Timestamp) {
    if check.state == CheckState::Pending {
        return;
    }
    let retries = check.retry_count.unwrap_or(0).saturating_add(1);
    *check = AdmissionCheckState {
        name: std::mem::take(&mut check.name),
        state: CheckState::Pending,
        last_transition_time: Some(condition::time(now)),
        message: format!("Reset to Pending after eviction. Previously: {:?}", check.state),
        requeue_after_seconds: check.requeue_after_seconds,
        retry_count: (check.state == CheckState::Retry).then_some(retries),
        pod_set_updates: Vec::new(),
    };
}

fn count_eviction(stats: &mut SchedulingStats, eviction: &Eviction) -> bool {
    let same = |it: &&mut WorkloadSchedulingStatsEviction| {
        it.reason == eviction.reason && it.underlying_cause == eviction.cause
    };
    if let Some(there) = stats.evictions.iter_mut().find(same) {
        there.count = there.count.saturating_add(1);
        return false;
    }
    let (reason, underlying_cause) = (eviction.reason.to_owned(), eviction.cause.clone());
    stats.evictions.push(WorkloadSchedulingStatsEviction { reason, underlying_cause, count: 1 });
    true
}

/// Says that it was evicted for another Workload. This condition alone has no generation (SM-4).
pub fn preempted(workload: &mut Workload, reason: &str, message: &str, now: Timestamp) -> bool {
    let preempted = condition::new(PREEMPTED, true, reason, message, None, now);
    condition::set(&mut status(workload).conditions, preempted)
}

/// The second phase of an eviction, when nothing of it runs any more (SM-21).
pub fn release(workload: &mut Workload, now: Timestamp) -> bool {
    let Some(evicted) = state::evicted(workload).cloned() else { return false };
    let again = matches!(evicted.reason.as_str(), reason::PREEMPTED | reason::NODE_FAILURES);
    let changed = requeued(workload, again, &evicted.reason, &evicted.message, now);
    changed | unreserve(workload, reason::PENDING, &evicted.message, now)
}

/// Says whether it may be tried again.
pub fn requeued(workload: &mut Workload, value: bool, reason: &str, message: &str, now: Timestamp) -> bool {
    set(workload, REQUEUED, value, reason, message, now)
}

/// Says that it has ended.
pub fn finish(workload: &mut Workload, reason: &str, message: &str, now: Timestamp) -> bool {
    !state::is_finished(workload) && set(workload, FINISHED, true, reason, message, now)
}

/// Says that it is to be deactivated (SM-25).
pub fn deactivation_target(workload: &mut Workload, reason: &str, message: &str, now: Timestamp) -> bool {
    set(workload, DEACTIVATION_TARGET, true, reason, message, now)
}

/// Says whether its pods are ready.
pub fn pods_ready(workload: &mut Workload, value: bool, reason: &str, message: &str, now: Timestamp) -> bool {
    set(workload, PODS_READY, value, reason, message, now)
}

/// Says of a Workload of a Job that its pods are not ready yet, if nothing was said of them (JF-63). It is said with what is
/// said first of its quota, so that one write does for both.
pub fn not_started(
    status: &WorkloadStatus,
    generation: Option<i64>,
    now: Timestamp,
) -> Option<WorkloadStatus> {
    let is_said = |kind: &str| condition::find(&status.conditions, kind).is_some();
    if !is_said(QUOTA_RESERVED) || is_said(PODS_READY) || is_said(FINISHED) {
        return None;
    }
    let mut next = status.clone();
    let waits = condition::new(PODS_READY, false, reason::WAIT_FOR_START, NOT_STARTED, generation, now);
    condition::set(&mut next.conditions, waits);
    Some(next)
}

/// Puts it off until `time`, but never to an earlier one (SM-30).
pub fn put_off(workload: &mut Workload, time: Timestamp) -> bool {
    let requeue = status(workload).requeue_state.get_or_insert_with(RequeueState::default);
    let later = requeue.requeue_at.as_ref().is_none_or(|at| at.0 < time);
    if later {
        requeue.requeue_at = Some(condition::time(time));
    }
    later
}

/// Forgets until when it was put off. How often is kept.
pub fn end_of_back_off(workload: &mut Workload) -> bool {
    let requeue = status(workload).requeue_state.as_mut();
    requeue.is_some_and(|requeue| requeue.requeue_at.take().is_some())
}

/// How long a Workload waits before it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    /// The first time.
    pub base_seconds: i32,
    /// At most.
    pub max_seconds: i32,
    /// How often, before it is deactivated; `None` is without end.
    pub limit: Option<i32>,
}

impl Default for BackOff {
    fn default() -> Self {
        BackOff { base_seconds: 60, max_seconds: 3600, limit: None }
    }
}

impl BackOff {
    /// The wait before attempt `count`, counted from 1: twice as long each time (JF-64).
    pub fn wait(&self, count: i32) -> SignedDuration {
        let doublings = u32::try_from(count.saturating_sub(1)).unwrap_or(0);
        let factor = 1_i64.checked_shl(doublings).filter(|factor| *factor > 0).unwrap_or(i64::MAX);
        let seconds = i64::from(self.base_seconds).saturating_mul(factor);
        SignedDuration::from_secs(seconds.min(i64::from(self.max_seconds)))
    }
}

/// Counts one more attempt that failed, and puts it off accordingly (JF-64).
pub fn back_off(workload: &mut Workload, back_off: &BackOff, now: Timestamp) {
    let requeue = status(workload).requeue_state.get_or_insert_with(RequeueState::default);
    let count = requeue.count.unwrap_or(0).saturating_add(1);
    requeue.count = Some(count);
    put_off(workload, now.saturating_add(back_off.wait(count)).unwrap_or(now));
}

/// Pods that need nothing any more, but never more than there are (JF-60).
pub fn reclaim(workload: &mut Workload, mut pods: Vec<ReclaimablePod>) -> bool {
    for pod in &mut pods {
        let of = workload.spec.pod_sets.iter().find(|pod_set| pod_set.name() == pod.name);
        if let Some(pod_set) = of {
            pod.count = pod.count.min(pod_set.count);
        }
    }
    let there = &mut status(workload).reclaimable_pods;
    let changed = *there != pods;
    *there = pods;
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// JF-63: with what is said first of quota, once, and not of what is over.
    #[test]
    fn jf_63_pods_have_not_started_when_quota_is_first_spoken_of() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let said = |conditions: &[&str]| {
            let mut workload = Workload::default();
            for kind in conditions {
                set(&mut workload, kind, true, "Because", "", now);
            }
            let next = not_started(workload.status.as_ref()?, Some(3), now)?;
            let ready = condition::find(&next.conditions, PODS_READY)?;
            Some((
                ready.status.clone(),
                ready.reason.clone(),
                ready.message.clone(),
                ready.observed_generation,
            ))
        };
        let waits = ("False".to_owned(), "WaitForStart".to_owned(), NOT_STARTED.to_owned(), Some(3));
        assert_eq!(said(&[REQUEUED]), None, "nothing is said of its quota");
        assert_eq!(said(&[QUOTA_RESERVED]), Some(waits));
        assert_eq!(said(&[QUOTA_RESERVED, PODS_READY]), None, "it was said before");
        assert_eq!(said(&[QUOTA_RESERVED, FINISHED]), None, "it is over");
    }
}
