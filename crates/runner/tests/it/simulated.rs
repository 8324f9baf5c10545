//! Simulated pods.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{Patch, PatchParams, WatchEvent, WatchParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

use crate::bed::{Bed, conditions, container, phase};

fn pod(name: &str, node: &str, policy: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(key, value)| (format!("sim.ferry.dev/{key}"), *value)).collect();
    json!({
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "nodeName": node, "restartPolicy": policy,
            "containers": [{ "name": "main", "image": "example.com/main" }],
        },
    })
}

#[tokio::test]
async fn nodes_are_registered_ready_with_capacity_and_a_lease() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one", "two"]).await;
    for name in ["one", "two"].map(|name| bed.node(name)) {
        let node = Api::<Node>::all(bed.client.clone()).get(&name).await.expect("a node");
        let status = node.status.expect("a status");
        let ready = status.conditions.iter().flatten().find(|one| one.type_ == "Ready").expect("a condition");
        assert_eq!(ready.status, "True");
        assert_eq!(status.allocatable, status.capacity);
        assert_eq!(status.capacity.expect("a capacity")["pods"].0, "100k");
        let info = status.node_info.expect("what it is");
        assert!(info.container_runtime_version.starts_with("simulated://"), "{info:?}");
        assert_eq!(node.metadata.labels.expect("labels")["kubernetes.io/hostname"], name);
        assert_eq!(node.spec.and_then(|spec| spec.taints), None);
        let leases: Api<Lease> = Api::namespaced(bed.client.clone(), "kube-node-lease");
        let lease = leases.get(&name).await.expect("a lease").spec.expect("a spec");
        let age = Timestamp::now().duration_since(lease.renew_time.expect("a time").0);
        assert!(age.as_secs() < 10 && lease.holder_identity == Some(name), "{age:?}");
    }
}

/// Whoever took the node for lost is told within one renewal of its lease that it is not.
#[tokio::test]
async fn a_node_that_was_taken_for_lost_says_that_it_lives() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    let nodes: Api<Node> = Api::all(bed.client.clone());
    let name = bed.node("one");
    let lost = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status." });
    let lost = Patch::Strategic(json!({ "status": { "conditions": [lost] } }));
    nodes.patch_status(&name, &PatchParams::default(), &lost).await.expect("a status");
    let is_ready = |node: Option<&Node>| {
        let conditions =
            node.and_then(|node| node.status.as_ref()).and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
    };
    let limit = std::time::Duration::from_secs(60);
    let back = tokio::time::timeout(limit, await_condition(nodes, &name, is_ready)).await;
    back.expect("in time").expect("a watch");
}

#[tokio::test]
async fn a_pod_that_ends_at_once_costs_one_write() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one", "two"]).await;
    let made = bed.create(pod("short", &bed.node("two"), "Never", &[])).await;
    let done = bed.until_phase("short", "Succeeded").await;
    assert_eq!(
        conditions(&done),
        [
            "ContainersReady=False PodCompleted",
            "Initialized=True PodCompleted",
            "PodReadyToStartContainers=False ",
            "PodScheduled=True ",
            "Ready=False PodCompleted",
        ]
    );
    let main = container(&done, "main");
    assert_eq!(main["state"]["terminated"]["exitCode"], 0);
    assert_eq!(main["state"]["terminated"]["reason"], "Completed");
    assert!(done.status.as_ref().and_then(|status| status.start_time.as_ref()).is_some());
    let version = made.metadata.resource_version.expect("a version");
    let pods: Api<Pod> = bed.pods();
    let events = pods.watch(&WatchParams::default(), &version).await.expect("a watch").boxed();
    let events: Vec<WatchEvent<Pod>> = events.take(1).try_collect().await.expect("events");
    let [WatchEvent::Modified(first)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(
        first.metadata.resource_version, done.metadata.resource_version,
        "there was a write before the last"
    );
}

#[tokio::test]
async fn a_pod_runs_becomes_ready_and_fails_as_its_annotations_say() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    let script = [("duration-ms", "1500"), ("ready-ms", "50"), ("exit-code", "7"), ("start-ms", "20")];
    bed.create(pod("failing", &bed.node("one"), "Never", &script)).await;
    let ready =
        |pod: Option<&Pod>| pod.is_some_and(|pod| conditions(pod).iter().any(|one| one == "Ready=True "));
    let running = bed.until("failing", ready).await.expect("the pod");
    assert_eq!((phase(&running), container(&running, "main")["ready"].as_bool()), ("Running", Some(true)));
    let failed = bed.until_phase("failing", "Failed").await;
    assert_eq!(container(&failed, "main")["state"]["terminated"]["exitCode"], 7);
    assert!(conditions(&failed).contains(&"Ready=False PodFailed".to_owned()));
}

#[tokio::test]
async fn a_deleted_pod_ends_as_its_annotations_say_and_goes() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    let mut held = pod("held", &bed.node("one"), "Always", &[("stop-ms", "100"), ("stop-exit-code", "3")]);
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    bed.create(held).await;
    bed.until_phase("held", "Running").await;
    bed.delete("held").await;
    let failed = bed.until_phase("held", "Failed").await;
    assert_eq!(container(&failed, "main")["state"]["terminated"]["exitCode"], 3);
    bed.create(pod("free", &bed.node("one"), "Always", &[])).await;
    bed.until_phase("free", "Running").await;
    bed.delete("free").await;
    bed.until_gone("free").await;
}

