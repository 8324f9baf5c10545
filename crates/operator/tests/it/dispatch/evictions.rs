//! Jobs that have to stop because their manager or their worker says so.

use serde_json::{Value, json};

use super::fleet::{Fleet, Site, delete_job, eventually};

fn queue() -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"}})
}

async fn stop(site: &Site, policy: &str) -> anyhow::Result<()> {
    site.patch(queue(), json!({"spec": {"stopPolicy": policy}})).await
}

/// The Workload of a Job on a cluster, in the words of its conditions.
async fn conditions(site: &Site, job: &str) -> anyhow::Result<Vec<String>> {
    let workload = site.workload(job).await?;
    let conditions = workload.and_then(|it| it.status).map(|it| it.conditions).unwrap_or_default();
    Ok(conditions
        .into_iter()
        .map(|it| format!("{}={} {}: {}", it.type_, it.status, it.reason, it.message))
        .collect())
}

/// MK-EVI-02, MK-FLOW-16, MK-FLOW-25, MK-SM-05, MK-WRK-06, MK-JOB-02: a queue of the manager is drained. Its worker stops the pods, the
/// manager shows that until they are gone, then the quota is free; and when the queue opens, it runs again.
pub(super) async fn drained_on_the_manager(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("drained", json!({"seconds": "forever"})).await?;
    let first = fleet.running("drained").await?;
    let mirror = fleet.workers[first.as_str()].job("drained").await?.expect("a mirror").metadata.uid;
    stop(&fleet.manager, "HoldAndDrain").await?;
    fleet.clean().await?;
    eventually("its quota is free", async || {
        let said = conditions(&fleet.manager, "drained").await?;
        let has = |start: &str| said.iter().any(|it| it.starts_with(start));
        let job = fleet.manager.job("drained").await?.expect("a Job");
        let active = job.status.and_then(|status| status.active).unwrap_or(0);
        let suspended = job.spec.and_then(|spec| spec.suspend) == Some(true);
        let is_over = has("QuotaReserved=False")
            && has("Evicted=True ClusterQueueStopped: ")
            && suspended
            && active == 0;
        if is_over { Ok(Some(())) } else { anyhow::bail!("{said:?}, {active} pods, suspended: {suspended}") }
    })
    .await?;
    assert_eq!(fleet.cluster_of("drained").await?, None);
    stop(&fleet.manager, "None").await?;
    let second = fleet.running("drained").await?;
    let again = fleet.workers[second.as_str()].job("drained").await?.expect("a mirror").metadata.uid;
    assert_ne!(mirror, again, "a new mirror");
    delete_job(&fleet.manager.client, "drained").await?;
    fleet.clean().await
}

/// MK-EVI-04, MK-FLOW-17, MK-WRK-07: a queue of the worker is drained. The manager pulls the Job back and another worker gets it.
pub(super) async fn drained_on_the_worker(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("pulled", json!({"seconds": "forever"})).await?;
    let first = fleet.running("pulled").await?;
    stop(&fleet.workers[first.as_str()], "HoldAndDrain").await?;
    eventually("it runs elsewhere", async || {
        let active = fleet.manager.job("pulled").await?.and_then(|job| job.status?.active);
        Ok(fleet.cluster_of("pulled").await?.filter(|now| *now != first && active > Some(0)))
    })
    .await?;
    stop(&fleet.workers[first.as_str()], "None").await?;
    let workload = fleet.manager.workload("pulled").await?.expect("a Workload");
    let retries =
        workload.status.iter().flat_map(|it| &it.admission_checks).find_map(|check| check.retry_count);
    assert_eq!(retries, Some(1), "it took another attempt");
    delete_job(&fleet.manager.client, "pulled").await?;
    fleet.clean().await
}

/// MK-EVI-06, MK-DISP-02, MK-SM-06: another check of the manager is waited for before anything is offered, and what it
/// refuses runs nowhere.
pub(super) async fn another_check_has_a_say(fleet: &mut Fleet) -> anyhow::Result<()> {
    let kueue = "kueue.x-k8s.io/v1beta2";
    let budget = json!({"apiVersion": kueue, "kind": "AdmissionCheck", "metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"}});
    fleet.manager.create(budget.clone()).await?;
    let active = json!({
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    fleet.manager.patch_status(budget, json!({"status": {"conditions": [active]}})).await?;
    let checks = |names: &[&str]| {
        let all: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": all}}})
    };
    fleet.manager.patch(queue(), checks(&["mk", "budget"])).await?;
    for (name, state, outcome) in [("affordable", "Ready", "Complete"), ("dear", "Rejected", "")] {
        fleet.submit(name, json!({})).await?;
        let workload = eventually("it has quota and both checks", async || {
            let workload = fleet.manager.workload(name).await?;
            Ok(workload.filter(|it| {
                it.status
                    .as_ref()
                    .is_some_and(|status| status.admission.is_some() && status.admission_checks.len() == 2)
            }))
        })
        .await?;
        for worker in fleet.workers.values() {
            assert!(worker.workload(name).await?.is_none(), "nothing is offered yet");
        }
        let mut states = serde_json::to_value(workload.status.map(|it| it.admission_checks))?;
        let ours = states.as_array_mut().into_iter().flatten().find(|it| it["name"] == "budget");
        let ours = ours.expect("its entry");
        (ours["state"], ours["message"]) = (json!(state), json!("so be it"));
        let object = fleet.workload_object(name).await?;
        fleet.manager.patch_status(object, json!({"status": {"admissionChecks": states}})).await?;
        if outcome.is_empty() {
            eventually("it is told to go", async || {
                let said = conditions(&fleet.manager, name).await?;
                let why = "Evicted=True DeactivatedDueToAdmissionCheck: The workload is deactivated due to AdmissionCheck in Rejected state: \"budget\" (so be it)";
                Ok(said.iter().any(|it| it == why).then_some(()))
            })
            .await?;
        } else {
            fleet.condition(name, outcome).await?;
        }
        delete_job(&fleet.manager.client, name).await?;
    }
    fleet.manager.patch(queue(), checks(&["mk"])).await?;
    fleet.clean().await
}
