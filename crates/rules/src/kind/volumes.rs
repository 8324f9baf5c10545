//! Volumes: what they are made of is for good.

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, FCVolumeSource, FlockerVolumeSource,
    GCEPersistentDiskVolumeSource, HostPathVolumeSource, NFSVolumeSource, NodeSelector, NodeSelectorTerm,
    QuobyteVolumeSource,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use types::Quantity;

use super::{It, Kind, at, csi, items, text};
use crate::difference;
use crate::field::{self, Errors, Path};
use crate::meta::IMMUTABLE;
use crate::names;
use crate::pod::affinity::node_selector;
use crate::pod::paths;
use crate::pod::volumes::{Sources, disks, host_path};
use crate::pod::warnings;
use crate::wire;

pub(super) struct Volumes;

const SOURCE: &str = "io.k8s.api.core.v1.PersistentVolumeSource";
/// What a volume has besides what it is made of.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// Sources that options of mounting may be given to, by an annotation.
const MOUNTED: [&str; 13] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "quobyte",
    "rbd",
    "vsphereVolume",
];

/// What volumes may no longer be, the name by which they are warned of, and since when.
const DEPRECATED: [(&str, &str, &str); 6] = [
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Labels of nodes that may be replaced by their successors.
const SUCCESSORS: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
];

/// Where the spec of a volume stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a volume of its own.
    Volume,
    /// In an attachment, which is made for it alone.
    Inline,
}

/// Everything wrong with the spec of a volume. Values of labels that were wrong before may stay so.
pub(super) fn spec(spec: &Value, name: &str, place: Place, tolerates_values: bool, path: &Path) -> Errors {
    let is_inline = place == Place::Inline;
    let mut errors = Errors::new();
    if is_inline {
        let why = "may not be specified in the context of inline volumes";
        let is_full = spec["capacity"].as_object().is_some_and(|capacity| !capacity.is_empty());
        for (field, is_set) in [("claimRef", !spec["claimRef"].is_null()), ("capacity", is_full)] {
            if is_set {
                errors.push(path.child(field).forbidden(why));
            }
        }
        if spec["csi"].is_null() {
            errors.push(path.child("csi").required("has to be specified in the context of inline volumes"));
        }
    }
    errors.extend(access_modes(spec, &path.child("accessModes")));
    if !is_inline {
        errors.extend(capacity(&spec["capacity"], &path.child("capacity")));
    }
    let (policy, at_policy) =
        (text(spec, "persistentVolumeReclaimPolicy"), path.child("persistentVolumeReclaimPolicy"));
    if is_inline && !matches!(policy, "" | "Retain") {
        errors.push(at_policy.forbidden("may only be Retain in the context of inline volumes"));
    }
    if !is_inline && !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errors.push(at_policy.not_supported(field::Value::json(&policy), &RECLAIM_POLICIES));
    }
    let (affinity, at_affinity) = (&spec["nodeAffinity"], path.child("nodeAffinity"));
    if is_inline && !affinity.is_null() {
        errors.push(at_affinity.forbidden("may not be specified in the context of inline volumes"));
    } else if !affinity.is_null() {
        match &affinity["required"] {
            Value::Null => {
                errors.push(at_affinity.child("required").required("must specify required node constraints"));
            }
            required => {
                let selector: NodeSelector = wire::typed(required);
                errors.extend(node_selector(&selector, tolerates_values, &at_affinity.child("required")));
            }
        }
    }
    let has_nodes = !is_inline && !affinity.is_null();
    errors.extend(source(spec, name, has_nodes, path));
    let host = spec["hostPath"]["path"].as_str().filter(|path| is_root(path));
    if host.is_some() && policy == "Recycle" {
        errors.push(at_policy.forbidden("may not be 'recycle' for a hostPath mount of '/'"));
    }
    errors.extend(classes(spec, is_inline, path));
    errors
}

