//! Containers of every kind: what they all share, and what sets regular, init and sidecar containers apart.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerResizePolicy, ContainerRestartRule, PodSpec, Volume,
};

use super::{Options, env, mounts, named, one_of, probes, required_one_of, resources, security};
use crate::field::{Error, Errors, Path, Value};
use crate::names;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// What the rules of a container look at beyond the container.
pub(super) struct Context<'a> {
    /// The volumes that are right, by name.
    pub(super) volumes: BTreeMap<&'a str, &'a Volume>,
    /// The names of the pod's claims.
    pub(super) claims: BTreeSet<&'a str>,
    pub(super) grace_period: Option<i64>,
    pub(super) restart_policy: &'a str,
    /// Whether the pod shares the host's user namespace.
    pub(super) host_users: bool,
    pub(super) options: &'a Options,
}

/// The containers that make up the pod.
pub(super) fn validate(containers: &[Container], context: &Context<'_>, path: &Path) -> Errors {
    if containers.is_empty() {
        return vec![path.required("")];
    }
    let mut errors = Errors::new();
    let mut names = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        errors.extend(validate_common(container, context, &path));
        if !names.insert(&container.name) {
            errors.push(path.child("name").duplicate(&container.name));
        }
        errors.extend(probes::validate_running(container, context, &path));
        errors.extend(restart_policy(container, context.options, &path));
    }
    errors.extend(host_port_conflicts(containers, path));
    errors
}

/// The containers that run before, and the sidecars that keep running.
pub(super) fn validate_init(spec: &PodSpec, context: &Context<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut names: BTreeSet<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let list = path;
        let path = path.index(i);
        errors.extend(validate_common(container, context, &path));
        errors.extend(init_restart_policy(container, context.options, &path));
        if names.contains(container.name.as_str()) {
            errors.push(path.child("name").duplicate(&container.name));
        } else if !container.name.is_empty() {
            names.insert(&container.name);
        }
        // One at a time, and each says that it is the first: so Kubernetes.
        errors.extend(host_port_conflicts(std::slice::from_ref(container), list));
        if container.restart_policy.as_deref() == Some("Always") {
            errors.extend(probes::validate_running(container, context, &path));
        } else {
            for (field, is_set) in [
                ("lifecycle", container.lifecycle.is_some()),
                ("livenessProbe", container.liveness_probe.is_some()),
                ("readinessProbe", container.readiness_probe.is_some()),
                ("startupProbe", container.startup_probe.is_some()),
            ] {
                if is_set {
                    let why = "may not be set for init containers without restartPolicy=Always";
                    errors.push(path.child(field).forbidden(why));
                }
            }
        }
    }
    errors
}

/// What holds for every container.
pub(super) fn validate_common(container: &Container, context: &Context<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if container.name.is_empty() {
        errors.push(path.child("name").required(""));
    } else {
        errors.extend(named(&path.child("name"), &container.name, names::dns_label));
    }
    if container.image.as_ref().is_none_or(String::is_empty) {
        errors.push(path.child("image").required(""));
    }
    let policy = container.termination_message_policy.as_deref().unwrap_or_default();
    errors.extend(required_one_of(
        &path.child("terminationMessagePolicy"),
        policy,
        &["File", "FallbackToLogsOnError"],
    ));
    errors.extend(ports(container.ports.as_deref().unwrap_or_default(), &path.child("ports")));
    errors.extend(env::validate(container.env.as_deref().unwrap_or_default(), &path.child("env")));
    errors.extend(env::validate_from(
        container.env_from.as_deref().unwrap_or_default(),
        &path.child("envFrom"),
    ));
    errors.extend(mounts::validate(container, &context.volumes, &path.child("volumeMounts")));
    errors.extend(mounts::validate_devices(container, &context.volumes, &path.child("volumeDevices")));
    let pull = container.image_pull_policy.as_deref().unwrap_or_default();
    errors.extend(pull_policy(pull, &path.child("imagePullPolicy")));
    if let Some(requirements) = &container.resources {
        let path = path.child("resources");
        errors.extend(resources::validate_container(requirements, &context.claims, context.options, &path));
    }
    let policies = container.resize_policy.as_deref().unwrap_or_default();
    errors.extend(resize_policy(policies, context.restart_policy, &path.child("resizePolicy")));
    if let Some(security) = &container.security_context {
        errors.extend(security::validate_container(security, context, &path.child("securityContext")));
    }
    errors
}

