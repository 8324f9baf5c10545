//! A patched document as upstream prints it in refusals: where the patch reached, members are in order; the rest is as it
//! was written before.

use std::collections::BTreeMap;

use schema::Type;
use schema::pack::{Field, Shape};
use serde_json::Value;
use types::go;

/// The containers that a patch reached into.
#[derive(Debug, Default)]
pub struct Reached(BTreeMap<String, Reached>);

impl Reached {
    /// By a merge patch: every object of it.
    pub fn by_merge(patch: &Value) -> Self {
        let objects = patch.as_object().into_iter().flatten().filter(|(_, value)| value.is_object());
        Reached(objects.map(|(key, value)| (key.clone(), Reached::by_merge(value))).collect())
    }

    /// By a JSON patch: whatever its paths lead through in the document that came out, however long they are.
    pub fn by_operations(patch: &Value, after: &Value) -> Self {
        let mut all = Reached::default();
        for operation in patch.as_array().into_iter().flatten() {
            let takes = matches!(operation["op"].as_str(), Some("move" | "copy"));
            let from = operation["from"].as_str().filter(|_| takes);
            for path in operation["path"].as_str().into_iter().chain(from) {
                all.reach(path, after);
            }
        }
        all
    }

    /// All but the last step of a path lead through containers, as far as these are there.
    fn reach(&mut self, path: &str, after: &Value) {
        let Some((_, steps)) = path.split_once('/') else { return };
        let Some((parents, _)) = steps.rsplit_once('/') else { return };
        let (mut at, mut there) = (self, after);
        for step in parents.split('/') {
            let step = step.replace("~1", "/").replace("~0", "~");
            let found = match there {
                Value::Object(members) => members.get(&step),
                Value::Array(items) => step.parse().ok().and_then(|place: usize| items.get(place)),
                _ => None,
            };
            let Some(found) = found else { return };
            there = found;
            at = at.0.entry(step).or_default();
        }
    }
}

/// The text of a patched document. `of` is its type, if it has one.
pub fn print(of: Option<Type>, before: &Value, after: &Value, reached: &Reached) -> String {
    let mut out = String::new();
    write(&mut out, of, before, after, Some(reached));
    out
}

fn write(out: &mut String, of: Option<Type>, before: &Value, after: &Value, reached: Option<&Reached>) {
    match (reached, after) {
        (Some(reached), Value::Object(map)) => {
            out.push('{');
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                go::write_json_string(out, key);
                out.push(':');
                write(out, of.and_then(|of| member(of, key)), &before[key], value, reached.0.get(key));
            }
            out.push('}');
        }
        (Some(reached), Value::Array(list)) => {
            out.push('[');
            for (i, value) in list.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                let reached = reached.0.get(&i.to_string());
                write(out, of.and_then(item), before.get(i).unwrap_or(&Value::Null), value, reached);
            }
            out.push(']');
        }
        (_, value) => match of {
            Some(of) if before == value => out.push_str(&schema::encode_text(of, value)),
            _ => out.push_str(&go::json(value)),
        },
    }
}

/// The type of a member of an object.
fn member(of: Type, key: &str) -> Option<Type> {
    match of.shape() {
        Shape::Pointer(of) => member(of, key),
        Shape::Map(of) => Some(of),
        _ => of.field(key).map(Field::of_type),
    }
}

/// The type of the elements of a list.
fn item(of: Type) -> Option<Type> {
    match of.shape() {
        Shape::Pointer(of) => item(of),
        Shape::List(of) => Some(of),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_not_reached_keeps_the_order_of_go() {
        let of = schema::Pack::v1_35().of_kind("", "v1", "ConfigMap");
        let meta = json!({"name": "a", "labels": {"l": "1"}, "creationTimestamp": "2001-01-01T00:00:00Z"});
        let before = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"b": "2"}});
        let patch = json!({"data": {"a": 5}, "bogus": {"z": 1}});
        let mut after = before.clone();
        after["data"]["a"] = json!(5);
        after["bogus"] = json!({"z": 1});
        let told = print(of, &before, &after, &Reached::by_merge(&patch));
        let meta = r#"{"name":"a","creationTimestamp":"2001-01-01T00:00:00Z","labels":{"l":"1"}}"#;
        let expected = format!(
            r#"{{"apiVersion":"v1","bogus":{{"z":1}},"data":{{"a":5,"b":"2"}},"kind":"ConfigMap","metadata":{meta}}}"#
        );
        assert_eq!(told, expected);
        let patch = json!([{"op": "add", "path": "/metadata/labels/m", "value": 1}]);
        let told = print(of, &before, &before, &Reached::by_operations(&patch, &before));
        assert!(
            told.contains(
                r#""metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","labels":{"l":"1"},"name":"a"}"#
            ),
            "{told}"
        );
    }

    #[test]
    fn paths_reach_no_further_than_the_document() {
        let long = "/a".repeat(1_000_000);
        let after = json!({"a": {"a": [{"b": {"c": 1}}, {"c": {"d": 1}}]}});
        let check = |patch: Value, expected: &[&str]| {
            fn places(reached: &Reached, at: &str, found: &mut Vec<String>) {
                for (step, below) in &reached.0 {
                    found.push(format!("{at}/{step}"));
                    places(below, &format!("{at}/{step}"), found);
                }
            }
            let mut found = Vec::new();
            places(&Reached::by_operations(&patch, &after), "", &mut found);
            assert_eq!(found, expected, "{}", patch[0]["op"]);
        };
        check(json!([{"op": "test", "path": long}]), &["/a", "/a/a"]);
        check(json!([{"op": "copy", "path": "/x", "from": long}]), &["/a", "/a/a"]);
        check(json!([{"op": "add", "path": "/x", "from": long}]), &[]);
        check(
            json!([{"op": "move", "path": "/a/a/0/b/c", "from": "/a/a/-"}]),
            &["/a", "/a/a", "/a/a/0", "/a/a/0/b"],
        );
    }
}
