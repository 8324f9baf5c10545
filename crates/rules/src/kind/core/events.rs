//! Events, which two groups serve: what either asks for.
//!
//! They are kept as the core group has them. The newer group names some fields otherwise; [`to_core`] and
//! [`from_core`] translate.

use serde_json::{Map, Value};

use crate::field::{self, Errors, Path};
use crate::kind::{It, Kind, at, text};
use crate::meta::{self, IMMUTABLE};
use crate::names;

/// Events, as one of the two groups asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The core group.
    Core,
    /// `events.k8s.io`.
    Events,
}

const OBJECT_REFERENCE: &str = "io.k8s.api.core.v1.ObjectReference";
const MAX_SHORT: usize = 128;
const MAX_NOTE: usize = 1024;

/// Names in the core group and in the newer one.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// An event of the newer group as one of the core group.
pub fn to_core(event: &Value) -> Value {
    renamed(event, |name| RENAMED.iter().find(|(_, new)| *new == name).map_or(name, |(core, _)| core), "v1")
}

/// An event of the core group as one of the newer group.
pub fn from_core(event: &Value) -> Value {
    renamed(
        event,
        |name| RENAMED.iter().find(|(core, _)| *core == name).map_or(name, |(_, new)| new),
        "events.k8s.io/v1",
    )
}

fn renamed<'a>(event: &'a Value, name: impl Fn(&'a str) -> &'a str, version: &str) -> Value {
    let fields = event.as_object().into_iter().flat_map(Map::iter);
    let mut event: Map<String, Value> =
        fields.map(|(key, value)| (name(key).to_owned(), value.clone())).collect();
    if let Some(api_version) = event.get_mut("apiVersion") {
        *api_version = Value::from(version);
    }
    Value::Object(event)
}

impl Kind for Event {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = self.legacy(it);
        if *self == Event::Core {
            return errors;
        }
        errors.extend(it.any_metadata());
        errors.extend(series(it.new));
        if at(it.new, "eventTime").is_null() {
            errors.push(Path::new("eventTime").required(""));
        }
        let kind = text(it.new, "type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(Path::new("type").invalid("", format!("has invalid value: {kind}")));
        }
        let unset = [
            ("firstTimestamp", at(it.new, "firstTimestamp").is_null()),
            ("lastTimestamp", at(it.new, "lastTimestamp").is_null()),
            ("count", at(it.new, "count").as_i64().unwrap_or(0) == 0),
            ("source", text(it.new, "source.component").is_empty() && text(it.new, "source.host").is_empty()),
        ];
        let set = unset.into_iter().filter(|(_, is_unset)| !is_unset);
        errors.extend(set.map(|(field, _)| Path::new(field).invalid("", "needs to be unset")));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.legacy(it);
        if *self == Event::Core {
            return errors;
        }
        errors.extend(it.any_metadata_update());
        if at(it.new, "series") != at(it.old, "series") {
            errors.extend(series(it.new));
        }
        for (stored, wire_type) in [
            ("involvedObject", OBJECT_REFERENCE),
            ("reason", ""),
            ("message", ""),
            ("source", "io.k8s.api.core.v1.EventSource"),
            ("firstTimestamp", ""),
            ("lastTimestamp", ""),
            ("count", ""),
            ("reason", ""),
            ("type", ""),
            ("eventTime", ""),
            ("action", ""),
            ("related", OBJECT_REFERENCE),
            ("reportingComponent", ""),
            ("reportingInstance", ""),
        ] {
            let (new, old) = (at(it.new, stored), at(it.old, stored));
            if new != old {
                let is_text = matches!(
                    stored,
                    "reason" | "message" | "type" | "action" | "reportingComponent" | "reportingInstance"
                );
                let value = match wire_type {
                    _ if is_text => field::Value::from(new.as_str().unwrap_or("")),
                    "" => field::Value::json(new),
                    _ if new.is_null() => field::Value::printed("null"),
                    wire_type => field::Value::internal(wire_type, new),
                };
                let name = if stored == "reportingComponent" { "reportingController" } else { stored };
                errors.push(Path::new(name).invalid(value, IMMUTABLE));
            }
        }
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        match self {
            Event::Core => &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            Event::Events => &[
                "regarding.kind",
                "regarding.namespace",
                "regarding.name",
                "regarding.uid",
                "regarding.apiVersion",
                "regarding.resourceVersion",
                "regarding.fieldPath",
                "reason",
                "reportingController",
                "type",
            ],
        }
    }

    /// Both groups select the same stored events, so an event has the fields of both.
    fn fields(&self, event: &Value) -> Vec<(&'static str, String)> {
        let value = |name: &str| match name {
            "source" if text(event, "source.component").is_empty() => text(event, "reportingComponent"),
            "source" => text(event, "source.component"),
            "reportingController" => text(event, "reportingComponent"),
            name => match name.strip_prefix("regarding.") {
                Some(rest) => text(at(event, "involvedObject"), rest),
                None => text(event, name),
            },
        };
        let new = Event::Events.selectable().iter().filter(|name| !Event::Core.selectable().contains(name));
        Event::Core.selectable().iter().chain(new).map(|name| (*name, value(name).to_owned())).collect()
    }
}

