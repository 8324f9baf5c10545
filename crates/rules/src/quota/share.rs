//! How much of what its neighbours lend a ClusterQueue or Cohort uses: its dominant resource share.

use std::{cmp::Ordering, collections::BTreeMap};

use types::Amount;

use super::{
    names::ResourceName,
    tree::{FrId, NodeId, Tree},
};

/// The share of a node, in thousandths of all that it could borrow (FS-1).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Share {
    weight: f64,
    ratio: f64,
    dominant: Option<ResourceName>,
    borrowed: Vec<FrId>,
}

impl Share {
    /// The share of `node` as things stand in `tree`. A node without parent has none.
    pub fn of(tree: &Tree, node: NodeId) -> Share {
        let mut share = Share { weight: tree.weight(node), ratio: 0.0, dominant: None, borrowed: Vec::new() };
        let Some(parent) = tree.parent(node) else { return share };
        let mut borrowed: BTreeMap<&ResourceName, Amount> = BTreeMap::new();
        for (fr, cell) in tree.listed(node) {
            let excess = tree.usage(cell) - tree.subtree(cell);
            if excess > Amount::ZERO {
                *borrowed.entry(&tree.flavor_resource(fr).resource).or_default() += excess;
                share.borrowed.push(fr);
            }
        }
        for (resource, amount) in borrowed {
            let ratio = thousandths(amount, lendable(tree, parent, resource));
            // In order of names, so the first of equal ones stays.
            if ratio > share.ratio {
                share.ratio = ratio;
                share.dominant = Some(resource.clone());
            }
        }
        share
    }

    /// The share divided by the node's weight; infinite for a node of no weight that borrows.
    pub fn weighted(&self) -> f64 {
        if self.ratio == 0.0 {
            0.0
        } else if self.weight == 0.0 {
            f64::INFINITY
        } else {
            self.ratio / self.weight
        }
    }

    /// The weighted share as `status.fairSharing.weightedShare` shows it (CQ-9).
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float cast saturates, and the largest number means infinity"
    )]
    pub fn rounded(&self) -> i64 {
        self.weighted().ceil() as i64
    }

    /// The resource of which the node borrows most.
    pub fn dominant(&self) -> Option<&ResourceName> {
        self.dominant.as_ref()
    }

    /// Whether the node borrows anything.
    pub fn borrows(&self) -> bool {
        !self.borrowed.is_empty()
    }

    /// Whether the node borrows any of `frs`.
    pub fn borrows_any(&self, mut frs: impl Iterator<Item = FrId>) -> bool {
        frs.any(|fr| self.borrowed.contains(&fr))
    }

    /// Who has less. Among those of no weight, the raw share decides.
    pub fn compare(&self, other: &Share) -> Ordering {
        let weightless = |share: &Share| share.weight == 0.0 && share.ratio != 0.0;
        match (weightless(self), weightless(other)) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.weighted().total_cmp(&other.weighted()),
        }
    }
}

/// All of `resource`, in whatever flavor, that the children of `cohort` could use together.
fn lendable(tree: &Tree, cohort: NodeId, resource: &ResourceName) -> Amount {
    let root = tree.root(cohort);
    tree.listed(root)
        .filter(|&(fr, _)| tree.flavor_resource(fr).resource == *resource)
        .filter_map(|(fr, _)| {
            // A node that knows nothing of a flavor-resource can use of it what the next one above can.
            let mut way = std::iter::once(cohort).chain(tree.ancestors(cohort));
            way.find_map(|node| tree.cell(node, fr)).map(|cell| tree.potential(cell))
        })
        .sum()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "shares are compared as Kueue compares them, in floating point"
)]
fn thousandths(part: Amount, whole: Amount) -> f64 {
    if whole > Amount::ZERO { part.units() as f64 * 1000.0 / whole.units() as f64 } else { 0.0 }
}