fn access_modes(spec: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let modes: Vec<&str> = items(spec, "accessModes").iter().filter_map(Value::as_str).collect();
    if modes.is_empty() {
        errors.push(path.required(""));
    }
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.push(path.not_supported(field::Value::json(mode), &ACCESS_MODES));
    }
    let is_other = |mode: &&str| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode);
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(is_other) {
        errors.push(path.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
    errors
}

fn capacity(capacity: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let none = Map::new();
    let amounts = capacity.as_object().unwrap_or(&none);
    if amounts.is_empty() {
        errors.push(path.required(""));
    }
    if amounts.len() != 1 || !amounts.contains_key("storage") {
        errors.push(path.not_supported(field::Value::json(capacity), &["storage"]));
    }
    for (name, amount) in amounts {
        let Some(Ok(amount)) = amount.as_str().map(str::parse::<Quantity>) else { continue };
        let (path, shown) = (path.key(name), amount.to_string());
        if amount.is_negative() {
            errors.push(path.invalid(amount.units_saturating(), "must be a valid resource quantity"));
        }
        if !amount.is_positive() {
            errors.push(path.invalid(shown.as_str(), "must be greater than zero"));
        }
    }
    errors
}

fn is_root(path: &str) -> bool {
    let mut depth = 0_usize;
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        depth = if part == ".." { depth.saturating_sub(1) } else { depth + 1 };
    }
    path.starts_with('/') && depth == 0
}

fn classes(spec: &Value, is_inline: bool, path: &Path) -> Errors {
    let named = |name: &str, path: &Path| -> Errors {
        names::dns_subdomain(name).into_iter().map(|problem| path.invalid(name, problem)).collect()
    };
    let mut errors = Errors::new();
    let (class, at_class) = (text(spec, "storageClassName"), path.child("storageClassName"));
    if is_inline && !class.is_empty() {
        errors.push(at_class.forbidden("may not be specified in the context of inline volumes"));
    } else if !class.is_empty() {
        errors.extend(named(class, &at_class));
    }
    let at_mode = path.child("volumeMode");
    match spec["volumeMode"].as_str() {
        None | Some("Filesystem") => {}
        Some(_) if is_inline => {
            let why = "may not specify volumeMode other than Filesystem in the context of inline volumes";
            errors.push(at_mode.forbidden(why));
        }
        Some("Block") => {}
        Some(mode) => {
            errors.push(at_mode.not_supported(field::Value::json(&mode), &["Block", "Filesystem"]));
        }
    }
    // Nobody asks it of an attachment.
    if let Some(class) = spec["volumeAttributesClassName"].as_str().filter(|_| !is_inline) {
        let at_class = path.child("volumeAttributesClassName");
        match class {
            "" => errors.push(at_class.required("an empty string is disallowed")),
            class => errors.extend(named(class, &at_class)),
        }
        if spec["csi"].is_null() {
            let why = "has to be specified when using volumeAttributesClassName";
            errors.push(path.child("csi").required(why));
        }
    }
    errors
}

/// Texts that must not be empty.
fn required(of: &Value, names: &[&str], path: &Path) -> Errors {
    let empty = names.iter().filter(|name| of[**name].as_str().unwrap_or("").is_empty());
    empty.map(|name| path.child(name).required("")).collect()
}

fn typed<T: DeserializeOwned>(judge: fn(&T, &Path) -> Errors) -> impl FnOnce(&Value, &Path) -> Errors {
    move |source, path| judge(&wire::typed(source), path)
}

fn of_texts(names: &'static [&'static str]) -> impl FnOnce(&Value, &Path) -> Errors {
    move |source, path| required(source, names, path)
}

