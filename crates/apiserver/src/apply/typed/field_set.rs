//! Which fields a value has.

use serde_json::Value;

use super::super::path::PathElement;
use super::super::schema::{List, Map, Merge, Schema, TypeId};
use super::super::set::{Entry, Set};
use super::item::{self, ByElement};
use super::{Kind, kind_of};

pub(super) fn of(schema: &Schema, of: TypeId, value: &Value) -> Set {
    let mut root = Entry::default();
    fill(schema, Some(of), value, &mut root);
    root.children
}

fn fill(schema: &Schema, of: Option<TypeId>, value: &Value, entry: &mut Entry) {
    match kind_of(schema, of, value) {
        Some(Kind::Map(map)) => match value {
            _ if map.atomic => entry.member = true,
            Value::Object(fields) => fill_map(schema, map, fields, entry),
            _ => {}
        },
        Some(Kind::List(list)) => match value {
            _ if list.merge == Merge::Atomic => entry.member = true,
            Value::Array(items) => fill_list(schema, list, items, entry),
            _ => {}
        },
        Some(Kind::Scalar(_)) => entry.member = true,
        None => {}
    }
}

fn fill_map(schema: &Schema, map: &Map, fields: &serde_json::Map<String, Value>, entry: &mut Entry) {
    for (name, value) in fields {
        let declared = map.field(name);
        let element =
            PathElement::Field(declared.map_or_else(|| name.as_str().into(), |field| field.name.clone()));
        let mut below = Entry::default();
        fill(schema, declared.map(|field| field.of).or(map.rest), value, &mut below);
        let is_empty = match value {
            Value::Null => true,
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        below.member |= is_empty || declared.is_none();
        entry.children.put(&element, below);
    }
}

fn fill_list(schema: &Schema, list: &List, items: &[Value], entry: &mut Entry) {
    // An item without a step can only come from pruning a list whose managers were edited by hand; nobody owns it.
    let elements = items.iter().filter_map(|item| Some((item::element(schema, list, item).ok()?, item)));
    let elements: Vec<(PathElement, &Value)> = elements.collect();
    let mut counts = ByElement::with_capacity(elements.len());
    for (element, _) in &elements {
        *counts.entry(element, || 0_usize) += 1;
    }
    let mut all = Vec::with_capacity(elements.len());
    for (element, item) in &elements {
        let mut below = Entry::default();
        if counts.get(element) == Some(&1) {
            fill(schema, Some(list.items), item, &mut below);
        }
        below.member = true; // of items that repeat, only that they exist
        all.push((element.clone(), below));
    }
    entry.children.put_all(all);
}

pub(super) fn with_named_fields(schema: &Schema, of: Option<TypeId>, set: &Set) -> Set {
    let atom = of.map(|of| schema.get(of));
    let map = atom.and_then(|atom| atom.map.as_ref());
    let list = atom.and_then(|atom| atom.list.as_ref());
    let mut named = Set::new();
    for (element, member, children) in set.entries() {
        let field = match element {
            PathElement::Field(name) => map.and_then(|map| map.field(name)),
            _ => None,
        };
        let below = match element {
            PathElement::Field(_) => field.map(|field| field.of).or_else(|| map.and_then(|map| map.rest)),
            PathElement::Key(_) => list.map(|list| list.items),
            PathElement::Value(_) | PathElement::Index(_) => None,
        };
        let leads_on = field.is_some() && !children.is_empty();
        let children = with_named_fields(schema, below, children);
        named.put(element, Entry { member: member || leads_on, children });
    }
    named
}
