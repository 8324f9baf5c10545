//! Jobs and pods in a few words, and the one way in which decisions are checked.

#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and tables are full of them

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::super::super::Settings;
use super::super::super::backoff::Backoff;
use super::super::super::memory::Memory;
use super::super::super::metrics::Increment;
use super::super::super::pods::{
    INDEX_FAILURES_KEY, INDEX_IGNORED_FAILURES_KEY, INDEX_KEY, TRACKING_FINALIZER,
};
use super::super::{Fate, Observed, Plan, decide};

/// The second in which every decision of a table is taken.
pub(super) const NOW: i64 = 1000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn time(second: i64) -> String {
    at(second).to_string()
}

/// What is seen of a Job: a builder.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) job: Job,
    pub(super) pods: Vec<Pod>,
    pub(super) memory: Memory,
    pub(super) settings: Settings,
}

/// A Job with this spec, the defaults of the API filled in, that nobody has looked at yet.
pub(super) fn job(spec: Value) -> Seen {
    let mut full = json!({
        "completionMode": "NonIndexed",
        "suspend": false,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "job-uid"}},
        "template": {
            "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "job-uid"}},
            "spec": {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"},
        },
    });
    merge(&mut full, &spec);
    if full["backoffLimit"].is_null() {
        full["backoffLimit"] = json!(if full["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX });
    }
    if full["podReplacementPolicy"].is_null() {
        let policy = if full["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
        full["podReplacementPolicy"] = json!(policy);
    }
    if full["parallelism"].is_null() {
        full["parallelism"] = json!(1);
        if spec["parallelism"].is_null() && spec["completions"].is_null() {
            full["completions"] = json!(1);
        }
    }
    let job = json!({"metadata": {"name": "job", "namespace": "ns", "uid": "job-uid"}, "spec": full});
    Seen {
        job: serde_json::from_value(job).unwrap(),
        pods: Vec::new(),
        memory: Memory::default(),
        settings: Settings::default(),
    }
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

impl Seen {
    /// The status of a Job that started a while ago, and what else is said.
    pub(super) fn status(mut self, status: Value) -> Self {
        let mut full = json!({
            "startTime": time(NOW - 100), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
        });
        merge(&mut full, &status);
        self.job.status = Some(serde_json::from_value(full).unwrap());
        self
    }

    pub(super) fn metadata(mut self, metadata: Value) -> Self {
        let mut full = serde_json::to_value(&self.job.metadata).unwrap();
        merge(&mut full, &metadata);
        self.job.metadata = serde_json::from_value(full).unwrap();
        self
    }

    pub(super) fn deleting(self) -> Self {
        self.metadata(json!({"deletionTimestamp": time(NOW - 5), "finalizers": ["orphan"]}))
    }

    pub(super) fn pod(mut self, pod: PodIs) -> Self {
        self.pods.push(pod.0);
        self
    }

    pub(super) fn pods(mut self, pods: impl IntoIterator<Item = PodIs>) -> Self {
        self.pods.extend(pods.into_iter().map(|pod| pod.0));
        self
    }

    /// So many pods failed one after the other, the last one this long ago.
    pub(super) fn failures(mut self, failures: i32, seconds_ago: i64) -> Self {
        self.memory.backoff = Backoff { failures, last_failure: Some(at(NOW - seconds_ago)) };
        self
    }

    /// Pods were created that were not seen yet.
    pub(super) fn unseen_creation(mut self) -> Self {
        self.memory.begin(&super::super::PodStep::Create(vec![Pod::default()]), at(NOW));
        self
    }

    pub(super) fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    pub(super) fn remember(mut self, change: impl FnOnce(&mut Memory)) -> Self {
        change(&mut self.memory);
        self
    }

    pub(super) fn decide(&self) -> Plan {
        let seen = Observed {
            job: &self.job,
            pods: self.pods.iter().collect(),
            memory: &self.memory,
            settings: self.settings,
        };
        decide(&seen, at(NOW))
    }

    /// Decides, and compares the printed plan.
    #[track_caller]
    pub(super) fn check(&self, rule: &str, expected: &str) {
        assert_eq!(self.decide().to_string(), expected, "{rule}");
    }

    /// The last status that the plan writes when all goes well, and the events and metrics that come with it.
    pub(super) fn outcome(&self) -> Outcome {
        let plan = self.decide();
        let fates = vec![Fate::Done; plan.pods.len()];
        let record = plan.record(&fates);
        let settled = record.settle(&vec![Fate::Done; record.release.len()]);
        let events = plan.events.iter().chain(&record.events).chain(&settled.events);
        let metrics =
            plan.pod_metrics(&fates).into_iter().chain(record.metrics.clone()).chain(settled.metrics.clone());
        Outcome {
            status: settled.status.clone().or(record.status.clone()),
            events: events.map(|e| format!("{} {}: {}", e.kind.as_str(), e.reason, e.message)).collect(),
            metrics: metrics.map(|increment| print(&increment)).collect(),
        }
    }
}

/// What is left of a plan once it was carried out.
pub(super) struct Outcome {
    pub(super) status: Option<JobStatus>,
    pub(super) events: Vec<String>,
    pub(super) metrics: Vec<String>,
}

fn print(increment: &Increment) -> String {
    let labels: Vec<String> =
        increment.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{}{{{}}} {}", increment.name, labels.join(","), increment.by)
}

/// A pod of the Job: a builder.
#[derive(Debug, Clone)]
pub(super) struct PodIs(pub(super) Pod);

/// A running pod of the Job; its uid is its name.
pub(super) fn pod(name: &str) -> PodIs {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "creationTimestamp": time(NOW - 90),
            "labels": {"batch.kubernetes.io/controller-uid": "job-uid"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job-uid",
                "controller": true, "blockOwnerDeletion": true,
            }],
            "finalizers": [TRACKING_FINALIZER],
        },
        "spec": {"nodeName": "node", "containers": []},
        "status": {"phase": "Running"},
    });
    PodIs(serde_json::from_value(pod).unwrap())
}

