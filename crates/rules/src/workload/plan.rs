//! What a Workload's controller does next. One step at a time: what it writes comes back as an event, and the next
//! decision sees it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use types::kueue::{
    AdmissionCheckState, CheckState, ClusterQueue, LocalQueue, StopPolicy, Workload, WorkloadStatus,
};

use super::{
    ADMITTED, DEACTIVATION_TARGET, FINISHED, ORIGIN_LABEL, PODS_READY, QUOTA_RESERVED, REQUEUED,
    change::{self, BackOff, Eviction},
    checks, condition, reason, state,
};
use crate::quota::wire::JOB_UID_LABEL;

/// Settings that hold for all Workloads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// How long pods may take to be ready; `None` does not look at them.
    pub pods_ready: Option<PodsReady>,
    /// How long a finished Workload is kept; `None` is for ever.
    pub retention: Option<SignedDuration>,
}

/// How long pods may take to be ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodsReady {
    /// From being admitted.
    pub timeout: SignedDuration,
    /// From having been ready last; `None` is for ever.
    pub recovery_timeout: Option<SignedDuration>,
    /// How long to wait before the next attempt.
    pub back_off: BackOff,
}

/// Everything that one decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The Workload.
    pub workload: &'a Workload,
    /// The LocalQueue that it names.
    pub local_queue: Option<&'a LocalQueue>,
    /// The ClusterQueue that this one leads to.
    pub cluster_queue: Option<&'a ClusterQueue>,
    /// Whether that one admits.
    pub active: bool,
    /// Nodes that its pods were placed on and cannot run on any more.
    pub lost_hosts: &'a [String],
}

/// What to do, what to tell, and when to look again.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What to do.
    pub step: Step,
    /// What to tell about it, once it is done.
    pub events: Vec<Event>,
    /// When to look again, even if nothing happens.
    pub again_at: Option<Timestamp>,
}

/// What to do with a Workload.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Write its status.
    Status {
        /// What it will be.
        next: Box<WorkloadStatus>,
        /// What that means.
        change: Change,
    },
    /// Write the list of its checks.
    Checks(Vec<AdmissionCheckState>),
    /// Say in its spec that it may not run.
    Deactivate,
    /// Let go of it: nobody is left for whom it would be kept.
    Finalize,
    /// Delete it.
    Delete,
}

