//! What stands around a Job: other queues, other Jobs, and what its queues show of it.

use anyhow::Context as _;
use serde_json::json;

use super::World;
use crate::world::{message, suspended};

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// AC-2: a check that is deleted stays for as long as a queue asks for it.
pub(super) async fn ac_2_a_check_is_held_while_it_is_asked_for(world: &World) -> anyhow::Result<()> {
    let check = world.name_of("check");
    world.check(&check).await?;
    let checks = json!({ "admissionChecks": [{ "name": check }] });
    let queue = world.queue("a", "1", json!({ "admissionChecksStrategy": checks })).await?;
    let ready = |reason: &'static str| {
        move |queue: &types::kueue::ClusterQueue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.reason == reason))
        }
    };
    world.sees_queue(&queue, "ready", ready("Ready")).await?;
    world.holds("AdmissionCheck", &check).await?;
    world.delete("AdmissionCheck", &check).await?;
    // The queue sees the check for as long as it is held, and so does everybody else.
    let workload = world.job("late", "a", "1", json!({})).await?;
    world
        .workload(&workload, "given quota and the check", |it| {
            rules::workload::has_quota(it) && !rules::workload::state::checks(it).is_empty()
        })
        .await?;
    world.patch("ClusterQueue", &queue, json!({ "spec": { "admissionChecksStrategy": null } })).await?;
    world.gone("AdmissionCheck", &check).await
}

/// LQ-3: a LocalQueue shows who waits in it, who is in, and what those use, but for what they have of a ClusterQueue to which
/// another one of its name led.
pub(super) async fn lq_3_a_local_queue_shows_what_is_used(world: &World) -> anyhow::Result<()> {
    world.queue("a", "3", json!({})).await?;
    let first = world.job("first", "a", "2", json!({})).await?;
    world.shows(&first, &ADMITTED).await?;
    world.job("second", "a", "2", json!({})).await?;
    let shown = world
        .sees_local_queue("a", "used", |queue| {
            queue.status.as_ref().is_some_and(|it| it.pending_workloads == 1 && it.admitted_workloads == 1)
        })
        .await?;
    let status = shown.status.unwrap_or_default();
    assert_eq!(status.reserving_workloads, 1);
    let used = json!([{ "name": "default", "resources": [{ "name": "cpu", "total": "2" }] }]);
    assert_eq!(serde_json::to_value(&status.flavors_usage)?, used);
    assert_eq!(serde_json::to_value(&status.flavors_reservation)?, used);
    world.patch("LocalQueue", "a", json!({ "spec": { "stopPolicy": "Hold" } })).await?;
    world
        .sees_local_queue("a", "stopped", |queue| {
            queue.status.as_ref().is_some_and(|it| it.pending_workloads == 0 && it.admitted_workloads == 1)
        })
        .await?;
    world.delete("LocalQueue", "a").await?;
    world.gone("LocalQueue", "a").await?;
    let elsewhere = world.cluster_queue("b", "0", json!({})).await?;
    world.local_queue("a", &elsewhere, json!({})).await?;
    world
        .sees_local_queue("a", "another", |queue| {
            queue.status.as_ref().is_some_and(|it| it.pending_workloads == 1 && it.reserving_workloads == 0)
        })
        .await?;
    Ok(())
}

/// QU-5: the first of every queue is looked at, whatever becomes of the first of another.
pub(super) async fn qu_5_every_queue_has_its_turn(world: &World) -> anyhow::Result<()> {
    world.queue("full", "0", json!({ "queueingStrategy": "StrictFIFO" })).await?;
    world.queue("free", "1", json!({})).await?;
    let stuck = world.job("stuck", "full", "1", json!({})).await?;
    world.shows(&stuck, &["QuotaReserved=False/Pending"]).await?;
    let other = world.job("other", "free", "1", json!({})).await?;
    world.shows(&other, &ADMITTED).await?;
    world.shows(&stuck, &["QuotaReserved=False/Pending"]).await?;
    Ok(())
}

