//! A command in a container that runs already.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use super::{
    Doing as _, Failure, Isolation, Session, enter, guard, privileges,
    spaces::{OTHERS, PROCESSES, join},
};

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
