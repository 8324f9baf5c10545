//! Pods and pod templates: defaults, rules and warnings as Kubernetes 1.35 has them.
//!
//! Rules are ordered as upstream orders them, and say where something is wrong as upstream says it, which is now and
//! then a little beside the field. They take objects in canonical form: absent is zero wherever Go has no pointer.
//!
//! - [`defaults`]: what fields are when nobody said;
//! - [`gates`]: what a write drops, because its feature is switched off;
//! - [`Options`]: what is let pass;
//! - [`warnings`]: what is accepted with a remark;
//! - [`standards`]: what a namespace lets its pods do to their nodes;
//! - here, [`validate_template`] and [`validate_create`]: the order of the rules. Each noun has its file:
//!   `containers`, `ephemeral`, `env`, `probes`, `resources`, `claims`, `mounts`, `volumes`,
//!   `security`, `profiles`, `windows`, `affinity`, `scheduling`, `dns`.
//!
//! What a pod does, and whether its names lead anywhere, is not known here.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::field::{Error, Errors, Path, Value};
use crate::meta;
use crate::names::{self, Problems};
use containers::Context;

pub(crate) mod addresses;
pub(crate) mod affinity;
mod claims;
mod containers;
pub mod defaults;
mod dns;
mod env;
mod ephemeral;
pub mod eviction;
pub mod gates;
mod image;
pub mod logs;
mod mounts;
mod options;
pub(crate) mod paths;
pub mod prepare;
mod probes;
mod profiles;
pub mod qos;
pub(crate) mod resources;
mod scheduling;
mod security;
pub mod standards;
pub mod status;
pub mod update;
pub(crate) mod volumes;
pub mod warnings;
mod windows;

pub use options::Options;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const MIRROR: &str = "kubernetes.io/config.mirror";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

type Annotations = BTreeMap<String, String>;

/// A pod template (C-63), which has passed [`defaults`] and [`gates`].
pub fn validate_template(template: &PodTemplateSpec, options: &Options, path: &Path) -> Errors {
    let no_spec = PodSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&no_spec);
    let labels = template.metadata.as_ref().and_then(|meta| meta.labels.as_ref());
    let annotations = annotations(template.metadata.as_ref());
    let at_spec = path.child("spec");

    let mut errors = meta::labels(labels, &path.child("labels"));
    errors.extend(meta::annotations(Some(annotations), &path.child("annotations")));
    errors.extend(validate_annotations(annotations, spec, options, &path.child("annotations")));
    errors.extend(validate_spec(spec, None, options, &at_spec));
    errors.extend(profiles::seccomp_agrees(annotations, spec, &at_spec));
    errors.extend(profiles::app_armor_agrees(annotations, spec, &at_spec));
    if spec.ephemeral_containers.as_ref().is_some_and(|containers| !containers.is_empty()) {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(at_spec.child("ephemeralContainers").forbidden(why));
    }
    errors
}

/// A new pod, which has passed [`defaults`].
pub fn validate_create(pod: &Pod, options: &Options) -> Errors {
    let no_spec = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let annotations = annotations(Some(&pod.metadata));
    let path = Path::new("spec");

    let mut errors = validate_metadata_and_spec(pod, options);
    if spec.ephemeral_containers.as_ref().is_some_and(|containers| !containers.is_empty()) {
        errors.push(path.child("ephemeralContainers").forbidden("cannot be set on create"));
    }
    let has_node = spec.node_name.as_ref().is_some_and(|name| !name.is_empty());
    if has_node && spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(path.child("nodeName").forbidden(why));
    }
    errors.extend(profiles::seccomp_agrees(annotations, spec, &path));
    errors.extend(profiles::app_armor_agrees(annotations, spec, &path));
    errors
}

