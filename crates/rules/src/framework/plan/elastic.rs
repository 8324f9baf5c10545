//! What to do about the slices of an elastic Job, before anything else about the Job.

use std::sync::Arc;

use jiff::Timestamp;
use types::kueue::{PodSet, Workload};

use super::{
    Ensured, Plan, Seen, Settings, Step, built, ensure_one, finish, follow, is_held, is_leaving, is_same,
    key, removed, update,
};
use crate::{
    dispatch,
    framework::slices::{Resize, Slices, mark, sized, took_over, waiting},
    quota::wire::JOB_UID_LABEL,
    workload::{FINISHED, slice::REPLACED, state},
};

/// The reason for which a slice ends that nobody wants any more.
const OUT_OF_SYNC: &str = "OutOfSync";

/// The slice that the Job runs by, or waits for (JF-82 to JF-84). Anything but a number of pods that changed makes the Job
/// another one, elastic or not.
pub(super) fn ensure(seen: &Seen<'_>, pod_sets: &[PodSet], settings: &Settings, now: Timestamp) -> Ensured {
    if seen.workloads.is_empty() {
        return ensure_one(seen, pod_sets, settings);
    }
    let slices = Slices::of(seen.workloads);
    let Some(current) = slices.current else { return without_current(seen) };
    // While a worker has still to give the job to the slice that follows, it has it by the one before.
    let is_settled = dispatch::held(current).is_none() || state::is_admitted(current);
    let ended = |it: &&Arc<Workload>| state::is_finished(it) && is_held(it);
    if let Some(ended) = seen.workloads.iter().find(ended).filter(|_| is_settled) {
        return Err(Box::new(Plan::step(Step::Finalize(Arc::clone(ended)))));
    }
    if let Some((slice, successor)) = slices.over.first() {
        return Err(Box::new(end(slice, successor.map(|it| &**it), now)));
    }
    // Of a Job that has ended nobody asks what it should have been.
    if is_leaving(current) || seen.job.finished().is_some() {
        return Ok(Some(Arc::clone(current)));
    }
    if !is_alike(seen, pod_sets, current) {
        let live: Vec<Arc<Workload>> = [Some(current), slices.next].into_iter().flatten().cloned().collect();
        return ensure_one(&Seen { workloads: &live, ..*seen }, pod_sets, settings);
    }
    let resize = Resize::of(&current.spec.pod_sets, pod_sets);
    if let Some(next) = slices.next {
        keep_in_line(next, resize, pod_sets, now)?;
    }
    match resize {
        Resize::None => {}
        Resize::Up if state::has_quota(current) => {
            if slices.next.is_none() {
                grow(seen, current, pod_sets, settings)?;
            }
        }
        Resize::Up | Resize::Down => return Err(Box::new(resized(current, pod_sets))),
    }
    for slice in [Some(current), slices.next].into_iter().flatten() {
        follow(seen, slice, pod_sets)?;
    }
    Ok(Some(Arc::clone(current)))
}

/// What to do about a Job whose slices have all ended. If it has not, and none of them ended as it did, the one by which it
/// ran was deleted, and it begins anew.
fn without_current(seen: &Seen<'_>) -> Ensured {
    let is_over = |it: &Arc<Workload>| {
        let end = state::find(it, FINISHED).map(|end| end.reason.as_str());
        end == Some(REPLACED) || end == Some(OUT_OF_SYNC)
    };
    if seen.job.finished().is_none() && seen.workloads.iter().all(is_over) {
        let first = seen.workloads.first();
        return first.map_or(Ok(None), |slice| Err(Box::new(removed(seen.job, slice))));
    }
    let latest = seen.workloads.iter().max_by_key(|it| it.metadata.creation_timestamp.clone().map(|at| at.0));
    Ok(seen.workloads.iter().find(|it| is_held(it)).or(latest).cloned())
}

/// Whether a Workload is the one of its Job, however many pods either has.
pub(super) fn is_alike(seen: &Seen<'_>, pod_sets: &[PodSet], workload: &Workload) -> bool {
    is_same(seen, &sized(pod_sets, &workload.spec.pod_sets), workload)
}

/// A slice that waits asks for what the Job wants now; if that is there already, it waits for nothing.
fn keep_in_line(
    next: &Arc<Workload>,
    resize: Resize,
    pod_sets: &[PodSet],
    now: Timestamp,
) -> Result<(), Box<Plan>> {
    if is_leaving(next) {
        return Err(Box::new(Plan::step(Step::Finalize(Arc::clone(next)))));
    }
    if resize != Resize::Up {
        return Err(Box::new(end(next, None, now)));
    }
    match Resize::of(&next.spec.pod_sets, pod_sets) {
        Resize::None => Ok(()),
        Resize::Up | Resize::Down => Err(Box::new(resized(next, pod_sets))),
    }
}

fn resized(slice: &Arc<Workload>, pod_sets: &[PodSet]) -> Plan {
    let mut next = Workload::clone(slice);
    next.spec.pod_sets = sized(&slice.spec.pod_sets, pod_sets);
    update(slice, next, "its number of pods")
}

/// Makes the slice that is to take the place of the one that the Job runs by. Its pods are those that the user wrote, and
/// not those that the Job has since it started. Where the Job runs is settled before it grows.
fn grow(
    seen: &Seen<'_>,
    current: &Arc<Workload>,
    pod_sets: &[PodSet],
    settings: &Settings,
) -> Result<(), Box<Plan>> {
    if !state::is_admitted(current) || state::is_evicted(current) || !state::is_active(current) {
        return Ok(());
    }
    let mut slice = built(seen, sized(&current.spec.pod_sets, pod_sets), settings)?;
    mark(seen.job, &mut slice, Some(current));
    // Somebody may have ended the one for this very change.
    if seen.workloads.iter().any(|it| it.metadata.name == slice.metadata.name) {
        return Ok(());
    }
    let told = format!("Created Workload: {}", key(&slice));
    Err(Box::new(Plan::step(Step::Create(Box::new(slice))).telling("CreatedWorkload", &told)))
}

/// Ends a slice that is of no use any more (JF-84).
fn end(slice: &Arc<Workload>, successor: Option<&Workload>, now: Timestamp) -> Plan {
    let Some(successor) = successor else {
        return finish(slice, OUT_OF_SYNC, "The workload slice is out of sync with its parent job", now);
    };
    let uid = successor.metadata.uid.as_deref().unwrap_or_default();
    let labels = successor.metadata.labels.as_ref();
    let job = labels.and_then(|labels| labels.get(JOB_UID_LABEL)).map_or("", String::as_str);
    let why = format!(
        "Replaced to accommodate a workload (UID: {uid}, JobUID: {job}) due to workload slice aggregation"
    );
    finish(slice, REPLACED, &why, now)
}

/// Ends the slice of a Job whose place one took that somebody else made.
pub(super) fn end_replaced(seen: &Seen<'_>, by: &Workload, now: Timestamp) -> Option<Plan> {
    let is_over = |it: &&Arc<Workload>| !state::is_finished(it) && took_over(by, it);
    seen.workloads.iter().find(is_over).map(|slice| end(slice, Some(by), now))
}

/// Lets pods be scheduled that wait for the slice that was admitted.
pub(super) fn ungate(seen: &Seen<'_>, workload: &Arc<Workload>) -> Option<Plan> {
    let pods = waiting(workload, seen.pods);
    (!pods.is_empty()).then(|| Plan::step(Step::Ungate { of: Arc::clone(workload), pods }))
}
