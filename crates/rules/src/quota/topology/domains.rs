//! The domains that labels of nodes make, from the widest to the narrowest.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use k8s_openapi::api::core::v1::Taint;

use super::{HOSTNAME, Resources, add, ground::Spot};
use crate::quota::config::Flavor;

/// A node that takes pods, as far as placing depends on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What it has for pods.
    pub capacity: Resources,
}

/// The domains of one flavor's nodes. Those of a level are numbered in the order of their labels, after those of the
/// levels above.
#[derive(Debug, Clone)]
pub struct Domains {
    levels: Vec<String>,
    all: Vec<Domain>,
    by_level: Vec<Range<usize>>,
    leaves: Vec<Leaf>,
    leaf_of_node: HashMap<String, usize>,
    leaf_of_spot: HashMap<Spot, usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Domain {
    /// Its labels, level by level.
    pub(super) values: Vec<String>,
    pub(super) children: Range<usize>,
}

/// A domain of the lowest level.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    /// The account of what is taken of it.
    pub(super) spot: Spot,
    /// What its nodes have together.
    pub(super) capacity: Resources,
    /// The node that it is, where the lowest level is nodes.
    pub(super) node: Option<Arc<Node>>,
}

impl Domains {
    /// The domains of those of `nodes` that are of the flavor and have a label for every level (TA-3).
    pub fn new(flavor: &Flavor, levels: &[String], nodes: &[Arc<Node>]) -> Domains {
        let are_nodes = levels.last().is_some_and(|level| level == HOSTNAME);
        let mut found: BTreeMap<Vec<String>, Leaf> = BTreeMap::new();
        // Two nodes that call themselves by the same host name are one domain, where the first of them is.
        let mut hosts: HashMap<String, Vec<String>> = HashMap::new();
        let mut paths: Vec<(String, Vec<String>)> = Vec::new();
        for node in nodes {
            let of_flavor = flavor.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
            let values: Option<Vec<String>> =
                levels.iter().map(|level| node.labels.get(level).cloned()).collect();
            let Some(mut values) = values.filter(|values| of_flavor && !values.is_empty()) else { continue };
            if are_nodes {
                let host = values[values.len() - 1].clone();
                values.clone_from(hosts.entry(host).or_insert(values.clone()));
            }
            let leaf = found.entry(values.clone()).or_insert_with(|| Leaf {
                spot: Spot::of(&flavor.name, levels, &values),
                capacity: Resources::new(),
                node: are_nodes.then(|| Arc::clone(node)),
            });
            add(&mut leaf.capacity, &node.capacity);
            paths.push((node.name.clone(), values));
        }
        let numbered: HashMap<&Vec<String>, usize> =
            found.keys().enumerate().map(|(index, values)| (values, index)).collect();
        let leaf_of_node = paths.into_iter().map(|(name, values)| (name, numbered[&values])).collect();
        let (all, by_level) = arrange(levels.len(), &found);
        let leaves: Vec<Leaf> = found.into_values().collect();
        let leaf_of_spot =
            leaves.iter().enumerate().map(|(index, leaf)| (leaf.spot.clone(), index)).collect();
        Domains { levels: levels.to_vec(), all, by_level, leaves, leaf_of_node, leaf_of_spot }
    }

    /// The node labels of the levels, from the widest to the narrowest.
    pub fn levels(&self) -> &[String] {
        &self.levels
    }

    /// Whether the domains of the lowest level are nodes.
    pub fn are_nodes(&self) -> bool {
        self.levels.last().is_some_and(|level| level == HOSTNAME)
    }

    /// How many domains there are, of all levels.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The level of a node label.
    pub(super) fn level(&self, label: &str) -> Option<usize> {
        self.levels.iter().position(|level| level == label)
    }

    /// The domains of a level.
    pub(super) fn at(&self, level: usize) -> Range<usize> {
        self.by_level[level].clone()
    }

    /// One of them.
    pub(super) fn get(&self, domain: usize) -> &Domain {
        &self.all[domain]
    }

    /// The domains of the lowest level, each with its number.
    pub(super) fn leaves(&self) -> impl Iterator<Item = (usize, &Leaf)> {
        let first = self.by_level.last().map_or(0, |lowest| lowest.start);
        self.leaves.iter().enumerate().map(move |(index, leaf)| (first + index, leaf))
    }

    /// Which of the domains of the lowest level a node is in, counted among those.
    pub(super) fn leaf_of(&self, node: &str) -> Option<usize> {
        self.leaf_of_node.get(node).copied()
    }

    /// Which of them has this account.
    pub(super) fn leaf_at(&self, spot: &Spot) -> Option<usize> {
        self.leaf_of_spot.get(spot).copied()
    }
}

/// All domains above `leaves`, and these.
fn arrange(depth: usize, leaves: &BTreeMap<Vec<String>, Leaf>) -> (Vec<Domain>, Vec<Range<usize>>) {
    let mut all: Vec<Domain> = Vec::new();
    let mut by_level = Vec::new();
    for level in 0..depth {
        let values: BTreeSet<&[String]> = leaves.keys().map(|values| &values[..=level]).collect();
        let start = all.len();
        all.extend(values.into_iter().map(|values| Domain { values: values.to_vec(), children: 0..0 }));
        by_level.push(start..all.len());
    }
    // Those of a level are in the order of their labels, and so are their parents: siblings are neighbours.
    for level in 1..depth {
        let mut parent = by_level[level - 1].start;
        for child in by_level[level].clone() {
            while all[child].values[..level] != all[parent].values[..] {
                parent += 1;
            }
            let children = &mut all[parent].children;
            *children =
                if children.start == children.end { child..child + 1 } else { children.start..child + 1 };
        }
    }
    (all, by_level)
}
