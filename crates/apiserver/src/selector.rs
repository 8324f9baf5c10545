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
            Token::Symbol("=" | "==") => Operator::In(valid(&key, vec![self.value()?])?),
            Token::Symbol("!=") => Operator::NotIn(valid(&key, vec![self.value()?])?),
            Token::Symbol(">") => Operator::GreaterThan(bound(&key, self.value()?)?),
            Token::Symbol("<") => Operator::LessThan(bound(&key, self.value()?)?),
            Token::Word(word) if word == "in" => Operator::In(valid(&key, self.values()?)?),
            Token::Word(word) if word == "notin" => Operator::NotIn(valid(&key, self.values()?)?),
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
    fn value(&mut self) -> Result<String, Malformed> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(_) => Ok(self.take().text().to_owned()),
            Token::Symbol(other) => Err(Malformed(format!("found '{other}', expected: identifier"))),
        }
    }

    /// What stands after `in`: words in parentheses, perhaps none or some of them empty; in order, each once.
    fn values(&mut self) -> Result<Vec<String>, Malformed> {
        let open = self.take();
        if open != Token::Symbol("(") {
            return Err(Malformed(format!("found '{}' expected: '('", open.text())));
        }
        let mut values = Vec::new();
        let mut expected = "',', ')' or identifier";
        let mut last_was_word = false;
        loop {
            match self.take() {
                Token::Word(value) if !last_was_word => {
                    values.push(value);
                    expected = "',' or ')'";
                    last_was_word = true;
                }
                Token::Symbol(symbol @ ("," | ")")) => {
                    if !last_was_word {
                        values.push(String::new());
                    }
                    if symbol == ")" {
                        break;
                    }
                    expected = "',', or identifier";
                    last_was_word = false;
                }
                other => return Err(Malformed(format!("found '{}', expected: {expected}", other.text()))),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

/// Values that labels can have.
fn valid(key: &str, values: Vec<String>) -> Result<Vec<String>, Malformed> {
    let wrong: Vec<String> =
        values.iter().enumerate().filter_map(|(index, value)| wrong_value(key, value, index)).collect();
    all_told(&wrong)?;
    Ok(values)
}

/// The number that labels are compared with. What it is written as must also be the value of a label.
fn bound(key: &str, value: String) -> Result<i64, Malformed> {
    let number = value.parse::<i64>();
    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
    let no_number =
        number.is_err().then(|| format!("values[0]: Invalid value: {}: {why}", go::quote(&value)));
    let wrong: Vec<String> = no_number.into_iter().chain(wrong_value(key, &value, 0)).collect();
    all_told(&wrong)?;
    number.map_err(|_| Malformed(why.to_owned()))
}

fn wrong_value(key: &str, value: &str, index: usize) -> Option<String> {
    let problems = names::label_value(value);
    let told = || {
        let why = problems.join("; ");
        format!("values[{index}][{key}]: Invalid value: {}: {why}", go::quote(value))
    };
    (!problems.is_empty()).then(told)
}

/// Several errors as one, as Go's aggregate prints them.
fn all_told(wrong: &[String]) -> Result<(), Malformed> {
    match wrong {
        [] => Ok(()),
        [one] => Err(Malformed(one.clone())),
        many => Err(Malformed(format!("[{}]", many.join(", ")))),
    }
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
    /// Reads a selector such as `metadata.name=a,status.phase!=Failed`. Its terms are put in order first, so that of
    /// two that are wrong the same one is told, whichever way round they were written.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let invalid =
            |part: &str| Malformed(format!("invalid selector: '{text}'; can't understand '{part}'"));
        let mut all = Vec::new();
        let mut parts = split_terms(text);
        parts.sort();
        for part in parts {
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

/// Splits at the first operator: nothing in a field's name is escaped.
fn split_operator(term: &str) -> Option<(&str, &str, bool)> {
    term.char_indices().find_map(|(i, _)| {
        [("!=", false), ("==", true), ("=", true)].into_iter().find_map(|(operator, equal)| {
            term[i..].strip_prefix(operator).map(|value| (&term[..i], value, equal))
        })
    })
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
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (b c", "unable to parse requirement: found 'c', expected: ',' or ')'"),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
            ("a in (,=", "unable to parse requirement: found '=', expected: ',', or identifier"),
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
        let told = |selector: &str| {
            let why = Labels::parse(selector).expect_err("no label value").to_string();
            let problem = names::label_value("-x").join("; ");
            why.replace("unable to parse requirement: ", "").replace(&problem, "not a label value")
        };
        for (selector, why) in [
            ("a=-x", r#"values[0][a]: Invalid value: "-x": not a label value"#),
            (
                "a in (-x,b,-a)",
                r#"[values[0][a]: Invalid value: "-a": not a label value, values[1][a]: Invalid value: "-x": not a label value]"#,
            ),
            (
                "a>-x",
                r#"[values[0]: Invalid value: "-x": for 'Gt', 'Lt' operators, the value must be an integer, values[0][a]: Invalid value: "-x": not a label value]"#,
            ),
            ("a<-5", r#"values[0][a]: Invalid value: "-5": not a label value"#),
        ] {
            assert_eq!(told(selector), why, "{selector}");
        }
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
        let read = Fields::parse("spec.z=1,spec.a!=2,spec.a=3").expect("a selector");
        let fields: Vec<&str> = read.iter().map(|wanted| wanted.field.as_str()).collect();
        assert_eq!(fields, ["spec.a", "spec.a", "spec.z"]);
        assert_eq!(read.iter().map(|wanted| wanted.equal).collect::<Vec<_>>(), [false, true, true]);
        for (selector, expected) in [
            ("z,y", "invalid selector: 'z,y'; can't understand 'y'"),
            (r"a\=b=c", "invalid field selector: unescaped character in value: 61"),
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ] {
            assert_eq!(Fields::parse(selector).expect_err("malformed").to_string(), expected);
        }
    }
}
