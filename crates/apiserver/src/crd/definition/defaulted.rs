//! Defaults in a schema must themselves satisfy it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use rules::field::{Errors, Path};
use serde_json::{Map, Value};

use crate::crd::{
    go::shown,
    meta::{self, Malformed},
    prune::prune,
    rules::Rules,
    schema::{Additional, Schema},
    value,
};

/// Every default that is invalid, or that would be pruned.
pub(super) fn validate(props: &JSONSchemaProps, pruned: bool, path: &Path) -> Errors {
    if !has_defaults(props) {
        return Errors::new();
    }
    let schema = Schema::compile(props);
    let object = Enclosing { root: &schema, steps: Vec::new() };
    visit(&schema, true, false, &object, pruned, path)
}

/// Whether all defaults of a schema are free of unknown fields.
pub(super) fn are_pruned(props: &JSONSchemaProps) -> bool {
    fn check(schema: &Schema) -> bool {
        let own = schema
            .default
            .as_ref()
            .is_none_or(|default| prune(&mut default.clone(), schema, false).is_empty());
        own && schema.children().all(check)
    }
    check(&Schema::compile(props))
}

fn has_defaults(props: &JSONSchemaProps) -> bool {
    !super::all(props, &|props| props.default.is_none())
}

/// The object of its own in which a default would stand, and the way to it.
#[derive(Clone)]
struct Enclosing<'a> {
    root: &'a Schema,
    steps: Vec<Step>,
}

#[derive(Clone)]
enum Step {
    Field(String),
    Item,
}

impl Enclosing<'_> {
    /// The smallest object that has `value` in its place.
    fn with(&self, value: &Value) -> Value {
        let mut value = value.clone();
        for step in self.steps.iter().rev() {
            value = match step {
                Step::Item => Value::Array(vec![value]),
                Step::Field(name) => Value::Object(Map::from_iter([(name.clone(), value)])),
            };
        }
        if let Value::Object(fields) = &mut value {
            for (name, text) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
                fields.entry(name).or_insert_with(|| text.into());
            }
        }
        value
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step);
        Enclosing { root: self.root, steps }
    }
}

fn visit<'a>(
    schema: &'a Schema,
    root: bool,
    in_meta: bool,
    object: &Enclosing<'a>,
    pruned: bool,
    path: &Path,
) -> Errors {
    let embedded = root || schema.embedded;
    let (in_meta, object) = if embedded {
        (false, Enclosing { root: schema, steps: Vec::new() })
    } else {
        (in_meta, object.clone())
    };
    let mut errors = Errors::new();
    if let Some(default) = &schema.default {
        let path = path.child("default");
        errors.extend(if in_meta {
            judge_in_meta(default, schema, &object, &path)
        } else {
            judge(default, schema, embedded, pruned, &path)
        });
    }
    // Values of maps have no defaults to look at: pruning would not know where they belong.
    if let Some(items) = &schema.items {
        errors.extend(visit(items, false, in_meta, &object.step(Step::Item), pruned, &path.child("items")));
    }
    for (name, inner) in &schema.properties {
        let in_meta = in_meta || (embedded && matches!(name.as_str(), "metadata" | "apiVersion" | "kind"));
        let object = object.step(Step::Field(name.clone()));
        errors.extend(visit(inner, false, in_meta, &object, pruned, &path.child("properties").key(name)));
    }
    errors
}

fn judge(default: &Value, schema: &Schema, embedded: bool, pruned: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if pruned && !prune(&mut default.clone(), schema, embedded).is_empty() {
        errors.push(path.invalid(shown(default), "must not have unknown fields"));
    }
    if let Err(error) = meta::coerce(&mut default.clone(), schema, embedded, Malformed::Refuse) {
        errors.push(error);
        return errors;
    }
    let of_meta = meta::validate(default, schema, embedded, path);
    if !of_meta.is_empty() {
        errors.extend(of_meta);
        return errors;
    }
    errors.extend(judge_value(default, schema, embedded, path));
    errors
}

/// A default inside of metadata must make valid metadata.
fn judge_in_meta(default: &Value, schema: &Schema, object: &Enclosing<'_>, path: &Path) -> Errors {
    let mut whole = object.with(default);
    let wrong =
        |why: String| vec![path.invalid(shown(default), format!("must result in valid metadata: {why}"))];
    if let Err(error) = meta::coerce(&mut whole, object.root, true, Malformed::Refuse) {
        return wrong(error.to_string());
    }
    let errors = meta::validate(&whole, object.root, true, &Path::root());
    match errors.as_slice() {
        [] => judge_value(default, schema, false, path),
        [only] => wrong(only.to_string()),
        several => {
            wrong(format!("[{}]", several.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")))
        }
    }
}

/// By the schema and then by its rules: both as a new value and as one that stays.
fn judge_value(default: &Value, schema: &Schema, root: bool, path: &Path) -> Errors {
    let errors = value::validate(default, &untyped(schema), Some(path));
    if !errors.is_empty() {
        return errors;
    }
    let Some(rules) = Rules::new(schema, root) else { return errors };
    let judge = |old: Option<&Value>| rules.validate(default, old, schema, path, &mut Vec::new());
    let errors = judge(Some(default));
    if errors.is_empty() { judge(None) } else { errors }
}

/// The schema as defaults are judged by it: that a value is an integer or a string is asked of objects only.
fn untyped(schema: &Schema) -> Schema {
    let mut all = schema.clone();
    all.int_or_string = false;
    all.properties.values_mut().for_each(|inner| *inner = untyped(inner));
    all.items.iter_mut().for_each(|inner| **inner = untyped(inner));
    if let Additional::Schema(inner) = &mut all.additional {
        **inner = untyped(inner);
    }
    all
}