/// Images of pods have no space around them. In templates they may: what makes pods of them may put another name there.
pub(super) fn validate_image_of_pod(container: &Container, path: &Path) -> Option<Error> {
    let image = container.image.as_deref().unwrap_or_default();
    let why = "must not have leading or trailing whitespace";
    (image.trim() != image).then(|| path.child("image").invalid(image, why))
}

/// When an image is pulled.
pub(super) fn pull_policy(policy: &str, path: &Path) -> Errors {
    required_one_of(path, policy, &PULL_POLICIES).into_iter().collect()
}

fn ports(ports: &[ContainerPort], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        if let Some(name) = port.name.as_ref().filter(|name| !name.is_empty()) {
            let problems = names::port_name(name);
            if problems.is_empty() && !seen.insert(name) {
                errors.push(path.child("name").duplicate(name));
            }
            errors.extend(problems.into_iter().map(|problem| path.child("name").invalid(name, problem)));
        }
        let number = |field: &str, number: i32| -> Errors {
            let problems = names::port_number(number).into_iter();
            problems.map(|problem| path.child(field).invalid(number, problem)).collect()
        };
        if port.container_port == 0 {
            errors.push(path.child("containerPort").required(""));
        } else {
            errors.extend(number("containerPort", port.container_port));
        }
        if let Some(host_port) = port.host_port.filter(|port| *port != 0) {
            errors.extend(number("hostPort", host_port));
        }
        let protocol = port.protocol.as_deref().unwrap_or_default();
        errors.extend(required_one_of(&path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]));
    }
    errors
}

/// A port of the host belongs to one container.
fn host_port_conflicts(containers: &[Container], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut taken = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let Some(number) = port.host_port.filter(|number| *number != 0) else { continue };
            let protocol = port.protocol.as_deref().unwrap_or_default();
            let key = format!("{protocol}/{}/{number}", port.host_ip.as_deref().unwrap_or_default());
            if taken.contains(&key) {
                errors.push(path.index(i).child("ports").index(j).child("hostPort").duplicate(&key));
            }
            taken.insert(key);
        }
    }
    errors
}

fn resize_policy(policies: &[ContainerResizePolicy], pod_restart_policy: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (i, policy) in policies.iter().enumerate() {
        if !seen.insert(&policy.resource_name) {
            errors.push(path.index(i).duplicate(Value::json(&policy.resource_name)));
        }
        errors.extend(required_one_of(path, &policy.resource_name, &["cpu", "memory"]));
        let restart = &policy.restart_policy;
        errors.extend(required_one_of(path, restart, &["NotRequired", "RestartContainer"]));
        if pod_restart_policy == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(path.invalid(Value::json(restart), why));
        }
    }
    errors
}

/// When a container restarts, apart from what its pod says.
fn restart_policy(container: &Container, options: &Options, path: &Path) -> Errors {
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    let mut errors = Errors::new();
    match &container.restart_policy {
        None if rules.is_empty() => return errors,
        None => errors.push(without_policy(path)),
        Some(policy) => {
            errors.extend(one_of(&path.child("restartPolicy"), policy, &["Always", "Never", "OnFailure"]));
        }
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > 20 {
        errors.push(path.too_long(20));
    }
    for (i, rule) in rules.iter().enumerate() {
        errors.extend(restart_rule(rule, options, &path.index(i)));
    }
    errors
}

fn restart_rule(rule: &ContainerRestartRule, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if !(options.allow_restart_all_containers && rule.action == "RestartAllContainers") {
        errors.extend(one_of(&path.child("action"), &rule.action, &["Restart"]));
    }
    let path = path.child("exitCodes");
    let Some(exit_codes) = &rule.exit_codes else {
        errors.push(path.required("must be specified"));
        return errors;
    };
    errors.extend(one_of(&path.child("operator"), &exit_codes.operator, &["In", "NotIn"]));
    if exit_codes.values.as_ref().is_some_and(|values| values.len() > 255) {
        errors.push(path.child("values").too_long(255));
    }
    errors
}

/// The same for an init container, where `Always` makes it a sidecar.
fn init_restart_policy(container: &Container, options: &Options, path: &Path) -> Errors {
    let has_rules = container.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty());
    match container.restart_policy.as_deref() {
        None if has_rules => vec![without_policy(path)],
        None => Errors::new(),
        Some("Always") if !options.allow_restart_all_containers => {
            let why = "restartPolicyRules are not allowed for init containers with restart policy Always";
            if has_rules { vec![path.child("restartPolicyRules").forbidden(why)] } else { Errors::new() }
        }
        Some(_) => restart_policy(container, options, path),
    }
}

