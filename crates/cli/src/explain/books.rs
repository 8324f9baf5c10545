//! What a cluster's queues would say to a Workload: pure, from the objects that it holds.
//!
//! The decision is the one that admission takes, [`rules::quota::decide`], asked for this Workload alone and, to find what
//! would let it in, once more without those who hold what it needs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::LimitRange;
use rules::meta::selector;
use rules::quota::config::Config;
use rules::quota::names::{ClusterQueueName, WorkloadKey};
use rules::quota::plan::{Because, Outcome};
use rules::quota::requests::{Accounting, Limits};
use rules::quota::topology::HOSTNAME;
use rules::quota::usage;
use rules::quota::why::Why;
use rules::quota::wire::{self, RequeuingTimestamp, Surroundings};
use rules::quota::workload::{Head, Obstacle, PodSet, Reservation};
use rules::quota::{Moment, Policy, Snapshot, decide};
use rules::visibility;
use rules::workload::{QUOTA_RESERVED, condition, is_admissible, state};
use serde::Serialize;
use types::Amount;
use types::kueue::{CheckState, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, StopPolicy, Workload};

use crate::cordon;
use crate::quota::Share;
use crate::view::owner;

/// How many of those who hold quota are named.
const NAMED: usize = 3;

/// The objects of a cluster that a decision depends on.
#[derive(Debug, Clone, Default)]
pub(super) struct Books {
    pub(super) local_queues: Vec<LocalQueue>,
    pub(super) cluster_queues: Vec<ClusterQueue>,
    pub(super) cohorts: Vec<Cohort>,
    pub(super) flavors: Vec<ResourceFlavor>,
    pub(super) workloads: Vec<Workload>,
    pub(super) limits: Vec<LimitRange>,
    /// The labels of the Workload's namespace; `None` if there is no such namespace.
    pub(super) namespace: Option<BTreeMap<String, String>>,
}

/// What is said to a Workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Verdict {
    /// It has quota here.
    Holds,
    /// It would get quota if it were its turn.
    Fits,
    /// It would get quota from others, who would be stopped.
    Preempts,
    /// It waits for what others hold.
    Waits,
    /// It will not get in, whoever leaves.
    Never,
    /// It cannot be asked for.
    Closed,
}

/// What a cluster's queues would say to a Workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) verdict: Verdict,
    pub(super) cluster_queue: Option<String>,
    /// What one pod of each pod set asks for.
    pub(super) pods: Vec<(u32, BTreeMap<String, Amount>)>,
    /// What is there and what is used of it, of all that it asks for.
    pub(super) shares: BTreeMap<String, Share>,
    /// Its place in the queue from 1, and how many wait there.
    pub(super) position: Option<(usize, usize)>,
    /// Since when it waits or holds, if it is known here.
    pub(super) since: Option<Timestamp>,
    /// Why, and what would change it.
    pub(super) why: String,
}

impl Answer {
    pub(super) fn closed(why: String) -> Answer {
        Answer {
            verdict: Verdict::Closed,
            cluster_queue: None,
            pods: Vec::new(),
            shares: BTreeMap::new(),
            position: None,
            since: None,
            why,
        }
    }

    /// What it asks for in all.
    pub(super) fn needs(&self) -> BTreeMap<String, Amount> {
        let mut needs = BTreeMap::new();
        for (count, pod) in &self.pods {
            for (resource, amount) in pod {
                *needs.entry(resource.clone()).or_insert(Amount::ZERO) += amount.times(i64::from(*count));
            }
        }
        needs
    }
}

