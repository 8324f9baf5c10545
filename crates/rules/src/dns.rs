//! The names of a cluster: what its DNS server answers.
//!
//! As Kubernetes specifies it: services, the endpoints of those without an address, pods, and names for addresses.

use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::service::{cluster_ips, usable};

/// The domain of a cluster.
pub const DOMAIN: &str = "cluster.local";
const REVERSE: &str = ".in-addr.arpa";

/// Where names come from.
pub trait Names {
    /// A service.
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>>;
    /// The slices of a service.
    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>>;
    /// Whether there is such a namespace.
    fn has_namespace(&self, namespace: &str) -> bool;
    /// Namespace and name of the services that have this address, or an endpoint with it.
    fn services_at(&self, address: Ipv4Addr) -> Vec<(String, String)>;
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Addresses.
    A,
    /// Another name.
    Cname,
    /// Ports, and the names that have them.
    Srv,
    /// The name of an address.
    Ptr,
    /// Everything that there is.
    Any,
    /// Something that clusters do not have, addresses of the other family for instance.
    Other,
}

/// Something that is known of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Record {
    /// An address.
    A(Ipv4Addr),
    /// Another name, which is asked about next.
    Cname(String),
    /// A port, and the name that has it.
    Srv(u16, String),
    /// The name of an address.
    Ptr(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What is known; nothing of this kind if it is empty.
    Records(Vec<Record>),
    /// There is no such name.
    NoSuchName,
    /// Somebody else has to be asked.
    Elsewhere,
}

/// Answers a question about a name, which is written without a dot at its end.
pub fn answer(names: &impl Names, name: &str, kind: Kind) -> Answer {
    let name = name.to_ascii_lowercase();
    if let Some(reverse) = name.strip_suffix(REVERSE) {
        return of_address(names, reverse, kind);
    }
    let Some(inside) = name.strip_suffix(DOMAIN) else { return Answer::Elsewhere };
    let labels: Vec<&str> = match inside.strip_suffix('.') {
        Some(inside) => inside.split('.').collect(),
        None if inside.is_empty() => return Answer::Records(Vec::new()),
        None => return Answer::Elsewhere,
    };
    let known = match labels.as_slice() {
        ["svc" | "pod"] => Some(Vec::new()),
        [namespace, "svc" | "pod"] => names.has_namespace(namespace).then(Vec::new),
        [address, namespace, "pod"] => of_pod(names, address, namespace),
        [service, namespace, "svc"] => of_service(names, namespace, service),
        [port, protocol, service, namespace, "svc"] if port.starts_with('_') => {
            of_port(names, namespace, service, port, protocol)
        }
        [endpoint, service, namespace, "svc"] => of_endpoint(names, namespace, service, endpoint),
        _ => None,
    };
    match known {
        None => Answer::NoSuchName,
        Some(records) => {
            Answer::Records(records.into_iter().filter(|record| is_wanted(record, kind)).collect())
        }
    }
}

/// Another name is the answer to every question.
fn is_wanted(record: &Record, kind: Kind) -> bool {
    match record {
        Record::Cname(_) => true,
        Record::A(_) => matches!(kind, Kind::A | Kind::Any),
        Record::Srv(..) => matches!(kind, Kind::Srv | Kind::Any),
        Record::Ptr(_) => matches!(kind, Kind::Ptr | Kind::Any),
    }
}

/// `1-2-3-4.namespace.pod`: the name says it all.
fn of_pod(names: &impl Names, address: &str, namespace: &str) -> Option<Vec<Record>> {
    let address = address.replace('-', ".").parse().ok()?;
    names.has_namespace(namespace).then(|| vec![Record::A(address)])
}

fn of_service(names: &impl Names, namespace: &str, name: &str) -> Option<Vec<Record>> {
    let service = names.service(namespace, name)?;
    let spec = service.spec.as_ref()?;
    if let Some(other) = elsewhere(spec) {
        return Some(vec![Record::Cname(other)]);
    }
    let mut records: Vec<Record> = cluster_ips(spec).map(Record::A).collect();
    if is_headless(spec) {
        let slices = names.slices(namespace, name);
        let endpoints = endpoints(&slices);
        // A service that has nobody behind it is known only by those that it had.
        if endpoints.is_empty() {
            return None;
        }
        records.extend(endpoints.iter().map(|(_, _, address)| Record::A(*address)));
    }
    let domain = format!("{name}.{namespace}.svc.{DOMAIN}");
    for (_, record) in ports(names, namespace, name, spec, &domain) {
        records.push(record);
    }
    records.sort();
    records.dedup();
    Some(records)
}

