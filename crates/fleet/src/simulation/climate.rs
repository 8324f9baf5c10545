//! How rough a run is. Each draws for itself how much there is of every kind of fault, none or some or plenty of it:
//! what goes wrong only when two kinds meet is met sooner than if every run had a little of all of them.

use super::{network::Weather, random::Random};

/// How often things happen, in a thousand requests, moments or objects.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Climate {
    /// On the way to the workers.
    pub(super) workers: Weather,
    /// On the way to the manager.
    pub(super) manager: Weather,
    /// A worker no longer answers for a while.
    pub(super) freezes: u64,
    /// A worker's own controllers pause for a while, and pods go on.
    pub(super) naps: u64,
    /// The operator is killed, and started some time later.
    pub(super) kills: u64,
    /// A user deletes a Job, and may submit another of that name at once.
    pub(super) deletes: u64,
    /// A Workload is deactivated, or activated again.
    pub(super) deactivations: u64,
    /// A worker evicts a Workload, of those that it has admitted.
    pub(super) evictions: u64,
    /// Somebody deletes what is found on a worker.
    pub(super) vandals: u64,
    /// Somebody deletes a Workload on the manager, or changes a Job there.
    pub(super) meddlers: u64,
    /// A Job is elastic, of those that are submitted: when it is changed, it goes on.
    pub(super) elastic: u64,
    /// Users submit pods, too, one by one and in groups.
    pub(super) pods: bool,
}

impl Climate {
    pub(super) fn draw(seed: u64, random: &mut Random) -> Climate {
        let mut some_or = |some: u64, plenty: u64| match random.below(10) {
            0..3 => 0,
            3..7 => some,
            _ => plenty,
        };
        Climate {
            workers: Weather {
                lost: some_or(8, 50),
                unheard: some_or(12, 100),
                twice: some_or(8, 60),
                late: some_or(20, 200),
                ended: some_or(20, 100),
                stalled: some_or(10, 80),
                aimed: some_or(30, 400),
                silent: 500,
            },
            manager: Weather {
                lost: some_or(4, 20),
                unheard: some_or(4, 40),
                silent: 500,
                ..Weather::default()
            },
            freezes: some_or(4, 12),
            naps: some_or(4, 15),
            kills: some_or(4, 12),
            deletes: some_or(8, 40),
            deactivations: some_or(24, 60),
            evictions: some_or(5, 30),
            vandals: some_or(8, 30),
            meddlers: some_or(6, 25),
            // By the seed alone: what runs draw otherwise stays what it was before there were such Jobs.
            elastic: [0, 300, 1000][usize::try_from(seed % 3).unwrap_or(0)],
            pods: seed % 5 < 3,
        }
    }
}
