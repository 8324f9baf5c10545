//! What webhooks say to Jobs and Workloads that run on other clusters.

use serde_json::{Value, json};

use super::job::Surroundings;
use super::*;
use crate::framework::custom::{self, Shape};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const LIMIT: &str = "kueue.x-k8s.io/max-exec-time-seconds";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

fn said(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    let around = Surroundings { in_managed_namespace: true, ..Surroundings::default() };
    let (errors, _) =
        validate(&Review { kind, object, old, around, runtime: None }).expect("an object of its kind");
    errors.iter().map(ToString::to_string).collect()
}

fn job(labels: &Value, annotations: &Value, suspend: bool) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "labels": labels, "annotations": annotations},
        "spec": {"suspend": suspend, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    })
}

fn shape(kind: &str) -> &'static Shape {
    custom::ALL.iter().find(|shape| shape.kind.kind == kind).expect("a known kind")
}

fn custom(annotations: &Value, spec: &Value) -> Value {
    json!({"metadata": {"name": "x", "labels": {QUEUE: "q"}, "annotations": annotations}, "spec": spec})
}

/// MK-WH-01, MK-WH-06: each default builds on the one before, down to the gate of elastic pods; and what was created before
/// its queue was known stays as it was, to be refused by the check and not by surprise.
#[test]
fn mk_wh_01_a_job_that_names_no_queue_ends_up_on_a_worker() {
    let plain = job(&json!({}), &json!({ELASTIC: "true"}), false);
    let around = Surroundings {
        in_managed_namespace: true,
        has_default_queue: true,
        is_dispatched: true,
        ..Surroundings::default()
    };
    let of = |around| {
        default(&Review { kind: Kind::Job, object: &plain, old: None, around, runtime: None }).expect("a Job")
    };
    let after = of(around);
    assert_eq!(after["metadata"]["labels"][QUEUE], "default");
    assert_eq!((&after["spec"]["suspend"], &after["spec"]["managedBy"]), (&json!(true), &json!(MULTIKUEUE)));
    assert_eq!(after["spec"]["template"]["spec"]["schedulingGates"], json!([{"name": ELASTIC}]));
    let early = of(Surroundings { is_dispatched: false, ..around });
    assert_eq!((&early["spec"]["suspend"], early["spec"].get("managedBy")), (&json!(true), None));
}

/// MK-WH-07.
#[test]
fn mk_wh_07_what_a_running_job_keeps() {
    let immutable = |path: &str, value: &str| {
        vec![format!("metadata.{path}: Invalid value: {value}: field is immutable")]
    };
    let none = json!({});
    let linked = |name: &str, suspend| job(&none, &json!({PREBUILT: name}), suspend);
    let path = format!("annotations[{PREBUILT}]");
    assert_eq!(said(Kind::Job, &linked("b", false), Some(&linked("a", false))), immutable(&path, "\"b\""));
    assert_eq!(said(Kind::Job, &linked("b", true), Some(&linked("a", false))), Vec::<String>::new());
    let slice = |name: &str| job(&none, &json!({PREBUILT: name, ELASTIC: "true"}), false);
    assert_eq!(said(Kind::Job, &slice("b"), Some(&slice("a"))), Vec::<String>::new(), "MK-ELA-03");
    let elastic = job(&none, &json!({ELASTIC: "true"}), true);
    let path = format!("annotations[{ELASTIC}]");
    assert_eq!(said(Kind::Job, &elastic, Some(&job(&none, &none, true))), immutable(&path, "true"));
    let limited = |seconds: &str, suspend| job(&json!({LIMIT: seconds}), &none, suspend);
    let path = format!("labels[{LIMIT}]");
    assert_eq!(said(Kind::Job, &limited("9", false), Some(&limited("5", true))), immutable(&path, "\"9\""));
    assert_eq!(said(Kind::Job, &limited("9", true), Some(&limited("5", true))), Vec::<String>::new());
    let of_class = |name: &str| job(&json!({CLASS: name}), &none, false);
    assert_eq!(said(Kind::Job, &of_class("high"), Some(&of_class("low"))), Vec::<String>::new());
}

/// MK-WH-08, MK-CRD-03: every kind may be bound to a Workload that is there. Kueue's own webhook knows no JAXJob and
/// refuses its copies; a manager of any kind can have them run here.
#[test]
fn mk_wh_08_every_kind_may_have_its_workload_already() {
    let ray = json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": {}, "rayClusterConfig": {}});
    for shape in &custom::ALL {
        let object = custom(&json!({PREBUILT: "w"}), &ray);
        assert_eq!(said(Kind::Custom(shape), &object, None), Vec::<String>::new(), "{}", shape.kind.kind);
    }
    assert_eq!(
        said(Kind::Job, &job(&json!({QUEUE: "q"}), &json!({PREBUILT: "w"}), true), None),
        Vec::<String>::new()
    );
}

