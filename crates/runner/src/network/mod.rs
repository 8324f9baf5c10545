//! A network for pods: each has a network namespace and an address of its own.
//!
//! A bridge in the namespace of this process connects them, and has an address for every node. Nothing of it outlives the
//! process for long: the namespaces are held open by this process and their pods alone, links end with the namespace that
//! they lead to, and the bridge, with its addresses and routes, is removed by the next start. A socket whose name the kernel
//! forgets with the process says that one is at work.
//!
//! The addresses of services are routed to the machine itself, where `proxy` listens on them, and `dns` on one of them.

mod addresses;
mod beside;
pub(crate) mod dns;
mod links;
mod message;
mod proxy;
mod services;

use std::{
    io,
    net::Ipv4Addr,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::warn;

pub(crate) use beside::connect_beside;
pub(crate) use services::{Services, has_host_port};

use crate::{init::held, threads};
use addresses::Addresses;

/// The name by which two networks in the same namespace know of each other.
const LOCK: &[u8] = b"ferry-network-of-pods";

/// The network of a cluster's pods.
#[derive(Debug)]
pub(crate) struct Network {
    bridge: u32,
    nodes: Vec<Mutex<Addresses>>,
    /// There is one network of pods in a network namespace, for as long as this is open.
    _lock: UnixListener,
}

impl Network {
    /// Makes the network for so many nodes, and removes what an earlier one has left. Blocks.
    pub(crate) fn make(nodes: usize) -> io::Result<Network> {
        if nodes > addresses::MOST_NODES {
            let most = addresses::MOST_NODES;
            return Err(io::Error::other(format!("a network of pods has addresses for {most} nodes")));
        }
        let lock = UnixListener::bind_addr(&SocketAddr::from_abstract_name(LOCK)?).map_err(|error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                return io::Error::other("another cluster has its network of pods here; there can be one");
            }
            error
        })?;
        let nodes: Vec<Addresses> = (0..nodes).map(Addresses::of_node).collect();
        let own = nodes.iter().map(Addresses::own).collect();
        let bridge = links::make_bridge(own).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let why = "pods can have a network of their own only if this is run by root, or with CAP_NET_ADMIN and CAP_SYS_ADMIN";
                io::Error::new(error.kind(), format!("{why}: {error}"))
            }
            kind => io::Error::new(kind, format!("failed to make the network of pods: {error}")),
        })?;
        Ok(Network { bridge, nodes: nodes.into_iter().map(Mutex::new).collect(), _lock: lock })
    }

    /// The address of a node.
    pub(crate) fn address(&self, node: usize) -> Ipv4Addr {
        self.addresses(node).own()
    }

    /// The addresses of a node and its pods.
    pub(crate) fn range(&self, node: usize) -> String {
        self.addresses(node).range()
    }

    /// Makes the network of a pod, with the wanted address if that can be had.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        node: usize,
        wanted: Option<Ipv4Addr>,
    ) -> io::Result<Interface> {
        let taken = self.addresses(node).take(wanted);
        let address = taken.ok_or_else(|| io::Error::other("all addresses of the node are taken"))?;
        let taken = Taken { network: Arc::clone(self), node, address };
        let (bridge, gateway) = (self.bridge, self.address(node));
        let namespace = threads::blocking(move || links::make_pod(bridge, address, gateway)).await?;
        Ok(Interface { namespace, taken })
    }

    fn addresses(&self, node: usize) -> MutexGuard<'_, Addresses> {
        // Every change is one insertion or removal; a panic elsewhere leaves the table whole.
        self.nodes[node].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(error) = links::remove() {
            warn!(%error, "failed to remove the network of pods; the next start does it");
        }
    }
}

/// A pod's place in the network, for as long as it is held or something runs in it.
#[derive(Debug)]
pub(crate) struct Interface {
    namespace: OwnedFd,
    taken: Taken,
}

impl Interface {
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.taken.address
    }

    /// A file by which another process finds the namespace.
    pub(crate) fn path(&self) -> PathBuf {
        held(&self.namespace)
    }
}

/// An address that nobody else gets.
#[derive(Debug)]
struct Taken {
    network: Arc<Network>,
    node: usize,
    address: Ipv4Addr,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.network.addresses(self.node).give_back(self.address);
    }
}
