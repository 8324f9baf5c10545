//! What is passed on of later changes of a job: the number of pods of elastic ones, and what a RayService serves. All
//! else was copied once (MK-ADP-03).

use kube_core::DynamicObject;
use serde_json::{Map, Value, json};
use types::kueue::Workload;

use super::{Adapter, ELASTIC, PREBUILT_WORKLOAD, adapter::Forward, copy, observed::annotation};

/// The patch of a mirror that brings it up to date; `None` if it is.
pub(super) fn changes(
    adapter: &Adapter,
    job: &DynamicObject,
    mirror: &DynamicObject,
    workload: &Workload,
) -> Option<Value> {
    match adapter.forward {
        Forward::Field(path) => {
            let wanted = job.data.pointer(path)?;
            (mirror.data.pointer(path) != Some(wanted)).then(|| nested(path, wanted.clone()))
        }
        Forward::Parallelism if is_elastic(job) => parallelism(job, mirror, workload),
        Forward::WorkerGroups if is_elastic(job) => worker_groups(job, mirror, workload),
        Forward::Nothing | Forward::Parallelism | Forward::WorkerGroups => None,
    }
}

/// The patch that gives a mirror of the same job to another slice of it; `None` if it is not of the same job.
pub(super) fn repoint(
    adapter: &Adapter,
    job: &DynamicObject,
    mirror: &DynamicObject,
    workload: &Workload,
) -> Option<Value> {
    let of = annotation(&mirror.metadata, super::ORIGIN_UID);
    if !is_elastic(job) || of.is_some_and(|uid| Some(uid) != job.metadata.uid.as_deref()) {
        return None;
    }
    let mut metadata = mirror.metadata.clone();
    copy::bind(&mut metadata, workload.metadata.name.as_deref()?);
    let pick = |map: Option<std::collections::BTreeMap<String, String>>| {
        map.and_then(|mut map| map.remove(PREBUILT_WORKLOAD)).map_or(Value::Null, Value::String)
    };
    let mut patch = changes(adapter, job, mirror, workload).unwrap_or_else(|| json!({}));
    patch["metadata"] = json!({
        "annotations": {PREBUILT_WORKLOAD: pick(metadata.annotations)},
        "labels": {PREBUILT_WORKLOAD: pick(metadata.labels)},
    });
    Some(patch)
}

fn is_elastic(job: &DynamicObject) -> bool {
    annotation(&job.metadata, ELASTIC) == Some("true")
}

/// A Job grows only with the slice that was admitted for it; the one before would give it away too early (MK-ELA-06).
fn parallelism(job: &DynamicObject, mirror: &DynamicObject, workload: &Workload) -> Option<Value> {
    let count = |object: &DynamicObject, field: &str| object.data.pointer(field).and_then(Value::as_i64);
    let (wanted, there) = (count(job, "/spec/parallelism")?, count(mirror, "/spec/parallelism")?);
    let admitted = workload.spec.pod_sets.first().map_or(0, |pods| i64::from(pods.count));
    if wanted == there || wanted > there && admitted < wanted {
        return None;
    }
    let mut spec = Map::from_iter([("parallelism".to_owned(), json!(wanted))]);
    let completions = count(job, "/spec/completions");
    if completions.is_some() && completions != count(mirror, "/spec/completions") {
        spec.insert("completions".to_owned(), json!(completions));
    }
    Some(json!({"spec": spec}))
}

/// The sizes of the groups that both have, in a list as a merge patch needs it: whole (MK-ELA-07). A cluster grows only
/// with the slice that was admitted for it, as a Job does.
fn worker_groups(job: &DynamicObject, mirror: &DynamicObject, workload: &Workload) -> Option<Value> {
    const GROUPS: &str = "/spec/workerGroupSpecs";
    let wanted = job.data.pointer(GROUPS)?.as_array()?;
    let mut groups = mirror.data.pointer(GROUPS)?.as_array()?.clone();
    let admitted: i64 = workload.spec.pod_sets.iter().map(|pods| i64::from(pods.count)).sum();
    if pods(wanted) > pods(&groups) && admitted < pods(wanted) {
        return None;
    }
    for group in &mut groups {
        let Some(same) = wanted.iter().find(|other| other["groupName"] == group["groupName"]) else {
            continue;
        };
        for field in ["replicas", "numOfHosts"] {
            if let Some(value) = same.get(field) {
                group[field] = value.clone();
            }
        }
    }
    let changed = mirror.data.pointer(GROUPS).and_then(Value::as_array) != Some(&groups);
    changed.then(|| json!({"spec": {"workerGroupSpecs": groups}}))
}

/// The pods of a Ray cluster with these groups: its head, and for every replica as many as there are hosts to it.
fn pods(groups: &[Value]) -> i64 {
    let of = |group: &Value| {
        group["replicas"].as_i64().unwrap_or(1) * group["numOfHosts"].as_i64().unwrap_or(1).max(1)
    };
    1 + groups.iter().map(of).sum::<i64>()
}

fn nested(path: &str, value: Value) -> Value {
    path.split('/')
        .skip(1)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .fold(value, |value, field| json!({field: value}))
}
