//! Files of one volume that want the same path, or one of which wants a directory to be where another one is.

use std::fmt;

use k8s_openapi::api::core::v1::{Volume, VolumeProjection};
use types::go;

/// A path and where it comes from; no source is named where the volume has just one.
#[derive(Clone, PartialEq, Eq)]
struct Placed {
    path: String,
    source: String,
}

impl Placed {
    fn new(path: &str, source: &str) -> Self {
        Placed { path: path.trim_end_matches('/').to_owned(), source: source.to_owned() }
    }

    /// Whether both cannot be there: they are the same, or one is a directory of the other.
    fn collides(&self, other: &Placed) -> bool {
        let (this, other) = (format!("{}/", self.path), format!("{}/", other.path));
        this.len() > 1 && other.len() > 1 && (this.starts_with(&other) || other.starts_with(&this))
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go::quote(&self.path))?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}

/// The overlaps in every volume.
pub(super) fn of_volumes(volumes: &[Volume]) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in volumes {
        let plain =
            |paths: Vec<&String>| paths.into_iter().map(|path| Placed::new(path, "")).collect::<Vec<_>>();
        let mut check = |what: String, files: Vec<Placed>| {
            let name = go::quote(&volume.name);
            let says = |overlap: String| format!("volume {name} ({what}): overlapping paths: {overlap}");
            warnings.extend(overlaps(&files).into_iter().map(says));
        };
        if let Some(map) = &volume.config_map {
            let what = format!("ConfigMap {}", go::quote(&map.name));
            check(what, plain(map.items.iter().flatten().map(|item| &item.path).collect()));
        }
        if let Some(secret) = &volume.secret {
            let what = format!("Secret {}", go::quote(secret.secret_name.as_deref().unwrap_or_default()));
            check(what, plain(secret.items.iter().flatten().map(|item| &item.path).collect()));
        }
        if let Some(downward) = &volume.downward_api {
            let files = downward.items.iter().flatten().map(|file| &file.path).collect();
            check("DownwardAPI".to_owned(), plain(files));
        }
        if let Some(projected) = &volume.projected {
            warnings.extend(of_projections(projected.sources.as_deref().unwrap_or_default(), &volume.name));
        }
    }
    warnings
}

fn of_projections(sources: &[VolumeProjection], volume: &str) -> Vec<String> {
    let name = go::quote(volume);
    let mut warnings = Vec::new();
    let mut earlier: Vec<Placed> = Vec::new();
    for source in sources {
        if *source == VolumeProjection::default() {
            warnings.push(format!("volume {name} (Projected) has no sources provided"));
        }
        for file in projection(source) {
            for other in earlier.iter().filter(|other| file.collides(other)) {
                warnings.push(format!("volume {name} (Projected): overlapping paths: {file} with {other}"));
            }
            earlier.push(file);
        }
    }
    warnings
}

/// The files of one source. Sources behind gates that are off were dropped.
fn projection(source: &VolumeProjection) -> Vec<Placed> {
    if let Some(map) = source.config_map.as_ref().filter(|map| map.items.is_some()) {
        let from = format!("ConfigMap {}", go::quote(&map.name));
        return map.items.iter().flatten().map(|item| Placed::new(&item.path, &from)).collect();
    }
    if let Some(secret) = source.secret.as_ref().filter(|secret| secret.items.is_some()) {
        let from = format!("Secret {}", go::quote(&secret.name));
        return secret.items.iter().flatten().map(|item| Placed::new(&item.path, &from)).collect();
    }
    if let Some(downward) = source.downward_api.as_ref().filter(|downward| downward.items.is_some()) {
        return downward.items.iter().flatten().map(|file| Placed::new(&file.path, "DownwardAPI")).collect();
    }
    let token = source.service_account_token.iter();
    token.map(|token| Placed::new(&token.path, "ServiceAccountToken")).collect()
}

fn overlaps(files: &[Placed]) -> Vec<String> {
    let mut found = Vec::new();
    for (i, file) in files.iter().enumerate() {
        let others = files[..i].iter().filter(|other| file.collides(other));
        found.extend(others.map(|other| format!("{file} with {other}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::check;

    #[test]
    fn w_03_overlapping_paths() {
        let items = json!([{"key": "a", "path": "p"}, {"key": "b", "path": "p/q"}, {"key": "c", "path": "pq"},
            {"key": "d", "path": "p/"}]);
        check(
            json!({"spec": {"containers": [], "volumes": [
                {"name": "m", "configMap": {"name": "x", "items": items}},
                {"name": "v", "projected": {"sources": [
                    {"secret": {"name": "s", "items": [{"key": "k", "path": "t"}]}},
                    {"serviceAccountToken": {"path": "t/u"}}, {},
                ]}},
            ]}}),
            &[
                r#"volume "m" (ConfigMap "x"): overlapping paths: "p/q" with "p""#,
                r#"volume "m" (ConfigMap "x"): overlapping paths: "p" with "p""#,
                r#"volume "m" (ConfigMap "x"): overlapping paths: "p" with "p/q""#,
                r#"volume "v" (Projected): overlapping paths: "t/u" (ServiceAccountToken) with "t" (Secret "s")"#,
                r#"volume "v" (Projected) has no sources provided"#,
            ],
        );
    }
}
