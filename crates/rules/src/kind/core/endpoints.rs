//! What is behind services: endpoints, and slices of them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::services::protocol;
use crate::field::{self, Errors, Path};
use crate::kind::{Counts, It, Kind, at, items, text};
use crate::meta;
use crate::names;
use crate::pod::addresses::{self, NOT_AN_IP};

/// An address behind a service.
pub(super) fn endpoint_ip(address: &str, path: &Path) -> Errors {
    let mut errors = reachable_ip(address, path);
    if addresses::ip(address).is_some_and(|ip| ip.is_loopback()) {
        let why = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        errors.push(path.invalid(address, why));
    }
    errors
}

/// The same but for the loopback, where pods of an embedded node may well be. Kubernetes would refuse that, too.
fn reachable_ip(address: &str, path: &Path) -> Errors {
    let Some(ip) = addresses::ip(address) else { return vec![path.invalid(address, NOT_AN_IP)] };
    let mut errors = Errors::new();
    if ip.is_unspecified() {
        errors.push(path.invalid(address, format!("may not be unspecified ({address})")));
    }
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if is_link_local {
        let why = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        errors.push(path.invalid(address, why));
    }
    errors
}

pub(super) struct Endpoints;

impl Endpoints {
    fn subsets(endpoints: &Value) -> Errors {
        let mut errors = Errors::new();
        for (i, subset) in items(endpoints, "subsets").iter().enumerate() {
            let path = Path::new("subsets").index(i);
            let lists = ["addresses", "notReadyAddresses"];
            if lists.iter().all(|list| items(subset, list).is_empty()) {
                errors.push(path.required("must specify `addresses` or `notReadyAddresses`"));
            }
            for list in lists {
                for (j, address) in items(subset, list).iter().enumerate() {
                    errors.extend(Endpoints::address(address, &path.child(list).index(j)));
                }
            }
            let ports = items(subset, "ports");
            for (j, port) in ports.iter().enumerate() {
                errors.extend(Endpoints::port(port, ports.len() > 1, &path.child("ports").index(j)));
            }
        }
        errors
    }

    fn address(address: &Value, path: &Path) -> Errors {
        let (ip, at_ip) = (text(address, "ip"), path.child("ip"));
        let mut errors = Errors::new();
        if addresses::ip(ip).is_none() {
            errors.push(at_ip.invalid(ip, NOT_AN_IP));
        }
        let hostname = text(address, "hostname");
        if !hostname.is_empty() {
            let path = path.child("hostname");
            errors.extend(
                names::dns_label(hostname).into_iter().map(|problem| path.invalid(hostname, problem)),
            );
        }
        if let Some(node) = address["nodeName"].as_str() {
            let path = path.child("nodeName");
            errors.extend(names::dns_subdomain(node).into_iter().map(|problem| path.invalid(node, problem)));
        }
        if addresses::ip(ip).is_none() {
            errors.push(at_ip.invalid(ip, "must be a valid IP address"));
        } else {
            errors.extend(endpoint_ip(ip, &at_ip));
        }
        errors
    }

    fn port(port: &Value, needs_name: bool, path: &Path) -> Errors {
        let mut errors = Errors::new();
        let name = text(port, "name");
        if name.is_empty() && needs_name {
            errors.push(path.child("name").required(""));
        } else if !name.is_empty() {
            let path = path.child("name");
            errors.extend(names::dns_label(name).into_iter().map(|problem| path.invalid(name, problem)));
        }
        let number = i32::try_from(port["port"].as_i64().unwrap_or(0)).unwrap_or(-1);
        let at_port = path.child("port");
        errors.extend(names::port_number(number).into_iter().map(|problem| at_port.invalid(number, problem)));
        errors.extend(protocol(text(port, "protocol"), &path.child("protocol")));
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.extend(meta::qualified(protocol, &path.child("appProtocol")));
        }
        errors
    }
}

