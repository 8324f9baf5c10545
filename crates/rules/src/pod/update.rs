//! What may change in a stored pod (3.6): images, a few numbers, more tolerations, fewer gates. Ephemeral containers and
//! sizes have ways of their own.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Affinity, Container, EphemeralContainer, NodeAffinity, NodeSelectorTerm, Pod, PodSpec,
    ResourceRequirements, Toleration,
};

use super::resources::{self, Amounts};
use super::{
    MIRROR, Options, annotations, qos, scheduling, validate_annotations, validate_metadata_and_spec,
};
use crate::field::{Errors, Path, Value};
use crate::meta;
use crate::{difference, names, semantic, wire};

const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
const EPHEMERAL_CONTAINER: &str = "io.k8s.api.core.v1.EphemeralContainer";
const NODE_SELECTOR_TERM: &str = "io.k8s.api.core.v1.NodeSelectorTerm";
const NODE_AFFINITY: &str = "io.k8s.api.core.v1.NodeAffinity";
const CONTAINER: &str = "io.k8s.api.core.v1.Container";
const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set \
    to 1 if it was previously negative)";

/// A changed pod, after defaults and [`prepare::for_update`](super::prepare::for_update).
pub fn validate(new: &Pod, old: &Pod, options: &Options) -> Errors {
    let (none, path) = (PodSpec::default(), Path::new("spec"));
    let (new_spec, old_spec) = (new.spec.as_ref().unwrap_or(&none), old.spec.as_ref().unwrap_or(&none));
    let mut errors = common(new, old, options);
    errors.extend(annotation_updates(new, old, options));
    for (field, new, old) in [
        ("containers", new_spec.containers.as_slice(), old_spec.containers.as_slice()),
        (
            "initContainers",
            new_spec.init_containers.as_deref().unwrap_or_default(),
            old_spec.init_containers.as_deref().unwrap_or_default(),
        ),
    ] {
        let path = path.child(field);
        if new.len() != old.len() {
            errors.push(path.forbidden("pod updates may not add or remove containers"));
            return errors;
        }
        errors.extend(images(new, &path));
    }
    match deadline(new_spec.active_deadline_seconds, old_spec.active_deadline_seconds, &path) {
        Deadline::Fine => {}
        Deadline::Wrong(error) => errors.push(error),
        Deadline::Stop(error) => {
            errors.push(error);
            return errors;
        }
    }
    errors.extend(only_added_tolerations(new_spec, old_spec, options, &path.child("tolerations")));
    errors.extend(only_removed_gates(new_spec, old_spec, &path.child("schedulingGates")));
    if semantic::equal(wire::POD_SPEC, new_spec, old_spec) {
        return errors;
    }
    let mut munged = new_spec.clone();
    munge(&mut munged, old_spec);
    if old_spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        errors.extend(tighten(&mut munged, old_spec, &path));
    }
    if !semantic::equal(wire::POD_SPEC, &munged, old_spec) {
        let difference = difference::internal(wire::POD_SPEC, old_spec, &munged);
        errors.push(
            path.forbidden(format!("pod updates may not change fields other than {UPDATABLE}\n{difference}")),
        );
    }
    errors
}

fn common(new: &Pod, old: &Pod, options: &Options) -> Errors {
    let mut errors = meta::validate_update_built_in(&new.metadata, &old.metadata, &Path::new("metadata"));
    errors.extend(validate_metadata_and_spec(new, options));
    errors
}

/// Some annotations are for whoever makes a pod, and for good.
pub(super) fn annotation_updates(new: &Pod, old: &Pod, options: &Options) -> Errors {
    let path = Path::new("metadata").child("annotations");
    let (after, before) = (annotations(Some(&new.metadata)), annotations(Some(&old.metadata)));
    let mut errors = Errors::new();
    for (key, _) in before.iter().filter(|(key, value)| after.get(*key) != Some(value)) {
        if key.starts_with(APP_ARMOR_PREFIX) {
            errors.push(path.key(key).forbidden("may not remove or update AppArmor annotations"));
        }
        if key == MIRROR {
            errors.push(path.key(key).forbidden("may not remove or update mirror pod annotation"));
        }
    }
    for key in after.keys().filter(|key| !before.contains_key(*key)) {
        if key.starts_with(APP_ARMOR_PREFIX) {
            errors.push(path.key(key).forbidden("may not add AppArmor annotations"));
        }
        if key == MIRROR {
            errors.push(path.key(key).forbidden("may not add mirror pod annotation"));
        }
    }
    let none = PodSpec::default();
    errors.extend(validate_annotations(after, new.spec.as_ref().unwrap_or(&none), options, &path));
    errors
}

