//! How Go prints and reads values: `%q` for strings and `encoding/json` for everything else; `strconv` for text.
//!
//! Kubernetes puts both into its error messages, and clients show them, so they are reproduced to the letter.

use std::fmt::Write as _;

use serde_json::Value;

/// Quotes a string as Go's `%q` does.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_print(c) => out.push(c),
            c if (c as u32) < 0x20 || c == '\u{7f}' => write(&mut out, format_args!("\\x{:02x}", c as u32)),
            c if (c as u32) < 0x1_0000 => write(&mut out, format_args!("\\u{:04x}", c as u32)),
            c => write(&mut out, format_args!("\\U{:08x}", c as u32)),
        }
    }
    out.push('"');
    out
}

/// Reads a number as Go's `strconv.Atoi` does, or says in its words why it is none.
pub fn atoi(text: &str) -> Result<i64, String> {
    let failed = |why| format!("strconv.Atoi: parsing {}: {why}", quote(text));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    text.parse().map_err(|_| failed("value out of range"))
}

/// Reads a truth value as Go's `strconv.ParseBool` does, or says in its words why it is none.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {}: invalid syntax", quote(text))),
    }
}

/// Writes a JSON value as Go's `encoding/json` does: map keys sorted (as `serde_json`'s map already is), and `<`,
/// `>`, `&` and the two Unicode line separators escaped.
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write_json(&mut out, value);
    out
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_json_string(out, text),
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
            for (i, (key, field)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json_string(out, key);
                out.push(':');
                write_json(out, field);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => write(out, format_args!("{value}")),
    }
}

/// Writes one string as Go's `encoding/json` does.
pub fn write_json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write(out, format_args!("\\u{:04x}", c as u32)),
            c if (c as u32) < 0x20 => write(out, format_args!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Go's `unicode.IsPrint`, as far as it differs from "not a control character": of the spaces only U+0020 prints.
pub fn is_print(c: char) -> bool {
    let invisible = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e000}'..='\u{f8ff}' | '\u{f_0000}'..='\u{10_ffff}');
    c == ' ' || !(c.is_control() || c.is_whitespace() || invisible)
}

fn write(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn quotes_as_go_does() {
        for (text, quoted) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\u{7}\n\t\u{b}", r#""\a\n\t\v""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("é<&>", r#""é<&>""#),
            ("\u{a0}\u{2028}\u{10ffff}", r#""\u00a0\u2028\U0010ffff""#),
        ] {
            assert_eq!(super::quote(text), quoted);
        }
    }

    #[test]
    fn writes_json_as_go_does() {
        let value = json!({"b": [1, true, null, 1.5], "a": "<é>&\u{2028}\u{1}\n"});
        assert_eq!(super::json(&value), r#"{"a":"\u003cé\u003e\u0026\u2028\u0001\n","b":[1,true,null,1.5]}"#);
    }
}
