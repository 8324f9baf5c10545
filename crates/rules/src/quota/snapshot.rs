//! All that one scheduling decision may depend on: quotas, flavors, and who holds what.
//!
//! A snapshot is kept up to date from events ([`Snapshot::reserve`], [`Snapshot::release`]) rather than built anew for
//! every cycle; deciding reads it and changes nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    config::{ClusterQueue, Config, Flavor},
    names::{ClusterQueueName, FlavorName, LocalQueueKey, WorkloadKey},
    topology::{Node, Resources, Taken},
    tree::{FrId, NodeId, Tree, Use},
    usage::Usage,
    workload::{Reservation, Workload},
};

/// Quotas, flavors, and the Workloads that hold quota.
#[derive(Debug, Clone)]
pub struct Snapshot {
    tree: Tree,
    flavors: BTreeMap<FlavorName, Flavor>,
    queues: BTreeMap<ClusterQueueName, Queue>,
    /// The queue's name by its node in the tree.
    names: HashMap<NodeId, ClusterQueueName>,
    /// Where each Workload that holds quota holds it.
    holders: HashMap<WorkloadKey, ClusterQueueName>,
    /// Reservations in ClusterQueues that are gone. They count for nobody, but come back with their queue.
    stranded: BTreeMap<WorkloadKey, Reservation>,
    /// How much each LocalQueue used, where that is known.
    usage: HashMap<LocalQueueKey, Usage>,
}

/// A ClusterQueue and the Workloads in it.
#[derive(Debug, Clone)]
pub struct Queue {
    /// What was set up.
    pub config: ClusterQueue,
    /// Where it is in the tree.
    pub node: NodeId,
    /// Counts what may have made room: changed quotas and released reservations.
    pub generation: u64,
    running: BTreeMap<WorkloadKey, Running>,
}

/// A Workload that holds quota.
#[derive(Debug, Clone)]
pub struct Running {
    /// What it holds.
    pub reservation: Reservation,
    /// The same, as accounts of the tree; nothing if another one holds it in its place.
    pub uses: Vec<Use>,
    /// What its pods take of domains; nothing if they are among another one's.
    pub places: Vec<Taken>,
}

impl Running {
    /// Takes out of the books what it holds.
    pub fn leave(&self, tree: &mut Tree) {
        tree.remove_all(&self.uses);
        tree.ground_mut().give_back(&self.places);
    }

    /// Books what it holds.
    pub fn stay(&self, tree: &mut Tree) {
        tree.add_all(&self.uses);
        tree.ground_mut().take(&self.places);
    }

    /// Whether it holds any of `frs`.
    pub fn uses_any(&self, frs: &[FrId]) -> bool {
        self.uses.iter().any(|used| frs.contains(&used.fr))
    }
}

impl Queue {
    /// The Workloads that hold quota here.
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.running.values()
    }

    /// The one here whose place a Workload is to take.
    pub fn replaced(&self, workload: &Workload) -> Option<&Running> {
        self.running.get(workload.replaces.as_ref()?)
    }

    /// Whether another one holds what this one holds, and more.
    fn is_replaced(&self, held: &Reservation) -> bool {
        // Only those that may grow are replaced, and there are few of them.
        let may_be = !held.flavors.is_empty();
        may_be && self.running().any(|other| other.reservation.replaces.as_ref() == Some(&held.key))
    }
}

impl Snapshot {
    /// What is set up, with nobody in it.
    pub fn new(config: Config) -> Snapshot {
        let mut snapshot = Snapshot {
            tree: Tree::new(&[], &[]),
            flavors: BTreeMap::new(),
            queues: BTreeMap::new(),
            names: HashMap::new(),
            holders: HashMap::new(),
            stranded: BTreeMap::new(),
            usage: HashMap::new(),
        };
        snapshot.configure(config);
        snapshot
    }

    /// Replaces what is set up. Who is in stays in, even where the new quotas are too small (QM-8).
    pub fn configure(&mut self, config: Config) {
        let Config { flavors, cohorts, cluster_queues } = config;
        let ground = self.tree.ground().arranged(flavors.iter());
        self.tree = Tree::new(&cohorts, &cluster_queues);
        *self.tree.ground_mut() = ground;
        self.flavors = flavors.into_iter().map(|flavor| (flavor.name.clone(), flavor)).collect();
        self.names.clear();
        self.holders.clear();
        let mut before = std::mem::take(&mut self.queues);
        for config in cluster_queues {
            let node = self.tree.queue(&config.name).expect("every given ClusterQueue is in the tree");
            let generation = before.get(&config.name).map_or(1, |queue| queue.generation + 1);
            self.names.insert(node, config.name.clone());
            self.queues
                .insert(config.name.clone(), Queue { config, node, generation, running: BTreeMap::new() });
        }
        let stranded = std::mem::take(&mut self.stranded).into_values();
        let kept = before.values_mut().flat_map(|queue| std::mem::take(&mut queue.running).into_values());
        for reservation in stranded.chain(kept.map(|running| running.reservation)).collect::<Vec<_>>() {
            self.reserve(reservation);
        }
    }

