//! What can go wrong, by what was being done.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::key::Key;
use crate::object::Object;
use crate::revision::Revision;
use crate::write::Refusal;

/// A store could not be opened. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Open {
    /// Another process, or another store of this one, has the directory open.
    #[error("data directory {} is in use by {holder}", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Who says to hold it, for example `process 4711`.
        holder: String,
    },
    /// Something that was written and synced is no longer what it was. What is left is not opened, because acknowledged
    /// writes would be missing without anybody noticing.
    #[error("{} is damaged at byte {offset}: {what}; nothing was changed. {hint}", file.display())]
    Corrupt {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// What can be done about it.
        hint: &'static str,
    },
    /// The file was written by a version of this program with another format.
    #[error("{} has format version {found}, this program reads version {known}", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is understood.
        known: u32,
    },
    /// The operating system refused something.
    #[error("failed to {doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A write was not committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Commit {
    /// The object must not be there, and is.
    #[error("{} exists already", current.key)]
    Exists {
        /// The object as it is.
        current: Arc<Object>,
    },
    /// The object must be there, and is not.
    #[error("{key} does not exist")]
    Absent {
        /// The object that is missing.
        key: Key,
    },
    /// The object has changed since the revision that the writer has seen.
    #[error("{} has changed, it is at revision {}", current.key, current.revision)]
    Conflict {
        /// The object as it is.
        current: Arc<Object>,
    },
    /// There is another object under this key than the writer has seen.
    #[error("{} is another object than expected, its token is {:?}", current.key, current.index.token)]
    Token {
        /// The object as it is.
        current: Arc<Object>,
    },
    /// The writer's own check refused.
    #[error("the check of a write to {key} refused it")]
    Refused {
        /// The object that was to be written.
        key: Key,
        /// What the check said.
        source: Refusal,
    },
    /// The object is larger than the store takes.
    #[error("{key} has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// The object.
        key: Key,
        /// Its size.
        size: usize,
        /// The largest size.
        limit: usize,
    },
    /// The disk is full. Deletions may still work, and free space.
    #[error("the disk is full: {reason}")]
    Full {
        /// What the operating system said.
        reason: Arc<str>,
    },
    /// The disk failed. Whether this write will be there after a restart is not known; all acknowledged ones will.
    #[error("the store takes no writes since its disk failed: {reason}")]
    Failed {
        /// What the operating system said.
        reason: Arc<str>,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// A past state cannot be read, or a watch not be started from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Read {
    /// The state is no longer known.
    #[error("revision {requested} is no longer available, the oldest is {oldest}")]
    Expired {
        /// The revision asked for.
        requested: Revision,
        /// The oldest one that could be had.
        oldest: Revision,
    },
    /// The state is not there yet.
    #[error("revision {requested} is in the future, the store is at {current}")]
    Future {
        /// The revision asked for.
        requested: Revision,
        /// The latest one.
        current: Revision,
    },
}

/// A watch ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Watch {
    /// The watcher was so slow that events it has not seen are gone. It has to list again.
    #[error("the watcher has seen all up to {seen}, but events up to {lost} are gone")]
    Lagged {
        /// Everything up to here was delivered.
        seen: Revision,
        /// Everything up to here is gone.
        lost: Revision,
    },
}
