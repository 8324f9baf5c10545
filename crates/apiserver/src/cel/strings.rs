//! Functions of text. Places in text are counted in characters.

use std::borrow::Cow;

use types::go;

use super::{
    eval::Budget,
    format,
    functions::{address, block, part, pattern, quantity, size},
    library::{Cidr, Semver, Url, ip},
    value::{Error, List, Outcome, Value},
};

/// A function of text, if `name` is one.
pub(super) fn call<'a>(
    name: &str,
    text: &Cow<'a, str>,
    rest: &[Value<'a>],
    budget: &mut Budget,
) -> Option<Outcome<'a>> {
    Some(match (name, rest) {
        ("size", []) => Ok(size(text.chars().count())),
        ("contains", [Value::String(other)]) => Ok(Value::Bool(text.contains(other.as_ref()))),
        ("startsWith", [Value::String(other)]) => Ok(Value::Bool(text.starts_with(other.as_ref()))),
        ("endsWith", [Value::String(other)]) => Ok(Value::Bool(text.ends_with(other.as_ref()))),
        ("matches", [Value::String(regex)]) => pattern(regex).map(|regex| Value::Bool(regex.is_match(text))),
        ("find", [Value::String(regex)]) => {
            pattern(regex).map(|regex| Value::text(regex.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Value::String(regex)]) => find_all(text, regex, -1),
        ("findAll", [Value::String(regex), Value::Int(limit)]) => find_all(text, regex, *limit),
        ("charAt", [Value::Int(index)]) => char_at(text, *index),
        ("indexOf", [Value::String(other)]) => Ok(index_of(text, other, 0)),
        ("indexOf", [Value::String(other), Value::Int(from)]) => {
            offset(text, *from).map(|from| index_of(text, other, from))
        }
        ("lastIndexOf", [Value::String(other)]) => Ok(last_index_of(text, other, text.len())),
        ("lastIndexOf", [Value::String(other), Value::Int(from)]) => {
            offset(text, *from).map(|from| last_index_of(text, other, from))
        }
        ("lowerAscii", []) => Ok(Value::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(text.trim())),
        ("replace", [Value::String(old), Value::String(new)]) => replace(text, old, new, -1, budget),
        ("replace", [Value::String(old), Value::String(new), Value::Int(limit)]) => {
            replace(text, old, new, *limit, budget)
        }
        ("split", [Value::String(separator)]) => Ok(split(text, separator, -1)),
        ("split", [Value::String(separator), Value::Int(limit)]) => Ok(split(text, separator, *limit)),
        ("substring", [Value::Int(start)]) => offset(text, *start).map(|start| part(text, start, text.len())),
        ("substring", [Value::Int(start), Value::Int(end)]) => substring(text, *start, *end),
        ("format", [Value::List(args)]) => format::format(text, args),
        ("strings.quote", []) => Ok(Value::text(go::quote(text))),
        ("url", []) => {
            let unreadable = || {
                let why = if text.is_empty() { "empty url" } else { "invalid URI for request" };
                let why = format!("parse {text:?}: {why}");
                Error::failed(format!("URL parse error during conversion from string: {why}"))
            };
            Url::parse(text).map(|url| Value::Url(url.into())).ok_or_else(unreadable)
        }
        ("isURL", []) => Ok(Value::Bool(Url::parse(text).is_some())),
        ("quantity", []) => quantity(text),
        ("isQuantity", []) => Ok(Value::Bool(quantity(text).is_ok())),
        ("ip", []) => address(text),
        ("isIP", []) => Ok(Value::Bool(ip(text).is_some())),
        ("ip.isCanonical", []) => match ip(text) {
            Some(address) => Ok(Value::Bool(address.to_string() == **text)),
            None => address(text),
        },
        ("cidr", []) => block(text),
        ("isCIDR", []) => Ok(Value::Bool(Cidr::parse(text).is_some())),
        ("semver", []) => semver(text, false),
        ("semver", [Value::Bool(normalize)]) => semver(text, *normalize),
        ("isSemver", []) => Ok(Value::Bool(Semver::parse(text, false).is_some())),
        ("isSemver", [Value::Bool(normalize)]) => Ok(Value::Bool(Semver::parse(text, *normalize).is_some())),
        _ => return None,
    })
}

fn semver<'a>(text: &str, normalize: bool) -> Outcome<'a> {
    let version = Semver::parse(text, normalize);
    version
        .map(|version| Value::Semver(version.into()))
        .ok_or_else(|| Error::failed("No Major.Minor.Patch elements found"))
}

fn find_all<'a>(text: &str, regex: &str, limit: i64) -> Outcome<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let regex = pattern(regex)?;
    Ok(Value::list(regex.find_iter(text).take(limit).map(|found| Value::text(found.as_str())).collect()))
}

/// The byte offset of the character at `index`; the end of the text is a place too.
fn offset(text: &str, index: i64) -> Result<usize, Error> {
    let outside = || Error::failed(format!("index out of range: {index}"));
    let wanted = usize::try_from(index).map_err(|_| outside())?;
    let mut places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    places.nth(wanted).ok_or_else(outside)
}

fn count<'a>(text: &str, at: Option<usize>) -> Value<'a> {
    at.map_or(Value::Int(-1), |at| size(text[..at].chars().count()))
}

fn char_at<'a>(text: &Cow<'a, str>, index: i64) -> Outcome<'a> {
    let start = offset(text, index)?;
    let end = start + text[start..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, start, end))
}

fn index_of<'a>(text: &str, other: &str, from: usize) -> Value<'a> {
    count(text, text[from..].find(other).map(|at| from + at))
}

fn last_index_of<'a>(text: &str, other: &str, from: usize) -> Value<'a> {
    let mut end = (from + other.len()).min(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    count(text, text[..end].rfind(other))
}

fn replace<'a>(text: &str, old: &str, new: &str, limit: i64, budget: &mut Budget) -> Outcome<'a> {
    let times = match usize::try_from(limit) {
        Ok(limit) => limit.min(text.matches(old).count()),
        Err(_) => text.matches(old).count(),
    };
    budget.spend(times.saturating_mul(new.len()) / 10)?;
    Ok(Value::text(text.replacen(old, new, times)))
}

fn split<'a>(text: &str, separator: &str, limit: i64) -> Value<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Value<'a>> = if separator.is_empty() {
        let mut parts: Vec<String> = text.chars().take(limit.saturating_sub(1)).map(String::from).collect();
        let taken: usize = parts.iter().map(String::len).sum();
        if taken < text.len() && limit > 0 {
            parts.push(text[taken..].to_owned());
        }
        parts.into_iter().map(Value::text).collect()
    } else {
        text.splitn(limit, separator).map(Value::text).collect()
    };
    Value::list(parts)
}

fn substring<'a>(text: &Cow<'a, str>, start: i64, end: i64) -> Outcome<'a> {
    if start > end {
        return Err(Error::failed(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(part(text, offset(text, start)?, offset(text, end)?))
}

/// The items of a list of texts, one after the other.
pub(super) fn join<'a>(list: &List<'a>, separator: &str) -> Outcome<'a> {
    let mut parts = Vec::with_capacity(list.len());
    for item in list.items() {
        match item? {
            Value::String(text) => parts.push(text),
            _ => return Err(Error::NoOverload),
        }
    }
    Ok(Value::text(parts.join(separator)))
}
