//! Kubeconfigs of worker clusters: found, judged, and made into clients.

use std::path::{Component, Path};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use reconcile::{Cache, Key};
use rules::dispatch::kubeconfig;
use serde_json::Value;
use types::kueue::{ClusterSource, LocationType};

use super::Settings;

/// The key of a Secret under which a kubeconfig is.
const KEY: &str = "kubeconfig";

/// Why a cluster cannot be connected to, as its condition says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Bad {
    fn new(reason: &'static str, why: impl std::fmt::Display) -> Bad {
        Bad { reason, message: format!("load client config failed: {why}") }
    }
}

/// The kubeconfig that a cluster's source leads to (MK-CONN-01…08).
pub(super) async fn load(
    source: &ClusterSource,
    secrets: &Cache<Secret>,
    settings: &Settings,
) -> Result<Value, Bad> {
    if source.cluster_profile_ref.is_some() {
        let why = "MultiKueueClusterProfile feature gate is disabled";
        return Err(Bad::new("MultiKueueClusterProfileFeatureDisabled", why));
    }
    let Some(place) = &source.kube_config else {
        return Err(Bad::new("BadKubeConfig", "no kubeconfig is named"));
    };
    let bytes = match place.location_type.unwrap_or_default() {
        LocationType::Secret => from_secret(&place.location, secrets, settings),
        LocationType::Path => from_file(&place.location, settings).await,
    };
    let bytes = bytes.map_err(|why| Bad::new("BadKubeConfig", why))?;
    parse(&bytes).map_err(|why| Bad::new("InsecureKubeConfig", why))
}

fn from_secret(name: &str, secrets: &Cache<Secret>, settings: &Settings) -> Result<Vec<u8>, String> {
    let secret = secrets.get(&Key::new(settings.namespace.as_str(), name));
    let secret = secret.ok_or_else(|| format!("Secret {name:?} not found"))?;
    let found = secret.data.as_ref().and_then(|data| data.get(KEY));
    found.map(|bytes| bytes.0.clone()).ok_or_else(|| format!("key {KEY:?} not found in secret {name:?}"))
}

async fn from_file(path: &str, settings: &Settings) -> Result<Vec<u8>, String> {
    if let Some(allowed) = &settings.kubeconfig_directory {
        below(Path::new(path), allowed).await?;
    }
    tokio::fs::read(path).await.map_err(|error| format!("open {path}: {error}"))
}

/// A path that is really below a directory, whatever links are on the way (MK-CONN-08).
async fn below(path: &Path, allowed: &Path) -> Result<(), String> {
    if path.as_os_str().is_empty() {
        return Err("kubeconfig path must not be empty".to_owned());
    }
    let refused = || Err(format!("kubeconfig path is not under the allowed prefix: {}", path.display()));
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return refused();
    }
    let resolved = tokio::fs::canonicalize(path).await;
    let resolved = resolved.map_err(|error| format!("open {}: {error}", path.display()))?;
    match tokio::fs::canonicalize(allowed).await {
        Ok(allowed) if resolved.starts_with(&allowed) && resolved != allowed => Ok(()),
        _ => refused(),
    }
}

fn parse(bytes: &[u8]) -> Result<Value, String> {
    let bad = |error: &dyn std::fmt::Display| format!("failed to parse kubeconfig(apiconfig): {error}");
    let text = std::str::from_utf8(bytes).map_err(|error| bad(&error))?;
    let config: Value = serde_saphyr::from_str(text).map_err(|error| bad(&error))?;
    serde_json::from_value::<Kubeconfig>(config.clone()).map_err(|error| bad(&error))?;
    kubeconfig::refuse(&config)?;
    Ok(config)
}

/// A client for a kubeconfig.
pub(super) async fn connect(config: Value) -> Result<Client, kube::Error> {
    let bad = |error: serde_json::Error| kube::Error::SerdeError(error);
    let config: Kubeconfig = serde_json::from_value(config).map_err(bad)?;
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(config, &options).await;
    let config = config.map_err(|error| kube::Error::Service(Box::new(error)))?;
    crate::client(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MK-CONN-08: what is really below the directory, and not only by its name.
    #[tokio::test]
    async fn mk_conn_08_files_below_a_directory() -> std::io::Result<()> {
        let home = tempfile::tempdir()?;
        let (allowed, beside) = (home.path().join("allowed"), home.path().join("allowed-not"));
        for directory in [&allowed, &beside] {
            std::fs::create_dir(directory)?;
            std::fs::write(directory.join("file"), "")?;
        }
        std::os::unix::fs::symlink(beside.join("file"), allowed.join("escapes"))?;
        std::os::unix::fs::symlink(allowed.join("file"), allowed.join("stays"))?;
        let refused = "kubeconfig path is not under the allowed prefix: ";
        let up = allowed.join("../allowed-not/file");
        for (path, expected) in [
            (allowed.join("file"), ""),
            (allowed.join("stays"), ""),
            (allowed.join("escapes"), refused),
            (beside.join("file"), refused),
            (up, refused),
            (allowed.clone(), refused),
            ("relative".into(), refused),
            ("".into(), "kubeconfig path must not be empty"),
            (allowed.join("missing"), "open "),
        ] {
            let said = below(&path, &allowed).await.err().unwrap_or_default();
            assert!(
                said.starts_with(expected) && said.is_empty() == expected.is_empty(),
                "{}: {said}",
                path.display()
            );
        }
        Ok(())
    }
}
