//! What is accepted, but with a remark (W-03).
//!
//! - here: the remarks in their order;
//! - `overlaps`: files of a volume that hide each other;
//! - `ports`: ports that collide.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource;
use types::{Quantity, go};

use super::{Annotations, all_containers, annotations, dns, profiles, resources};
use crate::field::Path;
use crate::names;

mod overlaps;
mod ports;

type Warnings = Vec<String>;
type List = BTreeMap<String, resource::Quantity>;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

const DEPRECATED_NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#),
    ("beta.kubernetes.io/os", r#"deprecated since v1.14; use "kubernetes.io/os" instead"#),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", r#"use "node-role.kubernetes.io/control-plane" instead"#),
];

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];

const USE_SECCOMP_FIELD: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;

/// Remarks on a template that is new or has changed. What it was before makes no difference yet.
pub fn for_template(template: &PodTemplateSpec, _old: Option<&PodTemplateSpec>, path: &Path) -> Vec<String> {
    of(template.spec.as_ref(), annotations(template.metadata.as_ref()), Of::Template, path)
}

/// Remarks on a pod that is new or has changed.
pub fn for_pod(pod: &Pod) -> Vec<String> {
    of(pod.spec.as_ref(), annotations(Some(&pod.metadata)), Of::Pod, &Path::root())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Pod,
    Template,
}

fn of(spec: Option<&PodSpec>, annotations: &Annotations, kind: Of, path: &Path) -> Warnings {
    let Some(spec) = spec else { return Warnings::new() };
    let (at_annotations, path) = (path.child("metadata.annotations"), path.child("spec"));

    let mut warnings = node_labels(spec, &path);
    for (key, message) in DEPRECATED_ANNOTATIONS.iter().filter(|(key, _)| annotations.contains_key(*key)) {
        warnings.push(format!("{}: {message}", at_annotations.key(key)));
    }
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        warnings.extend(removed_volume_types(volume, &path.child("volumes").index(i)));
    }
    warnings.extend(overlaps::of_volumes(spec.volumes.as_deref().unwrap_or_default()));
    warnings.extend(repeated_names(spec, &path));
    for resource in ["memory", "ephemeral-storage"] {
        warnings.extend(fractional_bytes(spec.overhead.as_ref(), resource, &path.child("overhead")));
    }
    let context = spec.security_context.as_ref();
    if context.is_none_or(|context| context.seccomp_profile.is_none())
        && annotations.contains_key(profiles::SECCOMP_POD)
    {
        warnings.push(format!("{}: {USE_SECCOMP_FIELD}", at_annotations.key(profiles::SECCOMP_POD)));
    }
    for (container, path) in all_containers(spec, &path) {
        warnings.extend(old_seccomp_profile(&container, annotations, &at_annotations));
        if kind == Of::Template {
            warnings.extend(old_app_armor_profile(&container, spec, annotations, &at_annotations));
        }
        warnings.extend(fractional_resources(&container, &path.child("resources")));
        let variables = container.env.as_deref().unwrap_or_default();
        warnings.extend(hidden_variables(variables, &path.child("env")));
    }
    warnings.extend(ports::colliding(spec, &path));
    warnings.extend(ports::repeated_names(spec, &path));
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        let path = path.child("terminationGracePeriodSeconds");
        warnings.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    if let Some(affinity) = &spec.affinity {
        warnings.extend(terms_without_selector(affinity, &path.child("affinity")));
    }
    let servers = spec.dns_config.iter().flat_map(|config| config.nameservers.iter().flatten()).enumerate();
    warnings.extend(
        servers.filter_map(|(i, ip)| dns::ip_warning(ip, &path.child("dnsConfig.nameservers").index(i))),
    );
    let aliases = spec.host_aliases.iter().flatten().enumerate();
    warnings.extend(aliases.filter_map(|(i, alias)| {
        dns::ip_warning(&alias.ip, &path.child("hostAliases").index(i).child("ip"))
    }));
    warnings
}

/// What to say of a label of nodes that has a newer name.
pub(crate) fn deprecated_label(key: &str) -> Option<&'static str> {
    DEPRECATED_NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
}

