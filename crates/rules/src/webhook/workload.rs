//! What a Workload must be, and what of it may change when, beyond what its definition says (WL-1 to WL-12).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use types::kueue::{
    Admission, AdmissionCheckState, CheckState, PodSet, PodSetTopologyRequest, ReclaimablePod, Workload,
};
use types::{Quantity, Shared};

use super::gates;
use super::queues::{not_negative, tolerations};
use crate::field::{Errors, Path, Value};
use crate::workload::{
    has_quota,
    slice::{REPLACEMENT_FOR, is_elastic},
    state,
};
use crate::{meta, semantic, wire};

/// What Go calls a time that is not set: the beginning of the year 1.
const NO_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// A new Workload.
pub fn create(new: &Workload) -> Errors {
    let mut errors = validate(new, None);
    errors.extend(gates::create(&new.metadata));
    errors
}

/// A changed Workload, whichever part of it was written.
pub fn update(new: &Workload, old: &Workload) -> Errors {
    let (mut errors, status) = (validate(new, Some(old)), Path::new("status"));
    if has_quota(old) {
        errors.extend(same_pod_sets(new, old, &Path::new("spec").child("podSets")));
    }
    errors.extend(update_but_for_pod_sets(new, old, &status));
    errors
}

/// The same of a Workload whose spec did not change. That of the old one is not looked at.
pub fn update_beside_spec(new: &Workload, old: &Workload) -> Errors {
    let mut errors = validate(new, Some(old));
    errors.extend(update_but_for_pod_sets(new, old, &Path::new("status")));
    errors
}

fn update_but_for_pod_sets(new: &Workload, old: &Workload, status: &Path) -> Errors {
    let mut errors = Errors::new();
    if has_quota(new) && has_quota(old) {
        errors.extend(reclaimed_grows(new, old, &status.child("reclaimablePods")));
    }
    errors.extend(same_admission(new, old, &status.child("admission")));
    errors.extend(same_pod_set_updates(new, old, &status.child("admissionChecks")));
    errors.extend(nominated(new, old, &status.child("clusterName")));
    errors.extend(gates::update(&new.metadata, &old.metadata));
    errors
}

/// What is accepted and should not be done.
pub fn warnings(new: &Workload) -> Vec<String> {
    let path = Path::new("spec").child("podSets");
    let counts = new.spec.pod_sets.iter().enumerate().filter_map(|(i, pod_set)| {
        let count = pod_set.topology_request.as_ref()?.sub_group_count.filter(|count| *count < 0)?;
        let path = path.index(i).child("topologyRequest").child("subGroupCount");
        Some(format!("{path}: negative value {count} is deprecated and will be rejected in a future release"))
    });
    counts.collect()
}

fn validate(new: &Workload, old: Option<&Workload>) -> Errors {
    let pod_sets = Path::new("spec").child("podSets");
    let mut errors = Errors::new();
    for (i, pod_set) in new.spec.pod_sets.iter().enumerate() {
        errors.extend(validate_pod_set(pod_set, &pod_sets.index(i)));
    }
    let variable = new.spec.pod_sets.iter().filter(|pod_set| pod_set.min_count.is_some()).count();
    if variable > 1 {
        errors.push(pod_sets.invalid(variable, "at most one podSet can use minCount"));
    }
    if variable > 0 && is_elastic(new) {
        let why = "partial admission and elastic job cannot be used together";
        errors.push(pod_sets.invalid(variable, why));
    }
    let status = Path::new("status");
    if has_quota(new) {
        errors.extend(validate_admission(new, old, &status.child("admission")));
    }
    errors.extend(validate_conditions(new, &status.child("conditions")));
    errors.extend(validate_reclaimable(new, old, &status.child("reclaimablePods")));
    let checks = new.status.iter().flat_map(|status| &status.admission_checks);
    for (i, check) in checks.enumerate() {
        let path = status.child("admissionChecks").index(i).child("podSetUpdates");
        errors.extend(validate_pod_set_updates(check, new, &path));
    }
    errors
}

