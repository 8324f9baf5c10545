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

use super::{canonical::is_canonical, form::Unknown, go::shown, schema::Schema};

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
    let mut coercer = Coercer { malformed, unknown: Unknown::default() };
    coercer.visit(value, schema, root || schema.embedded, &Path::root())?;
    Ok(coercer.unknown.sorted())
}

/// Brings metadata itself into canonical form, and returns the paths of unknown fields, sorted.
pub(super) fn coerce_own(metadata: &mut Value, malformed: Malformed) -> Result<Vec<String>, Error> {
    if is_canonical(metadata) {
        return Ok(Vec::new());
    }
    let mut object = Value::Object(Map::from_iter([("metadata".to_owned(), metadata.take())]));
    let unknown = coerce(&mut object, &Schema::default(), true, malformed)?;
    *metadata = object["metadata"].take();
    Ok(unknown)
}

struct Coercer {
    malformed: Malformed,
    unknown: Unknown,
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
        if is_canonical(metadata) {
            return Ok(());
        }
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
        for field in unknown {
            self.unknown.add(|| path.child(&field).to_string());
        }
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
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::crd::tests::{any_json, schema};

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

    /// Metadata of which much is as it should be.
    fn any_metadata() -> impl Strategy<Value = Value> {
        let text = || prop_oneof![4 => "[a-z]{1,3}", 1 => "[a-z]{0,1}"].prop_map(Value::from);
        let time = prop_oneof![
            4 => "20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z",
            1 => "20[0-9]{2}-01-01T00:00:00(\\.[0-9]{1,9}Z|[+]0[0-2]:00|z)?",
        ];
        let time = time.prop_map(Value::from).boxed();
        let number = prop_oneof![(-1_i64..3).prop_map(Value::from), Just(json!(1.5)), Just(json!(u64::MAX))];
        let other = prop_oneof![9 => Just(None), 1 => any_json().prop_map(Some)];
        let wild = move |usual: BoxedStrategy<Value>| {
            (usual, other.clone()).prop_map(|(usual, other)| other.unwrap_or(usual)).boxed()
        };
        let named = |fields: Vec<(&'static str, BoxedStrategy<Value>)>| {
            let fields: Vec<_> = fields
                .into_iter()
                .map(|(name, value)| prop::option::weighted(0.7, value).prop_map(move |value| (name, value)))
                .collect();
            fields.prop_map(|fields| {
                let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
                Value::Object(given.collect())
            })
        };
        let map = prop::collection::btree_map("[a-z]{1,2}", wild(text().boxed()), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
            .boxed();
        let list =
            |item: BoxedStrategy<Value>| prop::collection::vec(item, 0..3).prop_map(Value::from).boxed();
        let flag = any::<bool>().prop_map(Value::from).boxed();
        let owner = named(vec![
            ("apiVersion", wild(text().boxed())),
            ("kind", text().boxed()),
            ("name", text().boxed()),
            ("uid", text().boxed()),
            ("controller", wild(flag.clone())),
            ("blockOwnerDeletion", flag),
        ]);
        let whole_owner = Just(json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": ""}));
        let entry = named(vec![
            ("manager", wild(text().boxed())),
            ("operation", text().boxed()),
            ("time", time.clone()),
            ("fieldsType", text().boxed()),
            ("fieldsV1", any_json().boxed()),
            ("subresource", text().boxed()),
        ]);
        named(vec![
            ("name", wild(text().boxed())),
            ("namespace", text().boxed()),
            ("generateName", text().boxed()),
            ("uid", text().boxed()),
            ("labels", map.clone()),
            ("annotations", wild(map)),
            ("creationTimestamp", wild(time.clone())),
            ("deletionTimestamp", time),
            ("generation", number.clone().boxed()),
            ("deletionGracePeriodSeconds", number.boxed()),
            ("finalizers", list(wild(text().boxed()))),
            ("ownerReferences", list(prop_oneof![3 => whole_owner, 1 => owner].boxed())),
            ("managedFields", list(entry.boxed())),
        ])
    }

    proptest! {
        #[test]
        fn canonical_metadata_is_as_it_would_be_written(metadata in any_metadata()) {
            let alone = metadata.as_object().into_iter().flatten();
            let alone = alone.map(|(name, value)| Value::Object(single(name, value)));
            for metadata in alone.chain([metadata.clone()]).filter(is_canonical) {
                let (written, unknown) = canonical(&metadata).expect("metadata");
                prop_assert_eq!(&Value::Object(written), &metadata);
                prop_assert_eq!(unknown, Vec::<String>::new());
            }
        }

        #[test]
        fn what_is_written_is_canonical(metadata in any_metadata()) {
            if let Ok((written, _)) = canonical(&metadata) {
                let written = Value::Object(written);
                let has_no_fields = |entry: &Value| entry.get("fieldsV1").is_some_and(|fields| !fields.is_object());
                let entries = written.get("managedFields").and_then(Value::as_array);
                let is_odd = entries.is_some_and(|entries| entries.iter().any(has_no_fields));
                prop_assert!(is_odd || is_canonical(&written), "{written}");
            }
        }
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