impl Kind for Endpoints {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let wrong = Endpoints::subsets(it.new);
        let is_same = !it.old.is_null() && at(it.new, "subsets") == at(it.old, "subsets");
        if !is_same {
            errors.extend(wrong);
        }
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        for (i, subset) in items(new, "subsets").iter().enumerate() {
            for list in ["addresses", "notReadyAddresses"] {
                for (j, address) in items(subset, list).iter().enumerate() {
                    let path = Path::new("subsets").index(i).child(list).index(j).child("ip");
                    warnings.extend(addresses::ip_warning(text(address, "ip"), &path));
                }
            }
        }
        warnings
    }
}

/// Slices of endpoints.
pub(in crate::kind) struct EndpointSlices;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];

impl EndpointSlices {
    fn endpoints(slice: &Value) -> Errors {
        let path = Path::new("endpoints");
        let kind = text(slice, "addressType");
        let endpoints = items(slice, "endpoints");
        let mut errors = Errors::new();
        if endpoints.len() > 1000 {
            errors.push(path.too_many(endpoints.len(), 1000));
            return errors;
        }
        for (i, endpoint) in endpoints.iter().enumerate() {
            let at_addresses = path.index(i).child("addresses");
            let addresses = items(endpoint, "addresses");
            if addresses.is_empty() {
                errors.push(at_addresses.required("must contain at least 1 address"));
            } else if addresses.len() > 100 {
                errors.push(at_addresses.too_many(addresses.len(), 100));
            }
            for (j, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
                errors.extend(EndpointSlices::address(kind, address, &at_addresses, j));
            }
            if let Some(node) = endpoint["nodeName"].as_str() {
                let path = path.index(i).child("nodeName");
                errors.extend(
                    names::dns_subdomain(node).into_iter().map(|problem| path.invalid(node, problem)),
                );
            }
            if let Some(name) = endpoint["hostname"].as_str() {
                let path = path.index(i).child("hostname");
                errors.extend(names::dns_label(name).into_iter().map(|problem| path.invalid(name, problem)));
            }
            errors.extend(EndpointSlices::hints(&endpoint["hints"], &path.index(i).child("hints")));
        }
        errors
    }

    /// For whom an endpoint is: zones and nodes, a few of each and none twice.
    fn hints(hints: &Value, path: &Path) -> Errors {
        const MOST: usize = 8;
        let mut errors = Errors::new();
        for list in ["forZones", "forNodes"] {
            let count = items(hints, list).len();
            if count > MOST {
                return vec![path.child(list).too_many(count, MOST)];
            }
        }
        for list in ["forZones", "forNodes"] {
            let mut seen = BTreeSet::new();
            for (i, hint) in items(hints, list).iter().enumerate() {
                let (path, name) = (path.child(list).index(i).child("name"), text(hint, "name"));
                if !seen.insert(name) {
                    errors.push(path.duplicate(name));
                }
                let problems =
                    if list == "forZones" { names::label_value(name) } else { names::dns_subdomain(name) };
                errors.extend(problems.into_iter().map(|problem| path.invalid(name, problem)));
            }
        }
        errors
    }

    /// An address of another family is told of at the list, everything else at its place in it.
    fn address(kind: &str, address: &str, addresses: &Path, place: usize) -> Errors {
        let path = addresses.index(place);
        let problems = match kind {
            "IPv4" if addresses::ip(address).is_none() => vec![NOT_AN_IP.to_owned()],
            "IPv4" => Vec::new(),
            "IPv6" => addresses::strict_ip(address),
            "FQDN" => return domain(address, &path),
            _ => return Errors::new(),
        };
        if !problems.is_empty() {
            return problems.into_iter().map(|why| path.invalid(address, why)).collect();
        }
        let mut errors = Errors::new();
        if addresses::ip(address).is_some_and(|ip| ip.is_ipv4() != (kind == "IPv4")) {
            errors.push(addresses.invalid(address, format!("must be an {kind} address")));
        }
        errors.extend(reachable_ip(address, &path));
        errors
    }

