//! Where a field is: the steps from an object down to it, and how FieldsV1 spells a step.
//!
//! A step names a field or map entry, a list item by its keys, an item of a set by itself, or an item by its place.
//! Which kind of step a list wants is the schema's knowledge, not this module's.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::Value;

use super::go;

/// One step of a path. Its variants are in the order in which FieldsV1 sorts them.
#[derive(Debug, Clone)]
pub enum PathElement {
    /// `f:`, a field of a struct or an entry of a map.
    Field(Arc<str>),
    /// `k:`, the item of a list whose keys have these values; sorted by name.
    Key(Arc<[(Arc<str>, Value)]>),
    /// `v:`, the item of a set that equals this value.
    Value(Value),
    /// `i:`, the item at this place.
    Index(i64),
}

/// A path is as many steps as it needs.
pub type Path = Vec<PathElement>;

/// A step that FieldsV1 cannot hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not even a prefix.
    #[error("key must be 2 characters long:")]
    TooShort,
    /// The second character is not a colon.
    #[error("missing colon: {0}")]
    NoColon(String),
    /// A kind of step that this version does not know; a reader skips it.
    #[error("unknown path element type")]
    Unknown,
    /// What follows the prefix is not what the prefix promises.
    #[error("malformed path element {0}")]
    Malformed(String),
}

impl PathElement {
    /// A field's step.
    pub fn field(name: &str) -> PathElement {
        PathElement::Field(name.into())
    }

    /// The step to the item of a list that has these keys.
    pub fn key(fields: impl IntoIterator<Item = (impl Into<Arc<str>>, Value)>) -> PathElement {
        let mut fields: Vec<(Arc<str>, Value)> =
            fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
        fields.sort_by(|(left, _), (right, _)| left.cmp(right));
        PathElement::Key(fields.into())
    }

    /// Reads a step as FieldsV1 spells it.
    pub fn parse(text: &str) -> Result<PathElement, ParseError> {
        let malformed = || ParseError::Malformed(text.to_owned());
        let [kind, colon, ..] = text.as_bytes() else { return Err(ParseError::TooShort) };
        if *colon != b':' {
            return Err(ParseError::NoColon(text.to_owned()));
        }
        // Both bytes are ASCII only if the kind is known, so the rest is cut out after that is.
        match kind {
            b'f' => Ok(PathElement::Field(text[2..].into())),
            b'v' => Ok(PathElement::Value(first_value(&text[2..]).ok_or_else(malformed)?)),
            b'k' => match first_value(&text[2..]).ok_or_else(malformed)? {
                Value::Object(fields) => Ok(PathElement::key(fields)),
                Value::Null => Ok(PathElement::Key([].into())),
                _ => Err(malformed()),
            },
            b'i' => text[2..].parse().map(PathElement::Index).map_err(|_| malformed()),
            _ => Err(ParseError::Unknown),
        }
    }

