//! The checks that the restricted level has besides those of the baseline.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Volume;

use super::baseline::{KNOWS_USERS, bad_seccomp, is_seccomp_allowed};
use super::subject::Subject;
use super::{Violation, named, quoted, use_or_uses};

/// The first minor version that asks nothing of pods of Windows which Windows does not have.
const KNOWS_WINDOWS: u64 = 25;

/// Processes get no more privileges than their parents have.
pub(super) fn privilege_escalation(pod: &Subject<'_>) -> Option<Violation> {
    if pod.minor >= KNOWS_WINDOWS && pod.is_of_windows() {
        return None;
    }
    let containers = pod.containers_with(|context| {
        context.and_then(|context| context.allow_privilege_escalation) != Some(false)
    });
    (!containers.is_empty()).then(|| Violation {
        reason: "allowPrivilegeEscalation != false".to_owned(),
        detail: format!(
            "{} must set securityContext.allowPrivilegeEscalation=false",
            named("container", &containers)
        ),
    })
}

/// Containers have no capability but that to listen on low ports.
pub(super) fn capabilities(pod: &Subject<'_>) -> Option<Violation> {
    if pod.minor >= KNOWS_WINDOWS && pod.is_of_windows() {
        return None;
    }
    let keeping = pod.containers_with(|context| {
        let dropped = context.and_then(|context| context.capabilities.as_ref()?.drop.as_deref());
        !dropped.unwrap_or_default().iter().any(|name| name == "ALL")
    });
    let mut added = BTreeSet::new();
    let adding = pod.containers_with(|context| {
        let all = context.and_then(|context| context.capabilities.as_ref()?.add.as_deref());
        let all = all.unwrap_or_default().iter();
        let bad: Vec<String> = all.filter(|name| *name != "NET_BIND_SERVICE").cloned().collect();
        let is_bad = !bad.is_empty();
        added.extend(bad);
        is_bad
    });
    let details = [
        (!keeping.is_empty()).then(|| {
            format!(r#"{} must set securityContext.capabilities.drop=["ALL"]"#, named("container", &keeping))
        }),
        (!adding.is_empty()).then(|| {
            format!(
                "{} must not include {} in securityContext.capabilities.add",
                named("container", &adding),
                quoted(&Vec::from_iter(added))
            )
        }),
    ];
    let details: Vec<String> = details.into_iter().flatten().collect();
    (!details.is_empty())
        .then(|| Violation { reason: "unrestricted capabilities".to_owned(), detail: details.join("; ") })
}

/// Volumes hold what the cluster has, and nothing of the node or of a storage system that the cluster does not manage.
pub(super) fn volumes(pod: &Subject<'_>) -> Option<Violation> {
    let bad = || pod.spec.volumes.iter().flatten().filter(|volume| !is_of_cluster(volume));
    let names: Vec<&str> = bad().map(|volume| volume.name.as_str()).collect();
    let types = Vec::from_iter(bad().map(volume_type).collect::<BTreeSet<_>>());
    (!names.is_empty()).then(|| Violation {
        reason: "restricted volume types".to_owned(),
        detail: format!(
            "{} {} {}",
            named("volume", &names),
            use_or_uses(names.len()),
            named("restricted volume type", &types)
        ),
    })
}

fn is_of_cluster(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.csi.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.ephemeral.is_some()
        || volume.image.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.projected.is_some()
        || volume.secret.is_some()
}

fn volume_type(volume: &Volume) -> &'static str {
    let types = [
        ("hostPath", volume.host_path.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("fc", volume.fc.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.is_some()),
    ];
    types.into_iter().find(|(_, is_type)| *is_type).map_or("unknown", |(name, _)| name)
}

/// The node is told to start nothing as root.
pub(super) fn run_as_non_root(pod: &Subject<'_>) -> Option<Violation> {
    if pod.minor >= KNOWS_USERS && pod.has_own_users() {
        return None;
    }
    let of_pod = pod.context().and_then(|context| context.run_as_non_root);
    let containers = |bad: Option<bool>| {
        pod.containers_with(|context| context.and_then(|context| context.run_as_non_root) == bad)
    };
    let setters = Subject::setters(of_pod == Some(false), &containers(Some(false)));
    let silent = if of_pod == Some(true) { Vec::new() } else { containers(None) };
    let detail = if !setters.is_empty() {
        format!("{} must not set securityContext.runAsNonRoot=false", setters.join(" and "))
    } else if !silent.is_empty() {
        format!("pod or {} must set securityContext.runAsNonRoot=true", named("container", &silent))
    } else {
        return None;
    };
    Some(Violation { reason: "runAsNonRoot != true".to_owned(), detail })
}

/// And nothing asks for it.
pub(super) fn run_as_user(pod: &Subject<'_>) -> Option<Violation> {
    if pod.minor >= KNOWS_USERS && pod.has_own_users() {
        return None;
    }
    let of_pod = pod.context().is_some_and(|context| context.run_as_user == Some(0));
    let of_containers =
        pod.containers_with(|context| context.is_some_and(|context| context.run_as_user == Some(0)));
    let setters = Subject::setters(of_pod, &of_containers);
    (!setters.is_empty()).then(|| Violation {
        reason: "runAsUser=0".to_owned(),
        detail: format!("{} must not set runAsUser=0", setters.join(" and ")),
    })
}

/// Every container has a profile, be it the pod's, and it is that of the runtime or of the node.
pub(super) fn seccomp(pod: &Subject<'_>) -> Option<Violation> {
    if pod.minor >= KNOWS_WINDOWS && pod.is_of_windows() {
        return None;
    }
    let mut values = BTreeSet::new();
    let of_pod = pod.context().and_then(|context| context.seccomp_profile.as_ref());
    let bad_of_pod = of_pod.filter(|profile| !is_seccomp_allowed(profile));
    values.extend(bad_of_pod.map(|profile| profile.type_.clone()));
    let bad = pod.containers_with(|context| {
        let profile = context.and_then(|context| context.seccomp_profile.as_ref());
        let bad = profile.filter(|profile| !is_seccomp_allowed(profile));
        bad.map(|profile| values.insert(profile.type_.clone())).is_some()
    });
    let setters = Subject::setters(bad_of_pod.is_some(), &bad);
    if !setters.is_empty() {
        return Some(bad_seccomp(&setters, values));
    }
    let silent = pod.containers_with(|context| {
        of_pod.is_none() && context.is_none_or(|context| context.seccomp_profile.is_none())
    });
    (!silent.is_empty()).then(|| Violation {
        reason: "seccompProfile".to_owned(),
        detail: format!(
            r#"pod or {} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#,
            named("container", &silent)
        ),
    })
}
