//! Output of containers, asked of a cluster.

use std::time::Duration;

use fleet::{Cluster, ClusterSettings};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::{LogParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};

/// Nothing here takes longer on a machine that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pod on the only node, which begins after so many milliseconds.
fn pod(name: &str, start: &str) -> Pod {
    let annotations = json!({ "sim.ferry.dev/start-ms": start, "sim.ferry.dev/duration-ms": "forever" });
    let spec = json!({ "nodeName": "n", "containers": [{ "name": "main", "image": "x" }] });
    let pod: Value = json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    serde_json::from_value(pod).expect("a pod")
}

#[tokio::test]
async fn rule_2_73_a_container_without_a_log_is_a_bad_request() -> anyhow::Result<()> {
    let nodes = vec![runner::Settings::simulated("n")];
    let settings = ClusterSettings { nodes, ..ClusterSettings::ephemeral("logs") };
    let cluster = Cluster::start(settings).await?;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
    let is_there = |account: Option<&ServiceAccount>| account.is_some();
    tokio::time::timeout(PATIENCE, await_condition(accounts, "default", is_there)).await??;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), &pod("late", "3600000")).await?;
    pods.create(&PostParams::default(), &pod("early", "0")).await?;
    let running = await_condition(pods.clone(), "early", conditions::is_pod_running());
    tokio::time::timeout(PATIENCE, running).await??;

    assert_eq!(pods.logs("early", &LogParams::default()).await?, "", "it has written nothing");
    let previous = LogParams { previous: true, ..LogParams::default() };
    for (name, asked, message) in [
        ("late", LogParams::default(), "container \"main\" in pod \"late\" is not available"),
        ("early", previous, "previous terminated container \"main\" in pod \"early\" not found"),
    ] {
        match pods.logs(name, &asked).await {
            Err(kube::Error::Api(status)) => {
                assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"), "{name}");
                assert_eq!(status.message, message);
            }
            other => anyhow::bail!("{name} was answered with {other:?}"),
        }
    }
    cluster.stop().await;
    Ok(())
}
