//! Configurations of webhooks and admission policies. Whether an expression compiles is not judged here.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::{Counts, It, Kind, at, client_config, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::{self, selector};
use crate::names::Problems;
use crate::repeated::repeated;
use crate::{names, wire};

/// Configurations of webhooks; those that change objects say when they want to be asked again.
pub(super) struct Webhooks;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const VERSIONS: &str = "v1, v1beta1";
const MAX_CONDITIONS: usize = 64;
/// Why a policy may say that it refuses an object.
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];

impl Kind for Webhooks {
    fn counts(&self) -> Counts {
        Counts::Exactly(&["webhooks"])
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.any_metadata();
        let hooks = items(it.new, "webhooks");
        let again = repeated(hooks, |hook| text(hook, "name"));
        for (i, hook) in hooks.iter().enumerate() {
            let path = Path::new("webhooks").index(i);
            errors.extend(webhook(it, hook, &path));
            errors.extend(review_versions(hook, &path.child("admissionReviewVersions")));
            let name = text(hook, "name");
            if !name.is_empty() && again[i] {
                errors.push(path.child("name").duplicate(name));
            }
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }
}

fn webhook(it: &It<'_>, hook: &Value, path: &Path) -> Errors {
    let mut errors = fully_qualified(text(hook, "name"), &path.child("name"));
    for (i, rule) in items(hook, "rules").iter().enumerate() {
        errors.extend(rule_with_operations(rule, &path.child("rules").index(i)));
    }
    errors.extend(one_of(hook, "failurePolicy", &["Fail", "Ignore"], path));
    errors.extend(one_of(hook, "matchPolicy", &["Equivalent", "Exact"], path));
    let harmless = ["None", "NoneOnDryRun"];
    if hook["sideEffects"].is_null() {
        let why = format!("must specify one of {}", harmless.join(", "));
        errors.push(path.child("sideEffects").required(why));
    }
    errors.extend(one_of(hook, "sideEffects", &harmless, path));
    if let Some(seconds) = hook["timeoutSeconds"].as_i64().filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(path.child("timeoutSeconds").invalid(seconds, why));
    }
    errors.extend(selectors(hook, path));
    errors.extend(one_of(hook, "reinvocationPolicy", &["IfNeeded", "Never"], path));
    errors.extend(client_config::validate(&hook["clientConfig"], &path.child("clientConfig")));
    errors.extend(match_conditions(it, items(hook, "matchConditions"), &path.child("matchConditions")));
    errors
}

fn selectors(object: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for field in ["namespaceSelector", "objectSelector"] {
        if !object[field].is_null() {
            let selector: LabelSelector = wire::typed(&object[field]);
            errors.extend(selector::validate(&selector, false, &path.child(field)));
        }
    }
    errors
}

/// A word of an enumeration, if there is one.
fn one_of(object: &Value, field: &str, supported: &[&str], path: &Path) -> Option<field::Error> {
    let word = object[field].as_str().filter(|word| !supported.contains(word))?;
    Some(path.child(field).not_supported(field::Value::json(&word), supported))
}

fn fully_qualified(name: &str, path: &Path) -> Errors {
    if name.is_empty() {
        return vec![path.required("")];
    }
    let problems = names::dns_subdomain(name);
    if !problems.is_empty() {
        return vec![path.invalid(name, problems.join(","))];
    }
    if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        return vec![path.invalid(name, why)];
    }
    Errors::new()
}

fn texts(object: &Value, field: &str) -> Vec<String> {
    items(object, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn rule_with_operations(rule: &Value, path: &Path) -> Errors {
    let operations = texts(rule, "operations");
    let mut errors = Errors::new();
    let at_operations = path.child("operations");
    if operations.is_empty() {
        errors.push(at_operations.required(""));
    }
    if operations.len() > 1 && operations.iter().any(|operation| operation == "*") {
        let why = "if '*' is present, must not specify other operations";
        errors.push(at_operations.invalid(field::Value::json(&operations), why));
    }
    for (i, operation) in operations.iter().enumerate().filter(|(_, it)| !OPERATIONS.contains(&it.as_str())) {
        errors.push(at_operations.index(i).not_supported(field::Value::json(operation), &OPERATIONS));
    }
    for (field, noun) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let values = texts(rule, field);
        if values.is_empty() {
            errors.push(path.child(field).required(""));
        }
        if values.len() > 1 && values.iter().any(|value| value == "*") {
            let why = format!("if '*' is present, must not specify other {noun}");
            errors.push(path.child(field).invalid(field::Value::json(&values), why));
        }
    }
    for (i, _) in texts(rule, "apiVersions").iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.push(path.child("apiVersions").index(i).required(""));
    }
    errors.extend(resources(&texts(rule, "resources"), &path.child("resources")));
    errors.extend(one_of(rule, "scope", &["*", "Cluster", "Namespaced"], path));
    errors
}