/// QU-6, QU-7: in a strict queue nobody gets past the first one; QU-11, JF-31: who asks for less is tried again, and lets the
/// others have their turn.
pub(super) async fn qu_7_nobody_gets_past_the_first(world: &World) -> anyhow::Result<()> {
    world.queue("strict", "2", json!({ "queueingStrategy": "StrictFIFO" })).await?;
    world.queue("free", "2", json!({})).await?;
    world.class("high", 100).await?;
    let mut three = world.priority("high");
    three["spec"] = json!({ "parallelism": 3, "completions": 3 });
    let first = world.job("first", "strict", "1", three.clone()).await?;
    world.shows(&first, &["QuotaReserved=False/Pending"]).await?;
    let next = world.job("next", "strict", "1", json!({})).await?;
    let too_large = world.job("too-large", "free", "1", three).await?;
    world.shows(&too_large, &["QuotaReserved=False/Pending"]).await?;
    let past_it = world.job("past-it", "free", "1", json!({})).await?;
    world.shows(&past_it, &ADMITTED).await?;
    world.shows(&next, &[]).await?;
    world.patch("Job", "first", json!({ "spec": { "parallelism": 1 } })).await?;
    world.shows(&first, &ADMITTED).await?;
    world.shows(&next, &ADMITTED).await?;
    Ok(())
}

/// QU-11: whoever waits is tried again when another is deleted or deactivated.
pub(super) async fn qu_11_who_leaves_makes_room(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let first = world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    let second = world.job("second", "a", "1", json!({})).await?;
    world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    world.delete("Job", "first").await?;
    world.shows(&second, &ADMITTED).await?;
    world.runs("second").await?;
    let third = world.job("third", "a", "1", json!({})).await?;
    world.shows(&third, &["QuotaReserved=False/Pending"]).await?;
    world.patch("Workload", &second, json!({ "spec": { "active": false } })).await?;
    world.stops("second").await?;
    world.shows(&third, &ADMITTED).await?;
    assert!(first != second && second != third);
    Ok(())
}

/// JF-2, JF-5: a Job that is part of another has no Workload of its own, and runs only while that one may.
pub(super) async fn jf_5_a_part_runs_while_the_whole_may(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    let whole = world.job("whole", "a", "1", json!({})).await?;
    world.shows(&whole, &["QuotaReserved=False/Pending"]).await?;
    let uid = world.jobs().get("whole").await?.metadata.uid.context("a uid")?;
    let owner =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "whole", "uid": uid, "controller": true }]);
    let part = json!({
        "metadata": { "labels": { "kueue.x-k8s.io/queue-name": null }, "ownerReferences": owner },
        "spec": { "suspend": false },
    });
    let of_part = world.job("part", "a", "1", part).await?;
    world.sees_job("part", "suspended", suspended).await?;
    assert!(world.no_workload(&of_part).await?);
    world.completes("first").await?;
    world.shows(&whole, &ADMITTED).await?;
    world.patch("Job", "part", json!({ "spec": { "suspend": false } })).await?;
    world.runs("part").await
}

/// JF-1: Jobs of namespaces that are nobody's business are left alone, even if they name a queue that exists there.
pub(super) async fn jf_1_left_alone(world: &mut World) -> anyhow::Result<()> {
    let queue = world.queue("a", "2", json!({})).await?;
    let own = std::mem::replace(&mut world.namespace, "kube-system".to_owned());
    let leads_to = json!({ "clusterQueue": queue });
    let local = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": { "name": "jf-1" }, "spec": leads_to,
    });
    world.create(local).await?;
    let waits = world.job("jf-1-waits", "jf-1", "1", json!({})).await?;
    let runs = world.job("jf-1-runs", "jf-1", "1", json!({ "spec": { "suspend": false } })).await?;
    let system = std::mem::replace(&mut world.namespace, own);
    // Whoever comes later is looked at later.
    let managed = world.job("managed", "a", "1", json!({})).await?;
    world.shows(&managed, &ADMITTED).await?;
    world.runs("managed").await?;
    world.completes("managed").await?;
    world.workload(&managed, "finished", rules::workload::is_finished).await?;
    let own = std::mem::replace(&mut world.namespace, system);
    assert!(world.no_workload(&waits).await? && world.no_workload(&runs).await?);
    let is_suspended =
        async |name: &str| anyhow::Ok(world.jobs().get(name).await?.spec.and_then(|it| it.suspend));
    assert_eq!(
        (is_suspended("jf-1-waits").await?, is_suspended("jf-1-runs").await?),
        (Some(true), Some(false))
    );
    for job in ["jf-1-waits", "jf-1-runs"] {
        world.delete("Job", job).await?;
    }
    world.delete("LocalQueue", "jf-1").await?;
    world.namespace = own;
    Ok(())
}

