//! A Job and its pods, read and summed up for one decision.
//!
//! Nothing is decided here; these are the numbers that decisions are about.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};

use super::backoff::Backoff;
use super::claims::Own;
use super::conditions::wire_time;
use super::failure_policy::Verdict;
use super::indexes::IndexSet;
use super::memory::Memory;
use super::pods::{Facts, State, is_counted};
use super::spec::Spec;

/// What is seen of a Job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) spec: Spec,
    pub(crate) stored: JobStatus,
    /// The stored status, with what the first look at a Job adds: the start time, and the place for uncounted pods.
    pub(crate) status: JobStatus,
    pub(crate) deleting: bool,
    /// When writes that were not seen yet are not waited for any more; `None` when all were seen.
    pub(crate) up_to_date_at: Option<Timestamp>,
    pub(crate) pods: Vec<Pod>,
    /// Pods that succeeded and failed so far, those not yet counted included; of an Indexed Job the succeeded indexes.
    pub(crate) succeeded: i32,
    pub(crate) failed: i32,
    pub(crate) indexes: Option<Indexes>,
    /// The record as it will be once this status is written.
    pub(crate) backoff: Backoff,
    pub(crate) now: Timestamp,
}

/// A pod of the Job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pod {
    pub(crate) facts: Facts,
    /// It has the finalizer, and nobody is about to take it off: what it does is still to be counted.
    pub(crate) tracked: bool,
}

/// Pods whose end is recorded by uid, and not yet in the counters.
pub(crate) struct Uncounted<'a> {
    pub(crate) succeeded: BTreeSet<&'a str>,
    pub(crate) failed: BTreeSet<&'a str>,
}

impl<'a> Uncounted<'a> {
    pub(crate) fn of(status: &'a JobStatus) -> Self {
        let lists = status.uncounted_terminated_pods.as_ref();
        let set = |list: Option<&'a Vec<String>>| list.into_iter().flatten().map(String::as_str).collect();
        Uncounted {
            succeeded: set(lists.and_then(|lists| lists.succeeded.as_ref())),
            failed: set(lists.and_then(|lists| lists.failed.as_ref())),
        }
    }

    /// Whether the pod's end is recorded, one way or the other. One that was recorded as failed stays so, even if it
    /// succeeds after all (J-47).
    pub(crate) fn has(&self, uid: &str) -> bool {
        self.succeeded.contains(uid) || self.failed.contains(uid)
    }
}

/// The indexes of an Indexed Job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Indexes {
    pub(crate) count: u32,
    /// As stored.
    pub(crate) completed_before: IndexSet,
    pub(crate) completed: IndexSet,
    /// Of a Job that limits failures per index.
    pub(crate) failed: Option<IndexSet>,
    pub(crate) active: IndexSet,
    pub(crate) terminating: IndexSet,
    /// The last failed pod of each index that has no other, by its place among the pods: it keeps its finalizer until
    /// its replacement has taken over the count of failures (I-14).
    pub(crate) last_failed: BTreeMap<u32, usize>,
}

