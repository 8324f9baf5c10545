//! SelfSubjectRulesReview: everything that whoever asks may do in a namespace.

use serde_json::{Value, json};

use crate::cluster::Context;
use crate::object;
use crate::status::Refusal;

/// A review that can be answered.
pub(super) fn accepted(review: Value) -> Result<Value, Refusal> {
    if object::text(&review, &["spec", "namespace"]).is_empty() {
        return Err(Refusal::bad_request("no namespace on request"));
    }
    Ok(review)
}

pub(super) fn answered(context: &Context<'_>, review: &Value) -> Value {
    let namespace = object::text(review, &["spec", "namespace"]);
    let (rules, error) = context.cluster.authorizer().rules_for(context.user, namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in &rules {
        if !rule.resources.is_empty() {
            resources.push(json!({
                "verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources,
                "resourceNames": rule.resource_names,
            }));
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if let Some(error) = error {
        status["evaluationError"] = json!(error);
    }
    json!({"status": status})
}
