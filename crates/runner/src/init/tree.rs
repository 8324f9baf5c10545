//! What is mounted in a container: a part of the host that is taken before the container has its own files, and is then
//! nowhere until it is put into them.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, StatVfsMountFlags, fstat, fstatvfs, openat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
        fsconfig_create, fsmount, fsopen, mount_remount, move_mount, open_tree,
    },
};

/// A mount that is nowhere yet, or is where it was attached.
#[derive(Debug)]
pub(super) struct Tree(OwnedFd);

impl Tree {
    /// What is open, with all that is mounted below.
    pub(super) fn whole(of: impl AsFd) -> io::Result<Tree> {
        Ok(take(of.as_fd(), true)?)
    }

    /// What is at this path of the host, with all that is mounted below.
    pub(super) fn whole_at(path: &Path) -> io::Result<Tree> {
        Tree::whole(look(path)?)
    }

    /// What is at this path of the host, without what is mounted below; with it where the kernel does not let us leave that out.
    pub(super) fn alone_at(path: &Path) -> io::Result<Tree> {
        let found = look(path)?;
        match take(found.as_fd(), false) {
            // In a user namespace nobody may look behind mounts that others have made.
            Err(Errno::INVAL) => Tree::whole(found),
            done => Ok(done?),
        }
    }

    /// What shows the processes of our namespace.
    pub(super) fn processes() -> io::Result<Tree> {
        let kind = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&kind)?;
        let careful = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Tree(fsmount(kind, FsMountFlags::FSMOUNT_CLOEXEC, careful)?))
    }

    pub(super) fn is_directory(&self) -> io::Result<bool> {
        Ok(FileType::from_raw_mode(fstat(&self.0)?.st_mode).is_dir())
    }

    /// Puts it over what is open.
    pub(super) fn attach(&self, to: impl AsFd) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(&self.0, "", to, "", flags)?)
    }

    /// Restricts what can be done with it where it is attached. What it forbids already has to be said again, or the kernel
    /// takes it for a wish to allow.
    pub(super) fn restrict(&self, more: MountFlags) -> io::Result<()> {
        // By what we hold: its path may lead elsewhere by now.
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        Ok(mount_remount(&path, MountFlags::BIND | more | kept(self.0.as_fd())?, "")?)
    }
}

/// What a mount forbids, and how it keeps times.
pub(super) fn kept(of: BorrowedFd<'_>) -> io::Result<MountFlags> {
    let now = fstatvfs(of)?.f_flag;
    let mut flags = MountFlags::empty();
    for (has, keep) in [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if now.contains(has) {
            flags |= keep;
        }
    }
    Ok(flags)
}

/// Opens a place of the host.
pub(super) fn look(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn take(of: BorrowedFd<'_>, whole: bool) -> rustix::io::Result<Tree> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, whole);
    Ok(Tree(open_tree(of, "", flags)?))
}
