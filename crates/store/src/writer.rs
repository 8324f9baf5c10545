//! The one thread that changes things: it takes what waits, checks conditions, gives out revisions, appends, syncs, and
//! then shows the result and answers. Everything in between is nobody's business.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use std::{io, mem};

use tokio::sync::watch;
use tracing::{error, warn};

use crate::compact::Compacted;
use crate::error;
use crate::event::Event;
use crate::log::{Failure, Log};
use crate::metrics::{self, Counters};
use crate::options::Options;
use crate::present::Present;
use crate::queue::{Bite, Pending, Queue, Work};
use crate::record::Batch;
use crate::state::State;
use crate::write::{Change, Committed, Write};

/// So many writes in one sync mean that more are about to come, and that they should share the next one. Two clients that
/// write one thing after the other never get there: they would only wait.
const COMPANY: usize = 3;

/// Whether a store takes writes. Reads and watches go on in any case, until it is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It does.
    Ready,
    /// It takes deletions, as long as the reserve lasts. Becomes ready again when there is room.
    Full {
        /// What the operating system said.
        reason: Arc<str>,
    },
    /// It takes none until it is opened again.
    Failed {
        /// What the operating system said.
        reason: Arc<str>,
    },
    /// It was closed.
    Closed,
}

pub(crate) struct Writer {
    options: Options,
    queue: Arc<Queue>,
    present: Arc<Present>,
    readiness: watch::Sender<Readiness>,
    counters: Arc<Counters>,
    /// None for a store that keeps nothing.
    log: Option<Log>,
    batch: Batch,
    compaction: Option<Compaction>,
    /// Not to be tried again before, after a compaction failed.
    compact_after: Option<Instant>,
    /// When what was acknowledged without a sync has to be synced.
    sync_by: Option<Instant>,
    /// When to let go of what has become too old.
    trim_at: Option<Instant>,
}

/// A compaction that is under way.
struct Compaction {
    thread: JoinHandle<()>,
    result: mpsc::Receiver<io::Result<Compacted>>,
    /// Bytes of log that it replaces.
    grown: u64,
}

/// A write that passed its conditions, or did not, and waits for the log.
struct Staged {
    pending: Pending,
    outcome: Result<Arc<Event>, error::Commit>,
}

impl Writer {
    pub(crate) fn new(
        options: Options,
        queue: Arc<Queue>,
        present: Arc<Present>,
        counters: Arc<Counters>,
        log: Option<Log>,
    ) -> Self {
        let readiness = watch::Sender::new(match &log {
            Some(log) if !log.is_begun() => Readiness::Full { reason: "no room for the log".into() },
            _ => Readiness::Ready,
        });
        Writer {
            options,
            queue,
            present,
            readiness,
            counters,
            log,
            batch: Batch::default(),
            compaction: None,
            compact_after: None,
            sync_by: None,
            trim_at: None,
        }
    }

    pub(crate) fn readiness(&self) -> watch::Sender<Readiness> {
        self.readiness.clone()
    }

    /// Works until the queue is closed.
    pub(crate) fn run(mut self) {
        let bite = Bite { writes: self.options.batch_writes, bytes: self.options.batch_bytes };
        while let Work::Writes(writes) = self.queue.take(bite, self.wake_at()) {
            self.look_around();
            let many = writes.len() >= COMPANY;
            if !writes.is_empty() {
                self.commit(writes);
            }
            self.sync_if_due();
            self.trim_if_due();
            self.compact_if_due();
            self.count();
            if many && self.log.is_some() {
                thread::sleep(self.options.gather);
            }
        }
        self.close();
    }

    /// When there is something to do even if nobody writes.
    fn wake_at(&self) -> Option<Instant> {
        [self.sync_by, self.trim_at].into_iter().flatten().min()
    }

    fn commit(&mut self, writes: Vec<Pending>) {
        if let Some(reason) = self.failed() {
            return self.refuse(writes, &|| error::Commit::Failed { reason: reason.clone() });
        }
        let before = self.present.view();
        let mut state = State::clone(&before.0);
        self.batch.clear();
        let staged: Vec<Staged> = writes.into_iter().map(|pending| self.stage(&mut state, pending)).collect();
        if !self.batch.is_empty()
            && let Some(log) = &mut self.log
        {
            let sync = staged.iter().any(|staged| !staged.pending.write.relaxed);
            let use_reserve = matches!(*self.readiness.borrow(), Readiness::Full { .. });
            match log.append(&mut self.batch, before.revision(), sync, use_reserve) {
                Ok(()) if sync => self.sync_by = None,
                Ok(()) => self.sync_by = self.sync_by.or(Some(Instant::now() + self.options.relaxed_for)),
                Err(failure) => return self.not_appended(staged, failure),
            }
        }
        self.publish(state, staged);
    }

