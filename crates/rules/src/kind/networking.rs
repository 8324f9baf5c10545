//! Who may talk to whom, and who serves an ingress.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::{Counts, It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::{IMMUTABLE, selector};
use crate::names::{self, Problems};
use crate::pod::addresses;
use crate::wire;

/// Addresses that somebody has: each is called by itself, and says whose it is.
pub(super) struct Addresses;

impl Addresses {
    fn owner(owner: &Value) -> Errors {
        let path = Path::new("spec").child("parentRef");
        if owner.is_null() {
            return vec![path.required("")];
        }
        let mut errors = Errors::new();
        // The group of services is the one without a name.
        let group = text(owner, "group");
        if !group.is_empty() {
            let path = path.child("group");
            errors.extend(names::dns_subdomain(group).into_iter().map(|why| path.invalid(group, why)));
        }
        for field in ["resource", "name", "namespace"] {
            let path = path.child(field);
            match text(owner, field) {
                "" if field == "namespace" => {}
                "" => errors.push(path.required("")),
                name => {
                    errors.extend(names::path_segment(name).into_iter().map(|why| path.invalid(name, why)));
                }
            }
        }
        errors
    }
}

impl Kind for Addresses {
    fn name(&self) -> fn(&str) -> Problems {
        names::ip_address
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(Addresses::owner(at(it.new, "spec.parentRef")));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(it.metadata_update());
        let owner = at(it.new, "spec.parentRef");
        if owner != at(it.old, "spec.parentRef") {
            let owner = match owner {
                Value::Null => field::Value::json(owner),
                owner => field::Value::internal("io.k8s.api.networking.v1.ParentReference", owner),
            };
            errors.push(Path::new("spec").child("parentRef").invalid(owner, IMMUTABLE));
        }
        errors
    }
}

/// Who serves an ingress; the controller is for good.
pub(super) struct IngressClasses;

impl IngressClasses {
    /// Parameters are the cluster's, or in a namespace, which is then named.
    fn scope(parameters: &Value, path: &Path) -> Errors {
        const SCOPES: [&str; 2] = ["Cluster", "Namespace"];
        let (at_scope, at_namespace) = (path.child("scope"), path.child("namespace"));
        let namespace = parameters["namespace"].as_str();
        match (parameters["scope"].as_str(), namespace) {
            (None, _) => vec![at_scope.required("")],
            (Some("Namespace"), None) => {
                vec![at_namespace.required("`parameters.scope` is set to 'Namespace'")]
            }
            (Some("Namespace"), Some(name)) => {
                names::dns_label(name).into_iter().map(|why| at_namespace.invalid(name, why)).collect()
            }
            (Some("Cluster"), Some(_)) => {
                vec![at_namespace.forbidden("`parameters.scope` is set to 'Cluster'")]
            }
            (Some("Cluster"), None) => Errors::new(),
            (Some(other), _) => vec![at_scope.not_supported(other, &SCOPES)],
        }
    }
}

impl Kind for IngressClasses {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let (controller, path) = (text(it.new, "spec.controller"), Path::new("spec").child("controller"));
        if controller.len() > 250 {
            errors.push(path.too_long(250));
        }
        errors.extend(names::domain_prefixed_path(&path, controller));
        let (parameters, path) = (at(it.new, "spec.parameters"), Path::new("spec").child("parameters"));
        if !parameters.is_null() {
            errors.extend(super::ingress::reference(parameters, &path));
            errors.extend(IngressClasses::scope(parameters, &path));
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        let new = text(it.new, "spec.controller");
        if new != text(it.old, "spec.controller") {
            errors.push(Path::new("spec").child("controller").invalid(new, IMMUTABLE));
        }
        errors.extend(self.validate(it));
        errors
    }
}

/// Addresses for services.
pub(super) struct ServiceRanges;

