//! The first process of every container: the program itself, started again under a hidden name.
//!
//! A container is two processes. The *guard* is a child of the node; it makes the container's pid namespace and waits
//! for what the node says and for the end of the container. The other one *enters*: it builds the container's view of the
//! files, gives up what the container must not have, and becomes the container's command, which is therefore process 1 of
//! its pid namespace. When that ends, the kernel ends all that is left in the namespace; when the node ends, in whatever
//! way, the guard hears its socket close and ends the container.
//!
//! Where the containers of a pod see each other's processes, process 1 of their namespace is one that only *pauses*: a
//! container like the others, which the guards of the others follow into its namespace.
//!
//! What the containers of a pod share through the kernel, its memory, semaphores and queues, is in a namespace that the node
//! holds by a file; where it takes a user namespace to make it, a process that *shares* makes both and ends when the node
//! has them.
//!
//! Everything here runs in a process of its own with a single thread, which is what namespaces ask for, and why it is not
//! done between `fork` and `exec`.

mod confined;
mod enter;
mod exec;
mod guard;
mod order;
mod pause;
mod privileges;
mod root;
mod share;
mod spaces;
mod tree;

use std::{ffi::OsString, io, process::ExitCode};

pub(crate) use confined::Confined;
pub(crate) use order::held;
pub use order::{Ipc, Isolation, Mount, Order, Processes, Report, Root, Session, User};
pub(crate) use share::MADE;

/// The word that makes the program a container's first process instead of what it usually is.
pub const COMMAND: &str = "pod-init";

/// What comes after [`COMMAND`].
pub(crate) const GUARD: &str = "guard";
pub(crate) const ENTER: &str = "enter";
pub(crate) const EXEC: &str = "exec";
pub(crate) const PAUSE: &str = "pause";
pub(crate) const SHARE: &str = "share";
pub(crate) const NOTHING: &str = "nothing";

/// Runs as what `arguments`, which are those after [`COMMAND`], say.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let what = arguments.next().unwrap_or_default();
    let order = arguments.next().unwrap_or_default();
    match what.to_str() {
        Some(GUARD) => guard::main(order.as_ref()),
        Some(ENTER) => enter::main(),
        Some(EXEC) => exec::main(order.as_ref()),
        Some(PAUSE) => pause::main(),
        Some(SHARE) => share::main(),
        Some(NOTHING) => ExitCode::SUCCESS,
        _ => {
            eprintln!("{COMMAND} is how pods are started, and is not to be called by people");
            ExitCode::from(2)
        }
    }
}

/// What could not be done, and why.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub(crate) struct Failure {
    what: String,
    source: io::Error,
}

/// Says of an error what was being done.
trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|source| Failure { what: what(), source: source.into() })
    }
}
