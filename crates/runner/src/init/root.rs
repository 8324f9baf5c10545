//! A container's view of the files: the host's, or an image's, with its own changes over them and its volumes in them.
//!
//! All that is shown of the host is taken before the root changes, and the host's files are gone when the first place is made
//! where something appears: links that other containers have left in volumes lead into the container's own files at most.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::symlink},
    },
    path::{Component, Path, PathBuf},
};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::{
    Doing as _, Failure, Isolation, Mount, Order, Processes, Root,
    confined::Confined,
    tree::{Tree, kept, look},
};

/// How what belongs to the kernel is mounted.
const CAREFUL: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// What of the kernel's own is the host's, and cannot be changed by containers, and what tells too much of it: the same as with
/// other runtimes.
const UNCHANGEABLE: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Devices that every container has.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Enters the root of an order, for good.
pub(super) fn enter(order: &Order) -> Result<(), Failure> {
    let Some(root) = &order.root else { return Ok(()) };
    // What is mounted here is nobody else's business.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .doing(|| "failed to keep mounts private".to_owned())?;
    let host = Host::take(order, root)?;
    // Devices are where the node has put them, and are none wherever else somebody makes one.
    let limits = if order.user.privileged { MountFlags::empty() } else { MountFlags::NODEV };
    put_together(root, limits)?;
    change_to(root)?;
    let files = Confined::root().doing(|| "failed to open the root".to_owned())?;
    show(&files, "/proc", &host.processes, None)?;
    if is_host(root) {
        for (place, disk) in &host.disks {
            // A place that cannot be made is not missed.
            if let Ok(to) = place_for(&files, place, disk) {
                attach(disk, to, place, Some(MountFlags::RDONLY | limits))?;
            }
        }
        directory(&files, "/tmp")?;
        private_directory(Path::new("/tmp"), 0o1777)?;
    }
    let sys = (!order.user.privileged).then_some(MountFlags::RDONLY);
    show(&files, "/sys", &host.sys, sys)?;
    devices(&files, &host.devices)?;
    own_cgroups(&host.cgroups)?;
    for hidden in root.hidden.iter().filter(|_| is_host(root)) {
        hide(hidden)?;
    }
    for (mount, tree) in order.mounts.iter().zip(&host.mounts) {
        add(&files, mount, tree, limits)?;
    }
    if root.read_only {
        read_only(Path::new("/"))?;
    }
    Ok(())
}

/// Keeps from a container what of the kernel's own is its host's. What it sets of that is set.
pub(super) fn keep_kernel(order: &Order) -> Result<(), Failure> {
    // Who is nobody on the host may see all that nobody may.
    let is_unmasked = order.user.unmasked && order.isolation == Isolation::User;
    if order.root.is_none() || order.user.privileged || is_unmasked {
        return Ok(());
    }
    for path in UNCHANGEABLE.map(Path::new).into_iter().filter(|path| path.exists()) {
        mount_bind_recursive(path, path).doing(|| format!("failed to mount {}", path.display()))?;
        read_only(path)?;
    }
    for path in MASKED.map(Path::new).into_iter().filter(|path| path.exists()) {
        hide(path)?;
        if path.is_dir() {
            read_only(path)?;
        }
    }
    Ok(())
}

/// Goes to a directory of the container, which is made if it is not there.
pub(super) fn go_to(directory: &Path) -> io::Result<()> {
    let there = Confined::root()?.make_directories(&absolute(directory), 0o755)?;
    Ok(rustix::process::fchdir(there)?)
}

