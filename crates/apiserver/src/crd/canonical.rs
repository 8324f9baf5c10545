//! Metadata that is as Go would write it already. Nearly all is: it was stored, or comes from a client that knows what
//! metadata is. Reading it as what it should be and writing that again would change nothing, and costs more than
//! everything else that is done to a small object.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::formats::is_plain_time;

/// Whether reading metadata and writing it again gives the same, with nothing unknown in it. Sometimes says no where that
/// is so.
pub(super) fn is_canonical(metadata: &Value) -> bool {
    let Value::Object(fields) = metadata else { return false };
    fields.iter().all(|(name, value)| match name.as_str() {
        "generateName" | "name" | "namespace" | "resourceVersion" | "selfLink" | "uid" => is_text(value),
        "annotations" | "labels" => is_map_of_texts(value),
        "creationTimestamp" | "deletionTimestamp" => is_time(value),
        "deletionGracePeriodSeconds" => value.is_i64(),
        "finalizers" => is_list(value, Value::is_string),
        "generation" => value.as_i64().is_some_and(|generation| generation != 0),
        "managedFields" => is_list(value, is_entry),
        "ownerReferences" => is_list(value, is_owner),
        _ => false,
    })
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn is_map_of_texts(value: &Value) -> bool {
    value.as_object().is_some_and(|map| !map.is_empty() && map.values().all(Value::is_string))
}

fn is_list(value: &Value, is_item: fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty() && items.iter().all(is_item))
}

/// Whole seconds in UTC. The last second of a day is not the 61st of its minute, which would be written as the 60th.
fn is_time(value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    let is_written_so = || {
        let parsed = text.parse::<Timestamp>().ok();
        parsed.is_some_and(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() == text)
    };
    is_plain_time(text) || is_written_so()
}

/// An owner says all of these, if only that it has none.
fn is_owner(value: &Value) -> bool {
    const ALWAYS: [&str; 4] = ["apiVersion", "kind", "name", "uid"];
    let Value::Object(fields) = value else { return false };
    let is_known = |(name, value): (&String, &Value)| match name.as_str() {
        "apiVersion" | "kind" | "name" | "uid" => value.is_string(),
        "blockOwnerDeletion" | "controller" => value.is_boolean(),
        _ => false,
    };
    ALWAYS.iter().all(|name| fields.contains_key(*name)) && fields.iter().all(is_known)
}

fn is_entry(value: &Value) -> bool {
    let is_known = |(name, value): (&String, &Value)| match name.as_str() {
        "apiVersion" | "fieldsType" | "manager" | "operation" | "subresource" => is_text(value),
        "fieldsV1" => value.as_object().is_some_and(|fields| !Map::is_empty(fields)),
        "time" => is_time(value),
        _ => false,
    };
    value.as_object().is_some_and(|fields| fields.iter().all(is_known))
}
