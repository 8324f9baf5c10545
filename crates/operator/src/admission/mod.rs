//! The admission loop: takes in what changed, lets [`rules::quota`] decide about the heads of all queues, and hands what
//! comes of it to whoever writes.
//!
//! It runs when something changed, again at once as long as that gets somebody in or out, and again after a moment as long as
//! there is somebody whose turn it was not. What is decided counts at once; writing follows, and a write that fails takes the
//! decision back.

mod state;
mod writes;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reconcile::{Key, Next, Queue, Tasks};
use rules::{
    quota::{
        names::{ClusterQueueName, WorkloadKey},
        share::Share,
        standing::Standing,
    },
    workload::is_admissible,
};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use types::{Amount, kueue::Workload};

use crate::{Context, Error, caches::LEADS_TO, error::is_outdated};
pub(crate) use state::Sample;
use state::State;
use writes::{Intent, Verdict};

/// How many writes are under way at once.
const WRITES: usize = 32;
/// How long it may take until it is said why a Workload waits, where none gets in.
const VERDICT: Duration = Duration::from_millis(50);
/// How long it may take at most. Where many get in, who waits now is in before anybody has read why not, and whatever was
/// missing is another amount by then.
const LATE_VERDICT: Duration = Duration::from_secs(3);
/// How often it is asked meanwhile whether there is time to write it.
const LEISURE: Duration = Duration::from_millis(250);
/// How long a cache is given to see what others wrote.
const BEHIND: Duration = Duration::from_millis(20);
/// How long to wait after a write that the cluster did not take.
const TROUBLE: Duration = Duration::from_secs(1);

/// How long after a cycle that came to nothing the next one is at the earliest (SC-1): where much changes, much of it is
/// looked at together. After a quiet time there is nothing to wait for.
#[derive(Default)]
struct Pause(Duration);

impl Pause {
    const FIRST: Duration = Duration::from_millis(1);
    const LAST: Duration = Duration::from_millis(10);

    /// The pause after one more cycle that came to nothing. The more there were, the longer it is.
    fn after_nothing(&mut self) -> Duration {
        let next = (self.0 * 2).clamp(Pause::FIRST, Pause::LAST);
        std::mem::replace(&mut self.0, next)
    }

    /// A cycle got somewhere.
    fn end(&mut self) {
        self.0 = Duration::ZERO;
    }
}

/// Where a cycle led.
enum Came {
    /// The next one may get somewhere even if nothing changes.
    Further,
    /// Nobody got in or has to go, and it is the turn of those behind.
    Onward,
    /// Nothing will come of another one before something changes.
    Nowhere,
}

/// What others may know of the admission loop.
#[derive(Default)]
pub(crate) struct Handle {
    state: Mutex<State>,
    intents: Mutex<BTreeMap<Key, Vec<Intent>>>,
    /// How many of them say that somebody gets in or has to go.
    pressing: AtomicUsize,
    writes: Queue<Key>,
    /// Workloads whose admission could not be written, to be tried again.
    put_off: Queue<Key>,
}

