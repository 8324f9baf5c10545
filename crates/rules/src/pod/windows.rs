//! What is particular to an operating system: options for Windows, and what a pod for one system may not set of the
//! other's.

use k8s_openapi::api::core::v1::{PodSpec, WindowsSecurityContextOptions};

use super::{Options, all_containers, one_of};
use crate::field::{Errors, Path, Value};
use crate::names;

const MAX_CREDENTIAL_SPEC: usize = 64 * 1024;
const MAX_DOMAIN: usize = 256;
const MAX_USER: usize = 104;

/// Windows' part of a security context.
pub(super) fn validate_options(options: &WindowsSecurityContextOptions, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(name) = &options.gmsa_credential_spec_name {
        let path = path.child("gmsaCredentialSpecName");
        let problems = names::dns_subdomain(name).into_iter();
        errors.extend(problems.map(|problem| path.invalid(Value::json(name), problem)));
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let path = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.push(path.invalid(Value::json(spec), "gmsaCredentialSpec cannot be an empty string"));
        } else if spec.len() > MAX_CREDENTIAL_SPEC {
            errors.push(path.invalid(Value::json(spec), "gmsaCredentialSpec size must be under 64 KiB"));
        }
    }
    if let Some(name) = &options.run_as_user_name {
        let path = path.child("runAsUserName");
        errors.extend(user_name(name).into_iter().map(|why| path.invalid(Value::json(name), why)));
    }
    errors
}

/// What is wrong with `DOMAIN\USER`, whose domain may be missing.
fn user_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string".to_owned()];
    }
    if name.bytes().any(|b| b.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters".to_owned()];
    }
    let (domain, user) = match name.split('\\').collect::<Vec<_>>().as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash".to_owned()],
    };
    let mut problems = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= MAX_DOMAIN {
            problems.push(format!("runAsUserName's Domain length must be under {MAX_DOMAIN} characters"));
        }
        if !is_net_bios(domain) && !is_dns(domain) {
            problems.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
        }
    }
    if user.is_empty() {
        problems.push("runAsUserName's User cannot be empty".to_owned());
    } else if user.len() > MAX_USER {
        problems.push(format!("runAsUserName's User length must not be longer than {MAX_USER} characters"));
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        problems.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        let why = r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#;
        problems.push(why.to_owned());
    }
    problems
}

fn is_net_bios(domain: &str) -> bool {
    let allowed = |c: char| !r#"\/:*?"<>|"#.contains(c);
    (1..=15).contains(&domain.chars().count()) && domain.chars().all(allowed) && !domain.starts_with('.')
}

fn is_dns(domain: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    domain.split('.').all(is_label)
}

/// Either all containers are processes of a Windows host, or none is.
pub(super) fn validate_host_process(spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let of_pod = spec
        .security_context
        .as_ref()
        .and_then(|context| context.windows_options.as_ref())
        .and_then(|windows| windows.host_process);
    let containers = all_containers(spec, path);
    let mut host_processes = 0;
    for (container, path) in &containers {
        let own = container
            .security_context
            .as_ref()
            .and_then(|context| context.windows_options.as_ref())
            .and_then(|windows| windows.host_process);
        if let (Some(of_pod), Some(own)) = (of_pod, own)
            && of_pod != own
        {
            let path = path.child("securityContext.windowsOptions.hostProcess");
            let why = format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
            errors.push(path.invalid(own, why));
        }
        if own.or(of_pod) == Some(true) {
            host_processes += 1;
        }
    }
    if host_processes == 0 {
        return errors;
    }
    if host_processes != containers.len() {
        let why =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(path.invalid("", why));
    }
    if spec.host_network != Some(true) {
        let why = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(path.child("hostNetwork").invalid(false, why));
    }
    if !options.allow_privileged {
        errors.push(path.forbidden("hostProcess containers are disallowed by cluster policy"));
    }
    errors
}

/// A pod that says its operating system sets nothing of another one.
pub(super) fn validate_os(spec: &PodSpec, path: &Path) -> Errors {
    let Some(os) = &spec.os else { return Errors::new() };
    match os.name.as_str() {
        "" => vec![path.child("os.name").required("")],
        "linux" => nothing_of_windows(spec, path),
        "windows" => nothing_of_linux(spec, path),
        other => one_of(&path.child("os"), other, &["linux", "windows"]).into_iter().collect(),
    }
}

fn nothing_of_windows(spec: &PodSpec, path: &Path) -> Errors {
    const WHY: &str = "windows options cannot be set for a linux pod";
    let mut errors = Errors::new();
    if spec.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
        errors.push(path.child("securityContext.windowsOptions").forbidden(WHY));
    }
    for (container, path) in all_containers(spec, path) {
        if container.security_context.as_ref().is_some_and(|context| context.windows_options.is_some()) {
            errors.push(path.child("securityContext.windowsOptions").forbidden(WHY));
        }
    }
    errors
}

