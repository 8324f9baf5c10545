//! Where clusters that keep nothing have their files. They go when they stop; and if they were killed, with the next ones
//! that start: a directory whose lock nobody holds is nobody's.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runner::private;

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
        // Locked before others can take it for one of these, and never for another user to enter.
        let ours = Permissions::from_mode(0o700);
        let new = tempfile::Builder::new().prefix(".ferry-").permissions(ours).tempdir_in(all)?;
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

/// Removes the directories of processes that were killed, with whatever of their pods is left elsewhere. Everybody may put
/// something among temporary files that is called like one: what another user has made is left alone.
fn sweep(all: &Path) {
    let Ok(entries) = fs::read_dir(all) else { return };
    let named = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for directory in named.map(|entry| entry.path()) {
        let lock = directory.join(LOCK);
        if !private::is_ours(&directory) || !private::is_ours(&lock) {
            continue;
        }
        let Some(lock) = File::open(lock).ok().filter(|lock| lock.try_lock().is_ok()) else { continue };
        told(&directory, expect_private(&directory).and_then(|()| remove(&directory)));
        drop(lock); // not before: nobody else needs to try
    }
}

/// That nobody else can have put anything there. Earlier versions made directories that others could enter.
fn expect_private(directory: &Path) -> io::Result<()> {
    if directory.symlink_metadata()?.permissions().mode() & 0o777 == 0o700 {
        return Ok(());
    }
    Err(io::Error::other("others may enter it; if nobody needs it, remove it"))
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

    /// As one is left when its process is killed, with a pod of its node.
    fn dead(all: &Path, name: &str, pod: &str) -> PathBuf {
        let dead = all.join(format!("{PREFIX}{name}"));
        private::make(&dead).expect("a directory");
        File::create_new(dead.join(LOCK)).expect("a lock");
        private::make(&nodes_in(&dead).join("n/pods").join(pod)).expect("a pod");
        dead
    }

    #[test]
    fn what_a_dead_process_left_goes_with_the_next_start() {
        let all = tempfile::tempdir().expect("a directory");
        let living = Scratch::make_in(all.path()).expect("one");
        let uid = format!("scratch-test-{}", std::process::id());
        let in_memory = Path::new("/dev/shm").join(format!("ferry-{uid}"));
        fs::create_dir_all(&in_memory).expect("a volume in memory");
        let node = |of: &Path| nodes_in(of).join("n");
        let dead = dead(all.path(), "dead", &uid);
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

    #[test]
    fn nobody_else_may_enter() {
        let all = tempfile::tempdir().expect("a directory");
        let one = Scratch::make_in(all.path()).expect("one");
        let mode = fs::metadata(one.directory()).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        // One that was open to others may hold what they have put there.
        let open = dead(all.path(), "open", "p");
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("permissions");
        sweep(all.path());
        assert!(open.exists());
    }

    #[test]
    fn a_directory_of_another_user_stays_and_so_does_what_it_names() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can give something away: skipped");
            return;
        }
        let all = tempfile::tempdir().expect("a directory");
        let home = all.path().join("home");
        fs::create_dir_all(home.join("objects")).expect("somebody's files");
        let link = |dead: &Path| nodes_in(dead).join("n/pods/link");
        let give = |path: &Path| std::os::unix::fs::lchown(path, Some(65534), None).expect("given away");
        // What others have made is not ours because we may read it, and neither is where its links lead.
        let theirs = dead(all.path(), "theirs", "p");
        std::os::unix::fs::symlink(&home, link(&theirs)).expect("a link");
        give(&theirs);
        let led = all.path().join(format!("{PREFIX}led"));
        std::os::unix::fs::symlink(&theirs, &led).expect("a link");
        let locked_by_another = dead(all.path(), "lock", "p");
        give(&locked_by_another.join(LOCK));
        // Not even in one that is ours a link is followed.
        let ours = dead(all.path(), "ours", "p");
        std::os::unix::fs::symlink(&home, link(&ours)).expect("a link");
        sweep(all.path());
        assert!(home.join("objects").exists());
        assert!(link(&theirs).is_symlink() && led.is_symlink() && locked_by_another.exists());
        assert!(!ours.exists());
    }
}
