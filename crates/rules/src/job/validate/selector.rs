//! The selector of a Job and the labels of its pods (C-10…C-13, C-65…C-67).

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use crate::field::{Errors, Path, Value};
use crate::job::{
    CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL, spec,
};
use crate::meta::{self, Map};
use crate::wire;

/// Whether selector and labels are the generated ones, unless the user asked to write them.
pub(super) fn validate_generated(job: &Job, require_prefixed: bool) -> Errors {
    let spec = spec(job);
    if spec.manual_selector == Some(true) || spec.selector.is_none() {
        return Errors::new();
    }
    let uid = job.metadata.uid.as_deref().unwrap_or("");
    let name = job.metadata.name.as_deref().unwrap_or("");
    let mut expected = vec![(LEGACY_CONTROLLER_UID_LABEL, uid), (LEGACY_JOB_NAME_LABEL, name)];
    if require_prefixed {
        expected.extend([(CONTROLLER_UID_LABEL, uid), (JOB_NAME_LABEL, name)]);
    }

    let mut errors = Errors::new();
    if uid.is_empty() {
        errors.push(Path::new("metadata").child("uid").required(""));
    }
    let labels_path = Path::new("spec").child("template").child("metadata").child("labels");
    for (key, value) in &expected {
        errors.extend(validate_label(template_labels(spec), key, value, &labels_path));
    }
    let expected: Map = expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if meta::selector::matches(spec.selector.as_ref(), &expected) == Some(false) {
        let selector = Value::internal(wire::LABEL_SELECTOR, &spec.selector);
        errors.push(Path::new("spec").child("selector").invalid(selector, "`selector` not auto-generated"));
    }
    errors
}

fn validate_label(labels: Option<&Map>, key: &str, expected: &str, path: &Path) -> Errors {
    let why = format!("must be '{expected}'");
    match labels.and_then(|labels| labels.get(key)) {
        Some(value) if value == expected => Errors::new(),
        Some(_) => vec![path.key(key).invalid(Value::json(&labels), why)],
        None => vec![path.key(key).required(why)],
    }
}

/// Whether the selector is well-formed and selects the pods that the template makes.
pub(super) fn validate(spec: &JobSpec, tolerate_values: bool, path: &Path) -> Errors {
    let mut errors = match &spec.selector {
        None => vec![path.child("selector").required("")],
        Some(selector) => meta::selector::validate(selector, tolerate_values, &path.child("selector")),
    };
    let labels = template_labels(spec);
    if meta::selector::matches(spec.selector.as_ref(), labels.unwrap_or(&Map::new())) == Some(false) {
        let path = path.child("template").child("metadata").child("labels");
        errors.push(path.invalid(Value::json(&labels), "`selector` does not match template `labels`"));
    }
    errors
}

fn template_labels(spec: &JobSpec) -> Option<&Map> {
    spec.template.metadata.as_ref()?.labels.as_ref()
}
