//! What the manager shows is always valid there, whatever its history.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::batch::v1::Job, apimachinery::pkg::apis::meta::v1::Condition};
use kube_core::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{complete, job, now, object, running};
use crate::dispatch::{Adapter, adapter, mirror};
use crate::framework::Observed as _;
use crate::framework::custom::{ALL, Custom};
use crate::job::status::validate_transition;

fn with(mut job: DynamicObject, suspended: bool, status: Value) -> DynamicObject {
    job.data["spec"]["suspend"] = json!(suspended);
    job.data["status"] = status;
    job
}

fn shown(local: &DynamicObject, remote: &DynamicObject) -> Option<Value> {
    mirror::status(adapter::job(), local, remote, now())
}

/// MK-JOB-01, MK-JOB-02, MK-JOB-03, MK-JOB-04, MK-JOB-05, MK-JOB-06.
#[test]
fn when_a_status_is_shown() {
    let here = |suspended, status| with(job(), suspended, status);
    let there = |suspended, status| with(job(), suspended, status);
    assert_eq!(shown(&here(false, json!({})), &there(false, running())), Some(running()), "MK-JOB-01");
    let idle = json!({"active": 0});
    let stopped = shown(&here(true, json!({"active": 2})), &there(true, idle)).expect("MK-JOB-02");
    assert_eq!(stopped["active"], 0);
    let end = shown(&here(true, json!({})), &there(false, complete())).expect("MK-JOB-03");
    assert_eq!(end["conditions"][1]["type"], "Complete");
    let held = shown(&here(true, json!({})), &there(false, running())).expect("MK-JOB-04");
    assert_eq!(held["conditions"][0]["reason"], "MultiKueueAdapter");
    assert_eq!(held.get("startTime"), None);
    assert_eq!(shown(&here(true, held), &there(false, running())), None, "MK-JOB-06");
    let mut stopping = here(true, json!({}));
    stopping
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/stopping".into(), "true".into());
    assert_eq!(shown(&stopping, &there(false, running())), Some(running()), "MK-JOB-05");
    assert_eq!(shown(&here(false, running()), &there(false, running())), None, "MK-JOB-06");
    let waits = json!({"conditions": [{"type": "Suspended", "status": "True"}]});
    assert_eq!(shown(&here(false, json!({})), &there(true, waits.clone())), None, "not started yet");
    let released = there(false, waits.clone());
    assert_eq!(shown(&here(false, json!({})), &released), None, "nor seen by its controller to be released");
    assert_eq!(shown(&here(true, json!({})), &released), None, "nor does it run while it is held back here");
    assert!(shown(&here(false, running()), &there(true, waits)).is_some(), "stopped there");
}

/// Ends are final, and promised outcomes wait for the end.
#[test]
fn ends_are_final() {
    let local = with(job(), false, complete());
    assert_eq!(shown(&local, &with(job(), false, running())), None);
    let mut bound_to_fail = running();
    bound_to_fail["conditions"] = json!([{"type": "FailureTarget", "status": "True"}]);
    assert_eq!(shown(&with(job(), false, running()), &with(job(), false, bound_to_fail)), None);
}

#[test]
fn a_worker_that_has_only_the_end_of_the_workload_left() {
    let end = |reason: &str| -> Condition {
        serde_json::from_value(json!({
            "type": "Finished", "status": "True", "reason": reason, "message": "so", "lastTransitionTime": "2026-01-02T09:50:00Z",
        }))
        .expect("a condition")
    };
    let local = with(job(), false, running());
    assert_eq!(mirror::ended(adapter::job(), &local, &end("FailedToStart")), None, "nothing is made up");
    for (reason, condition) in [("Succeeded", "Complete"), ("Failed", "Failed")] {
        let (end, local) = (end(reason), local.clone());
        let status = mirror::ended(adapter::job(), &local, &end).expect("it has not ended yet");
        assert_eq!(status["conditions"][1]["type"], condition);
        assert_valid(&local, &status);
        assert_eq!(mirror::ended(adapter::job(), &with(local, false, status), &end), None);
    }
}

/// MK-LOST-07.
#[test]
fn pods_that_no_cluster_has_any_more() {
    let settled = |local: DynamicObject| mirror::settled(adapter::job(), &local, now());
    let status = settled(with(job(), true, running())).expect("it shows pods");
    assert_eq!((&status["active"], &status["ready"]), (&json!(0), &json!(0)));
    assert_valid(&with(job(), true, running()), &status);
    assert_eq!(settled(with(job(), true, status)), None);
    assert_eq!(settled(with(job(), true, complete())), None);
}

