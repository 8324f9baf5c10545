//! Who has to go so that a Workload fits.
//!
//! The search is a heuristic, and Kueue's: candidates are taken in a fixed order until the Workload fits, then those
//! that turn out not to be needed are put back, the last taken first. The same candidates in another order would give
//! other victims, so the order is as much a rule as the policies are.

use std::{cmp::Reverse, collections::HashMap};

use jiff::Timestamp;
use types::Amount;

use super::{
    config::{BorrowWithinCohort, ReclaimWithinCohort, WithinClusterQueue},
    cycle::World,
    fair,
    names::WorkloadKey,
    placing::{self, ToPlace},
    snapshot::{Queue, Running},
    tree::{FrId, NodeId, Tree, Use},
    workload::{Reservation, Workload},
};

/// The Workload that others would make room for.
#[derive(Debug, Clone, Copy)]
pub struct Preemptor<'a> {
    /// The queue that it wants into.
    pub queue: &'a Queue,
    /// The Workload.
    pub workload: &'a Workload,
    /// Its priority.
    pub priority: i64,
    /// Since when it queues.
    pub queued_at: Timestamp,
    /// The one whose place it is to take, which goes without being pushed out.
    pub replaces: Option<&'a WorkloadKey>,
}

impl<'a> Preemptor<'a> {
    /// `workload` as it wants into `queue`.
    pub fn new(queue: &'a Queue, workload: &'a Workload) -> Self {
        let Workload { priority, queued_at, replaces, .. } = workload;
        Preemptor { queue, workload, priority: *priority, queued_at: *queued_at, replaces: replaces.as_ref() }
    }

    /// Whether the policy of its own queue lets it push out `other` of the same queue.
    pub fn may_preempt(&self, other: &Reservation) -> bool {
        if self.replaces == Some(&other.key) {
            return false;
        }
        match self.queue.config.preemption.within_cluster_queue {
            WithinClusterQueue::Never => false,
            WithinClusterQueue::LowerPriority => other.priority < self.priority,
            WithinClusterQueue::LowerOrNewerEqualPriority => {
                other.priority < self.priority
                    || (other.priority == self.priority && other.queued_at > self.queued_at)
            }
        }
    }

    /// Whether the policy of its own queue lets it push out `other` of another queue, if that one borrows.
    pub fn may_reclaim_from(&self, other: &Reservation) -> bool {
        match self.queue.config.preemption.reclaim_within_cohort {
            ReclaimWithinCohort::Never => false,
            ReclaimWithinCohort::LowerPriority => other.priority < self.priority,
            ReclaimWithinCohort::Any => true,
        }
    }
}

/// A Workload that is to be pushed out.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The Workload.
    pub running: &'a Running,
    /// The queue that it is in.
    pub queue: &'a Queue,
    /// Why it may be pushed out.
    pub reason: Reason,
}

/// Why a Workload may be pushed out (PR-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Another Workload of its queue is more important.
    InClusterQueue,
    /// A queue wants back what is its own.
    InCohortReclamation,
    /// Its queue has more than its fair share.
    InCohortFairSharing,
    /// A queue that borrows itself has the more important Workload.
    InCohortReclaimWhileBorrowing,
}

impl Reason {
    /// The reason of the `Preempted` condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::InClusterQueue => "InClusterQueue",
            Reason::InCohortReclamation => "InCohortReclamation",
            Reason::InCohortFairSharing => "InCohortFairSharing",
            Reason::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }

    /// The reason in the middle of a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Reason::InClusterQueue => "prioritization in the ClusterQueue",
            Reason::InCohortReclamation => "reclamation within the cohort",
            Reason::InCohortFairSharing => "Fair Sharing within the cohort",
            Reason::InCohortReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
        }
    }
}

/// What room is made for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Quota.
    pub uses: &'a [Use],
    /// Pods that need a place, too, and whose they are.
    pub to_place: &'a [ToPlace],
    /// The Workload that wants it.
    pub workload: &'a Workload,
}

