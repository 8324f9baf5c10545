//! Admission fair sharing: LocalQueues that used less come first. Each on an embedded cluster, on a real control plane, and
//! by real Kueue.

use anyhow::Context as _;
use serde_json::{Value, json};
use types::{
    Quantity,
    kueue::{LocalQueue, LocalQueueAdmissionFairSharingStatus},
};

use super::{
    World,
    settings::{Place, run},
};
use crate::steady;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// Use is written down so seldom that it is not while a scenario lasts: half of what gets in counts as used.
fn seldom() -> Value {
    json!({ "admissionFairSharing": { "usageHalfLifeTime": "24h", "usageSamplingInterval": "24h" } })
}

/// The part of a ClusterQueue that says that use decides.
fn by_usage(more: Value) -> Value {
    let mut spec = json!({ "admissionScope": { "admissionMode": "UsageBasedAdmissionFairSharing" } });
    json_patch::merge(&mut spec, &more);
    spec
}

/// What a LocalQueue used, as its status shows it.
fn used(queue: &LocalQueue) -> Option<&LocalQueueAdmissionFairSharingStatus> {
    queue.status.as_ref()?.fair_sharing.as_ref()?.admission_fair_sharing_status.as_ref()
}

fn cpu(queue: &LocalQueue) -> Option<&Quantity> {
    used(queue)?.consumed_resources.get("cpu")
}

/// A ClusterQueue in which use decides, and LocalQueues that lead there.
async fn queues(world: &World, cpu: &str, more: Value, names: &[&str]) -> anyhow::Result<()> {
    let queue = world.cluster_queue("q", cpu, by_usage(more)).await?;
    for name in names {
        world.local_queue(name, &queue, json!({})).await?;
        world.is("LocalQueue", name, "Active=True/Ready").await?;
    }
    Ok(())
}

/// A job of LocalQueue `first` ends, and one of `b` comes before one of `a` that is older and more important: `a` used more. Returns
/// the Workload of the latter.
async fn b_before_a(world: &mut World, first: &str) -> anyhow::Result<String> {
    world.class("high", 100).await?;
    let in_first = world.job("first", first, "2", json!({})).await?;
    world.shows(&in_first, &ADMITTED).await?;
    world.runs("first").await?;
    let important = world.job("important", "a", "2", world.priority("high")).await?;
    world.shows(&important, &["QuotaReserved=False/Pending"]).await?;
    let other = world.job("other", "b", "2", json!({})).await?;
    world.shows(&other, &["QuotaReserved=False/Pending"]).await?;
    world.completes("first").await?;
    world.shows(&other, &ADMITTED).await?;
    Ok(important)
}

/// QU-2, QU-22, G-14: who used less comes first, whatever the priority and since whenever.
async fn qu_2_who_used_less_comes_first(world: &mut World) -> anyhow::Result<()> {
    world.begin("qu-2").await?;
    queues(world, "2", json!({}), &["a", "b"]).await?;
    let important = b_before_a(world, "a").await?;
    world.runs("other").await?;
    // Both used the same now, so that priority decides.
    let later = world.job("later", "b", "2", json!({})).await?;
    world.shows(&later, &["QuotaReserved=False/Pending"]).await?;
    world.completes("other").await?;
    world.shows(&important, &ADMITTED).await?;
    world.runs("important").await?;
    world.completes("important").await?;
    world.shows(&later, &ADMITTED).await?;
    world.runs("later").await?;
    world.completes("later").await
}

/// QU-20, LQ-1: a LocalQueue that weighs more may use more, and one that weighs nothing comes last.
async fn qu_20_weights_of_local_queues(world: &mut World) -> anyhow::Result<()> {
    world.begin("qu-20").await?;
    queues(world, "4", json!({}), &["light"]).await?;
    let queue = world.name_of("q");
    for (name, weight) in [("heavy", "10"), ("nothing", "0")] {
        world.local_queue(name, &queue, json!({ "fairSharing": { "weight": weight } })).await?;
        world.is("LocalQueue", name, "Active=True/Ready").await?;
    }
    for name in ["light", "heavy"] {
        let workload = world.job(&format!("{name}-1"), name, "2", json!({})).await?;
        world.shows(&workload, &ADMITTED).await?;
        world.runs(&format!("{name}-1")).await?;
    }
    let mut waiting = Vec::new();
    // Of those who ask for the same, only the first would be tried.
    for (name, cpu) in [("nothing", "4"), ("light", "3900m"), ("heavy", "3800m")] {
        let workload = world.job(&format!("{name}-2"), name, cpu, json!({})).await?;
        world.shows(&workload, &["QuotaReserved=False/Pending"]).await?;
        waiting.push(workload);
    }
    world.completes("light-1").await?;
    world.completes("heavy-1").await?;
    for (workload, name) in waiting.iter().zip(["nothing", "light", "heavy"]).rev() {
        world.shows(workload, &ADMITTED).await?;
        world.runs(&format!("{name}-2")).await?;
        world.completes(&format!("{name}-2")).await?;
    }
    Ok(())
}

