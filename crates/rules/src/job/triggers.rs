//! Which changes call for a decision, and when.
//!
//! A decision reads everything anew, so a trigger names Jobs and times, never what has changed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::claims::controller_of;
use super::pods::has_tracking_finalizer;
use super::{is_finished, spec, status};

/// Changes of pods and statuses wait so long for others that come with them.
pub const BATCH: SignedDuration = SignedDuration::from_secs(1);

/// What a change of a Job calls for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobReaction {
    /// Decide about it then.
    pub decide_at: Option<Timestamp>,
    /// And again then: its deadline has moved.
    pub deadline_at: Option<Timestamp>,
    /// Look for [orphans](super::orphans) among the pods that its selector matches.
    pub look_for_orphans: bool,
    /// Drop what is remembered of it, at once: another Job of its name starts afresh.
    pub forget: bool,
}

/// What a change of a pod calls for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodReaction {
    /// Decide about the Jobs that these name, if they exist with that uid, after [`BATCH`].
    pub owners: Vec<OwnerReference>,
    /// Decide about every Job whose selector matches the pod, after [`BATCH`]: one may adopt it.
    pub adopters: bool,
    /// Ask whether the pod is an [orphan](super::orphans).
    pub maybe_orphan: bool,
    /// The pod only goes on: it was scheduled, it runs, it is ready or no longer. That is counted, and decides nothing.
    pub goes_on: bool,
}

/// A Job was added (no `old`), changed, or deleted (no `new`): J-01…J-05. Every Job is added when the controller starts.
pub fn job_changed(old: Option<&Job>, new: Option<&Job>, now: Timestamp) -> JobReaction {
    match (old, new) {
        (None, Some(_)) => JobReaction { decide_at: Some(now), ..JobReaction::default() },
        (_, None) => JobReaction {
            decide_at: Some(now),
            look_for_orphans: true,
            forget: true,
            ..JobReaction::default()
        },
        (Some(_), Some(new)) if is_finished(new) => {
            JobReaction { look_for_orphans: true, ..JobReaction::default() }
        }
        (Some(old), Some(new)) => {
            let edited = old.metadata.generation != new.metadata.generation;
            let deadline = spec(new).active_deadline_seconds;
            let moved = deadline.filter(|_| deadline != spec(old).active_deadline_seconds);
            JobReaction {
                decide_at: Some(if edited { now } else { after(now, BATCH) }),
                deadline_at: status(new)
                    .start_time
                    .as_ref()
                    .zip(moved)
                    .map(|(start, seconds)| after(start.0, SignedDuration::from_secs(seconds))),
                ..JobReaction::default()
            }
        }
    }
}

/// A pod was added (no `old`), changed, or deleted (no `new`): J-06, J-07.
pub fn pod_changed(old: Option<&Pod>, new: Option<&Pod>) -> PodReaction {
    let Some(pod) = new.or(old) else { return PodReaction::default() };
    let controller = controller_of(pod);
    let tracked = has_tracking_finalizer(pod);
    if new.is_none() || pod.metadata.deletion_timestamp.is_some() {
        return PodReaction {
            owners: controller.into_iter().filter(is_of_job).cloned().collect(),
            adopters: false,
            maybe_orphan: tracked,
            goes_on: false,
        };
    }
    let controller_before = old.and_then(controller_of);
    let left = controller_before.filter(|before| Some(*before) != controller);
    let owners = left.into_iter().chain(controller).filter(is_of_job).cloned().collect();
    let news = old.is_none_or(|old| left.is_some() || old.metadata.labels != pod.metadata.labels);
    PodReaction {
        owners,
        adopters: controller.is_none() && news,
        maybe_orphan: controller.is_none() && tracked,
        goes_on: old.is_some_and(|old| goes_on(old, pod)),
    }
}

fn goes_on(old: &Pod, new: &Pod) -> bool {
    let is_over = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let (before, after) = (&old.metadata, &new.metadata);
    !is_over(new)
        && before.owner_references == after.owner_references
        && before.labels == after.labels
        && before.finalizers == after.finalizers
}

fn is_of_job(controller: &&OwnerReference) -> bool {
    controller.kind == "Job"
}

