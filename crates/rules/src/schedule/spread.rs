//! Pods that are to be spread evenly over the parts of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::affinity::pods;
use super::filters::{keeps_out, wants};
use super::message::Reason;
use super::read::Pod;
use super::snapshot::{Node, Snapshot};
use crate::meta::selector;

/// The constraints of a pod, and how its like is spread now.
pub(super) struct Spread<'a> {
    constraints: Vec<Counted<'a>>,
}

/// One constraint and the pods in each domain.
struct Counted<'a> {
    key: &'a str,
    most_skew: i64,
    /// One more pod of this kind comes with the pod itself.
    itself: i64,
    domains: BTreeMap<&'a str, i64>,
    least: i64,
}

impl<'a> Spread<'a> {
    /// `instead` stands for the node of its name.
    pub(super) fn prepare(snapshot: &'a Snapshot, pod: &'a Pod, instead: Option<&'a Node>) -> Self {
        let hard: Vec<&TopologySpreadConstraint> =
            pod.spread.iter().filter(|it| it.when_unsatisfiable == "DoNotSchedule").collect();
        let mut constraints = Vec::new();
        for constraint in &hard {
            let wanted = selector_of(constraint, pod);
            let mut domains: BTreeMap<&str, i64> = BTreeMap::new();
            let eligible = |node: &Node| {
                hard.iter().all(|other| node.labels.contains_key(&other.topology_key))
                    && counts_node(constraint, pod, node)
            };
            for node in snapshot.nodes().filter(|node| eligible(node)) {
                if let Some(value) = node.labels.get(&constraint.topology_key) {
                    domains.entry(value).or_default();
                }
            }
            for (other, node) in pods(snapshot, instead) {
                let same = other.namespace == pod.namespace && !other.deleting && eligible(node);
                if same
                    && selector::matches(Some(&wanted), &other.labels) == Some(true)
                    && let Some(value) = node.labels.get(&constraint.topology_key)
                {
                    *domains.entry(value).or_default() += 1;
                }
            }
            let few = constraint
                .min_domains
                .is_some_and(|least| domains.len() < usize::try_from(least).unwrap_or(0));
            constraints.push(Counted {
                key: &constraint.topology_key,
                most_skew: constraint.max_skew.into(),
                itself: i64::from(selector::matches(Some(&wanted), &pod.labels) == Some(true)),
                least: if few { 0 } else { domains.values().copied().min().unwrap_or(0) },
                domains,
            });
        }
        Spread { constraints }
    }

    pub(super) fn check(&self, node: &Node) -> Result<(), Reason> {
        const SKEWED: &str = "node(s) didn't match pod topology spread constraints";
        for constraint in &self.constraints {
            let Some(value) = node.labels.get(constraint.key) else {
                return Err(Reason::unresolvable(&format!("{SKEWED} (missing required label)")));
            };
            let there = constraint.domains.get(value.as_str()).copied().unwrap_or(0);
            if there + constraint.itself - constraint.least > constraint.most_skew {
                return Err(Reason::resolvable(SKEWED));
            }
        }
        Ok(())
    }
}

/// How many pods like this one each domain has, for constraints that are only wishes: one map for each of them.
pub(super) fn wishes<'a>(snapshot: &'a Snapshot, pod: &'a Pod) -> Vec<(&'a str, BTreeMap<&'a str, i64>)> {
    let soft = pod.spread.iter().filter(|it| it.when_unsatisfiable != "DoNotSchedule");
    let counted = soft.map(|constraint| {
        let wanted = selector_of(constraint, pod);
        let mut domains: BTreeMap<&str, i64> = BTreeMap::new();
        for (other, node) in snapshot.pods() {
            if other.namespace == pod.namespace
                && !other.deleting
                && counts_node(constraint, pod, node)
                && selector::matches(Some(&wanted), &other.labels) == Some(true)
                && let Some(value) = node.labels.get(&constraint.topology_key)
            {
                *domains.entry(value).or_default() += 1;
            }
        }
        (constraint.topology_key.as_str(), domains)
    });
    counted.collect()
}

/// Whether a node counts: by default its taints do not matter, and what the pod asks of nodes does.
fn counts_node(constraint: &TopologySpreadConstraint, pod: &Pod, node: &Node) -> bool {
    let by_affinity = constraint.node_affinity_policy.as_deref() != Some("Ignore");
    let by_taints = constraint.node_taints_policy.as_deref() == Some("Honor");
    (!by_affinity || wants(pod, node)) && (!by_taints || !keeps_out(node, pod))
}

/// The selector of a constraint, with the pod's own values for `matchLabelKeys`.
fn selector_of(
    constraint: &TopologySpreadConstraint,
    pod: &Pod,
) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector {
    let mut wanted = constraint.label_selector.clone().unwrap_or_default();
    for key in constraint.match_label_keys.iter().flatten() {
        if let Some(value) = pod.labels.get(key) {
            wanted.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: Some(vec![value.clone()]),
            });
        }
    }
    if constraint.label_selector.is_none() && wanted.match_expressions.is_none() {
        // No selector is about nobody.
        wanted.match_expressions = Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/nobody".to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]);
    }
    wanted
}
