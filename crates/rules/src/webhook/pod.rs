//! What becomes of a pod that is queued, before it is stored, and what of it may change (JF-70).

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use super::{
    MANAGERS, Review, Unreadable,
    job::{Look, annotation_path, is_elastic, kept, label_path, prebuilt, validate as named},
    sparse, topology,
};
use crate::dispatch::adapter::gvk;
use crate::field::{Errors, Path};
use crate::framework::{
    Kind, QUEUE_NAME_LABEL, TOPOLOGY_GATE, annotation,
    batch::JOB,
    custom::set,
    label,
    pod::{
        ADMISSION_GATE, GROUP_NAME, GROUP_TOTAL_COUNT, MANAGED, POD, POD_INDEX, POD_INDEX_LABEL,
        RETRIABLE_IN_GROUP, ROLE_HASH, SUSPENDING_PARENT, group_name, is_gated, is_terminated,
        is_unretriable, role, total_count,
    },
    queue_name,
};
use crate::meta::IMMUTABLE;
use crate::names;
use crate::workload::ELASTIC_JOB;

/// What all labels and annotations that matter here begin with.
const PREFIX: &str = "kueue.x-k8s.io/";

/// Makes a new pod wait that is in a queue, or is part of an object that is.
pub(super) fn default(review: &Review<'_>) -> Result<Value, Unreadable> {
    let (mut object, around) = (review.object.clone(), &review.around);
    let pod: Pod = sparse::read(review.object, &[MANAGERS, &["status"]])?;
    let has_parent = annotation(&pod.metadata, SUSPENDING_PARENT).is_some();
    if has_parent && !around.has_managed_parent {
        return Ok(object);
    }
    if !has_parent {
        let is_left_alone = !around.in_managed_namespace
            || around.only_parts
            || around.has_managed_ancestor
            || is_of_job(&pod.metadata);
        let queued = queue_name(&pod.metadata).is_some();
        if is_left_alone || !(queued || around.has_default_queue || around.manages_without_queue_name) {
            return Ok(object);
        }
        if !queued && around.has_default_queue {
            set(&mut object, "/metadata/labels/kueue.x-k8s.io~1queue-name", json!("default"));
        }
        add(&mut object, "/metadata", "finalizers", json!(MANAGED));
    }
    // Pods are watched by this label. Kueue gives it to pods of StatefulSets a moment later.
    set(&mut object, "/metadata/labels/kueue.x-k8s.io~1managed", json!("true"));
    if let Some(number) = annotation(&pod.metadata, POD_INDEX_LABEL) {
        let number = label(&pod.metadata, number).unwrap_or_default();
        set(&mut object, &format!("/metadata/labels/{}", POD_INDEX.replace('/', "~1")), json!(number));
    }
    for gate in [ADMISSION_GATE, TOPOLOGY_GATE] {
        add(&mut object, "/spec", "schedulingGates", json!({ "name": gate }));
    }
    let role_hash = format!("/metadata/annotations/{}", ROLE_HASH.replace('/', "~1"));
    set(&mut object, &role_hash, json!(role::of(&pod)));
    Ok(object)
}

/// Whether a pod is one of a Job's: the Job is queued, or nothing is. Unless it names a queue itself, nobody need ask.
fn is_of_job(metadata: &ObjectMeta) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true));
    let is_job = owner.is_some_and(|it| it.kind == JOB.kind && it.api_version == JOB.api_version());
    is_job && queue_name(metadata).is_none()
}

/// Adds an item to a list, unless it is there.
fn add(object: &mut Value, at: &str, list: &str, item: Value) {
    let Some(Value::Object(fields)) = object.pointer_mut(at) else { return };
    let items = fields.entry(list).or_insert(Value::Null);
    if items.is_null() {
        *items = json!([]);
    }
    if let Value::Array(items) = items
        && !items.contains(&item)
    {
        items.push(item);
    }
}

/// What is wrong with a pod that is queued, and what should not be done and is accepted.
pub(super) fn validate(review: &Review<'_>) -> Result<(Errors, Vec<String>), Unreadable> {
    // Most pods are none of ours.
    if !is_marked(review.object) && !review.old.is_some_and(is_marked) {
        return Ok((Errors::new(), Vec::new()));
    }
    let read = |object: &Value| -> Result<Pod, Unreadable> { Ok(sparse::read(object, &[MANAGERS])?) };
    let (new, old) = (read(review.object)?, review.old.map(read).transpose()?);
    let metadata = &new.metadata;
    let mut errors = named(metadata);
    match &old {
        None => errors.extend(elastic(metadata, &POD)),
        Some(old) => errors.extend(kept(&look(&new), &look(old), review.around.has_default_queue)),
    }
    errors.extend(marked(metadata));
    errors.extend(grouped(metadata));
    let template = PodTemplateSpec { metadata: Some(metadata.clone()), spec: None };
    errors.extend(topology::validate(&template, &Path::new("metadata"), i32::MAX, false));
    errors.extend(same_workload(metadata));
    if let Some(old) = &old {
        errors.extend(same_group(metadata, &old.metadata));
    }
    let is_doubtful = label(metadata, MANAGED) == Some("true")
        && review.around.has_managed_owner
        && annotation(metadata, SUSPENDING_PARENT).is_none();
    let warning =
        format!("pod owner is managed by kueue, label '{MANAGED}=true' might lead to unexpected behaviour");
    Ok((errors, is_doubtful.then_some(warning).into_iter().collect()))
}

