//! What to do next about a Job. One step at a time: what it writes comes back as an event, and the next decision sees
//! it (JF-40).

mod elastic;

use std::{fmt, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Condition};
use types::kueue::{PodSet, RESOURCE_IN_USE, ReclaimablePod, ResourceFlavor, Workload, WorkloadStatus};

use super::{
    Observed, PodSetInfo, build,
    pod_set::{self, Missing},
    prebuilt_workload, priority, queue_name, same,
    slices::{self, Resize},
};
use crate::dispatch;
use crate::workload::{
    self, ADMISSION_GATED_BY, PODS_READY, QUOTA_RESERVED, change,
    plan::{self as life, Event},
    reason, state,
};

/// A Job is stopped because its Workload has to go; why is added (JF-56).
pub(super) const WORKLOAD_EVICTED: &str = "WorkloadEvicted";
/// It is stopped because its Workload is deleted.
pub const WORKLOAD_DELETED: &str = "WorkloadDeleted";
/// It is stopped because it has no Workload, or another one than it should.
pub(super) const NO_MATCHING_WORKLOAD: &str = "NoMatchingWorkload";
/// It is stopped because it runs and its Workload may not.
pub(super) const NOT_ADMITTED: &str = "NotAdmitted";
/// What changes when a Job goes to another queue.
pub(super) const QUEUE: &str = "its queue";
/// What is told of a Job whose Workload is deleted.
pub(super) const DELETED: &str = "Workload is deleted";

/// Settings that hold for all Jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Whether it is said of Workloads that their pods are ready.
    pub pods_ready: bool,
    /// Labels that a Workload takes over from its Job.
    pub copied_labels: Vec<String>,
    /// How long a Job is kept that was deactivated for good; `None` is for ever.
    pub retention: Option<SignedDuration>,
}

/// Everything that one decision depends on.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The Job.
    pub job: &'a dyn Observed,
    /// The Workloads that a Job of this kind and name controls, or one that was there before it.
    pub workloads: &'a [Arc<Workload>],
    /// The Workload that the Job says somebody else made for it, if that exists.
    pub prebuilt: Option<&'a Arc<Workload>>,
    /// The pods of the Job, if some of them may wait for a slice of it.
    pub pods: &'a [Pod],
    /// The flavors that there are.
    pub flavor: &'a dyn Fn(&str) -> Option<Arc<ResourceFlavor>>,
    /// The priority classes that there are.
    pub classes: priority::Classes<'a>,
}

/// What to do, what to tell about the Job, and when to look again.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What to do.
    pub step: Step,
    /// What to tell about the Job, once it is done.
    pub events: Vec<Event>,
    /// When to look again, even if nothing happens.
    pub again_at: Option<Timestamp>,
}

/// What to do about a Job.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing, for this reason.
    Wait(String),
    /// Nothing now, but again soon: something is missing that should be there.
    Retry(String),
    /// Make its Workload.
    Create(Box<Workload>),
    /// Change its Workload, but for the status.
    Update {
        /// As it is.
        of: Arc<Workload>,
        /// As it should be.
        next: Box<Workload>,
        /// What changes.
        what: &'static str,
    },
    /// Delete a Workload that is not, or not any more, the one of this Job. It is let go later.
    Delete(Arc<Workload>),
    /// Write the status of its Workload.
    Status {
        /// As it is.
        of: Arc<Workload>,
        /// What its status should be.
        next: Box<WorkloadStatus>,
        /// What changes.
        what: What,
    },
    /// Let go of its Workload.
    Finalize(Arc<Workload>),
    /// Start it, with this in its pod templates.
    Start {
        /// The Workload that may run.
        of: Arc<Workload>,
        /// What its pods are given.
        given: Vec<PodSetInfo>,
    },
    /// Stop it, and make its pod templates what they were, if that is known.
    Stop {
        /// What they were.
        restored: Option<Vec<PodSetInfo>>,
        /// Why, in a word (JF-56).
        reason: String,
        /// Why, in words.
        why: String,
    },
    /// Let pods be scheduled that wait for a slice.
    Ungate {
        /// The slice that was admitted.
        of: Arc<Workload>,
        /// The pods, by name.
        pods: Vec<String>,
    },
    /// Delete the Job.
    DeleteJob,
}

