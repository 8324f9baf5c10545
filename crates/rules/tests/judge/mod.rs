//! Who answers a Job API request, and how answers are compared: our rules as pure functions, and a real kube-apiserver.

// Each test binary uses its part of this.
#![allow(dead_code)]

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) mod generate;
pub(crate) mod live;
pub(crate) mod pure;

/// The namespace in which cases play.
pub(crate) const NAMESPACE: &str = "goldens";

/// A recorded or generated conversation about one Job.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    /// What the case is about.
    pub(crate) id: String,
    /// One request after the other; the first refusal is the last.
    pub(crate) steps: Vec<Step>,
}

/// One request, and what a real API server answered.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Step {
    /// What is asked.
    pub(crate) verb: Verb,
    /// With which body. `NAME` stands for the Job's name and `UID` for its uid.
    pub(crate) body: Value,
    /// What was answered.
    #[serde(default)]
    pub(crate) expect: Answer,
}

/// The requests that the Job API's rules are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verb {
    /// POST the body.
    Create,
    /// Replace the Job with the body, unconditionally.
    Put,
    /// Read the Job, set its status to the body's, and PUT it to `/status`.
    PutStatus,
}

/// An answer, reduced to what must be equal.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Answer {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// Why it was refused.
    pub(crate) reason: Option<String>,
    /// What is wrong where: reason, field, message. Sorted, because Go's maps have no order.
    #[serde(default)]
    pub(crate) causes: Vec<(String, String, String)>,
    /// The message of a refusal without causes.
    pub(crate) message: Option<String>,
    /// What is stored, without the fields that differ from run to run.
    pub(crate) object: Option<Value>,
    /// The warnings. Recordings do not have them.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

/// Somebody who answers.
pub(crate) trait Server {
    /// Sends a body and returns code, answer and warnings. `stored` is the Job of the step before.
    async fn send(&mut self, verb: Verb, body: &Value, stored: Option<&Value>) -> (u16, Value, Vec<String>);
    /// Forgets the Job of a case.
    async fn forget(&mut self, stored: &Value);
}

/// Plays a case and returns the answers, up to the first refusal.
pub(crate) async fn play(server: &mut impl Server, name: &str, steps: &[Step]) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut stored: Option<Value> = None;
    for step in steps {
        let uid = stored.as_ref().and_then(|job| job["metadata"]["uid"].as_str()).unwrap_or("UID").to_owned();
        let body = replace(&step.body, &[("NAME", name), ("UID", &uid)]);
        let (code, answer, warnings) = server.send(step.verb, &body, stored.as_ref()).await;
        answers.push(reduce(code, &answer, warnings, name));
        if code >= 300 {
            break;
        }
        stored = Some(answer);
    }
    if let Some(stored) = stored {
        server.forget(&stored).await;
    }
    answers
}

/// Replaces text in all strings and keys.
fn replace(value: &Value, replacements: &[(&str, &str)]) -> Value {
    let text =
        |text: &str| replacements.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    match value {
        Value::String(string) => Value::String(text(string)),
        Value::Array(items) => items.iter().map(|item| replace(item, replacements)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, field)| (text(key), replace(field, replacements))).collect()
        }
        other => other.clone(),
    }
}

fn reduce(code: u16, answer: &Value, warnings: Vec<String>, name: &str) -> Answer {
    let answer = anonymous(answer, name);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if code < 300 {
        return Answer { code, object: Some(without_identity(answer)), warnings, ..Answer::default() };
    }
    let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    let mut causes: Vec<(String, String, String)> = causes
        .iter()
        .map(|cause| ["reason", "field", "message"].map(|key| text(&cause[key]).unwrap_or_default()).into())
        .collect();
    causes.sort();
    let message =
        if causes.is_empty() { text(&answer["message"]).as_deref().map(without_source_file) } else { None };
    Answer { code, reason: text(&answer["reason"]), causes, message, object: None, warnings: Vec::new() }
}