fn images(containers: &[Container], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, container) in containers.iter().enumerate() {
        let (image, path) = (container.image.as_deref().unwrap_or(""), path.index(i).child("image"));
        if image.is_empty() {
            errors.push(path.required(""));
        }
        if image.trim().len() != image.len() {
            errors.push(path.invalid(image, "must not have leading or trailing whitespace"));
        }
    }
    errors
}

enum Deadline {
    Fine,
    Wrong(crate::field::Error),
    Stop(crate::field::Error),
}

/// A deadline can be set and brought forward.
fn deadline(new: Option<i64>, old: Option<i64>, path: &Path) -> Deadline {
    let path = path.child("activeDeadlineSeconds");
    match (new, old) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            let why = names::in_range(new, 0, i32::MAX.into()).into_iter().next().unwrap_or_default();
            Deadline::Stop(path.invalid(new, why))
        }
        (Some(new), Some(old)) if old < new => {
            Deadline::Stop(path.invalid(new, "must be less than or equal to previous value"))
        }
        (None, Some(_)) => {
            let none = Value::json(&None::<i64>);
            Deadline::Wrong(path.invalid(none, "must not update from a positive integer to nil value"))
        }
        _ => Deadline::Fine,
    }
}

fn only_added_tolerations(new: &PodSpec, old: &PodSpec, options: &Options, path: &Path) -> Errors {
    let (new, old) =
        (new.tolerations.as_deref().unwrap_or_default(), old.tolerations.as_deref().unwrap_or_default());
    let kept: BTreeSet<[&str; 4]> = new.iter().map(says).collect();
    if old.iter().any(|old| !kept.contains(&says(old))) {
        return vec![path.forbidden("existing toleration can not be modified except its tolerationSeconds")];
    }
    scheduling::validate_tolerations(new, options, path)
}

/// What a toleration tolerates, for however long.
fn says(toleration: &Toleration) -> [&str; 4] {
    let Toleration { key, operator, value, effect, .. } = toleration;
    [key, operator, value, effect].map(|field| field.as_deref().unwrap_or_default())
}

fn only_removed_gates(new: &PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let names = |spec: &PodSpec| -> Vec<String> {
        spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect()
    };
    let (new, old) = (names(new), names(old));
    let added = |(i, gate): &(usize, &String)| !old.contains(gate) && !new[i + 1..].contains(gate);
    new.iter()
        .enumerate()
        .filter(added)
        .map(|(i, gate)| {
            let why = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
            path.index(i).child("name").forbidden(why)
        })
        .collect()
}

/// Takes back what may change, so that only what may not is left to differ.
fn munge(munged: &mut PodSpec, old: &PodSpec) {
    for (new, old) in munged.containers.iter_mut().zip(&old.containers) {
        new.image.clone_from(&old.image);
    }
    for (new, old) in munged.init_containers.iter_mut().flatten().zip(old.init_containers.iter().flatten()) {
        new.image.clone_from(&old.image);
    }
    munged.active_deadline_seconds = old.active_deadline_seconds;
    munged.scheduling_gates.clone_from(&old.scheduling_gates);
    munged.tolerations.clone_from(&old.tolerations);
    if old.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0)
        && munged.termination_grace_period_seconds == Some(1)
    {
        munged.termination_grace_period_seconds = old.termination_grace_period_seconds;
    }
}

/// As long as a pod is gated, it may be told more about the nodes that it wants, but not less.
fn tighten(munged: &mut PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let none = meta::Map::new();
    let (new_selector, old_selector) =
        (munged.node_selector.as_ref().unwrap_or(&none), old.node_selector.as_ref().unwrap_or(&none));
    if new_selector != old_selector {
        if old_selector.iter().any(|(key, value)| new_selector.get(key) != Some(value)) {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.push(path.child("nodeSelector").invalid(Value::json(&munged.node_selector), why));
        }
        munged.node_selector.clone_from(&old.node_selector);
    }
    let node_affinity =
        |spec: &PodSpec| spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone());
    let (new_affinity, old_affinity) = (node_affinity(munged), node_affinity(old));
    let same = match (&new_affinity, &old_affinity) {
        (Some(new), Some(old)) => semantic::equal(NODE_AFFINITY, new, old),
        (new, old) => new.is_none() && old.is_none(),
    };
    if same {
        return errors;
    }
    let at = path.child("affinity").child("nodeAffinity");
    errors.extend(tighter_affinity(new_affinity.as_ref(), old_affinity.as_ref(), &at));
    match &mut munged.affinity {
        None if old_affinity.is_none() => {}
        None => munged.affinity = Some(Affinity { node_affinity: old_affinity, ..Affinity::default() }),
        Some(new)
            if old.affinity.is_none() && new.pod_anti_affinity.is_none() && new.pod_affinity.is_none() =>
        {
            munged.affinity = None;
        }
        Some(new) => new.node_affinity = old_affinity,
    }
    errors
}