    fn ports(slice: &Value) -> Errors {
        let path = Path::new("ports");
        let ports = items(slice, "ports");
        let mut errors = Errors::new();
        if ports.len() > 20_000 {
            errors.push(path.too_many(ports.len(), 20_000));
            return errors;
        }
        let mut seen = BTreeSet::new();
        for (i, port) in ports.iter().enumerate() {
            let (path, name) = (path.index(i), text(port, "name"));
            if !name.is_empty() {
                let path = path.child("name");
                errors.extend(names::dns_label(name).into_iter().map(|problem| path.invalid(name, problem)));
            }
            if !seen.insert(name) {
                errors.push(path.child("name").duplicate(field::Value::json(&name)));
            }
            let protocol = text(port, "protocol");
            if !PROTOCOLS.contains(&protocol) {
                let path = path.child("protocol");
                errors.push(path.not_supported(field::Value::json(&protocol), &PROTOCOLS));
            }
            if let Some(protocol) = port["appProtocol"].as_str() {
                errors.extend(meta::qualified(protocol, &path.child("appProtocol")));
            }
        }
        errors
    }

    fn type_and_ports(slice: &Value) -> Errors {
        let kind = text(slice, "addressType");
        let mut errors = Errors::new();
        if kind.is_empty() {
            errors.push(Path::new("addressType").required(""));
        } else if !TYPES.contains(&kind) {
            errors.push(Path::new("addressType").not_supported(field::Value::json(&kind), &TYPES));
        }
        errors.extend(EndpointSlices::ports(slice));
        errors
    }
}

impl Kind for EndpointSlices {
    fn counts(&self) -> Counts {
        Counts::Fields(&["endpoints", "ports", "addressType", "metadata.labels"])
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        if text(new, "addressType") == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        warnings.extend(self.warn_update(new, &Value::Null));
        warnings
    }

    /// A cluster's own controllers write addresses as they should be.
    fn warn_update(&self, new: &Value, _: &Value) -> Vec<String> {
        let by = new["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"].as_str();
        if matches!(by, Some("endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io"))
        {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for (i, endpoint) in items(new, "endpoints").iter().enumerate() {
            let path = Path::new("endpoints").index(i).child("addresses");
            let all = items(endpoint, "addresses").iter().filter_map(Value::as_str).enumerate();
            warnings.extend(all.filter_map(|(j, address)| addresses::ip_warning(address, &path.index(j))));
        }
        warnings
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_topology(new);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let had_topology = |endpoint: &Value| !endpoint["deprecatedTopology"].is_null();
        if !items(old, "endpoints").iter().any(had_topology) {
            drop_topology(new);
        }
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(EndpointSlices::type_and_ports(it.new));
        // What was let pass before is not asked again.
        if it.old.is_null() || items(it.new, "endpoints") != items(it.old, "endpoints") {
            errors.extend(EndpointSlices::endpoints(it.new));
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(super::immutable(it, "addressType"));
        errors
    }
}

/// What is wrong with the name of a host that says where in the world it is; a dot may end it.
fn domain(name: &str, path: &Path) -> Errors {
    if name.is_empty() {
        return vec![path.required("")];
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let problems = names::dns_subdomain(name);
    if !problems.is_empty() {
        return vec![path.invalid(name, problems.join(","))];
    }
    if !name.contains('.') {
        return vec![path.invalid(name, "should be a domain with at least two segments separated by dots")];
    }
    let bad = name.split('.').map(|label| (label, names::dns_label(label))).find(|(_, bad)| !bad.is_empty());
    bad.into_iter().map(|(label, problems)| path.invalid(label, problems.join(","))).collect()
}

/// What zones were before they had a field is not taken any more.
fn drop_topology(slice: &mut Value) {
    for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
        endpoint.as_object_mut().map(|endpoint| endpoint.remove("deprecatedTopology"));
    }
}
