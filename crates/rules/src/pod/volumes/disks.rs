//! Volumes that are mounted from somewhere else: network file systems, block devices, storage drivers. Most of them
//! only ask that what leads to them is named.

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, CSIVolumeSource, CephFSVolumeSource,
    CinderVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource, GCEPersistentDiskVolumeSource,
    GitRepoVolumeSource, GlusterfsVolumeSource, ISCSIVolumeSource, LocalObjectReference, NFSVolumeSource,
    QuobyteVolumeSource, RBDVolumeSource, ScaleIOVolumeSource, StorageOSVolumeSource,
};

use crate::field::{Error, Errors, Path, Value};
use crate::names;
use crate::pod::{named, one_of, paths};

/// Fields that must not be empty.
pub(super) fn required(path: &Path, fields: &[(&str, &String)]) -> Errors {
    let empty = fields.iter().filter(|(_, value)| value.is_empty());
    empty.map(|(field, _)| path.child(field).required("")).collect()
}

fn named_secret(secret: Option<&LocalObjectReference>, path: &Path) -> Errors {
    secret.map_or_else(Errors::new, |secret| required(path, &[("secretRef.name", &secret.name)]))
}

pub(super) fn git_repo(repo: &GitRepoVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("repository", &repo.repository)]);
    let directory = repo.directory.as_deref().unwrap_or_default();
    errors.extend(paths::descending(directory, &path.child("directory")));
    errors
}

pub(crate) fn gce_persistent_disk(disk: &GCEPersistentDiskVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("pdName", &disk.pd_name)]);
    errors.extend(partition(disk.partition, path));
    errors
}

pub(crate) fn aws_elastic_block_store(disk: &AWSElasticBlockStoreVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("volumeID", &disk.volume_id)]);
    errors.extend(partition(disk.partition, path));
    errors
}

/// Zero is the whole disk, although the message does not say so.
fn partition(partition: Option<i32>, path: &Path) -> Option<Error> {
    let outside = partition.filter(|partition| !(0..=255).contains(partition))?;
    Some(path.child("partition").invalid(outside, "must be between 1 and 255, inclusive"))
}

pub(crate) fn logical_unit(lun: i32, path: &Path) -> Errors {
    let problems = names::in_range(lun.into(), 0, 255).into_iter();
    problems.map(|problem| path.child("lun").invalid(lun, problem)).collect()
}

pub(crate) fn nfs(nfs: &NFSVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("server", &nfs.server), ("path", &nfs.path)]);
    if !nfs.path.starts_with('/') {
        errors.push(path.child("path").invalid(&nfs.path, "must be an absolute path"));
    }
    errors
}

pub(super) fn iscsi(iscsi: &ISCSIVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("targetPortal", &iscsi.target_portal), ("iqn", &iscsi.iqn)]);
    if !iscsi.iqn.is_empty() {
        errors.extend(iscsi_qualified_name(&iscsi.iqn, &path.child("iqn")));
    }
    errors.extend(logical_unit(iscsi.lun, path));
    let authenticates = iscsi.chap_auth_discovery == Some(true) || iscsi.chap_auth_session == Some(true);
    if authenticates && iscsi.secret_ref.is_none() {
        errors.push(path.child("secretRef").required(""));
    }
    if let Some(initiator) = &iscsi.initiator_name {
        errors.extend(iscsi_qualified_name(initiator, &path.child("initiatorname")));
    }
    errors
}

/// A name of its own for the initiator leaves less room for the names that make up a session.
pub(super) fn iscsi_name(iscsi: &ISCSIVolumeSource, volume: &str, path: &Path) -> Option<Error> {
    let too_long = iscsi.initiator_name.is_some() && volume.len() + 1 + iscsi.target_portal.len() > 64;
    let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
               iscsi.initiatorName is specified.";
    too_long.then(|| path.child("name").invalid(volume, why))
}

pub(crate) fn iscsi_qualified_name(name: &str, path: &Path) -> Option<Error> {
    let alphanumeric = |text: &str, length: usize| {
        let mut chars = text.chars();
        chars.next().is_some_and(|c| c != '\n') // the dot of upstream's pattern matches any character
            && chars.clone().count() == length
            && chars.all(|c| c.is_ascii_alphanumeric())
    };
    let valid = match name.get(..3) {
        Some("iqn") => name.match_indices("iqn.").any(|(at, prefix)| is_iqn(&name[at + prefix.len()..])),
        Some("eui") => alphanumeric(&name[3..], 16),
        Some("naa") => alphanumeric(&name[3..], 32),
        _ => return Some(path.invalid(name, "must be valid format starting with iqn, eui, or naa")),
    };
    (!valid).then(|| path.invalid(name, "must be valid format"))
}