impl Books {
    /// What would be said to a Workload.
    pub(super) fn ask(&self, workload: &Workload, now: Timestamp) -> Answer {
        let queue_name = state::queue_name(workload);
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let Some(labels) = &self.namespace else {
            return Answer::closed(format!("there is no namespace {namespace}"));
        };
        let here = self.local_queues.iter().filter(|it| it.metadata.namespace == workload.metadata.namespace);
        let queue = here.clone().find(|it| it.metadata.name.as_deref() == Some(queue_name));
        let Some(queue) = queue else {
            let others: Vec<&str> = here.filter_map(|it| it.metadata.name.as_deref()).collect();
            let others =
                if others.is_empty() { String::new() } else { format!("; there is {}", others.join(", ")) };
            return Answer::closed(format!(
                "there is no queue {queue_name} in namespace {namespace}{others}"
            ));
        };
        let target = queue.spec.cluster_queue.as_str();
        let object = self.cluster_queues.iter().find(|it| it.metadata.name.as_deref() == Some(target));
        let Some(object) = object else {
            return Answer::closed(format!(
                "queue {queue_name} leads to ClusterQueue {target}, which is not there"
            ));
        };
        let known = self.workloads.iter().find(|it| {
            it.metadata.name == workload.metadata.name && it.metadata.namespace == workload.metadata.namespace
        });
        let (pods, obstacle) = self.pod_sets(workload);
        let snapshot = self.snapshot(workload);
        let mut answer = Answer {
            verdict: Verdict::Waits,
            cluster_queue: Some(target.to_owned()),
            pods: pods.iter().map(per_pod).collect(),
            shares: BTreeMap::new(),
            position: self.position(target, workload, now),
            since: known.map(since),
            why: String::new(),
        };
        answer.shares = shares(&snapshot, target, &answer.needs());
        if queue.spec.stop_policy.unwrap_or_default() != StopPolicy::None {
            return Answer { verdict: Verdict::Closed, why: stopped(queue), ..answer };
        }
        if known.is_some_and(state::has_quota) {
            return Answer { verdict: Verdict::Holds, why: holds(known), position: None, ..answer };
        }
        let is_served = selector::matches(object.spec.namespace_selector.as_ref(), labels) == Some(true);
        let obstacle = if is_served { obstacle } else { Some(Obstacle::NamespaceMismatch) };
        let waiting = wire::waiting(workload, pods, RequeuingTimestamp::default());
        let head = Head {
            workload: waiting.workload,
            cluster_queue: ClusterQueueName::from(target),
            obstacle,
            progress: None,
        };
        let (verdict, why) = self.judge(&snapshot, &head, object, now);
        // Quota is not everything where pods are placed. What there is on nodes is not in the books, and was said already.
        match known.and_then(no_place).filter(|_| verdict == Verdict::Fits) {
            Some(said) => Answer { verdict: Verdict::Waits, why: said, ..answer },
            None => Answer { verdict, why, ..answer },
        }
    }

    fn judge(
        &self,
        snapshot: &Snapshot,
        head: &Head,
        queue: &ClusterQueue,
        now: Timestamp,
    ) -> (Verdict, String) {
        match outcome(snapshot, head, now) {
            Outcome::Admit { level: 0, .. } | Outcome::Holds => {
                (Verdict::Fits, "there is room for it".to_owned())
            }
            Outcome::Admit { .. } => (Verdict::Fits, "there is room for it, by borrowing".to_owned()),
            Outcome::Preempt { victims, .. } => {
                let names = self.names(victims.iter().map(|victim| &victim.workload));
                (Verdict::Preempts, format!("takes the place of {names}"))
            }
            Outcome::Wait { because: Because::QueueInactive, message, .. } => {
                let conditions = queue.status.as_ref().map_or(&[][..], |status| &status.conditions);
                let said = condition::find(conditions, "Active").map(|active| active.message.clone());
                (Verdict::Closed, said.unwrap_or(message))
            }
            Outcome::Wait { because: Because::NoFit, why, message } => match never(&why) {
                Some(text) => (Verdict::Never, text),
                None => self.until(snapshot, head, &why, message, now),
            },
            Outcome::Wait { because: Because::NoCandidates | Because::Skipped, why, message } => {
                self.until(snapshot, head, &why, message, now)
            }
            Outcome::Wait { because: Because::PodsNotReady, message, .. } => (Verdict::Waits, message),
            Outcome::Wait { message, .. } => (Verdict::Closed, message),
        }
    }

    /// Who would have to end to let it in.
    fn until(
        &self,
        snapshot: &Snapshot,
        head: &Head,
        why: &[Why],
        message: String,
        now: Timestamp,
    ) -> (Verdict, String) {
        let missing = missing(why).unwrap_or(message);
        let Some(holders) = would_admit(snapshot, head, now) else {
            return (Verdict::Never, format!("{missing}; not even when all others end"));
        };
        let names = self.names(holders.iter().map(|holder| &holder.key));
        let verb = if holders.len() == 1 { "ends" } else { "have ended" };
        (Verdict::Waits, format!("{missing}: when {names} {verb}"))
    }

