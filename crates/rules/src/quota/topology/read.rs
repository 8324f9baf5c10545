//! Nodes and pods, as far as placing depends on them.

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::api::resource::Quantity as Written};
use types::{Amount, Quantity};

use super::{Node, Resources, with_pod};
use crate::{
    field::Path,
    quota::{names::ResourceName, requests::List, requests::PodResources},
};

/// A node, if it is ready and takes pods.
pub fn node(node: &core::Node) -> Option<Node> {
    let status = node.status.as_ref()?;
    let closed = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    if !is_ready(node) || closed {
        return None;
    }
    Some(Node {
        name: node.metadata.name.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default(),
        capacity: status.allocatable.iter().flatten().filter_map(amount).collect(),
    })
}

/// Whether a node says that it is ready.
pub fn is_ready(node: &core::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|ready| ready.status == "True")
}

fn amount((name, written): (&String, &Written)) -> Option<(ResourceName, Amount)> {
    // What is no quantity is nothing.
    let quantity = Quantity::try_from(written).ok()?;
    Some((name.as_str().into(), Amount::used(name, &quantity)))
}

/// What a pod takes of its node, its place among the pods included.
pub fn usage(spec: &core::PodSpec) -> Resources {
    let total = PodResources::read(spec, &Path::new("spec")).map(|resources| resources.total());
    with_pod(&amounts(&total.unwrap_or_default()))
}

/// Quantities as amounts.
pub fn amounts(list: &List) -> Resources {
    list.iter().map(|(name, quantity)| (name.as_str().into(), Amount::used(name, quantity))).collect()
}

/// Whether a pod was placed by topology, by whoever says so in its annotations: what it takes is in its Workload.
pub fn is_placed(pod: &core::Pod) -> bool {
    const KEYS: [&str; 5] = [
        "podset-preferred-topology",
        "podset-required-topology",
        "podset-slice-required-topology",
        "podset-slice-required-topology-constraints",
        "podset-unconstrained-topology",
    ];
    let annotations = pod.metadata.annotations.as_ref();
    let has = |key: &str| {
        annotations.is_some_and(|annotations| annotations.contains_key(&format!("kueue.x-k8s.io/{key}")))
    };
    KEYS.iter().any(|key| has(key))
}

/// Whether a pod has ended, and takes nothing any more.
pub fn has_ended(pod: &core::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
