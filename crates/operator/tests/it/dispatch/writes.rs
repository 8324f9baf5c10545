//! What a Job that runs elsewhere costs: the writes of all operators, from its creation until nothing of it is left on a
//! worker.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use reconcile::Clock;
use serde_json::json;

use super::{
    choices::{close_workers, until_offered},
    fleet::{Fleet, WORKERS, eventually, job},
    written::Write,
};

/// What is said of a Job is said once: that its pods are not ready and to which clusters it is offered with its quota
/// (JF-63, MK-DISP-07), its end by the controller that made its Workload (MK-RUN-04).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_written_twice() -> anyhow::Result<()> {
    let mut fleet = Box::pin(Fleet::embedded()).await?;
    // An hour behind its workers, the manager never finds that the end of a Workload should have been written long ago.
    fleet.kill().await;
    fleet.clock = Clock::manual(Timestamp::now() - SignedDuration::from_hours(1));
    fleet.start().await;
    // Both workers are reached: then nobody is offered to one alone.
    close_workers(&fleet, true).await?;
    fleet.submit("first", json!({})).await?;
    until_offered(&fleet, "first", &WORKERS).await?;
    close_workers(&fleet, false).await?;
    fleet.done("first").await?;
    fleet.written.clear();

    let names = ["one", "two", "three"];
    for name in names {
        fleet.submit(name, json!({})).await?;
        fleet.done(name).await?;
    }
    let written = fleet.written.all();
    println!("of {} Jobs: {:#?}", names.len(), counts(&written));
    for name in names {
        let prefix = format!("job-{name}-");
        let of: Vec<&Write> = written.iter().filter(|write| write.name.starts_with(&prefix)).collect();
        let count = |said: &[&str]| {
            let is = |write: &&&Write| write.on == "manager" && said.iter().all(|it| write.said.contains(it));
            of.iter().filter(is).count()
        };
        let waits = "PodsReady=False/WaitForStart";
        let offered = ["QuotaReserved=True/QuotaReserved", waits, "status.nominatedClusterNames"];
        assert_eq!(count(&offered), 1, "with its quota: {of:#?}");
        assert_eq!(count(&["status.nominatedClusterNames"]), 1, "it is offered with that alone: {of:#?}");
        assert_eq!(count(&["Finished=True"]), 1, "its end: {of:#?}");
        assert!(
            of.iter().all(|write| write.said != waits),
            "that its pods wait goes without saying: {of:#?}"
        );
    }

    // Why a Workload waits is told at once, with all else that there is to say of it (AC-4).
    fleet.written.clear();
    let mut large = job("large", json!({}));
    large["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("11");
    fleet.manager.create(large).await?;
    let of = eventually("it is said of large that it waits", async || {
        let written = fleet.written.all();
        let of_it = |it: &Write| it.name.starts_with("job-large-") && it.verb != "POST";
        let of: Vec<Write> = written.into_iter().filter(of_it).collect();
        Ok(of.iter().any(|write| write.said.contains("QuotaReserved=False")).then_some(of))
    })
    .await?;
    assert_eq!(of.len(), 1, "{of:#?}");
    for said in ["QuotaReserved=False", "PodsReady=False/WaitForStart", "status.admissionChecks"] {
        assert!(of[0].said.contains(said), "{said}: {of:#?}");
    }
    Ok(())
}

/// How often each kind of write was made.
fn counts(written: &[Write]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for Write { by, on, verb, kind, answer, .. } in written {
        let on = if WORKERS.contains(on) { "a worker" } else { "the manager" };
        *counts.entry(format!("{by} on {on}: {verb} {kind} ({answer})")).or_default() += 1;
    }
    counts
}
