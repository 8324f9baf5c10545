//! A definition's schema, node by node: what the API server supports, list and map types, and rules.

use std::collections::HashSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use rules::field::{Error, Errors, Path, Value};
use serde_json::json;

use super::{Options, Step, defaulted, is_set, spec::text, structural};
use crate::crd::{field_path, rules as cel_rules, schema::Schema};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Every error of the schema at `path`, which is where `openAPIV3Schema` stands.
///
/// `suppresses_cost` says that the schema is the stored one, whose rules may cost what they did.
pub(super) fn validate(
    schema: &JSONSchemaProps,
    has_status: bool,
    suppresses_cost: bool,
    options: &Options,
    path: &Path,
) -> Errors {
    let path = path.child("openAPIV3Schema");
    let mut errors = Errors::new();
    if has_status {
        errors.extend(root_fields(schema, &path));
    }
    if is_set(schema.nullable) {
        errors.push(path.child("nullable").forbidden("nullable cannot be true at the root"));
    }
    let (mut unsupported, mut with_rules) = (None, false);
    if options.structural {
        unsupported = structural::unsupported(schema);
        if unsupported.is_none() {
            let before = errors.len();
            errors.extend(structural::validate(schema, &path));
            if errors.len() == before {
                errors.extend(defaulted::validate(schema, options.pruned_defaults, &path));
            }
            with_rules = errors.len() == before;
        }
    }
    let mut walk = Walk {
        options,
        schema_errors: Errors::new(),
        rule_errors: Errors::new(),
        suppresses_cost,
        total: Total::default(),
    };
    let compiled = with_rules.then(|| Schema::compile(schema));
    walk.visit(schema, compiled.as_ref(), &Context::root(), &path);
    errors.extend(walk.schema_errors);
    errors.extend(walk.rule_errors);
    if let Some(why) = unsupported.filter(|_| errors.is_empty()) {
        errors.push(path.invalid("", why));
    }
    errors.extend(walk.total.errors(&path));
    errors
}

/// What one rule may cost, and all rules of a schema together.
const PER_RULE: u64 = 10_000_000;
const PER_SCHEMA: u64 = 100_000_000;

/// What all rules of a schema can cost, and which of them the most.
#[derive(Default)]
struct Total {
    cost: u64,
    most: Vec<(u64, Path)>,
}

impl Total {
    fn add(&mut self, cost: u64, path: Path) {
        const NAMED: usize = 4;
        self.cost = self.cost.saturating_add(cost);
        if cost >= PER_SCHEMA / 100 {
            self.most.push((cost, path));
            self.most.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.most.truncate(NAMED);
        }
    }

    fn errors(&self, path: &Path) -> Errors {
        if self.cost <= PER_SCHEMA {
            return Errors::new();
        }
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let all = path.forbidden(too_expensive(name, self.cost, PER_SCHEMA));
        self.most.iter().map(|(_, path)| path.forbidden(why)).chain([all]).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a factor is shown with few digits")]
fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = match cost as f64 / limit as f64 {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// With a status subresource, the status is judged by itself, so nothing at the root may be about it.
fn root_fields(schema: &JSONSchemaProps, path: &Path) -> Errors {
    const ALLOWED: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
                           MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties \
                           ExternalDocs Example XPreserveUnknownFields XValidations]";
    let r#type = text(schema.type_.as_ref());
    if !r#type.is_empty() && r#type != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return vec![path.child("type").invalid(r#type, detail)];
    }
    let some = |list: &Option<Vec<JSONSchemaProps>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let forbidden = [
        schema.nullable == Some(true),
        schema.default.is_some(),
        schema.enum_.as_ref().is_some_and(|values| !values.is_empty()),
        schema.max_properties.is_some() || schema.min_properties.is_some(),
        some(&schema.all_of) || some(&schema.any_of) || some(&schema.one_of) || schema.not.is_some(),
        schema.additional_properties.is_some() || schema.additional_items.is_some(),
        schema.pattern_properties.is_some() || schema.definitions.is_some() || schema.dependencies.is_some(),
        schema.id.is_some() || schema.ref_path.is_some() || schema.schema.is_some(),
        is_set(schema.x_kubernetes_embedded_resource) || is_set(schema.x_kubernetes_int_or_string),
        schema.x_kubernetes_list_type.is_some() || schema.x_kubernetes_map_type.is_some(),
        schema.x_kubernetes_list_map_keys.as_ref().is_some_and(|keys| !keys.is_empty()),
    ];
    if !forbidden.contains(&true) {
        return Errors::new();
    }
    let detail = format!(
        "only {ALLOWED} fields are allowed at the root of the schema if the status subresource is enabled"
    );
    vec![path.invalid(Value::json(schema), detail)]
}

/// What a node inherits from those above.
#[derive(Clone)]
struct Context {
    root: bool,
    /// Inside of `apiVersion`, `kind` or `metadata` of an object.
    in_meta: bool,
    /// Why there may be no default.
    no_default: Option<String>,
    /// The place within which old and new values cannot be told apart.
    uncorrelated: Option<Path>,
    /// How often the node can stand in an object, if everything above is bounded.
    most: Option<u64>,
}

impl Context {
    fn root() -> Context {
        Context { root: true, in_meta: false, no_default: None, uncorrelated: None, most: Some(1) }
    }

