//! Which addresses there are, and who has them.

use std::{collections::BTreeSet, net::Ipv4Addr};

/// The network of pods: 10.244.0.0/16.
pub(super) const PODS: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 0);
/// How many of its bits all pods have in common.
pub(super) const PREFIX: u8 = 16;
/// The network of services, as the API server gives out their addresses: 10.96.0.0/12.
pub(super) const SERVICES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
/// How many of its bits all services have in common.
pub(super) const SERVICES_PREFIX: u8 = 12;
/// How many bits all pods of one node have in common.
const NODE_PREFIX: u8 = 22;
/// How many addresses a node has.
const OF_NODE: u32 = 1 << (32 - NODE_PREFIX);
/// How many nodes a cluster may have.
pub(super) const MOST_NODES: usize = 1 << (NODE_PREFIX - PREFIX);

/// The addresses of one node: the first is its own, the last nobody's, the others its pods'.
#[derive(Debug)]
pub(super) struct Addresses {
    first: u32,
    taken: BTreeSet<u32>,
    /// Where to look next. Addresses come round slowly, so that nobody takes a pod for one that is gone.
    next: u32,
}

impl Addresses {
    /// Those of the node with this number.
    pub(super) fn of_node(number: usize) -> Addresses {
        let number = u32::try_from(number).unwrap_or_default();
        Addresses { first: PODS.to_bits() + number * OF_NODE, taken: BTreeSet::new(), next: 2 }
    }

    /// The node's own.
    pub(super) fn own(&self) -> Ipv4Addr {
        (self.first + 1).into()
    }

    /// All of them.
    pub(super) fn range(&self) -> String {
        format!("{}/{NODE_PREFIX}", Ipv4Addr::from_bits(self.first))
    }

    /// Takes the wanted one, or any that is free.
    pub(super) fn take(&mut self, wanted: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let pods = 2..OF_NODE - 1;
        let wanted = wanted.and_then(|wanted| wanted.to_bits().checked_sub(self.first));
        let wanted = wanted.filter(|number| pods.contains(number));
        let from_next = (self.next..pods.end).chain(pods.start..self.next);
        let found = wanted.into_iter().chain(from_next).find(|number| !self.taken.contains(number))?;
        self.taken.insert(found);
        if wanted != Some(found) {
            self.next = if found + 1 < pods.end { found + 1 } else { pods.start };
        }
        Some((self.first + found).into())
    }

    /// Gives one back.
    pub(super) fn give_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(&(address.to_bits() - self.first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_round_slowly() {
        let mut node = Addresses::of_node(1);
        assert_eq!((node.own().to_string(), node.range()), ("10.244.4.1".into(), "10.244.4.0/22".into()));
        let first = node.take(None).expect("an address");
        assert_eq!(first.to_string(), "10.244.4.2");
        node.give_back(first);
        assert_eq!(node.take(None).expect("an address").to_string(), "10.244.4.3");
        assert_eq!(node.take(Some(first)), Some(first));
        assert_ne!(node.take(Some(first)), Some(first), "two pods would have one address");
    }

    #[test]
    fn a_node_keeps_to_its_own_addresses() {
        let mut node = Addresses::of_node(0);
        let all: BTreeSet<Ipv4Addr> = std::iter::from_fn(|| node.take(None)).collect();
        assert_eq!(all.len(), 1021);
        assert!(!all.contains(&node.own()) && !all.contains(&Addresses::of_node(1).own()));
        let some = *all.first().expect("one");
        node.give_back(some);
        assert_eq!(node.take(Some(Ipv4Addr::new(10, 244, 4, 9))), Some(some));
    }
}
