//! Prints the objects that a real API server makes when it starts for the first time, as facts: `cargo run -p testkit
//! --example boot_objects`. The API server's table of its own first objects is made of it.

use http::Request;
use kube::Client;
use serde_json::{Map, Value};

/// What is made once and the same everywhere: default roles and bindings, priorities, and flow control.
const PATHS: [&str; 7] = [
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
];

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = testkit::ControlPlane::builder().start().await?;
    let client = cluster.client();
    wait_until_made(&client).await?;
    let mut objects = Vec::new();
    for path in PATHS {
        objects.extend(listed(&client, path).await?);
    }
    println!("[");
    for (i, object) in objects.iter().enumerate() {
        println!("{object}{}", if i + 1 < objects.len() { "," } else { "" });
    }
    println!("]");
    Ok(())
}

/// The server makes them in the background, and tells in its readiness when it is done.
async fn wait_until_made(client: &Client) -> anyhow::Result<()> {
    while client.request_text(Request::get("/readyz").body(Vec::new())?).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn listed(client: &Client, path: &str) -> anyhow::Result<Vec<Value>> {
    let text = client.request_text(Request::get(path).body(Vec::new())?).await?;
    let list: Value = serde_json::from_str(&text)?;
    let kind = list["kind"].as_str().unwrap_or("").trim_end_matches("List");
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().map(|item| facts(kind, &list["apiVersion"], item)).collect())
}

/// An object without what differs from one server to the next.
fn facts(kind: &str, version: &Value, mut object: Value) -> Value {
    object["kind"] = kind.into();
    object["apiVersion"] = version.clone();
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
        object.remove("description"); // a sentence, and no fact
    }
    let meta = object["metadata"].as_object().cloned().unwrap_or_default();
    let kept = ["name", "namespace", "labels", "annotations"];
    object["metadata"] = Value::Object(
        meta.into_iter().filter(|(key, _)| kept.contains(&key.as_str())).collect::<Map<_, _>>(),
    );
    object
}
