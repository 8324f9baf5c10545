//! Services.
//!
//! Addresses and ports that a cluster gives are allocated elsewhere, before the rules here see a service.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::endpoints;
use crate::field::{self, Errors, Path};
use crate::kind::{It, Kind, at, items, text};
use crate::meta;
use crate::names::{self, Problems};
use crate::pod::addresses;
use crate::repeated::repeated;

mod balancers;
mod changes;
pub mod ports;
#[cfg(test)]
mod tests;

pub use changes::carry_over;
use changes::{gets_node_ports, needs_check};

pub(super) struct Services;

const NONE: &str = "None";
/// How traffic is kept near, as it was said before, and as it is.
const OLD_TOPOLOGY: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY: &str = "service.kubernetes.io/topology-mode";
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const SERVICE_PORT: &str = "io.k8s.api.core.v1.ServicePort";
pub(super) const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const DAY: i64 = 24 * 60 * 60;

/// Whether a service has no address of its own, and does not want one.
pub fn is_headless(service: &Value) -> bool {
    items(service, "spec.clusterIPs").first().and_then(Value::as_str) == Some(NONE)
}

/// An address that a cluster with addresses of one family (IPv4) may give, however it is written.
pub fn address(text: &str) -> Option<Ipv4Addr> {
    match addresses::ip(text)? {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(ip) => ip.to_ipv4_mapped(),
    }
}

/// What is wrong with the addresses of a service. Nothing is allocated before they are right.
pub fn address_errors(service: &Value) -> Errors {
    if text(service, "spec.type") == "ExternalName" {
        return Errors::new();
    }
    cluster_ips(at(service, "spec"), is_headless(service), &Path::new("spec"))
}

/// What a service wants that a cluster with addresses of one family (IPv4) cannot give. `old` is what it was.
pub fn family_errors(service: &Value, old: Option<&Value>) -> Errors {
    let spec = at(service, "spec");
    if text(spec, "type") == "ExternalName" {
        return Errors::new();
    }
    let policy = text(spec, "ipFamilyPolicy");
    let families: Vec<&str> = items(spec, "ipFamilies").iter().filter_map(Value::as_str).collect();
    let ips = items(spec, "clusterIPs");
    // What prefers two families and got one is left alone, whatever the cluster has by now.
    if let Some(old) = old.map(|old| at(old, "spec"))
        && policy == "PreferDualStack"
        && text(old, "ipFamilyPolicy") == policy
        && items(old, "clusterIPs") == ips
        && items(old, "ipFamilies") == items(spec, "ipFamilies")
    {
        return Errors::new();
    }
    let (path, mut errors) = (Path::new("spec"), Errors::new());
    let mut refuse_policy = |why: &str| errors.push(path.child("ipFamilyPolicy").invalid(policy, why));
    if let Some(old) = old.map(|old| at(old, "spec"))
        && policy != "SingleStack"
    {
        let is_less = |field: &str| {
            let (old, new) = (items(old, field), items(spec, field));
            new.len() == 1 && old.len() == 2 && new.first() == old.first()
        };
        if is_less("clusterIPs") {
            refuse_policy("must be 'SingleStack' to release the secondary cluster IP");
        }
        if is_less("ipFamilies") {
            refuse_policy("must be 'SingleStack' to release the secondary IP family");
        }
    }
    if policy == "SingleStack" {
        let several = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
        if ips.len() == 2 {
            refuse_policy(&format!("{several} cluster IPs are specified"));
        }
        if families.len() == 2 {
            refuse_policy(&format!("{several} IP families are specified"));
        }
    }
    let has_no_selector = spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    if !errors.is_empty() || is_headless(service) && has_no_selector {
        return errors;
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.push(path.child("ipFamilyPolicy").invalid(policy, why));
    }
    for (i, family) in families.iter().enumerate().filter(|(_, family)| **family != "IPv4") {
        let why = "not configured on this cluster";
        errors.push(path.child("ipFamilies").index(i).invalid(*family, why));
    }
    errors
}

