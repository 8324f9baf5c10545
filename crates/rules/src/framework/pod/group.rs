//! The pods of a group: their roles, which of them count, and which do not (JF-70).

use std::cmp::Ordering;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use types::kueue::{PodSet, Workload};

use super::{GROUP_TOTAL_COUNT, POD_INDEX, Unit, is_gated, is_held, name, phase, pod_set, role, total_count};
use crate::framework::{Observed as _, queue_name};
use crate::workload::state;

/// Whether a pod can run, runs, or has done what it was for. One that was deleted before it had a node cannot.
pub(super) fn is_runnable(pod: &Pod) -> bool {
    let has_node =
        pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref().is_some_and(|it| !it.is_empty()));
    (pod.metadata.deletion_timestamp.is_none() || has_node) && phase(pod) != "Failed"
}

/// Each role of a group's pods, as a pod set, by their names.
pub(super) fn roles(pods: &[&Pod]) -> Result<Vec<PodSet>, String> {
    let mut sets: Vec<PodSet> = Vec::new();
    for pod in pods.iter().filter(|pod| is_runnable(pod)) {
        let role = role::of(pod);
        match sets.iter_mut().find(|set| set.name() == role) {
            Some(set) => set.count += 1,
            None => sets.push(pod_set(pod, role, 1)?),
        }
    }
    sets.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(sets)
}

/// A group that is admitted whole, as all of it will be like its first pod.
pub(super) fn whole(unit: &Unit<'_>) -> Result<Vec<PodSet>, String> {
    let count = i32::try_from(total_count(&unit.first().metadata)?).unwrap_or(i32::MAX);
    let pod = unit.pods.iter().find(|pod| is_runnable(pod));
    let pod = pod.ok_or_else(|| "failed to find a runnable pod in the group".to_owned())?;
    Ok(vec![pod_set(pod, role::of(pod), count)?])
}

/// A group's pods, as the Workload of the group sees them.
pub(super) struct Sorted<'a> {
    /// Those that count.
    pub(super) kept: Vec<&'a Pod>,
    /// Those that are too many.
    pub(super) excess: Vec<&'a Pod>,
    /// Those that failed and have been replaced.
    pub(super) replaced: Vec<&'a Pod>,
    /// How many are missing.
    pub(super) absent: usize,
}

/// Which pods count for a Workload, role by role.
pub(super) fn sorted<'a>(unit: &Unit<'a>, workload: &Workload) -> Sorted<'a> {
    let mut sorted = Sorted { kept: Vec::new(), excess: Vec::new(), replaced: Vec::new(), absent: 0 };
    for set in &workload.spec.pod_sets {
        let of_role = unit.pods.iter().copied().filter(|pod| role::of(pod) == set.name());
        let (mut active, mut inactive): (Vec<&Pod>, Vec<&Pod>) = of_role.partition(|pod| is_runnable(pod));
        let count = usize::try_from(set.count).unwrap_or(0);
        sorted.absent += if unit.is_fast() {
            usize::from(count > 0 && active.is_empty())
        } else {
            count.saturating_sub(active.len())
        };
        active.sort_by(|a, b| sooner_kept(a, b));
        inactive.sort_by(|a, b| later_active(a, b, unit.now));
        let had = active.len() + inactive.len();
        sorted.excess.extend(active.split_off(active.len().min(count)));
        let done = had.saturating_sub(count).min(inactive.len());
        sorted.replaced.extend(inactive.split_off(inactive.len() - done));
        sorted.kept.append(&mut active);
        sorted.kept.append(&mut inactive);
    }
    sorted
}

/// Of pods that are too many those go that are not held, then those that still wait, then the newest.
pub(super) fn sooner_kept(a: &Pod, b: &Pod) -> Ordering {
    is_held(b)
        .cmp(&is_held(a))
        .then_with(|| is_gated(a).cmp(&is_gated(b)))
        .then_with(|| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp))
}

/// Of pods that are over those are let go that were active longest ago.
fn later_active(a: &Pod, b: &Pod, now: Timestamp) -> Ordering {
    is_held(b)
        .cmp(&is_held(a))
        .then_with(|| last_active(b, now).cmp(&last_active(a, now)))
        .then_with(|| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp))
}

fn last_active(pod: &Pod, now: Timestamp) -> Timestamp {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "ContainersReady");
    let failed = ready.filter(|it| it.status == "False" && it.reason.as_deref() == Some("PodFailed"));
    let failed = failed.and_then(|it| it.last_transition_time.as_ref()).map_or(now, |time| time.0);
    let deleted = pod.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    failed.min(deleted)
}

/// Whether a Workload has room for these pod sets: it has each of them, in the same order, and no smaller. One that has ended
/// need only have their names.
pub(super) fn has_room(workload: &Workload, pod_sets: &[PodSet]) -> bool {
    let is_over = state::is_finished(workload);
    let sets = &workload.spec.pod_sets;
    let mut rest = sets.iter();
    (is_over || sets.len() >= pod_sets.len())
        && pod_sets.iter().all(|wanted| {
            let there = rest.find(|set| set.name() == wanted.name());
            there.is_some_and(|there| is_over || there.count >= wanted.count)
        })
}

/// Why no Workload can be made for a group.
pub(super) enum Unfit {
    /// Pods are still missing.
    Fewer(String),
    /// Its pods contradict each other.
    Contradiction(String),
}

/// Whether the pods of a group say the same.
pub(super) fn check(unit: &Unit<'_>) -> Result<usize, Unfit> {
    let first = unit.first();
    let total = total_count(&first.metadata).map_err(Unfit::Contradiction)?;
    if let Some(index) = crate::framework::label(&first.metadata, POD_INDEX)
        && index.parse::<i64>().map_or(true, |index| index < 0 || index >= total)
    {
        let why = format!("incorrect label value {index:?} for Pod {:?}", name(first));
        return Err(Unfit::Contradiction(why));
    }
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    let group = unit.group.unwrap_or_default();
    if !unit.is_fast() && unit.pods.iter().filter(|pod| is_runnable(pod)).count() < total {
        return Err(Unfit::Fewer(format!("'{group}' group has fewer runnable pods than expected")));
    }
    let queue = queue_name(unit.metadata()).unwrap_or_default();
    for pod in unit.pods.iter().filter(|pod| phase(pod) != "Failed") {
        let own = queue_name(&pod.metadata).unwrap_or_default();
        if own != queue {
            let (a, b) = (name(first), name(pod));
            let why = format!("pods '{a}' and '{b}' has different queue names: {queue}!={own}");
            return Err(Unfit::Contradiction(why));
        }
        let said = total_count(&pod.metadata).map_err(Unfit::Contradiction)?;
        if usize::try_from(said) != Ok(total) {
            let (a, b) = (name(first), name(pod));
            let why =
                format!("pods '{a}' and '{b}' has different '{GROUP_TOTAL_COUNT}' values: {total}!={said}");
            return Err(Unfit::Contradiction(why));
        }
    }
    Ok(total)
}
