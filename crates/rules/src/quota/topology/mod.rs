//! Where the pods of a Workload go, by the topology of a flavor's nodes (TA-1 to TA-8).
//!
//! [`Domains`] are the blocks, racks and hosts that labels of nodes make. [`Ground`] knows what there is in each of the
//! lowest ones and who takes it. [`search`] finds domains for pods, as Kueue finds them: the same nodes, pods and
//! Workloads give the same places. [`Placement`] is what comes of it, and [`encoding`] how it is written.

pub mod domains;
pub mod encoding;
pub mod ground;
pub mod placement;
pub mod read;
mod refusal;
pub mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use types::Amount;

pub use domains::{Domains, Node};
pub use ground::{Ground, Taken};
pub use placement::{Place, Placement};
pub use search::Pods;

use super::names::{PODS, ResourceName};

/// The label of nodes that names one node. Where it is the lowest level of a topology, domains are nodes, and what a pod
/// says about its node counts.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// How much of each resource.
pub type Resources = BTreeMap<ResourceName, Amount>;

/// What one pod takes of a node: what it asks for, and its place among the pods.
pub fn with_pod(requests: &Resources) -> Resources {
    let mut all = requests.clone();
    *all.entry(ResourceName::from(PODS)).or_default() += Amount::new(1);
    all
}

/// What so many of them take.
fn times(each: &Resources, count: u32) -> Resources {
    each.iter().map(|(name, amount)| (name.clone(), amount.times(count.into()))).collect()
}

fn add(into: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        *into.entry(name.clone()).or_default() += *amount;
    }
}

fn subtract(from: &mut Resources, less: &Resources) {
    for (name, amount) in less {
        *from.entry(name.clone()).or_default() -= *amount;
    }
}