/// What a service has when it is made: one address, of one family.
pub fn complete(service: &mut Value) {
    let spec = &mut service["spec"];
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let ip = text(spec, "clusterIP").to_owned();
    if !ip.is_empty() && items(spec, "clusterIPs").is_empty() {
        spec["clusterIPs"] = json!([ip]);
    }
    // Whoever selects no pods and wants no address speaks for addresses that nobody knows here.
    let is_open = items(spec, "clusterIPs").first().and_then(Value::as_str) == Some(NONE)
        && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
    if spec["ipFamilyPolicy"].is_null() {
        spec["ipFamilyPolicy"] = json!(if is_open { "RequireDualStack" } else { "SingleStack" });
    }
    if is_open && items(spec, "ipFamilies").is_empty() {
        spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
    }
    if items(spec, "ipFamilies").is_empty() {
        let is_v6 = addresses::ip(&ip).is_some_and(|ip| ip.is_ipv6());
        spec["ipFamilies"] = json!([if is_v6 { "IPv6" } else { "IPv4" }]);
    }
}

impl Kind for Services {
    fn name(&self) -> fn(&str) -> Problems {
        names::dns_1035_label
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        complete(new);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        carry_over(new, old);
        changes::drop_status(new);
    }

    fn canonicalize(&self, new: &mut Value) {
        // It is judged, and means nothing where nothing is forwarded.
        if text(new, "spec.type") == "ExternalName" {
            new["spec"].as_object_mut().map(|spec| spec.remove("internalTrafficPolicy"));
        }
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(service(it.new, it.old));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(changes::changed_addresses(it));
        errors.extend(balancers::changed_class(it));
        errors.extend(changes::changed_check(it));
        errors.extend(service(it.new, it.old));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let spec = at(new, "spec");
        let mut warnings = Vec::new();
        if !new["metadata"]["annotations"][OLD_TOPOLOGY].is_null() {
            warnings.push(format!("annotation {OLD_TOPOLOGY} is deprecated, please use {TOPOLOGY} instead"));
        }
        if is_headless(new) && text(spec, "type") == "ClusterIP" {
            for (field, is_set) in [
                ("loadBalancerIP", !text(spec, "loadBalancerIP").is_empty()),
                ("externalIPs", !items(spec, "externalIPs").is_empty()),
                ("SessionAffinity", text(spec, "sessionAffinity") != NONE),
            ] {
                if is_set {
                    warnings.push(format!("spec.{field} is ignored for headless services"));
                }
            }
        }
        for (field, is_shown) in [("clusterIPs", !is_headless(new)), ("externalIPs", true)] {
            let ips = items(spec, field).iter().filter_map(Value::as_str).enumerate().filter(|_| is_shown);
            let path = Path::new("spec").child(field);
            warnings.extend(ips.filter_map(|(i, ip)| addresses::ip_warning(ip, &path.index(i))));
        }
        let path = Path::new("spec").child("loadBalancerIP");
        warnings.extend(addresses::ip_warning(text(spec, "loadBalancerIP"), &path));
        warnings.extend(addresses::cidrs_warnings(new, &["spec", "loadBalancerSourceRanges"]));
        let is_external = text(spec, "type") == "ExternalName";
        if is_external && !items(spec, "externalIPs").is_empty() {
            warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
        }
        if !is_external && !text(spec, "externalName").is_empty() {
            warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
        }
        if text(spec, "trafficDistribution") == "PreferClose" {
            warnings.push(
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
            );
        }
        warnings
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(balancers::status(it.new, it.old));
        errors
    }

    fn warn_subresource(&self, _: &str, new: &Value) -> Vec<String> {
        let path = Path::new("status").child("loadBalancer").child("ingress");
        let ingresses = items(new, "status.loadBalancer.ingress").iter().enumerate();
        ingresses.filter_map(|(i, at)| addresses::ip_warning(text(at, "ip"), &path.index(i))).collect()
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.clusterIP", "spec.type"]
    }
}