/// MK-LOST-07 holds for every kind that is queued here: otherwise it would wait for its pods for ever.
#[test]
fn pods_of_other_kinds_that_no_cluster_has_any_more() {
    let entry = json!({"name": "w", "active": 2, "ready": 2, "succeeded": 1});
    let active = json!({
        "replicatedJobsStatus": [entry], "jobsStatus": [entry], "replicaStatuses": {"Worker": entry},
        "jobDeploymentStatus": "Running", "state": "ready",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "QuotaReserved", "status": "True"}],
    });
    for shape in &ALL {
        let adapter = Adapter::of(&shape.kind.api_version(), shape.kind.kind).expect("a known kind");
        let mut local = object(json!({"metadata": {"name": "j"}, "spec": {}, "status": active}));
        assert!(Custom::new(shape, &local, None).is_active(), "{}", shape.kind.kind);
        let status = mirror::settled(adapter, &local, now()).expect("it shows pods");
        assert_eq!(status["jobsStatus"][0]["succeeded"], 1, "what is done is done");
        local.data["status"] = status;
        assert!(!Custom::new(shape, &local, None).is_active(), "{}", shape.kind.kind);
        assert_eq!(mirror::settled(adapter, &local, now()), None);
    }
}

/// MK-POD-04.
#[test]
fn a_pod_that_is_held_back_stays_so_until_the_worker_s_is_scheduled() {
    let pod = Adapter::of("v1", "Pod").expect("a known kind");
    let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"});
    let local =
        object(json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [gated]}}));
    let there = |scheduled: Value| {
        object(json!({"metadata": {"name": "p"}, "status": {"phase": "Pending", "conditions": [scheduled]}}))
    };
    let waits = there(json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}));
    assert_eq!(mirror::status(pod, &local, &waits, now()), None);
    let runs = there(json!({"type": "PodScheduled", "status": "True"}));
    let status = mirror::status(pod, &local, &runs, now()).expect("it changed");
    assert_eq!(status["conditions"][0]["status"], "True");
}

/// MK-ADP-02, MK-EXT-03: of other kinds all of it, as it comes; none, if there is none.
#[test]
fn other_kinds_are_shown_whole() {
    let jobset = Adapter::of("jobset.x-k8s.io/v1alpha2", "JobSet").expect("a known kind");
    let local = object(json!({"metadata": {"name": "s"}, "spec": {}}));
    let remote = object(json!({"metadata": {"name": "s"}, "spec": {}, "status": {"restarts": 1}}));
    assert_eq!(mirror::status(jobset, &local, &remote, now()), Some(json!({"restarts": 1})));
    assert_eq!(mirror::status(jobset, &local, &local, now()), None);
}

#[track_caller]
fn assert_valid(local: &DynamicObject, status: &Value) {
    let typed = |object: &DynamicObject| -> Job {
        let mut job: Job = serde_json::from_value(object.data.clone()).expect("a Job");
        job.metadata = object.metadata.clone();
        job
    };
    let mut next = local.clone();
    next.data["status"] = status.clone();
    let errors = validate_transition(&typed(&next), &typed(local));
    assert!(errors.is_empty(), "{errors:?}\nwas {}\nis {status}", local.data["status"]);
}

/// What a worker may report of a Job at some moment of its life.
fn reported() -> impl Strategy<Value = (bool, Value)> {
    let at = |seconds: i64| (start() + SignedDuration::from_secs(seconds)).to_string();
    let condition = move |kind: &str, value: &str, seconds: i64| json!({"type": kind, "status": value, "lastTransitionTime": at(seconds), "lastProbeTime": at(seconds), "reason": "R"});
    (0..7_u8, 0..3_i32, 0..3_i32, 0..3_i32, 0..500_i64).prop_map(move |(phase, active, failed, succeeded, started)| {
        let counts = json!({"active": active, "ready": active, "failed": failed, "succeeded": succeeded, "terminating": 0,
            "uncountedTerminatedPods": {"failed": ["u"]}, "startTime": at(started)});
        let mut status = counts;
        let conditions = match phase {
            0 => return (true, json!({})),
            1 => {
                status = json!({"failed": failed, "succeeded": succeeded, "active": 0, "ready": 0});
                vec![condition("Suspended", "True", started)]
            }
            2 => vec![],
            3 => vec![condition("Suspended", "False", started)],
            4 => vec![condition("FailureTarget", "True", started + 5)],
            5 => {
                status["active"] = json!(0);
                status["ready"] = json!(0);
                status["completionTime"] = json!(at(started + 9));
                status["uncountedTerminatedPods"] = json!({});
                vec![condition("SuccessCriteriaMet", "True", started + 8), condition("Complete", "True", started + 9)]
            }
            _ => {
                status["active"] = json!(0);
                status["ready"] = json!(0);
                status["uncountedTerminatedPods"] = json!({});
                vec![condition("FailureTarget", "True", started + 8), condition("Failed", "True", started + 9)]
            }
        };
        status["conditions"] = json!(conditions);
        (phase <= 1, status)
    })
}

