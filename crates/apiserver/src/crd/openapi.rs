//! The OpenAPI v3 component of a custom resource (1.19): its schema as clients see it.
//!
//! Descriptions of `apiVersion`, `kind` and `metadata` are given by who has them. Paths and operations are the
//! server's business, which has them for every resource.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;
use serde_json::{Map, Value, json};

use super::version::{Names, schema};

const OBJECT_META: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// What is said about the fields that every object has.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "one for each field")]
pub struct Descriptions {
    pub api_version: String,
    pub kind: String,
    pub metadata: String,
}

/// The name of a component: the group backwards, the version and the kind.
pub fn component_name(names: &Names, version: &str, kind: &str) -> String {
    let group: Vec<&str> = names.group.rsplit('.').collect();
    format!("{}.{version}.{kind}", group.join("."))
}

/// The component of one object.
pub fn component(
    names: &Names,
    version: &CustomResourceDefinitionVersion,
    descriptions: &Descriptions,
) -> Value {
    let props = schema(version).and_then(|schema| serde_json::to_value(schema).ok());
    let mut component = props.unwrap_or_else(|| json!({"type": "object"}));
    clean(&mut component, descriptions);
    if let Some(fields) = component.as_object_mut() {
        if schema(version).is_some() {
            add_meta(fields, descriptions);
        }
        fields.insert("x-kubernetes-group-version-kind".to_owned(), kinds(names, &version.name, &names.kind));
        if let Some(selectable) = selectable(version) {
            fields.insert("x-kubernetes-selectable-fields".to_owned(), selectable);
        }
    }
    component
}

/// The component of a list of objects.
pub fn list_component(
    names: &Names,
    written: &CustomResourceDefinitionVersion,
    descriptions: &Descriptions,
) -> Value {
    let version = &written.name;
    let item = format!("#/components/schemas/{}", component_name(names, version, &names.kind));
    let mut list = json!({
        "type": "object",
        "description": format!("{} is a list of {}", names.list_kind, names.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": descriptions.api_version},
            "kind": {"type": "string", "description": descriptions.kind},
            "metadata": {"allOf": [{"$ref": LIST_META}], "description": descriptions.metadata},
            "items": {"type": "array", "description": format!("List of {}", names.plural),
                "items": {"$ref": item}},
        },
        "x-kubernetes-group-version-kind": kinds(names, version, &names.list_kind),
    });
    if let Some(fields) = selectable(written) {
        list["x-kubernetes-selectable-fields"] = fields;
    }
    list
}

/// Fields that a selector may name.
fn selectable(version: &CustomResourceDefinitionVersion) -> Option<Value> {
    let fields = version.selectable_fields.iter().flatten();
    let named = |path: &str| json!({"fieldPath": path.strip_prefix('.').unwrap_or(path)});
    let fields: Vec<Value> = fields.map(|field| named(&field.json_path)).collect();
    (!fields.is_empty()).then(|| fields.into())
}

fn kinds(names: &Names, version: &str, kind: &str) -> Value {
    json!([{"group": names.group, "version": version, "kind": kind}])
}

fn add_meta(fields: &mut Map<String, Value>, descriptions: &Descriptions) {
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert(
            "apiVersion".to_owned(),
            json!({"type": "string", "description": descriptions.api_version}),
        );
        properties.insert("kind".to_owned(), json!({"type": "string", "description": descriptions.kind}));
        let metadata = json!({"allOf": [{"$ref": OBJECT_META}], "description": descriptions.metadata});
        properties.insert("metadata".to_owned(), metadata);
    }
}

/// Leaves out what is not part of a published schema, spells out int-or-string, and gives embedded objects their fields.
fn clean(value: &mut Value, descriptions: &Descriptions) {
    let Some(fields) = value.as_object_mut() else { return };
    let set = |fields: &Map<String, Value>, name: &str| fields.get(name) == Some(&Value::Bool(true));
    for name in ["example", "externalDocs", "$schema", "id"] {
        fields.remove(name);
    }
    for name in
        ["uniqueItems", "nullable", "exclusiveMaximum", "exclusiveMinimum", "x-kubernetes-embedded-resource"]
    {
        if fields.get(name) == Some(&Value::Bool(false)) {
            fields.remove(name);
        }
    }
    if set(fields, "x-kubernetes-int-or-string") {
        let spelled_out = json!([{"type": "integer"}, {"type": "string"}]);
        let in_all_of = fields.get("allOf").and_then(|all| all.get(0)).and_then(|first| first.get("anyOf"))
            == Some(&spelled_out);
        if !in_all_of {
            fields.insert("anyOf".to_owned(), spelled_out);
        }
    }
    for inner in
        fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
    {
        clean(inner, descriptions);
    }
    for name in ["items", "additionalProperties", "not"] {
        if let Some(inner) = fields.get_mut(name) {
            clean(inner, descriptions);
        }
    }
    if set(fields, "x-kubernetes-embedded-resource") {
        add_meta(fields, descriptions);
        let required = fields.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            for name in ["kind", "apiVersion"] {
                if !required.iter().any(|known| known == name) {
                    required.push(name.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::tests::definition;

    #[test]
    fn components_1_19() {
        let definition = definition(
            json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["a"], "properties": {
                "a": {"type": "string", "description": "the a"},
                "i": {"x-kubernetes-int-or-string": true},
                "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            }}}}),
        );
        let versions = crate::crd::Version::all(&definition);
        let descriptions = Descriptions { api_version: "av".into(), kind: "k".into(), metadata: "m".into() };
        let names = &versions[0].names;
        let found = component(names, &definition.spec.versions[0], &descriptions);
        assert_eq!(component_name(names, "v1", "Widget"), "com.example.v1.Widget");
        assert_eq!(
            found["x-kubernetes-group-version-kind"],
            json!([{"group": "example.com", "version": "v1", "kind": "Widget"}])
        );
        assert_eq!(
            found["properties"]["metadata"],
            json!({"allOf": [{"$ref": OBJECT_META}], "description": "m"})
        );
        let spec = &found["properties"]["spec"];
        assert_eq!(spec["properties"]["a"], json!({"type": "string", "description": "the a"}));
        assert_eq!(
            spec["properties"]["i"],
            json!({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true})
        );
        assert_eq!(spec["properties"]["e"]["required"], json!(["kind", "apiVersion"]));
        let list = list_component(names, &definition.spec.versions[0], &descriptions);
        assert_eq!(
            list["properties"]["items"]["items"]["$ref"],
            "#/components/schemas/com.example.v1.Widget"
        );
    }
}