/// What is asked of a pod whenever it is written, but for its status.
fn validate_metadata_and_spec(pod: &Pod, options: &Options) -> Errors {
    let no_spec = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let annotations = annotations(Some(&pod.metadata));
    let (at_meta, path) = (Path::new("metadata"), Path::new("spec"));

    let mut errors = meta::validate_built_in(&pod.metadata, names::dns_subdomain, &at_meta);
    errors.extend(validate_annotations(annotations, spec, options, &at_meta.child("annotations")));
    errors.extend(validate_spec(spec, Some(&pod.metadata), options, &path));
    errors.extend(volumes::validate_tokens(spec, &path));
    for (field, containers) in
        [("containers", Some(&spec.containers)), ("initContainers", spec.init_containers.as_ref())]
    {
        let containers = containers.into_iter().flatten().enumerate();
        errors.extend(containers.filter_map(|(i, container)| {
            containers::validate_image_of_pod(container, &path.child(field).index(i))
        }));
    }
    errors
}

/// Annotations that mean something to Kubernetes.
fn validate_annotations(annotations: &Annotations, spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(value) =
        annotations.get(MIRROR).filter(|_| spec.node_name.as_ref().is_none_or(String::is_empty))
    {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(path.key(MIRROR).invalid(value, why));
    }
    if let Some(value) = annotations.get(TOLERATIONS).filter(|value| !value.is_empty()) {
        match serde_json::from_str::<Vec<Toleration>>(value) {
            Ok(tolerations) => {
                let path = path.child(TOLERATIONS);
                errors.extend(scheduling::validate_tolerations(&tolerations, options, &path));
            }
            Err(error) => errors.push(path.invalid(TOLERATIONS, error.to_string())),
        }
    }
    if !options.allow_invalid_deletion_cost
        && let Err(cost) = deletion_cost(annotations)
    {
        errors.push(path.key(DELETION_COST).invalid(cost, "must be a 32bit integer"));
    }
    errors.extend(profiles::seccomp_annotations(annotations, path));
    errors.extend(profiles::app_armor_annotations(annotations, spec, path));
    errors
}

/// How much it costs to delete the pod rather than another one; if that is no number, its text.
fn deletion_cost(annotations: &Annotations) -> Result<i32, &str> {
    let Some(cost) = annotations.get(DELETION_COST) else { return Ok(0) };
    let starts_well = cost == "0" || cost.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    cost.parse().ok().filter(|_| starts_well).ok_or(cost)
}

