//! Queues for a fleet: the objects that let Jobs of the manager run on its workers.
//!
//! Everything is Kueue's API, as an administrator of real clusters would write it. It is applied at every start under a
//! name of our own, so that what an administrator has changed since stays so.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use tracing::debug;
use types::kueue::{ClusterQueue, MultiKueueCluster};

use crate::Error;

/// The name of the queue that sends Jobs to workers, of its check and of the set of workers.
pub const QUEUE: &str = "fleet";
/// The namespace of what belongs to the operator.
const NAMESPACE: &str = "kueue-system";
/// The key of a Secret under which a kubeconfig is.
const KEY: &str = "kubeconfig";
/// How the addresses of clusters of this process begin.
const LOCAL: &str = "https://127.0.0.1:";
/// How long to wait for the operator's first word about what was laid out.
const SETTLED: Duration = Duration::from_secs(10);
/// Who writes these objects.
const MANAGER: &str = "ferry-fleet";

/// What a cluster offers, as quantities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Processors.
    pub cpu: String,
    /// Memory.
    pub memory: String,
}

/// Lays out a worker: a queue with the quota that it has.
pub(crate) async fn worker(client: &Client, cluster: &str, quota: &Quota) -> Result<(), Error> {
    let objects = [flavor(), cluster_queue(quota, None), local_queue()];
    write(client, cluster, objects).await
}

/// Lays out the manager: a queue with the quota of all workers, whose Jobs run there.
pub(crate) async fn manager(
    client: &Client,
    cluster: &str,
    quota: &Quota,
    workers: &[(String, Value)],
) -> Result<(), Error> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    apply(client, cluster, &namespace).await?;
    let mut objects = Vec::new();
    for (name, kubeconfig) in workers {
        if !apply(client, cluster, &secret(name, kubeconfig)).await? {
            follow(client, cluster, name, kubeconfig).await?;
        }
        let source = json!({ "kubeConfig": { "locationType": "Secret", "location": secret_name(name) } });
        objects.push(kueue("MultiKueueCluster", name, json!({ "clusterSource": source })));
    }
    let names: Vec<&String> = workers.iter().map(|(name, _)| name).collect();
    objects.push(kueue("MultiKueueConfig", QUEUE, json!({ "clusters": names })));
    let parameters = json!({ "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": QUEUE });
    let check = json!({ "controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters });
    objects.push(kueue("AdmissionCheck", QUEUE, check));
    objects.extend([flavor(), cluster_queue(quota, Some(QUEUE)), local_queue()]);
    write(client, cluster, objects).await
}

/// The kubeconfig by which the manager reaches a worker.
fn secret(worker: &str, kubeconfig: &Value) -> Value {
    let encoded = ByteString(kubeconfig.to_string().into_bytes());
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": secret_name(worker), "namespace": NAMESPACE },
        "data": { KEY: encoded },
    })
}

fn secret_name(worker: &str) -> String {
    format!("{worker}-kubeconfig")
}

/// A worker that was joined is reached with the credentials that it gave for that, wherever it is served now.
async fn follow(client: &Client, cluster: &str, worker: &str, now: &Value) -> Result<(), Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let name = secret_name(worker);
    let failed = |source| Error::LayOut {
        cluster: cluster.to_owned(),
        kind: "Secret".to_owned(),
        name: name.clone(),
        source: Box::new(source),
    };
    let there = secrets.get(&name).await.map_err(failed)?;
    let known = there.data.as_ref().and_then(|data| data.get(KEY));
    let Some(moved) = known.and_then(|known| moved(&known.0, now)) else { return Ok(()) };
    let patch = Patch::Merge(json!({ "data": secret(worker, &moved)["data"] }));
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    secrets.patch(&name, &params, &patch).await.map_err(failed).map(drop)
}

