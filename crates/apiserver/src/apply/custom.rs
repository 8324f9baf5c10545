//! The types of custom resources, as their structural schemas say.

use serde_json::{Map as Json, Value};

use super::built_in::object_meta;
use super::schema::{Atom, Field, List, Map, Merge, Scalar, Schema, TypeId};

/// The type of a custom resource with an `openAPIV3Schema`.
pub fn custom_resource(structural: &Value) -> (Schema, TypeId) {
    let mut schema = Schema::new();
    let metadata = object_meta(&mut schema);
    let mut converter = Converter { schema, metadata };
    let root = converter.atom(structural, false, true);
    let root = converter.schema.add(root);
    (converter.schema, root)
}

struct Converter {
    schema: Schema,
    metadata: TypeId,
}

impl Converter {
    fn convert(&mut self, of: &Value, preserve: bool) -> TypeId {
        let atom = self.atom(of, preserve, flag(of, "x-kubernetes-embedded-resource"));
        self.schema.add(atom)
    }

    /// Once unknown fields are preserved they are preserved all the way down.
    fn atom(&mut self, of: &Value, preserve: bool, is_resource: bool) -> Atom {
        let preserve = preserve || flag(of, "x-kubernetes-preserve-unknown-fields");
        match of["type"].as_str() {
            Some("object") => self.map(of, preserve, is_resource).into(),
            Some("array") => self.list(of, preserve).into(),
            Some("integer" | "number") => Scalar::Numeric.into(),
            Some("boolean") => Scalar::Boolean.into(),
            Some("string") => match of["format"].as_str().unwrap_or_default() {
                "" | "byte" => Scalar::String.into(),
                _ => Scalar::Untyped.into(),
            },
            // Without a type it may be anything, integers and strings among them.
            _ => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(self.list(of, preserve)),
                map: Some(self.map(of, preserve, is_resource)),
            },
        }
    }

    fn map(&mut self, of: &Value, preserve: bool, is_resource: bool) -> Map {
        let none = Json::new();
        let properties = of["properties"].as_object().unwrap_or(&none);
        let is_meta = |name: &str| is_resource && matches!(name, "apiVersion" | "kind" | "metadata");
        let mut fields: Vec<Field> = properties
            .iter()
            .filter(|(name, _)| !is_meta(name))
            .map(|(name, property)| Field {
                name: name.as_str().into(),
                of: self.convert(property, preserve),
                default: property.get("default").cloned(),
            })
            .collect();
        if is_resource {
            let string = self.schema.add(Scalar::String);
            fields.extend([
                Field::new("apiVersion", string),
                Field::new("kind", string),
                Field::new("metadata", self.metadata),
            ]);
        }
        let rest = match &of["additionalProperties"] {
            Value::Null => (preserve || fields.is_empty()).then_some(Schema::DEDUCED),
            Value::Bool(allowed) => allowed.then_some(Schema::DEDUCED),
            values => Some(self.convert(values, preserve)),
        };
        let mut map = Map::of_fields(fields);
        map.rest = rest;
        map.atomic = of["x-kubernetes-map-type"] == "atomic";
        map
    }

    fn list(&mut self, of: &Value, preserve: bool) -> List {
        let items = match &of["items"] {
            Value::Null => Schema::ANY,
            items => self.convert(items, preserve),
        };
        let keys = of["x-kubernetes-list-map-keys"].as_array().map_or(&[][..], Vec::as_slice);
        let merge = match of["x-kubernetes-list-type"].as_str() {
            Some("set") => Merge::Set,
            Some("map") => Merge::ByKeys(keys.iter().filter_map(Value::as_str).map(Into::into).collect()),
            _ => Merge::Atomic,
        };
        List { items, merge }
    }
}

fn flag(of: &Value, name: &str) -> bool {
    of[name] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::typed::{Duplicates, Typed};
    use super::*;

    fn widget() -> Value {
        json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"},
                        "p": {"type": "string", "default": "TCP"}}}},
                "list": {"type": "array", "items": {"type": "string"}},
                "atomic": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
                "port": {"x-kubernetes-int-or-string": true},
                "time": {"type": "string", "format": "date-time"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                    "x-kubernetes-preserve-unknown-fields": true},
            }},
        }})
    }

    #[test]
    fn r2_42_custom_resources_merge_as_their_schema_says() {
        let (schema, of) = custom_resource(&widget());
        let check = |spec: Value, fields: Value| {
            let object = json!({"apiVersion": "e/v1", "kind": "Widget", "spec": spec});
            let typed = Typed::new(&schema, of, object, Duplicates::Refused).expect("a widget");
            assert_eq!(typed.field_set().to_fields_v1()["f:spec"], fields);
        };
        check(json!({"set": ["a"]}), json!({"f:set": {"v:\"a\"": {}}}));
        check(
            json!({"map": [{"k": "a", "v": "b"}]}),
            json!({"f:map": {"k:{\"k\":\"a\",\"p\":\"TCP\"}": {".": {}, "f:k": {}, "f:v": {}}}}),
        );
        check(json!({"list": ["a"], "atomic": {"a": "b"}}), json!({"f:list": {}, "f:atomic": {}}));
        check(json!({"port": 80, "time": "x"}), json!({"f:port": {}, "f:time": {}}));
        check(
            json!({"free": {"x": {"y": [1]}, "known": {"a": "1", "b": 2}}}),
            json!({"f:free": {"f:x": {".": {}, "f:y": {}}, "f:known": {"f:a": {}, "f:b": {}}}}),
        );
        check(
            json!({"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}}),
            json!({"f:template": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {".": {}, "f:x": {}}}}),
        );
    }

    #[test]
    fn r2_65_unknown_fields_of_custom_resources_are_refused() {
        let (schema, of) = custom_resource(&widget());
        let check = |object: Value, error: &str| {
            let result = Typed::new(&schema, of, object, Duplicates::Refused);
            assert_eq!(result.expect_err(error).to_string(), error);
        };
        check(json!({"spec": {"nope": 1}}), ".spec.nope: field not declared in schema");
        check(json!({"spec": {"list": "x"}}), ".spec.list: expected list, got &{x}");
        check(json!({"metadata": {"nope": 1}}), ".metadata.nope: field not declared in schema");
    }
}
