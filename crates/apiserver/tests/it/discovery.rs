//! What a cluster tells about itself, next to what a real API server tells.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::both::Both;
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

/// Names that dashboards ask for, and what they count.
#[tokio::test]
async fn metrics_count_requests_and_objects() {
    let cluster = cluster().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let path = "/api/v1/namespaces/default/configmaps";
    assert_eq!(ask(&cluster, Method::POST, path, Some(&map)).await.0, 201);
    assert_eq!(ask(&cluster, Method::POST, path, Some(&map)).await.0, 409);
    assert_eq!(ask(&cluster, Method::GET, "/api/v1/unheard/of/things", None).await.0, 404);
    let request = Request::get("/metrics").body(Bytes::new()).expect("a request");
    let answer = cluster.answer(request).await;
    assert_eq!(answer.headers()["Content-Type"], "text/plain; version=0.0.4; charset=utf-8");
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(body.to_vec()).expect("text");
    let of = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"POST\",version=\"v1\"";
    for line in [
        format!("apiserver_request_total{{code=\"201\",{of}}} 1"),
        format!("apiserver_request_total{{code=\"409\",{of}}} 1"),
        format!("apiserver_request_duration_seconds_bucket{{{of},le=\"+Inf\"}} 2"),
        format!("apiserver_request_duration_seconds_count{{{of}}} 2"),
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1".to_owned(),
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0".to_owned(),
        "apiserver_storage_objects{resource=\"configmaps\"} 1".to_owned(),
        "apiserver_resource_objects{group=\"\",resource=\"configmaps\"} 1".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("unheard"), "what is not served has no label");
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))?.parse::<f64>().ok());
        assert!(value.is_some_and(|value| value > 0.0), "{name}: {value:?}");
    }
}

/// What a real server has more of are hooks of its parts, and what it promises and does not serve.
#[tokio::test]
async fn rule_1_9_the_index_names_what_is_told_as_a_real_one_does() {
    let Some(both) = Both::start().await else { return };
    for path in ["/", "/index.html"] {
        let text = |client: kube::Client| async move {
            let request = Request::get(path).body(Vec::new()).expect("a request");
            client.request_text(request).await.expect("an answer")
        };
        let paths = |text: &str| -> Vec<String> {
            let index: Value = serde_json::from_str(text).expect("JSON");
            serde_json::from_value(index["paths"].clone()).expect("paths")
        };
        let (ours, real) = (text(both.ours().clone()).await, text(both.real().clone()).await);
        let is_real_alone = |path: &&String| {
            let more =
                ["/poststarthook/", "/autoregister-completion", "/informer-sync", "/shutdown", "/slis"];
            more.iter().any(|part| path.contains(part)) || **path == "/openapi/v3/"
        };
        let expected: Vec<String> =
            paths(&real).iter().filter(|path| !is_real_alone(path)).cloned().collect();
        assert_eq!(paths(&ours), expected, "{path}");
        assert!(ours.starts_with("{\n  \"paths\": [\n    \"/.well-known"), "it is there to be read: {ours}");
        for path in paths(&ours) {
            let request = Request::get(&path).body(Vec::new()).expect("a request");
            assert!(both.ours().request_text(request).await.is_ok(), "{path}");
        }
    }
}
