//! Does a request fit into a ClusterQueue, what is borrowed, and what would it take if it does not fit?

use std::cmp::Ordering;

use types::Amount;

use super::{
    config::{Fungibility, Preference, ReclaimWithinCohort, WhenCanBorrow, WhenCanPreempt},
    cycle::World,
    preempt::{self, Preemptor, Wanted},
    tree::{CellId, FrId, Tree, Use},
    why::Why,
};

/// What it takes to get a flavor, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// It does not fit, whoever leaves.
    NoFit,
    /// It would fit if others left, but none of them may be pushed out now.
    NoCandidates,
    /// It fits once Workloads of its own queue, and maybe of others, are pushed out.
    Preempt,
    /// It fits once Workloads of other queues are pushed out.
    Reclaim,
    /// It fits.
    Fit,
}

/// How well a flavor fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// What it takes.
    pub mode: Mode,
    /// How far up the tree the quota comes from; 0 is without borrowing.
    pub level: usize,
}

impl Fit {
    /// Nothing fits better.
    pub const BEST: Fit = Fit { mode: Mode::Fit, level: 0 };
    /// Nothing fits worse.
    pub const WORST: Fit = Fit { mode: Mode::NoFit, level: usize::MAX };

    /// Which of two fits is better (FA-6, FA-8).
    pub fn compare(self, other: Fit, preference: Preference) -> Ordering {
        if self.mode == Mode::NoFit || other.mode == Mode::NoFit {
            return (self.mode != Mode::NoFit).cmp(&(other.mode != Mode::NoFit));
        }
        let can_be_had = |fit: Fit| fit.mode != Mode::NoCandidates;
        let by_mode = self.mode.cmp(&other.mode);
        let by_level = other.level.cmp(&self.level);
        can_be_had(self).cmp(&can_be_had(other)).then(match preference {
            Preference::BorrowingOverPreemption => by_mode.then(by_level),
            Preference::PreemptionOverBorrowing => by_level.then(by_mode),
        })
    }

    /// Whether this fit is good enough to look no further (FA-7).
    pub fn ends_search(self, fungibility: Fungibility) -> bool {
        match self.mode {
            Mode::NoFit | Mode::NoCandidates => false,
            Mode::Preempt | Mode::Reclaim
                if fungibility.when_can_preempt == WhenCanPreempt::TryNextFlavor =>
            {
                false
            }
            _ => self.level == 0 || fungibility.when_can_borrow == WhenCanBorrow::MayStopSearch,
        }
    }
}

/// An amount of one flavor-resource that a pod set asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Of what.
    pub fr: FrId,
    /// The ClusterQueue's account.
    pub cell: CellId,
    /// What pod sets before this one were given of it.
    pub earlier: Amount,
    /// How much.
    pub amount: Amount,
}

/// How a request fits, and why not if it does not (FA-5).
pub fn fit(
    world: World<'_>,
    tree: &mut Tree,
    preemptor: Preemptor<'_>,
    request: Request,
) -> (Fit, Option<Why>) {
    let Request { fr, cell, earlier, amount } = request;
    let wanted = earlier + amount;
    let capacity = tree.potential(cell);
    if wanted > capacity {
        let fr = tree.flavor_resource(fr).clone();
        let why = Why::ExceedsCapacity { fr, earlier, request: amount, capacity };
        return (Fit { mode: Mode::NoFit, level: 0 }, Some(why));
    }
    let borrowing = tree.borrowing(cell, wanted);
    let available = tree.available(cell).or_zero();
    if wanted <= available {
        return (Fit { mode: Mode::Fit, level: borrowing.level }, None);
    }
    let why = Why::Short {
        fr: tree.flavor_resource(fr).clone(),
        missing: wanted - available,
        at: tree.name(tree.bottleneck(cell)).clone(),
    };
    let may_preempt = tree.quota(cell).nominal >= wanted
        || borrowing.below_root
        || preempts_while_borrowing(world, preemptor);
    if !may_preempt {
        return (Fit { mode: Mode::NoFit, level: borrowing.level }, Some(why));
    }
    (simulate(world, tree, preemptor, Use { fr, cell, amount: wanted }), Some(why))
}

/// What it would take to make room for `wanted` alone.
fn simulate(world: World<'_>, tree: &mut Tree, preemptor: Preemptor<'_>, wanted: Use) -> Fit {
    let alone = Wanted { uses: &[wanted], to_place: &[], workload: preemptor.workload };
    let targets = preempt::targets(world, tree, preemptor, &[wanted.fr], alone);
    let mode = if targets.is_empty() {
        Mode::NoCandidates
    } else if targets.iter().any(|target| target.queue.node == preemptor.queue.node) {
        Mode::Preempt
    } else {
        Mode::Reclaim
    };
    let level = tree.trial(|tree| {
        for target in &targets {
            target.running.leave(tree);
        }
        tree.borrowing(wanted.cell, wanted.amount).level
    });
    Fit { mode, level }
}

/// Whether a Workload of this queue may push others out although it borrows itself.
fn preempts_while_borrowing(world: World<'_>, preemptor: Preemptor<'_>) -> bool {
    let preemption = preemptor.queue.config.preemption;
    preemption.borrow_within_cohort.is_some()
        || (world.policy.fair_sharing.is_some()
            && preemption.reclaim_within_cohort != ReclaimWithinCohort::Never)
}
