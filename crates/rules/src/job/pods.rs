//! What the Job controller reads from a pod: its state, its index, its failures, when it ended, and which pod to part
//! with first.
//!
//! A pod is read once into `Facts`; the decision and the accounting work on those alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::failure_policy::{self, Verdict};
use super::spec::Spec;

/// The finalizer that keeps a pod until its end has been counted.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The annotation, and label, with a pod's completion index.
pub const INDEX_KEY: &str = "batch.kubernetes.io/job-completion-index";
/// The annotation with the number of failures of a pod's index before it.
pub const INDEX_FAILURES_KEY: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation with the number of failures of a pod's index before it that were ignored.
pub const INDEX_IGNORED_FAILURES_KEY: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The pod in a plan: enough to write to it, and to know it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its uid: the name may belong to another pod by the time of the write.
    pub uid: String,
}

impl PodRef {
    pub(crate) fn of(pod: &Pod) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        PodRef { name: text(&pod.metadata.name), uid: text(&pod.metadata.uid) }
    }
}

/// Where a pod is in its life. Every pod is in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Neither ended nor told to.
    Active,
    /// Told to end, and not there yet.
    Terminating,
    Succeeded,
    Failed,
}

/// What the decision needs to know of one pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) pod: PodRef,
    pub(crate) state: State,
    pub(crate) ready: bool,
    pub(crate) finalizer: bool,
    pub(crate) index: Option<u32>,
    /// Earlier failures of the pod's index that count, and those that were ignored.
    pub(crate) index_failures: i32,
    pub(crate) index_ignored_failures: i32,
    /// Container restarts, of a pod that runs or is about to.
    pub(crate) restarts: i32,
    pub(crate) finished_at: Timestamp,
    pub(crate) verdict: Verdict,
    pub(crate) rank: Rank,
}

impl Facts {
    pub(crate) fn read(pod: &Pod, spec: &Spec) -> Self {
        Facts {
            pod: PodRef::of(pod),
            state: state(pod),
            ready: ready_condition(pod).is_some_and(|(status, _)| status == "True"),
            finalizer: has_tracking_finalizer(pod),
            index: index(pod),
            index_failures: count_annotation(pod, INDEX_FAILURES_KEY),
            index_ignored_failures: count_annotation(pod, INDEX_IGNORED_FAILURES_KEY),
            restarts: restarts(pod),
            finished_at: finished_at(pod),
            verdict: spec
                .failure_policy
                .as_ref()
                .map_or(Verdict::Unmatched, |policy| failure_policy::judge(policy, pod)),
            rank: Rank::of(pod),
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state == State::Active
    }

    /// Whether the pod counts as failed (J-18). A terminating pod does, unless only ended pods are replaced.
    pub(crate) fn is_failed(&self, spec: &Spec) -> bool {
        match self.state {
            State::Failed => true,
            State::Terminating => !spec.only_replace_failed,
            State::Active | State::Succeeded => false,
        }
    }

    /// Whether the pod belongs to an index that the Job has (always, if it has none).
    pub(crate) fn in_range(&self, spec: &Spec) -> bool {
        spec.index_count().is_none_or(|count| self.index.is_some_and(|index| index < count))
    }

    /// All earlier failures of the pod's index.
    pub(crate) fn all_index_failures(&self) -> i32 {
        self.index_failures.saturating_add(self.index_ignored_failures)
    }
}

/// Which pod is deleted first (J-34): the least one. The least work is lost that way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    scheduled: bool,
    phase: u8,
    ready: bool,
    /// Unknown first, then the latest.
    ready_since: Option<Reverse<Timestamp>>,
    restarts: Reverse<i32>,
    sidecar_restarts: Reverse<i32>,
    /// Unknown first, then the youngest.
    created: Option<Reverse<Timestamp>>,
}

