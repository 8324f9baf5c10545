//! Workloads as a quota decision sees them: what they ask for, who comes first, and what those that are in hold.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};
use types::Amount;

use super::{
    flavors::ScanProgress,
    names::{
        ClusterQueueName, FlavorName, FlavorResource, LocalQueueKey, PodSetName, ResourceName, WorkloadKey,
    },
    topology::{Placement, Resources, Taken, ground},
};

/// A Workload that waits for quota.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Which one.
    pub key: WorkloadKey,
    /// Its uid, which decides where nothing else does.
    pub uid: String,
    /// The LocalQueue that it waits in.
    pub local_queue: LocalQueueKey,
    /// The uid of the Job that it stands for.
    pub job_uid: Option<String>,
    /// Its priority, the boost of an annotation included.
    pub priority: i64,
    /// Since when it queues (QU-3): its creation, or the eviction that sent it to the back.
    pub queued_at: Timestamp,
    /// What it asks for.
    pub pod_sets: Vec<PodSet>,
    /// Whether it may grow and shrink while it runs: another one may take its place.
    pub elastic: bool,
    /// The one whose place it is to take, with all that one holds (JF-83).
    pub replaces: Option<WorkloadKey>,
}

impl Workload {
    /// A number that two Workloads share if they ask for the same with the same priority: what is decided about one
    /// holds for the other (QU-13).
    pub fn shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.priority, &self.replaces).hash(&mut hasher);
        for pod_set in &self.pod_sets {
            let PodSet { name, count, min_count, reclaimable, requests, group, node_selector, .. } = pod_set;
            (name, count, min_count, reclaimable, requests, group, node_selector).hash(&mut hasher);
            // Kubernetes' own types do not hash, but they print.
            let PodSet { node_affinity, tolerations, topology, own_requests, .. } = pod_set;
            format!("{node_affinity:?} {tolerations:?} {topology:?} {own_requests:?}").hash(&mut hasher);
        }
        hasher.finish()
    }

    /// What it asks for in all, of each resource.
    pub fn total_requests(&self) -> BTreeMap<ResourceName, Amount> {
        let mut total = BTreeMap::new();
        for pod_set in &self.pod_sets {
            for (resource, amount) in &pod_set.requests {
                let sum = total.entry(resource.clone()).or_insert(Amount::ZERO);
                *sum += amount.times(pod_set.remaining().into());
            }
        }
        total
    }
}

/// Pods of a Workload that are alike.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodSet {
    /// Its name.
    pub name: PodSetName,
    /// How many pods it has.
    pub count: u32,
    /// How few would do; `None` is all of them.
    pub min_count: Option<u32>,
    /// How many are done already and need nothing any more.
    pub reclaimable: u32,
    /// What one pod asks for, after all defaults, exclusions and transformations.
    pub requests: BTreeMap<ResourceName, Amount>,
    /// Pod sets of the same group get the same flavors.
    pub group: Option<String>,
    /// The labels that a pod's node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The terms of required node affinity, one of which a pod's node must match; empty if there are none.
    pub node_affinity: Vec<NodeSelectorTerm>,
    /// The taints that a pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// The topology that the pods ask for.
    pub topology: Option<TopologyRequest>,
    /// What one pod asks for itself, where that is not `requests`.
    pub own_requests: Option<Resources>,
}

impl Default for PodSetName {
    fn default() -> Self {
        "main".into()
    }
}

impl PodSet {
    /// How many pods still need something.
    pub fn remaining(&self) -> u32 {
        self.count.saturating_sub(self.reclaimable)
    }

    /// What one pod asks for itself, before exclusions and transformations: what it takes of its node.
    pub fn pod_requests(&self) -> &Resources {
        self.own_requests.as_ref().unwrap_or(&self.requests)
    }

    /// By how many pods it may shrink.
    pub fn slack(&self) -> u32 {
        self.min_count.map_or(0, |least| self.count.saturating_sub(least))
    }
}

/// That pods ask to be placed by topology.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyRequest {
    /// The node label of the level at which all of them have to be in one domain.
    pub required: Option<String>,
    /// The same, if that is possible.
    pub preferred: Option<String>,
    /// Whether they may be anywhere.
    pub unconstrained: bool,
    /// Slices of them that are in one domain each, and slices within those.
    pub slices: Vec<Layer>,
}

/// That slices of pods are in one domain each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The node label of the level of such domains.
    pub level: String,
    /// How many pods are in a slice.
    pub size: u32,
}

impl TopologyRequest {
    /// The node label of the level at which pods are to be close to each other, of these `levels`; `None` if it asks for
    /// no level at all.
    pub fn level<'a>(&'a self, levels: &'a [String]) -> Option<&'a str> {
        let named = self.required.as_ref().or(self.preferred.as_ref());
        let open = || {
            if !self.slices.is_empty() {
                levels.first()
            } else if self.unconstrained {
                levels.last()
            } else {
                None
            }
        };
        named.or_else(open).map(String::as_str)
    }