/// The one thing that a volume is made of. `has_nodes` says whether it is said where it can be used.
fn source(spec: &Value, name: &str, has_nodes: bool, path: &Path) -> Errors {
    let of = |field: &str| Some(&spec[field]).filter(|source| !source.is_null());
    let mut sources = Sources::new(path);
    sources.check("hostPath", of("hostPath"), typed::<HostPathVolumeSource>(host_path));
    let gce = typed::<GCEPersistentDiskVolumeSource>(disks::gce_persistent_disk);
    sources.check_at("gcePersistentDisk", "persistentDisk", of("gcePersistentDisk"), gce);
    let aws = typed::<AWSElasticBlockStoreVolumeSource>(disks::aws_elastic_block_store);
    sources.check("awsElasticBlockStore", of("awsElasticBlockStore"), aws);
    sources.check("glusterfs", of("glusterfs"), glusterfs);
    sources.check("flocker", of("flocker"), typed::<FlockerVolumeSource>(disks::flocker));
    sources.check("nfs", of("nfs"), typed::<NFSVolumeSource>(disks::nfs));
    sources.check("rbd", of("rbd"), |rbd, path| {
        let mut errors = monitored(rbd, path);
        errors.extend(required(rbd, &["image"], path));
        errors
    });
    sources.check("quobyte", of("quobyte"), typed::<QuobyteVolumeSource>(disks::quobyte));
    sources.check_at("cephFS", "cephfs", of("cephfs"), monitored);
    sources.check("iscsi", of("iscsi"), |source, path| iscsi(source, name, path));
    sources.check("cinder", of("cinder"), |cinder, path| {
        let mut errors = required(cinder, &["volumeID"], path);
        errors.extend(secret(cinder, path));
        errors
    });
    sources.check("fc", of("fc"), typed::<FCVolumeSource>(disks::fibre_channel));
    // Upstream forgets to ask whether it is the only one.
    sources.check_any("flexVolume", of("flexVolume"), |flex, path| {
        let mut errors = required(flex, &["driver"], path);
        let options = flex["options"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        errors.extend(disks::reserved_options(options, path));
        errors
    });
    sources.check("azureFile", of("azureFile"), |azure, path| {
        let mut errors = required(azure, &["secretName", "shareName"], path);
        if azure["secretNamespace"].as_str() == Some("") {
            errors.push(path.child("secretNamespace").required(""));
        }
        errors
    });
    sources.check("vsphereVolume", of("vsphereVolume"), of_texts(&["volumePath"]));
    sources.check("photonPersistentDisk", of("photonPersistentDisk"), of_texts(&["pdID"]));
    sources.check("portworxVolume", of("portworxVolume"), of_texts(&["volumeID"]));
    sources.check("azureDisk", of("azureDisk"), typed::<AzureDiskVolumeSource>(disks::azure_disk));
    sources.check("scaleIO", of("scaleIO"), of_texts(&["gateway", "system", "volumeName"]));
    sources.check("local", of("local"), |local, at_local| {
        let mut errors = match text(local, "path") {
            "" => vec![at_local.child("path").required("")],
            target => paths::no_backsteps(target, &at_local.child("path")),
        };
        if !has_nodes {
            errors.push(path.child("nodeAffinity").required("Local volume requires node affinity"));
        }
        errors
    });
    sources.check("storageos", of("storageos"), storage_os);
    sources.check("csi", of("csi"), driver);
    sources.finish()
}

fn monitored(of: &Value, path: &Path) -> Errors {
    if items(of, "monitors").is_empty() { vec![path.child("monitors").required("")] } else { Errors::new() }
}

fn glusterfs(gluster: &Value, path: &Path) -> Errors {
    let mut errors = required(gluster, &["endpoints", "path"], path);
    let at_namespace = path.child("endpointsNamespace");
    match gluster["endpointsNamespace"].as_str() {
        None => {}
        Some("") => {
            let why = "if the endpointnamespace is set, it must be a valid namespace name";
            errors.push(at_namespace.invalid("", why));
        }
        Some(namespace) => {
            let problems = names::dns_label(namespace).into_iter();
            errors.extend(problems.map(|problem| at_namespace.invalid(namespace, problem)));
        }
    }
    errors
}

fn iscsi(iscsi: &Value, volume: &str, path: &Path) -> Errors {
    let mut errors = required(iscsi, &["targetPortal"], path);
    let (portal, initiator) = (text(iscsi, "targetPortal"), iscsi["initiatorName"].as_str());
    if initiator.is_some() && volume.len() + 1 + portal.len() > 64 {
        let why = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                   iscsi.initiatorName is specified.";
        errors.push(path.child("targetportal").invalid(portal, why));
    }
    let qualified = |name: &str, path: &Path| {
        let is_valid = disks::iscsi_qualified_name(name, path).is_none();
        (!is_valid).then(|| path.invalid(name, "must be valid format"))
    };
    match text(iscsi, "iqn") {
        "" => errors.push(path.child("iqn").required("")),
        name => errors.extend(qualified(name, &path.child("iqn"))),
    }
    let lun = i32::try_from(iscsi["lun"].as_i64().unwrap_or(0)).unwrap_or(-1);
    errors.extend(disks::logical_unit(lun, path));
    let authenticates = ["chapAuthDiscovery", "chapAuthSession"].iter().any(|on| iscsi[*on] == true);
    match &iscsi["secretRef"] {
        Value::Null if authenticates => errors.push(path.child("secretRef").required("")),
        Value::Null => {}
        secret => errors.extend(required(secret, &["name"], &path.child("secretRef"))),
    }
    errors.extend(initiator.and_then(|name| qualified(name, &path.child("initiatorname"))));
    errors
}

/// A secret is known by its name and its namespace.
fn secret(of: &Value, path: &Path) -> Errors {
    match &of["secretRef"] {
        Value::Null => Errors::new(),
        secret => required(secret, &["name", "namespace"], &path.child("secretRef")),
    }
}

fn storage_os(storage: &Value, path: &Path) -> Errors {
    let named = |field: &str| {
        let (name, path) = (text(storage, field), path.child(field));
        let problems = if name.is_empty() { Vec::new() } else { names::dns_label(name) };
        problems.into_iter().map(|problem| path.invalid(name, problem)).collect::<Errors>()
    };
    let mut errors = required(storage, &["volumeName"], path);
    errors.extend(["volumeName", "volumeNamespace"].into_iter().flat_map(named));
    errors.extend(secret(storage, path));
    errors
}

fn driver(csi: &Value, path: &Path) -> Errors {
    let mut errors = csi::driver_name(text(csi, "driver"), &path.child("driver"));
    errors.extend(required(csi, &["volumeHandle"], path));
    for field in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let (secret, path) = (&csi[field], path.child(field));
        if secret.is_null() {
            continue;
        }
        for (field, rule) in
            [("name", names::dns_subdomain as fn(&str) -> names::Problems), ("namespace", names::dns_label)]
        {
            let (name, path) = (text(secret, field), path.child(field));
            match name {
                "" => errors.push(path.required("")),
                name => errors.extend(rule(name).into_iter().map(|problem| path.invalid(name, problem))),
            }
        }
    }
    errors
}

