//! The volumes of a pod: each has a name of its own and exactly one source.
//!
//! - here: the list, and the choice of the source;
//! - [`files`]: sources that are made of files: secrets, config maps, the downward API, projections of these;
//! - [`claims`]: claims on storage that come and go with the pod;
//! - [`disks`]: everything that is mounted from somewhere else.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, Volume};
use types::Quantity;

use super::{Options, containers, named, one_of, paths};
use crate::field::{Errors, Path};
use crate::names;

pub(crate) mod claims;
pub(crate) mod disks;
mod files;

pub(super) use files::{has_non_local_token_path, validate_tokens};

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// All volumes of a pod. Returns those that are right by name, for containers to mount. `pod_name` is the name of the
/// pod itself, if there already is one: then the names of the claims that it will make are known.
pub(super) fn validate<'a>(
    volumes: &'a [Volume],
    pod_name: Option<&str>,
    options: &Options,
    path: &Path,
) -> (BTreeMap<&'a str, &'a Volume>, Errors) {
    let mut errors = Errors::new();
    let mut right = BTreeMap::new();
    let made: BTreeSet<String> = pod_name
        .into_iter()
        .flat_map(|pod| {
            volumes.iter().filter(|v| v.ephemeral.is_some()).map(move |v| format!("{pod}-{}", v.name))
        })
        .collect();
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        let mut own = source(volume, pod_name, options, &path);
        if volume.name.is_empty() {
            own.push(path.child("name").required(""));
        } else {
            own.extend(named(&path.child("name"), &volume.name, names::dns_label));
        }
        if right.contains_key(volume.name.as_str()) {
            own.push(path.child("name").duplicate(&volume.name));
        }
        if own.is_empty() {
            right.insert(volume.name.as_str(), volume);
        }
        errors.extend(own);
        if let Some(claim) =
            volume.persistent_volume_claim.as_ref().filter(|claim| made.contains(&claim.claim_name))
        {
            let path = path.child("persistentVolumeClaim").child("claimName");
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            errors.push(path.invalid(&claim.claim_name, why));
        }
    }
    (right, errors)
}

/// Judges the first source of a volume and refuses any further one.
pub(crate) struct Sources<'a> {
    path: &'a Path,
    errors: Errors,
    found: bool,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(path: &'a Path) -> Self {
        Sources { path, errors: Errors::new(), found: false }
    }

    /// What was found wrong, or that there is no source.
    pub(crate) fn finish(mut self) -> Errors {
        if !self.found {
            self.errors.push(self.path.required("must specify a volume type"));
        }
        self.errors
    }

    /// A source that is judged whether there is another or not.
    pub(crate) fn check_any<T>(
        &mut self,
        field: &str,
        source: Option<&T>,
        judge: impl FnOnce(&T, &Path) -> Errors,
    ) {
        if let Some(source) = source {
            self.found = true;
            self.errors.extend(judge(source, &self.path.child(field)));
        }
    }

    /// A source whose errors stand under its own name.
    pub(crate) fn check<T>(
        &mut self,
        field: &str,
        source: Option<&T>,
        judge: impl FnOnce(&T, &Path) -> Errors,
    ) {
        self.check_at(field, field, source, judge);
    }

    /// A source whose errors stand under `at`, while a surplus one is refused as `field`: Kubernetes has typed some of
    /// these twice, and not always alike.
    pub(crate) fn check_at<T>(
        &mut self,
        field: &str,
        at: &str,
        source: Option<&T>,
        judge: impl FnOnce(&T, &Path) -> Errors,
    ) {
        let Some(source) = source else { return };
        if self.found {
            self.errors.push(self.path.child(field).forbidden("may not specify more than 1 volume type"));
            return;
        }
        self.found = true;
        self.errors.extend(judge(source, &self.path.child(at)));
    }
}

