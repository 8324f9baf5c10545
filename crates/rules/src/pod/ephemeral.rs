//! Ephemeral containers: a container and, beside it, the name of another one that it looks into.
//!
//! They come later than their pod, through a subresource of it, and never stand in a template; a template that has
//! them is nevertheless judged in full first, as Kubernetes does.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, PodSpec, ResourceRequirements};

use super::containers::{Context, validate_common, validate_image_of_pod};
use crate::field::{Errors, Path};

const NOT_SET: &str = "cannot be set for an Ephemeral Container";

/// Every ephemeral container of a pod.
pub(super) fn validate(spec: &PodSpec, context: &Context<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let others: BTreeSet<&str> = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .map(|container| container.name.as_str())
        .collect();
    let mut names = others.clone();
    for (i, ephemeral) in spec.ephemeral_containers.iter().flatten().enumerate() {
        let path = path.index(i);
        let container = to_container(ephemeral);
        errors.extend(validate_common(&container, context, &path));
        errors.extend(validate_image_of_pod(&container, &path));
        if !names.insert(&ephemeral.name) {
            errors.push(path.child("name").duplicate(&ephemeral.name));
        }
        let target = ephemeral.target_container_name.as_deref().unwrap_or_default();
        if !target.is_empty() && !others.contains(target) {
            errors.push(path.child("targetContainerName").not_found(target));
        }
        for field in forbidden_fields(&container) {
            errors.push(path.child(field).forbidden(NOT_SET));
        }
        for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
            let path = path.child("volumeMounts").index(i);
            for (field, value) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
                if value.as_ref().is_some_and(|value| !value.is_empty()) {
                    errors.push(path.child(field).forbidden(NOT_SET));
                }
            }
        }
    }
    errors
}

/// What other containers may have and these may not, in the order of the internal structure.
fn forbidden_fields(container: &Container) -> Vec<&'static str> {
    let is_set = |set: bool, name| set.then_some(name);
    let no_resources = |resources: &ResourceRequirements| {
        resources.limits.is_none() && resources.requests.is_none() && resources.claims.is_none()
    };
    [
        is_set(container.ports.is_some(), "ports"),
        is_set(container.resources.as_ref().is_some_and(|r| !no_resources(r)), "resources"),
        is_set(container.resize_policy.is_some(), "resizePolicy"),
        is_set(container.restart_policy.is_some(), "restartPolicy"),
        is_set(container.restart_policy_rules.is_some(), "restartPolicyRules"),
        is_set(container.liveness_probe.is_some(), "livenessProbe"),
        is_set(container.readiness_probe.is_some(), "readinessProbe"),
        is_set(container.startup_probe.is_some(), "startupProbe"),
        is_set(container.lifecycle.is_some(), "lifecycle"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The two types have the same fields; named once for both directions, and the compiler finds the one that is missing.
macro_rules! copy_fields {
    ($to:ident from $from:ident $(, $field:ident: $value:expr)?) => {
        $to {
            args: $from.args,
            command: $from.command,
            env: $from.env,
            env_from: $from.env_from,
            image: $from.image,
            image_pull_policy: $from.image_pull_policy,
            lifecycle: $from.lifecycle,
            liveness_probe: $from.liveness_probe,
            name: $from.name,
            ports: $from.ports,
            readiness_probe: $from.readiness_probe,
            resize_policy: $from.resize_policy,
            resources: $from.resources,
            restart_policy: $from.restart_policy,
            restart_policy_rules: $from.restart_policy_rules,
            security_context: $from.security_context,
            startup_probe: $from.startup_probe,
            stdin: $from.stdin,
            stdin_once: $from.stdin_once,
            termination_message_path: $from.termination_message_path,
            termination_message_policy: $from.termination_message_policy,
            tty: $from.tty,
            volume_devices: $from.volume_devices,
            volume_mounts: $from.volume_mounts,
            working_dir: $from.working_dir,
            $($field: $value)?
        }
    };
}

/// The part of an ephemeral container that is a container.
pub(super) fn to_container(ephemeral: &EphemeralContainer) -> Container {
    let ephemeral = ephemeral.clone();
    copy_fields!(Container from ephemeral)
}

/// The inverse of [`to_container`].
pub(super) fn from_container(container: Container, target: Option<String>) -> EphemeralContainer {
    copy_fields!(EphemeralContainer from container, target_container_name: target)
}
