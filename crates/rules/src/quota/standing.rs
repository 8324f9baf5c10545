//! How a Cohort stands with all that is below it, as metrics show it.

use std::collections::BTreeMap;

use types::Amount;

use super::{
    names::{ClusterQueueName, CohortName, FlavorResource},
    snapshot::Snapshot,
    tree::{NodeId, NodeName, Tree},
};

/// A Cohort and everything below it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Standing {
    /// The Cohort right above it.
    pub parent: Option<String>,
    /// The topmost one.
    pub root: String,
    /// The quota of the Cohort and what those below lend it.
    pub quota: BTreeMap<FlavorResource, Amount>,
    /// What is reserved in the ClusterQueues below it.
    pub reserved: BTreeMap<FlavorResource, Amount>,
    /// Those ClusterQueues.
    pub queues: Vec<ClusterQueueName>,
}

/// How a Cohort stands, given as an object or only named; `None` if nobody knows it, or if it is its own ancestor.
pub fn cohort(snapshot: &Snapshot, name: &CohortName) -> Option<Standing> {
    let tree = snapshot.tree();
    let node = tree.cohort(name).filter(|&node| !tree.is_cyclic(node))?;
    let mut standing = Standing {
        parent: tree.parent(node).map(|parent| cohort_name(tree, parent)),
        root: cohort_name(tree, tree.root(node)),
        ..Standing::default()
    };
    for (fr, cell) in tree.listed(node) {
        standing.quota.insert(tree.flavor_resource(fr).clone(), tree.subtree(cell));
    }
    for queue in snapshot.queues().filter(|queue| tree.ancestors(queue.node).any(|above| above == node)) {
        standing.queues.push(queue.config.name.clone());
        for used in queue.running().flat_map(|running| &running.uses) {
            *standing.reserved.entry(tree.flavor_resource(used.fr).clone()).or_default() += used.amount;
        }
    }
    Some(standing)
}

/// The Cohorts above a ClusterQueue, from the nearest to the topmost.
pub fn above(snapshot: &Snapshot, name: &ClusterQueueName) -> Vec<String> {
    let tree = snapshot.tree();
    let ancestors = tree.queue(name).into_iter().flat_map(|node| tree.ancestors(node));
    ancestors.map(|node| cohort_name(tree, node)).collect()
}

fn cohort_name(tree: &Tree, node: NodeId) -> String {
    match tree.name(node) {
        NodeName::Cohort(name) => name.to_string(),
        NodeName::ClusterQueue(name) => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{
        config::Config,
        tests::scenario::{amount, cohort as given, queue, quota},
    };

    /// CO-2, CO-3, CO-4: a Cohort shows its own quota and what is lent to it, one that is only named shows what it is lent,
    /// and one that is its own ancestor nothing.
    #[test]
    fn cohorts_show_what_is_below_them() {
        let config = Config {
            cohorts: vec![
                given("team", Some("company"), quota(3)),
                given("a", Some("b"), quota(1)),
                given("b", Some("a"), quota(1)),
            ],
            cluster_queues: vec![
                queue("one", quota(4).lend(1)).part_of("team"),
                queue("two", quota(2)).part_of("company"),
            ],
            ..Config::default()
        };
        let snapshot = Snapshot::new(config);
        let of = |name: &str| cohort(&snapshot, &name.into());
        let cpu =
            |of: &BTreeMap<FlavorResource, Amount>| of.get(&FlavorResource::new("default", "cpu")).copied();
        let team = of("team").expect("it is known");
        assert_eq!((team.parent.as_deref(), team.root.as_str()), (Some("company"), "company"));
        assert_eq!(cpu(&team.quota), Some(amount("cpu", 4)), "its own 3, and 1 that is lent to it");
        let company = of("company").expect("it is named");
        assert_eq!((company.parent, company.root.as_str()), (None, "company"));
        assert_eq!(cpu(&company.quota), Some(amount("cpu", 6)));
        assert_eq!(company.queues, [ClusterQueueName::from("one"), "two".into()]);
        assert_eq!(cpu(&company.reserved), None);
        assert_eq!((of("a"), of("nobody")), (None, None));
        assert_eq!(above(&snapshot, &"one".into()), ["team", "company"]);
    }
}
