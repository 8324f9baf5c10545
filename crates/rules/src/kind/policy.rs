//! Disruption budgets and priority classes.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::workloads::int_or_percent;
use super::{Counts, It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::{self, IMMUTABLE, not_negative, selector};
use crate::repeated::repeated;
use crate::wire;

pub(super) struct PodDisruptionBudgets;

/// What a selector of v1beta1 without anything in it was told apart by.
const EMPTY_SELECTOR_MATCH: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

const BUDGET: &str = "io.k8s.api.policy.v1.PodDisruptionBudgetSpec";

impl PodDisruptionBudgets {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = Errors::new();
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            let why = "minAvailable and maxUnavailable cannot be both set";
            errors.push(path.invalid(field::Value::internal(BUDGET, spec), why));
        }
        for name in ["minAvailable", "maxUnavailable"] {
            errors.extend(int_or_percent(&spec[name], &path.child(name)));
            errors.extend(super::workloads::no_more_than_all(&spec[name], &path.child(name)));
        }
        let labels = |object: &Value| -> Option<LabelSelector> {
            let selector = at(object, "spec.selector");
            (!selector.is_null()).then(|| wire::typed(selector))
        };
        if let Some(selector) = labels(it.new) {
            let tolerate = selector::has_invalid_value(labels(it.old).as_ref());
            errors.extend(selector::validate(&selector, tolerate, &path.child("selector")));
        }
        if let Some(policy) = spec["unhealthyPodEvictionPolicy"].as_str()
            && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget")
        {
            let path = path.child("unhealthyPodEvictionPolicy");
            errors.push(path.not_supported(field::Value::json(&policy), &["AlwaysAllow", "IfHealthyBudget"]));
        }
        errors
    }
}

impl Kind for PodDisruptionBudgets {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    /// A selector does not say any more what an old one of a version that is gone was made to say.
    fn default(&self, object: &mut Value) {
        let expressions = object.pointer_mut("/spec/selector/matchExpressions").and_then(Value::as_array_mut);
        if let Some(expressions) = expressions {
            expressions.retain(|expression| expression["key"] != EMPTY_SELECTOR_MATCH);
        }
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        PodDisruptionBudgets::spec(it)
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        PodDisruptionBudgets::spec(it)
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let path = Path::new("status");
        let mut errors = conditions(items(it.new, "status.conditions"), &path.child("conditions"));
        for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            errors.extend(not_negative(it.new["status"][name].as_i64().unwrap_or(0), &path.child(name)));
        }
        errors
    }
}

const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
    alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  \
     or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is \
    '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Conditions of the common form.
pub(super) fn conditions(conditions: &[Value], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let again = repeated(conditions, |condition| text(condition, "type"));
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        let kind = text(condition, "type");
        if again[i] {
            errors.push(path.child("type").duplicate(kind));
        }
        errors.extend(meta::qualified(kind, &path.child("type")));
        let status = text(condition, "status");
        if !matches!(status, "True" | "False" | "Unknown") {
            let value = field::Value::json(&status);
            errors.push(path.child("status").not_supported(value, &["False", "True", "Unknown"]));
        }
        errors.extend(not_negative(
            condition["observedGeneration"].as_i64().unwrap_or(0),
            &path.child("observedGeneration"),
        ));
        if condition["lastTransitionTime"].is_null() {
            errors.push(path.child("lastTransitionTime").required(""));
        }
        let reason = text(condition, "reason");
        if reason.is_empty() {
            errors.push(path.child("reason").required(""));
        } else {
            if !is_reason(reason) {
                errors.push(path.child("reason").invalid(reason, REASON));
            }
            if reason.len() > 1024 {
                errors.push(path.child("reason").too_long(1024));
            }
        }
        if text(condition, "message").len() > 32768 {
            errors.push(path.child("message").too_long(32768));
        }
    }
    errors
}

fn is_reason(reason: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && reason.chars().all(is_inner)
}

pub(super) struct PriorityClasses;

const SYSTEM: &str = "system-";
/// The largest value that users may give.
const HIGHEST: i64 = 1_000_000_000;

/// The classes that every cluster has, by name and value.
static SYSTEM_CLASSES: LazyLock<[(&str, i64); 2]> = LazyLock::new(|| {
    [("system-node-critical", 2 * HIGHEST + 1000), ("system-cluster-critical", 2 * HIGHEST)]
});

/// Whether a class is one of those that every cluster has, and cannot do without.
pub fn is_system_class(name: &str) -> bool {
    SYSTEM_CLASSES.iter().any(|(known, _)| *known == name)
}

impl Kind for PriorityClasses {
    fn counts(&self) -> Counts {
        Counts::Once
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let (name, value) = (text(it.new, "metadata.name"), at(it.new, "value").as_i64().unwrap_or(0));
        if name.starts_with(SYSTEM) {
            if let Some(why) =
                not_a_system_class(name, value, at(it.new, "globalDefault").as_bool() == Some(true))
            {
                let why = format!(
                    "priority class names with '{SYSTEM}' prefix are reserved for system use only. error: {why}"
                );
                errors.push(Path::new("metadata").child("name").forbidden(why));
            }
        } else if value > HIGHEST {
            let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
            errors.push(Path::new("value").forbidden(why));
        }
        if let Some(policy) = at(it.new, "preemptionPolicy").as_str() {
            let path = Path::new("preemptionPolicy");
            match policy {
                "PreemptLowerPriority" | "Never" => {}
                "" => errors.push(path.required("")),
                other => {
                    let value = field::Value::json(&other);
                    errors.push(path.not_supported(value, &["PreemptLowerPriority", "Never"]));
                }
            }
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        if at(it.new, "value").as_i64().unwrap_or(0) != at(it.old, "value").as_i64().unwrap_or(0) {
            errors.push(Path::new("value").forbidden("may not be changed in an update."));
        }
        let (new, old) = (at(it.new, "preemptionPolicy"), at(it.old, "preemptionPolicy"));
        if new != old {
            errors.push(Path::new("preemptionPolicy").invalid(field::Value::json(new), IMMUTABLE));
        }
        errors
    }
}

fn not_a_system_class(name: &str, value: i64, is_default: bool) -> Option<String> {
    let Some((_, expected)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *expected {
        return Some(format!("value of {name} PriorityClass must be {expected}"));
    }
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
