//! Pods that are queued themselves, alone and in groups, and StatefulSets, whose pods are a group. Webhooks are played by the
//! test: pods are created as they leave them.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use rules::{
    framework::{
        apps::STATEFUL_SET,
        name::workload_name,
        pod::{GROUP_NAME, POD, is_gated, is_held},
    },
    workload::state,
};
use serde_json::{Value, json};

use super::{World, gate_is_measured};
use crate::world::message;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

fn api(world: &World) -> Api<Pod> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

/// A queue, and what pods need to be created in its namespace.
async fn queue(world: &World, cpu: &str) -> anyhow::Result<String> {
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    if let Err(error) = world.create(account).await {
        anyhow::ensure!(format!("{error:#}").contains("AlreadyExists"), error);
    }
    world.queue("a", cpu, json!({})).await
}

/// Submits a pod as the webhooks leave it. Returns the name that its Workload has if it is alone.
async fn submit(world: &World, name: &str, queue: &str, cpu: &str, more: Value) -> anyhow::Result<String> {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "finalizers": ["kueue.x-k8s.io/managed"],
            "labels": { "kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/managed": "true" },
        },
        "spec": {
            "restartPolicy": "Never",
            "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }, { "name": "kueue.x-k8s.io/topology" }],
            "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } }],
        },
    });
    json_patch::merge(&mut pod, &more);
    let uid = world.create(pod).await?.metadata.uid.context("a uid")?;
    Ok(workload_name(POD, name, &uid, None))
}

fn member(group: &str, of: usize, role: &str) -> Value {
    json!({ "metadata": {
        "labels": { GROUP_NAME: group },
        "annotations": {
            "kueue.x-k8s.io/pod-group-total-count": of.to_string(), "kueue.x-k8s.io/role-hash": role,
        },
    } })
}

/// Waits until a pod may be scheduled, and says that it runs.
async fn runs(world: &World, name: &str) -> anyhow::Result<Pod> {
    let opened = world.until(api(world), name, "opened", |pod| !is_gated(pod)).await?;
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    world.patch_status("Pod", name, json!({ "phase": "Running", "conditions": ready })).await?;
    Ok(opened)
}

async fn ends(world: &World, name: &str, phase: &str) -> anyhow::Result<()> {
    world.patch_status("Pod", name, json!({ "phase": phase, "conditions": [] })).await
}

async fn let_go(world: &World, name: &str) -> anyhow::Result<Pod> {
    world.until(api(world), name, "let go", |pod| !is_held(pod)).await
}

/// JF-70: a pod waits behind a gate, is let through with what its flavors say, and ends with its Workload.
pub(super) async fn jf_70_a_pod(world: &World) -> anyhow::Result<()> {
    let queue = queue(world, "3").await?;
    let workload = submit(world, "alone", "a", "1", json!({})).await?;
    let admitted = world.shows(&workload, &ADMITTED).await?;
    let [pod_set] = &admitted.spec.pod_sets[..] else { anyhow::bail!("one pod set") };
    assert_eq!((pod_set.name(), pod_set.count), ("main", 1));
    let owner = admitted.metadata.owner_references.iter().flatten().next().context("an owner")?;
    assert_eq!((owner.kind.as_str(), owner.controller), ("Pod", Some(true)));
    let opened = runs(world, "alone").await?;
    let spec = opened.spec.unwrap_or_default();
    assert_eq!(spec.scheduling_gates.unwrap_or_default(), []);
    assert_eq!(spec.node_selector.unwrap_or_default()["pool"], "default");
    let labels = opened.metadata.labels.unwrap_or_default();
    assert_eq!(labels["kueue.x-k8s.io/podset"], "main");
    assert_eq!(labels["kueue.x-k8s.io/cluster-queue-name"], queue);
    world.told("Pod", "alone", &["CreatedWorkload", "Started"]).await?;
    gate_is_measured(world, "admission", &queue, false);
    ends(world, "alone", "Succeeded").await?;
    let_go(world, "alone").await?;
    let finished = world
        .workload(&workload, "let go", |it| it.metadata.finalizers.as_ref().is_none_or(Vec::is_empty))
        .await?;
    assert_eq!(state::find(&finished, "Finished").map(|it| it.reason.as_str()), Some("Succeeded"));
    world.told("Pod", "alone", &["FinishedWorkload"]).await?;
    Ok(())
}

