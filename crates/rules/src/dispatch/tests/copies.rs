//! What is created on workers, kind by kind.

use serde_json::{Value, json};

use super::fixture::*;
use crate::dispatch::{Adapter, Owner, adapter, copy, observed};

/// MK-WIRE-01, MK-COPY-01, MK-COPY-02, MK-COPY-03, MK-QR-03: what the manager's quota is made of is not the worker's business.
#[test]
fn a_copy_of_a_workload() {
    let copy = copy::workload(&workload(), ORIGIN);
    let value = serde_json::to_value(&copy).expect("objects are JSON");
    assert_eq!(
        value["metadata"],
        json!({
            "name": "job-j-12345", "namespace": "ns",
            "labels": {"kueue.x-k8s.io/multikueue-origin": "multikueue", "team": "a"},
            "annotations": {"kueue.x-k8s.io/multikueue-origin-uid": "workload-1"},
        })
    );
    assert_eq!(copy.spec, workload().spec);
    assert_eq!(copy.status, None);
}

/// MK-ADP-01, MK-INT-04, MK-ADP-09, MK-ADP-08: what the pods refer to is not copied.
#[test]
fn a_mirror_of_a_job() {
    let mirror = copy::mirror(adapter::job(), &job(), &workload(), ORIGIN);
    assert_eq!(
        serde_json::to_value(&mirror).expect("objects are JSON"),
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "j", "namespace": "ns",
                "labels": {
                    "kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/multikueue-origin": "multikueue",
                    "kueue.x-k8s.io/prebuilt-workload-name": "job-j-12345",
                },
                "annotations": {
                    "note": "kept", "kueue.x-k8s.io/multikueue-origin-uid": "job-1",
                    "kueue.x-k8s.io/prebuilt-workload-name": "job-j-12345",
                },
            },
            "spec": {
                "suspend": true, "parallelism": 2, "completions": 2,
                "template": {
                    "metadata": {"labels": {"batch.kubernetes.io/job-name": "j", "mine": "yes"}},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
                },
            },
        })
    );
    assert_eq!(observed::link(&mirror.metadata), Some("job-j-12345"));
}

/// MK-INT-02: names that are too long for a label are in the annotation only.
#[test]
fn long_names_are_no_labels() {
    let mut long = workload();
    long.metadata.name = Some("w".repeat(64));
    let mirror = copy::mirror(adapter::job(), &job(), &long, ORIGIN);
    assert_eq!(
        mirror
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get("kueue.x-k8s.io/prebuilt-workload-name")),
        None
    );
    assert_eq!(observed::link(&mirror.metadata), long.metadata.name.as_deref());
}