/// What follows `iqn.`: `2001-04.com.example:disk`, with the month in which the domain was owned.
fn is_iqn(text: &str) -> bool {
    let Some((date, rest)) = text.split_once('.') else { return false };
    let Some((domain, device)) = rest.split_once(':') else { return false };
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let dated = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let is_domain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'.';
    let separates = |c: char| ",;*&$|\t\n\u{c}\r ".contains(c);
    dated
        && !domain.is_empty()
        && domain.bytes().all(is_domain)
        && !device.is_empty()
        && !device.contains(separates)
}

pub(super) fn glusterfs(gluster: &GlusterfsVolumeSource, path: &Path) -> Errors {
    required(path, &[("endpoints", &gluster.endpoints), ("path", &gluster.path)])
}

pub(crate) fn flocker(flocker: &FlockerVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let name = flocker.dataset_name.as_deref().unwrap_or_default();
    let uuid = flocker.dataset_uuid.as_deref().unwrap_or_default();
    if name.is_empty() && uuid.is_empty() {
        errors.push(path.required("one of datasetName and datasetUUID is required"));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(path.invalid("resource", why));
    }
    if name.contains('/') {
        errors.push(path.child("datasetName").invalid(name, "must not contain '/'"));
    }
    errors
}

pub(super) fn rbd(rbd: &RBDVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if rbd.monitors.is_empty() {
        errors.push(path.child("monitors").required(""));
    }
    errors.extend(required(path, &[("image", &rbd.image)]));
    errors
}

pub(super) fn cinder(cinder: &CinderVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("volumeID", &cinder.volume_id)]);
    errors.extend(named_secret(cinder.secret_ref.as_ref(), path));
    errors
}

pub(super) fn ceph_fs(ceph: &CephFSVolumeSource, path: &Path) -> Errors {
    if ceph.monitors.is_empty() { vec![path.child("monitors").required("")] } else { Errors::new() }
}

pub(crate) fn quobyte(quobyte: &QuobyteVolumeSource, path: &Path) -> Errors {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let mut errors = Errors::new();
    let at = path.child("registry");
    if quobyte.registry.is_empty() {
        errors.push(at.required(PAIRS));
    } else if quobyte.tenant.as_ref().is_some_and(|tenant| tenant.len() >= 65) {
        let why = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(path.child("tenant").required(why));
    } else {
        let wrong = quobyte.registry.split(',').filter(|pair| !is_host_and_port(pair));
        errors.extend(wrong.map(|_| at.invalid(&quobyte.registry, PAIRS)));
    }
    errors.extend(required(path, &[("volume", &quobyte.volume)]));
    errors
}

/// `host:port`, where a host with colons stands in brackets; both may be empty.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(host) => match host.strip_suffix(']') {
            Some(host) => host,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

pub(crate) fn fibre_channel(fc: &FCVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let targets = fc.target_wwns.as_deref().unwrap_or_default();
    let ids = fc.wwids.as_deref().unwrap_or_default();
    let at = path.child("targetWWNs");
    if targets.is_empty() && ids.is_empty() {
        errors.push(at.required("must specify either targetWWNs or wwids, but not both"));
    }
    if !targets.is_empty() && !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        errors.push(at.invalid(Value::json(&targets), why));
    }
    match fc.lun {
        _ if targets.is_empty() => {}
        None => errors.push(path.child("lun").required("lun is required if targetWWNs is specified")),
        Some(lun) => errors.extend(logical_unit(lun, path)),
    }
    errors
}

pub(super) fn flex_volume(flex: &FlexVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("driver", &flex.driver)]);
    errors.extend(reserved_options(flex.options.iter().flatten().map(|(key, _)| key.as_str()), path));
    errors
}

/// Options under names that belong to Kubernetes.
pub(crate) fn reserved_options<'a>(keys: impl Iterator<Item = &'a str>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for key in keys {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let why = "kubernetes.io and k8s.io namespaces are reserved";
            errors.push(path.child("options").key(key).invalid(key, why));
        }
    }
    errors
}

pub(crate) fn azure_disk(disk: &AzureDiskVolumeSource, path: &Path) -> Errors {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    let mut errors = required(path, &[("diskName", &disk.disk_name), ("diskURI", &disk.disk_uri)]);
    if let Some(mode) = &disk.caching_mode {
        errors.extend(one_of(&path.child("cachingMode"), mode, &["None", "ReadOnly", "ReadWrite"]));
    }
    let Some(kind) = &disk.kind else { return errors };
    errors.extend(one_of(&path.child("kind"), kind, &["Dedicated", "Managed", "Shared"]));
    let (prefix, example) = if kind == "Managed" { ("/subscriptions/", MANAGED) } else { ("https://", BLOB) };
    if !disk.disk_uri.starts_with(prefix) {
        errors.push(path.child("diskURI").not_supported(&disk.disk_uri, &[example]));
    }
    errors
}

