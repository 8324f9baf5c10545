//! JSON values as YAML, for clients that ask for it: block style, members in order, texts quoted where they would be read as
//! something else.

use std::sync::LazyLock;

use regex::Regex;
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
                key_text(out, key);
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
        Value::String(value) => {
            out.push_str(space);
            scalar(out, value, indent);
        }
        other => out.extend([space, &other.to_string()]),
    }
}

fn line(out: &mut String, indent: usize) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.extend(std::iter::repeat_n(' ', indent));
}

/// Lines are broken at spaces after so many characters.
const WIDTH: usize = 80;

/// A key: never broken, however long.
fn key_text(out: &mut String, text: &str) {
    match style(text) {
        Style::Plain => out.push_str(text),
        Style::Single => out.extend(["'", &text.replace('\'', "''"), "'"]),
        Style::Double | Style::Literal => out.push_str(&Value::String(text.to_owned()).to_string()),
    }
}

/// A text in the style that Go's writer chooses.
fn scalar(out: &mut String, text: &str, indent: usize) {
    match style(text) {
        Style::Plain => folded(out, text, indent),
        Style::Single => {
            out.push('\'');
            folded(out, &text.replace('\'', "''"), indent);
            out.push('\'');
        }
        Style::Double => out.push_str(&Value::String(text.to_owned()).to_string()),
        Style::Literal => literal(out, text, indent),
    }
}

enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

fn style(text: &str) -> Style {
    let is_shown = |c: char| c == '\n' || !c.is_control();
    if is_something_else(text) || !text.chars().all(is_shown) {
        return Style::Double;
    }
    if text.contains('\n') {
        return if text.starts_with([' ', '\n']) { Style::Double } else { Style::Literal };
    }
    let next_is_space = |at: usize| text[at..].chars().nth(1).is_none_or(|c| c == ' ');
    let begins = text
        .starts_with(['#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`'])
        || text.starts_with(['-', '?', ':']) && next_is_space(0)
        || text.starts_with("---")
        || text.starts_with("...");
    let holds = text.match_indices(':').any(|(at, _)| next_is_space(at)) || text.contains(" #");
    let has_edges = text.starts_with(' ') || text.ends_with(' ');
    if begins || holds || has_edges { Style::Single } else { Style::Plain }
}

/// Whether YAML 1.1 would read a text as a number, a time, a switch or nothing.
fn is_something_else(text: &str) -> bool {
    const WORDS: [&str; 12] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "=", "<<"];
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"^[-+]?(0x[0-9a-fA-F_]+|0b[01_]+|0o?[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF)|\.(nan|NaN|NAN))$";
        Regex::new(pattern).expect("a pattern")
    });
    static TIME: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]*)?( *Z|[-+][0-9]{1,2}(:[0-9]{2})?)?)?$";
        Regex::new(pattern).expect("a pattern")
    });
    let is_word = WORDS.contains(&text.to_lowercase().as_str());
    text.is_empty() || is_word || NUMBER.is_match(text) || TIME.is_match(text)
}

/// Writes a text whose line may be broken at single spaces.
fn folded(out: &mut String, text: &str, indent: usize) {
    let mut column = out.len() - out.rfind('\n').map_or(0, |end| end + 1);
    let mut rest = text.char_indices().peekable();
    let mut after_space = false;
    while let Some((at, c)) = rest.next() {
        let is_inside = at > 0 && rest.peek().is_some_and(|(_, next)| *next != ' ');
        if c == ' ' && !after_space && column > WIDTH && is_inside {
            line(out, indent);
            column = indent;
        } else {
            out.push(c);
            column += 1;
        }
        after_space = c == ' ';
    }
}

/// Writes a text of several lines as they are.
fn literal(out: &mut String, text: &str, indent: usize) {
    out.push('|');
    let body = text.trim_end_matches('\n');
    match text.len() - body.len() {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    for part in body.split('\n') {
        if part.is_empty() {
            out.push('\n');
        } else {
            line(out, indent);
            out.push_str(part);
        }
    }
    out.extend(std::iter::repeat_n('\n', (text.len() - body.len()).saturating_sub(1)));
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
        assert_eq!(crate::body::yaml::read(printed.as_bytes()), Ok(value), "{printed}");
        assert!(printed.starts_with("a:\n  b:\n  - 1\n  - x\n  - c: []\n    d: {}\n"), "{printed}");
    }

    #[test]
    fn texts_are_written_in_the_styles_of_go() {
        for (text, expected) in [
            ("plain text", "a: plain text\n"),
            ("1e3", "a: \"1e3\"\n"),
            ("2001-01-01T00:00:00Z", "a: \"2001-01-01T00:00:00Z\"\n"),
            ("a: b", "a: 'a: b'\n"),
            ("it's: so", "a: 'it''s: so'\n"),
            ("one\ntwo\n", "a: |\n  one\n  two\n"),
            ("one\ntwo", "a: |-\n  one\n  two\n"),
        ] {
            assert_eq!(print(&json!({"a": text})), expected);
        }
        let long = "word ".repeat(30).trim_end().to_owned();
        let printed = print(&json!({"a": long}));
        assert!(printed.lines().all(|line| line.len() < 90) && printed.lines().count() == 2, "{printed}");
    }
}
