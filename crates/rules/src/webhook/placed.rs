//! What webhooks say to Jobs of other kinds about where their pods are to be (TA-9).

use serde_json::{Value, json};

use super::job::Surroundings;
use super::*;
use crate::framework::custom::ALL;

const PREFIX: &str = "kueue.x-k8s.io/podset-";

/// A pod template that asks for something.
fn template(asked: &[(&str, &str)]) -> Value {
    let annotations: serde_json::Map<String, Value> =
        asked.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
    json!({ "metadata": { "annotations": annotations }, "spec": { "containers": [] } })
}

fn said(kind: &str, spec: &Value, runtime: Option<Value>) -> Vec<String> {
    let shape = ALL.iter().find(|shape| shape.kind.kind == kind).expect("a known kind");
    let object =
        json!({ "metadata": { "name": "x", "labels": { "kueue.x-k8s.io/queue-name": "q" } }, "spec": spec });
    let runtime = runtime.map(|runtime| Arc::new(serde_json::from_value(runtime).expect("an object")));
    let review = Review {
        kind: Kind::Custom(shape),
        object: &object,
        old: None,
        around: Surroundings::default(),
        runtime: runtime.as_ref(),
    };
    let (errors, _) = validate(&review).expect("an object of its kind");
    errors.iter().map(|error| error.to_string().replace(PREFIX, "")).collect()
}

fn replicated(jobs: &[(&str, i32, Value)]) -> Value {
    let job = |(name, replicas, template): &(&str, i32, Value)| json!({ "name": name, "replicas": replicas, "template": { "spec": { "template": template } } });
    json!({ "replicatedJobs": jobs.iter().map(job).collect::<Vec<_>>() })
}

/// The kinds, each with a template of three pods in its second place, and where that is. `None` is the first place.
fn kinds(asked: &[(&str, &str)]) -> Vec<(&'static str, Value, Option<Value>, String)> {
    let (first, second) = (template(&[]), template(asked));
    let roles = |field: &str, roles: [&str; 2]| json!({ field: { roles[0]: { "template": first }, roles[1]: { "replicas": 3, "template": second } } });
    let ray = json!({
        "headGroupSpec": { "template": first },
        "workerGroupSpecs": [{ "groupName": "w", "replicas": 3, "template": second }],
    });
    let jobs = replicated(&[("a", 1, first.clone()), ("b", 3, second.clone())]);
    let wrapped = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": jobs });
    let runtime = json!({ "metadata": { "name": "r" }, "spec": { "template": { "spec": jobs } } });
    let mut all = vec![
        (
            "JobSet",
            jobs,
            None,
            "spec.replicatedJobs[1].template.spec.template.metadata.annotations".to_owned(),
        ),
        (
            "RayCluster",
            ray.clone(),
            None,
            "spec.workerGroupSpecs[0].template.metadata.annotations".to_owned(),
        ),
        (
            "RayJob",
            json!({ "shutdownAfterJobFinishes": true, "rayClusterSpec": ray }),
            None,
            "spec.rayClusterSpec.workerGroupSpecs[0].template.metadata.annotations".to_owned(),
        ),
        (
            "RayService",
            json!({ "rayClusterConfig": ray }),
            None,
            "spec.rayClusterConfig.workerGroupSpecs[0].template.metadata.annotations".to_owned(),
        ),
        (
            "TrainJob",
            json!({ "runtimeRef": { "name": "r" } }),
            Some(runtime),
            "job[b].annotations".to_owned(),
        ),
        (
            "AppWrapper",
            json!({ "components": [{ "template": wrapped }] }),
            None,
            "spec.components[0].template.spec.replicatedJobs[1].template.spec.template.metadata.annotations"
                .to_owned(),
        ),
    ];
    for (kind, field, names) in [
        ("MPIJob", "mpiReplicaSpecs", ["Launcher", "Worker"]),
        ("PyTorchJob", "pytorchReplicaSpecs", ["Master", "Worker"]),
        ("TFJob", "tfReplicaSpecs", ["Chief", "PS"]),
        ("XGBoostJob", "xgbReplicaSpecs", ["Master", "Worker"]),
        ("PaddleJob", "paddleReplicaSpecs", ["Master", "Worker"]),
        ("JAXJob", "jaxReplicaSpecs", ["Other", "Worker"]),
    ] {
        let path = format!("spec.{field}[{}].template.metadata.annotations", names[1]);
        all.push((kind, roles(field, names), None, path));
    }
    all
}

#[test]
fn ta_9_what_templates_of_other_kinds_ask_for_can_be_read() {
    assert_eq!(kinds(&[]).len(), ALL.len(), "every kind");
    for (asked, error) in [
        (
            &[("unconstrained-topology", "yes")][..],
            "[unconstrained-topology]: Invalid value: \"yes\": must be a boolean value",
        ),
        (
            &[("slice-required-topology", "rack")],
            "[slice-size]: Required value: must be set when 'slice-required-topology' is specified",
        ),
        (
            &[("slice-required-topology", "rack"), ("slice-size", "4")],
            "[slice-size]: Invalid value: \"4\": must not be greater than pod set count 3",
        ),
        (
            &[("required-topology", "a"), ("preferred-topology", "b")],
            ": Invalid value: must not contain more than one topology annotation: [\"required-topology\", \"preferred-topology\", \"unconstrained-topology\"]",
        ),
        (&[("required-topology", "rack"), ("slice-required-topology", "host"), ("slice-size", "3")], ""),
    ] {
        for (kind, spec, runtime, path) in kinds(asked) {
            let advice = if kind == "TrainJob" {
                ". Adjust either the \"TrainJob.spec.runtimePatches\" or the \"TrainingRuntime.Template\" annotations for the corresponding Job"
            } else {
                ""
            };
            let expected = if error.is_empty() { vec![] } else { vec![format!("{path}{error}{advice}")] };
            assert_eq!(said(kind, &spec, runtime), expected, "{kind}");
        }
    }
    let without = said("TrainJob", &json!({ "runtimeRef": { "name": "r" } }), None);
    assert_eq!(without, [""; 0], "its runtime may come later");
}

#[test]
fn ta_9_two_of_a_job_set_go_together() {
    let asks = || template(&[("group-name", "g"), ("required-topology", "rack")]);
    let together = |jobs: &[(&str, i32, Value)]| said("JobSet", &replicated(jobs), None);
    assert_eq!(together(&[("a", 1, asks()), ("b", 3, asks())]), [""; 0]);
    let three = together(&[("a", 1, asks()), ("b", 3, asks()), ("c", 1, asks())]);
    let why = |index: usize| {
        format!(
            "spec.replicatedJobs[{index}].template.spec.template.metadata.annotations[group-name]: \
             Invalid value: \"g\": can only define groups of exactly 2 pod sets, got: 3 pod set(s)"
        )
    };
    assert_eq!(three, [why(0), why(1), why(2)]);
    // Kueue does not ask this of Kubeflow's roles.
    let role = || json!({ "replicas": 2, "template": asks() });
    let of = |field: &str, roles: Value| json!({ field: roles });
    let pytorch = of("pytorchReplicaSpecs", json!({ "Master": role(), "Worker": role() }));
    assert_eq!(said("PyTorchJob", &pytorch, None), [""; 0]);
    let mpi = of("mpiReplicaSpecs", json!({ "Launcher": role(), "Worker": role() }));
    assert_eq!(said("MPIJob", &mpi, None).len(), 2);
}