/// What a new status means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It ended, for this reason.
    Finished(&'static str),
    /// It is put off by its checks.
    PutOff,
    /// It need not be put off any longer.
    BackOffOver,
    /// It may be tried again, for this reason.
    Requeued(&'static str),
    /// It may not be admitted before somebody lets it.
    Gated,
    /// It may be admitted.
    GateCleared,
    /// It may not be admitted as its queues are.
    Inadmissible,
    /// It may run.
    Admitted,
    /// It may not run any more, since its checks changed.
    NotAdmitted,
    /// It has to go.
    Evicted {
        /// Why.
        eviction: Eviction,
        /// Whether for the first time for that reason.
        first: bool,
    },
    /// It is about to be deactivated, for this reason.
    DeactivationTarget(&'static str),
    /// It forgot how often it was tried.
    RequeueStateCleared,
    /// It gave back its quota.
    Released,
}

/// Something to tell about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether somebody should worry.
    pub warning: bool,
    /// The reason.
    pub reason: String,
    /// In words.
    pub message: String,
}

impl Event {
    /// An event about something that is as it should be.
    pub fn normal(reason: impl Into<String>, message: &str) -> Event {
        Event { warning: false, reason: reason.into(), message: condition::event_message(message) }
    }

    /// An event that somebody should look at.
    pub fn warning(reason: impl Into<String>, message: &str) -> Event {
        Event { warning: true, reason: reason.into(), message: condition::event_message(message) }
    }
}

impl Plan {
    fn wait() -> Plan {
        Plan { step: Step::Wait, events: Vec::new(), again_at: None }
    }

    fn until(again_at: Timestamp) -> Plan {
        Plan { again_at: Some(again_at), ..Plan::wait() }
    }

    fn step(step: Step) -> Plan {
        Plan { step, ..Plan::wait() }
    }

    fn status(next: Workload, change: Change) -> Plan {
        Plan::step(Step::Status { next: Box::new(next.status.unwrap_or_default()), change })
    }

    fn telling(mut self, event: Event) -> Plan {
        self.events.push(event);
        self
    }
}

/// How long a new Workload is left to the scheduler alone. One that is given quota at once gets its list of checks
/// together with it, in one write instead of two.
const FIRST_CHANCE: SignedDuration = SignedDuration::from_secs(2);

/// Decides what to do with a Workload, whoever may or may not be behind it.
pub fn decide(seen: &Seen<'_>, settings: &Settings, now: Timestamp) -> Plan {
    let workload = seen.workload;
    if is_orphan(workload) {
        let plan = finalize_orphan(workload, now);
        if plan.step != Step::Wait || workload.metadata.deletion_timestamp.is_some() {
            return plan;
        }
    }
    if let Some(finished) = state::find(workload, FINISHED).filter(|finished| finished.status == "True") {
        return retain(finished.last_transition_time.0, settings, now);
    }
    if let Some(until) = checks::put_off_until(workload, now) {
        return change(workload, Change::PutOff, |next| change::put_off(next, until)).unwrap_or(Plan::wait());
    }
    if let Some(plan) = unaccounted(workload, now) {
        return plan;
    }
    let first =
        if state::is_active(workload) { activated(workload, now) } else { deactivated(workload, now) };
    if let Some(plan) = first {
        return plan;
    }
    queues(seen, now)
        .or_else(|| admission(seen, now))
        .or_else(|| while_reserved(seen, settings, now))
        .unwrap_or_else(|| Plan { again_at: first_chance(seen, now), ..Plan::wait() })
}

/// A plan with a change of the status, if it changes anything.
fn change(workload: &Workload, change: Change, apply: impl FnOnce(&mut Workload) -> bool) -> Option<Plan> {
    let mut next = workload.clone();
    apply(&mut next).then(|| Plan::status(next, change))
}

/// Whether there was a Job and is none any more (SM-40). A Workload that never had one is none of our business: it may
/// be a copy of a manager's, whose Job comes later.
fn is_orphan(workload: &Workload) -> bool {
    let metadata = &workload.metadata;
    let labelled = metadata.labels.iter().flatten().any(|(key, uid)| key == JOB_UID_LABEL && !uid.is_empty());
    metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
        && (metadata.deletion_timestamp.is_some() || labelled)
}

/// Ends a Workload whose Job is gone, and lets go of it (SM-40, JF-41).
pub fn finalize_orphan(workload: &Workload, now: Timestamp) -> Plan {
    let message = "The workload's owner no longer exists";
    let finish = |next: &mut Workload| change::finish(next, "OwnerNotFound", message, now);
    if workload.metadata.deletion_timestamp.is_none()
        && let Some(plan) = change(workload, Change::Finished("OwnerNotFound"), finish)
    {
        return plan;
    }
    let held = workload.metadata.finalizers.iter().flatten().any(|it| it == types::kueue::RESOURCE_IN_USE);
    Plan::step(if held { Step::Finalize } else { Step::Wait })
}

/// Finished Workloads are deleted some time later, if at all (JF-67).
fn retain(finished: Timestamp, settings: &Settings, now: Timestamp) -> Plan {
    let Some(retention) = settings.retention else { return Plan::wait() };
    match finished.checked_add(retention) {
        Ok(end) if end <= now => Plan::step(Step::Delete)
            .telling(Event::normal("Deleted", "Deleted finished workload due to elapsed retention")),
        Ok(end) => Plan::until(end),
        Err(_) => Plan::wait(),
    }
}

/// Devices that are claimed are not counted, so that nobody who claims one is admitted (QM-28).
fn unaccounted(workload: &Workload, now: Timestamp) -> Option<Plan> {
    let specs = workload.spec.pod_sets.iter().filter_map(|pod_set| pod_set.template.spec.as_ref());
    let claims = specs.flat_map(|spec| spec.resource_claims.iter().flatten()).next().is_some();
    if !claims || state::state(workload) != state::State::Pending || !state::is_active(workload) {
        return None;
    }
    let why = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled";
    change(workload, Change::Inadmissible, |next| {
        let changed = change::unreserve(next, reason::INADMISSIBLE, why, now);
        changed | change::requeued(next, false, reason::INADMISSIBLE, why, now)
    })
    .or_else(|| Some(Plan::wait()))
}

/// What there is to do about an active Workload, whatever its queues are.
fn activated(workload: &Workload, now: Timestamp) -> Option<Plan> {
    if condition::is_true(state::conditions(workload), DEACTIVATION_TARGET) {
        return Some(Plan::step(Step::Deactivate));
    }
    let requeue_at =
        workload.status.as_ref().and_then(|status| status.requeue_state.as_ref()?.requeue_at.as_ref());
    if let Some(until) = requeue_at {
        if until.0 > now {
            return Some(Plan::until(until.0));
        }
        if state::state(workload) == state::State::Pending {
            // Both at once: the time is over, and it may be tried again (SM-31).
            return change(workload, Change::BackOffOver, |next| {
                back_off_over(next, now);
                change::end_of_back_off(next)
            });
        }
    }
    let requeued = state::find(workload, REQUEUED).filter(|requeued| requeued.status == "False")?;
    if requeued.reason.starts_with(reason::DEACTIVATED) {
        return change(workload, Change::Requeued("Reactivated"), |next| {
            change::requeued(next, true, "Reactivated", "The workload was reactivated", now)
        });
    }
    change(workload, Change::BackOffOver, |next| {
        let over = back_off_over(next, now);
        if over {
            change::end_of_back_off(next);
        }
        over
    })
}

fn back_off_over(next: &mut Workload, now: Timestamp) -> bool {
    let waits = state::find(next, REQUEUED).is_some_and(|requeued| {
        requeued.status == "False"
            && matches!(requeued.reason.as_str(), reason::PODS_READY_TIMEOUT | reason::ADMISSION_CHECK)
    });
    waits && change::requeued(next, true, "BackoffFinished", "The workload backoff was finished", now)
}

/// What there is to do about a Workload that was deactivated (SM-25, SM-26).
fn deactivated(workload: &Workload, now: Timestamp) -> Option<Plan> {
    let target = state::find(workload, DEACTIVATION_TARGET);
    let forget = |next: &mut Workload| {
        let Some(status) = next.status.as_mut() else { return false };
        let target = condition::remove(&mut status.conditions, DEACTIVATION_TARGET);
        status.requeue_state.take().is_some() || target
    };
    if state::is_evicted(workload) {
        let pending = workload.status.as_ref().is_some_and(|status| status.requeue_state.is_some());
        return pending.then(|| change(workload, Change::RequeueStateCleared, forget))?;
    }
    let message = "The workload is deactivated".to_owned();
    let eviction = Eviction {
        reason: reason::DEACTIVATED,
        cause: target.map(|target| target.reason.clone()).unwrap_or_default(),
        message: target.map_or(message.clone(), |target| format!("{message} due to {}", target.message)),
    };
    let mut next = workload.clone();
    forget(&mut next);
    Some(evict(next, eviction, now))
}

/// The plan of an eviction. One that holds nothing is not worth an event.
fn evict(mut next: Workload, eviction: Eviction, now: Timestamp) -> Plan {
    let first = change::evict(&mut next, &eviction, now);
    let held = state::cluster_queue(&next).is_some();
    let event = Event::normal(eviction.event_reason(), &eviction.message);
    let plan = Plan::status(next, Change::Evicted { eviction, first });
    if held { plan.telling(event) } else { plan }
}

/// What there is to do because of the queues, whether it holds quota or not.
fn queues(seen: &Seen<'_>, now: Timestamp) -> Option<Plan> {
    let workload = seen.workload;
    let put_back = |why: &str| {
        state::find(workload, REQUEUED)
            .is_some_and(|requeued| requeued.status == "False" && requeued.reason == why)
    };
    let again = |reason: &'static str, message: &str| {
        change(workload, Change::Requeued(reason), |next| change::requeued(next, true, reason, message, now))
    };
    let open = seen.local_queue.is_some_and(|queue| stop_policy(queue.spec.stop_policy) == StopPolicy::None);
    if open && put_back(reason::LOCAL_QUEUE_STOPPED) {
        return again("LocalQueueRestarted", "The LocalQueue was restarted after being stopped");
    }
    if let Some(plan) = gates(workload, now) {
        return Some(plan);
    }
    let cluster_queue = seen.cluster_queue.filter(|_| open)?;
    let open = stop_policy(cluster_queue.spec.stop_policy) == StopPolicy::None;
    if open && put_back(reason::CLUSTER_QUEUE_STOPPED) {
        return again("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped");
    }
    if first_chance(seen, now).is_some() {
        return None;
    }
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_deref());
    let required = checks::required(cluster_queue, admission);
    checks::synced(state::checks(workload), &required, now).map(|next| Plan::step(Step::Checks(next)))
}