fn service(service: &Value, old: &Value) -> Errors {
    let (spec, path) = (at(service, "spec"), Path::new("spec"));
    let kind = text(spec, "type");
    let mut errors = Errors::new();
    errors.extend(topology(&service["metadata"]["annotations"]));
    let ports = items(spec, "ports");
    if ports.is_empty() && !is_headless(service) && kind != "ExternalName" {
        errors.push(path.child("ports").required(""));
    }
    errors.extend(of_type(service, kind, &path));
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        errors.extend(self::port(port, ports.len() > 1, &mut seen, &path.child("ports").index(i)));
    }
    let selector = spec["selector"].as_object().map(|labels| {
        labels.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_owned())).collect()
    });
    errors.extend(meta::labels(selector.as_ref(), &path.child("selector")));
    errors.extend(affinity(spec, &path));
    if kind != "ExternalName" {
        errors.extend(cluster_ips(spec, is_headless(service), &path));
    }
    for (i, ip) in items(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        errors.extend(endpoints::endpoint_ip(ip, &path.child("externalIPs").index(i)));
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if kind.is_empty() {
        errors.push(path.child("type").required(""));
    } else if !types.contains(&kind) {
        errors.push(path.child("type").not_supported(field::Value::json(&kind), &types));
    }
    errors.extend(repeated_ports(ports, kind, &path.child("ports")));
    errors.extend(balancers::load_balancer(service, old, &path));
    errors.extend(traffic(spec, kind, &path));
    errors
}

/// What says the same in two ways says the same.
fn topology(annotations: &Value) -> Option<field::Error> {
    let (before, now) = (annotations[OLD_TOPOLOGY].as_str()?, annotations[TOPOLOGY].as_str()?);
    let path = Path::new("metadata").child("annotations").key(TOPOLOGY);
    let why = || format!("must match annotations[{OLD_TOPOLOGY}] when both are specified");
    (before != now).then(|| path.invalid(now, why()))
}

fn of_type(service: &Value, kind: &str, path: &Path) -> Errors {
    let spec = at(service, "spec");
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(service) => {
            let why = format!("may not be set to 'None' for {kind} services");
            vec![path.child("clusterIPs").index(0).invalid(NONE, why)]
        }
        "ExternalName" => {
            let why = "may not be set for ExternalName services";
            let mut errors = Errors::new();
            for (field, is_set) in [
                ("clusterIPs", !items(spec, "clusterIPs").is_empty()),
                ("ipFamilies", !items(spec, "ipFamilies").is_empty()),
                ("ipFamilyPolicy", !spec["ipFamilyPolicy"].is_null()),
            ] {
                if is_set {
                    errors.push(path.child(field).forbidden(why));
                }
            }
            let name = text(spec, "externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            let path = path.child("externalName");
            if name.is_empty() {
                errors.push(path.required(""));
            } else {
                errors.extend(
                    names::dns_subdomain(name).into_iter().map(|problem| path.invalid(name, problem)),
                );
            }
            errors
        }
        _ => Errors::new(),
    }
}

