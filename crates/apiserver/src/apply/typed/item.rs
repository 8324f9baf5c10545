//! How an item of a list is found again: by its keys, or by itself.

use serde_json::Value;

use super::super::path::PathElement;
use super::super::schema::{List, Merge, Schema};

/// The step from a list to one of its items, or why there is none.
pub(super) fn element(schema: &Schema, list: &List, item: &Value) -> Result<PathElement, String> {
    match &list.merge {
        Merge::Atomic => Err("invalid indexing of non-associative list".into()),
        Merge::ByKeys(keys) if !keys.is_empty() => by_keys(schema, list, keys, item),
        Merge::ByKeys(_) | Merge::Set => by_itself(item),
    }
}

fn by_keys(
    schema: &Schema,
    list: &List,
    keys: &[std::sync::Arc<str>],
    item: &Value,
) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let declared = schema.get(list.items).map.as_ref();
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        // A key that is neither set nor defaulted is no part of the item's identity.
        if let Some(value) = fields.get(&**key) {
            found.push((key.clone(), value.clone()));
        } else if let Some(declared) = declared {
            found.extend(declared.field(key).and_then(|field| Some((key.clone(), field.default.clone()?))));
        } else {
            return Err(format!(
                "couldn't find default value for {key}: associative list may not have non-map types"
            ));
        }
    }
    if found.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| types::go::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            keys.join(" ")
        ));
    }
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(PathElement::Key(found.into()))
}

fn by_itself(item: &Value) -> Result<PathElement, String> {
    match item {
        Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
        Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
        Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
        scalar => Ok(PathElement::Value(scalar.clone())),
    }
}

/// Something per step, kept sorted by step.
///
/// Not a `BTreeMap`: numbers of two Go types compare in a way that is not quite an order, and a sorted vector is
/// indifferent to that.
pub(super) struct ByElement<T> {
    entries: Vec<(PathElement, T)>,
}

impl<T> ByElement<T> {
    pub(super) fn with_capacity(capacity: usize) -> ByElement<T> {
        ByElement { entries: Vec::with_capacity(capacity) }
    }

    pub(super) fn get(&self, element: &PathElement) -> Option<&T> {
        self.find(element).ok().map(|place| &self.entries[place].1)
    }

    pub(super) fn entry(&mut self, element: &PathElement, new: impl FnOnce() -> T) -> &mut T {
        let place = self.find(element).unwrap_or_else(|place| {
            self.entries.insert(place, (element.clone(), new()));
            place
        });
        &mut self.entries[place].1
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        match self.entries.last() {
            Some((last, _)) if last < element => Err(self.entries.len()),
            _ => self.entries.binary_search_by(|(known, _)| known.cmp(element)),
        }
    }
}