/// Until when nothing is written about a Workload that is new and stands in a queue that admits.
fn first_chance(seen: &Seen<'_>, now: Timestamp) -> Option<Timestamp> {
    let workload = seen.workload;
    let untouched = state::find(workload, QUOTA_RESERVED).is_none() && state::checks(workload).is_empty();
    let waits = untouched && seen.active && blocker(seen).is_none() && state::is_admissible(workload);
    let has_checks = seen.cluster_queue.is_some_and(|queue| !checks::required(queue, None).is_empty());
    let created = workload.metadata.creation_timestamp.as_ref()?.0;
    let end = created.checked_add(FIRST_CHANCE).ok()?;
    (waits && has_checks && now < end).then_some(end)
}

fn stop_policy(given: Option<StopPolicy>) -> StopPolicy {
    given.unwrap_or_default()
}

/// What there is to do because somebody has to let it, or just did (SM-27).
fn gates(workload: &Workload, now: Timestamp) -> Option<Plan> {
    let said = state::find(workload, QUOTA_RESERVED).is_some_and(|it| it.reason == reason::ADMISSION_GATED);
    match state::admission_gates(workload) {
        None if said => {
            let message = "AdmissionGatedBy cleared, waiting for quota reservation";
            let told = "Admission gate cleared, workload is now admissible";
            change(workload, Change::GateCleared, |next| {
                change::unreserve(next, reason::PENDING, message, now)
            })
            .map(|plan| plan.telling(Event::normal("AdmissionGateCleared", told)))
        }
        Some(gates) if !said => {
            let message = format!("Admission is gated by: {gates}");
            let told = format!("Workload admission is gated by: {gates}");
            change(workload, Change::Gated, |next| {
                change::unreserve(next, reason::ADMISSION_GATED, &message, now)
            })
            .map(|plan| plan.telling(Event::normal("AdmissionGated", &told)))
        }
        _ => None,
    }
}

