//! The testkit, tested with the real thing.

mod control_plane;
mod controls;
mod endings;
mod proxy;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
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
