//! What reading a document can find wrong, in Go's words.

use std::fmt;

use types::go;

/// Why a document is no value of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no JSON.
    #[error("{0}")]
    Syntax(String),
    /// A part of it is of another type.
    #[error("{0}")]
    Mismatch(Mismatch),
    /// A part of it is of the right type, but malformed: a quantity, a time, base64.
    #[error("{0}")]
    Other(String),
}

/// A JSON value that does not fit the Go type at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What was found: `string`, `number 1.5`.
    found: String,
    /// The Go type that was expected.
    expected: &'static str,
    /// The Go struct that has the field; empty at the root.
    inside: &'static str,
    /// The path to the field.
    field: String,
}

/// Something in a document that a lenient reader passes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StrictError {
    /// The type has no such field.
    Unknown(String),
    /// The field was given before.
    Duplicate(String),
}

impl Mismatch {
    /// What was found: `string`, `number`, `object`, for numbers often with the number.
    pub fn found(&self) -> &str {
        &self.found
    }

    /// The Go type that was expected.
    pub fn expected(&self) -> &str {
        self.expected
    }

    /// The path to the field, without the places in lists and maps.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// For a JSON text, of which its first byte says what it is.
    pub(super) fn new(text: &[u8], expected: &'static str) -> Self {
        let found = match text[0] {
            b'{' => "object",
            b'[' => "array",
            b'"' => "string",
            b't' | b'f' => "bool",
            _ => "number",
        };
        Self { found: found.to_owned(), expected, inside: "", field: String::new() }
    }

    /// For a number that the type cannot hold.
    pub(super) fn number(text: &[u8], expected: &'static str) -> Self {
        let found = format!("number {}", String::from_utf8_lossy(text));
        Self { found, expected, inside: "", field: String::new() }
    }

    /// Says where it was found. A part of the document that was read on its own keeps its path as the last step.
    pub(super) fn locate(&mut self, inside: &'static str, fields: &[&'static str]) {
        let mut field = fields.join(".");
        if !self.field.is_empty() {
            field = field + "." + &self.field;
        }
        (self.inside, self.field) = (inside, field);
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, expected, inside, field } = self;
        write!(f, "json: cannot unmarshal {found} into Go ")?;
        if inside.is_empty() && field.is_empty() {
            write!(f, "value of type {expected}")
        } else {
            write!(f, "struct field {inside}.{field} of type {expected}")
        }
    }
}

impl StrictError {
    pub(super) fn unknown(path: String) -> Self {
        Self::Unknown(path)
    }

    pub(super) fn duplicate(path: String) -> Self {
        Self::Duplicate(path)
    }
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(path) => write!(f, "unknown field {}", go::quote(path)),
            Self::Duplicate(path) => write!(f, "duplicate field {}", go::quote(path)),
        }
    }
}
