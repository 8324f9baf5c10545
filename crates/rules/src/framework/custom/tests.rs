use k8s_openapi::api::core::v1::Toleration;
use types::kueue::Workload;

use super::*;
use crate::dispatch::{Adapter, copy};

fn shape(kind: &str) -> &'static Shape {
    ALL.iter().find(|shape| shape.kind.kind == kind).expect("a kind")
}

fn object(kind: &str, spec: Value, status: Value) -> DynamicObject {
    let api_version = shape(kind).kind.api_version();
    let metadata = json!({ "name": "x", "namespace": "n", "uid": "u" });
    let whole = json!({
        "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status,
    });
    serde_json::from_value(whole).expect("an object")
}

fn pod(cpu: &str) -> Value {
    json!({ "metadata": { "labels": { "own": "label" } }, "spec": { "containers": [
        { "name": "node", "image": "i", "resources": { "requests": { "cpu": cpu } }, "unknown": 1 },
    ] } })
}

fn ray() -> Value {
    json!({
        "headGroupSpec": { "rayStartParams": {}, "template": pod("1") },
        "workerGroupSpecs": [{ "groupName": "Small", "replicas": 2, "numOfHosts": 3, "template": pod("2") }],
    })
}

fn runtime() -> Arc<DynamicObject> {
    let node = json!({
        "name": "node",
        "template": {
            "metadata": { "labels": { "trainer.kubeflow.org/trainjob-ancestor-step": "trainer" } },
            "spec": { "template": pod("1") },
        },
    });
    let spec = json!({ "mlPolicy": { "numNodes": 2 }, "template": { "spec": { "replicatedJobs": [node] } } });
    let whole = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
        "metadata": { "name": "r" }, "spec": spec,
    });
    Arc::new(serde_json::from_value(whole).expect("an object"))
}

/// One of each kind, with its pod sets.
fn samples() -> Vec<(DynamicObject, &'static str, &'static str)> {
    let roles = |at: &str, roles: Value| json!({ at: roles, "runPolicy": { "suspend": true } });
    let role = |replicas: i32| json!({ "replicas": replicas, "template": pod("1") });
    let mut ray_job = json!({ "suspend": true, "submissionMode": "K8sJobMode", "rayClusterSpec": ray() });
    ray_job["submitterPodTemplate"] = pod("1");
    let mut ray_cluster = ray();
    ray_cluster["suspend"] = json!(true);
    let mut ray_service = json!({ "rayClusterConfig": ray() });
    ray_service["rayClusterConfig"]["suspend"] = json!(true);
    let jobs = json!([
        { "name": "leader", "template": { "spec": { "template": pod("1") } } },
        { "name": "crew", "replicas": 2, "template": {
            "spec": { "parallelism": 4, "completions": 3, "template": pod("1") },
        } },
    ]);
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": { "parallelism": 2, "template": pod("1") } });
    let of =
        |kind: &'static str, spec: Value, pods: &'static str| (object(kind, spec, json!({})), kind, pods);
    let master = || json!({ "Master": role(1), "Worker": role(2) });
    vec![
        of("JobSet", json!({ "suspend": true, "replicatedJobs": jobs }), "leader 1, crew 6"),
        of("TrainJob", json!({ "suspend": true, "runtimeRef": { "name": "r" } }), "node 2"),
        of(
            "MPIJob",
            roles("mpiReplicaSpecs", json!({ "Worker": role(2), "Launcher": role(1) })),
            "launcher 1, worker 2",
        ),
        of("PyTorchJob", roles("pytorchReplicaSpecs", master()), "master 1, worker 2"),
        of(
            "TFJob",
            roles("tfReplicaSpecs", json!({ "Evaluator": role(1), "PS": role(2), "Chief": role(1) })),
            "chief 1, ps 2, evaluator 1",
        ),
        of("XGBoostJob", roles("xgbReplicaSpecs", master()), "master 1, worker 2"),
        of("PaddleJob", roles("paddleReplicaSpecs", master()), "master 1, worker 2"),
        of("JAXJob", roles("jaxReplicaSpecs", json!({ "Worker": role(3) })), "worker 3"),
        of("RayJob", ray_job, "head 1, small 6, submitter 1"),
        of("RayCluster", ray_cluster, "head 1, small 6"),
        of("RayService", ray_service, "head 1, small 6"),
        of("AppWrapper", json!({ "suspend": true, "components": [{ "template": job }] }), "x-0 2"),
    ]
}

