//! From Kueue's objects to what a decision sees, and back.
//!
//! Each function reads one object. What follows from several of them (whether a ClusterQueue is active, which
//! namespaces it serves) is an argument.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use types::{Amount, Quantity, kueue};

use super::{
    config::{
        BorrowWithinCohort, ClusterQueue, Cohort, Flavor, FlavorQuotas, Fungibility, Preemption, Preference,
        QueueingStrategy, Quota, ReclaimWithinCohort, ResourceGroup, Topology, WhenCanBorrow, WhenCanPreempt,
        WithinClusterQueue,
    },
    ledger::{Fate, Opening},
    names::{FlavorName, FlavorResource, LocalQueueKey, ResourceName, WorkloadKey},
    queue::{Queue, Waiting},
    requests::{self, Accounting, Limits, List, PodResources},
    topology::{Taken, encoding, ground, read},
    usage::Settings,
    workload::{
        Flavors, Layer, Obstacle, Placements, PodSet, PodSetAssignment, Reservation, TopologyRequest,
        Workload,
    },
};
use crate::{
    field::{self, Path},
    workload::{
        slice,
        state::{self, queue_name},
    },
};

/// The label of a Workload with the uid of the Job that it stands for.
pub const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";

/// A flavor. `levels` are those of its Topology, if that exists.
pub fn flavor(object: &kueue::ResourceFlavor, levels: Option<&[String]>) -> Flavor {
    let kueue::ResourceFlavorSpec { node_labels, node_taints, tolerations, topology_name } = &object.spec;
    Flavor {
        labels: node_labels.clone(),
        taints: node_taints.clone(),
        tolerations: tolerations.clone(),
        topology: topology_name
            .as_ref()
            .map(|name| Topology { name: name.clone(), levels: levels.unwrap_or_default().to_vec() }),
        ..Flavor::new(object.metadata.name.as_deref().unwrap_or_default())
    }
}

/// A Cohort.
pub fn cohort(object: &kueue::Cohort) -> Cohort {
    Cohort {
        name: object.metadata.name.as_deref().unwrap_or_default().into(),
        parent: object.spec.parent_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
        groups: object.spec.resource_groups.iter().map(resource_group).collect(),
        weight: weight(object.spec.fair_sharing.as_ref()),
    }
}

/// A ClusterQueue. `active` is what its condition says, and `defers_topology` that it has a MultiKueue check.
pub fn cluster_queue(object: &kueue::ClusterQueue, active: bool, defers_topology: bool) -> ClusterQueue {
    let spec = &object.spec;
    ClusterQueue {
        name: object.metadata.name.as_deref().unwrap_or_default().into(),
        cohort: spec.cohort_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
        groups: spec.resource_groups.iter().map(resource_group).collect(),
        strategy: match spec.queueing_strategy.unwrap_or_default() {
            kueue::QueueingStrategy::StrictFifo => QueueingStrategy::StrictFifo,
            kueue::QueueingStrategy::BestEffortFifo => QueueingStrategy::BestEffortFifo,
        },
        fungibility: fungibility(spec.flavor_fungibility.unwrap_or_default()),
        preemption: preemption(spec.preemption.unwrap_or_default()),
        weight: weight(spec.fair_sharing.as_ref()),
        active,
        defers_topology,
        by_usage: spec
            .admission_scope
            .is_some_and(|it| it.admission_mode == kueue::AdmissionMode::UsageBasedAdmissionFairSharing),
    }
}

fn resource_group(group: &kueue::ResourceGroup) -> ResourceGroup {
    let quota = |quota: &kueue::ResourceQuota| {
        let amount = |quantity: &Quantity| Amount::from_quantity(&quota.name, quantity);
        let numbers = Quota {
            nominal: amount(&quota.nominal_quota),
            borrowing_limit: quota.borrowing_limit.as_ref().map(amount),
            lending_limit: quota.lending_limit.as_ref().map(amount),
        };
        (ResourceName::from(quota.name.as_str()), numbers)
    };
    let flavors = group.flavors.iter().map(|flavor| FlavorQuotas {
        name: flavor.name.as_str().into(),
        resources: flavor.resources.iter().map(quota).collect(),
    });
    ResourceGroup {
        covered: group.covered_resources.iter().map(|name| name.as_str().into()).collect(),
        flavors: flavors.collect(),
    }
}