fn validate_pod_set(pod_set: &PodSet, path: &Path) -> Errors {
    let template = path.child("template");
    let mut errors = Errors::new();
    if let Some(metadata) = &pod_set.template.metadata {
        let path = template.child("metadata");
        errors.extend(meta::labels(metadata.labels.as_ref(), &path.child("labels")));
        errors.extend(meta::annotations(metadata.annotations.as_ref(), &path.child("annotations")));
    }
    if let Some(spec) = &pod_set.template.spec {
        let path = template.child("spec");
        for (field, containers) in [
            ("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
            ("containers", &*spec.containers),
        ] {
            for (i, container) in containers.iter().enumerate() {
                errors.extend(validate_container(container, &path.child(field).index(i)));
            }
        }
        errors.extend(validate_resources(spec.resources.as_ref(), &path.child("resources")));
    }
    errors.extend(validate_slices(pod_set.topology_request.as_ref(), &path.child("topologyRequest")));
    errors
}

fn validate_container(container: &Container, path: &Path) -> Errors {
    validate_resources(container.resources.as_ref(), &path.child("resources"))
}

/// The name `pods` is Kueue's own, and nothing is asked for less than not at all (WL-8).
fn validate_resources(resources: Option<&ResourceRequirements>, path: &Path) -> Errors {
    let Some(resources) = resources else { return Errors::new() };
    let mut errors = Errors::new();
    for (field, list) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, amount) in list.iter().flatten() {
            let path = path.child(field).key(name);
            if name == "pods" {
                errors.push(path.invalid(name, "the key is reserved for internal kueue use"));
            }
            // What is no quantity is refused by the definition.
            if let Ok(amount) = amount.0.parse::<Quantity>() {
                errors.extend(not_negative(&amount, &path));
            }
        }
    }
    errors
}

/// The size and the domain of slices come together (WL-11).
fn validate_slices(request: Option<&PodSetTopologyRequest>, path: &Path) -> Errors {
    let Some(request) = request else { return Errors::new() };
    let mut errors = Errors::new();
    let size = path.child("podSetSliceSize");
    match (&request.pod_set_slice_required_topology, request.pod_set_slice_size) {
        (Some(_), None) => {
            errors.push(size.required("must be set when podSetSliceRequiredTopology is specified"));
        }
        (Some(_), Some(value)) if value <= 0 => errors.push(size.invalid(value, "must be greater than 0")),
        (None, Some(_)) => {
            errors.push(size.forbidden("may not be set when podSetSliceRequiredTopology is not specified"));
        }
        (Some(_) | None, _) => {}
    }
    for (i, constraint) in request.podset_slice_required_topology_constraints.iter().enumerate() {
        if constraint.size <= 0 {
            let path = path.child("podsetSliceRequiredTopologyConstraints").index(i).child("size");
            errors.push(path.invalid(constraint.size, "must be greater than 0"));
        }
    }
    errors
}

/// Quota that is reserved is written down, for pod sets that exist, in amounts that can be divided among the pods
/// (WL-1, WL-2). A Workload that was wrong already may be written, so that it can become right.
fn validate_admission(new: &Workload, old: Option<&Workload>, path: &Path) -> Errors {
    let Some(admission) = admission_of(new) else {
        let was_wrong = old.is_some_and(|old| has_quota(old) && admission_of(old).is_none());
        let why = "must be set while the QuotaReserved condition is true";
        return if was_wrong { Errors::new() } else { vec![path.required(why)] };
    };
    let mut errors = Errors::new();
    for (i, assignment) in admission.pod_set_assignments.iter().enumerate() {
        let path = path.child("podSetAssignments").index(i);
        if !new.spec.pod_sets.iter().any(|pod_set| name_of(pod_set) == assignment.name) {
            errors.push(path.child("name").not_found(&assignment.name));
        }
        let count = i64::from(assignment.count.unwrap_or(0));
        if count <= 0 {
            continue;
        }
        for (resource, amount) in &assignment.resource_usage {
            let amount_of =
                if resource == "cpu" { amount.millis_saturating() } else { amount.units_saturating() };
            if amount_of % count != 0 {
                let path = path.child("resourceUsage").key(resource);
                errors.push(path.invalid(&amount.to_string(), format!("is not a multiple of {count}")));
            }
        }
    }
    errors
}

