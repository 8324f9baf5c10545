//! What one decision may depend on, read before deciding.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube_core::DynamicObject;
use types::kueue::{CheckState, Workload};

use super::{
    Adapter, ClusterName, ELASTIC, EVICTED, FINISHED, HELD, IS_GROUP, JOB_OWNER_GVK, JOB_OWNER_NAME,
    ORIGIN_UID, PREBUILT_WORKLOAD, QUOTA_RESERVED, REPLACEMENT_FOR,
    adapter::{self, Back},
    condition,
    nominate::nominated,
    plan::Pods,
};

/// Everything that one decision may depend on.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The Workload on the manager; `None` if it is gone.
    pub local: Option<Arc<Workload>>,
    /// What its MultiKueue check says; `None` if it has no such check.
    pub check: Option<Check>,
    /// Its job on the manager; `None` if it was not seen.
    pub job: Option<Arc<DynamicObject>>,
    /// The other Workloads of its job, if that has several.
    pub others: Vec<Arc<Workload>>,
    /// Whether jobs of its kind are run on workers here (MK-FLOW-05).
    pub is_enabled: bool,
    /// The clusters that it may be offered to, in the order of their configuration; none if that cannot be read.
    pub configured: Vec<ClusterName>,
    /// Every cluster that is known, configured or not. Ordered: the same input gives the same plan.
    pub remotes: BTreeMap<ClusterName, Remote>,
}

/// A Workload's MultiKueue check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: String,
    /// What it says.
    pub state: CheckState,
}

/// A cluster, and what it was last seen to hold of the Workload.
#[derive(Debug, Clone, Default)]
pub struct Remote {
    /// Whether it can be reached.
    pub link: Link,
    /// Why it does not show its jobs, if it says so.
    pub hides: Option<String>,
    /// The copy of the Workload.
    pub workload: Option<Arc<Workload>>,
    /// The mirror of the job.
    pub job: Option<Arc<DynamicObject>>,
    /// Whether the mirror is also that of other Workloads, and stays for them.
    pub is_shared: bool,
    /// When both were last asked for, after every write to them whose answer was lost can no longer arrive.
    pub read_at: Option<Timestamp>,
    /// Until when something may still arrive that was sent there and not answered.
    pub doubt_until: Option<Timestamp>,
    /// What a job that is gone from there may have left.
    pub left: Option<Left>,
    /// Whether it knows the kind of the job.
    pub lacks_kind: bool,
    /// Why it is not asked for the time being.
    pub refusal: Option<Refusal>,
    /// Whether its administrator wants nothing new to be sent there.
    pub is_cordoned: bool,
    /// What it has to do for this manager.
    pub load: Load,
    /// What tells it from all other clusters, if that is known.
    pub identity: Option<String>,
    /// The name by which it is looked at instead, if it has several: nothing is done by this one.
    pub same_as: Option<ClusterName>,
}

/// Pods that outlive their job, because somebody else deleted it before them: nothing is started elsewhere as long as there
/// are some, or may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// So many were seen.
    Pods(usize),
    /// Nobody may look, and by then they are gone.
    Until(Timestamp),
}

/// What a cluster has to do for a manager, by the Workloads of that. The fewer of them wait for it, the more room it has;
/// where as many wait, the one that runs fewer is less busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Load {
    /// How many it was asked to run and has not got yet.
    pub asked: usize,
    /// How many it has got, and has not ended.
    pub runs: usize,
}

impl Load {
    /// The clusters that a Workload waits for.
    pub fn asked(workload: &Workload) -> Vec<String> {
        if is_finished(workload) || holder(workload).is_some() {
            return Vec::new();
        }
        nominated(workload).map(|cluster| cluster.to_string()).collect()
    }

    /// The cluster that has a Workload and has not ended it.
    pub fn runs(workload: &Workload) -> Option<String> {
        holder(workload).filter(|_| !is_finished(workload)).map(|cluster| cluster.to_string())
    }
}

/// Whether a cluster can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// It can.
    #[default]
    Connected,
    /// Nothing was tried yet, or the first attempt is under way.
    Connecting,
    /// It cannot, since then.
    Lost {
        /// Since when.
        since: Timestamp,
        /// Whether its administrator says that it will not come back.
        given_up: bool,
    },
}

/// Why a cluster is not asked for the time being.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What it said.
    pub why: String,
    /// When it is asked again.
    pub until: Timestamp,
}

/// Who a Workload is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid, if the Workload is owned by it and not only named after it.
    pub uid: Option<String>,
    /// Whether it is one pod of a group.
    pub is_group: bool,
}