impl Wanted<'_> {
    /// Whether all of it is there.
    pub(super) fn fits(&self, tree: &Tree, may_borrow: bool) -> bool {
        let within = || self.uses.iter().all(|wanted| !tree.borrows_with(wanted.cell, wanted.amount));
        let placed = || placing::find(tree.ground(), self.workload, self.to_place, false).is_ok();
        tree.fits(self.uses) && (may_borrow || within()) && (self.to_place.is_empty() || placed())
    }
}

/// Those who have to go so that what is `wanted` fits, given that `contested` is what there is too little of. Empty if no
/// permitted set of victims is enough.
pub fn targets<'a>(
    world: World<'a>,
    tree: &mut Tree,
    preemptor: Preemptor<'a>,
    contested: &[FrId],
    wanted: Wanted<'_>,
) -> Vec<Target<'a>> {
    match &world.policy.fair_sharing {
        Some(strategies) => fair::targets(world, tree, preemptor, contested, wanted, strategies),
        None => classical(world, tree, preemptor, contested, wanted),
    }
}

/// What makes a candidate one, in the order in which candidates are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// The preemptor is closer in the tree to the quota that the candidate borrows.
    Hierarchical,
    /// The candidate's queue borrows.
    Reclaim {
        /// Whether it has to go even if the preemptor borrows itself.
        while_borrowing: bool,
    },
    /// The candidate is in the preemptor's own queue.
    SameQueue,
}

#[derive(Debug, Clone, Copy)]
struct Candidate<'a> {
    running: &'a Running,
    queue: &'a Queue,
    claim: Claim,
    /// The lowest node that is above both the preemptor and the candidate; none in the preemptor's own queue.
    common: Option<NodeId>,
}

impl<'a> Candidate<'a> {
    fn target(&self) -> Target<'a> {
        let reason = match self.claim {
            Claim::SameQueue => Reason::InClusterQueue,
            Claim::Hierarchical | Claim::Reclaim { while_borrowing: false } => Reason::InCohortReclamation,
            Claim::Reclaim { while_borrowing: true } => Reason::InCohortReclaimWhileBorrowing,
        };
        Target { running: self.running, queue: self.queue, reason }
    }

    /// When it is its turn.
    fn class(&self) -> u8 {
        match self.claim {
            Claim::Hierarchical => 0,
            Claim::Reclaim { .. } => 1,
            Claim::SameQueue => 2,
        }
    }

    /// Whether pushing the candidate out is still right, after others went: its queue, and every Cohort up to the
    /// common one, must still use more than their own.
    fn still_borrows(&self, tree: &Tree, contested: &[FrId]) -> bool {
        let Some(common) = self.common else { return true };
        let above = tree.ancestors(self.queue.node).take_while(|&node| node != common);
        std::iter::once(self.queue.node).chain(above).all(|node| !tree.is_within_quota(node, contested))
    }
}

/// The order of candidates with equal claims (PR-4): those on their way out, those of other queues, the less
/// important, the later admitted. Inside of a queue use may come before priority (QU-23).
pub(super) fn rank<'a>(
    world: World<'_>,
    preemptor: Preemptor<'_>,
    target: &Target<'a>,
) -> (bool, bool, i64, Reverse<Timestamp>, &'a str) {
    let reservation = &target.running.reservation;
    (
        !reservation.evicted,
        target.queue.node == preemptor.queue.node,
        reservation.priority,
        Reverse(reservation.reserved_at.unwrap_or(world.at.now)),
        &reservation.uid,
    )
}

