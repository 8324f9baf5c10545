//! Tokens into a tree, macros included.
//!
//! Operators are read by precedence climbing, so that nesting costs one stack frame a level. How deep an expression may
//! nest is limited here, once, so that nothing that walks the tree can run out of stack.

use super::{
    issue::Issue,
    signatures,
    syntax::{Entry, Expr, Fold, Item, Kind, Step},
    token::{Placed, RESERVED, Token, tokens},
};

/// Real rules are less than 20 deep.
const MAX_DEPTH: usize = 100;
const MAX_LENGTH: usize = 100_000;

/// What an expression may begin with, in the words of cel-go's parser.
const BEGINNINGS: &str =
    "'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER";

/// The tree of `source`, or all that is wrong with its text.
pub(super) fn parse(source: &str) -> Result<Expr, Vec<Issue>> {
    if source.chars().count() > MAX_LENGTH {
        let why = format!("expression code point size exceeds limit: limit {MAX_LENGTH}");
        return Err(vec![Issue::at(0, why)]);
    }
    let (tokens, issues) = tokens(source);
    let mut parser = Parser { source, tokens, next: 0, nesting: 0, issues, is_lost: false };
    let parsed = parser.whole();
    let mut issues = parser.issues;
    match parsed {
        Ok(expr) if issues.is_empty() => return Ok(expr),
        Ok(_) => {}
        Err(issue) => issues.push(issue),
    }
    Err(issues)
}

struct Parser<'a> {
    source: &'a str,
    tokens: Vec<Placed>,
    next: usize,
    nesting: usize,
    /// What was wrong and could be read over.
    issues: Vec<Issue>,
    /// Whether something was wrong and nothing has fitted since; until then nothing else is told.
    is_lost: bool,
}

type Parsed = Result<Expr, Issue>;

/// Words that are tokens of their own, and no fields.
const KEYWORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Binary operators: symbol, name and how strongly they bind.
const BINARY: [(&str, &str, u8); 14] = [
    ("||", "_||_", 1),
    ("&&", "_&&_", 2),
    ("==", "_==_", 3),
    ("!=", "_!=_", 3),
    ("<=", "_<=_", 3),
    (">=", "_>=_", 3),
    ("<", "_<_", 3),
    (">", "_>_", 3),
    ("in", "@in", 3),
    ("+", "_+_", 4),
    ("-", "_-_", 4),
    ("*", "_*_", 5),
    ("/", "_/_", 5),
    ("%", "_%_", 5),
];