fn observed(object: &DynamicObject, kind: &str) -> Custom<'static> {
    let object: &'static DynamicObject = Box::leak(Box::new(object.clone()));
    Custom::new(shape(kind), object, (kind == "TrainJob").then(runtime))
}

fn given(job: &Custom<'_>) -> Vec<PodSetInfo> {
    let pod_sets = job.pod_sets().expect("pod sets");
    let give = |pod_set: &PodSet| PodSetInfo {
        name: pod_set.name().to_owned(),
        count: pod_set.count,
        labels: [("given".to_owned(), "label".to_owned())].into(),
        node_selector: [("zone".to_owned(), "a".to_owned())].into(),
        tolerations: vec![Toleration { key: Some("spot".to_owned()), ..Toleration::default() }],
        ..PodSetInfo::default()
    };
    pod_sets.iter().map(give).collect()
}

#[test]
fn jf_16_every_kind_has_its_pod_sets() {
    assert_eq!(samples().len(), ALL.len());
    for (object, kind, expected) in samples() {
        let pod_sets = observed(&object, kind).pod_sets().expect("pod sets");
        let said: Vec<String> = pod_sets.iter().map(|it| format!("{} {}", it.name(), it.count)).collect();
        assert_eq!(said.join(", "), expected, "{kind}");
    }
}

#[test]
fn jf_54_what_is_started_and_stopped_is_as_it_was() {
    for (object, kind, _) in samples() {
        let job = observed(&object, kind);
        assert!(job.is_suspended(), "{kind}");
        assert_eq!(job.stopped(None), [], "{kind} is stopped already");
        let originals: Vec<PodSetInfo> =
            job.pod_sets().expect("pod sets").iter().map(PodSetInfo::original).collect();
        let mut at = object.clone();
        for write in job.started(&given(&job)).expect("nothing contradicts") {
            let (Write::Object(value) | Write::Status(value)) = write;
            at = serde_json::from_value(value).expect("an object");
        }
        let running = observed(&at, kind);
        assert!(!running.is_suspended(), "{kind} runs");
        let text = at.data.to_string();
        assert!(text.contains("\"zone\":\"a\"") && text.contains("spot"), "{kind}: {text}");
        while let Some(write) = observed(&at, kind).stopped(Some(&originals)).into_iter().next() {
            let (Write::Object(value) | Write::Status(value)) = write;
            at = serde_json::from_value(value).expect("an object");
        }
        let mut expected = object.clone();
        if kind == "TrainJob" {
            let kept = json!({ "template": { "spec": {} } });
            expected.data["spec"]["runtimePatches"] =
                json!([{ "manager": PATCH_MANAGER, "trainingRuntimeSpec": kept }]);
        }
        assert_eq!(at.data, expected.data, "{kind}");
    }
}

/// MK-FLOW-28: a mirror that had to be created again had the manager's node selectors, tolerations and labels, for every kind
/// but batch Job, and its pods waited for nodes that the worker does not have.
#[test]
fn mk_flow_28_a_job_that_was_started_is_mirrored_as_it_was() {
    for (object, kind, _) in samples() {
        let job = observed(&object, kind);
        let adapter = Adapter::of(&shape(kind).kind.api_version(), kind).expect("it is sent to workers");
        let mut workload = Workload::default();
        workload.spec.pod_sets = job.pod_sets().expect("pod sets");
        let expected = copy::mirror(adapter, &object, &workload, "manager");
        let mut started = object.clone();
        for write in job.started(&given(&job)).expect("nothing contradicts") {
            let (Write::Object(value) | Write::Status(value)) = write;
            started = serde_json::from_value(value).expect("an object");
        }
        let text = started.data.to_string();
        assert!(text.contains("\"zone\":\"a\"") && text.contains("spot"), "{kind}: {text}");
        let mut mirror = copy::mirror(adapter, &started, &workload, "manager");
        if kind == "TrainJob" {
            // The list of patches had those of the manager alone, which are no worker's.
            mirror.data["spec"].as_object_mut().expect("a spec").remove("runtimePatches");
        }
        assert_eq!(mirror.data, expected.data, "{kind}");
    }
}

