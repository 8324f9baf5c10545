//! Ferry and real Kueue as each other's manager and workers, on real control planes: nobody can tell.

use super::{
    fleet::{Fleet, Who},
    scenarios::{completes, deactivated, deleted, evicted_on_the_worker, fails},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ferry_drives_workers_of_kueue() -> anyhow::Result<()> {
    Box::pin(lives(Box::pin(Fleet::real_with(Who::Ferry, Who::Kueue)).await?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kueue_drives_workers_of_ferry() -> anyhow::Result<()> {
    Box::pin(lives(Box::pin(Fleet::real_with(Who::Kueue, Who::Ferry)).await?)).await
}

/// A Job completes, fails, is deleted, is suspended by its user and started again, and is evicted by its worker.
async fn lives(fleet: Option<Fleet>) -> anyhow::Result<()> {
    let Some(mut fleet) = fleet else { return Ok(()) };
    completes(&mut fleet).await?;
    fails(&mut fleet).await?;
    deleted(&mut fleet).await?;
    deactivated(&mut fleet).await?;
    evicted_on_the_worker(&mut fleet).await?;
    fleet.check();
    Ok(())
}