    /// Writes the step as a key of FieldsV1, in quotes.
    pub(super) fn write_key(&self, out: &mut String) {
        match self {
            // Most steps are names in which nothing is to be escaped.
            PathElement::Field(name) if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                out.push_str("\"f:");
                out.push_str(name);
                out.push('"');
            }
            step => write_string(out, &step.wire(), false),
        }
    }

    /// Spells the step as FieldsV1 does.
    pub fn wire(&self) -> String {
        let mut out = String::new();
        match self {
            PathElement::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            PathElement::Key(fields) => {
                out.push_str("k:{");
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_string(&mut out, name, false);
                    out.push(':');
                    write_json(&mut out, value);
                }
                out.push('}');
            }
            PathElement::Value(value) => {
                out.push_str("v:");
                write_json(&mut out, value);
            }
            PathElement::Index(place) => {
                out.push_str("i:");
                out.push_str(&place.to_string());
            }
        }
        out
    }

    /// Writes the step as messages show it: `.spec`, `[name="c"]`, `[="x"]`, `[0]`.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            PathElement::Field(name) => {
                out.push('.');
                out.push_str(name);
            }
            PathElement::Key(fields) => {
                out.push('[');
                for (i, (name, value)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    out.push_str(name);
                    out.push('=');
                    go::write_in_path(out, value);
                }
                out.push(']');
            }
            PathElement::Value(value) => {
                out.push_str("[=");
                go::write_in_path(out, value);
                out.push(']');
            }
            PathElement::Index(place) => {
                out.push('[');
                out.push_str(&place.to_string());
                out.push(']');
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// The first JSON value of a text, its numbers as floats; like Go's reader, this one does not mind what follows.
fn first_value(text: &str) -> Option<Value> {
    let mut value = serde_json::Deserializer::from_str(text).into_iter::<Value>().next()?.ok()?;
    go::to_floats(&mut value);
    Some(value)
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(left), PathElement::Field(right)) => left.cmp(right),
            (PathElement::Key(left), PathElement::Key(right)) => compare_keys(left, right),
            (PathElement::Value(left), PathElement::Value(right)) => go::compare(left, right),
            (PathElement::Index(left), PathElement::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

fn compare_keys(left: &[(Arc<str>, Value)], right: &[(Arc<str>, Value)]) -> Ordering {
    for ((a, left), (b, right)) in left.iter().zip(right) {
        let order = a.cmp(b).then_with(|| go::compare(left, right));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

/// A path as messages show it: `.spec.containers[name="c"].image`.
pub fn display(path: &[PathElement]) -> String {
    let mut out = String::new();
    for element in path {
        element.write(&mut out);
    }
    out
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => go::write_json_number(out, number),
        Value::String(text) => write_string(out, text, true),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (i, (name, field)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(out, name, true);
                out.push(':');
                write_json(out, field);
            }
            out.push('}');
        }
    }
}

/// A string as json-iterator writes it, which unlike Go's own encoder knows no `\b` and `\f`. It escapes what HTML
/// could mistake for markup in values but not in the names of keys.
pub(crate) fn write_string(out: &mut String, text: &str, html: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' || html && matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a string cannot fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn r2_47_steps_survive_the_wire() {
        for text in [
            "i:0",
            "i:1234",
            "f:",
            "f:spec",
            "f:a:b \"c\" \\ <d>",
            r#"k:{"name":"my-container"}"#,
            r#"k:{"port":8080,"protocol":"TCP"}"#,
            r#"k:{"a<":"\u003c\u0026\u2028\u0008\n"}"#,
            r#"k:{"optional":null}"#,
            r#"k:{"nested":{"A":1,"B":null,"C":["D"]}}"#,
            "v:null",
            r#"v:"text""#,
            "v:1234",
            "v:1.5",
            "v:1e-07",
            "v:1e+21",
            "v:100000000000000000000",
            "v:true",
        ] {
            assert_eq!(PathElement::parse(text).map(|it| it.wire()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn r2_47_malformed_steps_are_refused_and_unknown_ones_named() {
        for text in
            ["", "f", "no-colon", "i:x", "i:1.23", "i:", "v:", "v:nonsense", "k:5", "k:{\"a\":b}", "é:x"]
        {
            let error = PathElement::parse(text).expect_err(text);
            assert_ne!(error, ParseError::Unknown, "{text}");
        }
        assert_eq!(PathElement::parse("r:Hello"), Err(ParseError::Unknown));
        assert_eq!(PathElement::parse("v:1 and more").map(|it| it.wire()), Ok("v:1".to_owned()));
        assert_eq!(PathElement::parse("i:+5"), Ok(PathElement::Index(5)));
    }

    #[test]
    fn steps_are_ordered_by_kind_then_content() {
        let ordered = [
            PathElement::field("a"),
            PathElement::field("b"),
            PathElement::key([("a", json!(1))]),
            PathElement::key([("a", json!(1)), ("b", json!(1))]),
            PathElement::key([("a", json!(2))]),
            PathElement::key([("b", json!(1))]),
            PathElement::Value(json!(1)),
            PathElement::Value(json!("1")),
            PathElement::Value(json!(true)),
            PathElement::Index(-1),
            PathElement::Index(3),
        ];
        assert!(ordered.is_sorted() && ordered.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(PathElement::Value(json!(1)), PathElement::Value(json!(1.0)));
    }

    #[test]
    fn paths_print_as_messages_show_them() {
        let path = [
            PathElement::field("ports"),
            PathElement::key([("protocol", json!("TCP")), ("containerPort", json!(80.0))]),
            PathElement::Value(json!("x")),
            PathElement::Index(0),
        ];
        assert_eq!(display(&path), r#".ports[containerPort=80,protocol="TCP"][="x"][0]"#);
    }
}
