//! Claims on storage that are made for a pod and go with it.

use k8s_openapi::api::core::v1::{EphemeralVolumeSource, PersistentVolumeClaimSpec, TypedObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use types::{Quantity, go};

use crate::field::{Errors, Path, Value};
use crate::meta::{self, selector};
use crate::names;
use crate::pod::{named, one_of, resources};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) fn ephemeral(ephemeral: &EphemeralVolumeSource, path: &Path) -> Errors {
    let path = path.child("volumeClaimTemplate");
    let Some(template) = &ephemeral.volume_claim_template else { return vec![path.required("")] };
    let mut errors = Errors::new();
    if let Some(meta) = &template.metadata {
        errors.extend(template_metadata(meta, &path.child("metadata")));
    }
    errors.extend(claim_spec(&template.spec, &path.child("spec")));
    errors
}

/// What is wrong with the name of the claim that will be made for a volume of a pod.
pub(super) fn made_claim_name(pod_name: Option<&str>, volume: &str, path: &Path) -> Errors {
    let Some(pod) = pod_name.filter(|_| !volume.is_empty()) else { return Errors::new() };
    let claim = format!("{pod}-{volume}");
    let why = |problem| format!("PVC name {}: {problem}", go::quote(&claim));
    let problems = names::dns_subdomain(&claim).into_iter();
    problems.map(|problem| path.child("name").invalid(volume, why(problem))).collect()
}

/// A claim gets labels and annotations from its template, everything else from its pod.
pub(crate) fn template_metadata(meta: &ObjectMeta, path: &Path) -> Errors {
    let mut errors = meta::annotations(meta.annotations.as_ref(), &path.child("annotations"));
    errors.extend(meta::labels(meta.labels.as_ref(), &path.child("labels")));
    let text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    for (field, is_set) in [
        ("name", text(&meta.name)),
        ("generateName", text(&meta.generate_name)),
        ("namespace", text(&meta.namespace)),
        ("selfLink", text(&meta.self_link)),
        ("uID", text(&meta.uid)),
        ("resourceVersion", text(&meta.resource_version)),
        ("generation", meta.generation.unwrap_or(0) != 0),
        ("creationTimestamp", meta.creation_timestamp.is_some()),
        ("deletionTimestamp", meta.deletion_timestamp.is_some()),
        ("deletionGracePeriodSeconds", meta.deletion_grace_period_seconds.is_some()),
        ("ownerReferences", meta.owner_references.is_some()),
        ("finalizers", meta.finalizers.is_some()),
        ("managedFields", meta.managed_fields.is_some()),
    ] {
        if is_set {
            errors.push(path.child(field).forbidden("cannot be set"));
        }
    }
    errors
}

