//! Kueue's objects between v1beta1 and v1beta2.
//!
//! v1beta2 is what is stored; v1beta1 is what older manifests and clients speak. Five kinds differ in more than the name
//! of the version (API-2); what one version cannot say is dropped on the way to it, as upstream drops it. An object is
//! JSON here, because whatever a version knows and this module does not is carried over as it is.

mod topology;

use serde_json::{Map, Value, json};

/// The group of everything that is converted here.
pub const GROUP: &str = "kueue.x-k8s.io";

/// A version of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// What older clients speak.
    V1beta1,
    /// What is stored.
    V1beta2,
}

impl Version {
    /// The version that `apiVersion` names, if it is one of this group.
    pub fn of(api_version: &str) -> Option<Self> {
        match api_version.strip_prefix(GROUP)?.strip_prefix('/')? {
            "v1beta1" => Some(Version::V1beta1),
            "v1beta2" => Some(Version::V1beta2),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Version::V1beta1 => "kueue.x-k8s.io/v1beta1",
            Version::V1beta2 => "kueue.x-k8s.io/v1beta2",
        }
    }
}

/// Why an object cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It names no version of this group.
    #[error(
        "{0:?} is not a version that can be converted: want kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2"
    )]
    UnknownVersion(String),
}

/// The same object as another version says it.
pub fn convert(object: &Value, to: Version) -> Result<Value, Error> {
    let named = object["apiVersion"].as_str().unwrap_or_default();
    let from = Version::of(named).ok_or_else(|| Error::UnknownVersion(named.to_owned()))?;
    let mut object = object.clone();
    object["apiVersion"] = json!(to.api_version());
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    match (from, to) {
        (Version::V1beta1, Version::V1beta2) => up(&kind, &mut object),
        (Version::V1beta2, Version::V1beta1) => down(&kind, &mut object),
        (Version::V1beta1, Version::V1beta1) | (Version::V1beta2, Version::V1beta2) => {}
    }
    Ok(object)
}

fn up(kind: &str, object: &mut Value) {
    match kind {
        "ClusterQueue" => cluster_queue_up(object),
        "Cohort" => drop_fair_sharing_usage(object),
        "LocalQueue" => {
            rename(object, "/status", "flavorUsage", "flavorsUsage");
            take(object, "/status", "flavors");
        }
        "MultiKueueCluster" => worker_up(object),
        "Workload" => workload_up(object),
        "AdmissionCheck" => {
            take(object, "/spec", "retryDelayMinutes");
        }
        _ => {}
    }
}

fn down(kind: &str, object: &mut Value) {
    match kind {
        "ClusterQueue" => {
            rename(object, "/spec", "cohortName", "cohort");
            take(object, "/spec", "concurrentAdmissionPolicy");
        }
        "LocalQueue" => rename(object, "/status", "flavorsUsage", "flavorUsage"),
        "MultiKueueCluster" => worker_down(object),
        "MultiKueueConfig" => {
            take(object, "/spec", "quotaManagement");
        }
        "Workload" => workload_down(object),
        _ => {}
    }
}

fn cluster_queue_up(object: &mut Value) {
    drop_fair_sharing_usage(object);
    take(object, "/status", "pendingWorkloadsStatus");
    rename(object, "/spec", "cohort", "cohortName");
    // Both forms may be given; the plain list wins.
    if let Some(Value::Array(names)) = take(object, "/spec", "admissionChecks")
        && !names.is_empty()
    {
        let rules: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
        object["spec"]["admissionChecksStrategy"] = json!({ "admissionChecks": rules });
    }
    for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        if let Some(choice) = object.pointer_mut(&format!("/spec/flavorFungibility/{field}"))
            && choice == old
        {
            *choice = json!("MayStopSearch");
        }
    }
}

/// Only LocalQueues say what was consumed in v1beta2.
fn drop_fair_sharing_usage(object: &mut Value) {
    take(object, "/status/fairSharing", "admissionFairSharingStatus");
}

fn worker_up(object: &mut Value) {
    let Some(spec) = object.pointer_mut("/spec").and_then(Value::as_object_mut) else { return };
    let config = spec.remove("kubeConfig");
    let config =
        config.filter(|config| config["location"].as_str().is_some_and(|location| !location.is_empty()));
    let profile = spec.remove("clusterProfileRef");
    let mut source = Map::new();
    source.extend(config.map(|config| ("kubeConfig".to_owned(), config)));
    source.extend(profile.map(|profile| ("clusterProfileRef".to_owned(), profile)));
    spec.insert("clusterSource".to_owned(), Value::Object(source));
}

fn worker_down(object: &mut Value) {
    let Some(mut source) = take(object, "/spec", "clusterSource") else { return };
    // v1beta1 always has a kubeConfig, an empty one if the cluster is found in another way.
    let empty = json!({ "location": "", "locationType": "" });
    object["spec"]["kubeConfig"] = take(&mut source, "", "kubeConfig").unwrap_or(empty);
    if let Some(profile) = take(&mut source, "", "clusterProfileRef") {
        object["spec"]["clusterProfileRef"] = profile;
    }
}

/// How v1beta1 names what a priority class is, and what v1beta2 calls its group and kind.
const PRIORITY_SOURCES: [(&str, &str, &str); 2] = [
    ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];

fn workload_up(object: &mut Value) {
    let name = take(object, "/spec", "priorityClassName");
    let source = take(object, "/spec", "priorityClassSource").unwrap_or_default();
    let known = PRIORITY_SOURCES.iter().find(|(old, _, _)| source == *old);
    if let Some((_, group, kind)) = known {
        let name = name.unwrap_or_else(|| json!(""));
        object["spec"]["priorityClassRef"] = json!({ "group": group, "kind": kind, "name": name });
    }
    rename(object, "/status", "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds");
    each_assignment(object, topology::fold);
}

fn workload_down(object: &mut Value) {
    take(object, "/spec", "preemptionGates");
    if let Some(reference) = take(object, "/spec", "priorityClassRef") {
        let known = PRIORITY_SOURCES
            .iter()
            .find(|(_, group, kind)| reference["group"] == *group && reference["kind"] == *kind);
        if let Some((source, _, _)) = known {
            object["spec"]["priorityClassSource"] = json!(source);
            object["spec"]["priorityClassName"] = reference["name"].clone();
        }
    }
    if let Some(Value::Array(pod_sets)) = object.pointer_mut("/spec/podSets") {
        for pod_set in pod_sets {
            take(pod_set, "/topologyRequest", "podsetSliceRequiredTopologyConstraints");
        }
    }
    rename(object, "/status", "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds");
    each_assignment(object, topology::unfold);
}

fn each_assignment(object: &mut Value, convert: fn(&Value) -> Value) {
    if let Some(Value::Array(assignments)) = object.pointer_mut("/status/admission/podSetAssignments") {
        for assignment in assignments {
            if let Some(topology) = assignment.get_mut("topologyAssignment") {
                *topology = convert(topology);
            }
        }
    }
}

/// Takes a field away from the object at `parent`, if both are there.
fn take(object: &mut Value, parent: &str, field: &str) -> Option<Value> {
    object.pointer_mut(parent)?.as_object_mut()?.remove(field)
}

fn rename(object: &mut Value, parent: &str, from: &str, to: &str) {
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut)
        && let Some(value) = fields.remove(from)
    {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
