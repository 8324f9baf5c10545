//! OpenAPI v3: the documents of a real API server, but for the words.

use apiserver::Cluster;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::crd::differential::CLUSTER;
use crate::{ask, cluster};

/// What only a server with these endpoints documents.
const ELSEWHERE: [&str; 3] = [".well-known/openid-configuration", "openid/v1/jwks", "version"];

async fn get(cluster: &Cluster, path: &str, header: Option<(&str, &str)>) -> (u16, HeaderMap, Bytes) {
    let mut request = Request::get(path);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let (head, body) = cluster.answer(request.body(Bytes::new()).expect("a request")).await.into_parts();
    (head.status.as_u16(), head.headers, body.collect().await.expect("bodies do not fail").to_bytes())
}

async fn document(cluster: &Cluster, path: &str) -> Value {
    let (code, _, bytes) = get(cluster, path, None).await;
    assert_eq!(code, 200, "{path}");
    serde_json::from_slice(&bytes).expect("JSON")
}

async fn real_document(client: &Client, path: &str) -> Value {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let bytes =
        client.send(request).await.expect("an answer").into_body().collect_bytes().await.expect("a body");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// A document without descriptions, and without what says nothing: maps are granular unless they are something else.
fn bare(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(name, value)| {
                !(name == "description" && value.is_string()
                    || name == "x-kubernetes-map-type" && value == "granular")
            })
            .map(|(name, value)| (name, bare(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(bare).collect(),
        other => other,
    }
}

/// Fails with all places where two documents differ.
fn same(path: &str, ours: &Value, real: &Value) {
    let mut differences = Vec::new();
    compare(path, ours, real, &mut differences);
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences[..differences.len().min(20)].join("\n")
    );
}

fn compare(path: &str, ours: &Value, real: &Value, into: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => compare(&format!("{path}/{name}"), a, b, into),
                    (a, b) => into.push(format!("{path}/{name}: ours {a:?}, real {b:?}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}/{i}"), a, b, into);
            }
        }
        (a, b) if a == b => {}
        (a, b) => into.push(format!("{path}: ours {a}, real {b}")),
    }
}

#[tokio::test]
async fn rule_1_18_the_documents_are_those_of_a_real_server() {
    let Some(real) = CLUSTER.for_test().await else { return };
    let (real, ours) = (real.client(), cluster().await);
    let index = document(&ours, "/openapi/v3").await;
    let wanted = real_document(&real, "/openapi/v3").await;
    let names = |index: &Value| -> Vec<String> {
        let paths = index["paths"].as_object().into_iter().flat_map(|paths| paths.keys().cloned());
        // Other tests define kinds on the shared server.
        paths
            .filter(|path| {
                !ELSEWHERE.contains(&path.as_str())
                    && !path.contains("example.com")
                    && !path.contains("kueue")
            })
            .collect()
    };
    let built_in: Vec<String> = names(&index);
    for path in &built_in {
        assert!(names(&wanted).contains(path), "{path} is not a real server's");
        let path = format!("/openapi/v3/{path}");
        same(&path, &bare(document(&ours, &path).await), &bare(real_document(&real, &path).await));
    }
    let missing: Vec<String> = names(&wanted)
        .into_iter()
        .filter(|path| {
            !built_in.contains(path)
                && path.split('/').nth(1).is_none_or(|group| {
                    !group.contains('.') || group.ends_with(".k8s.io") && !group.contains("x-k8s")
                })
        })
        .collect();
    assert_eq!(missing, Vec::<String>::new());
    assert!(built_in.len() > 40, "{}", built_in.len());
}

#[tokio::test]
async fn fields_have_descriptions() {
    let ours = cluster().await;
    let batch = document(&ours, "/openapi/v3/apis/batch/v1").await;
    for (name, component) in batch["components"]["schemas"].as_object().expect("components") {
        for (field, schema) in component["properties"].as_object().into_iter().flatten() {
            assert!(schema["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}.{field}");
        }
    }
}

#[tokio::test]
async fn rule_1_17_documents_are_kept_by_their_hash() {
    let ours = cluster().await;
    let (_, headers, bytes) = get(&ours, "/openapi/v3", None).await;
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8", "as §9 says");
    let index: Value = serde_json::from_slice(&bytes).expect("JSON");
    let url = index["paths"]["apis/batch/v1"]["serverRelativeURL"].as_str().expect("an address").to_owned();
    let (code, headers, _) = get(&ours, &url, None).await;
    assert_eq!((code, headers["cache-control"].to_str().ok()), (200, Some("public, immutable")));
    assert!(headers.contains_key("expires"));
    let tag = headers["etag"].to_str().expect("text").to_owned();
    let (code, _, bytes) = get(&ours, "/openapi/v3/apis/batch/v1", Some(("If-None-Match", &tag))).await;
    assert_eq!((code, bytes.len()), (304, 0));
    let (code, headers, _) = get(&ours, "/openapi/v3/apis/batch/v1?hash=OLD", None).await;
    assert_eq!((code, headers["location"].to_str().ok()), (301, Some(url.as_str())));
    let protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
    assert_eq!(get(&ours, "/openapi/v3/apis/batch/v1", Some(("Accept", protobuf))).await.0, 406);
    let either = format!("{protobuf},application/json");
    assert_eq!(get(&ours, "/openapi/v3/apis/batch/v1", Some(("Accept", &either))).await.0, 200);
}

fn gadgets(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.openapi.example.com"},
        "spec": {"group": "openapi.example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.a"}],
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                "schema": {"openAPIV3Schema": {"type": "object", "description": "a gadget", "properties": {"spec": spec, "status": {"type": "object"}}}}}]},
    })
}

