//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::Error;

/// The document with the patch merged into it. Null removes; everything but objects is replaced.
pub fn apply(document: Value, patch: Value) -> Result<Value, Error> {
    match (document, patch) {
        (Value::Object(mut document), Value::Object(patch)) => {
            merge(&mut document, patch);
            Ok(Value::Object(document))
        }
        // Lists and objects replace a document of another kind.
        (_, mut patch @ (Value::Object(_) | Value::Array(_))) => {
            prune(&mut patch);
            Ok(patch)
        }
        _ => Err(Error::BadRequest("Invalid JSON Patch".into())),
    }
}

fn merge(document: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut value) in patch {
        match (document.get_mut(&name), &mut value) {
            (_, Value::Null) => {
                document.remove(&name);
            }
            (Some(Value::Object(known)), Value::Object(fields)) => merge(known, std::mem::take(fields)),
            // As upstream: what replaces an object keeps its nulls.
            (Some(known @ Value::Object(_)), _) => *known = value,
            _ => {
                prune(&mut value);
                document.insert(name, value);
            }
        }
    }
}

/// Drops the nulls of objects; lists keep theirs.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn r2_38_merge_patches() {
        let check =
            |document: Value, patch: Value, patched: Value| assert_eq!(apply(document, patch), Ok(patched));
        check(json!({"a": 1, "b": 2}), json!({"a": null, "c": 3}), json!({"b": 2, "c": 3}));
        check(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null}}), json!({"a": {"c": 2}}));
        check(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}));
        check(
            json!({}),
            json!({"a": {"b": null, "c": [{"d": null}, null]}}),
            json!({"a": {"c": [{}, null]}}),
        );
        check(json!({"a": {"x": 1}}), json!({"a": [{"d": null}]}), json!({"a": [{"d": null}]}));
        check(json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}}));
        check(json!({"a": 1}), json!([{"b": null}]), json!([{}]));
    }

    #[test]
    fn r2_38_other_json_is_no_merge_patch() {
        for patch in [json!(null), json!("x"), json!(1)] {
            assert_eq!(apply(json!({}), patch), Err(Error::BadRequest("Invalid JSON Patch".into())));
        }
    }
}
