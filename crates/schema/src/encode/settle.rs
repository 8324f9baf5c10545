//! Makes a tree canonical where it stands. Most of what is written was read or written before, and little changes.

use serde_json::{Map, Value};

use super::{is_omitted, sink::Tree, write, write_scalar};
use crate::pack::{Id, Pack, Shape, Type};
use crate::time::Layout;

/// Makes a value what [`super::encode`] makes of it.
pub fn settle(of: Type, value: &mut Value) {
    settle_as(of.pack(), of.id(), value);
}

fn settle_as(pack: &Pack, id: Id, value: &mut Value) {
    let def = pack.def(id);
    match (def.shape, &mut *value) {
        (Shape::Pointer(of), _) => {
            if !value.is_null() {
                settle_as(pack, of, value);
            }
        }
        (Shape::Struct, Value::Null) => {
            let mut members = Map::new();
            complete(pack, id, &mut members);
            *value = Value::Object(members);
        }
        (Shape::Struct, Value::Object(members)) => {
            // Mostly nothing is to go, and nothing is missing: looking is far cheaper than taking away and looking up.
            let (mut gone, mut there) = (Vec::new(), 0);
            for (key, value) in &mut *members {
                let place = def.member(key);
                let kept = place.filter(|place| {
                    let member = &def.members[*place];
                    !is_omitted(pack, member.omit, member.id, value)
                });
                let Some(place) = kept else {
                    gone.push(key.clone());
                    continue;
                };
                settle_as(pack, def.members[place].id, value);
                there += usize::from(def.always.iter().any(|&always| usize::from(always) == place));
            }
            for key in &gone {
                members.remove(key);
            }
            if there < def.always.len() {
                complete(pack, id, members);
            }
        }
        (Shape::List(item), Value::Array(items)) => {
            for value in items {
                settle_as(pack, item, value);
            }
        }
        (Shape::Map(item), Value::Object(members)) => {
            for value in members.values_mut() {
                settle_as(pack, item, value);
            }
        }
        (Shape::SchemaOrBool(_) | Shape::SchemaOrArray(_) | Shape::SchemaOrStrings(_), _) => {
            let mut tree = Tree::default();
            write(pack, id, value, &mut tree);
            *value = tree.finish();
        }
        (Shape::Time, Value::String(text)) if Layout::Seconds.is_plain(text) => {}
        (Shape::MicroTime, Value::String(text)) if Layout::Micros.is_plain(text) => {}
        (
            Shape::String
            | Shape::Bool
            | Shape::Int32
            | Shape::Int64
            | Shape::IntOrString
            | Shape::Bytes
            | Shape::Raw
            | Shape::Any,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
        ) => {}
        (shape, _) => {
            let mut tree = Tree::default();
            write_scalar(shape, value, &mut tree);
            *value = tree.finish();
        }
    }
}

/// Adds the members that are there even when nothing was given.
fn complete(pack: &Pack, id: Id, members: &mut Map<String, Value>) {
    for &place in &pack.def(id).always {
        let member = &pack.def(id).members[usize::from(place)];
        if !members.contains_key(member.name) {
            let mut value = Value::Null;
            settle_as(pack, member.id, &mut value);
            members.insert(member.name.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;
    use crate::value::arbitrary;

    #[test]
    fn a_settled_value_is_as_if_it_was_encoded() {
        for named in Pack::v1_35().named_types() {
            for seed in 0..60 {
                let value = arbitrary::tree(named, seed, if seed % 2 == 0 { 0 } else { 40 });
                let encoded = encode(named, &value);
                let mut settled = value.clone();
                settle(named, &mut settled);
                assert_eq!(settled, encoded, "{named:?} {value}");
                settle(named, &mut settled);
                assert_eq!(settled, encode(named, &encoded), "{named:?} {value}");
            }
        }
    }
}
