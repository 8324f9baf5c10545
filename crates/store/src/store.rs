//! The handle that everybody else holds.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::{oneshot, watch};

use crate::error;
use crate::key::{Key, Scope};
use crate::log::{Lengths, Log, Origin};
use crate::metrics::{self, Counters, Metrics};
use crate::object::Object;
use crate::options::{Durability, Options};
use crate::present::Present;
use crate::queue::{Pending, Queue};
use crate::recover::{Recovered, Recovery, recover};
use crate::revision::Revision;
use crate::spare::Spare;
use crate::state::{State, View};
use crate::watch::Watch;
use crate::write::{Committed, Write};
use crate::writer::{Readiness, Writer};

/// A store of objects. Clones are handles to the same store; when the last is dropped, what was sent is committed and the
/// store is closed.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    present: Arc<Present>,
    queue: Arc<Queue>,
    readiness: watch::Receiver<Readiness>,
    counters: Arc<Counters>,
    recovery: Recovery,
    largest_object: usize,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// The state that a list is to be read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum At {
    /// The latest one.
    #[default]
    Latest,
    /// That of a revision, or an error if it is no longer known.
    Exactly(Revision),
}

/// Objects of one state, in key order.
#[derive(Debug, Clone)]
pub struct List {
    /// The revision of the state.
    pub revision: Revision,
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// How many follow that were not asked for.
    pub remaining: usize,
}

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page<'a> {
    /// Only what comes after this path, the `namespace/name` of the last object of the page before.
    pub after: Option<&'a str>,
    /// At most so many objects.
    pub limit: Option<usize>,
}

impl Store {
    /// Opens a store, and recovers what is on disk. Blocks until that is read.
    pub fn open(options: Options) -> Result<Self, error::Open> {
        let present = Arc::new(Present::new(options.window, options.history));
        let queue = Arc::new(Queue::new(options.queue));
        let (log, recovery) = match &options.durability {
            Durability::Ephemeral => {
                present.begin(State::empty(options.first_revision));
                (None, Recovery::default())
            }
            Durability::Disk(dir) => {
                let (log, recovery) = open_log(&options, dir, &present, &queue)?;
                (Some(log), recovery)
            }
        };
        let counters = Arc::new(Counters::default());
        let largest_object = options.largest_object.min(u32::MAX as usize / 2); // lengths on disk have 32 bits
        let writer = Writer::new(options, queue.clone(), present.clone(), counters.clone(), log);
        let readiness = writer.readiness();
        let inner = Inner {
            present,
            queue: queue.clone(),
            readiness: readiness.subscribe(),
            counters,
            recovery,
            largest_object,
            writer: Mutex::default(),
        };
        let writer = thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                readiness.send_replace(Readiness::Failed { reason: PANICKED.into() });
                queue.abandon();
            }
        });
        let writer = writer.map_err(|source| error::Open::Io {
            doing: "start the writer of",
            path: "the store".into(),
            source,
        })?;
        *inner.writer.lock().expect(UNPOISONED) = Some(writer);
        Ok(Store(Arc::new(inner)))
    }

    /// The latest committed revision.
    pub fn revision(&self) -> Revision {
        self.view().revision()
    }

    /// The latest committed state. Costs nothing, and stays as it is.
    pub fn view(&self) -> View {
        self.0.present.view()
    }

    /// A recent state.
    pub fn view_at(&self, at: At) -> Result<View, error::Read> {
        match at {
            At::Latest => Ok(self.view()),
            At::Exactly(revision) => self.0.present.view_at(revision),
        }
    }

    /// The latest committed state of an object.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.view().get(key).cloned()
    }

    /// All objects of a scope.
    pub fn list(&self, scope: &Scope, at: At) -> Result<List, error::Read> {
        self.page(scope, at, Page::default())
    }

    /// Some objects of a scope. When more follow, the state is held for a while, so that the next page can be read from
    /// the same one with [`At::Exactly`].
    pub fn page(&self, scope: &Scope, at: At, page: Page<'_>) -> Result<List, error::Read> {
        let view = self.view_at(at)?;
        let limit = page.limit.unwrap_or(usize::MAX);
        let objects: Vec<_> = view.0.scope(scope, page.after).take(limit).cloned().collect();
        let remaining = match objects.last() {
            Some(last) if objects.len() == limit => view.count(scope, Some(last.key.path())),
            _ => 0,
        };
        if remaining > 0 {
            self.hold(&view);
        }
        Ok(List { revision: view.revision(), objects, remaining })
    }

    /// Holds a state for a while for whoever has read a part of it, as [`Store::page`] does.
    pub fn hold(&self, view: &View) {
        self.0.present.history.hold(view, Instant::now());
    }

    /// Watches what happens in a scope after a revision. An error tells that the watcher has to list first.
    pub fn watch(&self, scope: &Scope, after: Revision) -> Result<Watch, error::Read> {
        let current = self.revision();
        if after > current {
            return Err(error::Read::Future { requested: after, current });
        }
        self.0.present.hub.watch(scope, after)
    }

    /// The latest state and a watch of what happens in a scope after it.
    pub fn view_and_watch(&self, scope: &Scope) -> (View, Watch) {
        loop {
            let view = self.view();
            // Fails only if a whole window of events passed since the line before.
            if let Ok(watch) = self.0.present.hub.watch(scope, view.revision()) {
                return (view, watch);
            }
        }
    }

    /// Waits until the store has come to a revision.
    pub async fn reached(&self, revision: Revision) {
        self.0.present.reached(revision).await;
    }

    /// Commits a write, or says why not. When this returns, the write is durable and can be read. Dropping the future
    /// does not take the write back.
    pub async fn commit(&self, write: Write) -> Result<Committed, error::Commit> {
        let (size, limit) = (write.size(), self.0.largest_object);
        if size > limit {
            return Err(error::Commit::TooLarge { key: write.key, size, limit });
        }
        let (reply, outcome) = oneshot::channel();
        if !self.0.queue.send(Pending { write, reply }).await {
            return Err(self.closed());
        }
        // A writer that ends as it should answers everybody first.
        outcome.await.unwrap_or_else(|_| Err(error::Commit::Failed { reason: PANICKED.into() }))
    }

    /// Whether the store takes writes.
    pub fn readiness(&self) -> Readiness {
        self.0.readiness.borrow().clone()
    }

    /// Follows whether the store takes writes.
    pub fn readiness_changes(&self) -> watch::Receiver<Readiness> {
        self.0.readiness.clone()
    }

    /// What was found when the store was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.0.recovery
    }

    /// Figures.
    pub fn metrics(&self) -> Metrics {
        let counters = &self.0.counters;
        let state = self.view();
        let (past_states, past_bytes) = self.0.present.history.size();
        let (watchers, events, event_bytes) = self.0.present.hub.size();
        Metrics {
            objects: state.0.len(),
            object_bytes: state.0.bytes(),
            past_states,
            past_bytes,
            events,
            event_bytes,
            watchers,
            writes: metrics::get(&counters.writes),
            refused: metrics::get(&counters.refused),
            batches: metrics::get(&counters.batches),
            syncs: metrics::get(&counters.syncs),
            log_bytes: metrics::get(&counters.log_bytes),
            segments: metrics::get(&counters.segments),
            snapshots: metrics::get(&counters.snapshots),
        }
    }

    /// Closes the store for all who hold it: commits what was sent, ends the watches and gives the directory free.
    /// Reading goes on to work.
    pub async fn close(&self) {
        self.0.queue.close();
        let mut readiness = self.0.readiness.clone();
        // An error means that the writer is gone, which is what is waited for.
        let _ = readiness.wait_for(|readiness| *readiness == Readiness::Closed).await;
    }

    fn closed(&self) -> error::Commit {
        match self.readiness() {
            Readiness::Failed { reason } => error::Commit::Failed { reason },
            Readiness::Ready | Readiness::Full { .. } | Readiness::Closed => error::Commit::Closed,
        }
    }
}