fn is_marked(object: &Value) -> bool {
    ["/metadata/labels", "/metadata/annotations"].iter().any(|at| {
        let marks = object.pointer(at).and_then(Value::as_object);
        marks.is_some_and(|marks| marks.keys().any(|key| key.starts_with(PREFIX)))
    })
}

fn look(pod: &Pod) -> Look<'_> {
    Look { metadata: &pod.metadata, suspended: is_terminated(pod) || is_gated(pod) }
}

/// Pods, and objects that are made of pods, do not grow and shrink by slices (MK-WH-09).
pub(super) fn elastic(metadata: &ObjectMeta, kind: &Kind) -> Errors {
    if !is_elastic(metadata) {
        return Errors::new();
    }
    let gvk = gvk(&kind.api_version(), kind.kind);
    vec![annotation_path(ELASTIC_JOB).forbidden(format!("elastic job is not supported for {gvk:?}"))]
}

fn marked(metadata: &ObjectMeta) -> Errors {
    let said = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED));
    if said.is_none_or(|said| said == "true") {
        return Errors::new();
    }
    vec![label_path(MANAGED).forbidden("managed label value can only be 'true'")]
}

/// The name of a group and its size go together.
fn grouped(metadata: &ObjectMeta) -> Errors {
    let annotated = annotation(metadata, GROUP_NAME).filter(|name| !name.is_empty());
    let (path, place) = match annotated {
        Some(_) => (annotation_path(GROUP_NAME), "annotation"),
        None => (label_path(GROUP_NAME), "label"),
    };
    let both =
        format!("both the '{GROUP_TOTAL_COUNT}' annotation and the '{GROUP_NAME}' {place} should be set");
    let count = annotation(metadata, GROUP_TOTAL_COUNT);
    let mut errors = Errors::new();
    let stated = annotated.or_else(|| metadata.labels.as_ref()?.get(GROUP_NAME).map(String::as_str));
    match (group_name(metadata), count) {
        (None, None) => return errors,
        (None, Some(_)) => return vec![path.required(both)],
        (Some(_), _) => {
            let name = stated.unwrap_or_default();
            let problems = names::dns_subdomain(name);
            if !problems.is_empty() {
                errors.push(path.invalid(name, problems.join(",")));
            }
        }
    }
    match count.map(|said| (said, total_count(metadata))) {
        None => errors.push(annotation_path(GROUP_TOTAL_COUNT).required(both)),
        Some((said, Err(why))) => errors.push(annotation_path(GROUP_TOTAL_COUNT).invalid(said, why)),
        Some((_, Ok(_))) => {}
    }
    errors
}

/// The Workload of a group has the name of the group, whoever makes it (MK-POD-02).
fn same_workload(metadata: &ObjectMeta) -> Errors {
    match (group_name(metadata), prebuilt(metadata)) {
        (Some(group), Some((workload, path))) if workload != group => {
            vec![path.invalid(workload, "prebuilt workload and pod group should be equal")]
        }
        _ => Errors::new(),
    }
}

fn same_group(new: &ObjectMeta, old: &ObjectMeta) -> Errors {
    let mut errors = Errors::new();
    if group_name(new).is_some() && is_unretriable(old) && !is_unretriable(new) {
        let why = "unretriable pod group can't be converted to retriable";
        errors.push(annotation_path(RETRIABLE_IN_GROUP).forbidden(why));
    }
    if let Some(before) = group_name(old)
        && group_name(new) != Some(before)
    {
        let annotated = annotation(new, GROUP_NAME).is_some_and(|name| !name.is_empty());
        let path = if annotated { annotation_path(GROUP_NAME) } else { label_path(GROUP_NAME) };
        errors.push(path.invalid(group_name(new).unwrap_or_default(), IMMUTABLE));
    }
    errors
}

/// The name of a queue, which has to be one.
pub(super) fn queue(metadata: &ObjectMeta) -> Errors {
    let Some(queue) = metadata.labels.as_ref().and_then(|labels| labels.get(QUEUE_NAME_LABEL)) else {
        return Errors::new();
    };
    let problems = names::dns_subdomain(queue);
    if problems.is_empty() {
        return Errors::new();
    }
    vec![label_path(QUEUE_NAME_LABEL).invalid(queue.as_str(), problems.join(","))]
}