/// What of the host is shown in the container, and is nowhere yet.
struct Host {
    processes: Tree,
    disks: Vec<(PathBuf, Tree)>,
    sys: Tree,
    devices: Devices,
    /// Each with the name of its controller, if it has only one.
    cgroups: Vec<(Option<&'static str>, Tree)>,
    mounts: Vec<Tree>,
}

enum Devices {
    All(Tree),
    Usual(Vec<(&'static str, Tree)>),
}

impl Host {
    fn take(order: &Order, root: &Root) -> Result<Host, Failure> {
        let failed = |path: &Path| format!("failed to find {}", path.display());
        let whole = |path: &str| Tree::whole_at(Path::new(path)).doing(|| failed(Path::new(path)));
        let processes = match order.processes {
            // In a user namespace nobody may look at all of the host's but as the host shows them.
            Processes::Host => Tree::processes().or_else(|_| Tree::whole_at(Path::new("/proc"))),
            Processes::Own | Processes::Of(_) => Tree::processes(),
        };
        let is_privileged = order.user.privileged;
        let devices = if is_privileged {
            Devices::All(whole("/dev")?)
        } else {
            let device = |name: &'static str| Ok((name, whole(&format!("/dev/{name}"))?));
            Devices::Usual(DEVICES.into_iter().map(device).collect::<Result<_, _>>()?)
        };
        let volume = |mount: &Mount| mounted(mount).doing(|| failed(&mount.source));
        let has_own_cgroups = order.isolation == Isolation::Full && !is_privileged;
        Ok(Host {
            processes: processes.doing(|| "failed to show processes".to_owned())?,
            disks: if is_host(root) { disks(root)? } else { Vec::new() },
            // Cgroups, which are mounted in there, are the node's business; only a user namespace cannot leave them out.
            sys: if is_privileged {
                whole("/sys")?
            } else {
                Tree::alone_at(Path::new("/sys")).doing(|| failed(Path::new("/sys")))?
            },
            devices,
            cgroups: if has_own_cgroups { cgroups(&order.cgroups)? } else { Vec::new() },
            mounts: order.mounts.iter().map(volume).collect::<Result<_, _>>()?,
        })
    }
}

/// What a volume shows.
fn mounted(mount: &Mount) -> io::Result<Tree> {
    match &mount.inside {
        None => Tree::whole(look(&mount.source)?),
        Some(inside) => Tree::whole(Confined::volume(&mount.source)?.open(inside)?),
    }
}

/// Directories of the host that are on other disks, which are not below its root.
fn disks(root: &Root) -> Result<Vec<(PathBuf, Tree)>, Failure> {
    let table = "/proc/self/mountinfo";
    let table = fs::read_to_string(table).doing(|| format!("failed to read {table}"))?;
    let mut disks = Vec::new();
    for line in table.lines() {
        let place = Path::new(line.split(' ').nth(4).unwrap_or_default());
        let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1)).unwrap_or_default();
        let ours = root.hidden.iter().any(|hidden| place.starts_with(hidden));
        let is_plain = !line.split(' ').nth(4).is_some_and(|place| place.contains('\\'));
        // A place that is hidden by another mount is not there, and not missed.
        if place != Path::new("/") && !ours && is_plain && source.starts_with("/dev/") && place.exists() {
            let disk = Tree::alone_at(place).doing(|| format!("failed to find {}", place.display()))?;
            disks.push((place.to_owned(), disk));
        }
    }
    Ok(disks)
}

/// The files by which a controller of version 1 is known, and what its directory is called.
const CONTROLLERS: [(&str, &str); 3] =
    [("memory.limit_in_bytes", "memory"), ("cpu.shares", "cpu"), ("pids.max", "pids")];

/// A container's own cgroups: one of version 2, or one per controller.
fn cgroups(cgroups: &[PathBuf]) -> Result<Vec<(Option<&'static str>, Tree)>, Failure> {
    let tree =
        |path: &Path| Tree::alone_at(path).doing(|| format!("failed to find the cgroup {}", path.display()));
    let Some(first) = cgroups.first() else { return Ok(Vec::new()) };
    if first.join("cgroup.controllers").exists() {
        return Ok(vec![(None, tree(first)?)]);
    }
    let mut all = Vec::new();
    for path in cgroups {
        for (_, name) in CONTROLLERS.iter().filter(|(file, _)| path.join(file).exists()) {
            all.push((Some(*name), tree(path)?));
        }
    }
    Ok(all)
}

fn is_host(root: &Root) -> bool {
    root.lower == Path::new("/")
}

/// Makes the merged directory show the lower one with our own changes over it.
fn put_together(root: &Root, flags: MountFlags) -> Result<(), Failure> {
    match overlay(&root.lower, &root.upper, &root.work, &root.merged, flags) {
        // In a user namespace nobody may look behind mounts that others have made, so the root is taken apart.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && is_host(root) => {
            piece_together(root, flags)
        }
        done => {
            done.doing(|| format!("failed to lay {} over {}", root.upper.display(), root.lower.display()))
        }
    }
}

fn overlay(lower: &Path, upper: &Path, work: &Path, merged: &Path, flags: MountFlags) -> io::Result<()> {
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
    match mount("overlay", merged, "overlay", flags, plain.as_c_str()) {
        // Without privileges on the disk, the kernel marks what it needs in attributes that users may set.
        Err(rustix::io::Errno::PERM) => {
            options.extend_from_slice(b",userxattr");
            let own = CString::new(options)?;
            Ok(mount("overlay", merged, "overlay", flags, own.as_c_str())?)
        }
        done => Ok(done?),
    }
}

/// Puts a root together from the entries of the host's: each directory with changes over it where the kernel lets us,
/// and as it is where not.
fn piece_together(root: &Root, flags: MountFlags) -> Result<(), Failure> {
    let merged = &root.merged;
    mount("tmpfs", merged, "tmpfs", flags, c"mode=0755")
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
                overlay(&from, &upper, &work, &to, flags)
                    .or_else(|_| mount_bind_recursive(&from, &to).map_err(io::Error::from))
            })
        } else {
            fs::File::create(&to).and_then(|_| mount_bind(&from, &to).map_err(io::Error::from))
        };
        done.doing(|| format!("failed to show {}", from.display()))?;
    }
    Ok(())
}

