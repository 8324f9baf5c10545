//! The types of built-in kinds and of custom resources, compared with those that kube-apiserver makes of OpenAPI.

use std::collections::{HashMap, HashSet};

use apiserver::apply::{BuiltIn, Schema, TypeId, custom_resource};
use schema::Pack;
use serde_json::{Value, json};

use crate::{go, schema as theirs};

struct Walk<'a> {
    ours: &'a Schema,
    theirs: &'a Schema,
    seen: HashSet<(TypeId, TypeId)>,
    differences: Vec<String>,
}

impl Walk<'_> {
    fn types(&mut self, ours: TypeId, theirs: TypeId, path: &str) {
        if !self.seen.insert((ours, theirs)) {
            return;
        }
        let (ours, theirs) = (self.ours.get(ours), self.theirs.get(theirs));
        if ours.scalar != theirs.scalar {
            self.differences.push(format!("{path}: {:?} is not {:?}", ours.scalar, theirs.scalar));
        }
        match (&ours.list, &theirs.list) {
            (Some(ours), Some(theirs)) => {
                if ours.merge != theirs.merge {
                    self.differences.push(format!("{path}: {:?} is not {:?}", ours.merge, theirs.merge));
                }
                self.types(ours.items, theirs.items, &format!("{path}[]"));
            }
            (None, None) => {}
            _ => self.differences.push(format!("{path}: only one is a list")),
        }
        match (&ours.map, &theirs.map) {
            (Some(ours), Some(theirs)) => self.maps(ours, theirs, path),
            (None, None) => {}
            _ => self.differences.push(format!("{path}: only one is a map")),
        }
    }

    fn maps(
        &mut self,
        ours: &apiserver::apply::schema::Map,
        theirs: &apiserver::apply::schema::Map,
        path: &str,
    ) {
        if ours.atomic != theirs.atomic {
            self.differences.push(format!("{path}: atomic {} is not {}", ours.atomic, theirs.atomic));
        }
        match (ours.rest, theirs.rest) {
            (Some(ours), Some(theirs)) => self.types(ours, theirs, &format!("{path}.*")),
            (None, None) => {}
            (ours, theirs) => self.differences.push(format!("{path}: the rest {ours:?} is not {theirs:?}")),
        }
        let names = |map: &apiserver::apply::schema::Map| -> Vec<String> {
            map.fields().iter().map(|field| field.name.to_string()).collect()
        };
        if names(ours) != names(theirs) {
            self.differences.push(format!("{path}: {:?} are not {:?}", names(ours), names(theirs)));
            return;
        }
        for (ours, theirs) in ours.fields().iter().zip(theirs.fields()) {
            if ours.default != theirs.default {
                self.differences.push(format!(
                    "{path}.{}: default {:?} is not {:?}",
                    ours.name, ours.default, theirs.default
                ));
            }
            self.types(ours.of, theirs.of, &format!("{path}.{}", ours.name));
        }
    }
}

fn differences(ours: (&Schema, TypeId), theirs: (&Schema, TypeId), path: &str) -> Vec<String> {
    let mut walk = Walk { ours: ours.0, theirs: theirs.0, seen: HashSet::new(), differences: Vec::new() };
    walk.types(ours.1, theirs.1, path);
    walk.differences
}

#[test]
fn oracle_types_of_every_built_in_kind() {
    if !go::is_here() {
        return;
    }
    let source = go::ask(&[json!({"op": "schema"})]).remove(0)["schema"].take();
    let (schema, names): (Schema, HashMap<String, TypeId>) = theirs::read(&source);
    let mut compared = 0;
    let mut found = Vec::new();
    for (kind, of) in Pack::v1_35().kinds() {
        let Some(theirs) = names.get(of.name()) else { continue };
        let ours =
            BuiltIn::v1_35().of_kind(kind.group, kind.version, kind.kind).expect("every kind has a type");
        found.extend(differences(ours, (&schema, *theirs), &format!("{}.{}", kind.version, kind.kind)));
        compared += 1;
    }
    assert!(found.is_empty(), "{} differences, first {:#?}", found.len(), &found[..found.len().min(20)]);
    assert!(compared > 150, "only {compared} kinds were compared");
}

#[test]
fn oracle_types_of_custom_resources() {
    if !go::is_here() {
        return;
    }
    let check = |structural: Value| {
        let source = go::ask(&[json!({"op": "convert", "schema": structural})]).remove(0)["schema"].take();
        let (theirs, names) = theirs::read(&source);
        let (ours, of) = custom_resource(&json!({"type": "object", "properties": {"spec": structural}}));
        let root = ours.get(of).map.as_ref().and_then(|map| map.field("spec")).expect("a spec").of;
        assert_eq!(differences((&ours, root), (&theirs, names["root"]), "spec"), Vec::<String>::new());
    };
    let string = || json!({"type": "string"});
    check(json!({"type": "object", "properties": {"a": string(), "b": {"type": "string", "format": "byte"},
        "c": {"type": "string", "format": "date-time"}, "d": {"type": "integer", "default": 3},
        "e": {"type": "number"}, "f": {"type": "boolean"}}}));
    check(json!({"type": "object"}));
    check(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "a": {"type": "object", "properties": {"b": string()}}}}));
    check(json!({"type": "object", "additionalProperties": {"type": "array", "items": string()}}));
    check(json!({"type": "object", "additionalProperties": true}));
    check(json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true},
        "b": {"x-kubernetes-preserve-unknown-fields": true}}}));
    check(json!({"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-map-type": "atomic",
        "properties": {"b": string()}}, "c": {"type": "object", "x-kubernetes-map-type": "granular"}}}));
    for list in ["atomic", "set"] {
        check(json!({"type": "array", "items": string(), "x-kubernetes-list-type": list}));
    }
    check(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
        "items": {"type": "object", "properties": {"a": string(), "b": {"type": "string", "default": "TCP"}}}}));
}