    /// What Workloads stand for, in words.
    fn names<'a>(&self, keys: impl Iterator<Item = &'a WorkloadKey>) -> String {
        let names: Vec<String> = keys.map(|key| self.name(key)).collect();
        match names.as_slice() {
            [one] => one.clone(),
            [all @ .., last] if names.len() <= NAMED => format!("{} and {last}", all.join(", ")),
            _ => format!("{} and {} others", names[..NAMED.min(names.len())].join(", "), names.len() - NAMED),
        }
    }

    fn name(&self, key: &WorkloadKey) -> String {
        let object = self.workloads.iter().find(|it| {
            it.metadata.name.as_deref() == Some(&*key.name)
                && it.metadata.namespace.as_deref() == Some(&*key.namespace)
        });
        object.and_then(owner).map_or_else(|| key.name.to_string(), |owner| owner.name.clone())
    }

    fn pod_sets(&self, workload: &Workload) -> (Vec<PodSet>, Option<Obstacle>) {
        let limits = Limits::summarize(&self.limits).unwrap_or_default();
        let (overheads, accounting) = (BTreeMap::new(), Accounting::default());
        let around = Surroundings { runtime_overheads: &overheads, limits: &limits, accounting: &accounting };
        wire::pod_sets(workload, around)
    }

    /// Quotas, and who holds what of them. Topologies are taken to have the levels that the Workload asks for.
    fn snapshot(&self, workload: &Workload) -> Snapshot {
        let levels = levels(workload);
        let config = Config {
            flavors: self.flavors.iter().map(|flavor| wire::flavor(flavor, Some(&levels))).collect(),
            cohorts: self.cohorts.iter().map(wire::cohort).collect(),
            cluster_queues: self
                .cluster_queues
                .iter()
                .map(|queue| wire::cluster_queue(queue, is_active(queue), true))
                .collect(),
        };
        let mut snapshot = Snapshot::new(config);
        for workload in &self.workloads {
            if let Some(reservation) = wire::reservation(workload, RequeuingTimestamp::default()) {
                snapshot.reserve(reservation);
            }
        }
        snapshot
    }

    /// The place of a Workload among those who wait for a ClusterQueue.
    fn position(&self, cluster_queue: &str, workload: &Workload, now: Timestamp) -> Option<(usize, usize)> {
        let leads_here = |it: &&Workload| {
            let queue = self.local_queues.iter().find(|queue| {
                queue.metadata.name.as_deref() == Some(state::queue_name(it))
                    && queue.metadata.namespace == it.metadata.namespace
            });
            queue.is_some_and(|queue| queue.spec.cluster_queue == cluster_queue)
        };
        let object =
            self.cluster_queues.iter().find(|it| it.metadata.name.as_deref() == Some(cluster_queue))?;
        // How resources weigh against each other is known to the operator alone; here all of them weigh the same.
        let queue = wire::queue(object, &self.local_queues, &usage::Settings::default());
        let waiting = self.workloads.iter().filter(|it| is_admissible(it)).filter(leads_here);
        let order = visibility::in_order(queue, waiting, RequeuingTimestamp::default(), now);
        let place = order.iter().position(|waiting| waiting.metadata.uid == workload.metadata.uid)?;
        Some((place + 1, order.len()))
    }
}

/// The levels of topology that a Workload asks for, and that of hosts.
fn levels(workload: &Workload) -> Vec<String> {
    let requests = workload.spec.pod_sets.iter().filter_map(|pod_set| pod_set.topology_request.as_ref());
    let named = requests.flat_map(|request| {
        let layers = request.podset_slice_required_topology_constraints.iter().map(|layer| &layer.topology);
        let one = [&request.required, &request.preferred, &request.pod_set_slice_required_topology];
        one.into_iter().flatten().chain(layers).cloned()
    });
    named.chain([HOSTNAME.to_owned()]).collect()
}

/// Why a Workload has no place, if that is what was said last about it.
fn no_place(workload: &Workload) -> Option<String> {
    let said = state::find(workload, QUOTA_RESERVED).filter(|said| said.status == "False")?;
    said.message.contains("topology \"").then(|| said.message.clone())
}

fn outcome(snapshot: &Snapshot, head: &Head, now: Timestamp) -> Outcome {
    let at = Moment { now, cycle: 0 };
    let plan = decide(snapshot, std::slice::from_ref(head), &Policy::default(), at);
    let decision = plan.decisions.into_iter().next();
    decision.map_or(Outcome::Holds, |decision| decision.outcome)
}

/// The holder whose end alone would let a Workload in, or else the oldest ones who would together.
fn would_admit(snapshot: &Snapshot, head: &Head, now: Timestamp) -> Option<Vec<Reservation>> {
    let tree = snapshot.tree();
    let root = tree.root(snapshot.queue(&head.cluster_queue)?.node);
    let near = snapshot.queues().filter(|queue| tree.root(queue.node) == root);
    let mut holders: Vec<Reservation> =
        near.flat_map(|queue| queue.running().map(|running| running.reservation.clone())).collect();
    holders.sort_by(|one, other| (one.reserved_at, &one.key).cmp(&(other.reserved_at, &other.key)));
    let admits = |snapshot: &Snapshot| matches!(outcome(snapshot, head, now), Outcome::Admit { .. });
    for holder in &holders {
        let mut without = snapshot.clone();
        without.release(&holder.key);
        if admits(&without) {
            return Some(vec![holder.clone()]);
        }
    }
    let mut without = snapshot.clone();
    for (i, holder) in holders.iter().enumerate() {
        without.release(&holder.key);
        if admits(&without) {
            return Some(holders[..=i].to_vec());
        }
    }
    None
}

