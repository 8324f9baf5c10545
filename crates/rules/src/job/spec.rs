//! A Job's spec as its controller reads it: what is wanted, with the defaults filled in.

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::{Job, PodFailurePolicy, SuccessPolicy};

/// What a Job asks its controller for.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each answers its own question")]
pub(crate) struct Spec {
    pub(crate) parallelism: i32,
    pub(crate) completions: Option<i32>,
    pub(crate) indexed: bool,
    pub(crate) suspended: bool,
    pub(crate) backoff_limit: i32,
    pub(crate) backoff_limit_per_index: Option<i32>,
    pub(crate) max_failed_indexes: Option<i32>,
    pub(crate) active_deadline: Option<SignedDuration>,
    pub(crate) failure_policy: Option<PodFailurePolicy>,
    pub(crate) success_policy: Option<SuccessPolicy>,
    /// Replace a pod only once it has ended, not as soon as it is terminating.
    pub(crate) only_replace_failed: bool,
    /// Containers are restarted in their pods, so that restarts count as failures too (B-10).
    pub(crate) restarts_on_failure: bool,
}

impl Spec {
    /// `None` for a completion mode that this controller does not know (J-14).
    pub(crate) fn read(job: &Job) -> Option<Self> {
        let spec = super::spec(job);
        let indexed = match spec.completion_mode.as_deref() {
            None | Some("NonIndexed") => false,
            Some("Indexed") => true,
            Some(_) => return None,
        };
        let default_limit = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
        let restart_policy = spec.template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref());
        Some(Spec {
            parallelism: spec.parallelism.unwrap_or(1),
            completions: if indexed { Some(spec.completions.unwrap_or(0)) } else { spec.completions },
            indexed,
            suspended: super::is_suspended(spec),
            backoff_limit: spec.backoff_limit.unwrap_or(default_limit),
            backoff_limit_per_index: spec.backoff_limit_per_index.filter(|_| indexed),
            max_failed_indexes: spec.max_failed_indexes,
            active_deadline: spec.active_deadline_seconds.map(SignedDuration::from_secs),
            failure_policy: spec.pod_failure_policy.clone(),
            success_policy: spec.success_policy.clone(),
            only_replace_failed: spec.pod_replacement_policy.as_deref() == Some("Failed")
                || spec.pod_failure_policy.is_some(),
            restarts_on_failure: restart_policy == Some("OnFailure"),
        })
    }

    /// The number of indexes of an Indexed Job.
    pub(crate) fn index_count(&self) -> Option<u32> {
        if self.indexed { self.completions.map(|count| u32::try_from(count).unwrap_or(0)) } else { None }
    }

    /// Whether the Job is suspended and has nothing to do; it is complete without ever having started (J-25).
    pub(crate) fn is_nothing_while_suspended(&self) -> bool {
        self.suspended && self.completions == Some(0)
    }

    /// The completion mode as metrics name it.
    pub(crate) fn mode(&self) -> &'static str {
        if self.indexed { "Indexed" } else { "NonIndexed" }
    }
}
