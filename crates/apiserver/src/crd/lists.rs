//! Lists that are sets or maps hold every item, or every key, once.

use std::collections::HashMap;

use rules::field::{Errors, Path};
use serde_json::{Map, Value};

use super::{
    go::shown,
    schema::{Additional, ListType, Schema},
};

/// Every duplicate in the fields of an object, and below.
pub fn validate(object: &Map<String, Value>, schema: &Schema, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (name, value) in object {
        if let Additional::Schema(inner) = &schema.additional
            && inner.below.unique
        {
            errors.extend(visit(value, inner, &path.key(name)));
        }
        if let Some(inner) = schema.properties.get(name).filter(|inner| inner.below.unique) {
            errors.extend(visit(value, inner, &path.child(name)));
        }
    }
    errors
}

fn visit(value: &Value, schema: &Schema, path: &Path) -> Errors {
    match value {
        Value::Object(object) => validate(object, schema, path),
        Value::Array(items) => {
            let mut errors = match schema.list_type {
                ListType::Atomic => Errors::new(),
                ListType::Set => duplicates(items.iter())
                    .into_iter()
                    .map(|i| path.index(i).duplicate(shown(&items[i])))
                    .collect(),
                ListType::Map => keys(items, schema, path),
            };
            if let Some(inner) = schema.items.as_ref().filter(|inner| inner.below.unique) {
                errors.extend(
                    items.iter().enumerate().flat_map(|(i, item)| visit(item, inner, &path.index(i))),
                );
            }
            errors
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Errors::new(),
    }
}

/// Where a value stands for the second time; the third time is not said.
fn duplicates<'a>(items: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
}

fn keys(items: &[Value], schema: &Schema, path: &Path) -> Errors {
    if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
        let value = shown(&items[index]);
        return vec![path.index(index).invalid(value, "must be an object for an array of list-type map")];
    }
    let key = |item: &Value| {
        let named =
            schema.list_map_keys.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
        Value::Object(named.collect())
    };
    let keys: Vec<Value> = items.iter().map(key).collect();
    let found = duplicates(keys.iter());
    found.into_iter().map(|index| path.index(index).duplicate(shown(&keys[index]))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd::tests::schema;

    fn check(value: Value, expected: &[&str]) {
        let schema = schema(json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
                "type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            "two": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "l"], "items": {
                "type": "object", "properties": {"k": {"type": "string"}, "l": {"type": "string"}}}},
            "of": {"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set",
                "items": {"type": "integer"}}},
        }}));
        let object = value.as_object().expect("an object");
        let errors: Vec<String> =
            validate(object, &schema, &Path::root()).iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn uniqueness_3_24() {
        check(json!({"set": ["a", "b"], "map": [{"k": "a"}, {"k": "b"}]}), &[]);
        check(json!({"set": ["a", "b", "a", "a"]}), &[r#"set[2]: Duplicate value: "a""#]);
        check(
            json!({"map": [{"k": "a", "v": 1}, {"k": "a", "v": 2}, {}, {}]}),
            &[r#"map[1]: Duplicate value: {"k":"a"}"#, "map[3]: Duplicate value: {}"],
        );
        check(
            json!({"two": [{"k": "a"}, {"k": "a", "l": "b"}, {"l": "b", "k": "a"}]}),
            &[r#"two[2]: Duplicate value: {"k":"a","l":"b"}"#],
        );
        check(json!({"of": {"x": [1, 1]}}), &["of[x][1]: Duplicate value: 1"]);
        check(
            json!({"map": [1]}),
            &["map[0]: Invalid value: 1: must be an object for an array of list-type map"],
        );
    }
}
