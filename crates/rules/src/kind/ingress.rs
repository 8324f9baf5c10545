//! Ingresses: which requests from outside go to which service.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Counts, It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::names;
use crate::pod::addresses;

/// Where it is told by which addresses it is reached.
const BALANCERS: &str = "status.loadBalancer.ingress";
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
/// Parts of a path that would make it lead elsewhere.
const FORBIDDEN_PARTS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const FORBIDDEN_ENDS: [&str; 2] = ["/..", "/."];

pub(super) struct Ingresses;

impl Kind for Ingresses {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(spec(it));
        if it.old.is_null() {
            let annotation = it.new["metadata"]["annotations"][CLASS_ANNOTATION].as_str();
            let class = at(it.new, "spec.ingressClassName").as_str();
            if let (Some(annotation), Some(class)) = (annotation, class)
                && annotation != class
            {
                let path = Path::new("annotations").child(CLASS_ANNOTATION);
                let why = "must match `ingressClassName` when both are specified";
                errors.push(path.invalid(annotation, why));
            }
        }
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let is_only_annotated = !new["metadata"]["annotations"][CLASS_ANNOTATION].is_null()
            && at(new, "spec.ingressClassName").is_null();
        let why = || {
            format!(
                "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
            )
        };
        is_only_annotated.then(why).into_iter().collect()
    }

    fn warn_update(&self, _: &Value, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn warn_subresource(&self, _: &str, new: &Value) -> Vec<String> {
        let path = Path::new("status").child("loadBalancer").child("ingress");
        let all = items(new, BALANCERS).iter().enumerate();
        all.filter_map(|(i, at)| addresses::ip_warning(text(at, "ip"), &path.index(i))).collect()
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        let (new, old) = (items(it.new, BALANCERS), items(it.old, BALANCERS));
        let known: BTreeSet<&str> = old.iter().map(|before| text(before, "ip")).collect();
        for (i, balancer) in new.iter().enumerate() {
            let path = Path::new("status").child("loadBalancer").child("ingress").index(i);
            let (ip, hostname) = (text(balancer, "ip"), text(balancer, "hostname"));
            // What was told before is not asked again.
            if !ip.is_empty() && !known.contains(ip) && addresses::ip(ip).is_none() {
                errors.push(path.child("ip").invalid(ip, addresses::NOT_AN_IP));
            }
            errors.extend(subdomain_if_any(hostname, &path.child("hostname")));
            if addresses::ip(hostname).is_some() {
                errors
                    .push(path.child("hostname").invalid(hostname, "must be a DNS name, not an IP address"));
            }
        }
        errors
    }
}

fn spec(it: &It<'_>) -> Errors {
    let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
    let mut errors = Errors::new();
    if items(spec, "rules").is_empty() && spec["defaultBackend"].is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(path.invalid(field::Value::json(at(it.sent, "spec.rules")), why));
    }
    if !spec["defaultBackend"].is_null() {
        errors.extend(backend(&spec["defaultBackend"], &path.child("defaultBackend")));
    }
    for (i, rule) in items(spec, "rules").iter().enumerate() {
        errors.extend(self::rule(rule, &path.child("rules").index(i)));
    }
    for (i, tls) in items(spec, "tls").iter().enumerate() {
        let path = path.child("tls").index(i);
        for (j, name) in items(tls, "hosts").iter().filter_map(Value::as_str).enumerate() {
            errors.extend(host(name, &path.child("hosts").index(j)));
        }
        errors.extend(subdomain_if_any(text(tls, "secretName"), &path.child("secretName")));
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        let path = path.child("ingressClassName");
        errors.extend(names::dns_subdomain(class).into_iter().map(|problem| path.invalid(class, problem)));
    }
    errors
}

fn subdomain_if_any(name: &str, path: &Path) -> Errors {
    let problems = if name.is_empty() { Vec::new() } else { names::dns_subdomain(name) };
    problems.into_iter().map(|problem| path.invalid(name, problem)).collect()
}

