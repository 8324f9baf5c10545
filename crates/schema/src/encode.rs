//! Writes a value of a type as a Kubernetes API server does.
//!
//! Go's tags decide what appears: fields without `omitempty` are there even when nothing was given (`null`, `{}`, `""`,
//! `0`), the others only when they say something. What the type does not know is left out; what does not fit its type
//! is written as it is, because [`crate::decode`] is where that is refused.

mod settle;
pub(crate) mod sink;

use std::borrow::Cow;

use serde_json::Value;

use crate::pack::{Id, Member, Omit, Pack, Shape, Type};
use crate::time::{self, Layout};
use crate::value::is_zero;
pub use settle::settle;
use sink::{Sink, Text, Tree};

/// The canonical JSON of a value, as a tree.
pub fn encode(of: Type, value: &Value) -> Value {
    let mut tree = Tree::default();
    write(of.pack(), of.id(), value, &mut tree);
    tree.finish()
}

/// The canonical JSON of a value as text, with fields in Go's order: byte for byte what an API server sends.
pub fn encode_text(of: Type, value: &Value) -> String {
    let mut text = Text::default();
    write(of.pack(), of.id(), value, &mut text);
    text.finish()
}

/// Writes a value; null stands for the type's zero value.
pub(crate) fn write(pack: &Pack, id: Id, value: &Value, to: &mut impl Sink) {
    match (pack.def(id).shape, value) {
        (Shape::Pointer(_), Value::Null) => to.null(),
        (Shape::Pointer(of), _) => write(pack, of, value, to),
        (Shape::Struct, Value::Null | Value::Object(_)) => {
            to.begin_object();
            write_members(pack, &pack.def(id).members, value, to);
            to.end_object();
        }
        (Shape::List(item), Value::Array(items)) => {
            to.begin_list();
            for value in items {
                to.item();
                write(pack, item, value, to);
            }
            to.end_list();
        }
        (Shape::Map(item), Value::Object(members)) => {
            to.begin_object();
            for (key, value) in members {
                to.key(key);
                write(pack, item, value, to);
            }
            to.end_object();
        }
        (Shape::SchemaOrBool(schema) | Shape::SchemaOrArray(schema) | Shape::SchemaOrStrings(schema), _) => {
            write_schema_or(pack, id, schema, value, to);
        }
        (shape, _) => write_scalar(shape, value, to),
    }
}

/// Writes what is left of an object's members once those are gone that Go omits.
pub(crate) fn write_members(pack: &Pack, members: &[Member], object: &Value, to: &mut impl Sink) {
    for member in members {
        let value = object.get(member.name).unwrap_or(&Value::Null);
        if !is_omitted(pack, member.omit, member.id, value) {
            to.key(member.name);
            write(pack, member.id, value, to);
        }
    }
}

/// Whether Go leaves a field out.
pub(crate) fn is_omitted(pack: &Pack, omit: Omit, id: Id, value: &Value) -> bool {
    match omit {
        Omit::Never => false,
        Omit::Zero => is_zero(pack, id, value),
        Omit::Empty => match (pack.def(id).shape, value) {
            // To Go, a struct is never empty, and these are structs.
            (
                Shape::Struct
                | Shape::Time
                | Shape::MicroTime
                | Shape::Quantity
                | Shape::IntOrString
                | Shape::Raw,
                _,
            ) => false,
            (_, Value::Null) => true,
            (Shape::List(_), Value::Array(items)) => items.is_empty(),
            (Shape::Map(_), Value::Object(members)) => members.is_empty(),
            (Shape::Bytes, Value::String(text)) => text.is_empty(),
            _ => is_zero(pack, id, value),
        },
    }
}

/// Writes what holds no other types.
fn write_scalar(shape: Shape<Id>, value: &Value, to: &mut impl Sink) {
    match (shape, value) {
        (Shape::String, Value::Null) => to.string(""),
        (Shape::Quantity, Value::Null) => to.string("0"),
        (Shape::Bool, Value::Null) => to.bool(false),
        (Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString, Value::Null) => {
            to.number(&0.into());
        }
        (Shape::Float64, Value::Number(number)) => to.number(number),
        (Shape::Time, Value::String(text)) => write_time(Layout::Seconds, text, to),
        (Shape::MicroTime, Value::String(text)) => write_time(Layout::Micros, text, to),
        (Shape::Quantity, Value::String(text)) => match crate::quantity::canonical(text) {
            Ok(canonical) => to.string(&canonical),
            Err(_) => to.string(text),
        },
        _ => to.tree(value),
    }
}

