//! Which nodes and which other pods a pod wants to be near to, or far from.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm,
    PodSpec, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Options, named};
use crate::field::{Errors, Path, Value};
use crate::meta::{qualified, selector};
use crate::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// All three affinities of a pod.
pub(super) fn validate(affinity: &Affinity, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(node) = &affinity.node_affinity {
        errors.extend(node_affinity(node, options, &path.child("nodeAffinity")));
    }
    let (near, far) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
    for (field, required, preferred) in [
        (
            "podAffinity",
            near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref()),
            near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
        (
            "podAntiAffinity",
            far.and_then(|far| far.required_during_scheduling_ignored_during_execution.as_ref()),
            far.and_then(|far| far.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
    ] {
        let path = path.child(field);
        for (i, term) in required.into_iter().flatten().enumerate() {
            errors.extend(pod_term(term, options, &path.child(REQUIRED).index(i)));
        }
        for (i, term) in preferred.into_iter().flatten().enumerate() {
            let path = path.child(PREFERRED).index(i);
            errors.extend(weight(term.weight, &path));
            errors.extend(pod_term(&term.pod_affinity_term, options, &path.child("podAffinityTerm")));
        }
    }
    errors
}

fn node_affinity(affinity: &NodeAffinity, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
        let tolerate = options.allow_invalid_label_value_in_node_affinity;
        errors.extend(node_selector(required, tolerate, &path.child(REQUIRED)));
    }
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    for (i, term) in preferred.enumerate() {
        let path = path.child(PREFERRED).index(i);
        errors.extend(weight(term.weight, &path));
        // A preference that no node can meet does no harm, so its values may be anything.
        errors.extend(node_term(&term.preference, true, &path.child("preference")));
    }
    errors
}

fn weight(weight: i32, path: &Path) -> Errors {
    if (1..=100).contains(&weight) {
        return Errors::new();
    }
    vec![path.child("weight").invalid(weight, "must be in the range 1-100")]
}

pub(crate) fn node_selector(selector: &NodeSelector, tolerate_values: bool, path: &Path) -> Errors {
    let path = path.child("nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        return vec![path.required("must have at least one node selector term")];
    }
    let terms = selector.node_selector_terms.iter().enumerate();
    terms.flat_map(|(i, term)| node_term(term, tolerate_values, &path.index(i))).collect()
}

fn node_term(term: &NodeSelectorTerm, tolerate_values: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, requirement) in term.match_expressions.iter().flatten().enumerate() {
        errors.extend(on_label(requirement, tolerate_values, &path.child("matchExpressions").index(i)));
    }
    for (i, requirement) in term.match_fields.iter().flatten().enumerate() {
        errors.extend(on_field(requirement, &path.child("matchFields").index(i)));
    }
    errors
}