fn port<'a>(port: &'a Value, needs_name: bool, seen: &mut BTreeSet<&'a str>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let name = text(port, "name");
    if name.is_empty() {
        if needs_name {
            errors.push(path.child("name").required(""));
        }
    } else {
        let at_name = path.child("name");
        errors.extend(names::dns_label(name).into_iter().map(|problem| at_name.invalid(name, problem)));
        if !seen.insert(name) {
            errors.push(at_name.duplicate(name));
        }
    }
    let number = i32::try_from(port["port"].as_i64().unwrap_or(0)).unwrap_or(-1);
    errors.extend(
        names::port_number(number).into_iter().map(|problem| path.child("port").invalid(number, problem)),
    );
    errors.extend(protocol(text(port, "protocol"), &path.child("protocol")));
    let target = path.child("targetPort");
    match &port["targetPort"] {
        Value::String(name) => {
            errors.extend(names::port_name(name).into_iter().map(|problem| target.invalid(name, problem)));
        }
        number => {
            let number = i32::try_from(number.as_i64().unwrap_or(0)).unwrap_or(-1);
            errors.extend(
                names::port_number(number).into_iter().map(|problem| target.invalid(number, problem)),
            );
        }
    }
    if let Some(protocol) = port["appProtocol"].as_str() {
        errors.extend(meta::qualified(protocol, &path.child("appProtocol")));
    }
    errors
}

pub(super) fn protocol(protocol: &str, path: &Path) -> Option<field::Error> {
    match protocol {
        "" => Some(path.required("")),
        protocol if !PROTOCOLS.contains(&protocol) => {
            Some(path.not_supported(field::Value::json(&protocol), &PROTOCOLS))
        }
        _ => None,
    }
}

fn affinity(spec: &Value, path: &Path) -> Errors {
    let config = &spec["sessionAffinityConfig"];
    let at_config = path.child("sessionAffinityConfig");
    match text(spec, "sessionAffinity") {
        "" => vec![path.child("sessionAffinity").required("")],
        "ClientIP" => {
            if config.is_null() {
                return vec![at_config.required("when session affinity type is ClientIP")];
            }
            let seconds = at(config, "clientIP.timeoutSeconds").as_i64().unwrap_or(0);
            if (1..=DAY).contains(&seconds) {
                return Errors::new();
            }
            let path = at_config.child("clientIP").child("timeoutSeconds");
            vec![path.invalid(seconds, format!("must be greater than 0 and less than {DAY}"))]
        }
        NONE if config.is_null() => Errors::new(),
        NONE => vec![at_config.forbidden("must not be set when session affinity is None")],
        other => {
            let supported = ["ClientIP", NONE];
            vec![path.child("sessionAffinity").not_supported(field::Value::json(&other), &supported)]
        }
    }
}