impl ServiceRanges {
    /// One range of each family at most.
    fn spec(range: &Value) -> Errors {
        let (ranges, path) = (items(range, "spec.cidrs"), Path::new("spec").child("cidrs"));
        if ranges.is_empty() {
            return vec![path.required("at least one CIDR required")];
        }
        if ranges.len() > 2 {
            let spec = field::Value::internal("io.k8s.api.networking.v1.ServiceCIDRSpec", at(range, "spec"));
            return vec![path.invalid(spec, "may only hold up to 2 values")];
        }
        let mut errors = Errors::new();
        for (i, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
            errors.extend(addresses::strict_cidr(range, &path.index(i)));
        }
        let family = |range: &Value| Some(addresses::cidr(range.as_str()?)?.is_ipv4());
        if let [first, second] = ranges
            && family(first).is_some()
            && family(first) == family(second)
        {
            let why =
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            errors.push(path.invalid(field::Value::json(&ranges), why));
        }
        errors
    }
}

impl Kind for ServiceRanges {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(ServiceRanges::spec(it.new));
        errors
    }

    /// A second range may come to the first; nothing else changes.
    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        let (new, old) = (items(it.new, "spec.cidrs"), items(it.old, "spec.cidrs"));
        let path = Path::new("spec").child("cidrs");
        let gets_second = old.len() == 1 && new.len() == 2;
        if !gets_second && old.len() != new.len() {
            errors.push(path.invalid(field::Value::json(at(it.new, "spec.cidrs")), IMMUTABLE));
            return errors;
        }
        for (i, (new, old)) in new.iter().zip(old).enumerate() {
            if new != old {
                errors.push(path.index(i).invalid(new.as_str().unwrap_or(""), IMMUTABLE));
            }
        }
        if gets_second {
            errors.extend(ServiceRanges::spec(it.new));
        }
        errors
    }
}

/// Who may talk to pods.
pub(super) struct NetworkPolicies;

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

impl NetworkPolicies {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let tolerate = !self::selector(at(it.old, "spec.podSelector"), false, &path).is_empty();
        let mut errors = self::selector(&spec["podSelector"], tolerate, &path.child("podSelector"));
        for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
            for (i, rule) in items(spec, rules).iter().enumerate() {
                let path = path.child(rules).index(i);
                for (j, port) in items(rule, "ports").iter().enumerate() {
                    errors.extend(self::port(port, &path.child("ports").index(j)));
                }
                for (j, peer) in items(rule, peers).iter().enumerate() {
                    errors.extend(self::peer(peer, tolerate, &path.child(peers).index(j)));
                }
            }
        }
        let types = items(spec, "policyTypes");
        let path = path.child("policyTypes");
        if types.len() > 2 {
            let why = "may not specify more than two policyTypes";
            errors.push(path.invalid(field::Value::json(&types), why));
            return errors;
        }
        for (i, kind) in types.iter().filter_map(Value::as_str).enumerate() {
            if !matches!(kind, "Ingress" | "Egress") {
                errors.push(path.index(i).not_supported(field::Value::json(&kind), &["Ingress", "Egress"]));
            }
        }
        errors
    }
}

fn selector(value: &Value, tolerate: bool, path: &Path) -> Errors {
    if value.is_null() {
        return Errors::new();
    }
    let typed: LabelSelector = wire::typed(value);
    selector::validate(&typed, tolerate, path)
}

fn port(port: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(protocol) = port["protocol"].as_str().filter(|protocol| !PROTOCOLS.contains(protocol)) {
        errors.push(path.child("protocol").not_supported(field::Value::json(&protocol), &PROTOCOLS));
    }
    let (at_port, at_end) = (path.child("port"), path.child("endPort"));
    let end = port["endPort"].as_i64().map(|end| i32::try_from(end).unwrap_or(-1));
    match (&port["port"], end) {
        (Value::Number(number), end) => {
            let number = i32::try_from(number.as_i64().unwrap_or(0)).unwrap_or(-1);
            errors.extend(
                names::port_number(number).into_iter().map(|problem| at_port.invalid(number, problem)),
            );
            if let Some(end) = end {
                if end < number {
                    errors.push(at_end.invalid(number, "must be greater than or equal to `port`"));
                }
                errors
                    .extend(names::port_number(end).into_iter().map(|problem| at_end.invalid(end, problem)));
            }
        }
        (Value::String(name), end) => {
            if let Some(end) = end {
                errors.push(at_end.invalid(end, "may not be specified when `port` is non-numeric"));
            }
            errors.extend(names::port_name(name).into_iter().map(|problem| at_port.invalid(name, problem)));
        }
        (_, Some(end)) => {
            errors.push(at_end.invalid(end, "may not be specified when `port` is not specified"));
        }
        _ => {}
    }
    errors
}

