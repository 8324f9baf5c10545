//! Whether a Workload still is the one of its Job (JF-30).

use k8s_openapi::api::core::v1::{Container, PodSpec};
use types::kueue::{PodSet, Workload};

use super::{Observed, PodSetInfo, maximum_execution_time};
use crate::{
    semantic,
    workload::{has_quota, is_admitted},
};

/// Whether a Workload is the one that would be made for a Job now. Where nodes are looked for and what is written on
/// pods is not compared, nor is what was put into the Job when it started.
pub fn is_same(
    job: &dyn Observed,
    pod_sets: &[PodSet],
    workload: &Workload,
    given: Option<&[PodSetInfo]>,
) -> bool {
    let metadata = job.metadata();
    let owners = workload.metadata.owner_references.iter().flatten();
    let controller = owners.into_iter().find(|owner| owner.controller == Some(true));
    let is_owner = controller.is_some_and(|owner| {
        Some(&owner.name) == metadata.name.as_ref() && Some(&owner.uid) == metadata.uid.as_ref()
    });
    if !is_owner || workload.spec.maximum_execution_time_seconds != maximum_execution_time(metadata) {
        return false;
    }
    let tolerations = !is_admitted(workload);
    if !has_quota(workload) {
        return all_same(pod_sets, &workload.spec.pod_sets, tolerations);
    }
    match given.and_then(|given| running(workload, given)) {
        Some(running) if all_same(pod_sets, &running, tolerations) => true,
        Some(_) => job.is_suspended() && all_same(pod_sets, &workload.spec.pod_sets, tolerations),
        None => all_same(pod_sets, &workload.spec.pod_sets, tolerations),
    }
}

/// The pod sets as they are while the Job runs.
fn running(workload: &Workload, given: &[PodSetInfo]) -> Option<Vec<PodSet>> {
    let mut running = workload.spec.pod_sets.clone();
    for pod_set in &mut running {
        let info = given.iter().find(|info| info.name == pod_set.name())?;
        info.merge_into(&mut pod_set.template).ok()?;
        if pod_set.min_count.is_some() {
            pod_set.count = info.count;
        }
    }
    Some(running)
}

fn all_same(job: &[PodSet], workload: &[PodSet], tolerations: bool) -> bool {
    job.len() == workload.len()
        && job.iter().zip(workload).all(|(a, b)| {
            a.count == b.count && a.min_count == b.min_count && template_same(spec(a), spec(b), tolerations)
        })
}

fn spec(pod_set: &PodSet) -> PodSpec {
    pod_set.template.spec.clone().unwrap_or_default()
}

fn template_same(a: PodSpec, b: PodSpec, tolerations: bool) -> bool {
    let empty_is_none = |list: Option<Vec<Container>>| list.unwrap_or_default();
    (!tolerations || a.tolerations.unwrap_or_default() == b.tolerations.unwrap_or_default())
        && containers_same(&empty_is_none(a.init_containers), &empty_is_none(b.init_containers))
        && containers_same(&a.containers, &b.containers)
}

/// Most are the same to the letter. Only what is not is worth a closer look.
fn containers_same(a: &[Container], b: &[Container]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a == b || semantic::equal("io.k8s.api.core.v1.Container", a, b))
}
