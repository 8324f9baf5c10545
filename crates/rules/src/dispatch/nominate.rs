//! Which clusters a Workload is offered to.

use jiff::{SignedDuration, Timestamp};
use types::kueue::Workload;

use super::{ClusterName, Link, Observed, QUOTA_RESERVED, Remote, condition};

/// How long the incremental dispatcher waits before it asks more clusters (MK-DISP-11).
pub const ROUND: SignedDuration = SignedDuration::from_mins(5);

/// How long the cluster with the least to do may say nothing before all others are asked, too.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// How clusters are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dispatcher {
    /// All that can be asked, at once.
    #[default]
    AllAtOnce,
    /// A few, and a few more every five minutes, in the order of their configuration.
    Incremental {
        /// How many.
        step: usize,
    },
    /// The one with the least to do, and all others once it says that it has no room, or says nothing. A cluster that is
    /// asked and not chosen costs as much as one that is chosen, up to the start of the job: here only where one is full.
    LeastLoaded,
    /// Those that somebody else writes into the Workload's status.
    External,
}

/// The clusters that a Workload is offered to, and when more may follow.
pub fn nominate(
    dispatcher: Dispatcher,
    seen: &Observed,
    local: &Workload,
    now: Timestamp,
) -> (Vec<ClusterName>, Option<Timestamp>) {
    let already: Vec<ClusterName> = nominated(local).collect();
    match dispatcher {
        Dispatcher::External => (already, None),
        Dispatcher::AllAtOnce => (askable(seen, now).cloned().collect(), None),
        Dispatcher::Incremental { step } => {
            let since = reserved_at(local, now);
            let rounds = rounds(since, now);
            let many = step.max(1).saturating_mul(rounds);
            let next = ROUND
                .checked_mul(i32::try_from(rounds).unwrap_or(i32::MAX))
                .and_then(|wait| since.checked_add(wait).ok());
            first(many, askable(seen, now).collect(), already, seen, next)
        }
        Dispatcher::LeastLoaded => {
            let next = reserved_at(local, now).checked_add(PATIENCE).ok().filter(|next| *next > now);
            let is_full = already.iter().any(|cluster| has_no_room(seen.remotes.get(cluster), local));
            let many = if next.is_some() && !is_full { 1 } else { usize::MAX };
            let mut clusters: Vec<&ClusterName> = askable(seen, now).collect();
            clusters.sort_by_key(|cluster| seen.remotes.get(*cluster).map(|remote| remote.load));
            first(many, clusters, already, seen, next)
        }
    }
}

/// Those that were asked already, as many more of those that can be as there may be, and when there may be more.
fn first(
    many: usize,
    askable: Vec<&ClusterName>,
    already: Vec<ClusterName>,
    seen: &Observed,
    next: Option<Timestamp>,
) -> (Vec<ClusterName>, Option<Timestamp>) {
    // Who was asked stays asked, also while it cannot be reached; it takes no place from others then (MK-DISP-12).
    let is_cordoned =
        |cluster: &ClusterName| seen.remotes.get(cluster).is_some_and(|remote| remote.is_cordoned);
    let stays = |cluster: &ClusterName| seen.configured.contains(cluster) && !is_cordoned(cluster);
    let mut chosen: Vec<ClusterName> = already.into_iter().filter(stays).collect();
    let mut asked = askable.iter().filter(|cluster| chosen.contains(cluster)).count();
    for cluster in &askable {
        if asked >= many {
            break;
        }
        if !chosen.contains(cluster) {
            chosen.push((*cluster).clone());
            asked += 1;
        }
    }
    let more = askable.iter().any(|cluster| !chosen.contains(cluster));
    (chosen, next.filter(|_| more))
}

/// Whether a cluster says of its copy of a Workload that there is no quota for it now.
fn has_no_room(remote: Option<&Remote>, local: &Workload) -> bool {
    let copy = remote.and_then(|remote| remote.copy_of(local));
    copy.and_then(|copy| condition::of(copy, QUOTA_RESERVED)).is_some_and(|quota| quota.status == "False")
}

/// Since when a Workload has had the quota with which it is offered.
fn reserved_at(local: &Workload, now: Timestamp) -> Timestamp {
    condition::of(local, QUOTA_RESERVED).map_or(now, |reserved| reserved.last_transition_time.0)
}

/// The rounds that have begun. They are counted from when quota was reserved, so a restart begins none anew.
fn rounds(since: Timestamp, now: Timestamp) -> usize {
    let waited = now.duration_since(since).as_secs().max(0) / ROUND.as_secs();
    usize::try_from(waited).unwrap_or(0).saturating_add(1)
}

/// The configured clusters that can be asked now, in the order of their configuration.
fn askable(seen: &Observed, now: Timestamp) -> impl Iterator<Item = &ClusterName> {
    seen.configured
        .iter()
        .filter(move |cluster| seen.remotes.get(*cluster).is_some_and(|remote| takes_new(remote, now)))
}

/// Whether a cluster that holds nothing of the Workload can be asked to run it.
pub(super) fn takes_new(remote: &Remote, now: Timestamp) -> bool {
    can_be_asked(remote, now) && !remote.is_cordoned
}

/// Whether a cluster can be asked to run the Workload.
pub(super) fn can_be_asked(remote: &Remote, now: Timestamp) -> bool {
    remote.link == Link::Connected
        && remote.same_as.is_none()
        && !remote.lacks_kind
        && remote.refusal.as_ref().is_none_or(|refusal| refusal.until <= now)
}

/// The clusters that a Workload says it is offered to.
pub(super) fn nominated(local: &Workload) -> impl Iterator<Item = ClusterName> {
    local
        .status
        .iter()
        .flat_map(|status| &status.nominated_cluster_names)
        .map(|name| ClusterName::from(name.as_str()))
}

/// Why a Workload is offered to nobody, cluster by cluster.
pub(super) fn obstacles(seen: &Observed, now: Timestamp) -> String {
    if seen.configured.is_empty() {
        return "Waiting for a worker cluster to be configured".to_owned();
    }
    let why = |cluster: &ClusterName| match seen.remotes.get(cluster) {
        None => format!("{cluster} does not exist"),
        Some(Remote { same_as: Some(other), .. }) => format!("{cluster} is the same cluster as {other}"),
        Some(Remote { link: Link::Connecting, hides: Some(why), .. }) => {
            format!("{cluster} does not show its jobs: {why}")
        }
        Some(remote) if remote.link == Link::Connecting => format!("{cluster} was not seen in full yet"),
        Some(remote) if remote.link != Link::Connected => format!("{cluster} is not connected"),
        Some(remote) if remote.is_cordoned => format!("{cluster} is cordoned"),
        Some(remote) if remote.lacks_kind => format!("{cluster} does not know the kind of the job"),
        Some(Remote { refusal: Some(refusal), .. }) if refusal.until > now => {
            format!("{cluster}: {}", refusal.why)
        }
        Some(_) => format!("{cluster} was not nominated"),
    };
    let all: Vec<String> = seen.configured.iter().map(why).collect();
    format!("Waiting for a worker cluster: {}", all.join("; "))
}
