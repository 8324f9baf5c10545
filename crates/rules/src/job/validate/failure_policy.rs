//! The syntax of a pod failure policy (C-42…C-54).

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{
    JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule,
};

use crate::field::{Errors, Path, Value};
use crate::meta;

const MAX_RULES: usize = 20;
const MAX_CONDITIONS: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

pub(super) fn validate(policy: &PodFailurePolicy, spec: &JobSpec, path: &Path) -> Errors {
    let path = path.child("rules");
    let mut errors = Errors::new();
    if policy.rules.len() > MAX_RULES {
        errors.push(path.too_many(policy.rules.len(), MAX_RULES));
    }
    let containers = container_names(spec);
    for (i, rule) in policy.rules.iter().enumerate() {
        errors.extend(validate_rule(rule, spec, &containers, &path.index(i)));
    }
    errors
}

fn container_names(spec: &JobSpec) -> BTreeSet<&str> {
    let pod = spec.template.spec.iter();
    let containers = pod.flat_map(|pod| pod.containers.iter().chain(pod.init_containers.iter().flatten()));
    containers.map(|container| container.name.as_str()).collect()
}

fn validate_rule(
    rule: &PodFailurePolicyRule,
    spec: &JobSpec,
    containers: &BTreeSet<&str>,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let action = Value::json(&rule.action);
    match rule.action.as_str() {
        "FailIndex" if spec.backoff_limit_per_index.is_none() => {
            errors.push(path.child("action").invalid(action, "requires the backoffLimitPerIndex to be set"));
        }
        text => errors.extend(one_of(text, &ACTIONS, &path.child("action"))),
    }
    let conditions = rule.on_pod_conditions.as_deref().unwrap_or_default();
    if let Some(exit_codes) = &rule.on_exit_codes {
        errors.extend(validate_exit_codes(exit_codes, containers, &path.child("onExitCodes")));
    }
    errors.extend(validate_conditions(conditions, &path.child("onPodConditions")));
    match (&rule.on_exit_codes, conditions) {
        (Some(_), [_, ..]) => errors.push(
            path.invalid(Value::OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported"),
        ),
        (None, []) => errors.push(
            path.invalid(Value::OMITTED, "specifying one of OnExitCodes and OnPodConditions is required"),
        ),
        _ => {}
    }
    errors
}

fn validate_exit_codes(
    exit_codes: &PodFailurePolicyOnExitCodesRequirement,
    containers: &BTreeSet<&str>,
    path: &Path,
) -> Errors {
    let mut errors = one_of(&exit_codes.operator, &OPERATORS, &path.child("operator"));
    if let Some(name) = exit_codes.container_name.as_deref().filter(|name| !containers.contains(name)) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.push(path.child("containerName").invalid(name, why));
    }
    let path = path.child("values");
    let values = &exit_codes.values;
    if values.is_empty() {
        errors.push(path.invalid(Value::list(values), "at least one value is required"));
    } else if values.len() > MAX_EXIT_CODES {
        errors.push(path.too_many(values.len(), MAX_EXIT_CODES));
    }
    let mut seen = BTreeSet::new();
    for (i, value) in values.iter().enumerate() {
        if exit_codes.operator == "In" && *value == 0 {
            errors.push(path.index(i).invalid(*value, "must not be 0 for the In operator"));
        }
        if !seen.insert(value) {
            errors.push(path.index(i).duplicate(*value));
        }
    }
    if !values.is_sorted() {
        errors.push(path.invalid(Value::list(values), "must be ordered"));
    }
    errors
}

fn validate_conditions(conditions: &[PodFailurePolicyOnPodConditionsPattern], path: &Path) -> Errors {
    let mut errors = Errors::new();
    if conditions.len() > MAX_CONDITIONS {
        errors.push(path.too_many(conditions.len(), MAX_CONDITIONS));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let path = path.index(i);
        errors.extend(meta::qualified(&condition.type_, &path.child("type")));
        errors.extend(one_of(condition.status.as_deref().unwrap_or(""), &STATUSES, &path.child("status")));
    }
    errors
}

/// A word of an enumeration that must be there.
fn one_of(word: &str, words: &[&str], path: &Path) -> Errors {
    if word.is_empty() {
        let quoted: Vec<String> = words.iter().map(|word| types::go::quote(word)).collect();
        return vec![path.required(format!("valid values: [{}]", quoted.join(" ")))];
    }
    if words.contains(&word) { Errors::new() } else { vec![path.not_supported(Value::json(&word), words)] }
}
