//! What a write of a pod takes from the client, what it keeps from the stored pod, and what it adds.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodAffinityTerm, PodCondition, PodStatus, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, Time};

use super::{gates, profiles, qos};
use crate::field::Path;
use crate::meta;

const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const SCHEDULED: &str = "PodScheduled";

/// A new pod starts as Pending, whatever the client says, and says so if it has to wait for its gates (3.5). What its
/// annotations mean stands in its fields from now on. Returns what to warn of.
pub fn for_create(pod: &mut Pod) -> Vec<String> {
    let class = qos::compute(pod.spec.as_ref()).to_owned();
    pod.status =
        Some(PodStatus { phase: Some("Pending".to_owned()), qos_class: Some(class), ..PodStatus::default() });
    gates::drop_disabled_from_pod(pod, None);
    let is_gated = pod
        .spec
        .as_ref()
        .is_some_and(|spec| spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()));
    if is_gated {
        let condition = PodCondition {
            reason: Some("SchedulingGated".to_owned()),
            message: Some("Scheduling is blocked due to non-empty scheduling gates".to_owned()),
            ..condition(SCHEDULED, "False")
        };
        let now = pod.metadata.creation_timestamp.clone();
        set_condition(pod.status.get_or_insert_default(), condition, now);
    }
    merge_label_keys(pod);
    app_armor_fields(pod)
}

/// A changed pod keeps its status.
pub fn for_update(new: &mut Pod, old: &Pod) {
    new.status.clone_from(&old.status);
    gates::drop_disabled_from_pod(new, Some(old));
}

/// A changed status keeps the spec and the owners; what it forgets to say is taken from before.
pub fn for_status(new: &mut Pod, old: &Pod) {
    new.spec.clone_from(&old.spec);
    new.metadata.deletion_timestamp.clone_from(&old.metadata.deletion_timestamp);
    new.metadata.owner_references.clone_from(&old.metadata.owner_references);
    let old_status = old.status.clone().unwrap_or_default();
    let status = new.status.get_or_insert_default();
    if status.qos_class.as_ref().is_none_or(String::is_empty) {
        status.qos_class = old_status.qos_class;
    }
    keep_observed_generations(status, old_status.observed_generation, old_status.conditions);
    // Behind gates that are off: InPlacePodLevelResourcesVerticalScaling, DRAExtendedResource, ResourceHealthStatus.
    if old_status.resources.is_none() && old_status.allocated_resources.is_none() {
        status.resources = None;
        status.allocated_resources = None;
    }
    if old_status.extended_resource_claim_status.is_none() {
        status.extended_resource_claim_status = None;
    }
    for statuses in [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ] {
        statuses.iter_mut().flatten().for_each(|status| status.allocated_resources_status = None);
    }
}

/// Nobody can take back which generation was seen, only say a new one.
fn keep_observed_generations(
    status: &mut PodStatus,
    old: Option<i64>,
    old_conditions: Option<Vec<PodCondition>>,
) {
    if status.observed_generation.unwrap_or(0) == 0 {
        status.observed_generation = old;
    }
    let mut before: BTreeMap<String, VecDeque<Option<i64>>> = BTreeMap::new();
    for old in old_conditions.into_iter().flatten() {
        before.entry(old.type_).or_default().push_back(old.observed_generation);
    }
    for condition in status.conditions.iter_mut().flatten() {
        let seen = before.get_mut(&condition.type_).and_then(VecDeque::pop_front).flatten();
        if condition.observed_generation.unwrap_or(0) == 0 {
            condition.observed_generation = seen;
        }
    }
}

/// A write of ephemeral containers changes nothing else of the spec.
pub fn for_ephemeral_containers(new: &mut Pod, old: &Pod) {
    let containers = new.spec.take().and_then(|spec| spec.ephemeral_containers);
    new.spec.clone_from(&old.spec);
    new.spec.get_or_insert_default().ephemeral_containers = containers;
    new.status.clone_from(&old.status);
    reset_metadata(new, old);
    gates::drop_disabled_from_pod(new, Some(old));
}

/// A resize changes resources of containers, and how they are changed. Containers that do not fit those of the stored
/// pod are left for validation to refuse.
pub fn for_resize(new: &mut Pod, old: &Pod) {
    let (mut wanted, stored) = (new.spec.take().unwrap_or_default(), old.spec.clone().unwrap_or_default());
    let stored_init = stored.init_containers.clone().unwrap_or_default();
    let wanted_init = wanted.init_containers.clone().unwrap_or_default();
    if wanted.containers.len() != stored.containers.len() || wanted_init.len() != stored_init.len() {
        new.spec = Some(wanted);
        return;
    }
    let containers = resized(std::mem::take(&mut wanted.containers), &stored.containers);
    let init_containers = resized(wanted_init, &stored_init);
    let mut spec = stored;
    spec.containers = containers;
    spec.init_containers = (!init_containers.is_empty()).then_some(init_containers);
    new.spec = Some(spec);
    new.status.clone_from(&old.status);
    reset_metadata(new, old);
    gates::drop_disabled_from_pod(new, Some(old));
}

