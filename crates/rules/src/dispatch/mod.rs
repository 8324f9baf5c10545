//! Dispatch: which worker cluster runs a Workload, and what has to be done about it now.
//!
//! A Workload with quota is offered to worker clusters as a copy of the same name; one that admits it is chosen; there,
//! and only there, a mirror of the job is created; its status comes back; and in the end everything of it is removed
//! from the workers. [`mod@decide`] looks at one Workload and at what every worker was last seen to hold of it, and says
//! which steps may be taken now. Every step is allowed by what was seen alone, never by another step of the same plan,
//! so that steps for different clusters can be taken at the same time and none waits for a cluster that is slow.
//!
//! What keeps a Workload from running twice is a record in its status, [`HELD`]: it names the one cluster on which a
//! job of it may exist. It is written before that job is created, it survives evictions and restarts, and it goes only
//! when that cluster was read and held nothing any more, or when the cluster was given up.
//!
//! - [`observed`]: what was seen.
//! - [`mod@decide`]: what to do, with [`nominate`] for the choice of clusters to offer a Workload to, and `end` for how a
//!   job ends, `awaited` for what is said while a cluster is waited for, and `same` for clusters that are there under several
//!   names.
//! - [`plan`]: steps, reason, and when to look again, as one line.
//! - [`local`]: what steps do to the Workload on the manager.
//! - [`copy`]: what is created on workers.
//! - [`mirror`]: a worker's status of a job as the manager may show it.
//! - [`adapter`]: the kinds of jobs, and [`group`] of pods as one of them; [`component`] for kinds with several Workloads.
//! - [`check`], [`kubeconfig`]: what is said about checks and clusters that are not set up well.
//!
//! Nothing here knows how a cluster is reached.

pub mod adapter;
mod awaited;
pub mod check;
pub mod component;
mod condition;
pub mod copy;
pub mod decide;
mod drift;
mod end;
mod forward;
pub mod group;
pub mod kubeconfig;
pub mod local;
pub mod mirror;
mod name;
pub mod nominate;
pub mod observed;
mod open;
pub mod plan;
pub mod quota;
mod same;

pub use adapter::Adapter;
pub use decide::{Policy, decide};
pub use name::ClusterName;
pub use nominate::{Dispatcher, PATIENCE};
pub use observed::{
    Check, Left, Link, Load, Observed, Owner, Refusal, Remote, held, held_by_another, held_identity,
};
pub use plan::{Because, Plan, Step};

pub use crate::workload::slice::REPLACEMENT_FOR;

/// The controller of MultiKueue checks, and what `managedBy` says of jobs that are theirs.
pub const CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
/// The label that says whose an object on a worker is.
pub const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
/// The annotation with the uid of the object that a copy is of.
pub const ORIGIN_UID: &str = "kueue.x-k8s.io/multikueue-origin-uid";
/// The annotation or label of a job that names its Workload.
pub const PREBUILT_WORKLOAD: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// The label of a Workload with the uid of its job.
pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
/// The annotations of a Workload that name the object it is for, where its owner does not.
pub const JOB_OWNER_GVK: &str = "kueue.x-k8s.io/job-owner-gvk";
/// See [`JOB_OWNER_GVK`].
pub const JOB_OWNER_NAME: &str = "kueue.x-k8s.io/job-owner-name";
/// The annotation of a Workload that is one of several of its job: its number among them.
pub const COMPONENT_INDEX: &str = "kueue.x-k8s.io/component-workload-index";
/// The annotation of Workloads that stand for groups of pods.
pub const IS_GROUP: &str = crate::framework::pod::IS_GROUP_WORKLOAD;
/// The annotation of jobs that may grow and shrink while they run.
pub const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
/// The annotation of a job that is just being stopped.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
/// The annotation of a MultiKueueCluster with which an administrator says since when nothing runs there any
/// more. It counts for as long as the cluster is out of reach without a break since before that time.
pub const GIVEN_UP: &str = "ferry.dev/given-up";
/// The annotation of a MultiKueueCluster that is offered nothing new for as long as it has it. What it holds stays there.
pub const CORDONED: &str = "ferry.dev/cordoned";

/// Condition of a Workload that holds quota.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// Condition of a Workload that may start.
pub const ADMITTED: &str = "Admitted";
/// Condition of a Workload that has to go.
pub const EVICTED: &str = "Evicted";
/// Condition of a Workload that has ended.
pub const FINISHED: &str = "Finished";
/// Condition of a Workload that is to be deactivated.
pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
/// Condition that names the one cluster on which a job of the Workload may exist.
pub const HELD: &str = "ferry.dev/Held";

#[cfg(test)]
mod tests;