    /// The context one step further in.
    fn enter(&self, schema: &JSONSchemaProps, step: Step<'_>, path: &Path) -> Context {
        let most = self.most.zip(max_elements(schema)).map(|(most, each)| most.saturating_mul(each));
        let mut inner = Context { root: false, most, ..self.clone() };
        match step {
            Step::Child("additionalProperties") if self.in_meta => {
                inner.no_default = Some("inside additionalProperties applying to object metadata".to_owned());
            }
            Step::Property(name) => {
                let known = [None, Some("granular"), Some("atomic")];
                if !known.contains(&schema.x_kubernetes_map_type.as_deref()) {
                    inner.uncorrelated.get_or_insert_with(|| path.clone());
                }
                let meta = matches!(name, "metadata" | "kind" | "apiVersion");
                if meta && (self.root || is_set(schema.x_kubernetes_embedded_resource)) {
                    inner.in_meta = true;
                    if self.root {
                        inner.no_default = Some(format!("in top-level {name}"));
                    }
                }
            }
            Step::Child("items") | Step::Index("items", _)
                if schema.x_kubernetes_list_type.as_deref() != Some("map") =>
            {
                inner.uncorrelated.get_or_insert_with(|| path.clone());
            }
            _ => {}
        }
        inner
    }
}

/// How often what is below a node can stand in it; none if nothing bounds it.
fn max_elements(schema: &JSONSchemaProps) -> Option<u64> {
    let bound = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or(0));
    match text(schema.type_.as_ref()) {
        "object" if schema.additional_properties.is_some() => bound(schema.max_properties),
        "array" => bound(schema.max_items),
        _ => Some(1),
    }
}

struct Walk<'a> {
    options: &'a Options,
    schema_errors: Errors,
    rule_errors: Errors,
    suppresses_cost: bool,
    total: Total,
}

