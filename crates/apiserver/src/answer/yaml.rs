//! JSON values as YAML, for clients that ask for it: block style, members in order, texts quoted where they would be read as
//! something else.

use serde_json::Value;

/// A value as a YAML document.
pub(crate) fn print(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0, false);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Writes a value; `after_key` if something already stands on the line.
fn block(out: &mut String, value: &Value, indent: usize, after_key: bool) {
    let space = if after_key { " " } else { "" };
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 || after_key {
                    line(out, indent);
                }
                out.push_str(&text(key));
                out.push(':');
                let deeper = if value.is_array() { indent } else { indent + 2 };
                block(out, value, deeper, true);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (i, item) in list.iter().enumerate() {
                if i > 0 || after_key {
                    line(out, indent);
                }
                out.push('-');
                match item {
                    Value::Object(map) if !map.is_empty() => {
                        out.push(' ');
                        block(out, item, indent + 2, false);
                    }
                    Value::Array(list) if !list.is_empty() => {
                        out.push(' ');
                        block(out, item, indent + 2, false);
                    }
                    item => block(out, item, indent + 2, true),
                }
            }
        }
        Value::Object(_) => out.extend([space, "{}"]),
        Value::Array(_) => out.extend([space, "[]"]),
        Value::String(value) => out.extend([space, &text(value)]),
        other => out.extend([space, &other.to_string()]),
    }
}

fn line(out: &mut String, indent: usize) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.extend(std::iter::repeat_n(' ', indent));
}

/// A text as it stands, or in quotes if it would be read as something else.
fn text(text: &str) -> String {
    if is_plain(text) { text.to_owned() } else { Value::String(text.to_owned()).to_string() }
}

fn is_plain(text: &str) -> bool {
    /// What YAML 1.1 reads as a switch or as nothing.
    const WORDS: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "="];
    let first = text.chars().next();
    let is_safe =
        |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ' ' | '(' | ')' | '+' | '$');
    first.is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '/'))
        && text.chars().all(is_safe)
        && !text.ends_with(' ')
        && !WORDS.contains(&text.to_lowercase().as_str())
        && text.parse::<f64>().is_err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let value = json!({
            "a": {"b": [1, "x", {"c": [], "d": {}}, [2, [3]]], "e": null, "on": true},
            "texts": ["", "yes", "1", "1e3", "- a", "a: b", "a #b", "é\n\"", "plain text", "0x1", "~", "nan", ".inf"],
        });
        let printed = print(&value);
        let read: Value = serde_saphyr::from_str(&printed).expect("YAML");
        assert_eq!(read, value, "{printed}");
        assert!(printed.starts_with("a:\n  b:\n  - 1\n  - x\n  - c: []\n    d: {}\n"), "{printed}");
    }
}
