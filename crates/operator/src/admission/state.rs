//! Who waits and who is in, as the admission loop knows it: kept up to date from the caches, never built anew.

mod around;
mod usage;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use reconcile::Key;
use rules::{
    framework::ungate,
    meta::selector,
    quota::{
        self, Moment, Snapshot,
        config::{ClusterQueue, Config},
        ledger::Ledger,
        names::{ClusterQueueName, CohortName, WorkloadKey},
        plan::{Decision, Outcome, Victim},
        queue::{Queue, Waiting},
        requests::{Limits, List},
        share::Share,
        standing::{self, Standing},
        topology::{Node, read},
        tree::NodeId,
        wire::{self, Surroundings},
        workload::{Head, Obstacle, Reservation},
    },
    workload::{self as life, state as of},
};
use tracing::{debug, info, warn};
use types::Amount;
use types::kueue::{CheckState, StopPolicy, Workload};

use super::{
    key_of, workload_key,
    writes::{Intent, Verdict},
};
use crate::{Context, caches::Caches, work::News};
use around::{overheads, requests, topology_levels};
pub(crate) use usage::Sample;

/// Who waits and who is in.
pub(super) struct State {
    snapshot: Snapshot,
    queues: BTreeMap<ClusterQueueName, Queue>,
    /// Where each Workload waits.
    home: HashMap<WorkloadKey, ClusterQueueName>,
    /// What keeps a Workload out before any quota is looked at.
    obstacles: HashMap<WorkloadKey, Obstacle>,
    /// Admitted in a cycle, and that is not written yet.
    assumed: HashSet<WorkloadKey>,
    /// Evicted in a cycle, and not seen as such in the cache yet.
    evicting: HashSet<WorkloadKey>,
    /// Queues where there may be room now.
    retry: BTreeSet<ClusterQueueName>,
    /// Cohorts, those included that are only named.
    cohorts: BTreeSet<String>,
    overheads: BTreeMap<String, List>,
    /// What the LimitRanges of each namespace say together.
    limits: HashMap<String, Arc<Limits>>,
    /// Queues that place pods by topology.
    placing: BTreeSet<ClusterQueueName>,
    /// Whether it is known what there is on nodes. Before that, nobody is placed.
    grounded: bool,
    /// The nodes on which pods are placed.
    nodes: BTreeSet<String>,
    /// What LocalQueues used, where that decides who comes first.
    ledger: Ledger,
    cycle: u64,
    /// Whether something changed since the last cycle that somebody may get in by.
    changed: bool,
}

impl Default for State {
    fn default() -> Self {
        State {
            snapshot: Snapshot::new(Config::default()),
            queues: BTreeMap::new(),
            home: HashMap::new(),
            obstacles: HashMap::new(),
            assumed: HashSet::new(),
            evicting: HashSet::new(),
            retry: BTreeSet::new(),
            cohorts: BTreeSet::new(),
            overheads: BTreeMap::new(),
            limits: HashMap::new(),
            placing: BTreeSet::new(),
            grounded: false,
            nodes: BTreeSet::new(),
            ledger: Ledger::default(),
            cycle: 0,
            changed: true,
        }
    }
}

/// What came of a cycle.
#[derive(Default)]
pub(super) struct Cycle {
    /// How many heads there were.
    pub(super) decided: usize,
    /// Whether somebody got in.
    pub(super) admitted: bool,
    /// Whether the next cycle may get somewhere even if nothing changes.
    pub(super) again: bool,
    /// Whether others have their turn in the next one: that may get somewhere even if nothing changes, too.
    pub(super) onward: bool,
    /// What is to be written.
    pub(super) intents: Vec<(WorkloadKey, Intent)>,
}

impl State {
    /// Takes in everything that there is (SM-42).
    pub(super) fn begin(&mut self, context: &Context) {
        let now = context.clock.now();
        // What was noted while the caches filled is seen here, too.
        context.work.inbox.take();
        self.overheads = overheads(&context.caches);
        self.configure(context, now);
        for workload in context.caches.workloads.all() {
            self.take_in(context, &wire_key(&workload), Some(&workload), now);
        }
        info!(waiting = self.home.len(), queues = self.queues.len(), "admission begins");
    }