/// What a pod is to be. `pod` is the metadata of the pod, if it is one already and not a template.
fn validate_spec(spec: &PodSpec, pod: Option<&ObjectMeta>, options: &Options, path: &Path) -> Errors {
    let pod_name = pod.and_then(|pod| pod.name.as_deref()).filter(|name| !name.is_empty());
    let is_static = annotations(pod).contains_key(MIRROR);
    let mut errors = Errors::new();
    if spec.termination_grace_period_seconds.is_none() {
        errors.push(path.child("terminationGracePeriodSeconds").required(""));
    }
    let (volumes, volume_errors) = volumes::validate(
        spec.volumes.as_deref().unwrap_or_default(),
        pod_name,
        options,
        &path.child("volumes"),
    );
    errors.extend(volume_errors);
    let claims = spec.resource_claims.as_deref().unwrap_or_default();
    errors.extend(claims::validate(claims, is_static, &path.child("resourceClaims")));
    let restart_policy = spec.restart_policy.as_deref().unwrap_or_default();
    let context = Context {
        volumes,
        claims: claims.iter().map(|claim| claim.name.as_str()).filter(|name| !name.is_empty()).collect(),
        grace_period: spec.termination_grace_period_seconds,
        restart_policy,
        host_users: spec.host_users != Some(false),
        options,
    };
    errors.extend(containers::validate(&spec.containers, &context, &path.child("containers")));
    errors.extend(containers::validate_init(spec, &context, &path.child("initContainers")));
    errors.extend(ephemeral::validate(spec, &context, &path.child("ephemeralContainers")));
    errors.extend(resources::validate_pod(spec, &context.claims, options, path));
    errors.extend(dns::validate_host_network(spec, options, path));
    errors.extend(required_one_of(
        &path.child("restartPolicy"),
        restart_policy,
        &["Always", "OnFailure", "Never"],
    ));
    let dns_policy = spec.dns_policy.as_deref().unwrap_or_default();
    errors.extend(required_one_of(
        &path.child("dnsPolicy"),
        dns_policy,
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    ));
    errors.extend(meta::labels(spec.node_selector.as_ref(), &path.child("nodeSelector")));
    errors.extend(security::validate_pod(spec, options, &path.child("securityContext")));
    if let Some(affinity) = &spec.affinity {
        errors.extend(affinity::validate(affinity, options, &path.child("affinity")));
    }
    errors.extend(dns::validate_config(spec.dns_config.as_ref(), dns_policy, &path.child("dnsConfig")));
    for (i, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let path = path.child("readinessGates").index(i).child("conditionType");
        errors.extend(meta::qualified(&gate.condition_type, &path));
    }
    let gates = spec.scheduling_gates.as_deref().unwrap_or_default();
    errors.extend(scheduling::validate_gates(gates, &path.child("schedulingGates")));
    let constraints = spec.topology_spread_constraints.as_deref().unwrap_or_default();
    let at = path.child("topologySpreadConstraints");
    errors.extend(scheduling::validate_spread(constraints, options, &at));
    errors.extend(windows::validate_host_process(spec, options, path));
    errors.extend(security::validate_host_users(spec, options, path));
    errors.extend(dns::validate_hostname_override(spec, path));
    errors.extend(validate_rest(spec, options, path));
    errors
}

/// The second half, in which most rules are one line.
fn validate_rest(spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    let name = |field: &str, name: &Option<String>, check: fn(&str) -> Problems| -> Errors {
        let name = name.as_ref().filter(|name| !name.is_empty());
        name.map_or_else(Errors::new, |name| named(&path.child(field), name, check))
    };
    let mut errors = name("serviceAccountName", &spec.service_account_name, names::dns_subdomain);
    errors.extend(name("nodeName", &spec.node_name, names::dns_subdomain));
    if let Some(seconds) = spec.active_deadline_seconds {
        let problems = names::in_range(seconds, 1, i32::MAX.into()).into_iter();
        errors.extend(problems.map(|problem| path.child("activeDeadlineSeconds").invalid(seconds, problem)));
    }
    errors.extend(name("hostname", &spec.hostname, names::dns_label));
    errors.extend(name("subdomain", &spec.subdomain, names::dns_label));
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    errors.extend(scheduling::validate_tolerations(tolerations, options, &path.child("tolerations")));
    let aliases = spec.host_aliases.as_deref().unwrap_or_default();
    errors.extend(dns::validate_host_aliases(aliases, &path.child("hostAliases")));
    errors.extend(name("priorityClassName", &spec.priority_class_name, names::dns_subdomain));
    if let Some(class) = &spec.runtime_class_name {
        errors.extend(named(&path.child("runtimeClassName"), class, names::dns_subdomain));
    }
    if let Some(policy) = &spec.preemption_policy {
        let supported = ["PreemptLowerPriority", "Never"];
        errors.extend(required_one_of(&path.child("preemptionPolicy"), policy, &supported));
    }
    if let Some(overhead) = &spec.overhead {
        errors.extend(resources::validate_overhead(overhead, options, &path.child("overhead")));
    }
    errors.extend(windows::validate_os(spec, path));
    errors.extend(env::file_volumes(spec, path));
    errors
}

/// What a runtime needs for itself.
pub(crate) fn overhead(amounts: &resources::List, path: &Path) -> Errors {
    resources::validate_overhead(amounts, &Options::default(), path)
}

/// Taints that are put up with.
pub(crate) fn tolerations(tolerations: &[Toleration], path: &Path) -> Errors {
    scheduling::validate_tolerations(tolerations, &Options::default(), path)
}

