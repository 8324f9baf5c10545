//! What new objects are marked with before anybody acts on them: nodes that nobody has heard of yet take no pods, and
//! storage in use does not go (3.12, 3.14).

use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};

use super::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Marks new nodes and storage. The controllers that take the marks away again are those of the cluster.
pub(super) struct Marks;

impl Plugin for Marks {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        let is_marked = is_node(resource) || finalizer(resource).is_some();
        operation == Operation::Create && subresource.is_empty() && is_marked
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let resource = request.resource;
        if let Some(object) = &mut request.object {
            if is_node(resource) {
                add_taint(object);
            }
            if let Some(finalizer) = finalizer(resource) {
                add_finalizer(object, finalizer);
            }
        }
        Box::pin(ready(Ok(())))
    }
}

fn is_node(resource: &Resource) -> bool {
    (resource.group.as_str(), resource.plural.as_str()) == ("", "nodes")
}

/// What holds an object of the resource back for as long as somebody uses it.
fn finalizer(resource: &Resource) -> Option<&'static str> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "persistentvolumes") => Some("kubernetes.io/pv-protection"),
        ("", "persistentvolumeclaims") => Some("kubernetes.io/pvc-protection"),
        ("storage.k8s.io", "volumeattributesclasses") => Some("kubernetes.io/vac-protection"),
        _ => None,
    }
}

fn add_taint(node: &mut Value) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let is_ours = |taint: &Value| {
        (object::text(taint, &["key"]), object::text(taint, &["effect"])) == (NOT_READY, "NoSchedule")
    };
    if !taints.iter().any(is_ours) {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        node["spec"]["taints"] = taints.into();
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.into());
        object["metadata"]["finalizers"] = finalizers.into();
    }
}
