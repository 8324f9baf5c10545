//! Jobs of any kind, as Kueue's job framework treats them: each becomes a Workload, starts when that is admitted, and
//! stops when it is not any more.
//!
//! - [`Observed`]: what there is to know of a Job of some kind; [`batch`] is the one that Kubernetes brings along,
//!   [`custom`] are those of others, [`pod`] are pods that are queued themselves, [`apps`] what is made of such pods.
//! - [`name`], [`build`] and [`priority`]: the Workload of a Job.
//! - [`same`]: whether a Workload still is the one of its Job.
//! - [`pod_set`]: what is put into a Job's pod templates when it starts, and taken out when it stops.
//! - [`slices`]: the Workloads of a Job that may grow and shrink.
//! - [`topology`] and [`ungate`]: where its pods should be, and which of them may be scheduled there.
//! - [`plan`]: what to do next about a Job, as a value.
//!
//! What becomes of the Workload itself is decided by [`crate::workload`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use types::kueue::{PodSet, ReclaimablePod};

use crate::job::CONTROLLER_UID_LABEL;

pub mod apps;
pub mod batch;
pub mod build;
pub mod custom;
pub mod name;
pub mod plan;
pub mod pod;
pub mod pod_set;
pub mod priority;
pub mod same;
pub mod slices;
pub mod topology;
pub mod ungate;

pub use plan::{Plan, Seen, Step, decide};
pub use pod_set::PodSetInfo;

/// The LocalQueue of a Job.
pub const QUEUE_NAME_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The WorkloadPriorityClass of a Job.
pub const PRIORITY_CLASS_LABEL: &str = "kueue.x-k8s.io/priority-class";
/// How long a Job may run.
pub const MAX_EXEC_TIME_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// The Workload that somebody else made for a Job, as an annotation and, for older peers, as a label.
pub const PREBUILT_WORKLOAD: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// What a ProvisioningRequest is told, as annotations that start like this.
pub const PROVISIONING_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// The pod set of a pod.
pub const POD_SET_LABEL: &str = "kueue.x-k8s.io/podset";
/// The LocalQueue of a pod.
pub const LOCAL_QUEUE_LABEL: &str = "kueue.x-k8s.io/local-queue-name";
/// The ClusterQueue of a pod.
pub const CLUSTER_QUEUE_LABEL: &str = "kueue.x-k8s.io/cluster-queue-name";
/// The Workload of a pod.
pub const WORKLOAD_ANNOTATION: &str = "kueue.x-k8s.io/workload";
/// That a pod belongs to a Workload that a manager sent.
pub const WORKER_POD_LABEL: &str = "kueue.x-k8s.io/multikueue-worker-workload-pod";
/// Keeps a pod from being scheduled until its place is known.
pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
/// That a pod's place is looked for, wherever it is.
pub const UNCONSTRAINED_TOPOLOGY: &str = "kueue.x-k8s.io/podset-unconstrained-topology";

/// A kind of Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Its API group.
    pub group: &'static str,
    /// Its version there.
    pub version: &'static str,
    /// Its name.
    pub kind: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
    /// Its name in Kueue's configuration.
    pub framework: &'static str,
}

impl Kind {
    /// Group and version as objects carry them.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// Every kind of Job that can be queued, the one of Kubernetes first. Those at the end are pods, and what is made of pods.
pub fn kinds() -> impl Iterator<Item = Kind> {
    let of_pods = [pod::POD, apps::DEPLOYMENT, apps::STATEFUL_SET, apps::LEADER_WORKER_SET];
    std::iter::once(batch::JOB).chain(custom::ALL.iter().map(|shape| shape.kind)).chain(of_pods)
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Whether it did what it was for.
    pub success: bool,
    /// In its own words.
    pub message: String,
}

/// One of the writes that start or stop a Job, as the whole object that comes of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// To the object.
    Object(Value),
    /// To its status.
    Status(Value),
}

/// A Job of some kind, as it was read.
pub trait Observed: Send + Sync {
    /// Its kind.
    fn kind(&self) -> Kind;
    /// Its name and the like.
    fn metadata(&self) -> &ObjectMeta;
    /// Whether it has to wait. One that is being stopped does not count as such before that is done.
    fn is_suspended(&self) -> bool;
    /// Whether it has pods that use something.
    fn is_active(&self) -> bool;
    /// How it ended, if it did.
    fn finished(&self) -> Option<Finished>;
    /// Its pods, by kind; or why it cannot be told.
    fn pod_sets(&self) -> Result<Vec<PodSet>, String>;
    /// Whether all its pods are ready or done.
    fn pods_ready(&self) -> bool;
    /// How many pods need nothing any more.
    fn reclaimable(&self) -> Vec<ReclaimablePod> {
        Vec::new()
    }
    /// The PriorityClass of the Job as a whole, for kinds that have one; it may be empty.
    fn priority_class(&self) -> Option<String> {
        None
    }
    /// Whether it may grow and shrink while it runs.
    fn is_elastic(&self) -> bool {
        false
    }
    /// Whether pods of it may wait here for a slice.
    fn may_be_gated(&self) -> bool {
        false
    }
    /// The label that its pods have, and no others.
    fn pod_label(&self) -> (&'static str, String) {
        (CONTROLLER_UID_LABEL, self.metadata().uid.clone().unwrap_or_default())
    }
    /// Whether it is none of ours, although it is in a queue: it runs on what another Job has.
    fn is_elsewhere(&self) -> bool {
        false
    }
    /// The writes that start it, with what its pods are given.
    fn started(&self, given: &[PodSetInfo]) -> Result<Vec<Write>, pod_set::Conflict>;
    /// Whether it is stopped, and what its pods were given is taken out again.
    fn is_stopped(&self, restored: Option<&[PodSetInfo]>) -> bool {
        self.stopped(restored).is_empty()
    }
    /// The writes that stop it and take out again what its pods were given; none if that is so already.
    fn stopped(&self, restored: Option<&[PodSetInfo]>) -> Vec<Write>;
}

/// A label of a Job; empty ones count as none.
pub fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// An annotation of a Job.
pub fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The LocalQueue of a Job.
pub fn queue_name(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, QUEUE_NAME_LABEL)
}

/// The Workload that somebody else made for a Job (JF-20). It may be linked by a label, which older peers write.
pub fn prebuilt_workload(metadata: &ObjectMeta) -> Option<&str> {
    annotation(metadata, PREBUILT_WORKLOAD)
        .filter(|name| !name.is_empty())
        .or_else(|| label(metadata, PREBUILT_WORKLOAD))
}

/// How long a Job may run. What is no number is no limit.
pub fn maximum_execution_time(metadata: &ObjectMeta) -> Option<i32> {
    label(metadata, MAX_EXEC_TIME_LABEL)?.parse().ok().filter(|seconds| *seconds > 0)
}
