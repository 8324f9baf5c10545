//! What is said of a Job, by what its objects say.

use serde_json::{Value, json};

use super::*;

/// A Job of six indexes, three at a time, in the queue `fleet`.
fn job(status: Value) -> Job {
    let spec = json!({ "completions": 6, "parallelism": 3, "completionMode": "Indexed", "suspend": true, "template": {} });
    let labels = json!({ "kueue.x-k8s.io/queue-name": "fleet" });
    let metadata = json!({ "name": "a", "namespace": "default", "uid": "1", "labels": labels });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).expect("a Job")
}

/// Its Workload, with these conditions, more of a spec and more of a status.
fn workload(conditions: &[(&str, &str, &str, &str)], spec: Value, status: Value) -> Workload {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason, message)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "1", "controller": true });
    let metadata = json!({ "name": "job-a", "namespace": "default", "ownerReferences": [owner] });
    let mut object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec, "status": status,
    });
    object["status"]["conditions"] = json!(conditions);
    serde_json::from_value(object).expect("a Workload")
}

#[track_caller]
fn check(job: &Job, workload: Option<&Workload>, expected: &str) {
    let view = View::of_job(job, workload);
    let said = format!("{} {} [{}] {}", view.status.text(), view.progress.text(), view.place(), view.reason);
    assert_eq!(said.trim_end(), expected);
}

#[test]
fn a_job_in_a_queue_from_its_submission_to_its_end() {
    let quota = ("QuotaReserved", "True", "QuotaReserved", "");
    check(&job(json!({})), None, "Queued 0/6 [] no Workload yet for queue fleet");
    let pending = ("QuotaReserved", "False", "Pending", "insufficient unused quota for cpu");
    let waits = workload(&[pending], json!({}), json!({}));
    check(&job(json!({})), Some(&waits), "Queued 0/6 [] insufficient unused quota for cpu");
    let checks =
        json!([{ "name": "fleet", "state": "Pending", "lastTransitionTime": null, "message": "asks east" }]);
    let asks = workload(&[quota], json!({}), json!({ "admissionChecks": checks }));
    check(&job(json!({})), Some(&asks), "Dispatching 0/6 [] fleet: asks east");
    let silent = json!([{ "name": "fleet", "state": "Pending", "lastTransitionTime": null, "message": "" }]);
    let waits = workload(&[quota], json!({}), json!({ "admissionChecks": silent }));
    check(&job(json!({})), Some(&waits), "Dispatching 0/6 [] waits for check fleet");
    let admitted = [quota, ("Admitted", "True", "Admitted", "")];
    let runs = workload(&admitted, json!({}), json!({ "clusterName": "east" }));
    check(&job(json!({})), Some(&runs), "Starting 0/6 [east]");
    let status = json!({ "active": 2, "succeeded": 3, "failed": 1, "startTime": "2026-01-01T00:00:00Z" });
    check(&job(status), Some(&runs), "Running 3/6, 2 running, 1 failed [east]");
    check(&job(json!({ "succeeded": 3 })), Some(&runs), "Running 3/6 [east]");
    let condition = json!([{ "type": "Complete", "status": "True" }]);
    let done = json!({ "succeeded": 6, "conditions": condition, "completedIndexes": "0-5" });
    check(&job(done.clone()), Some(&runs), "Complete 6/6 [east]");
    assert_eq!(View::of_job(&job(done), None).progress.completed_indexes.as_deref(), Some("0-5"));
    let condition = json!([{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often" }]);
    check(
        &job(json!({ "failed": 7, "conditions": condition })),
        Some(&runs),
        "Failed 0/6, 7 failed [east] BackoffLimitExceeded: too often",
    );
}

#[test]
fn a_job_that_is_stopped_says_why() {
    let evicted = ("Evicted", "True", "Preempted", "made room for b");
    let quota = ("QuotaReserved", "True", "QuotaReserved", "");
    let stops = workload(&[quota, evicted], json!({}), json!({}));
    check(
        &job(json!({ "active": 1 })),
        Some(&stops),
        "Stopping 0/6, 1 running [] Preempted: made room for b",
    );
    // It has quota again, and is not sent elsewhere before its pods have ended.
    let record = ("ferry.dev/Held", "True", "Assigned", "The job may exist on worker cluster \"east\"");
    let ends = workload(&[quota, record], json!({}), json!({}));
    check(&job(json!({})), Some(&ends), "Stopping 0/6 [] its pods on east have not all ended");
    let held = workload(
        &[("Evicted", "True", "Deactivated", "The workload is deactivated")],
        json!({ "active": false }),
        json!({}),
    );
    check(&job(json!({})), Some(&held), "Held 0/6 [] The workload is deactivated");
    check(&job(json!({})), Some(&workload(&[], json!({ "active": false }), json!({}))), "Held 0/6 [] held");
}

#[test]
fn jobs_outside_of_queues() {
    let mut alone = job(json!({ "active": 1, "startTime": "2026-01-01T00:00:00Z" }));
    alone.metadata.labels = None;
    alone.spec.as_mut().expect("a spec").suspend = None;
    check(&alone, None, "Running 0/6, 1 running [local]");
    alone.spec.as_mut().expect("a spec").managed_by = Some("example.com/somebody".to_owned());
    alone.status = None;
    check(&alone, None, "External 0/6 [] left to example.com/somebody");
    alone.spec.as_mut().expect("a spec").managed_by = None;
    alone.spec.as_mut().expect("a spec").suspend = Some(true);
    check(&alone, None, "Held 0/6 [] suspended");
}

#[test]
fn other_kinds_are_seen_by_their_workload() {
    let mut of_set = workload(
        &[("Admitted", "True", "Admitted", ""), ("PodsReady", "True", "Started", "")],
        json!({ "podSets": [{ "name": "w", "count": 4, "template": {} }], "queueName": "fleet" }),
        json!({ "clusterName": "west", "reclaimablePods": [{ "name": "w", "count": 1 }] }),
    );
    for owner in of_set.metadata.owner_references.iter_mut().flatten() {
        owner.kind = "JobSet".to_owned();
        owner.name = "train".to_owned();
    }
    let view = View::of_workload(&of_set);
    assert_eq!((view.title().as_str(), view.status), ("jobset/train", Status::Running));
    assert_eq!((view.progress.text().as_str(), view.place().as_str()), ("1/4, 3 running", "west"));
}

/// JF-70, MK-STS-01: a group of pods is shown by its own name, and that of a StatefulSet by the StatefulSet's.
#[test]
fn jf_70_groups_of_pods_are_shown_as_what_they_are() {
    let title = |annotations: Value, owners: &[(&str, &str, bool)]| {
        let owners: Vec<Value> = owners
            .iter()
            .map(|(kind, name, controls)| {
                json!({
                    "apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": controls.then_some(true),
                })
            })
            .collect();
        let workload = json!({
            "metadata": { "name": "crew", "namespace": "ns", "annotations": annotations, "ownerReferences": owners },
            "spec": { "podSets": [] },
        });
        View::of_workload(&serde_json::from_value(workload).expect("a Workload")).title()
    };
    let group = || json!({ "kueue.x-k8s.io/is-group-workload": "true" });
    assert_eq!(title(json!({}), &[("Pod", "alone", true)]), "pod/alone");
    assert_eq!(title(group(), &[("Pod", "one", false), ("Pod", "two", false)]), "workload/crew");
    assert_eq!(title(group(), &[("Pod", "db-0", false), ("StatefulSet", "db", false)]), "statefulset/db");
}