fn classical<'a>(
    world: World<'a>,
    tree: &mut Tree,
    preemptor: Preemptor<'a>,
    contested: &[FrId],
    wanted: Wanted<'_>,
) -> Vec<Target<'a>> {
    let candidates = candidates(world, tree, preemptor, contested, wanted.uses);
    let borrows_within_cohort = preemptor.queue.config.preemption.borrow_within_cohort.is_some();
    let has = |claim: fn(&Claim) -> bool| candidates.iter().any(|candidate| claim(&candidate.claim));
    let from_others = has(|claim| *claim != Claim::SameQueue);
    let hierarchical = has(|claim| *claim == Claim::Hierarchical);
    let below_nominal = contested.iter().all(|&fr| {
        tree.cell(preemptor.queue.node, fr).is_some_and(|cell| tree.usage(cell) < tree.quota(cell).nominal)
    });
    // Without borrowing there are more candidates, with it there is more room (PR-5).
    let attempts: &[bool] = if !from_others || (!borrows_within_cohort && !below_nominal) {
        &[true]
    } else if !borrows_within_cohort && !hierarchical {
        &[false, true]
    } else {
        &[true, false]
    };
    attempts
        .iter()
        .find_map(|&may_borrow| tree.trial(|tree| attempt(tree, &candidates, contested, wanted, may_borrow)))
        .unwrap_or_default()
}

/// Takes candidates until what is wanted fits, then puts back those that need not go (PR-6, PR-7).
fn attempt<'a>(
    tree: &mut Tree,
    candidates: &[Candidate<'a>],
    contested: &[FrId],
    wanted: Wanted<'_>,
    may_borrow: bool,
) -> Option<Vec<Target<'a>>> {
    let mut targets = Vec::new();
    for candidate in candidates {
        if may_borrow && candidate.claim == (Claim::Reclaim { while_borrowing: false }) {
            continue;
        }
        if !candidate.still_borrows(tree, contested) {
            continue;
        }
        candidate.running.leave(tree);
        targets.push(candidate.target());
        if wanted.fits(tree, may_borrow) {
            put_back(tree, &mut targets, wanted, may_borrow);
            return Some(targets);
        }
    }
    None
}

/// Spares every target without which what is wanted still fits, from the second last to the first (PR-7).
pub(super) fn put_back(tree: &mut Tree, targets: &mut Vec<Target<'_>>, wanted: Wanted<'_>, may_borrow: bool) {
    for index in (0..targets.len().saturating_sub(1)).rev() {
        let running = targets[index].running;
        running.stay(tree);
        if wanted.fits(tree, may_borrow) {
            targets.swap_remove(index);
        } else {
            running.leave(tree);
        }
    }
}

/// All who may be pushed out, in the order in which they are taken (PR-1 to PR-4).
fn candidates<'a>(
    world: World<'a>,
    tree: &Tree,
    preemptor: Preemptor<'a>,
    contested: &[FrId],
    uses: &[Use],
) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    let queue = preemptor.queue;
    for running in queue.running() {
        if preemptor.may_preempt(&running.reservation) && running.uses_any(contested) {
            found.push(Candidate { running, queue, claim: Claim::SameQueue, common: None });
        }
    }
    if queue.config.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never {
        let mut search = Search { world, tree, preemptor, contested, found: &mut found };
        search.whole_tree(uses);
    }
    found.sort_by_cached_key(|candidate| {
        let (unharmed, own, priority, reserved, uid) = rank(world, preemptor, &candidate.target());
        (unharmed, candidate.class(), own, priority, reserved, uid)
    });
    sort_by_usage(world, &mut found);
    found
}

/// Gives the places that candidates of one queue have to them anew, those first whose LocalQueues used most (QU-23): between
/// queues use does not count, and inside of one it counts more than priority.
///
/// Kueue compares two of one queue by use and two of different queues by priority, which is no order if there are several
/// queues. Where it happens to be one, this is the same.
fn sort_by_usage(world: World<'_>, found: &mut [Candidate<'_>]) {
    let mut places: HashMap<(bool, u8, NodeId), Vec<usize>> = HashMap::new();
    for (index, candidate) in found.iter().enumerate().filter(|(_, it)| it.queue.config.by_usage) {
        let evicted = candidate.running.reservation.evicted;
        places.entry((evicted, candidate.class(), candidate.queue.node)).or_default().push(index);
    }
    for places in places.into_values() {
        let mut candidates: Vec<Candidate<'_>> = places.iter().map(|&index| found[index]).collect();
        candidates.sort_by_key(|it| Reverse(world.snapshot.usage_behind(it.queue, &it.running.reservation)));
        for (index, candidate) in places.into_iter().zip(candidates) {
            found[index] = candidate;
        }
    }
}

