//! Bodies of hundreds of thousands of small parts: what is done for each of them does not look at all the others, and what
//! is said of each does not repeat them. Each of these kept a thread busy for minutes, or filled the memory.

use std::fmt::Write as _;
use std::time::Duration;

use apiserver::Cluster;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{ask, cluster};

/// So many times a text, made with a number, with commas between.
fn many(times: usize, one: impl Fn(usize) -> String) -> String {
    let mut all = String::new();
    for number in 0..times {
        let comma = if number == 0 { "" } else { "," };
        write!(all, "{comma}{}", one(number)).expect("memory");
    }
    all
}

/// The same from the last to the first, so that each stands before all that were there.
fn backwards(times: usize, one: impl Fn(usize) -> String) -> String {
    many(times, |number| one(times - number))
}

/// Code and answer.
async fn send(cluster: &Cluster, method: Method, path: &str, body: String) -> (u16, Vec<u8>) {
    let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let answer = cluster.answer(request.body(Bytes::from(body)).expect("a request")).await;
    let code = answer.status().as_u16();
    (code, answer.into_body().collect().await.expect("bodies do not fail").to_bytes().to_vec())
}

async fn check(path: &str, body: String, code: u16) {
    let cluster = cluster().await;
    let (found, answer) = send(&cluster, Method::POST, path, body).await;
    let shown = String::from_utf8_lossy(&answer[..answer.len().min(300)]);
    assert_eq!(found, code, "{path}: {shown}");
    assert!(answer.len() < 128 * 1024 * 1024, "{path}: {} bytes", answer.len());
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(metadata: &str) -> String {
    format!(r#"{{"metadata":{{"name":"m",{metadata}}}}}"#)
}

#[tokio::test]
async fn many_bad_labels_are_refused() {
    check(MAPS, map(&format!(r#""labels":{{{}}}"#, many(80_000, |n| format!(r#""!{n}":"""#)))), 422).await;
}

#[tokio::test]
async fn many_finalizers_in_any_order_are_refused() {
    let finalizers = backwards(100_000, |n| format!(r#""f{n:06}""#));
    check(MAPS, map(&format!(r#""finalizers":[{finalizers}]"#)), 422).await;
}

#[tokio::test]
async fn many_owners_are_read() {
    let owners = |more: &str| {
        backwards(15_000, |n| {
            format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"a","uid":"{n:05}"{more}}}"#)
        })
    };
    check(MAPS, map(&format!(r#""ownerReferences":[{}]"#, owners(""))), 201).await;
    // Each that is one too many is told with all of them, but not 15,000 times.
    check(MAPS, map(&format!(r#""ownerReferences":[{}]"#, owners(r#","controller":true"#))), 422).await;
}

#[tokio::test]
async fn managers_of_many_fields_in_any_order_are_read() {
    let fields = backwards(40_000, |n| format!(r#""i:{n}":{{}}"#));
    let entry = format!(
        r#"{{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:x":{{{fields}}}}}}}"#
    );
    check(MAPS, map(&format!(r#""managedFields":[{entry}]"#)), 201).await;
}

#[tokio::test]
async fn many_items_of_built_in_kinds_are_refused() {
    let spec =
        |name: &str, items: &str| format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"{name}":[{items}]}}}}"#);
    let root = |name: &str, items: &str| {
        format!(r#"{{"metadata":{{"name":"x"}},"provisioner":"p","{name}":[{items}]}}"#)
    };
    let same = |times: usize, item: &str| many(times, |_| item.to_owned());
    for (path, body) in [
        ("/api/v1/namespaces/default/limitranges", spec("limits", &same(40_000, "{}"))),
        (
            "/api/v1/namespaces/default/services",
            spec("ports", &many(40_000, |n| format!(r#"{{"port":{n}}}"#))),
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            spec("scopes", &many(40_000, |n| format!(r#""s{n}""#))),
        ),
        ("/apis/storage.k8s.io/v1/storageclasses", root("allowedTopologies", &same(40_000, "{}"))),
        ("/apis/storage.k8s.io/v1/csinodes", spec("drivers", &same(20_000, r#"{"name":"a","nodeID":"b"}"#))),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            root("webhooks", &many(10_000, |n| format!(r#"{{"name":"a{n}.b.c"}}"#))),
        ),
    ] {
        check(path, body, 422).await;
    }
}

/// A cluster that serves a kind with this schema of its spec.
async fn serving(spec: Value) -> Cluster {
    let cluster = cluster().await;
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, found, _) = ask(&cluster, Method::POST, path, Some(&definition)).await;
    assert_eq!(code, 201, "{found}");
    while ask(&cluster, Method::GET, THINGS, None).await.0 == 404 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster
}

const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

fn thing(spec: &str) -> String {
    format!(r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"a"}},"spec":{spec}}}"#)
}

#[tokio::test]
async fn many_unknown_fields_of_a_custom_resource_are_dropped_and_told() {
    let cluster = serving(json!({"type": "object"})).await;
    let unknown = thing(&format!("{{{}}}", many(80_000, |n| format!(r#""u{n}":0"#))));
    let strict = format!("{THINGS}?fieldValidation=Strict");
    let (code, answer) = send(&cluster, Method::POST, &strict, unknown.clone()).await;
    let answer = String::from_utf8(answer).expect("text");
    assert!(code == 400 && answer.contains(r#"unknown field \"spec.u79999\""#), "{code}");
    let (code, _) = send(&cluster, Method::POST, THINGS, unknown).await;
    assert_eq!(code, 201);
    let twice = thing(&format!("{{{}}}", many(80_000, |n| format!(r#""u{}":0"#, n / 2))));
    let (code, answer) = send(&cluster, Method::POST, &strict, twice).await;
    let answer = String::from_utf8(answer).expect("text");
    // As many as Kubernetes tells.
    assert_eq!((code, answer.matches("duplicate field").count()), (400, 100));
}

#[tokio::test]
async fn many_wrong_items_of_a_custom_resource_are_refused() {
    let cluster = serving(
        json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}),
    )
    .await;
    let wrong = format!("[{}]", many(60_000, |_| "true".to_owned()));
    for name in ["a".to_owned(), "long".repeat(10_000)] {
        let (code, answer) =
            send(&cluster, Method::POST, THINGS, thing(&format!(r#"{{"{name}":{wrong}}}"#))).await;
        assert_eq!(code, 422);
        assert!(answer.len() < 256 * 1024 * 1024, "{} bytes", answer.len());
    }
}

#[tokio::test]
async fn many_items_of_a_custom_resource_are_compared_with_those_of_before() {
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "integer"}, "v": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self >= 0 || oldSelf == self"}]}}});
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item,
        "maxItems": 100_000});
    let cluster = serving(json!({"type": "object", "properties": {"list": list}})).await;
    let spec =
        |v: &str| format!(r#"{{"list":[{}]}}"#, backwards(20_000, |n| format!(r#"{{"k":{n},"v":{v}}}"#)));
    assert_eq!(send(&cluster, Method::POST, THINGS, thing(&spec("1"))).await.0, 201);
    let changed = format!(r#"{{"spec":{}}}"#, spec(r#""x""#));
    let request =
        Request::patch(format!("{THINGS}/a")).header("Content-Type", "application/merge-patch+json");
    let answer = cluster.answer(request.body(Bytes::from(changed)).expect("a request")).await;
    assert_eq!(answer.status(), 422);
    let changed = format!(r#"{{"spec":{}}}"#, spec("2"));
    let request =
        Request::patch(format!("{THINGS}/a")).header("Content-Type", "application/merge-patch+json");
    let answer = cluster.answer(request.body(Bytes::from(changed)).expect("a request")).await;
    assert!([200, 422].contains(&answer.status().as_u16()));
}
