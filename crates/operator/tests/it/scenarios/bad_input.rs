//! What cannot work says so and harms nobody else, and is taken up when it is mended.

use serde_json::{Value, json};

use super::World;
use crate::world::message;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// CQ-4, RF-4: a queue with a flavor that does not exist says so, and admits when somebody makes it.
pub(super) async fn rf_4_no_such_flavor(world: &World) -> anyhow::Result<()> {
    let flavor = world.name_of("rare");
    let mut more = World::quota("1")["spec"].clone();
    more["resourceGroups"][0]["flavors"][0]["name"] = json!(flavor);
    let queue = world.queue("a", "1", more).await?;
    let workload = world.job("early", "a", "1", json!({})).await?;
    let waiting = world.shows(&workload, &["QuotaReserved=False/Inadmissible"]).await?;
    assert_eq!(message(&waiting, "QuotaReserved"), format!("ClusterQueue {queue} is inactive"));
    let shown = world
        .sees_queue(&queue, "inactive", |queue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.status == "False"))
        })
        .await?;
    let condition = &shown.status.unwrap_or_default().conditions[0];
    assert_eq!(condition.reason, "FlavorNotFound");
    let missing = format!("Can't admit new workloads: references missing ResourceFlavor(s): {flavor}.");
    assert_eq!(condition.message, missing);
    let rare = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": flavor },
    });
    world.create(rare).await?;
    world.shows(&workload, &ADMITTED).await?;
    Ok(())
}

/// QM-8: quota that is taken away stops nobody who runs, and lets nobody in before there is room.
pub(super) async fn qm_8_quota_is_taken_away(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "2", json!({})).await?;
    let running = world.job("running", "a", "2", json!({})).await?;
    world.runs("running").await?;
    world.patch("ClusterQueue", &queue, World::quota("1")).await?;
    let late = world.job("late", "a", "1", json!({})).await?;
    let waiting = world.shows(&late, &["QuotaReserved=False/Pending"]).await?;
    assert!(message(&waiting, "QuotaReserved").contains("insufficient unused quota for cpu"), "{waiting:?}");
    world.shows(&running, &ADMITTED).await?;
    world.completes("running").await?;
    world.shows(&late, &ADMITTED).await?;
    Ok(())
}

/// CO-4, CQ-6, G-21: queues under cohorts that are their own parents admit nobody, which their condition does not say, until
/// the circle is broken.
pub(super) async fn co_4_cohorts_in_a_circle(world: &World) -> anyhow::Result<()> {
    let cohort = |name: &str, parent: &str| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort",
            "metadata": { "name": world.name_of(name) }, "spec": { "parentName": world.name_of(parent) },
        })
    };
    world.create(cohort("one", "two")).await?;
    world.create(cohort("two", "one")).await?;
    let queue = world.queue("a", "1", json!({ "cohortName": world.name_of("one") })).await?;
    world.queue("b", "1", json!({})).await?;
    let stuck = world.job("stuck", "a", "1", json!({})).await?;
    let other = world.job("other", "b", "1", json!({})).await?;
    world.shows(&other, &ADMITTED).await?;
    let waiting = world.workload(&stuck, "there", |_| true).await?;
    assert!(!rules::workload::has_quota(&waiting), "{waiting:?}");
    world
        .sees_queue(&queue, "said to be active", |queue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.reason == "Ready"))
        })
        .await?;
    world.patch("Cohort", &world.name_of("two"), json!({ "spec": { "parentName": null } })).await?;
    world.shows(&stuck, &ADMITTED).await?;
    Ok(())
}

/// API-5, G-25: amounts beyond all measure are amounts nevertheless.
pub(super) async fn api_5_amounts_beyond_measure(world: &World) -> anyhow::Result<()> {
    world.queue("endless", "9223372036854775807", json!({})).await?;
    world.queue("small", "1", json!({})).await?;
    let greedy = world.job("greedy", "small", "9223372036854775", json!({})).await?;
    let waiting = world.shows(&greedy, &["QuotaReserved=False/Pending"]).await?;
    assert!(message(&waiting, "QuotaReserved").contains("insufficient quota for cpu"), "{waiting:?}");
    let first = world.job("first", "endless", "9223372036854775", json!({})).await?;
    world.shows(&first, &ADMITTED).await?;
    let second = world.job("second", "endless", "9223372036854775", json!({})).await?;
    world.shows(&second, &ADMITTED).await?;
    let modest = world.job("modest", "small", "1", json!({})).await?;
    world.shows(&modest, &ADMITTED).await?;
    Ok(())
}

