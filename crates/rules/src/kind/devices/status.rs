//! What was given to a claim, to whom, and how it is.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::NodeSelector;
use serde_json::Value;

use super::{
    each, each_once, items, list_mut, named, pool_name, raw, remove, request_name, request_names, text,
};
use crate::field::{self, Errors, Path};
use crate::kind::{It, at, csi, policy};
use crate::meta::IMMUTABLE;
use crate::pod::{addresses, affinity};
use crate::repeated::repeated;
use crate::{names, wire};

const ALLOCATION: &str = "io.k8s.api.resource.v1.AllocationResult";
const MAX_CONSUMERS: usize = 256;
const MAX_RESULTS: usize = 32;
/// Those of the class and those of the claim.
const MAX_CONFIGURATIONS: usize = 64;
const MAX_CONDITIONS: usize = 8;
const MAX_DATA: usize = 10 * 1024;
const MAX_ADDRESSES: usize = 16;
const MAX_INTERFACE_NAME: usize = 256;
const MAX_HARDWARE_ADDRESS: usize = 128;
const SOURCES: [&str; 2] = ["FromClaim", "FromClass"];

/// What a device is known by, wherever it is spoken of.
fn device(of: &Value) -> [&str; 3] {
    ["driver", "pool", "device"].map(|field| text(of, field))
}

fn results(status: &Value) -> &[Value] {
    items(status, "allocation.devices.results")
}

/// Takes away what belongs to features that are off, and what is said of devices that were given back.
pub(super) fn prepare(status: &mut Value, old: &Value) {
    if status["allocation"].is_object() {
        for result in list_mut(&mut status["allocation"]["devices"], "results") {
            let disabled = [
                "tolerations",
                "shareID",
                "consumedCapacity",
                "bindingConditions",
                "bindingFailureConditions",
            ];
            remove(result, &disabled);
        }
    }
    let given_back: BTreeSet<[&str; 3]> = {
        let kept: BTreeSet<[&str; 3]> = results(status).iter().map(device).collect();
        results(old).iter().map(device).filter(|device| !kept.contains(device)).collect()
    };
    if let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) {
        devices.retain(|it| !given_back.contains(&device(it)));
        for device in devices.iter_mut() {
            remove(device, &["shareID"]);
        }
        if devices.is_empty() {
            remove(status, &["devices"]);
        }
    }
}

pub(super) fn validate(it: &It<'_>) -> Errors {
    let (status, old, path) = (at(it.new, "status"), at(it.old, "status"), Path::new("status"));
    let (consumers, at_consumers) = (items(status, "reservedFor"), path.child("reservedFor"));
    let mut errors = each_once(
        consumers,
        MAX_CONSUMERS,
        &at_consumers,
        |it| text(it, "uid"),
        |it, path| {
            let empty = ["resource", "name", "uid"].into_iter().filter(|field| text(it, field).is_empty());
            empty.map(|field| path.child(field).required("")).collect()
        },
    );
    let given: BTreeSet<[&str; 3]> = results(status).iter().map(device).collect();
    let devices = items(status, "devices");
    for (i, device) in devices.iter().enumerate() {
        errors.extend(device_status(device, &given, &path.child("devices").index(i)));
    }
    let again = repeated(devices, device);
    for (i, it) in devices.iter().enumerate().filter(|(i, _)| again[*i]) {
        errors.push(path.child("devices").index(i).duplicate(shown(it)));
    }
    let allocation = &status["allocation"];
    if !consumers.is_empty() && allocation.is_null() {
        errors.push(at_consumers.forbidden("may not be specified when `allocated` is not set"));
    } else if it.meta.deletion_timestamp.is_some()
        && consumers.iter().any(|consumer| !items(old, "reservedFor").contains(consumer))
    {
        let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
        errors.push(at_consumers.forbidden(why));
    }
    let path = path.child("allocation");
    match (&old["allocation"], allocation) {
        (_, Value::Null) => {}
        (Value::Null, allocation) => errors.extend(allocated(it, allocation, &path)),
        (old, new) if old != new => {
            errors.push(path.invalid(field::Value::internal(ALLOCATION, new), IMMUTABLE));
        }
        _ => {}
    }
    errors
}

/// What a device is known by. Nobody has a share of one.
fn shown(of: &Value) -> field::Value {
    let [driver, pool, device] = device(of).map(|part| Value::from(part).to_string());
    field::Value::printed(format!(r#"{{"Driver":{driver},"Pool":{pool},"Device":{device},"ShareID":""}}"#))
}

fn allocated(it: &It<'_>, allocation: &Value, path: &Path) -> Errors {
    let requests = items(it.new, "spec.devices.requests");
    let (devices, at_devices) = (at(allocation, "devices"), path.child("devices"));
    let mut errors =
        each(items(devices, "results"), MAX_RESULTS, &at_devices.child("results"), |it, path| {
            let mut errors = request_name(text(it, "request"), requests, &path.child("request"));
            errors.extend(place(it, path));
            errors
        });
    let config = items(devices, "config");
    errors.extend(each(config, MAX_CONFIGURATIONS, &at_devices.child("config"), |config, path| {
        let at_source = path.child("source");
        let mut errors = match text(config, "source") {
            "" => vec![at_source.required("")],
            source if SOURCES.contains(&source) => Errors::new(),
            other => vec![at_source.not_supported(field::Value::json(&other), &SOURCES)],
        };
        errors.extend(request_names(config, requests, path));
        errors.extend(super::configuration(config, path));
        errors
    }));
    if let selector @ Value::Object(_) = &allocation["nodeSelector"] {
        let selector: NodeSelector = wire::typed(selector);
        errors.extend(affinity::node_selector(&selector, false, &path.child("nodeSelector")));
    }
    errors
}

/// Driver, pool and device.
fn place(of: &Value, path: &Path) -> Errors {
    let [driver, pool, device] = device(of);
    let mut errors = csi::driver_name(driver, &path.child("driver"));
    errors.extend(pool_name(pool, &path.child("pool")));
    errors.extend(named(device, &path.child("device"), names::dns_label));
    errors
}

fn device_status(of: &Value, given: &BTreeSet<[&str; 3]>, path: &Path) -> Errors {
    let mut errors = place(of, path);
    if !given.contains(&device(of)) {
        errors.push(path.invalid(shown(of), "must be an allocated device in the claim"));
    }
    let (conditions, at_conditions) = (items(of, "conditions"), path.child("conditions"));
    if conditions.len() > MAX_CONDITIONS {
        errors.push(at_conditions.too_many(conditions.len(), MAX_CONDITIONS));
    }
    errors.extend(policy::conditions(conditions, &at_conditions));
    if !of["data"].is_null() {
        errors.extend(raw(&of["data"], MAX_DATA, &path.child("data")));
    }
    let (network, path) = (&of["networkData"], path.child("networkData"));
    for (field, max) in [("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)] {
        if text(network, field).len() > max {
            errors.push(path.child(field).too_long(max));
        }
    }
    let addresses = items(network, "ips");
    errors.extend(each_once(addresses, MAX_ADDRESSES, &path.child("ips"), super::itself, |address, path| {
        interface_address(super::itself(address), path).into_iter().collect()
    }));
    errors
}

fn interface_address(text: &str, path: &Path) -> Option<field::Error> {
    let Some(usual) = addresses::interface(text) else {
        let why = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return Some(path.invalid(text, why));
    };
    (usual != text).then(|| path.invalid(text, format!("must be in canonical form (\"{usual}\")")))
}
