//! What a scheduling cycle decided, as a value that prints.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;

use super::{
    flavors::ScanProgress,
    names::{ClusterQueueName, WorkloadKey},
    preempt::Reason,
    queue::Requeue,
    why::Why,
    workload::{
        Flavors, Head, Placements, PodSetAssignment, Reservation, Workload, flavors, placements, places,
        total_usage,
    },
};
use crate::workload::condition;

/// What is decided about every head, in the order in which they had their turn. Prints one line for each.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// The decisions.
    pub decisions: Vec<Decision>,
}

/// What is decided about one Workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The Workload.
    pub workload: WorkloadKey,
    /// The queue that it wants into.
    pub cluster_queue: ClusterQueueName,
    /// What happens.
    pub outcome: Outcome,
    /// Where the next search for flavors goes on.
    pub progress: Option<ScanProgress>,
    /// Whether it would have pushed others out and was left for another cycle.
    pub skipped_preemption: bool,
}

/// What happens to a Workload.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It gets in.
    Admit {
        /// With this.
        pod_sets: Vec<PodSetAssignment>,
        /// How far up the tree its quota comes from; 0 is without borrowing.
        level: usize,
        /// Which flavors it could not simply have, in Kueue's words; empty if there was nothing to choose.
        considered: String,
    },
    /// Others are pushed out for it, and it waits until they are gone.
    Preempt {
        /// Who.
        victims: Vec<Victim>,
        /// What is missing until then.
        why: Vec<Why>,
        /// The same in Kueue's words.
        message: String,
    },
    /// It waits.
    Wait {
        /// What for.
        because: Because,
        /// What is missing.
        why: Vec<Why>,
        /// The same in Kueue's words.
        message: String,
    },
    /// It is in already, so there is nothing to decide.
    Holds,
}

/// What a Workload waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// Its queue to admit again, or to exist.
    QueueInactive,
    /// Its admission checks.
    FailedChecks,
    /// A namespace that its queue serves.
    NamespaceMismatch,
    /// Requests that are allowed.
    InvalidResources,
    /// Quota that is not there, whoever leaves.
    NoFit,
    /// Quota that others hold who may not be pushed out.
    NoCandidates,
    /// The next cycle, since another head takes the same room or the same victims.
    Skipped,
    /// The pods of others to be ready.
    PodsNotReady,
    /// The one whose place it would take, which is on its way out itself.
    SliceEvicted,
}

/// Who is pushed out, and what is written about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// Who.
    pub workload: WorkloadKey,
    /// Where it is.
    pub cluster_queue: ClusterQueueName,
    /// Why.
    pub reason: Reason,
    /// Whether it is on its way out already, so that nothing has to be written.
    pub evicted: bool,
    /// The message of its conditions `Evicted` and `Preempted`.
    pub message: String,
}

impl Decision {
    pub(super) fn new(head: &Head, outcome: Outcome, progress: Option<ScanProgress>) -> Decision {
        let (workload, cluster_queue) = (head.workload.key.clone(), head.cluster_queue.clone());
        Decision { workload, cluster_queue, outcome, progress, skipped_preemption: false }
    }

    /// What the Workload's condition `QuotaReserved=False` says, if it did not get in.
    pub fn message(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Admit { .. } | Outcome::Holds => None,
            Outcome::Preempt { message, .. } | Outcome::Wait { message, .. } => Some(message),
        }
    }

    /// The reason of that condition.
    pub fn reason(&self) -> Option<&'static str> {
        match &self.outcome {
            Outcome::Admit { .. } | Outcome::Holds => None,
            Outcome::Wait { because: Because::PodsNotReady, .. } => Some("Waiting"),
            Outcome::Preempt { .. } | Outcome::Wait { .. } => Some("Pending"),
        }
    }

    /// How the Workload goes back into its queue, if it did not get in.
    pub fn requeue(&self) -> Option<Requeue> {
        match &self.outcome {
            Outcome::Admit { .. } | Outcome::Holds => None,
            Outcome::Preempt { .. } => Some(Requeue::PendingPreemption),
            Outcome::Wait { because, .. } => Some(match because {
                Because::NoFit => Requeue::NoFit,
                Because::NoCandidates => Requeue::NoCandidates,
                Because::NamespaceMismatch => Requeue::NamespaceMismatch,
                Because::Skipped | Because::PodsNotReady => Requeue::FailedAfterNomination,
                Because::QueueInactive
                | Because::FailedChecks
                | Because::InvalidResources
                | Because::SliceEvicted => Requeue::Generic,
            }),
        }
    }

    /// What the Workload holds from `now` on, if it got in: what its object says when that is written with the same time, to
    /// the second. `workload` is the one that was decided about.
    pub fn reservation(&self, workload: &Workload, now: Timestamp) -> Option<Reservation> {
        let Outcome::Admit { pod_sets, .. } = &self.outcome else { return None };
        Some(Reservation {
            key: workload.key.clone(),
            uid: workload.uid.clone(),
            local_queue: workload.local_queue.clone(),
            priority: workload.priority,
            queued_at: workload.queued_at,
            reserved_at: Some(condition::time(now).0),
            evicted: false,
            pods_ready: false,
            cluster_queue: self.cluster_queue.clone(),
            usage: total_usage(pod_sets),
            replaces: workload.replaces.clone(),
            flavors: if workload.elastic { flavors(pod_sets) } else { Flavors::default() },
            places: places(workload, pod_sets),
            placements: if workload.elastic { placements(pod_sets) } else { Placements::default() },
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.decisions.iter().try_for_each(|decision| writeln!(f, "{decision}"))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { workload, cluster_queue, .. } = self;
        match &self.outcome {
            Outcome::Admit { pod_sets, level, .. } => {
                write!(f, "admit {workload} to {cluster_queue} with ")?;
                join(f, pod_sets)?;
                if *level > 0 { f.write_str(", borrowing") } else { Ok(()) }
            }
            Outcome::Preempt { victims, message, .. } => {
                f.write_str("preempt ")?;
                join(f, victims)?;
                write!(f, " for {workload} to {cluster_queue}, because {message}")
            }
            Outcome::Wait { message, why, .. } => {
                write!(f, "keep {workload} out of {cluster_queue}, because {message}")?;
                let exhausted: BTreeSet<String> = why.iter().filter_map(exhausted).collect();
                exhausted.iter().try_for_each(|text| write!(f, "; {text}"))
            }
            Outcome::Holds => write!(f, "leave {workload} in {cluster_queue}"),
        }
    }
}

/// Who has nothing left, which Kueue's own message does not tell.
fn exhausted(why: &Why) -> Option<String> {
    match why {
        Why::Short { fr, at, .. } => Some(format!("{at} has no more {fr}")),
        _ => None,
    }
}

fn join(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.workload, self.reason.as_str())
    }
}

impl fmt::Display for PodSetAssignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.name, self.count)?;
        for (resource, flavor) in &self.flavors {
            let amount = self.usage.get(resource).copied().unwrap_or_default();
            write!(f, " {}={}@{flavor}", resource, amount.text(resource.as_str()))?;
        }
        if let Some(placement) = &self.placement {
            write!(f, " on {placement}")?;
        }
        Ok(())
    }
}