/// A kubeconfig with the address that the same cluster has now; `None` if it leads there, or to another cluster.
fn moved(known: &[u8], now: &Value) -> Option<Value> {
    let mut known: Value = serde_json::from_slice(known).ok()?;
    let (there, here) = (known.pointer_mut("/clusters/0/cluster")?, now.pointer("/clusters/0/cluster")?);
    // Every cluster has an authority of its own.
    let authority = "certificate-authority-data";
    let is_same = here[authority].is_string() && there[authority] == here[authority];
    // Who gave another address than that of this machine had a reason.
    let is_ours = there["server"].as_str()?.starts_with(LOCAL);
    if !is_same || !is_ours || there["server"] == here["server"] {
        return None;
    }
    there["server"] = here["server"].clone();
    Some(known)
}

/// Waits until the operator has said something about every worker, and about the queue that leads to them; but not long,
/// since what an administrator has changed may keep it from being so.
pub(crate) async fn settled(manager: &Client, workers: &[String]) {
    let clusters: Api<MultiKueueCluster> = Api::all(manager.clone());
    let queues: Api<ClusterQueue> = Api::all(manager.clone());
    let is_known = |cluster: Option<&MultiKueueCluster>| {
        let conditions = cluster.and_then(|cluster| cluster.status.as_ref()).map(|status| &status.conditions);
        conditions.is_some_and(|conditions| conditions.iter().any(|it| it.type_ == "Active"))
    };
    let admits = |queue: Option<&ClusterQueue>| {
        let conditions = queue.and_then(|queue| queue.status.as_ref()).map(|status| &status.conditions);
        conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Active" && it.status == "True"))
    };
    let all = async {
        for name in workers {
            await_condition(clusters.clone(), name, is_known).await?;
        }
        await_condition(queues, QUEUE, admits).await
    };
    match tokio::time::timeout(SETTLED, all).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            debug!(error = %reconcile::chain(&error), "the queues of the fleet could not be watched");
        }
        Err(_) => debug!("the queues of the fleet do not admit anything yet"),
    }
}

fn flavor() -> Value {
    kueue("ResourceFlavor", "default", json!({}))
}

fn cluster_queue(quota: &Quota, check: Option<&str>) -> Value {
    let resources = json!([
        { "name": "cpu", "nominalQuota": quota.cpu },
        { "name": "memory", "nominalQuota": quota.memory },
    ]);
    let group = json!({ "coveredResources": ["cpu", "memory"], "flavors": [{ "name": "default", "resources": resources }] });
    let mut spec = json!({ "namespaceSelector": {}, "resourceGroups": [group] });
    if let Some(check) = check {
        spec["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": check }] });
    }
    kueue("ClusterQueue", QUEUE, spec)
}

fn local_queue() -> Value {
    let mut queue = kueue("LocalQueue", QUEUE, json!({ "clusterQueue": QUEUE }));
    queue["metadata"]["namespace"] = json!("default");
    queue
}

fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

async fn write(
    client: &Client,
    cluster: &str,
    objects: impl IntoIterator<Item = Value>,
) -> Result<(), Error> {
    for object in objects {
        apply(client, cluster, &object).await?;
    }
    Ok(())
}

/// Makes an object what it is to be. False if an administrator has taken it over.
async fn apply(client: &Client, cluster: &str, object: &Value) -> Result<bool, Error> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), &namespace, &resource)
    };
    match api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(object)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        Err(source) => {
            Err(Error::LayOut { cluster: cluster.to_owned(), kind, name, source: Box::new(source) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What somebody else wrote is changed where it is certain what it means, and nowhere else.
    #[test]
    fn a_worker_that_moved_is_followed() {
        let at = |server: &str, authority: &str| {
            let cluster = json!({ "server": server, "certificate-authority-data": authority });
            json!({ "clusters": [{ "cluster": cluster }], "users": [{ "user": { "token": "t" } }] })
        };
        let (old, new) = ("https://127.0.0.1:1", "https://127.0.0.1:2");
        let now = at(new, "ours");
        let check = |known: &Value| moved(known.to_string().as_bytes(), &now);
        assert_eq!(check(&at(old, "ours")), Some(at(new, "ours")));
        assert_eq!(check(&at(new, "ours")), None);
        assert_eq!(check(&at(old, "another's")), None);
        assert_eq!(check(&at("https://lab.example:6443", "ours")), None);
        assert_eq!(check(&json!({})), None);
        assert_eq!(moved(b"clusters: []", &now), None);
    }
}