/// Makes the merged directory the root, and leaves the host's files.
fn change_to(root: &Root) -> Result<(), Failure> {
    let failed = || "failed to change the root".to_owned();
    std::env::set_current_dir(&root.merged).doing(failed)?;
    // The old root is then over the new one, and is gone when that is left.
    rustix::process::pivot_root(".", ".").doing(failed)?;
    unmount(".", UnmountFlags::DETACH).doing(|| "failed to leave the host's files".to_owned())?;
    std::env::set_current_dir("/").doing(|| "failed to go to the root".to_owned())
}

/// Makes a directory of the container.
fn directory(files: &Confined, path: &str) -> Result<(), Failure> {
    files.make_directories(Path::new(path), 0o755).map(drop).doing(|| format!("failed to make {path}"))
}

/// Shows a directory of the host in the container.
fn show(files: &Confined, path: &str, tree: &Tree, restrict: Option<MountFlags>) -> Result<(), Failure> {
    let to = place_for(files, Path::new(path), tree).doing(|| format!("failed to make {path}"))?;
    attach(tree, to, Path::new(path), restrict)
}

/// Where something of this kind can be mounted.
fn place_for(files: &Confined, path: &Path, tree: &Tree) -> io::Result<OwnedFd> {
    if tree.is_directory()? { files.make_directories(path, 0o755) } else { files.make_file(path) }
}

fn attach(tree: &Tree, to: OwnedFd, path: &Path, restrict: Option<MountFlags>) -> Result<(), Failure> {
    let restricted = |()| restrict.map_or(Ok(()), |flags| tree.restrict(flags));
    tree.attach(to).and_then(restricted).doing(|| format!("failed to mount {}", path.display()))
}

/// Shows a container its own limits where programs look for them.
fn own_cgroups(cgroups: &[(Option<&'static str>, Tree)]) -> Result<(), Failure> {
    let top = Path::new("/sys/fs/cgroup");
    let failed = || format!("failed to mount {}", top.display());
    if !top.is_dir() {
        return Ok(());
    }
    let is_apart = |(name, _): &(Option<_>, _)| name.is_some();
    if cgroups.iter().any(is_apart) {
        mount("tmpfs", top, "tmpfs", CAREFUL, c"mode=0755,size=64k").doing(failed)?;
    }
    for (name, tree) in cgroups {
        let to = name.map_or_else(|| top.to_owned(), |name| top.join(name));
        fs::create_dir_all(&to).doing(|| format!("failed to make {}", to.display()))?;
        attach(tree, look(&to).doing(failed)?, &to, Some(MountFlags::RDONLY))?;
    }
    if cgroups.iter().any(is_apart) { read_only(top) } else { Ok(()) }
}

/// The devices of the host, or the usual ones.
fn devices(files: &Confined, devices: &Devices) -> Result<(), Failure> {
    let usual = match devices {
        Devices::All(tree) => return show(files, "/dev", tree, None),
        Devices::Usual(usual) => usual,
    };
    directory(files, "/dev")?;
    mount("tmpfs", "/dev", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=65536k")
        .doing(|| "failed to mount /dev".to_owned())?;
    for (name, device) in usual {
        show(files, &format!("/dev/{name}"), device, None)?;
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

/// Puts something of the host out of sight.
fn hide(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return private_directory(path, 0o700);
    }
    // What is a file later must not appear then. Where not even its directory is there, it will not.
    if !path.exists() && (path.starts_with("/tmp") || fs::File::create_new(path).is_err()) {
        return Ok(());
    }
    mount_bind("/dev/null", path).doing(|| format!("failed to hide {}", path.display()))
}

/// Shows a volume.
fn add(files: &Confined, volume: &Mount, tree: &Tree, mut flags: MountFlags) -> Result<(), Failure> {
    let target = absolute(&volume.target);
    let failed = || format!("failed to make {}", volume.target.display());
    let to = place_for(files, &target, tree).doing(failed)?;
    flags.set(MountFlags::RDONLY, volume.read_only);
    attach(tree, to, &volume.target, Some(flags).filter(|flags| !flags.is_empty()))
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

/// Makes a mount unchangeable.
fn read_only(path: &Path) -> Result<(), Failure> {
    let failed = || format!("failed to make {} unchangeable", path.display());
    let kept = look(path).and_then(|mount| kept(mount.as_fd())).doing(failed)?;
    mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | kept, "").doing(failed)
}
