//! The same documents to Kubernetes' code and ours: what is wrong with them, how they are written back, in JSON and in
//! protobuf, and how the internal object prints.

use schema::{Pack, Type, decode, encode_text, internal, protobuf};
use serde_json::Value;

use crate::documents::{Random, document, kind};
use crate::go::{self, Answer, Question};

/// Documents in one run; `FERRY_CASES` makes it more, `FERRY_SEED` others.
const CASES: usize = 600;

#[test]
fn random_documents() {
    if !go::is_here("random documents beside Kubernetes' own decoder") {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = number("FERRY_SEED").unwrap_or(1) as u64;
    let mut random = Random::new(seed);
    let make = |_| {
        let (group, version, kind) = kind(&mut random);
        let of = Pack::v1_35().of_kind(group, version, kind).expect("the kind is from the pack");
        Question { group, version, kind, body: document(&mut random, of) }
    };
    let questions: Vec<_> = (0..number("FERRY_CASES").unwrap_or(CASES)).map(make).collect();
    let answers = go::ask(&questions);
    let refused = answers.iter().filter(|answer| answer.error.is_some()).count();
    assert!(
        (questions.len() / 10..questions.len() * 9 / 10).contains(&refused),
        "{refused} refused: a poor mix"
    );
    for (question, answer) in questions.iter().zip(&answers) {
        check(question, answer);
    }
}

fn check(question: &Question, theirs: &Answer) {
    let Question { group, version, kind, body } = question;
    let of = Pack::v1_35().of_kind(group, version, kind).expect("the pack has the kind");
    let shown = String::from_utf8_lossy(body);
    let ours = decode(of, body);
    let error = ours.as_ref().err().map(ToString::to_string);
    assert_eq!(error, theirs.error, "{kind}: {shown}");
    let Ok(ours) = ours else { return };
    let strict: Vec<_> = ours.strict.iter().map(ToString::to_string).collect();
    assert_eq!(strict, theirs.strict, "{kind}: {shown}");
    assert_eq!(encode_text(of, &ours.value), theirs.json, "{kind}: {shown}");
    if ours.strict.is_empty() {
        // Of a number or string that is given as both, Go remembers both, and protobuf shows it.
        check_protobuf(question, of, &ours.value, theirs);
    }
    if theirs.internal.is_some() && !has_no_counterpart(group, version, kind) {
        assert_eq!(internal::json(of, &ours.value), theirs.internal, "{kind}: {shown}");
    }
}

/// The same object in protobuf, both ways.
fn check_protobuf(question: &Question, of: Type, value: &Value, theirs: &Answer) {
    let (Some(body), Some(from_protobuf)) = (&theirs.protobuf, &theirs.from_protobuf) else { return };
    let Question { group, version, kind, body: document } = question;
    if *kind == "WatchEvent" {
        return; // has no type of its own, so its envelope is empty
    }
    let shown = String::from_utf8_lossy(document);
    let body = go::from_base64(body);
    let read = protobuf::decode(of, &body).unwrap_or_else(|error| panic!("{kind}: {error}: {shown}"));
    assert_eq!(&encode_text(of, &read), from_protobuf, "{kind}: {shown}");

    let mut value = value.clone();
    let members = value.as_object_mut().expect("a kind is an object");
    members.insert("apiVersion".to_owned(), format!("{group}/{version}").trim_start_matches('/').into());
    members.insert("kind".to_owned(), (*kind).into());
    assert!(protobuf::encode(of, &value) == body, "{kind} is written differently: {shown}");
}

/// The kinds of which `internal` says that it cannot print them, and lists of objects, which nobody can submit: some of
/// them keep each item's `apiVersion` and `kind`, depending on how their memory is laid out.
fn has_no_counterpart(group: &str, version: &str, kind: &str) -> bool {
    version.contains("alpha")
        || version.contains("beta")
        || group == "apiextensions.k8s.io"
        || kind.starts_with("HorizontalPodAutoscaler") && version == "v1"
        || kind.ends_with("List")
        || kind == "WatchEvent"
}