/// QU-22: a Workload that has quota counts as used while it is not admitted, and no longer if it is deleted before.
async fn qu_22_who_never_ran_used_nothing(world: &mut World) -> anyhow::Result<()> {
    world.begin("qu-22").await?;
    let check = world.name_of("check");
    world.check(&check).await?;
    let checks = json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": check }] } });
    queues(world, "4", checks, &["a", "b", "c"]).await?;
    world.class("high", 100).await?;
    let holds = world.job("holds", "c", "2", json!({})).await?;
    world.shows(&holds, &["QuotaReserved=True/QuotaReserved"]).await?;
    let ready = json!({ "name": check, "state": "Ready", "message": "" });
    world.check_says(&holds, ready).await?;
    world.shows(&holds, &ADMITTED).await?;
    world.runs("holds").await?;
    // It is never admitted. Who waits asks for more than there is when it goes.
    let never = world.job("never", "a", "2", json!({})).await?;
    world.shows(&never, &["QuotaReserved=True/QuotaReserved"]).await?;
    let lesser = world.job("lesser", "b", "4", json!({})).await?;
    world.shows(&lesser, &["QuotaReserved=False/Pending"]).await?;
    let important = world.job("important", "a", "4", world.priority("high")).await?;
    world.shows(&important, &["QuotaReserved=False/Pending"]).await?;
    world.delete("Job", "never").await?;
    // Nobody collects garbage here.
    world.delete("Workload", &never).await?;
    world.gone("Workload", &never).await?;
    let two = |queue: &LocalQueue| queue.status.as_ref().is_some_and(|it| it.pending_workloads == 1);
    world.sees_local_queue("a", "without it", two).await?;
    world.completes("holds").await?;
    world.shows(&important, &["QuotaReserved=True/QuotaReserved"]).await?;
    world.shows(&lesser, &["QuotaReserved=False/Pending"]).await?;
    Ok(())
}

/// QU-23, PR-4: of two who may be pushed out, the one goes whose LocalQueue used more, although it is more important.
async fn qu_23_who_used_more_goes(world: &mut World) -> anyhow::Result<()> {
    world.begin("qu-23").await?;
    let preemption = json!({ "preemption": { "withinClusterQueue": "LowerPriority" } });
    queues(world, "4", preemption, &["a", "b", "c"]).await?;
    world.class("low", 1).await?;
    world.class("middle", 10).await?;
    world.class("high", 100).await?;
    let much = world.job("much", "a", "3", world.priority("middle")).await?;
    world.shows(&much, &ADMITTED).await?;
    world.runs("much").await?;
    let little = world.job("little", "b", "1", world.priority("low")).await?;
    world.shows(&little, &ADMITTED).await?;
    world.runs("little").await?;
    let new = world.job("new", "c", "1", world.priority("high")).await?;
    world.workload(&much, "evicted", rules::workload::is_evicted).await?;
    // It holds its quota until it has stopped, so that nothing else happens before that.
    let stays = world.workloads().get(&little).await?;
    assert!(rules::workload::is_admitted(&stays) && !rules::workload::is_evicted(&stays), "both were to go");
    world.stops("much").await?;
    world.shows(&new, &ADMITTED).await?;
    Ok(())
}

