//! The form in which an object is judged and stored, in one walk: numbers as Go writes them, no unknown fields, no `null`
//! that says nothing, and defaults where nothing stands. By themselves these are `canonical_numbers`, [`prune`] and
//! [`defaults`], which say what is meant; this is what is run, for schemas without embedded objects.
//!
//! [`prune`]: super::prune

use serde_json::{Map, Value};

use super::{
    at::{At, is_type},
    defaults::{drop_nulls, fill},
    object::canonical_numbers,
    schema::{Additional, Schema},
};

/// Brings an object without its metadata into form. Returns the paths of the fields that were not known, sorted.
pub(super) fn bring(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut former = Former { unknown: Unknown::default() };
    former.visit(object, Some(schema), &At::ROOT);
    former.unknown.sorted()
}

/// Brings metadata into the form that a schema asks of it. Next to no schema asks anything.
pub(super) fn bring_metadata(metadata: &mut Value, schema: &Schema) {
    if let Some(inner) = schema.field("metadata").filter(|inner| inner.children().next().is_some()) {
        drop_nulls(metadata, Some(inner));
        fill(metadata, inner);
    }
}

struct Former {
    unknown: Unknown,
}

/// The paths of fields that were not known. Kubernetes tells all of them; so do we, as long as they do not fill the memory:
/// hundreds of thousands fit into a body, and the place where they are may have a long name.
#[derive(Default)]
pub(super) struct Unknown {
    paths: Vec<String>,
    size: usize,
}

impl Unknown {
    const MOST: usize = 32 * 1024 * 1024;

    pub(super) fn add(&mut self, path: impl FnOnce() -> String) {
        if self.size < Self::MOST {
            let path = path();
            self.size += path.len() + 64;
            self.paths.push(path);
        }
    }

    pub(super) fn sorted(mut self) -> Vec<String> {
        self.paths.sort_unstable();
        self.paths
    }
}

impl Former {
    fn visit(&mut self, value: &mut Value, schema: Option<&Schema>, at: &At<'_>) {
        let keep = schema.is_some_and(|schema| schema.preserve_unknown);
        self.visit_keeping(value, schema, keep, at);
    }

