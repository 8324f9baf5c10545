//! Who waits for a ClusterQueue, in which order, and who is not worth trying until something changes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
};

use jiff::Timestamp;

use super::{
    config::QueueingStrategy,
    flavors::ScanProgress,
    names::{LocalQueueKey, WorkloadKey},
    usage::Usage,
    workload::Workload,
};

/// How a Workload that did not get in goes back into its queue (QU-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// It does not fit, whoever leaves.
    NoFit,
    /// Nobody may be pushed out for it.
    NoCandidates,
    /// It was not even looked at: inactive queue, failed checks, invalid resources.
    Generic,
    /// Its namespace is none that the queue serves.
    NamespaceMismatch,
    /// It would have got in, but for another head.
    FailedAfterNomination,
    /// Others are on their way out for it.
    PendingPreemption,
    /// Others could not be pushed out for it.
    PreemptionFailed,
}

/// A Workload that waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// The Workload.
    pub workload: Workload,
    /// Whether it must not be tried before it is requeued (condition `Requeued=False`).
    pub held_back: bool,
    /// When it may be tried again at the earliest.
    pub not_before: Option<Timestamp>,
    /// Where the next search for flavors goes on.
    pub progress: Option<ScanProgress>,
}

impl Waiting {
    /// A Workload that may be tried at once.
    pub fn new(workload: Workload) -> Waiting {
        Waiting { workload, held_back: false, not_before: None, progress: None }
    }

    /// Whether it may be tried (QU-9). Times are whole seconds, so the second itself counts as past.
    fn is_due(&self, now: Timestamp) -> bool {
        !self.held_back && self.not_before.is_none_or(|time| time <= now)
    }
}

/// The order within a line (QU-2): the most important first, then the oldest.
type Place = (Reverse<i64>, Timestamp, String);

fn place(workload: &Workload) -> Place {
    (Reverse(workload.priority), workload.queued_at, workload.uid.clone())
}

/// Where a Workload stands: with those of its LocalQueue where use decides who comes first, otherwise with all.
type Lane = Option<LocalQueueKey>;

/// Workloads that ask for the same, in one lane.
type Group = (u64, Lane);

/// A Workload and its [shape](Workload::shape), which is asked for more often than it changes.
#[derive(Debug, Clone)]
struct Item {
    waiting: Waiting,
    shape: u64,
}

impl Item {
    fn new(waiting: Waiting) -> Item {
        Item { shape: waiting.workload.shape(), waiting }
    }
}

/// The Workloads that wait for one ClusterQueue. Each of them is in exactly one of three places: in line, parked, or
/// taken out by [`Queue::pop`] (QU-1).
#[derive(Debug, Clone)]
pub struct Queue {
    strategy: QueueingStrategy,
    /// Whether those of LocalQueues come first that used less.
    by_usage: bool,
    /// How much each LocalQueue used; nothing if it is not said.
    usage: HashMap<LocalQueueKey, Usage>,
    /// Who is in line. No lane is empty.
    lines: BTreeMap<Lane, BTreeMap<Place, WorkloadKey>>,
    in_line: HashMap<WorkloadKey, Item>,
    parked: BTreeMap<WorkloadKey, Item>,
    /// Workloads behind one that asks for the same, by what they ask for. As long as that did not fit they are parked;
    /// otherwise the first of them is in line, and the next one follows when it leaves. So a change that may have made
    /// room costs as much as there are shapes, and not as there are Workloads.
    asleep: BTreeMap<Group, BTreeMap<Place, Item>>,
    /// Where each of those is.
    beds: HashMap<WorkloadKey, (Group, Place)>,
    popped: Option<WorkloadKey>,
    /// For whom others are on their way out.
    preemptor: Option<WorkloadKey>,
    /// What did not fit, and will not until something changes.
    hopeless: HashSet<u64>,
    /// Whether something changed since the last [`Queue::pop`].
    retried: bool,
}

