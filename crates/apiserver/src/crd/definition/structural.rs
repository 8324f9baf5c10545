//! Structural schemas: every value has one known place in the schema, outside of what only restricts it further.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use rules::field::{Errors, Path};

use super::{is_set, spec::text};
use crate::crd::pattern;

/// What keeps a schema from being structural, sorted as upstream sorts it.
pub(super) fn validate(schema: &JSONSchemaProps, path: &Path) -> Errors {
    let mut errors = invariants(schema, Level::Root, path);
    errors.extend(complete(schema, schema, path, path));
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

/// Why a schema cannot even be read as a structural one.
pub(super) fn unsupported(schema: &JSONSchemaProps) -> Option<String> {
    let given = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    for (name, found) in [
        ("id", given(&schema.id)),
        ("schema", given(&schema.schema)),
        ("$ref", given(&schema.ref_path)),
        ("patternProperties", schema.pattern_properties.as_ref().is_some_and(|map| !map.is_empty())),
        ("dependencies", schema.dependencies.as_ref().is_some_and(|map| !map.is_empty())),
        ("additionalItems", schema.additional_items.is_some()),
        ("definitions", schema.definitions.as_ref().is_some_and(|map| !map.is_empty())),
    ] {
        if found {
            return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
        }
    }
    if schema.x_kubernetes_preserve_unknown_fields == Some(false) {
        return Some(
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned(),
        );
    }
    if matches!(&schema.items, Some(JSONSchemaPropsOrArray::Schemas(list)) if !list.is_empty()) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    super::children(schema).into_iter().find_map(|(_, child)| unsupported(child))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items),
        _ => None,
    }
}

fn additional(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(inner)) => Some(inner),
        _ => None,
    }
}

