//! How the end of a pod gets into a Job's counters, once and only once, whatever crashes when.
//!
//! A pod keeps a finalizer until it is counted. To count it takes three writes, each safe to repeat, and whoever
//! starts after any of them can tell from the Job and its pods where to go on:
//!
//! 1. [`Record`]: the status says which pods are about to be counted, by uid, and how the Job will end;
//! 2. the finalizers of these pods are taken off;
//! 3. [`Settled`]: the status has the counters instead of the uids, and the Job's end.
//!
//! An Indexed Job needs no uids of succeeded pods: an index is completed or it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::batch::v1::JobStatus;

use super::backoff::Backoff;
use super::conditions::{self, wire_time};
use super::end::End;
use super::events::Event;
use super::metrics::{self, Increment};
use super::plan::Fate;
use super::pods::{PodRef, State};
use super::view::{Pod, Uncounted, View, to_i32};
use super::{COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET};

/// So many uids and new indexes at most are recorded at once, to bound the status and the time that other Jobs wait.
const MOST_UNCOUNTED: usize = 500;

/// The first of the two status writes, and the finalizers to take off after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The status to write; `None` when the stored one is right. When the write fails, stop: nothing is lost.
    pub status: Option<JobStatus>,
    /// What to remember once the status is written.
    pub backoff: Backoff,
    /// What to tell once the status is written.
    pub events: Vec<Event>,
    /// What to count once the status is written.
    pub metrics: Vec<Increment>,
    /// Whose finalizer to take off then.
    pub release: Vec<PodRef>,
    rest: Option<Rest>,
}

/// What the second write depends on.
#[derive(Debug, Clone, PartialEq)]
struct Rest {
    view: Arc<View>,
    /// The status as it is after the first write.
    status: JobStatus,
    end: Option<End>,
    /// There were more pods to record than fit.
    full: bool,
}

/// The second status write.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The status to write; `None` when there is nothing to add.
    pub status: Option<JobStatus>,
    /// The status is a terminal one: to be remembered once it is written.
    pub finished: bool,
    /// What to tell once the status is written.
    pub events: Vec<Event>,
    /// What to count once the status is written.
    pub metrics: Vec<Increment>,
}

impl Record {
    /// Nothing to write.
    pub(crate) fn nothing() -> Self {
        Record {
            status: None,
            backoff: Backoff::default(),
            events: Vec::new(),
            metrics: Vec::new(),
            release: Vec::new(),
            rest: None,
        }
    }

    /// Accounts for the pods of a Job (J-41…J-43), but for those whose finalizers were just taken off without. The
    /// status has the numbers of active pods already; `changed` says whether they are news.
    pub(crate) fn new(
        view: &Arc<View>,
        mut status: JobStatus,
        end: Option<End>,
        mut changed: bool,
        freed: &BTreeSet<&PodRef>,
    ) -> Self {
        let before = status.clone();
        changed |= count_released(&mut status, &tracked_uids(view));
        let tally = Tally::collect(view, &mut status, end.as_ref(), freed);
        changed |= tally.changed;
        if let Some(indexes) = &view.indexes {
            let completed = Some(indexes.completed.to_string()).filter(|list| !list.is_empty());
            let failed = indexes.failed.as_ref().map(ToString::to_string);
            changed |= completed != status.completed_indexes || failed != status.failed_indexes;
            status.succeeded = nonzero(succeeded(view, to_i32(indexes.completed.len())));
            status.completed_indexes = completed;
            status.failed_indexes = failed;
        }
        if let Some(end) = end.as_ref().filter(|end| !end.recorded) {
            let kind = if end.success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET };
            status.conditions.get_or_insert_default().push(end.condition(kind, view));
            changed = true;
        }
        let mut metrics: Vec<Increment> = tally
            .actions
            .into_iter()
            .filter_map(|(action, by)| metrics::policy_applied(action, by))
            .collect();
        if changed {
            metrics.extend(metrics::pods_finished(&view.spec, &before, &status));
        }
        Record {
            status: changed.then(|| status.clone()),
            backoff: view.backoff,
            events: Vec::new(),
            metrics,
            release: tally.release,
            rest: Some(Rest { view: Arc::clone(view), status, end, full: tally.full }),
        }
    }

    /// What to write once finalizers were taken off (J-44, J-45), told by the fate of each removal.
    ///
    /// When one failed, write what there is and come back later.
    pub fn settle(&self, fates: &[Fate]) -> Settled {
        let mut settled = Settled { status: None, finished: false, events: Vec::new(), metrics: Vec::new() };
        let Some(Rest { view, status: before, end, full }) = &self.rest else { return settled };
        let mut tracked = tracked_uids(view);
        for (pod, fate) in self.release.iter().zip(fates) {
            if fate.is_past() {
                tracked.remove(pod.uid.as_str());
            }
        }
        let mut status = before.clone();
        let mut changed = count_released(&mut status, &tracked);
        if let Some(end) = end
            && !full
            && !fates.contains(&Fate::Failed)
            && may_finish(&status)
        {
            finish(&mut status, end, view);
            settled.finished = true;
            settled.events = last_events(view, end, &status);
            settled.metrics.extend(metrics::job_finished(&view.spec, end.success, &end.reason));
            changed = true;
        }
        if changed {
            settled.metrics.extend(metrics::pods_finished(&view.spec, before, &status));
            settled.status = Some(status);
        }
        settled
    }
}

