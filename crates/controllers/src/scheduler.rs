//! The scheduler: gives pods to nodes by [`rules::schedule`], and says why when it cannot.
//!
//! One loop owns the snapshot and the pods that wait. Changes of nodes and pods come in as keys and are taken in before
//! the next decision; a decision counts at once, and is written while the next ones are taken. A write that fails is
//! taken back, and the pod waits again.

mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use reconcile::{Change, Key};
use rules::node::ending;
use rules::schedule::preempt::{self, Preemption, Room};
use rules::schedule::{self, DEFAULT_SCHEDULER, Placement, Pod, Snapshot, Waiting};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tracing::{debug, warn};

use crate::Run;
use crate::context::Context;

/// Writes that are under way at once.
const AT_ONCE: usize = 64;
/// Decisions between two looks at what has changed.
const BATCH: usize = 256;
/// A pod whose write failed waits for so long, and each further time in a row twice as long, but no longer than
/// [`LAST_RETRY`].
const RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// So often those that fit nowhere are tried again although nothing has changed that should make a difference.
const FLUSH: Duration = Duration::from_secs(5 * 60);

/// What has changed and was not taken in yet.
#[derive(Default)]
struct News {
    changed: Mutex<Changed>,
    told: Notify,
}

#[derive(Default)]
struct Changed {
    pods: BTreeSet<Key>,
    nodes: BTreeSet<Key>,
    namespaces: BTreeSet<Key>,
    /// Pods that are gone, by uid: their name may be another's by now.
    gone: BTreeSet<String>,
}

impl News {
    fn changed(&self) -> MutexGuard<'_, Changed> {
        // Only sets are changed under it, one entry at a time.
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut Changed)) {
        change(&mut self.changed());
        self.told.notify_one();
    }
}

/// Says what the scheduler watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let kinds = &context.kinds;
    let (pods, nodes, namespaces) = (kinds.pods.wanted(), kinds.nodes.wanted(), kinds.namespaces.wanted());
    let budgets = kinds.disruption_budgets.wanted();
    let news = Arc::new(News::default());
    let told = Arc::clone(&news);
    pods.on_change(move |change| {
        if !is_news(change) {
            return;
        }
        let replaced = |old: &&Arc<k8s_openapi::api::core::v1::Pod>| {
            change.new.is_none_or(|new| new.metadata.uid != old.metadata.uid)
        };
        let gone = change.old.filter(replaced).and_then(|old| old.uid());
        told.tell(|changed| {
            changed.gone.extend(gone);
            changed.pods.insert(change.key.clone());
        });
    });
    let told = Arc::clone(&news);
    nodes.on_change(move |change| told.tell(|changed| changed.nodes.extend([change.key.clone()])));
    let told = Arc::clone(&news);
    namespaces.on_change(move |change| told.tell(|changed| changed.namespaces.extend([change.key.clone()])));
    let context = context.clone();
    Box::pin(async move {
        pods.ready().await;
        nodes.ready().await;
        namespaces.ready().await;
        budgets.ready().await;
        let scheduler = Scheduler {
            context,
            news,
            snapshot: Snapshot::default(),
            waiting: Waiting::default(),
            given: BTreeSet::new(),
            failures: BTreeMap::new(),
            retries: FuturesUnordered::new(),
            start: 0,
        };
        scheduler.run().await;
    })
}

/// Whether a change of a pod may mean anything here: of one that has a node, most is only how it fares.
fn is_news(change: &Change<'_, k8s_openapi::api::core::v1::Pod>) -> bool {
    let (Some(old), Some(new)) = (change.old, change.new) else { return true };
    let ends = |pod: &k8s_openapi::api::core::v1::Pod| {
        (ending::is_final(pod), pod.metadata.deletion_timestamp.is_some())
    };
    let has_node = new.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    !has_node
        || (&old.metadata.uid, &old.metadata.labels, &old.spec, ends(old))
            != (&new.metadata.uid, &new.metadata.labels, &new.spec, ends(new))
}

struct Scheduler {
    context: Context,
    news: Arc<News>,
    snapshot: Snapshot,
    waiting: Waiting,
    /// Pods that were given a node and do not show it yet, by uid.
    given: BTreeSet<String>,
    /// How often what was decided of a pod could not be written, in a row, by uid.
    failures: BTreeMap<String, u32>,
    /// Pods that are looked at again after a wait.
    retries: FuturesUnordered<BoxFuture<'static, Key>>,
    start: usize,
}

/// What became of a write.
enum Written {
    /// It is done, or moot.
    Done,
    /// The pod has no node after all.
    NotBound(Key, String),
    /// Those that were to go for a pod do not.
    NotPreempted(Key, String),
    /// The pod does not say why it waits.
    NotTold(Key, String),
}

