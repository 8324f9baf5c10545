//! Steps, why they are taken, and when to look again. A plan prints as one line: that line is the log entry, what tests
//! expect and what people are shown.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;
use types::kueue::WorkloadSpec;

use super::ClusterName;

/// What to do now about one Workload. Each step is allowed by what was seen alone, so any of them can be taken without
/// the others; taking one twice does no harm.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What to do.
    pub steps: Vec<Step>,
    /// Why, or what is waited for.
    pub because: Because,
    /// When to look again even if nothing happens.
    pub again: Option<Timestamp>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// On the manager: the check refuses for good.
    Reject(String),
    /// On the manager: the check asks for another attempt.
    Retry {
        /// In words.
        message: String,
        /// Whether it is worth a warning.
        warn: bool,
    },
    /// On the manager: say to which clusters the Workload is offered.
    Nominate(Vec<ClusterName>),
    /// On the manager: say what is waited for, where the check is read; nothing if it is empty.
    Say(String),
    /// On the manager: record the chosen cluster, before a job exists there.
    Assign(ClusterName),
    /// On the manager: record where the job is that a manager has started which keeps no such record.
    Hold(ClusterName),
    /// On the manager: take the choice back; no job exists.
    Unassign,
    /// On the manager: forget the record; no job exists any more.
    Forget,
    /// On the manager: the check is passed.
    Ready(ClusterName),
    /// On the manager: the pods of these pod sets were given their places by the worker.
    Place(Vec<String>),
    /// On the manager: the Workload has ended.
    Finish {
        /// How.
        reason: String,
        /// In words.
        message: String,
    },
    /// On the manager: the status of the job, as a cluster reported it.
    Mirror {
        /// Which cluster.
        cluster: ClusterName,
        /// The status.
        status: Value,
    },
    /// On the manager: the status of the job without the pods that no cluster has any more.
    Settle(Value),
    /// On a worker: create the copy of the Workload.
    Create(ClusterName),
    /// On a worker: create the mirror of the job.
    Start(ClusterName),
    /// On a worker: change the copy's spec.
    Update(ClusterName, Box<WorkloadSpec>),
    /// On a worker: change the mirror by this merge patch.
    Forward(ClusterName, Value),
    /// On a worker: ask for the copy to be evicted.
    Deactivate(ClusterName, String),
    /// On a worker: delete the mirror, then the copy.
    Delete(ClusterName, Pods),
    /// On a worker: delete pods of a group that are none of it on the manager.
    Prune(ClusterName),
    /// On a worker: read what it holds.
    Look(ClusterName),
    /// Do not ask this cluster again for a while.
    Refuse(ClusterName, String),
}

/// What becomes of a mirror's pods when it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    /// They go after it: nobody waits for them.
    After,
    /// They go before it, so that its absence means theirs.
    Before,
    /// The mirror stays, and so do the pods of others: what goes is the copy, and its pods after it.
    OfOthers,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// The Workload has no MultiKueue check.
    NotDelegated,
    /// The Workload does not exist.
    Gone,
    /// The Workload is being deleted.
    Deleted,
    /// The Workload has ended.
    Finished,
    /// The check refused it.
    Rejected,
    /// Nobody can run it.
    Unmanaged,
    /// Its job was not seen yet.
    NoJob,
    /// A slice of an elastic job that another one follows.
    Slice,
    /// It holds no quota.
    NoQuota,
    /// The manager evicts it.
    Evicted,
    /// The manager is about to evict it.
    Retrying,
    /// Other checks are not passed.
    OtherChecks(Vec<String>),
    /// It is offered to clusters.
    Nominated,
    /// No cluster can be asked.
    NoCluster,
    /// Not all Workloads of its job are there.
    Components {
        /// How many are.
        there: usize,
        /// How many there should be.
        expected: i32,
    },
    /// Another Workload of its job chooses the cluster.
    NotFirst,
    /// A cluster admitted it.
    Admitted(ClusterName),
    /// The mirror has ended.
    Ended(ClusterName),
    /// The cluster evicted it.
    EvictedThere(ClusterName),
    /// The cluster has nothing of it any more, or not what it should.
    Missing(ClusterName),
    /// The copy and the job do not fit together, says the cluster.
    OutOfSync(ClusterName),
    /// The cluster refuses the job.
    Refused(ClusterName),
    /// The cluster is no longer among those that are configured.
    NotConfigured(ClusterName),
    /// The cluster cannot be reached.
    Lost(ClusterName),
    /// What an earlier attempt left there has to go first.
    Leftover(ClusterName),
    /// The choice was recorded without a cluster.
    NoRecord,
}

impl Plan {
    /// Nothing to do.
    pub fn wait(because: Because) -> Plan {
        Plan { steps: Vec::new(), because, again: None }
    }

    /// These steps.
    pub fn of(steps: Vec<Step>, because: Because) -> Plan {
        Plan { steps, because, again: None }
    }

    /// Looks again at `at`, or earlier if it would have anyway.
    pub fn again_at(mut self, at: Option<Timestamp>) -> Plan {
        self.again = [self.again, at].into_iter().flatten().min();
        self
    }