/// Why no queue takes it, if none does.
fn blocker(seen: &Seen<'_>) -> Option<String> {
    let name = state::queue_name(seen.workload);
    let Some(local_queue) = seen.local_queue else {
        return Some(format!("LocalQueue {name} doesn't exist"));
    };
    if stop_policy(local_queue.spec.stop_policy) != StopPolicy::None {
        return Some(format!("LocalQueue {name} is inactive"));
    }
    let cluster_queue = &local_queue.spec.cluster_queue;
    if seen.cluster_queue.is_none() {
        return Some(format!("ClusterQueue {cluster_queue} doesn't exist"));
    }
    (!seen.active).then(|| format!("ClusterQueue {cluster_queue} is inactive"))
}

/// Brings the conditions in line that say whether it may run.
fn admission(seen: &Seen<'_>, now: Timestamp) -> Option<Plan> {
    let workload = seen.workload;
    if state::is_admitted(workload) {
        return None;
    }
    let mut next = workload.clone();
    let mut inadmissible = false;
    if !state::has_quota(workload)
        && let Some(message) = blocker(seen)
    {
        inadmissible = change::not_reserved(&mut next, reason::INADMISSIBLE, &message, now);
    }
    let synced = change::sync_admitted(&mut next, now);
    if !inadmissible && !synced {
        return None;
    }
    if !state::is_admitted(&next) {
        let change = if inadmissible { Change::Inadmissible } else { Change::NotAdmitted };
        return Some(Plan::status(next, change));
    }
    let event = admitted(&next, now);
    Some(Plan::status(next, Change::Admitted).telling(event))
}

