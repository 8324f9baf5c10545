//! Starting control planes, knowing them apart, and what is left of them.

use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};

use testkit::{Builder, ControlPlane, Error};

use crate::{CLUSTER, pod};

#[tokio::test]
async fn answers_as_the_pinned_version() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let version = cluster.client().apiserver_version().await?;
    assert_eq!(
        (version.git_version.as_str(), version.major.as_str(), version.minor.as_str()),
        ("v1.35.8", "1", "35")
    );
    Ok(())
}

#[tokio::test]
async fn a_program_that_does_not_start_says_why() -> anyhow::Result<()> {
    let Some(_) = CLUSTER.for_test().await else { return Ok(()) };
    check_refused(ControlPlane::builder().apiserver_args(["--no-such-flag"]), "unknown flag: --no-such-flag")
        .await?;
    check_refused(
        ControlPlane::builder().controller_manager(["no-such"]),
        "is not in the list of known controllers",
    )
    .await
}

async fn check_refused(builder: Builder, why: &str) -> anyhow::Result<()> {
    let error = builder.start().await.expect_err("it cannot start");
    let Error::Ended { log, tail, .. } = &error else { anyhow::bail!("another error: {error}") };
    assert!(tail.contains(why), "{tail}");
    assert!(log.exists(), "the log is kept");
    Ok(std::fs::remove_dir_all(log.parent().context("a directory")?)?)
}

#[tokio::test]
async fn a_namespace_takes_pods_and_is_given_once() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let (one, other) = (cluster.namespace("pods").await?, cluster.namespace("pods").await?);
    assert_ne!(one, other);
    for namespace in [&*one, "default"] {
        let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
        let pod = pods.create(&PostParams::default(), &pod("pod")).await?;
        assert_eq!(pod.spec.and_then(|spec| spec.service_account_name).as_deref(), Some("default"));
    }
    Ok(())
}

#[tokio::test]
async fn kubeconfigs_say_who_asks() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    check_user(&cluster.kubeconfig(), "admin", "system:masters", true).await?;
    check_user(&cluster.kubeconfig_for("root", "system:masters")?, "root", "system:masters", true).await?;
    check_user(&cluster.kubeconfig_for("alice", "crew")?, "alice", "crew", false).await?;
    Ok(())
}

async fn check_user(kubeconfig: &Path, user: &str, group: &str, allowed: bool) -> anyhow::Result<()> {
    let (kubeconfig, options) = (Kubeconfig::read_from(kubeconfig)?, KubeConfigOptions::default());
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?;
    let review = Api::<SelfSubjectReview>::all(client.clone());
    let review = review.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let info = review.status.and_then(|status| status.user_info).unwrap_or_default();
    assert_eq!(info.username.as_deref(), Some(user));
    assert!(info.groups.unwrap_or_default().iter().any(|name| name == group), "{user} is in {group}");
    let list = Api::<ConfigMap>::all(client).list(&ListParams::default()).await;
    assert_eq!(list.is_ok(), allowed, "{user} may list: {list:?}");
    Ok(())
}
