//! The Job controller's decision: from a Job, its pods and what the controller remembers, to a [`Plan`].
//!
//! The plan is carried out from top to bottom, and whoever does it needs no rules, only manners:
//!
//! ```text
//! let plan = decide(&seen, now);                     // no IO
//! for claim in &plan.claims { … }                    // 404: decide again; other errors: come back later
//! memory.begin(&plan.pods, now);
//! let fates = carry out plan.pods;                   // creations in the batches of slow_start
//! memory.end(&plan.pods, &fates);
//! let record = plan.record(&fates);
//! write record.status, or stop;                      // then memory.backoff = record.backoff, events, metrics
//! memory.begin_release(&record.release);
//! let fates = take off the finalizers of record.release;
//! memory.end_release(&record.release, &fates);
//! let settled = record.settle(&fates);
//! write settled.status, or stop;                     // then memory.finished |= settled.finished, events, metrics
//! ```
//!
//! Every write may be the last one: deciding again from what is then seen goes on where it stopped ([`tracking`]).
//! A fate that is [`Fate::Failed`] means to come back later, too.
//!
//! It decides as Kubernetes' own Job controller does (v1.35), and is compared with it in `tests/controller`. It departs
//! where that one would lose, double or never finish something:
//! - a pod that is gone when its finalizer is to be taken off stays remembered, lest it be counted again while it is
//!   still seen ([`Memory::end_release`]);
//! - a Job does not complete while a pod that it created is still to be seen (J-25);
//! - an index ends once, as it first did, and a pod recorded as failed does not count as succeeded, so that S-14 never
//!   refuses the status (J-47);
//! - a Job that ends while suspended, before its start was written, gets a start time, so that S-09i does not refuse it;
//! - the succeeded counter of a Job that is no longer elastic stays, so that S-17c does not refuse it (I-10);
//! - a condition that is both `False` and `True` is `True` (J-21), and only pods that were deleted leave `ready`;
//! - who waits for writes to be seen, or for the delay of an index, looks again by itself.
//!
//! [`tracking`]: super::tracking

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use self::choose::{Choice, choose};
use super::claims::{self, Claim};
use super::conditions::{self, wire_time};
use super::end::{End, deadline, end};
use super::events::Event;
use super::memory::Memory;
use super::metrics::{self, Action};
use super::pods::PodRef;
use super::spec::Spec;
use super::tracking::{Record, nonzero};
use super::view::{View, to_i32};
use super::{SUSPENDED, Settings, external_controller};

mod choose;
mod print;
#[cfg(test)]
mod tests;

pub use self::choose::slow_start;

/// Everything one decision may depend on, read before deciding.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// The Job, no older than this controller's last write to it.
    pub job: &'a Job,
    /// The pods of its namespace that it controls or that nobody controls; others do no harm.
    pub pods: Vec<&'a Pod>,
    /// What the controller remembers of this Job.
    pub memory: &'a Memory,
    /// How the cluster is set up.
    pub settings: Settings,
}

/// What is to be done about a Job. It prints as one line.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Why.
    pub because: Because,
    /// Owners to change, before anything else.
    pub claims: Vec<Claim>,
    /// Pods to create or delete.
    pub pods: PodStep,
    /// What to tell at once.
    pub events: Vec<Event>,
    /// When to decide again even if nothing changes.
    pub look_again: Option<Timestamp>,
    rest: Option<Rest>,
}

/// What the status depends on, apart from the fate of pods.
#[derive(Debug, Clone, PartialEq)]
struct Rest {
    view: Arc<View>,
    end: Option<End>,
    settings: Settings,
}

/// What is to be done with pods: one kind of thing at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum PodStep {
    /// Nothing.
    Nothing,
    /// Create them, in the batches of [`slow_start`].
    Create(Vec<Pod>),
    /// Delete them and leave their finalizers: the Job has ended, and they are still to be counted.
    End(Vec<PodRef>),
    /// Take off their finalizers, then delete them: they are never counted.
    Remove(Vec<PodRef>),
    /// Pods are missing but cannot be created, for this reason. Come back later, as after a failed creation.
    Refuse(&'static str),
}

impl PodStep {
    /// How many pods it is about.
    pub fn len(&self) -> usize {
        match self {
            PodStep::Nothing | PodStep::Refuse(_) => 0,
            PodStep::Create(pods) => pods.len(),
            PodStep::End(pods) | PodStep::Remove(pods) => pods.len(),
        }
    }

    /// Whether it is about no pod.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What became of one write to one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was done. A creation that was refused because the namespace is terminating counts as done: there is no use
    /// in another attempt.
    Done,
    /// The pod was gone already.
    Gone,
    /// It was refused, or nobody knows.
    Failed,
    /// It was not tried, because an earlier batch had failures.
    Skipped,
}

