//! JSONPath as kubectl speaks it, as far as printer columns, scale paths and selectable fields use it:
//! `.a.b`, `['a.b']`, `[0]`, `[-1]`, `[0:2]`, `[*]`, `..a`, `['a','b']`, `[?(@.type=="Ready")]`.
//!
//! Not the dialect of RFC 9535, which differs in quoting, filters and missing keys. Whatever is missing is simply not
//! found.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Why a path cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A bracket or parenthesis is not closed.
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    /// Something else stands where a step should.
    #[error("unrecognized step at {0:?}")]
    Unrecognized(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// `.*` and `[*]`
    Wildcard,
    /// `..`: the value and everything below.
    Descend,
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: Option<i64>,
    },
    Index(i64),
    Union(Vec<JsonPath>),
    Filter {
        left: Operand,
        operator: Operator,
        right: Operand,
    },
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer operators first.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

/// A filter inside a filter is already more than anyone writes.
const MAX_NESTING: usize = 8;

impl JsonPath {
    /// Reads a path; a leading `$` or `@` is the value itself.
    pub fn parse(text: &str) -> Result<JsonPath, Error> {
        parse(text.trim(), 0)
    }

    /// Everything the path leads to, in order.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        self.steps
            .iter()
            .fold(vec![value], |found, step| found.into_iter().flat_map(|value| step.apply(value)).collect())
    }

    /// The first value the path leads to.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.find(value).into_iter().next()
    }
}

fn parse(text: &str, nesting: usize) -> Result<JsonPath, Error> {
    if nesting > MAX_NESTING {
        return Err(Error::Unrecognized(text.to_owned()));
    }
    let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix("..") {
            steps.push(Step::Descend);
            rest = tail;
            if !tail.is_empty() && !tail.starts_with(['.', '[', '*']) {
                let (field, tail) = name(tail);
                steps.push(Step::Field(field));
                rest = tail;
            }
        } else if let Some(tail) = rest.strip_prefix(".*").or_else(|| rest.strip_prefix('*')) {
            steps.push(Step::Wildcard);
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix('.') {
            if tail.is_empty() {
                break;
            }
            if tail.starts_with('[') {
                rest = tail;
                continue;
            }
            let (field, tail) = name(tail);
            steps.push(Step::Field(field));
            rest = tail;
        } else if rest.starts_with('[') {
            let (inside, tail) = bracket(rest)?;
            steps.push(inside_bracket(inside, nesting)?);
            rest = tail;
        } else if steps.is_empty() {
            let (field, tail) = name(rest);
            steps.push(Step::Field(field));
            rest = tail;
        } else {
            return Err(Error::Unrecognized(rest.to_owned()));
        }
    }
    Ok(JsonPath { steps })
}

/// A field's name up to the next step; a backslash keeps what follows it in the name.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            c => name.push(c),
        }
    }
    (name, "")
}

/// What stands in the bracket at the start of `text`, and what follows it.
fn bracket(text: &str) -> Result<(&str, &str), Error> {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Ok((text[1..at].trim(), &text[at + 1..]));
                }
            }
            (Some(_) | None, _) => {}
        }
    }
    Err(Error::Unterminated("array"))
}

fn inside_bracket(inside: &str, nesting: usize) -> Result<Step, Error> {
    let unrecognized = || Error::Unrecognized(inside.to_owned());
    if inside == "*" || inside.is_empty() {
        return Ok(Step::Wildcard);
    }
    if let Some(filter) = inside.strip_prefix("?(") {
        let condition = filter.strip_suffix(')').ok_or(Error::Unterminated("filter"))?;
        return self::filter(condition.trim(), nesting);
    }
    if let Some(text) = quoted(inside) {
        return Ok(Step::Field(text));
    }
    if inside.contains(',') {
        let parts = inside.split(',').map(|part| parse(&format!("[{}]", part.trim()), nesting + 1));
        return Ok(Step::Union(parts.collect::<Result<_, _>>()?));
    }
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| unrecognized()),
    };
    let mut parts = inside.split(':');
    let first = number(parts.next().unwrap_or_default())?;
    if !inside.contains(':') {
        return first.map(Step::Index).ok_or_else(unrecognized);
    }
    let (end, step) = (number(parts.next().unwrap_or_default())?, number(parts.next().unwrap_or_default())?);
    if parts.next().is_some() {
        return Err(unrecognized());
    }
    Ok(Step::Slice { start: first, end, step })
}

/// The text between quotes, if that is all there is.
fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next()?),
            c if c == quote => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

fn filter(condition: &str, nesting: usize) -> Result<Step, Error> {
    let mut quote = None;
    for (at, c) in condition.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None => {
                if let Some((symbol, operator)) =
                    OPERATORS.iter().find(|(symbol, _)| condition[at..].starts_with(symbol))
                {
                    let left = operand(condition[..at].trim(), nesting)?;
                    let right = operand(condition[at + symbol.len()..].trim(), nesting)?;
                    return Ok(Step::Filter { left, operator: *operator, right });
                }
            }
        }
    }
    let left = operand(condition, nesting)?;
    Ok(Step::Filter { left, operator: Operator::Exists, right: Operand::Literal(Value::Null) })
}