/// What becomes of the node that a pod was promised.
#[derive(Debug)]
enum Nomination {
    /// What it was, or none.
    Kept,
    /// It is promised this one.
    Made(String),
    /// It is promised none any more.
    Off,
}

type Writes = FuturesUnordered<BoxFuture<'static, Written>>;

impl Scheduler {
    async fn run(mut self) {
        let mut writes = Writes::new();
        let mut flush = tokio::time::interval(FLUSH);
        flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.take_in();
            for _ in 0..BATCH {
                if writes.len() >= AT_ONCE {
                    break;
                }
                let Some(pod) = self.waiting.first().cloned() else { break };
                self.decide(pod, &writes);
            }
            // What is decided comes first: there may be thousands to tell.
            while writes.len() < AT_ONCE {
                let Some((pod, why)) = self.waiting.to_tell() else { break };
                self.tell_why(&pod, why, Nomination::Kept, &writes);
            }
            let idle = self.waiting.first().is_none() || writes.len() >= AT_ONCE;
            let news = Arc::clone(&self.news);
            tokio::select! {
                biased;
                Some(written) = writes.next(), if !writes.is_empty() => self.written(written),
                Some(key) = self.retries.next(), if !self.retries.is_empty() => {
                    self.news.tell(|changed| changed.pods.extend([key]));
                }
                () = news.told.notified(), if idle => {}
                _ = flush.tick() => self.waiting.try_again(),
                () = tokio::task::yield_now(), if !idle => {}
            }
        }
    }

    /// Takes in what has changed.
    fn take_in(&mut self) {
        let changed = std::mem::take(&mut *self.news.changed());
        let kinds = self.context.kinds.clone();
        let mut room = false;
        for key in changed.namespaces {
            match kinds.namespaces.get(&key) {
                Some(namespace) => room |= self.snapshot.set_namespace(&key.name, namespace.labels().clone()),
                None => room |= self.snapshot.remove_namespace(&key.name),
            }
        }
        for key in changed.nodes {
            match kinds.nodes.get(&key) {
                Some(node) => room |= self.snapshot.set_node(&node),
                None => room |= self.snapshot.remove_node(&key.name),
            }
        }
        for uid in changed.gone {
            self.given.remove(&uid);
            self.failures.remove(&uid);
            self.waiting.remove(&uid);
            room |= self.snapshot.remove(&uid);
        }
        for key in changed.pods {
            if let Some(pod) = kinds.pods.get(&key) {
                room |= self.take_in_pod(Pod::read(&pod));
            }
        }
        if self.snapshot.keeps_apart() {
            self.waiting.consider_labels();
        }
        if room {
            self.waiting.try_again();
        }
    }

    /// Returns whether the pod makes room, or may draw others near.
    fn take_in_pod(&mut self, pod: Pod) -> bool {
        if pod.ended {
            self.given.remove(&pod.uid);
            self.waiting.remove(&pod.uid);
            return self.snapshot.remove(&pod.uid);
        }
        if let Some(node) = pod.node.clone() {
            self.given.remove(&pod.uid);
            self.failures.remove(&pod.uid);
            self.waiting.remove(&pod.uid);
            let known = self.snapshot.placed(&pod.uid);
            let news = known.is_none_or(|known| {
                (&known.labels, &known.requests, known.deleting, known.priority)
                    != (&pod.labels, &pod.requests, pod.deleting, pod.priority)
            });
            if news {
                self.snapshot.place(pod, &node);
            }
            return news;
        }
        if pod.scheduler != DEFAULT_SCHEDULER || pod.gated || pod.deleting {
            self.waiting.remove(&pod.uid);
            self.snapshot.remove(&pod.uid);
            return false;
        }
        if self.given.contains(&pod.uid) {
            return false;
        }
        if let Some(node) = pod.nominated_node.clone() {
            self.snapshot.promise(pod.clone(), &node);
        }
        self.waiting.add(pod);
        false
    }

    fn decide(&mut self, pod: Pod, writes: &Writes) {
        match schedule::decide(&self.snapshot, &pod, self.start) {
            Ok(Placement { node, evaluated }) => {
                debug!(pod = %key(&pod), node, "placed");
                self.start = self.start.wrapping_add(evaluated);
                self.waiting.remove(&pod.uid);
                self.given.insert(pod.uid.clone());
                self.snapshot.place(pod.clone(), &node);
                if self.snapshot.keeps_apart() {
                    self.waiting.consider_labels();
                }
                writes.push(write::bind(self.context.clone(), key(&pod), pod.uid, node).boxed());
            }
            Err(mut failure) => {
                let budgets = self.context.kinds.disruption_budgets.all();
                let budgets: Vec<&PodDisruptionBudget> = budgets.iter().map(|budget| &**budget).collect();
                let room = preempt::decide(&self.snapshot, &pod, &budgets, &mut failure);
                let why = failure.to_string();
                debug!(pod = %key(&pod), why, ?room, "not placed");
                let nomination = match room {
                    Room::Made(Preemption { node, victims }) => {
                        let victims = victims.iter().filter_map(|uid| self.snapshot.placed(uid).cloned());
                        let victims: Vec<Pod> = victims.collect();
                        let write = write::preempt(self.context.clone(), pod.clone(), node.clone(), victims);
                        writes.push(write.boxed());
                        Nomination::Made(node)
                    }
                    Room::Nowhere if pod.nominated_node.is_some() => Nomination::Off,
                    Room::Nowhere | Room::NotAsked => Nomination::Kept,
                };
                match &nomination {
                    Nomination::Kept => {}
                    // The others that are like it may have to make room for themselves.
                    Nomination::Made(node) => {
                        let mut promised = pod.clone();
                        promised.nominated_node = Some(node.clone());
                        self.snapshot.promise(promised.clone(), node);
                        self.waiting.add(promised);
                    }
                    // Others may have what was kept for it.
                    Nomination::Off => {
                        self.snapshot.break_promise(&pod.uid);
                        self.waiting.try_again();
                        let mut without = pod.clone();
                        without.nominated_node = None;
                        self.waiting.add(without);
                    }
                }
                self.waiting.failed(&pod.uid, why.clone());
                self.tell_why(&pod, why, nomination, writes);
            }
        }
    }

    fn tell_why(&self, pod: &Pod, why: String, nomination: Nomination, writes: &Writes) {
        writes.push(write::tell_why(self.context.clone(), key(pod), why, nomination).boxed());
    }

    /// Looks at a pod again after a wait, longer each time.
    fn later(&mut self, key: Key, uid: &str) {
        let failures = self.failures.entry(uid.to_owned()).or_default();
        let wait = wait_after(*failures);
        *failures = failures.saturating_add(1);
        self.retries.push(tokio::time::sleep(wait).map(move |()| key).boxed());
    }

    fn written(&mut self, written: Written) {
        match written {
            Written::Done => {}
            Written::NotBound(key, uid) => {
                warn!(pod = %key, "failed to bind a pod to its node; it waits again");
                self.given.remove(&uid);
                if self.snapshot.remove(&uid) {
                    self.waiting.try_again();
                }
                self.later(key, &uid);
            }
            Written::NotPreempted(key, uid) | Written::NotTold(key, uid) => self.later(key, &uid),
        }
    }
}

