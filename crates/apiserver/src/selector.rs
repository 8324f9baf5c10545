//! Label and field selectors as they stand in queries (2.68, 2.69), and what they match.

use rules::names;
use types::go;

/// A label selector: every requirement must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<Requirement>);

/// One requirement on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

/// Why a selector cannot be read. It prints as the message of a 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Labels {
    /// Reads a selector such as `app=web,tier in (a,b),!gone`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut parser = Parser { tokens: tokens(text), next: 0 };
        Ok(Labels(parser.requirements()?))
    }

    /// Whether it matches everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels satisfy every requirement. `label` looks one up.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }

    /// The value that a label must have, if the selector says so: an index can then be asked instead.
    pub fn exact(&self, key: &str) -> Option<&str> {
        self.0.iter().find_map(|requirement| match &requirement.operator {
            Operator::In(values) if requirement.key == key && values.len() == 1 => Some(values[0].as_str()),
            _ => None,
        })
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Operator::NotIn(values) => {
                value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value))
            }
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|value| value > *bound),
            Operator::LessThan(bound) => number().is_some_and(|value| value < *bound),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A key, a value, or one of the words `in` and `notin`.
    Word(String),
    /// `=`, `==`, `!=`, `<`, `>`, `(`, `)`, `,` or `!`.
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(text) => text,
            Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "<", ">", "(", ")", ",", "!"];
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            tokens.push(Token::End);
            return tokens;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let end =
                rest.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '<', '>']).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).unwrap_or(&Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, Malformed> {
        let mut all = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    let requirement = self
                        .requirement()
                        .map_err(|Malformed(why)| Malformed(format!("unable to parse requirement: {why}")))?;
                    all.push(requirement);
                }
                Token::End => return Ok(all),
                other @ Token::Symbol(_) => {
                    let why =
                        format!("found '{}', expected: !, identifier, or 'end of string'", other.text());
                    return Err(Malformed(why));
                }
            }
            match self.take() {
                Token::End => return Ok(all),
                Token::Symbol(",") if matches!(self.peek(), Token::Word(_) | Token::Symbol("!")) => {}
                Token::Symbol(",") => {
                    let why = format!("found '{}', expected: identifier after ','", self.peek().text());
                    return Err(Malformed(why));
                }
                other => {
                    let why = format!("found '{}', expected: ',' or 'end of string'", other.text());
                    return Err(Malformed(why));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, Malformed> {
        if *self.peek() == Token::Symbol("!") {
            self.take();
            let key = self.key()?;
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        let key = self.key()?;
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(Requirement { key, operator: Operator::Exists });
        }
        let operator = match self.take() {
            Token::Symbol("=" | "==") => Operator::In(vec![self.value(&key)?]),
            Token::Symbol("!=") => Operator::NotIn(vec![self.value(&key)?]),
            Token::Symbol(">") => Operator::GreaterThan(self.number(&key)?),
            Token::Symbol("<") => Operator::LessThan(self.number(&key)?),
            Token::Word(word) if word == "in" => Operator::In(self.values(&key)?),
            Token::Word(word) if word == "notin" => Operator::NotIn(self.values(&key)?),
            other => {
                let why = format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text());
                return Err(Malformed(why));
            }
        };
        Ok(Requirement { key, operator })
    }

    fn key(&mut self) -> Result<String, Malformed> {
        let key = match self.take() {
            Token::Word(key) => key,
            other => return Err(Malformed(format!("found '{}', expected: identifier", other.text()))),
        };
        let problems = names::qualified_name(&key);
        if problems.is_empty() {
            return Ok(key);
        }
        Err(Malformed(format!("<nil>: Invalid value: {}: {}", go::quote(&key), problems.join("; "))))
    }

    /// What stands after `=`: one word, or nothing for the empty value.
    fn value(&mut self, key: &str) -> Result<String, Malformed> {
        let value = match self.peek() {
            Token::End | Token::Symbol(",") => String::new(),
            Token::Word(_) => self.take().text().to_owned(),
            Token::Symbol(other) => return Err(Malformed(format!("found '{other}', expected: identifier"))),
        };
        valid_value(key, value, 0)
    }

    fn number(&mut self, key: &str) -> Result<i64, Malformed> {
        let value = self.value(key)?;
        value.parse().map_err(|_| {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            Malformed(format!("values[0]: Invalid value: {}: {why}", go::quote(&value)))
        })
    }

    /// What stands after `in`: words in parentheses, perhaps none of them empty.
    fn values(&mut self, key: &str) -> Result<Vec<String>, Malformed> {
        if self.take() != Token::Symbol("(") {
            self.next -= 1;
            return Err(Malformed(format!("found '{}' expected: '('", self.peek().text())));
        }
        let mut values = Vec::new();
        let mut last_was_word = false;
        loop {
            match self.take() {
                Token::Word(value) if !last_was_word => {
                    values.push(value);
                    last_was_word = true;
                }
                Token::Symbol(symbol @ ("," | ")")) => {
                    if !last_was_word {
                        values.push(String::new());
                    }
                    last_was_word = false;
                    if symbol == ")" {
                        break;
                    }
                }
                other => {
                    let expected = if last_was_word { "',' or ')'" } else { "',', ')' or identifier" };
                    return Err(Malformed(format!("found '{}', expected: {expected}", other.text())));
                }
            }
        }
        values.sort();
        values.dedup();
        values.into_iter().enumerate().map(|(i, value)| valid_value(key, value, i)).collect()
    }
}