const PANICKED: &str = "the writer panicked";
const UNPOISONED: &str = "nothing panics while it holds the writer's handle";

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
        // Waits, so that the directory is free for the next one. A panic of the writer was told as a failure.
        if let Ok(writer) = self.writer.get_mut()
            && let Some(writer) = writer.take()
        {
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store at revision {}", self.revision())
    }
}

fn open_log(
    options: &Options,
    dir: &Path,
    present: &Present,
    queue: &Arc<Queue>,
) -> Result<(Log, Recovery), error::Open> {
    let io = |doing| move |source: io::Error| error::Open::Io { doing, path: dir.to_owned(), source };
    options.disk.create_dir(dir).map_err(io("create"))?;
    let lock = options.disk.lock(&dir.join("lock")).map_err(io("lock"))?;
    let lock = lock.map_err(|holder| error::Open::Locked { dir: dir.to_owned(), holder })?;

    let recovered = recover(&*options.disk, dir, present)?;
    let start = recovered
        .as_ref()
        .map_or(options.first_revision, |recovered| Revision(recovered.state.revision.0 + Revision::LEAP));
    let Recovered { store, state, sequence, unconfirmed, segments, snapshots, replayed, report } =
        recovered.unwrap_or_else(|| Recovered::nothing(random()));
    let notify = {
        let queue = queue.clone();
        Box::new(move || queue.notify())
    };
    let spare =
        Spare::new(options.disk.clone(), dir, options.retry, notify).map_err(io("start a thread for"))?;
    let origin = Origin {
        disk: options.disk.clone(),
        dir: dir.to_owned(),
        lock,
        lengths: Lengths { first: options.segment_bytes.0, largest: options.segment_bytes.1 },
        spare,
        store,
        sealed: segments,
        snapshots,
        sequence,
        unconfirmed,
        replayed,
    };
    let log = Log::open(origin, start).map_err(io("start the log in"))?;
    present.leap(state, start);
    Ok((log, report))
}

/// A number that no other store has, as far as chance goes.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
