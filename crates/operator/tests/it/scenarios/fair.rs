//! Fair sharing between ClusterQueues: on an embedded cluster, on a real control plane, and by real Kueue.

use serde_json::json;
use types::kueue::ClusterQueue;

use super::{
    World,
    settings::{Place, run},
};

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// Waits until a ClusterQueue shows this share.
async fn share(world: &World, queue: &str, share: i64) -> anyhow::Result<()> {
    let shows = |queue: &ClusterQueue| {
        let sharing = queue.status.as_ref().and_then(|status| status.fair_sharing.as_ref());
        sharing.is_some_and(|it| it.weighted_share == share)
    };
    world.sees_queue(queue, &format!("with a share of {share}"), shows).await?;
    Ok(())
}

/// FS-1, FS-5, CQ-9, CO-5: of what nobody owns, who has less gets as much as the other has afterwards, and no more.
async fn fs_5_who_has_less_gets_its_share(world: &mut World) -> anyhow::Result<()> {
    world.begin("fs-5").await?;
    let cohort = world.name_of("cohort");
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": { "name": cohort }, "spec": {},
        }))
        .await?;
    let member = json!({ "cohortName": cohort, "preemption": { "reclaimWithinCohort": "Any" } });
    world.cluster_queue("pool", "4", member.clone()).await?;
    let a = world.queue("a", "0", member.clone()).await?;
    let b = world.queue("b", "0", member).await?;
    let kept = world.job("kept", "a", "2", json!({})).await?;
    world.shows(&kept, &ADMITTED).await?;
    world.runs("kept").await?;
    // Less than the priority of others, which is zero.
    world.class("least", -1).await?;
    let lost = world.job("lost", "a", "2", world.priority("least")).await?;
    world.shows(&lost, &ADMITTED).await?;
    world.runs("lost").await?;
    share(world, &a, 1000).await?;
    share(world, &b, 0).await?;
    let shows_none = |cohort: &kube::api::DynamicObject| {
        cohort.data["status"]["fairSharing"]["weightedShare"].as_i64() == Some(0)
    };
    world.there("Cohort", &cohort, shows_none).await?;

    let first = world.job("first", "b", "2", json!({})).await?;
    let evicted = [
        "Admitted=True/Admitted",
        "Evicted=True/Preempted",
        "Preempted=True/InCohortFairSharing",
        "QuotaReserved=True/QuotaReserved",
    ];
    world.shows(&lost, &evicted).await?;
    world.stops("lost").await?;
    world.shows(&first, &ADMITTED).await?;
    world.runs("first").await?;
    share(world, &a, 500).await?;
    share(world, &b, 500).await?;

    let second = world.job("second", "b", "2", json!({})).await?;
    world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    world.shows(&kept, &ADMITTED).await?;
    Ok(())
}

async fn fs_5(place: Place) -> anyhow::Result<()> {
    let strategies = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"];
    let settings = json!({ "fairSharing": { "preemptionStrategies": strategies } });
    run(place, settings, |world| Box::pin(fs_5_who_has_less_gets_its_share(world))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fs_5_on_an_embedded_cluster() -> anyhow::Result<()> {
    fs_5(Place::Embedded).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fs_5_on_a_real_control_plane() -> anyhow::Result<()> {
    fs_5(Place::Real).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fs_5_by_real_kueue() -> anyhow::Result<()> {
    fs_5(Place::Kueue).await
}