/// What a worker may report of an Indexed Job of five indexes, of which the manager has fewer.
fn reported_indexes() -> impl Strategy<Value = Value> {
    let list = |indexes: Vec<u8>| indexes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    prop::collection::vec(0..3_u8, 5).prop_map(move |ends| {
        let of = |end: u8| -> Vec<u8> { (0..5_u8).filter(|index| ends[usize::from(*index)] == end).collect() };
        let (completed, failed) = (of(1), of(2));
        json!({
            "active": of(0).len(), "ready": 0, "succeeded": completed.len(), "failed": failed.len(),
            "completedIndexes": list(completed), "failedIndexes": list(failed), "startTime": start().to_string(),
        })
    })
}

fn indexed(status: Value, pods: i32) -> DynamicObject {
    let mut job = with(job(), false, status);
    let spec = &mut job.data["spec"];
    (spec["completionMode"], spec["backoffLimitPerIndex"]) = (json!("Indexed"), json!(1));
    (spec["parallelism"], spec["completions"]) = (json!(pods), json!(pods));
    job
}

/// MK-JOB-07: the worker runs all of a Job that the manager has admitted in part. Its end was refused for ever.
#[test]
fn mk_job_07_the_end_of_what_was_admitted_in_part_is_recorded() {
    let mut status = complete();
    (status["succeeded"], status["completedIndexes"]) = (json!(5), json!("0-4"));
    let local = indexed(json!({"active": 3, "startTime": "2026-01-02T09:30:00Z"}), 3);
    let end = shown(&local, &indexed(status.clone(), 5)).expect("it has ended");
    assert_valid(&local, &end);
    assert_eq!((&end["succeeded"], &end["completedIndexes"]), (&json!(3), &json!("0-2")));
    assert!(adapter::job().is_finished(&indexed(end, 3).data));
    // Where there is room for all of them, all of them are shown.
    let whole = shown(&indexed(json!({}), 5), &indexed(status, 5)).expect("it has ended");
    assert_eq!((&whole["succeeded"], &whole["completedIndexes"]), (&json!(5), &json!("0-4")));
}

fn start() -> Timestamp {
    now() - SignedDuration::from_hours(2)
}

proptest! {
    /// Whatever workers report one after the other, and whenever the Job is suspended and resumed here, every status that
    /// the manager shows may follow the one before; showing it again changes nothing; and it ends when a worker says so.
    #[test]
    fn a_mirrored_status_is_always_valid(history in prop::collection::vec((reported(), any::<bool>()), 1..12)) {
        let mut local = with(job(), true, json!({}));
        for ((remote_suspended, status), suspended) in history {
            let ended = adapter::job().is_finished(&local.data);
            local.data["spec"]["suspend"] = json!(suspended);
            let remote = with(job(), remote_suspended, status);
            if let Some(next) = shown(&local, &remote) {
                assert_valid(&local, &next);
                local.data["status"] = next;
            }
            prop_assert_eq!(shown(&local, &remote), None);
            let ends = adapter::job().is_finished(&remote.data);
            prop_assert_eq!(adapter::job().is_finished(&local.data), ended || ends);
        }
    }

    /// The same for indexes, however many of them there are here.
    #[test]
    fn mirrored_indexes_are_always_valid(history in prop::collection::vec((reported_indexes(), 1..8_i32), 1..6)) {
        let mut local = indexed(json!({}), 1);
        for (status, pods) in history {
            local.data["spec"] = indexed(json!({}), pods).data["spec"].take();
            let remote = indexed(status, 5);
            if let Some(next) = shown(&local, &remote) {
                assert_valid(&local, &next);
                local.data["status"] = next;
            }
            prop_assert_eq!(shown(&local, &remote), None);
        }
    }
}