/// QM-26: what a LimitRange says of pods that say nothing counts for who waits, from the moment at which it says so, and
/// not for who is in.
pub(super) async fn qm_26_limits_change(world: &World) -> anyhow::Result<()> {
    let limits = |cpu: &str| json!({ "spec": { "limits": [{ "type": "Container", "defaultRequest": { "cpu": cpu } }] } });
    let mut range = limits("1");
    range["apiVersion"] = "v1".into();
    range["kind"] = "LimitRange".into();
    range["metadata"] = json!({ "name": "usual" });
    world.create(range).await?;
    world.queue("a", "3", json!({})).await?;
    let silent =
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    let uses = |workload: &types::kueue::Workload| {
        let admission = workload.status.as_ref().and_then(|status| status.admission.clone());
        serde_json::to_value(admission.map(|it| it.pod_set_assignments[0].resource_usage.clone()))
    };
    let first = world.job("first", "a", "", silent.clone()).await?;
    let admitted = world.shows(&first, &ADMITTED).await?;
    assert_eq!(uses(&admitted)?, json!({ "cpu": "1" }));
    world.runs("first").await?;
    world.patch("LimitRange", "usual", limits("3")).await?;
    let second = world.job("second", "a", "", silent).await?;
    let waiting =
        world.workload(&second, "refused 3", |it| message(it, "QuotaReserved").contains("1 more needed"));
    waiting.await?;
    world.patch("LimitRange", "usual", limits("2")).await?;
    let admitted = world.shows(&second, &ADMITTED).await?;
    assert_eq!(uses(&admitted)?, json!({ "cpu": "2" }));
    let first = world.shows(&first, &ADMITTED).await?;
    assert_eq!(uses(&first)?, json!({ "cpu": "1" }), "what it was given is what it holds");
    // SM-13, QM-27: what is not allowed is asked for all the same.
    let most = json!({ "spec": { "limits": [{ "type": "Container", "max": { "cpu": "1" } }] } });
    world.patch("LimitRange", "usual", most).await?;
    let two = json!({ "spec": { "parallelism": 2, "completions": 2 } });
    let third = world.job("third", "a", "2", two).await?;
    let told =
        |it: &types::kueue::Workload| message(it, "QuotaReserved").contains("resources validation failed");
    let waiting = world.workload(&third, "out of range", told);
    let status = waiting.await?.status.unwrap_or_default();
    let asked = json!([{ "name": "main", "resources": { "cpu": "4" } }]);
    assert_eq!(serde_json::to_value(&status.resource_requests)?, asked);
    Ok(())
}

/// CQ-10: what Workloads do to the status of a queue is written once a second, however many there are.
pub(super) async fn cq_10_statuses_are_written_together(world: &World) -> anyhow::Result<()> {
    const MANY: i32 = 40;
    let queue = world.queue("a", "0", json!({})).await?;
    world.sees_queue(&queue, "ready", |queue| queue.status.is_some()).await?;
    let (versions, began) =
        (std::sync::Mutex::new(std::collections::BTreeSet::new()), std::time::Instant::now());
    let seen = world.sees_queue(&queue, "waited for by all", |queue| {
        let version = queue.metadata.resource_version.clone();
        versions.lock().expect("nobody panics here").insert(version);
        queue.status.as_ref().is_some_and(|it| it.pending_workloads == MANY)
    });
    let submitted = async {
        for job in 0..MANY {
            world.job(&format!("job-{job}"), "a", "1", json!({})).await?;
        }
        anyhow::Ok(())
    };
    let (seen, submitted) = tokio::join!(seen, submitted);
    submitted?;
    seen?;
    let (written, seconds) = (versions.lock().expect("nobody panics here").len(), began.elapsed().as_secs());
    // As it was, the second that began, and the last one; and twice that, for seconds of a busy machine are not even.
    let most = 2 * (usize::try_from(seconds)? + 3);
    assert!(written <= most, "{written} versions in {seconds} s");
    Ok(())
}
