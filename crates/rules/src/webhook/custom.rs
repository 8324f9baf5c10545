//! What becomes of a Job of somebody else's kind that is queued, before it is stored, and what of it may change (JF-6,
//! JF-34); and what some kinds must not ask for while they are queued.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    MULTIKUEUE, Review, Unreadable,
    job::{Look, is_elastic, kept, queue_name, validate as named},
    topology,
};
use crate::dispatch::adapter::gvk;
use crate::field::{self, Errors, Path};
use crate::framework::{
    Observed as _, QUEUE_NAME_LABEL,
    custom::{Custom, End, PATCH_MANAGER, Place, Pods, Shape, set},
    label,
};
use crate::workload::ELASTIC_JOB;

/// No Workload has more pod sets.
const MOST_POD_SETS: usize = 18;
/// The pod set of a Ray cluster's head.
const HEAD: &str = "head";

/// Fills in what a new Job did not say: its queue, that it waits, and who reconciles it.
pub(super) fn default(shape: &Shape, review: &Review<'_>) -> Result<Value, Unreadable> {
    let (mut object, around) = (review.object.clone(), &review.around);
    let metadata = metadata_of(&object)?;
    let queue = queue_name(&metadata, around);
    if let Some(queue) = &queue
        && label(&metadata, QUEUE_NAME_LABEL).is_none()
    {
        set(&mut object, "/metadata/labels/kueue.x-k8s.io~1queue-name", json!(queue));
    }
    let is_managed = queue.is_some() || around.manages_without_queue_name && around.in_managed_namespace;
    if is_managed && !around.has_managed_ancestor && metadata.deletion_timestamp.is_none() {
        set(&mut object, shape.suspend, json!(true));
    }
    let manager = object.pointer(shape.managed_by).and_then(Value::as_str);
    let by_nobody_else = manager.is_none_or(|name| name == shape.controller);
    if queue.is_some() && around.is_dispatched && by_nobody_else {
        set(&mut object, shape.managed_by, json!(MULTIKUEUE));
    }
    if shape.pods == Pods::Runtime {
        keep_a_patch(&mut object);
    }
    if shape.is_resized() && is_elastic(&metadata) {
        for at in templates(&object) {
            let gates = format!("{at}/spec/schedulingGates");
            if !is_gated(&object, &gates) {
                let mut all = object.pointer(&gates).and_then(Value::as_array).cloned().unwrap_or_default();
                all.push(json!({ "name": ELASTIC_JOB }));
                set(&mut object, &gates, json!(all));
            }
        }
    }
    Ok(object)
}

/// Where the pod templates of a RayCluster are, those of its workers first.
fn templates(object: &Value) -> Vec<String> {
    let groups = object.pointer("/spec/workerGroupSpecs").and_then(Value::as_array).map_or(0, Vec::len);
    let workers = (0..groups).map(|index| format!("/spec/workerGroupSpecs/{index}/template"));
    workers.chain(["/spec/headGroupSpec/template".to_owned()]).collect()
}

/// Whether pods wait for a slice, by the list of their gates.
fn is_gated(object: &Value, gates: &str) -> bool {
    let gates = object.pointer(gates).and_then(Value::as_array);
    gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == ELASTIC_JOB))
}

/// Trainer lets a patch change later, but not appear: there is one of ours from the beginning.
fn keep_a_patch(object: &mut Value) {
    let patches = object.pointer("/spec/runtimePatches").and_then(Value::as_array);
    let mut patches = patches.cloned().unwrap_or_default();
    if patches.iter().all(|patch| patch["manager"] != PATCH_MANAGER) {
        let spec = json!({ "template": { "spec": {} } });
        patches.push(json!({ "manager": PATCH_MANAGER, "trainingRuntimeSpec": spec }));
        set(object, "/spec/runtimePatches", json!(patches));
    }
}

/// What is wrong with a Job.
pub(super) fn validate(shape: &'static Shape, review: &Review<'_>) -> Result<Errors, Unreadable> {
    let metadata = metadata_of(review.object)?;
    let is_queued = review.around.manages_without_queue_name || label(&metadata, QUEUE_NAME_LABEL).is_some();
    let mut errors = Errors::new();
    if let Pods::Ray { at } = shape.pods
        && is_queued
    {
        errors.extend(ray(shape, at, review.object, &metadata));
    }
    errors.extend(named(&metadata));
    errors.extend(placed(&Custom::of(shape, review.object, &metadata, review.runtime.cloned()), shape));
    if review.old.is_none() {
        errors.extend(elastic(shape, &metadata));
    }
    if let Some(old) = review.old {
        let before = metadata_of(old)?;
        let new = Look { metadata: &metadata, suspended: shape.is_suspended(review.object) };
        let old = Look { metadata: &before, suspended: shape.is_suspended(old) };
        errors.extend(kept(&new, &old, review.around.has_default_queue));
    }
    Ok(errors)
}

