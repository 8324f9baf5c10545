//! Tells of every FlowSchema whether the priority level that it names is there, as its condition `Dangling`.
//!
//! In Kubernetes the part of the API server that reads these objects does this. Nothing else comes of them here.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Request, header};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::Scope;

use crate::cluster::{Cluster, Handle};
use crate::object;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const CONDITION: &str = "Dangling";

/// All schemas, and all levels.
fn scopes() -> (Scope, Scope) {
    let of = |plural: &str| Scope::resource(&format!("{plural}.{GROUP}"));
    (of("flowschemas"), of("prioritylevelconfigurations"))
}

/// Tells of those that are there.
pub(crate) async fn tell(cluster: &Cluster) {
    let (schemas, levels) = scopes();
    tell_of(cluster, &schemas, &levels).await;
}

/// Works until the cluster is gone.
pub(crate) async fn run(handle: Handle) {
    let (schemas, levels) = scopes();
    loop {
        let Some(cluster) = handle.upgrade() else { return };
        let watch = |scope: &Scope| cluster.store().view_and_watch(scope).1;
        let (mut of_schemas, mut of_levels) = (watch(&schemas), watch(&levels));
        drop(cluster);
        loop {
            let Some(cluster) = handle.upgrade() else { return };
            tell_of(&cluster, &schemas, &levels).await;
            // Nothing of the cluster is held while nothing changes.
            drop(cluster);
            let changed = tokio::select! {
                changed = of_schemas.next() => changed,
                changed = of_levels.next() => changed,
            };
            match changed {
                Some(Ok(_)) => {
                    while let Some(Ok(_)) = of_schemas.try_next() {}
                    while let Some(Ok(_)) = of_levels.try_next() {}
                }
                Some(Err(_)) => break,
                None => return,
            }
        }
    }
}

async fn tell_of(cluster: &Cluster, schemas: &Scope, levels: &Scope) {
    let view = cluster.store().view();
    let levels: BTreeSet<String> = view.list(levels).map(|level| level.key.name().to_owned()).collect();
    let schemas: Vec<Value> = view.list(schemas).map(|schema| object::read(schema)).collect();
    // At once, since a new cluster has a dozen and waits for them.
    let writes = schemas.iter().filter_map(|schema| {
        let level = object::text(schema, &["spec", "priorityLevelConfiguration", "name"]);
        let condition = condition(schema, levels.contains(level), Timestamp::now())?;
        Some(write(cluster, object::text(schema, &["metadata", "name"]), condition))
    });
    futures::future::join_all(writes).await;
}

/// The condition of a schema, if it is to be another one. `found` says whether its level is there.
fn condition(schema: &Value, found: bool, now: Timestamp) -> Option<Value> {
    let level = types::go::quote(object::text(schema, &["spec", "priorityLevelConfiguration", "name"]));
    let about = format!("This FlowSchema references the PriorityLevelConfiguration object named {level}");
    let (status, reason, message) = if found {
        ("False", "Found", format!("{about} and it exists"))
    } else {
        ("True", "NotFound", format!("{about} but there is no such object"))
    };
    let conditions = schema["status"]["conditions"].as_array().into_iter().flatten();
    let is_told = conditions.filter(|known| known["type"] == CONDITION).any(|known| {
        known["status"] == status && known["reason"] == reason && known["message"] == message.as_str()
    });
    (!is_told).then(|| {
        json!({
            "type": CONDITION, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": object::time(now),
        })
    })
}

/// The next change of a schema or a level makes up for a write that fails.
async fn write(cluster: &Cluster, name: &str, condition: Value) {
    let body = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "FlowSchema", "metadata": {"name": name},
        "status": {"conditions": [condition]},
    });
    let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    let path = format!("/apis/{GROUP}/v1/flowschemas/{encoded}/status?fieldManager={MANAGER}&force=true");
    let request = Request::patch(path).header(header::CONTENT_TYPE, "application/apply-patch+yaml");
    let request = request.body(Bytes::from(body.to_string())).expect("a request");
    let code = cluster.answer(request).await.status();
    // Whoever removed it in between needs no condition.
    if !code.is_success() && code != http::StatusCode::NOT_FOUND {
        tracing::warn!(%name, %code, "the condition of a flow schema was not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let schema = |conditions: Value| json!({"spec": {"priorityLevelConfiguration": {"name": "p"}}, "status": {"conditions": conditions}});
        let told = |conditions: Value, found: bool| {
            condition(&schema(conditions), found, Timestamp::UNIX_EPOCH).map(|told| told["status"].clone())
        };
        assert_eq!(told(json!([]), true), Some(json!("False")));
        assert_eq!(told(json!(null), false), Some(json!("True")));
        let now = condition(&schema(json!([])), true, Timestamp::UNIX_EPOCH).expect("a first one");
        assert_eq!(now["lastTransitionTime"], "1970-01-01T00:00:00Z");
        assert_eq!(told(json!([now]), true), None);
        assert_eq!(told(json!([now]), false), Some(json!("True")));
    }
}