    /// Applies a write to a state that nobody sees yet.
    fn stage(&mut self, state: &mut State, mut pending: Pending) -> Staged {
        let outcome = self.apply(state, &mut pending.write);
        Staged { pending, outcome }
    }

    fn apply(&mut self, state: &mut State, write: &mut Write) -> Result<Arc<Event>, error::Commit> {
        if let (Readiness::Full { reason }, Change::Put(_)) = (&*self.readiness.borrow(), &write.change) {
            return Err(error::Commit::Full { reason: reason.clone() });
        }
        let current = state.get(&write.key);
        write.admit(current)?;
        let revision = state.revision.next();
        match &mut write.change {
            Change::Put(draft) => {
                let created = current.map_or(revision, |current| current.created);
                let object = mem::take(draft).finish(write.key.clone(), revision, created);
                self.batch.put(&object);
                Ok(state.put(object))
            }
            Change::Delete => {
                self.batch.delete(&write.key, revision);
                Ok(state.delete(&write.key, revision).expect("a deletion is admitted only of what is there"))
            }
        }
    }

    /// Shows the new state and answers. Also those that were refused: what refused them may be in this very batch, and
    /// was not durable before.
    fn publish(&mut self, state: State, staged: Vec<Staged>) {
        let events: Vec<Arc<Event>> =
            staged.iter().filter_map(|staged| staged.outcome.as_ref().ok().cloned()).collect();
        metrics::add(&self.counters.writes, events.len());
        metrics::add(&self.counters.refused, staged.len() - events.len());
        if !events.is_empty() {
            metrics::add(&self.counters.batches, 1);
            self.present.publish(state, events);
            self.trim_at = self.trim_at.or(Some(Instant::now() + self.options.trim_every));
        }
        for Staged { pending, outcome } in staged {
            let outcome = outcome
                .map(|event| Committed { object: event.object.clone(), previous: event.previous.clone() });
            answer(pending, outcome);
        }
    }

    fn not_appended(&mut self, staged: Vec<Staged>, failure: Failure) {
        match failure {
            Failure::Broken(reason) => {
                self.fail(reason.clone());
                let writes = staged.into_iter().map(|staged| staged.pending).collect();
                self.refuse(writes, &|| error::Commit::Failed { reason: reason.clone() });
            }
            Failure::Full(reason) => {
                let was_ready = *self.readiness.borrow() == Readiness::Ready;
                if was_ready && let Some(log) = &mut self.log {
                    log.make_room();
                    log.give_back();
                }
                self.readiness.send_replace(Readiness::Full { reason: reason.clone() });
                let (deletions, puts): (Vec<_>, Vec<_>) = staged
                    .into_iter()
                    .map(|staged| staged.pending)
                    .partition(|pending| matches!(pending.write.change, Change::Delete));
                self.refuse(puts, &|| error::Commit::Full { reason: reason.clone() });
                if was_ready {
                    self.commit(deletions); // once more, into the space that was given up
                } else {
                    self.refuse(deletions, &|| error::Commit::Full { reason: reason.clone() });
                }
            }
        }
    }

    fn refuse(&self, writes: Vec<Pending>, error: &dyn Fn() -> error::Commit) {
        metrics::add(&self.counters.refused, writes.len());
        for pending in writes {
            answer(pending, Err(error()));
        }
    }

    /// Takes note of what other threads have done.
    fn look_around(&mut self) {
        if let Some(compaction) = &self.compaction {
            match compaction.result.try_recv() {
                Ok(result) => self.compacted(result),
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => self.compacted(Err(io::Error::other("it panicked"))),
            }
        }
        self.look_for_room();
    }