fn tighter_affinity(new: Option<&NodeAffinity>, old: Option<&NodeAffinity>, path: &Path) -> Errors {
    let terms = |affinity: Option<&NodeAffinity>| -> Option<Vec<NodeSelectorTerm>> {
        let required = affinity?.required_during_scheduling_ignored_during_execution.as_ref()?;
        Some(required.node_selector_terms.clone())
    };
    let Some(old) = terms(old) else { return Errors::new() };
    let sent = terms(new);
    let new = sent.clone().unwrap_or_default();
    let path = path.child("requiredDuringSchedulingIgnoredDuringExecution").child("nodeSelectorTerms");
    if !old.is_empty() && old.len() != new.len() {
        let value = if sent.is_some() {
            Value::internal_list(NODE_SELECTOR_TERM, &new)
        } else {
            Value::printed("null")
        };
        let why = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return vec![path.invalid(value, why)];
    }
    let changed = old.iter().zip(&new).enumerate().filter(|(_, (old, new))| !is_addition(new, old));
    changed
        .map(|(i, (_, new))| {
            let why = "only additions are allowed (no mutations or deletions)";
            path.index(i).invalid(Value::internal(NODE_SELECTOR_TERM, new), why)
        })
        .collect()
}

fn is_addition(new: &NodeSelectorTerm, old: &NodeSelectorTerm) -> bool {
    let lists = |term: &NodeSelectorTerm| {
        [term.match_expressions.clone().unwrap_or_default(), term.match_fields.clone().unwrap_or_default()]
    };
    let (new, old) = (lists(new), lists(old));
    if old.iter().all(Vec::is_empty) {
        return new.iter().all(Vec::is_empty);
    }
    new.iter().zip(&old).all(|(new, old)| new.starts_with(old))
}

/// Changed ephemeral containers: they can be added, and that is all (2.77).
pub fn validate_ephemeral_containers(new: &Pod, old: &Pod, options: &Options) -> Errors {
    let mut errors = common(new, old, options);
    errors.extend(annotation_updates(new, old, options));
    if annotations(Some(&old.metadata)).contains_key(MIRROR) {
        return vec![Path::new("[]").forbidden("static pods do not support ephemeral containers")];
    }
    let path = Path::new("spec").child("ephemeralContainers");
    let containers = |pod: &Pod| -> Vec<EphemeralContainer> {
        pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten()).cloned().collect()
    };
    let new = containers(new);
    for old in containers(old) {
        let name = types::go::quote(&old.name);
        match new.iter().rev().find(|new| new.name == old.name) {
            None => {
                errors.push(
                    path.forbidden(format!("existing ephemeral containers {name} may not be removed\n")),
                );
            }
            Some(new) if !semantic::equal(EPHEMERAL_CONTAINER, new, &old) => {
                let difference = difference::internal(EPHEMERAL_CONTAINER, &old, new);
                errors.push(path.forbidden(format!(
                    "existing ephemeral containers {name} may not be changed\n{difference}"
                )));
            }
            Some(_) => {}
        }
    }
    errors
}

/// A changed size: of CPU and memory, and without another quality of service (2.77).
pub fn validate_resize(new: &Pod, old: &Pod, options: &Options) -> Errors {
    let mut errors = common(new, old, options);
    let (none, path, whole) = (PodSpec::default(), Path::new("spec"), Path::new("[]"));
    let (new_spec, old_spec) = (new.spec.as_ref().unwrap_or(&none), old.spec.as_ref().unwrap_or(&none));
    if annotations(Some(&old.metadata)).contains_key(MIRROR) {
        return vec![whole.forbidden("static pods cannot be resized")];
    }
    if old_spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return vec![whole.forbidden("windows pods cannot be resized")];
    }
    if qos::class(old) != qos::compute(new.spec.as_ref()) {
        let class = new.status.as_ref().and_then(|status| status.qos_class.clone()).unwrap_or_default();
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.push(path.invalid(Value::json(&class), why));
    }
    let statuses = old.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let running = statuses
        .into_iter()
        .find(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
    if running.is_some_and(|status| status.resources.is_none()) {
        errors.push(path.forbidden("Pod running on node without support for resize"));
    }
    if [new_spec, old_spec].iter().any(|spec| has_own_resources(spec)) {
        errors.push(whole.forbidden(
            "resize of pods with pod-level resources is forbidden when InPlacePodLevelResourcesVerticalScalingEnabled \
             feature gate is disabled",
        ));
        return errors;
    }
    let ordering = same_containers(new_spec, old_spec, &path);
    if !ordering.is_empty() {
        errors.extend(ordering);
        return errors;
    }
    errors.extend(validate_sizes(new_spec, old_spec, &path));
    errors
}

