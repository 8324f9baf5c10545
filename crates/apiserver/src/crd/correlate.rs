//! Which old value belongs to which new one, so that what did not change is not judged again (3.27).

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::Value;

use super::schema::{ListType, Schema};

/// Where items with a key stand in the map lists of an old object, as far as somebody has asked: both lists are as long as
/// clients like, so that nobody may look through one for each item of the other.
#[derive(Debug, Default)]
pub(crate) struct Places(RefCell<HashMap<*const Value, HashMap<String, usize>>>);

impl Places {
    /// Lists up to this length are looked through.
    const FEW: usize = 32;

    /// The first item with these keys.
    fn find<'a>(&self, items: &'a [Value], wanted: &[&Value], schema: &Schema) -> Option<&'a Value> {
        if items.len() <= Self::FEW {
            return items.iter().find(|item| keys(item, schema).as_deref() == Some(wanted));
        }
        let text = |keys: &[&Value]| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let mut places = self.0.borrow_mut();
        let places = places.entry(items.as_ptr()).or_insert_with(|| {
            // Of those with the same keys the first counts.
            let all = items.iter().enumerate().rev();
            all.filter_map(|(place, item)| Some((text(&keys(item, schema)?), place))).collect()
        });
        places.get(&text(wanted)).map(|place| &items[*place])
    }
}

/// A new value with the old one in its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Correlated<'a> {
    new: &'a Value,
    old: &'a Value,
    schema: &'a Schema,
    places: &'a Places,
}

impl<'a> Correlated<'a> {
    /// `places` is of this old value only.
    pub(crate) fn new(
        new: &'a Value,
        old: &'a Value,
        schema: &'a Schema,
        places: &'a Places,
    ) -> Correlated<'a> {
        Correlated { new, old, schema, places }
    }

    /// The field of that name, if both have it and its schema is known.
    pub(crate) fn field(self, name: &str) -> Option<Correlated<'a>> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        Some(Correlated { new, old, schema: self.schema.field(name)?, ..self })
    }

    /// The item at that place of the new list, with the old item of the same key; items of other lists have no match.
    pub(crate) fn item(self, index: usize) -> Option<Correlated<'a>> {
        let (new, items) = (self.new.as_array()?.get(index)?, self.schema.items.as_deref()?);
        let old = same_key(self.old.as_array()?, new, self.schema, self.places)?;
        Some(Correlated { new, old, schema: items, ..self })
    }

    /// Whether nothing changed. Map lists are compared by key, and a field without a schema counts as changed.
    pub(crate) fn is_unchanged(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                let by_key = self.schema.list_type == ListType::Map && self.schema.items.is_some();
                new.len() == old.len()
                    && if by_key {
                        (0..new.len()).all(|index| self.item(index).is_some_and(Correlated::is_unchanged))
                    } else {
                        new == old
                    }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.field(name).is_some_and(Correlated::is_unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// The item of a map list with the same keys as `like`; an item without a key, or with one that is no scalar, has no
/// counterpart.
pub(crate) fn same_key<'a>(
    items: &'a [Value],
    like: &Value,
    schema: &Schema,
    places: &Places,
) -> Option<&'a Value> {
    if schema.list_type != ListType::Map || schema.list_map_keys.is_empty() {
        return None;
    }
    let wanted = keys(like, schema)?;
    places.find(items, &wanted, schema)
}

fn keys<'a>(item: &'a Value, schema: &Schema) -> Option<Vec<&'a Value>> {
    let scalar = |value: &&Value| value.is_boolean() || value.is_number() || value.is_string();
    schema.list_map_keys.iter().map(|name| item.get(name).filter(scalar)).collect()
}