/// The pods whose end can be counted now.
struct Tally {
    release: Vec<PodRef>,
    changed: bool,
    full: bool,
    actions: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds the uids to the status, up to the limit.
    fn collect(view: &View, status: &mut JobStatus, end: Option<&End>, freed: &BTreeSet<&PodRef>) -> Self {
        let known = Uncounted::of(&view.stored);
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        let mut tally = Tally { release: Vec::new(), changed: false, full: false, actions: BTreeMap::new() };
        let mut new_indexes = 0;
        for (place, pod) in in_order(view) {
            if !pod.tracked || freed.contains(&pod.facts.pod) || !may_release(view, place, pod, end) {
                continue;
            }
            let pod = &pod.facts;
            let uid = pod.pod.uid.as_str();
            tally.release.push(pod.pod.clone());
            if pod.state == State::Succeeded && !known.failed.contains(uid) {
                match &view.indexes {
                    Some(indexes) => {
                        let is_new = |index| !indexes.completed_before.contains(index);
                        new_indexes += usize::from(pod.in_range(&view.spec) && pod.index.is_some_and(is_new));
                    }
                    None if known.succeeded.contains(uid) => {}
                    None => {
                        uncounted.succeeded.get_or_insert_default().push(uid.to_owned());
                        tally.changed = true;
                    }
                }
            } else if (pod.is_failed(&view.spec) || end.is_some_and(|end| !end.success))
                && !known.failed.contains(uid)
                && pod.in_range(&view.spec)
            {
                // When the Job fails, so do the pods that it ends.
                if let Some(action) = pod.verdict.action() {
                    *tally.actions.entry(action).or_default() += 1;
                }
                if pod.verdict.counts() {
                    uncounted.failed.get_or_insert_default().push(uid.to_owned());
                    tally.changed = true;
                }
            }
            if new_indexes + len(uncounted.succeeded.as_ref()) + len(uncounted.failed.as_ref())
                >= MOST_UNCOUNTED
            {
                tally.full = true;
                break;
            }
        }
        tally.changed |= new_indexes > 0;
        tally
    }
}

/// The pods in the order in which they are counted: an Indexed Job's by index.
fn in_order(view: &View) -> Vec<(usize, &Pod)> {
    let mut pods: Vec<(usize, &Pod)> = view.pods.iter().enumerate().collect();
    if view.spec.indexed {
        pods.sort_by_key(|(_, pod)| pod.facts.index);
    }
    pods
}

/// Whether a pod's finalizer may go (J-41).
fn may_release(view: &View, place: usize, pod: &Pod, end: Option<&End>) -> bool {
    if view.deleting || end.is_some() || pod.facts.state == State::Succeeded {
        return true;
    }
    let awaits_replacement = view
        .indexes
        .as_ref()
        .zip(pod.facts.index)
        .is_some_and(|(indexes, index)| indexes.last_failed.get(&index) == Some(&place));
    pod.facts.is_failed(&view.spec) && !awaits_replacement
}

/// Moves the uids of pods that have no finalizer any more into the counters (J-46).
fn count_released(status: &mut JobStatus, tracked: &BTreeSet<&str>) -> bool {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let mut changed = false;
    for (list, counter) in
        [(&mut uncounted.succeeded, &mut status.succeeded), (&mut uncounted.failed, &mut status.failed)]
    {
        let before = len(list.as_ref());
        if let Some(uids) = list {
            uids.retain(|uid| tracked.contains(uid.as_str()));
        }
        let released = before - len(list.as_ref());
        if released > 0 {
            *counter = nonzero(counter.unwrap_or(0) + to_i32(released));
            changed = true;
        }
        if len(list.as_ref()) == 0 {
            *list = None;
        }
    }
    changed
}

/// The counter of an Indexed Job: its completed indexes. It may sink with them only while the Job is elastic (S-17c);
/// when the parallelism was changed right after a reduction, the API refuses that, and the counter stays.
fn succeeded(view: &View, completed: i32) -> i32 {
    let elastic = view.spec.completions == Some(view.spec.parallelism);
    if elastic { completed } else { completed.max(view.stored.succeeded.unwrap_or(0)) }
}

/// Whether every pod is counted and gone (J-44).
fn may_finish(status: &JobStatus) -> bool {
    let uncounted = Uncounted::of(status);
    uncounted.succeeded.is_empty() && uncounted.failed.is_empty() && status.terminating.unwrap_or(0) == 0
}

/// Adds the terminal condition (J-48).
fn finish(status: &mut JobStatus, end: &End, view: &View) {
    conditions::ensure(status, end.condition(if end.success { COMPLETE } else { FAILED }, view));
    if end.success {
        status.completion_time = Some(wire_time(view.now));
    }
}

fn last_events(view: &View, end: &End, status: &JobStatus) -> Vec<Event> {
    if !end.success {
        return vec![Event::failed(&end.reason, &end.message)];
    }
    let too_many = view.spec.completions.is_some_and(|wanted| status.succeeded.unwrap_or(0) > wanted);
    too_many.then(Event::too_many_succeeded).into_iter().chain([Event::completed()]).collect()
}

fn tracked_uids(view: &View) -> BTreeSet<&str> {
    view.pods.iter().filter(|pod| pod.tracked).map(|pod| pod.facts.pod.uid.as_str()).collect()
}

fn len(list: Option<&Vec<String>>) -> usize {
    list.map_or(0, Vec::len)
}

/// A counter as the API stores it: zero is left out.
pub(crate) fn nonzero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}
