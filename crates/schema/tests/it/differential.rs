//! The same documents to Kubernetes' code and ours: what is wrong with them, how they are written back, in JSON and in
//! protobuf, and how the internal object prints.

use schema::{Pack, Type, decode, encode, encode_text, internal, protobuf};
use serde_json::Value;

use crate::documents::{Random, damaged, document, kind};
use crate::go::{self, Answer, Question};

/// Documents in one run; `FERRY_CASES` makes it more, `FERRY_SEED` others.
const CASES: usize = 600;

#[test]
fn random_documents() {
    if !go::is_here() {
        return;
    }
    let mut random = Random::new(number("FERRY_SEED").unwrap_or(1));
    let questions: Vec<_> = (0..cases()).map(|_| question(&mut random)).collect();
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

#[test]
fn damaged_protobuf() {
    if !go::is_here() {
        return;
    }
    let mut random = Random::new(number("FERRY_SEED").unwrap_or(1));
    let mut questions = Vec::new();
    while questions.len() < cases() {
        let question = question(&mut random);
        let of = type_of(&question);
        if let Ok(read) = decode(of, &question.body)
            && of.fields().any(|field| field.proto().is_some())
        {
            let body = damaged(&mut random, &protobuf::encode_message(of, &read.value));
            questions.push(Question { body, protobuf: true, ..question });
        }
    }
    let answers = go::ask(&questions);
    let refused = answers.iter().filter(|answer| answer.error.is_some()).count();
    assert!(
        (questions.len() / 10..questions.len() * 9 / 10).contains(&refused),
        "{refused} refused: a poor mix"
    );
    for (question, theirs) in questions.iter().zip(&answers) {
        let of = type_of(question);
        let shown = format!("{}: {:?}", question.kind, question.body);
        match protobuf::decode_message(of, &question.body) {
            // Go reads on, and fails when it has to write these, unless something came after that replaced them.
            Err(protobuf::Error::Json(_) | protobuf::Error::IntOrString) => {}
            Err(error) => assert_eq!(Some(error.to_string()), theirs.error, "{shown}"),
            Ok(read) => {
                assert_eq!(None, theirs.error, "{shown}");
                // What is no Unicode is an escape in theirs and a character in ours, and a pointer to raw JSON that
                // is not there is null in theirs and nothing in ours.
                let mut ours = encode(of, &read);
                let mut theirs = serde_json::from_str(&theirs.json).expect("the oracle prints JSON");
                remove_nulls(&mut ours);
                remove_nulls(&mut theirs);
                assert_eq!(ours, theirs, "{shown}");
            }
        }
    }
}

fn remove_nulls(tree: &mut Value) {
    match tree {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn question(random: &mut Random) -> Question {
    let (group, version, kind) = kind(random);
    let of = Pack::v1_35().of_kind(group, version, kind).expect("the kind is from the pack");
    Question { group, version, kind, body: document(random, of), protobuf: false }
}

fn type_of(question: &Question) -> Type {
    Pack::v1_35().of_kind(question.group, question.version, question.kind).expect("the pack has the kind")
}

fn cases() -> usize {
    number("FERRY_CASES")
        .map_or(CASES, |cases| usize::try_from(cases).expect("so many cases fit into memory"))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("the variable is a number"))
}

fn check(question: &Question, theirs: &Answer) {
    let Question { group, version, kind, body, .. } = question;
    let of = type_of(question);
    let shown = String::from_utf8_lossy(body);
    let ours = decode(of, body);
    let error = ours.as_ref().err().map(ToString::to_string);
    assert_eq!(error, theirs.error, "{kind}: {shown}");
    let Ok(ours) = ours else { return };
    let strict: Vec<_> = ours.strict.iter().map(ToString::to_string).collect();
    assert_eq!(strict, theirs.strict, "{kind}: {shown}");
    assert_eq!(encode_text(of, &ours.value), theirs.json, "{kind}: {shown}");
    // Of a number or string that is given as both, Go remembers both, and protobuf shows it; and it keeps bytes in raw
    // JSON that are no Unicode.
    if ours.strict.is_empty() && str::from_utf8(body).is_ok() {
        check_protobuf(question, of, &ours.value, theirs);
    }
    if theirs.internal.is_some() && !has_no_counterpart(group, version, kind) {
        assert_eq!(internal::json(of, &ours.value), theirs.internal, "{kind}: {shown}");
        let returned = internal::round_trip(of, named(question, &ours.value));
        assert_eq!(Some(encode_text(of, &returned)), theirs.returned, "{kind}: {shown}");
    }
}

/// The same object in protobuf, both ways.
fn check_protobuf(question: &Question, of: Type, value: &Value, theirs: &Answer) {
    let (Some(body), Some(from_protobuf)) = (&theirs.protobuf, &theirs.from_protobuf) else { return };
    let Question { kind, body: document, .. } = question;
    if *kind == "WatchEvent" {
        return; // has no type of its own, so its envelope is empty
    }
    let shown = String::from_utf8_lossy(document);
    let body = go::from_base64(body);
    let read = protobuf::decode(of, &body).unwrap_or_else(|error| panic!("{kind}: {error}: {shown}"));
    assert_eq!(&encode_text(of, &read), from_protobuf, "{kind}: {shown}");

    assert!(protobuf::encode(of, &named(question, value)) == body, "{kind} is written differently: {shown}");
}

/// An object with the `apiVersion` and `kind` of the question.
fn named(question: &Question, value: &Value) -> Value {
    let mut value = value.clone();
    let api_version = format!("{}/{}", question.group, question.version);
    value["apiVersion"] = api_version.trim_start_matches('/').into();
    value["kind"] = question.kind.into();
    value
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