async fn all_by_usage(world: &mut World) -> anyhow::Result<()> {
    qu_2_who_used_less_comes_first(world).await.context("QU-2")?;
    qu_20_weights_of_local_queues(world).await.context("QU-20")?;
    qu_22_who_never_ran_used_nothing(world).await.context("QU-22")?;
    qu_23_who_used_more_goes(world).await.context("QU-23")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qu_2_qu_20_qu_22_qu_23_on_a_real_control_plane() -> anyhow::Result<()> {
    run(Place::Real, seldom(), |world| Box::pin(all_by_usage(world))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qu_2_qu_20_qu_22_qu_23_by_real_kueue() -> anyhow::Result<()> {
    run(Place::Kueue, seldom(), |world| Box::pin(all_by_usage(world))).await
}

/// The same, and nothing is written that is so already: what was used is written once, and not again before its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qu_2_qu_20_qu_22_qu_23_on_an_embedded_cluster() -> anyhow::Result<()> {
    let client = World::embedded_cluster().await?;
    let (way, steady) = steady::watched(client.clone());
    let mut world = World::by_way(client, way, settings(&seldom())?).await?;
    all_by_usage(&mut world).await?;
    steady.settles().await
}

fn settings(of: &Value) -> anyhow::Result<operator::Settings> {
    let mut file = json!({ "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration" });
    json_patch::merge(&mut file, of);
    Ok(operator::configuration::Configuration::read(&file.to_string())?.settings)
}

/// QU-21, LQ-3: what a LocalQueue uses is written down from time to time: it grows to what it holds, and fades when that is given back.
async fn qu_21_what_is_used_is_written_down(world: &mut World) -> anyhow::Result<()> {
    world.begin("qu-21").await?;
    // It is written of every LocalQueue, be use what decides in its ClusterQueue or not.
    let queue = world.cluster_queue("q", "2", json!({})).await?;
    queues_of(world, &queue, &["a", "b"]).await?;
    let idle = world.sees_local_queue("b", "with nothing", |queue| used(queue).is_some()).await?;
    assert_eq!(cpu(&idle), None);
    assert_eq!(serde_json::to_value(&idle.status)?["fairSharing"]["weightedShare"], 0);
    let job = world.job("job", "a", "2", json!({})).await?;
    world.shows(&job, &ADMITTED).await?;
    world.runs("job").await?;
    let least: Quantity = "1200m".parse()?;
    let most: Quantity = "2".parse()?;
    let more = |queue: &LocalQueue| cpu(queue).is_some_and(|cpu| *cpu > least);
    let using = world.sees_local_queue("a", "with much", more).await?;
    assert!(cpu(&using).is_some_and(|cpu| *cpu <= most), "no more than it holds: {:?}", used(&using));
    let (queue, flavor) = (r#"name="a",namespace="qu-21""#, r#"flavor="default",resource="cpu""#);
    for line in [
        format!(r#"kueue_local_queue_admission_fair_sharing_usage{{{queue},cluster_queue="qu-21-q","#),
        format!(r#"kueue_local_queue_resource_usage{{{queue},{flavor},replica_role="leader"}} 2"#),
        format!(r#"kueue_local_queue_resource_reservation{{{queue},{flavor},replica_role="leader"}} 2"#),
    ] {
        assert!(world.counts(&line), "OB-1: {line}");
    }
    world.completes("job").await?;
    let less: Quantity = "500m".parse()?;
    let fades = |queue: &LocalQueue| cpu(queue).is_some_and(|cpu| *cpu < less);
    let faded = world.sees_local_queue("a", "with little", fades).await?;
    let at = |queue: &LocalQueue| used(queue).map(|it| it.last_update.0);
    assert!(at(&faded) > at(&using), "{:?} and {:?}", at(&faded), at(&using));
    Ok(())
}

async fn queues_of(world: &World, queue: &str, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        world.local_queue(name, queue, json!({})).await?;
    }
    Ok(())
}

async fn qu_21(place: Place) -> anyhow::Result<()> {
    let often =
        json!({ "admissionFairSharing": { "usageHalfLifeTime": "4s", "usageSamplingInterval": "1s" } });
    run(place, often, |world| Box::pin(qu_21_what_is_used_is_written_down(world))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qu_21_on_an_embedded_cluster() -> anyhow::Result<()> {
    qu_21(Place::Embedded).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qu_21_on_a_real_control_plane() -> anyhow::Result<()> {
    qu_21(Place::Real).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qu_21_by_real_kueue() -> anyhow::Result<()> {
    qu_21(Place::Kueue).await
}

/// What was there before the operator began: LocalQueues, one of which used much.
async fn before_it_began(world: &mut World) -> anyhow::Result<()> {
    world.begin("sm-43").await?;
    let queue = world.cluster_queue("q", "2", by_usage(json!({}))).await?;
    queues_of(world, &queue, &["a", "b", "c"]).await?;
    let consumed = json!({ "consumedResources": { "cpu": "5" }, "lastUpdate": "2026-01-01T00:00:00Z" });
    let sharing = json!({ "weightedShare": 0, "admissionFairSharingStatus": consumed });
    world.patch_status("LocalQueue", "a", json!({ "fairSharing": sharing })).await
}

/// SM-43, QU-2: what was written down is known after a restart, and did not fade meanwhile.
async fn sm_43_use_survives(world: &mut World) -> anyhow::Result<()> {
    let then: jiff::Timestamp = "2026-01-01T00:00:00Z".parse()?;
    let written = |queue: &LocalQueue| used(queue).is_some_and(|it| it.last_update.0 > then);
    let queue = world.sees_local_queue("a", "written down again", written).await?;
    let (least, most): (Quantity, Quantity) = ("4900m".parse()?, "5".parse()?);
    assert!(cpu(&queue).is_some_and(|cpu| *cpu > least && *cpu <= most), "{:?}", used(&queue));
    b_before_a(world, "c").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_43_on_an_embedded_cluster() -> anyhow::Result<()> {
    sm_43_by_us(World::embedded_cluster().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_43_on_a_real_control_plane() -> anyhow::Result<()> {
    let Some(control_plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    sm_43_by_us(control_plane.client()).await
}

async fn sm_43_by_us(client: kube::Client) -> anyhow::Result<()> {
    let mut world = World::with(client, settings(&seldom())?).await?;
    world.kill().await;
    before_it_began(&mut world).await?;
    world.start().await;
    sm_43_use_survives(&mut world).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_43_by_real_kueue() -> anyhow::Result<()> {
    let Some(control_plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    let mut world = World::before_kueue(&control_plane).await?;
    before_it_began(&mut world).await?;
    let _kueue = control_plane.kueue(&seldom()).await?;
    sm_43_use_survives(&mut world).await
}
