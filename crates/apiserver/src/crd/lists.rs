//! Lists that are sets or maps hold every item, or every key, once.

use std::collections::HashMap;

use rules::field::{Errors, Path};
use serde_json::{Map, Value};

use super::{
    at::At,
    go::shown,
    schema::{Additional, ListType, Schema},
};

/// Every duplicate in the fields of an object, and below.
pub fn validate(object: &Map<String, Value>, schema: &Schema, path: &Path) -> Errors {
    let mut look = Look { path, errors: Errors::new() };
    look.fields(object, schema, &At::ROOT);
    look.errors
}

struct Look<'a> {
    path: &'a Path,
    errors: Errors,
}

impl Look<'_> {
    fn fields(&mut self, object: &Map<String, Value>, schema: &Schema, at: &At<'_>) {
        for (name, value) in object {
            if let Additional::Schema(inner) = &schema.additional
                && inner.below.unique
            {
                self.visit(value, inner, &at.entry(name));
            }
            if let Some(inner) = schema.properties.get(name).filter(|inner| inner.below.unique) {
                self.visit(value, inner, &at.field(name));
            }
        }
    }

    fn visit(&mut self, value: &Value, schema: &Schema, at: &At<'_>) {
        match value {
            Value::Object(object) => self.fields(object, schema, at),
            Value::Array(items) => {
                match schema.list_type {
                    ListType::Atomic => {}
                    ListType::Set => {
                        for index in duplicates(items, |one, other| one == other, Value::to_string) {
                            let path = at.item(index).below(self.path);
                            self.errors.push(path.duplicate(shown(&items[index])));
                        }
                    }
                    ListType::Map => self.keys(items, schema, at),
                }
                if let Some(inner) = schema.items.as_ref().filter(|inner| inner.below.unique) {
                    for (index, item) in items.iter().enumerate() {
                        self.visit(item, inner, &at.item(index));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn keys(&mut self, items: &[Value], schema: &Schema, at: &At<'_>) {
        if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
            let why = "must be an object for an array of list-type map";
            let path = at.item(index).below(self.path);
            return self.errors.push(path.invalid(shown(&items[index]), why));
        }
        let keys = &schema.list_map_keys;
        let is_same = |one: &Value, other: &Value| keys.iter().all(|name| one.get(name) == other.get(name));
        let key = |item: &Value| {
            let named = keys.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
            Value::Object(named.collect())
        };
        for index in duplicates(items, is_same, |item| key(item).to_string()) {
            let path = at.item(index).below(self.path);
            self.errors.push(path.duplicate(shown(&key(&items[index]))));
        }
    }
}

/// Lists up to this length are compared item by item, which needs no memory.
const FEW: usize = 32;

/// Where an item stands for the second time; the third time is not said. Items are the same if their texts are.
fn duplicates(
    items: &[Value],
    is_same: impl Fn(&Value, &Value) -> bool,
    text: impl Fn(&Value) -> String,
) -> Vec<usize> {
    if items.len() <= FEW {
        let stands_second = |index: usize| {
            let mut before = items[..index].iter().filter(|item| is_same(item, &items[index]));
            before.next().is_some() && before.next().is_none()
        };
        return (0..items.len()).filter(|index| stands_second(*index)).collect();
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let times = seen.entry(text(item)).or_default();
        *times += 1;
        if *times == 2 {
            found.push(index);
        }
    }
    found
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

    #[test]
    fn long_lists_are_as_short_ones() {
        for length in [FEW, FEW + 1] {
            for (one, other, expected) in [(3, 5, 1), (3, 4, 1), (0, length - 1, 1), (7, 7, 0)] {
                let mut items: Vec<Value> =
                    (0..length).map(|i| json!({"k": format!("n{i}"), "v": 1})).collect();
                items[other]["k"] = items[one]["k"].clone();
                let schema = schema(json!({"type": "object", "properties": {
                    "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}));
                let object = Map::from_iter([("map".to_owned(), Value::from(items))]);
                let errors = validate(&object, &schema, &Path::root());
                assert_eq!(errors.len(), expected, "{errors:?}");
                assert!(errors.iter().all(|error| error.path == format!("map[{other}]")), "{errors:?}");
            }
        }
    }
}
