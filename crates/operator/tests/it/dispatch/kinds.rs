//! Jobs of kinds that others define: queued, admitted, sent to a worker, shown as they are there, finished and deleted.
//! Their controllers are not here: the test writes what they would write. The definitions are the real ones, and come
//! after the operators have started.

use std::{fs, path::Path};

use anyhow::Context as _;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use testkit::go::Tools;
use types::kueue::Workload;

use super::fleet::{Fleet, NAMESPACE, Site, eventually};

/// Where each project keeps its definitions, and which of them are of interest here.
const DEFINITIONS: [(&str, &str, &[&str]); 7] = [
    ("github.com/kubeflow/mpi-operator", "manifests/base", &["mpijobs"]),
    ("github.com/kubeflow/trainer/v2", "manifests/base/crds", &["trainjobs", "clustertrainingruntimes"]),
    (
        "github.com/kubeflow/training-operator",
        "manifests/base/crds",
        &["pytorchjobs", "tfjobs", "xgboostjobs", "paddlejobs", "jaxjobs"],
    ),
    ("github.com/project-codeflare/appwrapper", "config/crd/bases", &["appwrappers"]),
    ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases", &["rayjobs", "rayclusters"]),
    ("github.com/tektoncd/pipeline", "config/300-crds", &["pipelineruns"]),
    ("sigs.k8s.io/jobset", "config/components/crd/bases", &["jobsets"]),
];

/// A kind, and what its controller would say.
struct Case {
    kind: &'static str,
    version: &'static str,
    /// The field that says who reconciles an object, as a pointer.
    managed_by: &'static str,
    suspend: &'static str,
    spec: Value,
    /// Its pod sets.
    pods: &'static [(&'static str, i32)],
    /// Where the node selector of the first of them is.
    selector: &'static str,
    running: Value,
    /// How it ends; `None` if it does not.
    done: Option<Value>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_runs_on_a_worker() -> anyhow::Result<()> {
    let Some(tools) = Tools::for_test("crds") else { return Ok(()) };
    let fleet = Box::pin(Fleet::embedded()).await?;
    let sites = fleet.workers.values().chain([&fleet.manager]);
    futures::future::try_join_all(sites.map(|site| define(site, &tools))).await?;
    for case in cases() {
        let began = std::time::Instant::now();
        Box::pin(plays(&fleet, &case)).await.with_context(|| case.kind.to_owned())?;
        println!("{} ok in {:?}", case.kind, began.elapsed());
    }
    let cases = cases();
    let case = cases.iter().find(|case| case.kind == "PyTorchJob").expect("one of them");
    Box::pin(is_taken_back(&fleet, case)).await.context("an eviction")?;
    Box::pin(an_elastic_cluster_grows_and_shrinks(&fleet)).await.context("an elastic RayCluster")?;
    Box::pin(somebody_else_queues_it(&fleet)).await.context("PipelineRun")
}