impl Handle {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a decision leaves the state as it was before or after a step, and the next event repairs it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn intents(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<Intent>>> {
        self.intents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many Workloads wait for a ClusterQueue: those that are tried, and those that are not until something
    /// changes.
    pub(crate) fn waiting(&self, cluster_queue: &str) -> (usize, usize) {
        self.state().waiting(&ClusterQueueName::from(cluster_queue))
    }

    /// The share of what it borrows of a ClusterQueue, as its status shows it.
    pub(crate) fn share_of_queue(&self, cluster_queue: &str) -> Option<Share> {
        self.state().share_of_queue(cluster_queue)
    }

    /// The same of a Cohort.
    pub(crate) fn share_of_cohort(&self, cohort: &str) -> Option<Share> {
        self.state().share_of_cohort(cohort)
    }

    /// How many of some Workloads are not tried in a ClusterQueue until something changes.
    pub(crate) fn parked(&self, cluster_queue: &str, mut of: impl Iterator<Item = Key>) -> usize {
        self.state().parked(cluster_queue, &mut of.by_ref().map(|key| workload_key(&key)))
    }

    /// What those ask for together who wait for a ClusterQueue.
    pub(crate) fn pending_resources(&self, cluster_queue: &str) -> BTreeMap<String, Amount> {
        self.state().pending_resources(cluster_queue)
    }

    /// How a Cohort stands with all that is below it.
    pub(crate) fn standing(&self, cohort: &str) -> Option<Standing> {
        self.state().standing(cohort)
    }

    /// The Cohorts above a ClusterQueue.
    pub(crate) fn above(&self, cluster_queue: &str) -> Vec<String> {
        self.state().above(cluster_queue)
    }

    /// Who waits for a ClusterQueue, in its order; `None` if the loop does not know it, or there is no loop.
    pub(crate) fn order(&self, cluster_queue: &str) -> Option<Vec<Key>> {
        self.state().order(cluster_queue)
    }

    /// Whether some Workload holds quota in a ClusterQueue, one whose admission is not written yet included.
    pub(crate) fn holds_any(&self, cluster_queue: &str) -> bool {
        self.state().holds_any(cluster_queue)
    }

    fn intend(&self, key: Key, mut intent: Intent) {
        let mut intents = self.intents();
        let line = intents.entry(key.clone()).or_default();
        // What was to be said of one that waits is outdated by whatever is decided next. If that is to be said instead, it
        // has waited for as long.
        let outdated = line.extract_if(.., |before| matches!(before, Intent::Wait(_))).next();
        if let (Intent::Wait(verdict), Some(Intent::Wait(outdated))) = (&mut intent, outdated) {
            verdict.since = outdated.since;
        }
        let waits = matches!(intent, Intent::Wait(_));
        if !waits {
            self.pressing.fetch_add(1, Ordering::Relaxed);
        }
        line.push(intent);
        // Who gets in or has to go is told before who waits, and why one waits only if the next few cycles do not say
        // otherwise.
        let later = waits && line.len() == 1;
        drop(intents);
        if later {
            self.writes.add_after(key, VERDICT);
        } else {
            self.writes.add(key);
        }
    }

    /// Whether it is time to write why somebody waits.
    fn is_due(&self, verdict: &Verdict) -> bool {
        self.pressing.load(Ordering::Relaxed) == 0 || verdict.since.elapsed() >= LATE_VERDICT
    }

    /// Puts back what is not written, unless something else was decided meanwhile.
    fn still_intend(&self, key: &Key, intent: Intent) {
        self.intents().entry(key.clone()).or_insert_with(|| vec![intent]);
    }

    fn next_intent(&self, key: &Key) -> Option<Intent> {
        let mut intents = self.intents();
        let line = intents.get_mut(key)?;
        let intent = (!line.is_empty()).then(|| line.remove(0));
        if line.is_empty() {
            intents.remove(key);
        }
        intent
    }
}

/// Starts the loop and the writers.
pub(crate) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let looping = Arc::clone(context);
    tasks.spawn("admission", async move {
        looping.caches.ready().await;
        looping.admission.state().begin(&looping);
        looping.run().await;
    });
    let writing = Arc::clone(context);
    tasks.spawn("admission writes", async move {
        let queue = writing.admission.writes.clone();
        queue.run(WRITES, |key| Arc::clone(&writing).write_intents(key)).await;
    });
    let later = Arc::clone(context);
    tasks.spawn("admission retries", async move {
        let queue = later.admission.put_off.clone();
        let again = |key: Key| {
            let context = Arc::clone(&later);
            async move {
                context.work.inbox.note(|news| {
                    news.workloads.insert(key);
                });
                Ok::<_, Error>(Next::Done)
            }
        };
        queue.run(1, again).await;
    });
}

impl Context {
    /// Who waits for a ClusterQueue, as far as the caches tell.
    pub(crate) fn waiting_for(&self, cluster_queue: &str) -> Vec<Arc<Workload>> {
        let queues = self.caches.local_queues.by(LEADS_TO, cluster_queue);
        let all = queues.iter().flat_map(|queue| self.caches.workloads_in(&Key::of(&**queue)));
        let waits = |workload: &Arc<Workload>| {
            is_admissible(workload)
                && state::home(&self.caches, workload).is_some_and(|home| home.as_str() == cluster_queue)
        };
        all.filter(waits).collect()
    }

    async fn run(&self) {
        let mut pause = Pause::default();
        loop {
            match self.cycle() {
                Came::Further => {
                    pause.end();
                    tokio::task::yield_now().await;
                }
                Came::Onward => sleep_until(Instant::now() + pause.after_nothing()).await,
                Came::Nowhere => {
                    let earliest = Instant::now() + pause.after_nothing();
                    self.work.inbox.changed().await;
                    sleep_until(earliest).await;
                }
            }
        }
    }

