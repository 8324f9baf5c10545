//! Who may do what.

mod authn;
mod differential;
mod front_proxy;
mod rbac;
mod reviews;
mod tokens;

use std::sync::Arc;

use apiserver::Cluster;
use apiserver::auth::User;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::Value;

/// Asks as somebody, with headers, and returns code and body.
async fn ask_as(
    cluster: &Cluster,
    user: &User,
    headers: &[(&str, &str)],
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let body = body.map(|body| serde_json::to_vec(body).expect("JSON prints")).unwrap_or_default();
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Bytes::from(body)).expect("a request");
    request.extensions_mut().insert(Arc::new(user.clone()));
    let answer = cluster.answer(request).await;
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}
