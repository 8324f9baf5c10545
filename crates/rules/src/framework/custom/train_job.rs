//! TrainJobs: their pods come from a runtime, patched by several managers, of whom we are one.

use kube_core::DynamicObject;
use serde_json::{Value, json};

use super::{
    super::PodSetInfo,
    json::{count, set, text},
    places::{self, Place},
};

/// Under this name we patch a TrainJob's runtime.
pub const PATCH_MANAGER: &str = "kueue.x-k8s.io/manager";
const ANCESTOR: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
const TRAINER: &str = "trainer";
const NODE: &str = "node";
/// Lists whose items are found by a field, and that field.
const KEYED: [(&str, &str); 7] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("env", "name"),
    ("volumes", "name"),
    ("volumeMounts", "mountPath"),
    ("imagePullSecrets", "name"),
    ("schedulingGates", "name"),
];

/// The kind and name of the runtime that a TrainJob refers to.
pub fn runtime_reference(object: &Value) -> (&str, &str) {
    let kind = Some(text(object, "/spec/runtimeRef/kind")).filter(|kind| !kind.is_empty());
    (kind.unwrap_or("ClusterTrainingRuntime"), text(object, "/spec/runtimeRef/name"))
}

/// The pods of the JobSet that Trainer makes of a TrainJob.
pub(super) fn places(object: &Value, runtime: Option<&DynamicObject>) -> Result<Vec<Place>, String> {
    let (_, name) = runtime_reference(object);
    let runtime = runtime.ok_or_else(|| format!("runtime '{name}' not found"))?;
    let spec = &runtime.data["spec"];
    let jobs = spec.pointer("/template/spec/replicatedJobs").and_then(Value::as_array);
    let mut jobs = jobs.cloned().unwrap_or_default();
    for job in &mut jobs {
        patch(job, object);
        fill(job, object, spec);
    }
    places::replicated_jobs(&Value::Array(jobs), "")
}

/// What the TrainJob's managers say to a Job of its runtime.
fn patch(job: &mut Value, object: &Value) {
    let name = job["name"].clone();
    let patches = object.pointer("/spec/runtimePatches").and_then(Value::as_array);
    for by in patches.into_iter().flatten() {
        let patched =
            by.pointer("/trainingRuntimeSpec/template/spec/replicatedJobs").and_then(Value::as_array);
        for change in patched.into_iter().flatten().filter(|change| change["name"] == name) {
            if let Some(template) = change.get("template") {
                merge(&mut job["template"], template);
            }
        }
    }
}

/// A strategic merge, as far as Trainer lets a runtime be patched.
fn merge(into: &mut Value, patch: &Value) {
    let (Value::Object(fields), Value::Object(changes)) = (&mut *into, patch) else {
        *into = patch.clone();
        return;
    };
    for (name, change) in changes {
        let there = fields.entry(name.clone()).or_insert(Value::Null);
        let key = KEYED.iter().find(|(list, _)| list == name).map(|(_, key)| *key);
        match (there, change, key) {
            (Value::Array(items), Value::Array(changes), Some(key)) => {
                for change in changes {
                    match items.iter_mut().find(|item| item[key] == change[key]) {
                        Some(item) => merge(item, change),
                        None => items.push(change.clone()),
                    }
                }
            }
            (there, change, _) => merge(there, change),
        }
    }
}

