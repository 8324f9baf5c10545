//! Where the pod templates of a Job are, and what is put into them when it starts.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    super::{PodSetInfo, pod_set::Conflict, topology::Numbered},
    json::{count, set, text},
};

const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";
const JOB_INDEX_LABEL: &str = "jobset.sigs.k8s.io/job-index";
const REPLICA_INDEX_LABEL: &str = "training.kubeflow.org/replica-index";

/// A pod template of a Job, and for how many pods it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Place {
    /// The name of its pod set.
    pub(crate) name: String,
    /// The template.
    pub(crate) template: PodTemplateSpec,
    /// How many pods.
    pub(crate) count: i32,
    /// How many Jobs they are in, for kinds that are made of Jobs.
    pub(super) replicas: i32,
    /// The label that numbers the pods.
    pub(super) index_label: Option<String>,
    /// The label that numbers groups of them, and how many there are.
    pub(super) group_label: Option<String>,
    /// See above.
    pub(super) groups: Option<i32>,
    /// Where in the object it is.
    pub(crate) at: String,
}

impl Place {
    pub(super) fn numbered(&self) -> Numbered<'_> {
        Numbered {
            index_label: self.index_label.as_deref(),
            group_label: self.group_label.as_deref(),
            groups: self.groups,
        }
    }
}

/// The template that a value is.
pub(super) fn template(value: Option<&Value>, of: &str) -> Result<PodTemplateSpec, String> {
    let value = value.ok_or_else(|| format!("{of} has no pod template"))?;
    PodTemplateSpec::deserialize(value).map_err(|error| format!("the pod template of {of}: {error}"))
}

/// The pods of a JobSet (JF-16). `under` is where its list of Jobs is.
pub(super) fn replicated_jobs(jobs: &Value, under: &str) -> Result<Vec<Place>, String> {
    let jobs = jobs.as_array().map(Vec::as_slice).unwrap_or_default();
    let place = |(index, job): (usize, &Value)| {
        let name = text(job, "/name");
        let replicas = count(job, "/replicas").unwrap_or(1);
        let parallelism = count(job, "/template/spec/parallelism").unwrap_or(1);
        let at_once = parallelism.min(count(job, "/template/spec/completions").unwrap_or(parallelism));
        Ok(Place {
            name: name.to_lowercase(),
            template: template(job.pointer("/template/spec/template"), name)?,
            count: replicas.saturating_mul(at_once),
            replicas,
            index_label: Some(INDEX_LABEL.to_owned()),
            group_label: Some(JOB_INDEX_LABEL.to_owned()),
            groups: Some(replicas),
            at: format!("{under}/replicatedJobs/{index}/template/spec/template"),
        })
    };
    jobs.iter().enumerate().map(place).collect()
}

/// The pods of a Job that has roles, in the order that the kind gives them.
pub(super) fn roles(object: &Value, at: &str, roles: &[&str]) -> Result<Vec<Place>, String> {
    let found = roles.iter().filter_map(|role| {
        let at = format!("{at}/{role}");
        let spec = object.pointer(&at).filter(|spec| !spec.is_null())?;
        Some((role, at, spec))
    });
    let place = |(role, at, spec): (&&str, String, &Value)| {
        Ok(Place {
            name: role.to_lowercase(),
            template: template(spec.pointer("/template"), role)?,
            count: count(spec, "/replicas").unwrap_or(1),
            replicas: 1,
            index_label: Some(REPLICA_INDEX_LABEL.to_owned()),
            at: format!("{at}/template"),
            ..Place::default()
        })
    };
    found.map(place).collect()
}

/// Puts into the templates what their pods are given.
pub(super) fn give(object: &mut Value, places: &[Place], given: &[PodSetInfo]) -> Result<(), Conflict> {
    if places.len() != given.len() {
        return Err(Conflict::of_lengths(places.len(), given.len()));
    }
    for (place, info) in places.iter().zip(given) {
        let mut template = place.template.clone();
        info.merge_into(&mut template)?;
        if object.pointer(&place.at).is_none_or(Value::is_null) {
            set(object, &place.at, json!(place.template));
        }
        write(object, &place.at, &template);
    }
    Ok(())
}

/// Makes the templates what they were.
pub(super) fn take(object: &mut Value, places: &[Place], restored: &[PodSetInfo]) {
    if places.len() != restored.len() {
        return;
    }
    for (place, info) in places.iter().zip(restored) {
        let mut template = place.template.clone();
        info.restore(&mut template);
        write(object, &place.at, &template);
    }
}

/// Writes the parts of a template that change when a Job starts or stops, and no others.
fn write(object: &mut Value, at: &str, template: &PodTemplateSpec) {
    let template = json!(template);
    let parts = [
        ("metadata", "annotations"),
        ("metadata", "labels"),
        ("spec", "nodeSelector"),
        ("spec", "tolerations"),
        ("spec", "schedulingGates"),
    ];
    for (part, field) in parts {
        if let Some(value) = template[part].get(field) {
            set(object, &format!("{at}/{part}/{field}"), value.clone());
        } else if let Some(Value::Object(part)) = object.pointer_mut(&format!("{at}/{part}")) {
            part.remove(field);
        }
    }
}
