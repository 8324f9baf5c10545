//! The write-ahead log: segments in a row, of which the last is appended to.

use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use crate::compact::Job;
use crate::disk::Disk;
use crate::preamble::{self, Content, Preamble};
use crate::record::Batch;
use crate::recover::Unconfirmed;
use crate::revision::Revision;
use crate::segment::{Blank, Sealed, Segment};
use crate::spare::Spare;
use crate::state::State;

/// How long segments are. The first one after a start is short, so that starting is quick and a small store stays
/// small; the following ones grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) first: u64,
    pub(crate) largest: u64,
}

impl Lengths {
    fn after(&self, length: u64) -> u64 {
        length.saturating_mul(4).clamp(self.first, self.largest)
    }
}

/// Why a batch is not in the log.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// There is no room. Nothing happened, it may be tried again.
    Full(Arc<str>),
    /// Nobody knows what is on the disk. Nothing more is written.
    Broken(Arc<str>),
}

pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    store: u64,
    lengths: Lengths,
    current: Option<Segment>,
    spare: Spare,
    sealed: Vec<Sealed>,
    /// Oldest first.
    snapshots: Vec<Sealed>,
    next_index: u64,
    /// Batches to be written again at the start of the next segment.
    carried: Option<Unconfirmed>,
    /// The last batch written, and the last one known to be synced.
    sequence: u64,
    durable: u64,
    /// Bytes since the last snapshot.
    grown: u64,
    syncs: u64,
    /// Kept for as long as the log is open.
    _lock: Box<dyn Send>,
}

/// What a log starts from.
pub(crate) struct Origin {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) lock: Box<dyn Send>,
    pub(crate) lengths: Lengths,
    pub(crate) spare: Spare,
    pub(crate) store: u64,
    pub(crate) sealed: Vec<Sealed>,
    pub(crate) snapshots: Vec<Sealed>,
    pub(crate) sequence: u64,
    pub(crate) unconfirmed: Unconfirmed,
    /// Bytes of log since the last snapshot, and in how many segments.
    pub(crate) replayed: (u64, usize),
}

impl Log {
    /// Goes on after what was recovered, in a new segment. On a full disk there is none yet, and the first write has to
    /// wait for one.
    pub(crate) fn open(origin: Origin, start: Revision) -> io::Result<Self> {
        let Origin { disk, dir, lock, lengths, spare, store, sealed, snapshots, .. } = origin;
        let Origin { sequence, unconfirmed, replayed: (bytes, segments), .. } = origin;
        let next_index = sealed.last().map_or(1, |segment| segment.preamble.index + 1);
        let mut log = Log {
            disk,
            dir,
            store,
            lengths,
            current: None,
            spare,
            sealed,
            snapshots,
            next_index,
            carried: Some(unconfirmed),
            sequence,
            durable: sequence,
            // A segment counts as at least the shortest, so that many starts make a snapshot due as much data does.
            grown: bytes.max(lengths.first * segments as u64),
            syncs: 0,
            _lock: lock,
        };
        let length = log.lengths.first.max(log.needed(0));
        let blank = Blank::make(&*log.disk, &log.dir.join("first.tmp"), length);
        match blank.and_then(|blank| log.begin(blank, start)) {
            Ok(()) => log.spare.make(log.lengths.after(length)),
            Err(error) if is_full(&error) => {
                warn!(%error, "no room for the log, opening for reading");
                log.spare.make(length);
            }
            Err(error) => return Err(error),
        }
        Ok(log)
    }

    /// Appends a batch, and syncs it if asked to. `revision` is the one before the batch. A batch that may not use up
    /// the reserve waits until it is known whether the log can grow.
    pub(crate) fn append(
        &mut self,
        batch: &mut Batch,
        revision: Revision,
        sync: bool,
        use_reserve: bool,
    ) -> Result<(), Failure> {
        let size = batch.size();
        match &self.current {
            Some(current) if current.fits(size) => {
                if !use_reserve && current.leaves_less_than_half(size) {
                    self.spare.wait().map_err(Failure::Full)?;
                }
            }
            _ => self.roll(size, revision)?,
        }
        let bytes = batch.seal(Preamble::seed(self.store), self.sequence + 1, self.durable);
        let current = self.current.as_mut().expect("rolling leaves a current segment");
        current.append(bytes).map_err(|error| failure(&error))?;
        self.sequence += 1;
        self.grown += size as u64;
        if sync { self.sync() } else { Ok(()) }
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&mut self) -> Result<(), Failure> {
        if let Some(current) = &mut self.current
            && self.durable < self.sequence
        {
            self.syncs += 1;
            current.sync().map_err(|error| Failure::Broken(error.to_string().into()))?;
            self.durable = self.sequence;
        }
        Ok(())
    }

