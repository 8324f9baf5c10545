//! Namespaces: how they are made, and how those are entered that others have made.

use std::{fs, os::fd::AsFd as _, path::Path};

use nix::sched::CloneFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Doing as _, Failure};

/// A kind of namespace, and what the kernel calls it.
pub(super) type Kind = (&'static str, LinkNameSpaceType);
const USERS: Kind = ("user", LinkNameSpaceType::User);
pub(super) const PROCESSES: Kind = ("pid", LinkNameSpaceType::ProcessID);
pub(super) const OTHERS: [Kind; 4] = [
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("net", LinkNameSpaceType::Network),
    ("mnt", LinkNameSpaceType::Mount),
];

/// Makes namespaces. In one of users we are root, and there is nobody else.
pub(super) fn make(flags: CloneFlags) -> Result<(), Failure> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    nix::sched::unshare(flags).doing(|| "failed to make namespaces".to_owned())?;
    if flags.contains(CloneFlags::CLONE_NEWUSER) {
        let write =
            |file: &str, text: String| fs::write(file, text).doing(|| format!("failed to write {file}"));
        write("/proc/self/setgroups", "deny".to_owned())?;
        write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    Ok(())
}

/// Enters these namespaces of a process, after its user namespace.
pub(super) fn join(process: i32, kinds: &[Kind]) -> Result<(), Failure> {
    let mut files = Vec::new();
    for (name, kind) in [&[USERS][..], kinds].concat() {
        let path = format!("/proc/{process}/ns/{name}");
        let failed = || format!("failed to look at {path}");
        let theirs = fs::read_link(&path).doing(failed)?;
        // One that we are in need not be entered, and often cannot be.
        let ours = fs::read_link(format!("/proc/self/ns/{name}")).doing(failed)?;
        if theirs != ours {
            files.push((path, kind));
        }
    }
    enter(&files)
}

/// Enters the namespaces that these files are, one after the other: all are opened before the first one changes what can
/// be seen.
pub(super) fn enter(files: &[(impl AsRef<Path>, LinkNameSpaceType)]) -> Result<(), Failure> {
    let mut opened = Vec::new();
    for (path, kind) in files {
        let path = path.as_ref();
        let space = fs::File::open(path).doing(|| format!("failed to open {}", path.display()))?;
        opened.push((space, path.display(), *kind));
    }
    for (space, path, kind) in opened {
        move_into_link_name_space(space.as_fd(), Some(kind))
            .doing(|| format!("failed to enter the namespace {path}"))?;
    }
    Ok(())
}
