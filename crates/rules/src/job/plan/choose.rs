//! Which pods to create and which to delete, for a Job that goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::super::backoff;
use super::super::end::End;
use super::super::new_pod::{Failures, Place, new_pod};
use super::super::pods::{Facts, PodRef};
use super::super::triggers::BATCH;
use super::super::view::View;
use super::{Because, PodStep};

/// So many pods at most are created, or deleted as superfluous, by one plan, so that other Jobs have their turn.
const MOST_PODS: usize = 500;
/// The first batch of creations; each next one is twice as large.
const FIRST_BATCH: usize = 1;

/// What to do with pods, why, and until when that will do.
pub(super) struct Choice {
    pub(super) because: Because,
    pub(super) pods: PodStep,
    pub(super) wait: Option<Timestamp>,
}

impl Choice {
    fn new(because: Because, pods: PodStep) -> Self {
        Choice { because, pods, wait: None }
    }

    /// All active pods end with their Job.
    pub(super) fn end(view: &View, end: &End) -> Self {
        let because = Because::Ended(end.reason.clone());
        Choice::new(because, PodStep::End(view.active().map(|pod| pod.pod.clone()).collect()))
            .until(view.up_to_date_at)
    }

    fn until(self, wait: Option<Timestamp>) -> Self {
        Choice { wait, ..self }
    }
}

/// Chooses what to do with the pods of a Job that goes on.
pub(super) fn choose(job: &Job, view: &View) -> Choice {
    if view.deleting {
        return Choice::new(Because::Deleting, PodStep::Nothing);
    }
    if !view.is_up_to_date() {
        return Choice::new(Because::WritesUnseen, PodStep::Nothing).until(view.up_to_date_at);
    }
    if view.spec.suspended {
        return Choice::new(Because::Suspended, PodStep::Remove(victims(view, usize::MAX)));
    }
    let (active, wanted) = (view.active_count(), wanted(view));
    let superfluous = victims(view, usize::try_from(active - wanted).unwrap_or(0));
    if !superfluous.is_empty() {
        let now = superfluous.into_iter().take(MOST_PODS).collect();
        return Choice::new(Because::TooMany { active, wanted }, PodStep::Remove(now));
    }
    let terminating = if view.spec.only_replace_failed { view.terminating_count() } else { 0 };
    let missing = usize::try_from(wanted - active - terminating).unwrap_or(0);
    if missing == 0 {
        return Choice::new(Because::Enough { active, wanted }, PodStep::Nothing);
    }
    match places(view, missing.min(MOST_PODS)) {
        Places::None(until) => {
            let soonest = view.now.checked_add(BATCH).unwrap_or(Timestamp::MAX);
            Choice::new(Because::BackingOff(until), PodStep::Nothing).until(Some(until.max(soonest)))
        }
        Places::Any(count) => {
            Choice::new(Because::TooFew { active, wanted }, create(vec![new_pod(job, None); count]))
        }
        Places::At(places, _) if places.is_empty() => Choice::new(Because::NoFreeIndex, PodStep::Nothing),
        Places::At(places, more_at) => {
            let pods = places.into_iter().map(|place| new_pod(job, Some(place))).collect();
            Choice::new(Because::TooFew { active, wanted }, create(pods)).until(more_at)
        }
    }
}

/// How many pods should be active (J-31).
fn wanted(view: &View) -> i32 {
    let parallelism = view.spec.parallelism;
    match view.spec.completions {
        Some(completions) => (completions - view.succeeded).min(parallelism).max(0),
        // The pods of a work queue know when it is empty: once one succeeded, none is added and none is killed.
        None if view.succeeded > 0 => view.active_count(),
        None => parallelism,
    }
}

/// The active pods to part with (J-32, I-08): those that should not be there at all, and further ones up to `at_least`,
/// in the order in which they are missed least.
fn victims(view: &View, at_least: usize) -> Vec<PodRef> {
    let mut wrong: Vec<&Facts> = Vec::new();
    let mut right: Vec<&Facts> = Vec::new();
    let mut active: Vec<&Facts> = view.active().collect();
    active.sort_by(|a, b| a.rank.cmp(&b.rank));
    let mut taken = BTreeSet::new();
    // The most advanced pod of an index, the last one, keeps it.
    for pod in active.into_iter().rev() {
        let keeps = !view.spec.indexed || (pod.in_range(&view.spec) && taken.insert(pod.index));
        if keeps { right.push(pod) } else { wrong.push(pod) }
    }
    let more = at_least.saturating_sub(wrong.len());
    wrong.into_iter().rev().chain(right.into_iter().rev().take(more)).map(|pod| pod.pod.clone()).collect()
}

/// Creates pods, unless they have no labels at all (J-39): nobody would ever find them.
fn create(pods: Vec<Pod>) -> PodStep {
    if pods.iter().any(|pod| pod.metadata.labels.as_ref().is_none_or(BTreeMap::is_empty)) {
        return PodStep::Refuse("unable to create pods, no labels");
    }
    PodStep::Create(pods)
}

/// Where new pods go.
enum Places {
    /// Nowhere before this.
    None(Timestamp),
    /// So many, all alike.
    Any(usize),
    /// One for each of these indexes; others may follow then.
    At(Vec<Place>, Option<Timestamp>),
}

/// Finds places for so many pods (J-35, J-36): the lowest indexes that are free, as far as their delays are over.
fn places(view: &View, missing: usize) -> Places {
    let per_index = view.spec.backoff_limit_per_index.is_some();
    let pending = |ready_at: &Timestamp| *ready_at > view.now;
    if let Some(ready_at) = view.backoff.ready_at().filter(pending)
        && !per_index
    {
        return Places::None(ready_at);
    }
    let Some(indexes) = &view.indexes else { return Places::Any(missing) };
    let mut taken = indexes.completed.union(&indexes.active);
    if view.spec.only_replace_failed {
        taken = taken.union(&indexes.terminating);
    }
    if let Some(failed) = &indexes.failed {
        taken = taken.union(failed);
    }
    let (mut places, mut next) = (Vec::new(), None);
    for index in taken.missing(indexes.count).take(missing) {
        let last_failed = indexes.last_failed.get(&index).map(|&place| &view.pods[place].facts);
        let ready_at = last_failed
            .map(|pod| backoff::ready_at(pod.all_index_failures().saturating_add(1), pod.finished_at))
            .filter(pending);
        if let Some(ready_at) = ready_at {
            next = next.into_iter().chain([ready_at]).min();
        } else {
            let failures = per_index.then(|| Failures::after(last_failed));
            places.push(Place { index, failures });
        }
    }
    match next {
        Some(next) if places.is_empty() => Places::None(next),
        next => Places::At(places, next),
    }
}

/// The batches in which pods are created (J-37): a few first, and when all of a batch were created, twice as many. When
/// one was not, the rest is skipped: it would fail as well.
pub fn slow_start(count: usize) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0..FIRST_BATCH.min(count);
    std::iter::from_fn(move || {
        let batch = next.clone();
        next = batch.end..(batch.end + 2 * batch.len()).min(count);
        (!batch.is_empty()).then_some(batch)
    })
}