/// What changes in the status of a Workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It has ended.
    Finished(String),
    /// It gives back its quota: nothing runs any more.
    Released,
    /// Whether its pods are ready.
    PodsReady {
        /// Whether they are.
        ready: bool,
        /// Whether for the first time.
        first: bool,
    },
    /// How many pods need nothing any more.
    Reclaimable(Vec<ReclaimablePod>),
    /// Whether pods of its group have to be replaced.
    Replacements,
    /// Whether it is kept back because its Job wants nothing now.
    OnHold(bool),
}

impl Plan {
    /// Nothing now, but again soon: something is not as it should be.
    pub fn retry(why: impl Into<String>) -> Plan {
        Plan::step(Step::Retry(why.into()))
    }

    pub(super) fn step(step: Step) -> Plan {
        Plan { step, events: Vec::new(), again_at: None }
    }

    pub(super) fn wait(why: impl Into<String>) -> Plan {
        Plan::step(Step::Wait(why.into()))
    }

    pub(super) fn telling(mut self, reason: &str, message: &str) -> Plan {
        self.events.push(Event::normal(reason, message));
        self
    }
}

/// Decides what to do about a Job that is there and managed.
pub fn decide(seen: &Seen<'_>, settings: &Settings, now: Timestamp) -> Plan {
    let job = seen.job;
    let is_own = |workload: &Arc<Workload>| controller_uid(workload) == job.metadata().uid.as_deref();
    let (own, of_earlier): (Vec<_>, Vec<_>) = seen.workloads.iter().cloned().partition(is_own);
    if let Some(plan) = left_behind(&of_earlier) {
        return plan;
    }
    let seen = &Seen { workloads: &own, ..*seen };
    let pod_sets = match job.pod_sets() {
        Ok(pod_sets) => build::sanitized(pod_sets),
        Err(why) => return Plan::step(Step::Retry(why)),
    };
    let ensured = match prebuilt_workload(job.metadata()) {
        Some(_) => ensure_prebuilt(seen, &pod_sets, now),
        None if job.is_elastic() => elastic::ensure(seen, &pod_sets, settings, now),
        None => ensure_one(seen, &pod_sets, settings),
    };
    let workload = match ensured {
        Ok(workload) => workload,
        Err(plan) => return *plan,
    };
    if let Some(workload) = &workload
        && let Some(plan) = ended(job, workload)
    {
        return plan;
    }
    if let Some(end) = job.finished() {
        return match workload {
            Some(workload) => {
                let reason = if end.success { "Succeeded" } else { "Failed" };
                finish(&workload, reason, &end.message, now)
            }
            None => Plan::wait("the Job has ended"),
        };
    }
    let Some(workload) = workload else {
        return without_workload(seen, pod_sets, settings);
    };
    // Pods that wait for the next slice are not what the one before is to be judged by.
    let grows = job.is_elastic() && Resize::of(&workload.spec.pod_sets, &pod_sets) == Resize::Up;
    with_workload(seen, &workload, settings, settings.pods_ready && !grows, now)
}

/// What to do about the Workloads of an earlier Job of the same name: they are let go once they are deleted. Whether that
/// Job is gone is for the garbage collector to say, who asks the cluster; what is seen here of two kinds may be of two times.
fn left_behind(workloads: &[Arc<Workload>]) -> Option<Plan> {
    let leaves = |workload: &&Arc<Workload>| is_leaving(workload) && is_held(workload);
    workloads.iter().find(leaves).map(|workload| Plan::step(Step::Finalize(Arc::clone(workload))))
}

pub(super) fn is_leaving(workload: &Workload) -> bool {
    workload.metadata.deletion_timestamp.is_some()
}

