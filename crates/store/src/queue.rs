//! What waits for the writer: writes, in the order in which they came, and the news that something else has changed.
//!
//! Writers wait asynchronously for a place in the queue; the thread that empties it takes everything there is, which is
//! how writes that arrive during one sync share the next.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use crate::error;
use crate::write::{Committed, Write};

/// A write and who waits for its outcome.
pub(crate) struct Pending {
    pub(crate) write: Write,
    pub(crate) reply: oneshot::Sender<Result<Committed, error::Commit>>,
}

pub(crate) struct Queue {
    places: Semaphore,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    writes: VecDeque<Pending>,
    /// Something happened that the writer should look at.
    news: bool,
    closed: bool,
    /// The writer waits to be told. While it works, nobody needs to: it looks again when it is done.
    idle: bool,
}

/// What the writer is to do next.
pub(crate) enum Work {
    /// Commit these; none if there is only news, or nothing to do for the time given.
    Writes(Vec<Pending>),
    /// The queue is closed and empty.
    Done,
}

/// How much is taken at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bite {
    pub(crate) writes: usize,
    pub(crate) bytes: usize,
}

impl Queue {
    pub(crate) fn new(places: usize) -> Self {
        Queue { places: Semaphore::new(places), waiting: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds a write when there is a place. False if the queue is closed.
    pub(crate) async fn send(&self, pending: Pending) -> bool {
        let Ok(place) = self.places.acquire().await else { return false };
        let mut waiting = self.waiting();
        if waiting.closed {
            return false;
        }
        place.forget(); // the writer gives it back
        waiting.writes.push_back(pending);
        let idle = waiting.idle;
        drop(waiting);
        if idle {
            self.changed.notify_one();
        }
        true
    }

    /// Makes the writer look around.
    pub(crate) fn notify(&self) {
        self.waiting().news = true;
        self.changed.notify_one();
    }

    /// Takes no more writes. Those in the queue will still be committed.
    pub(crate) fn close(&self) {
        self.places.close();
        self.waiting().closed = true;
        self.changed.notify_one();
    }

    /// Takes no more writes, and leaves those in the queue without an answer: nobody is there to commit them.
    pub(crate) fn abandon(&self) {
        self.close();
        let abandoned = std::mem::take(&mut self.waiting().writes);
        drop(abandoned); // tells whoever waits
    }

    /// Waits for something to do, but not longer than told.
    pub(crate) fn take(&self, bite: Bite, until: Option<Instant>) -> Work {
        let mut waiting = self.waiting();
        while waiting.writes.is_empty() && !waiting.news && !waiting.closed {
            waiting.idle = true;
            let Some(until) = until else {
                waiting = self.changed.wait(waiting).expect(UNPOISONED);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            waiting = self.changed.wait_timeout(waiting, left).expect(UNPOISONED).0;
        }
        waiting.idle = false;
        if waiting.closed && waiting.writes.is_empty() {
            return Work::Done;
        }
        waiting.news = false;
        let (mut count, mut bytes) = (0, 0);
        while count < bite.writes && bytes < bite.bytes && count < waiting.writes.len() {
            bytes += waiting.writes[count].write.size();
            count += 1;
        }
        let taken = waiting.writes.drain(..count).collect();
        drop(waiting);
        self.places.add_permits(count);
        Work::Writes(taken)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect(UNPOISONED)
    }
}

const UNPOISONED: &str = "nothing panics while it holds the queue";