/// Old names of node labels, and spreading by nothing.
fn node_labels(spec: &PodSpec, path: &Path) -> Warnings {
    let mut warnings = Warnings::new();
    for key in spec.node_selector.iter().flat_map(BTreeMap::keys) {
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{}: {message}", path.child("nodeSelector").key(key)));
        }
    }
    if let Some(node) = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()) {
        let path = path.child("affinity.nodeAffinity");
        if let Some(required) = &node.required_during_scheduling_ignored_during_execution {
            let path = path.child(REQUIRED).child("nodeSelectorTerms");
            for (i, term) in required.node_selector_terms.iter().enumerate() {
                warnings.extend(node_term(term, false, &path.index(i)));
            }
        }
        let preferred = node.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        for (i, term) in preferred.enumerate() {
            let path = path.child(PREFERRED).index(i).child("preference");
            warnings.extend(node_term(&term.preference, true, &path));
        }
    }
    for (i, constraint) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let path = path.child("topologySpreadConstraints").index(i);
        let key = &constraint.topology_key;
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {message}", path.child("topologyKey")));
        }
        if constraint.label_selector.is_none() {
            warnings.push(no_selector(&path.child("labelSelector")));
        }
    }
    warnings
}

pub(crate) fn node_term(term: &NodeSelectorTerm, check_values: bool, path: &Path) -> Warnings {
    let mut warnings = Warnings::new();
    for (i, requirement) in term.match_expressions.iter().flatten().enumerate() {
        let path = path.child("matchExpressions").index(i);
        let key = &requirement.key;
        if let Some(message) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {message}", path.child("key")));
        }
        for (i, value) in requirement.values.iter().flatten().enumerate().filter(|_| check_values) {
            for problem in names::label_value(value) {
                let path = path.child("values").index(i);
                warnings.push(format!("{path}: {value} is invalid, {problem}"));
            }
        }
    }
    warnings
}

fn no_selector(path: &Path) -> String {
    format!("{path}: a null labelSelector results in matching no pod")
}

