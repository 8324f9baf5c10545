//! Where on a cluster's nodes pods would find room: pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use rules::field::Path;
use rules::quota::requests::{Accounting, PodResources, count};
use types::{Amount, Quantity};

/// The largest hole: a node, what is free on it, and how many of the pods that are meant would fit into that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) node: String,
    pub(super) free: BTreeMap<String, Amount>,
    pub(super) pods: i64,
}

/// The node on which most of such pods find room. Only free requests are looked at; what else keeps pods away is the
/// scheduler's to say.
pub(super) fn largest(nodes: &[Node], pods: &[Pod], pod: &BTreeMap<String, Amount>) -> Option<Hole> {
    let holes = nodes.iter().filter(|node| is_open(node)).map(|node| {
        let free = free(node, pods, pod.keys());
        let fits = pod.iter().filter(|(_, asked)| asked.units() > 0);
        let fits =
            fits.map(|(resource, asked)| free.get(resource).map_or(0, |free| free.units() / asked.units()));
        Hole {
            node: node.metadata.name.clone().unwrap_or_default(),
            pods: fits.min().unwrap_or(i64::MAX),
            free,
        }
    });
    holes.max_by(|one, other| (one.pods, &one.free, &other.node).cmp(&(other.pods, &other.free, &one.node)))
}

/// Whether a node takes pods.
fn is_open(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    !cordoned && ready.all(|condition| condition.status == "True")
}

fn free<'a>(
    node: &Node,
    pods: &[Pod],
    resources: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, Amount> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
    let here = pods.iter().filter(|pod| is_on(pod, node));
    let mut used: BTreeMap<String, Amount> = BTreeMap::new();
    for pod in here {
        let resources = PodResources::read(&pod.spec.clone().unwrap_or_default(), &Path::new("spec"));
        let Ok(resources) = resources else { continue };
        for (resource, amount) in count(&resources.total(), &Accounting::default()) {
            *used.entry(resource.to_string()).or_insert(Amount::ZERO) += amount;
        }
    }
    let of = |resource: &String| {
        let there = allocatable.get(resource).and_then(|quantity| Quantity::try_from(quantity).ok());
        let there = there.map_or(Amount::ZERO, |quantity| Amount::from_quantity(resource, &quantity));
        let used = used.get(resource).copied().unwrap_or(Amount::ZERO);
        (resource.clone(), (there - used).or_zero())
    };
    resources.map(of).collect()
}

fn is_on(pod: &Pod, node: &Node) -> bool {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    on.is_some() && on == node.metadata.name.as_ref() && !matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, cpu: &str, ready: &str) -> Node {
        let conditions = json!([{ "type": "Ready", "status": ready }]);
        let status = json!({ "allocatable": { "cpu": cpu, "memory": "8Gi" }, "conditions": conditions });
        serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).expect("a node")
    }

    fn pod(node: &str, cpu: &str, phase: &str) -> Pod {
        let containers = json!([{ "name": "c", "resources": { "requests": { "cpu": cpu } } }]);
        let spec = json!({ "nodeName": node, "containers": containers });
        serde_json::from_value(json!({ "metadata": {}, "spec": spec, "status": { "phase": phase } }))
            .expect("a pod")
    }

    #[test]
    fn the_node_with_room_for_most_pods() {
        let nodes = [node("a", "4", "True"), node("b", "8", "True"), node("c", "64", "False")];
        let pods = [pod("b", "6", "Running"), pod("b", "2", "Succeeded"), pod("a", "500m", "Pending")];
        let asked = BTreeMap::from([("cpu".to_owned(), Amount::new(1000))]);
        let hole = largest(&nodes, &pods, &asked).expect("a node");
        assert_eq!((hole.node.as_str(), hole.pods, hole.free["cpu"]), ("a", 3, Amount::new(3500)));
        let asked = BTreeMap::from([("example.com/gpu".to_owned(), Amount::new(1))]);
        assert_eq!(largest(&nodes, &pods, &asked).map(|hole| hole.pods), Some(0));
        assert_eq!(largest(&[], &pods, &asked), None);
    }
}
