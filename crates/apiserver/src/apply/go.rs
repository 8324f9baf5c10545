//! JSON values as Go holds them: how they compare, and how `fmt` prints them into error messages.
//!
//! Go reads numbers of an applied configuration, and of a path in managed fields, as `float64`, while those of a stored
//! object are `int64`. The difference shows in messages (`1e+06`) and in nothing else, so a [`Value`] here may hold
//! `1.0` where JSON says `1`; [`to_integers`] undoes it before a value leaves.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde_json::{Number, Value};
use types::go::quote;

/// A JSON number as Go's `interface{}` holds it.
#[derive(Clone, Copy)]
enum Num {
    Int(i64),
    Float(f64),
}

fn num(number: &Number) -> Num {
    match number.as_i64() {
        Some(int) => Num::Int(int),
        None => Num::Float(float(number)),
    }
}

fn float(number: &Number) -> f64 {
    number.as_f64().expect("without arbitrary precision every JSON number has a nearest float")
}

/// Orders values of any kinds: numbers, strings, truth values, lists, maps, null.
pub(crate) fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(num(left), num(right)),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let unequal =
                left.iter().zip(right).map(|(left, right)| compare(left, right)).find(|it| it.is_ne());
            unequal.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let pairs = left.iter().zip(right);
            let mut orders = pairs.map(|((a, left), (b, right))| a.cmp(b).then_with(|| compare(left, right)));
            orders.find(|it| it.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn compare_numbers(left: Num, right: Num) -> Ordering {
    #[expect(clippy::cast_precision_loss, reason = "Go compares an integer with a float as floats")]
    let (left, right) = match (left, right) {
        (Num::Int(left), Num::Int(right)) => return left.cmp(&right),
        (Num::Float(left), Num::Float(right)) => (left, right),
        (Num::Int(left), Num::Float(right)) => (left as f64, right),
        (Num::Float(left), Num::Int(right)) => (left, right as f64),
    };
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Equality by content, where `1` equals `1.0`.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|((a, left), (b, right))| a == b && equal(left, right))
        }
        _ => compare(left, right).is_eq(),
    }
}

/// Reads every number as Go's YAML and `interface{}` readers do: as a float, precision lost.
pub(crate) fn to_floats(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_f64() => {
            *number = Number::from_f64(float(number)).expect("an integer's nearest float is finite");
        }
        Value::Array(items) => items.iter_mut().for_each(to_floats),
        Value::Object(fields) => fields.values_mut().for_each(to_floats),
        _ => {}
    }
}

/// Writes whole floats as integers again, as Go's encoders do.
pub(crate) fn to_integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(int) = whole(float(number)) {
                *number = int.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(to_integers),
        Value::Object(fields) => fields.values_mut().for_each(to_integers),
        _ => {}
    }
}

/// The integer that a float is, if it is one of 64 bits.
fn whole(float: f64) -> Option<i64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0; // 2^63, the first float that is too large
    #[expect(clippy::cast_possible_truncation, reason = "the float is whole and within bounds")]
    (float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float)).then_some(float as i64)
}

/// `fmt`'s `%v` of a value: `map[a:1 b:[x <nil>]]`.
pub(crate) fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(&mut out, value);
    out
}

fn write_plain(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push_str("map[");
            for (i, (name, field)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write_plain(out, field);
            }
            out.push(']');
        }
    }
}

/// `fmt`'s `%#v` of a value: `map[string]interface {}{"a":1}`.
pub(crate) fn syntax(value: &Value) -> String {
    let mut out = String::new();
    write_syntax(&mut out, value);
    out
}

fn write_syntax(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("interface {}(nil)"),
        Value::String(text) => out.push_str(&quote(text)),
        Value::Bool(_) | Value::Number(_) => write_plain(out, value),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_syntax(out, item);
            }
            out.push('}');
        }
        Value::Object(fields) => {
            out.push_str("map[string]interface {}{");
            for (i, (name, field)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                out.push_str(&quote(name));
                out.push(':');
                write_syntax(out, field);
            }
            out.push('}');
        }
    }
}

/// `fmt`'s `%T` of a value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value inside a path: `"a"`, `80`, `null`.
pub(crate) fn write_in_path(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::String(text) => out.push_str(&quote(text)),
        Value::Bool(_) | Value::Number(_) => write_plain(out, value),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_in_path(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                out.push_str(name);
                out.push('=');
                write_in_path(out, field);
            }
        }
    }
}

fn write_number(out: &mut String, number: &Number) {
    match num(number) {
        Num::Int(int) => write!(out, "{int}").expect("writing to a string cannot fail"),
        Num::Float(float) => write_float(out, float, -4..6),
    }
}

/// The shortest decimal of a float, with an exponent when its decimal exponent is outside of `plain`.
pub(crate) fn write_float(out: &mut String, float: f64, plain: std::ops::Range<i32>) {
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').expect("scientific notation has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is a number");
    if float == 0.0 || plain.contains(&exponent) {
        write!(out, "{float}").expect("writing to a string cannot fail");
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.abs()).expect("writing to a string cannot fail");
    }
}

/// A number as Go's JSON writers do: no exponent from 1e-6 to 1e21.
pub(crate) fn write_json_number(out: &mut String, number: &Number) {
    match num(number) {
        Num::Int(int) => write!(out, "{int}").expect("writing to a string cannot fail"),
        Num::Float(float) => write_float(out, float, -6..21),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_as_fmt_does() {
        let check = |value: Value, plainly: &str, as_syntax: &str| {
            assert_eq!(plain(&value), plainly);
            assert_eq!(syntax(&value), as_syntax);
        };
        check(json!(null), "<nil>", "interface {}(nil)");
        check(json!("a b"), "a b", "\"a b\"");
        check(json!(1_000_000), "1000000", "1000000");
        check(json!(1_000_000.0), "1e+06", "1e+06");
        check(json!(1.5e-7), "1.5e-07", "1.5e-07");
        check(json!([1, "x", null]), "[1 x <nil>]", "[]interface {}{1, \"x\", interface {}(nil)}");
        check(
            json!({"b": true, "a": [{}]}),
            "map[a:[map[]] b:true]",
            "map[string]interface {}{\"a\":[]interface {}{map[string]interface {}{}}, \"b\":true}",
        );
    }

    #[test]
    fn numbers_compare_across_their_go_types() {
        assert!(equal(&json!(1), &json!(1.0)));
        assert!(equal(&json!({"a": [80]}), &json!({"a": [80.0]})));
        assert!(!equal(&json!(1), &json!("1")));
        assert_eq!(compare(&json!(2), &json!(1.5)), Ordering::Greater);
        assert_eq!(compare(&json!(9), &json!("1")), Ordering::Less);
        assert_eq!(compare(&json!({"a": 1}), &json!({"a": 1, "b": 1})), Ordering::Less);
    }

    #[test]
    fn floats_and_back() {
        let mut value = json!({"a": [80, 1.5, 9_007_199_254_740_993_i64]});
        to_floats(&mut value);
        assert_eq!(value["a"][0].as_i64(), None);
        to_integers(&mut value);
        assert_eq!(value, json!({"a": [80, 1.5, 9_007_199_254_740_992_i64]}));
    }
}
