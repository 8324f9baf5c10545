//! What is made of pods that are queued: Deployments, whose pods are queued one by one; StatefulSets, whose pods are one group
//! with one Workload (MK-STS-01); and LeaderWorkerSets, whose replicas are a group with a Workload each (MK-LWS-01).

pub mod leader_worker_set;
mod part;
pub(crate) mod spec;
pub mod stateful_set;

use std::fmt;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{Kind, Plan, annotation, pod::SUSPENDING_PARENT};

/// Deployments.
pub const DEPLOYMENT: Kind =
    Kind { group: "apps", version: "v1", kind: "Deployment", plural: "deployments", framework: "deployment" };
/// StatefulSets.
pub const STATEFUL_SET: Kind =
    Kind { kind: "StatefulSet", plural: "statefulsets", framework: "statefulset", ..DEPLOYMENT };
/// LeaderWorkerSets, which are somebody else's.
pub const LEADER_WORKER_SET: Kind = Kind {
    group: "leaderworkerset.x-k8s.io",
    version: "v1",
    kind: "LeaderWorkerSet",
    plural: "leaderworkersets",
    framework: "leaderworkerset.x-k8s.io/leaderworkerset",
};

/// What to do about an object whose pods are groups.
#[derive(Debug, Clone, PartialEq)]
pub enum Todo {
    /// About its Workloads.
    Workloads(Vec<Plan>),
    /// Write these pods, as they are here.
    Pods(Vec<Pod>),
}

/// Whether the pods of a StatefulSet, whose template says of what they are part, are queued as something else's.
pub fn is_of_another(parent: Option<&str>) -> bool {
    parent.is_some_and(|parent| parent != STATEFUL_SET.framework)
}

/// Whether a pod is part of an object that makes groups of its pods, and is in none before that.
pub fn is_grouped(pod: &ObjectMeta) -> bool {
    [STATEFUL_SET, LEADER_WORKER_SET].iter().any(|kind| is_part_of(kind, pod))
}

/// Whether a pod is part of an object of a kind that is queued.
fn is_part_of(kind: &Kind, pod: &ObjectMeta) -> bool {
    annotation(pod, SUSPENDING_PARENT) == Some(kind.framework)
}

impl fmt::Display for Todo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Todo::Workloads(plans) => {
                let texts: Vec<String> = plans.iter().map(ToString::to_string).collect();
                write!(f, "{}", texts.join("; "))
            }
            Todo::Pods(pods) => {
                let names: Vec<&str> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
                write!(f, "mark pods {}", names.join(", "))
            }
        }
    }
}
