//! The way into a container: from a new process in a new pid namespace to the container's command.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, ExitCode},
};

use nix::sched::CloneFlags;
use rustix::{
    process::{Resource, Rlimit, Signal},
    thread::LinkNameSpaceType,
};

use super::{Doing as _, Failure, Ipc, Isolation, Order, Report, privileges, root, spaces};

/// Standard input is the socket to the guard: the order comes from there, and what fails is said there.
pub(super) fn main() -> ExitCode {
    let Ok(guard) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut guard = UnixStream::from(guard);
    // Nothing but a failure ever returns.
    let (code, failure) = match read(&mut guard).and_then(|order| prepare(&order).map(|()| order)) {
        Ok(order) => become_command(&order),
        Err(failure) => (128, failure),
    };
    let report = Report::Failed { code, message: failure.to_string() };
    let said = serde_json::to_vec(&report).map_err(io::Error::from).and_then(|line| guard.write_all(&line));
    if said.is_err() {
        eprintln!("{failure}");
    }
    ExitCode::FAILURE
}

fn read(guard: &mut UnixStream) -> Result<Order, Failure> {
    let mut text = Vec::new();
    guard.read_to_end(&mut text).doing(|| "failed to read the order".to_owned())?;
    serde_json::from_slice(&text).doing(|| "failed to understand the order".to_owned())
}

fn prepare(order: &Order) -> Result<(), Failure> {
    // Whatever this one starts belongs to it, and signals of a terminal elsewhere do not reach it.
    rustix::process::setsid().doing(|| "failed to begin a session".to_owned())?;
    join(&order.cgroups)?;
    take_standard_streams(order)?;
    if order.isolation != Isolation::Plain {
        let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS;
        flags.set(CloneFlags::CLONE_NEWIPC, order.ipc == Ipc::Own);
        spaces::make(flags)?;
        if let Some(path) = &order.network {
            spaces::enter(&[(path, LinkNameSpaceType::Network)])?;
        }
        if let Some(name) = &order.hostname {
            rustix::system::sethostname(name.as_bytes()).doing(|| format!("failed to be called {name}"))?;
        }
        root::enter(order)?;
        for (name, value) in &order.sysctls {
            fs::write(Path::new("/proc/sys").join(name), value).doing(|| format!("failed to set {name}"))?;
        }
        root::keep_kernel(order)?;
    }
    if let Some(bytes) = order.data_limit {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::setrlimit(Resource::Data, limit)
            .doing(|| "failed to limit the memory".to_owned())?;
    }
    if let Some(directory) = &order.directory {
        let there = match order.isolation {
            Isolation::Plain => std::env::set_current_dir(directory),
            Isolation::Full | Isolation::User => root::go_to(directory),
        };
        there.doing(|| format!("failed to go to the working directory {}", directory.display()))?;
    }
    privileges::take(&order.user)?;
    // Said last, because whoever changes its user is asked again.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .doing(|| "failed to tie the process to its guard".to_owned())
}

/// Moves this process into cgroups.
pub(super) fn join(cgroups: &[impl AsRef<Path>]) -> Result<(), Failure> {
    for cgroup in cgroups {
        let file = cgroup.as_ref().join("cgroup.procs");
        fs::write(&file, "0").doing(|| format!("failed to write {}", file.display()))?;
    }
    Ok(())
}

/// Takes the terminal, if there is one; or else reads from what was said, or nothing. Outputs are there already.
fn take_standard_streams(order: &Order) -> Result<(), Failure> {
    if let Some(path) = &order.terminal {
        return take_terminal(path);
    }
    let path = order.input.as_deref().unwrap_or(Path::new("/dev/null"));
    // A pipe has a writer, the node, so that this neither blocks nor ends at once.
    let input = fs::File::open(path);
    let input = input.doing(|| format!("failed to open {}", path.display()))?;
    rustix::stdio::dup2_stdin(&input).doing(|| "failed to take the standard input".to_owned())
}

/// Makes a terminal the one of this session.
pub(super) fn take_terminal(path: &Path) -> Result<(), Failure> {
    let terminal = fs::File::options().read(true).write(true).open(path);
    let terminal = terminal.doing(|| format!("failed to open {}", path.display()))?;
    rustix::process::ioctl_tiocsctty(&terminal).doing(|| "failed to take the terminal".to_owned())?;
    let all = rustix::stdio::dup2_stdin(&terminal)
        .and_then(|()| rustix::stdio::dup2_stdout(&terminal))
        .and_then(|()| rustix::stdio::dup2_stderr(&terminal));
    all.doing(|| "failed to take the terminal".to_owned())
}

/// Becomes the command; returns only why it cannot, and the code that a shell gives then.
fn become_command(order: &Order) -> (i32, Failure) {
    let Some((program, arguments)) = order.command.split_first() else {
        let source = io::Error::from(io::ErrorKind::InvalidInput);
        return (128, Failure { what: "there is no command".to_owned(), source });
    };
    let error = Command::new(program).args(arguments).env_clear().envs(&order.variables).exec();
    (code_of(&error), Failure { what: format!("failed to run {program:?}"), source: error })
}

/// The code that a shell gives for a program that it cannot run.
pub(super) fn code_of(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        io::ErrorKind::PermissionDenied => 126,
        _ => 128,
    }
}