/// A rule that may be about objects of certain names.
fn named_rule(rule: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let resource_names = texts(rule, "resourceNames");
    let again = repeated(&resource_names, |name| name);
    for (i, name) in resource_names.iter().enumerate() {
        let path = path.child("resourceNames").index(i);
        errors.extend(names::path_segment(name).into_iter().map(|problem| path.invalid(name, problem)));
        if again[i] {
            errors.push(path.duplicate(name));
        }
    }
    errors.extend(rule_with_operations(rule, path));
    errors
}

fn resources(resources: &[String], path: &Path) -> Errors {
    let mut errors = Errors::new();
    if resources.is_empty() {
        errors.push(path.required(""));
    }
    let (mut all_subresources, mut of_all) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain = false;
    for (i, resource) in resources.iter().enumerate() {
        if resource.is_empty() {
            errors.push(path.index(i).required(""));
            continue;
        }
        let Some((name, subresource)) = resource.split_once('/') else {
            has_plain = resource != "*";
            continue;
        };
        if all_subresources.contains(&name) {
            let why = format!("if '{name}/*' is present, must not specify {resource}");
            errors.push(path.index(i).invalid(resource, why));
        }
        if of_all.contains(&subresource) {
            let why = format!("if '*/{subresource}' is present, must not specify {resource}");
            errors.push(path.index(i).invalid(resource, why));
        }
        if subresource == "*" {
            all_subresources.insert(name);
        }
        if name == "*" {
            of_all.insert(subresource);
        }
    }
    let has = |wanted: &str| resources.iter().any(|resource| resource == wanted);
    if resources.len() > 1 && has("*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(path.invalid(field::Value::json(&resources), why));
    }
    if has("*") && has_plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(path.invalid(field::Value::json(&resources), why));
    }
    errors
}

fn review_versions(hook: &Value, path: &Path) -> Errors {
    let versions = texts(hook, "admissionReviewVersions");
    if versions.is_empty() {
        return vec![path.required(format!("must specify one of {VERSIONS}"))];
    }
    let mut errors = Errors::new();
    for (i, version) in versions.iter().enumerate() {
        if versions[..i].contains(version) {
            errors.push(path.index(i).invalid(version, "duplicate version"));
            continue;
        }
        let problems = names::dns_1035_label(version).into_iter();
        errors.extend(problems.map(|problem| path.index(i).invalid(version, problem)));
    }
    if !versions.iter().any(|version| VERSIONS.split(", ").any(|known| known == version)) {
        let why = format!("must include at least one of {VERSIONS}");
        errors.push(path.invalid(field::Value::json(&versions), why));
    }
    errors
}

fn match_conditions(it: &It<'_>, conditions: &[Value], path: &Path) -> Errors {
    let mut errors = Errors::new();
    if conditions.len() > MAX_CONDITIONS {
        errors.push(path.too_many(conditions.len(), MAX_CONDITIONS));
    }
    let again = repeated(conditions, |condition| text(condition, "name"));
    for (i, condition) in conditions.iter().enumerate() {
        let (path, name) = (path.index(i), text(condition, "name"));
        if text(condition, "expression").trim().is_empty() {
            errors.push(path.child("expression").required(""));
        } else {
            errors.extend(it.expression(&path.child("expression")));
        }
        if name.is_empty() {
            errors.push(path.child("name").required(""));
        } else {
            errors.extend(meta::qualified(name, &path.child("name")));
            if again[i] {
                errors.push(path.child("name").duplicate(name));
            }
        }
    }
    errors
}

/// Policies that judge by expressions.
const AUDIT_ANNOTATION: &str = "io.k8s.api.admissionregistration.v1.AuditAnnotation";
const MAX_ANNOTATIONS: usize = 20;

pub(super) struct Policies;

