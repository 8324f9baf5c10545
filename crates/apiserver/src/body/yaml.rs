//! YAML as Go's reader of Kubernetes manifests reads it: YAML 1.1, in which `yes`, `on` and `y` are switches, also as keys.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Error;

/// Reads the first document. Keys that are no texts become texts.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, String> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let read: Result<Node, Error> = serde_saphyr::from_slice_with_options(bytes, options);
    match read {
        Ok(Node(value)) => Ok(value),
        Err(error) => Err(in_go_words(&error)),
    }
}

/// What Go's reader says: the problem, after its line.
fn in_go_words(error: &Error) -> String {
    let text = error.to_string();
    let (text, place) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    // The parser tells what it was doing, too.
    let problem = text.rsplit(", ").next().filter(|part| part.len() > 3).unwrap_or(text);
    let line: u64 = place.split(',').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let said = match problem {
        _ if text.contains("',' or ']'") || text.contains("unclosed bracket '['") => {
            "did not find expected ',' or ']'"
        }
        _ if text.contains("',' or '}'") || text.contains("unclosed bracket '{'") => {
            "did not find expected ',' or '}'"
        }
        other => other,
    };
    // Go's scanner counts lines from 0 and does not tell of the first, its parser counts from 1.
    let is_scanner = said.starts_with("mapping values");
    match if is_scanner { line.saturating_sub(1) } else { line } {
        0 => format!("yaml: {said}"),
        line => format!("yaml: line {line}: {said}"),
    }
}

struct Node(Value);

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Node)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(Reader)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // JSON has no whole numbers that are not integers, and no infinities.
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
        if value.fract() == 0.0 && value.abs() < 1e15 {
            return Ok((value as i64).into());
        }
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom(format!("json: unsupported value: {value}")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Node(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Node(key)) = members.next_key()? {
            let Node(value) = members.next_value()?;
            let key = match key {
                Value::String(text) => text,
                other => other.to_string(),
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_8_25_yaml_1_1() {
        for (text, expected) in [
            ("on: yes", json!({"true": true})),
            ("'on': 'yes'", json!({"on": "yes"})),
            ("a: 0755\nb: 1.5\nc: ~\n1: x", json!({"a": 493, "b": 1.5, "c": null, "1": "x"})),
            ("a: [y, N, off, \"y\"]", json!({"a": [true, false, false, "y"]})),
            ("a: 2001-01-01\nb: 1e3", json!({"a": "2001-01-01", "b": 1000})),
            ("# nothing", Value::Null),
            ("a: |\n  two\n  lines\n", json!({"a": "two\nlines\n"})),
            ("p: &a {k: v}\nq: {<<: *a, l: w}", json!({"p": {"k": "v"}, "q": {"k": "v", "l": "w"}})),
        ] {
            assert_eq!(read(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_told_in_go_words() {
        for (text, expected) in [
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("a: [unclosed", "yaml: line 1: did not find expected ',' or ']'"),
        ] {
            assert_eq!(read(text.as_bytes()), Err(expected.to_owned()), "{text}");
        }
    }
}
