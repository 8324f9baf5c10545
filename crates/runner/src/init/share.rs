//! Namespaces for all containers of a pod, made by one who needs a user namespace for that.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use nix::sched::CloneFlags;

use super::spaces;

/// What is said when they are made.
pub(crate) const MADE: &str = "made";

/// Makes them, and stays in them until its input ends, because the node has opened them or is gone.
pub(super) fn main() -> ExitCode {
    let said = match spaces::make(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWIPC) {
        Ok(()) => MADE.to_owned(),
        Err(failure) => failure.to_string(),
    };
    let done = writeln!(io::stdout(), "{said}").and_then(|()| io::copy(&mut io::stdin(), &mut io::sink()));
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
