//! Where what is sent to a service goes on: by its own address, by a port of every node, and by ports of nodes that are
//! given to pods.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::endpoint_slice::SERVICE_NAME;

/// Where something is listened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Listener {
    /// Address and port.
    pub at: SocketAddrV4,
    /// For what.
    pub protocol: Protocol,
}

/// What is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Where it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// To one of these. Never empty: what nobody answers is not listened for.
    pub to: Vec<SocketAddrV4>,
    /// A client comes to the same one again if it was there no longer ago.
    pub affinity: Option<Duration>,
}

/// Everything that is listened for, and where it goes on.
pub type Forwards = BTreeMap<Listener, Target>;

/// What services ask for. Ports of nodes are listened for on `nodes`, the addresses of all of them; the API server is at
/// `server`, whatever its endpoints say.
pub fn forwards<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    slices: &[&'a EndpointSlice],
    nodes: &[Ipv4Addr],
    server: Option<SocketAddrV4>,
) -> Forwards {
    let mut by_service: BTreeMap<(&str, &str), Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in slices {
        let name = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        let namespace = slice.metadata.namespace.as_deref();
        if let (Some(name), Some(namespace)) = (name, namespace) {
            by_service.entry((namespace, name)).or_default().push(slice);
        }
    }
    let mut forwards = Forwards::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let key = (
            service.metadata.namespace.as_deref().unwrap_or_default(),
            service.metadata.name.as_deref().unwrap_or_default(),
        );
        let own = by_service.get(&key).map(Vec::as_slice).unwrap_or_default();
        let affinity = affinity(spec);
        for port in spec.ports.iter().flatten() {
            let Some(protocol) = protocol(port.protocol.as_deref()) else { continue };
            let to = match server.filter(|_| key == ("default", "kubernetes")) {
                Some(server) => vec![server],
                None => endpoints(own, port),
            };
            if to.is_empty() {
                continue;
            }
            for at in listened(spec, port, nodes) {
                let target = Target { to: to.clone(), affinity };
                forwards.insert(Listener { at, protocol }, target);
            }
        }
    }
    forwards
}

/// The ports of its node that a pod asks for. A pod that does not say on which address gets them on the node's own.
pub fn host_ports(pod: &Pod, node: Ipv4Addr) -> Vec<(Listener, Target)> {
    let status = pod.status.as_ref();
    let over = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    let ip = status.and_then(|status| status.pod_ip.as_ref()).and_then(|ip| ip.parse().ok());
    let (Some(spec), Some(ip), false) = (&pod.spec, ip, over) else { return Vec::new() };
    if spec.host_network == Some(true) {
        return Vec::new();
    }
    let sidecars = spec.init_containers.iter().flatten();
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let wanted = u16::try_from(port.host_port?).ok().filter(|port| *port != 0)?;
            let own = port.host_ip.as_deref().filter(|ip| !matches!(*ip, "" | "0.0.0.0"));
            let at = own.map_or(Some(node), |ip| ip.parse().ok())?;
            let to = SocketAddrV4::new(ip, u16::try_from(port.container_port).ok()?);
            let protocol = protocol(port.protocol.as_deref())?;
            let target = Target { to: vec![to], affinity: None };
            Some((Listener { at: SocketAddrV4::new(at, wanted), protocol }, target))
        })
        .collect()
}

/// The addresses of a service's own that clients may use; none of those that have none.
pub fn cluster_ips(spec: &ServiceSpec) -> impl Iterator<Item = Ipv4Addr> {
    spec.cluster_ip.iter().filter_map(|ip| ip.parse().ok())
}

