//! When a finished Job is removed: `ttlSecondsAfterFinished`.
//!
//! It holds for every Job, whoever manages it (L-01).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;

use super::conditions;

/// What is to be done about a finished Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// Nothing: it is not finished, has no time to live, or is being deleted.
    Keep,
    /// Look again then.
    Wait(Timestamp),
    /// Its time is over since then. Read it afresh, decide again, and if it is still so delete it in the foreground,
    /// with its uid as precondition (L-04).
    Delete(Timestamp),
}

/// A finished Job that does not say when it finished; it stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFinishTime {
    job: String,
}

impl std::fmt::Display for UnknownFinishTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unable to find the time when the Job {} finished", self.job)
    }
}

impl std::error::Error for UnknownFinishTime {}

/// Decides about one Job (L-01…L-05). Asked again whenever the Job changes.
pub fn decide(job: &Job, now: Timestamp) -> Result<Ttl, UnknownFinishTime> {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let (Some(ttl), Some(finished), None) =
        (ttl, conditions::finished(job), &job.metadata.deletion_timestamp)
    else {
        return Ok(Ttl::Keep);
    };
    let Some(finished_at) = &finished.last_transition_time else {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let job = format!("{}/{}", name(&job.metadata.namespace), name(&job.metadata.name));
        return Err(UnknownFinishTime { job });
    };
    let ttl = SignedDuration::from_secs(ttl.into());
    let expires_at = finished_at.0.checked_add(ttl).unwrap_or(Timestamp::MAX);
    Ok(if expires_at <= now { Ttl::Delete(expires_at) } else { Ttl::Wait(expires_at) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn l_01_to_l_05() {
        let condition = |kind: &str, status: &str, time: Option<i64>| -> Value {
            json!({"type": kind, "status": status, "lastTransitionTime": time.map(|time| at(time).to_string())})
        };
        let complete = condition("Complete", "True", Some(90));
        let criteria = condition("SuccessCriteriaMet", "True", Some(50));
        for (rule, ttl, deleting, conditions, expected) in [
            ("L-01 no TTL", None, false, vec![complete.clone()], Ok(Ttl::Keep)),
            ("L-01 not finished", Some(0), false, vec![criteria.clone()], Ok(Ttl::Keep)),
            ("L-01 not finished", Some(0), false, vec![condition("Failed", "False", Some(1))], Ok(Ttl::Keep)),
            ("L-01 being deleted", Some(0), true, vec![complete.clone()], Ok(Ttl::Keep)),
            ("L-02 zero", Some(0), false, vec![complete.clone()], Ok(Ttl::Delete(at(90)))),
            (
                "L-02 the terminal condition counts",
                Some(5),
                false,
                vec![criteria, complete.clone()],
                Ok(Ttl::Delete(at(95))),
            ),
            (
                "L-02 failed",
                Some(10),
                false,
                vec![condition("Failed", "True", Some(90))],
                Ok(Ttl::Delete(at(100))),
            ),
            ("L-03 not yet", Some(11), false, vec![complete], Ok(Ttl::Wait(at(101)))),
            (
                "L-03 finished in the future",
                Some(0),
                false,
                vec![condition("Complete", "True", Some(200))],
                Ok(Ttl::Wait(at(200))),
            ),
            (
                "L-05 nobody knows when",
                Some(0),
                false,
                vec![condition("Failed", "True", None)],
                Err("unable to find the time when the Job ns/job finished"),
            ),
        ] {
            for managed_by in [None, Some("example.com/x")] {
                let job = json!({
                    "metadata": {"name": "job", "namespace": "ns", "deletionTimestamp": deleting.then(|| at(95).to_string())},
                    "spec": {"ttlSecondsAfterFinished": ttl, "managedBy": managed_by, "template": {}},
                    "status": {"conditions": conditions},
                });
                let got =
                    decide(&serde_json::from_value(job).unwrap(), at(100)).map_err(|error| error.to_string());
                assert_eq!(got, expected.map_err(str::to_owned), "{rule}");
            }
        }
    }
}