/// RF-1, RF-2, LQ-1, AC-1, TP-1, WL-4: what cannot be is refused when it is written.
pub(super) async fn rf_1_refused_when_written(world: &World) -> anyhow::Result<()> {
    let refused = async |object: Value, why: &str| {
        let error = world.create(object.clone()).await.err().map(|error| format!("{error:#}"));
        assert!(error.as_deref().is_some_and(|it| it.contains(why)), "{object}: {error:?}");
    };
    let of = |kind: &str, spec: Value| {
        let name = world.name_of("refused");
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    let levels = |labels: &[&str]| {
        let levels: Vec<Value> = labels.iter().map(|label| json!({ "nodeLabel": label })).collect();
        json!({ "levels": levels })
    };
    refused(of("ResourceFlavor", json!({ "topologyName": "t" })), "at least one nodeLabel").await;
    refused(of("AdmissionCheck", json!({ "controllerName": "" })), "spec.controllerName").await;
    refused(of("Topology", levels(&[])), "spec.levels").await;
    refused(of("Topology", levels(&["kubernetes.io/hostname", "rack"])), "lowest level").await;
    refused(of("Topology", levels(&["rack", "rack"])), "unique").await;
    world.queue("a", "1", json!({})).await?;
    let stays = async |kind: &str, name: &str, patch: Value, why: &str| {
        let error = world.patch(kind, name, patch).await.err().map(|error| format!("{error:#}"));
        assert!(error.as_deref().is_some_and(|it| it.contains(why)), "{kind} {name}: {error:?}");
    };
    stays("LocalQueue", "a", json!({ "spec": { "clusterQueue": "other" } }), "field is immutable").await;
    let placed = json!({ "topologyName": "t", "nodeLabels": { "rack": "a" } });
    let racks = world.create(of("ResourceFlavor", placed)).await?.metadata.name.unwrap_or_default();
    for (field, value) in [("nodeLabels", json!({ "rack": "b" })), ("topologyName", json!("other"))] {
        let why = format!("{field} {} immutable", if field == "nodeLabels" { "are" } else { "is" });
        stays("ResourceFlavor", &racks, json!({ "spec": { field: value } }), &why).await;
    }
    let workload = world.job("in", "a", "1", json!({})).await?;
    world.shows(&workload, &ADMITTED).await?;
    let moved = json!({ "spec": { "queueName": "b" } });
    stays("Workload", &workload, moved, "queueName is immutable while workload quota reserved").await;
    let limited = json!({ "spec": { "maximumExecutionTimeSeconds": 60 } });
    stays("Workload", &workload, limited, "maximumExecutionTimeSeconds is immutable").await;
    Ok(())
}

/// LQ-5: a LocalQueue that is deleted takes with it who waits, and nobody who runs; who waits gets in when it is back.
pub(super) async fn lq_5_a_deleted_local_queue(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    let running = world.job("running", "a", "1", json!({})).await?;
    world.runs("running").await?;
    let waiting = world.job("waiting", "a", "1", json!({})).await?;
    world.shows(&waiting, &["QuotaReserved=False/Pending"]).await?;
    world.delete("LocalQueue", "a").await?;
    world.gone("LocalQueue", "a").await?;
    world.shows(&waiting, &["QuotaReserved=False/Inadmissible"]).await?;
    world.shows(&running, &ADMITTED).await?;
    world.completes("running").await?;
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": { "name": "a" },
            "spec": { "clusterQueue": queue },
        }))
        .await?;
    world.shows(&waiting, &ADMITTED).await?;
    Ok(())
}

/// SM-41: a Workload that somebody deletes stops its Job and gives its quota back; the Job gets another one.
pub(super) async fn sm_41_a_deleted_workload(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let workload = world.job("running", "a", "1", json!({})).await?;
    world.runs("running").await?;
    let before = world.workload(&workload, "there", |_| true).await?.metadata.uid;
    world.delete("Workload", &workload).await?;
    world.stops("running").await?;
    world.workload(&workload, "made anew", |it| it.metadata.uid != before).await?;
    world.shows(&workload, &ADMITTED).await?;
    Ok(())
}

/// JF-3: a Job that names no queue is nobody's business.
pub(super) async fn jf_3_jobs_without_queue(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let unlabelled = json!({
        "metadata": { "labels": { "kueue.x-k8s.io/queue-name": null } }, "spec": { "suspend": false },
    });
    let own = world.job("own", "a", "1", unlabelled).await?;
    let queued = world.job("queued", "a", "1", json!({})).await?;
    world.shows(&queued, &ADMITTED).await?;
    assert!(world.no_workload(&own).await?);
    world.sees_job("own", "left alone", |job| !crate::world::suspended(job)).await?;
    Ok(())
}