/// The search for candidates in other queues.
struct Search<'a, 's> {
    world: World<'a>,
    tree: &'s Tree,
    preemptor: Preemptor<'a>,
    contested: &'s [FrId],
    found: &'s mut Vec<Candidate<'a>>,
}

impl Search<'_, '_> {
    /// Goes from the preemptor's queue to the root. As soon as the request fits into the quota of a node on the way,
    /// the preemptor has the better right to that quota than anybody outside of it (PR-2).
    fn whole_tree(&mut self, uses: &[Use]) {
        let (mut advantage, mut remaining) = self.fits_in_quota(self.preemptor.queue.node, uses);
        let mut visited = self.preemptor.queue.node;
        for common in self.tree.ancestors(self.preemptor.queue.node) {
            self.below(common, common, visited, advantage);
            let (fits, rest) = self.fits_in_quota(common, &remaining);
            advantage |= fits;
            remaining = rest;
            visited = common;
        }
    }

    /// Whether `uses` fit into the quota of `node`, and what of them the node above would have to give.
    fn fits_in_quota(&self, node: NodeId, uses: &[Use]) -> (bool, Vec<Use>) {
        let mut fits = true;
        let mut remaining = uses.to_vec();
        for wanted in &mut remaining {
            let Some(cell) = self.tree.cell(node, wanted.fr) else {
                fits &= wanted.amount <= Amount::ZERO;
                continue;
            };
            fits &= !self.tree.borrows_with(cell, wanted.amount);
            wanted.amount = (wanted.amount - self.tree.local_available(cell)).or_zero();
        }
        (fits, remaining)
    }

    /// Looks below `node` for queues that use more than their own, except where it was looked already.
    fn below(&mut self, node: NodeId, common: NodeId, visited: NodeId, advantage: bool) {
        for &cohort in self.tree.child_cohorts(node) {
            if cohort != visited && !self.tree.is_within_quota(cohort, self.contested) {
                self.below(cohort, common, visited, advantage);
            }
        }
        for &queue in self.tree.child_queues(node) {
            if queue != self.preemptor.queue.node && !self.tree.is_within_quota(queue, self.contested) {
                self.inside(queue, common, advantage);
            }
        }
    }

    fn inside(&mut self, queue: NodeId, common: NodeId, advantage: bool) {
        let Some(queue) = self.world.snapshot.queue_at(queue) else { return };
        for running in queue.running() {
            let reservation = &running.reservation;
            if self.preemptor.may_reclaim_from(reservation) && running.uses_any(self.contested) {
                let claim = if advantage { Claim::Hierarchical } else { self.claim_by_priority(reservation) };
                self.found.push(Candidate { running, queue, claim, common: Some(common) });
            }
        }
    }

    /// What the queue's `borrowWithinCohort` says about a candidate over whom the preemptor has no advantage (PR-3).
    fn claim_by_priority(&self, candidate: &Reservation) -> Claim {
        let while_borrowing = match self.preemptor.queue.config.preemption.borrow_within_cohort {
            None => false,
            Some(BorrowWithinCohort { max_priority }) => {
                candidate.priority < self.preemptor.priority
                    && max_priority.is_none_or(|most| candidate.priority <= most)
            }
        };
        Claim::Reclaim { while_borrowing }
    }
}

/// What a request may reserve although nobody makes room for it yet (SC-9). Where a queue holds more than it may
/// since its quota was cut, that is nothing; Kueue would give the excess away once more.
pub fn reserved_while_waiting(tree: &Tree, uses: &[Use], borrows: bool) -> Vec<Use> {
    let reserved = |wanted: &Use| {
        let quota = tree.quota(wanted.cell);
        let used = tree.usage(wanted.cell);
        let amount = match quota.borrowing_limit {
            None if borrows => wanted.amount,
            Some(limit) if borrows => wanted.amount.min(quota.nominal + limit - used),
            _ => wanted.amount.min(quota.nominal - used),
        };
        Use { amount: amount.or_zero(), ..*wanted }
    };
    uses.iter().map(reserved).collect()
}
