//! What becomes of a LeaderWorkerSet that is queued, before it is stored, and what of it may change. The pods of each of its
//! replicas wait together (MK-LWS-01).

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};

use super::{
    Review, Unreadable,
    apps::{is_managed, same_queue, same_shape},
    gates,
    job::{Look, priority_class, queue_name},
    pod::{elastic, queue},
    sparse, topology,
};
use crate::field::{self, Errors, Path};
use crate::framework::{
    PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL,
    apps::{
        LEADER_WORKER_SET,
        leader_worker_set::{LEADER, pod_sets, replicas},
        spec::Spec,
    },
    custom::set,
    label,
    pod::{SERVING, SUSPENDING_PARENT},
    ungate::INDEX_OFFSET,
};
use crate::meta::IMMUTABLE;

const GROUP: &str = "kueue.x-k8s.io/podset-group-name";
const LEADER_TEMPLATE: &str = "/spec/leaderWorkerTemplate/leaderTemplate";
const WORKER_TEMPLATE: &str = "/spec/leaderWorkerTemplate/workerTemplate";

/// Passes on to the pods of an object that they wait, and where.
pub(super) fn default(review: &Review<'_>) -> Result<Value, Unreadable> {
    let (mut object, around) = (review.object.clone(), &review.around);
    let metadata = super::metadata(review.object)?;
    let queue = queue_name(&metadata, around);
    if let Some(queue) = &queue
        && label(&metadata, QUEUE_NAME_LABEL).is_none()
    {
        set(&mut object, &at("/metadata/labels", QUEUE_NAME_LABEL), json!(queue));
    }
    let is_queued = queue.is_some() || around.manages_without_queue_name && around.in_managed_namespace;
    if !is_queued || around.has_managed_ancestor || metadata.deletion_timestamp.is_some() {
        return Ok(object);
    }
    let has_leader = object.pointer(LEADER_TEMPLATE).is_some_and(|template| !template.is_null());
    let class = label(&metadata, PRIORITY_CLASS_LABEL);
    for template in [LEADER_TEMPLATE, WORKER_TEMPLATE] {
        if template == LEADER_TEMPLATE && !has_leader {
            continue;
        }
        let (labels, annotations) =
            (format!("{template}/metadata/labels"), format!("{template}/metadata/annotations"));
        for (key, value) in [(QUEUE_NAME_LABEL, queue.as_deref()), (PRIORITY_CLASS_LABEL, class)] {
            if let Some(value) = value {
                set(&mut object, &at(&labels, key), json!(value));
            }
        }
        set(&mut object, &at(&annotations, SUSPENDING_PARENT), json!(LEADER_WORKER_SET.framework));
        set(&mut object, &at(&annotations, SERVING), json!("true"));
        // Where leader and workers are placed as one, that is taken into account there.
        let is_alone = object.pointer(&at(&annotations, GROUP)).is_none();
        if template == WORKER_TEMPLATE && has_leader && is_alone {
            set(&mut object, &at(&annotations, INDEX_OFFSET), json!("1"));
        }
    }
    Ok(object)
}

/// What is wrong with a LeaderWorkerSet.
pub(super) fn validate(review: &Review<'_>) -> Result<Errors, Unreadable> {
    let metadata = super::metadata(review.object)?;
    let new = spec(review.object)?;
    let mut errors = queue(&metadata);
    errors.extend(elastic(&metadata, &LEADER_WORKER_SET));
    if let Err(why) = replicas(new.replicas) {
        let path = Path::new("spec").child("replicas");
        errors.push(path.invalid(i64::from(new.replicas.unwrap_or(1)), why));
    }
    errors.extend(gates::create(&metadata));
    errors.extend(placed(&new));
    let Some(old) = review.old else { return Ok(errors) };
    let before = super::metadata(old)?;
    // As soon as one of its groups is ready, it counts as started.
    let suspended = old.pointer("/status/readyReplicas").and_then(Value::as_i64).unwrap_or(0) == 0;
    errors.extend(same_queue(&metadata, &before, suspended));
    let look = |metadata| Look { metadata, suspended };
    errors.extend(priority_class(&look(&metadata), &look(&before)));
    errors.extend(gates::update(&metadata, &before));
    if is_managed(&metadata, review) {
        errors.extend(same_groups(&new, &spec(old)?));
    }
    Ok(errors)
}

/// A label or annotation, where it is in an object.
fn at(parent: &str, key: &str) -> String {
    format!("{parent}/{}", key.replace('/', "~1"))
}

fn spec(object: &Value) -> Result<Spec, Unreadable> {
    match object.get("spec") {
        Some(spec) if !spec.is_null() => Ok(sparse::read(spec, &[])?),
        _ => Ok(Spec::default()),
    }
}

fn template_path() -> Path {
    Path::new("spec").child("leaderWorkerTemplate")
}

/// What the groups are made of stays, and how large they are: their Workloads have room for that and no more.
fn same_groups(new: &Spec, old: &Spec) -> Errors {
    let mut errors = Errors::new();
    let (now, before) = (&new.leader_worker_template, &old.leader_worker_template);
    let pods = |template: &PodTemplateSpec| template.spec.clone().unwrap_or_default();
    let (leader, worker) = (template_path().child("leaderTemplate"), template_path().child("workerTemplate"));
    match (&now.leader, &before.leader) {
        (None, None) => {}
        (Some(now), Some(before)) => {
            errors.extend(same_shape(&pods(now), &pods(before), &leader.child("spec")));
        }
        (now, _) => errors.push(leader.invalid(field::Value::json(now), IMMUTABLE)),
    }
    let worker = worker.child("spec");
    errors.extend(same_shape(&pods(&now.worker), &pods(&before.worker), &worker));
    let (now, before) = (new.size(), old.size());
    if now != before {
        errors.push(template_path().child("size").invalid(i64::from(now), IMMUTABLE));
    }
    errors
}

/// What its pods may ask for about where they are (TA-9).
fn placed(spec: &Spec) -> Errors {
    let of = &spec.leader_worker_template;
    let mut errors = Errors::new();
    let metadata = |template: &str| template_path().child(template).child("metadata");
    let mut workers = spec.size();
    if let Some(leader) = &of.leader {
        workers -= 1;
        errors.extend(topology::validate(leader, &metadata("leaderTemplate"), 1, false));
    }
    errors.extend(topology::validate(&of.worker, &metadata("workerTemplate"), workers, false));
    // Where the templates cannot be read, it is said above why.
    errors.extend(topology::grouped(&pod_sets(spec).unwrap_or_default(), &|pod_set| {
        let template = if pod_set == LEADER { "leaderTemplate" } else { "workerTemplate" };
        metadata(template).child("annotations")
    }));
    errors
}
