//! Lists of a strategic merge patch: their items, and their order.

use std::collections::{HashMap, HashSet};

use schema::Type;
use serde_json::{Map, Value};

use super::super::Error;
use super::lookup::{self, Strategy, list_field};
use super::{DIRECTIVE, SET_ELEMENT_ORDER, merge_maps, unknown_directive, without_directives};
use crate::apply::go;

/// Two lists made into one: items of the patch in its order, the others where they stood.
pub(super) fn merge_lists(
    original: Vec<Value>,
    patch: Vec<Value>,
    of: Type,
    key: Option<&str>,
    is_deletion: bool,
) -> Result<Vec<Value>, Error> {
    Ok(merge_in_place(original, patch, of, key, is_deletion)?.merged)
}

/// A merged list, and what upstream has made of the original on the way.
struct Merged {
    merged: Vec<Value>,
    /// Upstream deletes from the list in place and appends to it in place, so an item that a patch deletes and adds
    /// again stands last in what an order is then taken from.
    left_behind: Vec<Value>,
}

fn merge_in_place(
    mut original: Vec<Value>,
    mut patch: Vec<Value>,
    of: Type,
    key: Option<&str>,
    is_deletion: bool,
) -> Result<Merged, Error> {
    if original.is_empty() && patch.is_empty() {
        return Ok(Merged { merged: original, left_behind: Vec::new() });
    }
    let length = original.len();
    let (merged, left_behind) = if are_objects(&original, &patch)? {
        let key = key.ok_or_else(|| {
            let kind = lookup::kind(of);
            Error::Failed(format!("cannot merge lists without merge key for {kind}"))
        })?;
        let replaces;
        (original, patch, replaces) = follow_directives(original, patch, key)?;
        if replaces {
            let left_behind = std::mem::take(&mut original);
            original = std::mem::take(&mut patch);
            (original.clone(), left_behind)
        } else {
            let merged = merge_items(original.clone(), patch.clone(), of, key)?;
            let left_behind = merged.iter().take(length).cloned().collect();
            (merged, left_behind)
        }
    } else if is_deletion {
        let gone: HashSet<String> = patch.iter().map(Value::to_string).collect();
        original.retain(|item| !gone.contains(&item.to_string()));
        return Ok(Merged { merged: original, left_behind: Vec::new() });
    } else {
        (without_repetitions(original.iter().chain(&patch).cloned().collect()), original.clone())
    };
    let (of_patch, others) = partition(merged, &patch, key)?;
    let merged = arrange(of_patch, others, &patch, &original, key)?;
    Ok(Merged { merged, left_behind })
}

/// Merges the lists that an order is given for, and arranges them so. They leave the patch.
pub(super) fn merge_ordered(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    of: Type,
) -> Result<(), Error> {
    let orders: Vec<String> =
        patch.keys().filter(|name| name.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in orders {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(not_a_list(&other.unwrap_or_default())),
        };
        let name = directive[SET_ELEMENT_ORDER.len()..].strip_prefix('/').ok_or_else(bad_order)?;
        let known = list_of(original.get(name))?;
        let items = list_of(patch.get(name))?;
        let (below, strategy) = list_field(of, name)?;
        let key = match strategy {
            Strategy::Merge(key) => key,
            Strategy::None | Strategy::Replace => None,
        };
        check_order(items.unwrap_or_default(), &order, key)?;
        let mut server_order = known.unwrap_or_default().to_vec();
        let merged = match (known, items) {
            (None, None) => continue,
            (Some(known), None) => known.to_vec(),
            (None, Some(items)) => items.iter().cloned().filter_map(without_directives).collect(),
            (Some(known), Some(items)) => match strategy {
                Strategy::Merge(key) => {
                    let Merged { merged, left_behind } =
                        merge_in_place(known.to_vec(), items.to_vec(), below, key, false)?;
                    server_order = left_behind;
                    merged
                }
                Strategy::None | Strategy::Replace => items.to_vec(),
            },
        };
        let (of_patch, others) = partition(merged, &order, key)?;
        // Objects without a declared key have no order; upstream looks for a key without a name, in vain.
        let key = key.or(are_objects(known.unwrap_or_default(), items.unwrap_or_default())?.then_some(""));
        let arranged = arrange(of_patch, others, &order, &server_order, key)?;
        patch.remove(name);
        original.insert(name.to_owned(), Value::Array(arranged));
    }
    Ok(())
}

