//! Flow schemas: which requests belong together. They are kept, and have no effect (3.2).

use serde_json::Value;

use super::{Counts, It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::names;
use crate::repeated::repeated;

pub(super) struct FlowSchemas;

const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;
const MAX_ENTROPY: f64 = 60.0;
/// Written by an older version for itself.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// Schemas and levels that every server has, and that nobody changes.
const MANDATORY_SCHEMAS: [(&str, &str); 2] = [
    (
        "exempt",
        r#"{"matchingPrecedence":1,"priorityLevelConfiguration":{"name":"exempt"},"rules":[{
            "nonResourceRules":[{"nonResourceURLs":["*"],"verbs":["*"]}],
            "resourceRules":[{"apiGroups":["*"],"clusterScope":true,"namespaces":["*"],"resources":["*"],"verbs":["*"]}],
            "subjects":[{"group":{"name":"system:masters"},"kind":"Group"}]}]}"#,
    ),
    (
        "catch-all",
        r#"{"distinguisherMethod":{"type":"ByUser"},"matchingPrecedence":10000,
            "priorityLevelConfiguration":{"name":"catch-all"},"rules":[{
            "nonResourceRules":[{"nonResourceURLs":["*"],"verbs":["*"]}],
            "resourceRules":[{"apiGroups":["*"],"clusterScope":true,"namespaces":["*"],"resources":["*"],"verbs":["*"]}],
            "subjects":[{"group":{"name":"system:unauthenticated"},"kind":"Group"},
                {"group":{"name":"system:authenticated"},"kind":"Group"}]}]}"#,
    ),
];
const MANDATORY_LEVELS: [(&str, &str); 2] = [
    ("exempt", r#"{"exempt":{"lendablePercent":0,"nominalConcurrencyShares":0},"type":"Exempt"}"#),
    (
        "catch-all",
        r#"{"limited":{"lendablePercent":0,"limitResponse":{"type":"Reject"},"nominalConcurrencyShares":5},"type":"Limited"}"#,
    ),
];

const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

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
        errors.extend(urls(rule, &path.child("nonResourceURLs")));
    }
    errors
}

fn urls(rule: &Value, path: &Path) -> Errors {
    let urls = texts(rule, "nonResourceURLs");
    if urls.is_empty() {
        return vec![path.required("nonResourceURLs must contain at least one value")];
    }
    if urls.contains(&"*") {
        let why = "if '*' is present, must not specify other non-resource URLs";
        let is_alone = urls.len() == 1;
        return if is_alone { Errors::new() } else { vec![path.invalid(field::Value::json(&urls), why)] };
    }
    let judged = urls.iter().enumerate().filter_map(|(i, url)| Some((i, url, wrong_url(url)?)));
    judged.map(|(i, url, why)| path.index(i).invalid(*url, why)).collect()
}

/// What is wrong with the path of a request that is about no resource.
fn wrong_url(url: &str) -> Option<&'static str> {
    match url {
        "" => Some("must not be empty"),
        "/" => None,
        url if !url.starts_with('/') => Some("must start with slash"),
        url if url.contains(' ') => Some("must not contain white-space"),
        url if url.contains("//") => Some("must not contain double slash"),
        url => match url.matches('*').count() {
            0 => None,
            1 if url.ends_with("/*") => None,
            _ => Some("wildcard can only do suffix matching"),
        },
    }
}

/// Conditions have types, each its own.
fn conditions(it: &It<'_>) -> Errors {
    let mut errors = Errors::new();
    let conditions = items(it.new, "status.conditions");
    let again = repeated(conditions, |condition| text(condition, "type"));
    for (i, condition) in conditions.iter().enumerate() {
        let (kind, path) = (text(condition, "type"), Path::new("status").child("conditions").index(i));
        if again[i] {
            errors.push(path.child("type").duplicate(kind));
        }
        if kind.is_empty() {
            errors.push(path.child("type").required(""));
        }
    }
    errors
}