impl Event {
    /// What was always asked of events, more if they come with a time in microseconds.
    fn legacy(self, it: &It<'_>) -> Errors {
        let event = it.new;
        let (namespace, of) = (text(event, "metadata.namespace"), text(event, "involvedObject.namespace"));
        let mismatch =
            || Path::new("involvedObject").child("namespace").invalid(of, "does not match event.namespace");
        let mut errors = Errors::new();
        if at(event, "eventTime").is_null() {
            let fits = if of.is_empty() { matches!(namespace, "" | "default") } else { namespace == of };
            if !fits {
                errors.push(mismatch());
            }
        } else {
            if of.is_empty() && !matches!(namespace, "default" | "kube-system") {
                errors.push(mismatch());
            }
            errors.extend(self.reported(event));
        }
        let problems = names::dns_subdomain(namespace).into_iter();
        errors.extend(problems.map(|problem| Path::new("namespace").invalid(namespace, problem)));
        errors
    }

    fn reported(self, event: &Value) -> Errors {
        let controller = match self {
            Event::Core => Path::new("reportingComponent"),
            Event::Events => Path::new("reportingController"),
        };
        let too_long = |field: &str, max: usize| {
            let is_long = text(event, field).len() > max;
            is_long.then(|| Path::new(field).invalid("", format!("can have at most {max} characters")))
        };
        let missing = |field: &str| text(event, field).is_empty().then(|| Path::new(field).required(""));
        let mut errors = Errors::new();
        let name = text(event, "reportingComponent");
        if name.is_empty() {
            errors.push(controller.required(""));
        }
        errors.extend(meta::qualified(name, &controller));
        for field in ["reportingInstance", "action", "reason"] {
            errors.extend(missing(field));
            errors.extend(too_long(field, MAX_SHORT));
        }
        errors.extend(too_long("message", MAX_NOTE));
        errors
    }
}

fn series(event: &Value) -> Errors {
    let series = at(event, "series");
    let mut errors = Errors::new();
    if series.is_null() {
        return errors;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        errors.push(Path::new("series.count").invalid("", "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        errors.push(Path::new("series.lastObservedTime").required(""));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_two_groups_name_fields_otherwise() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "message": "m", "count": 2, "involvedObject": {"kind": "Pod"},
            "reason": "r", "reportingComponent": "c"});
        let newer = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "m", "deprecatedCount": 2,
            "regarding": {"kind": "Pod"}, "reason": "r", "reportingController": "c"});
        assert_eq!(from_core(&core), newer);
        assert_eq!(to_core(&newer), core);
    }

    #[test]
    fn both_groups_select_the_same_events() {
        let event = json!({"involvedObject": {"kind": "Pod"}, "reportingComponent": "c"});
        let fields = Event::Core.fields(&event);
        for (name, value) in [
            ("involvedObject.kind", "Pod"),
            ("regarding.kind", "Pod"),
            ("source", "c"),
            ("reportingController", "c"),
        ] {
            assert!(fields.contains(&(name, value.to_owned())), "{name}");
        }
    }
}
