//! What is in the volumes that come from objects: ConfigMaps, Secrets, the pod itself, and several of them in one.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccountTokenProjection, Volume,
};

use super::{
    downward::{self, Place},
    environment::Data,
};

/// Files by their path in the volume.
pub type Files = BTreeMap<String, File>;

/// The mode of files if nothing says it.
const MODE: u32 = 0o644;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What is in it.
    pub content: Content,
    /// Its permissions.
    pub mode: u32,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A token of the pod's service account, which the node asks for and renews.
    Token {
        /// For whom; the API server itself if nobody is named.
        audience: Option<String>,
        /// How long it is good for.
        seconds: i64,
    },
}

/// The names of ConfigMaps and Secrets that a volume comes from.
pub fn sources(volume: &Volume) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    config_maps.extend(volume.config_map.as_ref().map(|source| source.name.clone()));
    secrets.extend(volume.secret.as_ref().and_then(|source| source.secret_name.clone()));
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    for source in projected {
        config_maps.extend(source.config_map.as_ref().map(|source| source.name.clone()));
        secrets.extend(source.secret.as_ref().map(|source| source.name.clone()));
    }
    (config_maps, secrets)
}

/// The files of a volume; `None` if it is one that does not come from objects. An error says what is missing.
pub fn files(volume: &Volume, pod: &Pod, data: &Data, place: &Place<'_>) -> Result<Option<Files>, String> {
    let mut files = Files::new();
    if let Some(source) = &volume.config_map {
        let mode = mode(source.default_mode);
        let optional = source.optional == Some(true);
        add_config_map(&mut files, data, &source.name, source.items.as_deref(), mode, optional)?;
    } else if let Some(source) = &volume.secret {
        let (mode, optional) = (mode(source.default_mode), source.optional == Some(true));
        let name = source.secret_name.as_deref().unwrap_or_default();
        add_secret(&mut files, data, name, source.items.as_deref(), mode, optional)?;
    } else if let Some(source) = &volume.downward_api {
        add_downward(&mut files, source.items.as_deref(), pod, place, mode(source.default_mode))?;
    } else if let Some(projected) = &volume.projected {
        let mode = mode(projected.default_mode);
        for source in projected.sources.iter().flatten() {
            if let Some(source) = &source.config_map {
                let optional = source.optional == Some(true);
                add_config_map(&mut files, data, &source.name, source.items.as_deref(), mode, optional)?;
            }
            if let Some(source) = &source.secret {
                let optional = source.optional == Some(true);
                add_secret(&mut files, data, &source.name, source.items.as_deref(), mode, optional)?;
            }
            if let Some(source) = &source.downward_api {
                add_downward(&mut files, source.items.as_deref(), pod, place, mode)?;
            }
            if let Some(source) = &source.service_account_token {
                files.insert(source.path.clone(), token(source, mode));
            }
        }
    } else {
        return Ok(None);
    }
    Ok(Some(files))
}

fn mode(mode: Option<i32>) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(MODE)
}

fn token(source: &ServiceAccountTokenProjection, mode: u32) -> File {
    let audience = source.audience.clone().filter(|audience| !audience.is_empty());
    let seconds = source.expiration_seconds.unwrap_or(3600);
    File { content: Content::Token { audience, seconds }, mode }
}