fn list_of(value: Option<&Value>) -> Result<Option<&[Value]>, Error> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(not_a_list(other)),
    }
}

/// Whether the items of both lists are objects. All of them have to be of one type, and none a list.
fn are_objects(left: &[Value], right: &[Value]) -> Result<bool, Error> {
    let mut items = left.iter().chain(right);
    let Some(first) = items.next() else {
        return Err(Error::Failed("no elements in any of the given slices".into()));
    };
    match first {
        Value::Array(_) => return Err(Error::Unprocessable("lists of lists are not supported".into())),
        Value::Null => return Err(Error::Failed("a list begins with null".into())),
        _ => {}
    }
    if items.any(|item| go::type_name(item) != go::type_name(first)) {
        let both = Value::Array(vec![left.to_vec().into(), right.to_vec().into()]);
        return Err(Error::Failed(format!("list element types are not identical: {}", go::plain(&both))));
    }
    Ok(first.is_object())
}

/// Follows the directives in items of a patch. Returns the list without what they delete, the other items, and whether
/// these replace the list.
fn follow_directives(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>, bool), Error> {
    let mut items = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for item in patch {
        let Value::Object(fields) = &item else { continue };
        match fields.get(DIRECTIVE) {
            None => items.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                let gone = fields.get(key).ok_or_else(|| no_merge_key(&item, key))?;
                original.retain(|item| item.get(key) != Some(gone));
            }
            Some(Value::String(directive)) if directive == "replace" => replaces = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(Error::Failed("merging lists cannot yet be specified in the patch".into()));
            }
            Some(directive) => return Err(unknown_directive(directive, fields)),
        }
    }
    Ok((original, items, replaces))
}

/// Merges objects that have the same key, and appends the others.
fn merge_items(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    of: Type,
    key: &str,
) -> Result<Vec<Value>, Error> {
    let mut places = places(&original, Some(key));
    for item in patch {
        let identity = item.get(key).ok_or_else(|| no_merge_key(&item, key))?.to_string();
        match (places.get(&identity), item) {
            (Some(&place), Value::Object(fields)) => {
                let known = original[place].as_object_mut().map(std::mem::take).unwrap_or_default();
                let merged = merge_maps(known, fields, of)?;
                original[place] = Value::Object(merged);
            }
            (_, item) => {
                places.insert(identity, original.len());
                original.push(item);
            }
        }
    }
    Ok(original)
}

/// Where each item first stands, by its key or by itself. Texts tell JSON values apart as Go's `==` does.
fn places(items: &[Value], key: Option<&str>) -> HashMap<String, usize> {
    let mut places = HashMap::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        if let Some(identity) = identity(item, key) {
            places.entry(identity).or_insert(place);
        }
    }
    places
}

fn identity(item: &Value, key: Option<&str>) -> Option<String> {
    match key {
        None => Some(item.to_string()),
        Some(key) => item.get(key).map(Value::to_string),
    }
}

/// Divides a list into items that another has and items that it has not.
fn partition(items: Vec<Value>, by: &[Value], key: Option<&str>) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let places = places(by, key);
    let odd = key.and_then(|_| by.iter().position(|item| !item.is_object())).unwrap_or(usize::MAX);
    let (mut inside, mut outside) = (Vec::new(), Vec::with_capacity(items.len()));
    for item in items {
        let identity = match (key, &item) {
            (None, item) => item.to_string(),
            (Some(key), Value::Object(fields)) => {
                fields.get(key).ok_or_else(|| no_merge_key(&item, key))?.to_string()
            }
            (Some(_), other) => return Err(not_a_map(other)),
        };
        match places.get(&identity) {
            Some(&place) if place < odd => inside.push(item),
            _ if odd < usize::MAX => return Err(Error::Failed(format!("value for key {odd} is not a map"))),
            _ => outside.push(item),
        }
    }
    Ok((inside, outside))
}

