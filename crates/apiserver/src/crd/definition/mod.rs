//! Whether a CustomResourceDefinition is acceptable (3.21), in Kubernetes' words and at Kubernetes' paths.
//!
//! The API server upstream holds what is the same in all versions once, outside of the versions, and reports errors
//! there: a schema that all versions share is at `spec.validation`, not at `spec.versions[0].schema`. `Hoisted` finds
//! out what that is.
//!
//! On update, checks that the stored definition already fails are not held against the new one.

mod approval;
mod authority;
mod defaulted;
mod naming;
mod spec;
mod strategy;
mod structural;
mod tree;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use rules::{
    field::{Errors, Path, Value},
    meta, names,
};

pub(crate) use naming::set_condition;
pub use naming::{prepare_create, prepare_update, settle};
pub(crate) use spec::{names as validate_names, text};
pub(crate) use strategy::{Definitions, FINALIZER};

/// Fills in what a definition leaves open: names derived from others, no conversion, the first stored version.
pub fn apply_defaults(definition: &mut CustomResourceDefinition) {
    let spec = &mut definition.spec;
    if text(spec.names.singular.as_ref()).is_empty() {
        spec.names.singular = Some(spec.names.kind.to_lowercase());
    }
    if text(spec.names.list_kind.as_ref()).is_empty() && !spec.names.kind.is_empty() {
        spec.names.list_kind = Some(format!("{}List", spec.names.kind));
    }
    let conversion = spec.conversion.get_or_insert_with(|| CustomResourceConversion {
        strategy: "None".to_owned(),
        ..CustomResourceConversion::default()
    });
    let webhook = conversion.webhook.as_mut().and_then(|webhook| webhook.client_config.as_mut());
    if let Some(service) = webhook.and_then(|config| config.service.as_mut()) {
        service.port.get_or_insert(443);
    }
    let stored = spec.versions.iter().find(|version| version.storage).map(|version| version.name.clone());
    let status = definition.status.get_or_insert_default();
    if status.stored_versions.as_ref().is_none_or(Vec::is_empty) {
        status.stored_versions = stored.map(|name| vec![name]);
    }
}

/// Every error of a new definition, after [`apply_defaults`].
pub fn validate(definition: &CustomResourceDefinition) -> Errors {
    let required = format!("{}.{}", definition.spec.names.plural, definition.spec.group);
    let mut errors = validate_metadata(definition, &required);
    errors.extend(spec::validate(&definition.spec, &Options::default(), &Path::new("spec")));
    errors.extend(validate_status(definition));
    errors.extend(approval::validate(definition, None));
    errors.extend(preserve_unknown(&definition.spec));
    errors
}

/// Every error of a changed definition, after [`apply_defaults`].
pub fn validate_update(definition: &CustomResourceDefinition, old: &CustomResourceDefinition) -> Errors {
    let mut errors = meta::validate_update(&definition.metadata, &old.metadata, &Path::new("metadata"));
    let path = Path::new("spec");
    errors.extend(spec::validate(&definition.spec, &Options::tolerating(old), &path));
    let mut immutable = |field: &str, new: &str, old: &str| {
        if new != old {
            errors.push(path.child(field).invalid(new, meta::IMMUTABLE));
        }
    };
    if is_established(old) {
        immutable("scope", &definition.spec.scope, &old.spec.scope);
        immutable("names.kind", &definition.spec.names.kind, &old.spec.names.kind);
    }
    immutable("group", &definition.spec.group, &old.spec.group);
    immutable("names.plural", &definition.spec.names.plural, &old.spec.names.plural);
    errors.extend(validate_status(definition));
    errors.extend(approval::validate(definition, Some(old)));
    if old.spec.preserve_unknown_fields != Some(true) {
        errors.extend(preserve_unknown(&definition.spec));
    }
    errors
}

