//! Scenarios under other settings than the usual ones, each on an embedded cluster, on a real control plane, and by real
//! Kueue.

use anyhow::Context as _;
use serde_json::{Value, json};
use types::kueue::Workload;

use super::{Scenario, World};
use crate::world::{message, shown, suspended};

/// Where a scenario runs, and who acts there.
pub(super) enum Place {
    Embedded,
    Real,
    Kueue,
}

/// Runs a scenario under these settings of Kueue's configuration file.
pub(super) async fn run(place: Place, settings: Value, scenario: Scenario) -> anyhow::Result<()> {
    let mut file = json!({ "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration" });
    json_patch::merge(&mut file, &settings);
    let ours = operator::configuration::Configuration::read(&file.to_string())?.settings;
    if let Place::Embedded = place {
        return scenario(&mut World::with(World::embedded_cluster().await?, ours).await?).await;
    }
    let Some(control_plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    if let Place::Real = place {
        return scenario(&mut World::with(control_plane.client(), ours).await?).await;
    }
    let (mut world, _kueue) = World::of_kueue(&control_plane, &settings).await?;
    scenario(&mut world).await
}

/// JF-4: if Jobs without a queue are managed, too, they wait, and run when they are given one.
async fn jf_4_jobs_without_queue_wait(world: &mut World) -> anyhow::Result<()> {
    world.begin("jf-4").await?;
    world.queue("a", "1", json!({})).await?;
    let nowhere = json!({ "metadata": { "labels": null }, "spec": { "suspend": false } });
    let workload = world.job("job", "", "1", nowhere).await?;
    world.sees_job("job", "stopped", suspended).await?;
    let waiting = world.shows(&workload, &["QuotaReserved=False/Inadmissible"]).await?;
    assert_eq!(waiting.spec.queue_name.as_deref().unwrap_or_default(), "");
    assert_eq!(message(&waiting, "QuotaReserved"), "LocalQueue  doesn't exist");
    let queue = json!({ "metadata": { "labels": { "kueue.x-k8s.io/queue-name": "a" } } });
    world.patch("Job", "job", queue).await?;
    world.shows(&workload, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    world.sees_job("job", "started", |job| !suspended(job)).await?;
    Ok(())
}

async fn jf_4(place: Place) -> anyhow::Result<()> {
    let settings = json!({ "manageJobsWithoutQueueName": true });
    run(place, settings, |world| Box::pin(jf_4_jobs_without_queue_wait(world))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_4_on_an_embedded_cluster() -> anyhow::Result<()> {
    jf_4(Place::Embedded).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_4_on_a_real_control_plane() -> anyhow::Result<()> {
    jf_4(Place::Real).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_4_by_real_kueue() -> anyhow::Result<()> {
    jf_4(Place::Kueue).await
}

/// SM-T5, JF-64: a Job whose pods are not ready in time is put off, not for ever, and is deactivated when it was put off as
/// often as it may be.
async fn sm_t5_pods_are_not_ready_in_time(world: &mut World) -> anyhow::Result<()> {
    world.begin("sm-t5").await?;
    // Its life begins with its queue, and is watched by then.
    let name = world.job("job", "a", "1", json!({})).await?;
    let ended = |it: &Workload| it.spec.active == Some(false) && !rules::workload::has_quota(it);
    let life = world.versions(world.workloads(), &name, "deactivated", ended);
    let (life, made) = tokio::join!(life, world.queue("a", "1", json!({})));
    made?;
    let life = life?;
    let step = |conditions: &[&str]| {
        let found = life.iter().position(|it| without_target(it).iter().eq(conditions));
        found.with_context(|| format!("never {conditions:?}: {:#?}", told(&life)))
    };
    let steps = [
        step(&[
            "Admitted=True/Admitted",
            "Evicted=True/PodsReadyTimeout",
            "QuotaReserved=True/QuotaReserved",
        ])?,
        step(&[
            "Admitted=False/NoReservation",
            "Evicted=True/PodsReadyTimeout",
            "QuotaReserved=False/Pending",
            "Requeued=False/PodsReadyTimeout",
        ])?,
        step(&[
            "Admitted=False/NoReservation",
            "Evicted=True/PodsReadyTimeout",
            "QuotaReserved=False/Pending",
            "Requeued=True/BackoffFinished",
        ])?,
        step(&[
            "Admitted=True/Admitted",
            "Evicted=False/QuotaReserved",
            "QuotaReserved=True/QuotaReserved",
            "Requeued=True/BackoffFinished",
        ])?,
        step(&[
            "Admitted=True/Admitted",
            "Evicted=True/DeactivatedDueToRequeuingLimitExceeded",
            "QuotaReserved=True/QuotaReserved",
            "Requeued=True/BackoffFinished",
        ])?,
        step(&[
            "Admitted=False/NoReservation",
            "Evicted=True/DeactivatedDueToRequeuingLimitExceeded",
            "QuotaReserved=False/Pending",
            "Requeued=False/DeactivatedDueToRequeuingLimitExceeded",
        ])?,
    ];
    assert!(steps.is_sorted(), "{steps:?} of {:#?}", told(&life));
    let [evicted, _, back, again, ended, _] = steps.map(|step| &life[step]);

    let why = format!("Exceeded the PodsReady timeout {}/{name}", world.namespace);
    assert_eq!(message(evicted, "Evicted"), why);
    assert_eq!(message(again, "Evicted"), format!("Previously: {why}"));
    let put_off = |it: &Workload| it.status.as_ref().and_then(|status| status.requeue_state.clone());
    let since = |it: &Workload, kind: &str| {
        rules::workload::state::find(it, kind).map(|it| it.last_transition_time.0).context("a condition")
    };
    let until = put_off(evicted).context("it is put off")?;
    let (count, until) = (until.count, until.requeue_at.context("until when")?.0);
    assert_eq!(count, Some(1));
    let seconds = until.duration_since(since(evicted, "Evicted")?).as_secs();
    assert!((0..=2).contains(&seconds), "put off for {seconds} s");
    assert_eq!(put_off(back).and_then(|it| it.requeue_at), None, "not any longer");
    assert!(since(again, "QuotaReserved")? >= until, "not before its time");
    assert_eq!(
        message(ended, "Evicted"),
        "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    );
    let last = life.last().context("there is the last one")?;
    assert_eq!(put_off(last), None);
    assert_eq!(
        evictions(last)?,
        json!([
            { "reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1 },
            { "reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 1 },
        ])
    );
    world.sees_job("job", "stopped", suspended).await?;
    Ok(())
}

/// The conditions of a Workload but for the one by which it is deactivated: Kueue takes it back later than we do.
fn without_target(workload: &Workload) -> Vec<String> {
    let mut shown = shown(workload);
    shown.retain(|it| !it.starts_with("DeactivationTarget="));
    shown
}

fn told(life: &[Workload]) -> Vec<Vec<String>> {
    life.iter().map(shown).collect()
}

fn evictions(workload: &Workload) -> serde_json::Result<Value> {
    let stats = workload.status.as_ref().and_then(|status| status.scheduling_stats.clone());
    serde_json::to_value(stats.unwrap_or_default().evictions)
}

async fn sm_t5(place: Place) -> anyhow::Result<()> {
    let requeuing = json!({ "backoffLimitCount": 1, "backoffBaseSeconds": 1 });
    let settings = json!({ "waitForPodsReady": { "timeout": "1s", "requeuingStrategy": requeuing } });
    run(place, settings, |world| Box::pin(sm_t5_pods_are_not_ready_in_time(world))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_t5_on_an_embedded_cluster() -> anyhow::Result<()> {
    sm_t5(Place::Embedded).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_t5_on_a_real_control_plane() -> anyhow::Result<()> {
    sm_t5(Place::Real).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_t5_by_real_kueue() -> anyhow::Result<()> {
    sm_t5(Place::Kueue).await
}

/// JF-65: nobody is let in while somebody who is in is not ready; JF-64: who was ready and is no longer has less time.
async fn jf_65_one_after_the_other(world: &mut World) -> anyhow::Result<()> {
    const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];
    world.begin("jf-65").await?;
    world.queue("a", "1", json!({})).await?;
    world.queue("b", "1", json!({})).await?;
    let first = world.job("first", "a", "1", json!({})).await?;
    world.shows(&first, &ADMITTED).await?;
    let second = world.job("second", "b", "1", json!({})).await?;
    let waiting = world.shows(&second, &["QuotaReserved=False/Waiting"]).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "waiting for all admitted workloads to be in PodsReady condition"
    );
    world.runs("first").await?;
    world.shows(&second, &ADMITTED).await?;
    world.runs("second").await?;
    world.patch_status("Job", "first", json!({ "ready": 0 })).await?;
    let evicted = world.workload(&first, "evicted", rules::workload::is_evicted).await?;
    let cause = json!([{ "reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1 }]);
    assert_eq!(evictions(&evicted)?, cause);
    world.shows(&second, &ADMITTED).await?;
    Ok(())
}

async fn jf_65(place: Place) -> anyhow::Result<()> {
    let waits = json!({ "timeout": "5m", "recoveryTimeout": "1s", "blockAdmission": true });
    let settings = json!({ "waitForPodsReady": waits });
    run(place, settings, |world| Box::pin(jf_65_one_after_the_other(world))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_65_on_an_embedded_cluster() -> anyhow::Result<()> {
    jf_65(Place::Embedded).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_65_on_a_real_control_plane() -> anyhow::Result<()> {
    jf_65(Place::Real).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_65_by_real_kueue() -> anyhow::Result<()> {
    jf_65(Place::Kueue).await
}
