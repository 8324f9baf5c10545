//! A command in a container that runs already.

use std::{
    fs,
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    path::Path,
    process::{Command, ExitCode},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Doing as _, Failure, Isolation, Session, enter, guard, privileges};

/// Runs the command of this session with our standard streams, and ends as it does.
pub(super) fn main(session: &Path) -> ExitCode {
    match run(session) {
        Ok(code) => ExitCode::from(code),
        Err((code, failure)) => {
            eprintln!("{failure}");
            ExitCode::from(code)
        }
    }
}

fn run(path: &Path) -> Result<u8, (u8, Failure)> {
    let session = prepare(path).map_err(|failure| (126, failure))?;
    let (program, arguments) =
        session.command.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&session.variables);
    if let Some(directory) = &session.directory {
        command.current_dir(directory);
    }
    // Where nothing else holds what a command leaves behind, it ends with the command.
    if session.is_alone() {
        guard::become_reaper().map_err(|failure| (126, failure))?;
    }
    // A child, because namespaces of processes are for children.
    let status = command.status().map_err(|error| {
        let code = u8::try_from(enter::code_of(&error)).unwrap_or(126);
        (code, Failure { what: format!("failed to run {program:?}"), source: error })
    })?;
    if session.is_alone() {
        guard::kill_children();
    }
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(u8::try_from(code).unwrap_or(u8::MAX))
}

fn prepare(path: &Path) -> Result<Session, Failure> {
    let text = fs::read(path).doing(|| format!("failed to read the order {}", path.display()))?;
    fs::remove_file(path).doing(|| format!("failed to remove the order {}", path.display()))?;
    let session: Session = serde_json::from_slice(&text)
        .doing(|| format!("failed to understand the order {}", path.display()))?;
    enter::join(&session.cgroups)?;
    if let Some(terminal) = &session.terminal {
        rustix::process::setsid().doing(|| "failed to begin a session".to_owned())?;
        enter::take_terminal(terminal)?;
    }
    if let (Some(process), Isolation::Full | Isolation::User) = (session.process, session.isolation) {
        join(process, &[&[PROCESSES][..], &OTHERS].concat())?;
    }
    privileges::take(&session.user)?;
    Ok(session)
}

/// A kind of namespace, and what the kernel calls it.
pub(super) type Space = (&'static str, LinkNameSpaceType);
const USER: Space = ("user", LinkNameSpaceType::User);
pub(super) const PROCESSES: Space = ("pid", LinkNameSpaceType::ProcessID);
const OTHERS: [Space; 4] = [
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("net", LinkNameSpaceType::Network),
    ("mnt", LinkNameSpaceType::Mount),
];

/// Enters these namespaces of a process, after its user namespace: all are opened before the first one changes what can
/// be seen.
pub(super) fn join(process: i32, spaces: &[Space]) -> Result<(), Failure> {
    let mut opened = Vec::new();
    for (name, kind) in [&[USER][..], spaces].concat() {
        let path = format!("/proc/{process}/ns/{name}");
        let failed = || format!("failed to open {path}");
        let theirs = fs::read_link(&path).doing(failed)?;
        // One that we are in need not be entered, and often cannot be.
        let ours = fs::read_link(format!("/proc/self/ns/{name}")).doing(failed)?;
        if theirs != ours {
            opened.push((fs::File::open(&path).doing(failed)?, name, kind));
        }
    }
    for (space, name, kind) in opened {
        move_into_link_name_space(space.as_fd(), Some(kind))
            .doing(|| format!("failed to enter the {name} namespace of process {process}"))?;
    }
    Ok(())
}
