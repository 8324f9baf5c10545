//! Groups of the Kubernetes project say who approved their API.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rules::{
    field::{Errors, Path},
    kind::url,
};
use types::go;

/// Where they say so.
const APPROVED: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    Invalid,
    Given,
    /// There is none, and it says so.
    Bypassed,
    Missing,
}

fn annotation(definition: &CustomResourceDefinition) -> &str {
    let annotations = definition.metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(APPROVED)).map_or("", String::as_str)
}

fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|suffix| group.strip_suffix(suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn approval(definition: &CustomResourceDefinition) -> Approval {
    match annotation(definition) {
        "" => Approval::Missing,
        text if text.starts_with("unapproved") => Approval::Bypassed,
        text if url::is_absolute(text) => Approval::Given,
        _ => Approval::Invalid,
    }
}

fn message(approval: Approval, text: &str) -> String {
    let must = format!("protected groups must have approval annotation \"{APPROVED}\"");
    match approval {
        Approval::Missing => format!("{must}, {SEE}"),
        Approval::Invalid => {
            format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}")
        }
        Approval::Bypassed => format!("not approved: {}", go::quote(text)),
        Approval::Given => format!("approved in {text}"),
    }
}

/// Every error of what a definition says of its approval. One that is no better off than before is let be.
pub(super) fn validate(
    definition: &CustomResourceDefinition,
    old: Option<&CustomResourceDefinition>,
) -> Errors {
    let new = approval(definition);
    if !is_protected(&definition.spec.group) || old.is_some_and(|old| approval(old) == new) {
        return Errors::new();
    }
    let path = Path::new("metadata").child("annotations").key(APPROVED);
    let text = annotation(definition);
    match new {
        Approval::Given | Approval::Bypassed => Errors::new(),
        Approval::Missing => vec![path.required(message(new, text))],
        Approval::Invalid => vec![path.invalid(text, message(new, text))],
    }
}

/// What the condition `KubernetesAPIApprovalPolicyConformant` says of a definition, if it is asked of it: whether it
/// holds, the reason and the message.
pub(super) fn condition(definition: &CustomResourceDefinition) -> Option<(bool, &'static str, String)> {
    if !is_protected(&definition.spec.group) {
        return None;
    }
    let approval = approval(definition);
    let reason = match approval {
        Approval::Invalid => "InvalidAnnotation",
        Approval::Given => "ApprovedAnnotation",
        Approval::Bypassed => "UnapprovedAnnotation",
        Approval::Missing => "MissingAnnotation",
    };
    Some((approval == Approval::Given, reason, message(approval, annotation(definition))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_approved() {
        let definition = |group: &str, annotation: &str| -> CustomResourceDefinition {
            serde_json::from_value(json!({
                "metadata": {"annotations": {APPROVED: annotation}},
                "spec": {"group": group, "scope": "Cluster", "names": {"plural": "a", "kind": "A"}, "versions": []},
            }))
            .expect("a definition")
        };
        let missing = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        let invalid = "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111";
        for (annotation, holds, reason, message, errors) in [
            ("", false, "MissingAnnotation", missing, 1),
            (
                "unapproved, \"yet\"",
                false,
                "UnapprovedAnnotation",
                r#"not approved: "unapproved, \"yet\"""#,
                0,
            ),
            ("https://x.io/1#a", true, "ApprovedAnnotation", "approved in https://x.io/1#a", 0),
            ("https://x#a", false, "InvalidAnnotation", invalid, 1),
            ("/here", false, "InvalidAnnotation", invalid, 1),
            ("nobody", false, "InvalidAnnotation", invalid, 1),
        ] {
            for group in ["k8s.io", "a.k8s.io", "kubernetes.io", "a.b.kubernetes.io"] {
                let definition = definition(group, annotation);
                assert_eq!(condition(&definition), Some((holds, reason, message.to_owned())));
                assert_eq!(validate(&definition, None).len(), errors, "{annotation}");
                assert!(validate(&definition, Some(&definition)).is_empty());
            }
            for group in ["a.x-k8s.io", "example.com", "mykubernetes.io"] {
                assert_eq!(condition(&definition(group, annotation)), None, "{group}");
                assert!(validate(&definition(group, annotation), None).is_empty());
            }
        }
        let (before, after) = (definition("k8s.io", "nobody"), definition("k8s.io", "somebody"));
        assert!(validate(&after, Some(&before)).is_empty(), "as invalid as before");
        assert_eq!(validate(&definition("k8s.io", ""), Some(&before)).len(), 1);
    }
}
