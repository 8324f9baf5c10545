//! What holds for every document, without asking Kubernetes.

use proptest::prelude::*;
use schema::{MAX_DEPTH, Pack, decode, decode_value, encode, encode_text, internal, protobuf};
use serde_json::Value;

use crate::documents::{Random, document, kind};

/// The deepest document that is read at all needs no more stack than a thread has.
#[test]
fn deep_documents_are_no_danger() {
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let schema = Pack::v1_35().named(name).expect("the pack has schemas");
    let nested = |depth: usize| "{\"items\":".repeat(depth - 1) + "{}" + &"}".repeat(depth - 1);
    assert!(decode(schema, nested(MAX_DEPTH + 1).as_bytes()).is_err());
    let read = decode(schema, nested(MAX_DEPTH).as_bytes()).expect("not too deep");
    assert_eq!(encode_text(schema, &read.value), nested(MAX_DEPTH));
    let message = protobuf::encode_message(schema, &read.value);
    assert_eq!(protobuf::decode_message(schema, &message), Ok(read.value));

    let raw = Pack::v1_35().of_kind("apps", "v1", "ControllerRevision").expect("the pack has the kind");
    let lists = MAX_DEPTH - 1;
    let text = format!("{{\"data\":{}{},\"revision\":1}}", "[".repeat(lists), "]".repeat(lists));
    let read = decode(raw, text.as_bytes()).expect("not too deep");
    assert!(encode_text(raw, &read.value).contains(&"[".repeat(lists)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_settled(seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let (group, version, kind) = kind(&mut random);
        let of = Pack::v1_35().of_kind(group, version, kind).expect("the kind is from the pack");
        if let Ok(read) = decode(of, &document(&mut random, of)) {
            let text = encode_text(of, &read.value);
            let tree: Value = serde_json::from_str(&text).expect("what is written is JSON");
            prop_assert_eq!(encode(of, &read.value), tree);
            let again = decode(of, text.as_bytes()).expect("what is written can be read");
            prop_assert_eq!(&again.strict, &[]);
            // A pointer to the zero time is written as null, and read as no pointer; after that nothing changes.
            let settled = encode_text(of, &again.value);
            let third = decode(of, settled.as_bytes()).expect("what is written can be read");
            prop_assert_eq!(encode_text(of, &third.value), settled);
            prop_assert_eq!(&third.value, &decode_value(of, &encode(of, &third.value)).expect("a tree, too").value);

            let message = protobuf::encode_message(of, &again.value);
            if of.fields().any(|field| field.proto().is_some()) {
                // Bytes that are missing in a map are left out, and read as empty ones; after that nothing changes.
                let again = protobuf::decode_message(of, &message).expect("what is written can be read");
                let settled = protobuf::encode_message(of, &again);
                let third = protobuf::decode_message(of, &settled).expect("what is written can be read");
                prop_assert_eq!(protobuf::encode_message(of, &third), settled);
            }
            if let Some(print) = internal::json(of, &read.value) {
                let print: Result<Value, _> = serde_json::from_str(&print);
                prop_assert!(print.is_ok());
            }
        }
    }

    #[test]
    fn any_text_gives_an_answer(text in r#"[\[\]{}:,"a\\u0-9. \nez-]{0,40}"#, start in 0_usize..4) {
        let job = Pack::v1_35().of_kind("batch", "v1", "Job").expect("the pack has Job");
        let start = ["", "{\"spec\":", "{\"metadata\":{\"labels\":", "{\"status\":{\"conditions\":["][start];
        let text = format!("{start}{text}");
        if let Err(error) = decode(job, text.as_bytes()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