impl Walk<'_> {
    /// Judges a node and those below. Rules are compiled where `compiled` is there.
    fn visit(&mut self, schema: &JSONSchemaProps, compiled: Option<&Schema>, context: &Context, path: &Path) {
        let before = self.schema_errors.len();
        self.schema_errors.extend(supported(schema, context, self.options.valid_types, path));
        if is_set(schema.unique_items) {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.schema_errors.push(path.child("uniqueItems").forbidden(detail));
        }
        let restricts = matches!(
            &schema.additional_properties,
            Some(JSONSchemaPropsOrBool::Bool(false) | JSONSchemaPropsOrBool::Schema(_))
        );
        if restricts && schema.properties.as_ref().is_some_and(|properties| !properties.is_empty()) {
            let detail = "additionalProperties and properties are mutual exclusive";
            self.schema_errors.push(path.child("additionalProperties").forbidden(detail));
        }
        for (step, inner) in super::children(schema) {
            let inner_compiled = compiled.filter(|_| step.is_structural()).and_then(|compiled| match step {
                Step::Property(name) => compiled.properties.get(name),
                Step::Child("items") => compiled.items.as_deref(),
                _ => match &compiled.additional {
                    crate::crd::schema::Additional::Schema(inner) => Some(inner),
                    _ => None,
                },
            });
            self.visit(inner, inner_compiled, &context.enter(schema, step, path), &step.from(path));
        }
        self.schema_errors.extend(extensions(schema, self.options, path));
        let rules = schema.x_kubernetes_validations.as_deref().unwrap_or_default();
        if rules.is_empty() {
            return;
        }
        let path = path.child("x-kubernetes-validations");
        self.schema_errors
            .extend(rules.iter().enumerate().flat_map(|(i, rule)| rule_texts(rule, schema, &path.index(i))));
        // A rule cannot be told apart from a schema that is wrong, here or below.
        if let Some(compiled) = compiled.filter(|_| self.schema_errors.len() == before) {
            let errors = self.compile(rules, compiled, context, &path);
            self.rule_errors.extend(errors);
        }
    }

    fn compile(
        &mut self,
        rules: &[ValidationRule],
        schema: &Schema,
        context: &Context,
        path: &Path,
    ) -> Errors {
        let mut errors = Errors::new();
        let judged = cel_rules::judge(schema, context.root || schema.embedded);
        let most = context.most.unwrap_or(judged.most);
        for (index, (rule, verdict)) in rules.iter().zip(judged.verdicts).enumerate() {
            let path = path.index(index);
            // As upstream prints its own structure.
            let shown = || {
                Value::json(&json!({
                    "Rule": rule.rule, "Message": text(rule.message.as_ref()), "MessageExpression": text(rule.message_expression.as_ref()),
                    "Reason": rule.reason, "FieldPath": text(rule.field_path.as_ref()), "OptionalOldSelf": rule.optional_old_self,
                }))
            };
            let (cost, message_cost) = match &verdict {
                None => (0, None),
                Some(Ok(accepted)) => (accepted.cost, accepted.message_cost),
                Some(Err(refused)) => (refused.cost, None),
            };
            let cost = cost.saturating_mul(most);
            errors.extend(self.spend("estimated rule cost", cost, path.child("rule")));
            if let Some(Err(refused)) = &verdict {
                let part = if refused.in_message { "messageExpression" } else { "rule" };
                errors.push(path.child(part).invalid(shown(), refused.why.as_str()));
            }
            if let Some(cost) = message_cost {
                let path = path.child("messageExpression");
                errors.extend(self.spend("estimated messageExpression cost", cost, path));
            }
            let uses_old_self = match verdict {
                None => false,
                Some(Ok(accepted)) => accepted.uses_old_self,
                Some(Err(refused)) => refused.uses_old_self,
            };
            if !uses_old_self {
                if let Some(optional) = rule.optional_old_self {
                    let detail = "may not be set if oldSelf is not used in rule";
                    errors.push(path.child("optionalOldSelf").invalid(optional, detail));
                }
            } else if let Some(within) = &context.uncorrelated {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {within}"
                );
                errors.push(path.child("rule").invalid(&rule.rule, detail));
            }
        }
        errors
    }

    /// Counts what an expression can cost, which may be too much by itself.
    fn spend(&mut self, what: &str, cost: u64, path: Path) -> Option<Error> {
        let is_too_much = cost > PER_RULE && !self.suppresses_cost;
        let error = is_too_much.then(|| path.forbidden(too_expensive(what, cost, PER_RULE)));
        self.total.add(cost, path);
        error
    }
}

/// Whether the type is one of JSON Schema's.
pub(super) fn has_valid_type(schema: &JSONSchemaProps) -> bool {
    let r#type = text(schema.type_.as_ref());
    r#type.is_empty() || TYPES.contains(&r#type)
}

