//! Object metadata: the rules that hold for every kind.
//!
//! - here: what is right and wrong in metadata;
//! - [`selector`]: label selectors;
//! - [`system`]: the fields that belong to the server, on their way through a write.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};

use crate::field::{Error, Errors, Often, Path, Value};
use crate::names::{self, Problems};

pub mod selector;
pub mod system;

/// Labels or annotations.
pub type Map = BTreeMap<String, String>;

/// What an immutable field answers.
pub const IMMUTABLE: &str = "field is immutable";

/// What a count below zero answers.
pub const NEGATIVE: &str = "must be greater than or equal to 0";

const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizers that need no domain in front, because Kubernetes itself owns them.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", ORPHAN, FOREGROUND];

/// The metadata of a new object of a built-in kind in a namespace: finalizers without a domain are Kubernetes' own.
pub fn validate_built_in(meta: &ObjectMeta, name: fn(&str) -> Problems, path: &Path) -> Errors {
    let mut errors = validate(meta, name, path);
    errors.extend(standard_finalizers(meta, path));
    errors
}

/// The metadata of a changed object of a built-in kind.
pub fn validate_update_built_in(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Errors {
    let mut errors = validate_update(new, old, path);
    errors.extend(standard_finalizers(new, path));
    errors
}

/// The metadata of any object in a namespace, whose name must satisfy `name`.
pub fn validate(meta: &ObjectMeta, name: fn(&str) -> Problems, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(prefix) = non_empty(meta.generate_name.as_ref()) {
        let problems = names::as_prefix(prefix, name);
        errors
            .extend(problems.into_iter().map(|problem| path.child("generateName").invalid(prefix, problem)));
    }
    match non_empty(meta.name.as_ref()) {
        None => errors.push(path.child("name").required("name or generateName is required")),
        Some(text) => {
            errors.extend(name(text).into_iter().map(|problem| path.child("name").invalid(text, problem)));
        }
    }
    match non_empty(meta.namespace.as_ref()) {
        None => errors.push(path.child("namespace").required("")),
        Some(text) => {
            let problems = names::dns_label(text);
            errors.extend(problems.into_iter().map(|problem| path.child("namespace").invalid(text, problem)));
        }
    }
    if let Some(generation) = meta.generation {
        errors.extend(not_negative(generation, &path.child("generation")));
    }
    errors.extend(common(meta, path));
    errors.extend(qualified_finalizers(meta, path));
    errors.extend(managed_fields(meta, path));
    errors
}

/// The metadata of any changed object, next to that of the stored one.
pub fn validate_update(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if old.deletion_timestamp.is_some() {
        errors.extend(no_new_finalizers(new, old, &path.child("finalizers")));
    }
    if non_empty(new.resource_version.as_ref()).is_none() {
        errors.push(path.child("resourceVersion").invalid("", "must be specified for an update"));
    }
    if new.generation.unwrap_or(0) < old.generation.unwrap_or(0) {
        errors.push(path.child("generation").invalid(new.generation.unwrap_or(0), "must not be decremented"));
    }
    for (field, new, old) in [
        ("name", &new.name, &old.name),
        ("namespace", &new.namespace, &old.namespace),
        ("uid", &new.uid, &old.uid),
    ] {
        if new.as_deref().unwrap_or("") != old.as_deref().unwrap_or("") {
            errors.push(path.child(field).invalid(new.as_deref().unwrap_or(""), IMMUTABLE));
        }
    }
    for (field, new, old) in [
        ("creationTimestamp", &new.creation_timestamp, &old.creation_timestamp),
        ("deletionTimestamp", &new.deletion_timestamp, &old.deletion_timestamp),
    ] {
        if new != old {
            errors.push(path.child(field).invalid(Value::json(new), IMMUTABLE));
        }
    }
    if new.deletion_grace_period_seconds != old.deletion_grace_period_seconds {
        let value = Value::json(&new.deletion_grace_period_seconds);
        errors.push(path.child("deletionGracePeriodSeconds").invalid(value, IMMUTABLE));
    }
    errors.extend(common(new, path));
    errors.extend(managed_fields(new, path));
    errors
}

/// What both a new and a changed object must satisfy.
fn common(meta: &ObjectMeta, path: &Path) -> Errors {
    let mut errors = Errors::new();
    errors.extend(labels(meta.labels.as_ref(), &path.child("labels")));
    errors.extend(annotations(meta.annotations.as_ref(), &path.child("annotations")));
    errors.extend(owner_references(
        meta.owner_references.as_deref().unwrap_or_default(),
        &path.child("ownerReferences"),
    ));
    errors
}

/// Labels: keys are qualified names, values label values.
pub fn labels(labels: Option<&Map>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (key, value) in labels.into_iter().flatten() {
        errors.extend(qualified(key, path));
        errors.extend(names::label_value(value).into_iter().map(|problem| path.invalid(value, problem)));
    }
    errors
}

/// Annotations: keys are qualified names but for upper case, and all together are not too long.
pub fn annotations(annotations: Option<&Map>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        let problems = names::qualified_name(&key.to_lowercase());
        errors.extend(problems.into_iter().map(|problem| path.invalid(key, problem)));
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATION_BYTES {
        errors.push(path.too_long(MAX_ANNOTATION_BYTES));
    }
    errors
}

/// A field that holds one qualified name.
pub fn qualified(name: &str, path: &Path) -> Errors {
    names::qualified_name(name).into_iter().map(|problem| path.invalid(name, problem)).collect()
}

/// A count or a duration, which cannot be negative.
pub fn not_negative(value: i64, path: &Path) -> Errors {
    if value < 0 { vec![path.invalid(value, NEGATIVE)] } else { Errors::new() }
}

fn owner_references(references: &[OwnerReference], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut controller: Option<String> = None;
    let mut all: Option<Often> = None;
    for reference in references {
        errors.extend(owner_reference(reference, path));
        if reference.controller == Some(true) {
            let this = format!("{}/{}", reference.kind, reference.name);
            match &controller {
                None => controller = Some(this),
                Some(first) => {
                    let all = all
                        .get_or_insert_with(|| Often::new(Value::internal_list(OWNER_REFERENCE, references)));
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                         and {this}"
                    );
                    errors.extend(all.once_more().map(|all| path.invalid(all, why)));
                }
            }
        }
    }
    errors
}

