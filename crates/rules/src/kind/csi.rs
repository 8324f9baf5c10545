//! Drivers of storage, and what nodes know of them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::{self, IMMUTABLE};
use crate::names;
use crate::repeated::repeated;

const DRIVER: &str = "io.k8s.api.storage.v1.CSINodeDriver";
const MODES: [&str; 2] = ["Persistent", "Ephemeral"];
const POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
/// The shortest and the longest life of a token, in seconds.
const TOKEN_LIFE: (i64, i64) = (600, 1 << 32);
const MIN_UPDATE_PERIOD: i64 = 10;
const MAX_NODE_ID: usize = 256;
const TOKENS_IN_ATTRIBUTES: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to \
                                    prevent possible logging of tokens in volume attributes";
const MAX_DRIVER_NAME: usize = 63;

/// What a driver may be called where it is named.
pub(super) fn driver_name(name: &str, path: &Path) -> Errors {
    if name.is_empty() {
        return vec![path.required("")];
    }
    let mut errors = Errors::new();
    if name.len() > MAX_DRIVER_NAME {
        errors.push(path.too_long(MAX_DRIVER_NAME));
    }
    let problems = names::dns_subdomain(&name.to_lowercase()).into_iter();
    errors.extend(problems.map(|problem| path.invalid(name, problem)));
    errors
}

/// Drivers.
pub(super) struct Drivers;

impl Drivers {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = Errors::new();
        if let Some(policy) = spec["fsGroupPolicy"].as_str().filter(|policy| !POLICIES.contains(policy)) {
            errors.push(path.child("fsGroupPolicy").not_supported(field::Value::json(&policy), &POLICIES));
        }
        errors.extend(Drivers::tokens(items(spec, "tokenRequests"), &path.child("tokenRequests")));
        for mode in items(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str) {
            if !MODES.contains(&mode) {
                let path = path.child("volumeLifecycleModes");
                errors.push(path.not_supported(field::Value::json(&mode), &MODES));
            }
        }
        if let Some(period) =
            spec["nodeAllocatableUpdatePeriodSeconds"].as_i64().filter(|period| *period < MIN_UPDATE_PERIOD)
        {
            let why = format!("must be greater than or equal to {MIN_UPDATE_PERIOD} seconds");
            errors.push(path.child("nodeAllocatableUpdatePeriodSeconds").invalid(period, why));
        }
        if let (Some(in_secrets), true) =
            (spec["serviceAccountTokenInSecrets"].as_bool(), items(spec, "tokenRequests").is_empty())
        {
            let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
            let value = field::Value::json(&in_secrets);
            errors.push(path.child("serviceAccountTokenInSecrets").invalid(value, why));
        }
        errors
    }

    fn tokens(requests: &[Value], path: &Path) -> Errors {
        let mut errors = Errors::new();
        let mut audiences = BTreeSet::new();
        for (i, request) in requests.iter().enumerate() {
            let (path, audience) = (path.index(i), text(request, "audience"));
            if !audiences.insert(audience) {
                errors.push(path.child("audience").duplicate(audience));
                continue;
            }
            let Some(seconds) = request["expirationSeconds"].as_i64() else { continue };
            let path = path.child("expirationSeconds");
            if seconds < TOKEN_LIFE.0 {
                errors.push(path.invalid(seconds, "may not specify a duration less than 10 minutes"));
            }
            if seconds > TOKEN_LIFE.1 {
                errors.push(path.invalid(seconds, "may not specify a duration larger than 2^32 seconds"));
            }
        }
        errors
    }
}

impl Kind for Drivers {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(Drivers::spec(it));
        errors
    }

    /// Only changes are counted: a driver that was never changed has no generation.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if at(new, "spec") != at(old, "spec") {
            let before = at(old, "metadata.generation").as_i64().unwrap_or(0);
            new["metadata"]["generation"] = json!(before + 1);
        }
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let spec = at(new, "spec");
        let is_unset = spec["serviceAccountTokenInSecrets"].is_null();
        let asks = !items(spec, "tokenRequests").is_empty();
        if asks && is_unset { vec![TOKENS_IN_ATTRIBUTES.to_owned()] } else { Vec::new() }
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let requests = |driver| items(driver, "spec.tokenRequests");
        if requests(new) == requests(old) { Vec::new() } else { self.warn(new) }
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(Drivers::spec(it));
        let path = Path::new("spec");
        for (name, told) in
            [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
        {
            let (new, old) = (&at(it.new, "spec")[name], &at(it.old, "spec")[name]);
            if new != old {
                errors.push(path.child(told).invalid(field::Value::json(new), IMMUTABLE));
            }
        }
        errors
    }
}

/// What drivers say of a node.
pub(super) struct Nodes;

impl Kind for Nodes {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let drivers = items(it.new, "spec.drivers");
        let again = repeated(drivers, |driver| text(driver, "name"));
        for (i, driver) in drivers.iter().enumerate() {
            let path = Path::new("spec").child("drivers").index(i);
            let name = text(driver, "name");
            errors.extend(driver_name(name, &path.child("name")));
            let node = text(driver, "nodeID");
            if node.is_empty() {
                errors.push(path.child("nodeID").required(""));
            }
            if node.len() > MAX_NODE_ID {
                let why = format!("must be {MAX_NODE_ID} characters or less");
                errors.push(path.child("nodeID").invalid(node, why));
            }
            if let Some(count) = at(driver, "allocatable.count").as_i64() {
                errors.extend(meta::not_negative(count, &path.child("allocatable").child("count")));
            }
            if again[i] {
                errors.push(path.child("name").duplicate(name));
            }
            let mut keys = BTreeSet::new();
            for key in items(driver, "topologyKeys").iter().filter_map(Value::as_str) {
                if key.is_empty() {
                    errors.push(path.required(key));
                }
                if !keys.insert(key) {
                    errors.push(path.duplicate(key));
                }
                errors.extend(meta::qualified(key, &path));
            }
        }
        errors
    }

    /// A changed object is judged twice. How much a node can take may change, nothing else of a driver.
    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(self.validate(it));
        let without_allocatable = |driver: &Value| {
            let mut driver = driver.clone();
            driver.as_object_mut().map(|driver| driver.remove("allocatable"));
            driver
        };
        for old in items(it.old, "spec.drivers") {
            let same =
                items(it.new, "spec.drivers").iter().filter(|new| text(new, "name") == text(old, "name"));
            for new in same.map(without_allocatable).filter(|new| *new != without_allocatable(old)) {
                let value = field::Value::internal(DRIVER, &new);
                errors.push(Path::new("spec").child("drivers").invalid(value, IMMUTABLE));
            }
        }
        errors
    }
}