    /// Takes in what changed.
    pub(super) fn absorb(&mut self, context: &Context, news: News, now: Timestamp) {
        let caches = &context.caches;
        if news.config {
            self.configure(context, now);
        }
        let mut again: BTreeSet<reconcile::Key> = news.workloads;
        if news.runtime_classes {
            self.overheads = overheads(caches);
            again.extend(self.home.keys().map(key_of));
        }
        for namespace in &news.namespaces {
            self.limits.remove(namespace);
            let waiting = self.home.keys().filter(|key| *key.namespace == **namespace);
            again.extend(waiting.map(key_of));
            // The queue may serve the namespace now.
            let homes: BTreeSet<ClusterQueueName> = self
                .home
                .iter()
                .filter(|(key, _)| *key.namespace == **namespace)
                .map(|(_, home)| home.clone())
                .collect();
            self.retry.extend(homes);
        }
        if news.nodes {
            self.survey(context);
        } else if let Some(seen) = context.caches.places.seen().filter(|_| self.grounded) {
            for node in &news.pods_on {
                if self.snapshot.set_others(node, seen.taken_of(node)) {
                    self.changed = true;
                    self.retry.extend(self.placing.iter().cloned());
                }
            }
        }
        for queue in &news.local_queues {
            self.local_queue_changed(context, queue, now);
            again.extend(caches.workloads_in(queue).iter().map(|workload| reconcile::Key::of(&**workload)));
        }
        for key in again {
            let workload = caches.workloads.get(&key);
            self.take_in(context, &workload_key(&key), workload.as_deref(), now);
        }
    }

    /// Takes in how queues, cohorts and flavors are set up.
    fn configure(&mut self, context: &Context, now: Timestamp) {
        self.changed = true;
        let caches = &context.caches;
        let objects = caches.cluster_queues.all();
        let levels = |name: &str| topology_levels(caches, name);
        let flavors = caches.flavors.all();
        let config = Config {
            flavors: flavors
                .iter()
                .map(|flavor| {
                    let levels = flavor.spec.topology_name.as_deref().and_then(levels);
                    wire::flavor(flavor, levels.as_deref())
                })
                .collect(),
            cohorts: caches.cohorts.all().iter().map(|cohort| wire::cohort(cohort)).collect(),
            cluster_queues: objects
                .iter()
                .map(|queue| {
                    wire::cluster_queue(queue, caches.readiness(queue).active, caches.sends_elsewhere(queue))
                })
                .collect(),
        };
        self.placing = config.placing().cloned().collect();
        caches.places.want(!self.placing.is_empty());
        if self.placing.is_empty() && self.grounded {
            self.survey(context);
        }
        let before: BTreeSet<ClusterQueueName> = self.queues.keys().cloned().collect();
        let uses_count = context.settings.quota.by_usage.is_some();
        let order = |queue: &ClusterQueue| (queue.strategy, queue.by_usage && uses_count);
        let strategies: BTreeMap<_, _> =
            config.cluster_queues.iter().map(|queue| (queue.name.clone(), order(queue))).collect();
        self.snapshot.configure(config);
        self.queues.retain(|name, _| strategies.contains_key(name));
        for (name, (strategy, by_usage)) in &strategies {
            let queue = self.queues.entry(name.clone()).or_insert_with(|| Queue::new(*strategy));
            queue.set_strategy(*strategy);
            queue.set_by_usage(*by_usage);
        }
        self.home.retain(|_, home| strategies.contains_key(home));
        self.show_hierarchy(context);
        self.retry.extend(strategies.keys().cloned());
        for name in strategies.keys().filter(|name| !before.contains(*name)) {
            for queue in caches.local_queues.by(crate::caches::LEADS_TO, name.as_str()) {
                let key = reconcile::Key::of(&*queue);
                self.local_queue_changed(context, &key, now);
                for workload in caches.workloads_in(&key) {
                    self.take_in(context, &wire_key(&workload), Some(&workload), now);
                }
            }
        }
    }

