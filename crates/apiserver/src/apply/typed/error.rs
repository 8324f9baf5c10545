//! Why a value does not have its type.

use std::fmt::{self, Write as _};

use serde_json::Value;

use super::super::path::PathElement;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// As messages show it; empty for the value itself.
    pub path: String,
    /// What is wrong.
    pub why: String,
}

/// All that is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors(pub Vec<Problem>);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.why),
            path => write!(f, "{path}: {}", self.why),
        }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [problem] => problem.fmt(f),
            problems => {
                f.write_str("errors:")?;
                problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for Errors {}

/// The way from the value down to where a walk is; spelled out only when something is wrong there.
#[derive(Clone, Copy)]
pub(super) struct Trail<'a> {
    above: Option<&'a Trail<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Start,
    Field(&'a str),
    Element(&'a PathElement),
    Index(usize),
}

impl<'a> Trail<'a> {
    pub(super) const START: Trail<'static> = Trail { above: None, step: Step::Start };

    pub(super) fn field(&'a self, name: &'a str) -> Trail<'a> {
        Trail { above: Some(self), step: Step::Field(name) }
    }

    pub(super) fn element(&'a self, element: &'a PathElement) -> Trail<'a> {
        Trail { above: Some(self), step: Step::Element(element) }
    }

    pub(super) fn index(&'a self, place: usize) -> Trail<'a> {
        Trail { above: Some(self), step: Step::Index(place) }
    }

    pub(super) fn problem(&self, why: impl Into<String>) -> Problem {
        let mut path = String::new();
        self.write(&mut path);
        Problem { path, why: why.into() }
    }

    fn write(&self, out: &mut String) {
        if let Some(above) = self.above {
            above.write(out);
        }
        match self.step {
            Step::Start => {}
            Step::Field(name) => {
                out.push('.');
                out.push_str(name);
            }
            Step::Element(element) => element.write(out),
            Step::Index(place) => write!(out, "[{place}]").expect("writing to a string cannot fail"),
        }
    }
}

/// How Go's `%v` shows a value that has the wrong type.
pub(super) fn shown(value: &Value) -> String {
    format!("&{{{}}}", super::super::go::plain(value))
}
