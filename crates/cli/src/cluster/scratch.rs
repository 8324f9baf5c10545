//! Where a cluster that keeps nothing has its files. They go when it stops; and if it was killed, with the next one that
//! starts: a directory whose lock nobody holds is nobody's.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::output;

/// What the directories of all of them are called first.
const PREFIX: &str = "ferry-cluster-";
/// Locked for as long as its process lives.
const LOCK: &str = "lock";
/// The directories of its nodes are in this one.
const NODES: &str = "nodes";

/// A directory of this process.
pub(super) struct Scratch {
    directory: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes one among temporary files, and removes those of processes that are no more.
    pub(super) fn make() -> anyhow::Result<Scratch> {
        let all = std::env::temp_dir();
        sweep(&all);
        Scratch::make_in(&all).context("failed to make a temporary directory")
    }

    fn make_in(all: &Path) -> io::Result<Scratch> {
        // Locked before others can take it for one of these.
        let new = tempfile::Builder::new().prefix(".ferry-").tempdir_in(all)?;
        let lock = File::create_new(new.path().join(LOCK))?;
        lock.try_lock()?;
        let name = new.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let directory = all.join(format!("{PREFIX}{}", name.trim_start_matches(".ferry-")));
        fs::rename(new.keep(), &directory)?;
        Ok(Scratch { directory, _lock: lock })
    }

    /// Where a node has its files.
    pub(super) fn node(&self, name: &str) -> PathBuf {
        self.directory.join(NODES).join(name)
    }

    /// Where it says how it is reached.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// Removes everything. Blocks.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        let directory = &self.directory;
        remove(directory).with_context(|| format!("failed to remove {}", directory.display()))
    }
}

/// Removes the directories of processes that were killed, with whatever of their pods is left elsewhere.
fn sweep(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else { return };
    let ours = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for directory in ours.map(|entry| entry.path()) {
        let lock = File::open(directory.join(LOCK));
        // One that we may not read is another user's.
        let Some(lock) = lock.ok().filter(|lock| lock.try_lock().is_ok()) else { continue };
        if let Err(error) = remove(&directory) {
            let directory = directory.display();
            output::note(format!("failed to remove {directory}, which a cluster left behind: {error}"));
        }
        drop(lock); // not before: nobody else needs to try
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::read_dir(directory.join(NODES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        nodes => nodes?.try_for_each(|node| runner::remove(&node?.path()))?,
    }
    fs::remove_dir_all(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_goes_with_the_next_start() {
        let all = tempfile::tempdir().expect("a directory");
        let (living, dead) = (Scratch::make_in(all.path()), Scratch::make_in(all.path()));
        let (living, dead) = (living.expect("one"), dead.expect("another"));
        let uid = format!("scratch-test-{}", std::process::id());
        let in_memory = Path::new("/dev/shm").join(format!("ferry-{uid}"));
        fs::create_dir_all(&in_memory).expect("a volume in memory");
        fs::create_dir_all(dead.node("n").join("pods").join(&uid)).expect("a pod");
        fs::create_dir_all(living.node("n")).expect("a node");
        fs::create_dir(all.path().join("ferry-cluster-of-another")).expect("a directory");
        let was = dead.directory.clone();
        drop(dead); // as when its process is killed
        sweep(all.path());
        assert!(!was.exists() && !in_memory.exists());
        assert!(living.node("n").exists(), "it is somebody's");
        assert!(all.path().join("ferry-cluster-of-another").exists(), "without a lock it is none of these");
        living.remove().expect("removed");
        assert_eq!(fs::read_dir(all.path()).expect("entries").count(), 1);
    }
}
