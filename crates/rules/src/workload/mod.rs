//! A Workload's life: what its conditions mean, how each of them comes about, and what its controller does next.
//!
//! - [`condition`]: conditions of any object.
//! - [`mod@state`]: what a Workload is, read from its conditions.
//! - [`change`]: every change of its status, as a function: reserved, admitted, evicted, requeued, finished.
//! - [`checks`]: which admission checks it has to pass, and what they say.
//! - [`hosts`]: which nodes are lost to it.
//! - [`plan`]: what its controller does next, as a value.
//! - [`patch`]: what of it is written, and under whose name.
//! - [`mod@slice`]: which Workload of an elastic Job takes the place of which.
//!
//! Who gets quota is decided by [`crate::quota`]; what becomes of the Job behind it by [`crate::framework`].

pub mod change;
pub mod checks;
pub mod condition;
pub mod hosts;
pub mod parameters;
pub mod patch;
pub mod plan;
pub mod slice;
pub mod state;

pub use plan::{Plan, Seen, Step, decide};
pub use state::{
    State, conditions, evicted, has_quota, is_active, is_admissible, is_admitted, is_evicted, is_finished,
    state,
};

/// Quota is set aside for it.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// It may run: quota is set aside and all checks are passed.
pub const ADMITTED: &str = "Admitted";
/// All its pods are ready.
pub const PODS_READY: &str = "PodsReady";
/// It has to stop, or has stopped, and gives back its quota.
pub const EVICTED: &str = "Evicted";
/// It was evicted for another Workload.
pub const PREEMPTED: &str = "Preempted";
/// Whether it may be tried again after an eviction.
pub const REQUEUED: &str = "Requeued";
/// It is about to be deactivated.
pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
/// It has ended.
pub const FINISHED: &str = "Finished";
/// It needs others to go, and may not ask for it.
pub const BLOCKED_ON_PREEMPTION_GATES: &str = "BlockedOnPreemptionGates";
/// Pods of its group failed and are not replaced yet.
pub const WAITING_FOR_REPLACEMENT_PODS: &str = "WaitingForReplacementPods";

/// Names of whoever keeps a Workload from being admitted, comma separated.
pub const ADMISSION_GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
/// The manager that a Workload was copied from.
pub const ORIGIN_LABEL: &str = "kueue.x-k8s.io/multikueue-origin";
/// Says that a Workload may grow and shrink while it runs.
pub const ELASTIC_JOB: &str = "kueue.x-k8s.io/elastic-job";

/// Why a Workload was evicted, as written into its condition.
pub mod reason {
    /// For another Workload.
    pub const PREEMPTED: &str = "Preempted";
    /// Its pods were not ready in time.
    pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
    /// A check said so.
    pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    /// Its ClusterQueue is drained.
    pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
    /// Its LocalQueue is drained.
    pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
    /// A node of its placement failed.
    pub const NODE_FAILURES: &str = "NodeFailures";
    /// Somebody deactivated it.
    pub const DEACTIVATED: &str = "Deactivated";
    /// Its job can never start as it would have to, and its Workload has ended with that.
    pub const FAILED_TO_START: &str = "FailedToStart";
    /// It was put off too often.
    pub const REQUEUING_LIMIT_EXCEEDED: &str = "RequeuingLimitExceeded";
    /// It ran for too long.
    pub const MAXIMUM_EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";
    /// It waits for its turn.
    pub const PENDING: &str = "Pending";
    /// It cannot be admitted as its queues are.
    pub const INADMISSIBLE: &str = "Inadmissible";
    /// Somebody keeps it from being admitted.
    pub const ADMISSION_GATED: &str = "AdmissionGated";
    /// Its Job asked for it to be kept back.
    pub const ON_HOLD: &str = "OnHold";
    /// Its pods have not all been ready yet.
    pub const WAIT_FOR_START: &str = "WaitForStart";
    /// Its pods were all ready, and are not any more.
    pub const WAIT_FOR_RECOVERY: &str = "WaitForRecovery";
    /// Its pods are all ready for the first time.
    pub const STARTED: &str = "Started";
    /// Its pods are all ready again.
    pub const RECOVERED: &str = "Recovered";
}

#[cfg(test)]
mod dispatched;