/// The spec of an object without which no server would work, if it is one.
fn mandatory(name: &str, specs: &[(&str, &str)]) -> Option<Value> {
    let (_, spec) = specs.iter().find(|(known, _)| *known == name)?;
    Some(serde_json::from_str(spec).expect("a spec is JSON"))
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
        let (name, spec) = (text(it.new, "metadata.name"), at(it.new, "spec"));
        if mandatory(name, &MANDATORY_SCHEMAS).is_some_and(|fixed| fixed != *spec) {
            let value = field::Value::internal("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", spec);
            let why = format!("spec of '{name}' must equal the fixed value");
            errors.push(Path::new("spec").invalid(value, why));
        }
        errors.extend(conditions(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        conditions(it)
    }
}

/// How many bits tell apart the hands of so many queues.
#[expect(clippy::cast_precision_loss, reason = "neither is larger than ten million")]
fn entropy(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
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
            "Exempt" => {
                let mut errors = Errors::new();
                if !limited.is_null() {
                    errors.push(path.child("limited").forbidden("must be nil if the type is not Limited"));
                }
                errors.extend(PriorityLevels::shares(&spec["exempt"], &path.child("exempt")));
                errors
            }
            "Limited" => {
                let mut errors = Errors::new();
                if !spec["exempt"].is_null() {
                    errors.push(path.child("exempt").forbidden("must be nil if the type is Limited"));
                }
                if limited.is_null() {
                    errors.push(path.child("limited").required("must not be empty when type is Limited"));
                } else {
                    errors.extend(PriorityLevels::limited(limited, &path.child("limited")));
                }
                errors
            }
            other => {
                vec![path.child("type").not_supported(field::Value::json(&other), &["Exempt", "Limited"])]
            }
        });
        errors
    }

    /// What an exempt level may say is all that can be changed of it; of others nothing.
    fn fixed(it: &It<'_>) -> Errors {
        let (name, spec) = (text(it.new, "metadata.name"), at(it.new, "spec"));
        let Some(fixed) = mandatory(name, &MANDATORY_LEVELS) else { return Errors::new() };
        let mut own = spec.clone();
        let mut except = "";
        if name == "exempt" {
            own["exempt"] = fixed["exempt"].clone();
            except = " except the 'spec.exempt' field";
        }
        if own == fixed {
            return Errors::new();
        }
        let value = field::Value::internal("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", spec);
        vec![Path::new("spec").invalid(value, format!("spec of '{name}'{except} must equal the fixed value"))]
    }

    /// How much of the server a level has, and how much of that it lends.
    fn shares(level: &Value, path: &Path) -> Errors {
        let mut errors = Errors::new();
        if let Some(shares) = level["nominalConcurrencyShares"].as_i64().filter(|shares| *shares < 0) {
            let path = path.child("nominalConcurrencyShares");
            errors.push(path.invalid(shares, "must be a non-negative integer"));
        }
        if let Some(percent) = level["lendablePercent"].as_i64().filter(|it| !(0..=100).contains(it)) {
            let path = path.child("lendablePercent");
            errors.push(path.invalid(percent, "must be between 0 and 100, inclusive"));
        }
        errors
    }

    fn queuing(queuing: &Value, path: &Path) -> Errors {
        let mut errors = Errors::new();
        let number = |name: &str| queuing[name].as_i64().unwrap_or(0);
        let (length, queues, hand) = (number("queueLengthLimit"), number("queues"), number("handSize"));
        if length <= 0 {
            errors.push(path.child("queueLengthLimit").invalid(length, "must be positive"));
        }
        if queues <= 0 {
            errors.push(path.child("queues").invalid(queues, "must be positive"));
        } else if queues > MAX_QUEUES {
            let why = format!("must not be greater than {MAX_QUEUES}");
            errors.push(path.child("queues").invalid(queues, why));
        }
        let at_hand = path.child("handSize");
        if hand <= 0 {
            errors.push(at_hand.invalid(hand, "must be positive"));
        } else if hand > queues {
            errors.push(at_hand.invalid(hand, format!("should not be greater than queues ({queues})")));
        } else if entropy(queues, hand) > MAX_ENTROPY {
            let why = format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_ENTROPY}"
            );
            errors.push(at_hand.invalid(hand, why));
        }
        errors
    }

    fn limited(limited: &Value, path: &Path) -> Errors {
        let mut errors = PriorityLevels::shares(limited, path);
        if let Some(percent) = limited["borrowingLimitPercent"].as_i64().filter(|percent| *percent < 0) {
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
            ("Queue", false) => {
                errors.extend(PriorityLevels::queuing(&response["queuing"], &path.child("queuing")));
            }
            ("Reject", true) => {}
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
        if !at(it.new, "metadata.annotations")[ZERO_SHARES].is_null() {
            let why = format!("annotation '{ZERO_SHARES}' is forbidden");
            errors.push(Path::new("metadata").child("annotations").forbidden(why));
        }
        errors.extend(PriorityLevels::spec(it));
        errors.extend(PriorityLevels::fixed(it));
        errors.extend(conditions(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        conditions(it)
    }
}