/// What the TrainJob itself says to a Job of its runtime: how many nodes there are, and what each of them runs.
fn fill(job: &mut Value, object: &Value, runtime: &Value) {
    let trainer = object.pointer("/spec/trainer").unwrap_or(&Value::Null);
    let policy = runtime.get("mlPolicy").filter(|policy| !policy.is_null());
    let step = job["template"]["metadata"]["labels"][ANCESTOR].as_str().unwrap_or_default().to_owned();
    let mpi = policy.and_then(|policy| policy.get("mpi")).filter(|mpi| !mpi.is_null());
    let leads = mpi.is_some_and(|mpi| mpi["runLauncherAsNode"] == true);
    let of_nodes = mpi.is_some() && job["name"] == NODE;
    let mut nodes = count(&job["template"]["spec"], "/parallelism").unwrap_or(1);
    if step == TRAINER
        && let Some(policy) = policy
    {
        nodes = count(policy, "/numNodes").unwrap_or(1);
    }
    if let Some(asked) = count(trainer, "/numNodes").filter(|_| policy.is_some()) {
        if of_nodes {
            nodes = if leads { (asked - 1).max(1) } else { asked };
        } else if step == TRAINER && mpi.is_none() {
            nodes = asked;
        }
    }
    set(job, "/template/spec/parallelism", json!(nodes));
    set(job, "/template/spec/completions", json!(nodes));
    let prepares = matches!(step.as_str(), "dataset-initializer" | "model-initializer");
    if step == TRAINER || prepares {
        job["replicas"] = json!(1);
    }
    let containers = job.pointer_mut("/template/spec/template/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        let is_node = container["name"] == NODE;
        if is_node && step == TRAINER {
            for field in ["image", "command", "args"] {
                if let Some(said) = trainer.get(field) {
                    container[field] = said.clone();
                }
            }
        }
        if is_node && (step == TRAINER || leads && of_nodes) {
            if let Some(resources) = trainer.get("resourcesPerNode") {
                container["resources"] = resources.clone();
            }
            add_env(container, trainer.get("env"));
        }
        if prepares && container["name"] == *step {
            let of = if step.starts_with("dataset") { "dataset" } else { "model" };
            prepare(container, object.pointer(&format!("/spec/initializer/{of}")));
        }
    }
}

/// What a container that fetches data is told.
fn prepare(container: &mut Value, said: Option<&Value>) {
    let Some(said) = said else { return };
    if let Some(uri) = said.get("storageUri") {
        add_env(container, Some(&json!([{ "name": "STORAGE_URI", "value": uri }])));
    }
    add_env(container, said.get("env"));
    if let Some(secret) = said.pointer("/secretRef/name") {
        let mut from = container["envFrom"].as_array().cloned().unwrap_or_default();
        from.push(json!({ "secretRef": { "name": secret } }));
        container["envFrom"] = json!(from);
    }
}

fn add_env(container: &mut Value, env: Option<&Value>) {
    if let Some(env) = env {
        if container["env"].is_null() {
            container["env"] = json!([]);
        }
        merge(container, &json!({ "env": env }));
    }
}

/// Writes down what the pods are given, in the patch that is ours.
pub(super) fn give(object: &mut Value, given: &[PodSetInfo]) {
    let jobs: Vec<Value> = given.iter().map(replicated_job).collect();
    let spec = json!({ "replicatedJobs": jobs });
    let ours = json!({
        "manager": PATCH_MANAGER, "trainingRuntimeSpec": { "template": { "spec": spec } },
    });
    let patches = patches(object);
    match patches.iter_mut().find(|patch| patch["manager"] == PATCH_MANAGER) {
        Some(there) => set(there, "/trainingRuntimeSpec/template/spec/replicatedJobs", json!(jobs)),
        None => patches.push(ours),
    }
}

fn replicated_job(given: &PodSetInfo) -> Value {
    let mut template = json!({ "metadata": {}, "spec": {} });
    let mut put = |part: &str, field: &str, value: Value| {
        let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty);
        if !is_empty {
            template[part][field] = value;
        }
    };
    put("metadata", "annotations", json!(given.annotations));
    put("metadata", "labels", json!(given.labels));
    put("spec", "nodeSelector", json!(given.node_selector));
    put("spec", "tolerations", json!(given.tolerations));
    put("spec", "schedulingGates", json!(given.scheduling_gates));
    json!({ "name": given.name, "template": { "spec": { "template": template } } })
}

/// Forgets what the pods were given.
pub(super) fn take(object: &mut Value) {
    let has_any = object.pointer("/spec/runtimePatches").is_some();
    if !has_any {
        return;
    }
    let ours = patches(object).iter_mut().find(|patch| patch["manager"] == PATCH_MANAGER);
    let spec = ours.and_then(|ours| ours.pointer_mut("/trainingRuntimeSpec/template/spec"));
    if let Some(spec) = spec.and_then(Value::as_object_mut) {
        spec.remove("replicatedJobs");
    }
}

fn patches(object: &mut Value) -> &mut Vec<Value> {
    if !object.pointer("/spec/runtimePatches").is_some_and(Value::is_array) {
        set(object, "/spec/runtimePatches", json!([]));
    }
    let list = object.pointer_mut("/spec/runtimePatches").and_then(Value::as_array_mut);
    list.expect("it was made a list where it was none")
}
