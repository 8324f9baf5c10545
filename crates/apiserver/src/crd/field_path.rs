//! Paths into a schema, as rules (`fieldPath`) and selectable fields name them: `.spec.list`, `.labels['a.b']`.

use super::schema::{Additional, Schema};

/// The path in Kubernetes' notation and the schema it leads to, or why there is none. `brackets` allows `['key']`.
pub(crate) fn resolve<'a>(
    path: &str,
    mut schema: &'a Schema,
    brackets: bool,
) -> Result<(String, &'a Schema), String> {
    const NOWHERE: &str = "does not refer to a valid field";
    const END: &str = "unexpected end of JSON path";
    let mut resolved = String::new();
    let mut tokens = Tokens { rest: path };
    while let Some(token) = tokens.next() {
        let name = match token {
            "." => tokens.next().ok_or(END)?.to_owned(),
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or(END)?;
                let inner = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let inner = inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                match tokens.next().ok_or(END)? {
                    "]" => unescape(inner)?,
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let named = !schema.properties.is_empty();
        match (schema.properties.get(&name), &schema.additional) {
            (Some(inner), _) => schema = inner,
            (None, Additional::Schema(inner)) if !named => schema = inner,
            _ => return Err(NOWHERE.to_owned()),
        }
        if !named {
            resolved.extend(["[", &name, "]"]);
        } else if resolved.is_empty() {
            resolved.push_str(&name);
        } else {
            resolved.extend([".", &name]);
        }
    }
    Ok((resolved, schema))
}

/// `.`, `[` and `]` by themselves, quoted text and everything between as a whole.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest;
        if rest.is_empty() {
            return None;
        }
        let end = if let Some(quoted) = rest.strip_prefix('\'') {
            let mut escaped = false;
            let close = quoted.char_indices().find(|(_, c)| {
                let closes = *c == '\'' && !escaped;
                escaped = *c == '\\';
                closes
            });
            close.map_or(rest.len(), |(at, _)| at + 2)
        } else if rest.starts_with(['.', '[', ']']) {
            1
        } else {
            rest.find(['.', '[', ']']).unwrap_or(rest.len())
        };
        let (token, tail) = rest.split_at(end);
        self.rest = tail;
        Some(token)
    }
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\u{7}',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\u{b}',
            Some(c @ ('\'' | '\\')) => c,
            Some(c) => return Err(format!("invalid string literal: invalid escape char \\{c}")),
            None => '\\',
        });
    }
    Ok(out)
}
