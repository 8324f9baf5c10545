//! The metadata of an object, and of objects embedded in it: brought into its canonical form, and judged.
//!
//! Metadata has a schema of its own, whatever the definition says: what is of another type than it should be is refused
//! on write and dropped on read, what is unknown is dropped, and what is empty is left out.

use std::sync::LazyLock;

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rules::{
    field::{Error, Errors, Path},
    meta::validate as validate_meta,
    names,
};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::{go::shown, schema::Schema};

/// What to do with metadata of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// Refuse the object: it comes from a client.
    Refuse,
    /// Drop the field: the object was stored when that was still allowed.
    Drop,
}

/// Brings the metadata of an object (`root`) and of embedded objects into canonical form, and returns the paths of
/// unknown fields, sorted.
pub fn coerce(
    value: &mut Value,
    schema: &Schema,
    root: bool,
    malformed: Malformed,
) -> Result<Vec<String>, Error> {
    let mut coercer = Coercer { malformed, unknown: Vec::new() };
    coercer.visit(value, schema, root || schema.embedded, &Path::root())?;
    coercer.unknown.sort_unstable();
    Ok(coercer.unknown)
}

struct Coercer {
    malformed: Malformed,
    unknown: Vec<String>,
}

impl Coercer {
    fn visit(
        &mut self,
        value: &mut Value,
        schema: &Schema,
        embedded: bool,
        path: &Path,
    ) -> Result<(), Error> {
        if !embedded && !schema.below.embedded {
            return Ok(());
        }
        match value {
            Value::Object(fields) => {
                if embedded {
                    self.object(fields, path)?;
                }
                for (name, value) in fields {
                    if let Some(inner) = schema.properties.get(name) {
                        self.visit(value, inner, inner.embedded, &path.child(name))?;
                    } else if let Some(inner) = schema.field(name) {
                        self.visit(value, inner, inner.embedded, &path.key(name))?;
                    }
                }
                Ok(())
            }
            Value::Array(items) => {
                let Some(inner) = &schema.items else { return Ok(()) };
                let mut items = items.iter_mut().enumerate();
                items
                    .try_for_each(|(index, item)| self.visit(item, inner, inner.embedded, &path.index(index)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, path: &Path) -> Result<(), Error> {
        for name in ["apiVersion", "kind"] {
            match (fields.get(name), self.malformed) {
                (None | Some(Value::String(_)), _) => {}
                (Some(other), Malformed::Refuse) => {
                    return Err(path.child(name).invalid(shown(other), "must be a string"));
                }
                (Some(_), Malformed::Drop) => drop(fields.remove(name)),
            }
        }
        let Some(metadata) = fields.get_mut("metadata") else { return Ok(()) };
        let path = path.child("metadata");
        let (canonical, unknown) = match canonical(metadata) {
            Ok(found) => found,
            Err(why) if self.malformed == Malformed::Refuse => return Err(path.invalid(shown(metadata), why)),
            Err(_) => {
                let Value::Object(parts) = metadata else { return Ok(()) };
                // One malformed field must not cost the others.
                parts.retain(|name, value| canonical(&Value::Object(single(name, value))).is_ok());
                canonical(metadata).unwrap_or_default()
            }
        };
        self.unknown.extend(unknown.into_iter().map(|field| path.child(&field).to_string()));
        *metadata = Value::Object(canonical);
        Ok(())
    }
}

fn single(name: &str, value: &Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value.clone())])
}

/// Metadata as Go would write it, and the fields that Go does not know.
fn canonical(metadata: &Value) -> Result<(Map<String, Value>, Vec<String>), String> {
    if metadata.is_null() {
        return Ok(Default::default());
    }
    let meta = object_meta(metadata)?;
    let unknown = unknown_fields(metadata);
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&meta) else { return Ok(Default::default()) };
    for name in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(time) = fields.get_mut(name) {
            to_seconds(time);
        }
    }
    for entry in fields.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(entry) = entry.as_object_mut() {
            if let Some(time) = entry.get_mut("time") {
                to_seconds(time);
            }
            entry.retain(|_, value| !is_empty(value));
        }
    }
    // A grace period of nothing is one.
    fields
        .retain(|name, value| !is_empty(value) || name == "deletionGracePeriodSeconds" && value.is_number());
    Ok((fields, unknown))
}

/// In Go's words where it is of another type.
fn object_meta(metadata: &Value) -> Result<ObjectMeta, String> {
    static OF: LazyLock<::schema::Type> =
        LazyLock::new(|| ::rules::wire::named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    let decoded = ::schema::decode_value(*OF, metadata).map_err(|error| error.to_string())?;
    ObjectMeta::deserialize(decoded.value).map_err(|error| error.to_string())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) => false,
    }
}

/// Times in metadata have no fraction of a second.
fn to_seconds(time: &mut Value) {
    let Some(parsed) = time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else { return };
    if let Ok(rounded) = Timestamp::from_second(parsed.as_second()).and_then(|at| at.round(Unit::Second)) {
        *time = Value::String(rounded.to_string());
    }
}