fn fungibility(given: kueue::FlavorFungibility) -> Fungibility {
    use kueue::{FlavorFungibilityPolicy as Policy, FlavorFungibilityPreference as Preferred};
    Fungibility {
        when_can_borrow: match given.when_can_borrow {
            None | Some(Policy::MayStopSearch) => WhenCanBorrow::MayStopSearch,
            Some(Policy::TryNextFlavor) => WhenCanBorrow::TryNextFlavor,
        },
        when_can_preempt: match given.when_can_preempt {
            None | Some(Policy::TryNextFlavor) => WhenCanPreempt::TryNextFlavor,
            Some(Policy::MayStopSearch) => WhenCanPreempt::MayStopSearch,
        },
        preference: match given.preference {
            None | Some(Preferred::BorrowingOverPreemption) => Preference::BorrowingOverPreemption,
            Some(Preferred::PreemptionOverBorrowing) => Preference::PreemptionOverBorrowing,
        },
    }
}

/// The schema knows `Any` for other queues only, and newer equals for the own queue only. Elsewhere each counts as the
/// next stricter policy.
fn preemption(given: kueue::ClusterQueuePreemption) -> Preemption {
    use kueue::PreemptionPolicy as Policy;
    let borrow = given
        .borrow_within_cohort
        .filter(|borrow| borrow.policy.unwrap_or_default() == kueue::BorrowWithinCohortPolicy::LowerPriority);
    Preemption {
        within_cluster_queue: match given.within_cluster_queue.unwrap_or_default() {
            Policy::Never | Policy::Any => WithinClusterQueue::Never,
            Policy::LowerPriority => WithinClusterQueue::LowerPriority,
            Policy::LowerOrNewerEqualPriority => WithinClusterQueue::LowerOrNewerEqualPriority,
        },
        reclaim_within_cohort: match given.reclaim_within_cohort.unwrap_or_default() {
            Policy::Never => ReclaimWithinCohort::Never,
            Policy::LowerPriority | Policy::LowerOrNewerEqualPriority => ReclaimWithinCohort::LowerPriority,
            Policy::Any => ReclaimWithinCohort::Any,
        },
        borrow_within_cohort: borrow
            .map(|borrow| BorrowWithinCohort { max_priority: borrow.max_priority_threshold.map(i64::from) }),
    }
}

/// How much a share weighs (FS-1).
fn weight(given: Option<&kueue::FairSharing>) -> f64 {
    given.and_then(|sharing| sharing.weight.as_ref()).map_or(1.0, Quantity::to_f64)
}

/// What a Workload's pods are told by the cluster that they run in.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The overhead of each RuntimeClass that has one.
    pub runtime_overheads: &'a BTreeMap<String, List>,
    /// The LimitRanges of the Workload's namespace.
    pub limits: &'a Limits,
    /// Which resources are counted, and as what.
    pub accounting: &'a Accounting,
}

/// What the pod sets of a Workload ask for, and why they may not ask for it (QM-27). Of what cannot be read there is none.
pub fn pod_sets(object: &kueue::Workload, around: Surroundings<'_>) -> (Vec<PodSet>, Option<Obstacle>) {
    let mut pod_sets = Vec::new();
    let mut above_own_limits = Vec::new();
    let mut out_of_range = Vec::new();
    for (index, given) in object.spec.pod_sets.iter().enumerate() {
        let path = Path::new("spec").child("podSets").index(index).child("template").child("spec");
        let spec = given.template.spec.clone().unwrap_or_default();
        let mut resources = match PodResources::read(&spec, &path) {
            Ok(resources) => resources,
            Err(errors) => return (Vec::new(), Some(invalid(VALIDATION_FAILED, &errors))),
        };
        let overhead = spec.runtime_class_name.as_ref().and_then(|name| around.runtime_overheads.get(name));
        resources.adjust(overhead, around.limits);
        above_own_limits.extend(resources.above_own_limits(&path));
        out_of_range.extend(resources.out_of_range(around.limits, &path));
        let total = resources.total();
        let node_affinity = spec.affinity.and_then(|affinity| affinity.node_affinity);
        let required = node_affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution);
        let request = given.topology_request.as_ref();
        let requests = requests::count(&total, around.accounting);
        let own_requests = Some(read::amounts(&total)).filter(|own| *own != requests);
        pod_sets.push(PodSet {
            name: given.name().into(),
            count: given.count.try_into().unwrap_or_default(),
            min_count: given.min_count.map(|least| least.try_into().unwrap_or_default()),
            reclaimable: reclaimable(object, given.name()),
            requests,
            own_requests,
            group: request.and_then(|request| request.pod_set_group_name.clone()),
            node_selector: spec.node_selector.unwrap_or_default(),
            node_affinity: required.map(|required| required.node_selector_terms).unwrap_or_default(),
            tolerations: spec.tolerations.unwrap_or_default(),
            topology: request.filter(|request| request.asks_for_placement()).map(topology),
        });
    }
    let obstacle = if !above_own_limits.is_empty() {
        Some(invalid(VALIDATION_FAILED, &above_own_limits))
    } else if !out_of_range.is_empty() {
        Some(invalid("resources didn't satisfy LimitRange constraints", &out_of_range))
    } else {
        None
    };
    (pod_sets, obstacle)
}

