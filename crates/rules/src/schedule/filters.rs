//! May a pod go to a node? The filters in the order of Kubernetes; the first that objects gives the reason.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, Taint};

use super::affinity::Neighbours;
use super::message::Reason;
use super::read::Pod;
use super::snapshot::{Node, Snapshot};
use super::spread::Spread;
use crate::quota::affinity::{describes, tolerates};

/// The filters for one pod, with what they have to know of the whole cluster.
pub(super) struct Filters<'a> {
    pod: &'a Pod,
    /// The only nodes that are asked, if the pod names some.
    named: Option<BTreeSet<&'a str>>,
    neighbours: Neighbours<'a>,
    spread: Spread<'a>,
}

impl<'a> Filters<'a> {
    pub(super) fn prepare(snapshot: &'a Snapshot, pod: &'a Pod) -> Self {
        Filters {
            pod,
            named: named_nodes(pod),
            neighbours: Neighbours::prepare(snapshot, pod, None),
            spread: Spread::prepare(snapshot, pod, None),
        }
    }

    /// The same as if some pods were not on one node.
    pub(super) fn prepare_with(snapshot: &'a Snapshot, pod: &'a Pod, node: &'a Node) -> Self {
        Filters {
            pod,
            named: named_nodes(pod),
            neighbours: Neighbours::prepare(snapshot, pod, Some(node)),
            spread: Spread::prepare(snapshot, pod, Some(node)),
        }
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Reason> {
        let pod = self.pod;
        if self.named.as_ref().is_some_and(|named| !named.contains(node.name())) {
            return Err(Reason::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]"));
        }
        if node.unschedulable && !pod.tolerations.iter().any(|it| tolerates(it, &unschedulable_taint())) {
            return Err(Reason::unresolvable("node(s) were unschedulable"));
        }
        if pod.node.as_ref().is_some_and(|name| name != node.name()) {
            return Err(Reason::unresolvable("node(s) didn't match the requested node name"));
        }
        if keeps_out(node, pod) {
            return Err(Reason::unresolvable("node(s) had untolerated taint(s)"));
        }
        if !wants(pod, node) {
            return Err(Reason::unresolvable("node(s) didn't match Pod's node affinity/selector"));
        }
        self.ports(node)?;
        self.resources(node)?;
        self.spread.check(node)?;
        self.neighbours.check(node)
    }

    fn ports(&self, node: &Node) -> Result<(), Reason> {
        let clash = |(protocol, port, address): &(String, i32, String)| {
            let same = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
            let mut taken = self.others(node).flat_map(|pod| &pod.ports);
            taken.any(|(p, n, ip)| p == protocol && n == port && same(ip, address))
        };
        if self.pod.ports.iter().any(clash) {
            return Err(Reason::resolvable("node(s) didn't have free ports for the requested pod ports"));
        }
        Ok(())
    }

    fn resources(&self, node: &Node) -> Result<(), Reason> {
        let mut texts = Vec::new();
        let mut resolvable = true;
        let promised = self.promised(node).count();
        let pods = i64::try_from(node.pods.len() + promised).unwrap_or(i64::MAX);
        if pods + 1 > node.most_pods {
            texts.push("Too many pods".to_owned());
        }
        let missing = if promised == 0 {
            self.pod.requests.missing(&node.allocatable, &node.used)
        } else {
            let mut used = node.used.clone();
            self.promised(node).for_each(|pod| used.add(&pod.requests));
            self.pod.requests.missing(&node.allocatable, &used)
        };
        for (name, never) in missing {
            texts.push(format!("Insufficient {name}"));
            resolvable &= !never;
        }
        if texts.is_empty() { Ok(()) } else { Err(Reason { texts, resolvable }) }
    }

    /// The pods of a node, and those that it is promised to and that count before this one.
    fn others<'b>(&'b self, node: &'b Node) -> impl Iterator<Item = &'b Pod> {
        node.pods.values().chain(self.promised(node))
    }

    fn promised<'b>(&'b self, node: &'b Node) -> impl Iterator<Item = &'b Pod> {
        let counts = |pod: &&Pod| pod.uid != self.pod.uid && pod.priority >= self.pod.priority;
        node.promised.values().filter(counts)
    }
}

fn unschedulable_taint() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}

/// Whether a node's taints keep a pod out.
pub(super) fn keeps_out(node: &Node, pod: &Pod) -> bool {
    let hard = node.taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.into_iter().any(|taint| !pod.tolerations.iter().any(|it| tolerates(it, taint)))
}

/// Whether a node is one that a pod asks for.
pub(super) fn wants(pod: &Pod, node: &Node) -> bool {
    let selected = pod.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    selected
        && pod.required_nodes.as_ref().is_none_or(|terms| terms.iter().any(|term| term_matches(term, node)))
}

/// The nodes that a pod's affinity names, if every term names some. None is left if terms contradict themselves.
pub(super) fn named_nodes(pod: &Pod) -> Option<BTreeSet<&str>> {
    let terms = pod.required_nodes.as_deref().filter(|terms| !terms.is_empty())?;
    let all: Option<Vec<BTreeSet<&str>>> = terms.iter().map(named_by).collect();
    Some(all?.into_iter().flatten().collect())
}

fn named_by(term: &NodeSelectorTerm) -> Option<BTreeSet<&str>> {
    let fields = term.match_fields.iter().flatten();
    let names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    let sets = names.map(|field| field.values.iter().flatten().map(String::as_str).collect());
    sets.reduce(|one: BTreeSet<&str>, other| one.intersection(&other).copied().collect())
}

/// Whether a node is what a term describes. An empty term describes none.
pub(super) fn term_matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    describes(term, node.name(), &node.labels)
}
