//! Flow schemas: which requests belong together. They are kept, and have no effect (3.2).

use serde_json::Value;

use super::{Counts, It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::names;

pub(super) struct FlowSchemas;

const MAX_PRECEDENCE: i64 = 10_000;
const VERBS: [&str; 10] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "use", "watch"];

impl FlowSchemas {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = Errors::new();
        let (precedence, at_precedence) =
            (spec["matchingPrecedence"].as_i64().unwrap_or(0), path.child("matchingPrecedence"));
        if precedence <= 0 {
            errors.push(at_precedence.invalid(precedence, "must be a positive value"));
        }
        if precedence > MAX_PRECEDENCE {
            errors.push(
                at_precedence.invalid(precedence, format!("must not be greater than {MAX_PRECEDENCE}")),
            );
        }
        if precedence == 1 && text(it.new, "metadata.name") != "exempt" {
            let why = "only the schema named 'exempt' may have matchingPrecedence 1";
            errors.push(at_precedence.invalid(precedence, why));
        }
        let method = &spec["distinguisherMethod"];
        if !method.is_null() && !matches!(text(method, "type"), "ByNamespace" | "ByUser") {
            let value = field::Value::internal("io.k8s.api.flowcontrol.v1.FlowDistinguisherMethod", method);
            let path = path.child("distinguisherMethod").child("type");
            errors.push(path.not_supported(value, &["ByNamespace", "ByUser"]));
        }
        let at_level = path.child("priorityLevelConfiguration").child("name");
        match text(spec, "priorityLevelConfiguration.name") {
            "" => errors.push(at_level.required("must reference a priority level")),
            name => {
                errors.extend(
                    names::dns_subdomain(name).into_iter().map(|problem| at_level.invalid(name, problem)),
                );
            }
        }
        for (i, rule) in items(spec, "rules").iter().enumerate() {
            errors.extend(self::rule(rule, &path.child("rules").index(i)));
        }
        errors
    }
}

