//! What is to be looked at: keys, each at most once in line and never twice at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, warn};

/// The first wait after a failure; each further one in a row doubles it.
const FIRST_RETRY: Duration = Duration::from_millis(20);
/// No failure waits longer than this.
const LAST_RETRY: Duration = Duration::from_secs(60);

/// When a key is to be looked at again, if nothing changes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Not before something changes.
    Done,
    /// After this time.
    After(Duration),
}

impl Next {
    /// At a time, if there is one. What is due by `now` is due at once.
    pub fn at(at: Option<Timestamp>, now: Timestamp) -> Next {
        let wait = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
        at.map_or(Next::Done, |at| Next::After(wait(at)))
    }
}

/// A queue of keys. Cheap to clone; all clones are the same queue.
#[derive(Debug)]
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    line: Mutex<Line<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct Line<T> {
    /// In the order in which they were added.
    waiting: VecDeque<T>,
    /// The same keys, to find them.
    queued: BTreeSet<T>,
    /// Being worked on.
    running: BTreeSet<T>,
    /// Being worked on, and added again meanwhile.
    again: BTreeSet<T>,
    /// To be added at a time; a key has at most one.
    later: BTreeSet<(Instant, T)>,
    due: BTreeMap<T, Instant>,
    /// How often a key has failed in a row.
    failures: BTreeMap<T, u32>,
    closed: bool,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Ord + Clone + Display> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Ord + Clone + Display> Queue<T> {
    /// An empty one.
    pub fn new() -> Self {
        let line = Line {
            waiting: VecDeque::new(),
            queued: BTreeSet::new(),
            running: BTreeSet::new(),
            again: BTreeSet::new(),
            later: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            closed: false,
        };
        Queue { shared: Arc::new(Shared { line: Mutex::new(line), changed: Notify::new() }) }
    }

    /// Puts a key in line, unless it waits there already. One that is being worked on comes back when that is done.
    pub fn add(&self, key: T) {
        let mut line = self.line();
        line.forget_later(&key);
        line.add(key);
        drop(line);
        self.shared.changed.notify_one();
    }

    /// Puts a key in line after some time. The earliest such wish counts, and [`Queue::add`] replaces it.
    pub fn add_after(&self, key: T, wait: Duration) {
        // A wait beyond what the clock can count never ends.
        let Some(due) = Instant::now().checked_add(wait) else { return };
        self.line().add_at(key, due);
        self.shared.changed.notify_one();
    }

    /// How many keys wait in line now.
    pub fn len(&self) -> usize {
        self.line().waiting.len()
    }

    /// Whether no key waits in line now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes no more keys from the line: [`Queue::run`] ends as soon as what is being worked on is done.
    pub fn close(&self) {
        self.line().closed = true;
        self.shared.changed.notify_one();
    }

    /// Works on keys, up to `concurrency` at once, until the queue is closed. A key whose work fails or panics comes
    /// back after a wait that doubles with each failure in a row.
    ///
    /// To be called once per queue.
    pub async fn run<W, F, E>(&self, concurrency: usize, work: W)
    where
        W: Fn(T) -> F,
        F: Future<Output = Result<Next, E>>,
        E: std::error::Error + 'static,
    {
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < concurrency
                && let Some(key) = self.take()
            {
                let result = AssertUnwindSafe(work(key.clone())).catch_unwind();
                running.push(result.map(|result| (key, result)));
            }
            let (closed, due) = {
                let line = self.line();
                (line.closed, line.later.first().map(|(due, _)| *due))
            };
            if closed && running.is_empty() {
                return;
            }
            // While all hands are busy nobody is waiting for what is due: it would be due again and again.
            let is_free = running.len() < concurrency && !closed;
            tokio::select! {
                biased;
                Some((key, result)) = running.next(), if !running.is_empty() => self.settle(&key, result),
                () = self.shared.changed.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && is_free => {}
            }
        }
    }

    fn take(&self) -> Option<T> {
        let mut line = self.line();
        if line.closed {
            return None;
        }
        line.move_due(Instant::now());
        let key = line.waiting.pop_front()?;
        line.queued.remove(&key);
        line.running.insert(key.clone());
        Some(key)
    }

    fn settle<E: std::error::Error + 'static>(&self, key: &T, result: std::thread::Result<Result<Next, E>>) {
        let mut line = self.line();
        line.running.remove(key);
        let retry = match result {
            Ok(Ok(next)) => {
                line.failures.remove(key);
                match next {
                    Next::Done => None,
                    Next::After(wait) => Some(wait),
                }
            }
            Ok(Err(failure)) => {
                let wait = line.failed(key);
                let error = crate::chain(&failure);
                if crate::is_conflict(&failure) {
                    debug!(%key, retry = ?wait, error, "somebody else was faster, will be tried again");
                } else {
                    warn!(%key, retry = ?wait, error, "failed, will be tried again");
                }
                Some(wait)
            }
            Err(_) => {
                let wait = line.failed(key);
                error!(%key, retry = ?wait, "panicked, will be tried again");
                Some(wait)
            }
        };
        if line.again.remove(key) {
            line.add(key.clone());
        } else if let Some(due) = retry.and_then(|wait| Instant::now().checked_add(wait)) {
            line.add_at(key.clone(), due);
        }
    }

    fn line(&self) -> MutexGuard<'_, Line<T>> {
        // A panic while holding it cannot leave a key half moved: every method finishes its moves or makes none.
        self.shared.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Ord + Clone> Line<T> {
    fn add(&mut self, key: T) {
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.waiting.push_back(key);
        }
    }

    fn add_at(&mut self, key: T, due: Instant) {
        if self.due.get(&key).is_some_and(|earlier| *earlier <= due) {
            return;
        }
        self.forget_later(&key);
        self.due.insert(key.clone(), due);
        self.later.insert((due, key));
    }

    fn forget_later(&mut self, key: &T) {
        if let Some((key, due)) = self.due.remove_entry(key) {
            self.later.remove(&(due, key));
        }
    }

    fn move_due(&mut self, now: Instant) {
        while let Some((due, _)) = self.later.first()
            && *due <= now
            && let Some((_, key)) = self.later.pop_first()
        {
            self.due.remove(&key);
            self.add(key);
        }
    }

    fn failed(&mut self, key: &T) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        *failures = failures.saturating_add(1);
        FIRST_RETRY.saturating_mul(2_u32.saturating_pow(*failures - 1)).min(LAST_RETRY)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no luck")]
    struct NoLuck;

    #[tokio::test(start_paused = true)]
    async fn a_key_added_twice_is_worked_on_once() {
        let queue = Queue::new();
        for key in ["b", "a", "b"] {
            queue.add(key);
        }
        let seen = RefCell::new(Vec::new());
        queue
            .run(1, async |key| {
                seen.borrow_mut().push(key);
                if queue.is_empty() {
                    queue.close();
                }
                Ok::<_, Infallible>(Next::Done)
            })
            .await;
        assert_eq!(seen.into_inner(), ["b", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_worked_on_comes_back_and_never_runs_twice_at_once() {
        let queue = Queue::new();
        queue.add("a");
        let (at_once, runs) = (Cell::new(0), Cell::new(0));
        queue
            .run(8, async |key| {
                at_once.set(at_once.get() + 1);
                runs.set(runs.get() + 1);
                assert_eq!(at_once.get(), 1);
                if runs.get() < 3 {
                    queue.add(key);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                } else {
                    queue.close();
                }
                at_once.set(at_once.get() - 1);
                Ok::<_, Infallible>(Next::Done)
            })
            .await;
        assert_eq!(runs.get(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_wish_counts_and_adding_replaces_it() {
        let (queue, begin) = (Queue::new(), Instant::now());
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(30));
        queue.add_after("b", Duration::from_secs(2));
        queue.add("b");
        queue.add_after("c", Duration::MAX);
        let seen = RefCell::new(Vec::new());
        queue
            .run(2, async |key| {
                seen.borrow_mut().push((key, begin.elapsed().as_secs()));
                if key == "a" {
                    queue.close();
                }
                Ok::<_, Infallible>(Next::Done)
            })
            .await;
        assert_eq!(seen.into_inner(), [("b", 0), ("a", 5)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_and_panics_come_back_later_and_later() {
        let (queue, begin) = (Queue::new(), Instant::now());
        queue.add("a");
        let at = RefCell::new(Vec::new());
        queue
            .run(2, async |_| {
                at.borrow_mut().push(begin.elapsed().as_millis());
                match at.borrow().len() {
                    1 | 4 => Err(NoLuck),
                    2 => panic!("out of luck"),
                    3 => Ok(Next::After(Duration::from_secs(1))),
                    _ => {
                        queue.close();
                        Ok(Next::Done)
                    }
                }
            })
            .await;
        assert_eq!(at.into_inner(), [0, 20, 60, 1060, 1080], "and a success forgets what failed");
    }

    /// Counts how often a future asked to be polled again.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_while_all_hands_are_busy_keeps_nobody_awake() {
        let queue = Queue::new();
        queue.add("a");
        queue.add_after("b", Duration::from_secs(1));
        let work = async |_| {
            std::future::pending::<()>().await;
            Ok::<_, Infallible>(Next::Done)
        };
        let mut run = pin!(queue.run(1, work));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        assert!(run.as_mut().poll(&mut context).is_pending());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(run.as_mut().poll(&mut context).is_pending());
        wakes.0.store(0, Ordering::SeqCst);
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "it waits for its turn, and not for the clock");
    }
}