fn after(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn job((generation, deadline, started, finished): (i64, Option<i64>, Option<i64>, bool)) -> Job {
        let conditions = if finished { json!([{"type": "Complete", "status": "True"}]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"generation": generation},
            "spec": {"activeDeadlineSeconds": deadline, "template": {}},
            "status": {"startTime": started.map(|second| at(second).to_string()), "conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn j_01_to_j_05_jobs() {
        let plain = Some((1, None, Some(50), false));
        let nothing = JobReaction::default();
        let decide_at = |second| JobReaction { decide_at: Some(at(second)), ..nothing };
        let (deadline, finished) = (Some((2, Some(70), Some(50), false)), Some((2, None, Some(50), true)));
        for (rule, old, new, expected) in [
            ("J-01 added", None, plain, decide_at(100)),
            ("J-02 finished", plain, finished, JobReaction { look_for_orphans: true, ..nothing }),
            ("J-03 status", plain, plain, decide_at(101)),
            ("J-03 spec", plain, Some((2, None, Some(50), false)), decide_at(100)),
            (
                "J-04 a deadline",
                plain,
                deadline,
                JobReaction { deadline_at: Some(at(120)), ..decide_at(100) },
            ),
            ("J-04 the same deadline", deadline, deadline, decide_at(101)),
            ("J-04 not started", plain, Some((2, Some(70), None, false)), decide_at(100)),
            (
                "J-05 deleted",
                plain,
                None,
                JobReaction { look_for_orphans: true, forget: true, ..decide_at(100) },
            ),
        ] {
            let [old, new] = [old, new].map(|is| is.map(job));
            assert_eq!(job_changed(old.as_ref(), new.as_ref(), at(100)), expected, "{rule}");
        }
    }

    /// `owner label deleting tracked`, for example `("a", "x", false, true)`.
    type Is = (&'static str, &'static str, bool, bool);

    fn pod((owner, label, deleting, tracked): Is) -> Pod {
        let kind = if owner == "set" { "ReplicaSet" } else { "Job" };
        let owners: Vec<Value> = (!owner.is_empty())
            .then(|| json!({"apiVersion": "batch/v1", "kind": kind, "name": owner, "uid": owner, "controller": true}))
            .into_iter()
            .collect();
        let finalizers = if tracked { vec![super::super::pods::TRACKING_FINALIZER] } else { vec![] };
        serde_json::from_value(json!({"metadata": {
            "ownerReferences": owners, "labels": {"l": label}, "finalizers": finalizers,
            "deletionTimestamp": deleting.then(|| at(1).to_string()),
        }}))
        .unwrap()
    }

    #[test]
    fn j_06_a_pod_that_goes_on_decides_nothing() {
        let (bare, other) = (("a", "x", false, false), ("a", "y", false, false));
        let was = pod(("a", "x", false, true));
        let then = |mut pod: Pod, phase: &str| {
            pod.status.get_or_insert_default().phase = Some(phase.to_owned());
            pod
        };
        let goes_on = |old: Option<&Pod>, new: Option<&Pod>| pod_changed(old, new).goes_on;
        for phase in ["Pending", "Running", "Unknown"] {
            assert!(goes_on(Some(&was), Some(&then(was.clone(), phase))), "{phase}");
        }
        for phase in ["Succeeded", "Failed"] {
            assert!(!goes_on(Some(&was), Some(&then(was.clone(), phase))), "{phase}");
        }
        assert!(!goes_on(None, Some(&was)) && !goes_on(Some(&was), None));
        for new in [bare, other, ("b", "x", false, true), ("a", "x", true, true)] {
            assert!(!goes_on(Some(&was), Some(&pod(new))), "{new:?}");
        }
    }

    #[test]
    fn j_06_j_07_pods() {
        for (rule, old, new, owners, adopters, maybe_orphan) in [
            ("J-06 added", None, Some(("a", "x", false, true)), "a", false, false),
            (
                "J-06 changed",
                Some(("a", "x", false, true)),
                Some(("a", "y", false, false)),
                "a",
                false,
                false,
            ),
            ("J-06 deleted", Some(("a", "x", false, true)), None, "a", false, true),
            (
                "J-06 being deleted",
                Some(("a", "x", false, true)),
                Some(("a", "x", true, true)),
                "a",
                false,
                true,
            ),
            ("J-06 added while being deleted", None, Some(("a", "x", true, true)), "a", false, true),
            ("J-06 of another kind", None, Some(("set", "x", false, true)), "", false, false),
            (
                "J-07 another owner",
                Some(("a", "x", false, true)),
                Some(("b", "x", false, true)),
                "a b",
                false,
                false,
            ),
            ("J-07 added without owner", None, Some(("", "x", false, false)), "", true, false),
            ("J-07 with the finalizer", None, Some(("", "x", false, true)), "", true, true),
            ("J-07 released", Some(("a", "x", false, true)), Some(("", "x", false, false)), "a", true, false),
            (
                "J-07 relabelled",
                Some(("", "x", false, false)),
                Some(("", "y", false, false)),
                "",
                true,
                false,
            ),
            ("J-07 nothing new", Some(("", "x", false, true)), Some(("", "x", false, true)), "", false, true),
            ("J-07 an orphan deleted", Some(("", "x", false, false)), None, "", false, false),
            ("J-07 with the finalizer", Some(("", "x", false, true)), None, "", false, true),
        ] {
            let [old, new]: [Option<Pod>; 2] = [old, new].map(|is: Option<Is>| is.map(pod));
            let got = pod_changed(old.as_ref(), new.as_ref());
            let names: Vec<&str> = got.owners.iter().map(|owner| owner.name.as_str()).collect();
            assert_eq!(
                (names.join(" ").as_str(), got.adopters, got.maybe_orphan),
                (owners, adopters, maybe_orphan),
                "{rule}"
            );
        }
    }
}