fn rule(rule: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let subjects = items(rule, "subjects");
    if subjects.is_empty() {
        errors.push(path.child("subjects").required("subjects must contain at least one value"));
    }
    for (i, subject) in subjects.iter().enumerate() {
        errors.extend(self::subject(subject, &path.child("subjects").index(i)));
    }
    let (resources, others) = (items(rule, "resourceRules"), items(rule, "nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.push(path.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    for (i, rule) in resources.iter().enumerate() {
        errors.extend(resource_rule(rule, &path.child("resourceRules").index(i)));
    }
    for (i, rule) in others.iter().enumerate() {
        let path = path.child("nonResourceRules").index(i);
        errors.extend(verbs(rule, &path));
        let urls = items(rule, "nonResourceURLs");
        if urls.is_empty() {
            let why = "nonResourceURLs must contain at least one value";
            errors.push(path.child("nonResourceURLs").required(why));
        }
    }
    errors
}

fn subject(subject: &Value, path: &Path) -> Errors {
    let parts = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text(subject, "kind");
    let Some((_, own)) = parts.iter().find(|(known, _)| *known == kind) else {
        let kinds = ["Group", "ServiceAccount", "User"];
        return vec![path.child("kind").not_supported(field::Value::json(&kind), &kinds)];
    };
    let mut errors = Errors::new();
    let (value, at_own) = (&subject[*own], path.child(own));
    if value.is_null() {
        errors.push(at_own.required(format!("{own} is required when subject kind is '{kind}'")));
    } else {
        let name = text(value, "name");
        if name.is_empty() {
            errors.push(at_own.child("name").required(""));
        }
        if kind == "ServiceAccount" {
            if !matches!(name, "" | "*") {
                let path = at_own.child("name");
                errors.extend(
                    names::dns_subdomain(name).into_iter().map(|problem| path.invalid(name, problem)),
                );
            }
            let (namespace, path) = (text(value, "namespace"), at_own.child("namespace"));
            if namespace.is_empty() {
                errors.push(path.required("must specify namespace for service account"));
            } else {
                let problems = names::dns_label(namespace).into_iter();
                errors.extend(problems.map(|problem| path.invalid(namespace, problem)));
            }
        }
    }
    for (other_kind, other) in parts.iter().filter(|(_, other)| other != own && !subject[*other].is_null()) {
        let why = format!("{other} is forbidden when subject kind is not '{other_kind}'");
        errors.push(path.child(other).forbidden(why));
    }
    errors
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    items(rule, field).iter().filter_map(Value::as_str).collect()
}

fn verbs(rule: &Value, path: &Path) -> Errors {
    let (verbs, path) = (texts(rule, "verbs"), path.child("verbs"));
    if verbs.is_empty() {
        return vec![path.required("verbs must contain at least one value")];
    }
    if verbs.contains(&"*") {
        let why = "if '*' is present, must not specify other verbs";
        return if verbs.len() > 1 {
            vec![path.invalid(field::Value::json(&verbs), why)]
        } else {
            Errors::new()
        };
    }
    if verbs.iter().all(|verb| VERBS.contains(verb)) {
        return Errors::new();
    }
    vec![path.not_supported(field::Value::json(&verbs), &VERBS)]
}

fn resource_rule(rule: &Value, path: &Path) -> Errors {
    let mut errors = verbs(rule, path);
    for (name, noun, missing) in [
        ("apiGroups", "api groups", "resource rules must supply at least one api group"),
        ("resources", "resources", "resource rules must supply at least one resource"),
    ] {
        let (values, path) = (texts(rule, name), path.child(name));
        if values.is_empty() {
            errors.push(path.required(missing));
        } else if values.len() > 1 && values.contains(&"*") {
            let why = format!("if '*' is present, must not specify other {noun}");
            errors.push(path.invalid(field::Value::json(&values), why));
        }
    }
    let (namespaces, path) = (texts(rule, "namespaces"), path.child("namespaces"));
    if namespaces.is_empty() {
        if rule["clusterScope"].as_bool() != Some(true) {
            let why = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.push(path.required(why));
        }
    } else if namespaces.contains(&"*") {
        if namespaces.len() > 1 {
            let why = "if '*' is present, must not specify other namespaces";
            errors.push(path.invalid(field::Value::json(&namespaces), why));
        }
    } else {
        for (i, namespace) in namespaces.iter().enumerate() {
            errors.extend(names::dns_label(namespace).into_iter().map(|problem| {
                let why = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
                path.index(i).invalid(*namespace, why)
            }));
        }
    }
    errors
}

impl Kind for FlowSchemas {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(FlowSchemas::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }
}

/// How many requests of a kind are worked on at once.
pub(super) struct PriorityLevels;

impl PriorityLevels {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let (limited, kind) = (&spec["limited"], text(spec, "type"));
        let mut errors = Errors::new();
        if (text(it.new, "metadata.name") == "exempt") != (kind == "Exempt") {
            let why = "must be 'Exempt' if and only if `name` is 'exempt'";
            errors.push(path.child("type").invalid(kind, why));
        }
        errors.extend(match kind {
            "Exempt" if !limited.is_null() => {
                vec![path.child("limited").forbidden("must be nil if the type is not Limited")]
            }
            "Exempt" => Errors::new(),
            "Limited" if limited.is_null() => {
                vec![path.child("limited").required("must not be empty when type is Limited")]
            }
            "Limited" => PriorityLevels::limited(limited, &path.child("limited")),
            other => {
                vec![path.child("type").not_supported(field::Value::json(&other), &["Exempt", "Limited"])]
            }
        });
        errors
    }

    fn limited(limited: &Value, path: &Path) -> Errors {
        let mut errors = Errors::new();
        let number = |name: &str| limited[name].as_i64();
        if let Some(shares) = number("nominalConcurrencyShares").filter(|shares| *shares < 0) {
            errors.push(
                path.child("nominalConcurrencyShares").invalid(shares, "must be a non-negative integer"),
            );
        }
        if let Some(percent) = number("lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
            errors
                .push(path.child("lendablePercent").invalid(percent, "must be between 0 and 100, inclusive"));
        }
        if let Some(percent) = number("borrowingLimitPercent").filter(|percent| *percent < 0) {
            let why = "if specified, must be a non-negative integer";
            errors.push(path.child("borrowingLimitPercent").invalid(percent, why));
        }
        let (response, path) = (&limited["limitResponse"], path.child("limitResponse"));
        match (text(response, "type"), response["queuing"].is_null()) {
            ("Reject", false) => {
                let why = "must be nil if limited.limitResponse.type is not Limited";
                errors.push(path.child("queuing").forbidden(why));
            }
            ("Queue", true) => {
                let why = "must not be empty if limited.limitResponse.type is Limited";
                errors.push(path.child("queuing").required(why));
            }
            ("Reject" | "Queue", _) => {}
            (other, _) => {
                errors
                    .push(path.child("type").not_supported(field::Value::json(&other), &["Queue", "Reject"]));
            }
        }
        errors
    }
}

impl Kind for PriorityLevels {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(PriorityLevels::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }
}
