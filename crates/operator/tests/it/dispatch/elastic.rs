//! Jobs that grow and shrink while they run on a worker.

use serde_json::{Value, json};
use types::kueue::Workload;

use super::fleet::{Fleet, NAMESPACE, delete_job, eventually, job};

/// The part of a Job that says how many pods run at once.
fn size(pods: i32) -> Value {
    json!({"spec": {"parallelism": pods, "completions": pods}})
}

/// A Job whose indexes all run at once, for ever.
fn indexed(name: &str, pods: i32) -> Value {
    let mut indexed = job(name, json!({"seconds": "forever"}));
    json_patch::merge(&mut indexed, &size(pods));
    indexed["spec"]["completionMode"] = json!("Indexed");
    indexed
}

async fn resize(fleet: &Fleet, name: &str, pods: i32) -> anyhow::Result<()> {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    fleet
        .manager
        .patch(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}), size(pods))
        .await
}

/// Waits until so many pods of a Job run on a worker, and the manager shows them. Returns the uid of the mirror.
async fn runs(fleet: &Fleet, cluster: &str, name: &str, pods: i32) -> anyhow::Result<Option<String>> {
    eventually(&format!("{pods} pods of {name} run on {cluster}"), async || {
        let Some(mirror) = fleet.workers[cluster].job(name).await? else { return Ok(None) };
        let shown = fleet.manager.job(name).await?.and_then(|job| job.status);
        let spec = mirror.spec.unwrap_or_default();
        let status = mirror.status.unwrap_or_default();
        let all_run = |ready: Option<i32>, active: Option<i32>| (ready, active) == (Some(pods), Some(pods));
        let is_sized = (spec.parallelism, spec.completions) == (Some(pods), Some(pods));
        let is_shown = shown.is_some_and(|shown| all_run(shown.ready, shown.active));
        Ok((is_sized && all_run(status.ready, status.active) && is_shown).then_some(mirror.metadata.uid))
    })
    .await
}

/// The sizes of the slices of a Job that hold quota.
fn sizes(workloads: &[Workload], job: &str) -> Vec<i32> {
    let prefix = format!("job-{job}-");
    let holds = |it: &&Workload| {
        it.metadata.name.as_deref().is_some_and(|name| name.starts_with(&prefix))
            && rules::workload::has_quota(it)
            && !rules::workload::is_finished(it)
    };
    workloads.iter().filter(holds).map(|it| it.spec.pod_sets[0].count).collect()
}

/// Waits until one slice of this size holds quota on the manager, and one on the worker.
async fn held(fleet: &Fleet, cluster: &str, name: &str, pods: i32) -> anyhow::Result<()> {
    eventually(&format!("quota is held for {pods} pods of {name}"), async || {
        let here = sizes(&fleet.manager.workloads().await?, name);
        let there = sizes(&fleet.workers[cluster].workloads().await?, name);
        Ok((here == [pods] && there == [pods]).then_some(()))
    })
    .await
}

/// "Should run an ElasticJob on worker if admitted"; MK-ELA-01 to MK-ELA-06: a Job grows and shrinks where it runs, by the
/// same mirror.
pub(super) async fn elastic_jobs_grow_and_shrink_where_they_run(fleet: &mut Fleet) -> anyhow::Result<()> {
    let mut elastic = indexed("elastic", 2);
    elastic["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
    elastic["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/elastic-job"}]);
    fleet.manager.create(elastic).await?;
    let cluster = fleet.running("elastic").await?;
    let mirror = runs(fleet, &cluster, "elastic", 2).await?;
    for pods in [3, 5, 1, 2] {
        resize(fleet, "elastic", pods).await?;
        // Whoever comes after an operator that was killed carries on.
        if pods == 5 {
            fleet.kill().await;
            fleet.start().await;
        }
        assert_eq!(runs(fleet, &cluster, "elastic", pods).await?, mirror, "it goes on");
        held(fleet, &cluster, "elastic", pods).await?;
    }
    delete_job(&fleet.manager.client, "elastic").await?;
    fleet.clean().await
}

/// MK-ADP-03, JF-31: one that does not say that it is elastic is another Job with another number of pods. It is stopped,
/// and started anew.
pub(super) async fn other_jobs_are_started_anew(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.manager.create(indexed("resized", 1)).await?;
    let first = fleet.running("resized").await?;
    let mirror = runs(fleet, &first, "resized", 1).await?;
    resize(fleet, "resized", 2).await?;
    let uid = async |cluster: &str| -> anyhow::Result<Option<String>> {
        Ok(fleet.workers[cluster].job("resized").await?.and_then(|job| job.metadata.uid))
    };
    let second = eventually("it is elsewhere, or another one", async || {
        let Some(cluster) = fleet.cluster_of("resized").await? else { return Ok(None) };
        let uid = uid(&cluster).await?;
        Ok((uid.is_some() && uid != mirror).then_some(cluster))
    })
    .await?;
    runs(fleet, &second, "resized", 2).await?;
    delete_job(&fleet.manager.client, "resized").await?;
    fleet.clean().await
}
