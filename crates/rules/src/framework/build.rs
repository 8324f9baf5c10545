//! The Workload of a Job (JF-11, JF-12).

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, EnvVar},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use types::kueue::{PodSet, RESOURCE_IN_USE, Workload, WorkloadSpec};

use super::{
    Observed, PROVISIONING_PREFIX, maximum_execution_time, name::workload_name, priority::Priority,
    queue_name,
};
use crate::{names, quota::wire::JOB_UID_LABEL, workload::ADMISSION_GATED_BY};

/// The Workload that stands for a Job. `copied` are the labels that it takes over.
pub fn workload(
    job: &dyn Observed,
    pod_sets: Vec<PodSet>,
    priority: Priority,
    copied: &[String],
) -> Workload {
    let metadata = job.metadata();
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut labels: BTreeMap<String, String> = metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| copied.contains(key));
    labels.extend(uid_label(metadata));
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, value| {
        key.starts_with(PROVISIONING_PREFIX) || key == ADMISSION_GATED_BY && !value.is_empty()
    });
    Workload {
        metadata: ObjectMeta {
            name: Some(workload_name(job.kind(), name, uid, None)),
            namespace: metadata.namespace.clone(),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
            finalizers: Some(vec![RESOURCE_IN_USE.to_owned()]),
            owner_references: Some(vec![owner_reference(job)]),
            ..ObjectMeta::default()
        },
        spec: WorkloadSpec {
            pod_sets,
            queue_name: queue_name(metadata).map(str::to_owned),
            priority_class_ref: priority.class,
            priority: Some(priority.value),
            active: None,
            maximum_execution_time_seconds: maximum_execution_time(metadata),
            preemption_gates: Vec::new(),
        },
        ..Workload::default()
    }
}

/// The label with a Job's uid, if it can be one.
pub fn uid_label(metadata: &ObjectMeta) -> Option<(String, String)> {
    let uid = metadata.uid.clone()?;
    names::label_value(&uid).is_empty().then(|| (JOB_UID_LABEL.to_owned(), uid))
}

/// That a Job controls its Workload.
pub fn owner_reference(job: &dyn Observed) -> OwnerReference {
    let metadata = job.metadata();
    OwnerReference {
        api_version: job.kind().api_version(),
        kind: job.kind().kind.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The pod sets of a Job without variables that are given twice: the last value counts, in the first place (JF-13).
pub fn sanitized(mut pod_sets: Vec<PodSet>) -> Vec<PodSet> {
    for spec in pod_sets.iter_mut().filter_map(|pod_set| pod_set.template.spec.as_mut()) {
        let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        containers.for_each(sanitize);
    }
    pod_sets
}

fn sanitize(container: &mut Container) {
    let Some(env) = &mut container.env else { return };
    let mut kept: Vec<EnvVar> = Vec::with_capacity(env.len());
    for variable in std::mem::take(env) {
        match kept.iter_mut().find(|there| there.name == variable.name) {
            Some(there) => *there = variable,
            None => kept.push(variable),
        }
    }
    *env = kept;
}
