//! A node that falls silent, on an API server in this process.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use reconcile::{Clock, Tasks};
use serde_json::json;

use crate::cluster::{api, api_server, create, eventually};

async fn ready_node(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
    let mut node = nodes.create(&PostParams::default(), &node).await.expect("created");
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}]});
    node.status = serde_json::from_value(ready).expect("a status");
    nodes.replace_status(name, &PostParams::default(), &node).await.expect("ready");
}

/// Says again and again that a node lives and is ready.
async fn beat(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    loop {
        let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": jiff::Timestamp::now()});
        let status = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
        nodes.patch_status(name, &PatchParams::default(), &status).await.expect("a status");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

async fn taints(client: &Client, name: &str) -> Vec<String> {
    let node = Api::<Node>::all(client.clone()).get(name).await.expect("a node");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
}

/// As long as no node at all is heard of, it is the listener that is cut off: no pod has to go.
#[tokio::test]
async fn no_pod_has_to_go_while_no_node_is_heard_of() {
    let client = &Client::new(api_server().await, "default");
    let mut tasks = Tasks::new();
    let names = "node-lifecycle-controller,taint-eviction-controller".parse().expect("names");
    let settings =
        controllers::Settings { node_patience: Duration::from_secs(1), ..controllers::Settings::default() };
    ready_node(client, "one").await;
    ready_node(client, "two").await;
    let tolerations = json!([{
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0,
    }]);
    let spec = json!({
        "nodeName": "one", "tolerations": tolerations, "containers": [{"name": "main", "image": "x"}],
    });
    create::<Pod>(client, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    controllers::start(client.clone(), &names, settings, Clock::system(), &mut tasks);
    let (schedule, execute) =
        ("node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute");
    for name in ["one", "two"] {
        eventually("no new pods come", || async { (taints(client, name).await == [schedule]).then_some(()) })
            .await;
    }
    assert_eq!(api::<Pod>(client).get("p").await.expect("it stays").metadata.deletion_timestamp, None);
    let other = client.clone();
    tasks.spawn("a node that is back", async move { beat(&other, "two").await });
    eventually("the other one is lost after all", || async {
        taints(client, "one").await.contains(&execute.to_owned()).then_some(())
    })
    .await;
    eventually("it is well", || async { taints(client, "two").await.is_empty().then_some(()) }).await;
    eventually("the pod has to go", || async {
        let pod = api::<Pod>(client).get_opt("p").await.expect("an answer");
        pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn p_4_8_a_silent_node_loses_its_pods() {
    let client = &Client::new(api_server().await, "default");
    let mut tasks = Tasks::new();
    let names = "node-lifecycle-controller,taint-eviction-controller".parse().expect("names");
    let settings =
        controllers::Settings { node_patience: Duration::from_secs(1), ..controllers::Settings::default() };
    let nodes: Api<Node> = Api::all(client.clone());
    ready_node(client, "n").await;
    // Pods have to go only while some other node is heard of.
    ready_node(client, "heard").await;
    let heard = client.clone();
    tasks.spawn("a node that lives", async move { beat(&heard, "heard").await });
    let tolerations = json!([{
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1,
    }]);
    let spec =
        json!({"nodeName": "n", "tolerations": tolerations, "containers": [{"name": "main", "image": "x"}]});
    create::<Pod>(client, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    controllers::start(client.clone(), &names, settings, Clock::system(), &mut tasks);

    let taints = eventually("the node is tainted", || async {
        let taints = nodes.get("n").await.expect("a node").spec?.taints?;
        let keys: Vec<String> =
            taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
        (keys.iter().any(|taint| taint == "node.kubernetes.io/unreachable:NoExecute")).then_some(keys)
    })
    .await;
    assert!(taints.contains(&"node.kubernetes.io/unreachable:NoSchedule".to_owned()), "{taints:?}");
    let conditions = nodes.get("n").await.expect("a node").status.and_then(|status| status.conditions);
    let ready =
        conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready").expect("it says");
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("Unknown", Some("NodeStatusUnknown")));
    let why = eventually("the pod is told to go", || async {
        let pod = api::<Pod>(client).get_opt("p").await.expect("an answer")?;
        pod.metadata.deletion_timestamp?;
        let conditions = pod.status?.conditions?;
        conditions.into_iter().find(|condition| condition.type_ == "DisruptionTarget")
    })
    .await;
    assert_eq!((why.reason.as_deref(), why.observed_generation), (Some("DeletionByTaintManager"), Some(1)));
}

/// A taint that a person sets does not say since when it is there.
#[tokio::test]
async fn p_4_8_a_pod_leaves_when_it_tolerates_a_taint_no_longer_and_stays_if_that_is_removed_before() {
    let client = &Client::new(api_server().await, "default");
    let mut tasks = Tasks::new();
    let names = "taint-eviction-controller".parse().expect("names");
    let nodes: Api<Node> = Api::all(client.clone());
    let node = |taints: serde_json::Value| json!({"spec": {"taints": taints}});
    for name in ["kept", "freed"] {
        let mut object = node(json!([{"key": "mine", "effect": "NoExecute"}]));
        object["metadata"] = json!({"name": name});
        let object: Node = serde_json::from_value(object).expect("a node");
        nodes.create(&PostParams::default(), &object).await.expect("created");
        // Those that are let off would have to go before those that are not.
        let short = if name == "kept" { 6 } else { 4 };
        for (pod, seconds) in [("long", 3600), ("short", short)] {
            let tolerations = json!([{"key": "mine", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
            let spec = json!({"nodeName": name, "tolerations": tolerations, "containers": [{"name": "main", "image": "x"}]});
            create::<Pod>(client, json!({"metadata": {"name": format!("{pod}-{name}")}, "spec": spec})).await;
        }
    }
    controllers::start(client.clone(), &names, controllers::Settings::default(), Clock::system(), &mut tasks);
    let freed = Patch::Merge(node(json!(null)));
    nodes.patch("freed", &PatchParams::default(), &freed).await.expect("freed");
    let is_going = |name: &'static str| async move {
        api::<Pod>(client).get(name).await.expect("a pod").metadata.deletion_timestamp.is_some()
    };
    eventually("the pod whose time is over is told to go", || async {
        is_going("short-kept").await.then_some(())
    })
    .await;
    for name in ["long-kept", "short-freed", "long-freed"] {
        assert!(!is_going(name).await, "{name}");
    }
}