const VALIDATION_FAILED: &str = "resources validation failed";

/// The errors in one line, as Go joins them: several in brackets, each of them once.
fn invalid(what: &str, errors: &field::Errors) -> Obstacle {
    let mut texts: Vec<String> = Vec::new();
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Obstacle::InvalidResources(match texts.as_slice() {
        [one] => format!("{what}: {one}"),
        several => format!("{what}: [{}]", several.join(", ")),
    })
}

pub(super) fn topology(request: &kueue::PodSetTopologyRequest) -> TopologyRequest {
    let layer =
        |level: &str, size: i32| Layer { level: level.to_owned(), size: size.try_into().unwrap_or_default() };
    let layers = &request.podset_slice_required_topology_constraints;
    let one = request.pod_set_slice_required_topology.as_ref();
    let one = one.map(|level| layer(level, request.pod_set_slice_size.unwrap_or_default()));
    TopologyRequest {
        required: request.required.clone(),
        preferred: request.preferred.clone(),
        unconstrained: request.unconstrained == Some(true),
        slices: if layers.is_empty() {
            one.into_iter().collect()
        } else {
            layers.iter().map(|it| layer(&it.topology, it.size)).collect()
        },
    }
}

fn reclaimable(object: &kueue::Workload, pod_set: &str) -> u32 {
    let reclaimable = object.status.iter().flat_map(|status| &status.reclaimable_pods);
    let mut counts =
        reclaimable.filter(|it| it.name == pod_set).map(|it| u32::try_from(it.count).unwrap_or_default());
    counts.next().unwrap_or_default()
}

/// From when a Workload counts that was evicted because its pods were not ready in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequeuingTimestamp {
    /// From its eviction: it goes to the back of the queue.
    #[default]
    Eviction,
    /// From its creation: it keeps its place.
    Creation,
}

/// A Workload that waits, with what its pod sets ask for.
pub fn waiting(object: &kueue::Workload, pod_sets: Vec<PodSet>, from: RequeuingTimestamp) -> Waiting {
    let requeue_at =
        object.status.as_ref().and_then(|status| status.requeue_state.as_ref()?.requeue_at.as_ref());
    let key = key(object);
    Waiting {
        held_back: condition(object, "Requeued").is_some_and(|requeued| requeued.status == "False"),
        not_before: requeue_at.map(|time| time.0),
        ..Waiting::new(Workload {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            local_queue: local_queue(&key, object),
            key,
            job_uid: object.metadata.labels.as_ref().and_then(|labels| labels.get(JOB_UID_LABEL).cloned()),
            priority: priority(object),
            queued_at: queued_at(object, from),
            pod_sets,
            elastic: slice::is_elastic(object),
            replaces: replaces(object),
        })
    }
}

