//! One scheduling cycle: from the heads of all ClusterQueues to who gets in, who is pushed out, and why the others wait.

use std::{
    cmp::Reverse,
    collections::{HashSet, VecDeque},
};

use jiff::Timestamp;
use types::Amount;

use super::{
    config::ReclaimWithinCohort,
    considered,
    fair::{self, Contender, Strategy},
    flavors::{self, Assignment, Outlook, Start},
    names::{FlavorName, WorkloadKey},
    partial, placing,
    plan::{Because, Decision, Outcome, Plan, Victim},
    preempt::{self, Preemptor, Reason, Target, Wanted},
    snapshot::{Queue, Snapshot},
    topology::{Taken, ground},
    tree::{Tree, Use},
    usage,
    workload::{self, Head, Obstacle, Reservation, Workload, places},
};

/// Settings that hold for all queues.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Policy {
    /// How queues share what they borrow; `None` is first come, first served.
    pub fair_sharing: Option<Vec<Strategy>>,
    /// What to do about resources that a ClusterQueue does not list.
    pub undeclared: Undeclared,
    /// Whether nobody gets in before the pods of all who are in are ready.
    pub block_admission: bool,
    /// How use is measured by which LocalQueues share a queue that wants it so; `None` is not at all.
    pub by_usage: Option<usage::Settings>,
}

/// What to do about resources that a ClusterQueue does not list (QM-25).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Undeclared {
    /// Who asks for one does not get in.
    #[default]
    Block,
    /// They are not counted.
    Ignore,
}

/// When a cycle takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// How many cycles there were before.
    pub cycle: u64,
}

/// What every step of a decision may look at.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    /// Who holds what.
    pub snapshot: &'a Snapshot,
    /// The settings.
    pub policy: &'a Policy,
    /// When.
    pub at: Moment,
}

/// Decides about the heads of all ClusterQueues, as things stand in the snapshot.
pub fn decide(snapshot: &Snapshot, heads: &[Head], policy: &Policy, at: Moment) -> Plan {
    let world = World { snapshot, policy, at };
    let mut tree = snapshot.tree().clone();
    let mut plan = Plan::default();
    let mut entries = Vec::new();
    for head in heads {
        match nominate(world, &mut tree, head) {
            Ok(entry) => entries.push(entry),
            Err(outcome) => plan.decisions.push(Decision::new(head, outcome, None)),
        }
    }
    entries.sort_by_cached_key(Entry::rank);
    let mut entries = VecDeque::from(entries);
    let mut turns = Turns { world, tree, taken: Vec::new(), replaced: Vec::new(), admitted: false };
    while let Some(entry) = turns.next(&mut entries) {
        let entry = turns.look_again(entry);
        let outcome = turns.take(&entry);
        let progress =
            if matches!(outcome, Outcome::Wait { .. }) { Some(entry.assignment.progress) } else { None };
        let skipped_preemption =
            !entry.targets.is_empty() && matches!(outcome, Outcome::Wait { because: Because::Skipped, .. });
        plan.decisions.push(Decision { skipped_preemption, ..Decision::new(entry.head, outcome, progress) });
    }
    plan
}

/// A head whose flavors were looked for.
#[derive(Debug)]
struct Entry<'a> {
    head: &'a Head,
    queue: &'a Queue,
    assignment: Assignment,
    /// What it would use beyond what the one holds whose place it is to take.
    uses: Vec<Use>,
    /// The same of domains.
    places: Vec<Taken>,
    targets: Vec<Target<'a>>,
    /// The one whose place it is to take.
    replaced: Option<&'a WorkloadKey>,
}

