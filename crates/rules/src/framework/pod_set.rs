//! What is put into a pod template when its Job starts, and what it looked like before.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSchedulingGate, PodTemplateSpec, Toleration};
use types::kueue::{PodSet, PodSetAssignment, PodSetUpdate, ResourceFlavor, Workload};

use super::{
    CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL, POD_SET_LABEL, TOPOLOGY_GATE, UNCONSTRAINED_TOPOLOGY,
    WORKER_POD_LABEL, WORKLOAD_ANNOTATION,
};
use crate::{
    names,
    workload::{
        ORIGIN_LABEL,
        slice::{self, SLICE_NAME},
        state,
    },
};

type Map = BTreeMap<String, String>;

/// The parts of a pod template that change when a Job starts or stops.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodSetInfo {
    /// Which pod set.
    pub name: String,
    /// How many pods.
    pub count: i32,
    /// Annotations.
    pub annotations: Map,
    /// Labels.
    pub labels: Map,
    /// Labels that nodes must have.
    pub node_selector: Map,
    /// Taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// What keeps pods from being scheduled.
    pub scheduling_gates: Vec<PodSchedulingGate>,
}

/// A template wants one thing and its queue another, so that the Job can never start (JF-51).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict(pub String);

impl Conflict {
    /// A Workload speaks of more or fewer kinds of pods than its Job has.
    pub fn of_lengths(expected: usize, got: usize) -> Conflict {
        Conflict(format!("invalid podset infos: expecting {expected} podset, got {got}"))
    }
}

/// Why it cannot be told what a Job's pods are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// A flavor that does not exist, or not yet.
    Flavor(String),
    /// A contradiction, which waiting does not solve.
    Conflict(Conflict),
}

impl PodSetInfo {
    /// What a pod set looked like before its Job started.
    pub fn original(pod_set: &PodSet) -> PodSetInfo {
        let metadata = pod_set.template.metadata.clone().unwrap_or_default();
        let spec = pod_set.template.spec.clone().unwrap_or_default();
        PodSetInfo {
            name: pod_set.name().to_owned(),
            count: pod_set.count,
            annotations: metadata.annotations.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            node_selector: spec.node_selector.unwrap_or_default(),
            tolerations: spec.tolerations.unwrap_or_default(),
            scheduling_gates: spec.scheduling_gates.unwrap_or_default(),
        }
    }

    /// Adds what `other` says, unless it contradicts.
    fn merge(&mut self, other: &PodSetInfo) -> Result<(), Conflict> {
        let check = |what: &str, mine: &Map, others: &Map| {
            let differs = mine.iter().find(|(key, value)| others.get(*key).is_some_and(|it| it != *value));
            differs.map_or(Ok(()), |(key, value)| {
                Err(Conflict(format!(
                    "invalid admission check PodSetUpdate: conflict for {what}: conflict for key={key}, value1={value}, value2={}",
                    others[key]
                )))
            })
        };
        check("annotations", &self.annotations, &other.annotations)?;
        check("labels", &self.labels, &other.labels)?;
        check("nodeSelector", &self.node_selector, &other.node_selector)?;
        self.annotations.extend(other.annotations.clone());
        self.labels.extend(other.labels.clone());
        self.node_selector.extend(other.node_selector.clone());
        add_new(&mut self.tolerations, &other.tolerations);
        add_new(&mut self.scheduling_gates, &other.scheduling_gates);
        Ok(())
    }

    /// Adds what this says to a template (JF-51).
    pub fn merge_into(&self, template: &mut PodTemplateSpec) -> Result<(), Conflict> {
        let mut merged = PodSetInfo::of(template);
        merged.merge(self)?;
        merged.restore(template);
        Ok(())
    }

    fn of(template: &PodTemplateSpec) -> PodSetInfo {
        PodSetInfo::original(&PodSet { template: template.clone().into(), ..PodSet::default() })
    }

    /// Makes a template what this says (JF-54).
    pub fn restore(&self, template: &mut PodTemplateSpec) {
        // What was absent and is empty stays absent.
        fn put<T: Clone + PartialEq + Default>(into: &mut Option<T>, value: &T) {
            if into.as_ref().unwrap_or(&T::default()) != value {
                *into = Some(value.clone()).filter(|value| *value != T::default());
            }
        }
        let metadata = template.metadata.get_or_insert_default();
        put(&mut metadata.annotations, &self.annotations);
        put(&mut metadata.labels, &self.labels);
        let spec = template.spec.get_or_insert_default();
        put(&mut spec.node_selector, &self.node_selector);
        put(&mut spec.tolerations, &self.tolerations);
        put(&mut spec.scheduling_gates, &self.scheduling_gates);
    }
}

