//! An API server in this process, asked by kube-rs and with plain requests.

mod admission;
mod aggregator;
mod apply;
mod auth;
mod both;
mod clients;
mod corpus;
mod crd;
mod deadline;
mod depth;
mod discovery;
mod fuzz;
mod hostile;
mod jobs;
mod kinds;
mod kubectl;
mod large;
mod objects;
mod openapi;
mod patch;
mod pods;
mod serve;
mod services;
mod slow;
mod streams;
mod watch;

use apiserver::Cluster;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use rules::job::Settings;
use serde_json::Value;
use store::{Options, Store};

/// A cluster that keeps nothing.
async fn cluster() -> Cluster {
    let store = Store::open(Options::ephemeral()).expect("a store");
    Cluster::open(store, Settings::default()).await.expect("a cluster")
}

async fn client() -> Client {
    Client::new(cluster().await, "default")
}

/// Asks and returns code, body and warnings.
async fn ask(
    cluster: &Cluster,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value, Vec<String>) {
    let body = body.map(|body| serde_json::to_vec(body).expect("JSON prints")).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).body(Bytes::from(body)).expect("a request");
    let answer = cluster.answer(request).await;
    let warnings =
        answer.headers().get_all("Warning").iter().filter_map(|value| value.to_str().ok()).map(str::to_owned);
    let (code, warnings) = (answer.status().as_u16(), warnings.collect());
    let bytes = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings)
}
