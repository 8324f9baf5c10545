//! Which pods are a Job's: those it owns, those it adopts, and those it lets go.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::new_pod::owner_reference;
use super::pods::{PodRef, TRACKING_FINALIZER};
use super::spec;
use crate::meta::{self, selector};

/// A change of a pod's owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Nobody controls the pod, and the Job's selector matches: it gets the Job's reference and finalizer.
    /// Only after [`may_adopt`] agreed on a fresh read of the Job.
    Adopt(PodRef),
    /// The Job's selector does not match any more: it loses both. When the API server says that the pod is gone, or
    /// that the patch is invalid (somebody else released it, or it is another pod), that is as good.
    Release(PodRef),
}

impl Claim {
    /// The pod in question.
    pub fn pod(&self) -> &PodRef {
        match self {
            Claim::Adopt(pod) | Claim::Release(pod) => pod,
        }
    }

    /// The strategic merge patch that does it. The uid in it makes the API server refuse a pod of the same name that
    /// is another one.
    pub fn patch(&self, job: &Job) -> Value {
        let reference = owner_reference(job);
        match self {
            Claim::Adopt(pod) => json!({"metadata": {
                "uid": pod.uid,
                "ownerReferences": [reference],
                "finalizers": [TRACKING_FINALIZER],
            }}),
            Claim::Release(pod) => json!({"metadata": {
                "uid": pod.uid,
                "ownerReferences": [{"$patch": "delete", "uid": reference.uid}],
                "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
            }}),
        }
    }
}

/// The strategic merge patch that takes the tracking finalizer off a pod.
pub fn remove_finalizer_patch() -> Value {
    json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}})
}

/// Whether the Job, as just read from the API server, is still the one that wanted to adopt: a Job that is
/// being deleted, or was replaced by another of its name, adopts nothing.
pub fn may_adopt(job: &Job, fresh: &Job) -> bool {
    fresh.metadata.uid == job.metadata.uid && fresh.metadata.deletion_timestamp.is_none()
}

/// The controller of a pod, if it has one.
pub fn controller_of(pod: &Pod) -> Option<&OwnerReference> {
    meta::controller_of(&pod.metadata)
}

/// What becomes of the candidates.
pub(crate) struct Claims<'a> {
    pub(crate) changes: Vec<Claim>,
    /// The pods that are the Job's once the changes are made.
    pub(crate) own: Vec<Own<'a>>,
}

/// A pod of the Job's own.
pub(crate) struct Own<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) adopted: bool,
}

/// Sorts the candidates (A-01…A-05). Pods of other controllers and of other namespaces are none.
pub(crate) fn claim<'a>(job: &Job, candidates: &[&'a Pod]) -> Claims<'a> {
    let deleting = job.metadata.deletion_timestamp.is_some();
    let selector = spec(job).selector.as_ref();
    let no_labels = BTreeMap::new();
    let mut claims = Claims { changes: Vec::new(), own: Vec::new() };
    for &pod in candidates.iter().filter(|pod| pod.metadata.namespace == job.metadata.namespace) {
        let labels = pod.metadata.labels.as_ref().unwrap_or(&no_labels);
        let wanted = selector::matches(selector, labels) == Some(true);
        match controller_of(pod) {
            Some(controller) if is_job(controller, job) => {
                if wanted {
                    claims.own.push(Own { pod, adopted: false });
                } else if !deleting {
                    claims.changes.push(Claim::Release(PodRef::of(pod)));
                }
            }
            Some(_) => {}
            None => {
                if wanted && !deleting && pod.metadata.deletion_timestamp.is_none() {
                    claims.changes.push(Claim::Adopt(PodRef::of(pod)));
                    claims.own.push(Own { pod, adopted: true });
                }
            }
        }
    }
    claims
}