/// Replaces the name, uids and generated suffixes by what stands for them in a recording.
fn anonymous(value: &Value, name: &str) -> Value {
    match value {
        Value::String(text) => Value::String(anonymous_text(text, name)),
        Value::Array(items) => items.iter().map(|item| anonymous(item, name)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, field)| (anonymous_text(key, name), anonymous(field, name))).collect()
        }
        other => other.clone(),
    }
}

fn anonymous_text(text: &str, name: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = strip_uuid(rest) {
            out.push_str("UID");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("gen-").and_then(strip_suffix) {
            out.push_str("gen-XXXXX");
            rest = after;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out.replace(name, "NAME")
}

/// Upstream names its scheme after the source file that made it, which depends on how it was built.
pub(crate) fn without_source_file(text: &str) -> String {
    match text.split_once("in scheme \"") {
        Some((before, after)) => {
            format!("{before}in scheme{}", after.split_once('"').map_or("", |(_, rest)| rest))
        }
        None => text.to_owned(),
    }
}

fn strip_uuid(text: &str) -> Option<&str> {
    let uuid = text.get(..36)?;
    let is_uuid = uuid.char_indices().all(|(i, c)| match i {
        8 | 13 | 18 | 23 => c == '-',
        _ => matches!(c, '0'..='9' | 'a'..='f'),
    });
    is_uuid.then(|| &text[36..])
}

fn strip_suffix(text: &str) -> Option<&str> {
    let suffix = text.get(..5)?;
    suffix.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()).then(|| &text[5..])
}

fn without_identity(mut job: Value) -> Value {
    let Some(meta) = job["metadata"].as_object_mut() else { return job };
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"] {
        meta.remove(field);
    }
    if meta.get("generateName").is_some() {
        meta.remove("name");
    }
    job
}

/// Where two answers differ, one line each.
pub(crate) fn differences(want: &Answer, got: &Answer) -> Vec<String> {
    let mut lines = Vec::new();
    let mut compare = |what: &str, want: String, got: String| {
        if want != got {
            lines.push(format!("{what}: want {want} got {got}"));
        }
    };
    compare("code", want.code.to_string(), got.code.to_string());
    compare("reason", format!("{:?}", want.reason), format!("{:?}", got.reason));
    compare("message", format!("{:?}", want.message), format!("{:?}", got.message));
    let missing = |from: &[(String, String, String)],
                   others: &[(String, String, String)],
                   word: &str|
     -> Vec<String> {
        let lacks = |cause: &&(String, String, String)| !others.contains(cause);
        from.iter().filter(lacks).map(|cause| format!("{word} {} {} {}", cause.0, cause.1, cause.2)).collect()
    };
    lines.extend(missing(&want.causes, &got.causes, "lacks"));
    lines.extend(missing(&got.causes, &want.causes, "invents"));
    if lines.is_empty() && want.causes != got.causes {
        lines.push(format!("causes: want {} got {}", want.causes.len(), got.causes.len()));
    }
    if let (Some(want), Some(got)) = (&want.object, &got.object) {
        object_differences(want, got, "", &mut lines);
    }
    if want.warnings != got.warnings {
        lines.push(format!("warnings: want {:?} got {:?}", want.warnings, got.warnings));
    }
    lines
}

fn object_differences(want: &Value, got: &Value, path: &str, lines: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let side = |object: &serde_json::Map<String, Value>| {
                    object.get(key).cloned().unwrap_or(json!("<absent>"))
                };
                object_differences(&side(a), &side(b), &format!("{path}.{key}"), lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                object_differences(a, b, &format!("{path}[{i}]"), lines);
            }
        }
        (a, b) if a != b => lines.push(format!("{path}: want {a} got {b}")),
        _ => {}
    }
}

/// The `Status` of a refusal, as an API server writes it.
pub(crate) fn status(code: u16, reason: Option<&str>, message: String, causes: Vec<Value>) -> Value {
    json!({"kind": "Status", "code": code, "reason": reason, "message": message, "details": {"causes": causes}})
}