/// Every container with its path, in the order in which Kubernetes visits them.
fn all_containers<'a>(spec: &'a PodSpec, path: &Path) -> Vec<(Cow<'a, Container>, Path)> {
    let mut all = Vec::new();
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        all.push((Cow::Borrowed(container), path.child("initContainers").index(i)));
    }
    for (i, container) in spec.containers.iter().enumerate() {
        all.push((Cow::Borrowed(container), path.child("containers").index(i)));
    }
    for (i, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let container = Cow::Owned(ephemeral::to_container(container));
        all.push((container, path.child("ephemeralContainers").index(i)));
    }
    all
}

fn annotations(meta: Option<&ObjectMeta>) -> &Annotations {
    static NONE: Annotations = BTreeMap::new();
    meta.and_then(|meta| meta.annotations.as_ref()).unwrap_or(&NONE)
}

/// Every problem with a name, at its place.
fn named(path: &Path, name: &str, check: fn(&str) -> Problems) -> Errors {
    check(name).into_iter().map(|problem| path.invalid(name, problem)).collect()
}

/// A word of an enumeration. Go has a type for each of them, and prints those as JSON.
fn one_of(path: &Path, value: &str, supported: &[&str]) -> Option<Error> {
    (!supported.contains(&value)).then(|| path.not_supported(Value::json(&value), supported))
}