fn operand(text: &str, nesting: usize) -> Result<Operand, Error> {
    if text.starts_with(['@', '$', '.']) {
        return parse(text, nesting + 1).map(Operand::Path);
    }
    if let Some(text) = quoted(text) {
        return Ok(Operand::Literal(Value::String(text)));
    }
    serde_json::from_str(text).map(Operand::Literal).map_err(|_| Error::Unrecognized(text.to_owned()))
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Step::Wildcard, Value::Object(fields)) => fields.values().collect(),
            (Step::Wildcard, Value::Array(items)) => items.iter().collect(),
            (Step::Descend, value) => descend(value),
            (Step::Index(index), Value::Array(items)) => {
                place(*index, items.len()).and_then(|at| items.get(at)).into_iter().collect()
            }
            (Step::Slice { start, end, step }, Value::Array(items)) => slice(items, *start, *end, *step),
            (Step::Union(paths), value) => paths.iter().flat_map(|path| path.find(value)).collect(),
            (Step::Filter { left, operator, right }, Value::Array(items)) => {
                items.iter().filter(|item| holds(item, left, *operator, right)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn descend(value: &Value) -> Vec<&Value> {
    let mut found = vec![value];
    match value {
        Value::Array(items) => found.extend(items.iter().flat_map(descend)),
        Value::Object(fields) => found.extend(fields.values().flat_map(descend)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found
}

fn place(index: i64, len: usize) -> Option<usize> {
    let len = i64::try_from(len).ok()?;
    usize::try_from(if index < 0 { index + len } else { index }).ok()
}

fn slice(items: &[Value], start: Option<i64>, end: Option<i64>, step: Option<i64>) -> Vec<&Value> {
    let bound = |index: Option<i64>, otherwise: usize| match index {
        None => Some(otherwise),
        Some(index) => place(index, items.len()).map(|at| at.min(items.len())),
    };
    let (Some(start), Some(end)) = (bound(start, 0), bound(end, items.len())) else { return Vec::new() };
    let step = usize::try_from(step.unwrap_or(1)).unwrap_or(1).max(1);
    items.get(start..end).into_iter().flatten().step_by(step).collect()
}

fn holds(item: &Value, left: &Operand, operator: Operator, right: &Operand) -> bool {
    let resolve = |operand: &Operand| match operand {
        Operand::Literal(value) => Some(value.clone()),
        Operand::Path(path) => path.first(item).cloned(),
    };
    let Some(left) = resolve(left) else { return false };
    if operator == Operator::Exists {
        return true;
    }
    let Some(right) = resolve(right) else { return false };
    let order = match (&left, &right) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => None,
    };
    match operator {
        Operator::Exists => true,
        Operator::Equal => left == right || order.is_some_and(std::cmp::Ordering::is_eq),
        Operator::NotEqual => left != right && order.is_none_or(std::cmp::Ordering::is_ne),
        Operator::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Operator::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Operator::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Operator::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(path: &str, expected: Value) {
        let value = json!({
            "spec": {"a": "x", "l": ["p", "q", "r"], "o": {"k": 1}, "a.b": 7, "n": 3},
            "status": {"conditions": [{"type": "Ready", "status": "True", "n": 1}, {"type": "Done", "status": "False", "n": 2}]},
        });
        let found: Vec<Value> =
            JsonPath::parse(path).expect(path).find(&value).into_iter().cloned().collect();
        assert_eq!(Value::Array(found), expected, "{path}");
    }

    #[test]
    fn paths_of_columns_3_31() {
        check(".spec.a", json!(["x"]));
        check("$.spec.o.k", json!([1]));
        check(".spec['a.b']", json!([7]));
        check(r".spec.a\.b", json!([7]));
        check(".spec.l[0]", json!(["p"]));
        check(".spec.l[-1]", json!(["r"]));
        check(".spec.l[0:2]", json!(["p", "q"]));
        check(".spec.l[::2]", json!(["p", "r"]));
        check(".spec.l[*]", json!(["p", "q", "r"]));
        check(".spec['a','n']", json!(["x", 3]));
        check(".status.conditions[?(@.type=='Ready')].status", json!(["True"]));
        check(".status.conditions[?(@.type==\"Gone\")].status", json!([]));
        check(".status.conditions[?(@.n>1)].type", json!(["Done"]));
        check(".status.conditions[?(@.missing)].type", json!([]));
        check("..k", json!([1]));
        check(".spec.missing.deeper", json!([]));
        check(".spec.l[9]", json!([]));
        check(".spec.l.", json!([["p", "q", "r"]]));
    }

    #[test]
    fn unreadable_paths_are_refused() {
        for path in [".a[", ".a[?(@.b", ".a[x]", ".a[1:2:3:4]", ".a[?(b==c)]"] {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", more in "[$@.\\[\\]()?*'\"a0-9:,=<> ]{0,40}") {
            for text in [text, more] {
                if let Ok(path) = JsonPath::parse(&text) {
                    path.find(&json!({"a": [{"a": 0}, [1]]}));
                }
            }
        }
    }
}
