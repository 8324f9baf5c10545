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
            a.count == b.count && a.min_count == b.min_count && template_same(a, b, tolerations)
        })
}

/// What is not said is the same as nothing.
fn template_same(a: &PodSet, b: &PodSet, tolerations: bool) -> bool {
    let (a, b) = (a.template.spec.as_ref(), b.template.spec.as_ref());
    (!tolerations
        || list(a, |spec| spec.tolerations.as_deref()) == list(b, |spec| spec.tolerations.as_deref()))
        && containers_same(
            list(a, |spec| spec.init_containers.as_deref()),
            list(b, |spec| spec.init_containers.as_deref()),
        )
        && containers_same(
            list(a, |spec| Some(spec.containers.as_slice())),
            list(b, |spec| Some(spec.containers.as_slice())),
        )
}

fn list<T>(spec: Option<&PodSpec>, of: fn(&PodSpec) -> Option<&[T]>) -> &[T] {
    spec.and_then(of).unwrap_or_default()
}

/// Most are the same to the letter. Only what is not is worth a closer look.
fn containers_same(a: &[Container], b: &[Container]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| a == b || semantic::equal("io.k8s.api.core.v1.Container", a, b))
}
