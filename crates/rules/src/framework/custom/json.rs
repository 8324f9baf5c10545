//! Reading and writing single fields of objects as they are on the wire.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::workload::condition::time;

/// A text; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, at: &str) -> &'a str {
    object.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

/// A number.
pub(super) fn number(object: &Value, at: &str) -> Option<i64> {
    object.pointer(at)?.as_i64()
}

/// A count of pods, where one may be missing.
pub(super) fn count(object: &Value, at: &str) -> Option<i32> {
    number(object, at).map(|count| i32::try_from(count).unwrap_or(i32::MAX))
}

/// The entries of a list, or of a map by key.
pub(super) fn entries(of: Option<&Value>) -> impl Iterator<Item = &Value> {
    let (list, map) = (of.and_then(Value::as_array), of.and_then(Value::as_object));
    list.into_iter().flatten().chain(map.into_iter().flat_map(Map::values))
}

/// The same, to be changed.
pub(super) fn entries_mut(of: Option<&mut Value>) -> Vec<&mut Value> {
    match of {
        Some(Value::Array(items)) => items.iter_mut().collect(),
        Some(Value::Object(entries)) => entries.values_mut().collect(),
        _ => Vec::new(),
    }
}

/// What a condition says.
pub(super) fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    find(object, name)?["status"].as_str()
}

/// What a condition says in words.
pub(super) fn condition_message(object: &Value, name: &str) -> String {
    find(object, name).map(|found| text(found, "/message").to_owned()).unwrap_or_default()
}

fn find<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == *name)
}

/// Says of a condition that it is not so any more.
pub(super) fn clear_condition(object: &mut Value, name: &str, now: Timestamp) {
    let conditions = entries_mut(object.pointer_mut("/status/conditions"));
    for condition in conditions.into_iter().filter(|condition| condition["type"] == *name) {
        condition["status"] = "False".into();
        condition["lastTransitionTime"] = json!(time(now));
    }
}

/// Sets a field, and makes the objects around it if need be. Where something else is in the way nothing happens.
pub fn set(object: &mut Value, at: &str, value: Value) {
    let mut here = object;
    for part in at.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        if let Value::Array(items) = here {
            let Some(item) = name.parse().ok().and_then(|index: usize| items.get_mut(index)) else { return };
            here = item;
            continue;
        }
        if here.is_null() {
            *here = Value::Object(Map::new());
        }
        let Value::Object(fields) = here else { return };
        here = fields.entry(name).or_insert(Value::Null);
    }
    *here = value;
}
