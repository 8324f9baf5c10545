//! Every pod runs as a service account, and can show its token (3.5).

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use store::{Scope, Store};

use super::{CONTAINERS, find, forbidden};
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::Refusal;

const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A controller makes the account of a new namespace; a pod may come before it.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Gives pods their service account and its token.
pub(in crate::admission) struct ServiceAccounts(pub(in crate::admission) Store);

impl Plugin for ServiceAccounts {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        operation == Operation::Create
            && (resource.group.as_str(), resource.plural.as_str(), subresource) == ("", "pods", "")
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(mut pod) = request.object.take() else { return Ok(()) };
            let admitted = self.admit(&mut pod, request.namespace).await;
            request.object = Some(pod);
            admitted.map_err(|why| forbidden(request, &why))
        })
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(pod) = &request.object else { return Ok(()) };
            let checked = if is_mirror(pod) {
                expect_plain_mirror(pod)
            } else {
                let name = object::text(pod, &["spec", "serviceAccountName"]);
                self.account(request.namespace, name).await.map(drop)
            };
            checked.map_err(|why| forbidden(request, &why))
        })
    }
}

impl ServiceAccounts {
    async fn admit(&self, pod: &mut Value, namespace: &str) -> Result<(), String> {
        if is_mirror(pod) {
            return expect_plain_mirror(pod);
        }
        if object::text(pod, &["spec", "serviceAccountName"]).is_empty() {
            pod["spec"]["serviceAccountName"] = json!(DEFAULT);
        }
        let name = object::text(pod, &["spec", "serviceAccountName"]).to_owned();
        // The older of the two names goes with it, as whoever reads pods expects.
        pod["spec"]["serviceAccount"] = json!(name);
        let account = self.account(namespace, &name).await?;
        let own = pod["spec"]["automountServiceAccountToken"].as_bool();
        if own.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
            mount(pod);
        }
        let secrets = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        if !secrets(&pod["spec"]["imagePullSecrets"]) && secrets(&account["imagePullSecrets"]) {
            pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
        }
        Ok(())
    }

    async fn account(&self, namespace: &str, name: &str) -> Result<Value, String> {
        let found = || find(&self.0, "", "serviceaccounts", namespace, name);
        if let Some(account) = found() {
            return Ok(account);
        }
        if name == DEFAULT {
            let resource = Registry::built_in().get("", "v1", "serviceaccounts");
            let resource = resource.expect("service accounts are served");
            let scope = Scope::object(&object::key(resource, namespace, name));
            let (view, mut watch) = self.0.view_and_watch(&scope);
            let is_there = view.list(&scope).next().is_some();
            // Whatever comes of it, one more look tells.
            if !is_there {
                drop(tokio::time::timeout(PATIENCE, watch.next()).await);
            }
        }
        found().ok_or_else(|| {
            let name_only = types::go::quote(name);
            format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name_only} not found"
            )
        })
    }
}

fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null()
}

/// A pod that only mirrors what a node runs by itself cannot ask for what the cluster keeps.
fn expect_plain_mirror(pod: &Value) -> Result<(), String> {
    if !object::text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    let volumes = || pod["spec"]["volumes"].as_array().into_iter().flatten();
    let sources =
        || volumes().flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    if volumes().any(|volume| volume["secret"].is_object())
        || sources().any(|source| source["secret"].is_object())
    {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    if sources().any(|source| source["serviceAccountToken"].is_object()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    Ok(())
}

/// Mounts the token into every container that has nothing else in its place.
fn mount(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    let existing = volumes.iter().map(|volume| object::text(volume, &["name"]));
    let existing = existing.filter(|name| name.starts_with(VOLUME)).map(str::to_owned).next();
    let name = existing
        .clone()
        .unwrap_or_else(|| ::rules::meta::system::generated_name(VOLUME, &crate::cluster::identity().suffix));
    let mut is_needed = false;
    for (list, _) in CONTAINERS {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            container["volumeMounts"] = json!(mounts);
            is_needed = true;
        }
    }
    if is_needed && existing.is_none() {
        let mut volumes = volumes;
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
        spec["volumes"] = json!(volumes);
    }
}
