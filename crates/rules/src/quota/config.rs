//! What an administrator has set up: flavors, cohorts and ClusterQueues, reduced to what a decision depends on.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Taint, Toleration};
use types::Amount;

use super::names::{ClusterQueueName, CohortName, FlavorName, ResourceName};

/// Everything that is set up.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The ResourceFlavors.
    pub flavors: Vec<Flavor>,
    /// The Cohorts that exist as objects. Others exist by being named.
    pub cohorts: Vec<Cohort>,
    /// The ClusterQueues.
    pub cluster_queues: Vec<ClusterQueue>,
}

impl Config {
    /// The ClusterQueues that place pods by topology.
    pub fn placing(&self) -> impl Iterator<Item = &ClusterQueueName> {
        let places = |name: &FlavorName| {
            self.flavors.iter().any(|flavor| flavor.name == *name && flavor.topology.is_some())
        };
        let queues = self.cluster_queues.iter().filter(|queue| !queue.defers_topology);
        let placing = queues.filter(move |queue| {
            queue.groups.iter().flat_map(|group| &group.flavors).any(|quotas| places(&quotas.name))
        });
        placing.map(|queue| &queue.name)
    }
}

/// A kind of node that a resource can come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Flavor {
    /// Its name.
    pub name: FlavorName,
    /// The labels of such nodes.
    pub labels: BTreeMap<String, String>,
    /// The taints of such nodes.
    pub taints: Vec<Taint>,
    /// Tolerations that every pod in this flavor is given.
    pub tolerations: Vec<Toleration>,
    /// The topology that places pods in this flavor; `None` if pods are not placed at all.
    pub topology: Option<Topology>,
}

/// How the nodes of a flavor are arranged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// The node labels of its levels, outermost first. Empty if they are not known.
    pub levels: Vec<String>,
}

impl Flavor {
    /// A flavor without labels, taints and topology.
    pub fn new(name: impl Into<FlavorName>) -> Self {
        Flavor {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            tolerations: Vec::new(),
            topology: None,
        }
    }
}

/// How much of one resource in one flavor a ClusterQueue or Cohort has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// What is its own.
    pub nominal: Amount,
    /// How much more it may use of what others leave; `None` is all of it.
    pub borrowing_limit: Option<Amount>,
    /// How much of its own others may use; `None` is all of it.
    pub lending_limit: Option<Amount>,
}

/// Resources that come from the same flavor, and the flavors they may come from, in order of preference.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceGroup {
    /// The resources.
    pub covered: BTreeSet<ResourceName>,
    /// The flavors, the first one tried first.
    pub flavors: Vec<FlavorQuotas>,
}

/// The quotas in one flavor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// The flavor.
    pub name: FlavorName,
    /// How much of each resource; of one that is missing there is none.
    pub resources: BTreeMap<ResourceName, Quota>,
}

/// A group of ClusterQueues and Cohorts that use each other's idle quota.
#[derive(Debug, Clone, PartialEq)]
pub struct Cohort {
    /// Its name.
    pub name: CohortName,
    /// The Cohort that it is part of.
    pub parent: Option<CohortName>,
    /// Quota for the whole group, beyond what its members bring.
    pub groups: Vec<ResourceGroup>,
    /// Its weight among its siblings in fair sharing.
    pub weight: f64,
}

/// A queue of Workloads with its own quota.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterQueue {
    /// Its name.
    pub name: ClusterQueueName,
    /// The Cohort that it is part of.
    pub cohort: Option<CohortName>,
    /// What it has.
    pub groups: Vec<ResourceGroup>,
    /// Who is tried when the first in the queue does not get in.
    pub strategy: QueueingStrategy,
    /// When to stop looking for a better flavor.
    pub fungibility: Fungibility,
    /// Who may be pushed out for its Workloads.
    pub preemption: Preemption,
    /// Its weight among its siblings in fair sharing.
    pub weight: f64,
    /// Whether it admits at all. An inactive queue still lends its quota.
    pub active: bool,
    /// Whether somebody else finds the place for pods that ask for a topology, as with MultiKueue.
    pub defers_topology: bool,
    /// Whether those of its LocalQueues come first that used least, where usage is known at all.
    pub by_usage: bool,
}

impl ClusterQueue {
    /// An active queue that belongs to no cohort, has nothing, and is otherwise as the API's defaults say.
    pub fn new(name: impl Into<ClusterQueueName>) -> Self {
        ClusterQueue {
            name: name.into(),
            cohort: None,
            groups: Vec::new(),
            strategy: QueueingStrategy::default(),
            fungibility: Fungibility::default(),
            preemption: Preemption::default(),
            weight: 1.0,
            active: true,
            defers_topology: false,
            by_usage: false,
        }
    }

    /// The group that covers `resource`.
    pub fn group_of(&self, resource: &ResourceName) -> Option<&ResourceGroup> {
        self.groups.iter().find(|group| group.covered.contains(resource))
    }

    /// Whether all its flavors place pods by topology, so that every pod set is taken to ask for it. That is so of a queue
    /// without flavors, too, which can place nobody (TA-2).
    pub fn is_topology_only(&self, places: impl FnMut(&FlavorName) -> bool) -> bool {
        self.flavors().all(places)
    }

    /// All its flavors.
    pub fn flavors(&self) -> impl Iterator<Item = &FlavorName> {
        self.groups.iter().flat_map(|group| &group.flavors).map(|quotas| &quotas.name)
    }
}

/// Who is tried when the first in a queue does not get in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueingStrategy {
    /// Nobody: those behind wait.
    StrictFifo,
    /// The next one; the first is tried again when something changes.
    #[default]
    BestEffortFifo,
}

/// When the search for a flavor ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fungibility {
    /// Whether a later flavor is tried when this one fits only by borrowing.
    pub when_can_borrow: WhenCanBorrow,
    /// Whether a later flavor is tried when this one fits only by preemption.
    pub when_can_preempt: WhenCanPreempt,
    /// What is worse, when all were tried.
    pub preference: Preference,
}

/// What to do at a flavor that fits by borrowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenCanBorrow {
    /// Take it.
    #[default]
    MayStopSearch,
    /// Look whether a later one fits better.
    TryNextFlavor,
}

/// What to do at a flavor that fits by preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenCanPreempt {
    /// Take it.
    MayStopSearch,
    /// Look whether a later one fits better.
    #[default]
    TryNextFlavor,
}

/// Which of two flavors is better when neither simply fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// Rather borrow than preempt.
    #[default]
    BorrowingOverPreemption,
    /// Rather preempt than borrow.
    PreemptionOverBorrowing,
}

/// Who may be pushed out for a Workload of a ClusterQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Preemption {
    /// Of the same queue.
    pub within_cluster_queue: WithinClusterQueue,
    /// Of queues in the cohort that use more than their own.
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Even if the Workload then borrows itself; `None` forbids it.
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
}

/// Which Workloads of its own queue a Workload may push out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WithinClusterQueue {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Those of lower priority, and those of the same priority that queued later.
    LowerOrNewerEqualPriority,
}

/// Which Workloads of borrowing queues a Workload may push out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReclaimWithinCohort {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Any.
    Any,
}

/// That a Workload may push others out and borrow nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BorrowWithinCohort {
    /// Only those of at most this priority, beside being lower than the Workload's.
    pub max_priority: Option<i64>,
}
