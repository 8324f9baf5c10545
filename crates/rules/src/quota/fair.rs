//! Fair sharing: among queues that borrow, the one with the smallest share comes first, and the one with the largest
//! goes first.

use std::{
    cmp::{Ordering, Reverse},
    collections::{HashMap, HashSet, VecDeque},
};

use super::{
    config::ReclaimWithinCohort,
    cycle::World,
    preempt::{Preemptor, Reason, Target, Wanted, put_back, rank},
    share::Share,
    tree::{FrId, NodeId, Tree, Use},
};

/// When a queue may push out Workloads of another one that has a larger share (FS-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// If the other one still has at least as much afterwards.
    LessThanOrEqualToFinalShare,
    /// If the other one has more to begin with.
    LessThanInitialShare,
}

/// Those who have to go so that what is `wanted` fits (FS-3 to FS-7). Empty if no permitted set of victims is enough.
pub(super) fn targets<'a>(
    world: World<'a>,
    tree: &mut Tree,
    preemptor: Preemptor<'a>,
    contested: &[FrId],
    wanted: Wanted<'_>,
    strategies: &[Strategy],
) -> Vec<Target<'a>> {
    let mut candidates = candidates(world, tree, preemptor, contested);
    let Some(first) = strategies.first() else { return Vec::new() };
    // They are taken from each queue by itself, so where use counts, it is compared with that of the same queue (QU-23).
    candidates.sort_by_cached_key(|target| {
        let (unharmed, own, priority, reserved, uid) = rank(world, preemptor, target);
        let usage = world.snapshot.usage_behind(target.queue, &target.running.reservation);
        (unharmed, own, Reverse(usage), priority, reserved, uid)
    });
    tree.trial(|tree| {
        // Shares are compared as they will be with the new Workload in.
        tree.add_all(wanted.uses);
        let mut hunt = Hunt { world, preemptor, contested, wanted, targets: Vec::new() };
        let mut leftover = Vec::new();
        let mut found = hunt.first_pass(tree, candidates, *first, &mut leftover);
        if !found && strategies.len() > 1 {
            found = hunt.second_pass(tree, leftover);
        }
        if !found {
            return Vec::new();
        }
        tree.remove_all(wanted.uses);
        put_back(tree, &mut hunt.targets, wanted, true);
        hunt.targets
    })
}

/// All who may be pushed out: of the own queue by its policy, of other queues if those borrow what is contested.
fn candidates<'a>(
    world: World<'a>,
    tree: &Tree,
    preemptor: Preemptor<'a>,
    contested: &[FrId],
) -> Vec<Target<'a>> {
    let queue = preemptor.queue;
    let own = queue
        .running()
        .filter(|running| preemptor.may_preempt(&running.reservation))
        .map(|running| Target { running, queue, reason: Reason::InClusterQueue });
    let mut found: Vec<Target<'a>> = own.collect();
    let reclaims = queue.config.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never;
    if reclaims && tree.parent(queue.node).is_some() {
        for node in queues_below(tree, tree.root(queue.node)) {
            let Some(other) = world.snapshot.queue_at(node) else { continue };
            if node == queue.node || tree.is_within_quota(node, contested) {
                continue;
            }
            let theirs = other.running().filter(|running| preemptor.may_reclaim_from(&running.reservation));
            found.extend(theirs.map(|running| Target {
                running,
                queue: other,
                reason: Reason::InCohortFairSharing,
            }));
        }
    }
    found.retain(|target| target.running.uses_any(contested));
    found
}

fn queues_below(tree: &Tree, node: NodeId) -> Vec<NodeId> {
    let below = tree.child_cohorts(node).iter().flat_map(|&cohort| queues_below(tree, cohort));
    tree.child_queues(node).iter().copied().chain(below).collect()
}

/// The search for targets, on a tree that has the preemptor's usage booked.
struct Hunt<'a, 's> {
    world: World<'a>,
    preemptor: Preemptor<'a>,
    contested: &'s [FrId],
    wanted: Wanted<'s>,
    targets: Vec<Target<'a>>,
}