/// What is told of a Workload that was just admitted.
pub fn admitted(workload: &Workload, now: Timestamp) -> Event {
    let since = state::find(workload, QUOTA_RESERVED).map_or(now, |reserved| reserved.last_transition_time.0);
    let waited = whole_seconds(since, now);
    let cluster_queue = state::cluster_queue(workload).unwrap_or_default();
    let told = format!("Admitted by ClusterQueue {cluster_queue}, wait time since reservation was {waited}s");
    Event::normal("Admitted", &told)
}

/// How many seconds something took, rounded as Kueue tells it.
pub fn whole_seconds(since: Timestamp, now: Timestamp) -> String {
    format!("{:.0}", now.duration_since(since).as_secs_f64().max(0.0))
}

/// What there is to do about a Workload that holds quota.
fn while_reserved(seen: &Seen<'_>, settings: &Settings, now: Timestamp) -> Option<Plan> {
    let workload = seen.workload;
    if !state::has_quota(workload) {
        return None;
    }
    // Quota is given back by whoever stops the Job. Where there is none, nothing runs (SM-22).
    if state::is_evicted(workload) && is_bare(workload) {
        return change(workload, Change::Released, |next| change::release(next, now));
    }
    failed_checks(workload, now)
        .or_else(|| lost_hosts(seen, now))
        .or_else(|| stopped_local_queue(seen, now))
        .or_else(|| stopped_cluster_queue(seen, now))
        .or_else(|| time_limits(workload, settings, now))
}

/// Whether nobody but ourselves looks after it: it has no Job, and is no copy that a manager looks after.
fn is_bare(workload: &Workload) -> bool {
    let copied = workload.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(ORIGIN_LABEL));
    workload.metadata.owner_references.as_ref().is_none_or(Vec::is_empty) && !copied
}

/// Checks that do not let it in evict it (SM-23) or end it for good (SM-25).
fn failed_checks(workload: &Workload, now: Timestamp) -> Option<Plan> {
    if state::is_evicted(workload) {
        return None;
    }
    let rejected = state::checks_in(workload, CheckState::Rejected);
    if !rejected.is_empty() {
        let message = checks::message(&rejected, CheckState::Rejected);
        let told = Event::warning("AdmissionCheckRejected", &format!("Deactivated due to {message}"));
        let target = Change::DeactivationTarget(reason::ADMISSION_CHECK);
        return change(workload, target, |next| {
            change::deactivation_target(next, reason::ADMISSION_CHECK, &message, now)
        })
        .map(|plan| plan.telling(told));
    }
    let retry = state::checks_in(workload, CheckState::Retry);
    (!retry.is_empty()).then(|| {
        let message = format!("Evicted due to {}", checks::message(&retry, CheckState::Retry));
        let eviction = Eviction { reason: reason::ADMISSION_CHECK, cause: String::new(), message };
        evict(workload.clone(), eviction, now)
    })
}