impl<'a> Entry<'a> {
    /// Looks for flavors for a head.
    fn new(world: World<'a>, tree: &mut Tree, head: &'a Head, queue: &'a Queue, start: Start<'_>) -> Self {
        let replaced = queue.replaced(&head.workload);
        let (assignment, targets) = tree.trial(|tree| {
            if let Some(slice) = replaced {
                slice.leave(tree);
            }
            assign(world, tree, queue, head, start)
        });
        let uses = beyond(&assignment.uses, replaced.map_or(&[], |slice| &slice.uses));
        let mut places = places(&head.workload, &assignment.given());
        if let Some(slice) = replaced {
            places = ground::beyond(places, &slice.places);
        }
        let replaced = replaced.map(|slice| &slice.reservation.key);
        Entry { head, queue, assignment, uses, places, targets, replaced }
    }

    /// Whose turn it is without fair sharing (SC-6): who borrows least, then the most important, then the oldest.
    fn rank(&self) -> (usize, Reverse<i64>, Timestamp, String) {
        let Workload { priority, queued_at, uid, .. } = &self.head.workload;
        (self.assignment.level, Reverse(*priority), *queued_at, uid.clone())
    }

    fn contender(&self) -> Contender<'_> {
        let Workload { priority, queued_at, .. } = self.head.workload;
        Contender { node: self.queue.node, uses: &self.uses, priority, queued_at }
    }

    fn wait(&self, because: Because, message: impl Into<String>) -> Outcome {
        Outcome::Wait { because, why: self.assignment.why().cloned().collect(), message: message.into() }
    }

    fn victim(&self, tree: &Tree, target: &Target<'a>) -> Victim {
        let Reservation { key, evicted, cluster_queue, .. } = &target.running.reservation;
        Victim {
            workload: key.clone(),
            cluster_queue: cluster_queue.clone(),
            reason: target.reason,
            evicted: *evicted,
            message: preemption_message(&self.head.workload, target.reason, tree, self.queue, target.queue),
        }
    }
}

/// What is written about a Workload that is pushed out (PR-9).
fn preemption_message(
    preemptor: &Workload,
    reason: Reason,
    tree: &Tree,
    into: &Queue,
    from: &Queue,
) -> String {
    let known = |uid: &str| if uid.is_empty() { "UNKNOWN".to_owned() } else { uid.to_owned() };
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
        known(&preemptor.uid),
        known(preemptor.job_uid.as_deref().unwrap_or_default()),
        reason.text(),
        tree.path(into.node),
        tree.path(from.node),
    )
}

/// Looks for flavors for a head, and for victims if it needs them (SC-3, SC-4).
fn nominate<'a>(world: World<'a>, tree: &mut Tree, head: &'a Head) -> Result<Entry<'a>, Outcome> {
    let wait = |because, message: String| Err(Outcome::Wait { because, why: Vec::new(), message });
    let name = &head.cluster_queue;
    if world.snapshot.holds(&head.workload.key) {
        return Err(Outcome::Holds);
    }
    if head.obstacle == Some(Obstacle::FailedChecks) {
        return wait(Because::FailedChecks, "The workload has failed admission checks".into());
    }
    let Some(queue) = world.snapshot.queue(name) else {
        return wait(Because::QueueInactive, format!("ClusterQueue {name} not found"));
    };
    if !world.snapshot.admits(queue) {
        return wait(Because::QueueInactive, format!("ClusterQueue {name} is inactive"));
    }
    match &head.obstacle {
        Some(Obstacle::NamespaceMismatch) => {
            let message = "workload namespace doesn't match ClusterQueue selector";
            return wait(Because::NamespaceMismatch, message.into());
        }
        Some(Obstacle::InvalidResources(message)) => return wait(Because::InvalidResources, message.clone()),
        Some(Obstacle::FailedChecks) | None => {}
    }
    let replaced = queue.replaced(&head.workload);
    if replaced.is_some_and(|slice| slice.reservation.evicted) {
        return wait(Because::SliceEvicted, "The workload slice that it replaces is evicted".into());
    }
    Ok(Entry::new(world, tree, head, queue, Start::After(head.progress.as_ref())))
}

