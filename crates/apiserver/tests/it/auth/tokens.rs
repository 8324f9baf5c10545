//! Tokens of service accounts.

use apiserver::Cluster;
use apiserver::auth::User;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};

use super::ask_as;
use crate::{ask, cluster};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

async fn with_account() -> Cluster {
    let cluster = cluster().await;
    let account = json!({"metadata": {"name": "bot"}});
    let path = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(ask(&cluster, Method::POST, path, Some(&account)).await.0, 201);
    cluster
}

async fn request(cluster: &Cluster, spec: Value) -> (u16, Value) {
    let path = "/api/v1/namespaces/default/serviceaccounts/bot/token";
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let (code, answer, _) = ask(cluster, Method::POST, path, Some(&body)).await;
    (code, answer)
}

async fn review(cluster: &Cluster, token: &str, audiences: &[&str]) -> Value {
    let body = json!({"spec": {"token": token, "audiences": audiences}});
    let (code, answer, _) = ask(cluster, Method::POST, REVIEWS, Some(&body)).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"].clone()
}

fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).expect("three parts");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("JSON")
}

#[tokio::test]
async fn rule_6_2_tokens_say_whose_they_are_for_whom_and_how_long() {
    let cluster = with_account().await;
    let (code, answer) = request(&cluster, json!({"audiences": ["a", "b"], "expirationSeconds": 600})).await;
    assert_eq!(code, 201, "{answer}");
    let token = answer["status"]["token"].as_str().expect("a token");
    let claims = claims(token);
    assert_eq!(claims["aud"], json!(["a", "b"]));
    assert_eq!(claims["exp"].as_i64(), claims["iat"].as_i64().map(|made| made + 600));
    assert_eq!(claims["sub"], "system:serviceaccount:default:bot");
    let status = review(&cluster, token, &["b", "c"]).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["b"])));
    let status = review(&cluster, token, &[]).await;
    assert!(status["error"].as_str().is_some_and(|why| why.contains("is invalid for the target audiences")));
}

#[tokio::test]
async fn rule_6_2_bound_tokens_end_with_what_they_are_bound_to() {
    let cluster = with_account().await;
    let secret = json!({"metadata": {"name": "s"}});
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(ask(&cluster, Method::POST, secrets, Some(&secret)).await.0, 201);
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s"}});
    let (_, answer) = request(&cluster, bound.clone()).await;
    let token = answer["status"]["token"].as_str().expect("a token");
    assert_eq!(review(&cluster, token, &[]).await["authenticated"], true);
    assert_eq!(ask(&cluster, Method::DELETE, &format!("{secrets}/s"), None).await.0, 200);
    let why = "[invalid bearer token, service account token has been invalidated]";
    assert_eq!(review(&cluster, token, &[]).await["error"], why);
    let (code, answer) = request(&cluster, bound).await;
    assert_eq!((code, &answer["message"]), (404, &json!("secrets \"s\" not found")));
}

#[tokio::test]
async fn rule_2_78_what_cannot_be_requested() {
    let cluster = with_account().await;
    for (spec, code, message) in [
        (
            json!({"expirationSeconds": 60}),
            422,
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a \
             duration less than 10 minutes",
        ),
        (
            json!({"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}}),
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}),
            404,
            "pods \"p\" not found",
        ),
    ] {
        let (got, answer) = request(&cluster, spec).await;
        assert_eq!((got, answer["message"].as_str()), (code, Some(message)));
    }
    let path = "/api/v1/namespaces/default/serviceaccounts/nobody/token";
    let (code, answer, _) = ask(&cluster, Method::POST, path, Some(&json!({}))).await;
    assert_eq!((code, &answer["message"]), (404, &json!("serviceaccounts \"nobody\" not found")));
}

#[tokio::test]
async fn rule_1_10_keys_for_whoever_checks_tokens_himself() {
    let cluster = with_account().await;
    let account = User::service_account("default", "bot").in_groups(["system:authenticated"]);
    let (code, keys) = ask_as(&cluster, &account, &[], Method::GET, "/openid/v1/jwks", None).await;
    assert_eq!((code, &keys["keys"][0]["alg"]), (200, &json!("ES256")));
    let path = "/.well-known/openid-configuration";
    let headers = [("Host", "127.0.0.1:6443")];
    let (code, config) = ask_as(&cluster, &account, &headers, Method::GET, path, None).await;
    assert_eq!((code, &config["jwks_uri"]), (200, &json!("https://127.0.0.1:6443/openid/v1/jwks")));
}
