//! What happened to the pods of a Job, as an onlooker knows it who misses nothing, and what a status must say of it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::super::super::indexes::IndexSet;
use super::super::super::pods::{INDEX_KEY, PodRef, has_tracking_finalizer, phase};
use super::super::super::{is_indexed, spec, status};
use super::cluster::{is_disrupted, is_ended};

#[derive(Default)]
pub(super) struct Truth {
    recorded_succeeded: BTreeSet<String>,
    recorded_failed: BTreeSet<String>,
    excused: BTreeSet<String>,
    /// Pods that ended before their finalizer was taken off.
    ended: BTreeMap<String, Ended>,
}

struct Ended {
    phase: String,
    exit_code: i32,
    disrupted: bool,
    index: Option<u32>,
}

impl Truth {
    /// The pod may go uncounted: it was removed as superfluous, or made to vanish.
    pub(super) fn excuse(&mut self, pod: &PodRef) {
        self.excused.insert(pod.uid.clone());
    }

    pub(super) fn saw(&mut self, pod: &Pod) {
        if is_ended(pod) && has_tracking_finalizer(pod) {
            let status = pod.status.as_ref().unwrap();
            let exit_code = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
                Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
            };
            let ended = Ended {
                phase: phase(pod).to_owned(),
                exit_code: status.container_statuses.iter().flatten().find_map(exit_code).unwrap_or(0),
                disrupted: is_disrupted(pod),
                index: pod.metadata.annotations.as_ref().and_then(|a| a.get(INDEX_KEY)?.parse().ok()),
            };
            self.ended.entry(pod.metadata.uid.clone().unwrap()).or_insert(ended);
        }
    }

    /// No pod is recorded twice, none is lost between the list and the counter, and nothing is counted as succeeded
    /// that did not succeed.
    pub(super) fn check_status(&mut self, job: &Job) {
        let status = status(job);
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (succeeded, failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        self.recorded_succeeded.extend(succeeded.iter().cloned());
        self.recorded_failed.extend(failed.iter().cloned());
        let both: Vec<_> = self.recorded_succeeded.intersection(&self.recorded_failed).collect();
        assert!(both.is_empty(), "recorded as both: {both:?}");
        let counted = |counter: Option<i32>, list: &[String]| {
            usize::try_from(counter.unwrap_or(0)).unwrap() + list.len()
        };
        assert_eq!(
            counted(status.failed, &failed),
            self.recorded_failed.len(),
            "failed pods are counted once"
        );
        if is_indexed(spec(job)) {
            let list = status.completed_indexes.as_deref().unwrap_or_default();
            let completed = IndexSet::parse(list, spec(job).completions.unwrap()).expect("a list of indexes");
            assert!(counted(status.succeeded, &[]) >= completed.len(), "completed indexes are counted");
            let done =
                |index| self.ended.values().any(|pod| pod.phase == "Succeeded" && pod.index == Some(index));
            assert!(completed.iter().all(done), "{completed} are not all done");
        } else {
            let recorded = &self.recorded_succeeded;
            assert_eq!(
                counted(status.succeeded, &succeeded),
                recorded.len(),
                "succeeded pods are counted once"
            );
            let ended = |uid: &String| self.ended.get(uid).is_some_and(|pod| pod.phase == "Succeeded");
            assert!(recorded.iter().all(ended), "only what succeeded is counted so");
        }
    }

    /// Once the Job is finished, every pod that ended was counted, unless there was a reason not to.
    pub(super) fn check_nothing_lost(&self, job: &Job) {
        let spec = spec(job);
        for (uid, pod) in &self.ended {
            let out_of_range = is_indexed(spec)
                && pod.index.is_none_or(|index| i64::from(index) >= i64::from(spec.completions.unwrap()));
            if self.excused.contains(uid) || out_of_range {
                continue;
            }
            let recorded = self.recorded_succeeded.contains(uid) || self.recorded_failed.contains(uid);
            let ignored =
                spec.pod_failure_policy.is_some() && (pod.disrupted || matches!(pod.exit_code, 42 | 143));
            match pod.phase.as_str() {
                "Succeeded" => assert!(recorded || is_indexed(spec), "{uid} succeeded and was not counted"),
                _ => assert!(recorded || ignored, "{uid} failed and was not counted"),
            }
        }
    }
}
