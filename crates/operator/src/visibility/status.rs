//! What is refused, and how a client is told.

use http::{HeaderValue, StatusCode, header};
use rules::visibility::GROUP;
use serde_json::{Value, json};
use types::go;

use super::Answer;

/// Why a request is not answered.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What was asked for is no number.
    BadRequest(String),
    /// Nobody knows who asks.
    Unauthorized,
    /// He may not.
    Forbidden {
        /// What he asked for, as details of the refusal.
        about: Value,
        /// All of it in a sentence.
        message: String,
    },
    /// There is no such queue.
    NoSuchQueue {
        /// Of which kind.
        kind: &'static str,
        /// By which name.
        name: String,
    },
    /// Nothing like that is served.
    NoSuchResource,
    /// Nothing can be written.
    MethodNotAllowed,
    /// Answers are JSON.
    NotAcceptable,
    /// Who asks, or whether he may, could not be found out.
    Unknown(String),
}

impl Refusal {
    pub(super) fn no_such_queue(kind: &'static str, name: &str) -> Refusal {
        Refusal::NoSuchQueue { kind, name: name.to_owned() }
    }

    /// What a client gets.
    pub(super) fn answer(self) -> Answer {
        let (code, reason, message, details) = match self {
            Refusal::BadRequest(why) => (StatusCode::BAD_REQUEST, "BadRequest", why, Value::Null),
            Refusal::Unauthorized => {
                (StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned(), Value::Null)
            }
            Refusal::Forbidden { about, message } => (StatusCode::FORBIDDEN, "Forbidden", message, about),
            Refusal::NoSuchQueue { kind, name } => {
                let message = format!("{kind}.{GROUP} {} not found", go::quote(&name));
                let details = json!({ "name": name, "group": GROUP, "kind": kind });
                (StatusCode::NOT_FOUND, "NotFound", message, details)
            }
            Refusal::NoSuchResource => {
                let message = "the server could not find the requested resource".to_owned();
                (StatusCode::NOT_FOUND, "NotFound", message, json!({}))
            }
            Refusal::MethodNotAllowed => {
                let message = "the server does not allow this method on the requested resource".to_owned();
                (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message, json!({}))
            }
            Refusal::NotAcceptable => {
                let message = "only the following media types are accepted: application/json".to_owned();
                (StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message, Value::Null)
            }
            Refusal::Unknown(why) => {
                let message = format!("Internal error occurred: {why}");
                let details = json!({ "causes": [{ "message": why }] });
                (StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, details)
            }
        };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "code": code.as_u16(),
        });
        if !details.is_null() {
            status["details"] = details;
        }
        let mut answer = super::json(code, status.to_string());
        if code == StatusCode::METHOD_NOT_ALLOWED {
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        }
        answer
    }
}