pub(super) fn is_held(workload: &Workload) -> bool {
    workload.metadata.finalizers.iter().flatten().any(|it| it == RESOURCE_IN_USE)
}

pub(super) fn controller_uid(workload: &Workload) -> Option<&str> {
    let mut owners = workload.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// What to do about the Workloads of a Job that is gone (JF-41).
pub fn gone(workloads: &[Arc<Workload>], now: Timestamp) -> Option<Plan> {
    workloads.iter().find_map(|workload| {
        let of = Arc::clone(workload);
        match life::finalize_orphan(workload, now).step {
            life::Step::Status { next, .. } => {
                let what = What::Finished("OwnerNotFound".to_owned());
                Some(Plan::step(Step::Status { of, next, what }))
            }
            life::Step::Finalize => Some(Plan::step(Step::Finalize(of))),
            _ => None,
        }
    })
}

/// What to do about a Job that is part of another: it runs only while that one may (JF-5).
pub fn child(job: &dyn Observed, of_ancestor: Option<&Workload>) -> Plan {
    let may_run = of_ancestor.is_some_and(state::is_admitted);
    if may_run || job.finished().is_some() || job.is_suspended() {
        return Plan::wait("it is part of another Job");
    }
    let why = "Kueue managed child job suspended".to_owned();
    let reason = NOT_ADMITTED.to_owned();
    Plan::step(Step::Stop { restored: None, reason, why: why.clone() }).telling("Suspended", &why)
}

type Ensured = Result<Option<Arc<Workload>>, Box<Plan>>;

/// The Workload that somebody else made for the Job (JF-21 to JF-23).
fn ensure_prebuilt(seen: &Seen<'_>, pod_sets: &[PodSet], now: Timestamp) -> Ensured {
    let Some(workload) = seen.prebuilt else { return Ok(None) };
    let job = seen.job;
    let owner = build::owner_reference(job);
    match controller_uid(workload) {
        Some(other) if other != owner.uid => return Ok(None),
        Some(_) => {}
        None => {
            let mut next = Workload::clone(workload);
            next.metadata.owner_references.get_or_insert_default().push(owner);
            if let Some((key, uid)) = build::uid_label(job.metadata()) {
                next.metadata.labels.get_or_insert_default().insert(key, uid);
            }
            return Err(Box::new(update(workload, next, "its owner")));
        }
    }
    // How many pods an elastic Job has is brought in line by whoever made the Workload.
    let is_own = if job.is_elastic() {
        elastic::is_alike(seen, pod_sets, workload)
    } else {
        is_same(seen, pod_sets, workload)
    };
    if is_own {
        if let Some(plan) = elastic::end_replaced(seen, workload, now) {
            return Err(Box::new(plan));
        }
        return Ok(Some(Arc::clone(workload)));
    }
    if state::is_finished(workload) {
        return Ok(None);
    }
    let why = "The prebuilt workload is out of sync with its user job";
    Err(Box::new(finish(workload, "OutOfSync", why, now)))
}

/// The one Workload of the Job, without others beside it (JF-31 to JF-33).
fn ensure_one(seen: &Seen<'_>, pod_sets: &[PodSet], settings: &Settings) -> Ensured {
    let job = seen.job;
    let found = seen.workloads.iter().position(|workload| is_same(seen, pod_sets, workload));
    let mut others: Vec<&Arc<Workload>> = seen.workloads.iter().collect();
    if let Some(found) = found {
        others.remove(found);
    } else if !job.is_suspended() && job.finished().is_none() {
        let (restored, why) = match others.as_slice() {
            [one] => {
                let restored = one.spec.pod_sets.iter().map(PodSetInfo::original).collect();
                (
                    Some(restored),
                    "No matching Workload; restoring pod templates according to existent Workload",
                )
            }
            _ => (None, "Missing Workload; unable to restore pod templates"),
        };
        if let Some(plan) = stop(job, restored, NO_MATCHING_WORKLOAD, why) {
            return Err(Box::new(plan));
        }
    }
    let reusable = found.is_none() && job.is_suspended();
    // Whoever was deleted and let go is as good as gone.
    others.retain(|other| !is_leaving(other) || is_held(other));
    let is_reusable = |other: &&Arc<Workload>| reusable && !state::has_quota(other) && !is_leaving(other);
    let kept = others.first().copied().filter(is_reusable);
    if let Some(extra) = others.iter().find(|other| kept.is_none_or(|kept| !Arc::ptr_eq(kept, other))) {
        return Err(Box::new(removed(job, extra)));
    }
    if let Some(kept) = kept {
        let mut built = built(seen, pod_sets.to_vec(), settings)?;
        built.spec.active = kept.spec.active;
        let mut next = Workload::clone(kept);
        next.spec = built.spec;
        let told = format!("Updated not matching Workload for suspended job: {}", key(kept));
        return Err(Box::new(update(kept, next, "its spec").telling("UpdatedWorkload", &told)));
    }
    let Some(workload) = found.and_then(|found| seen.workloads.get(found)) else { return Ok(None) };
    follow(seen, workload, pod_sets)?;
    Ok(Some(Arc::clone(workload)))
}

/// Takes over what changed at the Job and does not make it another one (JF-33).
pub(super) fn follow(
    seen: &Seen<'_>,
    workload: &Arc<Workload>,
    pod_sets: &[PodSet],
) -> Result<(), Box<Plan>> {
    let gates = super::annotation(seen.job.metadata(), ADMISSION_GATED_BY).unwrap_or_default();
    if gates != state::admission_gates(workload).unwrap_or_default() {
        let mut next = Workload::clone(workload);
        let annotations = next.metadata.annotations.get_or_insert_default();
        if gates.is_empty() {
            annotations.remove(ADMISSION_GATED_BY);
        } else {
            annotations.insert(ADMISSION_GATED_BY.to_owned(), gates.to_owned());
        }
        let told = format!("Updated workload AdmissionGatedBy to {}", types::go::quote(gates));
        return Err(Box::new(update(workload, next, "its gates").telling("UpdatedWorkload", &told)));
    }
    if priority::follows(seen.job, workload) {
        let priority = priority::of(seen.job, pod_sets, seen.classes)
            .map_err(|missing| Box::new(Plan::step(Step::Retry(missing.0))))?;
        if workload.spec.priority_class_ref != priority.class
            || workload.spec.priority != Some(priority.value)
        {
            let mut next = Workload::clone(workload);
            next.spec.priority_class_ref = priority.class;
            next.spec.priority = Some(priority.value);
            let told = format!("Updated workload priority class: {}", key(workload));
            return Err(Box::new(update(workload, next, "its priority").telling("UpdatedWorkload", &told)));
        }
    }
    Ok(())
}

pub(super) fn update(of: &Arc<Workload>, next: Workload, what: &'static str) -> Plan {
    Plan::step(Step::Update { of: Arc::clone(of), next: Box::new(next), what })
}

fn is_same(seen: &Seen<'_>, pod_sets: &[PodSet], workload: &Workload) -> bool {
    let given = state::has_quota(workload).then(|| pod_set::given(workload, seen.flavor).ok()).flatten();
    same::is_same(seen.job, pod_sets, workload, given.as_deref())
}

fn built(seen: &Seen<'_>, pod_sets: Vec<PodSet>, settings: &Settings) -> Result<Workload, Box<Plan>> {
    let priority = priority::of(seen.job, &pod_sets, seen.classes)
        .map_err(|missing| Box::new(Plan::step(Step::Retry(missing.0))))?;
    Ok(build::workload(seen.job, pod_sets, priority, &settings.copied_labels))
}

/// What to do about a Job whose Workload has ended or is about to go.
pub(super) fn ended(job: &dyn Observed, workload: &Arc<Workload>) -> Option<Plan> {
    let held = is_held(workload);
    if state::is_finished(workload) {
        if !held {
            return Some(Plan::wait("its Workload has ended"));
        }
        let told = format!("Workload '{}' is declared finished", key(workload));
        return Some(Plan::step(Step::Finalize(Arc::clone(workload))).telling("FinishedWorkload", &told));
    }
    if !is_leaving(workload) {
        return None;
    }
    let stopped = || stop(job, Some(originals(workload)), WORKLOAD_DELETED, DELETED);
    let stopped = job.finished().is_none().then(stopped).flatten();
    Some(stopped.unwrap_or_else(|| let_go(job, workload)))
}

/// A Workload that is not, or not any more, the one of this Job is deleted, and let go.
pub(super) fn removed(job: &dyn Observed, workload: &Arc<Workload>) -> Plan {
    if is_leaving(workload) {
        return let_go(job, workload);
    }
    let told = format!("Deleted not matching Workload: {}", key(workload));
    Plan::step(Step::Delete(Arc::clone(workload))).telling("DeletedWorkload", &told)
}

/// Lets go of a Workload that was deleted. While a worker may run the Job by it, it stays: under another one the Job would
/// run twice.
pub(super) fn let_go(job: &dyn Observed, workload: &Arc<Workload>) -> Plan {
    if !is_held(workload) {
        return Plan::wait("its Workload is being deleted");
    }
    match dispatch::held(workload).filter(|_| job.finished().is_none()) {
        Some(cluster) => Plan::wait(format!("{cluster} may still run it")),
        None => Plan::step(Step::Finalize(Arc::clone(workload))),
    }
}

pub(super) fn finish(workload: &Arc<Workload>, reason: &str, message: &str, now: Timestamp) -> Plan {
    let mut next = Workload::clone(workload);
    if !change::finish(&mut next, reason, message, now) {
        return Plan::wait("its Workload has ended");
    }
    let held = is_held(workload);
    let plan = status(workload, next, What::Finished(reason.to_owned()));
    if held {
        return plan; // It is told when the Workload is let go.
    }
    plan.telling("FinishedWorkload", &format!("Workload '{}' is declared finished", key(workload)))
}

pub(super) fn status(of: &Arc<Workload>, next: Workload, what: What) -> Plan {
    let next = Box::new(next.status.unwrap_or_default());
    Plan::step(Step::Status { of: Arc::clone(of), next, what })
}

/// The step that stops a Job; `None` if it is stopped already.
pub(super) fn stop(
    job: &dyn Observed,
    restored: Option<Vec<PodSetInfo>>,
    reason: &str,
    why: &str,
) -> Option<Plan> {
    if job.is_stopped(restored.as_deref()) {
        return None;
    }
    let running = !job.is_suspended();
    let plan = Plan::step(Step::Stop { restored, reason: reason.to_owned(), why: why.to_owned() });
    Some(if running { plan.telling("Stopped", why) } else { plan })
}

fn originals(workload: &Workload) -> Vec<PodSetInfo> {
    workload.spec.pod_sets.iter().map(PodSetInfo::original).collect()
}

/// A Job that has no Workload waits for the one that is promised, or gets one once nothing of it runs (JF-17, JF-21).
fn without_workload(seen: &Seen<'_>, pod_sets: Vec<PodSet>, settings: &Settings) -> Plan {
    let job = seen.job;
    let promised = prebuilt_workload(job.metadata());
    if promised.is_some()
        && let Some(plan) = stop(job, None, NO_MATCHING_WORKLOAD, "missing workload")
    {
        return plan;
    }
    if job.is_active() && !job.is_elastic() {
        return Plan::wait("it still has active pods");
    }
    if let Some(name) = promised {
        return Plan::wait(format!("there is no Workload {name} for it"));
    }
    match built(seen, pod_sets, settings) {
        Ok(mut workload) => {
            if job.is_elastic() {
                slices::mark(job, &mut workload, None);
            }
            let told = format!("Created Workload: {}", key(&workload));
            Plan::step(Step::Create(Box::new(workload))).telling("CreatedWorkload", &told)
        }
        Err(plan) => *plan,
    }
}

/// A Job and its Workload.
pub(super) fn with_workload(
    seen: &Seen<'_>,
    workload: &Arc<Workload>,
    settings: &Settings,
    tells_pods_ready: bool,
    now: Timestamp,
) -> Plan {
    let job = seen.job;
    let mut next = Workload::clone(workload);
    if change::reclaim(&mut next, job.reclaimable()) {
        let pods = next.status.as_ref().map(|status| status.reclaimable_pods.clone()).unwrap_or_default();
        return status(workload, next, What::Reclaimable(pods));
    }
    if tells_pods_ready && let Some(plan) = pods_ready(job, workload, now) {
        return plan;
    }
    if let Some(evicted) = workload::evicted(workload) {
        return evict(job, workload, evicted, settings, now);
    }
    if !job.is_suspended() {
        if state::is_admitted(workload) {
            return elastic::ungate(seen, workload).unwrap_or_else(|| Plan::wait("it runs"));
        }
        // Its pods wait by themselves for a slice that holds quota and is to pass its checks (JF-81).
        if job.is_elastic() && state::has_quota(workload) {
            return Plan::wait("its next pods are not admitted");
        }
        let why = "Not admitted by cluster queue";
        return stop(job, Some(originals(workload)), NOT_ADMITTED, why).unwrap_or_else(|| Plan::wait(why));
    }
    if state::is_admitted(workload) {
        return start(seen, workload, now);
    }
    let queue = queue_name(job.metadata()).map(str::to_owned);
    if workload.spec.queue_name != queue {
        next.spec.queue_name = queue;
        return update(workload, next, QUEUE);
    }
    let told: Vec<String> = state::checks(workload)
        .iter()
        .filter(|check| check.state == types::kueue::CheckState::Pending && !check.message.is_empty())
        .map(|check| format!("{}: {}", check.name, check.message))
        .collect();
    let plan = Plan::wait("its Workload is not admitted");
    if told.is_empty() || !state::has_quota(workload) {
        return plan;
    }
    plan.telling("UpdatedAdmissionCheck", &told.join("; "))
}

/// Starts a Job. One that can never start ends (JF-51).
fn start(seen: &Seen<'_>, workload: &Arc<Workload>, now: Timestamp) -> Plan {
    let given = match pod_set::given(workload, seen.flavor) {
        Ok(given) => given,
        Err(Missing::Flavor(name)) => {
            return Plan::step(Step::Retry(format!("ResourceFlavor {name} not found")));
        }
        Err(Missing::Conflict(conflict)) => {
            return finish(workload, reason::FAILED_TO_START, &conflict.0, now);
        }
    };
    if let Err(conflict) = seen.job.started(&given) {
        return finish(workload, reason::FAILED_TO_START, &conflict.0, now);
    }
    let told = format!("Admitted by clusterQueue {}", state::cluster_queue(workload).unwrap_or_default());
    Plan::step(Step::Start { of: Arc::clone(workload), given }).telling("Started", &told)
}

/// The second phase of an eviction (SM-21): the Job stops, and once nothing of it runs, its quota is free.
fn evict(
    job: &dyn Observed,
    workload: &Arc<Workload>,
    evicted: &Condition,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    let reason = format!("{WORKLOAD_EVICTED}DueTo{}", evicted.reason);
    if let Some(plan) = stop(job, Some(originals(workload)), &reason, &evicted.message) {
        return plan;
    }
    if state::has_quota(workload) {
        if job.is_active() {
            return Plan::wait("it is evicted and still has active pods");
        }
        let mut next = Workload::clone(workload);
        change::release(&mut next, now);
        return status(workload, next, What::Released);
    }
    let Some(retention) = settings.retention.filter(|_| !state::is_active(workload)) else {
        return Plan::wait("it is evicted");
    };
    let evicted = workload::evicted(workload).filter(|it| it.reason.starts_with("DeactivatedDueTo"));
    let end = evicted.and_then(|it| it.last_transition_time.0.checked_add(retention).ok());
    match end {
        Some(end) if end <= now => {
            let told = "Deleted job: deactivation retention period expired";
            Plan::step(Step::DeleteJob).telling("Deleted", told)
        }
        Some(end) => Plan { again_at: Some(end), ..Plan::wait("it was deactivated") },
        None => Plan::wait("it is evicted"),
    }
}

/// Brings the condition in line that says whether all pods are ready (JF-63).
fn pods_ready(job: &dyn Observed, workload: &Arc<Workload>, now: Timestamp) -> Option<Plan> {
    const NOT_READY_ANY_MORE: &str = "At least one pod has failed, waiting for recovery";
    const READY: &str = "All pods reached readiness and the workload is running";
    let before = state::find(workload, PODS_READY);
    let recovers =
        before.is_some_and(|it| matches!(it.reason.as_str(), reason::WAIT_FOR_RECOVERY | reason::RECOVERED));
    let was_ready = before.is_some_and(|it| it.status == "True");
    let waits_again = before.is_some_and(|it| it.reason == reason::WAIT_FOR_RECOVERY);
    let (ready, reason, message) = if !state::is_admitted(workload) {
        (false, reason::WAIT_FOR_START, change::NOT_STARTED)
    } else if job.pods_ready() {
        (true, if recovers { reason::RECOVERED } else { reason::STARTED }, READY)
    } else if was_ready || waits_again {
        (false, reason::WAIT_FOR_RECOVERY, NOT_READY_ANY_MORE)
    } else {
        (false, reason::WAIT_FOR_START, change::NOT_STARTED)
    };
    let value = if ready { "True" } else { "False" };
    if before.is_some_and(|it| it.status == value && it.reason == reason) {
        return None;
    }
    // Whoever says first whether there is quota says this with it.
    if before.is_none() && !ready && state::find(workload, QUOTA_RESERVED).is_none() {
        return None;
    }
    let mut next = Workload::clone(workload);
    change::pods_ready(&mut next, ready, reason, message, now);
    Some(status(workload, next, What::PodsReady { ready, first: reason == reason::STARTED }))
}

pub(super) fn key(workload: &Workload) -> String {
    let metadata = &workload.metadata;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&metadata.namespace), part(&metadata.name))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Step::Wait(why) => write!(f, "wait, because {why}"),
            Step::Retry(why) => write!(f, "try again, because {why}"),
            Step::Create(workload) => write!(f, "create {}", key(workload)),
            Step::Update { of, what, .. } => write!(f, "update {} in {what}", key(of)),
            Step::Delete(workload) => write!(f, "delete {}", key(workload)),
            Step::Status { of, what, .. } => write!(f, "write {what} to {}", key(of)),
            Step::Finalize(workload) => write!(f, "let go of {}", key(workload)),
            Step::Start { of, .. } => write!(f, "start, because {} is admitted", key(of)),
            Step::Stop { why, .. } => write!(f, "stop, because {why}"),
            Step::Ungate { of, pods } => {
                write!(f, "ungate {}, because {} is admitted", pods.join(", "), key(of))
            }
            Step::DeleteJob => f.write_str("delete the Job"),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Finished(reason) => write!(f, "finished ({reason})"),
            What::Released => f.write_str("quota given back"),
            What::PodsReady { ready, .. } => write!(f, "pods ready: {ready}"),
            What::Reclaimable(pods) => {
                let pods: Vec<String> =
                    pods.iter().map(|pod| format!("{}x{}", pod.name, pod.count)).collect();
                write!(f, "reclaimable pods [{}]", pods.join(", "))
            }
            What::Replacements => f.write_str("which pods are missing"),
            What::OnHold(held) => write!(f, "on hold: {held}"),
        }
    }
}
