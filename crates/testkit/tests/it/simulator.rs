//! Simulated pods on a real API server, and real controllers that take them for pods.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::api::{
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Node, Pod, PodStatus},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;
use testkit::{Behaviour, ControlPlane, simulator::NODE};
use tokio::time::{Instant, timeout};

use crate::{CLUSTER, pod};

const SOON: Duration = Duration::from_secs(30);

async fn until<K>(api: &Api<K>, name: &str, is_so: impl Fn(&K) -> bool) -> anyhow::Result<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let waiting = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&is_so));
    let object = timeout(SOON, waiting)
        .await
        .with_context(|| format!("{name} is not as it should be after {SOON:?}"))?;
    object?.with_context(|| format!("{name} is gone"))
}

fn status(pod: &Pod) -> PodStatus {
    pod.status.clone().unwrap_or_default()
}

fn is(pod: &Pod, kind: &str) -> bool {
    status(pod)
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

fn exit_codes(pod: &Pod) -> Vec<(String, i32)> {
    let statuses = status(pod).container_statuses.unwrap_or_default();
    let exits = statuses.into_iter().map(|one| (one.name, one.state.and_then(|state| state.terminated)));
    exits.filter_map(|(name, exit)| Some((name, exit?.exit_code))).collect()
}

#[tokio::test]
async fn a_pod_runs_on_a_living_node_and_ends_when_told() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let namespace = cluster.namespace("simulator").await?;
    let simulator = cluster.simulator().namespace(&namespace).start().await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    pods.create(&PostParams::default(), &pod("pod")).await?;

    let running = until(&pods, "pod", |pod| is(pod, "Ready")).await?;
    for condition in ["PodScheduled", "Initialized", "ContainersReady"] {
        assert!(is(&running, condition), "{condition}");
    }
    assert!(status(&running).pod_ip.is_some() && status(&running).start_time.is_some());
    assert_eq!(running.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some(NODE));
    let node = Api::<Node>::all(cluster.client()).get(NODE).await?;
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    assert!(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True") && taints.is_empty());
    let lease = Api::<Lease>::namespaced(cluster.client(), "kube-node-lease").get(NODE).await?;
    assert!(lease.spec.is_some_and(|spec| spec.renew_time.is_some()));

    simulator.set(&namespace, "pod", Behaviour::exits(0)).await?;
    let ended = pods.get("pod").await?;
    assert_eq!(status(&ended).phase.as_deref(), Some("Succeeded"));
    assert_eq!(exit_codes(&ended), [("main".to_owned(), 0)]);
    assert!(!is(&ended, "Ready"));
    assert!(simulator.set(&namespace, "pod", Behaviour::exits(1)).await.is_err(), "it has ended already");
    Ok(())
}

#[tokio::test]
async fn a_gated_pod_does_as_told_when_its_gate_is_lifted() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let namespace = cluster.namespace("simulator").await?;
    let simulator = cluster.simulator().namespace(&namespace).start().await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let mut gated = serde_json::to_value(pod("pod"))?;
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/gate" }]);
    pods.create(&PostParams::default(), &serde_json::from_value(gated)?).await?;
    let mut ending = Box::pin(simulator.set(&namespace, "pod", Behaviour::exits(0)));
    assert!(timeout(Duration::from_millis(300), &mut ending).await.is_err(), "it waits for the gate");
    let lift = json!({ "spec": { "schedulingGates": null } });
    pods.patch("pod", &PatchParams::default(), &Patch::Merge(lift)).await?;
    timeout(SOON, ending).await??;
    assert_eq!(status(&pods.get("pod").await?).phase.as_deref(), Some("Succeeded"));
    Ok(())
}