fn supported(schema: &JSONSchemaProps, context: &Context, valid_types: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if valid_types && !has_valid_type(schema) {
        errors.push(path.child("type").not_supported(text(schema.type_.as_ref()), &TYPES));
    }
    if let (Some(_), Some(why)) = (&schema.default, &context.no_default) {
        errors.push(path.child("default").forbidden(format!("must not be set {why}")));
    }
    for (name, found) in [
        ("id", schema.id.as_ref().is_some_and(|id| !id.is_empty())),
        ("additionalItems", schema.additional_items.is_some()),
        ("patternProperties", schema.pattern_properties.as_ref().is_some_and(|map| !map.is_empty())),
        ("definitions", schema.definitions.as_ref().is_some_and(|map| !map.is_empty())),
        ("dependencies", schema.dependencies.is_some()),
        ("$ref", schema.ref_path.is_some()),
    ] {
        if found {
            errors.push(path.child(name).forbidden(format!("{name} is not supported")));
        }
    }
    if text(schema.type_.as_ref()) == "null" {
        errors
            .push(path.child("type").forbidden("type cannot be set to null, use nullable as an alternative"));
    }
    if matches!(&schema.items, Some(JSONSchemaPropsOrArray::Schemas(list)) if !list.is_empty()) {
        errors.push(path.child("items").forbidden("items must be a schema object and not an array"));
    }
    if context.in_meta && is_set(schema.x_kubernetes_embedded_resource) {
        let path = path.child("x-kubernetes-embedded-resource");
        errors.push(path.forbidden("must not be used inside of resource meta"));
    }
    errors
}

fn extensions(schema: &JSONSchemaProps, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if schema.x_kubernetes_preserve_unknown_fields == Some(false) {
        errors.push(
            path.child("x-kubernetes-preserve-unknown-fields").invalid(false, "must be true or undefined"),
        );
    }
    let r#type = text(schema.type_.as_ref());
    let mut must_be = |name: &str, extension: &str| {
        let path = path.child("type");
        let detail = format!("must be {name} if {extension} is specified");
        errors.push(if r#type.is_empty() { path.required(detail) } else { path.invalid(r#type, detail) });
    };
    if schema.x_kubernetes_map_type.is_some() && r#type != "object" {
        must_be("object", "x-kubernetes-map-type");
    }
    let list_type = schema.x_kubernetes_list_type.as_deref();
    let not_a_list = list_type.is_some() && r#type != "array";
    if not_a_list {
        must_be("array", "x-kubernetes-list-type");
    }
    if let Some(map_type) =
        schema.x_kubernetes_map_type.as_deref().filter(|name| !matches!(*name, "atomic" | "granular"))
    {
        errors.push(path.child("x-kubernetes-map-type").not_supported(map_type, &["atomic", "granular"]));
    }
    if options.atomic_sets && !not_a_list {
        errors.extend(set_items(schema, path));
    }
    if let Some(list_type) = list_type.filter(|name| !matches!(*name, "atomic" | "set" | "map")) {
        errors.push(path.child("x-kubernetes-list-type").not_supported(list_type, &["atomic", "set", "map"]));
    }
    let keys = schema.x_kubernetes_list_map_keys.as_deref().unwrap_or_default();
    if !keys.is_empty() && list_type != Some("map") {
        let (path, detail) =
            (path.child("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        errors.push(
            list_type.map_or_else(|| path.required(detail), |list_type| path.invalid(list_type, detail)),
        );
    }
    if list_type == Some("map") {
        errors.extend(map_list(schema, keys, path));
    }
    if options.list_keys {
        errors.extend(list_keys(schema, path));
    }
    errors
}

/// Items of a set are compared as a whole.
pub(super) fn set_items(schema: &JSONSchemaProps, path: &Path) -> Errors {
    let (Some("set"), Some(JSONSchemaPropsOrArray::Schema(items))) =
        (schema.x_kubernetes_list_type.as_deref(), &schema.items)
    else {
        return Errors::new();
    };
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let shown = Value::json(&items.x_kubernetes_list_type);
    match text(items.type_.as_ref()) {
        "array" if !matches!(items.x_kubernetes_list_type.as_deref(), None | Some("atomic")) => {
            vec![path.child("items").child("x-kubernetes-list-type").invalid(shown, detail)]
        }
        "object" if items.x_kubernetes_map_type.as_deref() != Some("atomic") => {
            vec![path.child("items").child("x-kubernetes-map-type").invalid(shown, detail)]
        }
        _ => Errors::new(),
    }
}

fn map_list(schema: &JSONSchemaProps, keys: &[String], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let keys_path = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(keys_path.required("must not be empty if x-kubernetes-list-type is map"));
    }
    let items = match &schema.items {
        None => {
            errors.push(path.child("items").required("must have a schema if x-kubernetes-list-type is map"));
            return errors;
        }
        Some(JSONSchemaPropsOrArray::Schemas(list)) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            errors.push(path.child("items").invalid(Value::json(list), detail));
            return errors;
        }
        Some(JSONSchemaPropsOrArray::Schema(items)) => items,
    };
    if text(items.type_.as_ref()) != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(path.child("items").child("type").invalid(text(items.type_.as_ref()), detail));
        return errors;
    }
    let mut known = HashSet::new();
    for key in keys {
        match items.properties.as_ref().and_then(|properties| properties.get(key)) {
            Some(property) if matches!(text(property.type_.as_ref()), "array" | "object") => {
                let path = path.child("items").child("properties").key(key).child("type");
                errors.push(path.invalid(
                    text(items.type_.as_ref()),
                    "must be a scalar type if parent array's x-kubernetes-list-type is map",
                ));
            }
            Some(_) => {}
            None => errors
                .push(keys_path.invalid(Value::json(&keys), "entries must all be names of item properties")),
        }
        if !known.insert(key) {
            errors.push(keys_path.invalid(Value::json(&keys), "must not contain duplicate entries"));
        }
    }
    errors
}