/// What a Workload holds, if it holds anything (SM-3): from what was written when it was admitted, less what pods that
/// are done gave back (JF-62). What its pods take of nodes is said by [`places`].
pub fn reservation(object: &kueue::Workload, from: RequeuingTimestamp) -> Option<Reservation> {
    let holds = |kind: &str| condition(object, kind).is_some_and(|condition| condition.status == "True");
    let active = object.spec.active.unwrap_or(true);
    if !holds("QuotaReserved") || holds("Finished") || !active {
        return None;
    }
    let admission = object.status.as_ref()?.admission.as_ref()?;
    let mut usage: BTreeMap<FlavorResource, Amount> = BTreeMap::new();
    for assigned in &admission.pod_set_assignments {
        let pod_set = object.spec.pod_sets.iter().find(|pod_set| pod_set.name() == assigned.name);
        let size = pod_set.map_or(0, |pod_set| pod_set.count);
        let count = i64::from(assigned.count.unwrap_or(size));
        let remaining = i64::from(size) - i64::from(reclaimable(object, &assigned.name));
        for (resource, flavor) in &assigned.flavors {
            let given = assigned.resource_usage.get(resource);
            let given = given.map_or(Amount::ZERO, |quantity| Amount::used(resource, quantity));
            let left = if remaining < count && count > 0 {
                Amount::new(given.units() / count).times(remaining.max(0))
            } else {
                given
            };
            *usage.entry(FlavorResource::new(flavor.as_str(), resource.as_str())).or_default() += left;
        }
    }
    let key = key(object);
    Some(Reservation {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        local_queue: local_queue(&key, object),
        key,
        priority: priority(object),
        queued_at: queued_at(object, from),
        reserved_at: condition(object, "QuotaReserved").map(|reserved| reserved.last_transition_time.0),
        evicted: holds("Evicted"),
        pods_ready: holds("PodsReady"),
        cluster_queue: admission.cluster_queue.as_str().into(),
        usage,
        replaces: replaces(object),
        flavors: if slice::is_elastic(object) { flavors(admission) } else { Flavors::default() },
        places: Vec::new(),
        placements: if slice::is_elastic(object) { placements(admission) } else { Placements::default() },
    })
}

/// What the pods of a Workload take of the domains that its admission names (TA-3): the part of a reservation that nobody
/// needs who does not place.
pub fn places(object: &kueue::Workload, around: Surroundings<'_>) -> Vec<Taken> {
    let mut all = Vec::new();
    let admission = object.status.as_ref().and_then(|status| status.admission.as_ref());
    for assigned in admission.into_iter().flat_map(|admission| &admission.pod_set_assignments) {
        let placement = assigned.topology_assignment.as_ref().and_then(encoding::decode);
        let pod_set = object.spec.pod_sets.iter().find(|pod_set| pod_set.name() == assigned.name);
        let (Some(placement), Some(pod_set)) = (placement, pod_set) else { continue };
        let spec = pod_set.template.spec.clone().unwrap_or_default();
        let mut resources = PodResources::read(&spec, &Path::new("spec")).unwrap_or_default();
        let overhead = spec.runtime_class_name.as_ref().and_then(|name| around.runtime_overheads.get(name));
        resources.adjust(overhead, around.limits);
        let flavors: Vec<FlavorName> =
            assigned.flavors.values().map(|flavor| flavor.as_str().into()).collect();
        all.extend(ground::taken(&flavors, &placement, &read::amounts(&resources.total())));
    }
    all
}

fn placements(admission: &kueue::Admission) -> Placements {
    let of = |assigned: &kueue::PodSetAssignment| {
        let placement = encoding::decode(assigned.topology_assignment.as_ref()?)?;
        Some((assigned.name.as_str().into(), placement))
    };
    admission.pod_set_assignments.iter().filter_map(of).collect()
}

fn flavors(admission: &kueue::Admission) -> Flavors {
    let of = |assigned: &kueue::PodSetAssignment| {
        let flavors = assigned.flavors.iter();
        let flavors = flavors.map(|(resource, flavor)| (resource.as_str().into(), flavor.as_str().into()));
        (assigned.name.as_str().into(), flavors.collect())
    };
    admission.pod_set_assignments.iter().map(of).collect()
}

/// The slice whose place a Workload takes.
fn replaces(object: &kueue::Workload) -> Option<WorkloadKey> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    slice::replaces(object).map(|name| WorkloadKey::new(namespace, name))
}

