//! The definition around its schemas: names, versions, columns, subresources, selectable fields and conversion.

use std::collections::HashSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceConversion, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresources,
    JSONSchemaProps, SelectableField, WebhookClientConfig,
};
use rules::{
    field::{Errors, Path, Value},
    kind::client_config,
    names as syntax,
};
use types::go::is_print;

use super::{Hoisted, Options, authority, tree};
use crate::crd::{
    field_path,
    schema::{Schema, Type},
};

/// An absent text is an empty one.
pub(crate) fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

/// Every error of a definition's spec.
pub(super) fn validate(spec: &CustomResourceDefinitionSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = group(&spec.group, &path.child("group"));
    errors.extend(one_of(&spec.scope, &["Cluster", "Namespaced"], &path.child("scope")));
    let hoisted = Hoisted::new(&spec.versions);
    if options.schemas {
        for (index, _) in spec.versions.iter().enumerate().filter(|(_, version)| schema(version).is_none()) {
            errors.push(path.child("versions").index(index).child("schema.openAPIV3Schema").required(""));
        }
    }
    let preserves_unknown = spec.preserve_unknown_fields == Some(true);
    if preserves_unknown && has_defaults(spec) {
        errors.push(
            path.child("preserveUnknownFields")
                .invalid(true, "must be false in order to use defaults in the schema"),
        );
    }
    for (index, version) in spec.versions.iter().enumerate() {
        let path = path.child("versions").index(index);
        errors.extend(label(&version.name, &path.child("name")));
        errors.extend(self::version(version, &hoisted, options, &path));
    }
    errors.extend(versions(spec, &path.child("versions")));
    if let Some(first) = spec.versions.first() {
        errors.extend(
            label(&first.name, &path.child("version")).into_iter().filter(|_| !first.name.is_empty()),
        );
    }
    let names_path = path.child("names");
    for (name, value) in [
        ("plural", spec.names.plural.as_str()),
        ("singular", text(spec.names.singular.as_ref())),
        ("kind", &spec.names.kind),
        ("listKind", text(spec.names.list_kind.as_ref())),
    ] {
        if value.is_empty() {
            errors.push(names_path.child(name).required(""));
        }
    }
    errors.extend(names(&spec.names, &names_path));
    if let Some(first) = spec.versions.first() {
        let any_has_status = spec.versions.iter().any(has_status);
        errors.extend(shared(first, any_has_status, &hoisted, options, path));
    }
    if let Some(conversion) = &spec.conversion {
        let path = path.child("conversion");
        if preserves_unknown && conversion.strategy != "None" {
            let why = "must be None if spec.preserveUnknownFields is true";
            errors.push(path.child("strategy").invalid(&conversion.strategy, why));
        }
        errors.extend(self::conversion(conversion, options, &path));
    }
    errors
}

fn has_defaults(spec: &CustomResourceDefinitionSpec) -> bool {
    let mut schemas = spec.versions.iter().filter_map(schema);
    schemas.any(|schema| !super::all(schema, &|part| part.default.is_none()))
}

fn schema(version: &CustomResourceDefinitionVersion) -> Option<&JSONSchemaProps> {
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

fn has_status(version: &CustomResourceDefinitionVersion) -> bool {
    version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some())
}

fn group(group: &str, path: &Path) -> Errors {
    if group.is_empty() {
        return vec![path.required("")];
    }
    let problems = syntax::dns_subdomain(group);
    if !problems.is_empty() {
        return vec![path.invalid(group, problems.join(","))];
    }
    if !group.contains('.') {
        return vec![path.invalid(group, "should be a domain with at least one dot")];
    }
    Errors::new()
}

fn one_of(value: &str, supported: &[&str], path: &Path) -> Errors {
    match value {
        "" => vec![path.required("")],
        value if supported.contains(&value) => Errors::new(),
        value => vec![path.not_supported(value, supported)],
    }
}

fn label(name: &str, path: &Path) -> Errors {
    let problems = syntax::dns_1035_label(name);
    if problems.is_empty() { Errors::new() } else { vec![path.invalid(name, problems.join(","))] }
}

/// Names that clients use for the resource.
pub(crate) fn names(names: &CustomResourceDefinitionNames, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (name, value) in [("plural", names.plural.as_str()), ("singular", text(names.singular.as_ref()))] {
        if !value.is_empty() {
            errors.extend(label(value, &path.child(name)));
        }
    }
    for (name, value) in [("kind", names.kind.as_str()), ("listKind", text(names.list_kind.as_ref()))] {
        let problems = syntax::dns_1035_label(&value.to_lowercase());
        if !value.is_empty() && !problems.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            errors.push(path.child(name).invalid(value, detail));
        }
    }
    let all = |list: &Option<Vec<String>>, path: Path| -> Errors {
        let list = list.iter().flatten().enumerate();
        list.flat_map(|(index, name)| label(name, &path.index(index))).collect()
    };
    errors.extend(all(&names.short_names, path.child("shortNames")));
    if !names.kind.is_empty() && names.kind == text(names.list_kind.as_ref()) {
        errors.push(path.child("listKind").invalid(&names.kind, "kind and listKind may not be the same"));
    }
    errors.extend(all(&names.categories, path.child("categories")));
    errors
}