/// A Workload some of whose pods have no place any more is placed anew as a whole (TA-7).
fn lost_hosts(seen: &Seen<'_>, now: Timestamp) -> Option<Plan> {
    let runs = state::is_admitted(seen.workload) && !state::is_evicted(seen.workload);
    (runs && !seen.lost_hosts.is_empty()).then(|| {
        let hosts = seen.lost_hosts.join(",");
        let message =
            format!("Workload was evicted as there was no replacement for unhealthy node(s): {hosts}");
        let eviction = Eviction { reason: reason::NODE_FAILURES, cause: String::new(), message };
        evict(seen.workload.clone(), eviction, now)
    })
}

/// A Workload that runs is drained, one that does not yet is put back (SM-24).
fn stopped_local_queue(seen: &Seen<'_>, now: Timestamp) -> Option<Plan> {
    let name = state::queue_name(seen.workload);
    let gone = seen.local_queue.is_none_or(|queue| queue.metadata.deletion_timestamp.is_some());
    let policy = stop_policy(seen.local_queue.and_then(|queue| queue.spec.stop_policy));
    stopped(seen.workload, gone, policy, reason::LOCAL_QUEUE_STOPPED, "LocalQueue", name, now)
}

fn stopped_cluster_queue(seen: &Seen<'_>, now: Timestamp) -> Option<Plan> {
    let name = seen.local_queue.map_or("", |queue| &queue.spec.cluster_queue);
    let gone = seen.cluster_queue.is_none_or(|queue| queue.metadata.deletion_timestamp.is_some());
    let policy = stop_policy(seen.cluster_queue.and_then(|queue| queue.spec.stop_policy));
    stopped(seen.workload, gone, policy, reason::CLUSTER_QUEUE_STOPPED, "ClusterQueue", name, now)
}

fn stopped(
    workload: &Workload,
    gone: bool,
    policy: StopPolicy,
    reason: &'static str,
    kind: &str,
    name: &str,
    now: Timestamp,
) -> Option<Plan> {
    if state::is_admitted(workload) {
        let drain = policy == StopPolicy::HoldAndDrain && !state::is_evicted(workload);
        let message = format!("The {kind} is stopped");
        let eviction = Eviction { reason, cause: String::new(), message };
        return drain.then(|| evict(workload.clone(), eviction, now));
    }
    let why = if gone {
        format!("{kind} {name} is terminating or missing")
    } else if policy == StopPolicy::None {
        return None;
    } else {
        format!("{kind} {name} is stopped")
    };
    change(workload, Change::Inadmissible, |next| change::unreserve(next, reason::INADMISSIBLE, &why, now))
}

/// Pods that are not ready in time (JF-64), and Workloads that run for too long (JF-66).
fn time_limits(workload: &Workload, settings: &Settings, now: Timestamp) -> Option<Plan> {
    let mut again_at = None;
    let mut sooner = |time: Timestamp| again_at = Some(again_at.map_or(time, |at: Timestamp| at.min(time)));
    if let Some((end, cause)) = settings.pods_ready.as_ref().and_then(|limit| ready_until(workload, limit)) {
        if end <= now {
            return Some(not_ready_in_time(workload, settings, cause, now));
        }
        sooner(end);
    }
    if let Some((end, limit)) = running_until(workload) {
        if end <= now && !condition::is_true(state::conditions(workload), DEACTIVATION_TARGET) {
            return ran_too_long(workload, limit, now);
        }
        sooner(end);
    }
    again_at.filter(|at| *at > now).map(Plan::until)
}

/// Until when its pods have to be ready, and what happened to them.
fn ready_until(workload: &Workload, limit: &PodsReady) -> Option<(Timestamp, &'static str)> {
    if !state::is_active(workload) || state::is_evicted(workload) || !state::is_admitted(workload) {
        return None;
    }
    let admitted = state::find(workload, ADMITTED)?.last_transition_time.0;
    let (since, timeout, cause) = match state::find(workload, PODS_READY) {
        Some(ready) if ready.status == "True" => return None,
        Some(ready) if ready.reason == reason::WAIT_FOR_RECOVERY => {
            (ready.last_transition_time.0, limit.recovery_timeout?, reason::WAIT_FOR_RECOVERY)
        }
        _ => (admitted, limit.timeout, reason::WAIT_FOR_START),
    };
    Some((since.checked_add(timeout).ok()?, cause))
}

