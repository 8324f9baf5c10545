//! Where a container sees the volumes of its pod: as directories, or as block devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use super::{one_of, paths};
use crate::field::{Errors, Path};

type Volumes<'a> = BTreeMap<&'a str, &'a Volume>;

/// The directories.
pub(super) fn validate(container: &Container, volumes: &Volumes<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    // Of two devices from one volume the last one counts.
    let devices: BTreeMap<&str, &str> = container
        .volume_devices
        .iter()
        .flatten()
        .map(|device| (device.name.as_str(), device.device_path.as_str()))
        .collect();
    let mut seen = BTreeSet::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let (list, path) = (path, path.index(i));
        if mount.name.is_empty() {
            errors.push(path.child("name").required(""));
        }
        if !volumes.contains_key(mount.name.as_str()) {
            errors.push(path.child("name").not_found(&mount.name));
        }
        if mount.mount_path.is_empty() {
            errors.push(path.child("mountPath").required(""));
        }
        if !seen.insert(&mount.mount_path) {
            errors.push(path.child("mountPath").invalid(&mount.mount_path, "must be unique"));
        }
        if devices.contains_key(mount.name.as_str()) {
            errors.push(path.child("name").invalid(&mount.name, "must not already exist in volumeDevices"));
        }
        if devices.values().any(|device| *device == mount.mount_path) {
            let why = "must not already exist as a path in volumeDevices";
            errors.push(path.child("mountPath").invalid(&mount.mount_path, why));
        }
        errors.extend(sub_path(mount, list, &path));
        errors.extend(propagation(mount, container, &list.child("mountPropagation")));
        errors.extend(recursive_read_only(mount, &list.child("recursiveReadOnly")));
    }
    errors
}

/// Some errors name the list instead of the mount: so Kubernetes.
fn sub_path(mount: &VolumeMount, list: &Path, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let plain = mount.sub_path.as_deref().unwrap_or_default();
    let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
    errors.extend(paths::descending(plain, &list.child("subPath")));
    if !expression.is_empty() && !plain.is_empty() {
        let why = "subPathExpr and subPath are mutually exclusive";
        errors.push(path.child("subPathExpr").invalid(expression, why));
    }
    errors.extend(paths::descending(expression, &list.child("subPathExpr")));
    errors
}

fn propagation(mount: &VolumeMount, container: &Container, path: &Path) -> Errors {
    let Some(mode) = &mount.mount_propagation else { return Errors::new() };
    let mut errors = Errors::new();
    errors.extend(one_of(path, mode, &["Bidirectional", "HostToContainer", "None"]));
    let privileged =
        container.security_context.as_ref().is_some_and(|context| context.privileged == Some(true));
    if mode == "Bidirectional" && !privileged {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(path.forbidden(why));
    }
    errors
}

fn recursive_read_only(mount: &VolumeMount, path: &Path) -> Errors {
    let Some(mode) = &mount.recursive_read_only else { return Errors::new() };
    let mut errors = Errors::new();
    errors.extend(one_of(path, mode, &["Disabled", "Enabled", "IfPossible"]));
    if mode == "Enabled" || mode == "IfPossible" {
        if mount.read_only != Some(true) {
            errors.push(path.forbidden("may only be specified when readOnly is true"));
        }
        if mount.mount_propagation.as_ref().is_some_and(|propagation| propagation != "None") {
            let why = "may only be specified when mountPropagation is None or not specified";
            errors.push(path.forbidden(why));
        }
    }
    errors
}