#[tokio::test]
async fn a_disrupted_pod_says_so() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    bed.create(pod("cut", &bed.node("one"), "Never", &[("disruption", "TerminationByKubelet")])).await;
    let failed = bed.until_phase("cut", "Failed").await;
    assert!(conditions(&failed).contains(&"DisruptionTarget=True TerminationByKubelet".to_owned()));
    assert_eq!(container(&failed, "main")["state"]["terminated"]["exitCode"], 137);
}

#[tokio::test]
async fn annotations_that_make_no_sense_fail_the_pod_and_are_named() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    bed.create(pod("nonsense", &bed.node("one"), "Never", &[("duration-ms", "soon")])).await;
    let failed = bed.until_phase("nonsense", "Failed").await.status.expect("a status");
    assert_eq!(failed.reason.as_deref(), Some("InvalidSimulation"));
    assert!(failed.message.is_some_and(|message| message.contains("sim.ferry.dev/duration-ms")));
}

#[tokio::test]
async fn a_failing_container_is_started_again_and_then_waits() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    bed.create(pod("crashing", &bed.node("one"), "OnFailure", &[("exit-code", "1")])).await;
    let waits = |pod: Option<&Pod>| {
        pod.and_then(|pod| {
            pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()?.waiting.clone()
        })
        .is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
    };
    let pod = bed.until("crashing", waits).await.expect("the pod");
    let main = container(&pod, "main");
    assert_eq!((phase(&pod), main["restartCount"].as_i64()), ("Running", Some(1)));
    assert_eq!(main["lastState"]["terminated"]["exitCode"], 1);
    let message = main["state"]["waiting"]["message"].as_str().expect("a message");
    assert!(
        message.starts_with("back-off 10s restarting failed container=main pod=crashing_simulated-"),
        "{message}"
    );
}

#[tokio::test]
async fn the_deadline_of_a_pod_is_kept() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    let mut late = pod("late", &bed.node("one"), "Never", &[("duration-ms", "forever")]);
    late["spec"]["activeDeadlineSeconds"] = json!(1);
    bed.create(late).await;
    let failed = bed.until_phase("late", "Failed").await;
    assert_eq!(failed.status.as_ref().and_then(|status| status.reason.as_deref()), Some("DeadlineExceeded"));
    assert_eq!(container(&failed, "main")["state"]["terminated"]["exitCode"], 143);
}

/// Whoever names a node does not ask whether it fits there.
#[tokio::test]
async fn a_pod_that_does_not_fit_on_the_node_that_it_names_is_refused() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let _tasks = bed.simulated(&["one"]).await;
    let mut elsewhere = pod("elsewhere", &bed.node("one"), "Never", &[("start-ms", "3600000")]);
    elsewhere["spec"]["nodeSelector"] = json!({ "zone": "a" });
    bed.create(elsewhere.clone()).await;
    let status = bed.until_phase("elsewhere", "Failed").await.status.expect("a status");
    assert_eq!(status.reason.as_deref(), Some("NodeAffinity"));
    assert_eq!(
        status.message.as_deref(),
        Some(
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )
    );
    let large = |name: &str, cpu: &str| {
        let mut large = pod(name, &bed.node("one"), "Never", &[("duration-ms", "forever")]);
        large["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
        large
    };
    for (name, cpu, phase) in
        [("first", "600", "Running"), ("second", "401", "Failed"), ("third", "400", "Running")]
    {
        bed.create(large(name, cpu)).await;
        bed.until_phase(name, phase).await;
    }
    let second = bed.pods().get("second").await.expect("the pod").status.expect("a status");
    assert_eq!(second.reason.as_deref(), Some("OutOfcpu"));
    bed.delete("first").await;
    bed.until_gone("first").await;
    bed.create(large("fourth", "600")).await;
    bed.until_phase("fourth", "Running").await;
    // What the node has become since counts at once.
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "zone": "a" } } }));
    let nodes: Api<Node> = Api::all(bed.client.clone());
    nodes.patch(&bed.node("one"), &PatchParams::default(), &labels).await.expect("a label");
    elsewhere["metadata"] = json!({ "name": "here", "annotations": {} });
    bed.create(elsewhere).await;
    bed.until_phase("here", "Succeeded").await;
}

#[tokio::test]
async fn a_node_that_starts_again_goes_on_where_it_was() {
    let Some(bed) = Bed::new("simulated").await else { return };
    let tasks = bed.simulated(&["one"]).await;
    bed.create(pod("service", &bed.node("one"), "Always", &[])).await;
    bed.create(pod("batch", &bed.node("one"), "Never", &[("duration-ms", "forever")])).await;
    for name in ["service", "batch"] {
        bed.until_phase(name, "Running").await;
    }
    drop(tasks);
    let _tasks = bed.simulated(&["one"]).await;
    let batch = bed.until_phase("batch", "Failed").await;
    assert_eq!(container(&batch, "main")["state"]["terminated"]["reason"], "ContainerStatusUnknown");
    let again = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| {
            let main = container(pod, "main");
            main["restartCount"] == 1 && main["state"]["running"].is_object()
        })
    };
    let service = bed.until("service", again).await.expect("it runs again");
    // A new one has no address that one that was here before has.
    bed.create(pod("new", &bed.node("one"), "Never", &[])).await;
    let new = bed.until_phase("new", "Succeeded").await;
    let address = |pod: Pod| pod.status.and_then(|status| status.pod_ip).expect("an address");
    let (service, batch, new) = (address(service), address(batch), address(new));
    assert!(service != batch && new != service && new != batch, "{service} {batch} {new}");
}
