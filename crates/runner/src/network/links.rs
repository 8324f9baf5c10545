//! Links, addresses and routes, as the kernel is told of them.
//!
//! Everything here runs on a thread of its own: a thread that has changed its network namespace is of no use to others.

use std::{
    fs::{self, File},
    io,
    net::Ipv4Addr,
    os::fd::{AsRawFd as _, OwnedFd},
    thread,
};

use futures::TryStreamExt as _;
use nix::sched::CloneFlags;
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
    packet_route::{
        link::{InfoData, InfoKind, InfoVeth, LinkAttribute},
        route::{RouteAddress, RouteAttribute, RouteScope, RouteType},
    },
};

use super::addresses::{PODS, PREFIX, SERVICES, SERVICES_PREFIX};

/// The link by which a machine is in the network of its pods.
pub(super) const BRIDGE: &str = "ferry0";
/// What the names of the machine's ends of the pods' links begin with; the address follows.
const POD: &str = "ferry-";
/// What a pod calls its link.
const IN_POD: &str = "eth0";
/// The first link of every namespace.
const LOOPBACK: u32 = 1;
/// The kernel's own table of local addresses.
const LOCAL: u32 = 255;
/// An address that nobody was given by a maker of hardware, so that it does not change with the links of pods.
const HARDWARE: [u8; 6] = [0x02, 0xfe, 0x44, 0x79, 0x00, 0x01];

/// Makes the bridge with these addresses, after whatever an earlier one has left is removed; returns its number.
pub(super) fn make_bridge(nodes: Vec<Ipv4Addr>) -> io::Result<u32> {
    on_thread(async move || {
        let machine = open()?;
        remove_all(&machine).await?;
        look_for_strangers(&machine).await?;
        let bridge = LinkBridge::new(BRIDGE).address(HARDWARE.to_vec()).up().build();
        machine.link().add(bridge).execute().await.map_err(failed)?;
        // A machine has it up anyhow, and a new namespace needs it.
        machine
            .link()
            .set(LinkUnspec::new_with_index(LOOPBACK).up().build())
            .execute()
            .await
            .map_err(failed)?;
        let index = index_of(&machine, BRIDGE).await?;
        for node in nodes {
            machine.address().add(index, node.into(), PREFIX).execute().await.map_err(failed)?;
        }
        // Whatever is sent to a service ends here, where somebody listens for it or nobody does.
        let services = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(SERVICES, SERVICES_PREFIX)
            .output_interface(index)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .table_id(LOCAL)
            .build();
        machine.route().add(services).execute().await.map_err(failed)?;
        Ok(index)
    })
}

/// Removes the bridge and all links of pods.
pub(super) fn remove() -> io::Result<()> {
    on_thread(async || remove_all(&open()?).await)
}

/// Makes a network namespace with a link to the bridge.
pub(super) fn make_pod(bridge: u32, address: Ipv4Addr, gateway: Ipv4Addr) -> io::Result<OwnedFd> {
    on_thread(async move || {
        let machine = open()?;
        nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
        let namespace = File::open("/proc/thread-self/ns/net")?;
        let pod = open()?;
        let name = pod_link(address);
        // The kernel takes a moment to remove the link of a namespace that is gone.
        if let Ok(left) = index_of(&machine, &name).await {
            machine.link().del(left).execute().await.map_err(failed)?;
        }
        let inside = LinkUnspec::new_with_name(IN_POD).setns_by_fd(namespace.as_raw_fd()).build();
        let link = LinkMessageBuilder::<LinkVeth>::new_with_info_kind(InfoKind::Veth)
            .name(name)
            .controller(bridge)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(inside)))
            .up()
            .build();
        machine.link().add(link).execute().await.map_err(failed)?;
        let index = index_of(&pod, IN_POD).await?;
        for link in [LOOPBACK, index] {
            pod.link().set(LinkUnspec::new_with_index(link).up().build()).execute().await.map_err(failed)?;
        }
        pod.address().add(index, address.into(), PREFIX).execute().await.map_err(failed)?;
        let outward = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).build();
        pod.route().add(outward).execute().await.map_err(failed)?;
        // Every port of a pod is its own, whoever its processes are.
        fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")?;
        Ok(OwnedFd::from(namespace))
    })
}

