//! Regular expressions as Go reads them.
//!
//! Both Go's and Rust's engines are of the RE2 family and take linear time, but they do not read all patterns alike: to
//! Go `\d`, `\w`, `\s` and `\b` are about ASCII, a `[` inside of a class is just that character, classes have no
//! operators, and `\Q…\E` quotes. Patterns are rewritten accordingly.

use std::{cell::RefCell, collections::HashMap, fmt, sync::OnceLock};

use regex::Regex;

/// A pattern that is compiled when it is first needed: large definitions repeat a few patterns thousands of times.
pub struct Pattern {
    text: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    /// A pattern as written in a schema.
    pub fn new(text: &str) -> Pattern {
        Pattern { text: text.to_owned(), compiled: OnceLock::new() }
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern is found in `text`; an error says why there is no such pattern.
    pub fn is_match(&self, text: &str) -> Result<bool, &str> {
        let compiled = self.compiled.get_or_init(|| compile(&self.text));
        compiled.as_ref().map(|regex| regex.is_match(text)).map_err(String::as_str)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

/// Compiles a pattern, or says in one line why not. Patterns that were compiled lately are at hand.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    const KEPT: usize = 256;
    thread_local! {
        static KNOWN: RefCell<HashMap<String, Result<Regex, String>>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some(verdict) = known.get(text) {
            return verdict.clone();
        }
        if known.len() >= KEPT {
            known.clear();
        }
        let verdict = Regex::new(&translate(text)).map_err(|error| refusal(text, &error));
        known.insert(text.to_owned(), verdict.clone());
        verdict
    })
}

/// What Go says of the most common mistakes, and what our engine says of others.
fn refusal(text: &str, error: &regex::Error) -> String {
    let message = error.to_string();
    let last = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
    let said = match last {
        "unclosed character class" => {
            let open = text.rfind('[').unwrap_or(0);
            format!("missing closing ]: `{}`", &text[open..])
        }
        "unclosed group" => format!("missing closing ): `{text}`"),
        "unopened group" => format!("unexpected ): `{text}`"),
        other => other.to_owned(),
    };
    format!("error parsing regexp: {said}")
}

/// A pattern of Go's in Rust's syntax.
fn translate(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' if rest.starts_with('Q') => {
                let (quoted, tail) = rest[1..].split_once("\\E").unwrap_or((&rest[1..], ""));
                out.push_str(&regex::escape(quoted));
                rest = tail;
            }
            '\\' => {
                let Some(escaped) = rest.chars().next() else {
                    out.push('\\');
                    break;
                };
                rest = &rest[escaped.len_utf8()..];
                out.push_str(&escape(escaped, in_class));
            }
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if let Some(tail) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = tail;
                }
                // A bracket that comes first does not close the class.
                if let Some(tail) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = tail;
                }
            }
            '[' if rest.starts_with(':') => {
                let end = rest.find(":]").map_or(rest.len(), |end| end + 2);
                out.push('[');
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            '[' => out.push_str("\\["),
            ']' => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && rest.starts_with('-') => out.push_str("\\-"),
            c => out.push(c),
        }
    }
    out
}

fn escape(escaped: char, in_class: bool) -> String {
    let bare = match escaped {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\f\\r ",
        'D' => return "[^0-9]".to_owned(),
        'W' => return "[^0-9A-Za-z_]".to_owned(),
        'S' => return "[^\\t\\n\\f\\r ]".to_owned(),
        'b' if !in_class => return "(?-u:\\b)".to_owned(),
        'B' if !in_class => return "(?-u:\\B)".to_owned(),
        other => return format!("\\{other}"),
    };
    if in_class { bare.to_owned() } else { format!("[{bare}]") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_as_go_reads_them() {
        for (pattern, text, found) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w.-]+$", "a_b.c-d", true),
            (r"^\w$", "é", false),
            (r"^.$", "é", true),
            (r"^[[a]+$", "[a", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"a\b", "a b", true),
            (r"^\S+$", "a b", false),
            (r"^([0-9]+)(.[0-9]+)?%$", "10%", true),
        ] {
            assert_eq!(Pattern::new(pattern).is_match(text), Ok(found), "{pattern} on {text}");
        }
    }

    #[test]
    fn refusals() {
        for (pattern, said) in [
            ("^[a-z", "error parsing regexp: missing closing ]: `[a-z`"),
            ("(a", "error parsing regexp: missing closing ): `(a`"),
            ("a)", "error parsing regexp: unexpected ): `a)`"),
        ] {
            assert_eq!(Pattern::new(pattern).is_match(""), Err(said));
        }
        assert!(Pattern::new("(?=a)").is_match("").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_compiled_or_refused(text in ".{0,20}", more in r"[\[\]\\^$dwsQE()*+?|&~a-]{0,20}") {
            let _ = (compile(&text), compile(&more));
        }
    }
}
