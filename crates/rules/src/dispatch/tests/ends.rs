//! How a job ends, and what is recorded of that before anything goes.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::fixture::*;
use crate::dispatch::{Policy, Step, decide};

/// Ends are recorded on the manager before anything is removed from a worker.
#[test]
fn the_end_is_recorded_before_anything_is_removed() {
    let ended =
        seen().quota().copy("east", &["Admitted", "Finished"]).mirror("east", complete()).ready("east");
    check(ended.clone(), "mirror east, because ended on east");
    check(ended.clone().condition("Finished", "Succeeded"), "mirror east, because finished");
    let recorded = ended.clone().job(|job| job.data["status"] = complete());
    check(recorded.clone().condition("Finished", "Succeeded"), "delete east, because finished");
    // The Workload's end may be told before the mirror's.
    check(ended.clone().mirror("east", running()), "look at east, because ended on east");
    // A mirror that is gone after its end was told cannot tell more; the end stands (MK-ADP-09).
    let without = ended.clone().remote("east", |east| east.job = None);
    check(without.clone(), "look at east, because ended on east");
    check(without.clone().read("east"), "mirror east, because ended on east");
    let recorded = without.read("east").job(|job| job.data["status"] = complete());
    check(recorded.clone(), "wait, because ended on east");
    check(long_ago(recorded, "east"), "finish Succeeded, because ended on east");
    // Also if the manager has evicted it meanwhile.
    check(ended.clone().evicted(), "mirror east, because ended on east");
    // Once it was read, the mirror's end is waited for: it is told.
    check(ended.mirror("east", running()).read("east"), "wait, because ended on east");
}

/// A job that cannot be started with what its flavors say stays as it is, and only its Workload ends (JF-51, MK-FLOW-14).
#[test]
fn a_workload_that_failed_to_start_there_has_ended() {
    let failed = |seen: Seen| {
        seen.remote("east", |east| {
            let copy = Arc::make_mut(east.workload.as_mut().expect("a copy"));
            set(copy, "Finished", "FailedToStart");
        })
    };
    let ready = seen().quota().copy("east", &["Admitted"]).mirror("east", json!({})).ready("east");
    let ended = failed(ready.clone());
    check(ended.clone(), "finish FailedToStart, because ended on east");
    check(ended.clone().read("east"), "finish FailedToStart, because ended on east");
    check(ended.clone().evicted(), "finish FailedToStart, because ended on east");
    check(
        ended.clone().remote("east", |east| east.job = None),
        "finish FailedToStart, because ended on east",
    );
    check(ended.condition("Finished", "FailedToStart"), "delete east, because finished");
}

/// A mirror that is deleted to run elsewhere fails, because its pods are deleted: that is not the end of its job. That it
/// completed nevertheless, or had failed before, is.
#[test]
fn a_mirror_that_fails_because_it_is_deleted_has_not_ended() {
    let ended = |kind: &str, at: Timestamp| {
        let mut status = running();
        status["conditions"] =
            json!([{"type": kind, "status": "True", "lastTransitionTime": at.to_string()}]);
        let mut seen = seen().quota().copy("west", &["Admitted"]).mirror("west", status).ready("west");
        seen.0.configured = vec!["east".into()];
        seen.remote("west", |west| {
            let mirror = Arc::make_mut(west.job.as_mut().expect("a mirror"));
            mirror.metadata.deletion_timestamp = Some(Time(ago(5)));
        })
    };
    check(ended("Failed", ago(5)), "delete west, because west is not configured");
    check(ended("Failed", ago(4)), "delete west, because west is not configured");
    check(ended("Failed", ago(6)), "mirror west, because ended on west");
    check(ended("Complete", ago(4)), "mirror west, because ended on west");
    // Nor is it shown while the manager takes it back.
    let evicted = ended("Failed", ago(4)).evicted();
    let plan = decide(&evicted.0, &Policy::default(), now());
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::Mirror { .. })), "{plan}");
}

/// Ends are final: what was sent and not answered may arrive after the end, and must not run again. The mirror that has
/// ended stays until then, and has its name.
#[test]
fn a_mirror_that_has_ended_stays_while_another_may_arrive() {
    let until = |seconds: i64| Some(now() + SignedDuration::from_secs(seconds));
    let ended = seen()
        .quota()
        .copy("east", &["Admitted"])
        .ready("east")
        .mirror("east", complete())
        .job(|job| job.data["status"] = complete())
        .condition("Finished", "Succeeded");
    let doubted = |seen: Seen, seconds| seen.remote("east", |east| east.doubt_until = until(seconds));
    check(ended.clone(), "delete east, because finished");
    let waits = doubted(ended.clone(), 30);
    check(waits.clone(), "wait, because finished");
    assert_eq!(decide(&waits.0, &Policy::default(), now()).again, until(30));
    check(doubted(ended.clone(), 0), "delete east, because finished");
    // What still runs is not wanted any more.
    check(doubted(ended.mirror("east", running()), 30), "delete east, because finished");
}

/// Never lost: what runs is shown to its end, also if its queue asks for no check any more (AC-4).
#[test]
fn the_check_of_what_runs_is_taken_away() {
    let unchecked = |mut seen: Seen| {
        seen.0.check = None;
        seen.local(|local| local.status.as_mut().expect("a status").admission_checks.clear())
    };
    let ready = || seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    check(unchecked(ready()), "mirror east, because not delegated");
    check(unchecked(ready().mirror("east", complete())), "mirror east, because ended on east");
    let ended = ready().job(|job| job.data["status"] = complete()).condition("Finished", "Succeeded");
    check(unchecked(ended), "delete east, because finished");
    let evicted = ready().condition("Evicted", "Preempted");
    check(unchecked(evicted), "mirror east, deactivate east, because evicted");
    check(unchecked(seen().quota().copy("east", &["Admitted"])), "wait, because not delegated");
}