impl Queue {
    /// An empty queue.
    pub fn new(strategy: QueueingStrategy) -> Queue {
        Queue {
            strategy,
            by_usage: false,
            usage: HashMap::new(),
            lines: BTreeMap::new(),
            in_line: HashMap::new(),
            parked: BTreeMap::new(),
            asleep: BTreeMap::new(),
            beds: HashMap::new(),
            popped: None,
            preemptor: None,
            hopeless: HashSet::new(),
            retried: false,
        }
    }

    /// Changes who is tried when the first does not get in.
    pub fn set_strategy(&mut self, strategy: QueueingStrategy) {
        self.strategy = strategy;
    }

    /// Changes whether those of LocalQueues come first that used less.
    pub fn set_by_usage(&mut self, by_usage: bool) {
        if self.by_usage == by_usage {
            return;
        }
        self.by_usage = by_usage;
        self.lines.clear();
        self.beds.clear();
        let in_line = std::mem::take(&mut self.in_line).into_values();
        let asleep = std::mem::take(&mut self.asleep).into_values().flat_map(BTreeMap::into_values);
        for item in in_line.chain(asleep).collect::<Vec<_>>() {
            let key = item.waiting.workload.key.clone();
            if self.hopeless.contains(&item.shape) {
                self.put_to_sleep(key, item);
            } else {
                self.put_in_line(key, item);
            }
        }
    }

    /// Says how much a LocalQueue used; `None` forgets it.
    pub fn set_usage(&mut self, queue: &LocalQueueKey, usage: Option<Usage>) {
        match usage {
            Some(usage) => self.usage.insert(queue.clone(), usage),
            None => self.usage.remove(queue),
        };
    }

    /// Puts a Workload in line, or takes note that it changed. One that was popped is left alone until it comes back
    /// (QU-14), and one that is parked stays so unless it asks for something else now (QU-12). Where the search for
    /// flavors stopped is not forgotten (FA-9).
    pub fn push(&mut self, mut waiting: Waiting, now: Timestamp) {
        let key = waiting.workload.key.clone();
        if self.popped.as_ref() == Some(&key) {
            return;
        }
        if waiting.progress.is_none() {
            let before = self.in_line.get(&key).or_else(|| self.parked_item(&key));
            waiting.progress = before.and_then(|item| item.waiting.progress.clone());
        }
        let item = Item::new(waiting);
        let waiting = &item.waiting;
        if let Some(Item { waiting: before, .. }) = self.parked_item(&key) {
            let same = before.workload == waiting.workload
                && before.held_back == waiting.held_back
                && before.not_before == waiting.not_before;
            if same {
                return;
            }
            self.parked.remove(&key);
            self.wake(&key);
        }
        let newcomer = !self.in_line.contains_key(&key);
        if newcomer && !waiting.is_due(now) {
            self.parked.insert(key, item);
        } else if newcomer && self.is_best_effort() && self.hopeless.contains(&item.shape) {
            self.put_to_sleep(key, item);
        } else {
            self.put_in_line(key, item);
        }
    }

    /// Forgets a Workload, wherever it is.
    pub fn remove(&mut self, key: &WorkloadKey) {
        self.parked.remove(key);
        self.wake(key);
        if let Some(item) = self.take_out_of_line(key) {
            self.wake_next(&self.group(&item), |_| true);
        }
        self.popped.take_if(|popped| popped == key);
        self.preemptor.take_if(|preemptor| preemptor == key);
    }

