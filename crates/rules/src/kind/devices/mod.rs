//! Devices of nodes: what there is of them, what is claimed of them and what was given.
//!
//! Fields that belong to features which are off are taken away before anybody judges them.

use serde_json::{Map, Value};

use super::{Counts, It, Kind, at, csi, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::IMMUTABLE;
use crate::names::{self, Problems};
use crate::pod::volumes::claims::template_metadata;
use crate::repeated::repeated;
use crate::wire;

mod slices;
mod status;

pub(super) use slices::Slices;

const CLAIM_SPEC: &str = "io.k8s.api.resource.v1.ResourceClaimSpec";
const TEMPLATE_SPEC: &str = "io.k8s.api.resource.v1.ResourceClaimTemplateSpec";
const MAX_REQUESTS: usize = 32;
const MAX_CONSTRAINTS: usize = 32;
const MAX_CONFIGURATIONS: usize = 32;
const MAX_SELECTORS: usize = 32;
const MAX_ALTERNATIVES: usize = 8;
/// How long an expression, and how long the parameters of a driver may be.
const MAX_EXPRESSION: usize = 10 * 1024;
const MAX_PARAMETERS: usize = 10 * 1024;
const MAX_IDENTIFIER: usize = 32;
const MODES: [&str; 2] = ["All", "ExactCount"];
const NO_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// Claims.
pub(super) struct Claims;

impl Kind for Claims {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        without_disabled(&mut new["spec"]);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, _: &Value) {
        without_disabled(&mut new["spec"]);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(claim(it, at(it.new, "spec"), &Path::new("spec")));
        errors
    }

    /// A spec is for good, so nothing else is said of it.
    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(it.metadata_update());
        errors.extend(unchanged(it, CLAIM_SPEC, without_disabled));
        errors
    }

    fn prepare_subresource(&self, _: &str, new: &mut Value, old: &Value) {
        super::keep_all_but(new, old, &["metadata", "status"]);
        super::keep_metadata(new, old);
        status::prepare(&mut new["status"], at(old, "status"));
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(status::validate(it));
        errors
    }
}

/// What claims are made of.
pub(super) struct Templates;

impl Kind for Templates {
    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        without_disabled(&mut new["spec"]["spec"]);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, _: &Value) {
        without_disabled(&mut new["spec"]["spec"]);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let path = Path::new("spec");
        let mut errors = it.metadata();
        // A list without items is set, too.
        if let metadata @ Value::Object(_) = at(it.sent, "spec.metadata") {
            errors.extend(template_metadata(&wire::typed(metadata), &path.child("metadata")));
        }
        errors.extend(claim(it, at(it.new, "spec.spec"), &path.child("spec")));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(it.metadata_update());
        let prepare = |spec: &mut Value| without_disabled(&mut spec["spec"]);
        errors.extend(unchanged(it, TEMPLATE_SPEC, prepare));
        errors
    }
}

/// Kinds of devices.
pub(super) struct Classes;

impl Classes {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = selectors(it, items(spec, "selectors"), &path.child("selectors"));
        let config = items(spec, "config");
        errors.extend(each(config, MAX_CONFIGURATIONS, &path.child("config"), configuration));
        errors
    }

    fn without_disabled(new: &mut Value) {
        remove(&mut new["spec"], &["extendedResourceName"]);
    }
}

impl Kind for Classes {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        Classes::without_disabled(new);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, _: &Value) {
        Classes::without_disabled(new);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_by_name();
        errors.extend(Classes::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_by_name();
        errors.extend(it.metadata_update());
        errors.extend(Classes::spec(it));
        errors
    }
}

/// A spec that is for good. A list without items is as good as none, and shown all the same.
fn unchanged(it: &It<'_>, wire_type: &str, prepare: impl Fn(&mut Value)) -> Option<field::Error> {
    let (mut new, mut old) = (at(it.new, "spec").clone(), at(it.old, "spec").clone());
    let mut shown = new.clone();
    add_empty(&mut shown, at(it.sent, "spec"));
    prepare(&mut shown);
    remove_empty(&mut new);
    remove_empty(&mut old);
    (new != old).then(|| Path::new("spec").invalid(field::Value::internal(wire_type, &shown), IMMUTABLE))
}

/// Adds the lists that were sent without items.
fn add_empty(object: &mut Value, sent: &Value) {
    match (object, sent) {
        (Value::Object(members), Value::Object(sent)) => {
            for (name, sent) in sent {
                match members.get_mut(name) {
                    Some(member) if !member.is_null() => add_empty(member, sent),
                    _ if sent.as_array().is_some_and(Vec::is_empty) => {
                        members.insert(name.clone(), sent.clone());
                    }
                    _ => {}
                }
            }
        }
        (Value::Array(items), Value::Array(sent)) => {
            items.iter_mut().zip(sent).for_each(|(item, sent)| add_empty(item, sent));
        }
        _ => {}
    }
}

