//! Defaults of custom resources: on write, and again on every read, because a definition may gain defaults after an
//! object was stored (3.24).

use serde_json::Value;

use super::schema::{Additional, Schema};

/// Fills in what is missing, at every depth. A `null` where none may stand is replaced by the default too, and dropped
/// where there is no default.
pub fn apply(value: &mut Value, schema: &Schema) {
    drop_nulls(value, Some(schema));
    fill(value, schema);
}

pub(crate) fn drop_nulls(value: &mut Value, schema: Option<&Schema>) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let inner = schema.and_then(|schema| schema.field(name));
            let useless = |schema: &Schema| !schema.nullable && schema.default.is_none();
            if value.is_null() && inner.is_some_and(useless) {
                return false;
            }
            drop_nulls(value, inner);
            true
        }),
        Value::Array(items) => {
            let inner = schema.and_then(|schema| schema.items.as_deref());
            for item in items {
                drop_nulls(item, inner);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fills in what is missing, and nothing else.
pub(crate) fn fill(value: &mut Value, schema: &Schema) {
    if !schema.below.defaults {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, property, default) in schema.defaulted() {
                match fields.get_mut(name) {
                    None => {
                        fields.insert(name.clone(), default.clone());
                    }
                    Some(null @ Value::Null) if !property.nullable => *null = default.clone(),
                    Some(_) => {}
                }
            }
            for (name, value) in fields {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(property), _) => fill(value, property),
                    (None, Additional::Schema(inner)) => replace(value, inner),
                    (None, Additional::Absent | Additional::Allowed(_)) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                for item in items {
                    replace(item, inner);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn replace(value: &mut Value, schema: &Schema) {
    if value.is_null() && !schema.nullable {
        *value = schema.default.clone().unwrap_or(Value::Null);
    }
    fill(value, schema);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd::tests::schema;

    fn check(of: Value, mut value: Value, expected: Value) {
        let schema = schema(of);
        apply(&mut value, &schema);
        assert_eq!(value, expected);
        let once = value.clone();
        apply(&mut value, &schema);
        assert_eq!(value, once, "defaulting again changes nothing");
    }

    #[test]
    fn defaulting_3_24() {
        let of = json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "x"},
            "o": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}},
            "p": {"type": "object", "properties": {"c": {"type": "integer", "default": 2}}},
            "n": {"type": "string", "nullable": true, "default": "y"},
            "l": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "integer", "default": 3}}}},
            "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"e": {"type": "integer", "default": 4}}}},
            "z": {"type": "string"},
        }});
        check(of.clone(), json!({}), json!({"a": "x", "o": {"b": 1}, "n": "y"}));
        check(
            of.clone(),
            json!({"a": null, "n": null, "z": null, "o": {"b": 5}, "p": {}}),
            json!({"a": "x", "n": null, "o": {"b": 5}, "p": {"c": 2}}),
        );
        check(
            of,
            json!({"l": [{}, {"d": 9}, null], "m": {"k": {}}}),
            json!({"a": "x", "o": {"b": 1}, "n": "y", "l": [{"d": 3}, {"d": 9}, null], "m": {"k": {"e": 4}}}),
        );
    }
}
