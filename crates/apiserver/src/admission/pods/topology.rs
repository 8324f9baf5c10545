//! A pod is labelled with where its node is (3.14), when it is bound or made on a node.

use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use store::Store;

use super::find;
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::registry::Resource;
use crate::status::Refusal;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// Copies labels of nodes to bindings, which give them to their pods, and to pods that are made where they run.
pub(in crate::admission) struct TopologyLabels(pub(in crate::admission) Store);

impl Plugin for TopologyLabels {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        operation == Operation::Create
            && (resource.group.as_str(), resource.plural.as_str()) == ("", "pods")
            && matches!(subresource, "" | "binding")
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let is_binding = request.subresource == "binding";
        if let Some(object) = &mut request.object
            && let Some(name) = node_of(object, is_binding)
            && let Some(node) = find(&self.0, "", "nodes", "", name)
        {
            copy(object, &node);
        }
        Box::pin(ready(Ok(())))
    }
}

/// The node that a pod is to run on.
fn node_of(object: &Value, is_binding: bool) -> Option<&str> {
    let name = if is_binding {
        object["target"]["name"].as_str().filter(|_| object["target"]["kind"] == "Node")
    } else {
        object["spec"]["nodeName"].as_str()
    };
    name.filter(|name| !name.is_empty())
}

fn copy(object: &mut Value, node: &Value) {
    for label in LABELS {
        if let Some(value) = node["metadata"]["labels"][label].as_str() {
            object["metadata"]["labels"][label] = json!(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_3_14_pods_are_labelled_with_where_their_node_is() {
        let node = json!({"metadata": {"labels": {LABELS[0]: "z", "other": "o"}}});
        let mut pod = json!({"metadata": {"labels": {LABELS[0]: "said", "own": "l"}}});
        copy(&mut pod, &node);
        assert_eq!(pod["metadata"]["labels"], json!({LABELS[0]: "z", "own": "l"}));
        let mut bare = json!({"metadata": {}});
        copy(&mut bare, &json!({"metadata": {}}));
        assert_eq!(bare, json!({"metadata": {}}));
        assert_eq!(node_of(&json!({"target": {"kind": "Node", "name": "n"}}), true), Some("n"));
        assert_eq!(node_of(&json!({"target": {"name": "n"}}), true), None);
        assert_eq!(node_of(&json!({"spec": {"nodeName": "n"}}), false), Some("n"));
        assert_eq!(node_of(&json!({"spec": {"nodeName": ""}}), false), None);
    }
}
