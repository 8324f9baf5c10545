//! Admission checks: others who have a say.

use serde_json::{Value, json};

use super::World;
use crate::world::{message, suspended};

async fn checked_queue(world: &World) -> anyhow::Result<String> {
    let check = world.name_of("check");
    world.check(&check).await?;
    let checks = json!({ "admissionChecks": [{ "name": check }] });
    world.queue("a", "1", json!({ "admissionChecksStrategy": checks })).await?;
    Ok(check)
}

/// SM-T2, AC-4: quota first, then the checks; what a check says about pods goes into the Job.
pub(super) async fn sm_t2_checks(world: &World) -> anyhow::Result<()> {
    let check = checked_queue(world).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    let reserved = world
        .workload(&workload, "given quota and checks", |it| {
            rules::workload::has_quota(it) && !rules::workload::state::checks(it).is_empty()
        })
        .await?;
    let checks = rules::workload::state::checks(&reserved);
    assert_eq!(
        (checks[0].name.as_str(), serde_json::to_value(checks[0].state)?),
        (check.as_str(), json!("Pending"))
    );
    let job = world.jobs().get("job").await?;
    assert!(suspended(&job), "nothing starts before all checks are passed");
    let update = json!([{ "name": "main", "nodeSelector": { "from": "check" } }]);
    world
        .check_says(
            &workload,
            json!({ "name": check, "state": "Ready", "message": "", "podSetUpdates": update }),
        )
        .await?;
    world.shows(&workload, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    let job = world.sees_job("job", "started", |job| !suspended(job)).await?;
    let selector = job.spec.and_then(|spec| spec.template.spec).and_then(|spec| spec.node_selector);
    assert_eq!(serde_json::to_value(selector)?, json!({ "pool": "default", "from": "check" }));
    Ok(())
}

/// SM-T7: a check that wants another attempt sends it back, not before its time.
pub(super) async fn sm_t7_retry(world: &World) -> anyhow::Result<()> {
    let check = checked_queue(world).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    world.workload(&workload, "given quota", rules::workload::has_quota).await?;
    let retry: Value =
        json!({ "name": check, "state": "Retry", "message": "no room", "requeueAfterSeconds": 2 });
    world.check_says(&workload, retry).await?;
    let evicted = world.workload(&workload, "evicted", rules::workload::is_evicted).await?;
    assert_eq!(
        message(&evicted, "Evicted"),
        format!("Evicted due to AdmissionCheck in Retry state: \"{check}\" (no room)")
    );
    let state = &rules::workload::state::checks(&evicted)[0];
    assert_eq!(state.message, "Reset to Pending after eviction. Previously: Retry");
    assert_eq!(state.retry_count, Some(1));
    world
        .shows(
            &workload,
            &[
                "Evicted=False/QuotaReserved",
                "QuotaReserved=True/QuotaReserved",
                "Requeued=True/BackoffFinished",
            ],
        )
        .await?;
    Ok(())
}

/// SM-25: a check that rejects ends it, until somebody says otherwise.
pub(super) async fn sm_25_rejected(world: &World) -> anyhow::Result<()> {
    let check = checked_queue(world).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    world.workload(&workload, "given quota", rules::workload::has_quota).await?;
    world.check_says(&workload, json!({ "name": check, "state": "Rejected", "message": "never" })).await?;
    is_rejected(world, &workload, &check, "never").await
}

/// Waits until a Workload was deactivated because a check rejected it, for this reason.
pub(super) async fn is_rejected(world: &World, workload: &str, check: &str, why: &str) -> anyhow::Result<()> {
    let ended = world
        .shows(
            workload,
            &[
                "Evicted=True/DeactivatedDueToAdmissionCheck",
                "QuotaReserved=False/Pending",
                "Requeued=False/DeactivatedDueToAdmissionCheck",
            ],
        )
        .await?;
    assert_eq!(ended.spec.active, Some(false));
    assert_eq!(
        message(&ended, "Evicted"),
        format!("The workload is deactivated due to AdmissionCheck in Rejected state: \"{check}\" ({why})")
    );
    Ok(())
}