/// Removes lists without items.
fn remove_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null() && !member.as_array().is_some_and(Vec::is_empty));
            members.values_mut().for_each(remove_empty);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_empty),
        _ => {}
    }
}

/// Takes away what belongs to features that are off: tolerations, capacities and attributes that must differ.
fn without_disabled(spec: &mut Value) {
    let devices = &mut spec["devices"];
    for request in list_mut(devices, "requests") {
        if request["exactly"].is_object() {
            remove(&mut request["exactly"], &["tolerations", "capacity"]);
        }
        for alternative in list_mut(request, "firstAvailable") {
            remove(alternative, &["tolerations", "capacity"]);
        }
    }
    for constraint in list_mut(devices, "constraints") {
        remove(constraint, &["distinctAttribute"]);
    }
}

fn list_mut<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn remove(object: &mut Value, fields: &[&str]) {
    if let Some(members) = object.as_object_mut() {
        members.retain(|name, _| !fields.contains(&name.as_str()));
    }
}

/// Judges each item of a list that has a greatest length; of a longer one only that is said.
fn each(list: &[Value], max: usize, path: &Path, judge: impl Fn(&Value, &Path) -> Errors) -> Errors {
    if list.len() > max {
        return vec![path.too_many(list.len(), max)];
    }
    list.iter().enumerate().flat_map(|(i, item)| judge(item, &path.index(i))).collect()
}

/// Judges a list like [`each`] does, whose items are known by something each must have for itself.
fn each_once(
    list: &[Value],
    max: usize,
    path: &Path,
    key: impl Fn(&Value) -> &str,
    judge: impl Fn(&Value, &Path) -> Errors,
) -> Errors {
    let mut errors = each(list, max, path, judge);
    if list.len() <= max {
        let again = repeated(list, &key);
        for (i, item) in list.iter().enumerate().filter(|(i, _)| again[*i]) {
            errors.push(path.index(i).duplicate(key(item)));
        }
    }
    errors
}

fn own_name(item: &Value) -> &str {
    text(item, "name")
}

fn itself(item: &Value) -> &str {
    item.as_str().unwrap_or_default()
}

fn named(name: &str, path: &Path, check: fn(&str) -> Problems) -> Errors {
    check(name).into_iter().map(|problem| path.invalid(name, problem)).collect()
}

/// What is wrong with a claim of devices.
fn claim(it: &It<'_>, spec: &Value, path: &Path) -> Errors {
    let (devices, path) = (at(spec, "devices"), path.child("devices"));
    let requests = items(devices, "requests");
    let mut errors = each_once(requests, MAX_REQUESTS, &path.child("requests"), own_name, |item, path| {
        request(it, item, path)
    });
    let constraints = items(devices, "constraints");
    errors.extend(each(constraints, MAX_CONSTRAINTS, &path.child("constraints"), |constraint, path| {
        let mut errors = request_names(constraint, requests, path);
        match constraint["matchAttribute"].as_str() {
            None => errors.push(path.child("matchAttribute").required("")),
            Some(name) => errors.extend(fully_qualified(name, &path.child("matchAttribute"))),
        }
        errors
    }));
    let config = items(devices, "config");
    errors.extend(each(config, MAX_CONFIGURATIONS, &path.child("config"), |config, path| {
        let mut errors = request_names(config, requests, path);
        errors.extend(configuration(config, path));
        errors
    }));
    errors
}

fn request(it: &It<'_>, request: &Value, path: &Path) -> Errors {
    let mut errors = named(own_name(request), &path.child("name"), names::dns_label);
    let (exactly, alternatives) = (&request["exactly"], items(request, "firstAvailable"));
    match (exactly.is_null(), alternatives.is_empty()) {
        (true, true) => {
            errors.push(path.required("exactly one of `exactly` or `firstAvailable` is required"));
        }
        (false, false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(path.invalid(field::Value::json(&Value::Null), why));
        }
        (true, false) => {
            let path = path.child("firstAvailable");
            errors.extend(each_once(alternatives, MAX_ALTERNATIVES, &path, own_name, |item, path| {
                let mut errors = named(own_name(item), &path.child("name"), names::dns_label);
                errors.extend(wanted(it, item, path));
                errors
            }));
        }
        (false, true) => errors.extend(wanted(it, exactly, &path.child("exactly"))),
    }
    errors
}