/// Names for pods in a row: `a`, `b`, `c`…
pub(super) fn names(count: u8) -> impl Iterator<Item = String> {
    (0..count).map(|i| char::from(b'a' + i).to_string())
}

impl PodIs {
    fn edit(self, patch: &Value) -> Self {
        let mut full = serde_json::to_value(&self.0).unwrap();
        merge(&mut full, patch);
        PodIs(serde_json::from_value(full).unwrap())
    }

    fn phase(self, phase: &str) -> Self {
        self.edit(&json!({"status": {"phase": phase}}))
    }

    pub(super) fn pending(self) -> Self {
        self.phase("Pending")
    }

    pub(super) fn ready(self) -> Self {
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": time(NOW - 80)}]);
        self.edit(&json!({"status": {"conditions": ready}}))
    }

    pub(super) fn succeeded(self) -> Self {
        self.phase("Succeeded")
    }

    pub(super) fn failed(self) -> Self {
        self.phase("Failed")
    }

    pub(super) fn with_exit_code(self, code: i32) -> Self {
        self.containers(&json!({"terminated": {"exitCode": code}}), 0)
    }

    pub(super) fn restarted(self, count: i32) -> Self {
        self.containers(&json!({"running": {}}), count)
    }

    fn containers(self, state: &Value, restarts: i32) -> Self {
        let status = json!({
            "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": restarts, "state": state,
        });
        self.edit(&json!({"status": {"containerStatuses": [status]}}))
    }

    pub(super) fn with_condition(self, kind: &str) -> Self {
        self.edit(&json!({"status": {"conditions": [{"type": kind, "status": "True"}]}}))
    }

    /// Failed or succeeded this long ago.
    pub(super) fn ended(self, seconds_ago: i64) -> Self {
        let unready =
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": time(NOW - seconds_ago)}]);
        self.edit(&json!({"status": {"conditions": unready}}))
    }

    /// Deleted this long ago, and still there.
    pub(super) fn deleted(self, seconds_ago: i64) -> Self {
        let deletion =
            json!({"deletionTimestamp": time(NOW - seconds_ago + 30), "deletionGracePeriodSeconds": 30});
        self.edit(&json!({"metadata": deletion}))
    }

    pub(super) fn without_finalizer(mut self) -> Self {
        self.0.metadata.finalizers = None;
        self
    }

    pub(super) fn orphaned(mut self) -> Self {
        self.0.metadata.owner_references = None;
        self.without_finalizer()
    }

    pub(super) fn with_label(self, value: &str) -> Self {
        self.edit(&json!({"metadata": {"labels": {"batch.kubernetes.io/controller-uid": value}}}))
    }

    pub(super) fn index(self, index: u32) -> Self {
        self.edit(&json!({"metadata": {"annotations": {INDEX_KEY: index.to_string()}}}))
    }

    /// What befell the index before this pod.
    pub(super) fn after_failures(self, counted: i32, ignored: i32) -> Self {
        let counts =
            json!({INDEX_FAILURES_KEY: counted.to_string(), INDEX_IGNORED_FAILURES_KEY: ignored.to_string()});
        self.edit(&json!({"metadata": {"annotations": counts}}))
    }
}
