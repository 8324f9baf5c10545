//! When and where a pod may be placed: tolerations, topology spread, scheduling gates.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSchedulingGate, PodSpec, Toleration, TopologySpreadConstraint};

use super::{Options, affinity, one_of};
use crate::field::{Errors, Path, Value};
use crate::meta::{qualified, selector};
use crate::names;
use crate::repeated::repeated;

/// What keeps a pod from being scheduled, each once.
pub(super) fn validate_gates(gates: &[PodSchedulingGate], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (i, gate) in gates.iter().enumerate() {
        errors.extend(qualified(&gate.name, &path.index(i)));
        if !seen.insert(&gate.name) {
            errors.push(path.index(i).duplicate(&gate.name));
        }
    }
    errors
}

/// The taints of nodes that a pod bears.
pub(super) fn validate_tolerations(tolerations: &[Toleration], options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, toleration) in tolerations.iter().enumerate() {
        let path = path.index(i);
        let key = toleration.key.as_deref().unwrap_or_default();
        let operator = toleration.operator.as_deref().unwrap_or_default();
        let effect = toleration.effect.as_deref().unwrap_or_default();
        if !key.is_empty() {
            errors.extend(qualified(key, &path.child("key")));
        } else if operator != "Exists" {
            let why =
                r#"operator must be Exists when `key` is empty, which means "match all values and all keys""#;
            errors.push(path.child("operator").invalid(Value::json(&operator), why));
        }
        if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(path.child("effect").invalid(Value::json(&effect), why));
        }
        let value = toleration.value.as_deref().unwrap_or_default();
        errors.extend(operator_and_value(operator, value, options, &path));
        if !effect.is_empty() {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            errors.extend(one_of(&path.child("effect"), effect, &effects));
        }
    }
    errors
}

fn operator_and_value(operator: &str, value: &str, options: &Options, path: &Path) -> Errors {
    let at_operator = path.child("operator");
    match operator {
        "Equal" | "" => {
            let problems = names::label_value(value);
            if problems.is_empty() {
                return Errors::new();
            }
            vec![at_operator.invalid(value, problems.join(";"))]
        }
        "Exists" if value.is_empty() => Errors::new(),
        "Exists" => vec![at_operator.invalid(value, "value must be empty when `operator` is 'Exists'")],
        "Lt" | "Gt" if options.allow_toleration_comparison => decimal_integer(value, &path.child("value")),
        "Lt" | "Gt" => {
            vec![at_operator.not_supported(Value::json(&operator), &["Equal", "Exists", "Lt", "Gt"])]
        }
        _ => vec![at_operator.not_supported(Value::json(&operator), &["Equal", "Exists"])],
    }
}

/// A whole number that fits 64 bits, without plus and leading zeros.
fn decimal_integer(value: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let digits = value.strip_prefix('-').unwrap_or(value);
    let plain = !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && (value == "0" || !digits.starts_with('0'));
    if !plain {
        let why = match value {
            "" => "must be non-empty",
            _ => "must be a valid decimal integer in canonical form",
        };
        errors.push(path.invalid(value, why));
    }
    if value.parse::<i64>().is_err() {
        let unsigned = value.strip_prefix(['-', '+']).unwrap_or(value);
        let is_number = !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit());
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        let why = format!("strconv.ParseInt: parsing {}: {why}", types::go::quote(value));
        errors.push(path.invalid(value, why));
    }
    errors
}

/// How a pod and its like are spread over the parts of a cluster.
pub(super) fn validate_spread(
    constraints: &[TopologySpreadConstraint],
    options: &Options,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    // Told at the one that is followed by the same.
    let mut again = repeated(constraints.iter().rev(), |it| (&it.topology_key, &it.when_unsatisfiable));
    again.reverse();
    for (i, constraint) in constraints.iter().enumerate() {
        let path = path.index(i);
        errors.extend(positive(constraint.max_skew, &path.child("maxSkew")));
        if constraint.topology_key.is_empty() {
            errors.push(path.child("topologyKey").required("can not be empty"));
        }
        let action = constraint.when_unsatisfiable.as_str();
        errors.extend(one_of(&path.child("whenUnsatisfiable"), action, &["DoNotSchedule", "ScheduleAnyway"]));
        if again[i] {
            let pair = format!("{{{}, {action}}}", constraint.topology_key);
            errors.push(path.child("{topologyKey, whenUnsatisfiable}").duplicate(&pair));
        }
        errors.extend(min_domains(constraint, &path.child("minDomains")));
        for (field, policy) in [
            ("nodeAffinityPolicy", &constraint.node_affinity_policy),
            ("nodeTaintsPolicy", &constraint.node_taints_policy),
        ] {
            if let Some(policy) = policy {
                errors.extend(one_of(&path.child(field), policy, &["Honor", "Ignore"]));
            }
        }
        errors.extend(spread_label_keys(constraint, options.legacy_match_label_keys, &path));
        if let Some(labels) =
            constraint.label_selector.as_ref().filter(|_| !options.allow_invalid_spread_selector)
        {
            errors.extend(selector::validate(labels, false, &path.child("labelSelector")));
        }
    }
    errors
}

fn positive(value: i32, path: &Path) -> Errors {
    if value > 0 { Errors::new() } else { vec![path.invalid(value, "must be greater than zero")] }
}