impl Rank {
    fn of(pod: &Pod) -> Self {
        let (ready, since) = ready_condition(pod).unwrap_or(("", None));
        let ready = ready == "True";
        let (containers, init_containers) = container_statuses(pod);
        let most = |statuses: &mut dyn Iterator<Item = &ContainerStatus>| {
            Reverse(statuses.map(|status| status.restart_count).max().unwrap_or(0))
        };
        Rank {
            scheduled: pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.as_deref().is_some_and(|n| !n.is_empty())),
            phase: match phase(pod) {
                "Running" => 2,
                "Unknown" => 1,
                _ => 0,
            },
            ready,
            ready_since: since.filter(|_| ready).map(Reverse),
            restarts: most(&mut containers.iter()),
            sidecar_restarts: most(
                &mut init_containers.iter().filter(|status| is_sidecar(pod, &status.name)),
            ),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| Reverse(time.0)),
        }
    }
}

/// Whether the Job controller still has to count the pod's end.
pub fn has_tracking_finalizer(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

/// Whether the pod has ended, and nothing of that is left to be counted.
pub(crate) fn is_counted(pod: &Pod) -> bool {
    matches!(state(pod), State::Succeeded | State::Failed) && !has_tracking_finalizer(pod)
}

fn state(pod: &Pod) -> State {
    match phase(pod) {
        "Succeeded" => State::Succeeded,
        "Failed" => State::Failed,
        _ if pod.metadata.deletion_timestamp.is_some() => State::Terminating,
        _ => State::Active,
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The pod's completion index. One that no Job can have is kept as the largest number, so that it is out of range
/// rather than missing.
fn index(pod: &Pod) -> Option<u32> {
    let text = annotations(pod)?.get(INDEX_KEY)?;
    let index: i64 = text.parse().ok()?;
    (index >= 0).then(|| u32::try_from(index).unwrap_or(u32::MAX))
}

/// A counter in an annotation; anything but a sensible number is zero (I-13).
fn count_annotation(pod: &Pod, key: &str) -> i32 {
    let count = annotations(pod).and_then(|annotations| annotations.get(key)?.parse::<i32>().ok());
    count.unwrap_or(0).max(0)
}

fn annotations(pod: &Pod) -> Option<&BTreeMap<String, String>> {
    pod.metadata.annotations.as_ref()
}

fn restarts(pod: &Pod) -> i32 {
    if !matches!(phase(pod), "Running" | "Pending") {
        return 0;
    }
    let (containers, init_containers) = container_statuses(pod);
    containers.iter().chain(init_containers).fold(0, |sum, status| sum.saturating_add(status.restart_count))
}

/// When the pod ended (B-04), by the best evidence there is.
fn finished_at(pod: &Pod) -> Timestamp {
    let from_deletion = || {
        let at = pod.metadata.deletion_timestamp.as_ref()?.0;
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
        Some(at.checked_sub(grace).unwrap_or(Timestamp::MIN))
    };
    let from_unready =
        || ready_condition(pod).and_then(|(status, since)| since.filter(|_| status == "False"));
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    containers_finished_at(pod)
        .or_else(from_unready)
        .or_else(from_deletion)
        .or_else(created)
        .unwrap_or(Timestamp::MIN)
}

/// The end of the last container, sidecars included, when all of them have ended.
fn containers_finished_at(pod: &Pod) -> Option<Timestamp> {
    let (containers, init_containers) = container_statuses(pod);
    let ends = |statuses: &mut dyn Iterator<Item = &ContainerStatus>| -> Option<Vec<Timestamp>> {
        statuses
            .map(|status| {
                Some(status.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0))
            })
            .collect::<Option<Option<Vec<_>>>>()
            .flatten()
    };
    let sidecars = ends(&mut init_containers.iter().filter(|status| is_sidecar(pod, &status.name)))?;
    // App containers that still run leave the word to the sidecars, as upstream has it.
    let apps = ends(&mut containers.iter()).unwrap_or_default();
    apps.into_iter().chain(sidecars).max()
}

fn is_sidecar(pod: &Pod, container: &str) -> bool {
    let init_containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    init_containers
        .filter(|c| c.restart_policy.as_deref() == Some("Always"))
        .any(|sidecar| sidecar.name == container)
}

fn container_statuses(pod: &Pod) -> (&[ContainerStatus], &[ContainerStatus]) {
    match &pod.status {
        Some(status) => (
            status.container_statuses.as_deref().unwrap_or_default(),
            status.init_container_statuses.as_deref().unwrap_or_default(),
        ),
        None => (&[], &[]),
    }
}

/// The status of the pod's Ready condition, and since when it is that.
fn ready_condition(pod: &Pod) -> Option<(&str, Option<Timestamp>)> {
    let condition = pod.status.as_ref()?.conditions.iter().flatten().find(|c| c.type_ == "Ready")?;
    Some((&condition.status, condition.last_transition_time.as_ref().map(|time| time.0)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn second(second: i64) -> String {
        Timestamp::from_second(second).unwrap().to_string()
    }

    fn container(name: &str, state: &Value) -> Value {
        json!({"name": name, "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0})
    }

    fn ended(at: i64) -> Value {
        json!({"terminated": {"exitCode": 1, "finishedAt": second(at)}})
    }

    #[test]
    fn b_04_finish_time() {
        let created = json!({"creationTimestamp": second(1)});
        let sidecar = json!({"containers": [], "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]});
        let unready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": second(5)}]);
        let deleted = json!({"deletionTimestamp": second(40), "deletionGracePeriodSeconds": 30, "creationTimestamp": second(1)});
        for (rule, object, expected) in [
            (
                "the latest container",
                json!({"status": {"containerStatuses": [container("a", &ended(7)), container("b", &ended(9)), container("c", &ended(8))]}}),
                9,
            ),
            (
                "one still runs",
                json!({"metadata": created, "status": {"containerStatuses": [container("a", &ended(7)), container("b", &json!({}))]}}),
                1,
            ),
            (
                "one ended at an unknown time",
                json!({"metadata": created, "status": {"containerStatuses": [container("a", &json!({"terminated": {"exitCode": 0}}))]}}),
                1,
            ),
            (
                "a sidecar ends later",
                json!({"spec": sidecar, "status": {"containerStatuses": [container("a", &ended(7))], "initContainerStatuses": [container("s", &ended(8)), container("i", &ended(99))]}}),
                8,
            ),
            (
                "a sidecar still runs",
                json!({"metadata": created, "spec": sidecar, "status": {"containerStatuses": [container("a", &ended(7))], "initContainerStatuses": [container("s", &json!({}))]}}),
                1,
            ),
            ("not ready since", json!({"metadata": deleted, "status": {"conditions": unready}}), 5),
            (
                "ready says nothing",
                json!({"metadata": deleted, "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": second(5)}]}}),
                10,
            ),
            ("deletion less grace", json!({"metadata": deleted}), 10),
            ("deletion without grace", json!({"metadata": {"deletionTimestamp": second(40)}}), 40),
            ("creation", json!({"metadata": created}), 1),
        ] {
            assert_eq!(finished_at(&pod(object)).as_second(), expected, "{rule}");
        }
    }

    #[test]
    fn j_18_which_pods_are_failed() {
        let job = |spec: Value| -> Job { serde_json::from_value(json!({"spec": spec})).unwrap() };
        let template = json!({"spec": {"containers": []}});
        let eager = job(json!({"template": template, "podReplacementPolicy": "TerminatingOrFailed"}));
        let careful = job(json!({"template": template, "podReplacementPolicy": "Failed"}));
        let policy = job(json!({"template": template, "podFailurePolicy": {"rules": []}}));
        for (phase, deleted, state, failed_eager, failed_careful) in [
            ("Pending", false, State::Active, false, false),
            ("Running", false, State::Active, false, false),
            ("Unknown", false, State::Active, false, false),
            ("", false, State::Active, false, false),
            ("Running", true, State::Terminating, true, false),
            ("Succeeded", true, State::Succeeded, false, false),
            ("Succeeded", false, State::Succeeded, false, false),
            ("Failed", true, State::Failed, true, true),
            ("Failed", false, State::Failed, true, true),
        ] {
            let mut pod = pod(json!({"status": {"phase": phase}}));
            if deleted {
                pod.metadata.deletion_timestamp =
                    Some(super::super::conditions::wire_time(Timestamp::UNIX_EPOCH));
            }
            for (job, failed) in
                [(&eager, failed_eager), (&careful, failed_careful), (&policy, failed_careful)]
            {
                let spec = Spec::read(job).unwrap();
                let facts = Facts::read(&pod, &spec);
                assert_eq!((facts.state, facts.is_failed(&spec)), (state, failed), "{phase} {deleted}");
            }
        }
    }

    #[test]
    fn i_13_odd_annotations() {
        for (text, as_index, as_count) in [
            (None, None, 0),
            (Some("3"), Some(3), 3),
            (Some("+3"), Some(3), 3),
            (Some("-1"), None, 0),
            (Some("x"), None, 0),
            (Some(""), None, 0),
            (Some("2147483648"), Some(2_147_483_648), 0),
            (Some("4294967296"), Some(u32::MAX), 0),
            (Some("99999999999999999999"), None, 0),
        ] {
            let mut pod = Pod::default();
            if let Some(text) = text {
                let keys = [INDEX_KEY, INDEX_FAILURES_KEY];
                pod.metadata.annotations = Some(keys.map(|key| (key.to_owned(), text.to_owned())).into());
            }
            assert_eq!(
                (index(&pod), count_annotation(&pod, INDEX_FAILURES_KEY)),
                (as_index, as_count),
                "{text:?}"
            );
        }
    }

    #[test]
    fn j_34_who_goes_first() {
        let ready = |at: i64| json!([{"type": "Ready", "status": "True", "lastTransitionTime": second(at)}]);
        let running = |restarts: i32, created: i64| {
            let mut status = container("a", &json!({}));
            status["restartCount"] = json!(restarts);
            json!({
                "metadata": {"creationTimestamp": second(created)},
                "spec": {"nodeName": "n", "containers": []},
                "status": {"phase": "Running", "conditions": ready(50), "containerStatuses": [status]},
            })
        };
        // Each pod goes before the next one.
        let order = [
            ("unscheduled", json!({"status": {"phase": "Running", "conditions": ready(1)}})),
            ("pending", json!({"spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Pending"}})),
            ("unknown", json!({"spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Unknown"}})),
            (
                "not ready",
                json!({"spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}}),
            ),
            (
                "ready since nobody knows when",
                json!({"spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
            ),
            (
                "ready for a short time",
                json!({"spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running", "conditions": ready(60)}}),
            ),
            ("restarted often", running(3, 1)),
            ("restarted once, young", running(1, 9)),
            ("restarted once, old", running(1, 8)),
        ];
        let ranks: Vec<(&str, Rank)> =
            order.into_iter().map(|(name, object)| (name, Rank::of(&pod(object)))).collect();
        for pair in ranks.windows(2) {
            assert!(pair[0].1 < pair[1].1, "{} goes before {}", pair[0].0, pair[1].0);
        }
    }

    #[test]
    fn b_10_restarts_are_summed_while_the_pod_runs() {
        for (phase, expected) in [("Running", 5), ("Pending", 5), ("Failed", 0), ("Unknown", 0)] {
            let mut status = container("a", &json!({}));
            status["restartCount"] = json!(2);
            let mut init = status.clone();
            init["restartCount"] = json!(3);
            let object = json!({"status": {"phase": phase, "containerStatuses": [status], "initContainerStatuses": [init]}});
            assert_eq!(restarts(&pod(object)), expected, "{phase}");
        }
    }
}
