//! Workloads and clusters in every state, in few words.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_core::DynamicObject;
use serde_json::{Value, json};
use types::kueue::{CheckState, Workload};

use crate::dispatch::{
    Check, ClusterName, Link, Observed, Policy, Refusal, Remote, adapter, condition, copy, decide, local,
    plan::Step,
};

pub(super) const ORIGIN: &str = "multikueue";
pub(super) const CHECK: &str = "mk";

/// A time long after everything has begun.
pub(super) fn now() -> Timestamp {
    "2026-01-02T10:00:00Z".parse().expect("a time")
}

pub(super) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// A Job on the manager that asks for MultiKueue.
pub(super) fn job() -> DynamicObject {
    object(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "j", "namespace": "ns", "uid": "job-1",
            "labels": {"kueue.x-k8s.io/queue-name": "team"}, "annotations": {"note": "kept"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c-1"}],
        },
        "spec": {
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "ttlSecondsAfterFinished": 5, "parallelism": 2,
            "completions": 2, "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "job-1"}},
            "template": {
                "metadata": {"labels": {
                    "batch.kubernetes.io/controller-uid": "job-1", "batch.kubernetes.io/job-name": "j",
                    "controller-uid": "job-1", "job-name": "j", "mine": "yes",
                }},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            },
        },
    }))
}

pub(super) fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("an object")
}

/// The Workload of that Job, without quota.
pub(super) fn workload() -> Workload {
    serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": "job-j-12345", "namespace": "ns", "uid": "workload-1", "resourceVersion": "1", "generation": 1,
            "labels": {"kueue.x-k8s.io/job-uid": "job-1", "team": "a"}, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-1", "controller": true},
            ],
        },
        "spec": {
            "queueName": "team", "priority": 0, "active": true,
            "podSets": [{"name": "main", "count": 2, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }}}],
        },
        "status": {"admissionChecks": [
            {"name": CHECK, "state": "Pending", "message": "", "lastTransitionTime": "2026-01-02T09:00:00Z"},
        ]},
    }))
    .expect("a Workload")
}

/// What was seen, built up word by word.
#[derive(Clone)]
pub(super) struct Seen(pub(super) Observed);

pub(super) fn seen() -> Seen {
    let remotes = ["east", "west"].map(|name| (ClusterName::from(name), Remote::default()));
    Seen(Observed {
        local: Some(Arc::new(workload())),
        check: Some(Check { name: CHECK.to_owned(), state: CheckState::Pending }),
        job: Some(Arc::new(job())),
        others: Vec::new(),
        is_enabled: true,
        configured: vec!["east".into(), "west".into()],
        remotes: remotes.into(),
    })
}

impl Seen {
    pub(super) fn local(mut self, change: impl FnOnce(&mut Workload)) -> Seen {
        change(Arc::make_mut(self.0.local.as_mut().expect("a Workload")));
        self
    }

    pub(super) fn job(mut self, change: impl FnOnce(&mut DynamicObject)) -> Seen {
        change(Arc::make_mut(self.0.job.as_mut().expect("a Job")));
        self
    }

    pub(super) fn condition(self, kind: &str, reason: &str) -> Seen {
        self.local(|local| set(local, kind, reason))
    }

    pub(super) fn quota(self) -> Seen {
        self.condition("QuotaReserved", "QuotaReserved")
    }

    pub(super) fn check(mut self, state: CheckState, message: &str) -> Seen {
        self.0.check.as_mut().expect("a check").state = state;
        self.local(|local| {
            let check = &mut local.status.as_mut().expect("a status").admission_checks[0];
            check.state = state;
            check.message = message.to_owned();
        })
    }

    /// Steps of the manager, as if they had been written.
    pub(super) fn wrote(self, steps: &[Step]) -> Seen {
        let steps: Vec<&Step> = steps.iter().collect();
        let seen = self.local(|local| *local = local::apply(local, CHECK, &steps, now()));
        let status = seen.0.local.as_ref().and_then(|local| local.status.as_ref()).expect("a status");
        let state = status.admission_checks[0].state;
        let mut seen = seen;
        seen.0.check.as_mut().expect("a check").state = state;
        seen
    }

    pub(super) fn nominated(self, clusters: &[&str]) -> Seen {
        self.wrote(&[Step::Nominate(clusters.iter().map(|name| ClusterName::from(*name)).collect())])
    }

