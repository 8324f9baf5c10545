//! Nodes. Whoever makes one may say at once how it is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use types::Quantity;

use crate::field::{self, Errors, Path};
use crate::kind::{It, Kind, at, items, keep, keep_all_but, text};
use crate::repeated::repeated;
use crate::{meta, names, pod, wire};

pub(super) struct Nodes;

const TAINT: &str = "io.k8s.api.core.v1.Taint";
const NODE_ADDRESS: &str = "io.k8s.api.core.v1.NodeAddress";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const POD_CIDR: &str = "node updates may not change podCIDR except from \"\" to valid";

impl Kind for Nodes {
    fn resets_status(&self) -> bool {
        false
    }

    fn default(&self, node: &mut Value) {
        if !node["spec"].is_null() {
            super::first_of_many(
                &mut node["spec"],
                "podCIDR",
                "podCIDRs",
                |cidr| json!(cidr),
                |cidr| cidr.as_str().unwrap_or(""),
            );
        }
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        new["spec"].as_object_mut().map(|spec| spec.remove("configSource"));
        new["status"].as_object_mut().map(|status| status.remove("config"));
        new["status"].as_object_mut().map(|status| status.remove("declaredFeatures"));
        Vec::new()
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let at_meta = Path::new("metadata");
        let mut errors = it.metadata();
        errors.extend(annotations(it.new));
        errors.extend(taints(items(it.new, "spec.taints"), &at_meta.child("taints")));
        errors.extend(resources(it.new));
        let swap = at(it.new, "status.nodeInfo.swap.capacity").as_i64().filter(|capacity| *capacity <= 0);
        if let Some(capacity) = swap {
            let path = at_meta.child("nodeSwapStatus").child("capacity");
            errors.push(path.invalid(capacity, "must be greater than 0"));
        }
        errors.extend(pod_cidrs(it.new));
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if at(old, "spec.configSource").is_null() {
            new["spec"].as_object_mut().map(|spec| spec.remove("configSource"));
        }
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(change(it));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        if !at(new, "spec.configSource").is_null() {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !text(new, "spec.externalID").is_empty() {
            warnings
                .push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        warnings.extend(pod::addresses::cidrs_warnings(new, &["spec", "podCIDRs"]));
        warnings
    }

    fn prepare_subresource(&self, _: &str, new: &mut Value, old: &Value) {
        keep_all_but(new, old, &["metadata", "status"]);
        if at(old, "status.config").is_null() {
            new["status"].as_object_mut().map(|status| status.remove("config"));
        }
        keep(new, old, "spec");
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        change(it)
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let unschedulable = at(object, "spec.unschedulable").as_bool().unwrap_or(false);
        vec![("spec.unschedulable", unschedulable.to_string())]
    }
}

fn change(it: &It<'_>) -> Errors {
    let mut errors = it.metadata_update();
    errors.extend(annotations(it.new));
    errors.extend(resources(it.new));
    errors.extend(declared_features(it.new));
    let path = Path::new("status").child("addresses");
    let addresses = items(it.new, "status.addresses");
    let again = repeated(addresses, Value::to_string);
    for (i, address) in addresses.iter().enumerate().filter(|(i, _)| again[*i]) {
        errors.push(path.index(i).duplicate(field::Value::internal(NODE_ADDRESS, address)));
    }
    let (new, old) = (items(it.new, "spec.podCIDRs"), items(it.old, "spec.podCIDRs"));
    if !old.is_empty() {
        let path = Path::new("spec").child("podCIDRs");
        let changed = if new.len() == old.len() {
            new.iter().zip(old).filter(|(new, old)| new != old).count()
        } else {
            1
        };
        errors.extend((0..changed).map(|_| path.forbidden(POD_CIDR)));
    }
    let provider = text(it.old, "spec.providerID");
    if !provider.is_empty() && provider != text(it.new, "spec.providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(Path::new("spec").child("providerID").forbidden(why));
    }
    errors.extend(taints(items(it.new, "spec.taints"), &Path::new("metadata").child("taints")));
    if text(it.old, "spec.externalID") != text(it.new, "spec.externalID") {
        errors.push(Path::new("spec").child("externalID").forbidden("may not be updated"));
    }
    errors
}

/// What is wrong with annotations that were fields of nodes to be.
fn annotations(node: &Value) -> Errors {
    const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
    const AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    let path = Path::new("metadata").child("annotations");
    let read = |name: &str| -> Option<Result<Value, String>> {
        let text = node["metadata"]["annotations"][name].as_str().filter(|text| !text.is_empty())?;
        let checked = schema::check_syntax(text.as_bytes());
        Some(checked.and_then(|()| serde_json::from_str(text).map_err(|why| why.to_string())))
    };
    let mut errors = Errors::new();
    let all_taints = |all: Value| {
        let all = all.as_array().cloned().unwrap_or_default();
        let read = all.iter().map(|taint| schema::decode_value(wire::named(TAINT), taint));
        let read = read.map(|read| read.map(|read| read.value).map_err(|why| why.to_string()));
        read.collect::<Result<Vec<_>, _>>()
    };
    match read(TAINTS).map(|read| read.and_then(all_taints)) {
        Some(Err(why)) => errors.push(path.invalid(TAINTS, why)),
        Some(Ok(all)) => errors.extend(taints(&all, &path.child(TAINTS))),
        None => {}
    }
    match read(AVOID_PODS) {
        Some(Err(why)) => errors.push(path.child("AvoidPods").invalid(AVOID_PODS, why)),
        Some(Ok(avoided)) => {
            for (i, avoided) in items(&avoided, "preferAvoidPods").iter().enumerate() {
                let path = path.child(AVOID_PODS).index(i).child("PodSignature");
                let controller = at(avoided, "podSignature.podController");
                if controller.is_null() {
                    errors.push(path.required(""));
                } else if controller["controller"] != true {
                    let path = path.child("PodController").child("Controller");
                    errors.push(path.invalid(field::Value::json(&false), "must point to a controller"));
                }
            }
        }
        None => {}
    }
    errors
}

/// What is wrong with the features that a node says it has: each is said once, in the order of their names.
fn declared_features(node: &Value) -> Errors {
    const LONGEST: usize = 253;
    let path = Path::new("status").child("declaredFeatures");
    let features: Vec<&str> =
        items(node, "status.declaredFeatures").iter().filter_map(Value::as_str).collect();
    let mut errors = Errors::new();
    for (i, feature) in features.iter().enumerate() {
        let wrong = if feature.len() > LONGEST {
            Some("must be no more than 253 characters")
        } else if !is_feature(feature) {
            Some(
                "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature \
                 or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
            )
        } else {
            None
        };
        if let Some(wrong) = wrong {
            let why = format!("invalid feature name {}: {wrong}", types::go::quote(feature));
            errors.push(path.index(i).invalid(*feature, why));
        }
        if let Some(next) = features.get(i + 1) {
            let path = path.index(i + 1);
            if next == feature {
                errors.push(path.duplicate(*next));
            } else if next < feature {
                errors.push(path.invalid(*next, "list must be sorted alphabetically"));
            }
        }
    }
    errors
}

fn is_feature(name: &str) -> bool {
    let is_segment = |segment: &str| {
        segment.starts_with(|first: char| first.is_ascii_alphabetic())
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(is_segment)
}

fn resources(node: &Value) -> Errors {
    let mut errors = Errors::new();
    for field in ["capacity", "allocatable"] {
        for (name, amount) in node["status"][field].as_object().into_iter().flatten() {
            if let Some(Ok(amount)) = amount.as_str().map(str::parse::<Quantity>) {
                let path = Path::new("status").child(field).child(name);
                errors.extend(pod::resources::validate_amount(name, &amount, &path));
            }
        }
    }
    errors
}

fn taints(taints: &[Value], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (i, taint) in taints.iter().enumerate() {
        let (path, effect) = (path.index(i), text(taint, "effect"));
        errors.extend(meta::qualified(text(taint, "key"), &path.child("key")));
        let problems = names::label_value(text(taint, "value"));
        if !problems.is_empty() {
            errors.push(path.child("value").invalid(text(taint, "value"), problems.join(";")));
        }
        if effect.is_empty() {
            errors.push(path.child("effect").required(""));
        } else if !EFFECTS.contains(&effect) {
            errors.push(path.child("effect").not_supported(field::Value::json(&effect), &EFFECTS));
        }
        if !seen.entry(effect).or_default().insert(text(taint, "key")) {
            let why = "taints must be unique by key and effect pair";
            errors.push(path.duplicate(field::Value::internal(TAINT, taint)).with_detail(why));
        }
    }
    errors
}

fn pod_cidrs(node: &Value) -> Errors {
    let path = Path::new("spec").child("podCIDRs");
    let cidrs: Vec<&str> = items(node, "spec.podCIDRs").iter().filter_map(Value::as_str).collect();
    let parsed: Vec<Option<IpAddr>> = cidrs.iter().map(|cidr| pod::addresses::cidr(cidr)).collect();
    let mut errors = Errors::new();
    for (i, (cidr, parsed)) in cidrs.iter().zip(&parsed).enumerate() {
        if parsed.is_none() {
            let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            errors.push(path.index(i).invalid(*cidr, why));
        }
    }
    let unreadable = cidrs.iter().zip(&parsed).enumerate().find(|(_, (_, parsed))| parsed.is_none());
    if let (true, Some((i, (cidr, _)))) = (cidrs.len() > 1, unreadable) {
        errors.push(path.internal_error(format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR address: \
             {cidr})"
        )));
    }
    let has = |family: fn(&IpAddr) -> bool| parsed.iter().flatten().any(family);
    let is_dual = has(IpAddr::is_ipv4) && has(IpAddr::is_ipv6);
    if cidrs.len() > 1 && (!is_dual || cidrs.len() > 2) {
        let why = "may specify no more than one CIDR for each IP family";
        errors.push(path.invalid(field::Value::json(&cidrs), why));
    }
    errors
}
