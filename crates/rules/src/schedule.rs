//! Which node a pod goes to, or why it goes nowhere, as Kubernetes' scheduler decides it (4.9).
//!
//! A [`Snapshot`] is everything a decision depends on, kept up to date as nodes and pods change; a pod is read once into
//! a [`Pod`]. [`decide`] runs the filters over the nodes, each with the reason that Kubernetes gives, and scores those
//! that are left; [`preempt`] looks for pods of lower priority whose end would make room.
//!
//! It departs from Kubernetes in what nobody can rely on: among equal nodes it takes the next in line instead of
//! tossing a coin, so that the same snapshot gives the same placement. Volumes and images are not looked at.

mod affinity;
mod filters;
mod message;
pub mod preempt;
mod read;
mod resources;
mod score;
mod snapshot;
mod spread;
#[cfg(test)]
mod tests;
mod waiting;

pub use self::message::{Failure, NO_NODES};
pub use self::read::Pod;
pub(crate) use self::read::ports as host_ports;
pub use self::resources::Resources;
pub use self::snapshot::Snapshot;
pub use self::waiting::Waiting;

use self::filters::Filters;
use self::message::Reasons;

/// The scheduler whose pods these are, unless a pod says otherwise.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Where a pod goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: String,
    /// How many nodes were looked at.
    pub evaluated: usize,
}

/// In clusters of more nodes than this, not all of them are looked at.
const FEW_NODES: usize = 100;

/// Decides where a pod goes. `start` says at which node to begin, so that a large cluster is filled evenly: pass on the
/// sum of what earlier decisions evaluated.
pub fn decide(snapshot: &Snapshot, pod: &Pod, start: usize) -> Result<Placement, Failure> {
    let count = snapshot.len();
    let mut reasons = Reasons::new(count);
    if count == 0 {
        return Err(Failure::new(reasons));
    }
    if filters::named_nodes(pod).is_some_and(|named| named.is_empty()) {
        return Err(Failure::new(Reasons::everywhere(count, "pod affinity terms conflict")));
    }
    let filters = Filters::prepare(snapshot, pod);
    // A node that was made free for this pod comes first.
    if let Some(nominated) = &pod.nominated_node
        && let Some(node) = snapshot.node(nominated)
        && filters.check(node).is_ok()
    {
        return Ok(Placement { node: nominated.clone(), evaluated: 1 });
    }
    let enough = enough_nodes(count);
    let mut feasible = Vec::new();
    let mut evaluated = 0;
    for node in snapshot.from(start % count) {
        evaluated += 1;
        match filters.check(node) {
            Ok(()) => feasible.push(node),
            Err(reason) => reasons.add(node.name(), reason),
        }
        if feasible.len() >= enough {
            break;
        }
    }
    match score::best(snapshot, pod, &feasible) {
        Some(node) => Ok(Placement { node: node.name().to_owned(), evaluated }),
        None => Err(Failure::new(reasons)),
    }
}

/// So many nodes that a pod fits on are compared.
fn enough_nodes(count: usize) -> usize {
    if count <= FEW_NODES {
        return count;
    }
    let percentage = 50_usize.saturating_sub(count / 125).max(5);
    (count * percentage / 100).max(FEW_NODES)
}