    pub(super) fn assigned(self, cluster: &str) -> Seen {
        self.wrote(&[Step::Assign(cluster.into())])
    }

    pub(super) fn ready(self, cluster: &str) -> Seen {
        self.assigned(cluster).wrote(&[Step::Ready(cluster.into())])
    }

    /// What the core makes of an eviction: the check starts anew, the choice is gone, the record is not.
    pub(super) fn evicted(self) -> Seen {
        self.check(CheckState::Pending, "Reset to Pending after eviction. Previously: Retry")
            .condition("Evicted", "Preempted")
            .local(|local| local.status.as_mut().expect("a status").cluster_name = None)
    }

    pub(super) fn remote(mut self, cluster: &str, change: impl FnOnce(&mut Remote)) -> Seen {
        change(self.0.remotes.get_mut(cluster).expect("a cluster"));
        self
    }

    pub(super) fn copy(self, cluster: &str, conditions: &[&str]) -> Seen {
        let mut copy = copy::workload(self.0.local.as_deref().expect("a Workload"), ORIGIN);
        for kind in conditions {
            set(&mut copy, kind, if *kind == "Finished" { "Succeeded" } else { "Because" });
        }
        self.remote(cluster, |remote| remote.workload = Some(Arc::new(copy)))
    }

    pub(super) fn mirror(self, cluster: &str, status: Value) -> Seen {
        let local = self.0.local.as_deref().expect("a Workload");
        let mut mirror = copy::mirror(adapter::job(), self.0.job.as_deref().expect("a Job"), local, ORIGIN);
        mirror.data["spec"]["suspend"] = json!(status.get("startTime").is_none());
        mirror.data["status"] = status;
        self.remote(cluster, |remote| remote.job = Some(Arc::new(mirror)))
    }

    pub(super) fn read(self, cluster: &str) -> Seen {
        self.remote(cluster, |remote| remote.read_at = Some(now()))
    }

    pub(super) fn lost(self, cluster: &str, seconds: i64) -> Seen {
        self.remote(cluster, |remote| remote.link = Link::Lost { since: ago(seconds), given_up: false })
    }

    pub(super) fn refuses(self, cluster: &str, why: &str) -> Seen {
        let until = now() + SignedDuration::from_secs(10);
        self.remote(cluster, |remote| remote.refusal = Some(Refusal { why: why.to_owned(), until }))
    }
}

/// The copy ended so long ago that whoever had to write it here would have done so.
pub(super) fn long_ago(seen: Seen, cluster: &str) -> Seen {
    seen.remote(cluster, |remote| {
        let copy = Arc::make_mut(remote.workload.as_mut().expect("a copy"));
        let conditions = &mut copy.status.as_mut().expect("a status").conditions;
        let end = conditions.iter_mut().find(|condition| condition.type_ == "Finished").expect("an end");
        end.last_transition_time = Time(ago(5));
    })
}

pub(super) fn set(workload: &mut Workload, kind: &str, reason: &str) {
    let status = workload.status.get_or_insert_default();
    condition::set(&mut status.conditions, kind, reason, "in words", None, now());
}

pub(super) fn running() -> Value {
    json!({"active": 2, "ready": 2, "startTime": "2026-01-02T09:30:00Z"})
}

pub(super) fn complete() -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-02T09:40:00Z",
               "lastProbeTime": "2026-01-02T09:40:00Z", "reason": "CompletionsReached"})
    };
    json!({
        "succeeded": 2, "startTime": "2026-01-02T09:30:00Z", "completionTime": "2026-01-02T09:40:00Z",
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    })
}

/// What Kueue waits by default.
pub(super) fn patient() -> Policy {
    Policy { worker_lost_timeout: Some(SignedDuration::from_mins(15)), ..Policy::default() }
}

#[track_caller]
pub(super) fn check(seen: Seen, expected: &str) {
    check_with(seen, &Policy::default(), expected);
}

/// The plan, without the time at which it looks again.
#[track_caller]
pub(super) fn check_with(seen: Seen, policy: &Policy, expected: &str) {
    let plan = decide(&seen.0, policy, now()).to_string();
    let plan = plan.split(", again at").next().expect("a plan");
    assert_eq!(plan, expected);
}

pub(super) fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), creation_timestamp: Some(Time(now())), ..ObjectMeta::default() }
}
