//! How Go prints the values that stand in error messages, where [`types::go`] leaves it open.

use rules::field;
use serde_json::Value;
use types::go;

/// A refused JSON value: text quoted, numbers and booleans bare, the rest as JSON.
pub(crate) fn shown(value: &Value) -> field::Value {
    match value {
        Value::String(text) => field::Value::from(text),
        Value::Number(number) => field::Value::printed(self::number(number)),
        other => field::Value::printed(go::json(other)),
    }
}

/// The Go type that holds a JSON value.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::String(_) => "string",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// What Go's decoder calls the type of a JSON value.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A number as `%v` prints it.
pub(crate) fn number(number: &serde_json::Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer.to_string(),
        (None, Some(double)) => float(double),
        (None, None) => number.to_string(),
    }
}

/// A double as `%v` prints it: shortest digits, an exponent when it is below -4 or above 20.
pub(crate) fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..21).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_go_prints_them() {
        for (value, printed) in
            [(1.5, "1.5"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1e-5, "1e-05"), (2.0, "2")]
        {
            assert_eq!(float(value), printed);
        }
    }
}
