//! LeaderWorkerSets, of which each replica has a Workload. Their controller is not here, and so there are no pods.

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams};
use rules::framework::apps::leader_worker_set::name;
use serde_json::{Value, json};
use testkit::go::Tools;

use super::World;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];

/// Has a cluster know the kind, by its own definition. Says whether it does: without a Go toolchain it is not to be had.
pub(crate) async fn define(client: &Client) -> anyhow::Result<bool> {
    let Some(tools) = Tools::for_test("kubernetes/kinds") else { return Ok(false) };
    let folder = tools.module("sigs.k8s.io/lws").join("config/crd/bases");
    let text = std::fs::read_to_string(folder.join("leaderworkerset.x-k8s.io_leaderworkersets.yaml"))?;
    let definition: CustomResourceDefinition =
        serde_json::from_value(serde_saphyr::from_str::<Value>(&text)?)?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    match api.create(&PostParams::default(), &definition).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made?),
    }
    let name = "leaderworkersets.leaderworkerset.x-k8s.io";
    let established = kube::runtime::conditions::is_crd_established();
    kube::runtime::wait::await_condition(api, name, established).await?;
    Ok(true)
}

fn set(replicas: i32) -> Value {
    let template = |cpu: &str| {
        json!({
            "metadata": {
                "labels": { "app": "llm", "kueue.x-k8s.io/queue-name": "a" },
                "annotations": {
                    "kueue.x-k8s.io/pod-suspending-parent": "leaderworkerset.x-k8s.io/leaderworkerset",
                    "kueue.x-k8s.io/pod-group-serving": "true",
                },
            },
            "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } }] },
        })
    };
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "name": "llm", "labels": { "kueue.x-k8s.io/queue-name": "a" } },
        "spec": { "replicas": replicas, "leaderWorkerTemplate": {
            "size": 3, "leaderTemplate": template("2"), "workerTemplate": template("1"),
        } },
    })
}

/// MK-LWS-01: replicas get quota one by one, as far as there is some, and give it back when they go.
pub(super) async fn mk_lws_01_a_leader_worker_set(world: &World) -> anyhow::Result<()> {
    if !define(&world.client).await? {
        return Ok(());
    }
    world.queue("a", "8", json!({})).await?;
    let made = world.create(set(2)).await?;
    let of = |index: usize| name(&made.metadata, &index.to_string());
    for index in 0..2 {
        let admitted = world.shows(&of(index), &ADMITTED).await?;
        let sets: Vec<_> = admitted.spec.pod_sets.iter().map(|it| (it.name().to_owned(), it.count)).collect();
        assert_eq!(sets, [("leader".to_owned(), 1), ("worker".to_owned(), 2)]);
        let annotations = admitted.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(annotations["kueue.x-k8s.io/component-workload-index"], index.to_string());
        assert_eq!(
            annotations["kueue.x-k8s.io/job-owner-gvk"],
            "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet"
        );
        assert_eq!(annotations["kueue.x-k8s.io/job-owner-name"], "llm");
        assert_eq!(annotations["kueue.x-k8s.io/is-group-workload"], "true");
        let labels = admitted.metadata.labels.clone().unwrap_or_default();
        assert_eq!(labels.get("kueue.x-k8s.io/job-uid"), made.metadata.uid.as_ref());
        let owner = admitted.metadata.owner_references.iter().flatten().next().context("an owner")?;
        assert_eq!((owner.kind.as_str(), owner.controller), ("LeaderWorkerSet", None));
        let request = admitted.spec.pod_sets[1].topology_request.as_ref();
        let label = request.and_then(|it| it.pod_index_label.as_deref());
        assert_eq!(label, Some("leaderworkerset.sigs.k8s.io/worker-index"));
    }
    world.patch("LeaderWorkerSet", "llm", json!({ "spec": { "replicas": 3 } })).await?;
    world.shows(&of(2), &["QuotaReserved=False/Pending"]).await?;
    world.patch("LeaderWorkerSet", "llm", json!({ "spec": { "replicas": 1 } })).await?;
    for index in 1..3 {
        world.gone("Workload", &of(index)).await?;
    }
    world.patch("LeaderWorkerSet", "llm", json!({ "spec": { "replicas": 2 } })).await?;
    world.shows(&of(1), &ADMITTED).await?;
    Ok(())
}