fn min_domains(constraint: &TopologySpreadConstraint, path: &Path) -> Errors {
    let Some(domains) = constraint.min_domains else { return Errors::new() };
    let mut errors = positive(domains, path);
    let action = &constraint.when_unsatisfiable;
    if action != "DoNotSchedule" {
        let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.push(path.invalid(domains, why));
    }
    errors
}

fn spread_label_keys(constraint: &TopologySpreadConstraint, legacy: bool, path: &Path) -> Errors {
    let keys = constraint.match_label_keys.as_deref().unwrap_or_default();
    let labels = constraint.label_selector.as_ref();
    if !legacy {
        return affinity::label_keys(keys, &[], labels, path);
    }
    // As before 1.34: keys did not become part of the selector, so they must not stand there at all.
    let path = path.child("matchLabelKeys");
    let mut errors = Errors::new();
    if !keys.is_empty() && labels.is_none() {
        errors.push(path.forbidden("must not be specified when labelSelector is not set"));
    }
    let in_selector = |key: &String| {
        labels.is_some_and(|labels| {
            labels.match_labels.as_ref().is_some_and(|labels| labels.contains_key(key))
                || labels.match_expressions.iter().flatten().any(|requirement| requirement.key == *key)
        })
    };
    for (i, key) in keys.iter().enumerate() {
        errors.extend(qualified(key, &path.index(i)));
        if in_selector(key) {
            errors.push(path.index(i).invalid(key, "exists in both matchLabelKeys and labelSelector"));
        }
    }
    errors
}

/// Whether a stored pod has label keys that would be refused today.
pub(super) fn has_invalid_spread_label_keys(spec: &PodSpec) -> bool {
    let constraints = spec.topology_spread_constraints.iter().flatten();
    constraints.into_iter().any(|constraint| !spread_label_keys(constraint, false, &Path::root()).is_empty())
}

/// Whether a stored pod has a spread selector that would be refused today.
pub(super) fn has_invalid_spread_selector(spec: &PodSpec) -> bool {
    let selectors =
        spec.topology_spread_constraints.iter().flatten().filter_map(|c| c.label_selector.as_ref());
    selectors.into_iter().any(|labels| !selector::validate(labels, false, &Path::root()).is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::check_pod;

    #[test]
    fn c_63_gates() {
        check_pod(
            json!({"schedulingGates": [{"name": "a"}, {"name": "a"}, {"name": ""}]}),
            &[
                r#"spec.schedulingGates[1]: Duplicate value: "a""#,
                r#"spec.schedulingGates[2]: Invalid value: "": name part must be non-empty"#,
                r#"spec.schedulingGates[2]: Invalid value: "": name part must consist"#,
            ],
        );
    }

    #[test]
    fn c_63_tolerations() {
        let check =
            |toleration: Value, expected: &[&str]| check_pod(json!({"tolerations": [toleration]}), expected);
        check(json!({"operator": "Exists"}), &[]);
        check(json!({"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 1}), &[]);
        check(
            json!({}),
            &[
                r#"spec.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
            ],
        );
        check(
            json!({"key": "-", "operator": "Exists", "value": "a", "effect": "Never", "tolerationSeconds": 1}),
            &[
                r#"spec.tolerations[0].key: Invalid value: "-": name part must consist"#,
                r#"spec.tolerations[0].effect: Invalid value: "Never": effect must be 'NoExecute' when `tolerationSeconds` is set"#,
                r#"spec.tolerations[0].operator: Invalid value: "a": value must be empty when `operator` is 'Exists'"#,
                r#"spec.tolerations[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
            ],
        );
        check(
            json!({"key": "a", "operator": "Lt", "value": "1"}),
            &[
                r#"spec.tolerations[0].operator: Unsupported value: "Lt": supported values: "Equal", "Exists", "Lt", "Gt""#,
            ],
        );
        check(
            json!({"key": "a", "operator": "In"}),
            &[
                r#"spec.tolerations[0].operator: Unsupported value: "In": supported values: "Equal", "Exists""#,
            ],
        );
        check(
            json!({"key": "a", "value": "-"}),
            &[r#"spec.tolerations[0].operator: Invalid value: "-": a valid label must"#],
        );
    }

    #[test]
    fn c_63_spread() {
        let constraint = json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}});
        check_pod(
            json!({"topologySpreadConstraints": [constraint, constraint]}),
            &[
                r#"spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{z, DoNotSchedule}""#,
            ],
        );
        check_pod(
            json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "x",
                "minDomains": 0, "nodeAffinityPolicy": "a", "nodeTaintsPolicy": "b", "matchLabelKeys": ["k"],
                "labelSelector": {"matchLabels": {"k": "-"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}}]}),
            &[
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
                r#"spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "x": supported values: "DoNotSchedule", "ScheduleAnyway""#,
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not x",
                r#"spec.topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "a": supported values: "Honor", "Ignore""#,
                r#"spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "b": supported values: "Honor", "Ignore""#,
                r#"spec.topologySpreadConstraints[0][0]: Invalid value: "k": exists in both matchLabelKeys and labelSelector"#,
                r#"spec.topologySpreadConstraints[0].labelSelector.matchLabels: Invalid value: "-": a valid label must"#,
            ],
        );
    }
}
