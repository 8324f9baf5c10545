//! YAML as Go's reader of Kubernetes manifests reads it: YAML 1.1, in which `yes`, `on` and `y` are switches, also as keys.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Error, Spanned};
use types::go;

/// Reads the first document. Keys that are no texts become texts.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, String> {
    read_all(bytes).map(|(value, _)| value)
}

/// Reads the first document, and tells which keys stand more than once in it: the last one counts.
pub(crate) fn read_all(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    if let Some(why) = unreadable(bytes) {
        return Err(format!("yaml: {why}"));
    }
    let first = first_document(bytes);
    let read: Result<Node, Error> = serde_saphyr::from_slice_with_options(first, options);
    match read {
        Ok(Node { value, repeated }) => Ok((value, repeated)),
        Err(error) => Err(in_go_words(&error, first)),
    }
}

/// What Go's reader does not even begin with.
fn unreadable(bytes: &[u8]) -> Option<&'static str> {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 127);
    if bytes.iter().any(is_control) {
        return Some("control characters are not allowed");
    }
    let first = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty())?;
    if first.strip_prefix(b"%YAML ").is_some_and(|version| !matches!(version.trim_ascii(), b"1.1" | b"1.2")) {
        return Some("found incompatible YAML document");
    }
    let is_flow = first.trim_ascii().starts_with(b"{") || first.trim_ascii().starts_with(b"[");
    (first.starts_with(b"\t") && !is_flow).then_some(NO_TOKEN)
}

/// Where a document ends that is a list or a map in brackets: nobody reads on.
fn flow_end(bytes: &[u8]) -> Option<usize> {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace())?;
    if !matches!(bytes[start], b'{' | b'[') {
        return None;
    }
    let (mut depth, mut quote, mut skips) = (0usize, None, false);
    for (i, byte) in bytes.iter().enumerate().skip(start) {
        match (quote, byte) {
            _ if skips => skips = false,
            (Some(b'"'), b'\\') => skips = true,
            (Some(open), byte) if open == *byte => quote = None,
            (None, b'"' | b'\'') => quote = Some(*byte),
            // A comment ends with its line.
            (None, b'#') if bytes[i - 1].is_ascii_whitespace() => quote = Some(b'\n'),
            (None, b'{' | b'[') => depth += 1,
            (None, b'}' | b']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Up to the line that begins the second document.
fn first_document(bytes: &[u8]) -> &[u8] {
    if let Some(end) = flow_end(bytes) {
        return &bytes[..end];
    }
    let mut end = 0;
    let mut has_content = false;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let begins = line
            .strip_prefix(b"---")
            .is_some_and(|rest| rest.trim_ascii_start().len() < rest.len() || rest.is_empty());
        if begins && has_content {
            return &bytes[..end];
        }
        let text = line.trim_ascii();
        has_content |= !text.is_empty() && !text.starts_with(b"#") && !text.starts_with(b"%");
        end += line.len();
    }
    bytes
}

const NO_TOKEN: &str = "found character that cannot start any token";

/// What Go's reader says: the problem, after its line.
fn in_go_words(error: &Error, sent: &[u8]) -> String {
    let is_open = sent.trim_ascii_end().ends_with(b"[")
        || sent.trim_ascii_end().ends_with(b"{")
        || sent.trim_ascii_end().ends_with(b",");
    let text = error.to_string();
    let (text, place) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
    // The parser tells what it was doing, too.
    let problem = text.rsplit(", ").next().filter(|part| part.len() > 3).unwrap_or(text);
    let line: u64 = place.split(',').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    if let Some(at) = text.find("unsupported map key") {
        return text[at..].to_owned();
    }
    if let Some(at) = text.find("invalid map key") {
        return format!("yaml: {}", &text[at..]);
    }
    if text.contains("unknown anchor") {
        let found = lines_of(sent, line);
        let alias = found.split('*').nth(1).unwrap_or("");
        let name: String =
            alias.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect();
        return format!("yaml: unknown anchor '{name}' referenced");
    }
    let said = match problem {
        _ if text.contains("is not valid UTF-8") => "invalid leading UTF-8 octet",
        _ if text.contains("hexadecimal number") => "did not find expected hexdecimal number",
        _ if text.contains("Unicode character escape") || text.contains("surrogate") => {
            "found invalid Unicode character escape code"
        }
        _ if text.contains("trailing content after") && sent.trim_ascii_start().starts_with(b"{") => {
            "did not find expected ',' or '}'"
        }
        _ if text.contains("unclosed quote") => "found unexpected end of stream",
        _ if text.contains("misplaced bracket") || text.contains("EOF while parsing an implicit flow") => {
            "did not find expected node content"
        }
        _ if text.contains("mismatched bracket '['") => "did not find expected ',' or ']'",
        _ if text.contains("mismatched bracket '{'") => "did not find expected ',' or '}'",
        _ if text.contains("unexpected character") || text.contains("tabs disallowed") => NO_TOKEN,
        _ if text.contains("escape") => "found unknown escape character",
        _ if text.contains("multiline quoted scalar") || text.contains("quoted scalar") => {
            "found unexpected end of stream"
        }
        _ if text.contains("illegal placement of ':'") && flow_is_open(sent, line) == Some('[') => {
            "did not find expected ',' or ']'"
        }
        _ if text.contains("illegal placement of ':'") && flow_is_open(sent, line) == Some('{') => {
            "did not find expected ',' or '}'"
        }
        _ if is_open && (text.contains("',' or ") || text.contains("unclosed bracket")) => {
            "did not find expected node content"
        }
        _ if text.contains("',' or ']'") || text.contains("unclosed bracket '['") => {
            "did not find expected ',' or ']'"
        }
        _ if text.contains("',' or '}'") || text.contains("unclosed bracket '{'") => {
            "did not find expected ',' or '}'"
        }
        other => other,
    };
    // Lines are counted from 0, the scanner adds one to those that are not 0, and 0 is not told.
    let is_scanner = said == NO_TOKEN
        || said.starts_with("found ")
        || said.contains("hexdecimal")
        || said.contains("octet");
    let is_in_flow = said.starts_with("did not find expected ',' or") || said.ends_with("node content");
    let line = match line {
        // An end that comes too early is after the line.
        1 if is_scanner || is_in_flow && flow_is_open(sent, u64::MAX).is_none() => 0,
        line if is_scanner || is_in_flow && !text.contains("illegal placement") => line,
        line => line.saturating_sub(1),
    };
    match line {
        0 => format!("yaml: {said}"),
        line => format!("yaml: line {line}: {said}"),
    }
}

/// A line (from 1) of what was sent.
fn lines_of(sent: &[u8], line: u64) -> String {
    let at = usize::try_from(line).unwrap_or(0).saturating_sub(1);
    let found = sent.split(|byte| *byte == b'\n').nth(at).unwrap_or_default();
    String::from_utf8_lossy(found).into_owned()
}

/// The bracket that was opened last before a line (from 1) and is not closed yet.
fn flow_is_open(sent: &[u8], line: u64) -> Option<char> {
    let lines = sent.split(|byte| *byte == b'\n').take(usize::try_from(line).unwrap_or(0).saturating_sub(1));
    let mut open = Vec::new();
    for byte in lines.flatten() {
        match byte {
            b'[' | b'{' => open.push(char::from(*byte)),
            b']' | b'}' => drop(open.pop()),
            _ => {}
        }
    }
    open.pop()
}

/// A value as Go shows it with its types.
fn go_value(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_value).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let each = |(key, value): (&String, &Value)| format!("{}:{}", go::quote(key), go_value(value));
            let members: Vec<String> = members.iter().map(each).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", members.join(", "))
        }
        Value::String(text) => go::quote(text),
        Value::Null => "interface {}(nil)".to_owned(),
        other => other.to_string(),
    }
}