/// MK-ELA-07, "Should scale an elastic RayCluster on worker if admitted": it grows and shrinks where it is, by the same mirror.
async fn an_elastic_cluster_grows_and_shrinks(fleet: &Fleet) -> anyhow::Result<()> {
    let name = "a-growing-cluster";
    let mut template = pod("1");
    template["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/elastic-job" }]);
    let group = |replicas: i32| json!({ "groupName": "small", "replicas": replicas, "template": template });
    let object = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": { "kueue.x-k8s.io/queue-name": "team" },
            "annotations": { "kueue.x-k8s.io/elastic-job": "true" },
        },
        "spec": {
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue",
            "headGroupSpec": { "rayStartParams": {}, "template": template },
            "workerGroupSpecs": [group(1)],
        },
    });
    fleet.manager.create(object.clone()).await?;
    let mut first = None;
    for replicas in [1, 3, 2] {
        fleet
            .manager
            .patch(object.clone(), json!({ "spec": { "workerGroupSpecs": [group(replicas)] } }))
            .await?;
        let mirror = eventually(&format!("{replicas} workers are wanted there"), async || {
            let holds = |it: &Workload| {
                it.metadata.name.as_deref().is_some_and(|it| it.contains(name))
                    && rules::workload::has_quota(it)
                    && !rules::workload::is_finished(it)
                    && it.spec.pod_sets.iter().map(|it| it.count).eq([1, replicas])
            };
            let workload = fleet.manager.workloads().await?.into_iter().find(holds);
            let Some(cluster) = workload.and_then(|it| it.status?.cluster_name) else { return Ok(None) };
            let worker = &fleet.workers[cluster.as_str()];
            let there = worker.workloads().await?.iter().any(holds);
            let mirror = worker.api(&object)?.get_opt(name).await?.filter(|_| there);
            let wanted = |mirror: &DynamicObject| {
                let spec = &mirror.data["spec"];
                spec["workerGroupSpecs"][0]["replicas"] == replicas && spec["suspend"] != json!(true)
            };
            Ok(mirror.filter(wanted).and_then(|mirror| mirror.metadata.uid))
        })
        .await?;
        assert_eq!(first.get_or_insert(mirror.clone()), &mirror, "it goes on");
    }
    fleet.manager.api(&object)?.delete(name, &DeleteParams::background()).await?;
    for site in fleet.workers.values().chain([&fleet.manager]) {
        eventually("nothing is left of it", async || {
            let left = site.api(&object)?.get_opt(name).await?;
            Ok((left.is_none() && of(site, name).await?.is_none()).then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn define(site: &Site, tools: &Tools) -> anyhow::Result<()> {
    for (module, directory, plurals) in DEFINITIONS {
        let directory = tools.module(module).join(directory);
        for entry in fs::read_dir(&directory)? {
            for definition in read(&entry?.path())? {
                let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
                if plurals.contains(&plural) {
                    site.create(definition).await?;
                }
            }
        }
    }
    site.create(runtime()).await
}

fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    if path.extension().is_none_or(|extension| extension != "yaml") {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path)?;
    let documents = text.split("\n---\n").filter(|it| it.contains("kind: CustomResourceDefinition"));
    documents.map(|document| Ok(serde_saphyr::from_str(document)?)).collect()
}

/// An object of a kind that is to run elsewhere.
fn of_case(case: &Case, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": case.version, "kind": case.kind,
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "kueue.x-k8s.io/queue-name": "team" } },
        "spec": case.spec,
    });
    rules::framework::custom::set(&mut object, case.managed_by, json!("kueue.x-k8s.io/multikueue"));
    rules::framework::custom::set(&mut object, case.suspend, json!(true));
    object
}

/// MK-FLOW-16, MK-SM-05: once a worker says nothing of pods any more, none are shown, and the quota is free.
async fn is_taken_back(fleet: &Fleet, case: &Case) -> anyhow::Result<()> {
    let name = "taken-back";
    let object = of_case(case, name);
    fleet.manager.create(object.clone()).await?;
    let worker = eventually("it runs on a worker", async || {
        let workload = of(&fleet.manager, name).await?;
        let Some(cluster) = workload.and_then(|it| it.status?.cluster_name) else { return Ok(None) };
        let worker = &fleet.workers[cluster.as_str()];
        let mirror = worker.api(&object)?.get_opt(name).await?;
        Ok(mirror.filter(|it| it.data.pointer(case.suspend) != Some(&json!(true))).map(|_| worker))
    })
    .await?;
    worker.patch_status(object.clone(), json!({ "status": case.running })).await?;
    eventually("the manager shows how it runs", async || {
        let shown = fleet.manager.api(&object)?.get(name).await?;
        Ok(covers(&shown.data["status"], &case.running).then_some(()))
    })
    .await?;
    let queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "team" },
    });
    fleet.manager.patch(queue.clone(), json!({ "spec": { "stopPolicy": "HoldAndDrain" } })).await?;
    eventually("it is stopped there", async || {
        let mirror = worker.api(&object)?.get_opt(name).await?;
        let suspended = |it: &DynamicObject| it.data.pointer(case.suspend) == Some(&json!(true));
        anyhow::ensure!(mirror.is_some(), "it is gone");
        Ok(mirror.filter(suspended).map(|_| ()))
    })
    .await?;
    let stopped = json!({ "status": { "replicaStatuses": { "Worker": { "active": null } } } });
    worker.patch_status(object.clone(), stopped).await?;
    eventually("its quota is free", async || {
        let status = of(&fleet.manager, name).await?.and_then(|it| it.status).context("a Workload")?;
        let free = status.conditions.iter().any(|it| it.type_ == "QuotaReserved" && it.status == "False");
        let shown = fleet.manager.api(&object)?.get(name).await?.data["status"].clone();
        if free { Ok(Some(())) } else { anyhow::bail!("{shown}") }
    })
    .await?;
    fleet.manager.api(&object)?.delete(name, &DeleteParams::background()).await?;
    fleet.manager.patch(queue, json!({ "spec": { "stopPolicy": "None" } })).await?;
    fleet.clean().await
}