    /// Books what a Workload holds, in place of what it held before.
    pub fn reserve(&mut self, reservation: Reservation) {
        self.release(&reservation.key);
        let Some(queue) = self.queues.get_mut(&reservation.cluster_queue) else {
            self.stranded.insert(reservation.key.clone(), reservation);
            return;
        };
        let name = reservation.cluster_queue.clone();
        let replaces = reservation.replaces.clone();
        let running = running(&mut self.tree, queue, reservation);
        running.stay(&mut self.tree);
        let key = running.reservation.key.clone();
        self.holders.insert(key.clone(), name.clone());
        queue.running.insert(key, running);
        if let Some(replaced) = replaces {
            self.recount(&name, &replaced);
        }
    }

    /// Counts anew what a Workload holds, after who holds it in its place came or went.
    fn recount(&mut self, name: &ClusterQueueName, key: &WorkloadKey) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let Some(before) = queue.running.remove(key) else { return };
        before.leave(&mut self.tree);
        let after = running(&mut self.tree, queue, before.reservation);
        after.stay(&mut self.tree);
        queue.running.insert(key.clone(), after);
    }

    /// Frees what a Workload held, and returns it.
    pub fn release(&mut self, key: &WorkloadKey) -> Option<Reservation> {
        let Some(name) = self.holders.remove(key) else {
            return self.stranded.remove(key);
        };
        let queue = self.queues.get_mut(&name)?;
        let running = queue.running.remove(key)?;
        queue.generation += 1;
        running.leave(&mut self.tree);
        let reservation = running.reservation;
        if let Some(replaced) = &reservation.replaces {
            self.recount(&name, replaced);
        }
        Some(reservation)
    }

    /// Replaces the nodes on which pods can be placed, and what pods take of them that were not placed by topology.
    pub fn settle(&mut self, nodes: Vec<Arc<Node>>, others: BTreeMap<String, Resources>) {
        self.tree.ground_mut().settle(nodes, others);
    }

    /// Replaces what such pods take of one node. Says whether that is less of anything than before.
    pub fn set_others(&mut self, node: &str, amount: Resources) -> bool {
        self.tree.ground_mut().set_others(node, amount)
    }

    /// Says how much a LocalQueue used; `None` forgets it. Returns whether that is news.
    pub fn set_usage(&mut self, queue: &LocalQueueKey, usage: Option<Usage>) -> bool {
        let before = match usage {
            Some(usage) => self.usage.insert(queue.clone(), usage),
            None => self.usage.remove(queue),
        };
        before != usage
    }

    /// How much the LocalQueue used that a Workload came by, where that counts.
    pub fn usage_behind(&self, queue: &Queue, held: &Reservation) -> Usage {
        let usage = self.usage.get(&held.local_queue).filter(|_| queue.config.by_usage);
        usage.copied().unwrap_or_default()
    }

    /// Whether a Workload holds quota.
    pub fn holds(&self, key: &WorkloadKey) -> bool {
        self.holders.contains_key(key)
    }

    /// What a Workload holds.
    pub fn reservation(&self, key: &WorkloadKey) -> Option<&Reservation> {
        let queue = self.queues.get(self.holders.get(key)?)?;
        queue.running.get(key).map(|running| &running.reservation)
    }

    /// All ClusterQueues, active or not.
    pub fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.queues.values()
    }

    /// A ClusterQueue, active or not.
    pub fn queue(&self, name: &ClusterQueueName) -> Option<&Queue> {
        self.queues.get(name)
    }

    /// The ClusterQueue at a node of the tree.
    pub fn queue_at(&self, node: NodeId) -> Option<&Queue> {
        self.queues.get(self.names.get(&node)?)
    }

    /// Whether a ClusterQueue admits Workloads: active, and in no tree that bites its own tail (CQ-6).
    pub fn admits(&self, queue: &Queue) -> bool {
        queue.config.active && !self.tree.is_cyclic(queue.node)
    }

    /// A flavor.
    pub fn flavor(&self, name: &FlavorName) -> Option<&Flavor> {
        self.flavors.get(name)
    }

    /// The quotas and what is used of them.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// What a Workload holds, as accounts of the tree and of nodes: once, if another one has taken its place.
fn running(tree: &mut Tree, queue: &Queue, reservation: Reservation) -> Running {
    if queue.is_replaced(&reservation) {
        return Running { reservation, uses: Vec::new(), places: Vec::new() };
    }
    let open = |(fr, &amount)| {
        let (fr, cell) = tree.open(queue.node, fr);
        Use { fr, cell, amount }
    };
    let uses = reservation.usage.iter().map(open).collect();
    let places = reservation.places.clone();
    Running { reservation, uses, places }
}