/// A value, and the keys that stand more than once in it.
#[derive(Default)]
struct Node {
    value: Value,
    repeated: Vec<String>,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Node { value, repeated: Vec::new() }
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(Reader)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Value::Bool(value).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Value::from(value).into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Node, E> {
        // JSON has no whole numbers that are not integers, and no infinities.
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
        if value.fract() == 0.0 && value.abs() < 1e15 {
            return Ok(Value::from(value as i64).into());
        }
        let number = Number::from_f64(value).map(|number| Value::Number(number).into());
        number.ok_or_else(|| E::custom(format!("json: unsupported value: {value}")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Value::from(text).into())
    }

    fn visit_string<E>(self, text: String) -> Result<Node, E> {
        Ok(Value::from(text).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let (mut list, mut repeated) = (Vec::new(), Vec::new());
        while let Some(mut item) = items.next_element::<Node>()? {
            repeated.append(&mut item.repeated);
            list.push(item.value);
        }
        Ok(Node { value: Value::Array(list), repeated })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let (mut map, mut repeated) = (Map::new(), Vec::new());
        while let Some(Spanned { value: key, referenced, .. }) = members.next_key::<Spanned<Node>>()? {
            let mut member = members.next_value::<Node>()?;
            repeated.append(&mut member.repeated);
            let key = match key.value {
                Value::String(text) => text,
                Value::Null => {
                    let value = match &member.value {
                        Value::String(text) => go::quote(text),
                        other => other.to_string(),
                    };
                    let why = format!("unsupported map key of type: %!s(<nil>), key: <nil>, value: {value}");
                    return Err(serde::de::Error::custom(why));
                }
                Value::Array(_) | Value::Object(_) => {
                    let key = go_value(&key.value);
                    return Err(serde::de::Error::custom(format!("invalid map key: {key}")));
                }
                other => other.to_string(),
            };
            if map.contains_key(&key) {
                let (line, key) = (referenced.line(), go::quote(&key));
                repeated.push(format!("line {line}: key {key} already set in map"));
            }
            map.insert(key, member.value);
        }
        Ok(Node { value: Value::Object(map), repeated })
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
            ("{a: '}', b: \"\\\"}\"}rest", json!({"a": "}", "b": "\"}"})),
            ("{a: 1, # }\n b: 2}", json!({"a": 1, "b": 2})),
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
            ("{", "yaml: line 1: did not find expected node content"),
            ("{,}", "yaml: did not find expected node content"),
            ("]", "yaml: did not find expected node content"),
            ("{\"a\": [1}}", "yaml: did not find expected ',' or ']'"),
            ("{\"a\": \"\\ud800\"}", "yaml: found invalid Unicode character escape code"),
        ] {
            assert_eq!(read(text.as_bytes()), Err(expected.to_owned()), "{text}");
        }
    }
}