fn add_new<T: Clone + PartialEq>(into: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !into.contains(item) {
            into.push(item.clone());
        }
    }
}

/// What the pods of a Workload that holds quota are given (JF-50).
pub fn given<F>(workload: &Workload, flavor: F) -> Result<Vec<PodSetInfo>, Missing>
where
    F: Fn(&str) -> Option<std::sync::Arc<ResourceFlavor>>,
{
    let Some(status) = &workload.status else { return Ok(Vec::new()) };
    let Some(admission) = &status.admission else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for (assigned, pod_set) in admission.pod_set_assignments.iter().zip(&workload.spec.pod_sets) {
        let mut info = from_assignment(assigned, pod_set, &flavor)?;
        let name = workload.metadata.name.clone().unwrap_or_default();
        info.annotations.insert(WORKLOAD_ANNOTATION.to_owned(), name);
        if let Some(first) = slice::name(workload) {
            info.annotations.insert(SLICE_NAME.to_owned(), first.to_owned());
        }
        info.labels.insert(POD_SET_LABEL.to_owned(), assigned.name.clone());
        if workload.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(ORIGIN_LABEL)) {
            info.labels.insert(WORKER_POD_LABEL.to_owned(), "true".to_owned());
        }
        info.labels.insert(LOCAL_QUEUE_LABEL.to_owned(), state::queue_name(workload).to_owned());
        if names::dns_label(&admission.cluster_queue).is_empty() {
            info.labels.insert(CLUSTER_QUEUE_LABEL.to_owned(), admission.cluster_queue.clone());
        }
        for check in &status.admission_checks {
            if let Some(update) = check.pod_set_updates.iter().find(|update| update.name == info.name) {
                info.merge(&from_update(update)).map_err(|Conflict(why)| {
                    let check = types::go::quote(&check.name);
                    Missing::Conflict(Conflict(format!("in admission check {check}: {why}")))
                })?;
            }
        }
        all.push(info);
    }
    Ok(all)
}

/// What the flavors that a pod set of a Workload was given say about its pods, and nobody else.
pub fn of_flavors<F>(workload: &Workload, pod_set: &PodSet, flavor: F) -> Result<PodSetInfo, Missing>
where
    F: Fn(&str) -> Option<std::sync::Arc<ResourceFlavor>>,
{
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let mut assigned = admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    match assigned.find(|assigned| assigned.name == pod_set.name()) {
        Some(assigned) => from_assignment(assigned, pod_set, flavor),
        None => Ok(PodSetInfo { name: pod_set.name().to_owned(), ..PodSetInfo::default() }),
    }
}

fn from_assignment<F>(assigned: &PodSetAssignment, pod_set: &PodSet, flavor: F) -> Result<PodSetInfo, Missing>
where
    F: Fn(&str) -> Option<std::sync::Arc<ResourceFlavor>>,
{
    let mut info = PodSetInfo {
        name: assigned.name.clone(),
        count: assigned.count.unwrap_or(pod_set.count),
        ..PodSetInfo::default()
    };
    if assigned.topology_assignment.is_some() {
        let request = pod_set.topology_request.as_ref();
        let asked = request.is_some_and(|request| {
            request.required.is_some() || request.preferred.is_some() || request.unconstrained.is_some()
        });
        if !asked {
            info.annotations.insert(UNCONSTRAINED_TOPOLOGY.to_owned(), "true".to_owned());
        }
        info.scheduling_gates.push(PodSchedulingGate { name: TOPOLOGY_GATE.to_owned() });
    }
    let mut done: Vec<&String> = Vec::new();
    for name in assigned.flavors.values() {
        if done.contains(&name) {
            continue;
        }
        done.push(name);
        let flavor = flavor(name).ok_or_else(|| Missing::Flavor(name.clone()))?;
        info.node_selector.extend(flavor.spec.node_labels.clone());
        info.tolerations.extend(flavor.spec.tolerations.clone());
    }
    Ok(info)
}

fn from_update(update: &PodSetUpdate) -> PodSetInfo {
    PodSetInfo {
        annotations: update.annotations.clone(),
        labels: update.labels.clone(),
        node_selector: update.node_selector.clone(),
        tolerations: update.tolerations.clone(),
        ..PodSetInfo::default()
    }
}
