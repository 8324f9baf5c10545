//! The checks of the baseline level.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, LifecycleHandler, SELinuxOptions, SeccompProfile,
    WindowsSecurityContextOptions,
};
use types::go;

use super::subject::Subject;
use super::{Violation, named, plural, quoted, use_or_uses};

/// What annotations begin with by which profiles were named before there were fields for them.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// What a container may add to its capabilities: what most runtimes give it anyway, but for raw sockets.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Types of SELinux, with the first minor version that allows them.
const SE_LINUX_TYPES: [(&str, u64); 5] = [
    ("", 0),
    ("container_t", 0),
    ("container_init_t", 0),
    ("container_kvm_t", 0),
    ("container_engine_t", 31),
];
/// Settings of the kernel that reach no further than the pod, with the first minor version that allows them.
const SYSCTLS: [(&str, u64); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

/// The first minor version that is more lenient with pods which have users of their own.
pub(super) const KNOWS_USERS: u64 = 35;

fn is_allowed(name: &str, allowed: &[(&str, u64)], minor: u64) -> bool {
    allowed.iter().any(|(known, since)| *known == name && minor >= *since)
}

/// The profiles that annotations or fields name are those of the runtime, or of the node.
pub(super) fn app_armor(pod: &Subject<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |profile: Option<&AppArmorProfile>| {
        let bad =
            profile.filter(|profile| !["RuntimeDefault", "Localhost"].contains(&profile.type_.as_str()));
        bad.map(|profile| values.insert(profile.type_.clone())).is_some()
    };
    let of_pod = is_bad(pod.context().and_then(|context| context.app_armor_profile.as_ref()));
    let of_containers =
        pod.containers_with(|context| is_bad(context.and_then(|context| context.app_armor_profile.as_ref())));
    let mut setters = Subject::setters(of_pod, &of_containers);
    let is_allowed = |profile: &str| {
        profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/")
    };
    let annotations =
        pod.annotations.iter().filter(|(name, value)| name.starts_with(APP_ARMOR) && !is_allowed(value));
    let mut annotations: Vec<String> =
        annotations.map(|(name, value)| format!("{name}={}", go::quote(value))).collect();
    annotations.sort_unstable();
    if !annotations.is_empty() {
        setters.push(plural("annotation", annotations.len()));
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    (!setters.is_empty()).then(|| Violation {
        reason: plural("forbidden AppArmor profile", values.len()),
        detail: format!(
            "{} must not set AppArmor profile type to {}",
            setters.join(" and "),
            quoted(&values)
        ),
    })
}

/// No container has capabilities beyond those of the runtime.
pub(super) fn capabilities(pod: &Subject<'_>) -> Option<Violation> {
    let mut added = BTreeSet::new();
    let containers = pod.containers_with(|context| {
        let capabilities = context.and_then(|context| context.capabilities.as_ref());
        let all = capabilities.into_iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        let bad: Vec<String> = all.filter(|name| !CAPABILITIES.contains(&name.as_str())).cloned().collect();
        let is_bad = !bad.is_empty();
        added.extend(bad);
        is_bad
    });
    (!containers.is_empty()).then(|| Violation {
        reason: "non-default capabilities".to_owned(),
        detail: format!(
            "{} must not include {} in securityContext.capabilities.add",
            named("container", &containers),
            quoted(&Vec::from_iter(added))
        ),
    })
}

/// The namespaces of the node are its own.
pub(super) fn host_namespaces(pod: &Subject<'_>) -> Option<Violation> {
    let shared = [
        ("hostNetwork=true", pod.spec.host_network),
        ("hostPID=true", pod.spec.host_pid),
        ("hostIPC=true", pod.spec.host_ipc),
    ];
    let shared: Vec<&str> =
        shared.into_iter().filter(|(_, is_shared)| *is_shared == Some(true)).map(|(name, _)| name).collect();
    let violation = || Violation { reason: "host namespaces".to_owned(), detail: shared.join(", ") };
    (!shared.is_empty()).then(violation)
}

/// So are its files.
pub(super) fn host_paths(pod: &Subject<'_>) -> Option<Violation> {
    let volumes = pod.spec.volumes.iter().flatten().filter(|volume| volume.host_path.is_some());
    let volumes: Vec<&str> = volumes.map(|volume| volume.name.as_str()).collect();
    let violation = || Violation { reason: "hostPath volumes".to_owned(), detail: named("volume", &volumes) };
    (!volumes.is_empty()).then(violation)
}

/// And its ports.
pub(super) fn host_ports(pod: &Subject<'_>) -> Option<Violation> {
    let ports_of = |container: &Container| -> Vec<String> {
        let ports = container.ports.iter().flatten().filter_map(|port| port.host_port);
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let using: Vec<&Container> =
        pod.containers().filter(|container| !ports_of(container).is_empty()).collect();
    let ports: BTreeSet<String> = using.iter().flat_map(|container| ports_of(container)).collect();
    let names: Vec<&str> = using.iter().map(|container| container.name.as_str()).collect();
    (!names.is_empty()).then(|| Violation {
        reason: "hostPort".to_owned(),
        detail: format!(
            "{} {} {} {}",
            named("container", &names),
            use_or_uses(names.len()),
            plural("hostPort", ports.len()),
            Vec::from_iter(ports).join(", ")
        ),
    })
}

/// The node asks nobody else than the pod how the pod is.
pub(super) fn hosts_of_handlers(pod: &Subject<'_>) -> Option<Violation> {
    let using = || pod.containers().filter(|container| !hosts(container).is_empty());
    let asked: BTreeSet<&str> = using().flat_map(hosts).collect();
    let names: BTreeSet<&str> = using().map(|container| container.name.as_str()).collect();
    let names = Vec::from_iter(names);
    (!names.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host".to_owned(),
        detail: format!(
            "{} {} {}",
            named("container", &names),
            use_or_uses(names.len()),
            named("probe or lifecycle host", &Vec::from_iter(asked))
        ),
    })
}

/// The hosts that are asked on behalf of a container.
fn hosts(container: &Container) -> Vec<&str> {
    let probes = [&container.liveness_probe, &container.readiness_probe, &container.startup_probe];
    let lifecycle = container.lifecycle.as_ref();
    let handlers: [Option<&LifecycleHandler>; 2] = [
        lifecycle.and_then(|lifecycle| lifecycle.post_start.as_ref()),
        lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref()),
    ];
    let of_probes = probes.into_iter().flatten().map(|probe| (&probe.http_get, &probe.tcp_socket));
    let of_handlers = handlers.into_iter().flatten().map(|handler| (&handler.http_get, &handler.tcp_socket));
    let hosts = of_probes.chain(of_handlers).flat_map(|(get, socket)| {
        let get = get.as_ref().and_then(|get| get.host.as_deref());
        [get, socket.as_ref().and_then(|socket| socket.host.as_deref())]
    });
    hosts.flatten().filter(|host| !host.is_empty()).collect()
}

/// No container does what it likes.
pub(super) fn privileged(pod: &Subject<'_>) -> Option<Violation> {
    let containers =
        pod.containers_with(|context| context.is_some_and(|context| context.privileged == Some(true)));
    (!containers.is_empty()).then(|| Violation {
        reason: "privileged".to_owned(),
        detail: format!("{} must not set securityContext.privileged=true", named("container", &containers)),
    })
}

/// `/proc` is masked, unless the users of the pod are none of the node.
pub(super) fn proc_mount(pod: &Subject<'_>) -> Option<Violation> {
    if pod.minor >= KNOWS_USERS && pod.has_own_users() { None } else { unmasked(pod) }
}

/// Containers that see all of `/proc`.
pub(super) fn unmasked(pod: &Subject<'_>) -> Option<Violation> {
    let mut mounts = BTreeSet::new();
    let containers = pod.containers_with(|context| {
        let mount = context.and_then(|context| context.proc_mount.as_deref());
        mount.filter(|mount| *mount != "Default").map(|mount| mounts.insert(mount.to_owned())).is_some()
    });
    (!containers.is_empty()).then(|| Violation {
        reason: "procMount".to_owned(),
        detail: format!(
            "{} must not set securityContext.procMount to {}",
            named("container", &containers),
            quoted(&Vec::from_iter(mounts))
        ),
    })
}

/// SELinux knows containers as such, and by no user or role of their own.
pub(super) fn se_linux(pod: &Subject<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let mut is_bad = |options: Option<&SELinuxOptions>| {
        let is_set = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let Some(options) = options else { return false };
        let of_type = options.type_.as_deref().unwrap_or_default();
        let is_type_bad = !is_allowed(of_type, &SE_LINUX_TYPES, pod.minor);
        if is_type_bad {
            types.insert(of_type.to_owned());
        }
        user |= is_set(&options.user);
        role |= is_set(&options.role);
        is_type_bad || is_set(&options.user) || is_set(&options.role)
    };
    let of_pod = is_bad(pod.context().and_then(|context| context.se_linux_options.as_ref()));
    let of_containers =
        pod.containers_with(|context| is_bad(context.and_then(|context| context.se_linux_options.as_ref())));
    let setters = Subject::setters(of_pod, &of_containers);
    let types = Vec::from_iter(types);
    let what = [
        (!types.is_empty()).then(|| named("type", &types)),
        user.then(|| "user may not be set".to_owned()),
        role.then(|| "role may not be set".to_owned()),
    ];
    (!setters.is_empty()).then(|| Violation {
        reason: "seLinuxOptions".to_owned(),
        detail: format!(
            "{} set forbidden securityContext.seLinuxOptions: {}",
            setters.join(" and "),
            what.into_iter().flatten().collect::<Vec<_>>().join("; ")
        ),
    })
}

/// A profile, if there is one, is that of the runtime or of the node. Before there were fields for it, annotations said it.
pub(super) fn seccomp(pod: &Subject<'_>) -> Option<Violation> {
    if pod.minor < 19 {
        return seccomp_annotations(pod);
    }
    let mut values = BTreeSet::new();
    let mut is_bad = |profile: Option<&SeccompProfile>| {
        let bad = profile.filter(|profile| !is_seccomp_allowed(profile));
        bad.map(|profile| values.insert(profile.type_.clone())).is_some()
    };
    let of_pod = is_bad(pod.context().and_then(|context| context.seccomp_profile.as_ref()));
    let of_containers =
        pod.containers_with(|context| is_bad(context.and_then(|context| context.seccomp_profile.as_ref())));
    let setters = Subject::setters(of_pod, &of_containers);
    (!setters.is_empty()).then(|| bad_seccomp(&setters, values))
}

pub(super) fn is_seccomp_allowed(profile: &SeccompProfile) -> bool {
    ["RuntimeDefault", "Localhost"].contains(&profile.type_.as_str())
}

pub(super) fn bad_seccomp(setters: &[String], values: BTreeSet<String>) -> Violation {
    Violation {
        reason: "seccompProfile".to_owned(),
        detail: format!(
            "{} must not set securityContext.seccompProfile.type to {}",
            setters.join(" and "),
            quoted(&Vec::from_iter(values))
        ),
    }
}

fn seccomp_annotations(pod: &Subject<'_>) -> Option<Violation> {
    let is_allowed = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let of_containers = pod.containers().map(|container| format!("{SECCOMP_OF_CONTAINER}{}", container.name));
    let names = std::iter::once(SECCOMP_OF_POD.to_owned()).chain(of_containers);
    let bad: BTreeSet<String> = names
        .filter_map(|name| {
            let value = pod.annotations.get(&name).filter(|value| !is_allowed(value))?;
            Some(format!("{name}={}", go::quote(value)))
        })
        .collect();
    (!bad.is_empty()).then(|| Violation {
        reason: "seccompProfile".to_owned(),
        detail: format!("forbidden {} {}", plural("annotation", bad.len()), Vec::from_iter(bad).join(", ")),
    })
}

/// Settings of the kernel are those that reach no further than the pod.
pub(super) fn sysctls(pod: &Subject<'_>) -> Option<Violation> {
    let sysctls = pod.context().into_iter().flat_map(|context| context.sysctls.iter().flatten());
    let names = sysctls.map(|sysctl| sysctl.name.as_str());
    let bad: Vec<&str> = names.filter(|name| !is_allowed(name, &SYSCTLS, pod.minor)).collect();
    let violation = || Violation { reason: "forbidden sysctls".to_owned(), detail: bad.join(", ") };
    (!bad.is_empty()).then(violation)
}

/// Nothing runs as a process of a Windows node itself.
pub(super) fn windows_host_process(pod: &Subject<'_>) -> Option<Violation> {
    let is_bad = |options: Option<&WindowsSecurityContextOptions>| {
        options.is_some_and(|options| options.host_process == Some(true))
    };
    let of_containers =
        pod.containers_with(|context| is_bad(context.and_then(|context| context.windows_options.as_ref())));
    let of_pod = is_bad(pod.context().and_then(|context| context.windows_options.as_ref()));
    let setters = Subject::setters(of_pod, &of_containers);
    (!setters.is_empty()).then(|| Violation {
        reason: "hostProcess".to_owned(),
        detail: format!(
            "{} must not set securityContext.windowsOptions.hostProcess=true",
            setters.join(" and ")
        ),
    })
}
