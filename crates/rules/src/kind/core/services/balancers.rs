//! Load balancers of services.

use std::collections::BTreeSet;

use serde_json::Value;

use super::NOT_AN_IP;
use crate::field::{self, Errors, Path};
use crate::kind::{It, at, items, text};
use crate::meta;
use crate::names;
use crate::pod::addresses;

/// Who may ask a balancer, as it was said before there was a field for that.
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
/// Where it is told by which addresses a balancer is reached.
const INGRESS: &str = "status.loadBalancer.ingress";
/// How what comes to an address of a balancer arrives.
const MODES: [&str; 2] = ["Proxy", "VIP"];

/// What a service says to balancers. `old` is what it was.
pub(super) fn load_balancer(service: &Value, old: &Value, path: &Path) -> Errors {
    let spec = at(service, "spec");
    let kind = text(spec, "type");
    let mut errors = Errors::new();
    let ranges = items(spec, "loadBalancerSourceRanges");
    let annotated = |service: &Value| service["metadata"]["annotations"][RANGES].as_str().map(str::to_owned);
    if !ranges.is_empty() {
        let path = path.child("LoadBalancerSourceRanges");
        if kind != "LoadBalancer" {
            errors.push(path.forbidden(ONLY));
        }
        let ranges = ranges.iter().filter_map(Value::as_str).enumerate();
        errors.extend(ranges.filter_map(|(i, range)| source_range(range, &path.index(i))));
    } else if let Some(ranges) = annotated(service) {
        let path = Path::new("metadata").child("annotations").key(RANGES);
        if kind != "LoadBalancer" {
            errors.push(path.forbidden(ONLY));
        }
        if annotated(old).as_ref() != Some(&ranges) && !ranges.trim().is_empty() {
            errors.extend(ranges.trim().split(',').filter_map(|range| source_range(range, &path)));
        }
    }
    if kind != "LoadBalancer" && !spec["allocateLoadBalancerNodePorts"].is_null() {
        errors.push(path.child("allocateLoadBalancerNodePorts").forbidden(ONLY));
    }
    errors.extend(balancer_class(spec, kind, path));
    errors
}

fn source_range(range: &str, path: &Path) -> Option<field::Error> {
    let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    addresses::cidr(range.trim()).is_none().then(|| path.invalid(range.trim(), why))
}

fn balancer_class(spec: &Value, kind: &str, path: &Path) -> Errors {
    let Some(class) = spec["loadBalancerClass"].as_str() else { return Errors::new() };
    let path = path.child("loadBalancerClass");
    if kind == "LoadBalancer" {
        return meta::qualified(class, &path);
    }
    vec![path.forbidden(ONLY)]
}

pub(super) fn changed_class(it: &It<'_>) -> Errors {
    let is_balanced = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    let (new, old) = (at(it.new, "spec.loadBalancerClass"), at(it.old, "spec.loadBalancerClass"));
    let path = Path::new("spec").child("loadBalancerClass");
    let mut errors = Errors::new();
    if is_balanced(it.new) && is_balanced(it.old) && new != old {
        errors.push(path.invalid(field::Value::json(new), "may not change once set"));
    }
    errors.extend(balancer_class(at(it.new, "spec"), text(it.new, "spec.type"), &Path::new("spec")));
    errors
}

/// What a balancer says of itself.
pub(super) fn status(new: &Value, old: &Value) -> Errors {
    let path = Path::new("status").child("loadBalancer").child("ingress");
    let (new_ones, old_ones) = (items(new, INGRESS), items(old, INGRESS));
    if text(new, "spec.type") != "LoadBalancer" && !new_ones.is_empty() {
        return vec![path.forbidden("may only be used when `spec.type` is 'LoadBalancer'")];
    }
    let known: BTreeSet<&str> = old_ones.iter().map(|before| text(before, "ip")).collect();
    let mut errors = Errors::new();
    for (i, ingress) in new_ones.iter().enumerate() {
        let (path, ip) = (path.index(i), text(ingress, "ip"));
        errors.extend(ingress_at(ingress, &known, &path));
        let path = path.child("ipMode");
        match ingress["ipMode"].as_str() {
            None if ip.is_empty() => {}
            None => errors.push(path.required("must be specified when `ip` is set")),
            Some(_) if ip.is_empty() => {
                errors.push(path.forbidden("may not be specified when `ip` is not set"));
            }
            Some(mode) if !MODES.contains(&mode) => {
                errors.push(path.not_supported(field::Value::json(&mode), &MODES));
            }
            Some(_) => {}
        }
    }
    errors
}

/// What is wrong with the address and the name under which a balancer is reached. Addresses that are known already are not
/// asked again.
fn ingress_at(ingress: &Value, known: &BTreeSet<&str>, path: &Path) -> Errors {
    let (ip, hostname) = (text(ingress, "ip"), text(ingress, "hostname"));
    let mut errors = Errors::new();
    if !ip.is_empty() && !known.contains(ip) && addresses::ip(ip).is_none() {
        errors.push(path.child("ip").invalid(ip, NOT_AN_IP));
    }
    let path = path.child("hostname");
    let problems = if hostname.is_empty() { Vec::new() } else { names::dns_subdomain(hostname) };
    errors.extend(problems.into_iter().map(|problem| path.invalid(hostname, problem)));
    if addresses::ip(hostname).is_some() {
        errors.push(path.invalid(hostname, "must be a DNS name, not an IP address"));
    }
    errors
}
