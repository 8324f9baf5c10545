//! What a pod has written to disks, looked at from time to time if that is limited.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use rules::node::{
    Ending,
    storage::{self, Usage},
};
use tokio::task::JoinSet;
use tracing::debug;

use super::{Actor, later};

/// As often as a kubelet does.
const PERIOD: SignedDuration = SignedDuration::from_secs(10);
/// Looking takes no more than this part of the time.
const PART: u32 = 20;
/// The unit in which the kernel tells how much of a disk a file has.
const BLOCK: u64 = 512;

/// What is known of it.
#[derive(Default)]
pub(super) struct Storage {
    /// Somebody is looking.
    looking: JoinSet<(Usage, Duration)>,
    due: Option<Timestamp>,
    /// Why the pod has to go.
    exceeded: Option<Ending>,
}

impl Storage {
    pub(super) fn exceeded(&self) -> Option<Ending> {
        self.exceeded.clone()
    }

    /// What was found, once it was; never if nobody looks.
    pub(super) async fn found(&mut self) -> (Usage, Duration) {
        match self.looking.join_next().await {
            Some(Ok(found)) => found,
            // One that was looking when the node ends is not missed.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

impl Actor {
    /// Looks at what the pod has written, if that is limited and it is time. Returns when to do so again.
    pub(super) fn look_at_storage(&mut self, now: Timestamp) -> Option<Timestamp> {
        let spec = self.pod.spec.as_ref().filter(|spec| storage::is_limited(spec))?;
        if !self.storage.looking.is_empty() {
            return None;
        }
        let due = *self.storage.due.get_or_insert(later(now, PERIOD)?);
        if due > now {
            return Some(due);
        }
        let mut places = Places::default();
        for container in &spec.containers {
            let name = &container.name;
            let of_container = [self.directories.containers().join(name), self.directories.logs().join(name)];
            places.containers.push((name.clone(), of_container));
        }
        for volume in spec.volumes.iter().flatten() {
            let Some(place) = self.volumes.place(&volume.name) else { continue };
            let in_memory =
                volume.empty_dir.as_ref().is_some_and(|it| it.medium.as_deref() == Some("Memory"));
            if volume.empty_dir.is_some() {
                places.empty_dirs.push((volume.name.clone(), place.clone(), !in_memory));
            }
        }
        self.storage.looking.spawn_blocking(move || {
            let began = Instant::now();
            (places.usage(), began.elapsed())
        });
        None
    }

    /// Takes in how much it was, and how long it took to find out.
    pub(super) fn see_storage(&mut self, usage: &Usage, took: Duration) {
        debug!(pod = %self.key, ?usage, ?took, "looked at what it has written");
        let rest = SignedDuration::try_from(took.saturating_mul(PART)).unwrap_or(PERIOD);
        self.storage.due = later(self.now(), rest.max(PERIOD));
        self.storage.exceeded = storage::exceeded(&self.pod, usage);
    }
}

/// Where a pod writes.
#[derive(Default)]
struct Places {
    /// Each with whether it is on a disk.
    empty_dirs: Vec<(String, PathBuf, bool)>,
    containers: Vec<(String, [PathBuf; 2])>,
}

impl Places {
    /// Blocks.
    fn usage(self) -> Usage {
        let mut usage = Usage::default();
        for (name, place, on_disk) in self.empty_dirs {
            let bytes = size(&place);
            usage.pod += if on_disk { bytes } else { 0 };
            usage.empty_dirs.insert(name, bytes);
        }
        for (name, places) in self.containers {
            let bytes = places.iter().map(|place| size(place)).sum();
            usage.pod += bytes;
            usage.containers.insert(name, bytes);
        }
        usage
    }
}

/// How much of a disk is taken by what is at this path and below. What goes meanwhile, or may not be seen, takes nothing.
fn size(path: &Path) -> u64 {
    let (mut bytes, mut linked) = (0, BTreeSet::new());
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        // A file of several names is there once.
        if metadata.nlink() == 1 || metadata.is_dir() || linked.insert((metadata.dev(), metadata.ino())) {
            bytes += metadata.blocks() * BLOCK;
        }
        if metadata.is_dir() {
            match fs::read_dir(&path) {
                Ok(entries) => left.extend(entries.flatten().map(|entry| entry.path())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => debug!(path = %path.display(), %error, "failed to look into a directory"),
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tree_takes_is_counted_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let empty = size(directory.path());
        fs::create_dir(path("deep")).expect("a directory");
        fs::write(path("deep/file"), vec![1; 100_000]).expect("a file");
        let one = size(directory.path());
        assert!((100_000..200_000).contains(&(one - empty)), "{empty} and then {one}");
        fs::hard_link(path("deep/file"), path("again")).expect("a link");
        std::os::unix::fs::symlink("/", path("away")).expect("a link");
        assert!(size(directory.path()) - one < 50_000, "what is elsewhere, or was there, does not count");
        assert_eq!(size(&path("none")), 0);
    }
}
