//! Pods and StatefulSets of the manager as dispatch looks at them: each in the form that all kinds have, and pods of a group
//! taken together.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::core::{DynamicObject, ObjectMeta};
use reconcile::Key;
use rules::dispatch::group;
use serde_json::{Value, json};
use types::kueue::Workload;

use super::Shared;

/// The pods of a Workload's group that own it: those that the group has and that were taken into it.
pub(super) fn pods_of(shared: &Shared, key: &Key, workload: &Workload) -> Vec<Arc<Pod>> {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    let is_owner = |pod: &Arc<Pod>| owners.iter().any(|owner| Some(&owner.uid) == pod.metadata.uid.as_ref());
    shared.pods.of_group(key).into_iter().filter(is_owner).collect()
}

/// A group of pods as one job.
pub(super) fn group_of(shared: &Shared, key: &Key, workload: &Workload) -> Option<Arc<DynamicObject>> {
    let pods: Vec<DynamicObject> = pods_of(shared, key, workload).iter().map(|pod| form_of(pod)).collect();
    group::local(&pods).map(Arc::new)
}

/// A pod of the manager.
pub(super) fn pod(shared: &Shared, key: &Key) -> Option<Arc<DynamicObject>> {
    Some(Arc::new(form_of(&*shared.pods.queued.as_ref()?.get(key)?)))
}

/// A StatefulSet of the manager.
pub(super) fn stateful_set(shared: &Shared, key: &Key) -> Option<Arc<DynamicObject>> {
    let set = shared.pods.stateful_sets.as_ref()?.get(key)?;
    Some(Arc::new(form(&set.metadata, json!({ "spec": set.spec, "status": set.status }))))
}

/// A pod in the form that all kinds have.
pub(super) fn form_of(pod: &Pod) -> DynamicObject {
    form(&pod.metadata, json!({ "spec": pod.spec, "status": pod.status }))
}

fn form(metadata: &ObjectMeta, data: Value) -> DynamicObject {
    DynamicObject { types: None, metadata: metadata.clone(), data }
}