impl Parser<'_> {
    fn whole(&mut self) -> Parsed {
        let expr = self.expr()?;
        if self.is_lost || *self.peek() == Token::End {
            return Ok(expr);
        }
        let is_last = self.tokens[self.next + 1].token == Token::End;
        let problem = if is_last { "extraneous" } else { "mismatched" };
        Err(Issue::syntax(self.at(), format!("{problem} input '{}' expecting <EOF>", self.shown())))
    }

    /// The next token as it is written.
    fn shown(&self) -> &str {
        let Placed { at, end, token } = &self.tokens[self.next];
        if *token == Token::End { "<EOF>" } else { &self.source[*at..*end] }
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.next].token
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    fn bump(&mut self) -> (usize, Token) {
        let Placed { at, token, .. } = self.tokens[self.next].clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        self.is_lost = false;
        (at, token)
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        if found {
            self.bump();
        }
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), Issue> {
        if self.eat(symbol) {
            return Ok(());
        }
        let why = match self.peek() {
            Token::End => format!("missing '{symbol}' at '<EOF>'"),
            _ => format!("mismatched input '{}' expecting '{symbol}'", self.shown()),
        };
        Err(Issue::syntax(self.at(), why))
    }

    /// No expression begins with the next token. One that is too much is read over.
    fn no_beginning(&mut self, closed_by: &str) -> Result<(), Issue> {
        let expected = format!("expecting {{'[', '{{', '(', {closed_by}{BEGINNINGS}}}");
        let is_extra = self.tokens.get(self.next + 1).is_some_and(|next| begins(&next.token));
        let (at, shown) = (self.at(), self.shown().to_owned());
        if !is_extra {
            return Err(Issue::syntax(at, format!("mismatched input '{shown}' {expected}")));
        }
        if !self.is_lost {
            self.issues.push(Issue::syntax(at, format!("extraneous input '{shown}' {expected}")));
        }
        self.bump();
        Ok(())
    }

    /// An expression, one level further in.
    fn expr(&mut self) -> Parsed {
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return Err(Issue::at(self.at(), format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        let condition = self.binary(0)?;
        let expr = if self.is("?") {
            let (at, _) = self.bump();
            let then = self.binary(0)?;
            self.expect(":")?;
            let otherwise = self.expr()?;
            node(at, Kind::Conditional(Box::new([condition, then, otherwise])))?
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(expr)
    }

    fn operator(&self) -> Option<(&'static str, u8)> {
        let text = match self.peek() {
            Token::Symbol(symbol) => *symbol,
            Token::Ident(word) if word == "in" => "in",
            _ => return None,
        };
        BINARY.iter().find(|(symbol, ..)| *symbol == text).map(|(_, name, binds)| (*name, *binds))
    }

    fn binary(&mut self, least: u8) -> Parsed {
        let mut left = self.unary()?;
        while let Some((name, binds)) = self.operator().filter(|(_, binds)| *binds > least) {
            let (at, _) = self.bump();
            let right = self.binary(binds)?;
            left = match name {
                "_&&_" => node(
                    at,
                    Kind::And(flat(left, right, |kind| match kind {
                        Kind::And(terms) => Ok(terms),
                        other => Err(other),
                    })),
                )?,
                "_||_" => node(
                    at,
                    Kind::Or(flat(left, right, |kind| match kind {
                        Kind::Or(terms) => Ok(terms),
                        other => Err(other),
                    })),
                )?,
                name => node(at, Kind::Operator { name, args: vec![left, right] })?,
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        let mut not = 0;
        while self.eat("!") {
            not += 1;
        }
        if not > 0 {
            let operand = self.unary_operand()?;
            if not % 2 == 0 {
                return Ok(operand);
            }
            return node(at, Kind::Operator { name: "!_", args: vec![operand] });
        }
        let mut minus = 0;
        while self.eat("-") {
            minus += 1;
        }
        if minus % 2 == 1 {
            // The smallest integer has no positive counterpart, so the sign is read with the digits.
            if let Token::Int(digits) = self.peek() {
                let digits = format!("-{digits}");
                let (_, _) = self.bump();
                let literal = node(at, Kind::Int(integer(&digits, at)?))?;
                return self.members(literal);
            }
            if let Token::Double(value) = *self.peek() {
                self.bump();
                let literal = node(at, Kind::Double(-value))?;
                return self.members(literal);
            }
            let operand = self.unary_operand()?;
            return node(at, Kind::Operator { name: "-_", args: vec![operand] });
        }
        self.unary_operand()
    }

    fn unary_operand(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    /// What follows a value: `.field`, `.call(…)`, `[index]`, and their optional forms.
    fn members(&mut self, mut expr: Expr) -> Parsed {
        loop {
            let at = self.at();
            if self.is(".") || self.is(".?") {
                let optional = self.is(".?");
                self.bump();
                let Some(name) = self.field() else {
                    let dot = if optional { ".?" } else { "." };
                    let shown = if *self.peek() == Token::End { "" } else { self.shown() };
                    let why = format!("no viable alternative at input '{dot}{shown}'");
                    self.issues.push(Issue::syntax(self.at(), why));
                    self.is_lost = true;
                    return Ok(expr);
                };
                if self.is("(") && !optional {
                    let (open, _) = self.bump();
                    let args = self.arguments()?;
                    expr = member_call(open, expr, name, args)?;
                } else {
                    expr = node(at, Kind::Select { operand: Box::new(expr), field: name, optional })?;
                }
            } else if self.is("[") || self.is("[?") {
                let name = if self.is("[?") { "_[?_]" } else { "_[_]" };
                self.bump();
                let index = self.expr()?;
                self.expect("]")?;
                expr = node(at, Kind::Operator { name, args: vec![expr, index] })?;
            } else {
                return Ok(expr);
            }
        }
    }

    /// The name of a field, after a dot.
    fn field(&mut self) -> Option<String> {
        match self.peek().clone() {
            Token::Ident(name) if !KEYWORDS.contains(&name.as_str()) => {
                self.bump();
                Some(name)
            }
            Token::Quoted(name) => {
                let (at, _) = self.bump();
                self.issues.push(Issue::at(at, "unsupported syntax: '`'"));
                Some(name)
            }
            _ => None,
        }
    }

    fn name(&mut self) -> Result<String, Issue> {
        let shown = self.shown().to_owned();
        match self.bump() {
            (at, Token::Ident(name)) if RESERVED.contains(&name.as_str()) => {
                Err(Issue::at(at, format!("reserved identifier: {name}")))
            }
            (_, Token::Ident(name)) => Ok(name),
            (at, _) => Err(Issue::syntax(at, format!("no viable alternative at input '.{shown}'"))),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Issue> {
        let mut args = Vec::new();
        while !self.eat(")") {
            if !args.is_empty() {
                self.expect(",")?;
            } else if !begins(self.peek()) {
                self.no_beginning("')', ")?;
            }
            args.push(self.expr()?);
        }
        Ok(args)
    }

    /// Whether the next token wants an operand on both sides.
    fn is_between(&self) -> bool {
        const OPERATORS: [&str; 12] = ["<", "<=", ">", ">=", "==", "!=", "+", "*", "/", "%", "&&", "||"];
        OPERATORS.iter().any(|operator| self.is(operator))
    }

    fn primary(&mut self) -> Parsed {
        if !begins(self.peek()) {
            let missing = self.no_beginning("");
            if let (Err(issue), true) = (&missing, self.is_between()) {
                // What stands between two operands goes on without the first.
                self.issues.push(issue.clone());
                return node(self.at(), Kind::Null);
            }
            missing?;
        }
        let (at, token) = self.bump();
        match token {
            Token::Int(digits) => node(at, Kind::Int(integer(&digits, at)?)),
            Token::Uint(digits) => {
                let value = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => digits.parse(),
                };
                node(at, Kind::Uint(value.map_err(|_| Issue::at(at, "invalid uint literal"))?))
            }
            Token::Double(value) => node(at, Kind::Double(value)),
            Token::String(text) => node(at, Kind::String(text)),
            Token::Bytes(bytes) => node(at, Kind::Bytes(bytes)),
            Token::Ident(word) => self.word(at, word),
            Token::Symbol("(") => {
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Symbol("[") => self.list(at, false),
            Token::Symbol("[?") => self.list(at, true),
            Token::Symbol("{") => self.map(at, false),
            Token::Symbol("{?") => self.map(at, true),
            Token::Symbol(".") => {
                let name = self.name()?;
                node(at, Kind::Ident(name))
            }
            // Signs were read before.
            _ => {
                self.next = self.next.saturating_sub(1);
                Err(Issue::syntax(at, format!("mismatched input '{}' expecting <EOF>", self.shown())))
            }
        }
    }

    fn word(&mut self, at: usize, word: String) -> Parsed {
        match word.as_str() {
            "true" => node(at, Kind::Bool(true)),
            "false" => node(at, Kind::Bool(false)),
            "null" => node(at, Kind::Null),
            reserved if RESERVED.contains(&reserved) => {
                self.issues.push(Issue::at(at, format!("reserved identifier: {reserved}")));
                node(at, Kind::Ident(word))
            }
            _ if self.is("(") => {
                let (open, _) = self.bump();
                let args = self.arguments()?;
                global_call(open, word, args)
            }
            _ => node(at, Kind::Ident(word)),
        }
    }

    fn list(&mut self, at: usize, mut optional: bool) -> Parsed {
        let mut items = Vec::new();
        loop {
            if self.eat("]") {
                return node(at, Kind::List(items));
            }
            optional |= self.eat("?");
            items.push(Item { value: self.expr()?, optional });
            optional = false;
            if !self.is("]") {
                self.expect(",")?;
            }
        }
    }

    fn map(&mut self, at: usize, mut optional: bool) -> Parsed {
        let mut entries = Vec::new();
        loop {
            if self.eat("}") {
                return node(at, Kind::Map(entries));
            }
            optional |= self.eat("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expr()?, optional });
            optional = false;
            if !self.is("}") {
                self.expect(",")?;
            }
        }
    }
}

/// `left` and `right` as terms of one flat chain.
fn flat(left: Expr, right: Expr, terms: fn(Kind) -> Result<Vec<Expr>, Kind>) -> Vec<Expr> {
    let (at, depth) = (left.at, left.depth);
    let mut chain = match terms(left.kind) {
        Ok(terms) => terms,
        Err(kind) => vec![Expr { at, depth, kind }],
    };
    chain.push(right);
    chain
}

fn integer(digits: &str, at: usize) -> Result<i64, Issue> {
    let (sign, unsigned) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let value = match unsigned.strip_prefix("0x").or(unsigned.strip_prefix("0X")) {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16),
        None => digits.parse(),
    };
    value.map_err(|_| Issue::at(at, "invalid int literal"))
}

/// Whether an expression can begin with a token.
fn begins(token: &Token) -> bool {
    match token {
        Token::Symbol(symbol) => ["(", "[", "[?", "{", "{?", ".", "-", "!"].contains(symbol),
        Token::Ident(word) => word != "in",
        Token::Quoted(_) | Token::End => false,
        _ => true,
    }
}

/// A node, unless it would be too deep.
fn node(at: usize, kind: Kind) -> Parsed {
    let deepest = |exprs: &[Expr]| exprs.iter().map(|expr| expr.depth).max().unwrap_or(0);
    let below = match &kind {
        Kind::Null
        | Kind::Bool(_)
        | Kind::Int(_)
        | Kind::Uint(_)
        | Kind::Double(_)
        | Kind::String(_)
        | Kind::Bytes(_)
        | Kind::Ident(_) => 0,
        Kind::Select { operand, .. } | Kind::Has { operand, .. } => operand.depth,
        Kind::And(terms) | Kind::Or(terms) => deepest(terms),
        Kind::Conditional(parts) => deepest(parts.as_slice()),
        Kind::Operator { args, .. } => deepest(args),
        Kind::Call { target, args, .. } => {
            deepest(args).max(target.as_ref().map_or(0, |target| target.depth))
        }
        Kind::List(items) => items.iter().map(|item| item.value.depth).max().unwrap_or(0),
        Kind::Map(entries) => {
            entries.iter().map(|entry| entry.key.depth.max(entry.value.depth)).max().unwrap_or(0)
        }
        Kind::Fold(fold) => {
            fold.range.depth.max(fold.body.depth).max(fold.filter.as_ref().map_or(0, |filter| filter.depth))
        }
        Kind::OptionalMap { target, body, .. } => target.depth.max(body.depth),
    };
    if below >= MAX_DEPTH {
        return Err(Issue::at(at, format!("expression recursion limit exceeded: {MAX_DEPTH}")));
    }
    Ok(Expr { at, depth: below + 1, kind })
}

fn global_call(at: usize, name: String, mut args: Vec<Expr>) -> Parsed {
    if name == "has" && args.len() == 1 {
        return match args.remove(0) {
            Expr { kind: Kind::Select { operand, field, optional: false }, .. } => {
                node(at, Kind::Has { operand, field })
            }
            other => Err(Issue::at(other.at, "invalid argument to has() macro")),
        };
    }
    node(at, Kind::Call { name, target: None, args })
}

fn member_call(at: usize, target: Expr, name: String, args: Vec<Expr>) -> Parsed {
    if let Kind::Ident(namespace) = &target.kind {
        let qualified = format!("{namespace}.{name}");
        if signatures::is_function(&qualified) {
            return node(at, Kind::Call { name: qualified, target: None, args });
        }
    }
    if matches!((name.as_str(), args.len()), ("optMap" | "optFlatMap", 2)) {
        let [variable, body] = <[Expr; 2]>::try_from(args).expect("two were counted");
        let flat = name == "optFlatMap";
        let name = variable_name(&variable)?;
        return node(at, Kind::OptionalMap { target: Box::new(target), name, body: Box::new(body), flat });
    }
    let Some((step, two, filtered)) = fold_macro(&name, args.len()) else {
        return node(at, Kind::Call { name, target: Some(Box::new(target)), args });
    };
    let mut args = args.into_iter();
    let mut next = || args.next().ok_or_else(|| Issue::at(at, "too few arguments"));
    let first = variable_name(&next()?)?;
    let second = if two { Some(variable_name(&next()?)?) } else { None };
    let filter = if filtered { Some(next()?) } else { None };
    let fold = Fold { step, range: target, first, second, filter, body: next()? };
    node(at, Kind::Fold(Box::new(fold)))
}

/// The macro of that name and number of arguments; whether it has two variables, and whether a filter.
fn fold_macro(name: &str, arguments: usize) -> Option<(Step, bool, bool)> {
    Some(match (name, arguments) {
        ("all", 2) => (Step::All, false, false),
        ("all", 3) => (Step::All, true, false),
        ("exists", 2) => (Step::Exists, false, false),
        ("exists", 3) => (Step::Exists, true, false),
        ("exists_one", 2) => (Step::ExistsOne, false, false),
        ("existsOne", 3) => (Step::ExistsOne, true, false),
        ("map", 2) => (Step::Collect, false, false),
        ("map", 3) => (Step::Collect, false, true),
        ("filter", 2) => (Step::Filter, false, false),
        ("sortBy", 2) => (Step::SortBy, false, false),
        ("transformList", 3) => (Step::Collect, true, false),
        ("transformList", 4) => (Step::Collect, true, true),
        ("transformMap", 3) => (Step::TransformMap, true, false),
        ("transformMap", 4) => (Step::TransformMap, true, true),
        ("transformMapEntry", 3) => (Step::TransformEntry, true, false),
        ("transformMapEntry", 4) => (Step::TransformEntry, true, true),
        _ => return None,
    })
}

fn variable_name(expr: &Expr) -> Result<String, Issue> {
    match &expr.kind {
        Kind::Ident(name) => Ok(name.clone()),
        _ => Err(Issue::at(expr.at, "argument must be a simple name")),
    }
}
