//! Jobs that grow and shrink while they run.

use serde_json::{Value, json};

use super::{World, gate_is_measured};
use crate::world::{message, suspended};

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// A Job of so many pods at once.
fn size(pods: i32) -> Value {
    json!({ "spec": { "parallelism": pods, "completions": pods } })
}

/// JF-80 to JF-84, QU-11: more pods wait for a slice of their own while the Job runs; fewer of them give back their share
/// at once.
pub(super) async fn jf_83_elastic(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "4", json!({})).await?;
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    if let Err(error) = world.create(account).await {
        anyhow::ensure!(format!("{error:#}").contains("AlreadyExists"), error);
    }
    let mut elastic = size(2);
    elastic["metadata"] = json!({ "annotations": { "kueue.x-k8s.io/elastic-job": "true" } });
    elastic["spec"]["completionMode"] = json!("Indexed");
    let gates = json!([{ "name": "kueue.x-k8s.io/elastic-job" }]);
    elastic["spec"]["template"] = json!({ "spec": { "schedulingGates": gates } });
    world.job("job", "a", "1", elastic).await?;
    let first = world.slice_name("job", 1).await?;
    let slice = world.shows(&first, &ADMITTED).await?;
    assert_eq!(annotation(&slice, "workload-slice-name"), Some(first.as_str()));
    world.runs("job").await?;
    // Of three pods two were admitted.
    for name in ["p-0", "p-1", "p-2"] {
        world.pod_of("job", name).await?;
    }
    world.patch_status("Job", "job", json!({ "active": 3, "ready": 0 })).await?;
    world.until_gated(&["p-2"]).await?;

    world.patch("Job", "job", size(3)).await?;
    let slice = world.runs_by("job", 3).await?;
    let second = slice.metadata.name.clone().unwrap_or_default();
    assert_eq!(annotation(&slice, "workload-slice-replacement-for"), Some(world.key_of(&first).as_str()));
    assert_eq!(annotation(&slice, "workload-slice-name"), Some(first.as_str()));
    let replaced = world
        .shows(
            &first,
            &[
                "Admitted=True/Admitted",
                "Finished=True/WorkloadSliceReplaced",
                "QuotaReserved=True/QuotaReserved",
            ],
        )
        .await?;
    let why = message(&replaced, "Finished");
    assert!(why.starts_with("Replaced to accommodate a"), "{why}");
    world.until_gated(&[]).await?;
    world
        .sees_queue(&queue, "used by one slice", |queue| {
            queue.status.as_ref().is_some_and(|it| it.admitted_workloads == 1)
        })
        .await?;

    // Nobody else loses by it, and what does not fit waits without stopping what runs.
    let beside = world.job("beside", "a", "1", json!({})).await?;
    world.shows(&beside, &ADMITTED).await?;
    world.patch("Job", "job", size(4)).await?;
    let generation = world.jobs().get("job").await?.metadata.generation.unwrap_or_default();
    let third = world.slice_name("job", generation).await?;
    let waiting = world.shows(&third, &["QuotaReserved=False/Pending"]).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
    );
    world.shows(&second, &ADMITTED).await?;
    let late = world.job("late", "a", "1", json!({})).await?;
    world.shows(&late, &["QuotaReserved=False/Pending"]).await?;

    world.patch("Job", "job", size(2)).await?;
    world.runs_by("job", 2).await?;
    world.shows(&late, &ADMITTED).await?;
    assert!(!suspended(&world.jobs().get("job").await?), "it was never stopped");
    gate_is_measured(world, "elastic-job", &queue, false);
    Ok(())
}

fn annotation<'a>(workload: &'a types::kueue::Workload, key: &str) -> Option<&'a str> {
    let annotations = workload.metadata.annotations.as_ref()?;
    annotations.get(&format!("kueue.x-k8s.io/{key}")).map(String::as_str)
}