/// Endpoints that are to be sent something: those that are ready, or if none is, those that still answer while they end.
pub fn usable<'a>(slices: &[&'a EndpointSlice]) -> Vec<(&'a EndpointSlice, &'a Endpoint)> {
    let all = || slices.iter().flat_map(|slice| slice.endpoints.iter().map(|endpoint| (*slice, endpoint)));
    let conditions = |endpoint: &Endpoint| endpoint.conditions.clone().unwrap_or_default();
    let ready: Vec<_> = all().filter(|(_, it)| conditions(it).ready != Some(false)).collect();
    if !ready.is_empty() {
        return ready;
    }
    let ending = |it: &Endpoint| {
        let conditions = conditions(it);
        conditions.serving == Some(true) && conditions.terminating == Some(true)
    };
    all().filter(|(_, it)| ending(it)).collect()
}

fn affinity(spec: &ServiceSpec) -> Option<Duration> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let client = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = client.and_then(|client| client.timeout_seconds).unwrap_or(10_800);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

fn protocol(name: Option<&str>) -> Option<Protocol> {
    match name {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some(_) => None,
    }
}

fn listened(spec: &ServiceSpec, port: &ServicePort, nodes: &[Ipv4Addr]) -> Vec<SocketAddrV4> {
    let Ok(number) = u16::try_from(port.port) else { return Vec::new() };
    let external = spec.external_ips.iter().flatten().filter_map(|ip| ip.parse().ok());
    let own = cluster_ips(spec).chain(external).map(|ip| SocketAddrV4::new(ip, number));
    let of_nodes = port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    let of_nodes =
        of_nodes.into_iter().flat_map(|port| nodes.iter().map(move |ip| SocketAddrV4::new(*ip, port)));
    own.chain(of_nodes).collect()
}