/// What `uses` come to beyond what is `held` already.
fn beyond(uses: &[Use], held: &[Use]) -> Vec<Use> {
    let more = |wanted: &Use| {
        let held = held.iter().find(|held| held.cell == wanted.cell).map_or(Amount::ZERO, |held| held.amount);
        Use { amount: (wanted.amount - held).or_zero(), ..*wanted }
    };
    uses.iter().map(more).collect()
}

/// The full size if it fits or can be made to fit, else the largest part that does, else the full size in vain.
fn assign<'a>(
    world: World<'a>,
    tree: &mut Tree,
    queue: &'a Queue,
    head: &'a Head,
    start: Start<'_>,
) -> (Assignment, Vec<Target<'a>>) {
    let workload = &head.workload;
    let mut at_size = |counts: Option<&[u32]>| {
        let assignment = flavors::assign(world, tree, queue, workload, start, counts);
        match assignment.outlook() {
            Outlook::NoFit => (assignment, None),
            Outlook::Fit => (assignment, Some(Vec::new())),
            Outlook::Preempt => {
                let preemptor = Preemptor::new(queue, workload);
                let contested = assignment.contested(tree);
                // What it asks for none of needs no room, however much of that its queue uses already.
                let uses: Vec<Use> =
                    assignment.uses.iter().filter(|wanted| wanted.amount > Amount::ZERO).copied().collect();
                let wanted = Wanted { uses: &uses, to_place: &assignment.to_place, workload };
                let targets = preempt::targets(world, tree, preemptor, &contested, wanted);
                (assignment, Some(targets).filter(|targets| !targets.is_empty()))
            }
        }
    };
    let (full, targets) = at_size(None);
    let (mut assignment, targets) = match targets {
        Some(targets) => (full, targets),
        None => partial::largest(&workload.pod_sets, |counts| {
            let (assignment, targets) = at_size(Some(counts));
            targets.map(|targets| (assignment, targets))
        })
        .unwrap_or((full, Vec::new())),
    };
    if assignment.outlook() == Outlook::Preempt && !assignment.to_place.is_empty() {
        // The place is kept for it: where it will be once the others are gone, or would be if everybody were.
        let found = tree.trial(|tree| {
            for target in &targets {
                target.running.leave(tree);
            }
            placing::find(tree.ground(), workload, &assignment.to_place, targets.is_empty())
        });
        assignment.set_placements(workload, found.unwrap_or_default());
    }
    (assignment, targets)
}

/// What there is for a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Too little quota.
    None,
    /// Quota, but not the places that were found for its pods.
    Quota,
    /// All that it wants.
    All,
}

/// The state of a cycle between two turns.
struct Turns<'a> {
    world: World<'a>,
    /// Usage as it will be with all who got in so far, and with all victims still there.
    tree: Tree,
    /// The victims so far.
    taken: Vec<Target<'a>>,
    /// Those whose place somebody took so far.
    replaced: Vec<&'a WorkloadKey>,
    /// Whether somebody got in.
    admitted: bool,
}

