//! A row of recent events that many watchers read at their own pace.
//!
//! A watcher is a position in the ring, not a queue: publishing costs the same however many there are, and a watcher
//! that stands still holds no memory. One that falls behind the oldest event is told so.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::event::Event;
use crate::revision::Revision;

pub(crate) struct Ring(Mutex<Inner>);

struct Inner {
    /// Oldest first.
    events: VecDeque<Arc<Event>>,
    /// The newest event that belongs here and is gone. All after it are there.
    lost: Revision,
    /// Who waits for the next event, by the number of the watcher.
    waiting: HashMap<u64, Waker>,
    /// Whether events were added since watchers were last woken.
    fresh: bool,
    closed: bool,
}

/// What a watcher finds in a ring.
pub(crate) enum Read {
    Events(Vec<Arc<Event>>),
    /// Events that the watcher has not seen are gone, up to this revision.
    Lost(Revision),
    Closed,
}

impl Ring {
    /// A ring for what happens after a revision.
    pub(crate) fn new(lost: Revision) -> Arc<Self> {
        Arc::new(Ring(Mutex::new(Inner {
            events: VecDeque::new(),
            lost,
            waiting: HashMap::new(),
            fresh: false,
            closed: false,
        })))
    }

    /// Adds an event. True if watchers have to be woken, and nobody was told so before.
    pub(crate) fn push(&self, event: Arc<Event>) -> bool {
        let mut inner = self.lock();
        inner.events.push_back(event);
        !mem::replace(&mut inner.fresh, true)
    }

    /// Removes the oldest event, if it is this one.
    pub(crate) fn forget(&self, revision: Revision) {
        let mut inner = self.lock();
        if inner.events.front().is_some_and(|event| event.revision() == revision) {
            inner.events.pop_front();
            inner.lost = revision;
        }
    }

    pub(crate) fn wake(&self) {
        let mut inner = self.lock();
        inner.fresh = false;
        let waiting = mem::take(&mut inner.waiting);
        drop(inner); // a waker may run anything
        waiting.into_values().for_each(Waker::wake);
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake();
    }

    /// The oldest event, and how many there are.
    pub(crate) fn front(&self) -> Option<(Arc<Event>, usize)> {
        let inner = self.lock();
        inner.events.front().map(|event| (event.clone(), inner.events.len()))
    }

    pub(crate) fn lost(&self) -> Revision {
        self.lock().lost
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().events.len()
    }

    /// The newest revision that is here, or was.
    pub(crate) fn newest(&self) -> Revision {
        let inner = self.lock();
        inner.events.back().map_or(inner.lost, |event| event.revision())
    }

    /// Takes over from `wider`, which has them all, the events after a revision for which `wanted` holds and that are
    /// not here yet.
    pub(crate) fn reach_back(&self, after: Revision, wider: &Ring, wanted: impl Fn(&Event) -> bool) {
        let mut inner = self.lock();
        if after >= inner.lost {
            return;
        }
        let wider = wider.lock();
        let start = wider.events.partition_point(|event| event.revision() <= after);
        let missing = wider.events.range(start..).take_while(|event| event.revision() <= inner.lost);
        let missing: Vec<_> = missing.filter(|event| wanted(event)).cloned().collect();
        for event in missing.into_iter().rev() {
            inner.events.push_front(event);
        }
        inner.lost = after;
    }

    /// Whether there is nothing for a watcher that has seen everything up to a revision.
    pub(crate) fn is_read(&self, seen: Revision) -> bool {
        let inner = self.lock();
        inner.lost <= seen && inner.events.back().is_none_or(|event| event.revision() <= seen)
    }

    /// Up to `most` events after `seen`, if there are any.
    pub(crate) fn read(&self, seen: Revision, most: usize) -> Option<Read> {
        self.lock().read(seen, most)
    }

    /// Up to `most` events after `seen`, or a wake-up when there are some.
    pub(crate) fn poll(&self, watcher: u64, seen: Revision, most: usize, cx: &mut Context<'_>) -> Poll<Read> {
        let mut inner = self.lock();
        if let Some(read) = inner.read(seen, most) {
            return Poll::Ready(read);
        }
        match inner.waiting.get_mut(&watcher) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => drop(inner.waiting.insert(watcher, cx.waker().clone())),
        }
        Poll::Pending
    }

    /// Takes a watcher off the list of those who wait.
    pub(crate) fn leave(&self, watcher: u64) {
        self.lock().waiting.remove(&watcher);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics while it holds a ring")
    }
}

impl Inner {
    fn read(&self, seen: Revision, most: usize) -> Option<Read> {
        if seen < self.lost {
            return Some(Read::Lost(self.lost));
        }
        let start = self.events.partition_point(|event| event.revision() <= seen);
        let events: Vec<_> = self.events.range(start..).take(most).cloned().collect();
        if events.is_empty() { self.closed.then_some(Read::Closed) } else { Some(Read::Events(events)) }
    }
}
