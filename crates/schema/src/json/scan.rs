//! Walks over JSON text that [`super::check`] has accepted: what is read here is well-formed.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

/// A place in a checked text.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The first byte of the next token. Zero at the end.
    pub(crate) fn peek(&mut self) -> u8 {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Steps over a bracket, comma or colon.
    pub(crate) fn step(&mut self) {
        self.peek();
        self.at += 1;
    }

    /// Steps over the bracket that opens an object or list. False if it is empty, then it is left again.
    pub(crate) fn enter(&mut self) -> bool {
        self.step();
        self.stay()
    }

    /// After a member or item: true if another one follows; steps over the comma or the closing bracket.
    pub(crate) fn more(&mut self) -> bool {
        if self.peek() == b',' {
            self.at += 1;
            return true;
        }
        self.stay()
    }

    fn stay(&mut self) -> bool {
        let inside = !matches!(self.peek(), b'}' | b']');
        if !inside {
            self.at += 1;
        }
        inside
    }

    /// The key of a member, and over the colon.
    pub(crate) fn key(&mut self) -> Cow<'a, str> {
        self.peek();
        let key = unquote(self.literal());
        self.step();
        key
    }

    /// The text of a string (with its quotes), number, `true`, `false` or `null`.
    pub(crate) fn literal(&mut self) -> &'a [u8] {
        let first = self.peek();
        let start = self.at;
        self.at += 1;
        if first == b'"' {
            loop {
                match self.text[self.at] {
                    b'"' => break,
                    b'\\' => self.at += 2,
                    _ => self.at += 1,
                }
            }
            self.at += 1;
        } else {
            while let Some(b'0'..=b'9' | b'a'..=b'z' | b'.' | b'E' | b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
        }
        &self.text[start..self.at]
    }

    /// The text of the next value, and over it.
    pub(crate) fn skip(&mut self) -> &'a [u8] {
        let first = self.peek();
        let start = self.at;
        if !matches!(first, b'{' | b'[') {
            return self.literal();
        }
        let mut depth = 0_usize;
        loop {
            match self.text[self.at] {
                b'"' => {
                    self.literal();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return &self.text[start..self.at];
            }
        }
    }

    /// The next value as a tree. Of equal keys the last one counts.
    pub(crate) fn tree(&mut self) -> Value {
        match self.peek() {
            b'{' => {
                let mut members = Map::new();
                let mut more = self.enter();
                while more {
                    let key = self.key();
                    members.insert(key.into_owned(), self.tree());
                    more = self.more();
                }
                Value::Object(members)
            }
            b'[' => {
                let mut items = Vec::new();
                let mut more = self.enter();
                while more {
                    items.push(self.tree());
                    more = self.more();
                }
                Value::Array(items)
            }
            b'"' => Value::String(unquote(self.literal()).into_owned()),
            b't' | b'f' | b'n' => match self.literal() {
                b"true" => Value::Bool(true),
                b"false" => Value::Bool(false),
                _ => Value::Null,
            },
            _ => Value::Number(number(self.literal())),
        }
    }
}

/// The nearest number that a tree can hold; numbers without a fraction stay exact up to 64 bits.
fn number(literal: &[u8]) -> Number {
    let text = str::from_utf8(literal).expect("a number is ASCII");
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    if let Ok(whole) = text.parse::<u64>() {
        return whole.into();
    }
    let float: f64 = text.parse().expect("JSON's numbers are Rust's");
    Number::from_f64(float.clamp(f64::MIN, f64::MAX)).expect("the number is finite")
}

/// The text of a string literal. What is no Unicode becomes U+FFFD, byte for byte, as in Go.
pub(crate) fn unquote(literal: &[u8]) -> Cow<'_, str> {
    let inner = &literal[1..literal.len() - 1];
    if !inner.contains(&b'\\')
        && let Ok(text) = str::from_utf8(inner)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(escape) = rest.iter().position(|&byte| byte == b'\\') {
        push_lossy(&mut text, &rest[..escape]);
        rest = &rest[escape + 1..];
        let (c, length) = match rest[0] {
            b'b' => ('\u{8}', 1),
            b'f' => ('\u{c}', 1),
            b'n' => ('\n', 1),
            b'r' => ('\r', 1),
            b't' => ('\t', 1),
            b'u' => unicode(rest),
            other => (char::from(other), 1),
        };
        text.push(c);
        rest = &rest[length..];
    }
    push_lossy(&mut text, rest);
    Cow::Owned(text)
}

/// The character that `uXXXX`, or `uXXXX\uXXXX` for a pair of surrogates, stands for, and how long that is.
fn unicode(escape: &[u8]) -> (char, usize) {
    let hex = |digits: &[u8]| {
        str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0xfffd)
    };
    let first = hex(&escape[1..5]);
    if let Some(c) = char::from_u32(first) {
        return (c, 5);
    }
    if first < 0xdc00 && escape.get(5..7) == Some(b"\\u") {
        let second = hex(&escape[7..11]);
        if (0xdc00..0xe000).contains(&second) {
            let both = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return (char::from_u32(both).unwrap_or(char::REPLACEMENT_CHARACTER), 11);
        }
    }
    (char::REPLACEMENT_CHARACTER, 5)
}

/// Bytes as text. What is no Unicode becomes U+FFFD.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    push_lossy(&mut text, bytes);
    text
}

/// Go replaces every byte that is part of no character by a character of its own; Rust replaces them by the group.
fn push_lossy(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unquotes_as_go_does() {
        for (literal, text) in [
            (&br#""plain""#[..], "plain"),
            (br#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (br#""\u00e9\u20AC""#, "é€"),
            (br#""\ud83d\ude00!""#, "😀!"),
            (br#""\ud83d!""#, "\u{fffd}!"),
            (br#""\ude00\ud83dx""#, "\u{fffd}\u{fffd}x"),
            (br#""\ud83d\u0041""#, "\u{fffd}A"),
            (b"\"a\xff\xe2\x82b\"", "a\u{fffd}\u{fffd}\u{fffd}b"),
        ] {
            assert_eq!(unquote(literal), text);
        }
    }

    #[test]
    fn reads_trees_and_skips_values() {
        let text = br#" {"a" : [1, -2.5, "x]", {"b":{}}], "a": null, "n": 18446744073709551615 } "#;
        assert_eq!(Scan::new(text).tree(), json!({"a": null, "n": 18_446_744_073_709_551_615_u64}));
        let mut scan = Scan::new(br#"[{"a":"}\""}, 7]"#);
        assert!(scan.enter());
        assert_eq!(scan.skip(), br#"{"a":"}\""}"#);
        assert!(scan.more());
        assert_eq!(scan.skip(), b"7");
        assert!(!scan.more());
    }
}