impl<'a> Turns<'a> {
    /// The next in turn, out of `entries`, which are sorted.
    fn next(&mut self, entries: &mut VecDeque<Entry<'a>>) -> Option<Entry<'a>> {
        if self.world.policy.fair_sharing.is_none() {
            return entries.pop_front();
        }
        let contenders: Vec<Contender<'_>> = entries.iter().map(Entry::contender).collect();
        let index = fair::champion(&mut self.tree, &contenders)?;
        entries.remove(index)
    }

    /// A head whose turn it is. If those before it took the places that it would have had, it may have others.
    fn look_again(&mut self, entry: Entry<'a>) -> Entry<'a> {
        let waits = entry.assignment.outlook() == Outlook::Preempt && entry.targets.is_empty();
        if entry.places.is_empty() || waits || self.room_for(&entry) != Room::Quota {
            return entry;
        }
        let found = workload::flavors(&entry.assignment.given());
        Entry::new(self.world, &mut self.tree, entry.head, entry.queue, Start::With(&found))
    }

    /// What happens to a head whose turn it is (SC-7).
    fn take(&mut self, entry: &Entry<'a>) -> Outcome {
        let Assignment { pod_sets, level, .. } = &entry.assignment;
        let uses = &entry.uses;
        let outlook = entry.assignment.outlook();
        let message = entry.assignment.message();
        if outlook == Outlook::NoFit {
            return entry.wait(Because::NoFit, message);
        }
        if outlook == Outlook::Preempt && entry.targets.is_empty() {
            // Who can always take back what is its own need not keep others from borrowing it (SC-9).
            if entry.queue.config.preemption.reclaim_within_cohort != ReclaimWithinCohort::Any {
                let reserved = preempt::reserved_while_waiting(&self.tree, uses, *level > 0);
                self.tree.add_all(&reserved);
                self.tree.ground_mut().take(&entry.places);
            }
            return entry.wait(Because::NoCandidates, message);
        }
        if self.overlaps(entry) {
            let message = "Workload has overlapping preemption targets with another workload";
            return entry.wait(Because::Skipped, message);
        }
        if self.room_for(entry) != Room::All {
            return entry.wait(Because::Skipped, "Workload no longer fits after processing another workload");
        }
        self.taken.extend(&entry.targets);
        self.replaced.extend(entry.replaced);
        self.tree.add_all(uses);
        self.tree.ground_mut().take(&entry.places);
        if outlook == Outlook::Preempt {
            let victims: Vec<Victim> =
                entry.targets.iter().map(|target| entry.victim(&self.tree, target)).collect();
            let message = format!("{message}. Pending the preemption of {} workload(s)", victims.len());
            return Outcome::Preempt { victims, why: entry.assignment.why().cloned().collect(), message };
        }
        if self.is_blocked() {
            let message = "waiting for all admitted workloads to be in PodsReady condition";
            return entry.wait(Because::PodsNotReady, message);
        }
        self.admitted = true;
        let considered = considered::text(pod_sets);
        Outcome::Admit { pod_sets: entry.assignment.given(), level: *level, considered }
    }

    /// Whether somebody before has made one of those go whom this one needs to go.
    fn overlaps(&self, entry: &Entry<'a>) -> bool {
        let keys = |targets: &[Target<'a>]| -> Vec<&'a WorkloadKey> {
            targets.iter().map(|target| &target.running.reservation.key).collect()
        };
        let taken: HashSet<&WorkloadKey> =
            keys(&self.taken).into_iter().chain(self.replaced.iter().copied()).collect();
        keys(&entry.targets).into_iter().chain(entry.replaced).any(|key| taken.contains(key))
    }

    /// What there is for a head once all victims are gone, those of earlier turns included (SC-8).
    fn room_for(&mut self, entry: &Entry<'a>) -> Room {
        let Entry { uses, places, assignment, targets, .. } = entry;
        let flavors: Vec<&FlavorName> = assignment.to_place.iter().map(|it| &it.flavor).collect();
        let mut gone: Vec<&Target<'a>> = self.taken.iter().chain(targets).collect();
        gone.sort_by_key(|target| &target.running.reservation.key);
        gone.dedup_by_key(|target| &target.running.reservation.key);
        self.tree.trial(|tree| {
            for target in &gone {
                target.running.leave(tree);
            }
            if !tree.fits(uses) {
                Room::None
            } else if !tree.ground().fits(&flavors, places) {
                Room::Quota
            } else {
                Room::All
            }
        })
    }

    /// Whether somebody who is in is not ready, and that keeps others out (JF-65).
    fn is_blocked(&self) -> bool {
        let unready = || {
            let mut queues = self.world.snapshot.queues();
            queues.any(|queue| queue.running().any(|running| !running.reservation.pods_ready))
        };
        self.world.policy.block_admission && (self.admitted || unready())
    }
}
