//! Only one acts at a time (SM-44).

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use operator::leader::{LEASE, Leadership, lead};
use reconcile::Clock;
use serde_json::json;

use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(60);
const HOME: &str = "kueue-system";

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
    world.shows(&next, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
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