/// What must hold for all versions together.
fn versions(spec: &CustomResourceDefinitionSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    // Without a spec there is no list at all, and Go prints that.
    let absent = spec.group.is_empty() && spec.names.plural.is_empty() && spec.versions.is_empty();
    let shown = || if absent { Value::printed("null") } else { Value::json(&spec.versions) };
    let names: HashSet<&String> = spec.versions.iter().map(|version| &version.name).collect();
    if names.len() != spec.versions.len() {
        errors.push(path.invalid(shown(), "must contain unique version names"));
    }
    if spec.versions.iter().filter(|version| version.storage).count() != 1 {
        errors.push(path.invalid(shown(), "must have exactly one version marked as storage version"));
    }
    errors
}

/// A version's own parts.
fn version(
    version: &CustomResourceDefinitionVersion,
    hoisted: &Hoisted,
    options: &Options,
    path: &Path,
) -> Errors {
    let mut errors = deprecation(version, &path.child("deprecationWarning"));
    if let Some(schema) = schema(version).filter(|_| !hoisted.schema) {
        let is_stored = options.is_stored(&version.name, schema);
        let path = path.child("schema");
        errors.extend(tree::validate(schema, has_status(version), is_stored, options, &path));
    }
    if let Some(subresources) = version.subresources.as_ref().filter(|_| !hoisted.subresources) {
        errors.extend(self::subresources(subresources, &path.child("subresources")));
    }
    if !hoisted.columns {
        errors.extend(columns(version, &path.child("additionalPrinterColumns")));
    }
    if !hoisted.selectable_fields {
        errors.extend(selectable_fields(version, options, &path.child("selectableFields")));
    }
    errors
}

/// What all versions share, at the paths where upstream keeps it. Their schema is judged as that of objects with a
/// status as soon as one version has it apart.
fn shared(
    first: &CustomResourceDefinitionVersion,
    any_has_status: bool,
    hoisted: &Hoisted,
    options: &Options,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    if let Some(schema) = schema(first).filter(|_| hoisted.schema) {
        let is_stored = options.is_stored(&first.name, schema);
        let path = path.child("validation");
        errors.extend(tree::validate(schema, any_has_status, is_stored, options, &path));
    }
    if let Some(subresources) = first.subresources.as_ref().filter(|_| hoisted.subresources) {
        errors.extend(self::subresources(subresources, &path.child("subresources")));
    }
    if hoisted.columns {
        errors.extend(columns(first, &path.child("additionalPrinterColumns")));
    }
    if hoisted.selectable_fields {
        errors.extend(selectable_fields(first, options, &path.child("selectableFields")));
    }
    errors
}

fn deprecation(version: &CustomResourceDefinitionVersion, path: &Path) -> Errors {
    let Some(warning) = &version.deprecation_warning else { return Errors::new() };
    if version.deprecated != Some(true) {
        return vec![path.invalid(warning, "can only be set for deprecated versions")];
    }
    let mut errors = Errors::new();
    if warning.len() > 256 {
        errors.push(path.invalid(warning, "must be <= 256 characters long"));
    }
    if warning.is_empty() {
        errors.push(path.invalid(warning, "must not be an empty string"));
    }
    if let Some((place, _)) = warning.char_indices().find(|(_, c)| !is_print(*c)) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {place}"
        );
        errors.push(path.invalid(warning, detail));
    }
    errors
}

fn simple_path(json_path: &str, path: &Path) -> Errors {
    if json_path.starts_with('.') {
        Errors::new()
    } else {
        vec![path.invalid(json_path, "must be a simple json path starting with .")]
    }
}

fn subresources(subresources: &CustomResourceSubresources, path: &Path) -> Errors {
    let Some(scale) = &subresources.scale else { return Errors::new() };
    let mut errors = Errors::new();
    for (name, json_path, prefix) in [
        ("specReplicasPath", &scale.spec_replicas_path, ".spec"),
        ("statusReplicasPath", &scale.status_replicas_path, ".status"),
    ] {
        let path = path.child("scale").child(name);
        if json_path.is_empty() {
            errors.push(path.required(""));
            continue;
        }
        let wrong = simple_path(json_path, &path);
        if wrong.is_empty() && !json_path.starts_with(&format!("{prefix}.")) {
            errors.push(path.invalid(json_path, format!("should be a json path under {prefix}")));
        }
        errors.extend(wrong);
    }
    if let Some(json_path) = scale.label_selector_path.as_ref().filter(|json_path| !json_path.is_empty()) {
        let path = path.child("scale").child("labelSelectorPath");
        let wrong = simple_path(json_path, &path);
        if wrong.is_empty() && !json_path.starts_with(".spec.") && !json_path.starts_with(".status.") {
            errors.push(path.invalid(json_path, "should be a json path under either .spec or .status"));
        }
        errors.extend(wrong);
    }
    errors
}

