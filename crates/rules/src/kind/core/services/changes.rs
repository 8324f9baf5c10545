//! What a change of a service keeps, loses and may not touch.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::is_headless;
use crate::field::{self, Errors, Path};
use crate::kind::{It, at, items, keep, text};

/// What an update leaves out is what was there, as long as the service stays what it is.
pub fn carry_over(new: &mut Value, old: &Value) {
    let (kind, before) = (text(new, "spec.type").to_owned(), text(old, "spec.type").to_owned());
    let (was_external, is_external) = (before == "ExternalName", kind == "ExternalName");
    let new_spec = &mut new["spec"];
    let old_spec = &old["spec"];
    if !was_external && !is_external {
        // The one and the first of the many are the same; whoever changes one means both.
        let (ip, ips) = (text(new_spec, "clusterIP").to_owned(), items(new_spec, "clusterIPs").to_vec());
        let (old_ip, old_ips) = (text(old_spec, "clusterIP"), items(old_spec, "clusterIPs"));
        if ip != old_ip && ips == old_ips {
            if ip.is_empty() {
                new_spec.as_object_mut().map(|spec| spec.remove("clusterIPs"));
            } else {
                new_spec["clusterIPs"] = json!([ip]);
            }
        }
        if text(new_spec, "clusterIP").is_empty() {
            keep(new_spec, old_spec, "clusterIP");
        }
        let is_same = text(new_spec, "clusterIP") == text(old_spec, "clusterIP");
        if items(new_spec, "clusterIPs").is_empty() && is_same {
            keep(new_spec, old_spec, "clusterIPs");
        }
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if new_spec[field].is_null() {
                keep(new_spec, old_spec, field);
            }
        }
    }
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if has_node_ports(&kind) && has_node_ports(&before) {
        carry_node_ports(new_spec, old_spec);
        let needs_check = |spec: &Value| {
            text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
        };
        let unset = new_spec["healthCheckNodePort"].as_i64().unwrap_or(0) == 0;
        if needs_check(new_spec) && needs_check(old_spec) && unset {
            keep(new_spec, old_spec, "healthCheckNodePort");
        }
    }
    drop_what_the_type_has_not(new_spec, old_spec, &kind, &before);
}

fn carry_node_ports(new_spec: &mut Value, old_spec: &Value) {
    let number = |port: &Value| port["nodePort"].as_i64().unwrap_or(0);
    let before: Vec<(String, i64)> =
        items(old_spec, "ports").iter().map(|port| (text(port, "name").to_owned(), number(port))).collect();
    let given: BTreeSet<i64> = items(new_spec, "ports").iter().map(number).collect();
    for port in new_spec["ports"].as_array_mut().into_iter().flatten().filter(|port| number(port) == 0) {
        // Ports are known by their names; of two with one name the last counts.
        let same = before.iter().rev().find(|(name, _)| name == text(port, "name"));
        if let Some((_, kept)) = same.filter(|(_, kept)| *kept != 0 && !given.contains(kept)) {
            port["nodePort"] = json!(kept);
        }
    }
}

/// A service that changes its type loses what it had from the old one and did not change itself.
fn drop_what_the_type_has_not(new: &mut Value, old: &Value, kind: &str, before: &str) {
    if kind == before {
        return;
    }
    let has_external_ips = !items(new, "externalIPs").is_empty();
    let mut drop_if_same = |field: &str| {
        if new[field] == old[field] {
            new.as_object_mut().map(|spec| spec.remove(field));
        }
    };
    if kind == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
            drop_if_same(field);
        }
    }
    if !matches!(kind, "NodePort" | "LoadBalancer") && (kind == "ExternalName" || !has_external_ips) {
        drop_if_same("externalTrafficPolicy");
    }
    if kind != "LoadBalancer" {
        for field in ["healthCheckNodePort", "allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            drop_if_same(field);
        }
    }
    if !matches!(kind, "NodePort" | "LoadBalancer") && matches!(before, "NodePort" | "LoadBalancer") {
        let before: Vec<i64> =
            items(old, "ports").iter().filter_map(|port| port["nodePort"].as_i64()).collect();
        for port in new["ports"].as_array_mut().into_iter().flatten() {
            if port["nodePort"].as_i64().is_some_and(|number| before.contains(&number)) {
                port.as_object_mut().map(|port| port.remove("nodePort"));
            }
        }
    }
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
