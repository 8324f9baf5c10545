//! AppWrappers: whole objects of other kinds, of which it is said, or can be told, where their pod templates are.

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use super::{
    super::{Finished, PodSetInfo, pod_set::Conflict},
    json::{condition, count, set, text},
    places::{Place, template},
};

const INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
const GROUP_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
const GROUPS: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";

/// The pods of all components.
pub(super) fn places(object: &Value, metadata: &ObjectMeta) -> Result<Vec<Place>, String> {
    let name = metadata.name.as_deref().unwrap_or_default();
    let mut places = Vec::new();
    for (index, (component, pod_sets)) in components(object).iter().zip(pod_sets(object)).enumerate() {
        for pod_set in &pod_sets {
            let path = pointer(text(pod_set, "/path"));
            let Some(raw) = component.pointer(&path) else { continue };
            let label = |key: &str| pod_set["annotations"][key].as_str().map(str::to_owned);
            places.push(Place {
                name: format!("{name}-{}", places.len()).to_lowercase(),
                template: relevant(&template(Some(raw), &path)?),
                count: count(pod_set, "/replicas").unwrap_or(1),
                replicas: 1,
                index_label: label(INDEX_LABEL),
                group_label: label(GROUP_LABEL),
                groups: label(GROUPS).and_then(|groups| groups.parse().ok()),
                at: format!("/spec/components/{index}{path}"),
            });
        }
    }
    Ok(places)
}

