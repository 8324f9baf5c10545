//! One Job's way: queued, admitted, started, done.

use serde_json::json;

use super::World;
use crate::world::{message, suspended};

/// SM-T1: a Job that fits runs at once and ends with its Workload.
pub(super) async fn sm_t1_plain(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "3", json!({})).await?;
    let workload = world.job("plain", "a", "1", json!({})).await?;
    let admitted =
        world.shows(&workload, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    assert_eq!(message(&admitted, "QuotaReserved"), format!("Quota reserved in ClusterQueue {queue}"));
    let status = admitted.status.unwrap_or_default();
    let admission = serde_json::to_value(status.admission)?;
    assert_eq!(
        admission,
        json!({ "clusterQueue": queue, "podSetAssignments": [{
            "name": "main", "flavors": { "cpu": "default" }, "resourceUsage": { "cpu": "1" }, "count": 1,
        }] })
    );
    let job = world.sees_job("plain", "started", |job| !suspended(job)).await?;
    let template = serde_json::to_value(job.spec.unwrap_or_default().template)?;
    assert_eq!(template["spec"]["nodeSelector"], json!({ "pool": "default" }));
    assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], "main");
    world.runs("plain").await?;
    let shown = world
        .sees_queue(&queue, "used", |queue| {
            queue.status.as_ref().is_some_and(|it| it.admitted_workloads == 1)
        })
        .await?;
    let status = shown.status.unwrap_or_default();
    assert_eq!(
        serde_json::to_value(&status.flavors_usage)?,
        json!([{ "name": "default", "resources": [{ "name": "cpu", "total": "1", "borrowed": "0" }] }])
    );
    assert_eq!(status.conditions[0].reason, "Ready");
    world.completes("plain").await?;
    let finished =
        world.workload(&workload, "let go", |it| it.metadata.finalizers.as_ref().is_none_or(Vec::is_empty));
    let finished = finished.await?;
    assert_eq!(message(&finished, "Finished"), "Reached expected number of succeeded pods");
    world
        .sees_queue(&queue, "empty", |queue| {
            queue.status.as_ref().is_some_and(|it| it.reserving_workloads == 0)
        })
        .await?;
    Ok(())
}

/// SM-T3: a Job that does not fit says why, and gets in when another is done.
pub(super) async fn sm_t3_no_room(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "3", json!({})).await?;
    world.job("first", "a", "2", json!({})).await?;
    world.runs("first").await?;
    let second = world.job("second", "a", "2", json!({})).await?;
    let waiting = world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
    );
    let status = waiting.status.unwrap_or_default();
    assert_eq!(
        serde_json::to_value(&status.resource_requests)?,
        json!([{ "name": "main", "resources": { "cpu": "2" } }])
    );
    let too_large = world.job("too-large", "a", "4", json!({})).await?;
    let waiting = world.shows(&too_large, &["QuotaReserved=False/Pending"]).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, \
         previously considered podsets requests (0) + current podset request (4) > maximum capacity (3)"
    );
    world
        .sees_queue(&queue, "waited for", |queue| {
            queue.status.as_ref().is_some_and(|it| it.pending_workloads == 2 && it.admitted_workloads == 1)
        })
        .await?;
    world
        .sees_local_queue("a", "waited for", |queue| {
            queue.status.as_ref().is_some_and(|it| it.pending_workloads == 2 && it.admitted_workloads == 1)
        })
        .await?;
    world.completes("first").await?;
    world.shows(&second, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    world.runs("second").await
}

