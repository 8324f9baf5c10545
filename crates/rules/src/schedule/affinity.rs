//! Pods that are to be near each other, or apart.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodAffinityTerm;

use super::message::Reason;
use super::read::Pod;
use super::snapshot::{Node, Snapshot};
use crate::meta::selector;

/// How many pods there are in each domain: by topology key and value.
pub(super) type Domains<'a> = BTreeMap<(&'a str, &'a str), i64>;

/// What the neighbours of a pod have to say about where it goes.
pub(super) struct Neighbours<'a> {
    pod: &'a Pod,
    /// Pods that it is to be near to, all of its terms at once.
    near: Domains<'a>,
    /// Pods that it is to be apart from.
    apart: Domains<'a>,
    /// Pods that are to be apart from it.
    keep_away: Domains<'a>,
    /// Nobody is there yet whom it wants to be near to, and it is like those.
    first: bool,
}

impl<'a> Neighbours<'a> {
    /// `instead` stands for the node of its name.
    pub(super) fn prepare(snapshot: &'a Snapshot, pod: &'a Pod, instead: Option<&'a Node>) -> Self {
        let (mut near, mut apart, mut keep_away) = (Domains::new(), Domains::new(), Domains::new());
        if !pod.near.is_empty() || !pod.apart.is_empty() {
            for (other, node) in pods(snapshot, instead) {
                if !pod.near.is_empty()
                    && pod.near.iter().all(|term| matches_term(snapshot, term, &pod.namespace, other))
                {
                    for term in &pod.near {
                        count(&mut near, term, node);
                    }
                }
                for term in &pod.apart {
                    if matches_term(snapshot, term, &pod.namespace, other) {
                        count(&mut apart, term, node);
                    }
                }
            }
        }
        for (other, node) in snapshot.keeping_apart() {
            // On the node that is replaced, only those that are still there.
            let node = match instead.filter(|instead| instead.name() == node.name()) {
                Some(instead) if !instead.pods.contains_key(&other.uid) => continue,
                Some(instead) => instead,
                None => node,
            };
            for term in &other.apart {
                if matches_term(snapshot, term, &other.namespace, pod) {
                    count(&mut keep_away, term, node);
                }
            }
        }
        let like_itself = pod.near.iter().all(|term| matches_term(snapshot, term, &pod.namespace, pod));
        let first = near.is_empty() && like_itself;
        Neighbours { pod, near, apart, keep_away, first }
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Reason> {
        let has = |domains: &Domains<'_>, key: &str| {
            node.labels
                .get(key)
                .is_some_and(|value| domains.get(&(key, value)).is_some_and(|count| *count > 0))
        };
        let known = |term: &PodAffinityTerm| node.labels.contains_key(&term.topology_key);
        let near = self.pod.near.iter().all(|term| has(&self.near, &term.topology_key));
        let may_be_first = self.first && self.pod.near.iter().all(known);
        if !near && !may_be_first {
            return Err(Reason::unresolvable("node(s) didn't match pod affinity rules"));
        }
        if self.pod.apart.iter().any(|term| has(&self.apart, &term.topology_key)) {
            return Err(Reason::resolvable("node(s) didn't match pod anti-affinity rules"));
        }
        let kept_away = self
            .keep_away
            .keys()
            .any(|(key, value)| node.labels.get(*key).is_some_and(|label| label == value));
        if kept_away {
            return Err(Reason::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }
}

/// All placed pods with their nodes, one node replaced by another of its name.
pub(super) fn pods<'a>(
    snapshot: &'a Snapshot,
    instead: Option<&'a Node>,
) -> impl Iterator<Item = (&'a Pod, &'a Node)> {
    let others =
        snapshot.pods().filter(move |(_, node)| instead.is_none_or(|instead| instead.name() != node.name()));
    others.chain(instead.into_iter().flat_map(|node| node.pods.values().map(move |pod| (pod, node))))
}

fn count<'a>(domains: &mut Domains<'a>, term: &'a PodAffinityTerm, node: &'a Node) {
    if let Some(value) = node.labels.get(&term.topology_key) {
        *domains.entry((&term.topology_key, value)).or_default() += 1;
    }
}

/// Whether a term of a pod of `namespace` is about another pod.
pub(super) fn matches_term(
    snapshot: &Snapshot,
    term: &PodAffinityTerm,
    namespace: &str,
    other: &Pod,
) -> bool {
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let in_namespace = match &term.namespace_selector {
        Some(wanted) => {
            let labels = snapshot.namespace(&other.namespace);
            listed.contains(&other.namespace)
                || selector::matches(Some(wanted), labels.unwrap_or(&BTreeMap::new())) == Some(true)
        }
        None if listed.is_empty() => other.namespace == namespace,
        None => listed.contains(&other.namespace),
    };
    in_namespace && selector::matches(term.label_selector.as_ref(), &other.labels) == Some(true)
}