impl<'a> Hunt<'a, '_> {
    fn first_pass(
        &mut self,
        tree: &mut Tree,
        candidates: Vec<Target<'a>>,
        strategy: Strategy,
        leftover: &mut Vec<Target<'a>>,
    ) -> bool {
        // Who stays within its own quota takes it back from whoever has it, whatever the shares.
        let entitled = tree.is_within_quota(self.preemptor.queue.node, self.contested);
        let mut order = Order::new(self.world, self.preemptor, tree, candidates);
        while let Some(queue) = order.next(tree) {
            let own = queue == self.preemptor.queue.node;
            if own || entitled {
                let reason = if own { Reason::InClusterQueue } else { Reason::InCohortReclamation };
                let Some(target) = order.pop(queue) else { continue };
                if self.take(tree, Target { reason, ..target }) {
                    return true;
                }
                continue;
            }
            let (mine, theirs) = self.sides(tree, queue);
            let preemptor_share = Share::of(tree, mine);
            let before = Share::of(tree, theirs);
            while let Some(target) = order.pop(queue) {
                let passes = match strategy {
                    Strategy::LessThanInitialShare => preemptor_share.compare(&before) == Ordering::Less,
                    Strategy::LessThanOrEqualToFinalShare => {
                        let after = tree.trial(|tree| {
                            target.running.leave(tree);
                            Share::of(tree, theirs)
                        });
                        preemptor_share.compare(&after) != Ordering::Greater
                    }
                };
                if !passes {
                    leftover.push(target);
                    continue;
                }
                if self.take(tree, target) {
                    return true;
                }
                // Shares have changed, and maybe whose turn it is.
                break;
            }
        }
        false
    }

    /// One more Workload of each queue whose share is larger to begin with (FS-6).
    fn second_pass(&mut self, tree: &mut Tree, leftover: Vec<Target<'a>>) -> bool {
        let mut order = Order::new(self.world, self.preemptor, tree, leftover);
        while let Some(queue) = order.next(tree) {
            let (mine, theirs) = self.sides(tree, queue);
            let passes = Share::of(tree, mine).compare(&Share::of(tree, theirs)) == Ordering::Less;
            let Some(target) = order.pop(queue) else { continue };
            if passes && self.take(tree, target) {
                return true;
            }
            order.drop(queue);
        }
        false
    }

    /// Takes a target, and says whether that is enough.
    fn take(&mut self, tree: &mut Tree, target: Target<'a>) -> bool {
        target.running.leave(tree);
        self.targets.push(target);
        tree.trial(|tree| {
            tree.remove_all(self.wanted.uses);
            self.wanted.fits(tree, true)
        })
    }

    /// The two children of the lowest common ancestor, one above the preemptor and one above the target.
    fn sides(&self, tree: &Tree, target: NodeId) -> (NodeId, NodeId) {
        let mine = self.preemptor.queue.node;
        let above: HashSet<NodeId> = tree.ancestors(mine).collect();
        let common = tree.ancestors(target).find(|node| above.contains(node));
        let side = |node: NodeId| {
            let below = tree.ancestors(node).take_while(|&above| Some(above) != common);
            below.last().unwrap_or(node)
        };
        (side(mine), side(target))
    }
}

/// Whose turn it is to lose a Workload: from the root down, always the child with the largest share (FS-4).
struct Order<'a> {
    world: World<'a>,
    preemptor: Preemptor<'a>,
    root: NodeId,
    on_my_path: HashSet<NodeId>,
    waiting: HashMap<NodeId, VecDeque<Target<'a>>>,
    pruned: HashSet<NodeId>,
}

impl<'a> Order<'a> {
    fn new(world: World<'a>, preemptor: Preemptor<'a>, tree: &Tree, candidates: Vec<Target<'a>>) -> Self {
        let mut waiting: HashMap<NodeId, VecDeque<Target<'a>>> = HashMap::new();
        for target in candidates {
            waiting.entry(target.queue.node).or_default().push_back(target);
        }
        let node = preemptor.queue.node;
        let on_my_path = tree.ancestors(node).collect();
        Order { world, preemptor, root: tree.root(node), on_my_path, waiting, pruned: HashSet::new() }
    }

    /// The queue whose turn it is; `None` when there is none left.
    fn next(&mut self, tree: &Tree) -> Option<NodeId> {
        if tree.parent(self.preemptor.queue.node).is_none() {
            let node = self.preemptor.queue.node;
            return (!self.pruned.contains(&node) && self.first(node).is_some()).then_some(node);
        }
        while !self.pruned.contains(&self.root) {
            if let Some(queue) = self.descend(tree, self.root) {
                return Some(queue);
            }
        }
        None
    }

    fn descend(&mut self, tree: &Tree, cohort: NodeId) -> Option<NodeId> {
        let queue = self.largest_queue(tree, cohort);
        let below = self.largest_cohort(tree, cohort);
        match (queue, below) {
            (None, None) => {
                self.pruned.insert(cohort);
                None
            }
            (Some((queue, share)), Some((_, larger))) if larger.compare(&share) == Ordering::Less => {
                Some(queue)
            }
            (_, Some((below, _))) => self.descend(tree, below),
            (Some((queue, _)), None) => Some(queue),
        }
    }

