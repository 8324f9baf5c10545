//! A pod stays for a while on a node that is not ready or cannot be reached (3.5).

use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};

use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds the two tolerations to pods that do not say otherwise.
pub(in crate::admission) struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && (resource.group.as_str(), resource.plural.as_str(), subresource) == ("", "pods", "")
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        if let Some(pod) = &mut request.object {
            add(pod);
        }
        Box::pin(ready(Ok(())))
    }
}

fn add(pod: &mut Value) {
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let is_tolerated = |tolerations: &[Value], taint: &str| {
        tolerations.iter().any(|toleration| {
            let (key, effect) = (object::text(toleration, &["key"]), object::text(toleration, &["effect"]));
            (key == taint || key.is_empty()) && matches!(effect, "NoExecute" | "")
        })
    };
    let before = tolerations.clone();
    for taint in TAINTS.into_iter().filter(|taint| !is_tolerated(&before, taint)) {
        tolerations.push(json!({
            "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
        }));
    }
    if tolerations.len() > before.len() {
        pod["spec"]["tolerations"] = json!(tolerations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_3_5_tolerations() {
        let keys = |tolerations: Value| {
            let mut pod = json!({"spec": {"tolerations": tolerations}});
            add(&mut pod);
            let list = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
            list.iter().map(|one| object::text(one, &["key"]).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(keys(json!(null)), TAINTS);
        assert_eq!(keys(json!([{"operator": "Exists"}])), [""]);
        assert_eq!(keys(json!([{"key": TAINTS[1], "effect": "NoExecute"}])), [TAINTS[1], TAINTS[0]]);
        assert_eq!(keys(json!([{"key": TAINTS[0], "effect": "NoSchedule"}])).len(), 3);
    }
}