impl View {
    pub(crate) fn new(job: &Job, spec: Spec, own: &[Own<'_>], memory: &Memory, now: Timestamp) -> Self {
        let stored = job.status.clone().unwrap_or_default();
        let mut status = stored.clone();
        status.uncounted_terminated_pods.get_or_insert_default();
        if status.start_time.is_none() && !spec.suspended {
            status.start_time = Some(wire_time(now));
        }
        // Of a large Job most pods have ended and are counted, and say no more; but a policy may fail the Job by any.
        let matters = |own: &&Own<'_>| spec.failure_policy.is_some() || own.adopted || !is_counted(own.pod);
        let pods: Vec<Pod> = own.iter().filter(matters).map(|own| Pod::read(own, &spec, memory)).collect();

        let uncounted = Uncounted::of(&stored);
        let valid = |wanted: &dyn Fn(&Facts) -> bool| -> Vec<&Facts> {
            let tracked = pods.iter().filter(|pod| pod.tracked && pod.facts.in_range(&spec));
            tracked.map(|pod| &pod.facts).filter(|pod| wanted(pod)).collect()
        };
        let new_succeeded = valid(&|pod| pod.state == State::Succeeded && !uncounted.has(&pod.pod.uid));
        let new_failed =
            valid(&|pod| pod.is_failed(&spec) && !uncounted.failed.contains(pod.pod.uid.as_str()));

        let ends = |pods: &[&Facts]| pods.iter().map(|pod| pod.finished_at).collect::<Vec<_>>();
        let backoff = memory.backoff.after(&ends(&new_succeeded), &ends(&new_failed));
        let counted = new_failed.iter().filter(|pod| pod.verdict.counts()).count();
        let failed = stored.failed.unwrap_or(0) + to_i32(counted + uncounted.failed.len());
        let indexes = Indexes::read(&stored, &spec, &pods);
        let succeeded = match &indexes {
            Some(indexes) => to_i32(indexes.completed.len()),
            None => stored.succeeded.unwrap_or(0) + to_i32(new_succeeded.len() + uncounted.succeeded.len()),
        };
        View {
            deleting: job.metadata.deletion_timestamp.is_some(),
            up_to_date_at: memory.up_to_date_at().filter(|at| *at > now),
            spec,
            stored,
            status,
            pods,
            succeeded,
            failed,
            indexes,
            backoff,
            now,
        }
    }

    /// Whether everything written was seen: then pods may be created and deleted, and the Job may end.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.up_to_date_at.is_none()
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = &Facts> {
        self.facts().filter(|pod| pod.is_active())
    }

    pub(crate) fn active_count(&self) -> i32 {
        to_i32(self.active().count())
    }

    pub(crate) fn ready_count(&self) -> i32 {
        to_i32(self.active().filter(|pod| pod.ready).count())
    }

    pub(crate) fn terminating_count(&self) -> i32 {
        to_i32(self.facts().filter(|pod| pod.state == State::Terminating).count())
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = &Facts> {
        self.pods.iter().map(|pod| &pod.facts)
    }
}

impl Pod {
    fn read(own: &Own<'_>, spec: &Spec, memory: &Memory) -> Self {
        let mut facts = Facts::read(own.pod, spec);
        // The adoption, which comes before everything else, adds it.
        facts.finalizer |= own.adopted;
        let tracked = facts.finalizer && !memory.has_released(&facts.pod.uid);
        Pod { facts, tracked }
    }
}

impl Indexes {
    fn read(status: &JobStatus, spec: &Spec, pods: &[Pod]) -> Option<Self> {
        let count = spec.index_count()?;
        let completions = spec.completions.unwrap_or(0);
        let stored = |list: &Option<String>| IndexSet::read(list.as_deref().unwrap_or_default(), completions);
        let indexes_of = |wanted: &dyn Fn(&Facts) -> bool| -> IndexSet {
            let pods = pods.iter().map(|pod| &pod.facts).filter(|pod| pod.in_range(spec) && wanted(pod));
            pods.filter_map(|pod| pod.index).collect()
        };
        let completed_before = stored(&status.completed_indexes);
        let failed_before = stored(&status.failed_indexes);
        let new_completed = indexes_of(&|pod| pod.state == State::Succeeded && pod.finalizer);
        // An index ends once, as it first did; upstream would write both, and have its status refused for ever.
        let completed = if spec.backoff_limit_per_index.is_some() {
            completed_before.union(&new_completed.iter().filter(|i| !failed_before.contains(*i)).collect())
        } else {
            completed_before.union(&new_completed)
        };
        let failed = spec.backoff_limit_per_index.map(|limit| {
            let new_failed = indexes_of(&|pod| pod.finalizer && fails_index(pod, spec, limit));
            failed_before.union(&new_failed.iter().filter(|i| !completed.contains(*i)).collect())
        });
        let mut indexes = Indexes {
            count,
            completed_before,
            completed,
            failed,
            active: indexes_of(&|pod| pod.is_active()),
            terminating: indexes_of(&|pod| pod.state == State::Terminating),
            last_failed: BTreeMap::new(),
        };
        if spec.backoff_limit_per_index.is_some() {
            indexes.last_failed = indexes.find_last_failed(spec, pods);
        }
        Some(indexes)
    }

    fn find_last_failed(&self, spec: &Spec, pods: &[Pod]) -> BTreeMap<u32, usize> {
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for (place, pod) in pods.iter().enumerate() {
            let facts = &pod.facts;
            let Some(index) = facts.index.filter(|_| facts.in_range(spec)) else { continue };
            let decided = self.completed.contains(index)
                || self.failed.as_ref().is_some_and(|failed| failed.contains(index))
                || self.active.contains(index);
            if !pod.tracked || !facts.is_failed(spec) || decided {
                continue;
            }
            let later = last.get(&index).is_none_or(|&place| {
                let other = &pods[place].facts;
                other.all_index_failures() <= facts.all_index_failures()
                    && other.finished_at <= facts.finished_at
            });
            if later {
                last.insert(index, place);
            }
        }
        last
    }
}

/// Whether this pod's failure is its index's last (I-11).
fn fails_index(pod: &Facts, spec: &Spec, limit: i32) -> bool {
    pod.is_failed(spec)
        && match pod.verdict {
            Verdict::FailIndex => true,
            Verdict::Ignore => false,
            Verdict::Unmatched | Verdict::Count | Verdict::FailJob(_) => pod.index_failures >= limit,
        }
}

pub(crate) fn to_i32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
