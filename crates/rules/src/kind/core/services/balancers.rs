//! Load balancers of services.

use serde_json::Value;

use crate::field::{self, Errors, Path};
use crate::kind::{It, at, items, text};
use crate::meta;
use crate::pod::addresses;

pub(super) fn load_balancer(spec: &Value, kind: &str, path: &Path) -> Errors {
    let only = "may only be used when `type` is 'LoadBalancer'";
    let mut errors = Errors::new();
    let ranges = items(spec, "loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = path.child("LoadBalancerSourceRanges");
        if kind != "LoadBalancer" {
            errors.push(path.forbidden(only));
        }
        for (i, range) in ranges.iter().filter_map(Value::as_str).enumerate() {
            if addresses::cidr(range.trim()).is_none() {
                let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                errors.push(path.index(i).invalid(range.trim(), why));
            }
        }
    }
    if kind != "LoadBalancer" && !spec["allocateLoadBalancerNodePorts"].is_null() {
        errors.push(path.child("allocateLoadBalancerNodePorts").forbidden(only));
    }
    errors.extend(balancer_class(spec, kind, path));
    errors
}

fn balancer_class(spec: &Value, kind: &str, path: &Path) -> Errors {
    let Some(class) = spec["loadBalancerClass"].as_str() else { return Errors::new() };
    let path = path.child("loadBalancerClass");
    if kind == "LoadBalancer" {
        return meta::qualified(class, &path);
    }
    vec![path.forbidden("may only be used when `type` is 'LoadBalancer'")]
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