    /// Takes out the Workload whose turn it is.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.retried = false;
        let key = self.first()?.clone();
        let item = self.take_out_of_line(&key)?;
        self.popped = Some(key);
        self.wake_next(&self.group(&item), |_| true);
        Some(item.waiting)
    }

    /// The Workload whose turn it is: of the LocalQueues that used least, where that counts. There, one for whom others are on
    /// their way out comes before all others, or the room made for it would be taken by whoever is next (QU-2, QU-8).
    pub fn first(&self) -> Option<&WorkloadKey> {
        let least = self.lines.keys().map(|lane| self.usage_in(lane)).min()?;
        let sticky = self.sticky().and_then(|key| self.in_line.get_key_value(key));
        if let Some((key, item)) = sticky
            && self.usage_in(&self.lane(&item.waiting.workload)) == least
        {
            return Some(key);
        }
        let lines = self.lines.iter().filter(|(lane, _)| self.usage_in(lane) == least);
        let firsts = lines.filter_map(|(_, line)| line.first_key_value());
        firsts.min_by_key(|(place, _)| *place).map(|(_, key)| key)
    }

    /// The one for whom others are on their way out, if it keeps its place.
    fn sticky(&self) -> Option<&WorkloadKey> {
        self.preemptor.as_ref().filter(|_| self.is_best_effort())
    }

    fn lane(&self, workload: &Workload) -> Lane {
        self.by_usage.then(|| workload.local_queue.clone())
    }

    fn group(&self, item: &Item) -> Group {
        (item.shape, self.lane(&item.waiting.workload))
    }

    fn usage_in(&self, lane: &Lane) -> Usage {
        lane.as_ref().and_then(|queue| self.usage.get(queue)).copied().unwrap_or_default()
    }

    /// Puts a popped Workload back that did not get in: in line to be tried in the next cycle, or parked until
    /// something changes (QU-6, QU-7).
    pub fn requeue(&mut self, waiting: Waiting, how: Requeue, now: Timestamp) {
        let key = waiting.workload.key.clone();
        self.popped.take_if(|popped| *popped == key);
        if how == Requeue::PendingPreemption {
            self.preemptor = Some(key.clone());
        }
        let at_once = match self.strategy {
            QueueingStrategy::StrictFifo => how != Requeue::NamespaceMismatch,
            QueueingStrategy::BestEffortFifo => matches!(
                how,
                Requeue::FailedAfterNomination | Requeue::PendingPreemption | Requeue::PreemptionFailed
            ),
        };
        let more_flavors = waiting.progress.as_ref().is_some_and(ScanProgress::has_more);
        let due = waiting.is_due(now);
        let item = Item::new(waiting);
        if due && (at_once || self.retried || more_flavors) {
            self.put_in_line(key, item);
            return;
        }
        let shape = item.shape;
        let hopeless = self.is_best_effort() && matches!(how, Requeue::NoFit | Requeue::NoCandidates);
        if hopeless {
            self.hopeless.insert(shape);
            self.put_alike_to_sleep(shape);
        }
        if hopeless && due {
            self.put_to_sleep(key, item);
        } else {
            self.parked.insert(key, item);
        }
    }

    /// Puts all parked Workloads in line again that may be tried, since something changed that may have made room
    /// (QU-10). `serves` says whether the ClusterQueue serves a Workload's namespace. True if there was any.
    pub fn retry(&mut self, now: Timestamp, serves: impl Fn(&Workload) -> bool) -> bool {
        self.retried = true;
        self.hopeless.clear();
        let waiting = self.parked.values().map(|item| &item.waiting);
        let due = waiting.filter(|waiting| waiting.is_due(now) && serves(&waiting.workload));
        let freed: Vec<WorkloadKey> = due.map(|waiting| waiting.workload.key.clone()).collect();
        for key in &freed {
            if let Some(item) = self.parked.remove(key) {
                self.put_in_line(key.clone(), item);
            }
        }
        let groups: Vec<Group> = self.asleep.keys().cloned().collect();
        let woken = groups.into_iter().filter(|group| self.wake_next(group, &serves)).count();
        !freed.is_empty() || woken > 0
    }

    /// The Workloads in line and those parked, in numbers. One that was popped counts as in line.
    pub fn len(&self) -> (usize, usize) {
        let behind = |hopeless: bool| {
            let is_so = |(shape, _): &Group| self.hopeless.contains(shape) == hopeless;
            let groups = self.asleep.iter().filter(|(group, _)| is_so(group));
            groups.map(|(_, group)| group.len()).sum::<usize>()
        };
        let in_line = self.in_line.len() + usize::from(self.popped.is_some()) + behind(false);
        (in_line, self.parked.len() + behind(true))
    }

    /// Whether a Workload is parked until something changes.
    pub fn is_parked(&self, key: &WorkloadKey) -> bool {
        let hopeless = || self.beds.get(key).is_some_and(|((shape, _), _)| self.hopeless.contains(shape));
        self.parked.contains_key(key) || hopeless()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// All Workloads but a popped one, in the order of the queue.
    pub fn in_order(&self) -> Vec<&Waiting> {
        let mut all: Vec<&Waiting> = self.items().map(|item| &item.waiting).collect();
        let sticky = self.sticky();
        all.sort_by_cached_key(|Waiting { workload, .. }| {
            (self.usage_in(&self.lane(workload)), sticky != Some(&workload.key), place(workload))
        });
        all
    }

    /// Everybody but a popped one.
    fn items(&self) -> impl Iterator<Item = &Item> {
        let asleep = self.asleep.values().flat_map(BTreeMap::values);
        self.in_line.values().chain(self.parked.values()).chain(asleep)
    }

    /// One that is parked, or behind another.
    fn parked_item(&self, key: &WorkloadKey) -> Option<&Item> {
        let asleep = || self.beds.get(key).and_then(|(group, place)| self.asleep.get(group)?.get(place));
        self.parked.get(key).or_else(asleep)
    }

    /// Parks everybody who asks for the same as one who did not fit (QU-13).
    fn put_alike_to_sleep(&mut self, shape: u64) {
        let alike = self.in_line.values().filter(|item| item.shape == shape);
        let keys: Vec<WorkloadKey> = alike.map(|item| item.waiting.workload.key.clone()).collect();
        for key in keys {
            if let Some(item) = self.take_out_of_line(&key) {
                self.put_to_sleep(key, item);
            }
        }
    }

    fn put_to_sleep(&mut self, key: WorkloadKey, item: Item) {
        let (group, place) = (self.group(&item), place(&item.waiting.workload));
        self.beds.insert(key, (group.clone(), place.clone()));
        self.asleep.entry(group).or_default().insert(place, item);
    }

    /// Takes out one that is behind another.
    fn wake(&mut self, key: &WorkloadKey) -> Option<Item> {
        let (group, place) = self.beds.remove(key)?;
        let alike = self.asleep.get_mut(&group)?;
        let item = alike.remove(&place);
        if alike.is_empty() {
            self.asleep.remove(&group);
        }
        item
    }

    /// Puts the first of a group in line, unless what it asks for does not fit. Those whose namespace is not served any
    /// more are parked. True if there was one.
    fn wake_next(&mut self, group: &Group, serves: impl Fn(&Workload) -> bool) -> bool {
        if self.hopeless.contains(&group.0) {
            return false;
        }
        while let Some(first) = self.asleep.get(group).and_then(|alike| alike.values().next()) {
            let key = first.waiting.workload.key.clone();
            let served = serves(&first.waiting.workload);
            let Some(item) = self.wake(&key) else { return false };
            if served {
                self.put_in_line(key, item);
                return true;
            }
            self.parked.insert(key, item);
        }
        false
    }

    fn put_in_line(&mut self, key: WorkloadKey, item: Item) {
        self.take_out_of_line(&key);
        let workload = &item.waiting.workload;
        self.lines.entry(self.lane(workload)).or_default().insert(place(workload), key.clone());
        self.in_line.insert(key, item);
    }

    fn take_out_of_line(&mut self, key: &WorkloadKey) -> Option<Item> {
        let item = self.in_line.remove(key)?;
        let lane = self.lane(&item.waiting.workload);
        if let Some(line) = self.lines.get_mut(&lane) {
            line.remove(&place(&item.waiting.workload));
            if line.is_empty() {
                self.lines.remove(&lane);
            }
        }
        Some(item)
    }

    fn is_best_effort(&self) -> bool {
        self.strategy == QueueingStrategy::BestEffortFifo
    }
}
