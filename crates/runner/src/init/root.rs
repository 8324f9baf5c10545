//! A container's view of the files: the host's, or an image's, with its own changes over them and its volumes in them.

use std::{
    ffi::CString,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _, fs::symlink},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::StatVfsMountFlags,
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
        mount_change, mount_remount, unmount,
    },
};

use super::{Doing as _, Failure, Isolation, Mount, Order, Processes, Root, Source};

/// Where the host's files are while the container's are being put together.
const HOST: &str = "/.ferry-host";

/// How what belongs to the kernel is mounted.
const CAREFUL: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Devices that every container has.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Enters the root of an order, for good.
pub(super) fn enter(order: &Order) -> Result<(), Failure> {
    let Some(root) = &order.root else { return Ok(()) };
    // What is mounted here is nobody else's business.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .doing(|| "failed to keep mounts private".to_owned())?;
    put_together(root)?;
    change_to(root)?;
    if is_host(root) {
        bind_disks(root)?;
        private_directory(Path::new("/tmp"), 0o1777)?;
    }
    processes(order.processes)?;
    system_directories(order.user.privileged)?;
    if order.isolation == Isolation::Full && !order.user.privileged {
        own_cgroups(&order.cgroups)?;
    }
    for hidden in root.hidden.iter().filter(|_| is_host(root)) {
        if hidden.is_dir() {
            private_directory(hidden, 0o700)?;
        }
    }
    for mount in &order.mounts {
        add(mount)?;
    }
    unmount(HOST, UnmountFlags::DETACH).doing(|| "failed to leave the host's files".to_owned())?;
    fs::remove_dir(HOST).doing(|| format!("failed to remove {HOST}"))?;
    if root.read_only {
        read_only(Path::new("/"))?;
    }
    Ok(())
}

fn is_host(root: &Root) -> bool {
    root.lower == Path::new("/")
}

/// Makes the merged directory show the lower one with our own changes over it.
fn put_together(root: &Root) -> Result<(), Failure> {
    match overlay(&root.lower, &root.upper, &root.work, &root.merged) {
        // In a user namespace nobody may look behind mounts that others have made, so the root is taken apart.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && is_host(root) => piece_together(root),
        done => {
            done.doing(|| format!("failed to lay {} over {}", root.upper.display(), root.lower.display()))
        }
    }
}

fn overlay(lower: &Path, upper: &Path, work: &Path, merged: &Path) -> io::Result<()> {
    let mut options = Vec::new();
    for (name, path) in [("lowerdir=", lower), (",upperdir=", upper), (",workdir=", work)] {
        options.extend_from_slice(name.as_bytes());
        // These mean something in there.
        for byte in path.as_os_str().as_bytes() {
            if matches!(byte, b':' | b',' | b'\\') {
                options.push(b'\\');
            }
            options.push(*byte);
        }
    }
    let plain = CString::new(options.clone())?;
    match mount("overlay", merged, "overlay", MountFlags::empty(), plain.as_c_str()) {
        // Without privileges on the disk, the kernel marks what it needs in attributes that users may set.
        Err(rustix::io::Errno::PERM) => {
            options.extend_from_slice(b",userxattr");
            let own = CString::new(options)?;
            Ok(mount("overlay", merged, "overlay", MountFlags::empty(), own.as_c_str())?)
        }
        done => Ok(done?),
    }
}

/// Puts a root together from the entries of the host's: each directory with changes over it where the kernel lets us,
/// and as it is where not.
fn piece_together(root: &Root) -> Result<(), Failure> {
    let merged = &root.merged;
    mount("tmpfs", merged, "tmpfs", MountFlags::empty(), c"mode=0755")
        .doing(|| "failed to make a root in memory".to_owned())?;
    let entries = fs::read_dir("/").and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.doing(|| "failed to read the host's root".to_owned())? {
        let (name, from) = (entry.file_name(), entry.path());
        let to = merged.join(&name);
        let kind = entry.file_type().doing(|| format!("failed to look at {}", from.display()))?;
        let done = if kind.is_symlink() {
            fs::read_link(&from).and_then(|target| symlink(target, &to))
        } else if kind.is_dir() {
            let (upper, work) = (root.upper.join(&name), root.work.join(&name));
            let made = [&to, &upper, &work].into_iter().try_for_each(fs::create_dir_all);
            made.and_then(|()| {
                overlay(&from, &upper, &work, &to)
                    .or_else(|_| mount_bind_recursive(&from, &to).map_err(io::Error::from))
            })
        } else {
            fs::File::create(&to).and_then(|_| mount_bind(&from, &to).map_err(io::Error::from))
        };
        done.doing(|| format!("failed to show {}", from.display()))?;
    }
    Ok(())
}