fn without_policy(path: &Path) -> Error {
    path.child("restartPolicy").required("must specify restartPolicy when restart rules are used")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{check_container, check_spec};

    #[test]
    fn c_63_names_and_images() {
        check_spec(json!({"containers": []}), &["spec.containers: Required value"]);
        check_spec(
            json!({"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}, {"name": "A.b"}],
                   "initContainers": [{"name": "a", "image": " "}]}),
            &[
                r#"spec.containers[1].name: Duplicate value: "a""#,
                r#"spec.containers[2].name: Invalid value: "A.b": a lowercase RFC 1123 label must"#,
                "spec.containers[2].image: Required value",
                r#"spec.initContainers[0].name: Duplicate value: "a""#,
            ],
        );
        check_container(
            json!({"imagePullPolicy": "Sometimes", "terminationMessagePolicy": "Mail"}),
            &[
                r#".terminationMessagePolicy: Unsupported value: "Mail": supported values: "File", "FallbackToLogsOnError""#,
                r#".imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never""#,
            ],
        );
    }

    #[test]
    fn c_63_ports() {
        check_container(
            json!({"ports": [
                {"containerPort": 80, "name": "web", "hostPort": 80},
                {"containerPort": 0, "name": "web", "hostPort": 80},
                {"containerPort": 65536, "name": "Web--1", "hostPort": -1, "protocol": "ICMP"},
            ]}),
            &[
                r#".ports[1].name: Duplicate value: "web""#,
                ".ports[1].containerPort: Required value",
                r#".ports[2].name: Invalid value: "Web--1": must contain only alpha-numeric"#,
                r#".ports[2].name: Invalid value: "Web--1": must not contain consecutive hyphens"#,
                ".ports[2].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
                ".ports[2].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
                r#".ports[2].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP""#,
                r#".ports[1].hostPort: Duplicate value: "TCP//80""#,
            ],
        );
    }

    #[test]
    fn c_63_resizing() {
        check_container(
            json!({"resizePolicy": [
                {"resourceName": "cpu", "restartPolicy": "RestartContainer"},
                {"resourceName": "cpu", "restartPolicy": "NotRequired"},
                {"resourceName": "disk", "restartPolicy": ""},
            ]}),
            &[
                r#".resizePolicy: Invalid value: "RestartContainer": must be 'NotRequired' when `restartPolicy` is 'Never'"#,
                r#".resizePolicy[1]: Duplicate value: "cpu""#,
                r#".resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory""#,
                ".resizePolicy: Required value",
                r#".resizePolicy: Invalid value: "": must be 'NotRequired' when `restartPolicy` is 'Never'"#,
            ],
        );
    }

    #[test]
    fn c_63_restarts_of_their_own() {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}});
        check_container(json!({"restartPolicy": "Never", "restartPolicyRules": [rule]}), &[]);
        check_container(
            json!({"restartPolicyRules": [{"action": "RestartAllContainers"}, {"exitCodes": {"operator": "Is"}}]}),
            &[
                ".restartPolicy: Required value: must specify restartPolicy when restart rules are used",
                r#".restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart""#,
                ".restartPolicyRules[0].exitCodes: Required value: must be specified",
                r#".restartPolicyRules[1].action: Unsupported value: "": supported values: "Restart""#,
                r#".restartPolicyRules[1].exitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn""#,
            ],
        );
        check_container(
            json!({"restartPolicy": "Maybe"}),
            &[
                r#".restartPolicy: Unsupported value: "Maybe": supported values: "Always", "Never", "OnFailure""#,
            ],
        );
    }

    #[test]
    fn c_63_init_containers_and_sidecars() {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}});
        let check = |mut container: serde_json::Value, expected: &[&str]| {
            container["name"] = json!("init");
            container["image"] = json!("i");
            let spec = json!({"containers": [{"name": "c", "image": "i"}], "initContainers": [container]});
            check_spec(spec, expected);
        };
        check(json!({"restartPolicy": "Always", "livenessProbe": {"exec": {"command": ["x"]}}}), &[]);
        check(
            json!({"livenessProbe": {"exec": {"command": ["x"]}}, "lifecycle": {}}),
            &[
                "spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
                "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ],
        );
        check(
            json!({"restartPolicy": "Always", "restartPolicyRules": [rule]}),
            &[
                "spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed for init",
            ],
        );
        check(
            json!({"restartPolicyRules": [rule]}),
            &["spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when"],
        );
    }
}
