//! Process 1 of a namespace that containers share.

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{WaitOptions, wait};

/// Takes in processes that have lost their parents, and does nothing else until it is ended.
pub(super) fn main() -> ExitCode {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGCHLD);
    if ends.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        // Several may have ended when one is told of.
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        if ends.wait().is_err() {
            return ExitCode::FAILURE;
        }
    }
}