fn write_time(layout: Layout, text: &str, to: &mut impl Sink) {
    // Times are read with any fraction, so that the looser layout reads both.
    match Layout::Seconds.parse(text) {
        Ok(time::ZERO) => to.null(),
        Ok(time) => to.string(&layout.format(time)),
        Err(_) => to.string(text),
    }
}

/// Kubernetes shows a schema that was not given as null, or as false beside a truth value.
fn write_schema_or(pack: &Pack, id: Id, schema: Id, value: &Value, to: &mut impl Sink) {
    match (pack.def(id).shape, value) {
        (_, Value::Object(_)) => write(pack, schema, value, to),
        (Shape::SchemaOrBool(_), Value::Null) => to.bool(false),
        (Shape::SchemaOrArray(_), Value::Array(items)) if !items.is_empty() => {
            to.begin_list();
            for item in items {
                to.item();
                write(pack, schema, item, to);
            }
            to.end_list();
        }
        (Shape::SchemaOrArray(_) | Shape::SchemaOrStrings(_), Value::Array(items)) if items.is_empty() => {
            to.null();
        }
        _ => to.tree(value),
    }
}

/// A number as Go writes floating-point numbers.
pub(crate) fn float(number: f64) -> Cow<'static, str> {
    let magnitude = number.abs();
    if magnitude == 0.0 {
        return Cow::Borrowed(if number.is_sign_negative() { "-0" } else { "0" });
    }
    if (1e-6..1e21).contains(&magnitude) {
        return Cow::Owned(format!("{number}"));
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if !exponent.starts_with('-') => Cow::Owned(format!("{digits}e+{exponent}")),
        _ => Cow::Owned(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(name: &str, value: &Value, text: &str) {
        let of = Pack::v1_35().named(name).expect("the pack has the type");
        assert_eq!(encode_text(of, value), text, "{name} {value}");
        let tree: Value = serde_json::from_str(text).expect("what is expected is JSON");
        assert_eq!(encode(of, value), tree, "{name} {value}");
    }

    #[test]
    fn api_09_what_is_always_there_and_what_never() {
        let pod = r#"{"metadata":{},"spec":{"containers":null}}"#;
        check(
            "io.k8s.api.batch.v1.Job",
            &json!({"spec": {"parallelism": 0, "selector": {}}, "status": {"active": 0, "failedIndexes": "", "conditions": []}}),
            &format!(
                r#"{{"metadata":{{}},"spec":{{"parallelism":0,"selector":{{}},"template":{pod}}},"status":{{"failedIndexes":""}}}}"#
            ),
        );
        check("io.k8s.api.batch.v1.PodFailurePolicy", &json!({}), r#"{"rules":null}"#);
        check("io.k8s.api.batch.v1.PodFailurePolicy", &json!({"rules": []}), r#"{"rules":[]}"#);
        check(
            "io.k8s.api.batch.v1.JobCondition",
            &json!({"unknown": 1}),
            r#"{"type":"","status":"","lastProbeTime":null,"lastTransitionTime":null}"#,
        );
        check("io.k8s.api.core.v1.Container", &json!({}), r#"{"name":"","resources":{}}"#);
        check("io.k8s.api.core.v1.ResourceFieldSelector", &json!({}), r#"{"resource":"","divisor":"0"}"#);
        check("io.k8s.api.core.v1.HTTPGetAction", &json!({}), r#"{"port":0}"#);
    }

    #[test]
    fn api_10_times_are_seconds_in_utc() {
        let started = json!({"startTime": "2024-01-01T00:00:00.9Z"});
        check("io.k8s.api.batch.v1.JobStatus", &started, r#"{"startTime":"2024-01-01T00:00:00Z"}"#);
        let renewed = json!({"renewTime": "2024-01-01T00:00:00.000001Z"});
        check(
            "io.k8s.api.coordination.v1.LeaseSpec",
            &renewed,
            r#"{"renewTime":"2024-01-01T00:00:00.000001Z"}"#,
        );
        let metadata = json!({"creationTimestamp": null, "name": "a"});
        check("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", &metadata, r#"{"name":"a"}"#);
    }

    #[test]
    fn writes_text_as_go_does() {
        let pod = json!({"emptyDir": {"sizeLimit": "0.5Gi"}, "name": "<a>"});
        check(
            "io.k8s.api.core.v1.Volume",
            &pod,
            r#"{"name":"\u003ca\u003e","emptyDir":{"sizeLimit":"512Mi"}}"#,
        );
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
