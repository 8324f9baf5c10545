//! The node on which simulated pods run: there, ready, and alive.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

/// The name of the node.
pub const NODE: &str = "simulated";

/// How often a kubelet says that it lives, and how long others believe it.
const RENEW: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;

/// Creates the node, or takes over the one that an earlier simulator has left.
pub(super) async fn register(client: &Client) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let labels =
        [("kubernetes.io/hostname", NODE), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let metadata =
        ObjectMeta { name: Some(NODE.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() };
    match nodes.create(&PostParams::default(), &Node { metadata, ..Node::default() }).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => drop(created?),
    }
    // Admission has marked the new node as not ready, and no node lifecycle controller is there to see that it is.
    let untaint = Patch::Merge(json!({ "spec": { "taints": null } }));
    nodes.patch(NODE, &PatchParams::default(), &untaint).await?;
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(status())).await?;
    renew(client).await
}

/// Keeps the node alive for as long as it is polled.
pub(super) async fn keep_alive(client: &Client) {
    loop {
        sleep(RENEW).await;
        // A lease that could not be renewed is what becomes of a node whose API server is away. The next one will do.
        let _ = renew(client).await;
    }
}

async fn renew(client: &Client) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let spec = LeaseSpec {
        holder_identity: Some(NODE.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let metadata = ObjectMeta { name: Some(NODE.to_owned()), ..ObjectMeta::default() };
    let lease = Lease { metadata, spec: Some(spec) };
    leases.patch(NODE, &PatchParams::apply("testkit").force(), &Patch::Apply(&lease)).await.map(drop)
}

fn status() -> serde_json::Value {
    let now = Timestamp::now();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let capacity = json!({ "cpu": "1k", "memory": "1Ti", "ephemeral-storage": "10Ti", "pods": "100k" });
    json!({ "status": {
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }, { "type": "Hostname", "address": NODE }],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
    } })
}