fn owner_reference(reference: &OwnerReference, path: &Path) -> Errors {
    // `group/version` or, for the core group, `version`. More slashes are no version at all, and no kind either.
    let (group, version, kind) = match reference.api_version.split('/').collect::<Vec<_>>().as_slice() {
        [version] => ("", *version, reference.kind.as_str()),
        [group, version] => (*group, *version, reference.kind.as_str()),
        _ => ("", "", reference.kind.as_str()),
    };
    let mut errors = Errors::new();
    if version.is_empty() {
        errors.push(path.child("apiVersion").invalid(&reference.api_version, "version must not be empty"));
    }
    for (field, value) in [("kind", &reference.kind), ("name", &reference.name), ("uid", &reference.uid)] {
        if value.is_empty() {
            errors.push(path.child(field).invalid(value, "must not be empty"));
        }
    }
    if (group, version, kind) == ("", "v1", "Event") {
        errors.push(path.invalid(
            Value::internal(OWNER_REFERENCE, reference),
            "/v1, Kind=Event is disallowed from being an owner",
        ));
    }
    errors
}

fn qualified_finalizers(meta: &ObjectMeta, path: &Path) -> Errors {
    let path = path.child("finalizers");
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let mut errors: Errors = finalizers.iter().flat_map(|finalizer| qualified(finalizer, &path)).collect();
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has(ORPHAN) && has(FOREGROUND) {
        let why = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(path.invalid(Value::json(&finalizers), why));
    }
    errors
}

fn standard_finalizers(meta: &ObjectMeta, path: &Path) -> Errors {
    let path = path.child("finalizers");
    let finalizers = meta.finalizers.iter().flatten().enumerate();
    finalizers.filter_map(|(i, finalizer)| standard_finalizer(finalizer, &path.index(i))).collect()
}

fn standard_finalizer(finalizer: &str, path: &Path) -> Option<Error> {
    let is_known = finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer);
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    (!is_known).then(|| path.invalid(finalizer, why))
}

/// A finalizer that stands elsewhere than in metadata.
pub fn finalizer(finalizer: &str, path: &Path) -> Errors {
    let mut errors = qualified(finalizer, path);
    errors.extend(standard_finalizer(finalizer, path));
    errors
}

fn no_new_finalizers(new: &ObjectMeta, old: &ObjectMeta, path: &Path) -> Errors {
    let old: BTreeSet<&String> = old.finalizers.iter().flatten().collect();
    let extra: BTreeSet<&String> =
        new.finalizers.iter().flatten().filter(|name| !old.contains(name)).collect();
    if extra.is_empty() {
        return Errors::new();
    }
    let extra: Vec<String> = extra.into_iter().map(|name| types::go::quote(name)).collect();
    vec![path.forbidden(format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        extra.join(", ")
    ))]
}

fn managed_fields(meta: &ObjectMeta, path: &Path) -> Errors {
    let entries = meta.managed_fields.iter().flatten().enumerate();
    entries
        .flat_map(|(i, entry)| managed_fields_entry(entry, &path.child("managedFields").index(i)))
        .collect()
}

fn managed_fields_entry(entry: &ManagedFieldsEntry, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let operation = entry.operation.as_deref().unwrap_or("");
    if operation != "Apply" && operation != "Update" {
        errors.push(path.child("operation").invalid(operation, "must be `Apply` or `Update`"));
    }
    if let Some(kind) = non_empty(entry.fields_type.as_ref()).filter(|kind| *kind != "FieldsV1") {
        errors.push(path.child("fieldsType").invalid(kind, "must be `FieldsV1`"));
    }
    errors.extend(field_manager(entry.manager.as_deref().unwrap_or(""), &path.child("manager")));
    if entry.subresource.as_ref().is_some_and(|name| name.len() > 256) {
        errors.push(path.child("subresource").too_long(256));
    }
    errors
}