async fn plays(fleet: &Fleet, case: &Case) -> anyhow::Result<()> {
    let name = format!("a-{}", case.kind.to_lowercase());
    let object = of_case(case, &name);
    eventually("the kind is served", async || Ok(Some(fleet.manager.create(object.clone()).await?))).await?;

    let workload = eventually("it has a Workload", async || of(&fleet.manager, &name).await).await?;
    let pods: Vec<(String, i32)> =
        workload.spec.pod_sets.iter().map(|it| (it.name().to_owned(), it.count)).collect();
    let expected: Vec<(String, i32)> =
        case.pods.iter().map(|(name, count)| (name.to_string(), *count)).collect();
    assert_eq!(pods, expected);

    let (worker, mirror) = eventually("it is on a worker and runs there", async || {
        let workload = of(&fleet.manager, &name).await?;
        let Some(cluster) = workload.and_then(|it| it.status?.cluster_name) else { return Ok(None) };
        let worker = &fleet.workers[cluster.as_str()];
        let mirror = worker.api(&object)?.get_opt(&name).await?;
        let runs = |mirror: &DynamicObject| mirror.data.pointer(case.suspend) != Some(&json!(true));
        Ok(mirror.filter(runs).map(|mirror| (worker, mirror)))
    })
    .await?;
    assert_ne!(mirror.data.pointer(case.managed_by), Some(&json!("kueue.x-k8s.io/multikueue")));
    let given = mirror.data.pointer(case.selector).cloned().unwrap_or_default();
    assert_eq!(given["kueue.x-k8s.io/podset"], json!(case.pods[0].0), "labels of its pods: {given}");

    worker.patch_status(object.clone(), json!({ "status": case.running })).await?;
    eventually("the manager shows how it runs", async || {
        let shown = fleet.manager.api(&object)?.get(&name).await?;
        Ok(covers(&shown.data["status"], &case.running).then_some(()))
    })
    .await?;

    if let Some(done) = &case.done {
        worker.patch_status(object.clone(), json!({ "status": done })).await?;
        eventually("it is finished", async || {
            let workload = of(&fleet.manager, &name).await?;
            let conditions = workload.and_then(|it| it.status).map(|it| it.conditions).unwrap_or_default();
            let finished = conditions.iter().find(|it| it.type_ == "Finished" && it.status == "True");
            Ok(finished.map(|it| assert_eq!(it.reason, "Succeeded")))
        })
        .await?;
        let shown = fleet.manager.api(&object)?.get(&name).await?;
        assert!(covers(&shown.data["status"], done), "{}", shown.data["status"]);
    }
    fleet.manager.api(&object)?.delete(&name, &DeleteParams::background()).await?;
    for site in fleet.workers.values().chain([&fleet.manager]) {
        eventually("nothing is left of it", async || {
            let left = site.api(&object)?.get_opt(&name).await?;
            Ok((left.is_none() && of(site, &name).await?.is_none()).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// The Workload of an object.
async fn of(site: &Site, name: &str) -> anyhow::Result<Option<Workload>> {
    let ours = |it: &Workload| {
        let own = it.metadata.name.as_deref().unwrap_or_default();
        own.contains(&format!("-{name}-"))
    };
    Ok(site.workloads().await?.into_iter().find(ours))
}

/// Whether a value has everything that another one has.
fn covers(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(value), Value::Object(part)) => {
            part.iter().all(|(key, part)| value.get(key).is_some_and(|value| covers(value, part)))
        }
        (Value::Array(value), Value::Array(part)) => {
            value.len() == part.len() && value.iter().zip(part).all(|(value, part)| covers(value, part))
        }
        (value, part) => value == part,
    }
}

/// MK-EXT-02: of PipelineRuns others make the Workloads, on both sides; what dispatch does is the same.
async fn somebody_else_queues_it(fleet: &Fleet) -> anyhow::Result<()> {
    let name = "a-pipelinerun";
    let object = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "pipelineRef": { "name": "build" }, "managedBy": "kueue.x-k8s.io/multikueue" },
    });
    let api = fleet.manager.api(&object)?;
    let parsed: DynamicObject = serde_json::from_value(object.clone())?;
    let created = api.create(&PostParams::default(), &parsed).await?;
    let owner = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": name, "uid": created.metadata.uid,
        "controller": true, "blockOwnerDeletion": true,
    });
    let workload = format!("pipelinerun-{name}-0");
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": { "name": workload, "namespace": NAMESPACE, "ownerReferences": [owner] },
        "spec": { "queueName": "team", "podSets": [{ "name": "main", "count": 1, "template": pod("1") }] },
    });
    fleet.manager.create(workload.clone()).await?;
    let worker = eventually("it is on a worker", async || {
        let workload = of(&fleet.manager, name).await?;
        let Some(cluster) = workload.and_then(|it| it.status?.cluster_name) else { return Ok(None) };
        let worker = &fleet.workers[cluster.as_str()];
        let mirror = worker.api(&object)?.get_opt(name).await?;
        Ok(mirror.map(|mirror| {
            assert_eq!(mirror.data["spec"], json!({ "pipelineRef": { "name": "build" } }));
            worker
        }))
    })
    .await?;
    let status = json!({ "conditions": [{ "type": "Succeeded", "status": "True", "reason": "Completed" }] });
    worker.patch_status(object.clone(), json!({ "status": status })).await?;
    let now = "2026-01-01T00:00:00Z";
    let finished = json!([{
        "type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": now,
    }]);
    worker.patch_status(workload, json!({ "status": { "conditions": finished } })).await?;
    eventually("the manager shows its end", async || {
        let shown = fleet.manager.api(&object)?.get(name).await?;
        Ok(covers(&shown.data["status"], &status).then_some(()))
    })
    .await
}

