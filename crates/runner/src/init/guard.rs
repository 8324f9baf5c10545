//! The guard of a container: between it and the node.

use std::{
    fs, io,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
};

use nix::sched::CloneFlags;
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal},
    thread::LinkNameSpaceType,
};

use super::{
    COMMAND, Doing as _, ENTER, Failure, Ipc, Isolation, Order, Processes, Report,
    order::is_open,
    spaces::{self, PROCESSES},
};
use crate::process::cgroups;

/// The exit code of what could not be started, if nothing better is known.
const CANNOT_RUN: i32 = 128;

/// Starts the container of this order and guards it until it ends. Standard input is the socket to the node.
pub(super) fn main(order: &Path) -> ExitCode {
    let node = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => UnixStream::from(socket),
        Err(error) => {
            eprintln!("the node cannot be heard: {error}");
            return ExitCode::FAILURE;
        }
    };
    let report = match guard(order, &node) {
        Ok(report) => report,
        Err(failure) => Report::Failed { code: CANNOT_RUN, message: failure.to_string() },
    };
    tell(&node, &report);
    ExitCode::SUCCESS
}

/// A node that does not listen any more will not miss it.
fn tell(mut node: &UnixStream, report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = node.write_all(&line);
    }
}

fn guard(path: &Path, node: &UnixStream) -> Result<Report, Failure> {
    let text = fs::read(path).doing(|| format!("failed to read the order {}", path.display()))?;
    fs::remove_file(path).doing(|| format!("failed to remove the order {}", path.display()))?;
    let order: Order = serde_json::from_slice(&text)
        .doing(|| format!("failed to understand the order {}", path.display()))?;
    if is_open(order.isolation, order.processes) {
        // Whatever leaves its parent becomes our child, so that nothing can get away.
        become_reaper()?;
    }
    if order.isolation != Isolation::Plain {
        separate(&order)?;
    }
    let (ours, theirs) = UnixStream::pair().doing(|| "failed to make a socket".to_owned())?;
    let mut child = Command::new("/proc/self/exe")
        .args([COMMAND, ENTER])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .doing(|| "failed to start a process in a new namespace".to_owned())?;
    if let Some(failed) = hand_over(&ours, &text) {
        kill_all(&mut child, &order);
        return Ok(failed);
    }
    // Waiting for process 1 of a namespace is not possible by its number in there, but by the one it has out here.
    let process = Pid::from_child(&child);
    tell(node, &Report::Started { process: process.as_raw_nonzero().get() });
    let (status, abandoned) = attend(&mut child, node, order.isolation)?;
    kill_all(&mut child, &order);
    if abandoned {
        // The node would have done it.
        for cgroup in &order.cgroups {
            let _ = fs::remove_dir(cgroup);
            // Those of the node, which stay as long as there is another container's in them.
            let _ = cgroup.parent().map(fs::remove_dir);
        }
    }
    let signal = status.signal();
    let code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or_default());
    Ok(Report::Exited { code, signal })
}

/// Enters or makes the namespaces that the next child will be in. Those of its pod come first: who is in a user namespace may
/// not open what the node holds.
fn separate(order: &Order) -> Result<(), Failure> {
    let mut flags = CloneFlags::empty();
    flags.set(CloneFlags::CLONE_NEWUSER, order.isolation == Isolation::User);
    flags.set(CloneFlags::CLONE_NEWPID, order.processes == Processes::Own);
    if let Ipc::Pod { space, users } = &order.ipc {
        let mut files = vec![(space, LinkNameSpaceType::InterProcessCommunication)];
        if let Some(users) = users {
            files.insert(0, (users, LinkNameSpaceType::User));
            flags.remove(CloneFlags::CLONE_NEWUSER);
        }
        spaces::enter(&files)?;
    }
    match order.processes {
        Processes::Of(process) => spaces::join(process, &[PROCESSES]),
        Processes::Own | Processes::Host => spaces::make(flags),
    }
}

/// Gives the order to the one that enters. It says nothing if it has become the command, for then the socket closes.
fn hand_over(mut to: &UnixStream, order: &[u8]) -> Option<Report> {
    let handed = to.write_all(order).and_then(|()| to.shutdown(std::net::Shutdown::Write));
    let mut answer = String::new();
    // One that is gone before it has read everything says why all the same.
    let read = to.read_to_string(&mut answer);
    if !answer.is_empty() {
        let unread = |_| Report::Failed { code: CANNOT_RUN, message: answer.clone() };
        return Some(serde_json::from_str(&answer).unwrap_or_else(unread));
    }
    let error = handed.and(read.map(drop)).err()?;
    Some(Report::Failed { code: CANNOT_RUN, message: format!("failed to hand over the order: {error}") })
}

/// Passes on what the node says, until the command has ended. Says also whether the node was gone before.
fn attend(child: &mut Child, node: &UnixStream, isolation: Isolation) -> Result<(ExitStatus, bool), Failure> {
    let process = Pid::from_child(child);
    let pidfd =
        pidfd_open(process, PidfdFlags::empty()).doing(|| "failed to watch the process".to_owned())?;
    let mut orders = BufReader::new(node);
    let mut listening = true;
    loop {
        let mut events = [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(node, PollFlags::IN)];
        let watched = if listening { 2 } else { 1 };
        match poll(&mut events[..watched], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing(|| "failed to wait".to_owned()),
        }
        if !events[0].revents().is_empty()
            && let Some(status) = child.try_wait().doing(|| "failed to wait for the process".to_owned())?
        {
            return Ok((status, !listening));
        }
        if listening && !events[1].revents().is_empty() {
            let mut line = String::new();
            let signal = if let Ok(1..) = orders.read_line(&mut line) {
                line.trim().strip_prefix("signal ").and_then(|number| number.parse().ok())
            } else {
                // The node is gone, and so must be its container.
                listening = false;
                Some(Signal::KILL.as_raw())
            };
            if let Some(signal) = signal.and_then(Signal::from_named_raw) {
                // In a namespace, the end of the first process is the end of all; without one, its session is told. One
                // that has just ended is heard of in the next turn.
                let _ = match isolation {
                    Isolation::Plain => kill_process_group(process, signal),
                    Isolation::Full | Isolation::User => pidfd_send_signal(&pidfd, signal),
                };
            }
        }
    }
}

/// Ends what is left. A namespace ends with its first process; without one we look for our children, which all
/// descendants become sooner or later, until there are none. In a namespace that others share they become somebody
/// else's, so that only the cgroup knows them, if there is one; or else they end with the pod.
fn kill_all(child: &mut Child, order: &Order) {
    let _ = child.kill();
    let _ = child.wait();
    if is_open(order.isolation, order.processes) {
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        kill_children();
    } else if let (Processes::Of(_), Some(cgroup)) = (order.processes, order.cgroups.first()) {
        cgroups::kill(cgroup);
    }
}

/// Becomes the parent of all descendants that lose their own.
pub(super) fn become_reaper() -> Result<(), Failure> {
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own)).doing(|| "failed to become a reaper".to_owned())
}

/// Ends our children until there are none.
pub(super) fn kill_children() {
    loop {
        let own = rustix::process::getpid().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
        let children: Vec<Pid> =
            children.split_whitespace().filter_map(|id| id.parse().ok()).filter_map(Pid::from_raw).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill_process(child, Signal::KILL);
            let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
        }
    }
}
