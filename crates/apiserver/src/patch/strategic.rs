//! Strategic merge patch: a merge patch that merges lists by key where the type says so, and that carries directives.
//!
//! - `$patch: replace | delete` in an object replaces or empties it; in an item of a merged list it replaces the list
//!   or deletes the item;
//! - `$retainKeys` names the fields of an object that stay;
//! - `$deleteFromPrimitiveList/field` and `$setElementOrder/field` stand beside a list.
//!
//! Only built-in kinds have types that say how lists merge, so types are the schema pack's.

mod lists;
mod lookup;

use schema::Type;
use serde_json::{Map, Value};

use super::Error;
use crate::apply::go;
use lists::merge_lists;
use lookup::{Strategy, list_field, struct_field};

/// What marks an object or list item as more than data.
const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

/// The document, an object of the type, after the patch.
pub fn apply(of: Type, document: Value, patch: Value) -> Result<Value, Error> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            let into = "Go value of type map[string]interface {}";
            return Err(Error::BadRequest(format!("json: cannot unmarshal {kind} into {into}")));
        }
    };
    let document = if let Value::Object(document) = document { document } else { Map::new() };
    merge_maps(document, patch, of).map(Value::Object)
}

fn merge_maps(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    of: Type,
) -> Result<Map<String, Value>, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    lists::merge_ordered(&mut original, &mut patch, of)?;
    for (name, value) in patch {
        let deleting = name.strip_prefix(DELETE_FROM_LIST);
        let is_deletion = deleting.is_some();
        let name = match deleting.map(|rest| rest.strip_prefix('/')) {
            None | Some(Some("")) => name,
            Some(Some(list)) => list.to_owned(),
            Some(None) => return Err(bad_primitive_list()),
        };
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        merge_field(&mut original, name, value, of, is_deletion)?;
    }
    Ok(original)
}

fn merge_field(
    original: &mut Map<String, Value>,
    name: String,
    value: Value,
    of: Type,
    is_deletion: bool,
) -> Result<(), Error> {
    let merged = match (original.get_mut(&name), value) {
        (Some(Value::Object(known)), Value::Object(fields)) => {
            let (below, strategy) = struct_field(of, &name)?;
            let merged = match strategy {
                Strategy::Replace => fields,
                Strategy::Merge(_) | Strategy::None => merge_maps(std::mem::take(known), fields, below)?,
            };
            Some(Value::Object(merged))
        }
        (Some(Value::Array(known)), Value::Array(items)) => {
            let (below, strategy) = list_field(of, &name)?;
            let merged = match strategy {
                Strategy::Merge(key) => merge_lists(std::mem::take(known), items, below, key, is_deletion)?,
                _ if is_deletion => merge_lists(std::mem::take(known), items, below, None, true)?,
                _ => items,
            };
            Some(Value::Array(merged))
        }
        // There is nothing to delete from.
        _ if is_deletion => return Ok(()),
        (known, mut value) => {
            let of_one_kind = known.is_some_and(|known| go::type_name(known) == go::type_name(&value));
            if !of_one_kind {
                discard_nulls(&mut value);
            }
            without_directives(value)
        }
    };
    match merged {
        Some(merged) => original.insert(name, merged),
        None => original.remove(&name),
    };
    Ok(())
}

/// Drops fields that the directive does not name. All that the patch sets has to be named.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad = || Error::BadRequest("invalid patch format of retainKeys".into());
    let Value::Array(keys) = keys else { return Err(bad()) };
    let is_named = |name: &str| keys.iter().any(|key| key == name);
    for (name, value) in &*patch {
        let is_directive = name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ELEMENT_ORDER);
        if !value.is_null() && !is_directive && !is_named(name) {
            return Err(bad());
        }
    }
    original.retain(|name, _| is_named(name));
    Ok(())
}

/// Drops the nulls of objects: there is nothing that they could remove.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// A value without objects that carry a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept =
                fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        other => Some(other),
    }
}

fn bad_primitive_list() -> Error {
    Error::BadRequest("invalid patch format of primitive list".into())
}

fn unknown_directive(directive: &Value, patch: &Map<String, Value>) -> Error {
    let shown = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".into(),
        other => format!("%!s({}={})", go::type_name(other), go::plain(other)),
    };
    let patch = go::plain(&Value::Object(patch.clone()));
    Error::Failed(format!("unknown patch type: {shown} in map: {patch}"))
}

#[cfg(test)]
mod tests;