/// Refuses to take addresses that the machine needs for something else.
async fn look_for_strangers(machine: &Handle) -> io::Result<()> {
    let all = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let mut routes = std::pin::pin!(machine.route().get(all).execute());
    while let Some(route) = routes.try_next().await.map_err(failed)? {
        let destination = route.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(destination)) => Some(*destination),
            _ => None,
        });
        let Some(destination) = destination else { continue };
        let length = route.header.destination_prefix_length;
        for (network, prefix, whose) in [(PODS, PREFIX, "pods"), (SERVICES, SERVICES_PREFIX, "services")] {
            if overlap((destination, length), (network, prefix)) {
                return Err(io::Error::other(format!(
                    "this machine has a route to {destination}/{length}, which is in the network of {whose} ({network}/{prefix})"
                )));
            }
        }
    }
    Ok(())
}

/// Whether two networks have an address in common.
fn overlap(one: (Ipv4Addr, u8), other: (Ipv4Addr, u8)) -> bool {
    let common = u32::from(one.1.min(other.1).min(32));
    common == 0 || one.0.to_bits() >> (32 - common) == other.0.to_bits() >> (32 - common)
}

/// What the machine calls the link of a pod.
fn pod_link(address: Ipv4Addr) -> String {
    format!("{POD}{:08x}", address.to_bits())
}

/// Whether a link is one of ours.
fn is_ours(name: &str) -> bool {
    let of_pod = |number: &str| u32::from_str_radix(number, 16).is_ok_and(|bits| is_pods(bits.into()));
    name == BRIDGE || name.strip_prefix(POD).is_some_and(|rest| rest.len() == 8 && of_pod(rest))
}

fn is_pods(address: Ipv4Addr) -> bool {
    overlap((address, 32), (PODS, PREFIX))
}

async fn remove_all(machine: &Handle) -> io::Result<()> {
    let mut links = std::pin::pin!(machine.link().get().execute());
    let mut ours = Vec::new();
    while let Some(link) = links.try_next().await.map_err(failed)? {
        let named =
            |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::IfName(name) if is_ours(name));
        if link.attributes.iter().any(named) {
            ours.push(link.header.index);
        }
    }
    for index in ours {
        match machine.link().del(index).execute().await.map_err(failed) {
            // That of a pod may have gone with its namespace just now.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {}
            done => done?,
        }
    }
    Ok(())
}

async fn index_of(links: &Handle, name: &str) -> io::Result<u32> {
    let mut found = std::pin::pin!(links.link().get().match_name(name).execute());
    let link = found.try_next().await.map_err(failed)?;
    link.map(|link| link.header.index).ok_or_else(|| io::Error::other(format!("there is no link {name}")))
}

/// The kernel, as it is seen from the namespace that the thread is in now.
fn open() -> io::Result<Handle> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    tokio::spawn(connection);
    Ok(handle)
}

fn failed(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other),
    }
}

/// Does this on a thread of its own, and waits for it.
fn on_thread<T: Send>(work: impl AsyncFnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(work())
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the network panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_overlap_if_one_is_in_the_other() {
        let network = |text: &str| -> (Ipv4Addr, u8) {
            let (address, prefix) = text.split_once('/').expect("a network");
            (address.parse().expect("an address"), prefix.parse().expect("a number"))
        };
        for (one, other, expected) in [
            ("10.100.0.0/16", "10.96.0.0/12", true),
            ("10.0.0.0/8", "10.96.0.0/12", true),
            ("10.112.0.0/16", "10.96.0.0/12", false),
            ("192.168.0.0/16", "10.244.0.0/16", false),
            ("10.244.3.7/32", "10.244.0.0/16", true),
        ] {
            assert_eq!(overlap(network(one), network(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn only_our_own_links_are_removed() {
        assert!(is_ours("ferry0") && is_ours(&pod_link(Ipv4Addr::new(10, 244, 3, 7))));
        for other in ["ferry1", "ferry-boat", "ferry-0af40", "ferry-0a600001", "eth0"] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
