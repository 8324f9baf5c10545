//! SelfSubjectRulesReview: everything that whoever asks may do in a namespace.

use serde_json::{Value, json};

use crate::cluster::Context;
use crate::object;
use crate::status::Refusal;

pub(super) fn review(context: &Context<'_>, review: &Value) -> Result<Value, Refusal> {
    let namespace = object::text(review, &["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Refusal::bad_request("no namespace on request"));
    }
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
    Ok(json!({"status": status}))
}
