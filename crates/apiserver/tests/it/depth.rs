//! Nothing that a client sends nests so deep that the server could not read it again, in whatever form it comes: what is
//! walked recursively would end the process, and with it every cluster in it.

use apiserver::Cluster;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{ask, cluster};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ANYTHING: &str = "/apis/example.com/v1/namespaces/default/anythings";

/// A cluster with a kind whose objects may be anything, and an object of it.
async fn with_anything() -> Cluster {
    let cluster = cluster().await;
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "anythings.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "anythings", "singular": "anything", "kind": "Anything"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": any}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, found, _) = ask(&cluster, Method::POST, path, Some(&definition)).await;
    assert_eq!(code, 201, "{found}");
    let object = anything("a", json!({}));
    while ask(&cluster, Method::POST, ANYTHING, Some(&object)).await.0 == 404 {
        tokio::task::yield_now().await;
    }
    cluster
}

fn anything(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Anything", "metadata": {"name": name}, "spec": spec})
}

/// As many objects, each in the next one.
fn deep(levels: usize) -> Value {
    (1..levels).fold(json!({}), |inner, _| json!({"a": inner}))
}

async fn send(cluster: &Cluster, method: Method, path: &str, media: &str, body: String) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("Content-Type", media);
    let answer = cluster.answer(request.body(Bytes::from(body)).expect("a request")).await;
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// It is there, its collection can be read by anybody, and it can still be changed.
async fn serves(cluster: &Cluster, name: &str) {
    let path = format!("{ANYTHING}/{name}");
    assert_eq!(ask(cluster, Method::GET, &path, None).await.0, 200);
    let (code, list, _) = ask(cluster, Method::GET, ANYTHING, None).await;
    assert!(code == 200 && list["items"].is_array(), "{code} {list}");
    let request = Request::get(ANYTHING).header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let answer = cluster.answer(request.body(Bytes::new()).expect("a request")).await;
    assert_eq!(answer.status(), 200);
    let label = json!({"metadata": {"labels": {"x": "y"}}}).to_string();
    let (code, found) = send(cluster, Method::PATCH, &path, "application/merge-patch+json", label).await;
    assert_eq!(code, 200, "{found}");
}

#[tokio::test]
async fn a_patch_with_a_path_of_many_steps_is_answered() {
    let cluster = cluster().await;
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "b"}});
    assert_eq!(ask(&cluster, Method::POST, MAPS, Some(&map)).await.0, 201);
    let long = "/a".repeat(500_000);
    for patch in [
        json!([{"op": "add", "path": "/data", "value": 5, "from": long}]),
        json!([{"op": "add", "path": "/data", "value": 5}, {"op": "test", "path": long}]),
        json!([{"op": "copy", "path": "/data/x", "from": long}]),
        json!([{"op": "move", "path": long, "from": "/data/a"}]),
        json!([{"op": "add", "path": "/data", "value": 5}, {"op": "test", "path": "/data", "value": 5, "from": long}]),
    ] {
        let path = format!("{MAPS}/m");
        let (code, _) =
            send(&cluster, Method::PATCH, &path, "application/json-patch+json", patch.to_string()).await;
        assert_eq!(code, 422);
    }
}

#[tokio::test]
async fn an_object_as_deep_as_any_may_be_is_served_and_a_deeper_one_is_refused() {
    let cluster = with_anything().await;
    for (media, name) in [("application/json", "json"), ("application/yaml", "yaml")] {
        let fits = anything(name, deep(schema::MAX_DEPTH - 1)).to_string();
        let (code, found) = send(&cluster, Method::POST, ANYTHING, media, fits).await;
        assert_eq!(code, 201, "{media}: {found}");
        serves(&cluster, name).await;
        for levels in [schema::MAX_DEPTH, 124, 125, 126, 127, 128, 200, 100_000] {
            // Not by way of a value, which could not be dropped.
            let spec = format!("{}{}", "{\"a\":".repeat(levels - 1) + "{", "}".repeat(levels));
            let object = anything("too-deep", json!("SPEC")).to_string().replace("\"SPEC\"", &spec);
            let (code, found) = send(&cluster, Method::POST, ANYTHING, media, object).await;
            assert_eq!(code, 400, "{media}, {levels} levels: {found}");
        }
    }
    let path = format!("{ANYTHING}/applied?fieldManager=m");
    let apply = "application/apply-patch+yaml";
    let fits = anything("applied", deep(schema::MAX_DEPTH - 1)).to_string();
    let (code, found) = send(&cluster, Method::PATCH, &path, apply, fits).await;
    assert_eq!(code, 201, "{found}");
    serves(&cluster, "applied").await;
    let deeper = anything("applied", deep(schema::MAX_DEPTH)).to_string();
    assert_eq!(send(&cluster, Method::PATCH, &path, apply, deeper).await.0, 400);
}

#[tokio::test]
async fn patches_make_no_object_deeper_than_any_may_be() {
    let cluster = with_anything().await;
    let path = format!("{ANYTHING}/a");
    let json_patch = "application/json-patch+json";
    let patch = |levels| json!([{"op": "add", "path": "/spec/a", "value": deep(levels)}]).to_string();
    let fits = send(&cluster, Method::PATCH, &path, json_patch, patch(schema::MAX_DEPTH - 2)).await;
    assert_eq!(fits.0, 200, "{}", fits.1);
    serves(&cluster, "a").await;
    let within = format!("/spec{}", "/a".repeat(schema::MAX_DEPTH - 1));
    let deeper = json!([{"op": "add", "path": within, "value": {"a": {}}}]).to_string();
    assert_eq!(send(&cluster, Method::PATCH, &path, json_patch, deeper).await.0, 422);
    // Each copy lies in what is copied, which is twice as deep then.
    let mut copies = vec![json!({"op": "replace", "path": "/spec", "value": {"a": {}}})];
    copies.extend((1..18).map(
        |of| json!({"op": "copy", "from": "/spec", "path": format!("/spec{}", "/a".repeat(2_usize.pow(of)))}),
    ));
    let copies = json!(copies).to_string();
    assert_eq!(send(&cluster, Method::PATCH, &path, json_patch, copies).await.0, 422);
    let merge = json!({"spec": deep(schema::MAX_DEPTH)}).to_string();
    let (code, _) = send(&cluster, Method::PATCH, &path, "application/merge-patch+json", merge).await;
    assert_eq!(code, 400);
    serves(&cluster, "a").await;
}