    /// Whether pods go wherever there is room, the fullest domains first.
    pub fn is_anywhere(&self) -> bool {
        let open = self.required.is_none() && self.preferred.is_none();
        self.unconstrained || (open && !self.slices.is_empty())
    }
}

/// The first Workload of a ClusterQueue, whose turn it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Head {
    /// The Workload.
    pub workload: Workload,
    /// The queue that it is the first of.
    pub cluster_queue: ClusterQueueName,
    /// What is known to keep it out, before any quota is looked at.
    pub obstacle: Option<Obstacle>,
    /// Where the last attempt stopped looking for flavors.
    pub progress: Option<ScanProgress>,
}

/// Why a Workload cannot be admitted whatever the quota (SC-3, QM-27).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// An admission check said Retry or Rejected.
    FailedChecks,
    /// Its namespace is none that the ClusterQueue serves.
    NamespaceMismatch,
    /// Requests exceed limits, or a LimitRange; the message says where.
    InvalidResources(String),
}

/// What a Workload that is in holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// Which Workload.
    pub key: WorkloadKey,
    /// Its uid.
    pub uid: String,
    /// The LocalQueue that it came by.
    pub local_queue: LocalQueueKey,
    /// Its priority, the boost of an annotation included.
    pub priority: i64,
    /// Since when it queued.
    pub queued_at: Timestamp,
    /// Since when it holds quota; `None` if that is not written yet.
    pub reserved_at: Option<Timestamp>,
    /// Whether it is on its way out. It holds its quota until its pods are gone.
    pub evicted: bool,
    /// Whether all its pods are ready.
    pub pods_ready: bool,
    /// Where.
    pub cluster_queue: ClusterQueueName,
    /// How much of what, zeros included: a flavor that was assigned counts as used.
    pub usage: BTreeMap<FlavorResource, Amount>,
    /// The one whose place it has taken. What that one held is part of what this one holds.
    pub replaces: Option<WorkloadKey>,
    /// The flavors of each pod set, of those that may grow: who takes their place gets the same.
    pub flavors: Flavors,
    /// What its pods take of the domains that they were placed in.
    pub places: Vec<Taken>,
    /// Where the pods of each pod set are, of those that may grow: who takes their place leaves them there.
    pub placements: Placements,
}

/// Where the pods of each pod set are.
pub type Placements = BTreeMap<PodSetName, Placement>;

/// The flavor of each resource of each pod set.
pub type Flavors = BTreeMap<PodSetName, BTreeMap<ResourceName, FlavorName>>;

/// What a pod set was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Which pod set.
    pub name: PodSetName,
    /// For how many pods.
    pub count: u32,
    /// The flavor of each resource.
    pub flavors: BTreeMap<ResourceName, FlavorName>,
    /// How much of each resource, for all pods together.
    pub usage: BTreeMap<ResourceName, Amount>,
    /// Whether somebody else still has to find the place for the pods.
    pub topology_pending: bool,
    /// Where the pods go, if that is decided here.
    pub placement: Option<Placement>,
}

/// What the pods of a Workload take of the domains that they were given.
pub fn places(workload: &Workload, pod_sets: &[PodSetAssignment]) -> Vec<Taken> {
    let of = |assigned: &PodSetAssignment| {
        let pod_set = workload.pod_sets.iter().find(|pod_set| pod_set.name == assigned.name)?;
        let placement = assigned.placement.as_ref()?;
        Some(ground::taken(assigned.flavors.values(), placement, pod_set.pod_requests()))
    };
    pod_sets.iter().filter_map(of).flatten().collect()
}

/// Where the pods of a Workload go.
pub fn placements(pod_sets: &[PodSetAssignment]) -> Placements {
    let of = |assigned: &PodSetAssignment| Some((assigned.name.clone(), assigned.placement.clone()?));
    pod_sets.iter().filter_map(of).collect()
}

/// The flavors that a Workload was given.
pub fn flavors(pod_sets: &[PodSetAssignment]) -> Flavors {
    pod_sets.iter().map(|pod_set| (pod_set.name.clone(), pod_set.flavors.clone())).collect()
}

/// What was given to a Workload in all its pod sets.
pub fn total_usage(pod_sets: &[PodSetAssignment]) -> BTreeMap<FlavorResource, Amount> {
    let mut total = BTreeMap::new();
    for pod_set in pod_sets {
        for (resource, flavor) in &pod_set.flavors {
            let fr = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
            *total.entry(fr).or_insert(Amount::ZERO) +=
                pod_set.usage.get(resource).copied().unwrap_or_default();
        }
    }
    total
}
