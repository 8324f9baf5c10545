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

    /// By a JSON patch: whatever its paths lead through.
    pub fn by_operations(patch: &Value) -> Self {
        let mut all = Reached::default();
        for operation in patch.as_array().into_iter().flatten() {
            for path in ["path", "from"].iter().filter_map(|key| operation[*key].as_str()) {
                let mut steps: Vec<&str> = path.split('/').skip(1).collect();
                steps.pop();
                let mut at = &mut all;
                for step in steps {
                    at = at.0.entry(step.replace("~1", "/").replace("~0", "~")).or_default();
                }
            }
        }
        all
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
        let told = print(of, &before, &before, &Reached::by_operations(&patch));
        assert!(
            told.contains(
                r#""metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","labels":{"l":"1"},"name":"a"}"#
            ),
            "{told}"
        );
    }
}
