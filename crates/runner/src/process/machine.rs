//! What this machine permits, and what an earlier node has left behind.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::OwnedFd,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tracing::{info, warn};

use super::{
    cgroups::{self, Cgroups},
    volumes::{self, OBJECTS},
};
use crate::{
    init::{GUARD, Isolation, Mount, NOTHING, Order, Report, Root, User},
    network::Network,
    private,
    registration::Said,
    settings::Process,
};

/// How long guards of an earlier node may take to see that it is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// What can be used here.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) isolation: Isolation,
    pub(crate) cgroups: Option<Cgroups>,
    /// The network of its pods, if they are not in that of the machine, and the number of the node in there.
    pub(crate) network: Option<(Arc<Network>, usize)>,
    /// What the node says about it.
    pub(crate) conditions: Vec<Said>,
}

impl Machine {
    /// Cleans up after an earlier node in this directory, and finds out what the kernel permits, by trying. Blocks.
    pub(crate) fn prepare(settings: &Process) -> io::Result<Machine> {
        // What pods are told in confidence is in there, and what they write.
        private::make(&settings.directory)?;
        fs::create_dir_all(settings.directory.join("pods"))?;
        clean_up(&settings.directory)?;
        let (isolation, refusals) = isolation(settings)?;
        let mut conditions = vec![match isolation {
            Isolation::Full => {
                said("PodsIsolated", true, "NamespacesOfRoot", "pods have namespaces of their own")
            }
            Isolation::User => said(
                "PodsIsolated",
                true,
                "UserNamespaces",
                "pods have namespaces of their own, as an ordinary user",
            ),
            Isolation::Plain => {
                let message =
                    format!("pods run as plain processes and see the host's files: {}", refusals.join("; "));
                said("PodsIsolated", false, "NamespacesNotPermitted", &message)
            }
        }];
        let name = cgroup_name(&settings.directory);
        let cgroups = Cgroups::find(&name);
        conditions.push(match &cgroups {
            Ok(_) => said("LimitsEnforced", true, "Cgroups", "limits of CPU and memory are kept by cgroups"),
            Err(why) => {
                let message = format!("memory is limited per process, and CPU not at all: {why}");
                said("LimitsEnforced", false, "NoCgroups", &message)
            }
        });
        if let Ok(cgroups) = &cgroups {
            let bases: Vec<String> = cgroups.bases().iter().map(|base| base.display().to_string()).collect();
            fs::write(settings.directory.join("cgroups"), bases.join("\n"))?;
        }
        Ok(Machine { isolation, cgroups: cgroups.ok(), network: None, conditions })
    }

    /// Gives its pods a network.
    pub(crate) fn join(&mut self, network: Arc<Network>, number: usize) -> io::Result<()> {
        if self.isolation != Isolation::Full {
            return Err(io::Error::other("pods have no namespaces of root here, which a network needs"));
        }
        self.network = Some((network, number));
        Ok(())
    }
}

fn said(kind: &'static str, holds: bool, reason: &'static str, message: &str) -> Said {
    Said { kind, holds, reason, message: message.to_owned() }
}

/// The same for every start of a node in this directory, and for no other one's.
fn cgroup_name(directory: &Path) -> String {
    let path = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let hash = path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("ferry-{hash:016x}")
}

/// The most that the kernel permits, and why not more.
fn isolation(settings: &Process) -> io::Result<(Isolation, Vec<String>)> {
    let mut refusals = Vec::new();
    for isolation in [Isolation::Full, Isolation::User] {
        let too_much = match settings.isolation {
            None | Some(Isolation::Full) => false,
            Some(Isolation::User) => isolation == Isolation::Full,
            Some(Isolation::Plain) => true,
        };
        if too_much {
            refusals.push("the node was told so".to_owned());
            continue;
        }
        match attempt(settings, isolation)? {
            Ok(()) => return Ok((isolation, refusals)),
            Err(why) => {
                info!(?isolation, why, "pods cannot be kept apart so far");
                refusals.push(why);
            }
        }
    }
    Ok((Isolation::Plain, refusals))
}

