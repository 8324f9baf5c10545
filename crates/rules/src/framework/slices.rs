//! The Workloads of an elastic Job: slices of it (JF-80 to JF-84). One of them holds quota, and while the Job wants more
//! than that, another one waits to take its place.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use types::kueue::{PodSet, Workload};

use super::{Observed, POD_SET_LABEL, name::workload_name};
use crate::{
    dispatch,
    workload::{
        ELASTIC_JOB,
        slice::{self, REPLACEMENT_FOR, SLICE_NAME},
        state,
    },
};

/// What the Workloads of an elastic Job that have not ended are to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Slices<'a> {
    /// The one that the Job runs by, or waits for.
    pub current: Option<&'a Arc<Workload>>,
    /// The one that waits to take its place.
    pub next: Option<&'a Arc<Workload>>,
    /// Those that are of no use any more, each with the one that took its place, if one did.
    pub over: Vec<(&'a Arc<Workload>, Option<&'a Arc<Workload>>)>,
}

impl<'a> Slices<'a> {
    /// Tells Workloads of one Job apart. Where a worker may run the Job by one of them, that one counts: the Job must not
    /// start by another. Otherwise it is the latest that holds quota, or else the first that waits for it.
    pub fn of(workloads: &'a [Arc<Workload>]) -> Slices<'a> {
        let mut live: Vec<&Arc<Workload>> = workloads.iter().filter(|it| !state::is_finished(it)).collect();
        live.sort_by_key(|it| {
            (it.metadata.creation_timestamp.clone().map(|at| at.0), it.metadata.uid.clone())
        });
        let successor = |of: &Workload| live.iter().copied().find(|other| took_over(other, of));
        let heads: Vec<&Arc<Workload>> = live.iter().copied().filter(|it| successor(it).is_none()).collect();
        let current = heads
            .iter()
            .find(|it| dispatch::held(it).is_some())
            .or_else(|| heads.iter().rev().find(|it| state::has_quota(it)))
            .or(heads.first())
            .copied();
        let stays = current.filter(|it| state::has_quota(it) && !state::is_evicted(it));
        let follows =
            |it: &&&Arc<Workload>| !state::has_quota(it) && stays.is_some_and(|of| replaces(it, of));
        let next = heads.iter().find(follows).copied();
        let is_kept =
            |it: &Arc<Workload>| [current, next].into_iter().flatten().any(|kept| Arc::ptr_eq(kept, it));
        let over = live.iter().copied().filter(|it| !is_kept(it)).map(|it| (it, successor(it))).collect();
        Slices { current, next, over }
    }
}

fn replaces(next: &Workload, before: &Workload) -> bool {
    let name = slice::replaces(next);
    name.is_some() && name == before.metadata.name.as_deref()
}

/// Whether a slice has taken the place of another one: it has the quota, and if a worker may run the Job, it says so, too.
pub fn took_over(next: &Workload, before: &Workload) -> bool {
    let held = dispatch::held(before);
    replaces(next, before) && state::has_quota(next) && (held.is_none() || held == dispatch::held(next))
}

/// How the pods of a Job differ in number from those of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// Not at all.
    None,
    /// There are fewer of some, and more of none.
    Down,
    /// There are more of some.
    Up,
}

impl Resize {
    /// From one size to another.
    pub fn of(from: &[PodSet], to: &[PodSet]) -> Resize {
        let before =
            |it: &PodSet| from.iter().find(|other| other.name() == it.name()).map_or(0, |it| it.count);
        if to.iter().any(|it| it.count > before(it)) {
            Resize::Up
        } else if to.iter().any(|it| it.count < before(it)) {
            Resize::Down
        } else {
            Resize::None
        }
    }
}

/// Pod sets as they are, with as many pods as `counts` have.
pub fn sized(pod_sets: &[PodSet], counts: &[PodSet]) -> Vec<PodSet> {
    let count =
        |it: &PodSet| counts.iter().find(|other| other.name() == it.name()).map_or(it.count, |it| it.count);
    pod_sets.iter().map(|it| PodSet { count: count(it), ..it.clone() }).collect()
}

/// Makes a Workload a slice of its Job: the first one, or the one after another (JF-80, JF-83).
pub fn mark(job: &dyn Observed, workload: &mut Workload, before: Option<&Workload>) {
    let metadata = job.metadata();
    let (name, uid) =
        (metadata.name.as_deref().unwrap_or_default(), metadata.uid.as_deref().unwrap_or_default());
    let generation = metadata.generation.unwrap_or_default().to_string();
    let name = workload_name(job.kind(), name, uid, Some(&generation));
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(ELASTIC_JOB.to_owned(), "true".to_owned());
    let first = before.and_then(|before| slice::name(before).or(before.metadata.name.as_deref()));
    annotations.insert(SLICE_NAME.to_owned(), first.unwrap_or(&name).to_owned());
    if let Some(before) = before.and_then(|before| before.metadata.name.as_deref()) {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        annotations.insert(REPLACEMENT_FOR.to_owned(), format!("{namespace}/{before}"));
    }
    workload.metadata.name = Some(name);
}

/// The pods that may be scheduled now and wait for that, by name: as many as were admitted, less those that wait no more
/// (JF-81).
pub fn waiting(workload: &Workload, pods: &[Pod]) -> Vec<String> {
    let mut names = Vec::new();
    for (index, pod_set) in workload.spec.pod_sets.iter().enumerate() {
        let is_of = |pod: &&Pod| {
            let of = pod.metadata.labels.as_ref().and_then(|labels| labels.get(POD_SET_LABEL));
            of.map_or(index == 0, |name| name == pod_set.name()) && !has_ended(pod)
        };
        let (mut gated, free): (Vec<&Pod>, Vec<&Pod>) =
            pods.iter().filter(is_of).partition(|pod| is_gated(pod));
        let room = admitted(workload, pod_set).saturating_sub(free.len());
        gated.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        gated.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        names.extend(gated.into_iter().take(room).filter_map(|pod| pod.metadata.name.clone()));
    }
    names
}

/// How many pods of a pod set were admitted and have not been given back since.
fn admitted(workload: &Workload, pod_set: &PodSet) -> usize {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let mut assigned = admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
    let assigned = assigned.find(|it| it.name == pod_set.name()).and_then(|it| it.count);
    usize::try_from(assigned.map_or(pod_set.count, |count| count.min(pod_set.count))).unwrap_or(0)
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.scheduling_gates.iter().flatten());
    gates.into_iter().any(|gate| gate.name == ELASTIC_JOB)
}