    /// The steps that are taken on the manager.
    pub fn on_manager(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.cluster().is_none())
    }

    /// The steps that are taken on a worker, or concern only it.
    pub fn on<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a Step> {
        self.steps.iter().filter(move |step| step.cluster().is_some_and(|on| on.as_str() == cluster))
    }
}

impl Step {
    /// The worker on which it is taken; `None` if on the manager.
    pub fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Step::Reject(_)
            | Step::Retry { .. }
            | Step::Nominate(_)
            | Step::Say(_)
            | Step::Assign(_)
            | Step::Hold(_)
            | Step::Unassign
            | Step::Forget
            | Step::Ready(_)
            | Step::Place(_)
            | Step::Finish { .. }
            | Step::Mirror { .. }
            | Step::Settle(_) => None,
            Step::Create(cluster)
            | Step::Start(cluster)
            | Step::Update(cluster, _)
            | Step::Forward(cluster, _)
            | Step::Deactivate(cluster, _)
            | Step::Delete(cluster, _)
            | Step::Prune(cluster)
            | Step::Look(cluster)
            | Step::Refuse(cluster, _) => Some(cluster),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            write!(f, "{step}, ")?;
        }
        if self.steps.is_empty() {
            write!(f, "wait, ")?;
        }
        write!(f, "because {}", self.because)?;
        match self.again {
            Some(at) => write!(f, ", again at {at}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Reject(message) => write!(f, "reject ({message})"),
            Step::Retry { message, .. } => write!(f, "retry ({message})"),
            Step::Nominate(clusters) => {
                write!(f, "nominate")?;
                clusters.iter().try_for_each(|cluster| write!(f, " {cluster}"))
            }
            Step::Say(message) => write!(f, "say ({message})"),
            Step::Assign(cluster) => write!(f, "assign {cluster}"),
            Step::Hold(cluster) => write!(f, "hold {cluster}"),
            Step::Unassign => write!(f, "unassign"),
            Step::Forget => write!(f, "forget"),
            Step::Ready(cluster) => write!(f, "ready {cluster}"),
            Step::Place(pod_sets) => write!(f, "place {}", pod_sets.join(" ")),
            Step::Finish { reason, .. } => write!(f, "finish {reason}"),
            Step::Mirror { cluster, .. } => write!(f, "mirror {cluster}"),
            Step::Settle(_) => write!(f, "settle"),
            Step::Create(cluster) => write!(f, "create {cluster}"),
            Step::Start(cluster) => write!(f, "start {cluster}"),
            Step::Update(cluster, _) => write!(f, "update {cluster}"),
            Step::Forward(cluster, _) => write!(f, "forward {cluster}"),
            Step::Deactivate(cluster, _) => write!(f, "deactivate {cluster}"),
            Step::Delete(cluster, Pods::After) => write!(f, "delete {cluster}"),
            Step::Delete(cluster, Pods::OfOthers) => write!(f, "delete {cluster} beside others"),
            Step::Delete(cluster, Pods::Before) => write!(f, "stop and delete {cluster}"),
            Step::Prune(cluster) => write!(f, "prune {cluster}"),
            Step::Look(cluster) => write!(f, "look at {cluster}"),
            Step::Refuse(cluster, why) => write!(f, "refuse {cluster} ({why})"),
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::NotDelegated => write!(f, "not delegated"),
            Because::Gone => write!(f, "gone"),
            Because::Deleted => write!(f, "deleted"),
            Because::Finished => write!(f, "finished"),
            Because::Rejected => write!(f, "rejected"),
            Because::Unmanaged => write!(f, "not managed"),
            Because::NoJob => write!(f, "its job was not seen"),
            Because::Slice => write!(f, "another slice follows"),
            Because::NoQuota => write!(f, "no quota"),
            Because::Evicted => write!(f, "evicted"),
            Because::Retrying => write!(f, "about to be evicted"),
            Because::OtherChecks(names) => write!(f, "other checks: {}", names.join(" ")),
            Because::Nominated => write!(f, "nominated"),
            Because::Components { there, expected } => {
                write!(f, "{there} of {expected} components are there")
            }
            Because::NotFirst => write!(f, "another component chooses"),
            Because::NoCluster => write!(f, "no cluster can be asked"),
            Because::Admitted(cluster) => write!(f, "admitted on {cluster}"),
            Because::Ended(cluster) => write!(f, "ended on {cluster}"),
            Because::EvictedThere(cluster) => write!(f, "evicted on {cluster}"),
            Because::Missing(cluster) => write!(f, "missing on {cluster}"),
            Because::OutOfSync(cluster) => write!(f, "out of sync on {cluster}"),
            Because::Refused(cluster) => write!(f, "refused by {cluster}"),
            Because::NotConfigured(cluster) => write!(f, "{cluster} is not configured"),
            Because::Lost(cluster) => write!(f, "{cluster} is lost"),
            Because::Leftover(cluster) => write!(f, "leftovers on {cluster}"),
            Because::NoRecord => write!(f, "no cluster is recorded"),
        }
    }
}