/// The same where saying nothing is its own mistake.
fn required_one_of(path: &Path, value: &str, supported: &[&str]) -> Option<Error> {
    if value.is_empty() { Some(path.required("")) } else { one_of(path, value, supported) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use types::go;

    use super::*;

    /// Validates a template with defaults; each error starts with what is expected after `template.`.
    pub(super) fn check_template(template: Value, expected: &[&str]) {
        let mut template: PodTemplateSpec = serde_json::from_value(template).expect("a test's template");
        let spec = template.spec.get_or_insert_default();
        spec.restart_policy.get_or_insert_with(|| "Never".to_owned());
        defaults::apply_template_defaults(&mut template);
        let errors = validate_template(&template, &Options::default(), &Path::new("template"));
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let starts = |(error, start): (&String, &&str)| error.starts_with(&format!("template.{start}"));
        assert!(
            errors.len() == expected.len() && errors.iter().zip(expected).all(starts),
            "expected {expected:#?}, got {errors:#?}"
        );
    }

    /// The same for a spec.
    pub(super) fn check_spec(spec: Value, expected: &[&str]) {
        check_template(json!({"spec": spec}), expected);
    }

    /// The same for a spec that needs no container of its own.
    pub(super) fn check_pod(mut spec: Value, expected: &[&str]) {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        check_spec(spec, expected);
    }

    /// The same for a container; what is expected starts after `spec.containers[0]`.
    pub(super) fn check_container(mut container: Value, expected: &[&str]) {
        container["name"] = json!("c");
        container["image"] = json!("i");
        let expected: Vec<String> = expected.iter().map(|text| format!("spec.containers[0]{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_spec(json!({"containers": [container]}), &expected);
    }

    #[test]
    fn c_63_metadata() {
        let containers = json!([{"name": "c", "image": "i"}]);
        let check = |metadata: Value, expected: &[&str]| {
            check_template(json!({"metadata": metadata, "spec": {"containers": containers}}), expected);
        };
        check(
            json!({"labels": {"-": "-"}, "annotations": {"-": ""}}),
            &[
                r#"labels: Invalid value: "-": name part must consist"#,
                r#"labels: Invalid value: "-": a valid label must"#,
                r#"annotations: Invalid value: "-": name part must consist"#,
            ],
        );
        for cost in ["+1", "01", "1x", "", "4294967296"] {
            check(
                json!({"annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}),
                &[&format!(
                    "annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: {}: must be a 32bit integer",
                    go::quote(cost)
                )],
            );
        }
        check(
            json!({"annotations": {"kubernetes.io/config.mirror": "m"}}),
            &[r#"annotations[kubernetes.io/config.mirror]: Invalid value: "m": must set spec.nodeName"#],
        );
        check(
            json!({"annotations": {"scheduler.alpha.kubernetes.io/tolerations": r#"[{"key": "-"}]"#}}),
            &[
                r#"annotations.scheduler.alpha.kubernetes.io/tolerations[0].key: Invalid value: "-": name part must"#,
            ],
        );
    }

    #[test]
    fn c_63_names_and_numbers() {
        check_pod(
            json!({"serviceAccountName": "A", "nodeName": "A", "hostname": "a.b", "subdomain": "A",
                "priorityClassName": "A", "runtimeClassName": "", "activeDeadlineSeconds": 0,
                "preemptionPolicy": "Maybe", "restartPolicy": "Sometimes", "overhead": {"x": "1"},
                "nodeSelector": {"a": "-"}, "readinessGates": [{"conditionType": ""}]}),
            &[
                r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
                r#"spec.nodeSelector: Invalid value: "-": a valid label must"#,
                r#"spec.readinessGates[0].conditionType: Invalid value: "": name part must be non-empty"#,
                r#"spec.readinessGates[0].conditionType: Invalid value: "": name part must consist"#,
                r#"spec.serviceAccountName: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                r#"spec.nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
                r#"spec.hostname: Invalid value: "a.b": must not contain dots"#,
                r#"spec.subdomain: Invalid value: "A": a lowercase RFC 1123 label"#,
                r#"spec.priorityClassName: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                r#"spec.runtimeClassName: Invalid value: "": a lowercase RFC 1123 subdomain"#,
                r#"spec.preemptionPolicy: Unsupported value: "Maybe": supported values: "PreemptLowerPriority", "Never""#,
                r#"spec.overhead.limits[x]: Invalid value: "x": must be a standard resource type or fully qualified"#,
                r#"spec.overhead.limits[x]: Invalid value: "x": must be a standard resource for containers"#,
            ],
        );
    }

    #[test]
    fn c_63_ephemeral_containers() {
        check_pod(
            json!({"ephemeralContainers": [{"name": "c", "image": " i", "targetContainerName": "x", "ports": []}]}),
            &[
                r#"spec.ephemeralContainers[0].image: Invalid value: " i": must not have leading or trailing whitespace"#,
                r#"spec.ephemeralContainers[0].name: Duplicate value: "c""#,
                r#"spec.ephemeralContainers[0].targetContainerName: Not found: "x""#,
                "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
                "spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template",
            ],
        );
    }

    #[test]
    fn a_pod_is_judged_more_strictly_than_a_template() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "annotations": {"kubernetes.io/config.mirror": "m"}},
            "spec": {
                "nodeName": "node", "schedulingGates": [{"name": "a"}], "hostNetwork": true,
                "resourceClaims": [{"name": "claim", "resourceClaimName": "x"}],
                "containers": [{"name": "c", "image": " i", "ports": [{"containerPort": 80}]}],
                "ephemeralContainers": [{"name": "e", "image": "i"}],
                "volumes": [
                    {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec":
                        {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}}},
                    {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}},
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                    {"name": "i", "image": {}},
                ],
            },
        });
        let mut pod: Pod = serde_json::from_value(pod).expect("a test's pod");
        defaults::apply_pod_defaults(&mut pod);
        let errors = validate_create(&pod, &Options::for_pod(None));
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            errors,
            [
                r#"spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-v": must not reference a PVC that gets created for an ephemeral volume"#,
                "spec.volumes[3].image.reference: Required value",
                "[]: Forbidden: static pods do not support resource claims",
                "spec.volumes[2].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
                r#"spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace"#,
                "spec.ephemeralContainers: Forbidden: cannot be set on create",
                "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            ]
        );
    }
}