/// What its pods may ask for about where they are (TA-9). Templates that cannot be read are not looked at: of a runtime it is
/// not known here whether it will be there.
fn placed(job: &Custom<'_>, shape: &Shape) -> Errors {
    let places = job.places().unwrap_or_default();
    let mut errors: Errors = places
        .iter()
        .flat_map(|it| topology::validate(&it.template, &metadata_path(shape, it), it.count, false))
        .collect();
    // Of Kubeflow's roles, of Jobs of a runtime and of components Kueue does not ask whether they go together.
    let is_asked =
        matches!(shape.pods, Pods::ReplicatedJobs | Pods::Ray { .. }) || shape.kind.kind == "MPIJob";
    if is_asked {
        // Where what is asked for cannot be read, it is said above why.
        errors.extend(topology::grouped(&job.pod_sets().unwrap_or_default(), &|pod_set| {
            let place = places.iter().find(|place| place.name == pod_set);
            place.map_or_else(Path::root, |place| metadata_path(shape, place).child("annotations"))
        }));
    }
    if shape.pods == Pods::Runtime {
        let advice = ". Adjust either the \"TrainJob.spec.runtimePatches\" or the \"TrainingRuntime.Template\" annotations \
                      for the corresponding Job";
        for error in &mut errors {
            error.detail.push_str(advice);
        }
    }
    errors
}

/// Where the metadata of a pod template is, as it is told: a template that comes from a runtime is nowhere in the object.
fn metadata_path(shape: &Shape, place: &Place) -> Path {
    match shape.pods {
        Pods::Runtime => return Path::new("job").key(&place.name),
        Pods::Roles { at, roles } => {
            let role = roles.iter().find(|role| place.at == format!("{at}/{role}/template"));
            return path_of(at).key(role.unwrap_or(&"")).child("template").child("metadata");
        }
        Pods::ReplicatedJobs | Pods::Ray { .. } | Pods::Components => {}
    }
    path_of(&place.at).child("metadata")
}

/// A pointer into a spec as a path.
fn path_of(pointer: &str) -> Path {
    let grown = |path: Path, part: &str| {
        part.parse().map_or_else(|_| path.child(part), |index: usize| path.index(index))
    };
    pointer.split('/').skip(2).fold(Path::new("spec"), grown)
}

/// Only Ray's kinds, and batch Job, can grow and shrink (MK-WH-09).
fn elastic(shape: &Shape, metadata: &ObjectMeta) -> Errors {
    if !is_elastic(metadata) || matches!(shape.pods, Pods::Ray { .. }) {
        return Errors::new();
    }
    let gvk = gvk(&shape.kind.api_version(), shape.kind.kind);
    let path = Path::new("metadata").child("annotations").key(ELASTIC_JOB);
    vec![path.forbidden(format!("elastic job is not supported for {gvk:?}"))]
}

/// What a Ray cluster must not ask for while it is queued.
fn ray(shape: &Shape, at: &str, object: &Value, metadata: &ObjectMeta) -> Errors {
    let path = path_of(at);
    let spec = object.pointer(at).filter(|spec| !spec.is_null());
    let mut errors = Errors::new();
    if shape.end == End::RayJob {
        let selector = object
            .pointer("/spec/clusterSelector")
            .filter(|it| it.as_object().is_some_and(|it| !it.is_empty()));
        match (selector, spec) {
            (Some(selector), Some(_)) => {
                let path = Path::new("spec").child("clusterSelector");
                let why = "a kueue managed job should not use an existing cluster";
                return vec![path.invalid(field::Value::json(selector), why)];
            }
            (Some(_), None) => return errors,
            (None, None) => {
                let why = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector";
                return vec![path.required(why)];
            }
            (None, Some(_)) => {}
        }
        let shuts_down = object.pointer("/spec/shutdownAfterJobFinishes") == Some(&Value::Bool(true));
        if !shuts_down {
            let path = Path::new("spec").child("shutdownAfterJobFinishes");
            errors.push(path.invalid(false, "a kueue managed job should delete the cluster after finishing"));
        }
    }
    let Some(spec) = spec else { return errors };
    if shape.is_resized() && is_elastic(metadata) {
        errors.extend(ungated(object));
    }
    if spec.get("enableInTreeAutoscaling") == Some(&Value::Bool(true)) && !is_elastic(metadata) {
        let why = "a kueue managed job should only use autoscaling when workload slicing is enabled";
        errors.push(path.child("enableInTreeAutoscaling").invalid(true, why));
    }
    let is_dispatched =
        shape.kind.kind == "RayCluster" && object.pointer(shape.managed_by) == Some(&json!(MULTIKUEUE));
    if spec.get("enableInTreeAutoscaling") == Some(&Value::Bool(true))
        && is_elastic(metadata)
        && is_dispatched
    {
        let why = "in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster";
        errors.push(path.child("enableInTreeAutoscaling").forbidden(why));
    }
    let groups =
        spec.get("workerGroupSpecs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let groups_path = path.child("workerGroupSpecs");
    if groups.len() + 1 > MOST_POD_SETS {
        errors.push(groups_path.too_many(groups.len() + 1, MOST_POD_SETS));
    }
    for (index, _) in groups.iter().enumerate().filter(|(_, group)| group["groupName"] == HEAD) {
        let path = groups_path.index(index).child("groupName");
        errors.push(path.forbidden("\"head\" is reserved for the head group"));
    }
    errors
}

/// The pods of a RayCluster that may grow wait for the slice that they belong to.
fn ungated(object: &Value) -> Errors {
    let missing = templates(object).into_iter().map(|at| format!("{at}/spec/schedulingGates"));
    let missing = missing.filter(|gates| !is_gated(object, gates)).map(|gates| {
        let path = path_of(&gates);
        let there = object.pointer(&gates).filter(|gates| !gates.is_null());
        let there = there.map_or_else(|| field::Value::json(&Value::Null), field::Value::json);
        path.invalid(there, "an elastic job must have the ElasticJobSchedulingGate")
    });
    missing.collect()
}

fn metadata_of(object: &Value) -> Result<ObjectMeta, Unreadable> {
    Ok(ObjectMeta::deserialize(&object["metadata"])?)
}
