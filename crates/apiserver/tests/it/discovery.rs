//! What a cluster tells about itself, next to what a real API server tells.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::{ask, client, cluster};

#[tokio::test]
async fn rule_1_8_1_9_health_and_version() {
    let cluster = cluster().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(ask(&cluster, Method::GET, path, None).await.0, 200, "{path}");
    }
    let version = client().await.apiserver_version().await.expect("a version");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "35"));
    assert!(
        version.git_version.starts_with("v1.35.") && !version.git_version.contains('-'),
        "{}",
        version.git_version
    );
}

#[tokio::test]
async fn rule_1_11_1_12_discovery_is_the_real_servers() {
    let Some(real) = testkit::ControlPlane::builder().for_test().await else { return };
    let ours = cluster().await;
    let client = real.client();
    for path in ["/apis/batch/v1", "/api/v1", "/apis/apps/v1", "/apis/policy/v1", "/apis/autoscaling/v2"] {
        let theirs: Value =
            client.request(Request::get(path).body(Vec::new()).expect("a request")).await.expect("an answer");
        let (code, mine, _) = ask(&ours, Method::GET, path, None).await;
        assert_eq!((code, by_name(&mine)), (200, by_name(&theirs)), "{path}");
    }
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for path in ["/api", "/apis"] {
        let request = Request::get(path).header("Accept", accept).body(Vec::new()).expect("a request");
        let theirs: Value = client.request(request).await.expect("an answer");
        let request = Request::get(path).header("Accept", accept).body(Bytes::new()).expect("a request");
        let answer = ours.answer(request).await;
        assert_eq!(answer.headers()["Content-Type"], accept, "clients decide by this header");
        let mine = answer.into_body().collect().await.expect("a body").to_bytes();
        let mine: Value = serde_json::from_slice(&mine).expect("JSON");
        assert_eq!(groups(&mine), groups(&theirs), "{path}");
    }
}

/// Entries sorted by name: their order has no meaning.
fn by_name(list: &Value) -> Vec<Value> {
    let mut entries = list["resources"].as_array().cloned().unwrap_or_default();
    entries.sort_by_key(|entry| entry["name"].to_string());
    entries
}

/// Group, version, resources and their subresources, in a comparable form.
fn groups(document: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for group in document["items"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            for resource in version["resources"].as_array().into_iter().flatten() {
                let mut resource = resource.clone();
                if let Some(subresources) = resource["subresources"].as_array_mut() {
                    subresources.sort_by_key(|entry| entry["subresource"].to_string());
                    for entry in subresources {
                        entry.as_object_mut().map(|fields| fields.remove("acceptedTypes"));
                    }
                }
                lines.push(format!("{} {} {resource}", group["metadata"]["name"], version["version"]));
            }
        }
    }
    lines.sort();
    lines
}