/// Starts a container that does nothing.
fn attempt(settings: &Process, isolation: Isolation) -> io::Result<Result<(), String>> {
    let directory = settings.directory.join("attempt");
    volumes::remove_tree(&directory)?;
    let root = root_in(&directory, Path::new("/"), &[], false)?;
    let program = std::env::current_exe()?;
    let program = match settings.init.first() {
        Some(first) if first != "/proc/self/exe" => PathBuf::from(first),
        _ => program,
    };
    let mut command = vec![program.display().to_string()];
    command.extend(settings.init.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()));
    command.push(NOTHING.to_owned());
    let user = User::default();
    // The program may be where containers have a directory of their own, such as /tmp.
    let itself = Mount { source: program.clone(), inside: None, target: program, read_only: true };
    let order =
        Order { isolation, command, root: Some(root), user, mounts: vec![itself], ..Order::default() };
    let path = directory.join("order");
    fs::write(&path, serde_json::to_vec(&order)?)?;
    let (node, guard) = UnixStream::pair()?;
    let mut init = Command::new(&settings.init[0]);
    init.args(&settings.init[1..]).arg(GUARD).arg(&path);
    let status = init
        .stdin(Stdio::from(OwnedFd::from(guard)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?
        .wait()?;
    drop(init); // and with it our copy of the guard's end, so that reading ends
    let reports = io::read_to_string(node)?;
    volumes::remove_tree(&directory)?;
    let last = reports.lines().last().and_then(|line| serde_json::from_str::<Report>(line).ok());
    Ok(match last {
        Some(Report::Exited { code: 0, .. }) => Ok(()),
        Some(Report::Failed { message, .. }) => Err(message),
        other => Err(format!("the attempt ended with {status} and {other:?}")),
    })
}

/// The directories of a container's root, below `directory`.
pub(super) fn root_in(
    directory: &Path,
    lower: &Path,
    hidden: &[PathBuf],
    read_only: bool,
) -> io::Result<Root> {
    let root = Root {
        lower: lower.to_owned(),
        upper: directory.join("upper"),
        work: directory.join("work"),
        merged: directory.join("merged"),
        hidden: hidden.to_vec(),
        read_only,
    };
    [&root.upper, &root.work, &root.merged].into_iter().try_for_each(fs::create_dir_all)?;
    Ok(root)
}

/// Ends and removes what an earlier node of this directory, which was killed, has left: guards and their containers,
/// cgroups, and files. Logs stay until their pod is gone, and so do volumes that are on disk and the pod's own. What another
/// user has put there says nothing: neither what is to be killed, nor what is to be removed.
fn clean_up(directory: &Path) -> io::Result<()> {
    for base in record(&directory.join("cgroups")).unwrap_or_default().lines() {
        // What is in there is killed; the guards see it, or that their node is gone, and end.
        cgroups::remove(Path::new(base))?;
    }
    for pod in list(&directory.join("pods"))? {
        for container in list(&pod.join("containers"))? {
            for instance in list(&container)? {
                end_guard(&instance.join("guard"));
            }
        }
        volumes::remove_tree(&pod.join("containers"))?;
        volumes::remove_tree(&pod.join(OBJECTS))?;
    }
    forget_memory(directory)
}

/// Removes what is left of pods that are not among these: they went while no node was there to see it. Blocks.
pub(super) fn forget_others(directory: &Path, uids: &BTreeSet<String>) -> io::Result<()> {
    for pod in list(&directory.join("pods"))? {
        let is_known = pod.file_name().is_some_and(|uid| uids.contains(&*uid.to_string_lossy()));
        if !is_known && let Err(error) = volumes::remove_tree(&pod) {
            warn!(directory = %pod.display(), %error, "failed to remove the directory of a pod that is gone");
        }
    }
    Ok(())
}

/// Removes what pods of a node in this directory have in memory.
pub(super) fn forget_memory(directory: &Path) -> io::Result<()> {
    let pods = list(&directory.join("pods"))?;
    let uids = pods.iter().filter_map(|pod| pod.file_name()).map(|uid| uid.to_string_lossy());
    uids.map(|uid| volumes::memory_of(&uid)).try_for_each(|memory| volumes::remove_memory(&memory))
}

/// Removes everything that a node in this directory, which runs no more, has left, and the directory. Blocks.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    private::expect_ours(directory)?;
    clean_up(directory)?;
    volumes::remove_tree(directory)
}

/// What is in a directory and this user's own: no links, which lead elsewhere.
fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut ours = match fs::read_dir(directory) {
        _ if !private::is_ours(directory) => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?,
    };
    ours.retain(|path| private::is_ours(path));
    Ok(ours)
}

/// What an earlier node wrote down for us.
fn record(path: &Path) -> Option<String> {
    private::is_ours(path).then(|| fs::read_to_string(path).ok()).flatten()
}

/// Waits for a guard to end by itself, which it does when its node is gone; or ends it.
fn end_guard(path: &Path) {
    let Some((process, born)) = record(path).and_then(|text| {
        let (process, born) = text.split_once(' ')?;
        Some((process.parse().ok().and_then(Pid::from_raw)?, born.to_owned()))
    }) else {
        return;
    };
    let deadline = Instant::now() + PATIENCE;
    let mut warned = false;
    // Another process may have its number by now, but not its time of birth.
    while birth_of(process).is_some_and(|found| found == born) {
        if Instant::now() > deadline {
            if !warned {
                warn!(
                    process = process.as_raw_nonzero().get(),
                    "killing the guard of a container left behind"
                );
                warned = true;
            }
            if kill_process(process, Signal::KILL).is_err() {
                return;
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Remembers a guard, so that one who comes after us finds it.
pub(super) fn record_guard(directory: &Path, process: u32) -> io::Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let born = pid.and_then(birth_of).unwrap_or_default();
    fs::write(directory.join("guard"), format!("{process} {born}"))
}

/// When a process was born, in ticks since the machine was; `None` if there is none, or it is dead but not yet missed.
pub(super) fn birth_of(process: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name, which may hold anything, is in parentheses; the state comes next.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}