fn components(object: &Value) -> &[Value] {
    object.pointer("/spec/components").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The pod sets of every component: what its controller wrote down, else what the user says, else what can be told.
fn pod_sets(object: &Value) -> Vec<Vec<Value>> {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let components = components(object);
    let known = list(object.pointer("/status/componentStatus"));
    if known.len() == components.len() {
        return known.iter().map(|status| list(status.get("podSets"))).collect();
    }
    let of = |component: &Value| {
        let declared = list(component.get("podSets"));
        if declared.is_empty() { inferred(&component["template"]) } else { declared }
    };
    components.iter().map(of).collect()
}

/// The pod sets of an object of a kind that is known.
fn inferred(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    match (text(object, "/apiVersion"), text(object, "/kind")) {
        ("v1", "Pod") => vec![json!({ "path": "template", "replicas": 1 })],
        ("apps/v1", "Deployment" | "StatefulSet") => {
            let replicas = count(spec, "/replicas").unwrap_or(1);
            vec![json!({ "path": "template.spec.template", "replicas": replicas })]
        }
        ("batch/v1", "Job") => {
            let annotations = json!({ INDEX_LABEL: "batch.kubernetes.io/job-completion-index" });
            let replicas = at_once(spec);
            vec![
                json!({ "path": "template.spec.template", "replicas": replicas, "annotations": annotations }),
            ]
        }
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => {
            let jobs = spec["replicatedJobs"].as_array().map(Vec::as_slice).unwrap_or_default();
            let of = |(index, job): (usize, &Value)| {
                let replicas = count(job, "/replicas").unwrap_or(1);
                json!({
                    "path": format!("template.spec.replicatedJobs[{index}].template.spec.template"),
                    "replicas": replicas.saturating_mul(at_once(&job["template"]["spec"])),
                    "annotations": {
                        INDEX_LABEL: "batch.kubernetes.io/job-completion-index",
                        GROUP_LABEL: "jobset.sigs.k8s.io/job-index",
                        GROUPS: replicas.to_string(),
                    },
                })
            };
            jobs.iter().enumerate().map(of).collect()
        }
        ("kubeflow.org/v1", "PyTorchJob") => {
            let roles = ["Master", "Worker"].into_iter();
            let there = roles.filter(|role| spec["pytorchReplicaSpecs"][role].get("template").is_some());
            let of = |role: &str| {
                json!({
                    "path": format!("template.spec.pytorchReplicaSpecs.{role}.template"),
                    "replicas": count(&spec["pytorchReplicaSpecs"][role], "/replicas").unwrap_or(1),
                    "annotations": { INDEX_LABEL: "training.kubeflow.org/replica-index" },
                })
            };
            there.map(of).collect()
        }
        ("ray.io/v1", "RayCluster") => ray_cluster(spec, "template.spec"),
        ("ray.io/v1", "RayJob") => ray_cluster(&spec["rayClusterSpec"], "template.spec.rayClusterSpec"),
        _ => Vec::new(),
    }
}

/// How many pods of a Job run at once.
fn at_once(job: &Value) -> i32 {
    let parallelism = count(job, "/parallelism").unwrap_or(1);
    parallelism.min(count(job, "/completions").unwrap_or(parallelism))
}

fn ray_cluster(spec: &Value, under: &str) -> Vec<Value> {
    let mut found = vec![json!({ "path": format!("{under}.headGroupSpec.template"), "replicas": 1 })];
    let groups = spec["workerGroupSpecs"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, group) in groups.iter().enumerate() {
        let replicas = count(group, "/replicas").unwrap_or(1);
        let path = format!("{under}.workerGroupSpecs[{index}].template");
        found.push(json!({ "path": path, "replicas": replicas }));
    }
    found
}

/// A path like `template.spec.jobs[0].template` as a pointer.
fn pointer(path: &str) -> String {
    let parts = path.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    parts.fold(String::new(), |pointer, part| pointer + "/" + part)
}

/// Of a template that nobody has filled in, what matters for quota and for being told apart.
fn relevant(template: &PodTemplateSpec) -> PodTemplateSpec {
    let from = template.spec.clone().unwrap_or_default();
    let metadata = template.metadata.clone().map(|metadata| ObjectMeta {
        labels: metadata.labels,
        annotations: metadata.annotations,
        ..ObjectMeta::default()
    });
    let containers = |list: Vec<Container>| list.into_iter().map(relevant_container).collect::<Vec<_>>();
    let spec = PodSpec {
        init_containers: from.init_containers.map(containers),
        containers: containers(from.containers),
        restart_policy: Some(from.restart_policy.unwrap_or_else(|| "Always".to_owned())),
        node_selector: from.node_selector,
        affinity: from.affinity,
        scheduler_name: from.scheduler_name,
        tolerations: from.tolerations,
        priority_class_name: from.priority_class_name,
        overhead: from.overhead,
        topology_spread_constraints: from.topology_spread_constraints,
        ..PodSpec::default()
    };
    PodTemplateSpec { metadata, spec: Some(spec) }
}

fn relevant_container(from: Container) -> Container {
    let resources = from.resources.map(|asked| ResourceRequirements { claims: None, ..asked });
    Container {
        name: from.name,
        image: from.image,
        command: from.command,
        args: from.args,
        resources,
        ..Container::default()
    }
}

/// Writes down what the pods are given; the AppWrapper's controller puts it into the objects that it makes.
pub(super) fn give(object: &mut Value, given: &[PodSetInfo]) -> Result<(), Conflict> {
    let pod_sets = pod_sets(object);
    let expected = pod_sets.iter().map(Vec::len).sum();
    if expected != given.len() {
        return Err(Conflict::of_lengths(expected, given.len()));
    }
    let mut given = given.iter();
    for (index, pod_sets) in pod_sets.iter().enumerate() {
        let infos: Vec<Value> = given.by_ref().take(pod_sets.len()).map(info).collect();
        set(object, &format!("/spec/components/{index}/podSetInfos"), json!(infos));
    }
    Ok(())
}

fn info(given: &PodSetInfo) -> Value {
    json!({
        "annotations": given.annotations, "labels": given.labels, "nodeSelector": given.node_selector,
        "tolerations": given.tolerations, "schedulingGates": given.scheduling_gates,
    })
}

/// Forgets what the pods were given.
pub(super) fn take(object: &mut Value) {
    let components = object.pointer_mut("/spec/components").and_then(Value::as_array_mut);
    for component in components.into_iter().flatten().filter_map(Value::as_object_mut) {
        component.remove("podSetInfos");
    }
}

/// How an AppWrapper ended. One that failed is not at its end while something of it is still there.
pub(super) fn finished(object: &Value) -> Option<Finished> {
    let end = |success, message: &str| Some(Finished { success, message: message.to_owned() });
    match text(object, "/status/phase") {
        "Succeeded" => end(true, "AppWrapper finished successfully"),
        "Failed" if condition(object, "ResourcesDeployed") != Some("True") => end(false, "AppWrapper failed"),
        _ => None,
    }
}
