//! Figures about a store, for whoever exports them.

use std::sync::atomic::{AtomicU64, Ordering};

/// How much there is, and how much was done since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Objects.
    pub objects: usize,
    /// About the memory that the objects take, in bytes.
    pub object_bytes: usize,
    /// Past states kept for exact lists.
    pub past_states: usize,
    /// About the memory that only past states take, in bytes.
    pub past_bytes: usize,
    /// Events kept for watches that start in the past.
    pub events: usize,
    /// About the memory that the events take, in bytes.
    pub event_bytes: usize,
    /// Watches.
    pub watchers: usize,
    /// Writes committed.
    pub writes: u64,
    /// Writes not committed, for whatever reason.
    pub refused: u64,
    /// Batches in which they were committed.
    pub batches: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Bytes of log since the last snapshot.
    pub log_bytes: u64,
    /// Segments of the log.
    pub segments: u64,
    /// Snapshots made.
    pub snapshots: u64,
}

/// What the writer counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) writes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) segments: AtomicU64,
    pub(crate) snapshots: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

pub(crate) fn set(counter: &AtomicU64, value: u64) {
    counter.store(value, Ordering::Relaxed);
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