#[test]
fn jf_51_what_contradicts_never_starts() {
    for (object, kind, _) in samples() {
        let job = observed(&object, kind);
        let conflict = job.started(&[]).expect_err("it has pods");
        assert!(conflict.0.contains("invalid podset infos: expecting"), "{kind}: {}", conflict.0);
    }
}

#[test]
fn jf_42_ends_are_told_in_the_words_of_each_kind() {
    let end = |kind: &str, status: Value| {
        let end = observed(&object(kind, json!({}), status), kind).finished();
        end.map(|end| format!("{} {}", if end.success { "good:" } else { "bad:" }, end.message))
    };
    let condition =
        |name: &str| json!({ "conditions": [{ "type": name, "status": "True", "message": "words" }] });
    assert_eq!(end("JobSet", condition("Completed")).as_deref(), Some("good: words"));
    assert_eq!(end("JobSet", condition("Failed")).as_deref(), Some("bad: words"));
    assert_eq!(end("TrainJob", condition("Complete")).as_deref(), Some("good: words"));
    assert_eq!(end("MPIJob", condition("Succeeded")).as_deref(), Some("good: words"));
    assert_eq!(end("PyTorchJob", condition("Running")), None);
    let ray = |deployment: &str, job: &str| json!({ "jobDeploymentStatus": deployment, "jobStatus": job, "message": "m" });
    assert_eq!(end("RayJob", ray("Complete", "SUCCEEDED")).as_deref(), Some("good: m"));
    assert_eq!(end("RayJob", ray("Complete", "FAILED")).as_deref(), Some("bad: m"));
    assert_eq!(end("RayJob", ray("Running", "RUNNING")), None);
    assert_eq!(end("RayCluster", json!({ "state": "failed" })), None);
    assert_eq!(
        end("AppWrapper", json!({ "phase": "Succeeded" })).as_deref(),
        Some("good: AppWrapper finished successfully")
    );
    let deployed =
        json!({ "phase": "Failed", "conditions": [{ "type": "ResourcesDeployed", "status": "True" }] });
    assert_eq!(end("AppWrapper", deployed), None);
    assert_eq!(end("AppWrapper", json!({ "phase": "Failed" })).as_deref(), Some("bad: AppWrapper failed"));
}

#[test]
fn active_and_ready_are_read_where_each_kind_writes_them() {
    let says = |kind: &str, status: Value| {
        let (mut object, _, _) = samples().into_iter().find(|(_, its, _)| *its == kind).expect("a sample");
        object.data["status"] = status;
        let job = observed(&object, kind);
        (job.is_active(), job.pods_ready())
    };
    let jobs = |entries: Value| json!({ "replicatedJobsStatus": entries });
    assert_eq!(says("JobSet", jobs(json!([{ "name": "leader", "active": 1, "ready": 1 }]))), (true, false));
    let all = json!([{ "name": "leader", "succeeded": 1 }, { "name": "crew", "active": 2, "ready": 2 }]);
    assert_eq!(says("JobSet", jobs(all)), (true, true));
    assert_eq!(says("TrainJob", json!({ "jobsStatus": [{ "name": "node", "ready": 1 }] })), (false, true));
    assert_eq!(says("MPIJob", json!({ "replicaStatuses": { "Worker": { "active": 1 } } })), (true, false));
    assert_eq!(says("RayJob", json!({ "jobDeploymentStatus": "Suspended" })), (false, false));
    assert_eq!(says("RayJob", json!({ "jobDeploymentStatus": "Initializing" })), (true, false));
    assert_eq!(says("RayCluster", json!({ "state": "ready" })), (true, true));
}

#[test]
fn jf_61_replicas_that_are_done_need_nothing_any_more() {
    let (mut jobs, _, _) = samples().remove(0);
    jobs.data["status"] = json!({ "replicatedJobsStatus": [
        { "name": "leader", "succeeded": 0 }, { "name": "crew", "succeeded": 1 },
    ] });
    let reclaimed = observed(&jobs, "JobSet").reclaimable();
    assert_eq!(reclaimed, [ReclaimablePod { name: "crew".to_owned(), count: 3 }]);
}