/// The definition lets a type through that is longer than names may be, and a time that is none.
fn validate_conditions(new: &Workload, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, condition) in state::conditions(new).iter().enumerate() {
        let path = path.index(i);
        errors.extend(meta::qualified(&condition.type_, &path.child("type")));
        if condition.last_transition_time.0 == NO_TIME {
            errors.push(path.child("lastTransitionTime").required(""));
        }
    }
    errors
}

fn validate_reclaimable(new: &Workload, old: Option<&Workload>, path: &Path) -> Errors {
    let names: Vec<&str> = new.spec.pod_sets.iter().map(name_of).collect();
    let mut errors = Errors::new();
    for reclaimable in reclaimable(new) {
        let path = path.key(&reclaimable.name);
        let Some(pod_set) = new.spec.pod_sets.iter().find(|pod_set| name_of(pod_set) == reclaimable.name)
        else {
            errors.push(path.child("name").not_supported(&reclaimable.name, &names));
            continue;
        };
        // A pod set that shrank leaves the count of before behind, until its Job says a new one.
        let was_there =
            is_elastic(new) && old.is_some_and(|old| self::reclaimable(old).contains(reclaimable));
        if reclaimable.count > pod_set.count && !was_there {
            let why = format!("should be less or equal to {}", pod_set.count);
            errors.push(path.child("count").invalid(reclaimable.count, why));
        }
    }
    errors
}

fn validate_pod_set_updates(check: &AdmissionCheckState, new: &Workload, path: &Path) -> Errors {
    let mut names: Vec<&str> = new.spec.pod_sets.iter().map(name_of).collect();
    names.sort_unstable();
    let mut errors = Errors::new();
    for (i, update) in check.pod_set_updates.iter().enumerate() {
        let path = path.index(i);
        if !names.contains(&update.name.as_str()) {
            errors.push(path.child("name").not_supported(&update.name, &names));
        }
        errors.extend(tolerations(&update.tolerations, &path.child("tolerations")));
        errors.extend(meta::annotations(Some(&update.annotations), &path.child("annotations")));
        errors.extend(meta::labels(Some(&update.node_selector), &path.child("nodeSelector")));
        errors.extend(meta::labels(Some(&update.labels), &path.child("labels")));
    }
    errors
}

/// Pod sets that hold quota stay as they are, but for an elastic one that shrinks (WL-3).
fn same_pod_sets(new: &Workload, old: &Workload, path: &Path) -> Errors {
    let (new, old) = (&new.spec.pod_sets, &old.spec.pod_sets);
    if new.len() != old.len() {
        return vec![path.invalid(Value::json(new), meta::IMMUTABLE)];
    }
    let pairs = new.iter().zip(old).enumerate();
    let changed = pairs.filter(|(_, (new, old))| {
        new.count > old.count || !same_but_for_template(new, old) || !same_template(new, old)
    });
    changed
        .map(|(i, (new, _))| path.child(&i.to_string()).invalid(Value::json(new), meta::IMMUTABLE))
        .collect()
}

fn same_but_for_template(new: &PodSet, old: &PodSet) -> bool {
    let rest = |it: &PodSet| PodSet { template: Shared::default(), count: old.count, ..it.clone() };
    rest(new) == rest(old)
}

/// Clients write a template as they hold it, with amounts in their notation and what is empty or not there as they please.
fn same_template(new: &PodSet, old: &PodSet) -> bool {
    let (new, old) = (&new.template, &old.template);
    new == old || semantic::equal(wire::POD_TEMPLATE_SPEC, new, old)
}