fn valid_value(key: &str, value: String, index: usize) -> Result<String, Malformed> {
    let problems = names::label_value(&value);
    if problems.is_empty() {
        return Ok(value);
    }
    let why = problems.join("; ");
    Err(Malformed(format!("values[{index}][{key}]: Invalid value: {}: {why}", go::quote(&value))))
}

/// A field selector: every requirement must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<FieldRequirement>);

/// One requirement on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field, such as `metadata.name`.
    pub field: String,
    /// The value.
    pub value: String,
    /// Whether the field must have the value, or must not.
    pub equal: bool,
}

impl Fields {
    /// Reads a selector such as `metadata.name=a,status.phase!=Failed`.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let invalid =
            |part: &str| Malformed(format!("invalid selector: '{text}'; can't understand '{part}'"));
        let mut all = Vec::new();
        for part in split_terms(text) {
            if part.is_empty() {
                continue;
            }
            let (field, value, equal) = split_operator(&part).ok_or_else(|| invalid(&part))?;
            let value = unescape(value)?;
            all.push(FieldRequirement { field: field.to_owned(), value, equal });
        }
        Ok(Fields(all))
    }

    /// With another name for a field that has two.
    #[must_use]
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        for wanted in self.0.iter_mut().filter(|wanted| wanted.field == from) {
            to.clone_into(&mut wanted.field);
        }
        self
    }

    /// The requirements.
    pub fn iter(&self) -> impl Iterator<Item = &FieldRequirement> {
        self.0.iter()
    }

    /// Whether it matches everything.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether fields satisfy every requirement. `field` looks one up; an unknown field is empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|wanted| (field(&wanted.field).unwrap_or("") == wanted.value) == wanted.equal)
    }

    /// The value that a field must have, if the selector says so.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|wanted| wanted.equal && wanted.field == field).map(|wanted| wanted.value.as_str())
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            terms.push(String::new());
        } else {
            terms.last_mut().expect("there is a term").push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    terms
}

fn split_operator(term: &str) -> Option<(&str, &str, bool)> {
    let mut escaped = false;
    for (i, c) in term.char_indices() {
        let rest = &term[i..];
        if !escaped {
            for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
                if let Some(value) = rest.strip_prefix(operator) {
                    return Some((&term[..i], value, equal));
                }
            }
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

/// Takes back the escapes of `\`, `,` and `=`; nothing else can be escaped, and none of them stands there bare.
fn unescape(value: &str) -> Result<String, Malformed> {
    let wrong = |why: String| Malformed(format!("invalid field selector: {why}"));
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(wrong(format!("invalid escape sequence: {sequence}")));
                }
            },
            ',' | '=' => return Err(wrong(format!("unescaped character in value: {}", u32::from(c)))),
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(key: &str) -> Option<&'static str> {
        [("app", "web"), ("n", "5"), ("empty", "")].into_iter().find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    #[test]
    fn rule_2_68_what_label_selectors_match() {
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (a, web)", true),
            ("app in (a,b)", false),
            ("app notin (a,b)", true),
            ("other notin (a)", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("n>4", true),
            ("n<5", false),
            ("other<5", false),
            ("app=web,n>4,!other", true),
            ("app=web,other", false),
            ("empty=", true),
            ("empty in ()", true),
        ] {
            let labels = Labels::parse(selector).unwrap_or_else(|why| panic!("{selector}: {why}"));
            assert_eq!(labels.matches(label), expected, "{selector}");
        }
        assert_eq!(
            Labels::parse("a=b,c in (d)").map(|l| l.exact("c").map(str::to_owned)),
            Ok(Some("d".to_owned()))
        );
    }

    #[test]
    fn rule_2_68_malformed_label_selectors() {
        for (selector, why) in [
            ("a in", "unable to parse requirement: found '' expected: '('"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ] {
            assert_eq!(Labels::parse(selector), Err(Malformed(why.to_owned())), "{selector}");
        }
        let long = Labels::parse("a=-x").expect_err("no label value").to_string();
        assert!(
            long.starts_with(
                "unable to parse requirement: values[0][a]: Invalid value: \"-x\": a valid label must"
            ),
            "{long}"
        );
    }

    #[test]
    fn rule_2_69_field_selectors() {
        let field = |name: &str| (name == "metadata.name").then_some("a,b");
        for (selector, expected) in [
            ("", true),
            (r"metadata.name=a\,b", true),
            (r"metadata.name==a\,b", true),
            ("metadata.name!=x", true),
            ("metadata.name=x", false),
            ("other=", true),
        ] {
            let fields = Fields::parse(selector).unwrap_or_else(|why| panic!("{selector}: {why}"));
            assert_eq!(fields.matches(field), expected, "{selector}");
        }
        for (selector, expected) in [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(Fields::parse(selector).expect_err("malformed").to_string(), expected);
        }
    }
}