/// JF-56, JF-70: a pod that has to stop is told why and deleted, and does not come again.
pub(super) async fn jf_56_a_pod_has_to_go(world: &World) -> anyhow::Result<()> {
    let queue = queue(world, "1").await?;
    let workload = submit(world, "first", "a", "1", json!({})).await?;
    runs(world, "first").await?;
    let second = submit(world, "second", "a", "1", json!({})).await?;
    world.shows(&second, &["QuotaReserved=False/Pending"]).await?;
    let leaving =
        world.versions(api(world), "first", "on its way", |pod| pod.metadata.deletion_timestamp.is_some());
    let stop = world.patch("Workload", &workload, json!({ "spec": { "active": false } }));
    let (leaving, stopped) = tokio::join!(leaving, stop);
    stopped?;
    let leaving = leaving?.pop().context("a version")?;
    let conditions = leaving.status.and_then(|it| it.conditions).unwrap_or_default();
    let told = conditions.iter().find(|it| it.type_ == "TerminationTarget").context("it is told why")?;
    assert_eq!(
        (told.status.as_str(), told.reason.as_deref()),
        ("True", Some("WorkloadEvictedDueToDeactivated"))
    );
    assert_eq!(told.message.as_deref(), Some("The workload is deactivated"));
    world.gone("Pod", "first").await?;
    world.shows(&second, &ADMITTED).await?;
    world
        .workload(&workload, "over", |it| {
            state::find(it, "Finished").is_some_and(|it| it.reason == "OwnerNotFound")
        })
        .await?;
    world
        .sees_queue(&queue, "used by one", |it| {
            it.status.as_ref().is_some_and(|it| it.admitted_workloads == 1)
        })
        .await?;
    Ok(())
}

/// JF-70: a group waits until all its pods are there, has one Workload with a pod set for each role, and ends when all have
/// done what they are for. Pods that fail are replaced, and pods that are too many go.
pub(super) async fn jf_70_a_group(world: &World) -> anyhow::Result<()> {
    let queue = queue(world, "5").await?;
    submit(world, "leader", "a", "2", member("crew", 2, "leads")).await?;
    world.told("Pod", "leader", &["ErrWorkloadCompose"]).await?;
    assert!(world.no_workload("crew").await?);
    submit(world, "worker", "a", "1", member("crew", 2, "works")).await?;
    let admitted = world.shows("crew", &ADMITTED).await?;
    let sets: Vec<(&str, i32)> = admitted.spec.pod_sets.iter().map(|it| (it.name(), it.count)).collect();
    assert_eq!(sets, [("leads", 1), ("works", 1)]);
    let owners = admitted.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(owners.len(), 2);
    assert!(owners.iter().all(|owner| owner.kind == "Pod" && owner.controller.is_none()));
    for name in ["leader", "worker"] {
        runs(world, name).await?;
    }
    world.told("Pod", "worker", &["Started"]).await?;
    gate_is_measured(world, "admission", &queue, true);
    submit(world, "surplus", "a", "1", member("crew", 2, "works")).await?;
    world.gone("Pod", "surplus").await?;
    ends(world, "leader", "Succeeded").await?;
    world
        .workload("crew", "smaller", |it| {
            let pods = it.status.as_ref().map(|it| it.reclaimable_pods.clone()).unwrap_or_default();
            pods.len() == 1 && pods[0].name == "leads" && pods[0].count == 1
        })
        .await?;
    ends(world, "worker", "Failed").await?;
    let waits = |is: &'static str| {
        move |it: &types::kueue::Workload| {
            state::find(it, "WaitingForReplacementPods").is_some_and(|it| it.status == is)
        }
    };
    let waiting = world.workload("crew", "short of a pod", waits("True")).await?;
    assert_eq!(message(&waiting, "WaitingForReplacementPods"), "Some Failed pods need replacement");
    submit(world, "worker-again", "a", "1", member("crew", 2, "works")).await?;
    let complete = world.workload("crew", "complete", waits("False")).await?;
    assert_eq!(message(&complete, "WaitingForReplacementPods"), "No pods need replacement");
    let_go(world, "worker").await?;
    runs(world, "worker-again").await?;
    ends(world, "worker-again", "Succeeded").await?;
    for name in ["leader", "worker-again"] {
        let_go(world, name).await?;
    }
    let finished = world.workload("crew", "finished", state::is_finished).await?;
    assert_eq!(message(&finished, "Finished"), "Pods succeeded: 2/2.");
    Ok(())
}