/// JF-31: what changes at a Job that waits, changes in its Workload.
pub(super) async fn jf_31_changed_while_suspended(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let workload =
        world.job("big", "a", "1", json!({ "spec": { "parallelism": 3, "completions": 3 } })).await?;
    world.shows(&workload, &["QuotaReserved=False/Pending"]).await?;
    world.patch("Job", "big", json!({ "spec": { "parallelism": 1 } })).await?;
    let admitted =
        world.shows(&workload, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    assert_eq!(admitted.spec.pod_sets[0].count, 1);
    Ok(())
}

/// JF-41: a Job that is deleted leaves nothing that holds quota.
pub(super) async fn jf_41_deleted(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    let workload = world.job("gone", "a", "1", json!({})).await?;
    world.runs("gone").await?;
    world.delete("Job", "gone").await?;
    world
        .workload(&workload, "finished", |it| {
            it.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
                && rules::workload::state::find(it, "Finished").is_some_and(|it| it.reason == "OwnerNotFound")
        })
        .await?;
    world
        .sees_queue(&queue, "empty", |queue| {
            queue.status.as_ref().is_some_and(|it| it.reserving_workloads == 0)
        })
        .await?;
    Ok(())
}

/// A queue that is missing is named, and its Jobs go on when it comes.
pub(super) async fn missing_queues(world: &World) -> anyhow::Result<()> {
    let workload = world.job("early", "later", "1", json!({})).await?;
    let waiting = world.shows(&workload, &["QuotaReserved=False/Inadmissible"]).await?;
    assert_eq!(message(&waiting, "QuotaReserved"), "LocalQueue later doesn't exist");
    let queue = world.name_of("later");
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": { "name": "later" },
            "spec": { "clusterQueue": queue },
        }))
        .await?;
    let waiting = world
        .workload(&workload, "told of the other queue", |it| {
            // Kueue may say so before it knows which queue that is.
            message(it, "QuotaReserved").contains(&queue)
        })
        .await?;
    assert_eq!(message(&waiting, "QuotaReserved"), format!("ClusterQueue {queue} doesn't exist"));
    let local = world
        .sees_local_queue("later", "inactive", |queue| {
            queue.status.as_ref().is_some_and(|it| !it.conditions.is_empty())
        })
        .await?;
    assert_eq!(local.status.unwrap_or_default().conditions[0].reason, "ClusterQueueDoesNotExist");
    world.cluster_queue("later", "1", json!({})).await?;
    world.shows(&workload, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    Ok(())
}

/// JF-20 to JF-23: a Job whose Workload was made by somebody else waits for it, and takes it over.
pub(super) async fn jf_20_prebuilt(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let link = json!({ "metadata": { "annotations": { "kueue.x-k8s.io/prebuilt-workload-name": "made" } } });
    let own = world.job("linked", "a", "1", link).await?;
    let pods = json!({ "name": "main", "count": 1, "template": { "spec": {
        "restartPolicy": "Never",
        "containers": [{
            "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } },
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": "Always",
        }],
    } } });
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": "made" },
            "spec": { "queueName": "a", "podSets": [pods] },
        }))
        .await?;
    let made = world.workload("made", "taken over", |it| it.metadata.owner_references.is_some()).await?;
    assert!(made.metadata.labels.unwrap_or_default().contains_key("kueue.x-k8s.io/job-uid"));
    world.shows("made", &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    world.runs("linked").await?;
    world.completes("linked").await?;
    world
        .shows(
            "made",
            &["Admitted=True/Admitted", "Finished=True/Succeeded", "QuotaReserved=True/QuotaReserved"],
        )
        .await?;
    assert!(world.no_workload(&own).await?, "no other Workload is made");
    Ok(())
}

/// QU-10, QM-8: more quota lets those in who wait, and less of it drives nobody out.
pub(super) async fn qu_10_more_quota(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    let first = world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    let second = world.job("second", "a", "1", json!({})).await?;
    world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    world.patch("ClusterQueue", &queue, World::quota("2")).await?;
    world.shows(&second, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    world.patch("ClusterQueue", &queue, World::quota("0")).await?;
    let third = world.job("third", "a", "1", json!({})).await?;
    world.shows(&third, &["QuotaReserved=False/Pending"]).await?;
    world.shows(&first, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    Ok(())
}
