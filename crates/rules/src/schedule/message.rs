//! Why a pod goes nowhere, in the words of Kubernetes.

use std::collections::BTreeMap;
use std::fmt;

/// What is said when there is no node at all.
pub const NO_NODES: &str = "no nodes available to schedule pods";

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) texts: Vec<String>,
    /// Whether it may help that other pods of the node end.
    pub(super) resolvable: bool,
}

impl Reason {
    pub(super) fn resolvable(text: &str) -> Self {
        Reason { texts: vec![text.to_owned()], resolvable: true }
    }

    pub(super) fn unresolvable(text: &str) -> Self {
        Reason { texts: vec![text.to_owned()], resolvable: false }
    }
}

/// The reasons of all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reasons {
    nodes: usize,
    by_node: BTreeMap<String, Reason>,
    /// What keeps the pod from every node, before any is looked at.
    everywhere: Option<&'static str>,
}

impl Reasons {
    pub(super) fn new(nodes: usize) -> Self {
        Reasons { nodes, by_node: BTreeMap::new(), everywhere: None }
    }

    pub(super) fn everywhere(nodes: usize, text: &'static str) -> Self {
        Reasons { everywhere: Some(text), ..Reasons::new(nodes) }
    }

    pub(super) fn add(&mut self, node: &str, reason: Reason) {
        self.by_node.insert(node.to_owned(), reason);
    }
}

/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).`
impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for text in self.by_node.values().flat_map(|reason| &reason.texts) {
            *counts.entry(text).or_default() += 1;
        }
        let mut lines: Vec<String> = counts.iter().map(|(text, count)| format!("{count} {text}")).collect();
        lines.sort();
        lines.extend(self.everywhere.map(str::to_owned));
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if !lines.is_empty() {
            write!(f, " {}.", lines.join(", "))?;
        }
        Ok(())
    }
}

/// Why a pod goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    reasons: Reasons,
    /// What was said about making room.
    preemption: Option<String>,
}

impl Failure {
    pub(super) fn new(reasons: Reasons) -> Self {
        Failure { reasons, preemption: None }
    }

    /// Adds why no room can be made.
    pub(super) fn with_preemption(&mut self, text: String) {
        self.preemption = Some(text);
    }

    /// Nodes on which it may help that pods end.
    pub(super) fn resolvable(&self) -> impl Iterator<Item = &str> {
        let resolvable = self.reasons.by_node.iter().filter(|(_, reason)| reason.resolvable);
        resolvable.map(|(name, _)| name.as_str())
    }

    pub(super) fn is_unresolvable(&self, node: &str) -> bool {
        self.reasons.everywhere.is_some()
            || self.reasons.by_node.get(node).is_some_and(|reason| !reason.resolvable)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.nodes == 0 {
            return f.write_str(NO_NODES);
        }
        write!(f, "{}", self.reasons)?;
        if let Some(preemption) = &self.preemption {
            // The plugin for resource claims speaks first, on every pod that fits nowhere.
            write!(f, " no new claims to deallocate, preemption: {preemption}")?;
        }
        Ok(())
    }
}
