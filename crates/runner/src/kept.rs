//! Logs of pods that are gone. A worker's pods go with the mirror of their Job as soon as that has ended, and whoever
//! asks for their logs asks after that; so a node can keep those of its last pods.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use futures::TryStreamExt as _;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;

use crate::logs::{Log, Options, read};

/// Where they are, below a node's directory.
const DIRECTORY: &str = "kept";
/// Whose they are, in the directory of each pod.
const METADATA: &str = "metadata.json";
/// What its containers wrote, in the same.
const LOGS: &str = "logs";

/// The logs of a pod that is gone.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The pod.
    pub metadata: ObjectMeta,
    directory: PathBuf,
}

/// Keeps the logs of a pod, and those of so many pods at most.
pub(crate) fn keep(node: &Path, pod: &Pod, logs: &Path, most: usize) -> io::Result<()> {
    if most == 0 || !logs.exists() {
        return Ok(());
    }
    let all = node.join(DIRECTORY);
    let directory = all.join(pod.uid().unwrap_or_default());
    fs::create_dir_all(&directory)?;
    fs::rename(logs, directory.join(LOGS))?;
    // Last, and at once: whoever finds it finds the logs, too.
    let metadata = ObjectMeta { managed_fields: None, ..pod.metadata.clone() };
    let new = directory.join(format!("{METADATA}.new"));
    fs::write(&new, serde_json::to_vec(&metadata)?)?;
    fs::rename(new, directory.join(METADATA))?;
    forget_oldest(&all, most)
}

fn forget_oldest(all: &Path, most: usize) -> io::Result<()> {
    let mut kept: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(all)? {
        let entry = entry?;
        kept.push((entry.metadata()?.modified()?, entry.path()));
    }
    kept.sort();
    let oldest = kept.len().saturating_sub(most);
    kept.iter().take(oldest).try_for_each(|(_, path)| fs::remove_dir_all(path))
}

/// The pods whose logs a node has kept, the oldest first.
pub fn all(node: &Path) -> io::Result<Vec<Kept>> {
    let entries = match fs::read_dir(node.join(DIRECTORY)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let directory = entry?.path();
        // One that is being kept or forgotten just now is not there yet, or not any more.
        let Ok(bytes) = fs::read(directory.join(METADATA)) else { continue };
        if let Ok(metadata) = serde_json::from_slice(&bytes) {
            all.push(Kept { metadata, directory });
        }
    }
    all.sort_by_key(|kept| {
        (kept.metadata.creation_timestamp.as_ref().map(|time| time.0), kept.metadata.name.clone())
    });
    Ok(all)
}

impl Kept {
    /// The containers that wrote something.
    pub fn containers(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.directory.join(LOGS))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// What a container wrote, in all its lives.
    pub async fn log(&self, container: &str, options: &Options) -> io::Result<Vec<u8>> {
        let lives = self.directory.join(LOGS).join(container);
        let mut text = Vec::new();
        for life in 0.. {
            let path = lives.join(format!("{life}.log"));
            if !path.exists() {
                break;
            }
            let pieces = read(Log::ended(path), Options { follow: false, ..options.clone() });
            text.extend(pieces.try_collect::<Vec<_>>().await?.concat());
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn the_logs_of_the_last_pods_are_kept() {
        let node = tempfile::tempdir().expect("a directory");
        for name in ["a", "b", "c"] {
            let logs = node.path().join("logs");
            fs::create_dir_all(logs.join("main")).expect("a directory");
            let line = format!("2026-01-01T00:00:00.000000000Z stdout F {name} speaks\n");
            fs::write(logs.join("main/0.log"), &line).expect("a log");
            fs::write(logs.join("main/1.log"), &line).expect("a log");
            let pod = json!({ "metadata": { "name": name, "uid": name } });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            keep(node.path(), &pod, &logs, 2).expect("kept");
            // The oldest is told by the time of its directory.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let kept = all(node.path()).expect("a list");
        let names: Vec<_> = kept.iter().map(|kept| kept.metadata.name.clone().expect("a name")).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(kept[0].containers().expect("a list"), ["main"]);
        let log = kept[0].log("main", &Options::default()).await.expect("a log");
        assert_eq!(String::from_utf8(log).expect("text"), "b speaks\nb speaks\n");
    }
}