/// The block devices.
pub(super) fn validate_devices(container: &Container, volumes: &Volumes<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mounts: BTreeMap<&str, &str> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| (mount.name.as_str(), mount.mount_path.as_str()))
        .collect();
    let (mut names, mut device_paths) = (BTreeSet::new(), BTreeSet::new());
    for (i, device) in container.volume_devices.iter().flatten().enumerate() {
        let path = path.index(i);
        let (name, device_path) = (device.name.as_str(), device.device_path.as_str());
        if name.is_empty() {
            errors.push(path.child("name").required(""));
        }
        if names.contains(name) {
            errors.push(path.child("name").invalid(name, "must be unique"));
        }
        match volumes.get(name) {
            Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(path.child("name").invalid(name, why));
            }
            Some(_) => {}
            None => errors.push(path.child("name").not_found(name)),
        }
        if device_path.is_empty() {
            errors.push(path.child("devicePath").required(""));
        }
        if device_paths.contains(device_path) {
            errors.push(path.child("devicePath").invalid(device_path, "must be unique"));
        }
        if paths::no_backsteps(device_path, &path).is_empty() {
            device_paths.insert(device_path);
        } else {
            errors.push(path.child("devicePath").invalid(device_path, "can not contain backsteps ('..')"));
        }
        if mounts.contains_key(name) {
            errors.push(path.child("name").invalid(name, "must not already exist in volumeMounts"));
        }
        if mounts.values().any(|mount_path| *mount_path == device_path) {
            let why = "must not already exist as a path in volumeMounts";
            errors.push(path.child("devicePath").invalid(device_path, why));
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::check_spec;

    fn check(mut container: Value, expected: &[&str]) {
        container["name"] = json!("c");
        container["image"] = json!("i");
        let volumes = json!([{"name": "e"}, {"name": "p", "persistentVolumeClaim": {"claimName": "p"}}]);
        let expected: Vec<String> = expected.iter().map(|text| format!("spec.containers[0]{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_spec(json!({"volumes": volumes, "containers": [container]}), &expected);
    }

    #[test]
    fn c_63_directories() {
        let read_only =
            json!({"name": "p", "mountPath": "/p", "readOnly": true, "recursiveReadOnly": "Enabled"});
        check(json!({"volumeMounts": [{"name": "e", "mountPath": "/a", "subPath": "a/b"}, read_only]}), &[]);
        check(
            json!({"volumeMounts": [{"name": "", "mountPath": ""}, {"name": "e", "mountPath": "/a"},
                {"name": "x", "mountPath": "/a"}]}),
            &[
                ".volumeMounts[0].name: Required value",
                r#".volumeMounts[0].name: Not found: """#,
                ".volumeMounts[0].mountPath: Required value",
                r#".volumeMounts[2].name: Not found: "x""#,
                r#".volumeMounts[2].mountPath: Invalid value: "/a": must be unique"#,
            ],
        );
        check(
            json!({"volumeMounts": [{"name": "e", "mountPath": "/a", "subPath": "/x", "subPathExpr": "a/..",
                "mountPropagation": "Bidirectional", "recursiveReadOnly": "IfPossible"},
                {"name": "e", "mountPath": "/b", "mountPropagation": "Odd", "recursiveReadOnly": "Odd"}]}),
            &[
                r#".volumeMounts.subPath: Invalid value: "/x": must be a relative path"#,
                r#".volumeMounts[0].subPathExpr: Invalid value: "a/..": subPathExpr and subPath are mutually exclusive"#,
                r#".volumeMounts.subPathExpr: Invalid value: "a/..": must not contain '..'"#,
                ".volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only",
                ".volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
                ".volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None",
                r#".volumeMounts.mountPropagation: Unsupported value: "Odd": supported values: "Bidirectional", "HostToContainer", "None""#,
                r#".volumeMounts.recursiveReadOnly: Unsupported value: "Odd": supported values: "Disabled", "Enabled", "IfPossible""#,
            ],
        );
    }

    #[test]
    fn c_63_devices() {
        check(json!({"volumeDevices": [{"name": "p", "devicePath": "/dev/p"}]}), &[]);
        check(
            json!({"volumeDevices": [{"name": "e", "devicePath": "/d"}, {"name": "", "devicePath": ""},
                {"name": "p", "devicePath": "/d"}, {"name": "p", "devicePath": "/../x"}],
                "volumeMounts": [{"name": "p", "mountPath": "/d"}]}),
            &[
                r#".volumeMounts[0].name: Invalid value: "p": must not already exist in volumeDevices"#,
                r#".volumeMounts[0].mountPath: Invalid value: "/d": must not already exist as a path in volumeDevices"#,
                r#".volumeDevices[0].name: Invalid value: "e": can only use volume source type of PersistentVolumeClaim"#,
                r#".volumeDevices[0].devicePath: Invalid value: "/d": must not already exist as a path in volumeMounts"#,
                ".volumeDevices[1].name: Required value",
                r#".volumeDevices[1].name: Not found: """#,
                ".volumeDevices[1].devicePath: Required value",
                r#".volumeDevices[2].devicePath: Invalid value: "/d": must be unique"#,
                r#".volumeDevices[2].name: Invalid value: "p": must not already exist in volumeMounts"#,
                r#".volumeDevices[2].devicePath: Invalid value: "/d": must not already exist as a path in volumeMounts"#,
                r#".volumeDevices[3].name: Invalid value: "p": must be unique"#,
                r#".volumeDevices[3].devicePath: Invalid value: "/../x": can not contain backsteps ('..')"#,
                r#".volumeDevices[3].name: Invalid value: "p": must not already exist in volumeMounts"#,
            ],
        );
    }
}
