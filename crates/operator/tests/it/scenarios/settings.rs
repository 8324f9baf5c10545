//! Scenarios under other settings than the usual ones, each on an embedded cluster and by real Kueue.

use serde_json::json;

use super::World;
use crate::world::{message, suspended};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_4_on_an_embedded_cluster() -> anyhow::Result<()> {
    let file = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "manageJobsWithoutQueueName": true,
    });
    let settings = operator::configuration::Configuration::read(&file.to_string())?.settings;
    let mut world = World::with(World::embedded_cluster().await?, settings).await?;
    jf_4_jobs_without_queue_wait(&mut world).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_4_by_real_kueue() -> anyhow::Result<()> {
    let Some(control_plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    let settings = json!({ "manageJobsWithoutQueueName": true });
    let (mut world, _kueue) = World::of_kueue(&control_plane, &settings).await?;
    jf_4_jobs_without_queue_wait(&mut world).await
}