#[test]
fn what_kuberay_adds_by_itself_counts() {
    let requests = |spec: Value, pod_set: usize| {
        let object = object("RayJob", spec, json!({}));
        let pod_sets = observed(&object, "RayJob").pod_sets().expect("pod sets");
        let spec = pod_sets[pod_set].template.spec.clone().unwrap_or_default();
        let of = |container: &k8s_openapi::api::core::v1::Container| {
            let requests = container.resources.clone().unwrap_or_default().requests.unwrap_or_default();
            let text: Vec<String> =
                requests.iter().map(|(name, amount)| format!("{name}={}", amount.0)).collect();
            format!("{} {}", container.name, text.join(" "))
        };
        spec.containers.iter().map(of).collect::<Vec<_>>()
    };
    let with = |field: &str, value: Value| {
        let mut spec = json!({ "rayClusterSpec": ray() });
        set(&mut spec, field, value);
        spec
    };
    assert_eq!(
        requests(with("/submissionMode", json!("K8sJobMode")), 2),
        ["ray-job-submitter cpu=500m memory=200Mi"]
    );
    assert_eq!(
        requests(with("/submissionMode", json!("SidecarMode")), 0),
        ["node cpu=1", "ray-job-submitter cpu=500m memory=200Mi"]
    );
    assert_eq!(
        requests(with("/rayClusterSpec/enableInTreeAutoscaling", json!(true)), 0),
        ["node cpu=1", "autoscaler cpu=500m memory=512Mi"]
    );
    assert_eq!(
        requests(with("/rayClusterSpec/gcsFaultToleranceOptions", json!({})), 0),
        ["node cpu=1 memory=256Mi"]
    );
    let chosen = object("RayJob", json!({ "clusterSelector": { "a": "b" } }), json!({}));
    assert!(observed(&chosen, "RayJob").is_elsewhere());
}

#[test]
fn a_train_job_says_how_many_nodes_and_what_they_run() {
    let spec = json!({
        "runtimeRef": { "name": "r" },
        "trainer": { "numNodes": 5, "image": "mine", "resourcesPerNode": { "requests": { "cpu": "3" } } },
        "runtimePatches": [{ "manager": "me", "trainingRuntimeSpec": { "template": { "spec": { "replicatedJobs": [{
            "name": "node",
            "template": { "spec": { "template": { "spec": {
                "nodeSelector": { "a": "b" },
                "containers": [{ "name": "node", "env": [{ "name": "E", "value": "1" }] }],
            } } } },
        }] } } } }],
    });
    let object = object("TrainJob", spec, json!({}));
    let pod_sets = observed(&object, "TrainJob").pod_sets().expect("pod sets");
    assert_eq!(pod_sets[0].count, 5);
    let spec = pod_sets[0].template.spec.clone().expect("a spec");
    assert_eq!(spec.node_selector.expect("a selector")["a"], "b");
    let node = &spec.containers[0];
    assert_eq!(node.image.as_deref(), Some("mine"));
    assert_eq!(node.resources.clone().unwrap_or_default().requests.unwrap_or_default()["cpu"].0, "3");
    assert_eq!(node.env.as_ref().map(Vec::len), Some(1));
    let lost = Custom::new(shape("TrainJob"), &object, None).pod_sets();
    assert_eq!(lost, Err("runtime 'r' not found".to_owned()));
}

/// MK-ELA-07: a RayCluster may grow and shrink, if it says so; its pods wait where it runs.
#[test]
fn mk_ela_07_a_ray_cluster_may_be_elastic() {
    let of = |kind: &'static str, annotated: &str, more: &[(&str, Value)]| {
        let mut object = object(kind, ray(), json!({}));
        let annotation = ("kueue.x-k8s.io/elastic-job".to_owned(), annotated.to_owned());
        object.metadata.annotations = Some([annotation].into());
        for (at, value) in more {
            set(&mut object.data, at, value.clone());
        }
        let custom = Custom::new(shape(kind), &object, None);
        (custom.is_elastic(), custom.may_be_gated(), custom.pod_label().1)
    };
    assert_eq!(of("RayCluster", "true", &[]), (true, true, "x".to_owned()));
    assert!(!of("RayCluster", "false", &[]).0);
    assert!(!of("RayJob", "true", &[]).0);
    let held = [("/spec/suspend", json!(true))];
    let elsewhere = [("/spec/managedBy", json!("kueue.x-k8s.io/multikueue"))];
    assert!(!of("RayCluster", "true", &held).1 && !of("RayCluster", "true", &elsewhere).1);
}