/// Where a port of a service leads.
fn endpoints(slices: &[&EndpointSlice], port: &ServicePort) -> Vec<SocketAddrV4> {
    let name = port.name.as_deref().unwrap_or_default();
    let fits = |slice: &&EndpointSlice| {
        slice.address_type == "IPv4"
            && slice.ports.iter().flatten().any(|one| one.name.as_deref().unwrap_or_default() == name)
    };
    let slices: Vec<&EndpointSlice> = slices.iter().copied().filter(fits).collect();
    let mut to: Vec<SocketAddrV4> = Vec::new();
    for (slice, endpoint) in usable(&slices) {
        let ports = slice.ports.iter().flatten();
        let ports = ports.filter(|one| one.name.as_deref().unwrap_or_default() == name);
        for port in ports.filter_map(|one| u16::try_from(one.port?).ok()) {
            // All addresses of an endpoint lead to the same one.
            if let Some(ip) = endpoint.addresses.first().and_then(|ip| ip.parse().ok()) {
                to.push(SocketAddrV4::new(ip, port));
            }
        }
    }
    to.sort_unstable();
    to.dedup();
    to
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: Value) -> Service {
        let service = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": spec });
        serde_json::from_value(service).expect("a service")
    }

    fn slice(of: &str, endpoints: Value, ports: Value) -> EndpointSlice {
        let metadata = json!({ "namespace": "default", "labels": { SERVICE_NAME: of } });
        let slice =
            json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports });
        serde_json::from_value(slice).expect("a slice")
    }

    fn check(service: &Service, slices: &[EndpointSlice], expected: &[&str]) {
        let slices: Vec<&EndpointSlice> = slices.iter().collect();
        let nodes = [Ipv4Addr::new(10, 244, 0, 1), Ipv4Addr::new(10, 244, 4, 1)];
        let found = forwards([service], &slices, &nodes, Some("127.0.0.1:6443".parse().expect("an address")));
        let line = |(listener, target): (&Listener, &Target)| {
            let to: Vec<String> = target.to.iter().map(ToString::to_string).collect();
            let sticks = target.affinity.map_or(String::new(), |time| format!(" for {}s", time.as_secs()));
            format!("{:?} {} -> {}{sticks}", listener.protocol, listener.at, to.join(" "))
        };
        assert_eq!(found.iter().map(line).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_port_leads_to_the_endpoints_of_its_name() {
        let ports = json!([{ "name": "web", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }]);
        let both = service("s", json!({ "clusterIP": "10.96.0.9", "ports": ports }));
        let web = slice(
            "s",
            json!([{ "addresses": ["10.244.0.2"] }, { "addresses": ["10.244.0.3"], "conditions": { "ready": false } }]),
            json!([{ "name": "web", "port": 8080 }]),
        );
        let dns =
            slice("s", json!([{ "addresses": ["10.244.0.4"] }]), json!([{ "name": "dns", "port": 5353 }]));
        let other =
            slice("t", json!([{ "addresses": ["10.244.0.5"] }]), json!([{ "name": "web", "port": 1 }]));
        check(
            &both,
            &[web, dns, other],
            &["Udp 10.96.0.9:53 -> 10.244.0.4:5353", "Tcp 10.96.0.9:80 -> 10.244.0.2:8080"],
        );
    }

    #[test]
    fn what_nobody_answers_is_not_listened_for() {
        let spec = json!({ "clusterIP": "10.96.0.9", "ports": [{ "port": 80 }] });
        let ready = |ready: bool, ending: bool| {
            let conditions = json!({ "ready": ready, "serving": true, "terminating": ending });
            slice(
                "s",
                json!([{ "addresses": ["10.244.0.2"], "conditions": conditions }]),
                json!([{ "name": "", "port": 8 }]),
            )
        };
        check(&service("s", spec.clone()), &[], &[]);
        check(&service("s", spec.clone()), &[ready(false, false)], &[]);
        check(&service("s", spec), &[ready(false, true)], &["Tcp 10.96.0.9:80 -> 10.244.0.2:8"]);
        let headless = json!({ "clusterIP": "None", "ports": [{ "port": 80 }] });
        check(&service("s", headless), &[ready(true, false)], &[]);
    }

    #[test]
    fn a_port_of_the_nodes_is_listened_for_on_all_of_them() {
        let spec = json!({
            "clusterIP": "10.96.0.9", "ports": [{ "port": 80, "nodePort": 30080 }], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } },
        });
        let slice = slice("s", json!([{ "addresses": ["10.244.0.2"] }]), json!([{ "name": "", "port": 8 }]));
        check(
            &service("s", spec),
            &[slice],
            &[
                "Tcp 10.96.0.9:80 -> 10.244.0.2:8 for 60s",
                "Tcp 10.244.0.1:30080 -> 10.244.0.2:8 for 60s",
                "Tcp 10.244.4.1:30080 -> 10.244.0.2:8 for 60s",
            ],
        );
    }

    #[test]
    fn the_api_server_is_where_it_listens() {
        let spec = json!({ "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443 }] });
        check(&service("kubernetes", spec), &[], &["Tcp 10.96.0.1:443 -> 127.0.0.1:6443"]);
    }

    #[test]
    fn pods_get_the_ports_of_their_node_that_they_ask_for() {
        let ports = json!([
            { "containerPort": 80, "hostPort": 8080 },
            { "containerPort": 53, "hostPort": 53, "hostIP": "127.0.0.1", "protocol": "UDP" },
            { "containerPort": 81 },
        ]);
        let pod = |phase: &str, host: bool| -> Pod {
            let spec = json!({ "hostNetwork": host, "containers": [{ "name": "c", "ports": ports }] });
            let pod = json!({ "spec": spec, "status": { "podIP": "10.244.0.2", "phase": phase } });
            serde_json::from_value(pod).expect("a pod")
        };
        let node = Ipv4Addr::new(10, 244, 0, 1);
        let found = host_ports(&pod("Running", false), node);
        let lines: Vec<String> = found
            .iter()
            .map(|(from, target)| format!("{:?} {} {}", from.protocol, from.at, target.to[0]))
            .collect();
        assert_eq!(lines, ["Tcp 10.244.0.1:8080 10.244.0.2:80", "Udp 127.0.0.1:53 10.244.0.2:53"]);
        assert!(host_ports(&pod("Failed", false), node).is_empty());
        assert!(host_ports(&pod("Running", true), node).is_empty());
    }
}
