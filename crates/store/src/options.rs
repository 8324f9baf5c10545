//! What can be chosen about a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Disk, Os};
use crate::history;
use crate::hub::Window;
use crate::revision::Revision;

/// Whether a store outlives its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is written anywhere.
    Ephemeral,
    /// Acknowledged writes are in this directory.
    Disk(PathBuf),
}

/// What can be chosen about a store. The defaults suit a cluster on a laptop as well as a large one.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Whether the store outlives its process, and where.
    pub durability: Durability,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// The revision of a new store.
    pub first_revision: Revision,
    /// How far back watches can start.
    pub window: Window,
    /// How far back exact lists can go.
    pub history: history::Limits,
    /// The largest object, in bytes, its index included.
    pub largest_object: usize,
    /// The most writes that wait for the writer; further ones wait for a place.
    pub queue: usize,
    /// The most writes that share a sync.
    pub batch_writes: usize,
    /// About the most bytes that share a sync.
    pub batch_bytes: usize,
    /// How long writes are gathered for the next sync while many come at once: a sync costs the processor as much as a
    /// small write does, whatever it syncs.
    pub gather: Duration,
    /// How long the first segment of the log is, and about the longest of the following ones.
    pub segment_bytes: (u64, u64),
    /// A snapshot is made when the log has grown by this much since the last one, or by as much as all objects take in
    /// memory, whichever is more: so a large store does not spend its time making snapshots.
    pub snapshot_after: u64,
    /// For how long a relaxed write may stay unsynced.
    pub relaxed_for: Duration,
    /// How often to let go of what has become too old, when nothing is written.
    pub trim_every: Duration,
    /// How often to look whether a full disk has room again.
    pub retry: Duration,
}

impl Options {
    /// A store that keeps nothing.
    pub fn ephemeral() -> Self {
        Options::new(Durability::Ephemeral)
    }

    /// A store in a directory, which is made if it is not there.
    pub fn disk(dir: impl Into<PathBuf>) -> Self {
        Options::new(Durability::Disk(dir.into()))
    }

    /// A store with this durability.
    pub fn new(durability: Durability) -> Self {
        Options {
            durability,
            disk: Arc::new(Os),
            first_revision: Revision::FIRST,
            window: Window::default(),
            history: history::Limits::default(),
            largest_object: 8 << 20,
            queue: 4096,
            batch_writes: 512,
            batch_bytes: 1 << 20,
            gather: Duration::from_millis(1),
            segment_bytes: (1 << 20, 64 << 20),
            snapshot_after: 64 << 20,
            relaxed_for: Duration::from_millis(10),
            trim_every: Duration::from_secs(30),
            retry: Duration::from_secs(1),
        }
    }
}
