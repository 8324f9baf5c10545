//! Where the containers of a pod have the kernel's shared memory, semaphores and queues of messages: a namespace that lives
//! for as long as it is held here or somebody is in it.

use std::{ffi::OsString, fs::File, io, process::Stdio};

use nix::sched::CloneFlags;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::{
    init::{Ipc, Isolation, MADE, SHARE, held},
    threads,
};

/// The namespace of a pod.
#[derive(Debug)]
pub(super) struct Namespace {
    space: File,
    /// The user namespace that it belongs to, if we needed one to make it.
    users: Option<File>,
}

impl Namespace {
    /// Makes one as pods are kept apart here; `init` is the first process of containers.
    pub(super) async fn make(isolation: Isolation, init: &[OsString]) -> io::Result<Namespace> {
        match isolation {
            Isolation::User => make_as_user(init).await,
            Isolation::Full | Isolation::Plain => threads::apart(make_as_root).await,
        }
    }

    /// How containers get into it.
    pub(super) fn order(&self) -> Ipc {
        Ipc::Pod { space: held(&self.space), users: self.users.as_ref().map(held) }
    }
}

fn make_as_root() -> io::Result<Namespace> {
    nix::sched::unshare(CloneFlags::CLONE_NEWIPC)?;
    Ok(Namespace { space: File::open("/proc/thread-self/ns/ipc")?, users: None })
}

/// A user namespace is only for processes that have one thread, so another process makes it.
async fn make_as_user(init: &[OsString]) -> io::Result<Namespace> {
    let mut command = Command::new(&init[0]);
    command.args(&init[1..]).arg(SHARE).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut maker = command.spawn()?;
    let (Some(process), Some(output)) = (maker.id(), maker.stdout.take()) else {
        return Err(io::Error::other("a process was asked for its output and has none"));
    };
    let mut said = String::new();
    BufReader::new(output).read_line(&mut said).await?;
    if said.trim_end() != MADE {
        return Err(io::Error::other(said.trim_end().to_owned()));
    }
    let open = |name: &str| File::open(format!("/proc/{process}/ns/{name}"));
    let namespace = Namespace { space: open("ipc")?, users: Some(open("user")?) };
    drop(maker.stdin.take()); // it is not needed any more
    maker.wait().await?;
    Ok(namespace)
}