/// MK-WH-09, MK-ELA-09.
#[test]
fn mk_wh_09_few_kinds_grow_and_shrink() {
    let elastic = json!({ELASTIC: "true"});
    let refused = |kind: &str| said(Kind::Custom(shape(kind)), &custom(&elastic, &json!({})), None);
    let path = format!("metadata.annotations[{ELASTIC}]: Forbidden");
    assert_eq!(
        refused("JobSet"),
        [format!("{path}: elastic job is not supported for \"jobset.x-k8s.io/v1alpha2, Kind=JobSet\"")]
    );
    assert_eq!(
        refused("PyTorchJob"),
        [format!("{path}: elastic job is not supported for \"kubeflow.org/v1, Kind=PyTorchJob\"")]
    );
    let existing = custom(&elastic, &json!({}));
    assert_eq!(
        said(Kind::Custom(shape("JobSet")), &existing, Some(&existing)),
        Vec::<String>::new(),
        "on create only"
    );
    let cluster = |managed_by: &str, scales: bool| {
        let spec = json!({"managedBy": managed_by, "enableInTreeAutoscaling": scales});
        let kind = Kind::Custom(shape("RayCluster"));
        let review = Review {
            kind,
            object: &custom(&elastic, &spec),
            old: None,
            around: Surroundings::default(),
            runtime: None,
        };
        said(kind, &default(&review).expect("an object"), None)
    };
    assert_eq!(cluster(MULTIKUEUE, false), Vec::<String>::new());
    assert_eq!(cluster("ray.io/kuberay-operator", true), Vec::<String>::new());
    assert_eq!(
        cluster(MULTIKUEUE, true),
        [
            "spec.enableInTreeAutoscaling: Forbidden: in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster"
        ]
    );
    assert_eq!(said(Kind::Job, &job(&json!({}), &elastic, true), None), Vec::<String>::new());
}

fn workload(annotations: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "w", "annotations": annotations},
        "spec": {"podSets": [{"name": "main", "count": 3, "template": {"spec": {"containers": []}}}]}, "status": status,
    })
}

/// MK-WL-03: a cluster is chosen among those that were nominated before, unless the choice is that of an earlier slice.
#[test]
fn mk_wl_03_a_cluster_is_chosen_among_those_that_were_asked() {
    let none = json!({});
    let of = |status: Value| workload(&none, &status);
    let (east, both) = (json!({"clusterName": "east"}), json!({"nominatedClusterNames": ["west", "east"]}));
    let chosen = |new: &Value, old: &Value| said(Kind::Workload, new, Some(old));
    assert_eq!(chosen(&of(east.clone()), &of(both)), Vec::<String>::new());
    let why = "status.clusterName: Invalid value: \"east\": when setting clusterName it must be one of the nominatedClusterNames";
    assert_eq!(chosen(&of(east.clone()), &of(json!({}))), [why]);
    // Named now is too late.
    let now = of(json!({"clusterName": "east", "nominatedClusterNames": ["east"]}));
    assert_eq!(chosen(&now, &of(json!({}))), [why]);
    let slice = json!({"kueue.x-k8s.io/workload-slice-replacement-for": "ns/w"});
    assert_eq!(chosen(&workload(&slice, &east), &workload(&slice, &json!({}))), Vec::<String>::new());
    assert_eq!(chosen(&of(json!({})), &of(east)), Vec::<String>::new(), "it may be taken back");
}

/// MK-WL-04: what a check that was passed asked for stays.
#[test]
fn mk_wl_04_a_check_that_was_passed_keeps_its_word() {
    let of = |state: &str, selector: &str| {
        let update = json!({"name": "main", "nodeSelector": {"pool": selector}});
        let check = json!({
            "name": "mk", "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "podSetUpdates": [update],
        });
        workload(&json!({}), &json!({"admissionChecks": [check]}))
    };
    let changed = said(Kind::Workload, &of("Ready", "b"), Some(&of("Ready", "a")));
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert!(
        changed[0].starts_with("status.admissionChecks[0].podSetUpdates: Invalid value: ["),
        "{changed:?}"
    );
    assert!(changed[0].ends_with("field is immutable"), "{changed:?}");
    assert_eq!(said(Kind::Workload, &of("Retry", "b"), Some(&of("Ready", "a"))), Vec::<String>::new());
    assert_eq!(said(Kind::Workload, &of("Ready", "b"), Some(&of("Pending", "a"))), Vec::<String>::new());
}

/// MK-ELA-07: the pods of a RayCluster that may grow wait for the slice that they belong to; those of others do not.
#[test]
fn mk_ela_07_pods_of_an_elastic_cluster_wait() {
    let kind = Kind::Custom(shape("RayCluster"));
    let template = || json!({"spec": {"containers": []}});
    let spec = json!({
        "headGroupSpec": {"template": template()}, "workerGroupSpecs": [{"groupName": "a", "template": template()}],
    });
    let made = |annotations: Value| {
        let object = custom(&annotations, &spec);
        let around = Surroundings { in_managed_namespace: true, ..Surroundings::default() };
        default(&Review { kind, object: &object, old: None, around, runtime: None }).expect("an object")
    };
    let gates = ["/spec/headGroupSpec/template", "/spec/workerGroupSpecs/0/template"]
        .map(|at| format!("{at}/spec/schedulingGates"));
    let elastic = made(json!({ELASTIC: "true"}));
    for gates in &gates {
        assert_eq!(elastic.pointer(gates), Some(&json!([{"name": ELASTIC}])));
        assert_eq!(made(json!({})).pointer(gates), None);
    }
    assert_eq!(said(kind, &elastic, None), Vec::<String>::new());
    let why = "schedulingGates: Invalid value: null: an elastic job must have the ElasticJobSchedulingGate";
    assert_eq!(
        said(kind, &custom(&json!({ELASTIC: "true"}), &spec), None),
        [
            format!("spec.workerGroupSpecs[0].template.spec.{why}"),
            format!("spec.headGroupSpec.template.spec.{why}")
        ]
    );
}
