//! A version of a custom resource, ready to take objects: what discovery, OpenAPI and the write pipeline ask for.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
    JSONSchemaProps,
};
use serde_json::Value;

use super::{columns::Column, go::number, rules::Rules, schema::Schema};
use crate::jsonpath::JsonPath;
use crate::registry::preference;

/// How a resource is called.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named and meant as in the definition")]
pub struct Names {
    pub group: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
}

/// One version of a custom resource.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own in the definition")]
pub struct Version {
    /// How the resource is called.
    pub names: Names,
    /// The version's name: `v1`.
    pub version: String,
    /// `group/version`, as it stands in an object.
    pub(crate) said_as: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether requests to it are answered.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// What to warn clients with, if the version is deprecated.
    pub deprecation: Option<String>,
    /// Whether `/status` is there.
    pub has_status: bool,
    /// Where `/scale` finds its numbers, if it is there.
    pub scale: Option<CustomResourceSubresourceScale>,
    /// The columns after the name.
    pub columns: Vec<Column>,
    /// Fields that a field selector may name, without the leading dot.
    pub selectable_fields: Vec<String>,
    /// What an object must be.
    pub schema: Schema,
    /// The rules of the schema, if it has any.
    pub rules: Option<Rules>,
}

impl Version {
    /// All versions of an accepted definition, in its order.
    pub fn all(definition: &CustomResourceDefinition) -> Vec<Version> {
        definition.spec.versions.iter().map(|version| Version::new(definition, version)).collect()
    }

    fn new(definition: &CustomResourceDefinition, version: &CustomResourceDefinitionVersion) -> Version {
        let spec = &definition.spec;
        let names = Names {
            group: spec.group.clone(),
            plural: spec.names.plural.clone(),
            singular: spec.names.singular.clone().unwrap_or_default(),
            kind: spec.names.kind.clone(),
            list_kind: spec.names.list_kind.clone().unwrap_or_default(),
            short_names: spec.names.short_names.clone().unwrap_or_default(),
            categories: spec.names.categories.clone().unwrap_or_default(),
        };
        let schema = schema(version).map(Schema::compile).unwrap_or_default();
        let subresources = version.subresources.as_ref();
        let columns = version.additional_printer_columns.as_deref().unwrap_or_default();
        let warning = || {
            let given = version.deprecation_warning.clone();
            given.unwrap_or_else(|| {
                let better = spec.versions.iter().filter(|other| {
                    other.served
                        && other.deprecated != Some(true)
                        && preference(&other.name) > preference(&version.name)
                });
                let (group, kind) = (&names.group, &names.kind);
                let instead = better.max_by_key(|other| preference(&other.name));
                let instead = instead.map(|other| format!("; use {group}/{} {kind}", other.name));
                format!("{group}/{} {kind} is deprecated{}", version.name, instead.unwrap_or_default())
            })
        };
        Version {
            deprecation: (version.deprecated == Some(true)).then(warning),
            said_as: format!("{}/{}", names.group, version.name),
            names,
            version: version.name.clone(),
            namespaced: spec.scope == "Namespaced",
            served: version.served,
            storage: version.storage,
            has_status: subresources.is_some_and(|subresources| subresources.status.is_some()),
            scale: subresources.and_then(|subresources| subresources.scale.clone()),
            columns: if columns.is_empty() { Column::age() } else { Column::all(columns) },
            selectable_fields: selectable_fields(version),
            rules: Rules::new(&schema, true),
            schema,
        }
    }

    /// `group/version`, as it stands in an object.
    pub fn api_version(&self) -> String {
        self.said_as.clone()
    }

    /// What a field selector sees of an object: the selectable fields, empty where absent.
    pub fn selectable_values(&self, object: &Value) -> BTreeMap<String, String> {
        let value = |field: &String| {
            let path = JsonPath::parse(&format!(".{field}")).ok()?;
            Some(match path.first(object)? {
                Value::String(text) => text.clone(),
                Value::Bool(value) => value.to_string(),
                Value::Number(value) => number(value),
                _ => String::new(),
            })
        };
        self.selectable_fields.iter().map(|field| (field.clone(), value(field).unwrap_or_default())).collect()
    }
}

pub(crate) fn schema(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn selectable_fields(version: &CustomResourceDefinitionVersion) -> Vec<String> {
    let fields = version.selectable_fields.iter().flatten();
    fields.map(|field| field.json_path.strip_prefix('.').unwrap_or(&field.json_path).to_owned()).collect()
}
