//! Pods that nobody else would delete.

use std::time::Duration;

use controllers::{Selection, Settings};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use reconcile::{Clock, Tasks};
use serde_json::{Value, json};

use crate::cluster::{api, api_server, create, eventually, set_phase};

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "finalizers": ["example.com/witness"]},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x"}]},
    })
}

/// Of pods that have ended as many are kept as was said, the youngest; those of a node that is gone are shown as failed and
/// deleted, but not before it had time to come back.
#[tokio::test]
async fn pods_that_nobody_else_deletes() {
    let client = Client::new(api_server().await, "default");
    let lost: Pod = create(&client, pod("lost", "gone")).await;
    set_phase(&client, &lost, "Running").await;
    for name in ["ended-1", "ended-2", "ended-3"] {
        let ended: Pod = create(&client, pod(name, "gone")).await;
        set_phase(&client, &ended, "Succeeded").await;
    }
    let settings = Settings { terminated_pods: 1, ..Settings::default() };
    let selection: Selection = "podgc".parse().expect("a name");
    let mut tasks = Tasks::new();
    controllers::start(client.clone(), &selection, settings, Clock::system(), &mut tasks);
    let pods: Api<Pod> = api(&client);
    // A witness keeps them, so that it is seen what became of them.
    let leaving = async || {
        let pods = pods.list(&ListParams::default()).await.expect("pods").items;
        let leaving = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some());
        leaving.filter_map(|pod| pod.metadata.name).collect::<Vec<String>>()
    };
    eventually("too many have ended", || async { (leaving().await.len() == 2).then_some(()) }).await;
    assert!(!leaving().await.contains(&"lost".to_owned()), "its node may be on its way");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let lost = eventually("the pod of the lost node goes", || async {
        let pod = pods.get("lost").await.expect("a pod");
        pod.metadata.deletion_timestamp.is_some().then_some(pod)
    })
    .await;
    let status = lost.status.expect("a status");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.observed_generation, Some(1));
    let why = status.conditions.unwrap_or_default().into_iter().find(|it| it.type_ == "DisruptionTarget");
    let why = why.expect("it says why");
    assert_eq!((why.reason.as_deref(), why.observed_generation), (Some("DeletionByPodGC"), Some(1)));
}