fn of_port(
    names: &impl Names,
    namespace: &str,
    service: &str,
    port: &str,
    protocol: &str,
) -> Option<Vec<Record>> {
    let found = names.service(namespace, service)?;
    let spec = found.spec.as_ref()?;
    let domain = format!("{service}.{namespace}.svc.{DOMAIN}");
    let wanted = format!("{port}.{protocol}");
    let all = ports(names, namespace, service, spec, &domain);
    let mut records: Vec<Record> =
        all.into_iter().filter(|(name, _)| *name == wanted).map(|(_, record)| record).collect();
    records.sort();
    records.dedup();
    (!records.is_empty()).then_some(records)
}

/// The ports of a service by their names, `_http._tcp`.
fn ports(
    names: &impl Names,
    namespace: &str,
    service: &str,
    spec: &ServiceSpec,
    domain: &str,
) -> Vec<(String, Record)> {
    let label = |name: Option<&str>, protocol: Option<&str>| {
        let protocol = protocol.unwrap_or("TCP").to_ascii_lowercase();
        format!("_{}._{protocol}", name.unwrap_or_default())
    };
    if !is_headless(spec) {
        let ports = spec.ports.iter().flatten();
        let record = |port: i32| Some(Record::Srv(u16::try_from(port).ok()?, domain.to_owned()));
        return ports
            .filter_map(|port| {
                Some((label(port.name.as_deref(), port.protocol.as_deref()), record(port.port)?))
            })
            .collect();
    }
    let slices = names.slices(namespace, service);
    let mut all = Vec::new();
    for (slice, endpoint, address) in endpoints(&slices) {
        for port in slice.ports.iter().flatten() {
            if let Some(number) = port.port.and_then(|port| u16::try_from(port).ok()) {
                let target = format!("{}.{domain}", name_of(endpoint, address));
                let label = label(port.name.as_deref(), port.protocol.as_deref());
                all.push((label, Record::Srv(number, target)));
            }
        }
    }
    all
}

fn of_endpoint(names: &impl Names, namespace: &str, service: &str, name: &str) -> Option<Vec<Record>> {
    let spec = names.service(namespace, service)?.spec.clone()?;
    if elsewhere(&spec).is_some() {
        return None;
    }
    let slices = names.slices(namespace, service);
    let mut records: Vec<Record> = endpoints(&slices)
        .into_iter()
        .filter(|(_, endpoint, address)| name_of(endpoint, *address) == name)
        .map(|(_, _, address)| Record::A(address))
        .collect();
    records.sort();
    records.dedup();
    (!records.is_empty()).then_some(records)
}

/// `4.3.2.1` with the parts of the address in the other order.
fn of_address(names: &impl Names, reverse: &str, kind: Kind) -> Answer {
    let parts: Vec<&str> = reverse.rsplit('.').collect();
    let Ok(address) = parts.join(".").parse::<Ipv4Addr>() else { return Answer::NoSuchName };
    let mut records = Vec::new();
    for (namespace, name) in names.services_at(address) {
        let Some(service) = names.service(&namespace, &name) else { continue };
        let Some(spec) = &service.spec else { continue };
        let domain = format!("{name}.{namespace}.svc.{DOMAIN}");
        if cluster_ips(spec).any(|own| own == address) {
            records.push(Record::Ptr(domain));
            continue;
        }
        let slices = names.slices(&namespace, &name);
        for (_, endpoint, own) in endpoints(&slices).into_iter().filter(|(_, _, own)| *own == address) {
            if is_headless(spec) || endpoint.hostname.is_some() {
                records.push(Record::Ptr(format!("{}.{domain}", name_of(endpoint, own))));
            }
        }
    }
    if records.is_empty() {
        return Answer::Elsewhere;
    }
    records.sort();
    records.dedup();
    Answer::Records(records.into_iter().filter(|record| is_wanted(record, kind)).collect())
}

/// What an endpoint is called below its service.
fn name_of(endpoint: &Endpoint, address: Ipv4Addr) -> String {
    let own = endpoint.hostname.as_ref().map(|name| name.to_ascii_lowercase());
    own.unwrap_or_else(|| address.to_string().replace('.', "-"))
}

fn endpoints(slices: &[Arc<EndpointSlice>]) -> Vec<(&EndpointSlice, &Endpoint, Ipv4Addr)> {
    let slices: Vec<&EndpointSlice> = slices.iter().map(AsRef::as_ref).collect();
    let with_addresses = |(slice, endpoint)| {
        let endpoint: &Endpoint = endpoint;
        let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
        addresses.map(move |address| (slice, endpoint, address)).collect::<Vec<_>>()
    };
    usable(&slices).into_iter().flat_map(with_addresses).collect()
}

fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

