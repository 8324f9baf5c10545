//! Amounts that are a number or a percentage.

use serde_json::Value;

use crate::field::{self, Errors, Path};
use crate::meta::not_negative;

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
    regex used for validation is '[0-9]+%')";

/// A number that is not negative, or a percentage. An absent one is zero.
pub(in crate::kind) fn int_or_percent(value: &Value, path: &Path) -> Errors {
    match value {
        Value::String(text) if percent(text).is_none() => {
            vec![path.invalid(field::Value::json(value), PERCENT)]
        }
        Value::Number(number) => not_negative(number.as_i64().unwrap_or(0), path),
        _ => Errors::new(),
    }
}

/// A percentage of at most a hundred.
pub(in crate::kind) fn no_more_than_all(value: &Value, path: &Path) -> Errors {
    match value.as_str().and_then(percent) {
        Some(percent) if percent > 100 => {
            vec![path.invalid(field::Value::json(value), "must not be greater than 100%")]
        }
        _ => Errors::new(),
    }
}

/// Nothing, in one way or the other.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => percent(text).unwrap_or(0) == 0,
        _ => true,
    }
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}
