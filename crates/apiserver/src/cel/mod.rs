//! The Common Expression Language, as far as validation rules of custom resources speak it.
//!
//! An own, small implementation, because the published crates (cel 0.15 and kube-cel 0.8, both tried) leave out what
//! Kubernetes' users write or what an API server must be able to say: optional values (`a.?b`, `x[?k]`) and the
//! two-variable macros, the libraries added since Kubernetes 1.30, and above all the static check by which a rule
//! with a misspelt field is refused when the definition is created and not when an object fails. They also copy the
//! whole object into their own values before the first comparison; here an expression sees a view of the JSON tree
//! and pays only for what it looks at.
//!
//! ```text
//! text -- token, parse --> tree -- check (signatures, types) --> Program -- eval (functions) --> Value
//! ```
//!
//! This module knows nothing of schemas and custom resources; who asks declares the types of its variables
//! ([`types::Type`]) and hands in JSON. What is left out on purpose: message construction (`Object{…}`), which
//! validation rules do not have. What a rule may cost is estimated before it runs ([`Program::costed`]) and bounded when
//! it does ([`Budget`]); how deep it may nest is bounded when it is parsed.

mod authorizer;
mod check;
mod cost;
mod eval;
mod format;
mod functions;
mod issue;
mod library;
mod lists;
mod parse;
mod signatures;
mod strings;
mod syntax;
#[cfg(test)]
mod tests;
mod time;
mod token;
pub mod types;
mod value;

pub use authorizer::{Authority, Check, Decision, Question};
pub use cost::{Size, Sizes};
pub use eval::Budget;
pub use issue::Issue;
pub use library::{Cidr, Format, Semver, Url};
pub use time::{date, duration, timestamp};
pub use value::{Error, List, Map, Object, Outcome, Value};

use syntax::Expr;
use types::Type;

/// An expression that was parsed and checked.
#[derive(Debug, Clone)]
pub struct Program {
    expr: Expr,
    r#type: Type,
    used: Vec<String>,
}

impl Program {
    /// Compiles `source`, in which the `variables` have those types. An error is all that cel-go's compiler would print.
    pub fn compile(source: &str, variables: &[(&str, Type)]) -> Result<Program, String> {
        let expr = parse::parse(source).map_err(|issues| issue::print(source, &issues))?;
        let checked = check::check(&expr, variables).map_err(|issues| issue::print(source, &issues))?;
        Ok(Program { expr, r#type: checked.r#type, used: checked.used })
    }

    /// Compiles `source` and estimates what it can cost at most, where the variables are of these sizes.
    pub fn costed(
        source: &str,
        variables: &[(&str, Type)],
        sizes: Sizes<'_>,
    ) -> Result<(Program, u64), String> {
        let expr = parse::parse(source).map_err(|issues| issue::print(source, &issues))?;
        let checked = check::check(&expr, variables).map_err(|issues| issue::print(source, &issues))?;
        let cost = cost::estimate(&expr, &checked.types, sizes);
        Ok((Program { expr, r#type: checked.r#type, used: checked.used }, cost))
    }

    /// The type of what it gives.
    pub fn result(&self) -> &Type {
        &self.r#type
    }

    /// How deep the expression nests.
    pub fn depth(&self) -> usize {
        self.expr.depth
    }

    /// Whether the expression refers to a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.used.iter().any(|used| used == variable)
    }

    /// Runs the program.
    pub fn run<'a>(&'a self, variables: Vec<(&'a str, Outcome<'a>)>, budget: &mut Budget) -> Outcome<'a> {
        eval::evaluate(&self.expr, variables, budget)
    }
}
