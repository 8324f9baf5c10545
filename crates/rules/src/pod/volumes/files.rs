//! Volumes that are made of files: keys of secrets and config maps, fields of the pod, tokens.
//!
//! Bundles of trusted certificates and certificates of the pod are behind gates that are off, and dropped before
//! anything is judged.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, DownwardAPIVolumeSource, KeyToPath, PodSpec,
    ProjectedVolumeSource, SecretVolumeSource, ServiceAccountTokenProjection,
};

use crate::field::{Errors, Path};
use crate::pod::{Options, env, paths};

pub(super) fn secret(secret: &SecretVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if secret.secret_name.as_ref().is_none_or(String::is_empty) {
        errors.push(path.child("secretName").required(""));
    }
    errors.extend(mode(secret.default_mode, &path.child("defaultMode")));
    errors.extend(items(secret.items.as_deref().unwrap_or_default(), &path.child("items")));
    errors
}

pub(super) fn config_map(config_map: &ConfigMapVolumeSource, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if config_map.name.is_empty() {
        errors.push(path.child("name").required(""));
    }
    errors.extend(mode(config_map.default_mode, &path.child("defaultMode")));
    errors.extend(items(config_map.items.as_deref().unwrap_or_default(), &path.child("items")));
    errors
}

pub(super) fn downward_api(downward: &DownwardAPIVolumeSource, path: &Path) -> Errors {
    let mut errors = mode(downward.default_mode, &path.child("defaultMode"));
    errors.extend(downward.items.iter().flatten().flat_map(|file| downward_file(file, path)));
    errors
}

fn mode(mode: Option<i32>, path: &Path) -> Errors {
    match mode {
        Some(mode) if !(0..=0o777).contains(&mode) => {
            vec![path.invalid(mode, "must be a number between 0 and 0777 (octal), both inclusive")]
        }
        _ => Errors::new(),
    }
}

fn items(items: &[KeyToPath], path: &Path) -> Errors {
    items.iter().enumerate().flat_map(|(i, item)| key_to_path(item, &path.index(i))).collect()
}

fn key_to_path(item: &KeyToPath, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if item.key.is_empty() {
        errors.push(path.child("key").required(""));
    }
    if item.path.is_empty() {
        errors.push(path.child("path").required(""));
    }
    errors.extend(paths::not_reserved(&item.path, &path.child("path")));
    errors.extend(mode(item.mode, &path.child("mode")));
    errors
}

/// A file of the downward API; its errors name the volume, not the file.
fn downward_file(file: &DownwardAPIVolumeFile, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if file.path.is_empty() {
        errors.push(path.child("path").required(""));
    }
    errors.extend(paths::not_reserved(&file.path, &path.child("path")));
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), resource) => {
            errors.extend(env::field_selector(field, &env::FILE_FIELDS, &path.child("fieldRef")));
            if resource.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(path.invalid("resource", why));
            }
        }
        (None, Some(resource)) => {
            errors.extend(env::resource_selector(resource, true, &path.child("resourceFieldRef")));
        }
        (None, None) => errors.push(path.required("one of fieldRef and resourceFieldRef is required")),
    }
    errors.extend(mode(file.mode, &path.child("mode")));
    errors
}

/// Several sources in one directory, where no two may claim the same path.
pub(super) fn projected(projected: &ProjectedVolumeSource, options: &Options, path: &Path) -> Errors {
    let mut errors = mode(projected.default_mode, &path.child("defaultMode"));
    let mut taken = BTreeSet::new();
    let mut claim = |file: &str, value: &str| {
        let first = file.is_empty() || taken.insert(file.to_owned());
        (!first).then(|| path.invalid(value, "conflicting duplicate paths"))
    };
    for (i, source) in projected.sources.iter().flatten().enumerate() {
        let at = path.child("sources").index(i);
        let keyed = [
            ("secret", source.secret.as_ref().map(|source| (&source.name, &source.items))),
            ("configMap", source.config_map.as_ref().map(|source| (&source.name, &source.items))),
        ];
        for (field, source) in keyed {
            let Some((name, items)) = source else { continue };
            let at = at.child(field);
            if name.is_empty() {
                errors.push(at.child("name").required(""));
            }
            for (i, item) in items.iter().flatten().enumerate() {
                errors.extend(key_to_path(item, &at.child("items").index(i)));
                errors.extend(claim(&item.path, name));
            }
        }
        if let Some(downward) = &source.downward_api {
            for file in downward.items.iter().flatten() {
                errors.extend(downward_file(file, &at.child("downwardAPI")));
                errors.extend(claim(&file.path, &file.path));
            }
        }
        if let Some(service_account_token) = &source.service_account_token {
            let at = at.child("serviceAccountToken");
            errors.extend(token(service_account_token, options, &at, &path.child("path")));
        }
        let sources = keyed.iter().filter(|(_, source)| source.is_some()).count()
            + usize::from(source.downward_api.is_some())
            + usize::from(source.service_account_token.is_some());
        if sources > 1 {
            errors.push(at.forbidden("may not specify more than 1 volume type per source"));
        }
    }
    errors
}