/// JF-70: a group whose pods are not replaced is over when none of them runs.
pub(super) async fn jf_70_nobody_is_replaced(world: &World) -> anyhow::Result<()> {
    queue(world, "5").await?;
    let once = |role: &str| {
        let mut pod = member("crew", 2, role);
        pod["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = json!("false");
        pod
    };
    for name in ["one", "two"] {
        submit(world, name, "a", "1", once("role")).await?;
    }
    for name in ["one", "two"] {
        runs(world, name).await?;
    }
    ends(world, "one", "Succeeded").await?;
    ends(world, "two", "Failed").await?;
    let finished = world.workload("crew", "finished", state::is_finished).await?;
    assert_eq!(message(&finished, "Finished"), "Pods succeeded: 1/2.");
    let_go(world, "two").await?;
    Ok(())
}

/// JF-70: a Workload that is deleted takes its group with it.
pub(super) async fn jf_70_a_group_goes_with_its_workload(world: &World) -> anyhow::Result<()> {
    queue(world, "5").await?;
    for name in ["one", "two"] {
        submit(world, name, "a", "1", member("crew", 2, "role")).await?;
    }
    runs(world, "one").await?;
    runs(world, "two").await?;
    world.delete("Workload", "crew").await?;
    for name in ["one", "two"] {
        world.gone("Pod", name).await?;
    }
    world.gone("Workload", "crew").await
}

fn pod_of(set: &kube::core::DynamicObject, index: usize) -> Value {
    let name = set.metadata.name.clone().unwrap_or_default();
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": set.metadata.uid, "controller": true,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{name}-{index}"), "ownerReferences": [owner],
            "labels": { "app": name, "kueue.x-k8s.io/managed": "true" },
            "annotations": { "kueue.x-k8s.io/pod-suspending-parent": "statefulset" },
        },
        "spec": {
            "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }, { "name": "kueue.x-k8s.io/topology" }],
            "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }],
        },
    })
}

/// MK-STS-01, MK-STS-02: a StatefulSet has one Workload for all its pods, which wait for it together; without replicas it
/// holds no quota.
pub(super) async fn mk_sts_01_a_stateful_set(world: &World) -> anyhow::Result<()> {
    queue(world, "3").await?;
    let template = json!({
        "metadata": {
            "labels": { "app": "web" }, "annotations": { "kueue.x-k8s.io/pod-suspending-parent": "statefulset" },
        },
        "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }] },
    });
    let set = world
        .create(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": { "name": "web", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
            "spec": {
                "replicas": 2, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } }, "template": template,
            },
        }))
        .await?;
    let workload = workload_name(STATEFUL_SET, "web", set.metadata.uid.as_deref().unwrap_or_default(), None);
    let admitted = world.shows(&workload, &ADMITTED).await?;
    let [pod_set] = &admitted.spec.pod_sets[..] else { anyhow::bail!("one pod set") };
    assert_eq!((pod_set.name(), pod_set.count), ("main", 2));
    let annotations = admitted.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations["kueue.x-k8s.io/job-owner-gvk"], "apps/v1, Kind=StatefulSet");
    assert_eq!(annotations["kueue.x-k8s.io/is-group-workload"], "true");
    // The first is enough for the second to be made.
    for index in 0..2 {
        world.create(pod_of(&set, index)).await?;
        let opened = runs(world, &format!("web-{index}")).await?;
        let annotations = opened.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations["kueue.x-k8s.io/pod-group-name"], workload);
        assert_eq!(annotations["kueue.x-k8s.io/pod-group-total-count"], "2");
    }
    world.patch("StatefulSet", "web", json!({ "spec": { "replicas": 0 } })).await?;
    let held = world
        .workload(&workload, "on hold", |it| {
            state::find(it, "QuotaReserved").is_some_and(|it| it.status == "False" && it.reason == "OnHold")
        })
        .await?;
    assert_eq!(message(&held, "QuotaReserved"), "StatefulSet scaled to zero; workload on hold");
    for index in 0..2 {
        let name = format!("web-{index}");
        // Their controller deletes them, unless somebody else did, be it at this moment.
        match api(world).delete(&name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            done => drop(done?),
        }
        world.gone("Pod", &name).await?;
    }
    world.patch("StatefulSet", "web", json!({ "spec": { "replicas": 2 } })).await?;
    world.workload(&workload, "admitted again", state::is_admitted).await?;
    world.create(pod_of(&set, 0)).await?;
    runs(world, "web-0").await?;
    Ok(())
}