fn nothing_of_linux(spec: &PodSpec, path: &Path) -> Errors {
    const WHY: &str = "cannot be set for a windows pod";
    let forbidden = |path: &Path, fields: &[(&str, bool)]| -> Errors {
        let set = fields.iter().filter(|(_, is_set)| *is_set);
        set.map(|(field, _)| path.child(field).forbidden(WHY)).collect()
    };
    let mut errors = Errors::new();
    if let Some(context) = &spec.security_context {
        let sysctls = context.sysctls.as_ref().is_some_and(|sysctls| !sysctls.is_empty());
        errors.extend(forbidden(
            path,
            &[
                ("securityContext.appArmorProfile", context.app_armor_profile.is_some()),
                ("securityContext.seLinuxOptions", context.se_linux_options.is_some()),
                ("hostUsers", spec.host_users.is_some()),
                ("hostPID", spec.host_pid == Some(true)),
                ("hostIPC", spec.host_ipc == Some(true)),
                ("securityContext.seccompProfile", context.seccomp_profile.is_some()),
                ("securityContext.fsGroup", context.fs_group.is_some()),
                ("securityContext.fsGroupChangePolicy", context.fs_group_change_policy.is_some()),
                ("securityContext.sysctls", sysctls),
                ("shareProcessNamespace", spec.share_process_namespace.is_some()),
                ("securityContext.runAsUser", context.run_as_user.is_some()),
                ("securityContext.runAsGroup", context.run_as_group.is_some()),
                ("securityContext.supplementalGroups", context.supplemental_groups.is_some()),
                ("securityContext.supplementalGroupsPolicy", context.supplemental_groups_policy.is_some()),
                ("securityContext.seLinuxChangePolicy", context.se_linux_change_policy.is_some()),
            ],
        ));
    }
    for (container, path) in all_containers(spec, path) {
        let Some(context) = &container.security_context else { continue };
        errors.extend(forbidden(
            &path.child("securityContext"),
            &[
                ("appArmorProfile", context.app_armor_profile.is_some()),
                ("seLinuxOptions", context.se_linux_options.is_some()),
                ("seccompProfile", context.seccomp_profile.is_some()),
                ("capabilities", context.capabilities.is_some()),
                ("readOnlyRootFilesystem", context.read_only_root_filesystem.is_some()),
                ("privileged", context.privileged.is_some()),
                ("allowPrivilegeEscalation", context.allow_privilege_escalation.is_some()),
                ("procMount", context.proc_mount.is_some()),
                ("runAsUser", context.run_as_user.is_some()),
                ("runAsGroup", context.run_as_group.is_some()),
            ],
        ));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{check_container, check_pod, check_spec};
    use super::user_name;

    #[test]
    fn c_63_options() {
        let check = |options: Value, expected: &[&str]| {
            check_container(json!({"securityContext": {"windowsOptions": options}}), expected);
        };
        check(json!({"runAsUserName": r"NT AUTHORITY\SYSTEM", "gmsaCredentialSpecName": "a"}), &[]);
        check(
            json!({"runAsUserName": "", "gmsaCredentialSpecName": "A", "gmsaCredentialSpec": ""}),
            &[
                r#".securityContext.windowsOptions.gmsaCredentialSpecName: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                r#".securityContext.windowsOptions.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty"#,
                r#".securityContext.windowsOptions.runAsUserName: Invalid value: "": runAsUserName cannot be an empty"#,
            ],
        );
    }

    #[test]
    fn c_63_user_names() {
        for (name, starts) in [
            ("user", &[] as &[&str]),
            (r"dom.example\user", &[]),
            ("a\nb", &["runAsUserName cannot contain control characters"]),
            (r"a\b\c", &["runAsUserName cannot contain more than one backslash"]),
            (r".d\", &["runAsUserName's Domain doesn't match", "runAsUserName's User cannot be empty"]),
            ("..", &["runAsUserName's User cannot contain only periods or spaces"]),
            ("a@b", &["runAsUserName's User cannot contain the following characters"]),
        ] {
            let problems = user_name(name);
            assert_eq!(problems.len(), starts.len(), "{name}: {problems:?}");
            assert!(
                problems.iter().zip(starts).all(|(problem, start)| problem.starts_with(start)),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn c_63_host_processes() {
        let container = |host_process: Value| {
            let windows = json!({"windowsOptions": {"hostProcess": host_process}});
            json!({"name": if host_process == true { "a" } else { "b" }, "image": "i", "securityContext": windows})
        };
        check_spec(
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}},
                   "containers": [container(json!(true)), container(json!(false))]}),
            &[
                "spec.containers[1].securityContext.windowsOptions.hostProcess: Invalid value: false: pod hostProcess value must be identical if both are specified, was true",
                r#"spec: Invalid value: "": If pod contains any hostProcess containers"#,
                "spec.hostNetwork: Invalid value: false: hostNetwork must be true",
                "spec: Forbidden: hostProcess containers are disallowed by cluster policy",
            ],
        );
    }

    #[test]
    fn c_63_operating_systems() {
        check_pod(json!({"os": {"name": ""}}), &["spec.os.name: Required value"]);
        check_pod(
            json!({"os": {"name": "plan9"}}),
            &[r#"spec.os: Unsupported value: "plan9": supported values: "linux", "windows""#],
        );
        check_pod(
            json!({"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}}),
            &[
                "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
            ],
        );
        check_pod(
            json!({"os": {"name": "windows"}, "hostPID": true, "securityContext": {"runAsUser": 1}}),
            &[
                "spec.hostPID: Forbidden: cannot be set for a windows pod",
                "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            ],
        );
    }
}
