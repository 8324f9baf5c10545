//! Reads a tree that is as good as read: all of it fits its type, and nothing about it has to be told.

use serde_json::{Map, Value};

use super::is_zero;
use crate::pack::{Id, Pack, Shape};
use crate::time::Layout;
use crate::value::{float, zero};

/// A tree that nests deeper is for the reader of texts to judge.
const DEEP: usize = 100;

/// What reading the text of a tree gives, or `None` if the reader of texts has more to say about it than that.
pub(super) fn read(pack: &Pack, id: Id, tree: &Value) -> Option<Value> {
    let mut value = self::value(pack, id, tree, 0)?;
    complete(pack, id, &mut value);
    Some(value)
}

fn value(pack: &Pack, id: Id, tree: &Value, depth: usize) -> Option<Value> {
    let mut id = id;
    while let Shape::Pointer(to) = pack.def(id).shape {
        if tree.is_null() {
            return Some(Value::Null);
        }
        id = to;
    }
    let def = pack.def(id);
    Some(match (def.shape, tree) {
        (Shape::SchemaOrBool(_) | Shape::SchemaOrArray(_) | Shape::SchemaOrStrings(_), _) => return None,
        (_, Value::Null) => Value::Null,
        (Shape::Struct, Value::Object(fields)) if depth < DEEP => {
            let mut members = Map::new();
            for (key, tree) in fields {
                let member = &def.members[def.member(key)?];
                let value = value(pack, member.id, tree, depth + 1)?;
                if !is_zero(pack, member.id, &value) {
                    members.insert(member.name.to_owned(), value);
                }
            }
            Value::Object(members)
        }
        (Shape::Map(item), Value::Object(fields)) if depth < DEEP => {
            let item = |(key, tree): (&String, &Value)| {
                let mut value = value(pack, item, tree, depth + 1)?;
                complete(pack, item, &mut value);
                Some((key.clone(), value))
            };
            Value::Object(fields.iter().map(item).collect::<Option<_>>()?)
        }
        (Shape::List(item), Value::Array(items)) if depth < DEEP => {
            let item = |tree: &Value| {
                let mut value = value(pack, item, tree, depth + 1)?;
                complete(pack, item, &mut value);
                Some(value)
            };
            Value::Array(items.iter().map(item).collect::<Option<_>>()?)
        }
        (Shape::String | Shape::IntOrString, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => {
            tree.clone()
        }
        (Shape::Int64, Value::Number(number)) if number.is_i64() => tree.clone(),
        (Shape::Int32 | Shape::IntOrString, Value::Number(number)) => {
            i32::try_from(number.as_i64()?).ok()?.into()
        }
        (Shape::Float64, Value::Number(number)) => float(number.as_f64()?),
        (Shape::Bytes, Value::String(text)) => {
            Value::String(crate::base64::encode(&crate::base64::decode(text).ok()?))
        }
        (Shape::Time, Value::String(text)) if Layout::Seconds.is_plain(text) => tree.clone(),
        (Shape::Time, Value::String(text)) => Value::String(Layout::Seconds.parse(text).ok()?.exact()),
        (Shape::MicroTime, Value::String(text)) => {
            Value::String(Layout::Micros.format(Layout::Micros.parse(text).ok()?))
        }
        // What is escaped in its text is so in the quantity.
        (Shape::Quantity, Value::String(text)) if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            Value::String(crate::quantity::canonical(text).ok()?.into_owned())
        }
        (Shape::Raw | Shape::Any, _) if depth + height(tree) < DEEP => tree.clone(),
        _ => return None,
    })
}

fn complete(pack: &Pack, id: Id, value: &mut Value) {
    if value.is_null() {
        *value = zero(pack.def(id).shape);
    }
}

/// How deep a tree nests.
fn height(tree: &Value) -> usize {
    match tree {
        Value::Array(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(height).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{decode, decode_value};
    use super::*;
    use crate::pack::Pack;
    use crate::value::arbitrary;

    #[test]
    fn a_tree_reads_as_its_text_does() {
        let pack = Pack::v1_35();
        let mut read_as_tree = 0;
        for named in pack.named_types() {
            for seed in 0..60 {
                let tree = arbitrary::tree(named, seed, if seed % 2 == 0 { 0 } else { 40 });
                let of_text = decode(named, tree.to_string().as_bytes());
                if let Some(value) = read(pack, named.id(), &tree) {
                    let of_text = of_text.as_ref().expect("the text is read, too");
                    assert_eq!(of_text.value, value, "{named:?} {tree}");
                    assert!(of_text.strict.is_empty(), "{named:?} {tree}");
                    read_as_tree += 1;
                }
                assert_eq!(decode_value(named, &tree), of_text, "{named:?} {tree}");
            }
        }
        assert!(read_as_tree > 10_000, "only {read_as_tree} trees were read as trees");
    }

    #[test]
    fn deep_trees_are_left_to_the_reader_of_texts() {
        let patch = Pack::v1_35().named("io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry");
        let of = patch.expect("the pack has the type");
        let deep = (0..200).fold(json!({}), |inner, _| json!({"f:a": inner}));
        let entry = json!({"fieldsV1": deep});
        assert_eq!(read(of.pack(), of.id(), &entry), None);
        assert!(decode_value(of, &entry).is_err());
    }
}
