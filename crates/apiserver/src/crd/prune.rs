//! Fields that no schema knows are dropped (3.24), and said, for those who asked for strict field validation (2.65).

use serde_json::{Map, Value};

use super::form::Unknown;
use super::schema::{Additional, Schema};

/// Fields of every object, whatever its schema.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops what `schema` does not know and returns the paths of the dropped fields, sorted: `spec.a`, `spec.l[0].b`.
///
/// `root` says that `value` is an object of its own, whose `apiVersion`, `kind` and `metadata` stay.
pub fn prune(value: &mut Value, schema: &Schema, root: bool) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), unknown: Unknown::default() };
    pruner.visit(value, Some(schema), root || schema.embedded);
    pruner.unknown.sorted()
}

struct Pruner {
    path: String,
    unknown: Unknown,
}

impl Pruner {
    fn visit(&mut self, value: &mut Value, schema: Option<&Schema>, embedded: bool) {
        let keep = schema.is_some_and(|schema| schema.preserve_unknown);
        match value {
            Value::Object(fields) => self.object(fields, schema, embedded, keep),
            Value::Array(items) => self.items(items, schema, keep),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Items of a list that keeps unknown fields keep them too, one level down.
    fn items(&mut self, items: &mut [Value], schema: Option<&Schema>, keep: bool) {
        let inner = schema.and_then(|schema| schema.items.as_deref());
        if keep && inner.is_none() {
            return;
        }
        for (index, item) in items.iter_mut().enumerate() {
            let end = self.path.len();
            self.path.extend(["[", &index.to_string(), "]"]);
            let embedded = inner.is_some_and(|inner| inner.embedded);
            match item {
                Value::Object(fields) if keep => self.object(fields, inner, embedded, true),
                Value::Array(items) if keep => self.items(items, inner, true),
                item => self.visit(item, inner, embedded),
            }
            self.path.truncate(end);
        }
    }

    fn object(
        &mut self,
        fields: &mut Map<String, Value>,
        schema: Option<&Schema>,
        embedded: bool,
        keep: bool,
    ) {
        let mut dropped = Vec::new();
        for (name, value) in fields.iter_mut() {
            if embedded && META.contains(&name.as_str()) {
                continue;
            }
            let known = schema.and_then(|schema| schema.properties.get(name));
            let additional = schema.map_or(&Additional::Absent, |schema| &schema.additional);
            let inner = match (known, additional) {
                (Some(known), _) => Some(known),
                (None, Additional::Schema(inner)) => Some(&**inner),
                (None, Additional::Allowed(_)) => None,
                (None, Additional::Absent) => {
                    if !keep {
                        dropped.push(name.clone());
                    }
                    continue;
                }
            };
            let end = self.enter(name);
            self.visit(value, inner, inner.is_some_and(|inner| inner.embedded));
            self.path.truncate(end);
        }
        for name in dropped {
            fields.remove(&name);
            if !META.contains(&name.as_str()) || !self.path.is_empty() {
                let end = self.enter(&name);
                self.unknown.add(|| self.path.clone());
                self.path.truncate(end);
            }
        }
    }

    fn enter(&mut self, name: &str) -> usize {
        let end = self.path.len();
        if end > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        end
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd::tests::schema;

    fn check(of: Value, mut value: Value, expected: Value, unknown: &[&str]) {
        assert_eq!(prune(&mut value, &schema(of), true), unknown);
        assert_eq!(value, expected);
        let again = prune(
            &mut value.clone(),
            &schema(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})),
            true,
        );
        assert!(again.is_empty(), "nothing is unknown where everything is preserved");
    }

    #[test]
    fn pruning_3_24() {
        let spec = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "known": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"k": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
        }}}});
        let check = |value, expected, unknown: &[&str]| check(spec.clone(), value, expected, unknown);
        let meta = |spec: Value| json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "spec": spec});
        check(meta(json!({"known": "x", "unknown": 1})), meta(json!({"known": "x"})), &["spec.unknown"]);
        check(
            meta(json!({"list": [{"a": "x", "b": 1}, {"c": {"d": 1}}]})),
            meta(json!({"list": [{"a": "x"}, {}]})),
            &["spec.list[0].b", "spec.list[1].c"],
        );
        check(
            meta(json!({"map": {"k": {"a": 1, "b": 2}}})),
            meta(json!({"map": {"k": {"a": 1}}})),
            &["spec.map.k.b"],
        );
        check(
            meta(json!({"any": {"k": {"a": "x", "gone": 2}, "kept": {"deep": 1}}})),
            meta(json!({"any": {"k": {"a": "x"}, "kept": {"deep": 1}}})),
            &["spec.any.k.gone"],
        );
        check(
            meta(
                json!({"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}, "status": {}}}),
            ),
            meta(
                json!({"embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}}),
            ),
            &["spec.embedded.status"],
        );
        check(json!({"kind": "K", "extra": 1}), json!({"kind": "K"}), &["extra"]);
    }
}