impl Volumes {
    fn sources(object: &Value) -> Map<String, Value> {
        let mut spec = at(object, "spec").as_object().cloned().unwrap_or_default();
        spec.retain(|name, _| !NOT_SOURCES.contains(&name.as_str()));
        spec
    }

    fn judged(it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let tolerates_values = has_wrong_values(it.old);
        let (name, mut own) = (text(it.new, "metadata.name"), at(it.new, "spec").clone());
        // An empty capacity is shown as it was sent.
        if own["capacity"].is_null() && at(it.sent, "spec.capacity").is_object() {
            own["capacity"] = json!({});
        }
        errors.extend(spec(&own, name, Place::Volume, tolerates_values, &Path::new("spec")));
        errors
    }

    /// Options of mounting are given to what is mounted.
    fn mount_options(it: &It<'_>) -> Errors {
        let spec = at(it.new, "spec");
        let is_mounted = MOUNTED.iter().any(|source| !spec[*source].is_null());
        if is_mounted || at(it.new, "metadata.annotations")[MOUNT_OPTIONS].is_null() {
            return Errors::new();
        }
        let path = Path::new("metadata").child("annotations").child(MOUNT_OPTIONS);
        vec![path.forbidden("may not specify mount options for this volume type")]
    }
}

fn terms(object: &Value) -> Vec<NodeSelectorTerm> {
    let terms = items(object, "spec.nodeAffinity.required.nodeSelectorTerms");
    terms.iter().map(wire::typed).collect()
}

fn has_wrong_values(volume: &Value) -> bool {
    let terms = terms(volume);
    let mut expressions = terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    expressions.any(|it| it.values.iter().flatten().any(|value| !names::label_value(value).is_empty()))
}

