//! What a change of a service keeps, loses and may not touch.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::is_headless;
use crate::field::{self, Errors, Path};
use crate::kind::{It, at, items, keep, text};
use crate::meta::IMMUTABLE;

const BALANCED: &str = "LoadBalancer";

/// What an update leaves out is what was there, as long as the service stays what it is; and what a service has from
/// being what it was it loses, where the update does not change that itself.
pub fn carry_over(new: &mut Value, old: &Value) {
    let (new_spec, old_spec) = (&mut new["spec"], &old["spec"]);
    if has_addresses(new_spec) && has_addresses(old_spec) {
        if text(new_spec, "clusterIP").is_empty() {
            keep(new_spec, old_spec, "clusterIP");
        }
        if items(new_spec, "clusterIPs").is_empty() {
            keep(new_spec, old_spec, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if new_spec[field].is_null() {
                keep(new_spec, old_spec, field);
            }
        }
    }
    // The one and the first of the many are the same; whoever changes one means both.
    let ip = text(new_spec, "clusterIP").to_owned();
    if ip != text(old_spec, "clusterIP") && items(new_spec, "clusterIPs") == items(old_spec, "clusterIPs") {
        if ip.is_empty() {
            remove(new_spec, "clusterIPs");
        } else {
            new_spec["clusterIPs"] = json!([ip]);
        }
    }
    if gets_node_ports(new_spec) && gets_node_ports(old_spec) {
        carry_node_ports(new_spec, old_spec);
    }
    if needs_check(new_spec) && needs_check(old_spec) && number(&new_spec["healthCheckNodePort"]) == 0 {
        keep(new_spec, old_spec, "healthCheckNodePort");
    }
    drop_what_it_has_not(new_spec, old_spec);
}

/// What no balancer is for any more has no addresses of one either, although taking it away may take a while.
pub(super) fn drop_status(new: &mut Value) {
    if text(new, "spec.type") != BALANCED && !new["status"]["loadBalancer"].is_null() {
        new["status"]["loadBalancer"] = json!({});
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn remove(spec: &mut Value, field: &str) {
    spec.as_object_mut().map(|spec| spec.remove(field));
}

fn has_addresses(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn may_have_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

/// Whether each port that asks for no port of the nodes gets one.
pub(super) fn gets_node_ports(spec: &Value) -> bool {
    let spared = text(spec, "type") == BALANCED && spec["allocateLoadBalancerNodePorts"] == false;
    may_have_node_ports(spec) && !spared
}

/// Whether balancers ask the nodes where the pods of a service are.
pub(super) fn needs_check(spec: &Value) -> bool {
    text(spec, "type") == BALANCED && text(spec, "externalTrafficPolicy") == "Local"
}

/// Whether a service is for those outside of the cluster, too.
pub(super) fn is_external(spec: &Value) -> bool {
    may_have_node_ports(spec) || text(spec, "type") == "ClusterIP" && !items(spec, "externalIPs").is_empty()
}

fn carry_node_ports(new_spec: &mut Value, old_spec: &Value) {
    let before: Vec<(String, i64)> = items(old_spec, "ports")
        .iter()
        .map(|port| (text(port, "name").to_owned(), number(&port["nodePort"])))
        .collect();
    let given: BTreeSet<i64> =
        items(new_spec, "ports").iter().map(|port| number(&port["nodePort"])).collect();
    for port in
        new_spec["ports"].as_array_mut().into_iter().flatten().filter(|port| number(&port["nodePort"]) == 0)
    {
        // Ports are known by their names; of two with one name the last counts.
        let same = before.iter().rev().find(|(name, _)| name == text(port, "name"));
        if let Some((_, kept)) = same.filter(|(_, kept)| *kept != 0 && !given.contains(kept)) {
            port["nodePort"] = json!(kept);
        }
    }
}

/// A service that is no longer what has a field loses it, unless the update changes the field as well: who does that is to
/// be told that the two do not go together.
fn drop_what_it_has_not(new: &mut Value, old: &Value) {
    if has_addresses(old) && !has_addresses(new) {
        if new["clusterIP"] == old["clusterIP"] && new["clusterIPs"] == old["clusterIPs"] {
            remove(new, "clusterIP");
            remove(new, "clusterIPs");
        }
        remove_if_same(new, old, "ipFamilies");
        remove_if_same(new, old, "ipFamilyPolicy");
    }
    let node_ports = |spec: &Value| -> BTreeSet<i64> {
        items(spec, "ports").iter().map(|port| number(&port["nodePort"])).filter(|port| *port != 0).collect()
    };
    if may_have_node_ports(old) && !may_have_node_ports(new) && node_ports(new).is_subset(&node_ports(old)) {
        for port in new["ports"].as_array_mut().into_iter().flatten() {
            remove(port, "nodePort");
        }
    }
    if needs_check(old) && !needs_check(new) {
        remove_if_same(new, old, "healthCheckNodePort");
    }
    if text(old, "type") == BALANCED && text(new, "type") != BALANCED {
        remove_if_same(new, old, "allocateLoadBalancerNodePorts");
        remove_if_same(new, old, "loadBalancerClass");
    }
    if is_external(old) && !is_external(new) {
        remove_if_same(new, old, "externalTrafficPolicy");
    }
}

fn remove_if_same(new: &mut Value, old: &Value, field: &str) {
    if new[field] == old[field] {
        remove(new, field);
    }
}

/// A port that is asked is asked for as long as it is asked at all.
pub(super) fn changed_check(it: &It<'_>) -> Option<field::Error> {
    let (new, old) = (at(it.new, "spec"), at(it.old, "spec"));
    let changed = number(&new["healthCheckNodePort"]) != number(&old["healthCheckNodePort"]);
    let path = Path::new("spec").child("healthCheckNodePort");
    (needs_check(new) && needs_check(old) && changed).then(|| path.forbidden(IMMUTABLE))
}

pub(super) fn changed_addresses(it: &It<'_>) -> Errors {
    let is_external = |service: &Value| text(service, "spec.type") == "ExternalName";
    if is_external(it.new) || is_external(it.old) || is_headless(it.new) && is_headless(it.old) {
        return Errors::new();
    }
    let path = Path::new("spec").child("clusterIPs");
    let (new, old) = (items(it.new, "spec.clusterIPs"), items(it.old, "spec.clusterIPs"));
    let value = || field::Value::json(&at(it.new, "spec.clusterIPs"));
    let once = |i: usize| path.index(i).invalid(value(), "may not change once set");
    if new.len() == old.len() {
        let changed = new.iter().zip(old).enumerate().filter(|(_, (new, old))| new != old);
        return changed.map(|(i, _)| once(i)).collect();
    }
    if new.is_empty() {
        return vec![path.index(0).invalid(value(), "primary clusterIP can not be unset")];
    }
    if !old.is_empty() && new[0] != old[0] { vec![once(0)] } else { Errors::new() }
}
