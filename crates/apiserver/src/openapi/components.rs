//! Types as OpenAPI v3 shows them: the schema pack's facts, with descriptions from who has them (1.18).

use std::collections::BTreeSet;

use schema::pack::{Facts, Field, ListType, Shape};
use schema::{Pack, Type};
use serde_json::{Map, Value, json};

use super::descriptions::Descriptions;

const PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// A reference to a component.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("{PREFIX}{name}")})
}

/// The full name of a type that all kinds share.
pub(super) fn meta(name: &str) -> String {
    format!("{META}.{name}")
}

/// All components that something refers to, directly or through others.
pub(super) fn components(
    of: &[&Value],
    given: Map<String, Value>,
    descriptions: &Descriptions,
) -> Map<String, Value> {
    let mut wanted = BTreeSet::new();
    for value in of.iter().copied().chain(given.values()) {
        referred(value, &mut wanted);
    }
    let mut found = given;
    while let Some(name) = wanted.pop_first() {
        if found.contains_key(&name) {
            continue;
        }
        let component = component(&name, descriptions);
        referred(&component, &mut wanted);
        found.insert(name, component);
    }
    found
}

fn referred(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) =
                fields.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix(PREFIX))
            {
                into.insert(name.to_owned());
            }
            fields.values().for_each(|value| referred(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| referred(value, into)),
        _ => {}
    }
}

/// One built-in type.
fn component(name: &str, descriptions: &Descriptions) -> Value {
    let described = |mut component: Value| {
        if let Some(text) = descriptions.of_type(name) {
            component["description"] = json!(text);
        }
        component
    };
    let Some(of) = Pack::v1_35().named(name) else {
        // A patch is nobody's type: any of several formats.
        return described(json!({"type": "object"}));
    };
    described(match of.shape() {
        Shape::Struct => structure(of, name, descriptions),
        // Any JSON at all, where the other raw types are objects.
        Shape::Raw if name.rsplit('.').next() == Some("JSON") => json!({}),
        shape => scalar(shape),
    })
}

fn structure(of: Type, name: &str, descriptions: &Descriptions) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    collect(of, &mut |field| {
        let property = property(field, descriptions.of_field(name, field.name()));
        if field.facts().required {
            required.push(field.name());
        }
        properties.insert(field.name().to_owned(), property);
    });
    let mut component = json!({"type": "object"});
    if !properties.is_empty() {
        component["properties"] = Value::Object(properties);
    }
    if !required.is_empty() {
        component["required"] = json!(required);
    }
    extend(&mut component, of.facts());
    // Discovery has no objects, and so no options for them.
    let kinds =
        Pack::v1_35().kinds().filter(|(kind, known)| *known == of && kind.group != "apidiscovery.k8s.io");
    let kinds: Vec<Value> = kinds
        .map(|(kind, _)| json!({"group": kind.group, "kind": kind.kind, "version": kind.version}))
        .collect();
    if !kinds.is_empty() {
        component["x-kubernetes-group-version-kind"] = json!(kinds);
    }
    component
}

/// The fields of a struct as JSON shows them, inlined ones among them.
fn collect(of: Type, each: &mut impl FnMut(Field)) {
    for field in of.fields() {
        if field.is_inline() { collect(field.of_type(), each) } else { each(field) }
    }
}

fn property(field: Field, description: Option<&str>) -> Value {
    let facts = field.facts();
    let mut property = value(field.of_type(), facts);
    extend(&mut property, facts);
    if let Some(default) = facts.default_value() {
        property["default"] = default;
    }
    if let Some(values) = facts.values() {
        property["enum"] = values;
    }
    if let Some(text) = description {
        property["description"] = json!(text);
    }
    beside_reference(property)
}

/// What stands beside a reference is only heard if the reference stands in an `allOf`.
fn beside_reference(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut()
        && fields.len() > 1
        && let Some(reference) = fields.remove("$ref")
    {
        fields.insert("allOf".to_owned(), json!([{"$ref": reference}]));
    }
    schema
}

/// A type where it is used: by name if it has one.
fn value(of: Type, facts: &Facts) -> Value {
    if let Shape::Pointer(to) = of.shape() {
        return value(to, facts);
    }
    match of.shape() {
        Shape::List(item) => json!({"type": "array", "items": item_schema(item, facts)}),
        Shape::Map(item) => json!({"type": "object", "additionalProperties": item_schema(item, facts)}),
        Shape::Struct => reference(of.name()),
        shape if has_component(&shape) && !of.name().is_empty() => reference(of.name()),
        shape => scalar(shape),
    }
}

fn item_schema(item: Type, facts: &Facts) -> Value {
    let mut schema = value(item, &Facts::default());
    // Texts in lists in maps have the default that they would have in a list alone.
    if let Shape::List(inner) = item.shape()
        && matches!(inner.shape(), Shape::String)
    {
        schema["items"]["default"] = json!("");
    }
    let (default, values) = (facts.item_default(), facts.item_values());
    if default.is_none() && values.is_none() {
        return schema;
    }
    if let Some(default) = default {
        schema["default"] = default;
    }
    if let Some(values) = values {
        schema["enum"] = values;
    }
    beside_reference(schema)
}

fn has_component(shape: &Shape) -> bool {
    matches!(
        shape,
        Shape::Time
            | Shape::MicroTime
            | Shape::Quantity
            | Shape::IntOrString
            | Shape::Raw
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrStrings(_)
    )
}

fn scalar<T>(shape: Shape<T>) -> Value {
    match shape {
        Shape::String => json!({"type": "string"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Int32 => json!({"type": "integer", "format": "int32"}),
        Shape::Int64 => json!({"type": "integer", "format": "int64"}),
        Shape::Float64 => json!({"type": "number", "format": "double"}),
        Shape::Bytes => json!({"type": "string", "format": "byte"}),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Shape::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Shape::Raw => json!({"type": "object"}),
        _ => json!({}),
    }
}

/// How it is merged, for those who merge.
fn extend(schema: &mut Value, facts: &Facts) {
    if let Some(list) = facts.list {
        let list = match list {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        };
        schema["x-kubernetes-list-type"] = json!(list);
    }
    if !facts.keys.is_empty() {
        schema["x-kubernetes-list-map-keys"] = json!(facts.keys);
    }
    if facts.atomic {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    if let Some(strategy) = facts.patch_strategy {
        schema["x-kubernetes-patch-strategy"] = json!(strategy);
    }
    if let Some(key) = facts.merge_key {
        schema["x-kubernetes-patch-merge-key"] = json!(key);
    }
    if let Some(unions) = facts.unions() {
        schema["x-kubernetes-unions"] = unions;
    }
}