    fn largest_queue(&mut self, tree: &Tree, cohort: NodeId) -> Option<(NodeId, Share)> {
        let mut largest: Option<(NodeId, Share)> = None;
        for &queue in tree.child_queues(cohort) {
            if self.pruned.contains(&queue) {
                continue;
            }
            let share = Share::of(tree, queue);
            let Some(first) = self.first(queue) else {
                self.pruned.insert(queue);
                continue;
            };
            if !share.borrows() && queue != self.preemptor.queue.node {
                self.pruned.insert(queue);
                continue;
            }
            let wins = largest.as_ref().is_none_or(|(other, most)| match share.compare(most) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => self.first(*other).is_none_or(|other| self.comes_before(first, other)),
            });
            if wins {
                largest = Some((queue, share));
            }
        }
        largest
    }

    fn largest_cohort(&mut self, tree: &Tree, cohort: NodeId) -> Option<(NodeId, Share)> {
        let mut largest: Option<(NodeId, Share)> = None;
        for &below in tree.child_cohorts(cohort) {
            if self.pruned.contains(&below) {
                continue;
            }
            let share = Share::of(tree, below);
            if !share.borrows() && !self.on_my_path.contains(&below) {
                self.pruned.insert(below);
            } else if largest.as_ref().is_none_or(|(_, most)| share.compare(most) != Ordering::Less) {
                largest = Some((below, share));
            }
        }
        largest
    }

    fn comes_before(&self, one: &Target<'_>, other: &Target<'_>) -> bool {
        rank(self.world, self.preemptor, one) < rank(self.world, self.preemptor, other)
    }

    fn first(&self, queue: NodeId) -> Option<&Target<'a>> {
        self.waiting.get(&queue)?.front()
    }

    fn pop(&mut self, queue: NodeId) -> Option<Target<'a>> {
        self.waiting.get_mut(&queue)?.pop_front()
    }

    fn drop(&mut self, queue: NodeId) {
        self.pruned.insert(queue);
    }
}

/// A Workload in the tournament for the next place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contender<'a> {
    /// The ClusterQueue that it is the head of.
    pub node: NodeId,
    /// What it would use.
    pub uses: &'a [Use],
    /// Its priority.
    pub priority: i64,
    /// Since when it queues.
    pub queued_at: jiff::Timestamp,
}

/// The index of the one whose turn it is (FS-2): in every Cohort the child that would have the smallest share with its
/// Workload in, from the leaves to the root. Trees are independent of each other; the first contender's is taken.
pub(super) fn champion(tree: &mut Tree, contenders: &[Contender<'_>]) -> Option<usize> {
    let first = contenders.first()?;
    if tree.parent(first.node).is_none() {
        return Some(0);
    }
    let root = tree.root(first.node);
    let mut shares = HashMap::new();
    for (index, contender) in contenders.iter().enumerate() {
        if tree.root(contender.node) == root {
            let way = tree.trial(|tree| {
                tree.add_all(contender.uses);
                let mut child = contender.node;
                let mut way = Vec::new();
                for above in tree.ancestors(contender.node).collect::<Vec<_>>() {
                    way.push((above, Share::of(tree, child)));
                    child = above;
                }
                way
            });
            shares.extend(way.into_iter().map(|(above, share)| ((above, index), share)));
        }
    }
    let by_queue: HashMap<NodeId, usize> = contenders.iter().enumerate().map(|(i, c)| (c.node, i)).collect();
    Tournament { tree, contenders, shares: &shares, by_queue: &by_queue }.winner(root)
}

struct Tournament<'a> {
    tree: &'a Tree,
    contenders: &'a [Contender<'a>],
    /// The share, below a Cohort, of the child that a contender is in, with the contender in.
    shares: &'a HashMap<(NodeId, usize), Share>,
    by_queue: &'a HashMap<NodeId, usize>,
}

impl Tournament<'_> {
    fn winner(&self, cohort: NodeId) -> Option<usize> {
        let below = self.tree.child_cohorts(cohort).iter().filter_map(|&cohort| self.winner(cohort));
        let queues =
            self.tree.child_queues(cohort).iter().filter_map(|queue| self.by_queue.get(queue).copied());
        below.chain(queues).reduce(|best, other| if self.beats(other, best, cohort) { other } else { best })
    }

    fn beats(&self, one: usize, other: usize, cohort: NodeId) -> bool {
        let share = |index: usize| &self.shares[&(cohort, index)];
        let borrows = |index: usize| {
            let asked =
                self.contenders[index].uses.iter().filter(|wanted| wanted.amount > types::Amount::ZERO);
            share(index).borrows_any(asked.map(|wanted| wanted.fr))
        };
        let (a, b) = (&self.contenders[one], &self.contenders[other]);
        borrows(one)
            .cmp(&borrows(other))
            .then_with(|| share(one).compare(share(other)))
            .then_with(|| b.priority.cmp(&a.priority))
            .then_with(|| a.queued_at.cmp(&b.queued_at))
            .is_lt()
    }
}