/// Items of sets and map lists are never null, and the keys of map lists are always there.
pub(super) fn list_keys(schema: &JSONSchemaProps, path: &Path) -> Errors {
    let (Some(list_type @ ("set" | "map")), Some(JSONSchemaPropsOrArray::Schema(items))) =
        (schema.x_kubernetes_list_type.as_deref(), &schema.items)
    else {
        return Errors::new();
    };
    let path = path.child("items");
    let mut errors = Errors::new();
    if is_set(items.nullable) {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(path.child("nullable").forbidden(detail));
    }
    if list_type == "set" {
        return errors;
    }
    for key in schema.x_kubernetes_list_map_keys.iter().flatten() {
        let Some(property) = items.properties.as_ref().and_then(|properties| properties.get(key)) else {
            continue;
        };
        let path = path.child("properties").key(key);
        let required = items.required.as_ref().is_some_and(|required| required.contains(key));
        if !required && property.default.is_none() {
            errors.push(path.child("default").required(
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if is_set(property.nullable) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(path.child("nullable").forbidden(detail));
        }
    }
    errors
}

/// What is wrong with a rule's texts, whether or not it compiles.
fn rule_texts(rule: &ValidationRule, schema: &JSONSchemaProps, path: &Path) -> Errors {
    let broken = |text: &str| text.contains(['\n', '\r']);
    let (message, expression) = (text(rule.message.as_ref()), text(rule.message_expression.as_ref()));
    let mut errors = Errors::new();
    if rule.rule.trim().is_empty() {
        errors.push(path.child("rule").required("rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(path.child("message").invalid(message, "must be non-empty if specified"));
    } else if broken(message.trim()) {
        errors.push(path.child("message").invalid(message, "must not contain line breaks"));
    } else if broken(rule.rule.trim()) && message.is_empty() {
        errors.push(path.child("message").required("message must be specified if rule contains line breaks"));
    }
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(path.child("messageExpression").required(detail));
    }
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.push(path.child("reason").not_supported(reason, &REASONS));
    }
    let field = text(rule.field_path.as_ref());
    let path = path.child("fieldPath");
    if !field.is_empty() && field.trim().is_empty() {
        errors.push(path.invalid(field, "must be non-empty if specified"));
    }
    if broken(field) {
        errors.push(path.invalid(field, "must not contain line breaks"));
    }
    if !field.is_empty() && field_path::resolve(field, &Schema::compile(schema), true).is_err() {
        errors.push(path.invalid(field, "must be a valid path"));
    }
    errors
}
