//! What the node tells the first process of a container, and what that tells the node.

use std::{collections::BTreeMap, os::fd::AsRawFd, path::PathBuf};

use serde::{Deserialize, Serialize};

/// How far a container is kept apart from its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// Own namespaces, made by root.
    Full,
    /// Own namespaces in a user namespace of our own: the container's root is nobody but ourselves.
    User,
    /// A child like any other, in a session of its own.
    #[default]
    Plain,
}

/// Whose processes a container sees, and who sees its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processes {
    /// Its own, and nobody else.
    #[default]
    Own,
    /// Those of the namespace that this process of the host is in.
    Of(i32),
    /// All of the host.
    Host,
}

/// Where a container has the kernel's shared memory, semaphores and queues of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ipc {
    /// In a namespace of its own.
    #[default]
    Own,
    /// In one that it shares with its pod.
    Pod {
        /// A file that is this namespace.
        space: PathBuf,
        /// A file that is the user namespace to which it belongs, where that is not the node's. The container is in there.
        users: Option<PathBuf>,
    },
    /// Where the host has them.
    Host,
}

/// One container to be started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Order {
    /// How far it is kept apart.
    pub isolation: Isolation,
    /// Whose processes it sees, unless it is plain.
    pub processes: Processes,
    /// Through what it talks to other processes, unless it is plain.
    pub ipc: Ipc,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// All its variables.
    pub variables: BTreeMap<String, String>,
    /// Where it starts; made if it is not there.
    pub directory: Option<PathBuf>,
    /// Its files, unless it is plain.
    pub root: Option<Root>,
    /// What is mounted in there, outer before inner.
    pub mounts: Vec<Mount>,
    /// Settings of the kernel, by their files below `/proc/sys`; only of namespaces of its own.
    pub sysctls: BTreeMap<String, String>,
    /// A file that is the network namespace to be in; the node's own if not said.
    pub network: Option<PathBuf>,
    /// Its host name.
    pub hostname: Option<String>,
    /// Who it is.
    pub user: User,
    /// Directories of the cgroups to be in.
    pub cgroups: Vec<PathBuf>,
    /// The most data, in bytes, where no cgroup says it.
    pub data_limit: Option<u64>,
    /// The terminal that is its standard input, output and error.
    pub terminal: Option<PathBuf>,
    /// What its standard input is read from; nothing if not said.
    pub input: Option<PathBuf>,
}

/// Where a container's files come from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Root {
    /// What is below: the host's root, or an image's.
    pub lower: PathBuf,
    /// Where its changes go.
    pub upper: PathBuf,
    /// For the kernel, beside it.
    pub work: PathBuf,
    /// Where both appear as one.
    pub merged: PathBuf,
    /// What of the host nobody in a container is to see: directories, and files, which may not be there yet.
    pub hidden: Vec<PathBuf>,
    /// Nothing of it can be changed.
    pub read_only: bool,
}

/// Something that appears in a container's files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    /// A file or directory of the host.
    pub source: PathBuf,
    /// What of it, if not all; what is in there may have been made by others.
    pub inside: Option<PathBuf>,
    /// Where.
    pub target: PathBuf,
    /// It cannot be changed there.
    pub read_only: bool,
}

/// Who a container's processes are, and what they may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user id; our own if not said.
    pub uid: Option<u32>,
    /// The group id; 0 if not said but the user is.
    pub gid: Option<u32>,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Everything that the node may do.
    pub privileged: bool,
    /// It asks for all that `/proc` shows, which it has where its root is nobody on the host.
    pub unmasked: bool,
    /// Capabilities besides the usual ones, without `CAP_`.
    pub add: Vec<String>,
    /// Capabilities to be without; `ALL` for all.
    pub drop: Vec<String>,
    /// Programs do not give it more than it has.
    pub no_new_privileges: bool,
}

/// A command to be run in a container that runs already.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Session {
    /// The container's first process.
    pub process: Option<i32>,
    /// How far that is kept apart.
    pub isolation: Isolation,
    /// Whose processes it sees.
    pub processes: Processes,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// All its variables.
    pub variables: BTreeMap<String, String>,
    /// Where it starts.
    pub directory: Option<PathBuf>,
    /// Who it is.
    pub user: User,
    /// Directories of the cgroups to be in.
    pub cgroups: Vec<PathBuf>,
    /// The terminal that is its standard input, output and error.
    pub terminal: Option<PathBuf>,
}

impl Session {
    /// Whether nothing but its parent holds what a command leaves behind.
    pub(crate) fn is_alone(&self) -> bool {
        is_open(self.isolation, self.processes) && self.cgroups.is_empty()
    }
}

/// Whether processes of a container may outlive its first one: no namespace of their own ends with that.
pub(crate) fn is_open(isolation: Isolation, processes: Processes) -> bool {
    isolation == Isolation::Plain || processes == Processes::Host
}

/// Where whoever gets an order finds a file that we hold open.
pub(crate) fn held(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// What a guard tells its node, one per line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The command runs, as this process.
    Started {
        /// Its id on the host.
        process: i32,
    },
    /// The command could not be run.
    Failed {
        /// What a shell would return.
        code: i32,
        /// Why.
        message: String,
    },
    /// The command has ended.
    Exited {
        /// Its exit code; 128 and the signal if that ended it.
        code: i32,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}