impl Owner {
    /// Who a Workload is for (MK-FLOW-03): whom its annotations name, its controller, or its first owner.
    pub fn of(workload: &Workload) -> Option<Owner> {
        let annotation = |key| annotation(&workload.metadata, key);
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        if let (Some(gvk), Some(name)) = (annotation(JOB_OWNER_GVK), annotation(JOB_OWNER_NAME))
            && let Some(adapter) = adapter::ALL.iter().find(|adapter| adapter.gvk() == gvk)
            && !name.is_empty()
        {
            let (api_version, kind) = (adapter.api_version(), adapter.kind.to_owned());
            let owner = owners.iter().find(|owner| owner.kind == kind && owner.name == name);
            let uid = owner.map(|owner| owner.uid.clone());
            return Some(Owner { api_version, kind, name: name.to_owned(), uid, is_group: false });
        }
        let owner = owners.iter().find(|owner| owner.controller == Some(true)).or(owners.first())?;
        Some(Owner {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: Some(owner.uid.clone()),
            is_group: owner.kind == "Pod" && annotation(IS_GROUP) == Some("true"),
        })
    }

    /// Whether this is the job itself, and not another one of its name.
    pub fn is(&self, job: &DynamicObject) -> bool {
        self.uid.is_none() || self.uid == job.metadata.uid
    }

    /// The adapter of its kind.
    pub fn adapter(&self) -> Option<&'static Adapter> {
        if self.is_group { Some(&adapter::GROUP) } else { Adapter::of(&self.api_version, &self.kind) }
    }
}

impl Observed {
    /// The cluster on which a job of the Workload may exist: the one that is recorded, or the one that was chosen by a
    /// manager that keeps no such record.
    pub fn holder(&self) -> Option<ClusterName> {
        holder(self.local.as_deref()?)
    }

    /// Whether what has the name of the job on a cluster is this Workload's concern, whoever it belongs to. It is not that of
    /// a slice that is over, or that waits for quota: the job runs by another one.
    pub fn is_current(&self) -> bool {
        let waits = |local: &Workload| {
            annotation(&local.metadata, REPLACEMENT_FOR).is_some()
                && !has_quota(local)
                && held(local).is_none()
        };
        let is_over = |local: &Workload| is_elastic(local) && (is_finished(local) || waits(local));
        self.job.is_some() && !self.local.as_deref().is_some_and(is_over)
    }

    /// Clusters that can be reached, with what they hold.
    pub fn connected(&self) -> impl Iterator<Item = (&ClusterName, &Remote)> {
        self.remotes.iter().filter(|(_, remote)| remote.link == Link::Connected && remote.same_as.is_none())
    }
}

impl Remote {
    /// The copy, if it is of this very Workload and not of an earlier one of its name.
    pub fn copy_of(&self, local: &Workload) -> Option<&Arc<Workload>> {
        self.workload.as_ref().filter(|copy| is_of(&copy.metadata, local.metadata.uid.as_deref()))
    }

    /// The mirror, if it is of this very job and Workload and not of an earlier one of its name.
    pub fn mirror_of(&self, local: &Workload, job: Option<&DynamicObject>) -> Option<&Arc<DynamicObject>> {
        self.job.as_ref().filter(|mirror| {
            let uid = job.and_then(|job| job.metadata.uid.as_deref());
            link(&mirror.metadata) == local.metadata.name.as_deref()
                && (uid.is_none() || is_of(&mirror.metadata, uid))
        })
    }

    /// Whether something of ours is there.
    pub fn holds_anything(&self) -> bool {
        self.workload.is_some() || self.job.is_some()
    }

    /// Until when a mirror that has ended is kept, if it is: what may still arrive finds its name taken, and starts nothing
    /// again.
    pub fn kept_until(&self, adapter: Option<&Adapter>, now: Timestamp) -> Option<Timestamp> {
        let mirror = self.job.as_deref()?;
        let said = || mirror.types.as_ref().and_then(|it| Adapter::of(&it.api_version, &it.kind));
        let adapter = adapter.or_else(said)?;
        self.doubt_until.filter(|until| *until > now && adapter.is_finished(&mirror.data))
    }

    /// How something is deleted there, if it is: a mirror that is also that of others stays.
    pub(super) fn leaves(&self, pods: Pods) -> Pods {
        if self.is_shared { Pods::OfOthers } else { pods }
    }

    /// Whether it is certain that nothing of ours is there.
    pub fn is_certainly_empty(&self) -> bool {
        self.link == Link::Connected && !self.holds_anything() && self.read_at.is_some()
    }
}

impl Link {
    /// Since when nothing is to be expected of a cluster any more, if nobody waits longer than `patience`.
    pub fn given_up_at(&self, patience: Option<SignedDuration>) -> Option<Timestamp> {
        match self {
            Link::Connected | Link::Connecting => None,
            Link::Lost { since, given_up: true } => Some(*since),
            Link::Lost { since, given_up: false } => Some(since.saturating_add(patience?).unwrap_or(*since)),
        }
    }
}

