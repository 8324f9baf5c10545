//! Errors, and the `Status` objects that clients see. Nothing else here knows HTTP codes of failures.

use std::borrow::Cow;
use std::collections::HashSet;

use http::StatusCode;
use rules::field;
use serde_json::{Map, Value, json};

use crate::apply::{Conflict, Conflicts};

/// Why a request is refused. It prints as the message of its `Status`.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    code: StatusCode,
    reason: Option<Cow<'static, str>>,
    message: String,
    /// `None` where upstream has nothing to say about the object, not even that it has nothing.
    details: Option<Map<String, Value>>,
    /// Clients come back after so many seconds.
    retry_after: Option<u32>,
    /// Where a list may go on.
    token: Option<Box<str>>,
    /// What the answer warns of all the same.
    #[expect(clippy::box_collection, reason = "refusals are returned everywhere, and few warn")]
    warnings: Option<Box<Vec<String>>>,
}

/// The object, resource or kind that an error is about.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name of the resource, or the kind where upstream says the kind.
    pub resource: &'a str,
    /// The name of the object.
    pub name: &'a str,
}

impl About<'_> {
    /// `jobs.batch`, or `pods` in the core group.
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.resource)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), json!(value));
            }
        }
        details
    }
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Refusal {
            code,
            reason: Some(reason.into()),
            message: message.into(),
            details: None,
            retry_after: None,
            token: None,
            warnings: None,
        }
    }

    fn about(code: StatusCode, reason: &'static str, about: About<'_>, message: String) -> Self {
        Refusal { details: Some(about.details()), ..Refusal::new(code, reason, message) }
    }

    /// 400: the request contradicts itself or cannot be read.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: nobody knows who asks.
    pub fn unauthorized() -> Self {
        Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: who asks may not.
    pub fn forbidden(about: About<'_>, why: &str) -> Self {
        let subject = match (about.resource, about.name) {
            ("", _) => String::new(),
            (_, "") => format!("{} is ", about.qualified()),
            (_, name) => format!("{} {} is ", about.qualified(), types::go::quote(name)),
        };
        let message = format!("{subject}forbidden: {why}");
        Refusal::about(StatusCode::FORBIDDEN, "Forbidden", about, message)
    }

    /// 403: whoever is asked about such writes said no, in these words.
    pub fn denied(by: &str, why: &str) -> Self {
        let message = format!("admission webhook {} denied the request: {why}", types::go::quote(by));
        Refusal::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// 404: there is no such object.
    pub fn not_found(about: About<'_>) -> Self {
        let message = format!("{} {} not found", about.qualified(), types::go::quote(about.name));
        Refusal::about(StatusCode::NOT_FOUND, "NotFound", about, message)
    }

    /// 404: there is no such resource in this group.
    pub fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        let about = About { group: "", resource: "", name: "" };
        Refusal::about(StatusCode::NOT_FOUND, "NotFound", about, message.to_owned())
    }

    /// 405: the resource cannot be asked this.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let about = About { group: "", resource: "", name: "" };
        Refusal::about(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", about, message.to_owned())
    }

    /// 405: an object of the resource cannot be asked this.
    pub fn not_supported(about: About<'_>, verb: &str) -> Self {
        let about = About { name: "", ..about };
        let message =
            format!("{verb} is not supported on resources of kind {}", types::go::quote(&about.qualified()));
        Refusal::about(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", about, message)
    }

    /// 406: the client wants a form that is not served.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Refusal::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 406: the router in front of built-in resources knows no such form.
    pub(crate) fn not_acceptable_here(message: String) -> Self {
        let about = About { group: "", resource: "", name: "" };
        Refusal::about(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", about, message)
    }

    /// 406: what is asked for cannot be shown in the form that is asked for.
    pub(crate) fn cannot_be_shown(message: String) -> Self {
        Refusal::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 415: the router in front of built-in resources knows no such form.
    pub(crate) fn unsupported_media_type_here() -> Self {
        let about = About { group: "", resource: "", name: "" };
        let message = "415: Unsupported Media Type".to_owned();
        Refusal::about(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", about, message)
    }

    /// 415: the body is in a form that is not read.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// 409: an object of this name exists.
    pub fn already_exists(about: About<'_>, is_being_deleted: bool) -> Self {
        let prefix = if is_being_deleted { "object is being deleted: " } else { "" };
        let message =
            format!("{prefix}{} {} already exists", about.qualified(), types::go::quote(about.name));
        Refusal::about(StatusCode::CONFLICT, "AlreadyExists", about, message)
    }

    /// Whether it is because an object of this name exists. There are other conflicts, and webhooks may refuse with any code.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.reason.as_deref() == Some("AlreadyExists")
    }

    /// The same for a name that the server made up, time and again.
    pub(crate) fn no_unique_name(mut self) -> Self {
        self.message.push_str(", the server was not able to generate a unique name for the object");
        self.retry_after(1)
    }

    /// 409: the stored object is another one than the client thinks.
    pub fn conflict(about: About<'_>, why: &str) -> Self {
        let subject = format!("{} {}", about.qualified(), types::go::quote(about.name));
        let message = format!("Operation cannot be fulfilled on {subject}: {why}");
        Refusal::about(StatusCode::CONFLICT, "Conflict", about, message)
    }

    /// 409, as [`Refusal::conflict`] says it when somebody else wrote first.
    pub fn modified(about: About<'_>) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Refusal::conflict(about, why)
    }

    /// 409: others manage fields that a configuration changes (2.44).
    pub fn apply_conflict(conflicts: &Conflicts) -> Self {
        let mut refusal = Refusal::new(StatusCode::CONFLICT, "Conflict", conflicts.to_string());
        let cause = |conflict: &Conflict| json!({"reason": "FieldManagerConflict", "message": conflict.message(), "field": conflict.field()});
        refusal
            .details
            .get_or_insert_default()
            .insert("causes".to_owned(), conflicts.0.iter().map(cause).collect());
        refusal
    }

    /// 410: what the client knows is too old to go on from.
    pub fn expired(message: impl Into<String>) -> Self {
        Refusal::new(StatusCode::GONE, "Expired", message)
    }

    /// 413: too much.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 413: a patch of too many operations.
    pub fn too_many_operations(message: impl Into<String>) -> Self {
        let message = format!("Request entity too large: {}", message.into());
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 422: these fields are wrong. `about.resource` is the kind here.
    pub fn invalid(about: About<'_>, errors: &field::Errors) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut said = HashSet::new();
        let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| said.insert(*text)).collect();
        let texts =
            if let [one] = texts.as_slice() { (*one).to_owned() } else { format!("[{}]", texts.join(", ")) };
        let subject = format!("{} {}", about.qualified(), types::go::quote(about.name));
        let message = format!("{subject} is invalid: {texts}");
        let cause = |error: &field::Error| json!({"reason": error.kind.reason(), "message": error.message(), "field": error.path});
        let mut refusal = Refusal::about(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", about, message);
        refusal
            .details
            .get_or_insert_default()
            .insert("causes".to_owned(), errors.iter().map(cause).collect());
        refusal
    }

    /// 422 without fields: a patch that cannot be applied.
    pub fn unprocessable(message: impl Into<String>) -> Self {
        let about = About { group: "", resource: "", name: "" };
        Refusal::about(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", about, message.into())
    }

    /// 429: not now.
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    }

    /// 500 with upstream's words in front.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 500 with upstream's words in front, and the cause once more in the details.
    pub fn internal_cause(message: impl std::fmt::Display) -> Self {
        let details = json!({"causes": [{"message": message.to_string()}]});
        Refusal { details: details.as_object().cloned(), ..Refusal::internal(message) }
    }

    /// 500 without a reason: what upstream answers where it has no better word.
    pub fn unknown(message: impl Into<String>) -> Self {
        Refusal { reason: None, ..Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "", message) }
    }

    /// 503: not now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// 504: it took too long.
    pub fn timed_out(why: &str) -> Self {
        let about = About { group: "", resource: "", name: "" };
        Refusal::about(StatusCode::GATEWAY_TIMEOUT, "Timeout", about, format!("Timeout: {why}"))
    }

    /// 504: a revision that does not exist yet (2.5).
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        let mut refusal = Refusal::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).retry_after(1);
        refusal.details.get_or_insert_default().insert("causes".to_owned(), cause);
        refusal
    }

    /// What somebody else said, a webhook for example, as far as it is a refusal.
    pub(crate) fn relayed(status: &Value) -> Self {
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        let code = code.and_then(|code| StatusCode::from_u16(code).ok());
        let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let code = code.filter(|code| code.as_u16() >= 400).unwrap_or(StatusCode::BAD_REQUEST);
        Refusal {
            reason: text("reason").map(Cow::Owned),
            details: status["details"].as_object().cloned(),
            ..Refusal::new(code, "", text("message").unwrap_or_default())
        }
    }

    /// Tells the client to come back.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().insert("retryAfterSeconds".to_owned(), json!(seconds));
        self.retry_after = Some(seconds);
        self
    }

    /// Tells where a list may go on.
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Warns of what was seen before the request was refused.
    pub(crate) fn warning(mut self, warnings: &[String]) -> Self {
        if !warnings.is_empty() {
            self.warnings.get_or_insert_default().extend_from_slice(warnings);
        }
        self
    }

    /// The same, if nothing was warned of yet.
    pub(crate) fn or_warning(self, warnings: &[String]) -> Self {
        if self.warnings.is_none() { self.warning(warnings) } else { self }
    }

    /// What the answer warns of.
    pub(crate) fn warnings(&self) -> &[String] {
        self.warnings.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Adds a cause that machines look for (2.28).
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!([{"reason": reason, "message": message}]);
        if !field.is_empty() {
            cause[0]["field"] = json!(field);
        }
        self.details.get_or_insert_default().insert("causes".to_owned(), cause);
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> StatusCode {
        self.code
    }

    /// The value of `Retry-After`, if there is to be one.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.retry_after
    }

    /// The body of the answer (2.61).
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if let Some(reason) = &self.reason {
            status["reason"] = json!(reason);
        }
        if let Some(token) = &self.token {
            status["metadata"]["continue"] = json!(token);
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object(details.clone());
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use rules::field::Path;

    use super::*;

    fn about<'a>(resource: &'a str, name: &'a str) -> About<'a> {
        About { group: "batch", resource, name }
    }

    #[test]
    fn rule_2_61_2_62_shapes() {
        assert_eq!(
            Refusal::not_found(about("jobs", "x")).to_status(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "jobs.batch \"x\" not found", "reason": "NotFound",
                "details": {"name": "x", "group": "batch", "kind": "jobs"}, "code": 404,
            })
        );
        for (refusal, code, message) in [
            (
                Refusal::already_exists(about("jobs", "x"), true),
                409,
                "object is being deleted: jobs.batch \"x\" already exists",
            ),
            (
                Refusal::forbidden(About { group: "", resource: "pods", name: "x" }, "no"),
                403,
                "pods \"x\" is forbidden: no",
            ),
            (Refusal::internal("x"), 500, "Internal error occurred: x"),
            (Refusal::too_large(3), 413, "Request entity too large: limit is 3"),
        ] {
            assert_eq!((refusal.code().as_u16(), refusal.to_string().as_str()), (code, message));
        }
    }

    #[test]
    fn rule_2_62_invalid_has_all_causes_and_each_text_once() {
        let error = Path::new("spec").required("");
        let refusal = Refusal::invalid(about("Job", "x"), &vec![error.clone(), error.clone()]);
        assert_eq!(refusal.to_string(), "Job.batch \"x\" is invalid: spec: Required value");
        assert_eq!(refusal.to_status()["details"]["causes"].as_array().map(Vec::len), Some(2));
        let two = Refusal::invalid(about("Job", "x"), &vec![error, Path::new("a").forbidden("")]);
        assert_eq!(two.to_string(), "Job.batch \"x\" is invalid: [spec: Required value, a: Forbidden]");
    }

    #[test]
    fn rule_2_62_many_causes_are_told_as_few_are() {
        let path = Path::new("metadata").child("labels");
        let many: Vec<_> = (0..230_000).map(|n| path.invalid(n, "no")).collect();
        let refusal = Refusal::invalid(about("Job", "x"), &many);
        assert!(refusal.to_string().ends_with("metadata.labels: Invalid value: 229999: no]"));
        assert_eq!(refusal.to_status()["details"]["causes"].as_array().map(Vec::len), Some(230_000));
    }

    #[test]
    fn rule_2_5_too_large_resource_version() {
        let refusal = Refusal::too_large_resource_version(9, 5);
        assert_eq!(refusal.retry_after_seconds(), Some(1));
        assert_eq!(refusal.to_status()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert_eq!(refusal.to_status()["details"]["retryAfterSeconds"], 1);
    }
}
