//! Plugins in the same process.

use std::sync::Arc;

use apiserver::admission::{Operation, Plugin, Request};
use apiserver::registry::Resource;
use apiserver::status::{About, Refusal};
use apiserver::{Cluster, Setup};
use futures::future::{BoxFuture, ready};
use http::Method;
use serde_json::json;
use store::{Options, Store};

use crate::ask;

/// Marks ConfigMaps, and refuses those that say so and all removals of those that are kept.
struct Marks;

impl Plugin for Marks {
    fn wants(&self, _: Operation, resource: &Resource, subresource: &str) -> bool {
        resource.plural == "configmaps" && subresource.is_empty()
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        if let Some(object) = &mut request.object {
            object["metadata"]["labels"]["marked"] = json!(request.operation.to_string().to_lowercase());
        }
        Box::pin(ready(Ok(())))
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let seen = request.object.as_ref().or(request.old);
        let says = |what: &str| seen.is_some_and(|object| object["data"][what] == "yes");
        request.warn(format!("{} by {}", request.operation, request.user.name));
        let about = About { group: "", resource: "configmaps", name: &request.name };
        let is_refused = says("bad") || says("kept") && request.operation == Operation::Delete;
        let verdict = if is_refused { Err(Refusal::forbidden(about, "it says so")) } else { Ok(()) };
        Box::pin(ready(verdict))
    }
}

#[tokio::test]
async fn plugins_change_refuse_and_warn() {
    let store = Store::open(Options::ephemeral()).expect("a store");
    let setup = Setup { plugins: vec![Arc::new(Marks)], ..Setup::default() };
    let cluster = Cluster::open_with(store, setup).await.expect("a cluster");
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |data: serde_json::Value| json!({"metadata": {"name": "a"}, "data": data});

    let (code, made, warnings) = ask(&cluster, Method::POST, maps, Some(&map(json!({"kept": "yes"})))).await;
    assert_eq!((code, &made["metadata"]["labels"]["marked"]), (201, &json!("create")));
    assert_eq!(warnings, ["299 - \"CREATE by system:apiserver\""]);

    let path = format!("{maps}/a");
    let (code, changed, _) =
        ask(&cluster, Method::PUT, &path, Some(&map(json!({"kept": "yes", "b": "c"})))).await;
    assert_eq!((code, &changed["metadata"]["labels"]["marked"]), (200, &json!("update")));

    let (code, status, _) = ask(&cluster, Method::PUT, &path, Some(&map(json!({"bad": "yes"})))).await;
    assert_eq!((code, &status["message"]), (403, &json!("configmaps \"a\" is forbidden: it says so")));
    let (code, ..) = ask(&cluster, Method::DELETE, &path, None).await;
    assert_eq!(code, 403);
    let (code, kept, _) = ask(&cluster, Method::GET, &path, None).await;
    assert_eq!((code, &kept["data"]["b"]), (200, &json!("c")), "what is refused changes nothing");
}