/// The name of a field manager: short and printable.
pub fn field_manager(manager: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if manager.len() > 128 {
        errors.push(path.too_long(128));
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| !types::go::is_print(*c)) {
        let shown = format!("U+{:04X}", c as u32);
        errors.push(path.invalid(manager, format!("invalid character {shown} (at position {position})")));
    }
    errors
}

/// An absent and an empty string are the same to Kubernetes wherever it has no pointer.
pub(crate) fn non_empty(text: Option<&String>) -> Option<&String> {
    text.filter(|text| !text.is_empty())
}

/// Who controls an object, if anybody does.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

#[cfg(test)]
mod tests {
    use crate::field::assert_starts;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn meta(value: serde_json::Value) -> ObjectMeta {
        let mut meta: ObjectMeta = serde_json::from_value(value).expect("a test's metadata");
        meta.namespace.get_or_insert_with(|| "ns".to_owned());
        meta
    }

    fn check(value: serde_json::Value, expected: &[&str]) {
        let errors = validate_built_in(&meta(value), names::dns_subdomain, &Path::new("metadata"));
        assert_starts(&errors, expected);
    }

    #[test]
    fn c_01_names() {
        check(json!({"name": "a"}), &[]);
        check(json!({}), &["metadata.name: Required value: name or generateName is required"]);
        check(json!({"name": "A"}), &["metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain"]);
        check(json!({"name": "a", "generateName": "a-"}), &[]);
        check(
            json!({"name": "a", "generateName": "AA-"}),
            &["metadata.generateName: Invalid value: \"AA-\": a lowercase"],
        );
    }

    #[test]
    fn c_03_namespace() {
        check(json!({"name": "a", "namespace": ""}), &["metadata.namespace: Required value"]);
        check(
            json!({"name": "a", "namespace": "a.b"}),
            &["metadata.namespace: Invalid value: \"a.b\": must not contain dots"],
        );
    }

    #[test]
    fn c_04_labels_annotations_owners_finalizers() {
        check(
            json!({"name": "a", "labels": {"a b": "-"}}),
            &[
                "metadata.labels: Invalid value: \"a b\": name part",
                "metadata.labels: Invalid value: \"-\": a valid label",
            ],
        );
        check(json!({"name": "a", "annotations": {"Example.COM/Key": "anything at all"}}), &[]);
        check(
            json!({"name": "a", "annotations": {"a b": ""}}),
            &["metadata.annotations: Invalid value: \"a b\": name part"],
        );
        check(
            json!({"name": "a", "annotations": {"k": "x".repeat(256 * 1024)}}),
            &["metadata.annotations: Too long: may not be more than 262144 bytes"],
        );
        let owner = |controller| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": controller});
        check(json!({"name": "a", "ownerReferences": [owner(true), owner(false)]}), &[]);
        check(
            json!({"name": "a", "ownerReferences": [owner(true), owner(true)]}),
            &["metadata.ownerReferences: Invalid value: [{\"apiVersion\":\"v1\""],
        );
        check(
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "", "uid": "u"}]}),
            &[
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
                "metadata.ownerReferences: Invalid value: {",
            ],
        );
        check(json!({"name": "a", "finalizers": ["orphan", "example.com/x"]}), &[]);
        check(
            json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion", "mine"]}),
            &[
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\",\"mine\"]: finalizer orphan and",
                "metadata.finalizers[2]: Invalid value: \"mine\": name is neither a standard finalizer name",
            ],
        );
        check(
            json!({"name": "a", "managedFields": [{"operation": "Guess", "fieldsType": "V2", "manager": "a\u{1}"}]}),
            &[
                "metadata.managedFields[0].operation: Invalid value: \"Guess\": must be `Apply` or `Update`",
                "metadata.managedFields[0].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Invalid value: \"a\\x01\": invalid character U+0001 (at position 1)",
            ],
        );
    }

    #[test]
    fn u_04_update() {
        let old = meta(
            json!({"name": "a", "uid": "u", "resourceVersion": "1", "generation": 2, "finalizers": ["x/y"]}),
        );
        let check = |new: &ObjectMeta, old: &ObjectMeta, expected: &[&str]| {
            assert_starts(&validate_update(new, old, &Path::new("metadata")), expected);
        };
        check(&old, &old, &[]);
        let mut new = old.clone();
        (new.resource_version, new.generation, new.uid) = (None, Some(1), Some("v".into()));
        check(
            &new,
            &old,
            &[
                "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
                "metadata.generation: Invalid value: 1: must not be decremented",
                "metadata.uid: Invalid value: \"v\": field is immutable",
            ],
        );
        let mut deleting = old.clone();
        deleting.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let mut new = deleting.clone();
        new.finalizers = Some(vec!["x/z".into(), "x/y".into()]);
        check(
            &new,
            &deleting,
            &[
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
               finalizers []string{\"x/z\"}",
            ],
        );
        check(&old, &deleting, &["metadata.deletionTimestamp: Invalid value: null: field is immutable"]);
    }
}