fn invariants(schema: &JSONSchemaProps, level: Level, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let r#type = text(schema.type_.as_ref());
    let (embedded, preserve) =
        (is_set(schema.x_kubernetes_embedded_resource), is_set(schema.x_kubernetes_preserve_unknown_fields));
    let int_or_string = is_set(schema.x_kubernetes_int_or_string);
    let properties = schema.properties.iter().flatten();
    match items(schema) {
        Some(items) => errors.extend(invariants(items, Level::Item, &path.child("items"))),
        None if r#type == "array" => errors.push(path.child("items").required("must be specified")),
        None => {}
    }
    for (name, inner) in properties.clone() {
        errors.extend(invariants(inner, Level::Field, &path.child("properties").key(name)));
    }
    if schema.additional_properties.is_some() {
        let path = path.child("additionalProperties");
        if level == Level::Root {
            errors.push(path.forbidden("must not be used at the root"));
        }
        if embedded {
            errors.push(path.forbidden("must not be used if x-kubernetes-embedded-resource is set"));
        }
        errors
            .extend(additional(schema).into_iter().flat_map(|inner| invariants(inner, Level::Field, &path)));
    }
    if int_or_string && preserve {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(path.invalid(true, "must be false if x-kubernetes-int-or-string is true"));
    }
    if int_or_string && embedded {
        let path = path.child("x-kubernetes-embedded-resource");
        errors.push(path.invalid(true, "must be false if x-kubernetes-int-or-string is true"));
    }
    errors.extend(value_validation(schema, path, true));
    let type_path = path.child("type");
    if embedded && r#type != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if r#type.is_empty() {
            type_path.required(detail)
        } else {
            type_path.invalid(r#type, detail)
        });
    } else if r#type.is_empty() && !int_or_string && !preserve {
        errors.push(type_path.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        }));
    }
    if level == Level::Root && !r#type.is_empty() && r#type != "object" {
        errors.push(type_path.invalid(r#type, "must be object at the root"));
    }
    errors.extend(object_meta(schema, level, embedded, path));
    if embedded && !preserve && properties.count() == 0 {
        errors.push(path.child("properties").required(
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
    errors
}

/// `apiVersion`, `kind` and `metadata` have a schema of their own; at most names may be restricted.
fn object_meta(schema: &JSONSchemaProps, level: Level, embedded: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let property = |name: &str| schema.properties.as_ref().and_then(|properties| properties.get(name));
    let checked = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(found) = property(name).filter(|found| checked && text(found.type_.as_ref()) != "string")
        {
            let path = path.child("properties").key(name).child("type");
            errors.push(path.invalid(text(found.type_.as_ref()), "must be string"));
        }
    }
    if let Some(metadata) = property("metadata") {
        let path = path.child("properties").key("metadata");
        if checked && text(metadata.type_.as_ref()) != "object" {
            errors.push(path.child("type").invalid(text(metadata.type_.as_ref()), "must be object"));
        }
        let names: BTreeSet<&str> =
            metadata.properties.iter().flatten().map(|(name, _)| name.as_str()).collect();
        let only_names = names.iter().all(|name| matches!(*name, "name" | "generateName"));
        let bare = JSONSchemaProps {
            type_: metadata.type_.clone(),
            properties: metadata.properties.clone(),
            default: metadata.default.clone(),
            ..JSONSchemaProps::default()
        };
        if level == Level::Root && (!only_names || *metadata != bare) {
            errors.push(path.forbidden(
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    errors
}

/// `anyOf: [{type: integer}, {type: string}]`, which spells out `x-kubernetes-int-or-string`.
fn is_int_or_string(any_of: &[JSONSchemaProps]) -> bool {
    let of = |name: &str| JSONSchemaProps { type_: Some(name.to_owned()), ..JSONSchemaProps::default() };
    matches!(any_of, [first, second] if *first == of("integer") && *second == of("string"))
}

/// What only restricts a value must not say what it is. `outermost` may spell out int-or-string.
fn value_validation(schema: &JSONSchemaProps, path: &Path, outermost: bool) -> Errors {
    let mut errors = Errors::new();
    let any_of = schema.any_of.as_deref().unwrap_or_default();
    if !(outermost && is_int_or_string(any_of)) {
        for (index, inner) in any_of.iter().enumerate() {
            errors.extend(nested(inner, &path.child("anyOf").index(index), false));
        }
    }
    for (index, inner) in schema.all_of.iter().flatten().enumerate() {
        let spelled_out =
            outermost && index == 0 && is_int_or_string(inner.any_of.as_deref().unwrap_or_default());
        errors.extend(nested(inner, &path.child("allOf").index(index), spelled_out));
    }
    for (index, inner) in schema.one_of.iter().flatten().enumerate() {
        errors.extend(nested(inner, &path.child("oneOf").index(index), false));
    }
    errors.extend(schema.not.iter().flat_map(|inner| nested(inner, &path.child("not"), false)));
    if let Some(text) = schema.pattern.as_ref().filter(|text| !text.is_empty())
        && let Err(why) = pattern::compile(text)
    {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(path.child("pattern").invalid(text, detail));
    }
    errors
}

fn nested(schema: &JSONSchemaProps, path: &Path, spelled_out: bool) -> Errors {
    let mut errors = value_validation(schema, path, spelled_out);
    errors.extend(items(schema).into_iter().flat_map(|inner| nested(inner, &path.child("items"), false)));
    for (name, inner) in schema.properties.iter().flatten() {
        errors.extend(nested(inner, &path.child("properties").key(name), false));
    }
    let allows = !matches!(&schema.additional_properties, None | Some(JSONSchemaPropsOrBool::Bool(false)));
    let (empty, undefined, unset) = (
        "must be empty to be structural",
        "must be undefined to be structural",
        "must be false to be structural",
    );
    for (name, found, detail) in [
        ("type", !text(schema.type_.as_ref()).is_empty(), empty),
        ("additionalProperties", allows, undefined),
        ("default", schema.default.as_ref().is_some_and(|default| !default.0.is_null()), undefined),
        ("title", !text(schema.title.as_ref()).is_empty(), empty),
        ("description", !text(schema.description.as_ref()).is_empty(), empty),
        ("nullable", is_set(schema.nullable), unset),
        ("x-kubernetes-preserve-unknown-fields", is_set(schema.x_kubernetes_preserve_unknown_fields), unset),
        ("x-kubernetes-embedded-resource", is_set(schema.x_kubernetes_embedded_resource), unset),
        ("x-kubernetes-int-or-string", is_set(schema.x_kubernetes_int_or_string), unset),
        (
            "x-kubernetes-list-map-keys",
            schema.x_kubernetes_list_map_keys.as_ref().is_some_and(|keys| !keys.is_empty()),
            empty,
        ),
        ("x-kubernetes-list-type", schema.x_kubernetes_list_type.is_some(), undefined),
        ("x-kubernetes-map-type", schema.x_kubernetes_map_type.is_some(), undefined),
        (
            "x-kubernetes-validations",
            schema.x_kubernetes_validations.as_ref().is_some_and(|rules| !rules.is_empty()),
            empty,
        ),
    ] {
        if found {
            errors.push(path.child(name).forbidden(detail));
        }
    }
    if schema.properties.as_ref().is_some_and(|properties| properties.contains_key("metadata")) {
        errors.push(
            path.child("properties").key("metadata").forbidden("must not be specified in a nested context"),
        );
    }
    errors
}

/// What is restricted must be specified: `restricted` is found inside of `schema`'s allOf and the like.
fn complete(restricted: &JSONSchemaProps, schema: &JSONSchemaProps, at: &Path, from: &Path) -> Errors {
    let mut errors = Errors::new();
    errors.extend(
        restricted.not.iter().flat_map(|inner| complete_nested(inner, Some(schema), at, &from.child("not"))),
    );
    for (name, list) in
        [("allOf", &restricted.all_of), ("anyOf", &restricted.any_of), ("oneOf", &restricted.one_of)]
    {
        for (index, inner) in list.iter().flatten().enumerate() {
            errors.extend(complete_nested(inner, Some(schema), at, &from.child(name).index(index)));
        }
    }
    errors
}

fn complete_nested(
    restricted: &JSONSchemaProps,
    schema: Option<&JSONSchemaProps>,
    at: &Path,
    from: &Path,
) -> Errors {
    let Some(schema) = schema else {
        return vec![at.required(format!("because it is defined in {from}"))];
    };
    let mut errors = complete(restricted, schema, at, from);
    if let Some(inner) = items(restricted) {
        errors.extend(complete_nested(inner, items(schema), &at.child("items"), &from.child("items")));
    }
    for (name, inner) in restricted.properties.iter().flatten() {
        let (at, from) = (at.child("properties").key(name), from.child("properties").key(name));
        let specified = schema.properties.as_ref().and_then(|properties| properties.get(name));
        errors.extend(complete_nested(inner, specified, &at, &from));
    }
    errors
}