fn unknown_fields(metadata: &Value) -> Vec<String> {
    const META: [&str; 15] = [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    ];
    const OWNER: [&str; 6] = ["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];
    const ENTRY: [&str; 7] =
        ["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"];
    let Some(fields) = metadata.as_object() else { return Vec::new() };
    let mut unknown: Vec<String> =
        fields.keys().filter(|name| !META.contains(&name.as_str())).cloned().collect();
    for (list, known) in [("ownerReferences", &OWNER[..]), ("managedFields", &ENTRY[..])] {
        let items = fields.get(list).and_then(Value::as_array).into_iter().flatten().enumerate();
        for (index, item) in items {
            let names = item.as_object().into_iter().flat_map(Map::keys);
            unknown.extend(
                names
                    .filter(|name| !known.contains(&name.as_str()))
                    .map(|name| format!("{list}[{index}].{name}")),
            );
        }
    }
    unknown
}

/// What is wrong with objects that are embedded in this one, and, if it is a `root`, with itself.
pub fn validate(value: &Value, schema: &Schema, root: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if !root && !schema.below.embedded {
        return errors;
    }
    match value {
        Value::Object(fields) => {
            if root || schema.embedded {
                errors.extend(validate_embedded(fields, path));
            }
            for (name, value) in fields {
                if let Some(inner) = schema.properties.get(name) {
                    errors.extend(validate(value, inner, false, &path.child(name)));
                } else if let Some(inner) = schema.field(name) {
                    errors.extend(validate(value, inner, false, &path.key(name)));
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                let items = items.iter().enumerate();
                errors
                    .extend(items.flat_map(|(index, item)| validate(item, inner, false, &path.index(index))));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    errors
}

fn validate_embedded(fields: &Map<String, Value>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (name, syntax) in [("apiVersion", api_version as fn(&str) -> Option<String>), ("kind", kind)] {
        let path = path.child(name);
        match fields.get(name) {
            None => errors.push(path.required("")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(path.invalid("", "must not be empty"));
            }
            Some(Value::String(text)) => errors.extend(syntax(text).map(|why| path.invalid(text, why))),
            Some(other) => errors.push(path.invalid(shown(other), "must be a string")),
        }
    }
    if let Some(metadata) = fields.get("metadata") {
        let path = path.child("metadata");
        match object_meta(metadata) {
            Err(why) => errors.push(path.invalid(shown(metadata), why)),
            Ok(mut meta) => {
                let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
                if !given(&meta.name) {
                    meta.name = Some("fakename".to_owned());
                }
                if !given(&meta.namespace) {
                    meta.namespace = Some("fakename".to_owned());
                }
                errors.extend(validate_meta(&meta, names::path_segment, &path));
            }
        }
    }
    errors
}

fn api_version(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind(text: &str) -> Option<String> {
    let problems = names::dns_1035_label(&text.to_lowercase());
    (!problems.is_empty())
        .then(|| format!("may have mixed case, but should otherwise match: {}", problems.join(",")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd::tests::schema;

    fn check(mut value: Value, malformed: Malformed, expected: Result<(Value, &[&str]), &str>) {
        let schema = schema(json!({"type": "object", "properties": {
            "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}));
        match (coerce(&mut value, &schema, true, malformed), expected) {
            (Ok(unknown), Ok((expected, fields))) => {
                assert_eq!(value, expected);
                assert_eq!(unknown, fields);
            }
            (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn metadata_is_coerced_2_65() {
        check(
            json!({"metadata": {"name": "a", "labels": {}, "x": 1, "generation": 0, "creationTimestamp": null,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "y": 1}]}}),
            Malformed::Refuse,
            Ok((
                json!({"metadata": {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}),
                &["metadata.ownerReferences[0].y", "metadata.x"],
            )),
        );
        let wrong =
            json!({"metadata": {"name": "a", "labels": {"a": 1}}, "e": {"metadata": {"name": 1}, "kind": 1}});
        check(
            wrong.clone(),
            Malformed::Refuse,
            Err("metadata: Invalid value: {\"labels\":{\"a\":1},\"name\":\"a\"}: "),
        );
        check(wrong, Malformed::Drop, Ok((json!({"metadata": {"name": "a"}, "e": {"metadata": {}}}), &[])));
        check(
            json!({"e": {"kind": "Pod", "metadata": {"creationTimestamp": "2026-01-02T03:04:05.6Z", "z": 1}}}),
            Malformed::Refuse,
            Ok((
                json!({"e": {"kind": "Pod", "metadata": {"creationTimestamp": "2026-01-02T03:04:05Z"}}}),
                &["e.metadata.z"],
            )),
        );
    }

    #[test]
    fn embedded_objects_are_judged_3_24() {
        let schema = schema(json!({"type": "object", "properties": {
            "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}));
        let errors = |value: Value| {
            let errors = validate(&value, &schema, false, &Path::root());
            errors.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(
            errors(json!({"e": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}}}))
                .is_empty()
        );
        assert_eq!(errors(json!({"e": {}})), ["e.apiVersion: Required value", "e.kind: Required value"]);
        assert_eq!(
            errors(json!({"e": {"apiVersion": "a/b/c", "kind": ""}})),
            [
                "e.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "e.kind: Invalid value: \"\": must not be empty"
            ]
        );
        assert_eq!(
            errors(json!({"e": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "a/b"}}})),
            ["e.metadata.name: Invalid value: \"a/b\": may not contain '/'"]
        );
    }
}