/// Whether an affinity is the one before, but for labels that have got successors.
fn is_same_affinity(new: &Value, old: &Value) -> bool {
    let mut old = old.clone();
    let renamed = |expression: &mut Value, new: &Value| {
        let successor = SUCCESSORS.iter().find(|(key, _)| expression["key"] == *key).map(|(_, new)| *new);
        if let Some(successor) = successor.filter(|successor| new["key"] == *successor) {
            expression["key"] = json!(successor);
        }
    };
    let old_terms = old.pointer_mut("/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    let old_terms = old_terms.into_iter().flatten();
    for (old, new) in old_terms.zip(items(new, "required.nodeSelectorTerms")) {
        for part in ["matchExpressions", "matchFields"] {
            let before = old.get_mut(part).and_then(Value::as_array_mut).into_iter().flatten();
            before.zip(items(new, part)).for_each(|(old, new)| renamed(old, new));
        }
    }
    old == *new
}

impl Kind for Volumes {
    /// Those of an attachment have none of these.
    fn default(&self, object: &mut Value) {
        let spec = &mut object["spec"];
        if text(spec, "persistentVolumeReclaimPolicy").is_empty() {
            spec["persistentVolumeReclaimPolicy"] = json!("Retain");
        }
        if spec["volumeMode"].is_null() {
            spec["volumeMode"] = json!("Filesystem");
        }
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        let now = at(new, "metadata.creationTimestamp").clone();
        new["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        Vec::new()
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = Volumes::judged(it);
        errors.extend(Volumes::mount_options(it));
        errors
    }

    /// A changed object is judged twice.
    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(Volumes::judged(it));
        let (mut new, old) = (Volumes::sources(it.new), Volumes::sources(it.old));
        // Whoever had no secret for growing may get one.
        let expands = |sources: &Map<String, Value>| {
            sources.get("csi").map(|csi| !csi["controllerExpandSecretRef"].is_null())
        };
        if expands(&old) == Some(false) && expands(&new) == Some(true) {
            new["csi"].as_object_mut().map(|csi| csi.remove("controllerExpandSecretRef"));
        }
        if new != old {
            let difference = difference::internal(SOURCE, &old, &new);
            let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
            errors.push(Path::new("spec").child("persistentvolumesource").forbidden(why));
        }
        let mode = at(it.new, "spec.volumeMode");
        if mode != at(it.old, "spec.volumeMode") {
            errors.push(Path::new("volumeMode").invalid(field::Value::json(mode), IMMUTABLE));
        }
        let (affinity, before) = (at(it.new, "spec.nodeAffinity"), at(it.old, "spec.nodeAffinity"));
        if !before.is_null() && !is_same_affinity(affinity, before) {
            let why = format!("{IMMUTABLE}, except for updating from beta label to GA");
            let shown = match affinity {
                Value::Null => field::Value::json(&Value::Null),
                affinity => field::Value::internal("io.k8s.api.core.v1.VolumeNodeAffinity", affinity),
            };
            errors.push(Path::new("nodeAffinity").invalid(shown, why));
        }
        let class = |object: &'_ Value| at(object, "spec.volumeAttributesClassName").is_null();
        if class(it.new) && !class(it.old) {
            let path = Path::new("spec").child("volumeAttributesClassName");
            errors.push(path.forbidden("update from non-nil value to nil is forbidden"));
        }
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let (spec, annotations) = (at(new, "spec"), at(new, "metadata.annotations"));
        let mut found = Vec::new();
        for (key, why) in [
            (
                "volume.beta.kubernetes.io/storage-class",
                "deprecated since v1.8; use \"storageClassName\" attribute instead",
            ),
            (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
        ] {
            if !annotations[key].is_null() {
                found.push(format!("metadata.annotations[{key}]: {why}"));
            }
        }
        if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
            found.push(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning."
                    .to_owned(),
            );
        }
        let path = Path::new("spec").child("nodeAffinity").child("required").child("nodeSelectorTerms");
        for (i, term) in terms(new).iter().enumerate() {
            found.extend(warnings::node_term(term, false, &path.index(i)));
        }
        for (source, name, why) in DEPRECATED {
            if !spec[source].is_null() {
                found.push(format!("spec.{name}: {why}"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_nodes_may_get_their_successors() {
        let affinity = |key: &str| {
            let expression = json!({"key": key, "operator": "In", "values": ["a"]});
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
        };
        let (beta, stable) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
        assert!(is_same_affinity(&affinity(stable), &affinity(beta)));
        assert!(is_same_affinity(&affinity(beta), &affinity(beta)));
        assert!(!is_same_affinity(&affinity(beta), &affinity(stable)));
        assert!(!is_same_affinity(&affinity("other"), &affinity(beta)));
        assert!(!is_same_affinity(&Value::Null, &affinity(beta)));
    }

    #[test]
    fn paths_that_mean_the_root() {
        for (path, is_root_path) in
            [("/", true), ("/a/..", true), ("//./", true), ("/a", false), ("a/..", false)]
        {
            assert_eq!(is_root(path), is_root_path, "{path}");
        }
    }
}