fn peer(peer: &Value, tolerate: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let kinds = ["podSelector", "namespaceSelector", "ipBlock"];
    for kind in &kinds[..2] {
        errors.extend(selector(&peer[*kind], tolerate, &path.child(kind)));
    }
    let block = &peer["ipBlock"];
    if !block.is_null() {
        errors.extend(ip_block(block, &path.child("ipBlock")));
    }
    match kinds.iter().filter(|kind| !peer[**kind].is_null()).count() {
        0 => errors.push(path.required("must specify a peer")),
        1 => {}
        _ if !block.is_null() => errors.push(path.forbidden("may not specify both ipBlock and another peer")),
        _ => {}
    }
    errors
}

fn ip_block(block: &Value, path: &Path) -> Errors {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        return vec![path.child("cidr").required("")];
    }
    let Some(network) = read(cidr) else {
        return vec![path.child("cidr").invalid(cidr, addresses::NOT_A_CIDR)];
    };
    let mut errors = Errors::new();
    for (i, except) in items(block, "except").iter().filter_map(Value::as_str).enumerate() {
        let path = path.child("except").index(i);
        match read(except) {
            None => errors.push(path.invalid(except, addresses::NOT_A_CIDR)),
            Some(inner) if !is_inside(inner, network) => {
                errors.push(path.invalid(except, "must be a strict subset of `cidr`"));
            }
            Some(_) => {}
        }
    }
    errors
}

fn read(cidr: &str) -> Option<(IpAddr, u32)> {
    let ip = addresses::cidr(cidr)?;
    Some((ip, cidr.rsplit_once('/')?.1.parse().ok()?))
}

fn is_inside((inner, inner_bits): (IpAddr, u32), (outer, outer_bits): (IpAddr, u32)) -> bool {
    let first_bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)).checked_shr(32 - outer_bits.min(32)).unwrap_or(0),
        IpAddr::V6(ip) => u128::from(ip).checked_shr(128 - outer_bits.min(128)).unwrap_or(0),
    };
    inner.is_ipv4() == outer.is_ipv4() && outer_bits < inner_bits && first_bits(inner) == first_bits(outer)
}

impl Kind for NetworkPolicies {
    fn warn(&self, new: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for (direction, side) in [("ingress", "from"), ("egress", "to")] {
            for (i, rule) in items(at(new, "spec"), direction).iter().enumerate() {
                for (j, peer) in items(rule, side).iter().enumerate() {
                    let block = at(peer, "ipBlock");
                    let path =
                        Path::new("spec").child(direction).index(i).child(side).index(j).child("ipBlock");
                    found.extend(addresses::cidr_warnings(text(block, "cidr"), &path.child("cidr")));
                    let path = path.child("except");
                    for (k, except) in items(block, "except").iter().filter_map(Value::as_str).enumerate() {
                        found.extend(addresses::cidr_warnings(except, &path.index(k)));
                    }
                }
            }
        }
        found
    }

    fn counts(&self) -> Counts {
        Counts::Exactly(&["spec"])
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(NetworkPolicies::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        // Once as it is, and once as a change.
        let mut errors = self.validate(it);
        errors.extend(it.metadata_update());
        errors.extend(NetworkPolicies::spec(it));
        errors
    }
}
