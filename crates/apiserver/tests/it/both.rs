//! The same requests to our server and to a real one: the answers must be equal.

use std::sync::LazyLock;
use std::time::Duration;

use apiserver::{Cluster, Setup};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use regex::Regex;
use serde_json::Value;
use store::{Options, Store};
use testkit::ControlPlane;

/// Our server and a real one.
pub(crate) struct Both {
    ours: Client,
    real: Client,
    control_plane: ControlPlane,
}

impl Both {
    /// Both, if there can be a real one on this machine. Ours gives pods service accounts, as the real one does.
    pub(crate) async fn start() -> Option<Both> {
        let control_plane = ControlPlane::builder().for_test().await?;
        let store = Store::open(Options::ephemeral()).expect("a store");
        let setup = Setup { service_accounts: true, ..Setup::default() };
        let ours = Cluster::open_with(store, setup).await.expect("a cluster");
        let real = control_plane.client();
        Some(Both { ours: Client::new(ours, "default"), real, control_plane })
    }

    /// What both answer, which is the same: code and body.
    pub(crate) async fn ask(
        &self,
        headers: &[(&str, &str)],
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let ours = answer(&self.ours, headers, method, path, body).await;
        let real = answer(&self.real, headers, method, path, body).await;
        assert_eq!(ours, real, "{method} {path} {headers:?} {}", body.unwrap_or(&Value::Null));
        real
    }

    /// The codes of both, for answers in which more differs than can be taken out.
    pub(crate) async fn codes(&self, method: &Method, path: &str, body: &Value) -> (u16, u16) {
        let ours = answer(&self.ours, &[], method, path, Some(body)).await;
        let real = answer(&self.real, &[], method, path, Some(body)).await;
        (ours.0, real.0)
    }

    /// Posts an object to both.
    pub(crate) async fn make(&self, path: &str, body: &Value) {
        let (code, answer) = self.ask(&[], &Method::POST, path, Some(body)).await;
        assert_eq!(code, 201, "{answer}");
    }

    /// Waits until the real one refuses an object with these words: its admission reads what there is from caches, and may know of
    /// it a moment later.
    pub(crate) async fn until_real_refuses(&self, path: &str, object: &Value, why: &str) {
        let path = format!("{path}?dryRun=All");
        for _ in 0..100 {
            let (code, said) = answer(&self.real, &[], &Method::POST, &path, Some(object)).await;
            if code >= 400 && said["message"].as_str().is_some_and(|said| said.contains(why)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the real server does not say {why:?}");
    }

    /// The real one alone.
    pub(crate) fn real(&self) -> &Client {
        let _ = &self.control_plane;
        &self.real
    }

    /// Ours alone.
    pub(crate) fn ours(&self) -> &Client {
        &self.ours
    }
}

/// What one of them answers.
pub(crate) async fn answer(
    client: &Client,
    headers: &[(&str, &str)],
    method: &Method,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let body = body.map(|body| serde_json::to_vec(body).expect("JSON prints")).unwrap_or_default();
    let mut request = Request::builder().method(method).uri(path).header("User-Agent", "both");
    if !headers.iter().any(|(name, _)| *name == "Content-Type") {
        request = request.header("Content-Type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(Bytes::from(body))).expect("a request");
    let answer = client.send(request).await.expect("an answer");
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    let mut body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    normalize(&mut body);
    (code, body)
}

/// Takes out what differs from one server to the next, and from one run to the next.
pub(crate) fn normalize(value: &mut Value) {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        let time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z";
        Regex::new(&format!("{uuid}|{time}|kube-api-access-[a-z0-9]{{5}}|JTI=\\S+")).expect("a pattern")
    });
    match value {
        Value::Object(map) => {
            for key in ["resourceVersion", "managedFields"] {
                map.remove(key);
            }
            // The real one says of lists of custom resources that nothing follows.
            if map.get("continue").is_some_and(|next| next == "") {
                map.remove("continue");
            }
            if let Some(token) =
                map.get_mut("token").filter(|token| token.as_str().is_some_and(|t| t.len() > 100))
            {
                *token = Value::from("TOKEN");
            }
            // In whatever order a Go program finds the bindings.
            for key in ["resourceRules", "nonResourceRules"] {
                if let Some(list) = map.get_mut(key).and_then(Value::as_array_mut) {
                    list.sort_by_key(Value::to_string);
                }
            }
            map.values_mut().for_each(normalize);
        }
        Value::Array(list) => list.iter_mut().for_each(normalize),
        Value::String(text) => *text = WORDS.replace_all(text, "X").into_owned(),
        _ => {}
    }
}