impl Fate {
    /// Whether the pod is as it was wanted, by this write or before it.
    pub(crate) fn is_past(self) -> bool {
        matches!(self, Fate::Done | Fate::Gone)
    }
}

/// Why a plan is what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// Somebody else manages the Job.
    ManagedBy(String),
    /// The Job is finished; what is remembered of it can be forgotten.
    Finished,
    /// The Job was finished by the last write, and does not show it yet.
    FinishUnseen,
    /// The Job is of a kind that nobody knows here.
    UnknownCompletionMode,
    /// The Job has come to its end, for this reason.
    Ended(String),
    /// The Job is being deleted.
    Deleting,
    /// Pods were created or deleted, and are still to be seen.
    WritesUnseen,
    /// The Job is suspended.
    Suspended,
    /// More pods are active than wanted, or some that should not be.
    TooMany {
        /// Active pods.
        active: i32,
        /// Wanted pods.
        wanted: i32,
    },
    /// Fewer pods are active than wanted.
    TooFew {
        /// Active pods.
        active: i32,
        /// Wanted pods.
        wanted: i32,
    },
    /// Pods are missing, but wait because others failed.
    BackingOff(Timestamp),
    /// Pods are missing, but every index is taken, completed or failed.
    NoFreeIndex,
    /// As many pods are active as wanted; or terminating ones stand in their place.
    Enough {
        /// Active pods.
        active: i32,
        /// Wanted pods.
        wanted: i32,
    },
}

impl Because {
    /// Whether it came to comparing the pods there are with those wanted. Only then the Suspended condition follows.
    fn is_about_pods(&self) -> bool {
        match self {
            Because::Suspended
            | Because::TooMany { .. }
            | Because::TooFew { .. }
            | Because::BackingOff(_)
            | Because::NoFreeIndex
            | Because::Enough { .. } => true,
            Because::ManagedBy(_)
            | Because::Finished
            | Because::FinishUnseen
            | Because::UnknownCompletionMode
            | Because::Ended(_)
            | Because::Deleting
            | Because::WritesUnseen => false,
        }
    }
}

/// Decides what to do about a Job.
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let job = seen.job;
    if let Some(manager) = external_controller(job) {
        return Plan::leave(Because::ManagedBy(manager.to_owned()));
    }
    if conditions::finished(job).is_some() {
        return Plan::leave(Because::Finished);
    }
    if seen.memory.finished {
        return Plan::leave(Because::FinishUnseen);
    }
    let Some(spec) = Spec::read(job) else {
        let plan = Plan::leave(Because::UnknownCompletionMode);
        return Plan { events: vec![Event::unknown_completion_mode()], ..plan };
    };
    let claims = claims::claim(job, &seen.pods);
    let view = View::new(job, spec, &claims.own, seen.memory, now);
    let end = end(&view);
    let choice = match &end {
        Some(end) => Choice::end(&view, end),
        None => choose(job, &view),
    };
    Plan {
        because: choice.because,
        claims: claims.changes,
        pods: choice.pods,
        events: Vec::new(),
        look_again: choice.wait.into_iter().chain(deadline(&view).filter(|_| end.is_none())).min(),
        rest: Some(Rest { view: Arc::new(view), end, settings: seen.settings }),
    }
}

impl Plan {
    fn leave(because: Because) -> Self {
        Plan {
            because,
            claims: Vec::new(),
            pods: PodStep::Nothing,
            events: Vec::new(),
            look_again: None,
            rest: None,
        }
    }

    /// What to write about the Job once its pods were seen to, told by the fate of each pod of the step.
    pub fn record(&self, fates: &[Fate]) -> Record {
        let Some(rest) = &self.rest else { return Record::nothing() };
        let view = &rest.view;
        let counts = Counts::after(view, &self.pods, fates);
        let mut status = view.status.clone();
        let mut events = Vec::new();
        let end = match rest.end.clone() {
            // Pods may be left that are not told to end, or not even seen: the end is decided again next time (J-22).
            Some(_) if fates.contains(&Fate::Failed) || !view.is_up_to_date() => None,
            Some(end) => Some(end),
            None if is_complete(view, counts.active) => {
                Some(End::success("CompletionsReached", "Reached expected number of succeeded pods"))
            }
            None => {
                if self.because.is_about_pods() {
                    events.extend(suspend_or_resume(&mut status, view, rest.settings));
                }
                None
            }
        };
        // A Job can end while suspended, before anybody could write that it had started; the API wants to know when.
        if end.is_some() && status.start_time.is_none() && !view.spec.is_nothing_while_suspended() {
            status.start_time = Some(wire_time(view.now));
        }
        let changed = !events.is_empty() || counts.differ_from(&status);
        counts.write_to(&mut status);
        let freed = match &self.pods {
            PodStep::Remove(pods) => pods.iter().zip(fates).filter(|(_, fate)| fate.is_past()).collect(),
            _ => Vec::new(),
        };
        let freed: BTreeSet<&PodRef> = freed.into_iter().map(|(pod, _)| pod).collect();
        let mut record = Record::new(view, status, end, changed, &freed);
        record.events = events;
        record
    }