/// Whether the reference is to this Job, not to an earlier one of its name.
pub(crate) fn is_job(reference: &OwnerReference, job: &Job) -> bool {
    reference.kind == "Job"
        && job.metadata.name.as_ref() == Some(&reference.name)
        && job.metadata.uid.as_ref() == Some(&reference.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(extra: &Value) -> Job {
        let mut job = json!({
            "metadata": {"name": "job", "namespace": "ns", "uid": "u"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": []}}},
        });
        merge(&mut job, extra);
        serde_json::from_value(job).unwrap()
    }

    fn pod(extra: &Value) -> Pod {
        let mut pod =
            json!({"metadata": {"name": "pod", "namespace": "ns", "uid": "p", "labels": {"a": "b"}}});
        merge(&mut pod, extra);
        serde_json::from_value(pod).unwrap()
    }

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    fn controlled_by(name: &str, uid: &str) -> Value {
        let reference =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true});
        json!({"metadata": {"ownerReferences": [reference]}})
    }

    #[test]
    fn a_01_to_a_05_claims() {
        let deleting = json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}});
        let other_labels = json!({"metadata": {"labels": {"a": "c"}}});
        let with = |a: &Value, b: &Value| {
            let mut a = a.clone();
            merge(&mut a, b);
            a
        };
        let ours = controlled_by("job", "u");
        for (rule, job_extra, pod_extra, expected) in [
            ("A-02 owned", json!({}), ours.clone(), "own"),
            ("A-02 owned while the Job goes", deleting.clone(), ours.clone(), "own"),
            ("A-02 owned while the pod goes", json!({}), with(&ours, &deleting), "own"),
            ("A-02 released", json!({}), with(&ours, &other_labels), "release"),
            ("A-02 not released while the Job goes", deleting.clone(), with(&ours, &other_labels), "nothing"),
            ("A-03 adopted", json!({}), json!({}), "adopt"),
            ("A-03 the Job goes", deleting.clone(), json!({}), "nothing"),
            ("A-03 the pod goes", json!({}), deleting.clone(), "nothing"),
            ("A-03 no match", json!({}), other_labels, "nothing"),
            ("A-03 no selector", json!({"spec": {"selector": null}}), json!({}), "nothing"),
            (
                "A-03 an empty selector",
                json!({"spec": {"selector": {"matchLabels": null}}}),
                json!({}),
                "adopt",
            ),
            ("A-01 another namespace", json!({}), json!({"metadata": {"namespace": "other"}}), "nothing"),
            ("A-05 another Job", json!({}), controlled_by("other", "v"), "nothing"),
            ("A-05 an earlier Job of the name", json!({}), controlled_by("job", "v"), "nothing"),
        ] {
            let (job, pod) = (job(&job_extra), pod(&pod_extra));
            let claims = claim(&job, &[&pod]);
            let got = match (&claims.changes[..], &claims.own[..]) {
                ([], []) => "nothing",
                ([], [Own { adopted: false, .. }]) => "own",
                ([Claim::Adopt(_)], [Own { adopted: true, .. }]) => "adopt",
                ([Claim::Release(_)], []) => "release",
                _ => "something strange",
            };
            assert_eq!(got, expected, "{rule}");
        }
    }

    #[test]
    fn a_02_a_03_patches() {
        let pod = PodRef { name: "pod".to_owned(), uid: "p".to_owned() };
        let reference = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u",
            "controller": true, "blockOwnerDeletion": true,
        });
        assert_eq!(
            Claim::Adopt(pod.clone()).patch(&job(&json!({}))),
            json!({"metadata": {"uid": "p", "ownerReferences": [reference], "finalizers": [TRACKING_FINALIZER]}})
        );
        assert_eq!(
            Claim::Release(pod).patch(&job(&json!({}))),
            json!({"metadata": {
                "uid": "p",
                "ownerReferences": [{"$patch": "delete", "uid": "u"}],
                "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
            }})
        );
    }

    #[test]
    fn a_04_a_fresh_read_decides() {
        let cached = job(&json!({}));
        assert!(may_adopt(&cached, &cached));
        assert!(!may_adopt(&cached, &job(&json!({"metadata": {"uid": "v"}}))));
        assert!(!may_adopt(
            &cached,
            &job(&json!({"metadata": {"deletionTimestamp": "2025-01-01T00:00:00Z"}}))
        ));
    }
}
