//! What the cluster looks like to the scheduler: nodes, the pods on them, and those that are promised a node.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{self as core, Taint};

use super::read::Pod;
use super::resources::Resources;

/// A node and what is on it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) allocatable: Resources,
    pub(super) most_pods: i64,
    pub(super) used: Resources,
    /// CPU and memory that its pods are taken to need.
    pub(super) used_for_score: (i64, i64),
    pub(super) pods: BTreeMap<String, Pod>,
    /// Pods that others were made to leave it for.
    pub(super) promised: BTreeMap<String, Pod>,
}

impl Node {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn add(&mut self, pod: Pod) {
        self.used.add(&pod.requests);
        self.used_for_score.0 += pod.for_score.0;
        self.used_for_score.1 += pod.for_score.1;
        self.pods.insert(pod.uid.clone(), pod);
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Pod> {
        let pod = self.pods.remove(uid)?;
        self.used.subtract(&pod.requests);
        self.used_for_score.0 -= pod.for_score.0;
        self.used_for_score.1 -= pod.for_score.1;
        Some(pod)
    }
}

/// Everything that a decision depends on.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Nodes by name, and pods on nodes that nobody knows yet.
    nodes: BTreeMap<String, Node>,
    order: Vec<String>,
    homeless: BTreeMap<String, BTreeMap<String, Pod>>,
    /// Where each placed pod is, by uid.
    places: BTreeMap<String, String>,
    /// Where each promised pod is to go, by uid.
    promises: BTreeMap<String, String>,
    /// Placed pods that keep others away.
    keep_apart: BTreeSet<String>,
    /// Placed pods that draw others near, or push them away, if there is a choice.
    opinionated: BTreeSet<String>,
    /// Labels of namespaces, for terms that select by them.
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Snapshot {
    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Takes in a node as it is. Returns whether that can make room for anybody.
    pub fn set_node(&mut self, node: &core::Node) -> bool {
        let name = node.metadata.name.clone().unwrap_or_default();
        let spec = node.spec.clone().unwrap_or_default();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let (allocatable, most_pods) = Resources::of_node(allocatable);
        let taints = spec.taints.unwrap_or_default();
        let unschedulable = spec.unschedulable.unwrap_or(false);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        if let Some(known) = self.nodes.get_mut(&name) {
            let changed = known.labels != labels
                || known.taints != taints
                || known.unschedulable != unschedulable
                || known.allocatable != allocatable
                || known.most_pods != most_pods;
            (known.labels, known.taints, known.unschedulable) = (labels, taints, unschedulable);
            (known.allocatable, known.most_pods) = (allocatable, most_pods);
            return changed;
        }
        let mut new = Node {
            name: name.clone(),
            labels,
            taints,
            unschedulable,
            allocatable,
            most_pods,
            used: Resources::default(),
            used_for_score: (0, 0),
            pods: BTreeMap::new(),
            promised: BTreeMap::new(),
        };
        for pod in self.homeless.remove(&name).unwrap_or_default().into_values() {
            new.add(pod);
        }
        self.nodes.insert(name.clone(), new);
        if let Err(place) = self.order.binary_search(&name) {
            self.order.insert(place, name);
        }
        true
    }

    /// Forgets a node. Its pods stay known, should it come back. Returns whether that can make room for anybody: pods are
    /// spread over what there is, and kept from where others are.
    pub fn remove_node(&mut self, name: &str) -> bool {
        self.order.retain(|known| known != name);
        let Some(node) = self.nodes.remove(name) else { return false };
        self.homeless.insert(name.to_owned(), node.pods);
        self.promises.retain(|_, promised| promised != name);
        true
    }

    /// Takes in the labels of a namespace. Returns whether that can make room for anybody: other pods are near, or far.
    pub fn set_namespace(&mut self, name: &str, labels: BTreeMap<String, String>) -> bool {
        let old = self.namespaces.insert(name.to_owned(), labels);
        old.as_ref() != self.namespaces.get(name)
    }

    /// Forgets a namespace. Returns whether it was known.
    pub fn remove_namespace(&mut self, name: &str) -> bool {
        self.namespaces.remove(name).is_some()
    }

    pub(super) fn namespace(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(name)
    }

    /// Takes in a pod that is on a node, or was given one.
    pub fn place(&mut self, pod: Pod, node: &str) {
        self.remove(&pod.uid);
        self.places.insert(pod.uid.clone(), node.to_owned());
        if !pod.apart.is_empty() {
            self.keep_apart.insert(pod.uid.clone());
        }
        if !(pod.rather_near.is_empty() && pod.rather_apart.is_empty() && pod.near.is_empty()) {
            self.opinionated.insert(pod.uid.clone());
        }
        match self.nodes.get_mut(node) {
            Some(known) => known.add(pod),
            None => drop(self.homeless.entry(node.to_owned()).or_default().insert(pod.uid.clone(), pod)),
        }
    }

    /// Takes out a pod, wherever it is. Returns whether it was on a node.
    pub fn remove(&mut self, uid: &str) -> bool {
        self.break_promise(uid);
        let Some(node) = self.places.remove(uid) else { return false };
        self.keep_apart.remove(uid);
        self.opinionated.remove(uid);
        if let Some(known) = self.nodes.get_mut(&node) {
            known.remove(uid);
        } else if let Some(pods) = self.homeless.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.homeless.remove(&node);
            }
        }
        true
    }

    /// A placed pod by its uid.
    pub fn placed(&self, uid: &str) -> Option<&Pod> {
        self.nodes.get(self.places.get(uid)?)?.pods.get(uid)
    }

    /// Keeps room for a pod on a node that others were made to leave.
    pub fn promise(&mut self, pod: Pod, node: &str) {
        self.break_promise(&pod.uid);
        if let Some(known) = self.nodes.get_mut(node) {
            self.promises.insert(pod.uid.clone(), node.to_owned());
            known.promised.insert(pod.uid.clone(), pod);
        }
    }

    /// Keeps no room for a pod any more.
    pub fn break_promise(&mut self, uid: &str) {
        if let Some(node) = self.promises.remove(uid)
            && let Some(known) = self.nodes.get_mut(&node)
        {
            known.promised.remove(uid);
        }
    }

    /// Whether some placed pod keeps others away, by their labels.
    pub fn keeps_apart(&self) -> bool {
        !self.keep_apart.is_empty()
    }

    pub(super) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// All nodes, by name.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// All nodes, from one on and around.
    pub(super) fn from(&self, start: usize) -> impl Iterator<Item = &Node> {
        let (before, after) = self.order.split_at(start.min(self.order.len()));
        after.iter().chain(before).filter_map(|name| self.nodes.get(name))
    }

    /// All placed pods with their nodes.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&Pod, &Node)> {
        self.nodes.values().flat_map(|node| node.pods.values().map(move |pod| (pod, node)))
    }

    /// Placed pods that keep others away, with their nodes.
    pub(super) fn keeping_apart(&self) -> impl Iterator<Item = (&Pod, &Node)> {
        self.keep_apart.iter().filter_map(|uid| self.with_node(uid))
    }

    /// Placed pods that have an opinion on their neighbours, with their nodes.
    pub(super) fn opinionated(&self) -> impl Iterator<Item = (&Pod, &Node)> {
        self.opinionated.iter().filter_map(|uid| self.with_node(uid))
    }

    fn with_node(&self, uid: &str) -> Option<(&Pod, &Node)> {
        let node = self.nodes.get(self.places.get(uid)?)?;
        Some((node.pods.get(uid)?, node))
    }
}