/// MK-FLOW-28, MK-JOB-07: a mirror that is created again is what the user wrote, not what the manager made of it.
#[test]
fn a_started_job_is_mirrored_as_it_was() {
    let mut started = job();
    let spec = &mut started.data["spec"];
    spec["suspend"] = json!(false);
    spec["parallelism"] = json!(1);
    spec["template"]["spec"]["nodeSelector"] = json!({"flavor": "manager's"});
    spec["template"]["spec"]["tolerations"] = json!([{"key": "manager's"}]);
    spec["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("main");
    let mirror = copy::mirror(adapter::job(), &started, &workload(), ORIGIN);
    let pod = &mirror.data["spec"]["template"];
    assert_eq!(pod["spec"].get("nodeSelector"), None);
    assert_eq!(pod["spec"].get("tolerations"), None);
    assert_eq!(pod.pointer("/metadata/labels"), None);
    assert_eq!(mirror.data["spec"]["parallelism"], 2);
    assert_eq!(mirror.data["spec"]["suspend"], true);
}

/// MK-JOB-07: the same where completions follow the number of pods.
#[test]
fn what_was_admitted_in_part_is_mirrored_whole() {
    let mirrored = |completions_follow: &str| {
        let mut started = job();
        started.metadata.annotations = Some(
            [("job-min-parallelism", "1"), ("job-completions-equal-parallelism", completions_follow)]
                .map(|(key, value)| (format!("kueue.x-k8s.io/{key}"), value.to_owned()))
                .into(),
        );
        let spec = &mut started.data["spec"];
        (spec["suspend"], spec["parallelism"], spec["completions"]) = (json!(false), json!(1), json!(1));
        let mirror = copy::mirror(adapter::job(), &started, &workload(), ORIGIN);
        (mirror.data["spec"]["parallelism"].clone(), mirror.data["spec"]["completions"].clone())
    };
    assert_eq!(mirrored("true"), (json!(2), json!(2)));
    assert_eq!(mirrored("false"), (json!(2), json!(1)));
}

/// MK-CRD-01, MK-CRD-03, MK-ADP-05, MK-ADP-06, MK-RAY-01: every kind, who says that it is ours, what its mirror lacks, and how its end is told.
#[test]
fn kinds() {
    let object_of = |adapter: &Adapter, value: Option<&str>| {
        let mut data = json!({
            "apiVersion": adapter.api_version(), "kind": adapter.kind,
            "metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"keep": 1},
        });
        let path: Vec<&str> =
            adapter.managed_by.into_iter().flat_map(|path| path.split('/').skip(2)).collect();
        match (path.as_slice(), value) {
            ([field], Some(value)) => data["spec"][*field] = json!(value),
            ([parent, field], Some(value)) => data["spec"][*parent] = json!({*field: value, "keep": 2}),
            _ => {}
        }
        object(data)
    };
    for adapter in &adapter::ALL {
        let name = adapter.gvk();
        assert_eq!(Adapter::of(&adapter.api_version(), adapter.kind), Some(adapter), "{name}");
        let ours = object_of(adapter, Some("kueue.x-k8s.io/multikueue"));
        assert_eq!(adapter.refuses(&ours.data), None, "{name}");
        let refusal = adapter.refuses(&object_of(adapter, None).data);
        assert_eq!(refusal.is_none(), adapter.managed_by.is_none(), "{name}");
        let mirror = copy::mirror(adapter, &ours, &workload(), ORIGIN);
        let said = adapter.managed_by.and_then(|path| mirror.data.pointer(path));
        assert_eq!(said, None, "{name}: the worker's own controller takes over");
        assert_eq!(mirror.data["spec"]["keep"], 1, "{name}");
        assert_eq!(
            adapter.is_suspended(&mirror.data),
            adapter.suspend.is_some(),
            "{name}: the worker's Kueue starts it"
        );
        assert!(!adapter.is_finished(&mirror.data), "{name}");
    }
    let of = |api_version: &str, kind: &str| Adapter::of(api_version, kind).expect("a known kind");
    let ended = |adapter: &Adapter, status: Value| adapter.is_finished(&json!({"status": status}));
    let condition = |kind: &str, value: &str| json!({"conditions": [{"type": kind, "status": value}]});
    assert!(ended(of("batch/v1", "Job"), condition("Failed", "True")));
    assert!(!ended(of("batch/v1", "Job"), condition("Suspended", "True")));
    assert!(ended(of("jobset.x-k8s.io/v1alpha2", "JobSet"), condition("Completed", "True")));
    assert!(ended(of("kubeflow.org/v2beta1", "MPIJob"), condition("Succeeded", "True")));
    assert!(!ended(of("tekton.dev/v1", "PipelineRun"), condition("Succeeded", "Unknown")));
    assert!(ended(of("tekton.dev/v1", "PipelineRun"), condition("Succeeded", "False")));
    assert!(ended(of("ray.io/v1", "RayJob"), json!({"jobDeploymentStatus": "Complete"})));
    assert!(!ended(of("ray.io/v1", "RayCluster"), json!({"state": "ready"})));
    assert!(ended(of("v1", "Pod"), json!({"phase": "Failed"})));
    // MK-FLOW-04, and the path that Kueue names for the training operator's kinds (MK-ADP-05).
    assert_eq!(of("v1", "Pod").gvk(), "/v1, Kind=Pod");
    let why = of("kubeflow.org/v1", "TFJob").refuses(&json!({})).expect("a refusal");
    assert_eq!(why, "Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"\"");
}

/// MK-CRD-02, MK-ADP-09: what a runtime patch of the manager's Kueue says is not the worker's, nor how long a success is
/// kept.
#[test]
fn some_kinds_lose_more() {
    let train = Adapter::of("trainer.kubeflow.org/v1alpha1", "TrainJob").expect("a known kind");
    let patches = json!([{"manager": "kueue.x-k8s.io/manager"}, {"manager": "mine"}]);
    let job = object(json!({"metadata": {"name": "t"}, "spec": {"runtimePatches": patches}}));
    let mirror = copy::mirror(train, &job, &workload(), ORIGIN);
    assert_eq!(mirror.data["spec"]["runtimePatches"], json!([{"manager": "mine"}]));
    let wrapper = Adapter::of("workload.codeflare.dev/v1beta2", "AppWrapper").expect("a known kind");
    let annotation = "workload.codeflare.dev.appwrapper/successTTLDuration";
    let job = object(json!({"metadata": {"name": "a", "annotations": {annotation: "1s"}}, "spec": {}}));
    let mirror = copy::mirror(wrapper, &job, &workload(), ORIGIN);
    assert!(!mirror.metadata.annotations.expect("annotations").contains_key(annotation));
}

/// MK-ADP-09: a RayJob that deletes itself when it has ended was gone before its end was recorded, and ran again.
#[test]
fn mk_adp_09_a_mirror_does_not_delete_itself() {
    let ray = Adapter::of("ray.io/v1", "RayJob").expect("a known kind");
    let rule =
        |policy: &str| json!({"policy": policy, "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 5}});
    let legacy = |success: &str, failure: &str| json!({"onSuccess": {"policy": success}, "onFailure": {"policy": failure}});
    for (strategy, expected) in [
        (json!({"deletionRules": [rule("DeleteSelf")]}), json!(null)),
        (
            json!({"deletionRules": [rule("DeleteWorkers"), rule("DeleteSelf")]}),
            json!({"deletionRules": [rule("DeleteWorkers")]}),
        ),
        (legacy("DeleteSelf", "DeleteNone"), legacy("DeleteCluster", "DeleteNone")),
        (legacy("DeleteWorkers", "DeleteSelf"), legacy("DeleteWorkers", "DeleteCluster")),
        (legacy("DeleteCluster", "DeleteNone"), legacy("DeleteCluster", "DeleteNone")),
    ] {
        let spec = json!({"entrypoint": "e", "deletionStrategy": strategy});
        let job = object(json!({"metadata": {"name": "r"}, "spec": spec}));
        let mirror = copy::mirror(ray, &job, &workload(), ORIGIN);
        assert_eq!(mirror.data["spec"]["entrypoint"], "e");
        let left = mirror.data["spec"].get("deletionStrategy").cloned().unwrap_or_default();
        assert_eq!(left, expected, "{strategy}");
    }
}

/// MK-FLOW-03.
#[test]
fn owners() {
    let of = |workload: &types::kueue::Workload| {
        Owner::of(workload).map(|owner| format!("{} {}", owner.kind, owner.name))
    };
    let mut workload = workload();
    assert_eq!(of(&workload).as_deref(), Some("Job j"));
    // Another one of that name is another one.
    let owner = Owner::of(&workload).expect("an owner");
    let job = |uid: &str| object(json!({"metadata": {"name": "j", "uid": uid}}));
    let uid = owner.uid.clone().expect("a uid");
    assert_eq!((owner.is(&job(&uid)), owner.is(&job("other"))), (true, false));
    workload.metadata.annotations = Some(
        [("kueue.x-k8s.io/job-owner-gvk", "/v1, Kind=Pod"), ("kueue.x-k8s.io/job-owner-name", "p")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    );
    assert_eq!(of(&workload).as_deref(), Some("Pod p"));
    workload.metadata.annotations = None;
    workload.metadata.owner_references.as_mut().expect("owners")[0].controller = None;
    assert_eq!(of(&workload).as_deref(), Some("Job j"));
    workload.metadata.owner_references = None;
    assert_eq!(of(&workload), None);
}