fn on_label(requirement: &NodeSelectorRequirement, tolerate_values: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let values = requirement.values.as_deref().unwrap_or_default();
    let at_values = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(at_values.required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(at_values.forbidden(why));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            errors.push(at_values.required("must be specified single value when `operator` is 'Lt' or 'Gt'"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => {
            errors.push(path.child("operator").invalid(Value::json(&other), "not a valid selector operator"));
        }
    }
    errors.extend(qualified(&requirement.key, &path.child("key")));
    if !tolerate_values {
        for (i, value) in values.iter().enumerate() {
            errors.extend(named(&at_values.index(i), value, names::label_value));
        }
    }
    errors
}

/// The only field of a node that can be selected by is its name.
fn on_field(requirement: &NodeSelectorRequirement, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.len() != 1 => {
            let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(path.child("values").required(why));
        }
        "In" | "NotIn" => {}
        other => {
            errors.push(path.child("operator").invalid(Value::json(&other), "not a valid selector operator"));
        }
    }
    if requirement.key == "metadata.name" {
        for (i, value) in values.iter().enumerate() {
            errors.extend(named(&path.child("values").index(i), value, names::dns_subdomain));
        }
    } else {
        errors.push(path.child("key").invalid(&requirement.key, "not a valid field selector key"));
    }
    errors
}

fn pod_term(term: &PodAffinityTerm, options: &Options, path: &Path) -> Errors {
    let mut errors = pod_term_selectors(term, options.allow_invalid_label_value_in_selector, path);
    for namespace in term.namespaces.iter().flatten() {
        errors.extend(named(&path.child("namespace"), namespace, names::dns_label));
    }
    errors.extend(label_keys(
        term.match_label_keys.as_deref().unwrap_or_default(),
        term.mismatch_label_keys.as_deref().unwrap_or_default(),
        term.label_selector.as_ref(),
        path,
    ));
    let path = path.child("topologyKey");
    if term.topology_key.is_empty() {
        errors.push(path.required("can not be empty"));
    }
    errors.extend(qualified(&term.topology_key, &path));
    errors
}

fn pod_term_selectors(term: &PodAffinityTerm, tolerate_values: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (field, labels) in
        [("labelSelector", &term.label_selector), ("namespaceSelector", &term.namespace_selector)]
    {
        if let Some(labels) = labels {
            errors.extend(selector::validate(labels, tolerate_values, &path.child(field)));
        }
    }
    errors
}

/// Keys whose values are taken from the pod itself. By the time a pod is judged they have become part of its selector,
/// so a key that stands there twice was also written there by hand.
pub(super) fn label_keys(
    keys: &[String],
    mismatch_keys: &[String],
    labels: Option<&LabelSelector>,
    path: &Path,
) -> Errors {
    let mut errors = label_key_names(keys, labels, &path.child("matchLabelKeys"));
    errors.extend(label_key_names(mismatch_keys, labels, &path.child("mismatchLabelKeys")));
    if let Some(labels) = labels {
        let index: BTreeMap<&String, usize> = keys.iter().enumerate().map(|(i, key)| (key, i)).collect();
        let mut seen: BTreeSet<&String> = labels.match_labels.iter().flat_map(BTreeMap::keys).collect();
        for key in labels.match_expressions.iter().flatten().map(|requirement| &requirement.key) {
            if let (Some(i), true) = (index.get(key), seen.contains(key)) {
                errors.push(path.index(*i).invalid(key, "exists in both matchLabelKeys and labelSelector"));
            }
            seen.insert(key);
        }
    }
    for (i, key) in keys.iter().enumerate().filter(|(_, key)| mismatch_keys.contains(key)) {
        let path = path.child("matchLabelKeys").index(i);
        errors.push(path.invalid(key, "exists in both matchLabelKeys and mismatchLabelKeys"));
    }
    errors
}

fn label_key_names(keys: &[String], labels: Option<&LabelSelector>, path: &Path) -> Errors {
    if keys.is_empty() {
        return Errors::new();
    }
    if labels.is_none() {
        return vec![path.forbidden("must not be specified when labelSelector is not set")];
    }
    keys.iter().enumerate().flat_map(|(i, key)| qualified(key, &path.index(i))).collect()
}

/// Every term of a pod about other pods.
pub(super) fn pod_terms(spec: &PodSpec) -> Vec<&PodAffinityTerm> {
    fn weighted(terms: Option<&Vec<WeightedPodAffinityTerm>>) -> impl Iterator<Item = &PodAffinityTerm> {
        terms.into_iter().flatten().map(|term| &term.pod_affinity_term)
    }
    let mut terms = Vec::new();
    let Some(affinity) = &spec.affinity else { return terms };
    if let Some(near) = &affinity.pod_affinity {
        terms.extend(near.required_during_scheduling_ignored_during_execution.iter().flatten());
        terms.extend(weighted(near.preferred_during_scheduling_ignored_during_execution.as_ref()));
    }
    if let Some(far) = &affinity.pod_anti_affinity {
        terms.extend(far.required_during_scheduling_ignored_during_execution.iter().flatten());
        terms.extend(weighted(far.preferred_during_scheduling_ignored_during_execution.as_ref()));
    }
    terms
}

/// Whether a stored pod has a selector about other pods that would be refused today.
pub(super) fn has_invalid_pod_selector(spec: &PodSpec) -> bool {
    pod_terms(spec).into_iter().any(|term| !pod_term_selectors(term, false, &Path::root()).is_empty())
}

/// Whether a stored pod requires a label value that would be refused today.
pub(super) fn has_invalid_node_label_value(spec: &PodSpec) -> bool {
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.into_iter().flat_map(|selector| &selector.node_selector_terms);
    terms
        .flat_map(|term| term.match_expressions.iter().flatten())
        .flat_map(|requirement| requirement.values.iter().flatten())
        .any(|value| !names::label_value(value).is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::check_pod;

    #[test]
    fn c_63_nodes() {
        let check = |affinity: Value, expected: &[&str]| {
            check_pod(json!({"affinity": {"nodeAffinity": affinity}}), expected);
        };
        check(
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}),
            &[
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one",
            ],
        );
        let terms = json!([{
            "matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "a", "operator": "Gt", "values": ["1", "2"]},
                {"key": "-", "operator": "Is", "values": ["-"]},
            ],
            "matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["A"]},
                {"key": "spec.x", "operator": "Exists"},
            ],
        }]);
        let at =
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]";
        let expected = [
            ".matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ".matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ".matchExpressions[2].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            r#".matchExpressions[3].operator: Invalid value: "Is": not a valid selector operator"#,
            r#".matchExpressions[3].key: Invalid value: "-": name part must consist"#,
            r#".matchExpressions[3].values[0]: Invalid value: "-": a valid label must"#,
            r#".matchFields[0].values[0]: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
            r#".matchFields[1].operator: Invalid value: "Exists": not a valid selector operator"#,
            r#".matchFields[1].key: Invalid value: "spec.x": not a valid field selector key"#,
        ]
        .map(|text| format!("{at}{text}"));
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}),
            &expected,
        );
        check(
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference":
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}}]}),
            &[
                "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
            ],
        );
    }

    #[test]
    fn c_63_pods() {
        let at = "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]";
        let expected = [
            ".weight: Invalid value: 101: must be in the range 1-100",
            r#".podAffinityTerm.labelSelector.matchLabels: Invalid value: "-": a valid label must"#,
            r#".podAffinityTerm.namespace: Invalid value: "N": a lowercase RFC 1123 label"#,
            r#".podAffinityTerm.matchLabelKeys[1]: Invalid value: "-": name part must consist"#,
            r#".podAffinityTerm[0]: Invalid value: "k": exists in both matchLabelKeys and labelSelector"#,
            r#".podAffinityTerm.matchLabelKeys[0]: Invalid value: "k": exists in both matchLabelKeys and mismatchLabelKeys"#,
            ".podAffinityTerm.topologyKey: Required value: can not be empty",
            r#".podAffinityTerm.topologyKey: Invalid value: "": name part must be non-empty"#,
            r#".podAffinityTerm.topologyKey: Invalid value: "": name part must consist"#,
        ]
        .map(|text| format!("{at}{text}"));
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_pod(
            json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 101,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"k": "-"},
                        "matchExpressions": [{"key": "k", "operator": "Exists"}]},
                    "matchLabelKeys": ["k", "-"], "mismatchLabelKeys": ["k"],
                    "namespaces": ["N"], "topologyKey": "",
                },
            }]}}}),
            &expected,
        );
        check_pod(
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "z", "matchLabelKeys": ["a"]}]}}}),
            &[
                "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            ],
        );
    }
}
