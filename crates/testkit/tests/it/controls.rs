//! Freezing, killing and restarting a control plane.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use testkit::ControlPlane;
use tokio::time::timeout;

use crate::named;

#[tokio::test]
async fn two_at_once_do_not_know_of_each_other() -> anyhow::Result<()> {
    let start = || ControlPlane::builder().for_test();
    let (Some(one), Some(other)) = tokio::join!(start(), start()) else { return Ok(()) };
    let maps = |plane: &ControlPlane| Api::<ConfigMap>::default_namespaced(plane.client());
    maps(&one).create(&PostParams::default(), &named("here")).await?;
    assert!(maps(&one).get_opt("here").await?.is_some());
    assert!(maps(&other).get_opt("here").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn a_frozen_one_answers_when_thawed_and_a_killed_one_remembers() -> anyhow::Result<()> {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = cluster.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());

    cluster.freeze()?;
    let (params, before) = (PostParams::default(), named("before"));
    let mut create = Box::pin(maps.create(&params, &before));
    assert!(
        timeout(Duration::from_millis(500), &mut create).await.is_err(),
        "a frozen server does not answer"
    );
    cluster.thaw()?;
    timeout(Duration::from_secs(20), create).await??;

    let before: Vec<u32> = cluster.process_ids();
    cluster.kill();
    assert!(cluster.process_ids().is_empty());
    assert!(maps.get("before").await.is_err(), "nobody is there to answer");
    cluster.restart().await?;
    assert!(cluster.process_ids().iter().all(|id| !before.contains(id)));
    maps.get("before").await?; // through the client of before: same port, same certificate authority, same token
    Ok(())
}