/// One list of the patch's items in the patch's order and of the server's in the server's.
fn arrange(
    of_patch: Vec<Value>,
    others: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, Error> {
    let of_patch = sort(of_patch, patch_order, key)?;
    let others = sort(others, server_order, key)?;
    let places = places(server_order, key);
    let place = |item: &Value| identity(item, key).and_then(|identity| places.get(&identity).copied());
    let mut arranged = Vec::with_capacity(of_patch.len() + others.len());
    let (mut of_patch, mut others) = (of_patch.into_iter().peekable(), others.into_iter().peekable());
    while let (Some(patched), Some(other)) = (of_patch.peek(), others.peek()) {
        let other_first =
            matches!((place(other), place(patched)), (Some(other), Some(patched)) if other < patched);
        arranged.extend(if other_first { others.next() } else { of_patch.next() });
    }
    arranged.extend(of_patch);
    arranged.extend(others);
    Ok(arranged)
}

/// Items in the order of another list; items to delete come last.
fn sort(items: Vec<Value>, order: &[Value], key: Option<&str>) -> Result<Vec<Value>, Error> {
    if let Some(key) = key {
        for item in items.iter().chain(order) {
            match item {
                Value::Object(fields) if fields.contains_key(key) => {}
                Value::Object(_) => return Err(no_merge_key(item, key)),
                other => return Err(not_a_map(other)),
            }
        }
    }
    let is_deletion = |item: &Value| key.is_some() && item.get(DIRECTIVE).is_some_and(|it| it == "delete");
    let (deletions, kept): (Vec<Value>, Vec<Value>) = items.into_iter().partition(is_deletion);
    let places = places(order, key);
    let mut ranked: Vec<(Option<usize>, Value)> = kept
        .into_iter()
        .map(|item| (identity(&item, key).and_then(|identity| places.get(&identity).copied()), item))
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    Ok(ranked.into_iter().map(|(_, item)| item).chain(deletions).collect())
}

/// The items of a patch have to be in the order that it gives, and all of them in it.
fn check_order(items: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Error> {
    if items.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut kept = Vec::with_capacity(items.len());
    for item in items {
        match (key, item) {
            (Some(_), Value::Object(fields)) if fields.get(DIRECTIVE).is_some_and(|it| it == "delete") => {}
            (Some(_), other) if !other.is_object() => return Err(not_a_map(other)),
            _ => kept.push(item),
        }
    }
    let mut kept = kept.into_iter().peekable();
    let mut order_left = order.iter();
    while let Some(item) = kept.peek() {
        if item.get(DIRECTIVE).is_some() {
            kept.next();
            continue;
        }
        let Some(ordered) = order_left.next() else {
            return Err(Error::Failed(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
                go::plain(&Value::Array(items.to_vec())),
                go::plain(&Value::Array(order.to_vec())),
            )));
        };
        let is_next = match key {
            None => *item == ordered,
            Some(key) => {
                let Value::Object(ordered_fields) = ordered else { return Err(not_a_map(ordered)) };
                let left = item.get(key).ok_or_else(|| no_merge_key(item, key))?;
                left == ordered_fields.get(key).ok_or_else(|| no_merge_key(ordered, key))?
            }
        };
        if is_next {
            kept.next();
        }
    }
    Ok(())
}

/// Distinct scalars. The order is upstream's, which fills a gap with the last item.
fn without_repetitions(mut items: Vec<Value>) -> Vec<Value> {
    /// Upstream takes time that grows with the square of the length; longer lists keep the order of first mention.
    const EXACT: usize = 1000;
    let mut seen = HashSet::with_capacity(items.len());
    if items.iter().all(|item| seen.insert(item.to_string())) {
        return items;
    }
    if items.len() > EXACT {
        seen.clear();
        items.retain(|item| seen.insert(item.to_string()));
        return items;
    }
    let mut i = 0;
    while i + 1 < items.len() {
        let mut j = i + 1;
        while j < items.len() {
            if items[i] == items[j] {
                items.swap_remove(j);
            } else {
                j += 1;
            }
        }
        i += 1;
    }
    items
}

fn bad_order() -> Error {
    Error::BadRequest("invalid patch format of setElementOrder list".into())
}

fn no_merge_key(item: &Value, key: &str) -> Error {
    Error::Failed(format!("map: {} does not contain declared merge key: {key}", go::plain(item)))
}

fn not_a_list(value: &Value) -> Error {
    wrong_type("[]interface {}", value)
}

fn not_a_map(value: &Value) -> Error {
    wrong_type("map[string]interface {}", value)
}

fn wrong_type(expected: &str, value: &Value) -> Error {
    let actual = if value.is_null() { "%!s(<nil>)" } else { go::type_name(value) };
    Error::Failed(format!("expected a {expected}, but received a {actual}"))
}
