//! LeaderWorkerSets that run on a worker. Their controller is played by the test, and so are the webhooks.

use std::fs;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams},
};
use rules::framework::pod::is_gated;
use serde_json::{Value, json};
use testkit::go::Tools;
use types::kueue::Workload;

use super::fleet::{Fleet, NAMESPACE, Site, eventually};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
const FRAMEWORK: &str = "leaderworkerset.x-k8s.io/leaderworkerset";

/// Has every cluster know the kind, by its own definition.
async fn define(fleet: &Fleet) -> anyhow::Result<bool> {
    let Some(tools) = Tools::for_test("kubernetes/kinds") else { return Ok(false) };
    let folder = tools.module("sigs.k8s.io/lws").join("config/crd/bases");
    let text = fs::read_to_string(folder.join("leaderworkerset.x-k8s.io_leaderworkersets.yaml"))?;
    let definition: Value = serde_saphyr::from_str(&text)?;
    for site in fleet.workers.values().chain([&fleet.manager]) {
        site.create(definition.clone()).await?;
    }
    Ok(true)
}

fn pods(site: &Site) -> Api<Pod> {
    Api::namespaced(site.client.clone(), NAMESPACE)
}

fn annotations() -> Value {
    json!({ PARENT: FRAMEWORK, "kueue.x-k8s.io/pod-group-serving": "true", "seconds": "forever" })
}

fn spec() -> Value {
    let requests = json!({ "requests": { "cpu": "100m" } });
    json!({ "containers": [{ "name": "c", "image": "i", "resources": requests }] })
}

/// Groups of a leader and a worker, as the webhooks leave them.
fn set(replicas: i32) -> Value {
    let template =
        json!({ "metadata": { "labels": { QUEUE: "team" }, "annotations": annotations() }, "spec": spec() });
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "name": "llm", "namespace": NAMESPACE, "labels": { QUEUE: "team" } },
        "spec": { "replicas": replicas, "leaderWorkerTemplate": {
            "size": 2, "leaderTemplate": template, "workerTemplate": template,
        } },
    })
}

/// The pods of one replica, as its controller makes them.
async fn group(site: &Site, index: i32) -> anyhow::Result<()> {
    for is_leader in [true, false] {
        let name = if is_leader { format!("llm-{index}") } else { format!("llm-{index}-1") };
        let mut marks = annotations();
        if !is_leader {
            marks["leaderworkerset.sigs.k8s.io/leader-name"] = json!(format!("llm-{index}"));
        }
        let labels = json!({
            QUEUE: "team", "kueue.x-k8s.io/managed": "true", "leaderworkerset.sigs.k8s.io/name": "llm",
            "leaderworkerset.sigs.k8s.io/group-index": index.to_string(),
        });
        let mut spec = spec();
        spec["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
        let metadata =
            json!({ "name": name, "namespace": NAMESPACE, "labels": labels, "annotations": marks });
        site.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })).await?;
    }
    Ok(())
}

/// The Workloads of the set, by the numbers of their replicas.
async fn parts(site: &Site) -> anyhow::Result<Vec<Workload>> {
    let mut all = site.workloads().await?;
    all.retain(|it| it.metadata.name.as_deref().is_some_and(|name| name.starts_with("leaderworkerset-llm-")));
    all.sort_by_key(|it| it.metadata.name.clone());
    Ok(all)
}

fn cluster(workload: &Workload) -> Option<String> {
    workload.status.as_ref()?.cluster_name.clone()
}

async fn mirror(worker: &Site) -> anyhow::Result<Option<DynamicObject>> {
    Ok(worker.api(&set(1))?.get_opt("llm").await?)
}

/// Waits until all replicas, and no others, are on one worker.
async fn on(fleet: &Fleet, replicas: usize) -> anyhow::Result<(String, &Site)> {
    let name = eventually(&format!("{replicas} are on one worker"), async || {
        let all = parts(&fleet.manager).await?;
        let on: Vec<String> = all.iter().filter_map(cluster).collect();
        let Some(first) = on.first().filter(|_| all.len() == replicas && on.len() == replicas) else {
            return Ok(None);
        };
        anyhow::ensure!(on.iter().all(|other| other == first), "they are apart: {on:?}");
        let there = parts(&fleet.workers[first.as_str()]).await?;
        let mirrored = mirror(&fleet.workers[first.as_str()]).await?;
        let count = mirrored.and_then(|it| it.data["spec"]["replicas"].as_u64());
        let is_all = there.len() == replicas && count == u64::try_from(replicas).ok();
        Ok(is_all.then(|| first.clone()))
    })
    .await?;
    let worker = &fleet.workers[name.as_str()];
    Ok((name, worker))
}

async fn runs(worker: &Site, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        eventually(&format!("{name} runs"), async || {
            let pod = pods(worker).get_opt(name).await?;
            let phase = pod.and_then(|pod| pod.status?.phase);
            Ok((phase.as_deref() == Some("Running")).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// MK-LWS-01…07.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mk_lws_01_a_leader_worker_set_runs_on_one_worker() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    if !define(&fleet).await? {
        return Ok(());
    }
    eventually("the kind is served", async || Ok(Some(fleet.manager.create(set(2)).await?))).await?;
    let (name, worker) = on(&fleet, 2).await?;
    let there = mirror(worker).await?.context("a mirror")?;
    let uid = fleet.manager.api(&set(1))?.get("llm").await?.metadata.uid;
    let marks = there.metadata.annotations.unwrap_or_default();
    assert_eq!(marks.get("kueue.x-k8s.io/multikueue-origin-uid"), uid.as_ref());
    assert!(!marks.contains_key("kueue.x-k8s.io/prebuilt-workload-name"));
    for index in 0..2 {
        group(worker, index).await?;
        group(&fleet.manager, index).await?;
    }
    runs(worker, &["llm-0", "llm-0-1", "llm-1", "llm-1-1"]).await?;
    let of_set = ListParams::default().labels("leaderworkerset.sigs.k8s.io/name=llm");
    let here = pods(&fleet.manager).list(&of_set).await?.items;
    assert!(here.len() == 4 && here.iter().all(is_gated), "they wait on the manager");

    fleet.manager.patch(set(1), json!({ "spec": { "replicas": 3 } })).await?;
    assert_eq!(on(&fleet, 3).await?.0, name, "where one is, the others follow");
    group(worker, 2).await?;
    runs(worker, &["llm-2", "llm-2-1"]).await?;

    fleet.manager.patch(set(1), json!({ "spec": { "replicas": 1 } })).await?;
    assert_eq!(on(&fleet, 1).await?.0, name);
    eventually("the others stopped", async || {
        let left = pods(worker).list(&of_set).await?.items;
        Ok((left.len() == 2).then_some(()))
    })
    .await?;
    runs(worker, &["llm-0", "llm-0-1"]).await?;

    fleet.manager.api(&set(1))?.delete("llm", &DeleteParams::background()).await?;
    pods(&fleet.manager).delete_collection(&DeleteParams::default(), &of_set).await?;
    eventually("nothing is left", async || {
        let is_gone = mirror(worker).await?.is_none() && parts(worker).await?.is_empty();
        Ok((is_gone && parts(&fleet.manager).await?.is_empty()).then_some(()))
    })
    .await
}
