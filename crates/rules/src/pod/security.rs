//! Security contexts of pods and containers: users and groups, privileges, sysctls, and the namespaces of the host.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec, SecurityContext};

use super::containers::Context;
use super::{Options, all_containers, one_of, profiles, windows};
use crate::field::{Errors, Path, Value};
use crate::names;

const SECURITY_CONTEXT: &str = "io.k8s.api.core.v1.SecurityContext";
const MAX_SYSCTL: usize = 253;
const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// The security context of a container.
pub(super) fn validate_container(context: &SecurityContext, of: &Context<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if context.privileged == Some(true) && !of.options.allow_privileged {
        errors.push(path.child("privileged").forbidden("disallowed by cluster policy"));
    }
    errors.extend(id(context.run_as_user, &path.child("runAsUser")));
    errors.extend(id(context.run_as_group, &path.child("runAsGroup")));
    if let Some(proc_mount) = &context.proc_mount {
        let path = path.child("procMount");
        errors.extend(one_of(&path, proc_mount, &["Default", "Unmasked"]));
        if of.host_users && proc_mount == "Unmasked" {
            let why = "`hostUsers` must be false to use `Unmasked`";
            errors.push(path.invalid(Value::json(proc_mount), why));
        }
    }
    errors.extend(profiles::seccomp(context.seccomp_profile.as_ref(), &path.child("seccompProfile")));
    if context.allow_privilege_escalation == Some(false) {
        let value = || Value::internal(SECURITY_CONTEXT, context);
        if context.privileged == Some(true) {
            let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.push(path.invalid(value(), why));
        }
        let added = context.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(path.invalid(value(), why));
        }
    }
    if let Some(options) = &context.windows_options {
        errors.extend(windows::validate_options(options, &path.child("windowsOptions")));
    }
    errors.extend(profiles::app_armor(context.app_armor_profile.as_ref(), &path.child("appArmorProfile")));
    errors
}

/// The security context of a pod.
pub(super) fn validate_pod(spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    let Some(context) = &spec.security_context else { return Errors::new() };
    let mut errors = Errors::new();
    errors.extend(id(context.fs_group, &path.child("fsGroup")));
    errors.extend(id(context.run_as_user, &path.child("runAsUser")));
    errors.extend(id(context.run_as_group, &path.child("runAsGroup")));
    for (i, group) in context.supplemental_groups.iter().flatten().enumerate() {
        errors.extend(id(Some(*group), &path.child("supplementalGroups").index(i)));
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(path.child("shareProcessNamespace").invalid(true, why));
    }
    errors.extend(sysctls(context, spec, options, &path.child("sysctls")));
    if let Some(policy) = &context.fs_group_change_policy {
        errors.extend(one_of(&path.child("fsGroupChangePolicy"), policy, &["Always", "OnRootMismatch"]));
    }
    errors.extend(profiles::seccomp(context.seccomp_profile.as_ref(), &path.child("seccompProfile")));
    if let Some(windows_options) = &context.windows_options {
        errors.extend(windows::validate_options(windows_options, &path.child("windowsOptions")));
    }
    errors.extend(profiles::app_armor(context.app_armor_profile.as_ref(), &path.child("appArmorProfile")));
    if let Some(policy) = &context.supplemental_groups_policy {
        errors.extend(one_of(&path.child("supplementalGroupsPolicy"), policy, &["Merge", "Strict"]));
    }
    if let Some(policy) = &context.se_linux_change_policy {
        let supported: &[&str] = if options.allow_any_se_linux_change_policy {
            &["MountOption", "Recursive"]
        } else {
            &["Recursive"]
        };
        errors.extend(one_of(&path.child("seLinuxChangePolicy"), policy, supported));
    }
    errors
}

fn id(id: Option<i64>, path: &Path) -> Errors {
    let check = |id| names::user_or_group_id(id).into_iter().map(move |problem| path.invalid(id, problem));
    id.into_iter().flat_map(check).collect()
}

fn sysctls(context: &PodSecurityContext, spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (i, sysctl) in context.sysctls.iter().flatten().enumerate() {
        let path = path.index(i).child("name");
        if sysctl.name.is_empty() {
            errors.push(path.required(""));
        } else if !is_sysctl(&sysctl.name) {
            let why = format!("must have at most {MAX_SYSCTL} characters and match regex {SYSCTL}");
            errors.push(path.invalid(&sysctl.name, why));
        } else if seen.contains(&sysctl.name) {
            errors.push(path.duplicate(&sysctl.name));
        }
        if !options.allow_host_sysctls
            && let Some(why) = host_sysctl(&sysctl.name, spec)
        {
            errors.push(path.invalid(&sysctl.name, why));
        }
        seen.insert(&sysctl.name);
    }
    errors
}

fn is_sysctl(name: &str) -> bool {
    let is_edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_segment = |segment: &str| {
        segment.bytes().next().is_some_and(is_edge)
            && segment.bytes().next_back().is_some_and(is_edge)
            && segment.bytes().all(|b| is_edge(b) || b == b'-' || b == b'_')
    };
    name.len() <= MAX_SYSCTL && name.split(['.', '/']).all(is_segment)
}

/// Why a sysctl would reach through to the host, if it would.
fn host_sysctl(name: &str, spec: &PodSpec) -> Option<&'static str> {
    let name = dotted(name);
    let name = name.split('*').next().unwrap_or_default();
    let is_ipc = matches!(name, "kernel.sem" | "kernel.shm_rmid_forced")
        || matches!(name, "kernel.shm" | "kernel.shmall" | "kernel.shmmax" | "kernel.shmmni")
        || matches!(name, "kernel.msg" | "kernel.msgmax" | "kernel.msgmnb" | "kernel.msgmni")
        || name.starts_with("fs.mqueue.");
    if spec.host_network == Some(true) && name.starts_with("net.") {
        return Some("may not be specified when 'hostNetwork' is true");
    }
    (spec.host_ipc == Some(true) && is_ipc).then_some("may not be specified when 'hostIPC' is true")
}

