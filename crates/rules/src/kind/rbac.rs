//! Roles and who has them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::{It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::{self, selector};
use crate::names::{self, Problems};
use crate::wire;

const GROUP: &str = "rbac.authorization.k8s.io";
const ROLE_REF: &str = "io.k8s.api.rbac.v1.RoleRef";

/// Roles, in a namespace or not.
pub(super) enum Roles {
    InNamespace,
    OfCluster,
}

impl Roles {
    fn rules(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let is_namespaced = matches!(self, Roles::InNamespace);
        for (i, rule) in items(it.new, "rules").iter().enumerate() {
            errors.extend(policy_rule(rule, is_namespaced, &Path::new("rules").index(i)));
        }
        let aggregation = at(it.new, "aggregationRule");
        if !aggregation.is_null() {
            errors.extend(self::aggregation(aggregation, it.old));
        }
        errors
    }
}

fn policy_rule(rule: &Value, is_namespaced: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let is_empty = |field: &str| items(rule, field).is_empty();
    if is_empty("verbs") {
        errors.push(path.child("verbs").required("verbs must contain at least one value"));
    }
    if !is_empty("nonResourceURLs") {
        let path = path.child("nonResourceURLs");
        let value = || field::Value::json(&rule["nonResourceURLs"]);
        if is_namespaced {
            errors.push(path.invalid(value(), "namespaced rules cannot apply to non-resource URLs"));
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !is_empty(field)) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(path.invalid(value(), why));
        }
        return errors;
    }
    if is_empty("apiGroups") {
        errors.push(path.child("apiGroups").required("resource rules must supply at least one api group"));
    }
    if is_empty("resources") {
        errors.push(path.child("resources").required("resource rules must supply at least one resource"));
    }
    errors
}

fn aggregation(aggregation: &Value, old: &Value) -> Errors {
    let path = Path::new("aggregationRule").child("clusterRoleSelectors");
    let selectors = |rule: &Value| -> Vec<LabelSelector> {
        items(rule, "clusterRoleSelectors").iter().map(wire::typed).collect()
    };
    let tolerate = selectors(at(old, "aggregationRule"))
        .iter()
        .any(|selector| selector::has_invalid_value(Some(selector)));
    let selectors = selectors(aggregation);
    if selectors.is_empty() {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        return vec![path.required(why)];
    }
    let mut errors = Errors::new();
    for (i, selector) in selectors.iter().enumerate() {
        errors.extend(selector::validate(selector, tolerate, &path.index(i)));
        if selector::matches(Some(selector), &meta::Map::new()).is_none() {
            let nothing = field::Value::printed("null");
            errors.push(path.index(i).invalid(nothing, "invalid label selector."));
        }
    }
    errors
}

impl Kind for Roles {
    fn name(&self) -> fn(&str) -> Problems {
        names::path_segment
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        self.rules(it)
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.rules(it);
        errors.extend(it.metadata_update());
        errors
    }
}

/// Bindings, in a namespace or not.
pub(super) enum Bindings {
    InNamespace,
    OfCluster,
}

impl Bindings {
    fn subject(&self, subject: &Value, path: &Path) -> Errors {
        let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
        let mut errors = Errors::new();
        if name.is_empty() {
            errors.push(path.child("name").required(""));
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    let path = path.child("name");
                    errors.extend(
                        names::dns_subdomain(name).into_iter().map(|problem| path.invalid(name, problem)),
                    );
                }
                if !group.is_empty() {
                    errors.push(path.child("apiGroup").not_supported(group, &[""]));
                }
                if matches!(self, Bindings::OfCluster) && text(subject, "namespace").is_empty() {
                    errors.push(path.child("namespace").required(""));
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    errors.push(path.child("apiGroup").not_supported(group, &[GROUP]));
                }
            }
            kind => {
                errors.push(path.child("kind").not_supported(kind, &["ServiceAccount", "User", "Group"]));
            }
        }
        errors
    }
}

impl Kind for Bindings {
    fn name(&self) -> fn(&str) -> Problems {
        names::path_segment
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let (role, path) = (at(it.new, "roleRef"), Path::new("roleRef"));
        if text(role, "apiGroup") != GROUP {
            errors.push(path.child("apiGroup").not_supported(text(role, "apiGroup"), &[GROUP]));
        }
        let kinds: &[&str] = match self {
            Bindings::InNamespace => &["Role", "ClusterRole"],
            Bindings::OfCluster => &["ClusterRole"],
        };
        if !kinds.contains(&text(role, "kind")) {
            errors.push(path.child("kind").not_supported(text(role, "kind"), kinds));
        }
        match text(role, "name") {
            "" => errors.push(path.child("name").required("")),
            name => {
                let path = path.child("name");
                errors
                    .extend(names::path_segment(name).into_iter().map(|problem| path.invalid(name, problem)));
            }
        }
        for (i, subject) in items(it.new, "subjects").iter().enumerate() {
            errors.extend(self.subject(subject, &Path::new("subjects").index(i)));
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(it.metadata_update());
        let (new, old) = (at(it.new, "roleRef"), at(it.old, "roleRef"));
        if new != old {
            let value = field::Value::internal(ROLE_REF, new);
            errors.push(Path::new("roleRef").invalid(value, "cannot change roleRef"));
        }
        errors
    }
}