/// Every error of a changed status.
pub fn validate_status_update(
    definition: &CustomResourceDefinition,
    old: &CustomResourceDefinition,
) -> Errors {
    let mut errors = meta::validate_update(&definition.metadata, &old.metadata, &Path::new("metadata"));
    let accepted = definition.status.as_ref().and_then(|status| status.accepted_names.as_ref());
    errors.extend(
        accepted.into_iter().flat_map(|names| validate_names(names, &Path::new("status.acceptedNames"))),
    );
    errors
}

/// Whether the condition `Established` is true.
pub fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
}

/// Metadata of an object that is in no namespace, whose name must be `required`.
fn validate_metadata(definition: &CustomResourceDefinition, required: &str) -> Errors {
    let path = Path::new("metadata");
    let mut metadata = definition.metadata.clone();
    let given = metadata.namespace.replace("none".to_owned()).filter(|namespace| !namespace.is_empty());
    let mut errors = meta::validate(&metadata, names::dns_subdomain, &path);
    if let Some(name) = metadata.name.as_ref().filter(|name| !name.is_empty() && *name != required) {
        let wrong = path.child("name").invalid(name, "must be spec.names.plural+\".\"+spec.group");
        let after =
            errors.iter().rposition(|error| error.path == "metadata.name").map_or(0, |place| place + 1);
        errors.insert(after, wrong);
    }
    if given.is_some() {
        errors.push(path.child("namespace").forbidden("not allowed on this type"));
    }
    errors
}

fn validate_status(definition: &CustomResourceDefinition) -> Errors {
    let path = Path::new("status");
    let status = definition.status.clone().unwrap_or_default();
    let mut errors = Errors::new();
    if let Some(names) = &status.accepted_names {
        errors.extend(validate_names(names, &path.child("acceptedNames")));
    }
    let path = path.child("storedVersions");
    let stored = status.stored_versions.filter(|stored| !stored.is_empty());
    let Some(stored) = stored else {
        errors.push(path.invalid(Value::printed("null"), "must have at least one stored version"));
        return errors;
    };
    let versions = &definition.spec.versions;
    for version in versions.iter().filter(|version| version.storage && !stored.contains(&version.name)) {
        errors.push(
            path.invalid(Value::json(&stored), format!("must have the storage version {}", version.name)),
        );
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version.name == *name) {
            errors.push(path.index(index).invalid(
                name,
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in \
                     spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                     {name} from status.storedVersions"
                ),
            ));
        }
    }
    errors
}

fn preserve_unknown(spec: &CustomResourceDefinitionSpec) -> Errors {
    if spec.preserve_unknown_fields != Some(true) {
        return Errors::new();
    }
    vec![Path::new("spec").child("preserveUnknownFields").invalid(
        true,
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
    )]
}

/// What all versions have in common.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four independent answers")]
pub(crate) struct Hoisted {
    pub schema: bool,
    pub subresources: bool,
    pub columns: bool,
    pub selectable_fields: bool,
}

impl Hoisted {
    pub(crate) fn new(versions: &[CustomResourceDefinitionVersion]) -> Hoisted {
        let Some((first, rest)) = versions.split_first() else { return Hoisted::default() };
        let none = |len: Option<usize>| len.unwrap_or(0) == 0;
        Hoisted {
            schema: first.schema.is_some() && rest.iter().all(|version| version.schema == first.schema),
            subresources: first.subresources.is_some()
                && rest.iter().all(|version| version.subresources == first.subresources),
            columns: !none(first.additional_printer_columns.as_ref().map(Vec::len))
                && rest
                    .iter()
                    .all(|version| version.additional_printer_columns == first.additional_printer_columns),
            selectable_fields: !none(first.selectable_fields.as_ref().map(Vec::len))
                && rest.iter().all(|version| version.selectable_fields == first.selectable_fields),
        }
    }
}

/// Which checks are made: all of a new definition, and of a changed one those that the old one passes.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each switches one check")]
pub(crate) struct Options {
    valid_types: bool,
    structural: bool,
    pruned_defaults: bool,
    atomic_sets: bool,
    list_keys: bool,
    schemas: bool,
    authority: bool,
    max_selectable_fields: usize,
    /// Schemas that are stored, by their versions: what their rules may cost was settled with them.
    stored: Vec<(String, JSONSchemaProps)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            valid_types: true,
            structural: true,
            pruned_defaults: true,
            atomic_sets: true,
            list_keys: true,
            schemas: true,
            // Until a definition is established, its conditions tell.
            authority: false,
            max_selectable_fields: 8,
            stored: Vec::new(),
        }
    }
}

