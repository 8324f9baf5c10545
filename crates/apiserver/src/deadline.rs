//! How long a request may take (1.3): as long as its sender says, and no longer than the server allows. What is not answered
//! by then is answered with 504, and nobody goes on with it.

use std::time::Duration;

use http::{Method, StatusCode, Uri};
use serde_json::json;

use crate::answer::{self, Answer};
use crate::request::{Asked, Query, Target, Verb};
use crate::status::Refusal;

/// How long a request may take at most.
const MOST: Duration = Duration::from_secs(60);
/// How long a write may take, whatever its sender says: those who have a say in it may be slow.
const WRITE: Duration = Duration::from_secs(34);

/// How long a request may take; `None` for what goes on for as long as it likes. A time that is none is refused.
pub(crate) fn of(asked: Option<&Asked>, query: &Query) -> Result<Option<Duration>, Refusal> {
    if matches!(asked, Some(Asked::Resource(target)) if target_lasts(target)) {
        return Ok(None);
    }
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(Some(MOST)) };
    let asked = duration(text).map_err(|why| {
        Refusal::bad_request(format!("invalid timeout specified in the request URL - {why}"))
    })?;
    Ok(Some(asked.filter(|asked| *asked < MOST).unwrap_or(MOST)))
}

/// Whether a request goes on for as long as it likes: a watch, or a connection to a container.
pub(crate) fn lasts(method: &Method, uri: &Uri) -> bool {
    match Asked::read(method, uri.path(), &Query::read(uri.query().unwrap_or(""))) {
        Some(Asked::Resource(target)) => target_lasts(&target),
        _ => false,
    }
}

fn target_lasts(target: &Target) -> bool {
    let part = target.subresource.as_deref().unwrap_or("");
    target.verb == Verb::Watch || matches!(part, "attach" | "exec" | "log" | "portforward" | "proxy")
}

/// What is answered to a request that took too long. Whoever watches the time knows nothing of kinds and forms.
pub(crate) fn missed() -> Answer {
    let status = json!({
        "metadata": {}, "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout", "details": {}, "code": 504,
    });
    answer::text(StatusCode::GATEWAY_TIMEOUT, format!("{status}\n"))
}

/// How long it may take to carry out a request, whatever its sender says; `None` if that is all the same.
pub(crate) fn of_write(target: &Target) -> Option<Duration> {
    let is_read = matches!(target.verb, Verb::Get | Verb::List | Verb::Watch);
    (!is_read && !target_lasts(target)).then_some(WRITE)
}

/// What is answered to a write that took too long.
pub(crate) fn exceeded() -> Refusal {
    Refusal::timed_out("request did not complete within requested timeout - context deadline exceeded")
}

/// A duration as Go writes it, such as `1m30s`, or why it is none. `Ok(None)` is one that is not more than nothing.
fn duration(text: &str) -> Result<Option<Duration>, String> {
    /// Units in nanoseconds.
    const UNITS: [(&str, u64); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let quoted = types::go::quote(text);
    let invalid = || format!("time: invalid duration {quoted}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(None);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds: u64 = 0;
    while !rest.is_empty() {
        let whole = digits(&mut rest);
        let fraction = if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            digits(&mut rest)
        } else {
            ""
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        if end == 0 {
            return Err(format!("time: missing unit in duration {quoted}"));
        }
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == &rest[..end]).ok_or_else(|| {
            format!("time: unknown unit {} in duration {quoted}", types::go::quote(&rest[..end]))
        })?;
        rest = &rest[end..];
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part = Duration::from_nanos(*unit).mul_f64(format!("0.{fraction}0").parse().unwrap_or(0.0));
        let sum = whole.checked_mul(*unit).and_then(|whole| whole.checked_add(nanoseconds));
        let sum = sum.and_then(|sum| sum.checked_add(u64::try_from(part.as_nanos()).ok()?));
        nanoseconds = sum.ok_or_else(invalid)?;
    }
    if text.starts_with('-') {
        return Ok(None);
    }
    // Go counts them in 63 bits.
    i64::try_from(nanoseconds).map_err(|_| invalid())?;
    Ok((nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds)))
}

/// Takes the digits with which a text begins.
fn digits<'a>(text: &mut &'a str) -> &'a str {
    let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    *text = rest;
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_1_3_timeouts() {
        let check = |method: Method, uri: &str, expected: Result<Option<u64>, &str>| {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let query = Query::read(query);
            let got = of(Asked::read(&method, path, &query).as_ref(), &query);
            let got = got.map(|within| within.map(|within| within.as_millis()));
            let expected = expected.map(|within| within.map(u128::from));
            assert_eq!(got.map_err(|refusal| refusal.to_string()), expected.map_err(str::to_owned), "{uri}");
        };
        check(Method::GET, "/api/v1/pods", Ok(Some(60_000)));
        check(Method::GET, "/api/v1/pods?timeout=", Ok(Some(60_000)));
        check(Method::GET, "/api/v1/pods?timeout=1m30s", Ok(Some(60_000)));
        check(Method::POST, "/api/v1/namespaces/a/pods?timeout=1.5s", Ok(Some(1_500)));
        check(Method::GET, "/version?timeout=250ms", Ok(Some(250)));
        check(Method::GET, "/version?timeout=1s.5s", Ok(Some(1_500)));
        check(Method::GET, "/version?timeout=9223372036854775807ns", Ok(Some(60_000)));
        for none in ["0", "-1s", "0s", "%2B0"] {
            check(Method::GET, &format!("/api/v1/pods?timeout={none}"), Ok(Some(60_000)));
        }
        check(Method::GET, "/api/v1/pods?watch=true&timeout=bogus", Ok(None));
        check(Method::GET, "/api/v1/namespaces/a/pods/p/log?timeout=bogus", Ok(None));
        for (text, why) in [
            ("bogus", "time: invalid duration \"bogus\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("1.2.3s", "time: missing unit in duration \"1.2.3s\""),
            (".s", "time: invalid duration \".s\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("9999999h", "time: invalid duration \"9999999h\""),
        ] {
            let why = format!("invalid timeout specified in the request URL - {why}");
            check(Method::GET, &format!("/api/v1/pods?timeout={text}"), Err(&why));
        }
    }

    #[test]
    fn rule_1_3_writes_end_after_34_seconds() {
        let check = |method: Method, path: &str, expected: Option<u64>| {
            let Some(Asked::Resource(target)) = Asked::read(&method, path, &Query::default()) else {
                panic!("{path} is no resource")
            };
            assert_eq!(of_write(&target), expected.map(Duration::from_secs), "{method} {path}");
        };
        check(Method::POST, "/api/v1/nodes", Some(34));
        check(Method::PUT, "/api/v1/nodes/a/status", Some(34));
        check(Method::DELETE, "/api/v1/namespaces/a/pods", Some(34));
        check(Method::GET, "/api/v1/nodes", None);
        check(Method::POST, "/api/v1/namespaces/a/pods/p/exec", None);
        let refusal = exceeded().to_status();
        let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        assert_eq!((&refusal["code"], &refusal["message"]), (&json!(504), &json!(why)));
        assert_eq!((&refusal["reason"], &refusal["details"]), (&json!("Timeout"), &json!({})));
    }
}
