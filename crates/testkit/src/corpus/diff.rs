//! Where two answers differ.

use serde_json::Value;

/// Every difference, a line each: where, what was wanted and what was got.
pub fn difference(want: &Value, got: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(want, got, "$", &mut found);
    found
}

fn compare(want: &Value, got: &Value, path: &str, found: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let mut keys: Vec<&String> = want.keys().chain(got.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = format!("{path}.{key}");
                both(want.get(key), got.get(key), &path, found);
            }
        }
        (Value::Array(want), Value::Array(got)) => {
            for i in 0..want.len().max(got.len()) {
                both(want.get(i), got.get(i), &format!("{path}[{i}]"), found);
            }
        }
        (want, got) if !are_equal(want, got) => {
            found.push(format!("{path}: want {} got {}", shown(want), shown(got)));
        }
        _ => {}
    }
}

fn both(want: Option<&Value>, got: Option<&Value>, path: &str, found: &mut Vec<String>) {
    match (want, got) {
        (Some(want), Some(got)) => compare(want, got, path, found),
        (Some(want), None) => found.push(format!("{path}: missing, want {}", shown(want))),
        (None, Some(got)) => found.push(format!("{path}: unexpected {}", shown(got))),
        (None, None) => {}
    }
}

/// Numbers are equal as numbers: 1 and 1.0 are the same in JSON.
fn are_equal(want: &Value, got: &Value) -> bool {
    want == got
        || matches!((want, got), (Value::Number(want), Value::Number(got)) if want.as_f64() == got.as_f64())
}

fn shown(value: &Value) -> String {
    const MOST: usize = 700;
    let text = value.to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_by_path() {
        let got = difference(&json!({"a": [1, 2], "b": 1.0, "c": 0}), &json!({"a": [1], "b": 1, "d": true}));
        assert_eq!(got, ["$.a[1]: missing, want 2", "$.c: missing, want 0", "$.d: unexpected true"]);
    }
}