/// What is written about a Workload that got into `cluster_queue` (FA-11).
pub fn admission(cluster_queue: &str, pod_sets: &[PodSetAssignment]) -> kueue::Admission {
    let assignment = |given: &PodSetAssignment| kueue::PodSetAssignment {
        name: given.name.to_string(),
        flavors: given
            .flavors
            .iter()
            .map(|(resource, flavor)| (resource.to_string(), flavor.to_string()))
            .collect(),
        resource_usage: given
            .usage
            .iter()
            .map(|(resource, amount)| (resource.to_string(), amount.to_quantity(resource.as_str())))
            .collect(),
        count: Some(given.count.try_into().unwrap_or(i32::MAX)),
        topology_assignment: given.placement.as_ref().map(encoding::encode),
        delayed_topology_request: given
            .topology_pending
            .then_some(kueue::DelayedTopologyRequestState::Pending),
    };
    kueue::Admission {
        cluster_queue: cluster_queue.to_owned(),
        pod_set_assignments: pod_sets.iter().map(assignment).collect(),
    }
}

fn key(object: &kueue::Workload) -> WorkloadKey {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    WorkloadKey::new(&name(&object.metadata.namespace), &name(&object.metadata.name))
}

/// The LocalQueue that a Workload names.
fn local_queue(of: &WorkloadKey, object: &kueue::Workload) -> LocalQueueKey {
    LocalQueueKey { namespace: Arc::clone(&of.namespace), name: queue_name(object).into() }
}

/// How the books of a LocalQueue begin: what was written down of what it used.
pub fn opening(object: &kueue::LocalQueue) -> Opening {
    let sharing = object.status.as_ref().and_then(|status| status.fair_sharing.as_ref());
    let written = sharing.and_then(|it| it.admission_fair_sharing_status.as_ref());
    Opening {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        weight: weight(object.spec.fair_sharing.as_ref()),
        consumed: written.map(|it| it.consumed_resources.clone()).unwrap_or_default(),
        shown_at: written.map(|it| it.last_update.0),
    }
}

/// The queue of a ClusterQueue while nobody is in it, for who knows no more than objects tell: what LocalQueues used is what
/// was written down of them, and nothing is where use is not measured.
pub fn queue<'a>(
    object: &kueue::ClusterQueue,
    local_queues: impl IntoIterator<Item = &'a kueue::LocalQueue>,
    settings: &Settings,
) -> Queue {
    let config = cluster_queue(object, true, true);
    let mut queue = Queue::new(config.strategy);
    for local_queue in local_queues.into_iter().filter(|_| config.by_usage) {
        let Opening { consumed, weight, shown_at: Some(_), .. } = opening(local_queue) else { continue };
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let metadata = &local_queue.metadata;
        let key = LocalQueueKey::new(&part(&metadata.namespace), &part(&metadata.name));
        queue.set_by_usage(true);
        queue.set_usage(&key, Some(settings.usage(&consumed, weight)));
    }
    queue
}

/// What becomes of the penalty that a Workload has in the account of a LocalQueue (QU-22). `by_usage` says whether use
/// decides in a ClusterQueue.
pub fn fate(
    object: Option<&kueue::Workload>,
    penalized: &LocalQueueKey,
    by_usage: impl Fn(&str) -> bool,
) -> Fate {
    let Some(object) = object else { return Fate::Dropped };
    let moved = *penalized.name != *queue_name(object);
    if moved || state::is_finished(object) {
        return Fate::Dropped;
    }
    if !state::is_active(object) {
        // With quota it may be admitted without having to get in once more, if it is activated in time.
        return if state::has_quota(object) { Fate::Pending } else { Fate::Dropped };
    }
    match state::cluster_queue(object).filter(|_| state::is_admitted(object)) {
        Some(queue) if by_usage(queue) => Fate::Settled,
        Some(_) => Fate::Dropped,
        None => Fate::Pending,
    }
}

fn priority(object: &kueue::Workload) -> i64 {
    object.spec.priority.unwrap_or_default().into()
}

/// Since when a Workload queues (QU-3): its creation, or the eviction that sent it to the back.
fn queued_at(object: &kueue::Workload, from: RequeuingTimestamp) -> Timestamp {
    let created = object.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    match condition(object, "Evicted") {
        Some(evicted) if evicted.status == "True" => match evicted.reason.as_str() {
            "AdmissionCheck" => evicted.last_transition_time.0,
            "PodsReadyTimeout" if from == RequeuingTimestamp::Eviction => evicted.last_transition_time.0,
            _ => created,
        },
        _ => created,
    }
}

fn condition<'a>(object: &'a kueue::Workload, kind: &str) -> Option<&'a Condition> {
    object.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
}
