//! What becomes of Deployments and StatefulSets that are queued, before they are stored, and what of them may change. Their
//! pods wait: those of a Deployment one by one, those of a StatefulSet together (MK-DEP-01, MK-STS-01).

use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Map, Value, json};

use super::{
    MANAGERS, Review, Unreadable, gates,
    job::{Look, label_path, priority_class, queue_name},
    pod::{elastic, queue},
    sparse,
};
use crate::field::{self, Errors, Path};
use crate::framework::{
    Kind, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL,
    apps::{DEPLOYMENT, STATEFUL_SET, is_of_another},
    custom::set,
    label,
    pod::{MANAGED, SUSPENDING_PARENT, role},
};
use crate::meta::IMMUTABLE;

/// Passes on to the pods of an object that they wait, and for a Deployment where.
pub(super) fn default(kind: &Kind, review: &Review<'_>) -> Result<Value, Unreadable> {
    let (mut object, around) = (review.object.clone(), &review.around);
    if *kind == STATEFUL_SET && is_of_another(parent(review.object)) {
        return Ok(object);
    }
    let metadata = super::metadata(review.object)?;
    let queue = queue_name(&metadata, around);
    if let Some(queue) = &queue
        && label(&metadata, QUEUE_NAME_LABEL).is_none()
    {
        set(&mut object, "/metadata/labels/kueue.x-k8s.io~1queue-name", json!(queue));
    }
    let is_managed = queue.is_some() || around.manages_without_queue_name && around.in_managed_namespace;
    if !is_managed || around.has_managed_ancestor || metadata.deletion_timestamp.is_some() {
        return Ok(object);
    }
    let mut mark = |of: &str, key: &str, value: &str| {
        set(&mut object, &format!("/spec/template/metadata/{of}/{}", key.replace('/', "~1")), json!(value));
    };
    mark("annotations", SUSPENDING_PARENT, kind.framework);
    if *kind == DEPLOYMENT {
        mark("labels", MANAGED, "true");
        let class = label(&metadata, PRIORITY_CLASS_LABEL);
        for (key, value) in [(QUEUE_NAME_LABEL, queue.as_deref()), (PRIORITY_CLASS_LABEL, class)] {
            if let Some(value) = value {
                mark("labels", key, value);
            }
        }
    }
    Ok(object)
}

/// What is wrong with a Deployment or a StatefulSet that is queued.
pub(super) fn validate(kind: &Kind, review: &Review<'_>) -> Result<Errors, Unreadable> {
    if *kind == STATEFUL_SET && is_of_another(parent(review.object)) {
        return Ok(Errors::new());
    }
    let metadata = super::metadata(review.object)?;
    let mut errors = queue(&metadata);
    errors.extend(elastic(&metadata, kind));
    let Some(old) = review.old else {
        errors.extend(gates::create(&metadata));
        return Ok(errors);
    };
    let before = super::metadata(old)?;
    // As soon as one of its pods runs, it counts as started.
    let ready = old.pointer("/status/readyReplicas").and_then(Value::as_i64).unwrap_or(0);
    errors.extend(same_queue(&metadata, &before, ready == 0));
    let look = |metadata| Look { metadata, suspended: ready == 0 };
    errors.extend(priority_class(&look(&metadata), &look(&before)));
    errors.extend(gates::update(&metadata, &before));
    if *kind == STATEFUL_SET && is_managed(&metadata, review) {
        errors.extend(same_size(review, old)?);
    }
    Ok(errors)
}

fn parent(object: &Value) -> Option<&str> {
    object.pointer("/spec/template/metadata/annotations")?.get(SUSPENDING_PARENT)?.as_str()
}

pub(super) fn is_managed(metadata: &ObjectMeta, review: &Review<'_>) -> bool {
    let around = &review.around;
    let queued = label(metadata, QUEUE_NAME_LABEL).is_some();
    metadata.deletion_timestamp.is_none()
        && (queued || around.manages_without_queue_name && around.in_managed_namespace)
}

pub(super) fn same_queue(new: &ObjectMeta, old: &ObjectMeta, suspended: bool) -> Errors {
    let queue = |of| label(of, QUEUE_NAME_LABEL).unwrap_or_default();
    let (new, old) = (queue(new), queue(old));
    if new == old || suspended && !new.is_empty() {
        return Errors::new();
    }
    vec![label_path(QUEUE_NAME_LABEL).invalid(new, IMMUTABLE)]
}

/// The pods of a StatefulSet that is queued are what they are, and all of them are there or none is.
fn same_size(review: &Review<'_>, old: &Value) -> Result<Errors, Unreadable> {
    let read = |object: &Value| -> Result<StatefulSet, Unreadable> { Ok(sparse::read(object, &[MANAGERS])?) };
    let (new, old) = (read(review.object)?, read(old)?);
    let spec =
        |of: &StatefulSet| of.spec.as_ref().and_then(|spec| spec.template.spec.clone()).unwrap_or_default();
    let path = Path::new("spec").child("template").child("spec");
    let mut errors = same_shape(&spec(&new), &spec(&old), &path);
    let replicas = |of: &StatefulSet| of.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let (now, before) = (replicas(&new), replicas(&old));
    let path = Path::new("spec").child("replicas");
    if now != 0 && before != 0 && now != before {
        errors.push(path.invalid(i64::from(now), IMMUTABLE));
    }
    if before == 0 && now > 0 {
        let still = new.status.as_ref().is_some_and(|status| status.replicas > 0);
        if still {
            errors.push(path.forbidden("scaling down is still in progress"));
        } else if review.around.has_lingering_workload {
            errors.push(path.forbidden("workload from previous scale-down is still being deleted"));
        }
    }
    Ok(errors)
}

/// What decides where pods can be stays, field by field.
pub(super) fn same_shape(new: &PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let read = |spec: &PodSpec| -> Value { serde_json::from_str(&role::shape(spec)).unwrap_or_default() };
    let mut errors = Errors::new();
    differences(&read(new), &read(old), path, &mut errors);
    errors
}

fn differences(new: &Value, old: &Value, path: &Path, errors: &mut Errors) {
    let none = Map::new();
    let fields = |value: &Value| value.as_object().unwrap_or(&none).clone();
    let (new, old) = (fields(new), fields(old));
    for name in new.keys().chain(old.keys().filter(|name| !new.contains_key(*name))) {
        let (after, before) = (new.get(name).unwrap_or(&Value::Null), old.get(name).unwrap_or(&Value::Null));
        let path = path.child(name);
        match (name.as_str(), after, before) {
            ("containers" | "initContainers", Value::Array(after), Value::Array(before))
                if after.len() == before.len() =>
            {
                for (index, (after, before)) in after.iter().zip(before).enumerate() {
                    differences(after, before, &path.index(index), errors);
                }
            }
            ("resources", Value::Object(after), Value::Object(before)) if after.contains_key("requests") => {
                differences(&json!(after), &json!(before), &path, errors);
            }
            _ if is_same(after, before) => {}
            _ => errors.push(path.invalid(field::Value::json(after), IMMUTABLE)),
        }
    }
}

/// What is absent and what is empty is the same.
fn is_same(a: &Value, b: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    a == b || is_empty(a) && is_empty(b)
}