fn not_ready_in_time(workload: &Workload, settings: &Settings, cause: &str, now: Timestamp) -> Plan {
    let back_off = settings.pods_ready.as_ref().map(|limit| limit.back_off).unwrap_or_default();
    let requeue = workload.status.as_ref().and_then(|status| status.requeue_state.as_ref());
    let count = requeue.and_then(|requeue| requeue.count).unwrap_or(0);
    if back_off.limit.is_some_and(|limit| count.saturating_add(1) > limit) {
        let why = "exceeding the maximum number of re-queuing retries";
        let reason = reason::REQUEUING_LIMIT_EXCEEDED;
        return change(workload, Change::DeactivationTarget(reason), |next| {
            change::deactivation_target(next, reason, why, now)
        })
        .unwrap_or(Plan::wait());
    }
    let (namespace, name) = (&workload.metadata.namespace, &workload.metadata.name);
    let (namespace, name) = (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
    let message = format!("Exceeded the PodsReady timeout {namespace}/{name}");
    let eviction = Eviction { reason: reason::PODS_READY_TIMEOUT, cause: cause.to_owned(), message };
    let mut next = workload.clone();
    change::back_off(&mut next, &back_off, now);
    evict(next, eviction, now)
}

/// Until when it may run, and for how long altogether.
fn running_until(workload: &Workload) -> Option<(Timestamp, i32)> {
    let limit = workload.spec.maximum_execution_time_seconds.filter(|_| state::is_active(workload))?;
    let admitted = state::find(workload, ADMITTED).filter(|admitted| admitted.status == "True")?;
    let past = workload.status.as_ref()?.accumulated_past_execution_time_seconds.unwrap_or(0);
    let left = SignedDuration::from_secs((limit - past).into());
    Some((admitted.last_transition_time.0.checked_add(left).ok()?, limit))
}

fn ran_too_long(workload: &Workload, limit: i32, now: Timestamp) -> Option<Plan> {
    let reason = reason::MAXIMUM_EXECUTION_TIME_EXCEEDED;
    let told = Event::warning(reason, &format!("The maximum execution time ({limit}s) exceeded"));
    change(workload, Change::DeactivationTarget(reason), |next| {
        change::deactivation_target(next, reason, "exceeding the maximum execution time", now);
        next.status.get_or_insert_default().accumulated_past_execution_time_seconds = None;
        true
    })
    .map(|plan| plan.telling(told))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.step, self.again_at) {
            (Step::Wait, Some(again_at)) => write!(f, "wait until {again_at}"),
            (step, _) => write!(f, "{step}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Wait => f.write_str("wait"),
            Step::Status { change, .. } => write!(f, "write {change}"),
            Step::Checks(checks) => {
                let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
                write!(f, "list checks {names:?}")
            }
            Step::Deactivate => f.write_str("deactivate"),
            Step::Finalize => f.write_str("let go"),
            Step::Delete => f.write_str("delete"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Finished(reason) => write!(f, "finished, because {reason}"),
            Change::PutOff => f.write_str("put off by checks"),
            Change::BackOffOver => f.write_str("back-off over"),
            Change::Requeued(reason) => write!(f, "requeued, because {reason}"),
            Change::Gated => f.write_str("gated"),
            Change::GateCleared => f.write_str("gate cleared"),
            Change::Inadmissible => f.write_str("inadmissible"),
            Change::Admitted => f.write_str("admitted"),
            Change::NotAdmitted => f.write_str("not admitted"),
            Change::Evicted { eviction, .. } => write!(f, "evicted, because {}", eviction.condition_reason()),
            Change::DeactivationTarget(reason) => write!(f, "to be deactivated, because {reason}"),
            Change::RequeueStateCleared => f.write_str("requeue state cleared"),
            Change::Released => f.write_str("quota given back"),
        }
    }
}

#[cfg(test)]
mod tests;
