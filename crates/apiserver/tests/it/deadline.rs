//! How long requests may take, here and on a real server.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::admission::webhooks::Hook;
use crate::client;

const MAPS: &str = "/api/v1/namespaces/n/configmaps";

/// A client of a real server that does not ask again when it is told to come back later.
pub(crate) fn asks_once(real: &ControlPlane) -> Client {
    let mut config = real.config();
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

/// What is answered: code, media type and body.
pub(crate) async fn answer(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
) -> (u16, String, Value) {
    try_answer(client, method, path, body).await.expect("an answer")
}

async fn try_answer(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
) -> kube::Result<(u16, String, Value)> {
    let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let request = request.body(Body::from(Bytes::from(body.to_string()))).expect("a request");
    let answer = client.send(request).await?;
    let media = answer.headers().get("Content-Type").and_then(|media| media.to_str().ok());
    let (code, media) = (answer.status().as_u16(), media.unwrap_or("").to_owned());
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    Ok((code, media, serde_json::from_slice(&bytes).unwrap_or_default()))
}

/// What is answered to a write of which a webhook thinks for longer than its sender wants to wait. A real server that has
/// much to do may end the connection instead of answering, and is asked again.
async fn late(client: &Client, hook: &Hook, is_real: bool) -> (u16, String, Value) {
    let namespace = json!({"metadata": {"name": "n"}});
    assert_eq!(answer(client, Method::POST, "/api/v1/namespaces", &namespace).await.0, 201);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let webhook = json!({
        "name": "slow.example.com", "clientConfig": hook.config("/slow"), "rules": [rule], "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [webhook]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(answer(client, Method::POST, path, &configuration).await.0, 201);
    let map = json!({"metadata": {"name": "a"}});
    let asking = async {
        loop {
            // A real server learns of configurations a moment later.
            match try_answer(client, Method::POST, &format!("{MAPS}?dryRun=All&timeout=1s"), &map).await {
                Ok((201, ..)) => {}
                Err(_) if is_real => {}
                answered => return answered.expect("an answer"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("an answer in time")
}

#[tokio::test]
async fn rule_1_3_a_slow_webhook_is_waited_for_as_long_as_the_client_says() {
    let hook = Hook::start().await;
    let ours = late(&client().await, &hook, false).await;
    let why = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((ours.0, &ours.2["message"]), (504, &json!(why)));
    let Some(real) = ControlPlane::builder().for_test().await else { return };
    assert_eq!(ours, late(&asks_once(&real), &hook, true).await);
}
