//! Names of whoever keeps a Workload from being admitted: given at creation, only taken away later (WL-12).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::field::{Errors, Path};
use crate::names;
use crate::workload::ADMISSION_GATED_BY;

/// The longest name of a gate.
const MAX_NAME: usize = 63;

/// The gates of a new object.
pub(super) fn create(new: &ObjectMeta) -> Errors {
    validate(value(new))
}

/// The gates of a changed object.
pub(super) fn update(new: &ObjectMeta, old: &ObjectMeta) -> Errors {
    let (new, old) = (value(new), value(old));
    let mut errors = Errors::new();
    if old.is_empty() && !new.is_empty() {
        errors.push(path().forbidden("cannot add admission gate after creation"));
    }
    if !old.is_empty() && !new.is_empty() && names_of(new).any(|new| !names_of(old).any(|old| old == new)) {
        errors.push(path().forbidden("can only remove gates, not add new ones"));
    }
    errors.extend(validate(new));
    errors
}

fn validate(value: &str) -> Errors {
    let mut errors = Errors::new();
    if value.is_empty() {
        return errors;
    }
    let mut seen = Vec::new();
    for name in names_of(value) {
        if name.is_empty() {
            errors.push(path().invalid(value, "cannot contain empty gate names"));
        } else if seen.contains(&name) {
            errors.push(path().invalid(value, format!("duplicate gate name: {name}")));
        } else {
            seen.push(name);
            errors.extend(names::domain_prefixed_path(&path(), name));
            if name.len() > MAX_NAME {
                errors.push(path().too_long(MAX_NAME));
            }
        }
    }
    errors
}

fn names_of(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim)
}

fn value(metadata: &ObjectMeta) -> &str {
    let annotations = metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(ADMISSION_GATED_BY)).map_or("", String::as_str)
}

fn path() -> Path {
    Path::new("metadata").child("annotations").key(ADMISSION_GATED_BY)
}