/// Makes the merged directory the root, with the host's files below [`HOST`].
fn change_to(root: &Root) -> Result<(), Failure> {
    let host = root.merged.join(&HOST[1..]);
    fs::create_dir_all(&host).doing(|| format!("failed to make {}", host.display()))?;
    rustix::process::pivot_root(&root.merged, &host).doing(|| "failed to change the root".to_owned())?;
    std::env::set_current_dir("/").doing(|| "failed to go to the root".to_owned())
}

/// Directories of the host that are on other disks are not below its root, and are shown as they are.
fn bind_disks(root: &Root) -> Result<(), Failure> {
    let table = format!("{HOST}/proc/self/mountinfo");
    let table = fs::read_to_string(&table).doing(|| format!("failed to read {table}"))?;
    for line in table.lines() {
        let mut fields = line.split(' ');
        let Some(place) = fields.nth(4).and_then(|place| place.strip_prefix(HOST)) else { continue };
        let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1)).unwrap_or_default();
        let ours = root.hidden.iter().any(|hidden| Path::new(place).starts_with(hidden));
        if place.is_empty() || ours || !source.starts_with("/dev/") || place.contains('\\') {
            continue;
        }
        let (from, to) = (PathBuf::from(format!("{HOST}{place}")), Path::new(place));
        // A place that is hidden by another mount is not there, and not missed.
        if from.exists() && make_target(&from, to).is_ok() {
            mount_bind(&from, to).doing(|| format!("failed to show {place}"))?;
            read_only(to)?;
        }
    }
    Ok(())
}

/// The files by which a controller of version 1 is known, and what its directory is called.
const CONTROLLERS: [(&str, &str); 3] =
    [("memory.limit_in_bytes", "memory"), ("cpu.shares", "cpu"), ("pids.max", "pids")];

/// Shows a container its own limits where programs look for them: in a tree of version 2, or one per controller.
fn own_cgroups(cgroups: &[PathBuf]) -> Result<(), Failure> {
    let top = Path::new("/sys/fs/cgroup");
    let Some(first) = cgroups.first().filter(|_| top.is_dir()) else { return Ok(()) };
    let here = |path: &Path| PathBuf::from(format!("{HOST}{}", path.display()));
    let show = |from: &Path, to: &Path| {
        mount_bind(from, to).doing(|| format!("failed to show the cgroup {}", from.display()))?;
        read_only(to)
    };
    if here(first).join("cgroup.controllers").exists() {
        return show(&here(first), top);
    }
    mount("tmpfs", top, "tmpfs", CAREFUL, c"mode=0755,size=64k")
        .doing(|| format!("failed to mount {}", top.display()))?;
    for from in cgroups.iter().map(|path| here(path)) {
        for (_, name) in CONTROLLERS.iter().filter(|(file, _)| from.join(file).exists()) {
            let to = top.join(name);
            fs::create_dir_all(&to).doing(|| format!("failed to make {}", to.display()))?;
            show(&from, &to)?;
        }
    }
    read_only(top)
}

/// What shows the processes of a container.
fn processes(whose: Processes) -> Result<(), Failure> {
    fs::create_dir_all("/proc").doing(|| "failed to make /proc".to_owned())?;
    let mounted = mount("proc", "/proc", "proc", CAREFUL, None);
    let mounted = match whose {
        // In a user namespace nobody may look at all of the host's but as the host shows them.
        Processes::Host => mounted.or_else(|_| mount_bind_recursive(format!("{HOST}/proc"), "/proc")),
        Processes::Own | Processes::Of(_) => mounted,
    };
    mounted.doing(|| "failed to mount /proc".to_owned())
}