    fn visit_keeping(&mut self, value: &mut Value, schema: Option<&Schema>, keep: bool, at: &At<'_>) {
        match value {
            Value::Object(fields) => {
                self.fields(fields, schema, keep, at);
                if let Some(schema) = schema {
                    complete(fields, schema);
                }
            }
            Value::Array(items) => self.items(items, schema, keep, at),
            Value::Number(_) => canonical_numbers(value),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    /// Items of a list that keeps unknown fields keep them too, one level down.
    fn items(&mut self, items: &mut [Value], schema: Option<&Schema>, keep: bool, at: &At<'_>) {
        let inner = schema.and_then(|schema| schema.items.as_deref());
        if keep && inner.is_none() {
            return items.iter_mut().for_each(canonical_numbers);
        }
        for (index, item) in items.iter_mut().enumerate() {
            let at = at.item(index);
            match item {
                Value::Object(_) | Value::Array(_) if keep => self.visit_keeping(item, inner, true, &at),
                Value::Null => {
                    if let Some(inner) = inner {
                        replace(item, inner);
                    }
                }
                item => self.visit(item, inner, &at),
            }
        }
    }

    /// Drops fields, and visits those that stay. Those that are missing are still missing then.
    fn fields(&mut self, fields: &mut Map<String, Value>, schema: Option<&Schema>, keep: bool, at: &At<'_>) {
        fields.retain(|name, value| {
            let here = at.field(name);
            let known = schema.and_then(|schema| schema.properties.get(name));
            let additional = schema.map_or(&Additional::Absent, |schema| &schema.additional);
            let inner = match (known, additional) {
                (Some(known), _) => Some(known),
                (None, Additional::Schema(inner)) => Some(&**inner),
                (None, Additional::Allowed(_)) => None,
                // What an object is stays, whatever its schema.
                (None, Additional::Absent) if keep || at.is_root() && is_type(name) => {
                    canonical_numbers(value);
                    return true;
                }
                (None, Additional::Absent) => {
                    self.unknown.add(|| here.dotted());
                    return false;
                }
            };
            if is_useless(value, inner) {
                return false;
            }
            match inner {
                Some(inner) if value.is_null() => replace(value, inner),
                // A type that is none is left to be refused.
                inner if at.is_root() && is_type(name) => {
                    canonical_numbers(value);
                    drop_nulls(value, inner);
                    if let Some(inner) = inner {
                        fill(value, inner);
                    }
                }
                inner => self.visit(value, inner, &here),
            }
            true
        });
    }
}

/// Whether a `null` stands where none may, and nothing would come in its place.
fn is_useless(value: &Value, schema: Option<&Schema>) -> bool {
    value.is_null() && schema.is_some_and(|schema| !schema.nullable && schema.default.is_none())
}

/// What comes in the place of a `null`, with its own defaults.
fn replace(null: &mut Value, schema: &Schema) {
    if let Some(default) = schema.default.as_ref().filter(|_| !schema.nullable) {
        *null = default.clone();
        fill(null, schema);
    }
}

/// Fills in fields that are missing, with their own defaults.
fn complete(fields: &mut Map<String, Value>, schema: &Schema) {
    for (name, property, default) in schema.defaulted() {
        if !fields.contains_key(name) {
            let mut value = default.clone();
            fill(&mut value, property);
            fields.insert(name.clone(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::crd::defaults;
    use crate::crd::prune::prune;
    use crate::crd::tests::any_json;

    /// The same, one thing after the other.
    fn in_turn(object: &mut Value, schema: &Schema) -> Vec<String> {
        canonical_numbers(object);
        let unknown = prune(object, schema, true);
        defaults::apply(object, schema);
        unknown
    }

    fn check(schema: Value, object: &Value) -> Result<(), TestCaseError> {
        let Ok(props) = serde_json::from_value::<JSONSchemaProps>(schema) else { return Ok(()) };
        let schema = Schema::compile(&props);
        let mut object = object.clone();
        object.as_object_mut().map(|fields| fields.remove("metadata"));
        if schema.below.embedded {
            return Ok(());
        }
        let (mut one, mut other) = (object.clone(), object.clone());
        let unknown = (bring(&mut one, &schema), in_turn(&mut other, &schema));
        prop_assert_eq!(one, other);
        prop_assert_eq!(unknown.0, unknown.1);
        Ok(())
    }

    #[test]
    fn one_walk_is_as_good_as_four() {
        let inner = json!({"type": "object", "properties": {"a": {"type": "integer", "default": 1}, "b": {"type": "string"}}});
        let schema = json!({"type": "object", "properties": {
            "kind": {"type": "string", "default": "K"},
            "list": {"type": "array", "items": inner},
            "defaulted": {"type": "array", "items": {"type": "object", "default": {"a": 2}, "properties": {"c": {"type": "integer", "default": 3}}}},
            "map": {"type": "object", "additionalProperties": inner},
            "nullable": {"type": "object", "nullable": true, "default": {}, "properties": {"x": {"type": "string", "default": "y"}}},
            "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"inner": inner}},
            "keeps": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": inner},
            "any": {"type": "object", "additionalProperties": true},
            "whole": {"type": "object", "default": {}, "properties": {"inner": {"type": "object", "default": {"b": "z"}, "properties": {"a": {"type": "integer", "default": 4}}}}},
        }});
        let values = [
            json!(null),
            json!({}),
            json!([null, {}, {"a": null, "b": null, "z": 1.0}, [1.0, {"a": 2.0}]]),
            json!({"a": 1.0, "b": "x", "unknown": {"c": 1e3}, "inner": {"a": null, "z": 1}}),
            json!({"k": {"z": 1}, "l": null, "x": null, "m": [{"q": 1}]}),
            json!(1.0),
        ];
        for value in &values {
            for name in [
                "kind",
                "apiVersion",
                "list",
                "defaulted",
                "map",
                "nullable",
                "kept",
                "keeps",
                "any",
                "whole",
                "unknown",
            ] {
                check(schema.clone(), &json!({"kind": null, name: value})).expect("the same");
            }
            check(schema.clone(), value).expect("the same");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn one_walk_is_as_good_as_four_on_anything(schema in any_json(), object in any_json()) {
            check(schema, &object)?;
        }
    }
}