/// How long a pod waits after so many failures before this one.
fn wait_after(failures: u32) -> Duration {
    RETRY.saturating_mul(2_u32.saturating_pow(failures)).min(LAST_RETRY)
}

fn key(pod: &Pod) -> Key {
    Key::new(&pod.namespace, &pod.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn how_a_pod_with_a_node_fares_is_no_news_until_it_ends() {
        let key = Key::new("default", "p");
        let check = |old: &Value, new: &Value, expected: bool| {
            let [old, new] =
                [old, new].map(|pod| Arc::new(serde_json::from_value(pod.clone()).expect("a pod")));
            assert_eq!(is_news(&Change { key: &key, old: Some(&old), new: Some(&new) }), expected);
        };
        let pod = |node: Value, phase: &str| json!({"metadata": {"uid": "u"}, "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}});
        let (waits, placed) = (pod(json!(null), "Pending"), pod(json!("n"), "Pending"));
        check(&waits, &waits, true);
        check(&waits, &placed, true);
        check(&placed, &pod(json!("n"), "Running"), false);
        check(&placed, &pod(json!("n"), "Succeeded"), true);
        for (field, value) in [
            ("labels", json!({"a": "b"})),
            ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("uid", json!("v")),
        ] {
            let mut changed = placed.clone();
            changed["metadata"][field] = value;
            check(&placed, &changed, true);
        }
        let mut released = placed.clone();
        released["metadata"]["resourceVersion"] = json!("5");
        check(&placed, &released, false);
    }

    #[test]
    fn what_cannot_be_written_is_tried_less_and_less_often() {
        let waits = [0, 1, 2, 4, 5, 1000].map(|failures| wait_after(failures).as_millis());
        assert_eq!(waits, [500, 1000, 2000, 8000, 10_000, 10_000]);
    }
}