    /// One cycle.
    fn cycle(&self) -> Came {
        let news = self.work.inbox.take();
        let started = std::time::Instant::now();
        let now = self.clock.now();
        let mut state = self.admission.state();
        if !news.is_empty() {
            state.absorb(self, news, now);
        }
        let outcome = state.cycle(self, now);
        drop(state);
        if outcome.decided == 0 {
            return Came::Nowhere;
        }
        self.metrics.attempt(outcome.admitted, started.elapsed());
        if outcome.admitted {
            info!(heads = outcome.decided, took = ?started.elapsed(), "admission cycle");
        } else {
            debug!(heads = outcome.decided, took = ?started.elapsed(), "admission cycle");
        }
        for (workload, intent) in outcome.intents {
            self.admission.intend(key_of(&workload), intent);
        }
        match (outcome.again, outcome.onward) {
            (true, _) => Came::Further,
            (false, true) => Came::Onward,
            (false, false) => Came::Nowhere,
        }
    }

    /// An admission is written, and the cache knows it. Whatever the cache says of the Workload from now on is true, even
    /// that it waits again: it may have been evicted before the loop came to look.
    fn written(&self, key: &Key) {
        if self.admission.state().no_longer_assumed(&workload_key(key)) {
            self.work.inbox.note(|news| {
                news.workloads.insert(key.clone());
            });
        }
    }

    /// Takes back a decision that could not be written, and looks at its Workload again after a while.
    fn take_back(&self, key: &Key, again: Duration) {
        self.admission.state().forget(self, &workload_key(key));
        self.admission.put_off.add_after(key.clone(), again);
    }

    /// The same for a decision that was refused.
    fn refused(&self, key: &Key, what: &'static str, error: &kube::Error) {
        // Somebody else changed it, or it is gone: the cache will know, and the next decision is about that.
        if is_outdated(error) {
            debug!(workload = %key, what, "not written, because it changed meanwhile");
            return self.take_back(key, BEHIND);
        }
        warn!(workload = %key, what, error = %reconcile::chain(error), "could not be written");
        self.take_back(key, TROUBLE);
    }
}

fn key_of(workload: &WorkloadKey) -> Key {
    Key::new(&*workload.namespace, &*workload.name)
}

fn workload_key(key: &Key) -> WorkloadKey {
    WorkloadKey::new(&key.namespace, &key.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(message: &str, since: Instant) -> Verdict {
        let message = message.to_owned();
        Verdict { uid: "1".to_owned(), reason: "Pending", message, requests: Vec::new(), since }
    }

    #[test]
    fn why_somebody_waits_is_written_at_leisure_but_not_for_ever() {
        let handle = Handle::default();
        let now = Instant::now();
        let long_ago = now.checked_sub(LATE_VERDICT).expect("a time before now");
        assert!(handle.is_due(&verdict("first", now)), "nothing else is to be written");
        let admitted = Intent::Admit {
            uid: "2".to_owned(),
            admission: types::kueue::Admission::default(),
            considered: String::new(),
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        handle.intend(Key::new("ns", "other"), admitted);
        assert!(!handle.is_due(&verdict("first", now)), "somebody gets in");
        assert!(handle.is_due(&verdict("first", long_ago)), "it is late");
        // What is said instead has waited for as long.
        let key = Key::new("ns", "one");
        handle.intend(key.clone(), Intent::Wait(verdict("first", long_ago)));
        handle.intend(key.clone(), Intent::Wait(verdict("second", now)));
        let Some(Intent::Wait(said)) = handle.next_intent(&key) else { panic!("it waits") };
        assert_eq!((said.message.as_str(), said.since), ("second", long_ago));
        assert!(handle.next_intent(&key).is_none(), "what is outdated is not said");
    }

    #[test]
    fn sc_1_cycles_that_come_to_nothing_are_further_and_further_apart() {
        let mut pause = Pause::default();
        let mut pauses =
            |number: usize| -> Vec<u128> { (0..number).map(|_| pause.after_nothing().as_millis()).collect() };
        assert_eq!(pauses(7), [0, 1, 2, 4, 8, 10, 10]);
        pause.end();
        assert_eq!(
            pause.after_nothing(),
            Duration::ZERO,
            "the first after one that got somewhere is at once"
        );
    }
}