fn pod(cpu: &str) -> Value {
    json!({ "spec": { "restartPolicy": "Never", "containers": [
        { "name": "node", "image": "i", "resources": { "requests": { "cpu": cpu } } },
    ] } })
}

fn runtime() -> Value {
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
        "metadata": { "name": "plain" },
        "spec": {
            "mlPolicy": { "numNodes": 1 },
            "template": { "spec": { "replicatedJobs": [{
                "name": "node",
                "template": {
                    "metadata": { "labels": { "trainer.kubeflow.org/trainjob-ancestor-step": "trainer" } },
                    "spec": { "template": pod("1") },
                },
            }] } },
        },
    })
}

fn cases() -> Vec<Case> {
    let plain = ("/spec/managedBy", "/spec/suspend");
    let of_policy = ("/spec/runPolicy/managedBy", "/spec/runPolicy/suspend");
    let now = "2026-01-01T00:00:00Z";
    let condition = |name: &str| {
        json!({
            "type": name, "status": "True", "reason": "Because", "message": "so it is",
            "lastTransitionTime": now, "lastUpdateTime": now,
        })
    };
    let plain_condition = |name: &str| json!({ "type": name, "status": "True", "reason": "Because", "message": "so it is", "lastTransitionTime": now });
    let kubeflow = |kind: &'static str, at: &'static str, roles: &[(&str, i32)], pods, selector| {
        let roles: serde_json::Map<String, Value> = roles
            .iter()
            .map(|(role, replicas)| (role.to_string(), json!({ "replicas": replicas, "template": pod("1") })))
            .collect();
        Case {
            kind,
            version: if kind == "MPIJob" { "kubeflow.org/v2beta1" } else { "kubeflow.org/v1" },
            managed_by: of_policy.0,
            suspend: of_policy.1,
            spec: json!({ at: roles, "runPolicy": {} }),
            pods,
            selector,
            running: json!({
                "conditions": [condition("Running")], "replicaStatuses": { "Worker": { "active": 1 } },
            }),
            done: Some(json!({ "conditions": [condition("Succeeded")] })),
        }
    };
    let ray = json!({
        "headGroupSpec": { "rayStartParams": {}, "template": pod("1") },
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": 2, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {},
            "template": pod("1"),
        }],
    });
    vec![
        Case {
            kind: "JobSet",
            version: "jobset.x-k8s.io/v1alpha2",
            managed_by: plain.0,
            suspend: plain.1,
            spec: json!({ "replicatedJobs": [
                { "name": "leader", "replicas": 1, "template": { "spec": { "template": pod("1") } } },
                { "name": "crew", "replicas": 2, "template": {
                    "spec": { "parallelism": 2, "completions": 2, "template": pod("1") },
                } },
            ] }),
            pods: &[("leader", 1), ("crew", 4)],
            selector: "/spec/replicatedJobs/0/template/spec/template/metadata/labels",
            running: json!({ "replicatedJobsStatus": [
                { "name": "leader", "active": 1, "ready": 1, "failed": 0, "succeeded": 0, "suspended": 0 },
            ] }),
            done: Some(json!({ "terminalState": "Completed", "conditions": [plain_condition("Completed")] })),
        },
        Case {
            kind: "TrainJob",
            version: "trainer.kubeflow.org/v1alpha1",
            managed_by: plain.0,
            suspend: plain.1,
            spec: json!({ "runtimeRef": { "name": "plain" }, "trainer": { "numNodes": 3 } }),
            pods: &[("node", 3)],
            selector: "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/metadata/labels",
            running: json!({ "jobsStatus": [
                { "name": "node", "active": 1, "ready": 1, "failed": 0, "succeeded": 0, "suspended": 0 },
            ] }),
            done: Some(json!({ "conditions": [plain_condition("Complete")] })),
        },
        kubeflow(
            "MPIJob",
            "mpiReplicaSpecs",
            &[("Launcher", 1), ("Worker", 2)],
            &[("launcher", 1), ("worker", 2)],
            "/spec/mpiReplicaSpecs/Launcher/template/metadata/labels",
        ),
        kubeflow(
            "PyTorchJob",
            "pytorchReplicaSpecs",
            &[("Master", 1), ("Worker", 2)],
            &[("master", 1), ("worker", 2)],
            "/spec/pytorchReplicaSpecs/Master/template/metadata/labels",
        ),
        kubeflow(
            "TFJob",
            "tfReplicaSpecs",
            &[("Chief", 1), ("PS", 1), ("Worker", 2)],
            &[("chief", 1), ("ps", 1), ("worker", 2)],
            "/spec/tfReplicaSpecs/Chief/template/metadata/labels",
        ),
        kubeflow(
            "XGBoostJob",
            "xgbReplicaSpecs",
            &[("Master", 1)],
            &[("master", 1)],
            "/spec/xgbReplicaSpecs/Master/template/metadata/labels",
        ),
        kubeflow(
            "PaddleJob",
            "paddleReplicaSpecs",
            &[("Worker", 2)],
            &[("worker", 2)],
            "/spec/paddleReplicaSpecs/Worker/template/metadata/labels",
        ),
        kubeflow(
            "JAXJob",
            "jaxReplicaSpecs",
            &[("Worker", 1)],
            &[("worker", 1)],
            "/spec/jaxReplicaSpecs/Worker/template/metadata/labels",
        ),
        Case {
            kind: "RayJob",
            version: "ray.io/v1",
            managed_by: plain.0,
            suspend: plain.1,
            spec: json!({ "shutdownAfterJobFinishes": true, "entrypoint": "true", "rayClusterSpec": ray, "submitterPodTemplate": pod("1") }),
            pods: &[("head", 1), ("small", 2), ("submitter", 1)],
            selector: "/spec/rayClusterSpec/headGroupSpec/template/metadata/labels",
            running: json!({ "jobDeploymentStatus": "Running", "jobStatus": "RUNNING" }),
            done: Some(json!({ "jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED" })),
        },
        Case {
            kind: "RayCluster",
            version: "ray.io/v1",
            managed_by: plain.0,
            suspend: plain.1,
            spec: ray.clone(),
            pods: &[("head", 1), ("small", 2)],
            selector: "/spec/headGroupSpec/template/metadata/labels",
            running: json!({ "state": "ready" }),
            done: None,
        },
        Case {
            kind: "AppWrapper",
            version: "workload.codeflare.dev/v1beta2",
            managed_by: plain.0,
            suspend: plain.1,
            spec: json!({ "components": [{ "template": {
                "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "inside" },
                "spec": { "parallelism": 2, "template": pod("1") },
            } }] }),
            pods: &[("a-appwrapper-0", 2)],
            selector: "/spec/components/0/podSetInfos/0/labels",
            running: json!({ "phase": "Running", "conditions": [plain_condition("QuotaReserved")] }),
            done: Some(json!({ "phase": "Succeeded", "conditions": [] })),
        },
    ]
}
