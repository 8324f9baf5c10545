//! What a Job gets when it starts, and that it is rid of it when it is stopped.

use serde_json::{Value, json};

use super::World;
use crate::world::{message, suspended};

/// What a Job says now.
async fn spec(world: &World, job: &str) -> anyhow::Result<Value> {
    Ok(serde_json::to_value(world.jobs().get(job).await?.spec)?)
}

/// JF-50, JF-53, JF-54, JF-56: a Job that starts gets what its flavor and its queues have to say to its pods, and has it for
/// as long as it may run.
pub(super) async fn jf_50_started_and_stopped(world: &World) -> anyhow::Result<()> {
    let flavor = world.name_of("gpu");
    let tolerates = json!({ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" });
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": flavor },
            "spec": { "nodeLabels": { "pool": "gpu" }, "tolerations": [tolerates] },
        }))
        .await?;
    let own = json!({ "key": "own", "operator": "Exists" });
    let template = json!({
        "metadata": { "labels": { "app": "a" }, "annotations": { "note": "n" } },
        "spec": { "nodeSelector": { "zone": "z" }, "tolerations": [own] },
    });
    let workload = world.job("job", "a", "1", json!({ "spec": { "template": template } })).await?;
    let before = spec(world, "job").await?;
    let quota = json!([{ "name": "cpu", "nominalQuota": "1" }]);
    let group = json!({ "coveredResources": ["cpu"], "flavors": [{ "name": flavor, "resources": quota }] });
    let queue = world.queue("a", "0", json!({ "resourceGroups": [group] })).await?;

    let mut wanted = before.clone();
    wanted["suspend"] = json!(false);
    let pods = &mut wanted["template"];
    pods["spec"]["nodeSelector"]["pool"] = json!("gpu");
    pods["spec"]["tolerations"] = json!([own, tolerates]);
    pods["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = json!(workload);
    let labels = [("podset", "main"), ("local-queue-name", "a"), ("cluster-queue-name", queue.as_str())];
    for (label, value) in labels {
        pods["metadata"]["labels"][format!("kueue.x-k8s.io/{label}")] = json!(value);
    }
    for _ in 0..2 {
        world.runs("job").await?;
        assert_eq!(spec(world, "job").await?, wanted);
        world.patch("Workload", &workload, json!({ "spec": { "active": false } })).await?;
        world.stops("job").await?;
        assert_eq!(spec(world, "job").await?, before, "nothing of it is left");
        let job = world.jobs().get("job").await?;
        assert_eq!(job.status.and_then(|status| status.start_time), None);
        assert!(!job.metadata.annotations.unwrap_or_default().contains_key("kueue.x-k8s.io/stopping"));
        world.workload(&workload, "released", |it| !rules::workload::has_quota(it)).await?;
        world.patch("Workload", &workload, json!({ "spec": { "active": true } })).await?;
    }
    let told = world.told("Job", "job", &["Started", "Stopped"]).await?;
    assert!(told.contains(&"Stopped: The workload is deactivated".to_owned()), "{told:#?}");
    Ok(())
}

/// JF-51: a Job that would have to run in two places at once ends there.
pub(super) async fn jf_51_nowhere_to_start(world: &World) -> anyhow::Result<()> {
    let check = world.name_of("check");
    world.check(&check).await?;
    let checks = json!({ "admissionChecks": [{ "name": check }] });
    world.queue("a", "1", json!({ "admissionChecksStrategy": checks })).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    world
        .workload(&workload, "given quota and checks", |it| {
            rules::workload::has_quota(it) && !rules::workload::state::checks(it).is_empty()
        })
        .await?;
    let elsewhere = json!([{ "name": "main", "nodeSelector": { "pool": "elsewhere" } }]);
    let ready = json!({ "name": check, "state": "Ready", "message": "", "podSetUpdates": elsewhere });
    world.check_says(&workload, ready).await?;
    let ended = world
        .shows(
            &workload,
            &["Admitted=True/Admitted", "Finished=True/FailedToStart", "QuotaReserved=True/QuotaReserved"],
        )
        .await?;
    assert_eq!(
        message(&ended, "Finished"),
        format!(
            "in admission check \"{check}\": invalid admission check PodSetUpdate: conflict for nodeSelector: conflict \
             for key=pool, value1=default, value2=elsewhere"
        )
    );
    world.sees_job("job", "still waiting", suspended).await?;
    Ok(())
}

/// JF-52, JF-54: a Job that may run with fewer pods runs with as many as there is room for, and wants all of them again when
/// it is stopped.
pub(super) async fn jf_52_fewer_pods(world: &World) -> anyhow::Result<()> {
    world.queue("a", "2", json!({})).await?;
    let annotations = json!({
        "kueue.x-k8s.io/job-min-parallelism": "1",
        "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
    });
    let three = json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed" });
    let job = json!({ "metadata": { "annotations": annotations }, "spec": three });
    let workload = world.job("job", "a", "1", job).await?;
    world.runs("job").await?;
    let pods = async || -> anyhow::Result<(Value, Value)> {
        let mut spec = spec(world, "job").await?;
        Ok((spec["parallelism"].take(), spec["completions"].take()))
    };
    assert_eq!(pods().await?, (json!(2), json!(2)));
    let admitted = world.workload(&workload, "admitted", rules::workload::is_admitted).await?;
    let admission = serde_json::to_value(admitted.status.unwrap_or_default().admission)?;
    let assigned = &admission["podSetAssignments"][0];
    assert_eq!((&assigned["count"], &assigned["resourceUsage"]), (&json!(2), &json!({ "cpu": "2" })));
    world.patch("Workload", &workload, json!({ "spec": { "active": false } })).await?;
    world.stops("job").await?;
    assert_eq!(pods().await?, (json!(3), json!(3)));
    Ok(())
}