fn columns(version: &CustomResourceDefinitionVersion, path: &Path) -> Errors {
    let columns = version.additional_printer_columns.iter().flatten().enumerate();
    columns.flat_map(|(index, column)| self::column(column, &path.index(index))).collect()
}

fn column(column: &CustomResourceColumnDefinition, path: &Path) -> Errors {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    let mut errors = Errors::new();
    if column.name.is_empty() {
        errors.push(path.child("name").required(""));
    }
    let types = format!("must be one of {}", TYPES.join(","));
    if column.type_.is_empty() {
        errors.push(path.child("type").required(types));
    } else if !TYPES.contains(&column.type_.as_str()) {
        errors.push(path.child("type").invalid(&column.type_, types));
    }
    let format = text(column.format.as_ref());
    if !format.is_empty() && !FORMATS.contains(&format) {
        errors.push(path.child("format").invalid(format, format!("must be one of {}", FORMATS.join(","))));
    }
    if column.json_path.is_empty() {
        errors.push(path.child("JSONPath").required(""));
    } else {
        errors.extend(simple_path(&column.json_path, &path.child("JSONPath")));
    }
    errors
}

fn selectable_fields(version: &CustomResourceDefinitionVersion, options: &Options, path: &Path) -> Errors {
    let fields: &[SelectableField] = version.selectable_fields.as_deref().unwrap_or_default();
    if fields.is_empty() {
        return Errors::new();
    }
    let Some(schema) = schema(version).map(Schema::compile) else {
        return vec![
            path.invalid("", "may only be set when `version.schema.openAPIV3Schema` is not included"),
        ];
    };
    let mut errors = Errors::new();
    let mut known = HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        let path = path.index(index).child("jsonPath");
        if field.json_path.is_empty() {
            errors.push(path.required(""));
            continue;
        }
        let (resolved, found) = match field_path::resolve(&field.json_path, &schema, false) {
            Ok(found) => found,
            Err(why) => {
                errors.push(path.invalid(&field.json_path, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if resolved == "metadata" || resolved.starts_with("metadata.") {
            errors.push(path.invalid(&field.json_path, "must not point to fields in metadata"));
        }
        if !matches!(found.r#type, Some(Type::String | Type::Boolean | Type::Integer)) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.push(path.invalid(&field.json_path, detail));
        }
        if !known.insert(resolved) {
            errors.push(path.duplicate(&field.json_path));
        }
    }
    if known.len() > options.max_selectable_fields {
        errors.push(path.too_many(known.len(), 8));
    }
    errors
}

fn conversion(conversion: &CustomResourceConversion, options: &Options, path: &Path) -> Errors {
    let mut errors = one_of(&conversion.strategy, &["None", "Webhook"], &path.child("strategy"));
    let config = conversion.webhook.as_ref().and_then(|webhook| webhook.client_config.as_ref());
    let reviews = conversion.webhook.as_ref().map(|webhook| webhook.conversion_review_versions.as_slice());
    let reviews = reviews.unwrap_or_default();
    let (config_path, reviews_path) =
        (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    if conversion.strategy == "Webhook" {
        match config {
            None => errors.push(config_path.required("required when strategy is set to Webhook")),
            Some(config) => errors.extend(webhook(config, options, &config_path)),
        }
        errors.extend(review_versions(reviews, &reviews_path));
    } else {
        let unwanted = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.push(config_path.forbidden(unwanted));
        }
        if !reviews.is_empty() {
            errors.push(reviews_path.forbidden(unwanted));
        }
    }
    errors
}

fn webhook(config: &WebhookClientConfig, options: &Options, path: &Path) -> Errors {
    let sent = serde_json::to_value(config).expect("wire types have string keys and finite numbers");
    let mut errors = client_config::validate(&sent, path);
    let bundle = config.ca_bundle.as_ref().filter(|_| options.authority);
    if let Some((bundle, why)) = bundle.and_then(|bundle| Some((bundle, authority::unusable(&bundle.0)?))) {
        errors.push(path.child("caBundle").invalid(Value::json(bundle), why));
    }
    errors
}

fn review_versions(versions: &[String], path: &Path) -> Errors {
    if versions.is_empty() {
        return vec![path.required("")];
    }
    let mut errors = Errors::new();
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.push(path.index(index).invalid(version, "duplicate version"));
            continue;
        }
        let problems = syntax::dns_1035_label(version);
        errors.extend(problems.into_iter().map(|problem| path.index(index).invalid(version, problem)));
    }
    if !versions.iter().any(|version| matches!(version.as_str(), "v1" | "v1beta1")) {
        errors.push(path.invalid(Value::json(&versions), "must include at least one of v1, v1beta1"));
    }
    errors
}