    /// What the decision counts as in `job_syncs_total`; `None` when it did not get that far (N-01, N-02).
    pub fn action(&self) -> Option<Action> {
        match self.because {
            Because::ManagedBy(_)
            | Because::Finished
            | Because::FinishUnseen
            | Because::UnknownCompletionMode => None,
            Because::Ended(_) | Because::Deleting | Because::WritesUnseen => Some(Action::Reconciling),
            Because::Suspended | Because::TooMany { .. } => Some(Action::PodsDeleted),
            Because::TooFew { .. } | Because::BackingOff(_) | Because::NoFreeIndex => {
                Some(Action::PodsCreated)
            }
            Because::Enough { .. } => Some(Action::Tracking),
        }
    }

    /// What to count once the pods were seen to (N-08), told by the fate of each pod of the step.
    pub fn pod_metrics(&self, fates: &[Fate]) -> Vec<metrics::Increment> {
        let Some(Rest { view, .. }) = &self.rest else { return Vec::new() };
        let (attempted, failed) = match &self.pods {
            PodStep::Create(_) => (
                fates.iter().filter(|fate| **fate != Fate::Skipped).count(),
                fates.iter().filter(|fate| **fate == Fate::Failed).count(),
            ),
            PodStep::Refuse(_) => (1, 1),
            PodStep::Nothing | PodStep::End(_) | PodStep::Remove(_) => return Vec::new(),
        };
        let reason = match (view.failed > 0, view.terminating_count() > 0) {
            (true, _) if view.spec.only_replace_failed => "recreate_failed",
            (true, _) | (_, true) => "recreate_terminating_or_failed",
            (false, false) => "new",
        };
        metrics::pods_created(reason, attempted, failed)
    }
}

/// Whether enough pods succeeded, and none is left (J-25), not even one that was created and is still to be seen.
fn is_complete(view: &View, active: i32) -> bool {
    let enough = match view.spec.completions {
        Some(completions) => view.succeeded >= completions,
        None => view.succeeded > 0,
    };
    enough && active == 0 && view.is_up_to_date()
}

/// Keeps the Suspended condition (J-50…J-53), and tells when it changes.
fn suspend_or_resume(status: &mut JobStatus, view: &View, settings: Settings) -> Option<Event> {
    let now = view.now;
    if view.spec.suspended {
        let condition = conditions::new(SUSPENDED, "True", "JobSuspended", "Job suspended", now);
        conditions::ensure(status, condition).then(|| {
            if settings.mutable_scheduling_directives {
                status.start_time = None;
            }
            Event::suspended()
        })
    } else {
        let condition = conditions::new(SUSPENDED, "False", "JobResumed", "Job resumed", now);
        conditions::ensure(status, condition).then(|| {
            // The deadline is about the time since the Job last began to run.
            status.start_time = Some(wire_time(now));
            Event::resumed()
        })
    }
}

/// The numbers of pods that are not ended.
#[derive(Debug, Clone, Copy)]
struct Counts {
    active: i32,
    ready: i32,
    terminating: i32,
}

impl Counts {
    /// The numbers as they are once the step was carried out.
    fn after(view: &View, step: &PodStep, fates: &[Fate]) -> Self {
        let mut counts = Counts {
            active: view.active_count(),
            ready: view.ready_count(),
            terminating: view.terminating_count(),
        };
        match step {
            PodStep::Nothing | PodStep::Refuse(_) => {}
            PodStep::Create(_) => {
                counts.active += to_i32(fates.iter().filter(|fate| **fate == Fate::Done).count());
            }
            PodStep::End(pods) | PodStep::Remove(pods) => {
                let ready: BTreeSet<&PodRef> =
                    view.active().filter(|pod| pod.ready).map(|pod| &pod.pod).collect();
                for (pod, fate) in pods.iter().zip(fates) {
                    if fate.is_past() {
                        counts.active -= 1;
                        counts.terminating += 1;
                        counts.ready -= i32::from(ready.contains(pod));
                    }
                }
            }
        }
        counts
    }

    fn differ_from(self, status: &JobStatus) -> bool {
        status.active.unwrap_or(0) != self.active
            || status.ready != Some(self.ready)
            || status.terminating != Some(self.terminating)
    }

    fn write_to(self, status: &mut JobStatus) {
        status.active = nonzero(self.active);
        status.ready = Some(self.ready);
        status.terminating = Some(self.terminating);
    }
}
