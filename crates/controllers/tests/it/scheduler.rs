//! Pods that get a node, wait for one, or make others go, on a real API server.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use reconcile::Tasks;
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::cluster::{api, api_server, create, embedded, eventually, start};

async fn node(client: &Client, name: &str, cpu: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let allocatable = json!({"cpu": cpu, "memory": "8Gi", "pods": "10"});
    let node =
        json!({"metadata": {"name": name}, "status": {"allocatable": allocatable, "capacity": allocatable}});
    let node: Node = serde_json::from_value(node).expect("a node");
    let stored = nodes.create(&PostParams::default(), &node).await.expect("created");
    // Taints and status are not the creator's to choose.
    let mut ready = stored;
    ready.spec.get_or_insert_default().taints = None;
    let mut ready = nodes.replace(name, &PostParams::default(), &ready).await.expect("untainted");
    ready.status = node.status;
    nodes.replace_status(name, &PostParams::default(), &ready).await.expect("a status");
}

fn pod(name: &str, cpu: &str, more: &Value) -> Value {
    let mut spec = json!({
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
        "terminationGracePeriodSeconds": 0,
    });
    for (key, value) in more.as_object().expect("fields") {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn node_of(client: &Client, name: &str) -> String {
    let pods: Api<Pod> = api(client);
    eventually(&format!("{name} has a node"), || async {
        pods.get(name).await.expect("a pod").spec.and_then(|spec| spec.node_name)
    })
    .await
}

async fn why(client: &Client, name: &str, expected: &str) {
    let pods: Api<Pod> = api(client);
    eventually(&format!("{name} says {expected}"), || async {
        let status = pods.get(name).await.expect("a pod").status?;
        let condition = status.conditions?.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
        let of = (condition.reason.as_deref(), condition.observed_generation);
        (of == (Some("Unschedulable"), Some(1)) && condition.message.as_deref() == Some(expected))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn p_4_9_pods_get_nodes() {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return };
    let client = &cluster.client();
    let mut tasks = Tasks::new();
    start(client, "scheduler,serviceaccount-controller", &mut tasks);
    eventually("the service account", || async {
        api::<ServiceAccount>(client).get_opt("default").await.expect("an answer")
    })
    .await;
    create::<Pod>(client, pod("early", "1", &json!({}))).await;
    why(client, "early", "no nodes available to schedule pods").await;
    node(client, "a", "2").await;
    assert_eq!(node_of(client, "early").await, "a");

    create::<Pod>(client, pod("big", "2", &json!({}))).await;
    why(
        client,
        "big",
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 No preemption victims found for incoming pod.",
    )
    .await;
    create::<Pod>(client, pod("gated", "1", &json!({"schedulingGates": [{"name": "example.com/g"}]}))).await;
    create::<Pod>(client, pod("others", "1", &json!({"schedulerName": "another"}))).await;
    node(client, "b", "2").await;
    assert_eq!(node_of(client, "big").await, "b");

    let classes: Api<PriorityClass> = Api::all(client.clone());
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    classes
        .create(&PostParams::default(), &serde_json::from_value(class).expect("a class"))
        .await
        .expect("created");
    let vip: Pod =
        serde_json::from_value(pod("vip", "2", &json!({"priorityClassName": "high"}))).expect("a pod");
    // Admission on a real server hears of a new class a little later.
    eventually("the class is known", || async {
        api::<Pod>(client).create(&PostParams::default(), &vip).await.ok()
    })
    .await;
    // Of the two that could go, the one alone on its node with a smaller share of it is as good: the least pods.
    let place = node_of(client, "vip").await;
    let victim = if place == "a" { "early" } else { "big" };
    let gone = api::<Pod>(client).get_opt(victim).await.expect("an answer");
    assert_eq!(gone, None, "it made room");
    for (name, held) in [("gated", true), ("others", true), ("vip", false)] {
        let spec = api::<Pod>(client).get(name).await.expect("a pod").spec.expect("a spec");
        assert_eq!(spec.node_name.is_none(), held, "{name}");
    }
    let told = eventually("events", || async {
        let events = api::<Event>(client).list(&ListParams::default()).await.expect("a list");
        let told: Vec<(String, String)> = events
            .into_iter()
            .map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect();
        told.iter().any(|(reason, _)| reason == "Preempted").then_some(told)
    })
    .await;
    let assigned = ("Scheduled".to_owned(), "Successfully assigned default/early to a".to_owned());
    assert!(told.contains(&assigned), "{told:?}");
    api::<Pod>(client).delete("vip", &DeleteParams::default()).await.expect("deleted");
}

/// Pods that wait are tried again when a node goes over which they would have to be spread, and when a namespace becomes
/// one that they look into.
#[tokio::test]
async fn what_goes_away_or_changes_elsewhere_can_make_room() {
    let cluster = embedded("scheduler").await;
    let client = &cluster.client;
    node(client, "a", "4").await;
    node(client, "b", "4").await;
    let nodes: Api<Node> = Api::all(client.clone());
    let taint = Patch::Merge(json!({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}}));
    nodes.patch("b", &PatchParams::default(), &taint).await.expect("tainted");
    for name in ["a", "b"] {
        let labels = Patch::Merge(json!({"metadata": {"labels": {"kubernetes.io/hostname": name}}}));
        nodes.patch(name, &PatchParams::default(), &labels).await.expect("labelled");
    }
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }]});
    let labelled = |name: &str, more: &Value| {
        let mut pod = pod(name, "1", more);
        pod["metadata"]["labels"] = json!({"app": "spread"});
        pod
    };
    create::<Pod>(client, labelled("first", &json!({"nodeName": "a"}))).await;
    create::<Pod>(client, labelled("second", &spread)).await;
    why(
        client,
        "second",
        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated \
         taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: 1 No preemption victims found for \
         incoming pod, 1 Preemption is not helpful for scheduling.",
    )
    .await;
    nodes.delete("b", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(node_of(client, "second").await, "a");

    let namespaces: Api<Namespace> = Api::all(client.clone());
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &other).await.expect("created");
    let mut friend = labelled("friend", &json!({"nodeName": "a"}));
    friend["metadata"]["labels"] = json!({"app": "friend"});
    let friends: Api<Pod> = Api::namespaced(client.clone(), "other");
    let friend = serde_json::from_value(friend).expect("a pod");
    friends.create(&PostParams::default(), &friend).await.expect("created");
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "friend"}},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
    }]}}});
    create::<Pod>(client, pod("near", "1", &near)).await;
    eventually("it waits", || async {
        let status = api::<Pod>(client).get("near").await.expect("a pod").status?;
        status.conditions?.into_iter().find(|condition| condition.reason.as_deref() == Some("Unschedulable"))
    })
    .await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "x"}}}));
    namespaces.patch("other", &PatchParams::default(), &label).await.expect("labelled");
    assert_eq!(node_of(client, "near").await, "a");
}

