//! What a node is.

use std::{collections::BTreeMap, net::IpAddr, net::Ipv4Addr};

/// One node: its name, what it has, and what its pods are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the Node object.
    pub name: String,
    /// What becomes of its pods.
    pub runtime: Runtime,
    /// Labels of the Node object, besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// What the node has, as quantities by resource name (`cpu`, `memory`, `pods`…).
    pub capacity: BTreeMap<String, String>,
    /// The address of the node, and of its pods if they have none of their own.
    pub address: IpAddr,
}

/// What becomes of the pods of a node.
#[derive(Clone, Debug)]
pub enum Runtime {
    /// They only pretend to run, as [`rules::node::script`] says.
    Simulated,
}

impl Settings {
    /// A node whose pods are simulated, with room for many of them.
    pub fn simulated(name: &str) -> Settings {
        let capacity = [("cpu", "1k"), ("memory", "4Ti"), ("ephemeral-storage", "10Ti"), ("pods", "100k")];
        Settings {
            name: name.to_owned(),
            runtime: Runtime::Simulated,
            labels: BTreeMap::new(),
            capacity: capacity.map(|(name, quantity)| (name.to_owned(), quantity.to_owned())).into(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}