/// How long pods of a Workload may take to go after their job is gone, if their node answers; `None` if they are its jobs.
pub fn leaves_within(workload: &Workload) -> Option<SignedDuration> {
    /// What a pod gets that does not say how long it needs.
    const USUAL: i64 = 30;
    /// From the deletion of a job to that of its pods, and from the end of their time to their end.
    const SLACK: SignedDuration = SignedDuration::from_secs(10);
    let adapter = Owner::of(workload).and_then(|owner| owner.adapter());
    if adapter.is_some_and(|adapter| matches!(adapter.back, Back::Pod | Back::Group)) {
        return None;
    }
    let templates = workload.spec.pod_sets.iter().filter_map(|pods| pods.template.spec.as_ref());
    let grace = templates.map(|spec| spec.termination_grace_period_seconds.unwrap_or(USUAL)).max();
    Some(SignedDuration::from_secs(grace.unwrap_or(USUAL)).saturating_add(SLACK))
}

/// The Workload that a job says it belongs to (MK-INT-03).
pub fn link(job: &ObjectMeta) -> Option<&str> {
    annotation(job, PREBUILT_WORKLOAD)
        .or_else(|| job.labels.as_ref()?.get(PREBUILT_WORKLOAD).map(String::as_str))
        .filter(|name| !name.is_empty())
}

/// A record: the one cluster on which a job may exist.
pub(super) struct Record<'a> {
    pub(super) cluster: ClusterName,
    /// What tells it from others that may come to have its name, if that is known.
    pub(super) identity: Option<&'a str>,
}

/// The record among the conditions of a Workload.
pub(super) fn record(conditions: &[Condition]) -> Option<Record<'_>> {
    let record = conditions.iter().find(|it| it.type_ == HELD && it.status == "True")?;
    let (_, rest) = record.message.split_once('"')?;
    let (name, rest) = rest.rsplit_once('"')?;
    let identity = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
    Some(Record { cluster: ClusterName::from(name), identity })
}

fn record_of(workload: &Workload) -> Option<Record<'_>> {
    record(&workload.status.as_ref()?.conditions)
}

/// The cluster on which a job of a Workload may exist.
pub(super) fn holder(workload: &Workload) -> Option<ClusterName> {
    held(workload).or_else(|| workload.status.as_ref()?.cluster_name.as_deref().map(ClusterName::from))
}

/// The cluster that a Workload's record names.
pub fn held(workload: &Workload) -> Option<ClusterName> {
    record_of(workload).map(|record| record.cluster)
}

/// What tells the cluster that a Workload's record names from others that may come to have that name, if the record says
/// so.
pub fn held_identity(workload: &Workload) -> Option<&str> {
    record_of(workload)?.identity
}

/// Which other cluster had a name when jobs were sent there that may still run, by the records of all Workloads: whoever has
/// the name now does not run them, and does not know whether they do.
pub fn held_by_another<'a>(
    workloads: impl IntoIterator<Item = &'a Workload>,
    name: &ClusterName,
    identity: &str,
) -> Option<&'a str> {
    let mut here = workloads.into_iter().filter_map(record_of).filter(|record| record.cluster == *name);
    here.find_map(|record| record.identity.filter(|recorded| *recorded != identity))
}

/// What a record says.
pub(super) fn held_message(cluster: &ClusterName, identity: Option<&str>) -> String {
    let identity = identity.map(|identity| format!(" ({identity})")).unwrap_or_default();
    format!("The job may exist on worker cluster \"{cluster}\"{identity}")
}

/// Whether a Workload holds quota.
pub(super) fn has_quota(workload: &Workload) -> bool {
    condition::is_true(workload, QUOTA_RESERVED)
}

/// Whether a Workload was told to go.
pub(super) fn is_evicted(workload: &Workload) -> bool {
    condition::is_true(workload, EVICTED)
}

/// Whether a Workload has ended.
pub(super) fn is_finished(workload: &Workload) -> bool {
    condition::is_true(workload, FINISHED)
}

/// Whether a Workload is a slice of a job that may grow and shrink.
pub(super) fn is_elastic(workload: &Workload) -> bool {
    annotation(&workload.metadata, ELASTIC) == Some("true")
        || annotation(&workload.metadata, REPLACEMENT_FOR).is_some()
}

pub(super) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A copy that does not say of which uid it is was made by Kueue, which goes by the name alone.
pub(super) fn is_of(copy: &ObjectMeta, uid: Option<&str>) -> bool {
    match annotation(copy, ORIGIN_UID) {
        Some(of) => Some(of) == uid,
        None => true,
    }
}