fn spec() -> Value {
    json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "string", "description": "the a", "default": "x", "maxLength": 9}, "n": {"type": "integer", "format": "int32"},
        "i": {"x-kubernetes-int-or-string": true}, "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "nullable": true},
    }, "x-kubernetes-validations": [{"rule": "self.a != 'b'"}]})
}

#[tokio::test]
async fn rule_1_19_defined_kinds_are_documented_as_by_a_real_server() {
    let Some(real) = CLUSTER.for_test().await else { return };
    let (real, ours) = (real.client(), cluster().await);
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = gadgets(&spec());
    assert_eq!(ask(&ours, Method::POST, definitions, Some(&definition)).await.0, 201);
    let request = Request::post(definitions).header("Content-Type", "application/json");
    let body = Body::from(serde_json::to_vec(&definition).expect("JSON prints"));
    assert_eq!(real.send(request.body(body).expect("a request")).await.expect("an answer").status(), 201);
    let path = "/openapi/v3/apis/openapi.example.com/v1";
    let documented = async {
        loop {
            let found = real_document(&real, "/openapi/v3").await;
            if found["paths"].get("apis/openapi.example.com/v1").is_some() {
                return real_document(&real, path).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let wanted = tokio::time::timeout(std::time::Duration::from_secs(60), documented).await.expect("in time");
    // Which groups have options of their own is a matter of what a server is made of.
    let bare = |document: Value| {
        let mut document = bare(document);
        let options = "/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
        let options =
            document.pointer_mut(options).and_then(Value::as_object_mut).expect("options are documented");
        assert!(options.remove("x-kubernetes-group-version-kind").is_some());
        document
    };
    same(path, &bare(document(&ours, path).await), &bare(wanted));
}

#[tokio::test]
async fn rule_1_14_documents_follow_their_definitions() {
    let ours = cluster().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(ask(&ours, Method::POST, definitions, Some(&gadgets(&spec()))).await.0, 201);
    let path = "/openapi/v3/apis/openapi.example.com/v1";
    let component = "/components/schemas/com.example.openapi.v1.Gadget/properties/spec/properties";
    let fields =
        |document: &Value| document.pointer(component).and_then(Value::as_object).map(serde_json::Map::len);
    assert_eq!(fields(&document(&ours, path).await), Some(7));
    let item = format!("{definitions}/gadgets.openapi.example.com");
    let (_, mut stored, _) = ask(&ours, Method::GET, &item, None).await;
    stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["new"] =
        json!({"type": "string"});
    assert_eq!(ask(&ours, Method::PUT, &item, Some(&stored)).await.0, 200);
    assert_eq!(fields(&document(&ours, path).await), Some(8));
}

#[tokio::test]
async fn rule_1_21_the_older_form_is_there_in_json_and_only_so() {
    let ours = cluster().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(ask(&ours, Method::POST, definitions, Some(&gadgets(&spec()))).await.0, 201);
    let all = document(&ours, "/openapi/v2").await;
    assert_eq!(
        (&all["swagger"], &all["definitions"]["io.k8s.api.coordination.v1.LeaseSpec"]["type"]),
        (&json!("2.0"), &json!("object"))
    );
    assert_eq!(
        all["definitions"]["com.example.openapi.v1.Gadget"]["properties"]["spec"]["properties"]["a"]["type"],
        "string"
    );
    let patch = &all["paths"]["/apis/openapi.example.com/v1/namespaces/{namespace}/gadgets/{name}"]["patch"];
    assert_eq!(patch["parameters"][0]["in"], "body");
    // Whatever is referred to is there.
    let mut found = Vec::new();
    referred(&all, &mut found);
    assert!(found.len() > 1000);
    for reference in found {
        let name = reference.strip_prefix("#/definitions/").unwrap_or_default();
        assert!(all["definitions"].get(name).is_some(), "{reference}");
    }
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    assert_eq!(get(&ours, "/openapi/v2", Some(("Accept", protobuf))).await.0, 406, "rule 8.13");
}

fn referred<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            into.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| referred(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| referred(value, into)),
        _ => {}
    }
}
