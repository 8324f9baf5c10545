//! Who has a say when somebody connects to a pod, a Service or a node (3.15): admission sees the options of the request.

use serde_json::{Map, Value, json};

use crate::admission;
use crate::cluster::Context;
use crate::registry::Resource;
use crate::request::{Query, Target};
use crate::status::Refusal;

/// Subresources that are connections.
const CONNECTIONS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// Whether a request is for a connection, whose bytes are the business of its two ends. What a resource does not have, or
/// not by this method, is none.
pub(crate) fn is_connection(resource: &Resource, target: &Target) -> bool {
    let name = target.subresource.as_deref().filter(|name| CONNECTIONS.contains(name));
    let subresource = name.and_then(|name| resource.subresource(name));
    subresource.is_some_and(|known| known.verbs.iter().any(|verb| verb == target.verb.word()))
}

/// Nobody can connect only to see what would happen.
pub(crate) fn expect_real(query: &Query) -> Result<(), Refusal> {
    match query.get("dryRun") {
        Some(_) => Err(Refusal::bad_request("dryRun is not supported")),
        None => Ok(()),
    }
}

/// Asks admission about a connection by a subresource.
pub(super) async fn expect_admitted(context: &Context<'_>, subresource: &str) -> Result<(), Refusal> {
    admission::connected(context, options(context, subresource)).await
}

/// The options of the request as an object.
fn options(context: &Context<'_>, subresource: &str) -> Value {
    let query = context.query;
    let mut options = Map::new();
    let what = match subresource {
        "exec" => "Exec",
        "attach" => "Attach",
        "portforward" => "PortForward",
        _ => "Proxy",
    };
    options.insert("kind".to_owned(), json!(format!("{}{what}Options", context.resource.kind)));
    options.insert("apiVersion".to_owned(), json!("v1"));
    match subresource {
        "exec" | "attach" => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if query.is_on(name) {
                    options.insert(name.to_owned(), json!(true));
                }
            }
            if let Some(container) = query.get("container").filter(|container| !container.is_empty()) {
                options.insert("container".to_owned(), json!(container));
            }
            if subresource == "exec" {
                let command: Vec<&str> = query.all("command").collect();
                options.insert(
                    "command".to_owned(),
                    if command.is_empty() { Value::Null } else { json!(command) },
                );
            }
        }
        "portforward" => {
            let ports: Vec<i64> = query.all("ports").filter_map(|port| port.parse().ok()).collect();
            if !ports.is_empty() {
                options.insert("ports".to_owned(), json!(ports));
            }
        }
        _ => {
            let path = context.head.uri.path();
            let behind = path.split_once("/proxy/").map(|(_, behind)| format!("/{behind}"));
            if let Some(path) = behind {
                options.insert("path".to_owned(), json!(path));
            }
        }
    }
    Value::Object(options)
}