    /// Goes on in the spare segment.
    fn roll(&mut self, size: usize, revision: Revision) -> Result<(), Failure> {
        self.sync()?;
        let mut blank = self.spare.take().map_err(Failure::Full)?;
        let needed = self.needed(size);
        if blank.capacity() < needed {
            blank = Blank::make(&*self.disk, &self.dir.join("large.tmp"), needed)
                .map_err(|error| failure(&error))?;
        }
        let length = blank.capacity();
        self.begin(blank, revision).map_err(|error| failure(&error))?;
        self.spare.make(self.lengths.after(length));
        Ok(())
    }

    /// How long a new segment must at least be to take a batch.
    fn needed(&self, size: usize) -> u64 {
        let carried = self.carried.as_ref().map_or(0, |carried| carried.bytes.len());
        (preamble::LENGTH + carried + size) as u64
    }

    fn begin(&mut self, blank: Blank, revision: Revision) -> io::Result<()> {
        let carried = self.carried.as_ref();
        let preamble = Preamble {
            content: Content::Segment,
            store: self.store,
            index: self.next_index,
            sequence: carried.map_or(self.sequence + 1, |carried| carried.first),
            revision,
        };
        let batches = carried.map_or(&[][..], |carried| &carried.bytes);
        let segment = blank.begin(&*self.disk, &self.dir, preamble, batches)?;
        self.carried = None;
        self.next_index += 1;
        self.sealed.extend(self.current.replace(segment).map(|full| full.sealed()));
        Ok(())
    }

    /// Gives the spare segment up, after a write found no room, and starts to make a short one. One that could not be made
    /// takes no room, and is tried again as it is.
    pub(crate) fn make_room(&mut self) {
        if !matches!(self.room(), Some(Err(_))) {
            self.spare.make(self.lengths.first);
        }
    }

    /// Gives back half of what is left of the current segment, so that a full disk has room for a snapshot: that is what
    /// frees more.
    pub(crate) fn give_back(&mut self) {
        if let Some(current) = &mut self.current
            && let Err(error) = current.trim(current.unused() / 2)
        {
            warn!(%error, "failed to give back a part of the log");
        }
    }

    /// Whether there is a segment to append to.
    pub(crate) fn is_begun(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the log can grow, or why it cannot; `None` while that is being found out.
    pub(crate) fn room(&self) -> Option<Result<(), Arc<str>>> {
        self.spare.room()
    }

    /// What has to be done to make a snapshot of a state, the one after the last batch, and to drop what it replaces. On
    /// a full disk no second snapshot is kept, and the spare segment has to wait.
    pub(crate) fn compaction(&mut self, state: State, full: bool) -> Job {
        let preamble = Preamble {
            content: Content::Snapshot,
            store: self.store,
            index: 0,
            sequence: self.sequence,
            revision: state.revision,
        };
        Job {
            room: full.then(|| self.spare.room_lock()),
            grown: mem::take(&mut self.grown),
            keep: if full { 1 } else { 2 },
            disk: self.disk.clone(),
            dir: self.dir.clone(),
            preamble,
            state,
            segments: self.sealed.iter().cloned().chain(self.current.as_ref().map(Segment::sealed)).collect(),
            snapshots: self.snapshots.clone(),
        }
    }

    /// Takes note that a compaction failed: the log is as long as it was.
    pub(crate) fn not_compacted(&mut self, grown: u64) {
        self.grown += grown;
    }

    /// Takes note of what a compaction has left.
    pub(crate) fn compacted(&mut self, snapshots: Vec<Sealed>, removed: &[PathBuf]) {
        self.sealed.retain(|segment| !removed.contains(&segment.path));
        self.snapshots = snapshots;
    }

    /// Bytes since the last snapshot was begun.
    pub(crate) fn grown(&self) -> u64 {
        self.grown
    }

    pub(crate) fn segments(&self) -> usize {
        self.sealed.len() + usize::from(self.current.is_some())
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs
    }

    pub(crate) fn close(mut self) -> Result<(), Failure> {
        self.sync()?;
        if let Some(current) = &mut self.current
            && let Err(error) = current.trim(0)
        {
            warn!(%error, "failed to give back the unused end of the log");
        }
        Ok(())
    }
}

fn failure(error: &io::Error) -> Failure {
    let reason = error.to_string().into();
    if is_full(error) { Failure::Full(reason) } else { Failure::Broken(reason) }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