    /// Takes in what there is on nodes.
    fn survey(&mut self, context: &Context) {
        let seen = context.caches.places.seen();
        self.grounded = seen.is_some();
        let Some(seen) = seen else {
            self.nodes.clear();
            return self.snapshot.settle(Vec::new(), BTreeMap::new());
        };
        let nodes: Vec<Arc<Node>> =
            seen.nodes.all().iter().filter_map(|node| read::node(node)).map(Arc::new).collect();
        let known: BTreeSet<String> = nodes.iter().map(|node| node.name.clone()).collect();
        if !self.nodes.is_subset(&known) || self.nodes.is_empty() {
            // Somebody may have lost its place.
            let placed = context.caches.workloads.all();
            let placed = placed.iter().filter(|workload| ungate::is_placed(workload));
            placed.for_each(|workload| context.work.workloads.add(Key::of(&**workload)));
        }
        self.nodes = known;
        let others = nodes.iter().map(|node| (node.name.clone(), seen.taken_of(&node.name)));
        let others = others.filter(|(_, taken)| !taken.is_empty()).collect();
        self.snapshot.settle(nodes, others);
        self.changed = true;
        self.retry.extend(self.placing.iter().cloned());
    }

    /// Shows who is whose part, and looks at all Cohorts: those that are new, those that changed and those that are gone.
    fn show_hierarchy(&mut self, context: &Context) {
        let tree = self.snapshot.tree();
        let queues = self.queues.keys().map(|name| (name.as_str(), standing::above(&self.snapshot, name)));
        context.metrics.hierarchy(queues);
        let cohorts: BTreeSet<String> = tree.cohorts().map(ToString::to_string).collect();
        for cohort in cohorts.union(&self.cohorts) {
            context.work.cohorts.add(Key::new("", cohort.as_str()));
        }
        self.cohorts = cohorts;
    }

    /// Takes in how one Workload stands.
    fn take_in(&mut self, context: &Context, key: &WorkloadKey, object: Option<&Workload>, now: Timestamp) {
        let settings = &context.settings;
        let reservation = object.and_then(|object| wire::reservation(object, settings.requeuing_timestamp));
        self.account(context, key, object, reservation.as_ref(), now);
        if let Some(mut reservation) = reservation {
            if let Some(object) = object.filter(|object| of::has_placement(object)) {
                let limits = self.limits_of(context, &key.namespace);
                reservation.places = wire::places(object, self.surroundings(context, &limits));
            }
            self.leave_queue(key);
            self.assumed.remove(key);
            self.book(reservation);
            return;
        }
        let waits = object.filter(|object| life::is_admissible(object));
        // Its admission is being written. What comes of that is the next thing to know of it.
        if waits.is_some() && self.assumed.contains(key) {
            return;
        }
        self.changed = true;
        self.evicting.remove(key);
        self.assumed.remove(key);
        if let Some(released) = self.snapshot.release(key) {
            self.retry.insert(released.cluster_queue);
        }
        let home = waits.and_then(|object| home(&context.caches, object));
        let (Some(object), Some(home)) = (waits, home) else {
            self.leave_queue(key);
            return;
        };
        if self.home.get(key).is_some_and(|before| *before != home) {
            self.leave_queue(key);
        }
        let limits = self.limits_of(context, &key.namespace);
        let around = self.surroundings(context, &limits);
        let (pod_sets, obstacle) = wire::pod_sets(object, around);
        match failed_checks(object).or(obstacle) {
            Some(obstacle) => self.obstacles.insert(key.clone(), obstacle),
            None => self.obstacles.remove(key),
        };
        let waiting = wire::waiting(object, pod_sets, settings.requeuing_timestamp);
        if let Some(queue) = self.queues.get_mut(&home) {
            queue.push(waiting, now);
            self.home.insert(key.clone(), home);
        }
    }

    /// Books what a Workload holds. Where that is less than before, or is now held by a lesser one, others may fit.
    fn book(&mut self, mut reservation: Reservation) {
        let key = reservation.key.clone();
        if reservation.evicted {
            self.evicting.remove(&key);
        }
        reservation.evicted |= self.evicting.contains(&key);
        let before = self.snapshot.reservation(&key);
        // Mostly it is what was assumed, and now it is written.
        if before == Some(&reservation) {
            return;
        }
        self.changed = true;
        let makes_room = before.is_some_and(|before| {
            before.usage != reservation.usage
                || before.places != reservation.places
                || before.priority != reservation.priority
                || before.cluster_queue != reservation.cluster_queue
        });
        if makes_room {
            self.retry.insert(reservation.cluster_queue.clone());
        }
        self.snapshot.reserve(reservation);
    }

