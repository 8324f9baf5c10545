//! The text of a body into a value, with the fields that stand in it twice: a value cannot tell of those any more, and
//! strict field validation wants to know (2.65, 2.67).

use std::{cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::at::At;

/// A value and the paths of its duplicate fields, as strict field validation names them, in the order of the text. Of a
/// duplicate the last one counts.
pub fn json(body: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    exactly(body).or_else(|error| match mended(body) {
        Some(text) => exactly(text.as_bytes()),
        None => Err(error),
    })
}

/// The first number of a text that nothing can hold, if there is one and nothing else is wrong with the text.
pub fn beyond(body: &[u8]) -> Option<&str> {
    schema::check_syntax(body).ok()?;
    let mut is_text = false;
    let mut bytes = body.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => is_text = !is_text,
            b'\\' => drop(bytes.next()),
            b'-' | b'0'..=b'9' if !is_text => {
                let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let length = body[at..].iter().take_while(|byte| is_part(byte)).count();
                let number = std::str::from_utf8(&body[at..at + length]).ok()?;
                if number.parse::<f64>().is_ok_and(f64::is_infinite) {
                    return Some(number);
                }
                bytes.by_ref().take(length - 1).for_each(drop);
            }
            _ => {}
        }
    }
    None
}

/// The text with a replacement for what is no character, as Go reads it: bytes that are none, and halves of pairs.
fn mended(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let code = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok()
    };
    let mut mended = String::with_capacity(text.len());
    let mut rest = 0;
    while let Some(found) = text[rest..].find('\\') {
        let at = rest + found;
        mended.push_str(&text[rest..at]);
        let length = match (code(at), code(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.push('\u{fffd}');
                rest = at + 6;
                continue;
            }
            (Some(_), _) => 6,
            (None, _) => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        mended.push_str(&text[at..at + length]);
        rest = at + length;
    }
    mended.push_str(&text[rest..]);
    (mended.as_bytes() != body).then_some(mended)
}

/// The same of a text without mistakes.
pub fn exactly(body: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let duplicates = RefCell::new(Duplicates::default());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Node { at: At::ROOT, duplicates: &duplicates }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    if !::schema::nests_within(&value, ::schema::MAX_DEPTH) {
        return Err(serde::de::Error::custom("exceeded max depth"));
    }
    Ok((value, duplicates.into_inner().paths))
}

struct Node<'a> {
    at: At<'a>,
    duplicates: &'a RefCell<Duplicates>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
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
        let number = serde_json::Number::from_f64(value);
        number.map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut found = Vec::new();
        loop {
            let node = Node { at: self.at.item(found.len()), duplicates: self.duplicates };
            let Some(item) = items.next_element_seed(node)? else { break };
            found.push(item);
        }
        Ok(Value::Array(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let node = Node { at: self.at.field(&name), duplicates: self.duplicates };
            if found.contains_key(&name) {
                self.duplicates.borrow_mut().add(&node.at);
            }
            let value = fields.next_value_seed(node)?;
            found.insert(name, value);
        }
        Ok(Value::Object(found))
    }
}

/// Fields that stand twice, each once.
#[derive(Default)]
struct Duplicates {
    paths: Vec<String>,
    /// How many bytes of paths were looked at.
    seen: usize,
}

impl Duplicates {
    /// As many as Kubernetes reports.
    const MOST: usize = 100;
    /// A field may stand there very often, in a place with a long name.
    const MOST_SEEN: usize = 16 * 1024 * 1024;

    fn add(&mut self, at: &At<'_>) {
        if self.paths.len() >= Self::MOST || self.seen >= Self::MOST_SEEN {
            return;
        }
        let path = at.dotted();
        self.seen += path.len();
        if !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::json as decode;

    #[test]
    fn duplicates_2_67() {
        let body = br#"{"a": 1, "spec": {"x": 1, "x": {"y": 2, "y": 3}, "l": [{"z": 1}, {"z": 1, "z": 2}]}, "a": 2}"#;
        let (value, duplicates) = decode(body).expect("JSON");
        assert_eq!(value, json!({"a": 2, "spec": {"x": {"y": 3}, "l": [{"z": 1}, {"z": 2}]}}));
        assert_eq!(duplicates, ["spec.x", "spec.x.y", "spec.l[1].z", "a"]);
        assert!(decode(b"{\"a\": 1} x").is_err() && decode(b"{").is_err());
        assert!(decode("[".repeat(10_000).as_bytes()).is_err(), "nesting is bounded");
    }

    #[test]
    fn numbers_that_nothing_can_hold_are_found() {
        for (text, expected) in [
            (r#"{"a": 1e400}"#, Some("1e400")),
            (r#"{"a": [1, -0.5e3, "1e400", "\"1e400", -1E+999]}"#, Some("-1E+999")),
            (r#"{"a": 12345678901234567890123}"#, None),
            (r#"{"a": 1e400"#, None),
        ] {
            assert_eq!(super::beyond(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn reads_what_serde_json_reads(text in r#"[\[\]{}",:0-9a-e.\-tru ]{0,40}"#) {
            let ours = decode(text.as_bytes()).map(|(value, _)| value).ok();
            prop_assert_eq!(ours, serde_json::from_str(&text).ok());
        }
    }
}
