//! Answers reduced to what a case is about.

use serde_json::{Map, Value, json};

use super::value::{drop_at, find, find_mut, members, printed, segments, sort_key};

/// Applies the operations of a `view`, one after the other.
pub(super) fn reduced(body: &Value, operations: &Value) -> Value {
    let mut body = body.clone();
    for operation in operations.as_array().into_iter().flatten() {
        if !body.is_object() {
            break;
        }
        let texts: Vec<&str> = operation.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let Some((name, arguments)) = texts.split_first() else { continue };
        apply(&mut body, name, arguments);
    }
    body
}

fn apply(body: &mut Value, operation: &str, arguments: &[&str]) {
    let argument = arguments.first().copied().unwrap_or("");
    match operation {
        "pick" => *body = arguments.iter().map(|path| ((*path).to_owned(), picked(body, path))).collect(),
        "drop" => arguments.iter().for_each(|path| drop_at(body, &segments(path))),
        "strip" => *body = stripped(body, arguments),
        "named" => *body = group(body, argument),
        "crdschema" => *body = own_schema(body, argument),
        "sort" => {
            for list in find_mut(body, &segments(argument)).into_iter().filter_map(Value::as_array_mut) {
                list.sort_by_key(sort_key);
            }
        }
        "index" => {
            for list in find_mut(body, &segments(argument)).into_iter().filter(|list| list.is_array()) {
                *list = indexed(list, arguments.get(1).copied().unwrap_or(""));
            }
        }
        unknown => panic!("no view is called {unknown}"),
    }
}

fn picked(body: &Value, path: &str) -> Value {
    let found = find(body, &segments(path));
    match found.as_slice() {
        [one] if !path.contains('*') => (*one).clone(),
        many => many.iter().map(|value| (*value).clone()).collect(),
    }
}

/// Without members of these names that are texts.
fn stripped(value: &Value, keys: &[&str]) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .filter(|(key, value)| !(keys.contains(&key.as_str()) && value.is_string()))
            .map(|(key, value)| (key.clone(), stripped(value, keys)))
            .collect(),
        Value::Array(list) => list.iter().map(|value| stripped(value, keys)).collect(),
        other => other.clone(),
    }
}

/// A list as an object, by one of its members.
fn indexed(list: &Value, key: &str) -> Value {
    let name = |item: &Value| match item.as_object() {
        Some(item) => printed(item.get(key).unwrap_or(&Value::Null)),
        None => printed(item),
    };
    list.as_array().into_iter().flatten().map(|item| (name(item), item.clone())).collect()
}

/// The one group of a discovery document, in legacy or aggregated form, resources by name.
fn group(body: &Value, name: &str) -> Value {
    let list =
        ["groups", "items"].into_iter().find_map(|key| body[key].as_array().filter(|list| !list.is_empty()));
    let is_it = |group: &&Value| group["name"] == name || group["metadata"]["name"] == name;
    let found: Vec<&Value> = list.into_iter().flatten().filter(is_it).collect();
    let first = found.first().map_or(Value::Null, |group| (*group).clone());
    let mut reduced = json!({"kind": body["kind"], "found": found.len(), "group": first});
    apply(&mut reduced, "index", &["group/versions/*/resources", "resource"]);
    reduced
}

/// The component of a kind in an OpenAPI v3 document, and its PATCH operations.
fn own_schema(body: &Value, kind: &str) -> Value {
    let is_own = |name: &str| name.rsplit('.').next() == Some(kind);
    let schemas: Map<String, Value> = members(&body["components"]["schemas"])
        .filter(|(name, _)| is_own(name))
        .map(|(name, schema)| {
            let schema = members(schema).filter(|(key, _)| *key != "description");
            (name.clone(), schema.map(|(key, value)| (key.clone(), value.clone())).collect())
        })
        .collect();
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts
    };
    let paths: Map<String, Value> = members(&body["paths"])
        .map(|(path, of)| {
            let verbs = members(of).map(|(key, _)| key.clone()).filter(|key| key != "parameters").collect();
            let content = members(&of["patch"]["requestBody"]["content"]).map(|(key, _)| key.clone());
            let parameters = of["patch"]["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.map(|parameter| printed(&parameter["name"])).collect();
            let content = sorted(content.collect());
            let of = json!({"verbs": sorted(verbs), "patch": content, "parameters": sorted(parameters)});
            (path.clone(), of)
        })
        .collect();
    json!({"schemas": schemas, "paths": paths})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_reduce() {
        let body = json!({"a": [{"n": "x", "d": "text"}, {"n": "y", "d": 1}], "b": 2});
        for (view, expected) in [
            (json!([["pick", "b", "a/*/n"]]), json!({"b": 2, "a/*/n": ["x", "y"]})),
            (json!([["drop", "a/n=x"]]), json!({"a": [{"n": "y", "d": 1}], "b": 2})),
            (json!([["strip", "d"], ["pick", "a"]]), json!({"a": [{"n": "x"}, {"n": "y", "d": 1}]})),
            (json!([["index", "a", "n"], ["pick", "a/y/d"]]), json!({"a/y/d": 1})),
        ] {
            assert_eq!(reduced(&body, &view), expected, "{view}");
        }
    }
}