impl Kind for Policies {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = it.any_metadata();
        errors.extend(required_one_of(spec, "failurePolicy", &["Fail", "Ignore"], &path));
        if !spec["paramKind"].is_null() {
            errors.extend(param_kind(&spec["paramKind"], &path.child("paramKind")));
        }
        if spec["matchConstraints"].is_null() {
            errors.push(path.child("matchConstraints").required(""));
        } else {
            let path = path.child("matchConstraints");
            errors.extend(match_resources(&spec["matchConstraints"], &path));
            if items(spec, "matchConstraints.resourceRules").is_empty() {
                errors.push(path.child("resourceRules").required(""));
            }
        }
        errors.extend(match_conditions(it, items(spec, "matchConditions"), &path.child("matchConditions")));
        for (i, variable) in items(spec, "variables").iter().enumerate() {
            let path = path.child("variables").index(i);
            match text(variable, "name") {
                name if name.trim().is_empty() => {
                    errors.push(path.child("name").required("name is not specified"));
                }
                name if !is_identifier(name) => {
                    errors.push(path.child("name").invalid(name, "must be a valid CEL identifier"));
                }
                _ => {}
            }
            errors.extend(expression(it, variable, &path));
        }
        let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
        if validations.is_empty() && annotations.is_empty() {
            let why = "validations or auditAnnotations must contain at least one item";
            errors.push(path.child("validations").required(why));
            errors.push(path.child("auditAnnotations").required(why));
        }
        for (i, validation) in validations.iter().enumerate() {
            errors.extend(self::validation(it, validation, &path.child("validations").index(i)));
        }
        errors.extend(audit_annotations(it, annotations, &path.child("auditAnnotations")));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let path = Path::new("status");
        let mut errors = Errors::new();
        for (i, warning) in items(it.new, "status.typeChecking.expressionWarnings").iter().enumerate() {
            let path = path.child("typeChecking").child("expressionWarnings").index(i);
            let empty = ["warning", "fieldRef"].into_iter().filter(|field| text(warning, field).is_empty());
            errors.extend(empty.map(|field| path.child(field).required("")));
        }
        let conditions = items(it.new, "status.conditions");
        errors.extend(super::policy::conditions(conditions, &path.child("conditions")));
        errors
    }
}

