//! What becomes of a write: the object that is stored, or why none is.

use std::fmt;

use serde_json::Value;

use crate::field::Errors;

/// What is stored and answered.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The object as a client reads it afterwards, in canonical form.
    pub object: Value,
    /// What the answer warns of.
    pub warnings: Vec<String>,
}

/// Why nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// 400: the request contradicts itself.
    BadRequest(String),
    /// 409: the stored object is another one than the client thinks. Whoever answers says which object.
    Conflict(String),
    /// 422: these fields are wrong.
    Invalid(Errors),
    /// 500: what upstream answers where it has no better word.
    Internal(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::BadRequest(why) | Refused::Conflict(why) | Refused::Internal(why) => f.write_str(why),
            Refused::Invalid(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&errors.join("\n"))
            }
        }
    }
}
