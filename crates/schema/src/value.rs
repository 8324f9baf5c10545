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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Type;
    use crate::time::{Layout, ZERO};

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