fn cluster_ips(spec: &Value, is_headless: bool, path: &Path) -> Errors {
    let at_ips = path.child("clusterIPs");
    let ips: Vec<&str> = items(spec, "clusterIPs").iter().filter_map(Value::as_str).collect();
    let ip = text(spec, "clusterIP");
    let mut errors = Errors::new();
    if ip.is_empty() {
        if !ips.is_empty() {
            let why = "must be empty when `clusterIP` is not specified";
            errors.push(at_ips.invalid(field::Value::json(&ips), why));
        }
    } else if ips.is_empty() {
        errors.push(at_ips.required(""));
    } else if ips.first() != Some(&ip) {
        errors.push(at_ips.invalid(field::Value::json(&ips), "first value must match `clusterIP`"));
    }
    let families: Vec<&str> = items(spec, "ipFamilies").iter().filter_map(Value::as_str).collect();
    for (i, family) in families.iter().enumerate() {
        let path = path.child("ipFamilies").index(i);
        if !matches!(*family, "IPv4" | "IPv6") {
            errors.push(path.not_supported(field::Value::json(family), &["IPv4", "IPv6"]));
        }
        if families[..i].contains(family) {
            errors.push(path.duplicate(field::Value::json(family)));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = spec["ipFamilyPolicy"].as_str().filter(|policy| !policies.contains(policy)) {
        errors.push(path.child("ipFamilyPolicy").not_supported(field::Value::json(&policy), &policies));
    }
    let mut is_readable = true;
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && *ip == NONE {
            if ips.len() > 1 {
                is_readable = false;
                errors.push(
                    at_ips.invalid(field::Value::json(&ips), "'None' must be the first and only value"),
                );
            }
        } else if addresses::ip(ip).is_none() {
            is_readable = false;
            errors.push(at_ips.index(i).invalid(*ip, NOT_AN_IP));
        }
    }
    if ips.len() > 2 {
        errors.push(at_ips.invalid(field::Value::json(&ips), "may only hold up to 2 values"));
    }
    if !is_readable {
        return errors;
    }
    let is_v6 = |ip: &str| addresses::ip(ip).is_some_and(|ip| ip.is_ipv6());
    if let [first, second] = ips.as_slice()
        && is_v6(first) == is_v6(second)
    {
        let why = "may specify no more than one IP for each IP family";
        errors.push(at_ips.invalid(field::Value::json(&ips), why));
    }
    for (i, (ip, family)) in ips.iter().zip(&families).enumerate().filter(|_| !is_headless) {
        let expected = if is_v6(ip) { "IPv6" } else { "IPv4" };
        if matches!(*family, "IPv4" | "IPv6") && *family != expected {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(at_ips.index(i).invalid(*ip, why));
        }
    }
    errors
}

fn repeated_ports(ports: &[Value], kind: &str, path: &Path) -> Errors {
    let number = |port: &Value, field: &str| port[field].as_i64().unwrap_or(0);
    let mut errors = Errors::new();
    if kind == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, port)| number(port, "nodePort") != 0) {
            let why = "may not be used when `type` is 'ClusterIP'";
            errors.push(path.index(i).child("nodePort").forbidden(why));
        }
    }
    let again = |field: &str| repeated(ports, |port| (text(port, "protocol"), number(port, field)));
    let (same_node_port, same_port) = (again("nodePort"), again("port"));
    for (i, port) in ports.iter().enumerate().filter(|(_, port)| number(port, "nodePort") != 0) {
        if same_node_port[i] {
            errors.push(path.index(i).child("nodePort").duplicate(number(port, "nodePort")));
        }
    }
    for (i, port) in ports.iter().enumerate().filter(|(i, _)| same_port[*i]) {
        let key = json!({"protocol": port["protocol"], "port": port["port"]});
        errors.push(path.index(i).duplicate(field::Value::internal(SERVICE_PORT, &key)));
    }
    errors
}

fn traffic(spec: &Value, kind: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let is_external = changes::is_external(spec);
    let (policy, at_policy) = (text(spec, "externalTrafficPolicy"), path.child("externalTrafficPolicy"));
    match (is_external, policy) {
        (false, "") | (true, "Cluster" | "Local") => {}
        (false, policy) => {
            let why = "may only be set for externally-accessible services";
            errors.push(at_policy.invalid(field::Value::json(&policy), why));
        }
        (true, "") => errors.push(at_policy.required("")),
        (true, policy) => {
            errors.push(at_policy.not_supported(field::Value::json(&policy), &["Cluster", "Local"]));
        }
    }
    let port = i32::try_from(spec["healthCheckNodePort"].as_i64().unwrap_or(0)).unwrap_or(-1);
    let at_port = path.child("healthCheckNodePort");
    match (needs_check(spec), port) {
        (false, 0) => {}
        (false, port) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(at_port.invalid(port, why));
        }
        (true, 0) => errors.push(at_port.required("")),
        (true, port) => {
            errors.extend(names::port_number(port).into_iter().map(|problem| at_port.invalid(port, problem)));
        }
    }
    let at_internal = path.child("internalTrafficPolicy");
    match spec["internalTrafficPolicy"].as_str() {
        None if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") => {
            errors.push(at_internal.required(""));
        }
        Some(policy) if !matches!(policy, "Cluster" | "Local") => {
            errors.push(at_internal.not_supported(field::Value::json(&policy), &["Cluster", "Local"]));
        }
        _ => {}
    }
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if let Some(distribution) = spec["trafficDistribution"].as_str().filter(|it| !known.contains(it)) {
        errors
            .push(path.child("trafficDistribution").not_supported(field::Value::from(distribution), &known));
    }
    errors
}
