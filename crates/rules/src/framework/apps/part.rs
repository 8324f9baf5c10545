//! What the kinds have in common whose pods are groups: a pod becomes a member of a group, and the Workload of a group belongs
//! to the object that it is made for.

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use types::kueue::Workload;

use crate::dispatch::{JOB_OWNER_GVK, JOB_OWNER_NAME, adapter::gvk};
use crate::framework::{
    Kind, Observed, PREBUILT_WORKLOAD, PRIORITY_CLASS_LABEL, Plan, QUEUE_NAME_LABEL, annotation, build,
    label,
    plan::{self, Step},
    pod::{GROUP_NAME, GROUP_TOTAL_COUNT, IS_GROUP_WORKLOAD, MANAGED, ROLE_HASH, is_held, is_terminated},
    priority, queue_name,
};
use crate::workload::{ADMISSION_GATED_BY, state};

/// What makes a pod a member of a group.
pub(super) struct Membership<'a> {
    /// What it is part of.
    pub(super) whole: &'a ObjectMeta,
    /// The group, whose Workload has its name.
    pub(super) group: &'a str,
    /// How many pods the group has.
    pub(super) total: i32,
    /// What the pod is in it.
    pub(super) role: &'a str,
    /// Further annotations.
    pub(super) also: &'a [(&'a str, &'a str)],
}

/// A pod as a member of its group.
pub(super) fn joined(pod: &Pod, of: &Membership<'_>) -> Pod {
    let mut next = pod.clone();
    let labels = next.metadata.labels.get_or_insert_default();
    labels.insert(MANAGED.to_owned(), "true".to_owned());
    let class = label(of.whole, PRIORITY_CLASS_LABEL);
    for (key, value) in [(QUEUE_NAME_LABEL, queue_name(of.whole)), (PRIORITY_CLASS_LABEL, class)] {
        if let Some(value) = value {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    let annotations = next.metadata.annotations.get_or_insert_default();
    let total = of.total.to_string();
    let own = [
        (PREBUILT_WORKLOAD, of.group),
        (GROUP_NAME, of.group),
        (GROUP_TOTAL_COUNT, &total),
        (ROLE_HASH, of.role),
    ];
    for (key, value) in own.iter().chain(of.also) {
        annotations.insert((*key).to_owned(), (*value).to_owned());
    }
    next
}

/// A pod in the queue of what it is part of; `None` if it is there.
pub(super) fn moved(pod: &Pod, queue: Option<&str>) -> Option<Pod> {
    let queue = queue.filter(|queue| queue_name(&pod.metadata) != Some(*queue))?;
    let mut next = pod.clone();
    next.metadata.labels.get_or_insert_default().insert(QUEUE_NAME_LABEL.to_owned(), queue.to_owned());
    Some(next)
}

/// Whether a pod is over or about to be.
pub(super) fn is_over(pod: &Pod) -> bool {
    is_terminated(pod) || pod.metadata.deletion_timestamp.is_some()
}

/// A pod whose end nobody has to see; `None` if nobody waits for it.
pub(super) fn let_go(pod: &Pod) -> Option<Pod> {
    is_held(pod).then(|| {
        let mut next = pod.clone();
        next.metadata.finalizers.iter_mut().for_each(|all| all.retain(|it| it != MANAGED));
        next
    })
}

/// The Workload of a group of pods, which are part of `job`; or why there can be none yet.
pub(super) fn workload(
    job: &dyn Observed,
    name: String,
    classes: priority::Classes<'_>,
    copied: &[String],
) -> Result<Workload, String> {
    let pod_sets = build::sanitized(job.pod_sets()?);
    let priority = priority::of(job, &pod_sets, classes).map_err(|missing| missing.0)?;
    let mut workload = build::workload(job, pod_sets, priority, copied);
    workload.metadata.name = Some(name);
    workload.metadata.owner_references = Some(vec![owner(job.kind(), job.metadata())]);
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(IS_GROUP_WORKLOAD.to_owned(), "true".to_owned());
    annotations.extend(owner_annotations(job.kind(), job.metadata()));
    Ok(workload)
}

/// The plan that makes a Workload, and tells of it.
pub(super) fn created(workload: Workload) -> Plan {
    let told = format!("Created Workload: {}", plan::key(&workload));
    Plan::step(Step::Create(Box::new(workload))).telling("CreatedWorkload", &told)
}

/// Who keeps a Workload from being admitted is said by what it is made for.
pub(super) fn gated_as(next: &mut Workload, whole: &ObjectMeta) {
    let gates = annotation(whole, ADMISSION_GATED_BY).unwrap_or_default();
    if gates != state::admission_gates(next).unwrap_or_default() {
        let annotations = next.metadata.annotations.get_or_insert_default();
        annotations.remove(ADMISSION_GATED_BY);
        if !gates.is_empty() {
            annotations.insert(ADMISSION_GATED_BY.to_owned(), gates.to_owned());
        }
    }
}

/// What tells dispatch that a Workload is that of the whole, and not that of one of its pods (MK-FLOW-03).
pub(super) fn owner_annotations(kind: Kind, whole: &ObjectMeta) -> [(String, String); 2] {
    let name = whole.name.clone().unwrap_or_default();
    let gvk = gvk(&kind.api_version(), kind.kind);
    [(JOB_OWNER_GVK.to_owned(), gvk), (JOB_OWNER_NAME.to_owned(), name)]
}

/// That a Workload goes with what it is made for. Its pods own it, too.
pub(super) fn owner(kind: Kind, whole: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: kind.api_version(),
        kind: kind.kind.to_owned(),
        name: whole.name.clone().unwrap_or_default(),
        uid: whole.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}
