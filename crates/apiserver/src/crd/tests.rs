//! Definitions and objects through the whole way of a write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Version, definition, schema::Schema};

/// A compiled schema.
pub(crate) fn schema(of: Value) -> Schema {
    let props: JSONSchemaProps = serde_json::from_value(of).expect("a test's schema");
    Schema::compile(&props)
}

/// A definition of Widgets with that schema.
pub(crate) fn definition(of: Value) -> CustomResourceDefinition {
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": of}});
    with(json!({"versions": [version]}))
}

/// A definition of Widgets with changed fields of its spec.
fn with(changes: Value) -> CustomResourceDefinition {
    let mut spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    });
    let changes = changes.as_object().expect("changes are fields").clone();
    spec.as_object_mut().expect("a spec").extend(changes);
    let mut definition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": spec,
    }))
    .expect("a test's definition");
    definition::apply_defaults(&mut definition);
    definition
}
