//! Schemas of structured-merge-diff as ours.

use std::collections::HashMap;

use apiserver::apply::schema::{Atom, Field, List, Map, Merge, Scalar, Schema, TypeId};
use serde_json::{Value, json};

/// Reads a schema, and the types by their names.
pub(crate) fn read(schema: &Value) -> (Schema, HashMap<String, TypeId>) {
    let mut reader = Reader { schema: Schema::new(), source: HashMap::new(), names: HashMap::new() };
    for of in schema["types"].as_array().expect("a schema has types") {
        let name = of["name"].as_str().expect("a type has a name").to_owned();
        let id = match name.as_str() {
            "__untyped_atomic_" => Schema::ANY,
            "__untyped_deduced_" => Schema::DEDUCED,
            _ => reader.schema.declare(),
        };
        reader.source.insert(name.clone(), of.clone());
        reader.names.insert(name, id);
    }
    for (name, id) in reader.names.clone() {
        if ![Schema::ANY, Schema::DEDUCED].contains(&id) {
            let atom = reader.atom(&reader.source[&name].clone());
            reader.schema.define(id, atom);
        }
    }
    (reader.schema, reader.names)
}

struct Reader {
    schema: Schema,
    source: HashMap<String, Value>,
    names: HashMap<String, TypeId>,
}

impl Reader {
    fn reference(&mut self, of: &Value) -> TypeId {
        let Some(name) = of["namedType"].as_str() else {
            let atom = self.atom(of);
            return self.schema.add(atom);
        };
        // Some definitions of other components have names that references to them do not find.
        let Some(&known) = self.names.get(name) else { return Schema::ANY };
        let Some(relationship) = of["elementRelationship"].as_str() else { return known };
        let mut atom = self.atom(&self.source[name].clone());
        if let Some(map) = &mut atom.map {
            map.atomic = relationship == "atomic";
        }
        self.schema.add(atom)
    }

    fn atom(&mut self, of: &Value) -> Atom {
        let scalar = of["scalar"].as_str().map(|scalar| match scalar {
            "numeric" => Scalar::Numeric,
            "string" => Scalar::String,
            "boolean" => Scalar::Boolean,
            _ => Scalar::Untyped,
        });
        let list = of["list"].as_object().map(|list| {
            let keys = list.get("keys").and_then(Value::as_array);
            let merge = match (list["elementRelationship"].as_str(), keys) {
                (Some("atomic"), _) => Merge::Atomic,
                (_, None) => Merge::Set,
                (_, Some(keys)) => Merge::ByKeys(
                    keys.iter().map(|key| key.as_str().expect("a key is a name").into()).collect(),
                ),
            };
            List { items: self.reference(&list["elementType"]), merge }
        });
        let map = of["map"].as_object().map(|source| {
            let fields = source.get("fields").and_then(Value::as_array).cloned().unwrap_or_default();
            let fields: Vec<Field> = fields
                .iter()
                .map(|field| Field {
                    name: field["name"].as_str().expect("a field has a name").into(),
                    of: self.reference(&field["type"]),
                    default: field.get("default").cloned(),
                })
                .collect();
            let rest = source.get("elementType").map(|of| self.reference(of));
            let atomic = source.get("elementRelationship") == Some(&json!("atomic"));
            let mut map = Map::of_fields(fields);
            (map.rest, map.atomic) = (rest, atomic);
            map
        });
        Atom { scalar, list, map }
    }
}

/// A kind with every way to merge, in two versions that call one field differently.
pub(crate) fn widgets() -> Value {
    let named = |name: &str| json!({"namedType": name});
    let field = |name: &str, of: Value| json!({"name": name, "type": of});
    let string = || json!({"scalar": "string"});
    let strings = || json!({"map": {"elementType": {"scalar": "string"}}});
    let version = |name: &str, count: &str| {
        let spec = json!({"map": {"fields": [
            field(count, json!({"scalar": "numeric"})),
            field("paused", json!({"scalar": "boolean"})),
            field("ports", json!({"list": {"elementType": named("port"), "elementRelationship": "associative",
                "keys": ["port", "protocol"]}})),
            field("containers", json!({"list": {"elementType": named("container"),
                "elementRelationship": "associative", "keys": ["name"]}})),
            field("selector", json!({"map": {"elementType": string(), "elementRelationship": "atomic"}})),
            field("struct", json!({"namedType": "nested", "elementRelationship": "atomic"})),
            field("nested", named("nested")),
            field("args", json!({"list": {"elementType": string(), "elementRelationship": "atomic"}})),
            field("deduced", named("__untyped_deduced_")),
            field("any", named("__untyped_atomic_")),
            field("quantities", json!({"map": {"elementType": {"scalar": "untyped"}}})),
            field("maps", json!({"map": {"elementType": named("nested")}})),
        ]}});
        json!({"name": name, "map": {"fields": [
            field("apiVersion", string()), field("kind", string()), field("metadata", named("metadata")),
            field("spec", spec), field("status", named("nested")), field("data", strings()),
        ]}})
    };
    let untyped = |name: &str, relationship: &str| {
        json!({"name": name, "scalar": "untyped",
        "list": {"elementType": named("__untyped_atomic_"), "elementRelationship": "atomic"},
        "map": {"elementType": named(name), "elementRelationship": relationship}})
    };
    json!({"types": [
        untyped("__untyped_atomic_", "atomic"),
        untyped("__untyped_deduced_", "separable"),
        version("v1", "replicas"),
        version("v2", "count"),
        {"name": "metadata", "map": {"fields": [
            field("name", string()), field("namespace", string()), field("uid", string()),
            field("labels", strings()), field("annotations", strings()),
            field("finalizers", json!({"list": {"elementType": string(), "elementRelationship": "associative"}})),
            field("managedFields", json!({"list": {"elementType": named("__untyped_atomic_"), "elementRelationship": "atomic"}})),
        ]}},
        {"name": "port", "map": {"fields": [
            field("port", json!({"scalar": "numeric"})),
            {"name": "protocol", "type": string(), "default": "TCP"},
            field("name", string()),
        ]}},
        {"name": "container", "map": {"fields": [
            field("name", string()), field("image", string()), field("nested", named("nested")),
            field("env", json!({"list": {"elementType": named("port"), "elementRelationship": "associative",
                "keys": ["name"]}})),
            field("args", json!({"list": {"elementType": string(), "elementRelationship": "atomic"}})),
        ]}},
        {"name": "nested", "map": {"fields": [
            field("a", string()), field("b", json!({"scalar": "numeric"})), field("c", named("nested")),
            field("tags", json!({"list": {"elementType": json!({"scalar": "untyped"}), "elementRelationship": "associative"}})),
        ]}},
    ]})
}
