//! What every answer gets on its way out: who was asked, that nobody keeps it, and gzip if it is long (1.4, 1.38).

use http::{HeaderName, HeaderValue, Method, StatusCode, header, request};
use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::Answer;
use super::pieces::Zipped;
use crate::request::Query;
use crate::status::Refusal;

/// Shorter answers are not worth the time.
const LONG: u64 = 128 * 1024;
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The answer as it is sent.
pub(crate) async fn finished(head: &request::Parts, mut answer: Answer) -> Answer {
    let id = head.headers.get(AUDIT_ID).cloned().or_else(|| {
        let id = uuid::Uuid::new_v4().to_string();
        HeaderValue::from_str(&id).ok()
    });
    let headers = answer.headers_mut();
    if let Some(id) = id {
        headers.insert(AUDIT_ID, id);
    }
    let private = HeaderValue::from_static("no-cache, private");
    headers.entry(header::CACHE_CONTROL).or_insert(private);
    let is_done = headers.contains_key(header::CONTENT_ENCODING) || answer.status() != StatusCode::OK;
    let is_long = answer.body().size_hint().exact().is_some_and(|size| size > LONG);
    if is_long && !is_done && takes_gzip(head) { gzipped(answer) } else { answer }
}

/// A refusal as it is sent, in a form that the client asked for.
pub(crate) async fn refused(head: &request::Parts, refusal: &Refusal) -> Answer {
    let query = Query::read(head.uri.query().unwrap_or(""));
    let mut answer = super::refusal_in(super::accept::for_refusal(&head.headers, &query), refusal);
    if head.method == Method::HEAD {
        *answer.body_mut() = super::Body::default();
    }
    finished(head, answer).await
}

fn takes_gzip(head: &request::Parts) -> bool {
    let accepted =
        head.headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|clause| {
        let mut parts = clause.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|part| matches!(part, "q=0" | "q=0.0"))
    })
}

fn gzipped(answer: Answer) -> Answer {
    let (mut head, body) = answer.into_parts();
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    head.headers.remove(header::CONTENT_LENGTH);
    Answer::from_parts(head, Zipped::new(body).boxed_unsync())
}
