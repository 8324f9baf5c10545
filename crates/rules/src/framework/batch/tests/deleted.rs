//! What becomes of a Job whose Workload is deleted.

use super::*;

fn delete(life: &mut Life) {
    life.change(|workload| {
        workload.metadata.deletion_timestamp = Some(crate::workload::condition::time(Timestamp::UNIX_EPOCH));
    });
}

#[test]
fn a_workload_that_is_deleted_stops_its_job() {
    let mut life = running();
    delete(&mut life);
    life.expect(&[
        "stop, because Workload is deleted",
        "let go of ns/job-name-ef3a1",
        "wait, because its Workload is being deleted",
    ]);
}

/// What has ended is not stopped: its status could not say when it started any more.
#[test]
fn a_workload_that_is_deleted_does_not_stop_a_job_that_has_ended() {
    let mut life = running();
    delete(&mut life);
    life.job.status = Some(from(json!({ "conditions": [{ "type": "Complete", "status": "True" }] })));
    life.expect(&["let go of ns/job-name-ef3a1", "wait, because its Workload is being deleted"]);
}

#[test]
fn jf_67_a_job_that_was_deactivated_by_us_is_kept_for_a_while() {
    let deactivated = |cause: &str| {
        let mut life = running();
        life.settings.retention = Some(jiff::SignedDuration::from_secs(60));
        let eviction =
            change::Eviction { reason: "Deactivated", cause: cause.to_owned(), message: "enough".into() };
        let now = life.now;
        life.change(|workload| {
            change::evict(workload, &eviction, now);
            workload.spec.active = Some(false);
        });
        life
    };
    let given_back = "write quota given back to ns/job-name-ef3a1";
    let mut life = deactivated("RequeuingLimitExceeded");
    life.expect(&["stop, because enough", given_back, "wait, because it was deactivated"]);
    let end = life.now + jiff::SignedDuration::from_secs(60);
    assert_eq!(life.plan().again_at, Some(end));
    life.now = end;
    life.expect(&["delete the Job"]);
    assert_eq!(life.told.last().map(String::as_str), Some("Deleted"));
    // Somebody else deactivated it, and may want it again.
    let mut life = deactivated("");
    life.expect(&["stop, because enough", given_back, "wait, because it is evicted"]);
    life.now += jiff::SignedDuration::from_secs(60);
    life.expect(&["wait, because it is evicted"]);
}

/// Never twice: a Job that a worker may run gets no other Workload, under which it would run elsewhere.
#[test]
fn a_workload_stays_while_a_worker_may_run_its_job() {
    use crate::dispatch::{Step as Dispatched, local};
    let record = |life: &mut Life, step: Dispatched| {
        let now = life.now;
        life.change(|workload| *workload = local::apply(workload, "", &[&step], now));
    };
    let held = "wait, because east may still run it";
    let mut life = running();
    record(&mut life, Dispatched::Assign("east".into()));
    delete(&mut life);
    life.expect(&["stop, because Workload is deleted", held]);
    record(&mut life, Dispatched::Unassign);
    life.expect(&["let go of ns/job-name-ef3a1", "wait, because its Workload is being deleted"]);

    let mut changed = running();
    record(&mut changed, Dispatched::Assign("east".into()));
    changed.job.spec.as_mut().expect("a spec").parallelism = Some(1);
    let stop = "stop, because No matching Workload; restoring pod templates according to existent Workload";
    changed.expect(&[stop, "delete ns/job-name-ef3a1", held]);
}
