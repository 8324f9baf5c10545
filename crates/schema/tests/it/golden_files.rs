//! Kubernetes' golden API files: one document of every kind with every field set.

use std::fs;

use schema::{Pack, Type, decode, encode, encode_text, protobuf};
use serde_json::Value;

use crate::go;

/// The watch event's envelope is no kind of a group.
const NOT_IN_THE_PACK: [&str; 1] = ["v1.WatchEvent"];

/// Checks every golden file, given as its name, type, tree, text and protobuf body.
fn check_all(check: impl Fn(&str, Type, &Value, &str, &[u8])) {
    let folder = go::module("k8s.io/api").join("testdata/HEAD");
    let mut checked = 0;
    for entry in fs::read_dir(folder).expect("the module brings its test data") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_none_or(|extension| extension != "json")
            || NOT_IN_THE_PACK.iter().any(|it| name.ends_with(it))
        {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a golden file is text");
        let document: Value = serde_json::from_str(&text).expect("a golden file is JSON");
        let of = type_of(&document).unwrap_or_else(|| panic!("the pack does not know {name}"));
        let body = fs::read(path.with_extension("pb")).expect("every golden file comes in protobuf, too");
        check(&name, of, &document, &text, &body);
        checked += 1;
    }
    assert_eq!(checked, 182);
}

fn type_of(document: &Value) -> Option<Type> {
    let (api_version, kind) = (document["apiVersion"].as_str()?, document["kind"].as_str()?);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Pack::v1_35().of_kind(group, version, kind)
}

/// A JSON text without the spaces between tokens.
fn compact(text: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    let keep = |c: &char| {
        let keep = inside || !c.is_whitespace();
        if *c == '"' && !escaped {
            inside = !inside;
        }
        escaped = *c == '\\' && !escaped;
        keep
    };
    text.chars().filter(keep).collect()
}

#[test]
fn spec_8_1_json_reads_and_writes_back_the_same() {
    if !go::is_here() {
        return;
    }
    check_all(|name, of, document, text, _| {
        let read = decode(of, text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.strict, [], "{name}");
        assert_eq!(&encode(of, &read.value), document, "{name}");
        assert_eq!(encode_text(of, &read.value), compact(text), "{name}");
    });
}

#[test]
fn spec_8_1_protobuf_reads_the_same_and_writes_back_the_same() {
    if !go::is_here() {
        return;
    }
    check_all(|name, of, _, text, body| {
        let from_json = decode(of, text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}")).value;
        let read = protobuf::decode(of, body).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read, from_json, "{name}");
        assert!(protobuf::encode(of, &read) == body, "{name} is written differently");
    });
}

#[test]
fn the_pack_is_what_the_pinned_modules_say() {
    if !go::is_here() {
        return;
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/v1.35.8.pack.gz");
    let packed = fs::read(file).expect("the pack is part of the crate");
    let mut text = Vec::new();
    std::io::copy(&mut flate2::read::GzDecoder::new(&*packed), &mut text).expect("the pack is gzip");
    assert!(
        text == go::pack_lines(),
        "the pack is stale: run `go run ./pack -o ../../crates/schema/v1.35.8.pack.gz`"
    );
}
