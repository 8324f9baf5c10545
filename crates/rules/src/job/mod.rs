//! The Job API (`batch/v1`, Kubernetes v1.35): defaults, validation, and what the Job controller decides.
//!
//! The way of a write, in the order in which an API server goes through it:
//! - [`defaults`]: what a field is when nobody said;
//! - [`prepare`]: what an endpoint takes from the client, what it keeps and what it generates;
//! - [`validate`] a new Job, [`update`] of a stored one, [`mod@status`] written by a controller: every error at once;
//! - [`warnings`]: what is accepted but worth a word;
//! - [`endpoints`]: all of these in their order.
//!
//! The way of a decision of the Job controller:
//! - [`triggers`]: which change calls for one, and when;
//! - [`plan`]: what to do, from the Job, its pods and the controller's [`memory`]; the leaves are [`claims`] of pods,
//!   [`backoff`], [`failure_policy`], [`success_policy`], [`indexes`] and what is read from [`pods`];
//! - [`tracking`]: how ended pods get into the counters, with [`conditions`], [`events`] and [`metrics`];
//! - [`orphans`] and [`ttl`]: what is cleaned up after a Job.
//!
//! Around them: [`table`], how Jobs show in `kubectl get`; [`roles`], what their controllers may do.
//!
//! Objects are in the form in which [`schema::decode`] leaves them: absent means zero. Time is an argument.

use std::sync::LazyLock;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};

pub mod backoff;
pub mod claims;
pub mod conditions;
pub mod defaults;
mod end;
pub mod endpoints;
pub mod events;
pub mod failure_policy;
pub mod indexes;
pub mod memory;
pub mod metrics;
mod new_pod;
pub mod orphans;
pub mod plan;
pub mod pods;
pub mod prepare;
pub mod roles;
mod spec;
pub mod status;
pub mod success_policy;
pub mod table;
pub mod tracking;
pub mod triggers;
pub mod ttl;
pub mod update;
pub mod validate;
mod view;
pub mod warnings;

/// Pods carry the name of their Job in this label.
pub const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// The same, as it was called before labels of Kubernetes had a prefix.
pub const LEGACY_JOB_NAME_LABEL: &str = "job-name";
/// Pods carry the uid of their Job in this label; the generated selector asks for it.
pub const CONTROLLER_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// The same, as it was called before labels of Kubernetes had a prefix.
pub const LEGACY_CONTROLLER_UID_LABEL: &str = "controller-uid";
/// Labels that a template gets with a generated selector.
pub const GENERATED_LABELS: [&str; 4] =
    [JOB_NAME_LABEL, LEGACY_JOB_NAME_LABEL, CONTROLLER_UID_LABEL, LEGACY_CONTROLLER_UID_LABEL];

/// The value of `spec.managedBy` that means the built-in Job controller, as its absence does.
pub const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// Condition of a Job whose pods are held back.
pub const SUSPENDED: &str = "Suspended";
/// Condition of a Job that succeeded and has no pods left.
pub const COMPLETE: &str = "Complete";
/// Condition of a Job that failed and has no pods left.
pub const FAILED: &str = "Failed";
/// Condition of a Job that is bound to fail and still has pods to end.
pub const FAILURE_TARGET: &str = "FailureTarget";
/// Condition of a Job that is bound to succeed and still has pods to end.
pub const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// What a cluster may be set up to do differently from a default API server of v1.35.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is switched on its own")]
pub struct Settings {
    /// The alpha gate `MutablePodResourcesForSuspendedJobs` (U-37).
    pub mutable_pod_resources: bool,
    /// The alpha gate `MutableSchedulingDirectivesForSuspendedJobs` (U-36, J-52).
    pub mutable_scheduling_directives: bool,
    /// Refuse [`JOB_CONTROLLER`] in `spec.managedBy` of new Jobs, for those who want the field to name external
    /// controllers only. Kubernetes accepts it (M-08).
    pub refuse_reserved_managed_by: bool,
    /// Let containers be privileged, of every kind of object (`--allow-privileged` of an API server).
    pub allow_privileged: bool,
}

/// Who reconciles this Job, if it is not the built-in controller.
pub fn external_controller(job: &Job) -> Option<&str> {
    spec(job).managed_by.as_deref().filter(|name| *name != JOB_CONTROLLER)
}

/// Whether the Job has ended, one way or the other.
pub fn is_finished(job: &Job) -> bool {
    is_true(status(job), COMPLETE) || is_true(status(job), FAILED)
}

/// Whether some condition of this type is `True`.
pub fn is_true(status: &JobStatus, condition: &str) -> bool {
    has_condition(status, condition, "True")
}

/// Whether some condition has this type and this value.
pub fn has_condition(status: &JobStatus, condition: &str, value: &str) -> bool {
    let is_it = |c: &JobCondition| c.type_ == condition && c.status == value;
    status.conditions.iter().flatten().any(is_it)
}

/// Whether the pods of this Job have completion indexes.
pub fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Whether the pods of this Job are held back.
pub fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend == Some(true)
}

/// The spec of a Job; one that has none has an empty one.
pub fn spec(job: &Job) -> &JobSpec {
    static EMPTY: LazyLock<JobSpec> = LazyLock::new(JobSpec::default);
    job.spec.as_ref().unwrap_or(&EMPTY)
}

/// The status of a Job; one that has none has an empty one.
pub fn status(job: &Job) -> &JobStatus {
    static EMPTY: LazyLock<JobStatus> = LazyLock::new(JobStatus::default);
    job.status.as_ref().unwrap_or(&EMPTY)
}