    fn surroundings<'a>(&'a self, context: &'a Context, limits: &'a Limits) -> Surroundings<'a> {
        let accounting = &context.settings.accounting;
        Surroundings { runtime_overheads: &self.overheads, limits, accounting }
    }

    /// What the LimitRanges of a namespace say together.
    fn limits_of(&mut self, context: &Context, namespace: &str) -> Arc<Limits> {
        if let Some(limits) = self.limits.get(namespace) {
            return Arc::clone(limits);
        }
        let ranges = context.caches.limits.in_namespace(namespace);
        let limits = Limits::summarize(ranges.iter().map(|range| &**range)).unwrap_or_else(|errors| {
            warn!(%namespace, ?errors, "limit ranges that cannot be read are ignored");
            Limits::default()
        });
        let limits = Arc::new(limits);
        self.limits.insert(namespace.to_owned(), Arc::clone(&limits));
        limits
    }

    fn leave_queue(&mut self, key: &WorkloadKey) {
        self.obstacles.remove(key);
        if let Some(home) = self.home.remove(key)
            && let Some(queue) = self.queues.get_mut(&home)
        {
            queue.remove(key);
        }
    }

    /// The admission of a Workload is written. Returns whether it was not seen as such before.
    pub(super) fn no_longer_assumed(&mut self, key: &WorkloadKey) -> bool {
        self.assumed.remove(key)
    }

    /// Forgets that a Workload was admitted or evicted: it could not be written.
    pub(super) fn forget(&mut self, context: &Context, key: &WorkloadKey) {
        self.changed = true;
        self.evicting.remove(key);
        if !self.assumed.remove(key) {
            return;
        }
        self.spare(context, key);
        if let Some(released) = self.snapshot.release(key) {
            self.retry.insert(released.cluster_queue);
        }
    }

    /// Decides about the heads of all queues.
    pub(super) fn cycle(&mut self, context: &Context, now: Timestamp) -> Cycle {
        if !std::mem::take(&mut self.changed) {
            return Cycle::default();
        }
        self.retry_parked(context, now);
        let mut heads = Vec::new();
        let mut popped: HashMap<WorkloadKey, Waiting> = HashMap::new();
        let turn = self.turn();
        for name in turn.keys() {
            let Some(waiting) = self.queues.get_mut(name).and_then(Queue::pop) else { continue };
            let key = waiting.workload.key.clone();
            let known = self.obstacles.get(&key).cloned();
            let served = || serves(&context.caches, name, &key.namespace);
            let obstacle = match known {
                Some(Obstacle::FailedChecks) => known,
                _ if !served() => Some(Obstacle::NamespaceMismatch),
                other => other,
            };
            heads.push(Head {
                workload: waiting.workload.clone(),
                cluster_queue: name.clone(),
                obstacle,
                progress: waiting.progress.clone(),
            });
            popped.insert(key, waiting);
        }
        if heads.is_empty() {
            return Cycle::default();
        }
        self.cycle += 1;
        let plan =
            quota::decide(&self.snapshot, &heads, &context.settings.quota, Moment { now, cycle: self.cycle });
        let mut outcome = Cycle { decided: heads.len(), ..Cycle::default() };
        for decision in plan.decisions {
            debug!(%decision, "decided");
            let Some(waiting) = popped.remove(&decision.workload) else { continue };
            if decision.skipped_preemption {
                context.metrics.skipped_preemption(decision.cluster_queue.as_str());
            }
            self.settle(context, decision, waiting, now, &mut outcome);
        }
        outcome.onward = !outcome.again && self.turn() != turn;
        self.changed = outcome.again || outcome.onward;
        outcome
    }

    /// Whose turn it is in each queue. Who waits where cohorts are their own parents is tried, too: nobody else tells why it
    /// does not get in.
    fn turn(&self) -> BTreeMap<ClusterQueueName, WorkloadKey> {
        let is_open = |name: &ClusterQueueName| {
            let is_active = self.snapshot.queue(name).is_some_and(|queue| queue.config.active);
            is_active && (self.grounded || !self.placing.contains(name))
        };
        let open = self.queues.iter().filter(|(name, _)| is_open(name));
        open.filter_map(|(name, queue)| Some((name.clone(), queue.first()?.clone()))).collect()
    }

    /// Lets a decision count.
    fn settle(
        &mut self,
        context: &Context,
        decision: Decision,
        mut waiting: Waiting,
        now: Timestamp,
        outcome: &mut Cycle,
    ) {
        let key = decision.workload.clone();
        match &decision.outcome {
            Outcome::Holds => return self.leave_queue(&key),
            Outcome::Admit { pod_sets, considered, .. } => {
                let admission = wire::admission(decision.cluster_queue.as_str(), pod_sets);
                if let Some(reservation) = decision.reservation(&waiting.workload, now) {
                    self.snapshot.reserve(reservation);
                }
                self.leave_queue(&key);
                self.penalize(context, &waiting.workload, &decision.cluster_queue);
                self.assumed.insert(key.clone());
                let uid = waiting.workload.uid.clone();
                let considered = considered.clone();
                outcome.intents.push((key, Intent::Admit { uid, admission, considered, at: now }));
                outcome.admitted = true;
                outcome.again = true;
                return;
            }
            Outcome::Preempt { victims, .. } => {
                for victim in victims.iter().filter(|victim| !victim.evicted) {
                    if self.evicting.insert(victim.workload.clone()) {
                        outcome.again = true;
                        self.mark_evicted(victim);
                        outcome.intents.push((
                            victim.workload.clone(),
                            Intent::Evict {
                                victim: victim.clone(),
                                by: key.clone(),
                                into: decision.cluster_queue.clone(),
                            },
                        ));
                    }
                }
            }
            Outcome::Wait { .. } => {}
        }
        outcome.again |=
            decision.progress.as_ref().is_some_and(rules::quota::flavors::ScanProgress::has_more);
        let verdict = Verdict {
            uid: waiting.workload.uid.clone(),
            reason: decision.reason().unwrap_or_default(),
            message: decision.message().unwrap_or_default().to_owned(),
            requests: requests(&waiting),
            since: tokio::time::Instant::now(),
        };
        outcome.intents.push((key, Intent::Wait(verdict)));
        waiting.progress.clone_from(&decision.progress);
        if let (Some(how), Some(queue)) = (decision.requeue(), self.queues.get_mut(&decision.cluster_queue)) {
            queue.requeue(waiting, how, now);
        }
    }

    fn mark_evicted(&mut self, victim: &Victim) {
        if let Some(reservation) = self.snapshot.reservation(&victim.workload).cloned() {
            self.snapshot.reserve(Reservation { evicted: true, ..reservation });
        }
    }

    /// Puts those in line again that may fit now: in every queue of the trees where something changed (QU-10).
    fn retry_parked(&mut self, context: &Context, now: Timestamp) {
        let changed = std::mem::take(&mut self.retry);
        if changed.is_empty() {
            return;
        }
        let tree = self.snapshot.tree();
        let root = |name: &ClusterQueueName| tree.queue(name).map(|node| tree.root(node));
        let roots: BTreeSet<NodeId> = changed.iter().filter_map(root).collect();
        let all: Vec<ClusterQueueName> = self.queues.keys().cloned().collect();
        for name in all {
            let concerned = self
                .snapshot
                .tree()
                .queue(&name)
                .is_some_and(|node| roots.contains(&self.snapshot.tree().root(node)));
            if let Some(queue) = self.queues.get_mut(&name).filter(|_| concerned) {
                queue.retry(now, |workload| serves(&context.caches, &name, &workload.key.namespace));
            }
        }
    }

    /// How many Workloads wait for a ClusterQueue: in line, and parked.
    pub(super) fn waiting(&self, name: &ClusterQueueName) -> (usize, usize) {
        self.queues.get(name).map_or((0, 0), Queue::len)
    }

    /// How many of some Workloads are parked in a ClusterQueue.
    pub(super) fn parked(&self, name: &str, of: &mut dyn Iterator<Item = WorkloadKey>) -> usize {
        let queue = self.queues.get(&ClusterQueueName::from(name));
        queue.map_or(0, |queue| of.filter(|key| queue.is_parked(key)).count())
    }

    /// What those ask for together who wait for a ClusterQueue.
    pub(super) fn pending_resources(&self, name: &str) -> BTreeMap<String, Amount> {
        let mut sum: BTreeMap<String, Amount> = BTreeMap::new();
        let queue = self.queues.get(&ClusterQueueName::from(name));
        let waiting = queue.into_iter().flat_map(Queue::in_order);
        for pod_set in waiting.flat_map(|waiting| &waiting.workload.pod_sets) {
            for (resource, amount) in &pod_set.requests {
                *sum.entry(resource.to_string()).or_default() += amount.times(pod_set.remaining().into());
            }
        }
        sum
    }

    /// Who waits for a ClusterQueue, in its order.
    pub(super) fn order(&self, name: &str) -> Option<Vec<Key>> {
        let queue = self.queues.get(&ClusterQueueName::from(name))?;
        Some(queue.in_order().into_iter().map(|waiting| key_of(&waiting.workload.key)).collect())
    }

    /// How a Cohort stands.
    pub(super) fn standing(&self, cohort: &str) -> Option<Standing> {
        standing::cohort(&self.snapshot, &cohort.into())
    }

    /// The Cohorts above a ClusterQueue.
    pub(super) fn above(&self, cluster_queue: &str) -> Vec<String> {
        standing::above(&self.snapshot, &cluster_queue.into())
    }

    /// Whether some Workload holds quota in a ClusterQueue.
    pub(super) fn holds_any(&self, name: &str) -> bool {
        self.snapshot.queue(&name.into()).is_some_and(|queue| queue.running().next().is_some())
    }

    pub(super) fn share_of_queue(&self, name: &str) -> Option<Share> {
        let tree = self.snapshot.tree();
        tree.queue(&ClusterQueueName::from(name)).map(|node| Share::of(tree, node))
    }

    pub(super) fn share_of_cohort(&self, name: &str) -> Option<Share> {
        let tree = self.snapshot.tree();
        tree.cohort(&CohortName::from(name)).map(|node| Share::of(tree, node))
    }
}