fn removed_volume_types(volume: &Volume, path: &Path) -> Warnings {
    const SINCE_22: &str = "deprecated in v1.22, non-functional in v1.25+";
    const SINCE_28: &str = "deprecated in v1.28, non-functional in v1.31+";
    let says = |types: &[(bool, &str, &str)]| -> Warnings {
        let used = types.iter().filter(|(is_used, ..)| *is_used);
        used.map(|(_, field, message)| format!("{}: {message}", path.child(field))).collect()
    };
    let mut warnings = says(&[
        (
            volume.photon_persistent_disk.is_some(),
            "photonPersistentDisk",
            "deprecated in v1.11, non-functional in v1.16+",
        ),
        (volume.git_repo.is_some(), "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        (volume.scale_io.is_some(), "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        (volume.flocker.is_some(), "flocker", SINCE_22),
        (volume.storageos.is_some(), "storageOS", SINCE_22),
        (volume.quobyte.is_some(), "quobyte", SINCE_22),
        (volume.glusterfs.is_some(), "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ]);
    let claim = volume.ephemeral.as_ref().and_then(|ephemeral| ephemeral.volume_claim_template.as_ref());
    if let Some(resources) = claim.and_then(|claim| claim.spec.resources.as_ref()) {
        let path = path.child("ephemeral.volumeClaimTemplate.spec.resources");
        warnings.extend(fractional_bytes(resources.requests.as_ref(), "storage", &path.child("requests")));
        warnings.extend(fractional_bytes(resources.limits.as_ref(), "storage", &path.child("limits")));
    }
    warnings.extend(says(&[
        (volume.cephfs.is_some(), "cephfs", SINCE_28),
        (volume.rbd.is_some(), "rbd", SINCE_28),
    ]));
    warnings
}

fn fractional_bytes(list: Option<&List>, resource: &str, path: &Path) -> Option<String> {
    let quantity = Quantity::try_from(list?.get(resource)?).ok()?;
    let says = |value: &str| {
        let path = path.key(resource);
        format!("{path}: fractional byte value {} is invalid, must be an integer", go::quote(value))
    };
    (!resources::is_whole(&quantity)).then(|| says(&quantity.to_string()))
}

fn fractional_resources(container: &Container, path: &Path) -> Warnings {
    let Some(resources) = &container.resources else { return Warnings::new() };
    let mut warnings = Warnings::new();
    for resource in ["memory", "ephemeral-storage"] {
        warnings.extend(fractional_bytes(resources.limits.as_ref(), resource, &path.child("limits")));
        warnings.extend(fractional_bytes(resources.requests.as_ref(), resource, &path.child("requests")));
    }
    warnings
}

fn repeated_names(spec: &PodSpec, path: &Path) -> Warnings {
    let mut warnings = Warnings::new();
    let mut seen = BTreeSet::new();
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        if !seen.insert(&alias.ip) {
            let path = path.child("hostAliases").index(i).child("ip");
            warnings.push(format!("{path}: duplicate ip {}", go::quote(&alias.ip)));
        }
    }
    let secrets = spec.image_pull_secrets.as_deref().unwrap_or_default();
    let at = |i| path.child("imagePullSecrets").index(i).child("name");
    let mut seen = BTreeSet::new();
    for (i, secret) in secrets.iter().enumerate() {
        if !seen.insert(&secret.name) {
            warnings.push(format!("{}: duplicate name {}", at(i), go::quote(&secret.name)));
        }
    }
    for (i, _) in secrets.iter().enumerate().filter(|(_, secret)| secret.name.is_empty()) {
        warnings.push(format!("{}: invalid empty name \"\"", at(i)));
    }
    warnings
}

/// A seccomp profile that only an annotation names.
fn old_seccomp_profile(container: &Container, annotations: &Annotations, path: &Path) -> Option<String> {
    let own = container.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
    let key = format!("{}{}", profiles::SECCOMP_CONTAINER, container.name);
    let only = own.is_none() && annotations.contains_key(&key);
    only.then(|| format!("{}: {USE_SECCOMP_FIELD}", path.key(&key)))
}

/// The same for AppArmor. In a pod the field is made from the annotation, in a template nothing happens.
fn old_app_armor_profile(
    container: &Container,
    spec: &PodSpec,
    annotations: &Annotations,
    path: &Path,
) -> Option<String> {
    let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let key = format!("{}{}", profiles::APP_ARMOR_CONTAINER, container.name);
    let annotation = annotations.get(&key).filter(|_| own.is_none())?;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    if of_pod.is_some() && of_pod == profiles::app_armor_from_annotation(annotation).as_ref() {
        return None;
    }
    let message = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
    Some(format!("{}: {message}", path.key(&key)))
}

/// A variable may build on an earlier one of its name; otherwise it hides it.
fn hidden_variables(variables: &[EnvVar], path: &Path) -> Warnings {
    let mut warnings = Warnings::new();
    let mut seen = BTreeSet::new();
    for (i, variable) in variables.iter().enumerate() {
        if seen.insert(&variable.name) {
            continue;
        }
        let reference = format!("$({})", variable.name);
        let value = variable.value.as_deref().unwrap_or_default();
        if variable.value_from.is_some() || value == reference || !value.contains(&reference) {
            let name = go::quote(&variable.name);
            warnings.push(format!(
                "{}: hides previous definition of {name}, which may be dropped when using apply",
                path.index(i)
            ));
        }
    }
    warnings
}

fn terms_without_selector(affinity: &Affinity, path: &Path) -> Warnings {
    let mut warnings = Warnings::new();
    let near = affinity.pod_affinity.as_ref();
    let far = affinity.pod_anti_affinity.as_ref();
    for (field, required, preferred) in [
        (
            "podAffinity",
            near.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            near.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
        (
            "podAntiAffinity",
            far.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()),
            far.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()),
        ),
    ] {
        let path = path.child(field);
        for (i, term) in required.into_iter().flatten().enumerate() {
            if term.label_selector.is_none() {
                warnings.push(no_selector(&path.child(REQUIRED).index(i).child("labelSelector")));
            }
        }
        for (i, term) in preferred.into_iter().flatten().enumerate() {
            if term.pod_affinity_term.label_selector.is_none() {
                let path = path.child(PREFERRED).index(i).child("podAffinityTerm.labelSelector");
                warnings.push(no_selector(&path));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(super) fn check(template: Value, expected: &[&str]) {
        let mut template: PodTemplateSpec = serde_json::from_value(template).expect("a test's template");
        super::super::defaults::apply_template_defaults(&mut template);
        assert_eq!(for_template(&template, None, &Path::new("t")), expected);
    }

    pub(super) fn check_container(mut container: Value, expected: &[&str]) {
        container["name"] = json!("c");
        check(json!({"spec": {"containers": [container]}}), expected);
    }

    #[test]
    fn w_03_labels() {
        let os = "beta.kubernetes.io/os";
        let term = json!({"matchExpressions": [{"key": os, "operator": "In", "values": ["-"]}]});
        let says = r#"deprecated since v1.14; use "kubernetes.io/os" instead"#;
        let at = "t.spec.affinity.nodeAffinity";
        check(
            json!({"spec": {"containers": [], "nodeSelector": {"beta.kubernetes.io/os": "linux"},
                "affinity": {"nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": os, "whenUnsatisfiable": "DoNotSchedule"}]}}),
            &[
                &format!("t.spec.nodeSelector[{os}]: {says}"),
                &format!(
                    "{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: {os} is {says}"
                ),
                &format!(
                    "{at}.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: {os} is {says}"
                ),
                &format!(
                    "{at}.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: - is invalid, {}",
                    names::label_value("-")[0]
                ),
                &format!("t.spec.topologySpreadConstraints[0].topologyKey: {os} is {says}"),
                "t.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            ],
        );
    }

    #[test]
    fn w_03_annotations() {
        check(
            json!({"metadata": {"annotations": {
                    "scheduler.alpha.kubernetes.io/critical-pod": "", "seccomp.security.alpha.kubernetes.io/pod": "",
                    "container.seccomp.security.alpha.kubernetes.io/c": "",
                    "container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
                "spec": {"containers": [{"name": "c"}]}}),
            &[
                r#"t.metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "priorityClassName" field instead"#,
                r#"t.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead"#,
                r#"t.metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "seccompProfile" field instead"#,
                r#"t.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead"#,
            ],
        );
        check(
            json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
                "spec": {"containers": [{"name": "c"}],
                    "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}}),
            &[],
        );
    }

    #[test]
    fn w_03_volumes() {
        check(
            json!({"spec": {"containers": [], "volumes": [
                {"name": "a", "gitRepo": {"repository": "r"}}, {"name": "b", "glusterfs": {"endpoints": "", "path": ""}},
                {"name": "c", "rbd": {"image": "", "monitors": []}},
                {"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec":
                    {"resources": {"requests": {"storage": "1500m"}}}}}},
            ]}}),
            &[
                "t.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
                "t.spec.volumes[1].glusterfs: deprecated in v1.25, non-functional in v1.26+",
                "t.spec.volumes[2].rbd: deprecated in v1.28, non-functional in v1.31+",
                r#"t.spec.volumes[3].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer"#,
            ],
        );
    }

    #[test]
    fn w_03_repetitions() {
        check(
            json!({"spec": {"containers": [], "hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}],
                "imagePullSecrets": [{"name": ""}, {"name": ""}]}}),
            &[
                r#"t.spec.hostAliases[1].ip: duplicate ip "1.1.1.1""#,
                r#"t.spec.imagePullSecrets[1].name: duplicate name """#,
                r#"t.spec.imagePullSecrets[0].name: invalid empty name """#,
                r#"t.spec.imagePullSecrets[1].name: invalid empty name """#,
            ],
        );
        check_container(
            json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "3"},
                {"name": "A", "value": "$(A)"}]}),
            &[
                r#"t.spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply"#,
                r#"t.spec.containers[0].env[3]: hides previous definition of "A", which may be dropped when using apply"#,
            ],
        );
    }

    #[test]
    fn w_03_numbers_and_addresses() {
        check_container(
            json!({"resources": {"limits": {"memory": "1.5"}, "requests": {"ephemeral-storage": "100m"}}}),
            &[
                r#"t.spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer"#,
                r#"t.spec.containers[0].resources.requests[ephemeral-storage]: fractional byte value "100m" is invalid, must be an integer"#,
            ],
        );
        check(
            json!({"spec": {"containers": [], "terminationGracePeriodSeconds": -1, "dnsConfig": {"nameservers": ["01.1.1.1"]},
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}}}),
            &[
                "t.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
                "t.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod",
                r#"t.spec.dnsConfig.nameservers[0]: non-standard IP address "01.1.1.1" will be considered invalid in a future Kubernetes release: use "1.1.1.1""#,
            ],
        );
    }
}
