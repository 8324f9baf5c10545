//! A value without some of its fields, or with nothing but them.

use serde_json::Value;

use super::super::path::PathElement;
use super::super::schema::{List, Map, Merge, Schema, TypeId};
use super::super::set::Set;
use super::item;
use super::{Kind, kind_of};

/// The value without the fields and items of a set; `None` where nothing is left.
pub(super) fn remove(schema: &Schema, of: TypeId, value: &Value, items: &Set) -> Option<Value> {
    Walk { schema, extract: false }.value(Some(of), value, items)
}

/// Only the fields and items of a set.
pub(super) fn extract(schema: &Schema, of: TypeId, value: &Value, items: &Set) -> Option<Value> {
    Walk { schema, extract: true }.value(Some(of), value, items)
}

/// Adds the keys of the list items on a path.
pub(super) fn insert_key_fields(keys: &mut Set, path: &[PathElement]) {
    for (place, element) in path.iter().enumerate() {
        let PathElement::Key(fields) = element else { continue };
        for (name, _) in fields.iter() {
            let mut key = path[..=place].to_vec();
            key.push(PathElement::Field(name.clone()));
            keys.insert(&key);
        }
    }
}

struct Walk<'s> {
    schema: &'s Schema,
    extract: bool,
}

impl Walk<'_> {
    fn value(&self, of: Option<TypeId>, value: &Value, items: &Set) -> Option<Value> {
        match (kind_of(self.schema, of, value)?, value) {
            (Kind::Scalar(_), _) => Some(value.clone()),
            (Kind::List(list), Value::Array(values)) if !values.is_empty() => {
                if list.merge == Merge::Atomic {
                    return self.extract.then(|| value.clone());
                }
                self.list(list, values, items)
            }
            (Kind::Map(map), Value::Object(fields)) if !fields.is_empty() => {
                if map.atomic {
                    return self.extract.then(|| value.clone());
                }
                self.map(map, fields, items)
            }
            (Kind::List(_) | Kind::Map(_), _) => None,
        }
    }

    fn list(&self, list: &List, values: &[Value], items: &Set) -> Option<Value> {
        let mut kept = Vec::with_capacity(values.len());
        for value in values {
            let element = item::element(self.schema, list, value).ok();
            let (member, below) = element.and_then(|element| items.get(&element)).unwrap_or((false, &EMPTY));
            if member && !self.extract {
                continue;
            }
            if member {
                // As upstream, which here looks for the list's own paths inside of the item.
                kept.push(self.value(Some(list.items), value, items).unwrap_or(Value::Null));
            }
            if !below.is_empty() {
                kept.push(self.value(Some(list.items), value, below).unwrap_or(Value::Null));
            } else if !self.extract {
                kept.push(value.clone());
            }
        }
        (!kept.is_empty()).then_some(Value::Array(kept))
    }

    fn map(&self, map: &Map, fields: &serde_json::Map<String, Value>, items: &Set) -> Option<Value> {
        let mut kept = serde_json::Map::new();
        for (name, value) in fields {
            let declared = map.field(name);
            let of = declared.map(|field| field.of).or(map.rest);
            let element =
                PathElement::Field(declared.map_or_else(|| name.as_str().into(), |it| it.name.clone()));
            let (member, below) = items.get(&element).unwrap_or((false, &EMPTY));
            let value = match (self.extract, member, below.is_empty()) {
                (true, true, _) => self.value(of, value, items).unwrap_or(Value::Null),
                (false, true, _) | (true, false, true) => continue,
                (_, false, false) => self.value(of, value, below).unwrap_or(Value::Null),
                (false, false, true) => value.clone(),
            };
            kept.insert(name.clone(), value);
        }
        (!kept.is_empty()).then_some(Value::Object(kept))
    }
}

static EMPTY: Set = Set::new();