fn host(name: &str, path: &Path) -> Errors {
    let problems =
        if name.contains('*') { names::wildcard_dns_subdomain(name) } else { names::dns_subdomain(name) };
    problems.into_iter().map(|problem| path.invalid(name, problem)).collect()
}

fn rule(rule: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let name = text(rule, "host");
    if !name.is_empty() {
        let path = path.child("host");
        if addresses::ip(name).is_some() {
            errors.push(path.invalid(name, "must be a DNS name, not an IP address"));
        }
        errors.extend(host(name, &path));
    }
    if !rule["http"].is_null() {
        let path = path.child("http").child("paths");
        let paths = items(rule, "http.paths");
        if paths.is_empty() {
            errors.push(path.required(""));
        }
        for (i, entry) in paths.iter().enumerate() {
            errors.extend(http_path(entry, &path.index(i)));
        }
    }
    errors
}

fn http_path(entry: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (way, at_way) = (text(entry, "path"), path.child("path"));
    match entry["pathType"].as_str() {
        None => {
            errors.push(path.child("pathType").required("pathType must be specified"));
            return errors;
        }
        Some("Exact" | "Prefix") => {
            if !way.starts_with('/') {
                errors.push(at_way.invalid(way, "must be an absolute path"));
            }
            for part in FORBIDDEN_PARTS.iter().filter(|part| way.contains(**part)) {
                errors.push(at_way.invalid(way, format!("must not contain '{part}'")));
            }
            for end in FORBIDDEN_ENDS.iter().filter(|end| way.ends_with(**end)) {
                errors.push(at_way.invalid(way, format!("cannot end with '{end}'")));
            }
        }
        Some("ImplementationSpecific") => {
            if !way.is_empty() && !way.starts_with('/') {
                errors.push(at_way.invalid(way, "must be an absolute path"));
            }
        }
        Some(other) => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(path.child("pathType").not_supported(field::Value::json(&other), &known));
        }
    }
    errors.extend(backend(&entry["backend"], &path.child("backend")));
    errors
}

fn backend(backend: &Value, path: &Path) -> Errors {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_null(), resource.is_null()) {
        (false, false) => vec![path.invalid("", "cannot set both resource and service backends")],
        (true, true) => vec![path.invalid("", "resource or service backend is required")],
        (true, false) => reference(resource, &path.child("resource")),
        (false, true) => service_backend(service, path),
    }
}

/// A reference to an object of any kind.
pub(super) fn reference(reference: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(group) = reference["apiGroup"].as_str() {
        let path = path.child("apiGroup");
        errors.extend(names::dns_subdomain(group).into_iter().map(|why| path.invalid(group, why)));
    }
    for field in ["kind", "name"] {
        let path = path.child(field);
        match text(reference, field) {
            "" => errors.push(path.required("")),
            name => errors.extend(names::path_segment(name).into_iter().map(|why| path.invalid(name, why))),
        }
    }
    errors
}

fn service_backend(service: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let at_service = path.child("service");
    match text(service, "name") {
        "" => errors.push(at_service.child("name").required("")),
        name => {
            let path = at_service.child("name");
            errors.extend(names::dns_1035_label(name).into_iter().map(|why| path.invalid(name, why)));
        }
    }
    let (name, number) = (text(service, "port.name"), at(service, "port.number").as_i64().unwrap_or(0));
    let at_port = at_service.child("port");
    match (name.is_empty(), number == 0) {
        (false, false) => errors.push(path.invalid("", "cannot set both port name & port number")),
        (true, true) => errors.push(path.required("port name or number is required")),
        (false, true) => {
            let path = at_port.child("name");
            errors.extend(names::port_name(name).into_iter().map(|why| path.invalid(name, why)));
        }
        (true, false) => {
            if !(1..=65535).contains(&number) {
                let why = "must be between 1 and 65535, inclusive";
                errors.push(at_port.child("number").invalid(number, why));
            }
        }
    }
    errors
}
