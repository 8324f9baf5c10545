//! Why a pod has to end before its containers do by themselves.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::sysctl;

/// What Kubernetes assumes if neither the pod nor its deletion says how long it may take to end.
const GRACE: Duration = Duration::from_secs(30);

/// Why a pod is being ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Somebody has deleted it.
    Deleted,
    /// It was active for longer than `activeDeadlineSeconds`.
    DeadlineExceeded,
    /// It has used more than it may.
    Evicted {
        /// A sentence for people.
        message: String,
    },
    /// The node does not take it.
    Rejected {
        /// A word for programs.
        reason: String,
        /// A sentence for people.
        message: String,
    },
    /// Something has cut it short that was no fault of its own; the condition `DisruptionTarget` says what.
    Disrupted {
        /// A word for programs: `TerminationByKubelet`, `EvictionByEvictionAPI`…
        reason: String,
        /// A sentence for people.
        message: String,
    },
    /// It has reached a final phase by somebody else's word: the pod garbage collector's, or an evictor's.
    Final,
}

impl Ending {
    /// The reason and message that the pod's status gives for it.
    pub fn words(&self) -> Option<(&str, &str)> {
        match self {
            Ending::Deleted | Ending::Final | Ending::Disrupted { .. } => None,
            Ending::DeadlineExceeded => {
                Some(("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"))
            }
            Ending::Evicted { message } => Some(("Evicted", message)),
            Ending::Rejected { reason, message } => Some((reason, message)),
        }
    }

    /// Whether the pod has failed by it, however its containers end.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Ending::Deleted | Ending::Final => false,
            Ending::DeadlineExceeded
            | Ending::Evicted { .. }
            | Ending::Rejected { .. }
            | Ending::Disrupted { .. } => true,
        }
    }
}

/// Whether a pod that began at `started` has to end now; if not, when to ask again.
pub fn of_pod(pod: &Pod, started: Option<Timestamp>, now: Timestamp) -> Result<Ending, Option<Timestamp>> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Ending::Deleted);
    }
    if is_final(pod) {
        return Ok(Ending::Final);
    }
    if let Some((reason, message)) = sysctl::refusal(pod) {
        return Ok(Ending::Rejected { reason: reason.to_owned(), message });
    }
    let seconds = pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let (Some(seconds), Some(started)) = (seconds, started) else { return Err(None) };
    let deadline = started.saturating_add(jiff::SignedDuration::from_secs(seconds));
    match deadline {
        Ok(deadline) if deadline <= now => Ok(Ending::DeadlineExceeded),
        Ok(deadline) => Err(Some(deadline)),
        Err(_) => Err(None),
    }
}

/// Whether the pod's phase can never change again.
pub fn is_final(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// How long the containers may take to end once they were told.
pub fn grace(pod: &Pod, ending: &Ending) -> Duration {
    let seconds = match ending {
        Ending::Deleted => pod.metadata.deletion_grace_period_seconds,
        // A disk that fills up does not wait; a second is what a kubelet gives at least.
        Ending::Evicted { .. } => Some(1),
        _ => None,
    };
    let own = || pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    seconds.or_else(own).map_or(GRACE, |seconds| Duration::from_secs(seconds.max(0).unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    #[test]
    fn deletion_comes_before_the_deadline() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let spec =
            json!({ "containers": [], "activeDeadlineSeconds": 5, "terminationGracePeriodSeconds": 7 });
        let living = pod(json!({ "spec": spec }));
        assert_eq!(of_pod(&living, None, at(100)), Err(None), "it has not begun");
        assert_eq!(of_pod(&living, Some(at(100)), at(104)), Err(Some(at(105))));
        assert_eq!(of_pod(&living, Some(at(100)), at(105)), Ok(Ending::DeadlineExceeded));
        assert_eq!(grace(&living, &Ending::DeadlineExceeded), Duration::from_secs(7));
        let deleted = pod(json!({ "spec": spec, "metadata": {
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 2 } }));
        assert_eq!(of_pod(&deleted, Some(at(100)), at(105)), Ok(Ending::Deleted));
        assert_eq!(grace(&deleted, &Ending::Deleted), Duration::from_secs(2));
    }
}
