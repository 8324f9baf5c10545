//! Parts of a JSON value, found by a path; and values as the recorder's language prints them, which the order of some
//! recorded lists depends on.

use serde_json::{Map, Value};

/// Whether a member is there and true.
pub(super) fn is_true(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

/// The parts of a path. `~1` stands for a slash.
pub(super) fn segments(path: &str) -> Vec<String> {
    if path.is_empty() { Vec::new() } else { path.split('/').map(|part| part.replace("~1", "/")).collect() }
}

/// All values at a path: `*` is every element, `k=v` the elements of a list whose `k` is `v`, digits are an index.
pub(super) fn find<'a>(value: &'a Value, path: &[String]) -> Vec<&'a Value> {
    let Some((first, rest)) = path.split_first() else { return vec![value] };
    match value {
        Value::Array(list) => {
            let chosen = list.iter().enumerate().filter(|(i, item)| is_chosen(first, *i, list.len(), item));
            chosen.flat_map(|(_, item)| find(item, rest)).collect()
        }
        Value::Object(map) if first == "*" => map.values().flat_map(|value| find(value, rest)).collect(),
        Value::Object(map) => map.get(first).map(|value| find(value, rest)).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// As [`find`], to be changed.
pub(super) fn find_mut<'a>(value: &'a mut Value, path: &[String]) -> Vec<&'a mut Value> {
    let Some((first, rest)) = path.split_first() else { return vec![value] };
    match value {
        Value::Array(list) => {
            let count = list.len();
            let chosen = list.iter_mut().enumerate().filter(|(i, item)| is_chosen(first, *i, count, item));
            chosen.flat_map(|(_, item)| find_mut(item, rest)).collect()
        }
        Value::Object(map) => {
            let chosen = map.iter_mut().filter(|(key, _)| first == "*" || *key == first);
            chosen.flat_map(|(_, value)| find_mut(value, rest)).collect()
        }
        _ => Vec::new(),
    }
}

fn is_chosen(segment: &str, at: usize, count: usize, item: &Value) -> bool {
    if segment == "*" {
        return true;
    }
    if let Ok(index) = segment.parse::<i64>() {
        let index = if index < 0 { index + i64::try_from(count).unwrap_or(i64::MAX) } else { index };
        return i64::try_from(at) == Ok(index);
    }
    is_named(segment, item)
}

/// Whether `k=v` holds for an object.
fn is_named(segment: &str, item: &Value) -> bool {
    let (key, wanted) = segment.split_once('=').unwrap_or((segment, ""));
    item.as_object().is_some_and(|item| printed(item.get(key).unwrap_or(&Value::Null)) == wanted)
}

/// Removes what is at a path.
pub(super) fn drop_at(value: &mut Value, path: &[String]) {
    let Some((last, parents)) = path.split_last() else { return };
    for parent in find_mut(value, parents) {
        match parent {
            Value::Object(map) => drop(map.remove(last)),
            Value::Array(list) => list.retain(|item| !is_named(last, item)),
            _ => {}
        }
    }
}

/// A JSON merge patch, applied.
pub(super) fn merged(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut merged = target.as_object().cloned().unwrap_or_default();
    for (key, value) in patch {
        if value.is_null() {
            merged.remove(key);
        } else {
            let before = merged.get(key).cloned().unwrap_or(Value::Null);
            merged.insert(key.clone(), self::merged(&before, value));
        }
    }
    Value::Object(merged)
}

/// A value as text, without quotes.
pub(super) fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

/// A value as JSON with a space after every comma and colon, and nothing but ASCII: lists are sorted by this.
pub(super) fn sort_key(value: &Value) -> String {
    match value {
        Value::Array(list) => {
            format!("[{}]", list.iter().map(sort_key).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| format!("{}: {}", text_key(key), sort_key(value));
            format!("{{{}}}", map.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => text_key(text),
        other => other.to_string(),
    }
}

fn text_key(text: &str) -> String {
    let mut out = String::new();
    for c in Value::String(text.to_owned()).to_string().chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            let mut units = [0; 2];
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// The members of an object, or none.
pub(super) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(value: &Value, path: &str) -> Vec<Value> {
        find(value, &segments(path)).into_iter().cloned().collect()
    }

    #[test]
    fn paths_choose() {
        let value = json!({"a": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "b/c": {"d": 3}});
        for (path, expected) in [
            ("a/n=y/v", json!([2])),
            ("a/*/v", json!([1, 2])),
            ("a/-1/n", json!(["y"])),
            ("a/7/n", json!([])),
            ("b~1c/d", json!([3])),
            ("*/d", json!([3])),
        ] {
            assert_eq!(json!(found(&value, path)), expected, "{path}");
        }
        let mut value = value;
        drop_at(&mut value, &segments("a/n=x"));
        drop_at(&mut value, &segments("a/*/v"));
        assert_eq!(value["a"], json!([{"n": "y"}]));
    }

    #[test]
    fn keys_are_ascii_and_spaced() {
        assert_eq!(sort_key(&json!({"b": ["é", 1], "a": null})), r#"{"a": null, "b": ["\u00e9", 1]}"#);
    }
}
