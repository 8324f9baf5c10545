//! Where the pods of a pod set go.

use std::fmt;

use super::HOSTNAME;

/// Domains of the lowest level, and how many pods each of them gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// The node labels that name a domain, outermost first: the host name alone where that is among them (TA-5).
    pub levels: Vec<String>,
    /// The domains, in the order of their labels. Pods with numbers fill them in this order.
    pub domains: Vec<Place>,
}

/// A domain and its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its labels, level by level.
    pub values: Vec<String>,
    /// How many pods.
    pub count: u32,
}

impl Placement {
    /// How many pods it places.
    pub fn count(&self) -> u32 {
        self.domains.iter().map(|place| place.count).sum()
    }

    /// The names of the nodes that it names, if domains are nodes.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let are_nodes = self.levels.last().is_some_and(|level| level == HOSTNAME);
        self.domains
            .iter()
            .filter(move |_| are_nodes)
            .filter_map(|place| place.values.last().map(String::as_str))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.domains.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{}x{}", place.values.join("/"), place.count)?;
        }
        Ok(())
    }
}