/// Whether a pod has a sysctl that would be refused today.
pub(super) fn has_host_sysctls(spec: &PodSpec) -> bool {
    let sysctls = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    sysctls.into_iter().any(|sysctl| host_sysctl(&sysctl.name, spec).is_some())
}

/// A name with slashes between its parts, `net/ipv4/conf/eno2.100`, is another spelling of one with dots.
fn dotted(name: &str) -> String {
    let slashed = name.find(['.', '/']).is_some_and(|at| name[at..].starts_with('/'));
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    if slashed { name.chars().map(swap).collect() } else { name.to_owned() }
}

/// A pod with its own users shares nothing else with the host.
pub(super) fn validate_host_users(spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    const WHY: &str = "when `hostUsers` is false";
    if spec.host_users != Some(false) {
        return Errors::new();
    }
    let mut errors = Errors::new();
    if spec.host_network == Some(true) && !options.allow_user_namespaces_with_host_network {
        errors.push(path.child("hostNetwork").forbidden(WHY));
    }
    if spec.host_pid == Some(true) {
        errors.push(path.child("HostPID").forbidden(WHY));
    }
    if spec.host_ipc == Some(true) {
        errors.push(path.child("HostIPC").forbidden(WHY));
    }
    if !options.allow_user_namespaces_with_volume_devices {
        for (container, path) in all_containers(spec, path) {
            if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
                errors.push(path.child("volumeDevices").forbidden(WHY));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{check_container, check_pod};

    #[test]
    fn c_63_of_containers() {
        let check = |context: Value, expected: &[&str]| {
            check_container(json!({"securityContext": context}), expected);
        };
        check(json!({"runAsUser": 0, "runAsGroup": 2_147_483_647, "procMount": "Default"}), &[]);
        check(
            json!({"runAsUser": -1, "runAsGroup": 2_147_483_648_i64, "procMount": "Unmasked", "privileged": true}),
            &[
                ".securityContext.privileged: Forbidden: disallowed by cluster policy",
                ".securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                ".securityContext.runAsGroup: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
                r#".securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`"#,
            ],
        );
        check(
            json!({"procMount": "Odd"}),
            &[
                r#".securityContext.procMount: Unsupported value: "Odd": supported values: "Default", "Unmasked""#,
            ],
        );
        check(
            json!({"allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}),
            &[".securityContext: Invalid value: "],
        );
    }

    #[test]
    fn c_63_of_pods() {
        let check =
            |context: Value, expected: &[&str]| check_pod(json!({"securityContext": context}), expected);
        check(
            json!({"fsGroup": -1, "runAsUser": -1, "runAsGroup": -1, "supplementalGroups": [1, -1]}),
            &[
                "spec.securityContext.fsGroup: Invalid value: -1: must be between",
                "spec.securityContext.runAsUser: Invalid value: -1: must be between",
                "spec.securityContext.runAsGroup: Invalid value: -1: must be between",
                "spec.securityContext.supplementalGroups[1]: Invalid value: -1: must be between",
            ],
        );
        check(
            json!({"fsGroupChangePolicy": "a", "supplementalGroupsPolicy": "b", "seLinuxChangePolicy": "MountOption"}),
            &[
                r#"spec.securityContext.fsGroupChangePolicy: Unsupported value: "a": supported values: "Always", "OnRootMismatch""#,
                r#"spec.securityContext.supplementalGroupsPolicy: Unsupported value: "b": supported values: "Merge", "Strict""#,
                r#"spec.securityContext.seLinuxChangePolicy: Unsupported value: "MountOption": supported values: "Recursive""#,
            ],
        );
    }

    #[test]
    fn c_63_sysctls() {
        let sysctl = |name: &str| json!({"name": name, "value": "1"});
        check_pod(
            json!({"hostNetwork": true, "hostIPC": true, "securityContext": {"sysctls": [
                sysctl(""), sysctl("A"), sysctl("a.b"), sysctl("a.b"), sysctl("net/ipv4.x"), sysctl("kernel.shmmax"),
                sysctl("kernel.hostname"),
            ]}}),
            &[
                "spec.securityContext.sysctls[0].name: Required value",
                r#"spec.securityContext.sysctls[1].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
                r#"spec.securityContext.sysctls[3].name: Duplicate value: "a.b""#,
                r#"spec.securityContext.sysctls[4].name: Invalid value: "net/ipv4.x": may not be specified when 'hostNetwork' is true"#,
                r#"spec.securityContext.sysctls[5].name: Invalid value: "kernel.shmmax": may not be specified when 'hostIPC' is true"#,
            ],
        );
    }

    #[test]
    fn c_63_namespaces_of_the_host() {
        check_pod(
            json!({"hostPID": true, "shareProcessNamespace": true}),
            &[
                "spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID",
            ],
        );
        check_pod(
            json!({"hostUsers": false, "hostNetwork": true, "hostPID": true, "hostIPC": true}),
            &[
                "spec.hostNetwork: Forbidden: when `hostUsers` is false",
                "spec.HostPID: Forbidden: when `hostUsers` is false",
                "spec.HostIPC: Forbidden: when `hostUsers` is false",
            ],
        );
    }
}