pub(super) fn storage_os(storage: &StorageOSVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    match storage.volume_name.as_deref().unwrap_or_default() {
        "" => errors.push(path.child("volumeName").required("")),
        name => errors.extend(named(&path.child("volumeName"), name, names::dns_label)),
    }
    match storage.volume_namespace.as_deref().unwrap_or_default() {
        "" => {}
        namespace => errors.extend(named(&path.child("volumeNamespace"), namespace, names::dns_label)),
    }
    errors.extend(named_secret(storage.secret_ref.as_ref(), path));
    errors
}

pub(super) fn scale_io(scale_io: &ScaleIOVolumeSource, path: &Path) -> Errors {
    let mut errors = required(path, &[("gateway", &scale_io.gateway), ("system", &scale_io.system)]);
    if scale_io.volume_name.as_ref().is_none_or(String::is_empty) {
        errors.push(path.child("volumeName").required(""));
    }
    errors
}

pub(super) fn csi(csi: &CSIVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let driver = path.child("driver");
    if csi.driver.is_empty() {
        errors.push(driver.required(""));
    } else {
        if csi.driver.len() > 63 {
            errors.push(driver.too_long(63));
        }
        let problems = names::dns_subdomain(&csi.driver.to_lowercase()).into_iter();
        errors.extend(problems.map(|problem| driver.invalid(&csi.driver, problem)));
    }
    match &csi.node_publish_secret_ref {
        Some(secret) if secret.name.is_empty() => {
            errors.push(path.child("nodePublishSecretRef.name").required(""));
        }
        // The path is upstream's.
        Some(secret) => errors.extend(named(&path.child("name"), &secret.name, names::dns_subdomain)),
        None => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::check_volume;
    use super::*;

    fn check(field: &str, source: Value, expected: &[&str]) {
        let mut volume = json!({});
        volume[field] = source;
        check_volume(volume, expected);
    }

    #[test]
    fn c_63_what_leads_there_is_named() {
        check(
            "gitRepo",
            json!({"repository": "", "directory": "/a"}),
            &[
                ".gitRepo.repository: Required value",
                r#".gitRepo.directory: Invalid value: "/a": must be a relative path"#,
            ],
        );
        check(
            "gcePersistentDisk",
            json!({"pdName": "", "partition": 256}),
            &[
                ".persistentDisk.pdName: Required value",
                ".persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
            ],
        );
        check(
            "awsElasticBlockStore",
            json!({"volumeID": ""}),
            &[".awsElasticBlockStore.volumeID: Required value"],
        );
        check(
            "nfs",
            json!({"server": "", "path": ""}),
            &[
                ".nfs.server: Required value",
                ".nfs.path: Required value",
                r#".nfs.path: Invalid value: "": must be an absolute path"#,
            ],
        );
        check("glusterfs", json!({"endpoints": "", "path": "p"}), &[".glusterfs.endpoints: Required value"]);
        check(
            "persistentVolumeClaim",
            json!({"claimName": ""}),
            &[".persistentVolumeClaim.claimName: Required value"],
        );
        check(
            "rbd",
            json!({"monitors": [], "image": ""}),
            &[".rbd.monitors: Required value", ".rbd.image: Required value"],
        );
        check(
            "cinder",
            json!({"volumeID": "", "secretRef": {}}),
            &[".cinder.volumeID: Required value", ".cinder.secretRef.name: Required value"],
        );
        check("cephfs", json!({"monitors": []}), &[".cephfs.monitors: Required value"]);
        check(
            "azureFile",
            json!({"secretName": "", "shareName": "s"}),
            &[".azureFile.secretName: Required value"],
        );
        check("vsphereVolume", json!({"volumePath": ""}), &[".vsphereVolume.volumePath: Required value"]);
        check("photonPersistentDisk", json!({"pdID": ""}), &[".photonPersistentDisk.pdID: Required value"]);
        check("portworxVolume", json!({"volumeID": ""}), &[".portworxVolume.volumeID: Required value"]);
        check(
            "storageos",
            json!({"volumeName": "A", "secretRef": {}}),
            &[
                r#".storageos.volumeName: Invalid value: "A": a lowercase RFC 1123 label"#,
                ".storageos.secretRef.name: Required value",
            ],
        );
        check(
            "scaleIO",
            json!({"gateway": "", "system": "", "secretRef": {}}),
            &[
                ".scaleIO.gateway: Required value",
                ".scaleIO.system: Required value",
                ".scaleIO.volumeName: Required value",
            ],
        );
    }

    #[test]
    fn c_63_iscsi() {
        let target = json!({"targetPortal": "p", "iqn": "iqn.2001-04.com.example:disk", "lun": 0});
        check("iscsi", target, &[]);
        check(
            "iscsi",
            json!({"targetPortal": "", "iqn": "x", "lun": 256, "chapAuthSession": true,
            "initiatorName": "eui.1"}),
            &[
                ".iscsi.targetPortal: Required value",
                r#".iscsi.iqn: Invalid value: "x": must be valid format starting with iqn, eui, or naa"#,
                ".iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                ".iscsi.secretRef: Required value",
                r#".iscsi.initiatorname: Invalid value: "eui.1": must be valid format"#,
            ],
        );
        for (name, valid) in [
            ("iqn.2001-04.com.example:a:b", true),
            ("iqniqn.2001-04.a:b", true),
            ("iqn.2001-4.com:a", false),
            ("iqn.973é;-7", false),
            ("iqn.2001-04.com:", false),
            ("iqn.2001-04.com:a b", false),
            ("naa-0123456789abcdef0123456789abcdef", true),
            ("eui.0123456789abcdé", false),
            ("é", false),
        ] {
            assert_eq!(iscsi_qualified_name(name, &Path::new("iqn")).is_none(), valid, "{name}");
        }
        let portal = "p".repeat(63);
        check(
            "iscsi",
            json!({"targetPortal": portal, "iqn": "eui.0123456789abcdef", "lun": 0,
            "initiatorName": format!("naa.{}", "0".repeat(32))}),
            &[
                r#".name: Invalid value: "v": Total length of <volume name>:<iscsi.targetPortal> must be under 64"#,
            ],
        );
    }

    #[test]
    fn c_63_one_or_the_other() {
        check(
            "flocker",
            json!({}),
            &[".flocker: Required value: one of datasetName and datasetUUID is required"],
        );
        check(
            "flocker",
            json!({"datasetName": "a/b", "datasetUUID": "u"}),
            &[
                r#".flocker: Invalid value: "resource": datasetName and datasetUUID can not be specified simultaneously"#,
                r#".flocker.datasetName: Invalid value: "a/b": must not contain '/'"#,
            ],
        );
        check("fc", json!({}), &[".fc.targetWWNs: Required value: must specify either targetWWNs or wwids"]);
        check(
            "fc",
            json!({"targetWWNs": ["a"], "wwids": ["b"], "lun": 256}),
            &[
                r#".fc.targetWWNs: Invalid value: ["a"]: targetWWNs and wwids can not be specified simultaneously"#,
                ".fc.lun: Invalid value: 256: must be between 0 and 255, inclusive",
            ],
        );
        check(
            "fc",
            json!({"targetWWNs": ["a"]}),
            &[".fc.lun: Required value: lun is required if targetWWNs is specified"],
        );
    }

    #[test]
    fn c_63_drivers() {
        check(
            "flexVolume",
            json!({"driver": "", "options": {"a": "", "x.K8s.io/b": ""}}),
            &[
                ".flexVolume.driver: Required value",
                r#".flexVolume.options[x.K8s.io/b]: Invalid value: "x.K8s.io/b": kubernetes.io and k8s.io namespaces are reserved"#,
            ],
        );
        check(
            "csi",
            json!({"driver": "A_b", "nodePublishSecretRef": {"name": "A"}}),
            &[
                r#".csi.driver: Invalid value: "A_b": a lowercase RFC 1123 subdomain"#,
                r#".csi.name: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
            ],
        );
        check(
            "azureDisk",
            json!({"diskName": "", "diskURI": "x", "cachingMode": "a", "kind": "Managed"}),
            &[
                ".azureDisk.diskName: Required value",
                r#".azureDisk.cachingMode: Unsupported value: "a": supported values: "None", "ReadOnly", "ReadWrite""#,
                r#".azureDisk.diskURI: Unsupported value: "x": supported values: "/subscriptions/{sub-id}/"#,
            ],
        );
        check(
            "quobyte",
            json!({"registry": "a:1,b", "volume": ""}),
            &[
                r#".quobyte.registry: Invalid value: "a:1,b": must be a host:port pair"#,
                ".quobyte.volume: Required value",
            ],
        );
    }

    #[test]
    fn c_63_hosts_and_ports() {
        for (text, valid) in [
            ("a:1", true),
            (":", true),
            ("[::1]:1", true),
            ("a", false),
            ("::1", false),
            ("[::1]", false),
            ("[a:1", false),
            ("a]:1", false),
        ] {
            assert_eq!(is_host_and_port(text), valid, "{text}");
        }
    }
}
