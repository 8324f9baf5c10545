//! What cells are made of: parts of objects, as people read them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rules::job::table::human;
use serde_json::{Value, json};

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";
pub(super) const UNKNOWN: &str = "<unknown>";

/// The name of the object.
pub(super) fn name(object: &Value) -> Value {
    json!(text(object, "metadata/name"))
}

/// How old the object is.
pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(at(object, "metadata/creationTimestamp"), now))
}

/// What is at a path such as `spec/nodeName`.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('/').fold(object, |value, part| &value[part])
}

/// The text at a path; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or("")
}

/// The text at a path, or what stands for none.
pub(super) fn text_or<'a>(object: &'a Value, path: &str, none: &'a str) -> &'a str {
    at(object, path).as_str().unwrap_or(none)
}

/// The text at a path, or what stands for an empty one.
pub(super) fn filled<'a>(object: &'a Value, path: &str, none: &'a str) -> &'a str {
    Some(text(object, path)).filter(|text| !text.is_empty()).unwrap_or(none)
}

/// The number at a path; 0 if there is none.
pub(super) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).as_i64().unwrap_or(0)
}

/// The switch at a path, or what it is by default.
pub(super) fn switch(object: &Value, path: &str, default: bool) -> bool {
    at(object, path).as_bool().unwrap_or(default)
}

/// The elements at a path.
pub(super) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// How many elements or members are at a path.
pub(super) fn count(object: &Value, path: &str) -> usize {
    match at(object, path) {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

/// The texts at a path, with something between them.
pub(super) fn joined(object: &Value, path: &str, between: &str) -> String {
    list(object, path).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(between)
}

/// The time since a moment.
pub(super) fn since(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        None => UNKNOWN.to_owned(),
        Some(time) => between(time, now),
    }
}

/// The time from one moment to another.
pub(super) fn between(from: Timestamp, to: Timestamp) -> String {
    let passed = to.duration_since(from);
    match Duration::try_from(passed) {
        Ok(passed) => human(passed),
        Err(_) if passed.as_secs() >= -1 => "0s".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// Labels as a selector would be typed.
pub(super) fn labels(object: &Value, path: &str) -> String {
    let pairs = at(object, path).as_object().into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

/// A label selector as it would be typed; without one nothing is selected, and an empty one selects everything.
pub(super) fn selector(object: &Value, path: &str) -> String {
    let selector: Option<LabelSelector> = serde_json::from_value(at(object, path).clone()).ok().flatten();
    rules::job::table::selector(selector.as_ref())
}

/// Names and images of the containers of a pod's spec.
pub(super) fn containers(spec: &Value) -> [Value; 2] {
    ["name", "image"].map(|key| {
        let texts = list(spec, "containers").iter().map(|container| text(container, key));
        json!(texts.collect::<Vec<_>>().join(","))
    })
}

/// The first few, and how many more there are.
pub(super) fn few(all: &[String], most: usize, between: &str, none: &str) -> String {
    let shown = all.iter().take(most).map(String::as_str).collect::<Vec<_>>().join(between);
    match all.len().saturating_sub(most) {
        0 if shown.is_empty() => none.to_owned(),
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}