/// What is asked for: devices of a class, some of them or all.
fn wanted(it: &It<'_>, request: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    match text(request, "deviceClassName") {
        "" => errors.push(path.child("deviceClassName").required("")),
        name => errors.extend(named(name, &path.child("deviceClassName"), names::dns_subdomain)),
    }
    errors.extend(selectors(it, items(request, "selectors"), &path.child("selectors")));
    let count = request["count"].as_i64().unwrap_or(0);
    match text(request, "allocationMode") {
        mode @ "All" if count != 0 => {
            let why = format!("must not be specified when allocationMode is '{mode}'");
            errors.push(path.child("count").invalid(count, why));
        }
        "ExactCount" if count <= 0 => {
            errors.push(path.child("count").invalid(count, "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        other => {
            errors.push(path.child("allocationMode").not_supported(field::Value::json(&other), &MODES));
        }
    }
    errors
}

fn selectors(it: &It<'_>, selectors: &[Value], path: &Path) -> Errors {
    each(selectors, MAX_SELECTORS, path, |selector, path| {
        let path = path.child("cel");
        if selector["cel"].is_null() {
            return vec![path.required("")];
        }
        let path = path.child("expression");
        if text(selector, "cel.expression").len() > MAX_EXPRESSION {
            return vec![path.too_long(MAX_EXPRESSION)];
        }
        it.expression(&path).into_iter().collect()
    })
}

/// The requests that a constraint, a configuration or a result is about.
fn request_names(of: &Value, requests: &[Value], path: &Path) -> Errors {
    let path = path.child("requests");
    each_once(items(of, "requests"), MAX_REQUESTS, &path, itself, |name, path| {
        request_name(itself(name), requests, path)
    })
}

/// The name of a request, perhaps with that of one of its alternatives.
fn request_name(name: &str, requests: &[Value], path: &Path) -> Errors {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > 2 {
        return vec![path.invalid(name, NO_REQUEST)];
    }
    let mut errors: Errors = parts.iter().flat_map(|part| named(part, path, names::dns_label)).collect();
    let found = requests.iter().rev().find(|request| own_name(request) == parts[0]);
    let is_known = match (found, parts.get(1)) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(request), Some(part)) => {
            items(request, "firstAvailable").iter().any(|it| own_name(it) == *part)
        }
    };
    if !is_known {
        errors.push(path.invalid(name, NO_REQUEST));
    }
    errors
}

/// What a driver is told of how a device is to be.
fn configuration(config: &Value, path: &Path) -> Errors {
    let (opaque, path) = (&config["opaque"], path.child("opaque"));
    if opaque.is_null() {
        return vec![path.required("")];
    }
    let mut errors = csi::driver_name(text(opaque, "driver"), &path.child("driver"));
    errors.extend(raw(&opaque["parameters"], MAX_PARAMETERS, &path.child("parameters")));
    errors
}

/// An object of a form that only its reader knows.
fn raw(value: &Value, max: usize, path: &Path) -> Option<field::Error> {
    match value {
        Value::Null => Some(path.required("")),
        value if value.to_string().len() > max => Some(path.too_long(max)),
        Value::Object(_) => None,
        _ => Some(path.invalid("<value omitted>", "must be a valid JSON object")),
    }
}

/// The name of an attribute: a domain, and an identifier below it.
fn fully_qualified(name: &str, path: &Path) -> Errors {
    let mut errors = qualified(name, path);
    if !name.contains('/') {
        let why = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(path.invalid(field::Value::json(&name), why));
    }
    errors
}

/// The name of an attribute, whose domain may be its driver's. Names of more parts are not looked at.
fn qualified(name: &str, path: &Path) -> Errors {
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, path),
        [domain, id] => {
            let mut errors = match domain {
                "" => vec![path.invalid("", "the domain must not be empty")],
                domain => csi::driver_name(domain, path),
            };
            errors.extend(match id {
                "" => vec![path.invalid("", "the name must not be empty")],
                id => identifier(id, path),
            });
            errors
        }
        _ => Errors::new(),
    }
}

fn identifier(id: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if id.len() > MAX_IDENTIFIER {
        errors.push(path.too_long(MAX_IDENTIFIER));
    }
    errors.extend(named(id, path, names::c_identifier));
    errors
}

/// Where devices come from: names as of objects, one below the other.
fn pool_name(name: &str, path: &Path) -> Errors {
    const MAX: usize = 253;
    if name.is_empty() {
        return vec![path.required("")];
    }
    let mut errors = Errors::new();
    if name.len() > MAX {
        errors.push(path.too_long(MAX));
    }
    errors.extend(name.split('/').flat_map(|part| named(part, path, names::dns_subdomain)));
    errors
}

/// The entries of a map, as they are judged: each key, and what stands there.
fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}