fn add_config_map(
    files: &mut Files,
    data: &Data,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<(), String> {
    let Some(map) = data.config_maps.get(name) else {
        return if optional { Ok(()) } else { Err(format!("configmap {name:?} not found")) };
    };
    add(files, &values_of(map), items, mode, optional, || {
        format!("configmap references non-existent config key: {name}")
    })
}

fn values_of(map: &ConfigMap) -> BTreeMap<&str, &[u8]> {
    let text = map.data.iter().flatten().map(|(key, value)| (key.as_str(), value.as_bytes()));
    let bytes = map.binary_data.iter().flatten().map(|(key, value)| (key.as_str(), value.0.as_slice()));
    text.chain(bytes).collect()
}

fn add_secret(
    files: &mut Files,
    data: &Data,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
) -> Result<(), String> {
    let Some(secret) = data.secrets.get(name) else {
        return if optional { Ok(()) } else { Err(format!("secret {name:?} not found")) };
    };
    let values = |secret: &Secret| -> BTreeMap<String, Vec<u8>> {
        secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
    };
    let values = values(secret);
    let values = values.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
    add(files, &values, items, mode, optional, || format!("references non-existent secret key: {name}"))
}

fn add(
    files: &mut Files,
    values: &BTreeMap<&str, &[u8]>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
    missing: impl Fn() -> String,
) -> Result<(), String> {
    let bytes = |value: &[u8], mode| File { content: Content::Bytes(value.to_vec()), mode };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        files.extend(values.iter().map(|(key, value)| ((*key).to_owned(), bytes(value, mode))));
        return Ok(());
    };
    for item in items {
        match values.get(item.key.as_str()) {
            Some(value) => {
                let mode = item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode);
                files.insert(item.path.clone(), bytes(value, mode));
            }
            None if optional => {}
            None => return Err(missing()),
        }
    }
    Ok(())
}

fn add_downward(
    files: &mut Files,
    items: Option<&[DownwardAPIVolumeFile]>,
    pod: &Pod,
    place: &Place<'_>,
    mode: u32,
) -> Result<(), String> {
    for item in items.into_iter().flatten() {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(selector), _) => downward::field(selector, pod, place)?,
            (None, Some(selector)) => downward::resource(selector, pod, None, place)?,
            (None, None) => continue,
        };
        let mode = item.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(mode);
        files.insert(item.path.clone(), File { content: Content::Bytes(value.into_bytes()), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(volume: Value, expected: Result<&[(&str, &str, u32)], &str>) {
        let volume: Volume = serde_json::from_value(volume).expect("a volume");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "labels": { "a": "b" } }, "spec": { "containers": [] } }))
        .expect("a pod");
        let mut data = Data::default();
        let map = json!({ "data": { "a": "1", "b": "2" }, "binaryData": { "c": "Aw==" } });
        data.config_maps.insert("map".to_owned(), serde_json::from_value(map).expect("a ConfigMap"));
        let secret = json!({ "data": { "s": "c2VjcmV0" } });
        data.secrets.insert("secret".to_owned(), serde_json::from_value(secret).expect("a Secret"));
        let place = Place { ip: "", host_ip: "", allocatable: &BTreeMap::new() };
        let files = files(&volume, &pod, &data, &place).map(|files| {
            let text = |content| match content {
                Content::Bytes(bytes) => String::from_utf8(bytes).expect("text"),
                Content::Token { audience, seconds } => format!("{audience:?} {seconds}"),
            };
            let files = files.expect("a volume of files").into_iter();
            files.map(|(path, file)| (path, text(file.content), file.mode)).collect::<Vec<_>>()
        });
        let expected = expected
            .map(|files| {
                files
                    .iter()
                    .map(|(path, text, mode)| ((*path).to_owned(), (*text).to_owned(), *mode))
                    .collect()
            })
            .map_err(str::to_owned);
        assert_eq!(files, expected);
    }

    #[test]
    fn files_of_volumes() {
        check(
            json!({ "name": "v", "configMap": { "name": "map" } }),
            Ok(&[("a", "1", 0o644), ("b", "2", 0o644), ("c", "\u{3}", 0o644)]),
        );
        check(
            json!({ "name": "v", "configMap": { "name": "map", "defaultMode": 256,
                "items": [{ "key": "a", "path": "deep/er" }, { "key": "b", "path": "x", "mode": 511 }] } }),
            Ok(&[("deep/er", "1", 0o400), ("x", "2", 0o777)]),
        );
        check(json!({ "name": "v", "secret": { "secretName": "none", "optional": true } }), Ok(&[]));
        check(json!({ "name": "v", "secret": { "secretName": "none" } }), Err("secret \"none\" not found"));
        check(
            json!({ "name": "v", "projected": { "sources": [
                { "secret": { "name": "secret" } },
                { "downwardAPI": { "items": [{ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } }] } },
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 600 } } ] } }),
            Ok(&[("labels", "a=\"b\"", 0o644), ("s", "secret", 0o644), ("token", "None 600", 0o644)]),
        );
    }
}
