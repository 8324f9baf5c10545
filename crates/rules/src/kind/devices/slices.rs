//! Devices that a driver offers.

use k8s_openapi::api::core::v1::NodeSelector;
use serde_json::Value;

use super::{each_once, entries, items, list_mut, named, own_name, pool_name, qualified, remove, text};
use crate::field::{self, Errors, Path};
use crate::kind::{Counts, It, Kind, at, csi};
use crate::meta::IMMUTABLE;
use crate::pod::affinity;
use crate::{names, wire};

const MAX_DEVICES: usize = 128;
const MAX_FACTS: usize = 32;
const MAX_VALUE: usize = 64;
/// A domain, a slash and an identifier.
const MAX_KEY: usize = 63 + 1 + 32;
const TERM: &str = "io.k8s.api.core.v1.NodeSelectorTerm";
const ATTRIBUTE: &str = "io.k8s.api.resource.v1.DeviceAttribute";
const ONE_PLACE: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

/// Devices of a node or of many.
pub(in crate::kind) struct Slices;

impl Slices {
    /// Features that are off: taints, devices made of others, conditions of binding, and shared devices.
    fn without_disabled(new: &mut Value) {
        let spec = &mut new["spec"];
        remove(spec, &["sharedCounters", "perDeviceNodeSelection"]);
        for device in list_mut(spec, "devices") {
            remove(
                device,
                &[
                    "taints",
                    "consumesCounters",
                    "nodeName",
                    "nodeSelector",
                    "allNodes",
                    "bindingConditions",
                    "bindingFailureConditions",
                    "bindsToNode",
                    "allowMultipleAllocations",
                ],
            );
            let capacities = device.get_mut("capacity").and_then(Value::as_object_mut).into_iter();
            capacities
                .flat_map(serde_json::Map::values_mut)
                .for_each(|capacity| remove(capacity, &["requestPolicy"]));
        }
    }

    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = csi::driver_name(text(spec, "driver"), &path.child("driver"));
        let (pool, at_pool) = (at(spec, "pool"), path.child("pool"));
        errors.extend(pool_name(text(pool, "name"), &at_pool.child("name")));
        let count = pool["resourceSliceCount"].as_i64().unwrap_or(0);
        if count <= 0 {
            errors.push(at_pool.child("resourceSliceCount").invalid(count, "must be greater than zero"));
        }
        let generation = pool["generation"].as_i64().unwrap_or(0);
        if generation < 0 {
            let why = "must be greater than or equal to zero";
            errors.push(at_pool.child("generation").invalid(generation, why));
        }
        if !it.old.is_null() {
            errors.extend(fixed(it));
        }
        errors.extend(place(spec, at(it.sent, "spec"), &path));
        let devices = items(spec, "devices");
        errors.extend(each_once(devices, MAX_DEVICES, &path.child("devices"), own_name, device));
        errors
    }
}

/// What cannot change.
fn fixed(it: &It<'_>) -> Errors {
    let path = Path::new("spec");
    let mut errors = Errors::new();
    let texts = [("spec.pool.name", path.child("pool").child("name")), ("spec.driver", path.child("driver"))];
    for (name, path) in texts {
        if text(it.new, name) != text(it.old, name) {
            errors.push(path.invalid(text(it.new, name), IMMUTABLE));
        }
    }
    let (new, old) = (at(it.new, "spec.nodeName"), at(it.old, "spec.nodeName"));
    if new != old {
        errors.push(path.child("nodeName").invalid(field::Value::json(new), IMMUTABLE));
    }
    errors
}

/// Where the devices are.
fn place(spec: &Value, sent: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut set = Vec::new();
    match spec["nodeName"].as_str() {
        None => {}
        Some("") => {
            let why = "must be either unset or set to a non-empty string";
            errors.push(path.child("nodeName").invalid("", why));
        }
        Some(name) => {
            set.push("`nodeName`");
            errors.extend(named(name, &path.child("nodeName"), names::dns_subdomain));
        }
    }
    if let selector @ Value::Object(_) = &spec["nodeSelector"] {
        set.push("`nodeSelector`");
        let (selector, path): (NodeSelector, _) = (wire::typed(selector), path.child("nodeSelector"));
        errors.extend(affinity::node_selector(&selector, false, &path));
        if selector.node_selector_terms.len() != 1 {
            let terms = match at(sent, "nodeSelector.nodeSelectorTerms") {
                Value::Array(terms) => field::Value::internal_list(TERM, terms),
                _ => field::Value::json(&Value::Null),
            };
            let why = "must have exactly one node selector term";
            errors.push(path.child("nodeSelectorTerms").invalid(terms, why));
        }
    }
    match spec["allNodes"].as_bool() {
        None => {}
        Some(true) => set.push("`allNodes`"),
        Some(false) => {
            errors.push(path.child("allNodes").invalid(false, "must be either unset or set to true"));
        }
    }
    match set.len() {
        0 => errors.push(path.required(ONE_PLACE)),
        1 => {}
        _ => {
            let why = format!("{ONE_PLACE}, but multiple fields are set");
            errors.push(path.invalid(format!("{{{}}}", set.join(", ")).as_str(), why));
        }
    }
    errors
}