fn elsewhere(spec: &ServiceSpec) -> Option<String> {
    let is_elsewhere = spec.type_.as_deref() == Some("ExternalName");
    let name = spec.external_name.as_ref().filter(|_| is_elsewhere)?;
    Some(name.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::endpoint_slice::SERVICE_NAME;

    struct Cluster(Vec<Arc<Service>>, Vec<Arc<EndpointSlice>>);

    impl Names for Cluster {
        fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
            let own = |it: &&Arc<Service>| {
                it.metadata.namespace.as_deref() == Some(namespace)
                    && it.metadata.name.as_deref() == Some(name)
            };
            self.0.iter().find(own).cloned()
        }
        fn slices(&self, _: &str, service: &str) -> Vec<Arc<EndpointSlice>> {
            let of = |it: &&Arc<EndpointSlice>| {
                it.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME)).map(String::as_str)
                    == Some(service)
            };
            self.1.iter().filter(of).cloned().collect()
        }
        fn has_namespace(&self, namespace: &str) -> bool {
            namespace == "ns"
        }
        fn services_at(&self, _: Ipv4Addr) -> Vec<(String, String)> {
            ["web", "db", "out"].map(|name| ("ns".to_owned(), name.to_owned())).into()
        }
    }

    fn cluster() -> Cluster {
        let service = |name: &str, spec: Value| {
            let it = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": spec });
            Arc::new(serde_json::from_value(it).expect("a service"))
        };
        let ports = json!([{ "name": "http", "port": 80, "protocol": "TCP" }]);
        let endpoints =
            json!([{ "addresses": ["10.244.0.2"], "hostname": "db-0" }, { "addresses": ["10.244.0.3"] }]);
        let slice = json!({
            "metadata": { "namespace": "ns", "labels": { SERVICE_NAME: "db" } }, "addressType": "IPv4",
            "endpoints": endpoints, "ports": [{ "name": "sql", "port": 5432, "protocol": "TCP" }],
        });
        Cluster(
            vec![
                service("web", json!({ "clusterIP": "10.96.0.9", "ports": ports })),
                service("db", json!({ "clusterIP": "None", "ports": [{ "name": "sql", "port": 5432 }] })),
                service("empty", json!({ "clusterIP": "None" })),
                service("out", json!({ "type": "ExternalName", "externalName": "example.com." })),
            ],
            vec![Arc::new(serde_json::from_value(slice).expect("a slice"))],
        )
    }

    fn check(name: &str, kind: Kind, expected: &str) {
        let told = match answer(&cluster(), name, kind) {
            Answer::NoSuchName => "no such name".to_owned(),
            Answer::Elsewhere => "elsewhere".to_owned(),
            Answer::Records(records) => {
                let one = |record: &Record| match record {
                    Record::A(address) => address.to_string(),
                    Record::Cname(name) => format!("cname {name}"),
                    Record::Srv(port, name) => format!("{port} {name}"),
                    Record::Ptr(name) => name.clone(),
                };
                records.iter().map(one).collect::<Vec<_>>().join(", ")
            }
        };
        assert_eq!(told, expected, "{name} {kind:?}");
    }

    #[test]
    fn names_of_a_cluster() {
        check("web.ns.svc.cluster.local", Kind::A, "10.96.0.9");
        check("WEB.ns.svc.Cluster.local", Kind::A, "10.96.0.9");
        check("web.ns.svc.cluster.local", Kind::Other, "");
        check("_http._tcp.web.ns.svc.cluster.local", Kind::Srv, "80 web.ns.svc.cluster.local");
        check("_http._udp.web.ns.svc.cluster.local", Kind::Srv, "no such name");
        check("db.ns.svc.cluster.local", Kind::A, "10.244.0.2, 10.244.0.3");
        check("db-0.db.ns.svc.cluster.local", Kind::A, "10.244.0.2");
        check("10-244-0-3.db.ns.svc.cluster.local", Kind::A, "10.244.0.3");
        check(
            "_sql._tcp.db.ns.svc.cluster.local",
            Kind::Srv,
            "5432 10-244-0-3.db.ns.svc.cluster.local, 5432 db-0.db.ns.svc.cluster.local",
        );
        check("empty.ns.svc.cluster.local", Kind::A, "no such name");
        check("out.ns.svc.cluster.local", Kind::A, "cname example.com");
        check("10-244-0-7.ns.pod.cluster.local", Kind::A, "10.244.0.7");
        check("10-244-0-7.other.pod.cluster.local", Kind::A, "no such name");
        check("nobody.ns.svc.cluster.local", Kind::A, "no such name");
        check("web.ns.svc.cluster.local.ns.svc.cluster.local", Kind::A, "no such name");
        check("ns.svc.cluster.local", Kind::A, "");
        check("example.com", Kind::A, "elsewhere");
        check("mycluster.local", Kind::A, "elsewhere");
    }

    #[test]
    fn addresses_have_names() {
        check("9.0.96.10.in-addr.arpa", Kind::Ptr, "web.ns.svc.cluster.local");
        check("2.0.244.10.in-addr.arpa", Kind::Ptr, "db-0.db.ns.svc.cluster.local");
        check("1.1.1.1.in-addr.arpa", Kind::Ptr, "elsewhere");
        check("1.in-addr.arpa", Kind::Ptr, "no such name");
    }
}