/// A token; errors about its path name the volume, not the token.
fn token(token: &ServiceAccountTokenProjection, options: &Options, path: &Path, at_path: &Path) -> Errors {
    let mut errors = Errors::new();
    let seconds = token.expiration_seconds.unwrap_or(0);
    if seconds < 10 * 60 {
        let why = "may not specify a duration less than 10 minutes";
        errors.push(path.child("expirationSeconds").invalid(seconds, why));
    }
    if seconds > 1 << 32 {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.push(path.child("expirationSeconds").invalid(seconds, why));
    }
    if token.path.is_empty() {
        errors.push(at_path.required(""));
    } else if !options.allow_non_local_token_path {
        errors.extend(paths::not_reserved(&token.path, at_path));
    }
    errors
}

/// A pod has tokens of its service account only if it has one.
pub(in crate::pod) fn validate_tokens(spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if spec.service_account_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return errors;
    }
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        for (j, _) in sources.enumerate().filter(|(_, source)| source.service_account_token.is_some()) {
            let path = path.child("volumes").index(i).child("projected.sources").index(j);
            let why = "must not be specified when serviceAccountName is not set";
            errors.push(path.child("serviceAccountToken").forbidden(why));
        }
    }
    errors
}

/// Whether a stored pod has a token at a path that would be refused today.
pub(in crate::pod) fn has_non_local_token_path(spec: &PodSpec) -> bool {
    let sources = spec
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.projected.as_ref())
        .flat_map(|projected| projected.sources.iter().flatten());
    sources
        .filter_map(|source| source.service_account_token.as_ref())
        .any(|token| !paths::not_reserved(&token.path, &Path::root()).is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::check_volume;

    #[test]
    fn c_63_keys() {
        check_volume(json!({"secret": {"secretName": "s", "items": [{"key": "k", "path": "a/b"}]}}), &[]);
        check_volume(
            json!({"secret": {"defaultMode": 512, "items": [{"key": "", "path": "", "mode": -1}]}}),
            &[
                ".secret.secretName: Required value",
                ".secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
                ".secret.items[0].key: Required value",
                ".secret.items[0].path: Required value",
                ".secret.items[0].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive",
            ],
        );
        check_volume(
            json!({"configMap": {"name": "", "items": [{"key": "k", "path": "/../x"}]}}),
            &[
                ".configMap.name: Required value",
                r#".configMap.items[0].path: Invalid value: "/../x": must be a relative path"#,
                r#".configMap.items[0].path: Invalid value: "/../x": must not contain '..'"#,
            ],
        );
    }

    #[test]
    fn c_63_downward() {
        check_volume(
            json!({"downwardAPI": {"items": [
                {"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "", "fieldRef": {"fieldPath": "spec.nodeName"}, "resourceFieldRef": {"resource": "limits.cpu"}},
                {"path": "..b", "resourceFieldRef": {"resource": "limits.cpu"}},
                {"path": "c"},
            ]}}),
            &[
                ".downwardAPI.path: Required value",
                r#".downwardAPI.fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: "metadata.annotations""#,
                r#".downwardAPI: Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously"#,
                r#".downwardAPI.path: Invalid value: "..b": must not start with '..'"#,
                ".downwardAPI.resourceFieldRef.containerName: Required value",
                ".downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
            ],
        );
    }

    #[test]
    fn c_63_projections() {
        check_volume(
            json!({"projected": {"sources": [
                {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                {"configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}},
                {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]},
                 "serviceAccountToken": {"path": "/t", "expirationSeconds": 599}},
                {"serviceAccountToken": {"path": "", "expirationSeconds": 4_294_967_297_i64}},
                {"secret": {"name": ""}},
            ]}}),
            &[
                r#".projected: Invalid value: "m": conflicting duplicate paths"#,
                r#".projected: Invalid value: "p": conflicting duplicate paths"#,
                ".projected.sources[2].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than",
                r#".projected.path: Invalid value: "/t": must be a relative path"#,
                ".projected.sources[2]: Forbidden: may not specify more than 1 volume type per source",
                ".projected.sources[3].serviceAccountToken.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger",
                ".projected.path: Required value",
                ".projected.sources[4].secret.name: Required value",
            ],
        );
    }
}