fn device(device: &Value, path: &Path) -> Errors {
    let mut errors = named(own_name(device), &path.child("name"), names::dns_label);
    let count = entries(device, "attributes").count() + entries(device, "capacity").count();
    if count > MAX_FACTS {
        let why = format!("the total number of attributes and capacities must not exceed {MAX_FACTS}");
        errors.push(path.invalid(field::Value::json(&count), why));
    }
    for (name, attribute) in entries(device, "attributes") {
        let path = path.child("attributes").key(&shortened(name));
        errors.extend(qualified(name, &path));
        errors.extend(self::attribute(attribute, &path));
    }
    for (name, _) in entries(device, "capacity") {
        errors.extend(qualified(name, &path.child("capacity").key(&shortened(name))));
    }
    errors
}

/// A key as a path shows it, without its middle if it is too long.
fn shortened(key: &str) -> String {
    if key.len() <= MAX_KEY {
        return key.to_owned();
    }
    let left = MAX_KEY - 3;
    let (begin, end) = (&key.as_bytes()[..left.div_ceil(2)], &key.as_bytes()[key.len() - left / 2..]);
    format!("{}...{}", String::from_utf8_lossy(begin), String::from_utf8_lossy(end))
}

/// A fact about a device is of one type.
fn attribute(attribute: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if text(attribute, "string").len() > MAX_VALUE {
        errors.push(path.child("string").too_long(MAX_VALUE));
    }
    if let Some(version) = attribute["version"].as_str() {
        let path = path.child("version");
        if !is_version(version) {
            errors.push(path.invalid(version, "must be a string compatible with semver.org spec 2.0.0"));
        }
        if version.len() > MAX_VALUE {
            errors.push(path.too_long(MAX_VALUE));
        }
    }
    let set = ["bool", "int", "string", "version"].iter().filter(|field| !attribute[**field].is_null());
    let why = "exactly one value must be specified";
    match set.count() {
        0 => errors.push(path.invalid("", why)),
        1 => {}
        _ => errors.push(path.invalid(field::Value::internal(ATTRIBUTE, attribute), why)),
    }
    errors
}

/// A version of three numbers, perhaps with what it comes before and what it was built of.
fn is_version(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_digits = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = |word: &str| is_digits(word) && (word == "0" || !word.starts_with('0'));
    let is_step = |word: &str| is_word(word) && (!is_digits(word) || is_number(word));
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, before) = text.split_once('-').map_or((text, None), |(core, before)| (core, Some(before)));
    let core: Vec<&str> = core.split('.').collect();
    core.len() == 3
        && core.into_iter().all(is_number)
        && before.is_none_or(|before| before.split('.').all(is_step))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

impl Kind for Slices {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        Slices::without_disabled(new);
        Vec::new()
    }

    /// What is taken away counts as a change before it is.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if at(new, "spec") != at(old, "spec") {
            let generation = at(old, "metadata.generation").as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
        Slices::without_disabled(new);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(Slices::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(Slices::spec(it));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let driver = text(new, "spec.driver");
        let is_lower = driver == driver.to_lowercase();
        let why = "spec.driver: driver names should be lowercase;";
        let warning = || format!("{why} {} contains uppercase characters", types::go::quote(driver));
        (!is_lower).then(warning).into_iter().collect()
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.driver", "spec.nodeName"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_semver_2_0_0_has_them() {
        for version in ["0.0.0", "1.2.3", "1.2.3-alpha.1", "1.2.3-0a.b-c+build.001", "1.2.3+a-b"] {
            assert!(is_version(version), "{version}");
        }
        for version in ["", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-a..b", "1.2.3.4", "a.b.c"]
        {
            assert!(!is_version(version), "{version}");
        }
    }

    #[test]
    fn long_keys_are_shown_without_their_middle() {
        let long = format!("{}{}", "a".repeat(60), "b".repeat(60));
        let shown = shortened(&long);
        assert_eq!((shown.len(), &shown[46..51]), (MAX_KEY, "a...b"));
        assert_eq!(shortened("a/b"), "a/b");
    }
}
