//! Prints what a real API server says it serves, as facts: `cargo run -p testkit --example discovery`. The API server's
//! table of built-in kinds is made of it.

use http::Request;
use kube::Client;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cluster = testkit::ControlPlane::builder().start().await?;
    let client = cluster.client();
    let mut kinds = Vec::new();
    for prefix in ["/api", "/apis"] {
        for group in items(&aggregated(&client, prefix).await?["items"]) {
            for version in items(&group["versions"]) {
                let (group, version) =
                    (group["metadata"]["name"].as_str().unwrap_or(""), text(&version["version"]));
                let path = if group.is_empty() {
                    format!("/api/{version}")
                } else {
                    format!("/apis/{group}/{version}")
                };
                kinds.extend(served(&client, group, version, &path).await?);
            }
        }
    }
    println!("[");
    for (i, kind) in kinds.iter().enumerate() {
        println!("{kind}{}", if i + 1 < kinds.len() { "," } else { "" });
    }
    println!("]");
    Ok(())
}

async fn aggregated(client: &Client, path: &str) -> anyhow::Result<Value> {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let request = Request::get(path).header("Accept", accept).body(Vec::new())?;
    Ok(serde_json::from_str(&client.request_text(request).await?)?)
}

/// The resources of a group version, in the order and with the words of legacy discovery, which says more.
async fn served(client: &Client, group: &str, version: &str, path: &str) -> anyhow::Result<Vec<Value>> {
    let list: Value =
        serde_json::from_str(&client.request_text(Request::get(path).body(Vec::new())?).await?)?;
    let of_group = items(&list["resources"]).into_iter().map(|mut resource| {
        let fields = resource.as_object_mut().expect("a resource is an object");
        let (of, at) = (fields.remove("group"), fields.remove("version"));
        fields.insert("group".to_owned(), json!(group));
        fields.insert("version".to_owned(), json!(version));
        if of.is_some() || at.is_some() {
            fields.insert("of".to_owned(), json!([of.unwrap_or(json!("")), at]));
        }
        resource
    });
    Ok(of_group.collect())
}

fn items(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}
