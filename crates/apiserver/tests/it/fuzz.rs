//! Objects that are almost right, in every form in which they can be sent: nothing panics, every answer is one that a
//! client can read, and the server goes on. `FERRY_FUZZ_CASES` says how many; a few run with the tests.

use apiserver::Cluster;
use apiserver::auth::User;
use apiserver::registry::Registry;
use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::cluster;

fn cases() -> u32 {
    std::env::var("FERRY_FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// Collections and an object of each.
fn seeds() -> Vec<(&'static str, Value)> {
    vec![
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": "a", "labels": {"b": "c"}}, "data": {"d": "e"}}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "a"}, "stringData": {"d": "e"}, "type": "Opaque"}),
        ),
        (
            "/api/v1/namespaces/default/pods",
            json!({"metadata": {"name": "a"}, "spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}, "env": [{"name": "A", "value": "b"}]}]}}),
        ),
        (
            "/apis/batch/v1/namespaces/default/jobs",
            json!({"metadata": {"name": "a"}, "spec": {"parallelism": 2, "backoffLimit": 1, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
                   "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]}]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({"metadata": {"name": "a"}, "subjects": [{"kind": "User", "name": "u"}],
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            json!({"metadata": {"name": "a"}, "webhooks": [{"name": "x.example.com", "sideEffects": "None",
                "failurePolicy": "Ignore", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
                "clientConfig": {"url": "https://127.0.0.1:1/"}, "matchConditions": [{"name": "c", "expression": "true"}],
                "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["secrets"], "operations": ["*"]}]}]}),
        ),
        (
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            json!({"spec": {"user": "u", "groups": ["g"], "resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        ),
        (
            "/apis/authentication.k8s.io/v1/tokenreviews",
            json!({"spec": {"token": "a.b.c", "audiences": ["x"]}}),
        ),
        (
            "/api/v1/namespaces/default/limitranges",
            json!({"metadata": {"name": "a"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"},
                "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}]}}),
        ),
    ]
}

/// One place of an object is made something else.
#[derive(Debug, Clone)]
struct Edit {
    place: prop::sample::Index,
    to: Value,
    removes: bool,
}

fn edits() -> impl Strategy<Value = Edit> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        ".{0,12}".prop_map(|text| json!(text)),
        Just(json!("9".repeat(40))),
        Just(json!("1e999999999")),
        Just(json!("-1Ei")),
    ];
    let anything = leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|list| json!(list)),
            proptest::collection::btree_map("[a-zA-Z$./~]{0,8}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    });
    (any::<prop::sample::Index>(), anything, prop::bool::weighted(0.3))
        .prop_map(|(place, to, removes)| Edit { place, to, removes })
}

/// The pointers to everything in a document.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    let step = |part: &str| format!("{at}/{}", part.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            out.push(step(key));
            places(value, &step(key), out);
        }),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| {
            out.push(step(&i.to_string()));
            places(value, &step(&i.to_string()), out);
        }),
        _ => {}
    }
}

fn edited(mut object: Value, edits: &[Edit]) -> Value {
    for edit in edits {
        let mut all = Vec::new();
        places(&object, "", &mut all);
        if all.is_empty() {
            break;
        }
        let place = edit.place.get(&all);
        let (parent, key) = place.rsplit_once('/').expect("a pointer has a slash");
        let key = key.replace("~1", "/").replace("~0", "~");
        match (object.pointer_mut(parent), edit.removes) {
            (Some(Value::Object(map)), true) => drop(map.remove(&key)),
            (Some(Value::Object(map)), false) => drop(map.insert(key, edit.to.clone())),
            (Some(Value::Array(list)), _) => list.push(edit.to.clone()),
            _ => {}
        }
    }
    object
}

const FORMS: [&str; 7] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The bytes of an object in one of the forms.
fn written(path: &str, object: &Value, form: &str) -> Vec<u8> {
    match form {
        "application/vnd.kubernetes.protobuf" => {
            let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
            let plural = parts.last().expect("a resource");
            let (group, version) = if parts[0] == "api" { ("", parts[1]) } else { (parts[1], parts[2]) };
            let resource = Registry::built_in().get(group, version, plural).expect("a resource");
            match schema::decode_value(resource.of_type(), object) {
                Ok(decoded) => schema::protobuf::encode(resource.of_type(), &decoded.value),
                Err(_) => b"k8s\0\x0a\x04\x0a\x02v1".to_vec(),
            }
        }
        "application/json-patch+json" => {
            let mut all = Vec::new();
            places(object, "", &mut all);
            let operations: Vec<Value> = all
                .iter()
                .map(|place| json!({"op": "replace", "path": place, "value": object.pointer(place)}))
                .collect();
            json!(operations).to_string().into_bytes()
        }
        _ => object.to_string().into_bytes(),
    }
}

async fn send(cluster: &Cluster, request: Request<Bytes>) -> (u16, Value) {
    let what = format!("{} {}", request.method(), request.uri());
    let answer = cluster.answer(request).await;
    let (code, kind) = (answer.status().as_u16(), answer.headers().get("Content-Type").cloned());
    let bytes = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
    let is_json = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let body = if is_json { serde_json::from_slice(&bytes).expect("JSON") } else { Value::Null };
    if code >= 400 && is_json {
        assert_eq!(body["kind"], "Status", "{what}");
        assert_eq!(body["code"], json!(code), "{what}");
        assert_ne!(body["reason"], "InternalError", "{what}: {body}");
    }
    (code, body)
}

#[test]
fn almost_right_objects_in_every_form() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cluster = runtime.block_on(cluster());
    let mut runner =
        TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let flips = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let input =
        (0..seeds().len(), 0..FORMS.len(), proptest::collection::vec(edits(), 0..4), flips, "[a-zA-Z]{0,5}");
    let tried = runner.run(&input, |(seed, form, edits, flips, validation)| {
        let (path, object) = seeds().remove(seed);
        let object = edited(object, &edits);
        let mut bytes = written(path, &object, FORMS[form]);
        for (at, byte) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let methods: &[Method] = if form < 3 { &[Method::POST, Method::PUT] } else { &[Method::PATCH] };
        runtime.block_on(async {
            for method in methods {
                let name = if method == Method::POST { "" } else { "/a" };
                let uri = format!("{path}{name}?fieldManager=fuzz&fieldValidation={validation}");
                let request = Request::builder().method(method).uri(uri).header("Content-Type", FORMS[form]);
                send(&cluster, request.body(Bytes::from(bytes.clone())).expect("a request")).await;
            }
            let (code, _) = send(&cluster, Request::get(path).body(Bytes::new()).expect("a request")).await;
            // What was stored can be listed, where anything can be.
            prop_assert!(matches!(code, 200 | 405), "{path}: {code}");
            Ok(())
        })
    });
    tried.expect("every body gets an answer");
}

#[test]
fn selectors_and_queries() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cluster = runtime.block_on(cluster());
    let mut runner =
        TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let selector = proptest::collection::vec(
        prop_oneof![
            Just("a"),
            Just("="),
            Just("!="),
            Just("=="),
            Just(" in "),
            Just(" notin "),
            Just("("),
            Just(")"),
            Just(","),
            Just("!"),
            Just(">"),
            Just("<"),
            Just("1"),
            Just("metadata.name"),
            Just("\\"),
            Just("é"),
            Just(" "),
            Just("/"),
        ],
        0..8,
    );
    let input = (selector.clone(), selector, ".{0,20}", ".{0,20}");
    let tried = runner.run(&input, |(labels, fields, limit, version)| {
        let encoded = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let (labels, fields) = (encoded(&labels.concat()), encoded(&fields.concat()));
        let (limit, version) = (encoded(&limit), encoded(&version));
        runtime.block_on(async {
            for path in ["/api/v1/pods", "/apis/batch/v1/jobs"] {
                let query = format!("labelSelector={labels}&fieldSelector={fields}");
                for more in [
                    "",
                    &format!("&limit={limit}"),
                    &format!("&continue={version}&resourceVersion={version}"),
                ] {
                    let request = Request::get(format!("{path}?{query}{more}"));
                    let (code, body) = send(&cluster, request.body(Bytes::new()).expect("a request")).await;
                    prop_assert!(matches!(code, 200 | 400 | 410 | 422 | 500 | 504), "{code} {body}");
                }
            }
            Ok(())
        })
    });
    tried.expect("every query gets an answer");
}

#[test]
fn strangers_with_strange_names() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let cluster = runtime.block_on(cluster());
    let mut runner =
        TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    let input = (".{0,20}", ".{0,20}", "[a-zA-Z0-9%-]{0,12}", "[ -~]{0,40}");
    let tried = runner.run(&input, |(name, group, extra, path)| {
        let value =
            |text: &str| HeaderValue::from_bytes(text.as_bytes()).unwrap_or(HeaderValue::from_static("x"));
        let path: String =
            path.chars().filter(|c| c.is_ascii_alphanumeric() || "/%.-_".contains(*c)).collect();
        let mut request = Request::get(format!("/{path}")).body(Bytes::new()).expect("a request");
        let headers = request.headers_mut();
        headers.insert("Impersonate-User", value(&name));
        headers.append("Impersonate-Group", value(&group));
        if let Ok(key) = format!("Impersonate-Extra-{extra}").parse::<http::HeaderName>() {
            headers.append(key, value(&group));
        }
        request.extensions_mut().insert(std::sync::Arc::new(User::named(name)));
        runtime.block_on(async {
            let (code, body) = send(&cluster, request).await;
            // Nothing is allowed, under whatever name; at most it is told that nothing is there.
            prop_assert!(matches!(code, 400 | 403), "{code} {body}");
            Ok(())
        })
    });
    tried.expect("nobody gets in");
}