pub(crate) fn claim_spec(spec: &PersistentVolumeClaimSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let at_modes = path.child("accessModes");
    if modes.is_empty() {
        errors.push(at_modes.required("at least 1 access mode is required"));
    }
    if let Some(labels) = &spec.selector {
        errors.extend(selector::validate(labels, false, &path.child("selector")));
    }
    errors.extend(modes.iter().filter_map(|mode| one_of(&at_modes, mode, &ACCESS_MODES)));
    let (alone, shared): (Vec<&str>, Vec<&str>) = modes
        .iter()
        .map(String::as_str)
        .filter(|mode| ACCESS_MODES.contains(mode))
        .partition(|mode| *mode == "ReadWriteOncePod");
    if !alone.is_empty() && !shared.is_empty() {
        errors.push(at_modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
    errors.extend(storage(spec, &path.child("resources").key("storage")));
    errors.extend(class_name(spec.storage_class_name.as_deref(), &path.child("storageClassName")));
    if let Some(mode) = &spec.volume_mode {
        errors.extend(one_of(&path.child("volumeMode"), mode, &["Block", "Filesystem"]));
    }
    errors.extend(data_sources(spec, path));
    let attributes = spec.volume_attributes_class_name.as_deref();
    errors.extend(class_name(attributes, &path.child("volumeAttributesClassName")));
    errors
}

fn storage(spec: &PersistentVolumeClaimSpec, path: &Path) -> Errors {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    match requests.and_then(|requests| requests.get("storage")).map(Quantity::try_from) {
        None => vec![path.required("")],
        Some(Ok(storage)) if storage.is_positive() => resources::validate_amount("storage", &storage, path),
        Some(storage) => {
            vec![path.invalid(&storage.unwrap_or_default().to_string(), "must be greater than zero")]
        }
    }
}

fn class_name(name: Option<&str>, path: &Path) -> Errors {
    name.filter(|name| !name.is_empty())
        .map_or_else(Errors::new, |name| named(path, name, names::dns_subdomain))
}

/// What the storage is filled with at first.
fn data_sources(spec: &PersistentVolumeClaimSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let local = spec.data_source.as_ref().map(|source| TypedObjectReference {
        api_group: source.api_group.clone(),
        kind: source.kind.clone(),
        name: source.name.clone(),
        namespace: None,
    });
    for (field, source) in [("dataSource", &local), ("dataSourceRef", &spec.data_source_ref)] {
        if let Some(source) = source {
            errors.extend(data_source(source, &path.child(field)));
        }
    }
    if let (Some(local), Some(reference)) = (&local, &spec.data_source_ref) {
        let same = local.api_group == reference.api_group
            && local.kind == reference.kind
            && local.name == reference.name;
        // The value that upstream prints is a path, of which nothing is visible in JSON.
        let value = Value::printed("{}");
        if reference.namespace.as_ref().is_some_and(|namespace| !namespace.is_empty()) {
            let why = "may not be specified when dataSourceRef.namespace is specified";
            errors.push(path.invalid(value, why));
        } else if !same {
            errors.push(path.invalid(value, "must match dataSourceRef"));
        }
    }
    errors
}

fn data_source(source: &TypedObjectReference, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if source.name.is_empty() {
        errors.push(path.child("name").required(""));
    }
    if source.kind.is_empty() {
        errors.push(path.child("kind").required(""));
    }
    let group = source.api_group.as_deref().unwrap_or_default();
    if group.is_empty() && source.kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(path.invalid(&source.kind, why));
    }
    if !group.is_empty() {
        errors.extend(named(&path.child("apiGroup"), group, names::dns_subdomain));
    }
    if let Some(namespace) = source.namespace.as_ref().filter(|namespace| !namespace.is_empty()) {
        errors.extend(named(&path.child("namespace"), namespace, names::dns_label));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::check_volume;

    fn check(spec: Value, expected: &[&str]) {
        let expected: Vec<String> =
            expected.iter().map(|text| format!(".ephemeral.volumeClaimTemplate.spec{text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_volume(json!({"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}), &expected);
    }

    #[test]
    fn c_63_templates() {
        check_volume(json!({"ephemeral": {}}), &[".ephemeral.volumeClaimTemplate: Required value"]);
        check_volume(
            json!({"ephemeral": {"volumeClaimTemplate": {
                "metadata": {"name": "n", "labels": {"-": "a"}, "annotations": {"-": "a"}, "finalizers": ["x"]},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }}}),
            &[
                r#".ephemeral.volumeClaimTemplate.metadata.annotations: Invalid value: "-": name part must consist"#,
                r#".ephemeral.volumeClaimTemplate.metadata.labels: Invalid value: "-": name part must consist"#,
                ".ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
                ".ephemeral.volumeClaimTemplate.metadata.finalizers: Forbidden: cannot be set",
            ],
        );
    }

    #[test]
    fn c_63_specs() {
        check(
            json!({}),
            &[
                ".accessModes: Required value: at least 1 access mode is required",
                ".resources[storage]: Required value",
            ],
        );
        check(
            json!({"accessModes": ["ReadWriteOncePod", "ReadOnlyMany", "x"], "storageClassName": "A",
                "volumeMode": "Tape", "volumeAttributesClassName": "B", "resources": {"requests": {"storage": "0"}}}),
            &[
                r#".accessModes: Unsupported value: "x": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod""#,
                ".accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                r#".resources[storage]: Invalid value: "0": must be greater than zero"#,
                r#".storageClassName: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                r#".volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem""#,
                r#".volumeAttributesClassName: Invalid value: "B": a lowercase RFC 1123 subdomain"#,
            ],
        );
    }

    #[test]
    fn c_63_sources_of_data() {
        let with = |mut source: Value| {
            source["accessModes"] = json!(["ReadWriteOnce"]);
            source["resources"] = json!({"requests": {"storage": "1Gi"}});
            source
        };
        check(
            with(json!({"dataSource": {"kind": "Snapshot", "name": ""}})),
            &[
                ".dataSource.name: Required value",
                r#".dataSource: Invalid value: "Snapshot": must be 'PersistentVolumeClaim' when referencing the default apiGroup"#,
            ],
        );
        check(
            with(json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
                "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b", "apiGroup": "A"}})),
            &[
                r#".dataSourceRef.apiGroup: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                ": Invalid value: {}: must match dataSourceRef",
            ],
        );
    }
}