fn source(volume: &Volume, pod_name: Option<&str>, options: &Options, path: &Path) -> Errors {
    let mut sources = Sources::new(path);
    sources.check("emptyDir", volume.empty_dir.as_ref(), empty_dir);
    sources.check("hostPath", volume.host_path.as_ref(), host_path);
    sources.check("gitRepo", volume.git_repo.as_ref(), disks::git_repo);
    sources.check_at(
        "gcePersistentDisk",
        "persistentDisk",
        volume.gce_persistent_disk.as_ref(),
        disks::gce_persistent_disk,
    );
    sources.check(
        "awsElasticBlockStore",
        volume.aws_elastic_block_store.as_ref(),
        disks::aws_elastic_block_store,
    );
    sources.check("secret", volume.secret.as_ref(), files::secret);
    sources.check("nfs", volume.nfs.as_ref(), disks::nfs);
    sources.check("iscsi", volume.iscsi.as_ref(), disks::iscsi);
    if let Some(iscsi) = &volume.iscsi {
        sources.errors.extend(disks::iscsi_name(iscsi, &volume.name, path));
    }
    sources.check("glusterfs", volume.glusterfs.as_ref(), disks::glusterfs);
    sources.check("flocker", volume.flocker.as_ref(), disks::flocker);
    sources.check("persistentVolumeClaim", volume.persistent_volume_claim.as_ref(), |claim, path| {
        disks::required(path, &[("claimName", &claim.claim_name)])
    });
    sources.check("rbd", volume.rbd.as_ref(), disks::rbd);
    sources.check("cinder", volume.cinder.as_ref(), disks::cinder);
    sources.check_at("cephFS", "cephfs", volume.cephfs.as_ref(), disks::ceph_fs);
    sources.check("quobyte", volume.quobyte.as_ref(), disks::quobyte);
    sources.check_at("downwarAPI", "downwardAPI", volume.downward_api.as_ref(), files::downward_api);
    sources.check("fc", volume.fc.as_ref(), disks::fibre_channel);
    sources.check("flexVolume", volume.flex_volume.as_ref(), disks::flex_volume);
    sources.check("configMap", volume.config_map.as_ref(), files::config_map);
    sources.check("azureFile", volume.azure_file.as_ref(), |azure, path| {
        disks::required(path, &[("secretName", &azure.secret_name), ("shareName", &azure.share_name)])
    });
    sources.check("vsphereVolume", volume.vsphere_volume.as_ref(), |disk, path| {
        disks::required(path, &[("volumePath", &disk.volume_path)])
    });
    sources.check("photonPersistentDisk", volume.photon_persistent_disk.as_ref(), |disk, path| {
        disks::required(path, &[("pdID", &disk.pd_id)])
    });
    sources.check("portworxVolume", volume.portworx_volume.as_ref(), |disk, path| {
        disks::required(path, &[("volumeID", &disk.volume_id)])
    });
    sources.check("azureDisk", volume.azure_disk.as_ref(), disks::azure_disk);
    sources.check("storageos", volume.storageos.as_ref(), disks::storage_os);
    sources.check("projected", volume.projected.as_ref(), |projected, path| {
        files::projected(projected, options, path)
    });
    sources.check("scaleIO", volume.scale_io.as_ref(), disks::scale_io);
    sources.check("csi", volume.csi.as_ref(), disks::csi);
    sources.check("ephemeral", volume.ephemeral.as_ref(), |ephemeral, at| {
        let mut errors = claims::ephemeral(ephemeral, at);
        errors.extend(claims::made_claim_name(pod_name, &volume.name, path));
        errors
    });
    sources.check("image", volume.image.as_ref(), |image, path| self::image(image, options, path));
    sources.finish()
}

fn empty_dir(empty_dir: &EmptyDirVolumeSource, path: &Path) -> Errors {
    let limit = empty_dir.size_limit.as_ref().and_then(|limit| Quantity::try_from(limit).ok());
    if limit.is_some_and(|limit| limit.is_negative()) {
        return vec![path.child("sizeLimit").forbidden("SizeLimit field must be a valid resource quantity")];
    }
    Errors::new()
}

pub(crate) fn host_path(host_path: &HostPathVolumeSource, path: &Path) -> Errors {
    if host_path.path.is_empty() {
        return vec![path.child("path").required("")];
    }
    let mut errors = paths::no_backsteps(&host_path.path, &path.child("path"));
    if let Some(kind) = &host_path.type_ {
        errors.extend(one_of(&path.child("type"), kind, &HOST_PATH_TYPES));
    }
    errors
}

fn image(image: &ImageVolumeSource, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if options.is_pod && image.reference.as_ref().is_none_or(String::is_empty) {
        errors.push(path.child("reference").required(""));
    }
    let policy = image.pull_policy.as_deref().unwrap_or_default();
    errors.extend(containers::pull_policy(policy, &path.child("pullPolicy")));
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::check_pod;

    /// Checks one volume, its name aside; what is expected starts after `spec.volumes[0]`.
    pub(super) fn check_volume(mut volume: Value, expected: &[&str]) {
        volume["name"] = json!("v");
        let expected: Vec<String> = expected.iter().map(|text| format!("spec.volumes[0]{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_pod(json!({"volumes": [volume]}), &expected);
    }

    #[test]
    fn c_63_names() {
        check_pod(
            json!({"volumes": [{"name": ""}, {"name": "a"}, {"name": "a"}, {"name": "A"}]}),
            &[
                "spec.volumes[0].name: Required value",
                r#"spec.volumes[2].name: Duplicate value: "a""#,
                r#"spec.volumes[3].name: Invalid value: "A": a lowercase RFC 1123 label"#,
            ],
        );
    }

    #[test]
    fn c_63_one_source_each() {
        check_volume(
            json!({"emptyDir": {}, "hostPath": {"path": "/"}, "downwardAPI": {}, "cephfs": {"monitors": []}}),
            &[
                ".hostPath: Forbidden: may not specify more than 1 volume type",
                ".cephFS: Forbidden: may not specify more than 1 volume type",
                ".downwarAPI: Forbidden: may not specify more than 1 volume type",
            ],
        );
    }

    #[test]
    fn c_63_on_the_node() {
        check_volume(json!({"emptyDir": {"sizeLimit": "1Gi"}}), &[]);
        check_volume(
            json!({"emptyDir": {"sizeLimit": "-1"}}),
            &[".emptyDir.sizeLimit: Forbidden: SizeLimit field must"],
        );
        check_volume(json!({"hostPath": {"path": ""}}), &[".hostPath.path: Required value"]);
        check_volume(
            json!({"hostPath": {"path": "/a/..", "type": "Pipe"}}),
            &[
                r#".hostPath.path: Invalid value: "/a/..": must not contain '..'"#,
                r#".hostPath.type: Unsupported value: "Pipe": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket""#,
            ],
        );
        check_volume(json!({"image": {}}), &[]);
        check_volume(
            json!({"image": {"pullPolicy": "x"}}),
            &[r#".image.pullPolicy: Unsupported value: "x""#],
        );
    }
}
