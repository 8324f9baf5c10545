//! The Jobs of the demonstration, and what is to become of each.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

/// What is to become of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// It runs on a worker and completes.
    OnWorker,
    /// The same, after a pod of it has failed.
    OnWorkerAgain,
    /// It runs where it was submitted and completes.
    Here,
    /// Nobody touches it.
    Untouched,
}

/// All of them.
pub(super) fn all() -> Vec<(Job, Expected)> {
    let queued = json!({ "kueue.x-k8s.io/queue-name": fleet::QUEUE });
    let say = "echo pod $HOSTNAME works; sleep 1";
    vec![
        (job("parallel", &queued, json!({ "parallelism": 4, "completions": 4 }), say), Expected::OnWorker),
        (
            job(
                "indexed",
                &queued,
                json!({ "parallelism": 3, "completions": 6, "completionMode": "Indexed" }),
                "echo frame $JOB_COMPLETION_INDEX; sleep 0.5",
            ),
            Expected::OnWorker,
        ),
        (
            job(
                "flaky",
                &queued,
                json!({ "completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 3 }),
                "test \"$FAILURES\" != 0 || { echo the first attempt fails; exit 1; }; echo the second does not",
            ),
            Expected::OnWorkerAgain,
        ),
        (job("local", &json!({}), json!({ "completions": 2, "parallelism": 2 }), say), Expected::Here),
        (
            job("elsewhere", &json!({}), json!({ "managedBy": "example.com/somebody" }), say),
            Expected::Untouched,
        ),
    ]
}

fn job(name: &str, labels: &Value, spec: Value, script: &str) -> Job {
    let failures = json!({ "fieldRef": { "fieldPath": "metadata.annotations['batch.kubernetes.io/job-index-failure-count']" } });
    let container = json!({
        "name": "main", "image": "busybox", "command": ["sh", "-c", script],
        "env": [{ "name": "FAILURES", "valueFrom": failures }],
        "resources": { "requests": { "cpu": "100m", "memory": "32Mi" } },
    });
    let mut spec = spec;
    spec["template"] = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }))
        .expect("a Job")
}