fn has_own_resources(spec: &PodSpec) -> bool {
    let has = |list: Option<&resources::List>| list.is_some_and(|list| !list.is_empty());
    spec.resources.as_ref().is_some_and(|own| has(own.requests.as_ref()) || has(own.limits.as_ref()))
}

fn same_containers(new: &PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (field, new, old) in [
        ("containers", new.containers.as_slice(), old.containers.as_slice()),
        (
            "initContainers",
            new.init_containers.as_deref().unwrap_or_default(),
            old.init_containers.as_deref().unwrap_or_default(),
        ),
    ] {
        let path = path.child(field);
        if new.len() != old.len() {
            errors.push(path.forbidden(format!("{field} may not be added or removed on resize")));
            continue;
        }
        let renamed = new.iter().zip(old).enumerate().filter(|(_, (new, old))| new.name != old.name);
        errors.extend(renamed.map(|(i, _)| {
            path.index(i)
                .child("name")
                .forbidden(format!("{field} may not be renamed or reordered on resize"))
        }));
    }
    errors
}

fn validate_sizes(new: &PodSpec, old: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let pairs = |spec: &PodSpec| spec.init_containers.clone().unwrap_or_default();
    let (new_init, old_init) = (pairs(new), pairs(old));
    for (i, (new, old)) in new_init.iter().zip(&old_init).enumerate().filter(|(_, (_, old))| is_sidecar(old))
    {
        errors.extend(nothing_removed(new, old, &path.child("initContainers").index(i).child("resources")));
    }
    for (i, (new, old)) in new.containers.iter().zip(&old.containers).enumerate() {
        errors.extend(nothing_removed(new, old, &path.child("containers").index(i).child("resources")));
    }
    for (new, old) in new.containers.iter().zip(&old.containers) {
        if !semantic::equal(CONTAINER, &without_size(new, old), old) {
            errors.push(path.forbidden("only cpu and memory resources are mutable"));
        }
    }
    for (new, old) in new_init.iter().zip(&old_init) {
        if is_sidecar(new) {
            if !semantic::equal(CONTAINER, &without_size(new, old), old) {
                errors
                    .push(path.forbidden("only cpu and memory resources for sidecar containers are mutable"));
            }
        } else if !semantic::equal(CONTAINER, new, old) {
            errors.push(path.forbidden("resources for non-sidecar init containers are immutable"));
        }
    }
    errors
}

fn nothing_removed(new: &Container, old: &Container, path: &Path) -> Errors {
    let none = ResourceRequirements::default();
    let (new, old) = (new.resources.as_ref().unwrap_or(&none), old.resources.as_ref().unwrap_or(&none));
    let mut errors = Errors::new();
    for (field, new, old) in
        [("requests", &new.requests, &old.requests), ("limits", &new.limits, &old.limits)]
    {
        let (new, old): (Amounts, Amounts) =
            (resources::amounts(new.as_ref()), resources::amounts(old.as_ref()));
        if old.keys().any(|name| !new.contains_key(name)) {
            errors.push(path.child(field).forbidden(format!("resource {field} cannot be removed")));
        }
    }
    errors
}

