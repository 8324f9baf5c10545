//! Only one acts at a time (SM-44).

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use operator::Settings;
use operator::leader::{LEASE, Leadership, lead};
use reconcile::{Clock, Tasks};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use types::kueue::Workload;

use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(60);
const HOME: &str = "kueue-system";
const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];
const WAITS: [&str; 1] = ["QuotaReserved=False/Pending"];

/// One that looks often.
fn leadership(identity: &str) -> Leadership {
    Leadership { period: Duration::from_millis(20), ..Leadership::new(HOME, identity) }
}

/// SM-44: who comes second waits for as long as the first renews its Lease, and acts once that is given back. What came
/// meanwhile is decided once, by the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_44_the_second_waits_for_the_first() -> anyhow::Result<()> {
    let client = World::embedded_cluster().await?;
    let mut first = lead(client.clone(), leadership("first"), Clock::system()).await?;
    let mut world = World::on(client.clone()).await?;
    world.begin("handed-over").await?;
    world.queue("a", "1", json!({})).await?;
    let second = tokio::spawn(lead(client.clone(), leadership("second"), Clock::system()));

    let holder = async || -> anyhow::Result<(String, i32)> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), HOME);
        let spec = leases.get(LEASE).await?.spec.unwrap_or_default();
        Ok((spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default()))
    };
    let life = async {
        let workload = world.job("job", "a", "1", json!({})).await?;
        world.runs("job").await?;
        world.completes("job").await?;
        world.workload(&workload, "finished", rules::workload::is_finished).await
    };
    tokio::select! {
        lost = first.keep() => anyhow::bail!("lost the Lease: {lost}"),
        finished = life => finished?,
    };
    assert_eq!(holder().await?, ("first".to_owned(), 0));
    assert!(!second.is_finished(), "only one leads");

    world.kill().await;
    first.release().await?;
    let second = tokio::time::timeout(PATIENCE, second).await???;
    assert_eq!(holder().await?, ("second".to_owned(), 1));
    world.start().await;
    let next = world.job("next", "a", "1", json!({})).await?;
    world.shows(&next, &ADMITTED).await?;
    second.release().await?;
    Ok(())
}

/// SM-44: one that finds another's name on the Lease that it kept stops at once, so that never two act.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_44_who_loses_the_lease_knows() -> anyhow::Result<()> {
    let client = World::embedded_cluster().await?;
    let mut first = lead(client.clone(), leadership("first"), Clock::system()).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), HOME);
    let taken = json!({ "spec": { "holderIdentity": "another" } });
    leases.patch(LEASE, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&taken)).await?;
    let lost = tokio::time::timeout(PATIENCE, first.keep()).await?;
    assert!(lost.to_string().contains(LEASE), "{lost}");
    first.release().await?;
    let lease = leases.get(LEASE).await?.spec.unwrap_or_default();
    assert_eq!(lease.holder_identity.as_deref(), Some("another"), "what is another's is not given back");
    Ok(())
}

/// One of us that sees what there is from its start, and acts once it leads, as `ferry operator` does.
struct Ours {
    leads: oneshot::Receiver<()>,
    leave: oneshot::Sender<()>,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Ours {
    const NAME: &'static str = "ferry";

    async fn start(client: &Client) -> Ours {
        let mut tasks = Tasks::new();
        let operator = operator::observe(client.clone(), Settings::default(), Clock::system(), &mut tasks);
        operator.ready().await;
        let ((led, leads), (leave, left)) = (oneshot::channel(), oneshot::channel());
        let client = client.clone();
        let ended = tokio::spawn(async move {
            let mut leader = lead(client, leadership(Ours::NAME), Clock::system()).await?;
            operator.act(&mut tasks);
            let _ = led.send(());
            tokio::select! {
                lost = leader.keep() => return Err(lost.into()),
                _ = left => {}
            }
            tasks.stop().await;
            anyhow::Ok(leader.release().await?)
        });
        Ours { leads, leave, ended }
    }

    async fn leave(self) -> anyhow::Result<()> {
        let _ = self.leave.send(());
        self.ended.await?
    }
}

/// Waits until the Lease is renewed, and returns who did.
async fn renewed(world: &World) -> anyhow::Result<String> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), HOME);
    let before = leases.get_opt(LEASE).await?.and_then(|lease| lease.spec);
    let after = world.until(leases, LEASE, "renewed", |lease| lease.spec != before).await?;
    Ok(after.spec.and_then(|spec| spec.holder_identity).unwrap_or_default())
}

/// A Workload whose pods are ready, about which there is nothing to be said for now.
async fn started(world: &World, workload: &str) -> anyhow::Result<Workload> {
    let is = |it: &Workload| {
        rules::workload::state::find(it, "PodsReady").is_some_and(|ready| ready.reason == "Started")
    };
    world.workload(workload, "started", is).await
}

/// SM-44, SM-42: of Kueue and us only the one acts that has the Lease. When it ends, the other goes on where it was: who is
/// in stays in, with the same admission, and who waits gets in when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_44_kueue_and_we_take_over_from_each_other() -> anyhow::Result<()> {
    let Some(plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    let mut world = World::before_kueue(&plane).await?;
    world.begin("taken-over").await?;
    let elects = json!({ "leaderElection": {
        "leaderElect": true, "resourceLock": "leases", "resourceName": LEASE, "resourceNamespace": HOME,
        "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms",
    } });
    let kueue = plane.kueue(&elects).await?;
    world.queue("a", "1", json!({})).await?;
    let first = world.job("first", "a", "1", json!({})).await?;
    world.runs("first").await?;
    let second = world.job("second", "a", "1", json!({})).await?;
    world.shows(&second, &WAITS).await?;

    let mut ours = Ours::start(&world.client).await;
    let in_before = started(&world, &first).await?;
    let waits_before = world.shows(&second, &WAITS).await?;
    let theirs = renewed(&world).await?;
    assert!(!theirs.is_empty() && theirs != Ours::NAME, "{theirs}");
    assert_eq!(renewed(&world).await?, theirs, "it is renewed, and not taken");
    assert!(ours.leads.try_recv().is_err(), "only one leads");
    drop(kueue);
    tokio::time::timeout(PATIENCE, &mut ours.leads).await??;
    assert_eq!(renewed(&world).await?, Ours::NAME);
    // Who is told something was looked at, and everyone else as well. Who asks for the same as another is not looked at.
    let third = world.job("third", "a", "500m", json!({})).await?;
    world.shows(&third, &WAITS).await?;
    assert_eq!(world.shows(&first, &ADMITTED).await?, in_before, "nothing is written about who is in");
    assert_eq!(world.shows(&second, &WAITS).await?, waits_before, "nor about who waits as before");
    world.completes("first").await?;
    world.shows(&second, &ADMITTED).await?;
    world.runs("second").await?;

    let _kueue = plane.kueue(&elects).await?;
    let in_before = started(&world, &second).await?;
    assert_eq!(renewed(&world).await?, Ours::NAME, "it is renewed, and not taken");
    ours.leave().await?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), HOME);
    let is_theirs = |lease: &Lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty() && holder != Ours::NAME)
    };
    world.until(leases, LEASE, "taken by Kueue", is_theirs).await?;
    // One that never fits: Kueue may try a new one before it comes back to those that wait.
    let fourth = world.job("fourth", "a", "2", json!({})).await?;
    world.shows(&fourth, &WAITS).await?;
    assert_eq!(world.shows(&second, &ADMITTED).await?.status, in_before.status);
    world.completes("second").await?;
    world.shows(&third, &ADMITTED).await?;
    Ok(())
}