/// What was given back stays given back (WL-6).
fn reclaimed_grows(new: &Workload, old: &Workload, path: &Path) -> Errors {
    let shrunk = |name: &str| {
        is_elastic(new)
            && admission_of(new).is_some_and(|admission| {
                let assigned = admission.pod_set_assignments.iter().find(|assigned| assigned.name == name);
                let now = new.spec.pod_sets.iter().find(|pod_set| name_of(pod_set) == name);
                let count = assigned.and_then(|assigned| assigned.count);
                count.is_some_and(|count| count > now.map_or(0, |now| now.count))
            })
    };
    let count_of = |workload: &Workload| -> BTreeMap<String, i32> {
        reclaimable(workload).iter().map(|pods| (pods.name.clone(), pods.count)).collect()
    };
    let (new_counts, mut errors) = (count_of(new), Errors::new());
    for (name, old) in count_of(old) {
        match new_counts.get(&name) {
            _ if shrunk(&name) => {}
            Some(new) if *new < old => {
                let path = path.key(&name).child("count");
                errors.push(path.invalid(*new, format!("cannot be less than {old}")));
            }
            Some(_) => {}
            None => errors.push(path.key(&name).required("cannot be removed")),
        }
    }
    errors
}

/// An admission is set or taken away, never edited, but for where pods are placed (WL-5).
fn same_admission(new: &Workload, old: &Workload, path: &Path) -> Errors {
    let (Some(new), Some(old)) = (admission_of(new), admission_of(old)) else { return Errors::new() };
    let without_places = |admission: &Admission| {
        let mut admission = admission.clone();
        for assignment in &mut admission.pod_set_assignments {
            (assignment.topology_assignment, assignment.delayed_topology_request) = (None, None);
        }
        admission
    };
    if without_places(new) == without_places(old) {
        return Errors::new();
    }
    vec![path.invalid(Value::json(new), meta::IMMUTABLE)]
}

/// What a check that was passed changes about pods stays as it is while it is passed (WL-9).
fn same_pod_set_updates(new: &Workload, old: &Workload, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, old) in old.status.iter().flat_map(|status| &status.admission_checks).enumerate() {
        let mut checks = new.status.iter().flat_map(|status| &status.admission_checks);
        let Some(new) = checks.find(|new| new.name == old.name) else { continue };
        let ready = old.state == CheckState::Ready && new.state == CheckState::Ready;
        if ready && new.pod_set_updates != old.pod_set_updates {
            let value = Value::json(&new.pod_set_updates);
            errors.push(path.index(i).child("podSetUpdates").invalid(value, meta::IMMUTABLE));
        }
    }
    errors
}

/// A Workload runs on a cluster for which it was nominated (WL-10).
fn nominated(new: &Workload, old: &Workload, path: &Path) -> Errors {
    let replaces = new.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(REPLACEMENT_FOR));
    let name = |workload: &Workload| workload.status.as_ref().and_then(|status| status.cluster_name.clone());
    let (None, Some(name), false) = (name(old), name(new), replaces) else { return Errors::new() };
    let mut nominated = old.status.iter().flat_map(|status| &status.nominated_cluster_names);
    if nominated.any(|nominated| *nominated == name) {
        return Errors::new();
    }
    vec![path.invalid(&name, "when setting clusterName it must be one of the nominatedClusterNames")]
}

fn admission_of(workload: &Workload) -> Option<&Admission> {
    workload.status.as_ref()?.admission.as_deref()
}

fn reclaimable(workload: &Workload) -> &[ReclaimablePod] {
    workload.status.as_ref().map_or(&[], |status| &status.reclaimable_pods)
}

/// A pod set's name; its definition gives it one if nobody did.
fn name_of(pod_set: &PodSet) -> &str {
    pod_set.name.as_deref().unwrap_or("main")
}
