//! A cluster in this process, with controllers, and what tests ask of it.

use std::fmt::Debug;
use std::time::Duration;

use apiserver::Cluster;
use controllers::{Metrics, Selection, Settings};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Client, Resource};
use reconcile::{Clock, Tasks};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use store::{Options, Store};
use tokio::time::{Instant, sleep};

/// Nothing here takes longer on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster whose controllers run.
pub(crate) struct Embedded {
    pub(crate) client: Client,
    pub(crate) metrics: Metrics,
    _tasks: Tasks,
}

/// An API server that keeps nothing, without controllers.
pub(crate) async fn api_server() -> Cluster {
    let store = Store::open(Options::ephemeral()).expect("a store");
    Cluster::open(store, rules::job::Settings::default()).await.expect("a cluster")
}

/// An API server that keeps nothing, with these controllers.
pub(crate) async fn embedded(controllers: &str) -> Embedded {
    let client = Client::new(api_server().await, "default");
    let mut tasks = Tasks::new();
    let running = start(&client, controllers, &mut tasks);
    Embedded { client, metrics: running.metrics, _tasks: tasks }
}

/// Starts controllers.
pub(crate) fn start(client: &Client, names: &str, tasks: &mut Tasks) -> controllers::Running {
    let selection: Selection = names.parse().expect("names of controllers");
    controllers::start(client.clone(), &selection, Settings::default(), Clock::system(), tasks)
}

/// Objects of a kind in namespace `default`.
pub(crate) fn api<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), "default")
}

/// Creates an object in namespace `default`.
pub(crate) async fn create<K>(client: &Client, object: Value) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of that kind");
    api(client).create(&PostParams::default(), &object).await.expect("created")
}

/// Defines a kind `Thing` of `example.com/v1`, which has replicas and a scale, and waits until it is served.
pub(crate) async fn define(client: &Client) {
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
            }],
        },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.expect("defined");
    eventually("things are served", || async { things(client).list(&ListParams::default()).await.ok() })
        .await;
}

/// The objects of that kind in namespace `default`.
pub(crate) fn things(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Thing"));
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Waits until `look` finds something, and returns it.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until there are so many pods, and returns them.
pub(crate) async fn pods(client: &Client, count: usize) -> Vec<Pod> {
    let pods: Api<Pod> = api(client);
    eventually(&format!("{count} pods"), || async {
        let pods = pods.list(&ListParams::default()).await.expect("a list").items;
        (pods.len() == count).then_some(pods)
    })
    .await
}

/// Sets the phase of a pod, as its node would.
pub(crate) async fn set_phase(client: &Client, pod: &Pod, phase: &str) {
    let code = i32::from(phase == "Failed");
    let terminated = json!({"exitCode": code, "finishedAt": "2025-01-01T00:00:00Z"});
    let container = json!({
        "name": "main", "image": "x", "imageID": "x", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated},
    });
    let containers = if phase == "Running" { json!(null) } else { json!([container]) };
    let patch = json!({"status": {"phase": phase, "containerStatuses": containers}});
    let name = pod.metadata.name.as_deref().expect("a stored pod has a name");
    let pods: Api<Pod> = api(client);
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a status");
}