/// Pods that are alike are tried once for all of them, and yet each of them says why it waits, and when that changes; and
/// those that are made to go say so of what was wanted of them last.
#[tokio::test]
async fn p_4_9_each_of_the_pods_that_are_alike_says_why_it_waits() {
    let client = &Client::new(api_server().await, "default");
    let names = ["one", "two", "three"];
    for name in names {
        create::<Pod>(client, pod(name, "3", &json!({"terminationGracePeriodSeconds": 30}))).await;
    }
    node(client, "a", "2").await;
    let mut tasks = Tasks::new();
    start(client, "scheduler", &mut tasks);
    let too_small = |nodes: u32| {
        format!(
            "0/{nodes} nodes are available: {nodes} Insufficient cpu. no new claims to deallocate, preemption: \
             0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
        )
    };
    for name in names {
        why(client, name, &too_small(1)).await;
    }
    node(client, "b", "2").await;
    for name in names {
        why(client, name, &too_small(2)).await;
    }
    let told = eventually("each is told of by an event", || async {
        let events = api::<Event>(client).list(&ListParams::default()).await.expect("a list");
        let told: BTreeSet<String> =
            events.into_iter().filter_map(|event| event.involved_object.name).collect();
        (told.len() == names.len()).then_some(told)
    })
    .await;
    assert_eq!(told, names.map(str::to_owned).into());

    node(client, "c", "3").await;
    let victim = eventually("one of them has a place", || async {
        let pods = api::<Pod>(client).list(&ListParams::default()).await.expect("a list");
        pods.into_iter().find(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
    })
    .await;
    let victim = victim.metadata.name.expect("a name");
    let image = Patch::Strategic(json!({"spec": {"containers": [{"name": "main", "image": "y"}]}}));
    api::<Pod>(client).patch(&victim, &PatchParams::default(), &image).await.expect("another image");
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let class =
        serde_json::from_value(json!({"metadata": {"name": "high"}, "value": 1000})).expect("a class");
    classes.create(&PostParams::default(), &class).await.expect("created");
    create::<Pod>(client, pod("vip", "3", &json!({"priorityClassName": "high"}))).await;
    let condition = eventually("it has to go", || async {
        let status = api::<Pod>(client).get(&victim).await.expect("it has time to end").status?;
        status.conditions?.into_iter().find(|condition| condition.type_ == "DisruptionTarget")
    })
    .await;
    assert_eq!(condition.observed_generation, Some(2));
}

/// A node that was promised to a pod is promised no more when nobody's end would help it.
#[tokio::test]
async fn a_promise_that_cannot_be_kept_is_taken_back() {
    let cluster = embedded("scheduler").await;
    let client = &cluster.client;
    create::<Pod>(client, pod("huge", "100", &json!({}))).await;
    let promised = Patch::Merge(json!({"status": {"nominatedNodeName": "a"}}));
    api::<Pod>(client).patch_status("huge", &PatchParams::default(), &promised).await.expect("promised");
    node(client, "a", "4").await;
    eventually("it is promised nothing", || async {
        let status = api::<Pod>(client).get("huge").await.expect("a pod").status?;
        status.nominated_node_name.is_none().then_some(())
    })
    .await;
    why(
        client,
        "huge",
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 Preemption is not helpful for scheduling.",
    )
    .await;
}