#[tokio::test]
async fn pods_do_as_decided() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let namespace = cluster.namespace("simulator").await?;
    let decide = |pod: &Pod| match pod.metadata.name.as_deref() {
        Some("fails") => Behaviour::exits(7),
        Some("disrupted") => Behaviour::disrupted("PreemptionByScheduler"),
        Some("unready") => Behaviour::never_ready(),
        Some("unschedulable") => Behaviour::unschedulable(),
        _ => Behaviour::exits(0),
    };
    let _simulator = cluster.simulator().namespace(&namespace).decide(decide).start().await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    for name in ["fails", "disrupted", "unready", "unschedulable", "succeeds"] {
        pods.create(&PostParams::default(), &pod(name)).await?;
    }
    let in_phase = |phase: &'static str| move |pod: &Pod| status(pod).phase.as_deref() == Some(phase);
    assert_eq!(exit_codes(&until(&pods, "fails", in_phase("Failed")).await?), [("main".to_owned(), 7)]);
    assert!(is(&until(&pods, "disrupted", in_phase("Failed")).await?, "DisruptionTarget"));
    assert!(!is(&until(&pods, "unready", in_phase("Running")).await?, "Ready"));
    until(&pods, "succeeds", in_phase("Succeeded")).await?;
    let says_why = |pod: &Pod| {
        let conditions = status(pod).conditions.unwrap_or_default();
        conditions
            .iter()
            .any(|one| one.type_ == "PodScheduled" && one.reason.as_deref() == Some("Unschedulable"))
    };
    until(&pods, "unschedulable", says_why).await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_pod_ends_before_it_goes() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let namespace = cluster.namespace("simulator").await?;
    let decide = |_: &Pod| Behaviour::runs().on_delete(0, Duration::from_millis(300));
    let _simulator = cluster.simulator().namespace(&namespace).decide(decide).start().await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    let mut held = pod("pod");
    held.metadata.finalizers = Some(vec!["example.com/held".to_owned()]);
    pods.create(&PostParams::default(), &held).await?;
    until(&pods, "pod", |pod| is(pod, "Ready")).await?;

    let deleted = Instant::now();
    pods.delete("pod", &DeleteParams::default()).await?;
    let ended = until(&pods, "pod", |pod| status(pod).phase.as_deref() == Some("Succeeded")).await?;
    assert!(deleted.elapsed() >= Duration::from_millis(300), "it was given its time");
    assert_eq!(exit_codes(&ended), [("main".to_owned(), 0)]);
    until(&pods, "pod", |pod| pod.metadata.deletion_grace_period_seconds == Some(0)).await?;
    let release = json!({ "metadata": { "finalizers": null } });
    pods.patch("pod", &PatchParams::default(), &Patch::Merge(release)).await?;
    assert!(pods.get_opt("pod").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn the_real_job_controller_completes_a_job_with_simulated_pods() -> anyhow::Result<()> {
    let builder = ControlPlane::builder().controller_manager(["job-controller"]);
    let Some(cluster) = builder.for_test().await else { return Ok(()) };
    let namespace = cluster.namespace("jobs").await?;
    let failures = Arc::new(AtomicUsize::new(1));
    let decide = move |_: &Pod| {
        let fails =
            failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        Behaviour::exits(i32::from(fails))
    };
    let _simulator = cluster.simulator().decide(decide).start().await?;
    let jobs: Api<Job> = Api::namespaced(cluster.client(), &namespace);
    let job = json!({
        "metadata": { "name": "job" },
        "spec": {
            "completions": 5, "parallelism": 5, "backoffLimit": 3,
            "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "any" }] } },
        },
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    let complete = |job: &Job| {
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
    };
    let status = until(&jobs, "job", complete).await?.status.unwrap_or_default();
    assert_eq!((status.succeeded, status.failed), (Some(5), Some(1)));
    Ok(())
}

#[tokio::test]
async fn pods_go_on_after_the_control_plane_was_away() -> anyhow::Result<()> {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let simulator = cluster.simulator().start().await?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    pods.create(&PostParams::default(), &pod("before")).await?;
    until(&pods, "before", |pod| is(pod, "Ready")).await?;
    cluster.kill();
    cluster.restart().await?;
    pods.create(&PostParams::default(), &pod("after")).await?;
    for name in ["before", "after"] {
        timeout(SOON, simulator.set("default", name, Behaviour::exits(0))).await??;
        assert_eq!(status(&pods.get(name).await?).phase.as_deref(), Some("Succeeded"), "{name}");
    }
    Ok(())
}