fn is_active(queue: &ClusterQueue) -> bool {
    let conditions = queue.status.as_ref().map_or(&[][..], |status| &status.conditions);
    condition::find(conditions, "Active").is_none_or(|active| active.status == "True")
}

fn per_pod(set: &PodSet) -> (u32, BTreeMap<String, Amount>) {
    let requests = set.requests.iter().map(|(resource, amount)| (resource.to_string(), *amount));
    (set.remaining(), requests.collect())
}

/// What a ClusterQueue could use in all and does use, borrowed quota included, of what is needed.
fn shares(snapshot: &Snapshot, queue: &str, needs: &BTreeMap<String, Amount>) -> BTreeMap<String, Share> {
    let mut shares: BTreeMap<String, Share> =
        needs.keys().map(|resource| (resource.clone(), Share::default())).collect();
    let Some(queue) = snapshot.queue(&ClusterQueueName::from(queue)) else { return shares };
    let tree = snapshot.tree();
    for (fr, cell) in tree.listed(queue.node) {
        let resource = tree.flavor_resource(fr).resource.as_str();
        if let Some(share) = shares.get_mut(resource) {
            let total = tree.potential(cell);
            share.total += total;
            share.used += (total - tree.available(cell)).or_zero();
        }
    }
    shares
}

/// Since when a Workload waits, or holds what it has.
fn since(workload: &Workload) -> Timestamp {
    let reserved = state::find(workload, rules::workload::QUOTA_RESERVED);
    let created = workload.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    reserved.map_or(created, |reserved| reserved.last_transition_time.0)
}

/// How a queue is stopped, and what would let it go on.
fn stopped(queue: &LocalQueue) -> String {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let policy = queue.spec.stop_policy.unwrap_or_default();
    if cordon::holders(&queue.metadata).contains(&cordon::MANAGER) {
        return format!("queue {name} is stopped ({policy:?}) until ferry uncordon");
    }
    format!("queue {name} is stopped ({policy:?}) until its spec.stopPolicy is None")
}

fn holds(workload: Option<&Workload>) -> String {
    match workload.map(state::state) {
        Some(state::State::Admitted) => return "it has quota and may run".to_owned(),
        Some(state::State::Finished) => return "it has ended".to_owned(),
        _ => {}
    }
    let checks = workload.into_iter().flat_map(state::checks);
    let open = checks.filter(|check| check.state != CheckState::Ready).map(|check| {
        let said = if check.message.is_empty() { String::new() } else { format!(": {}", check.message) };
        format!("{} ({:?}{said})", check.name, check.state)
    });
    match open.collect::<Vec<_>>().as_slice() {
        [] => "it has quota, and waits for its checks".to_owned(),
        open => format!("it has quota, and waits for its checks: {}", open.join(", ")),
    }
}

/// Why it will never fit, if that is so.
fn never(why: &[Why]) -> Option<String> {
    why.iter().find_map(|why| match why {
        Why::NotCovered(resource) => Some(format!(
            "there is no quota for {resource} at all: leave it out, or add it to the ClusterQueue"
        )),
        Why::ExceedsCapacity { fr, earlier, request, capacity } => {
            let resource = fr.resource.as_str();
            let asked = *earlier + *request;
            Some(format!(
                "asks for {resource} {}, and there is {} at most: ask for less, or raise the quota",
                asked.text(resource),
                capacity.text(resource)
            ))
        }
        Why::Short { .. } => None,
        other => Some(other.to_string()),
    })
}

/// What is missing, in words.
fn missing(why: &[Why]) -> Option<String> {
    let mut parts: BTreeMap<&str, Amount> = BTreeMap::new();
    for why in why {
        if let Why::Short { fr, missing, .. } = why {
            let least = parts.entry(fr.resource.as_str()).or_insert(*missing);
            *least = (*least).min(*missing);
        }
    }
    let texts: Vec<String> =
        parts.iter().map(|(resource, missing)| format!("{resource} {}", missing.text(resource))).collect();
    (!texts.is_empty()).then(|| format!("{} more needed", texts.join(", ")))
}
