//! What the field manager knows of an object: what it says it is, and where its managers stand.

use std::fmt;

use serde_json::Value;

use super::super::managers;

/// Where an object keeps its managers.
pub(super) const MANAGED_FIELDS: &str = "/metadata/managedFields";

/// What an object says it is. Prints as Go prints a GroupVersionKind.
pub(super) struct ObjectKind<'a> {
    group: &'a str,
    version: &'a str,
    pub(super) kind: &'a str,
}

impl<'a> ObjectKind<'a> {
    pub(super) fn of(object: &'a Value) -> ObjectKind<'a> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        if version.contains('/') {
            return ObjectKind { group: "", version: "", kind: "" };
        }
        ObjectKind { group, version, kind: text("kind") }
    }

    pub(super) fn version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

impl fmt::Display for ObjectKind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// An object as messages name it: `namespace/name; group/version, Kind=kind`.
pub(super) fn shown(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    format!("{}/{}; {}", text("/metadata/namespace"), text("/metadata/name"), ObjectKind::of(object))
}

/// Whether a configuration brings managers that could be read. Others are for the type to refuse.
pub(super) fn managed_fields_are_set(config: &Value) -> bool {
    let entries = config.pointer(MANAGED_FIELDS).and_then(Value::as_array);
    entries.is_some_and(|entries| {
        entries.iter().all(|entry| {
            let entry = std::slice::from_ref(entry).to_vec();
            !matches!(managers::decode(Some(&Value::Array(entry))), Err(managers::DecodeError::Malformed(_)))
        })
    })
}
