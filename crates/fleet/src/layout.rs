//! Queues for a fleet: the objects that let Jobs of the manager run on its workers.
//!
//! Everything is Kueue's API, as an administrator of real clusters would write it. It is applied at every start under a
//! name of our own, so that what an administrator has changed since stays his.

use std::time::Duration;

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
    let mut objects =
        vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })];
    for (name, kubeconfig) in workers {
        let secret = format!("{name}-kubeconfig");
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret, "namespace": NAMESPACE },
            "stringData": { "kubeconfig": kubeconfig.to_string() },
        }));
        let source = json!({ "kubeConfig": { "locationType": "Secret", "location": secret } });
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
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(client.clone(), &resource)
        } else {
            Api::namespaced_with(client.clone(), &namespace, &resource)
        };
        let applied = api.patch(&name, &PatchParams::apply(MANAGER), &Patch::Apply(&object)).await;
        match applied {
            Ok(_) => {}
            // An administrator made it his own.
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(source) => {
                return Err(Error::LayOut {
                    cluster: cluster.to_owned(),
                    kind,
                    name,
                    source: Box::new(source),
                });
            }
        }
    }
    Ok(())
}
