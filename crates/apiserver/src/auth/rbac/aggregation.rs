//! Writes the rules of roles that are made of others (6.7), whenever one of those changes.
//!
//! In Kubernetes a controller does this. It is a part of the server here, because `admin`, `edit` and `view` would mean
//! nothing without it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Request, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rules::rbac::{Part, Rule, aggregated};
use serde_json::{Value, json};
use store::Scope;

use super::GROUP;
use crate::cluster::{Cluster, Handle};
use crate::object;

const MANAGER: &str = "clusterrole-aggregation-controller";

/// Works until the cluster is gone.
pub(crate) async fn run(handle: Handle) {
    let scope = Scope::resource(&format!("clusterroles.{GROUP}"));
    loop {
        let Some(mut watch) = handle.upgrade().map(|cluster| cluster.store().view_and_watch(&scope).1) else {
            return;
        };
        loop {
            let Some(cluster) = handle.upgrade() else { return };
            aggregate(&cluster, &scope).await;
            // Nothing of the cluster is held while nothing changes.
            drop(cluster);
            match watch.next().await {
                Some(Ok(_)) => while let Some(Ok(_)) = watch.try_next() {},
                Some(Err(_)) => break,
                None => return,
            }
        }
    }
}

struct Role {
    name: String,
    labels: BTreeMap<String, String>,
    rules: Vec<Rule>,
    selectors: Vec<LabelSelector>,
}

async fn aggregate(cluster: &Cluster, scope: &Scope) {
    let roles: Vec<Role> =
        cluster.store().view().list(scope).map(|object| Role::read(&object::read(object))).collect();
    for role in roles.iter().filter(|role| !role.selectors.is_empty()) {
        let parts = roles.iter().map(|role| -> Part<'_> { (&role.name, &role.labels, &role.rules) });
        let rules = aggregated(&role.name, &role.selectors, parts);
        if rules != role.rules {
            write(cluster, &role.name, &rules).await;
        }
    }
}

impl Role {
    fn read(role: &Value) -> Role {
        fn read<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
            serde_json::from_value(value.clone()).unwrap_or_default()
        }
        Role {
            name: object::text(role, &["metadata", "name"]).to_owned(),
            labels: read(&role["metadata"]["labels"]),
            rules: read(&role["rules"]),
            selectors: read(&role["aggregationRule"]["clusterRoleSelectors"]),
        }
    }
}

/// The next change of a role makes up for a write that fails.
async fn write(cluster: &Cluster, name: &str, rules: &[Rule]) {
    let body = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    let path = format!("/apis/{GROUP}/v1/clusterroles/{name}?fieldManager={MANAGER}&force=true");
    let request = Request::patch(path).header(header::CONTENT_TYPE, "application/apply-patch+yaml");
    let request = request.body(Bytes::from(body.to_string())).expect("a request");
    let code = cluster.answer(request).await.status();
    if !code.is_success() {
        tracing::warn!(%name, %code, "the rules of a role that is made of others were not written");
    }
}
