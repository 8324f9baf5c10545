//! Where clusters that keep nothing have their files. They go when they stop; and if they were killed, with the next ones
//! that start: a directory whose lock nobody holds is nobody's.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::nodes_in;
use crate::output;

/// What the directories of all of them are called first.
const PREFIX: &str = "ferry-scratch-";
/// Locked for as long as its process lives.
const LOCK: &str = "lock";

/// A directory of this process, removed with it.
pub(crate) struct Scratch {
    directory: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Makes one among temporary files, and removes those of processes that are no more.
    pub(super) fn make() -> io::Result<Scratch> {
        let all = std::env::temp_dir();
        sweep(&all);
        Scratch::make_in(&all)
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

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes everything. Blocks.
    pub(super) fn remove(self) -> io::Result<()> {
        remove(&self.directory)
    }
}

/// What did not come to its end leaves nothing either.
impl Drop for Scratch {
    fn drop(&mut self) {
        if self.directory.exists() {
            told(&self.directory, remove(&self.directory));
        }
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
        told(&directory, remove(&directory));
        drop(lock); // not before: nobody else needs to try
    }
}

/// Says what is left behind, where that is all that can be done about it.
fn told(directory: &Path, removed: io::Result<()>) {
    if let Err(error) = removed {
        output::note(format!("note: {} is left behind: {error}", directory.display()));
    }
}

/// Removes a directory, and before that what the pods of its nodes have elsewhere.
fn remove(directory: &Path) -> io::Result<()> {
    match fs::read_dir(nodes_in(directory)) {
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
        let living = Scratch::make_in(all.path()).expect("one");
        // As when its process is killed.
        let dead = all.path().join(format!("{PREFIX}dead"));
        fs::create_dir(&dead).and_then(|()| File::create_new(dead.join(LOCK))).expect("another");
        let uid = format!("scratch-test-{}", std::process::id());
        let in_memory = Path::new("/dev/shm").join(format!("ferry-{uid}"));
        fs::create_dir_all(&in_memory).expect("a volume in memory");
        let node = |of: &Path| nodes_in(of).join("n");
        fs::create_dir_all(node(&dead).join("pods").join(&uid)).expect("a pod");
        fs::create_dir_all(node(living.directory())).expect("a node");
        let without_lock = all.path().join(format!("{PREFIX}of-another"));
        fs::create_dir(&without_lock).expect("a directory");
        sweep(all.path());
        assert!(!dead.exists() && !in_memory.exists());
        assert!(node(living.directory()).exists(), "it is somebody's");
        assert!(without_lock.exists(), "without a lock it is none of these");
        living.remove().expect("removed");
        drop(Scratch::make_in(all.path()).expect("one that does not come to its end"));
        assert_eq!(fs::read_dir(all.path()).expect("entries").count(), 1);
    }
}