/// The ClusterQueue that a Workload waits for, if its LocalQueue exists and is not stopped (LQ-4), and what it asks for
/// is counted.
pub(super) fn home(caches: &Caches, object: &Workload) -> Option<ClusterQueueName> {
    let queue = caches.local_queue_of(object)?;
    let open = queue.spec.stop_policy.unwrap_or_default() == StopPolicy::None;
    // Devices that are claimed are not counted (QM-28).
    let mut specs = object.spec.pod_sets.iter().filter_map(|pod_set| pod_set.template.spec.as_ref());
    let counted = specs.all(|spec| spec.resource_claims.as_ref().is_none_or(Vec::is_empty));
    let there = open && counted && queue.metadata.deletion_timestamp.is_none();
    there.then(|| ClusterQueueName::from(queue.spec.cluster_queue.as_str()))
}

fn failed_checks(object: &Workload) -> Option<Obstacle> {
    let failed = [CheckState::Retry, CheckState::Rejected];
    failed.iter().any(|state| !of::checks_in(object, *state).is_empty()).then_some(Obstacle::FailedChecks)
}

/// Whether a ClusterQueue serves a namespace.
fn serves(caches: &Caches, queue: &ClusterQueueName, namespace: &str) -> bool {
    let Some(queue) = caches.cluster_queue(queue.as_str()) else { return false };
    let namespace = caches.namespaces.get(&reconcile::Key::new("", namespace));
    let labels = namespace.and_then(|it| it.metadata.labels.clone()).unwrap_or_default();
    selector::matches(queue.spec.namespace_selector.as_ref(), &labels) == Some(true)
}

fn wire_key(workload: &Workload) -> WorkloadKey {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    WorkloadKey::new(&part(&workload.metadata.namespace), &part(&workload.metadata.name))
}
