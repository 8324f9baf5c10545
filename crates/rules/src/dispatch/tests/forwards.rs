//! What mirrors learn of later changes.

use kube_core::DynamicObject;
use serde_json::{Value, json};
use types::kueue::Workload;

use super::fixture::{job, object, workload};
use crate::dispatch::{Adapter, adapter, forward::changes};

fn of(api_version: &str, kind: &str) -> &'static Adapter {
    Adapter::of(api_version, kind).expect("a known kind")
}

fn elastic(mut object: DynamicObject) -> DynamicObject {
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert("kueue.x-k8s.io/elastic-job".to_owned(), "true".to_owned());
    object
}

/// MK-ADP-03, MK-RAY-01: the spec is copied once.
#[test]
fn mk_adp_03_nothing_is_passed_on_of_most_changes() {
    for adapter in &adapter::ALL {
        let with = |spec: Value| {
            object(json!({"metadata": {"name": "j", "labels": {"a": spec["label"]}}, "spec": spec}))
        };
        let before = with(
            json!({"label": "x", "parallelism": 1, "workerGroupSpecs": [{"groupName": "g", "replicas": 1}]}),
        );
        let after = with(
            json!({"label": "y", "parallelism": 2, "workerGroupSpecs": [{"groupName": "g", "replicas": 2}]}),
        );
        assert_eq!(changes(adapter, &after, &before, &workload()), None, "{}", adapter.kind);
    }
    // A Job that may not grow does not, whatever the Workload was admitted with.
    let mut larger = job();
    larger.data["spec"]["parallelism"] = json!(1);
    assert_eq!(changes(adapter::job(), &larger, &job(), &workload()), None);
}

/// MK-RAY-02.
#[test]
fn mk_ray_02_a_ray_service_is_told_what_to_serve() {
    let service = of("ray.io/v1", "RayService");
    let with = |serve: &str, size: i32| {
        let config = json!({"workerGroupSpecs": [{"groupName": "g", "replicas": size}]});
        object(
            json!({"metadata": {"name": "s"}, "spec": {"serveConfigV2": serve, "rayClusterConfig": config}}),
        )
    };
    let patch = changes(service, &with("new", 2), &with("old", 1), &workload());
    assert_eq!(patch, Some(json!({"spec": {"serveConfigV2": "new"}})));
    assert_eq!(changes(service, &with("old", 2), &with("old", 1), &workload()), None);
}

/// MK-RAY-03, MK-ELA-05, MK-ELA-06, MK-ELA-07.
#[test]
fn mk_ela_07_an_elastic_ray_cluster_grows_with_its_slice() {
    let cluster = of("ray.io/v1", "RayCluster");
    let with = |groups: Value| {
        elastic(object(json!({"metadata": {"name": "c"}, "spec": {"workerGroupSpecs": groups}})))
    };
    let admitted = |counts: &[i32]| -> Workload {
        let pods: Vec<Value> =
            counts.iter().map(|count| json!({"name": "x", "count": count, "template": {}})).collect();
        serde_json::from_value(json!({"metadata": {"name": "w"}, "spec": {"podSets": pods}}))
            .expect("a Workload")
    };
    let there =
        with(json!([{"groupName": "a", "replicas": 2, "rayStartParams": {}}, {"groupName": "only-there"}]));
    let passed_on = |groups: Value, slice: &[i32]| {
        let patch = changes(cluster, &with(groups), &there, &admitted(slice))?;
        Some(patch["spec"]["workerGroupSpecs"].clone())
    };
    let larger = json!([{"groupName": "a", "replicas": 3, "numOfHosts": 2}, {"groupName": "only-there"}]);
    assert_eq!(passed_on(larger.clone(), &[1, 2, 1]), None, "the slice for it was not admitted yet");
    let grown = json!([{"groupName": "a", "replicas": 3, "numOfHosts": 2, "rayStartParams": {}}, {"groupName": "only-there"}]);
    assert_eq!(passed_on(larger, &[1, 6, 1]), Some(grown));
    let smaller = json!([{"groupName": "a", "replicas": 1}, {"groupName": "only-here", "replicas": 1}]);
    let shrunk =
        json!([{"groupName": "a", "replicas": 1, "rayStartParams": {}}, {"groupName": "only-there"}]);
    assert_eq!(passed_on(smaller, &[1, 1, 1]), Some(shrunk), "groups that one side has are its own");
    assert_eq!(
        passed_on(json!([{"groupName": "a", "replicas": 2}, {"groupName": "only-there"}]), &[1, 2, 1]),
        None
    );
}