fn validation(it: &It<'_>, validation: &Value, path: &Path) -> Errors {
    let mut errors: Errors = expression(it, validation, path).into_iter().collect();
    let (message, expression) = (text(validation, "message"), text(validation, "messageExpression"));
    let is_blank = |text: &str| !text.is_empty() && text.trim().is_empty();
    let at_expression = path.child("messageExpression");
    if is_blank(expression) {
        errors.push(at_expression.invalid(expression, "must be non-empty if specified"));
    } else {
        errors.extend(it.expression(&at_expression));
    }
    if is_blank(message) {
        errors.push(path.child("message").invalid(message, "must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(path.child("message").invalid(message, "must not contain line breaks"));
    }
    errors.extend(one_of(validation, "reason", &REASONS, path));
    errors
}

fn audit_annotations(it: &It<'_>, annotations: &[Value], path: &Path) -> Errors {
    const MAX_VALUE: usize = 5 * 1024;
    let mut errors = Errors::new();
    if annotations.len() > MAX_ANNOTATIONS {
        let shown = field::Value::internal_list(AUDIT_ANNOTATION, annotations);
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.push(path.invalid(shown, why));
    }
    let again = repeated(annotations, |annotation| text(annotation, "key"));
    for (i, annotation) in annotations.iter().enumerate() {
        let path = path.index(i);
        let own = text(annotation, "key");
        let key = format!("{}/{own}", text(it.new, "metadata.name"));
        errors.extend(meta::qualified(&key, &path.child("key")));
        let at_value = path.child("valueExpression");
        match text(annotation, "valueExpression").trim() {
            "" => errors.push(at_value.required("valueExpression is not specified")),
            value if value.len() > MAX_VALUE => {
                errors.push(at_value.required(format!("must not exceed {MAX_VALUE} bytes in length")));
            }
            _ => errors.extend(it.expression(&at_value)),
        }
        if again[i] {
            errors.push(path.child("key").duplicate(own));
        }
    }
    errors
}

/// What the parameters of a policy are.
fn param_kind(of: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (version, at_version) = (text(of, "apiVersion"), path.child("apiVersion"));
    let joined = |name: &str, problems: Problems| {
        (!problems.is_empty()).then(|| at_version.invalid(name, problems.join(",")))
    };
    match version.split('/').collect::<Vec<_>>()[..] {
        [""] => errors.push(at_version.required("")),
        [version] => errors.extend(joined(version, names::dns_1035_label(version))),
        [group, version] => {
            if !group.is_empty() {
                errors.extend(joined(group, names::dns_subdomain(group)));
            }
            if version.is_empty() {
                errors.push(at_version.invalid(text(of, "apiVersion"), "version must be specified"));
            } else {
                errors.extend(joined(version, names::dns_1035_label(version)));
            }
        }
        _ => errors.push(at_version.invalid(version, format!("unexpected GroupVersion string: {version}"))),
    }
    match text(of, "kind") {
        "" => errors.push(path.child("kind").required("")),
        kind => {
            let problems = names::dns_1035_label(&kind.to_lowercase());
            if !problems.is_empty() {
                let why = problems.join(",");
                let why = format!("may have mixed case, but should otherwise match: {why}");
                errors.push(path.child("kind").invalid(kind, why));
            }
        }
    }
    errors
}

/// Whether expressions can call something so.
fn is_identifier(name: &str) -> bool {
    const RESERVED: [&str; 21] = [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ];
    let begins = |c: char| c == '_' || c.is_ascii_alphabetic();
    name.starts_with(begins)
        && name.chars().all(|c| begins(c) || c.is_ascii_digit())
        && !RESERVED.contains(&name)
}

fn expression(it: &It<'_>, object: &Value, path: &Path) -> Option<field::Error> {
    let path = path.child("expression");
    if text(object, "expression").trim().is_empty() {
        return Some(path.required("expression is not specified"));
    }
    it.expression(&path)
}

fn required_one_of(object: &Value, field: &str, supported: &[&str], path: &Path) -> Option<field::Error> {
    if object[field].is_null() {
        return Some(path.child(field).required(""));
    }
    one_of(object, field, supported, path)
}

fn match_resources(constraints: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    errors.extend(required_one_of(constraints, "matchPolicy", &["Equivalent", "Exact"], path));
    for field in ["namespaceSelector", "objectSelector"] {
        if constraints[field].is_null() {
            errors.push(path.child(field).required(""));
        }
    }
    errors.extend(selectors(constraints, path));
    for list in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in items(constraints, list).iter().enumerate() {
            errors.extend(named_rule(rule, &path.child(list).index(i)));
        }
    }
    errors
}

/// Where policies apply.
pub(super) struct PolicyBindings;

impl Kind for PolicyBindings {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = it.any_metadata();
        match text(spec, "policyName") {
            "" => errors.push(path.child("policyName").required("")),
            name => {
                let path = path.child("policyName");
                errors.extend(
                    names::dns_subdomain(name).into_iter().map(|problem| path.invalid(name, problem)),
                );
            }
        }
        if !spec["paramRef"].is_null() {
            errors.extend(param_ref(&spec["paramRef"], &path.child("paramRef")));
        }
        if !spec["matchResources"].is_null() {
            errors.extend(match_resources(&spec["matchResources"], &path.child("matchResources")));
        }
        let actions = texts(spec, "validationActions");
        let at_actions = path.child("validationActions");
        if actions.is_empty() {
            errors.push(at_actions.required("at least one validation action is required"));
        }
        let again = repeated(&actions, |action| action);
        for (i, action) in actions.iter().enumerate() {
            if !ACTIONS.contains(&action.as_str()) {
                errors.push(at_actions.index(i).not_supported(field::Value::json(action), &ACTIONS));
            }
            if again[i] {
                errors.push(at_actions.index(i).duplicate(field::Value::json(action)));
            }
        }
        let has = |wanted: &str| actions.iter().any(|action| action == wanted);
        if has("Deny") && has("Warn") {
            let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                       response and headers serves no purpose)";
            errors.push(at_actions.invalid(field::Value::json(&actions), why));
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }
}

/// Objects that say more about a policy: one by its name, or those that a selector finds.
fn param_ref(reference: &Value, path: &Path) -> Errors {
    const ACTIONS: [&str; 2] = ["Deny", "Allow"];
    let mut errors = Errors::new();
    let (name, selector) = (text(reference, "name"), &reference["selector"]);
    let is_both = !name.is_empty() && !selector.is_null();
    let alone = |field: &str, errors: &mut Errors| {
        if is_both {
            errors.push(path.child(field).forbidden("name and selector are mutually exclusive"));
        }
    };
    if !name.is_empty() {
        let path = path.child("name");
        errors.extend(names::path_segment(name).into_iter().map(|problem| path.invalid(name, problem)));
        alone("name", &mut errors);
    }
    if !selector.is_null() {
        let selector: LabelSelector = wire::typed(selector);
        errors.extend(selector::validate(&selector, false, &path.child("selector")));
        alone("selector", &mut errors);
    }
    if name.is_empty() && selector.is_null() {
        errors.push(path.required("one of name or selector must be specified"));
    }
    match text(reference, "parameterNotFoundAction") {
        "" => errors.push(path.child("parameterNotFoundAction").required("")),
        _ => errors.extend(one_of(reference, "parameterNotFoundAction", &ACTIONS, path)),
    }
    errors
}
