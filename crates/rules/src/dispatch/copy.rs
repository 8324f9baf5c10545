//! What is created on workers: the copy of a Workload and the mirror of its job.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::{DynamicObject, TypeMeta};
use serde_json::{Value, json};
use types::kueue::Workload;

use super::{Adapter, JOB_UID, ORIGIN, ORIGIN_UID, PREBUILT_WORKLOAD, adapter::Back};
use crate::framework::{
    Observed as _, PodSetInfo, Write, batch,
    custom::{Custom, Shape},
};

/// The longest value that a label may have.
const LONGEST_LABEL: usize = 63;

/// The copy of a Workload for a worker (MK-COPY-01…03): the same name, labels, annotations and spec, and nothing of what
/// the manager knows about it otherwise. The worker would end a Workload that names a job's uid and has no owner.
pub fn workload(local: &Workload, origin: &str) -> Workload {
    let mut metadata = reduced(&local.metadata);
    metadata.labels.get_or_insert_default().remove(JOB_UID);
    mark(&mut metadata, &local.metadata, origin);
    Workload { metadata, spec: local.spec.clone(), ..Workload::default() }
}

/// The mirror of a job for a worker (MK-ADP-01): suspended until the worker's own Kueue starts it, bound to the copy of
/// the Workload, and without what makes the manager's object the manager's.
pub fn mirror(adapter: &Adapter, job: &DynamicObject, workload: &Workload, origin: &str) -> DynamicObject {
    let mut data = json!({"spec": job.data.get("spec").cloned().unwrap_or_else(|| json!({}))});
    if adapter.suspend.is_some() && !adapter.is_suspended(&job.data) {
        if adapter.back == Back::Job {
            restore(&mut data, &job.metadata, workload);
        } else if let Some(spec) = as_written(adapter, job, workload) {
            data["spec"] = spec;
        }
    }
    for path in adapter.strip {
        remove(&mut data, path);
    }
    for (path, field, value) in adapter.strip_items {
        if let Some(items) = data.pointer_mut(path).and_then(Value::as_array_mut) {
            items.retain(|item| item[*field] != **value);
            if items.is_empty() {
                remove_with_parent(&mut data, path);
            }
        }
    }
    for (path, value, instead) in adapter.replace {
        if let Some(there) = data.pointer_mut(path).filter(|there| **there == **value) {
            *there = json!(instead);
        }
    }
    if let Some(path) = adapter.suspend {
        insert(&mut data, path, Value::Bool(true));
    }
    let mut metadata = reduced(&job.metadata);
    for key in adapter.strip_annotations {
        metadata.annotations.get_or_insert_default().remove(*key);
    }
    mark(&mut metadata, &job.metadata, origin);
    // One that has several Workloads is bound to them by their names.
    if adapter.components.is_none() {
        bind(&mut metadata, workload.metadata.name.as_deref().unwrap_or_default());
    }
    let types = TypeMeta { api_version: adapter.api_version(), kind: adapter.kind.to_owned() };
    DynamicObject { types: Some(types), metadata, data }
}

/// Names a job's Workload in both ways that releases of Kueue look for (MK-INT-04).
pub fn bind(metadata: &mut ObjectMeta, workload: &str) {
    metadata.annotations.get_or_insert_default().insert(PREBUILT_WORKLOAD.to_owned(), workload.to_owned());
    let labels = metadata.labels.get_or_insert_default();
    if workload.len() <= LONGEST_LABEL {
        labels.insert(PREBUILT_WORKLOAD.to_owned(), workload.to_owned());
    } else {
        labels.remove(PREBUILT_WORKLOAD);
    }
}

/// What a copy keeps of an object's metadata.
fn reduced(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        ..ObjectMeta::default()
    }
}

/// Says of a copy whose it is, and of what.
fn mark(copy: &mut ObjectMeta, of: &ObjectMeta, origin: &str) {
    copy.labels.get_or_insert_default().insert(ORIGIN.to_owned(), origin.to_owned());
    let annotations: &mut BTreeMap<_, _> = copy.annotations.get_or_insert_default();
    if let Some(uid) = &of.uid {
        annotations.insert(ORIGIN_UID.to_owned(), uid.clone());
    }
}

/// A Job that was started on the manager has what the manager's flavors added to its pods, and the number of pods that
/// the manager admitted. The Workload has what the user wrote, and the worker compares the mirror with that (MK-FLOW-28).
fn restore(data: &mut Value, metadata: &ObjectMeta, workload: &Workload) {
    let Some(pods) = workload.spec.pod_sets.first() else { return };
    let Ok(original) = serde_json::to_value(&pods.template) else { return };
    for path in [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/nodeSelector",
        "/spec/tolerations",
        "/spec/schedulingGates",
    ] {
        let here = format!("/spec/template{path}");
        match original.pointer(path) {
            Some(value) => insert(data, &here, value.clone()),
            None => remove(data, &here),
        }
    }
    insert(data, "/spec/parallelism", json!(pods.count));
    if batch::scales_completions(metadata) {
        insert(data, "/spec/completions", json!(pods.count));
    }
}

/// The same of kinds that others define: their spec as it was before they started.
fn as_written(adapter: &Adapter, job: &DynamicObject, workload: &Workload) -> Option<Value> {
    let shape = Shape::of(adapter.group, adapter.kind)?;
    let original: Vec<PodSetInfo> = workload.spec.pod_sets.iter().map(PodSetInfo::original).collect();
    let writes = Custom::new(shape, job, None).stopped(Some(&original));
    writes.into_iter().find_map(|write| match write {
        Write::Object(mut object) => Some(object["spec"].take()),
        Write::Status(_) => None,
    })
}

/// Removes a field, and what it was in if there is nothing left of that.
fn remove_with_parent(data: &mut Value, path: &str) {
    remove(data, path);
    let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| *parent != "/spec") else { return };
    if data.pointer(parent).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
        remove(data, parent);
    }
}

/// Removes a field, if it is there.
fn remove(data: &mut Value, path: &str) {
    let Some((parent, field)) = path.rsplit_once('/') else { return };
    if let Some(fields) = data.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.remove(&unescaped(field));
    }
}

/// Sets a field whose parent is there, or whose parent's parent is.
fn insert(data: &mut Value, path: &str, value: Value) {
    let Some((parent, field)) = path.rsplit_once('/') else { return };
    if data.pointer(parent).is_none_or(Value::is_null) && !parent.is_empty() {
        insert(data, parent, json!({}));
    }
    if let Some(fields) = data.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.insert(unescaped(field), value);
    }
}

fn unescaped(field: &str) -> String {
    field.replace("~1", "/").replace("~0", "~")
}
