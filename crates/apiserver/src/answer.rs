//! Answers: objects, lists and refusals as HTTP responses.

pub(crate) mod accept;
pub(crate) mod finish;
pub(crate) mod form;
mod pieces;
mod yaml;

use std::collections::HashSet;
use std::convert::Infallible;

use bytes::Bytes;
use futures::Stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::Value;

use crate::status::Refusal;
use pieces::Pieces;

/// The body of an answer: bytes, or a stream of them.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is answered.
pub type Answer = Response<Body>;

/// JSON that is ready.
pub fn json(code: StatusCode, bytes: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(bytes.into()).boxed_unsync());
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// JSON of this length that is put together as it is sent.
pub(crate) fn json_in_parts(
    length: u64,
    parts: impl Iterator<Item = Bytes> + Send + Unpin + 'static,
) -> Answer {
    json(StatusCode::OK, Bytes::new()).map(|_| Pieces::new(length, parts).boxed_unsync())
}

/// A JSON value.
pub fn value(code: StatusCode, value: &Value) -> Answer {
    json(code, serde_json::to_vec(value).expect("JSON prints"))
}

/// Plain text.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = json(code, text);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

/// Something that goes on.
pub fn stream(media: &'static str, chunks: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    let frames = futures::StreamExt::map(chunks, |chunk| Ok(Frame::data(chunk)));
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

/// A refusal, as JSON.
pub fn refusal(refusal: &Refusal) -> Answer {
    refusal_in(accept::Form::PLAIN, refusal)
}

/// A refusal, in a form that was asked for.
pub(crate) fn refusal_in(form: accept::Form, refusal: &Refusal) -> Answer {
    let mut answer = form::refusal(form, refusal.code(), &refusal.to_status());
    warn(&mut answer, refusal.warnings());
    if let Some(seconds) = refusal.retry_after_seconds() {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// What was done, or refused, with these warnings.
pub(crate) fn warned(done: Result<Answer, Refusal>, warnings: &[String]) -> Result<Answer, Refusal> {
    let mut answer = done.map_err(|refusal| refusal.or_warning(warnings))?;
    warn(&mut answer, warnings);
    Ok(answer)
}

/// So many characters of warnings are sent whole; if there are more, each is cut, and those beyond are left out (2.66).
const WARNINGS_LIMIT: usize = 4 * 1024;
const WARNING_LIMIT: usize = 256;

/// Adds warnings, each once (2.66).
pub fn warn(answer: &mut Answer, warnings: &[String]) {
    let (mut distinct, mut known) = (Vec::new(), HashSet::new());
    let (mut whole, mut cut) = (0, 0);
    for warning in warnings {
        // What comes after these is not told, whatever it is.
        if cut > WARNINGS_LIMIT {
            break;
        }
        if !warning.is_empty() && known.insert(warning.as_str()) {
            let length = warning.chars().count();
            (whole, cut) = (whole + length, cut + length.min(WARNING_LIMIT));
            distinct.push(warning);
        }
    }
    let is_much = whole > WARNINGS_LIMIT;
    let mut length = 0;
    for warning in distinct {
        let most = if is_much { WARNING_LIMIT } else { usize::MAX };
        let shown: String = warning.chars().take(most).collect();
        length += shown.chars().count();
        if length > WARNINGS_LIMIT {
            break;
        }
        let escaped: String = shown.chars().filter(|c| !c.is_control()).flat_map(escape).collect();
        if let Ok(header) = HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()) {
            answer.headers_mut().append(header::WARNING, header);
        }
    }
}

fn escape(c: char) -> impl Iterator<Item = char> {
    let escape = matches!(c, '"' | '\\').then_some('\\');
    escape.into_iter().chain([c])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(warnings: &[String]) -> Vec<String> {
        let mut answer = text(StatusCode::OK, "");
        warn(&mut answer, warnings);
        let told = answer.headers().get_all(header::WARNING).iter();
        told.map(|value| value.to_str().expect("text").to_owned()).collect()
    }

    #[test]
    fn rule_2_66_warnings_are_told_once_and_not_without_end() {
        let check = |warnings: &[String], many: usize, last: &str| {
            let told = told(warnings);
            assert_eq!((told.len(), told.last().map(String::as_str)), (many, Some(last)));
        };
        check(&["a".into(), String::new(), "b".into(), "a".into()], 2, "299 - \"b\"");
        let four = "x".repeat(WARNINGS_LIMIT - 1);
        check(&[four.clone(), "y".into()], 2, "299 - \"y\"");
        let cut = format!("299 - \"{}\"", "x".repeat(WARNING_LIMIT));
        check(&[four.clone(), format!("{four}x")], 2, &cut);
        let (short, shown) = ("a".repeat(10), "299 - \"aaaaaaaaaa\"");
        check(&[four.clone(), "zz".into(), short], 3, shown);
        let many: Vec<String> = (0..300_000).map(|n| format!("{n:08}")).collect();
        check(&many, 512, "299 - \"00000511\"");
        check(&vec!["x".to_owned(); 300_000], 1, "299 - \"x\"");
    }
}
