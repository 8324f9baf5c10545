//! The testkit, tested with the real thing.

mod binaries;
mod control_plane;
mod controls;
mod endings;
mod proxy;
mod simulator;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ObjectMeta;
use serde_json::json;
use testkit::{ControlPlane, Shared};

/// For tests that do nothing to it.
static CLUSTER: Shared = Shared::new(ControlPlane::builder);

/// The smallest object there is.
fn named(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// A pod with one container, `main`, that is not started again.
fn pod(name: &str) -> Pod {
    let spec = json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": "any" }] });
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).expect("a pod")
}