/// What a system has besides its files and processes: devices, and what the kernel tells.
fn system_directories(privileged: bool) -> Result<(), Failure> {
    for directory in ["/sys", "/dev"] {
        fs::create_dir_all(directory).doing(|| format!("failed to make {directory}"))?;
    }
    // Cgroups, which are mounted in there, are the node's business; only a user namespace cannot leave them out.
    let sys = format!("{HOST}/sys");
    let shown = if privileged { mount_bind_recursive(&sys, "/sys") } else { mount_bind(&sys, "/sys") };
    shown.or_else(|_| mount_bind_recursive(&sys, "/sys")).doing(|| "failed to show /sys".to_owned())?;
    if !privileged {
        read_only(Path::new("/sys"))?;
    }
    if privileged {
        return mount_bind_recursive(format!("{HOST}/dev"), "/dev")
            .doing(|| "failed to show /dev".to_owned());
    }
    mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID, c"mode=0755,size=65536k")
        .doing(|| "failed to mount /dev".to_owned())?;
    for device in DEVICES {
        let (from, to) = (format!("{HOST}/dev/{device}"), format!("/dev/{device}"));
        fs::File::create(&to).doing(|| format!("failed to make {to}"))?;
        mount_bind(from, &to).doing(|| format!("failed to show {to}"))?;
    }
    for directory in ["/dev/pts", "/dev/shm"] {
        fs::create_dir(directory).doing(|| format!("failed to make {directory}"))?;
    }
    mount(
        "devpts",
        "/dev/pts",
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        c"newinstance,ptmxmode=0666,mode=0620",
    )
    .doing(|| "failed to mount /dev/pts".to_owned())?;
    mount("shm", "/dev/shm", "tmpfs", CAREFUL, c"mode=1777,size=65536k")
        .doing(|| "failed to mount /dev/shm".to_owned())?;
    let links = [
        ("pts/ptmx", "/dev/ptmx"),
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ];
    links.into_iter().try_for_each(|(to, link)| symlink(to, link)).doing(|| "failed to make links".to_owned())
}

/// An empty directory, in memory, over what is there.
fn private_directory(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::create_dir_all(path).doing(|| format!("failed to make {}", path.display()))?;
    let options = CString::new(format!("mode={mode:o}")).expect("digits have no zero byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str())
        .doing(|| format!("failed to mount {}", path.display()))
}

/// Shows a volume.
fn add(volume: &Mount) -> Result<(), Failure> {
    let target = absolute(&volume.target);
    let failed = || format!("failed to mount {}", volume.target.display());
    match &volume.source {
        Source::Host(path) => {
            let path = Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path));
            make_target(&path, &target).doing(|| format!("failed to make {}", target.display()))?;
            mount_bind_recursive(&path, &target).doing(failed)?;
        }
        Source::Memory(size) => {
            fs::create_dir_all(&target).doing(|| format!("failed to make {}", target.display()))?;
            let size = size.map_or_else(String::new, |bytes| format!(",size={bytes}"));
            let options = CString::new(format!("mode=0777{size}")).expect("digits have no zero byte");
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            mount("tmpfs", &target, "tmpfs", flags, options.as_c_str()).doing(failed)?;
        }
    }
    if volume.read_only { read_only(&target) } else { Ok(()) }
}

/// Where something of this kind can be mounted.
fn make_target(source: &Path, target: &Path) -> io::Result<()> {
    if source.metadata()?.is_dir() {
        return fs::create_dir_all(target);
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    if !target.exists() {
        fs::File::create(target)?.set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// From the root, and never above it.
fn absolute(path: &Path) -> PathBuf {
    let mut absolute = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => absolute.push(name),
            Component::ParentDir => drop(absolute.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    absolute
}

/// Makes a mount unchangeable. What it forbids already has to be said again, or the kernel takes it for a wish to allow.
fn read_only(path: &Path) -> Result<(), Failure> {
    let failed = || format!("failed to make {} unchangeable", path.display());
    let now = rustix::fs::statvfs(path).doing(failed)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (has, keep) in [
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
    mount_remount(path, flags, "").doing(failed)
}