    fn compacted(&mut self, result: io::Result<Compacted>) {
        let (Some(compaction), Some(log)) = (self.compaction.take(), &mut self.log) else { return };
        match result {
            Ok(Compacted { snapshots, removed }) => {
                log.compacted(snapshots, &removed);
                metrics::add(&self.counters.snapshots, 1);
            }
            Err(error) => {
                warn!(%error, "failed to make a snapshot, the log stays as long as it is");
                log.not_compacted(compaction.grown);
                self.compact_after = Some(Instant::now() + self.options.retry);
            }
        }
        compaction.join();
    }

    fn look_for_room(&mut self) {
        let Some(log) = &mut self.log else { return };
        let known = self.readiness.borrow().clone();
        match (known, log.room()) {
            (Readiness::Ready, Some(Err(reason))) => {
                log.give_back();
                self.readiness.send_replace(Readiness::Full { reason });
            }
            (Readiness::Full { .. }, Some(Ok(()))) => drop(self.readiness.send_replace(Readiness::Ready)),
            _ => {} // nothing new, or not known yet
        }
    }

    fn sync_if_due(&mut self) {
        if self.sync_by.is_some_and(|by| Instant::now() >= by)
            && let Some(log) = &mut self.log
        {
            self.sync_by = None;
            if let Err(Failure::Broken(reason) | Failure::Full(reason)) = log.sync() {
                self.fail(reason);
            }
        }
    }

    fn trim_if_due(&mut self) {
        if self.trim_at.is_some_and(|at| Instant::now() >= at) {
            let again = self.present.trim();
            self.trim_at = again.then(|| Instant::now() + self.options.trim_every);
        }
    }

    fn compact_if_due(&mut self) {
        let Some(log) = &mut self.log else { return };
        let view = self.present.view();
        let full = matches!(*self.readiness.borrow(), Readiness::Full { .. });
        let grown = log.grown() >= self.options.snapshot_after.max(view.0.bytes() as u64);
        // On a full disk a snapshot may free a long log, but there is no use in repeating one of the same state.
        let due = grown || full && log.grown() > 0;
        let early = self.compact_after.is_some_and(|after| Instant::now() < after);
        if !due || early || self.compaction.is_some() || self.failed().is_some() {
            return;
        }
        let Some(log) = &mut self.log else { return };
        if let Err(Failure::Broken(reason) | Failure::Full(reason)) = log.sync() {
            return self.fail(reason);
        }
        let job = log.compaction(State::clone(&view.0), full);
        let grown = job.grown;
        let (sender, result) = mpsc::channel();
        let queue = self.queue.clone();
        let spawned = thread::Builder::new().name("store-snapshot".to_owned()).spawn(move || {
            // Nobody to hear it means that the store is gone, and then nobody cares.
            let _ = sender.send(job.run());
            queue.notify();
        });
        match spawned {
            Ok(thread) => self.compaction = Some(Compaction { thread, result, grown }),
            Err(error) => warn!(%error, "failed to start a thread for a snapshot"),
        }
    }

    fn failed(&self) -> Option<Arc<str>> {
        match &*self.readiness.borrow() {
            Readiness::Failed { reason } => Some(reason.clone()),
            Readiness::Ready | Readiness::Full { .. } | Readiness::Closed => None,
        }
    }

    fn fail(&mut self, reason: Arc<str>) {
        error!(%reason, "the disk failed, no more writes are taken");
        self.sync_by = None;
        self.readiness.send_replace(Readiness::Failed { reason });
    }

    fn count(&self) {
        let Some(log) = &self.log else { return };
        let set = |counter: &AtomicU64, value| metrics::set(counter, value);
        set(&self.counters.syncs, log.syncs());
        set(&self.counters.log_bytes, log.grown());
        set(&self.counters.segments, log.segments() as u64);
    }

    fn close(mut self) {
        if let Some(compaction) = self.compaction.take() {
            compaction.join();
        }
        let failed = self.failed().is_some();
        if let Some(log) = self.log.take()
            && !failed
            && let Err(Failure::Broken(reason) | Failure::Full(reason)) = log.close()
        {
            error!(%reason, "failed to close the log");
        }
        self.present.hub.close();
        self.readiness.send_replace(Readiness::Closed);
    }
}

impl Compaction {
    fn join(self) {
        if self.thread.join().is_err() {
            error!("the thread that makes snapshots panicked");
        }
    }
}

/// A caller that no longer waits has its write committed all the same.
fn answer(pending: Pending, outcome: Result<Committed, error::Commit>) {
    let _ = pending.reply.send(outcome);
}
