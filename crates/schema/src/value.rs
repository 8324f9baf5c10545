//! Which JSON value stands for a Go value, where several could.

use serde_json::{Map, Value};

use crate::pack::{Id, Pack, Shape};

/// A floating-point number, so that equal ones look equal: whole ones have no fraction, as Go writes them.
#[allow(clippy::cast_possible_truncation)] // a whole number of that size is exact
pub(crate) fn float(number: f64) -> Value {
    let whole = number.fract() == 0.0 && number.abs() < 1e15 && !(number == 0.0 && number.is_sign_negative());
    if whole { Value::from(number as i64) } else { Value::from(number) }
}

/// Go's zero time in either layout.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";
const ZERO_MICRO_TIME: &str = "0001-01-01T00:00:00.000000Z";

/// Go's zero value of a type, where it has to be told from nothing.
pub(crate) fn zero(shape: Shape<Id>) -> Value {
    match shape {
        Shape::String => Value::String(String::new()),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::Time => Value::String(ZERO_TIME.to_owned()),
        Shape::MicroTime => Value::String(ZERO_MICRO_TIME.to_owned()),
        Shape::Bool | Shape::SchemaOrBool(_) => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString => Value::from(0),
        Shape::Struct => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

/// Whether a value is what Go holds in a field of a type that was never set.
pub(crate) fn is_zero(pack: &Pack, id: Id, value: &Value) -> bool {
    match (pack.def(id).shape, value) {
        (_, Value::Null) => true,
        (Shape::String, Value::String(text)) => text.is_empty(),
        (Shape::Quantity, Value::String(text)) => text == "0",
        (Shape::Time, Value::String(text)) => text == ZERO_TIME,
        (Shape::MicroTime, Value::String(text)) => text == ZERO_MICRO_TIME,
        (Shape::Bool, Value::Bool(flag)) => !flag,
        (Shape::Int32 | Shape::Int64 | Shape::Float64 | Shape::IntOrString, Value::Number(number)) => {
            number.as_f64() == Some(0.0)
        }
        (Shape::Struct, Value::Object(members)) => members.is_empty(),
        _ => false,
    }
}

/// Whether no more than so many lists and objects lie in each other in a tree. No deeper than that is looked.
pub fn nests_within(tree: &Value, most: usize) -> bool {
    match (tree, most.checked_sub(1)) {
        (Value::Array(_) | Value::Object(_), None) => false,
        (Value::Array(items), Some(most)) => items.iter().all(|item| nests_within(item, most)),
        (Value::Object(members), Some(most)) => members.values().all(|member| nests_within(member, most)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Type;
    use crate::time::{Layout, ZERO};

    #[test]
    fn how_deep_a_tree_nests() {
        let tree = serde_json::json!({"a": [], "b": [{"c": 1}]});
        assert!(nests_within(&tree, 3) && !nests_within(&tree, 2) && !nests_within(&tree, 0));
        assert!(nests_within(&Value::Null, 0));
    }

    #[test]
    fn zero_times_are_spelled_as_they_are_written() {
        assert_eq!(Layout::Seconds.format(ZERO), ZERO_TIME);
        assert_eq!(Layout::Micros.format(ZERO), ZERO_MICRO_TIME);
    }

    #[test]
    fn the_zero_of_a_type_is_zero() {
        for (named, shape) in Pack::v1_35().named_types().map(|named| (named, named.shape())) {
            let shape = shape.map(Type::id);
            assert!(
                is_zero(named.pack(), named.id(), &zero(shape)) || matches!(shape, Shape::SchemaOrBool(_))
            );
        }
    }

    #[test]
    fn equal_numbers_look_equal() {
        assert_eq!(float(1000.0), Value::from(1000));
        assert_eq!(float(-0.5), Value::from(-0.5));
        assert_eq!(float(1e21), Value::from(1e21));
        assert_eq!(float(-0.0).to_string(), "-0.0");
    }
}

/// Trees that may or may not fit a type, for tests that compare two ways to do the same.
#[cfg(test)]
pub(crate) mod arbitrary {
    use serde_json::{Map, Value, json};

    use crate::pack::{Shape, Type};

    /// A tree for a type. So many of a thousand values are something else than the type says.
    pub(crate) fn tree(of: Type, seed: u64, wrong: u64) -> Value {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(of.id()) << 32 | 1);
        value(of, &mut dice, wrong, 0)
    }

    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % sides
        }

        fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
            let length = u64::try_from(all.len()).expect("few");
            all[usize::try_from(self.roll(length)).expect("few")]
        }
    }

    fn value(of: Type, dice: &mut Dice, wrong: u64, depth: usize) -> Value {
        if dice.roll(1000) < wrong {
            let others = [
                json!(null),
                json!(""),
                json!("0"),
                json!(0),
                json!(-1.5),
                json!(3_000_000_000_u64),
                json!(true),
                json!([]),
                json!({}),
                json!(["a", null]),
                json!({"unknown": 1}),
                json!(u64::MAX),
            ];
            return others[usize::try_from(dice.roll(12)).expect("few")].clone();
        }
        if dice.roll(20) == 0 {
            return Value::Null;
        }
        match of.shape() {
            Shape::String => json!(dice.of(&["", "a", "some-name", "é\"\n"])),
            Shape::Bool | Shape::SchemaOrBool(_) => json!(dice.roll(2) == 0),
            Shape::Int32 => json!(dice.roll(3)),
            Shape::Int64 => json!(dice.roll(3) * 5_000_000_000),
            Shape::Float64 => [json!(0), json!(1), json!(0.5), json!(2.0)]
                [usize::try_from(dice.roll(4)).expect("few")]
            .clone(),
            Shape::Bytes => json!(dice.of(&["", "aGVsbG8=", "aGVsbG8", "?"])),
            Shape::Time => json!(dice.of(&[
                "2024-02-29T23:59:59Z",
                "0001-01-01T00:00:00Z",
                "2024-01-01T00:00:00.5Z",
                "2023-02-29T00:00:00Z",
                "2024-01-01T01:00:00+01:00",
                "2024-01-28T24:00:00Z",
                "2024-01-28T23:00:60Z",
                "2024-12-28T19:08:07Z",
                "soon",
            ])),
            Shape::MicroTime => json!(dice.of(&[
                "2024-02-29T23:59:59.000000Z",
                "0001-01-01T00:00:00.000000Z",
                "2024-01-01T00:00:00.123456Z",
                "2024-01-01T00:00:00Z",
                "2024-01-01T01:00:00.000001+01:00",
            ])),
            Shape::Quantity => {
                json!(dice.of(&["0", "1", "500m", "0.5", "1024Mi", "2000", "\\u0031", "one", "1Gi", " 1"]))
            }
            Shape::IntOrString => {
                if dice.roll(2) == 0 {
                    json!(dice.roll(3))
                } else {
                    json!(dice.of(&["", "http", "50%"]))
                }
            }
            Shape::Raw | Shape::Any => json!({"a": [1, 2.5, null, {"b": "c"}], "n": null}),
            Shape::SchemaOrArray(of) | Shape::SchemaOrStrings(of) if depth < 6 => {
                value(of, dice, wrong, depth + 1)
            }
            Shape::List(of) if depth < 6 => {
                (0..dice.roll(3)).map(|_| value(of, dice, wrong, depth + 1)).collect()
            }
            Shape::Map(of) if depth < 6 => {
                let member = |name: u64| (format!("key-{name}"), value(of, dice, wrong, depth + 1));
                Value::Object((0..dice_count(depth)).map(member).collect())
            }
            Shape::Pointer(of) => value(of, dice, wrong, depth),
            Shape::Struct if depth < 6 => {
                let mut members = Map::new();
                structure(of, dice, wrong, depth, &mut members);
                if dice.roll(1000) < wrong {
                    members.insert("unknown".to_owned(), json!(1));
                }
                Value::Object(members)
            }
            _ => Value::Null,
        }
    }

    fn dice_count(depth: usize) -> u64 {
        if depth.is_multiple_of(2) { 2 } else { 0 }
    }

    fn structure(of: Type, dice: &mut Dice, wrong: u64, depth: usize, members: &mut Map<String, Value>) {
        for field in of.fields() {
            if field.is_inline() {
                structure(field.of_type(), dice, wrong, depth, members);
            } else if dice.roll(10) < 4 {
                members.insert(field.name().to_owned(), value(field.of_type(), dice, wrong, depth + 1));
            }
        }
    }
}