impl Options {
    fn tolerating(old: &CustomResourceDefinition) -> Options {
        let is_established = is_established(old);
        let old = &old.spec;
        let schemas =
            || old.versions.iter().filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
        let everywhere =
            |holds: &dyn Fn(&JSONSchemaProps) -> bool| schemas().all(|schema| all(schema, holds));
        let structural = schemas().all(|schema| structural::validate(schema, &Path::root()).is_empty());
        let most_fields =
            old.versions.iter().map(|version| version.selectable_fields.as_ref().map_or(0, Vec::len)).max();
        Options {
            valid_types: everywhere(&|schema| tree::has_valid_type(schema)),
            structural,
            pruned_defaults: !structural || schemas().all(defaulted::are_pruned),
            atomic_sets: everywhere(&|schema| tree::set_items(schema, &Path::root()).is_empty()),
            list_keys: everywhere(&|schema| tree::list_keys(schema, &Path::root()).is_empty()),
            schemas: old
                .versions
                .iter()
                .all(|version| version.schema.as_ref().is_some_and(|s| s.open_api_v3_schema.is_some())),
            authority: is_established && authority::problem(old).is_none(),
            max_selectable_fields: most_fields.unwrap_or(0).max(8),
            stored: old
                .versions
                .iter()
                .filter_map(|version| {
                    Some((version.name.clone(), version.schema.as_ref()?.open_api_v3_schema.clone()?))
                })
                .collect(),
        }
    }

    /// Whether a version has the schema that is stored.
    fn is_stored(&self, version: &str, schema: &JSONSchemaProps) -> bool {
        self.stored.iter().any(|(name, stored)| name == version && stored == schema)
    }
}

/// Whether something holds for a schema and everything below.
fn all(schema: &JSONSchemaProps, holds: &dyn Fn(&JSONSchemaProps) -> bool) -> bool {
    holds(schema) && children(schema).into_iter().all(|(_, child)| all(child, holds))
}

/// All schemas directly inside of a schema, and how a path names them.
fn children(schema: &JSONSchemaProps) -> Vec<(Step<'_>, &JSONSchemaProps)> {
    let mut found = Vec::new();
    if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &schema.additional_properties {
        found.push((Step::Child("additionalProperties"), &**inner));
    }
    found.extend(schema.properties.iter().flatten().map(|(name, inner)| (Step::Property(name), inner)));
    found.extend(schema.not.iter().map(|inner| (Step::Child("not"), &**inner)));
    for (name, list) in [("allOf", &schema.all_of), ("oneOf", &schema.one_of), ("anyOf", &schema.any_of)] {
        found.extend(
            list.iter().flatten().enumerate().map(|(index, inner)| (Step::Index(name, index), inner)),
        );
    }
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(inner)) => found.push((Step::Child("items"), &**inner)),
        Some(JSONSchemaPropsOrArray::Schemas(list)) => {
            found.extend(list.iter().enumerate().map(|(index, inner)| (Step::Index("items", index), inner)));
        }
        None => {}
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step<'a> {
    Child(&'a str),
    Property(&'a str),
    Index(&'a str, usize),
}

impl Step<'_> {
    fn from(self, path: &Path) -> Path {
        match self {
            Step::Child(name) => path.child(name),
            Step::Property(name) => path.child("properties").key(name),
            Step::Index(name, index) => path.child(name).index(index),
        }
    }

    /// Whether it leads to another value, and not to another schema of the same one.
    fn is_structural(self) -> bool {
        matches!(self, Step::Property(_) | Step::Child("items" | "additionalProperties"))
    }
}

/// An absent flag is not set.
fn is_set(flag: Option<bool>) -> bool {
    flag == Some(true)
}
