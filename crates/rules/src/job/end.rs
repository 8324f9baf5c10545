//! Whether and how a Job ends, other than by reaching its completions.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};

use super::conditions;
use super::failure_policy::Verdict;
use super::indexes::IndexSet;
use super::success_policy;
use super::view::{View, to_i32};
use super::{FAILURE_TARGET, SUCCESS_CRITERIA_MET};

/// How a Job ends, from the moment that this is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) success: bool,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The status says so already.
    pub(crate) recorded: bool,
}

impl End {
    pub(crate) fn success(reason: &str, message: impl Into<String>) -> Self {
        End { success: true, reason: reason.to_owned(), message: message.into(), recorded: false }
    }

    pub(crate) fn failure(reason: &str, message: impl Into<String>) -> Self {
        End { success: false, reason: reason.to_owned(), message: message.into(), recorded: false }
    }

    /// The end that the status already tells.
    pub(crate) fn recorded(status: &JobStatus) -> Option<Self> {
        let success = conditions::find_true(status, SUCCESS_CRITERIA_MET);
        let condition = success.or_else(|| conditions::find_true(status, FAILURE_TARGET))?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(End {
            success: success.is_some(),
            reason: text(&condition.reason),
            message: text(&condition.message),
            recorded: true,
        })
    }

    pub(crate) fn condition(&self, kind: &str, view: &View) -> JobCondition {
        conditions::new(kind, "True", &self.reason, &self.message, view.now)
    }
}

/// Whether and how the Job ends (J-20), other than by reaching its completions. The first reason wins, and an end once
/// told is kept.
pub(crate) fn end(view: &View) -> Option<End> {
    let spec = &view.spec;
    if let Some(end) = End::recorded(&view.status) {
        return Some(end);
    }
    let failed_pods = view.facts().filter(|pod| pod.is_failed(spec));
    for pod in failed_pods {
        if let Verdict::FailJob(message) = &pod.verdict {
            return Some(End::failure("PodFailurePolicy", message));
        }
    }
    if view.failed > spec.backoff_limit || too_many_restarts(view) {
        return Some(End::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    if deadline(view).is_some_and(|deadline| deadline <= view.now) {
        return Some(End::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    let indexes = view.indexes.as_ref()?;
    let failed = indexes.failed.as_ref().map_or(0, IndexSet::len);
    if spec.max_failed_indexes.is_some_and(|most| to_i32(failed) > most) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(End::failure("MaxFailedIndexesExceeded", message));
    }
    if failed > 0 && failed + indexes.completed.len() >= indexes.count as usize {
        return Some(End::failure("FailedIndexes", "Job has failed indexes"));
    }
    let rule = success_policy::met(spec.success_policy.as_ref()?, spec.completions?, &indexes.completed)?;
    Some(End::success("SuccessPolicy", format!("Matched rules at index {rule}")))
}

/// When the Job has been active for too long (J-60). A suspended Job is not active.
pub(crate) fn deadline(view: &View) -> Option<Timestamp> {
    let start = view.status.start_time.as_ref().filter(|_| !view.spec.suspended)?;
    Some(start.0.checked_add(view.spec.active_deadline?).unwrap_or(Timestamp::MAX))
}

/// Whether containers that are restarted in their pods used up the backoff limit (B-10).
fn too_many_restarts(view: &View) -> bool {
    let restarts = view.facts().fold(0i32, |sum, pod| sum.saturating_add(pod.restarts));
    view.spec.restarts_on_failure && restarts >= view.spec.backoff_limit.max(1)
}