/// The container with the CPU and memory that it had.
fn without_size(new: &Container, old: &Container) -> Container {
    let none = ResourceRequirements::default();
    let (sent, stored) = (new.resources.as_ref().unwrap_or(&none), old.resources.as_ref().unwrap_or(&none));
    let take = |new: &Option<resources::List>, old: &Option<resources::List>| {
        let mut list = new.clone().unwrap_or_default();
        for name in ["cpu", "memory"] {
            list.remove(name);
            if let Some(amount) = old.as_ref().and_then(|old| old.get(name)) {
                list.insert(name.to_owned(), amount.clone());
            }
        }
        (!list.is_empty()).then_some(list)
    };
    let resources = ResourceRequirements {
        limits: take(&sent.limits, &stored.limits),
        requests: take(&sent.requests, &stored.requests),
        claims: None,
    };
    let resources = (new.resources.is_some() || old.resources.is_some()).then_some(resources);
    Container { resources, ..new.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::field::assert_starts;

    fn pod(patch: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "n", "resourceVersion": "1", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        });
        for (key, value) in patch.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        let mut pod: Pod = serde_json::from_value(pod).expect("a test's pod");
        crate::pod::defaults::apply_pod_defaults(&mut pod);
        pod
    }

    fn check(old: Value, new: Value, expected: &[&str]) {
        let (old, new) = (pod(&old), pod(&new));
        assert_starts(&validate(&new, &old, &Options::for_pod(Some(&old))), expected);
    }

    #[test]
    fn rule_3_6_what_may_change() {
        check(
            json!({}),
            json!({"containers": [{"name": "c", "image": "j", "resources": {"requests": {"cpu": "1"}}}]}),
            &[],
        );
        check(json!({}), json!({"activeDeadlineSeconds": 5}), &[]);
        check(json!({"activeDeadlineSeconds": 5}), json!({"activeDeadlineSeconds": 4}), &[]);
        check(
            json!({"activeDeadlineSeconds": 5}),
            json!({"activeDeadlineSeconds": 6}),
            &["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"],
        );
        check(
            json!({"activeDeadlineSeconds": 5}),
            json!({}),
            &[
                "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
            ],
        );
        check(json!({}), json!({"tolerations": [{"operator": "Exists"}]}), &[]);
        check(
            json!({"tolerations": [{"operator": "Exists"}]}),
            json!({}),
            &[
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ],
        );
        check(json!({"schedulingGates": [{"name": "g"}]}), json!({}), &[]);
        check(
            json!({}),
            json!({"schedulingGates": [{"name": "g"}]}),
            &[
                "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'",
            ],
        );
        check(
            json!({}),
            json!({"containers": []}),
            &[
                "spec.containers: Required value",
                "spec.containers: Forbidden: pod updates may not add or remove containers",
            ],
        );
    }

    #[test]
    fn rule_3_6_gated_pods_may_ask_for_less_nodes() {
        let gates = json!([{"name": "g"}]);
        check(
            json!({"schedulingGates": gates, "nodeSelector": {"a": "1"}}),
            json!({"schedulingGates": gates, "nodeSelector": {"a": "1", "b": "2"}}),
            &[],
        );
        check(
            json!({"schedulingGates": gates, "nodeSelector": {"a": "1"}}),
            json!({"schedulingGates": gates, "nodeSelector": {"b": "2"}}),
            &[
                "spec.nodeSelector: Invalid value: {\"b\":\"2\"}: only additions to spec.nodeSelector are allowed",
            ],
        );
    }

    #[test]
    fn rule_3_6_what_may_not_change_is_shown() {
        let (old, new) = (pod(&json!({})), pod(&json!({"hostname": "h"})));
        let errors = validate(&new, &old, &Options::for_pod(Some(&old)));
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        let change = "- \"Hostname\": \"\",\n+ \"Hostname\": \"h\",\n";
        assert!(error.detail.starts_with("pod updates may not change fields other than `spec.containers"));
        assert!(error.detail.contains(change), "{}", error.detail);
    }

    #[test]
    fn rule_2_77_sizes() {
        let sized = |requests: Value| json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]});
        let check = |new: Value, expected: &[&str]| {
            let (old, new) = (pod(&json!({})), pod(&new));
            assert_starts(&validate_resize(&new, &old, &Options::for_pod(Some(&old))), expected);
        };
        check(sized(json!({"cpu": "2"})), &[]);
        check(
            sized(json!({"cpu": "2", "ephemeral-storage": "1"})),
            &["spec: Forbidden: only cpu and memory resources are mutable"],
        );
        check(
            sized(json!({})),
            &[
                "spec: Invalid value: \"\": Pod QOS Class may not change",
                "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
            ],
        );
    }

    #[test]
    fn rule_2_77_ephemeral_containers_stay() {
        let with = |image: &str| pod(&json!({"ephemeralContainers": [{"name": "e", "image": image}]}));
        let check = |new: &Pod, old: &Pod, expected: &[&str]| {
            assert_starts(&validate_ephemeral_containers(new, old, &Options::for_pod(Some(old))), expected);
        };
        check(&with("i"), &pod(&json!({})), &[]);
        check(
            &pod(&json!({})),
            &with("i"),
            &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed"],
        );
        check(
            &with("j"),
            &with("i"),
            &[
                "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed\n@@",
            ],
        );
    }
}
