//! What the Job controller counts, as values: whoever publishes them knows no rule, and no rule knows a registry.

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::external_controller;
use super::indexes::IndexSet;
use super::pods::{has_tracking_finalizer, phase};
use super::spec::Spec;

/// An addition to a counter. Names stand without their prefix, which is `job_controller_`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Increment {
    /// The counter, for example `jobs_finished_total`.
    pub name: &'static str,
    /// The labels and their values.
    pub labels: Vec<(&'static str, String)>,
    /// How much is added; never zero.
    pub by: u64,
}

/// What a decision did with pods, as `job_syncs_total` names it (N-01, N-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It did not come to pods.
    Reconciling,
    /// It left them alone.
    Tracking,
    /// It created some, or would have.
    PodsCreated,
    /// It deleted some.
    PodsDeleted,
}

impl Action {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Reconciling => "reconciling",
            Action::Tracking => "tracking",
            Action::PodsCreated => "pods_created",
            Action::PodsDeleted => "pods_deleted",
        }
    }
}

/// N-06: a pod began or ceased to wait, ended, for being counted.
pub fn tracked_pod_changed(old: Option<&Pod>, new: Option<&Pod>) -> Option<Increment> {
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| matches!(phase(pod), "Failed" | "Succeeded") && has_tracking_finalizer(pod))
    };
    let event = match (waits(old), waits(new)) {
        (false, true) => "add",
        (true, false) => "delete",
        _ => return None,
    };
    increment("terminated_pods_tracking_finalizer_total", vec![("event", event.to_owned())], 1)
}

/// N-09: a Job appeared that somebody else manages. It appears again whenever the controller starts.
pub fn job_added(job: &Job) -> Option<Increment> {
    let manager = external_controller(job)?;
    increment("jobs_by_external_controller_total", vec![("controller_name", manager.to_owned())], 1)
}

/// N-03: a Job finished.
pub(crate) fn job_finished(spec: &Spec, succeeded: bool, reason: &str) -> Option<Increment> {
    let labels = vec![
        ("completion_mode", spec.mode().to_owned()),
        ("result", result(succeeded).to_owned()),
        ("reason", reason.to_owned()),
    ];
    increment("jobs_finished_total", labels, 1)
}

/// N-04 and N-07: what was counted between two written statuses.
pub(crate) fn pods_finished(spec: &Spec, old: &JobStatus, new: &JobStatus) -> Vec<Increment> {
    let pods = |succeeded, by| {
        let labels =
            vec![("completion_mode", spec.mode().to_owned()), ("result", result(succeeded).to_owned())];
        increment("job_pods_finished_total", labels, by)
    };
    let failed = grown(old.failed.unwrap_or(0), new.failed.unwrap_or(0));
    if !spec.indexed {
        let succeeded = grown(old.succeeded.unwrap_or(0), new.succeeded.unwrap_or(0));
        return [pods(true, succeeded), pods(false, failed)].into_iter().flatten().collect();
    }
    let limit = if spec.backoff_limit_per_index.is_some() { "perIndex" } else { "global" };
    let indexes = |succeeded, by| {
        let status = ("status", result(succeeded).to_owned());
        increment("job_finished_indexes_total", vec![status, ("backoffLimit", limit.to_owned())], by)
    };
    // Both lists are read in the present range: indexes that a smaller Job lost are no negative growth.
    let count = |list: &Option<String>| {
        let list = list.as_deref().unwrap_or_default();
        i32::try_from(IndexSet::read(list, spec.completions.unwrap_or(0)).len()).unwrap_or(i32::MAX)
    };
    let completed = grown(count(&old.completed_indexes), count(&new.completed_indexes));
    let failed_indexes = grown(count(&old.failed_indexes), count(&new.failed_indexes));
    [indexes(true, completed), indexes(false, failed_indexes), pods(true, completed), pods(false, failed)]
        .into_iter()
        .flatten()
        .collect()
}

/// N-05: failed pods that a rule of the pod failure policy dealt with.
pub(crate) fn policy_applied(action: &'static str, by: u64) -> Option<Increment> {
    increment("pod_failures_handled_by_failure_policy_total", vec![("action", action.to_owned())], by)
}

/// N-08: pods were created, or not. A creation that failed counts as both, as it does upstream.
pub(crate) fn pods_created(reason: &'static str, attempted: usize, failed: usize) -> Vec<Increment> {
    let one = |succeeded, by: usize| {
        let labels = vec![("reason", reason.to_owned()), ("status", result(succeeded).to_owned())];
        increment("job_pods_creation_total", labels, by as u64)
    };
    [one(true, attempted), one(false, failed)].into_iter().flatten().collect()
}

fn increment(name: &'static str, labels: Vec<(&'static str, String)>, by: u64) -> Option<Increment> {
    (by > 0).then_some(Increment { name, labels, by })
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "succeeded" } else { "failed" }
}

fn grown(old: i32, new: i32) -> u64 {
    u64::try_from(i64::from(new) - i64::from(old)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn n_06_pods_that_wait_to_be_counted() {
        let pod = |phase: &str, finalizer: bool| -> Pod {
            let finalizers = if finalizer { vec![super::super::pods::TRACKING_FINALIZER] } else { vec![] };
            serde_json::from_value(
                json!({"metadata": {"finalizers": finalizers}, "status": {"phase": phase}}),
            )
            .unwrap()
        };
        let (running, failed, succeeded) = (("Running", true), ("Failed", true), ("Succeeded", true));
        let counted = ("Succeeded", false);
        for (old, new, expected) in [
            (None, Some(running), None),
            (Some(running), Some(failed), Some("add")),
            (Some(running), Some(succeeded), Some("add")),
            (None, Some(succeeded), Some("add")),
            (Some(succeeded), Some(counted), Some("delete")),
            (Some(succeeded), None, Some("delete")),
            (Some(counted), None, None),
        ] {
            let [old, new] = [old, new].map(|state| state.map(|(phase, finalizer)| pod(phase, finalizer)));
            let got = tracked_pod_changed(old.as_ref(), new.as_ref());
            assert_eq!(got.map(|increment| increment.labels[0].1.clone()).as_deref(), expected);
        }
    }

    #[test]
    fn n_09_jobs_of_others() {
        let job = |managed_by: Option<&str>| -> Job {
            serde_json::from_value(json!({"spec": {"managedBy": managed_by, "template": {}}})).unwrap()
        };
        assert_eq!(job_added(&job(None)), None);
        assert_eq!(job_added(&job(Some("kubernetes.io/job-controller"))), None);
        let increment = job_added(&job(Some("example.com/x"))).unwrap();
        assert_eq!(increment.labels, [("controller_name", "example.com/x".to_owned())]);
    }
}