fn resized(new: Vec<Container>, old: &[Container]) -> Vec<Container> {
    if new.iter().zip(old).any(|(new, old)| new.name != old.name) {
        return new;
    }
    let merge = |(new, old): (Container, &Container)| Container {
        resources: new.resources,
        resize_policy: new.resize_policy,
        ..old.clone()
    };
    new.into_iter().zip(old).map(merge).collect()
}

/// Subresources that are no status leave the metadata alone, but for who manages which fields.
fn reset_metadata(new: &mut Pod, old: &Pod) {
    let (new, old) = (&mut new.metadata, &old.metadata);
    new.deletion_timestamp.clone_from(&old.deletion_timestamp);
    new.generation = old.generation;
    new.self_link.clone_from(&old.self_link);
    new.labels.clone_from(&old.labels);
    new.annotations.clone_from(&old.annotations);
    new.finalizers.clone_from(&old.finalizers);
    new.owner_references.clone_from(&old.owner_references);
}

/// Why a pod cannot be bound to a node (2.76).
pub fn refuse_binding(pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref().unwrap_or("");
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let spec = pod.spec.as_ref()?;
    if let Some(node) = meta::non_empty(spec.node_name.as_ref()) {
        return Some(format!("pod {name} is already assigned to node {}", types::go::quote(node)));
    }
    let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    is_gated.then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

/// Binds a pod to a node. Labels and annotations of the binding go over to the pod.
pub fn bind(pod: &mut Pod, node: &str, binding: &meta::Map, labels: &meta::Map, now: Time) {
    pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.extend(binding.iter().map(|(key, value)| (key.clone(), value.clone())));
    if !labels.is_empty() {
        let own = pod.metadata.labels.get_or_insert_default();
        own.extend(labels.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    let status = pod.status.get_or_insert_default();
    status.nominated_node_name = None;
    set_condition(status, condition(SCHEDULED, "True"), Some(now));
}

/// Notes on a pod that it goes because somebody evicted it.
pub fn mark_evicted(pod: &mut Pod, now: Time) {
    let condition = PodCondition {
        reason: Some("EvictionByEvictionAPI".to_owned()),
        message: Some("Eviction API: evicting".to_owned()),
        ..condition("DisruptionTarget", "True")
    };
    set_condition(pod.status.get_or_insert_default(), condition, Some(now));
}

fn condition(kind: &str, status: &str) -> PodCondition {
    PodCondition { type_: kind.to_owned(), status: status.to_owned(), ..PodCondition::default() }
}

/// Sets a condition; the time of a change is when the status became another one.
fn set_condition(status: &mut PodStatus, mut condition: PodCondition, now: Option<Time>) {
    let conditions = status.conditions.get_or_insert_default();
    let Some(known) = conditions.iter_mut().find(|known| known.type_ == condition.type_) else {
        condition.last_transition_time = now;
        conditions.push(condition);
        return;
    };
    condition.last_transition_time =
        if known.status == condition.status { known.last_transition_time.clone() } else { now };
    *known = condition;
}

/// Label keys of affinity and spread stand for the pod's own labels, and become part of the selectors.
fn merge_label_keys(pod: &mut Pod) {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let Some(spec) = &mut pod.spec else { return };
    if let Some(affinity) = &mut spec.affinity {
        terms(affinity).for_each(|term| {
            let selector = term.label_selector.as_mut();
            merge(selector, term.match_label_keys.as_deref(), "In", &labels);
            merge(term.label_selector.as_mut(), term.mismatch_label_keys.as_deref(), "NotIn", &labels);
        });
    }
    for constraint in spec.topology_spread_constraints.iter_mut().flatten() {
        merge(constraint.label_selector.as_mut(), constraint.match_label_keys.as_deref(), "In", &labels);
    }
}

fn terms(affinity: &mut Affinity) -> impl Iterator<Item = &mut PodAffinityTerm> {
    let near = affinity.pod_affinity.iter_mut().flat_map(|near| {
        let preferred = near.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
        let required = near.required_during_scheduling_ignored_during_execution.iter_mut().flatten();
        preferred.map(|term| &mut term.pod_affinity_term).chain(required)
    });
    let far = affinity.pod_anti_affinity.iter_mut().flat_map(|far| {
        let preferred = far.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
        let required = far.required_during_scheduling_ignored_during_execution.iter_mut().flatten();
        preferred.map(|term| &mut term.pod_affinity_term).chain(required)
    });
    near.chain(far)
}

fn merge(selector: Option<&mut LabelSelector>, keys: Option<&[String]>, operator: &str, labels: &meta::Map) {
    let Some(selector) = selector else { return };
    for key in keys.into_iter().flatten() {
        if let Some(value) = labels.get(key) {
            selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            });
        }
    }
}

/// Profiles that stand in annotations, as they did before they had fields, are copied to the fields.
fn app_armor_fields(pod: &mut Pod) -> Vec<String> {
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let Some(spec) = &mut pod.spec else { return Vec::new() };
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return Vec::new();
    }
    let of_pod = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.clone());
    let mut warnings = Vec::new();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let key = format!("{APP_ARMOR_PREFIX}{}", container.name);
        let Some(annotation) = annotations.get(&key) else { continue };
        let context = container.security_context.as_ref();
        if context.is_some_and(|context| context.app_armor_profile.is_some()) {
            continue;
        }
        let profile = profiles::app_armor_from_annotation(annotation)
            .filter(|profile| profiles::app_armor(Some(profile), &Path::root()).is_empty());
        let is_new = profile.is_some() && profile != of_pod;
        if profile.is_none() || is_new {
            let at = Path::new("metadata").child("annotations").key(&key);
            warnings.push(format!("{at}: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
        }
        if is_new {
            let context: &mut SecurityContext = container.security_context.get_or_insert_default();
            context.app_armor_profile = profile;
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a test's pod")
    }

    fn created(value: Value) -> Value {
        let mut pod = pod(value);
        for_create(&mut pod);
        serde_json::to_value(pod).expect("a pod is JSON")
    }

    #[test]
    fn rule_3_5_a_pod_starts_pending() {
        let got =
            created(json!({"metadata": {}, "spec": {"containers": []}, "status": {"phase": "Running"}}));
        assert_eq!(got["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        let got = created(json!({"metadata": {"creationTimestamp": "2025-01-01T00:00:00Z"},
            "spec": {"containers": [], "schedulingGates": [{"name": "g"}]}}));
        assert_eq!(got["status"]["conditions"][0]["reason"], "SchedulingGated");
        assert_eq!(got["status"]["conditions"][0]["lastTransitionTime"], "2025-01-01T00:00:00Z");
    }

    #[test]
    fn label_keys_become_part_of_selectors() {
        let got = created(json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {}, "matchLabelKeys": ["a", "b"]}]}}));
        assert_eq!(
            got["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"],
            json!([{"key": "a", "operator": "In", "values": ["1"]}])
        );
    }

    #[test]
    fn rule_2_76_bindings() {
        let bound = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": "n"}}));
        assert_eq!(refuse_binding(&bound).as_deref(), Some("pod p is already assigned to node \"n\""));
        let gated = pod(
            json!({"metadata": {"name": "p"}, "spec": {"containers": [], "schedulingGates": [{"name": "g"}]}}),
        );
        assert_eq!(refuse_binding(&gated).as_deref(), Some("pod p has non-empty .spec.schedulingGates"));
        let mut free = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": []}}));
        assert_eq!(refuse_binding(&free), None);
        let now = Time("2025-01-01T00:00:00Z".parse().expect("a time"));
        bind(&mut free, "n", &meta::Map::from([("k".to_owned(), "v".to_owned())]), &meta::Map::new(), now);
        let free = serde_json::to_value(free).expect("a pod is JSON");
        assert_eq!(free["spec"]["nodeName"], "n");
        assert_eq!(free["metadata"]["annotations"], json!({"k": "v"}));
        assert_eq!(free["status"]["conditions"][0]["status"], "True");
    }

    #[test]
    fn what_a_status_write_keeps() {
        let old =
            pod(json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeName": "n"}, "status":
            {"qosClass": "Burstable", "observedGeneration": 3,
             "conditions": [{"type": "Ready", "status": "False", "observedGeneration": 2}]}}));
        let mut new =
            pod(json!({"metadata": {"name": "p", "labels": {"l": "1"}}, "spec": {"containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}));
        for_status(&mut new, &old);
        let new = serde_json::to_value(new).expect("a pod is JSON");
        assert_eq!(new["spec"]["nodeName"], "n");
        assert_eq!(new["metadata"]["labels"]["l"], "1");
        assert_eq!(new["status"]["qosClass"], "Burstable");
        assert_eq!(new["status"]["observedGeneration"], 3);
        assert_eq!(new["status"]["conditions"][0]["observedGeneration"], 2);
    }
}
