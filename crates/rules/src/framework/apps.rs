//! What is made of pods that are queued: Deployments, whose pods are queued one by one, and StatefulSets, whose pods are one
//! group with one Workload (MK-STS-01).

pub mod stateful_set;

use super::Kind;

/// Deployments.
pub const DEPLOYMENT: Kind =
    Kind { group: "apps", version: "v1", kind: "Deployment", plural: "deployments", framework: "deployment" };
/// StatefulSets.
pub const STATEFUL_SET: Kind =
    Kind { kind: "StatefulSet", plural: "statefulsets", framework: "statefulset", ..DEPLOYMENT };

/// Whether the pods of a StatefulSet, whose template says of what they are part, are queued as something else's.
pub fn is_of_another(parent: Option<&str>) -> bool {
    parent.is_some_and(|parent| parent != STATEFUL_SET.framework)
}
