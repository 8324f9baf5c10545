//! Values into messages, as the code writes them that Kubernetes generates: fields in the order of their numbers, and
//! those that are no pointers always, even if they say nothing.

use serde_json::Value;

use super::wire::{write_bytes, write_fixed64, write_number};
use crate::base64;
use crate::pack::{Id, Pack, Shape};
use crate::time::{Layout, Time, ZERO};

pub(super) fn message(pack: &Pack, id: Id, value: &Value, out: &mut Vec<u8>) {
    for (number, field) in pack.def(id).fields_by_number() {
        if field.name.is_empty() {
            nested(number, out, |out| message(pack, field.id, value, out));
        } else {
            write(pack, number, field.id, value.get(field.name).unwrap_or(&Value::Null), out);
        }
    }
}

fn write(pack: &Pack, number: u32, id: Id, value: &Value, out: &mut Vec<u8>) {
    let def = pack.def(id);
    match (def.shape, value) {
        (Shape::Pointer(_) | Shape::List(_) | Shape::Map(_) | Shape::Bytes, Value::Null) => {}
        (Shape::Pointer(to), _) => write(pack, number, to, value, out),
        (Shape::List(item), Value::Array(items)) if def.message => {
            nested(number, out, |out| write_all(pack, 1, item, items, out));
        }
        (Shape::List(item), Value::Array(items)) => write_all(pack, number, item, items, out),
        (Shape::Map(item), Value::Object(members)) => {
            for (key, value) in members {
                nested(number, out, |out| {
                    write_bytes(out, 1, key.as_bytes());
                    match value {
                        // In a map, a list that is a message is written even if there is none.
                        Value::Null if pack.def(item).message => write_bytes(out, 2, b""),
                        _ => write(pack, 2, item, value, out),
                    }
                });
            }
        }
        (Shape::Bool, _) => write_number(out, number, i64::from(value.as_bool().unwrap_or_default())),
        (Shape::Int32 | Shape::Int64, _) => write_number(out, number, value.as_i64().unwrap_or_default()),
        (Shape::Float64, _) => write_fixed64(out, number, value.as_f64().unwrap_or_default().to_bits()),
        (Shape::String, _) => write_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        (Shape::Bytes, _) => {
            let bytes = base64::decode(value.as_str().unwrap_or_default()).unwrap_or_default();
            write_bytes(out, number, &bytes);
        }
        (Shape::Struct, _) => nested(number, out, |out| message(pack, id, value, out)),
        _ => nested(number, out, |out| special(pack, def.shape, value, out)),
    }
}

fn write_all(pack: &Pack, number: u32, item: Id, items: &[Value], out: &mut Vec<u8>) {
    for value in items {
        write(pack, number, item, value, out);
    }
}

/// The content of messages that are not structs of the pack.
fn special(pack: &Pack, shape: Shape<Id>, value: &Value, out: &mut Vec<u8>) {
    match shape {
        Shape::Time => timestamp(value, |time| Time { nanos: 0, ..time }, out),
        Shape::MicroTime => timestamp(value, |time| Time { nanos: time.nanos / 1000 * 1000, ..time }, out),
        Shape::Quantity => {
            let text = value.as_str().unwrap_or("0");
            write_bytes(out, 1, crate::quantity::canonical(text).unwrap_or_default().as_bytes());
        }
        Shape::IntOrString => {
            write_number(out, 1, i64::from(value.is_string()));
            write_number(out, 2, value.as_i64().unwrap_or_default());
            write_bytes(out, 3, value.as_str().unwrap_or_default().as_bytes());
        }
        Shape::SchemaOrBool(schema) => {
            write_number(out, 1, i64::from(value.as_bool().unwrap_or(value.is_object())));
            if value.is_object() {
                nested(2, out, |out| message(pack, schema, value, out));
            }
        }
        Shape::SchemaOrArray(schema) | Shape::SchemaOrStrings(schema) => {
            if value.is_object() {
                nested(1, out, |out| message(pack, schema, value, out));
            }
            let item = if matches!(shape, Shape::SchemaOrArray(_)) { schema } else { pack.string() };
            write_all(pack, 2, item, value.as_array().map_or(&[], Vec::as_slice), out);
        }
        _ if value.is_null() => {}
        _ => write_bytes(out, 1, value.to_string().as_bytes()),
    }
}

/// The zero time is an empty message.
fn timestamp(value: &Value, cut: fn(Time) -> Time, out: &mut Vec<u8>) {
    let time = value.as_str().and_then(|text| Layout::Seconds.parse(text).ok()).unwrap_or(ZERO);
    if time != ZERO {
        let time = cut(time);
        write_number(out, 1, time.seconds);
        write_number(out, 2, i64::from(time.nanos));
    }
}

fn nested(number: u32, out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    content(&mut message);
    write_bytes(out, number, &message);
}
