//! Clusters that are there under several names: two MultiKueueClusters with one kubeconfig, or those of two teams that
//! share a worker.
//!
//! What such a cluster holds is seen once for each of its names. Taken for several clusters, one would be emptied because
//! another one has the job. So every Workload looks at it by one name: that of its record, so that nothing changes while a
//! job runs there; otherwise the first that it may be offered to.

use std::collections::BTreeMap;

use super::{ClusterName, Link, Observed, Remote, observed::held_identity};

/// What was seen, with every cluster but once; `None` if it is so already.
pub(super) fn each_once(seen: &Observed) -> Option<Observed> {
    let holder = seen.holder();
    let recorded = seen.local.as_deref().and_then(held_identity);
    let mut all: Vec<(&ClusterName, &Remote)> = seen.remotes.iter().collect();
    // In the order of their names where nothing else tells one from the other.
    all.sort_by_key(|(name, remote)| {
        let place = seen.configured.iter().position(|configured| configured == *name);
        let is_away = remote.link != Link::Connected;
        (holder.as_ref() != Some(*name), is_away, remote.is_cordoned, place.unwrap_or(usize::MAX))
    });
    let mut names: BTreeMap<ClusterName, ClusterName> = BTreeMap::new();
    let mut distinct: Vec<(&ClusterName, &Remote)> = Vec::new();
    for (name, remote) in all {
        let is_recorded = recorded.is_some() && remote.identity.as_deref() == recorded;
        // That one may be gone, or yet to be reached, and this one knows it nevertheless.
        let of_record = holder.as_ref().filter(|holder| is_recorded && *holder != name);
        let known = distinct.iter().find(|(_, other)| is_same(other, remote)).map(|(other, _)| *other);
        match of_record.or(known) {
            Some(other) => drop(names.insert(name.clone(), other.clone())),
            None => distinct.push((name, remote)),
        }
    }
    if names.is_empty() {
        return None;
    }
    let mut next = seen.clone();
    for (name, other) in names {
        let Some(alias) = next.remotes.get_mut(&name) else { continue };
        let doubt = alias.doubt_until;
        alias.same_as = Some(other.clone());
        // Whatever was sent may arrive, by whichever name.
        if let Some(other) = next.remotes.get_mut(&other) {
            other.doubt_until = other.doubt_until.max(doubt);
        }
    }
    Some(next)
}

/// Whether two names mean one cluster: it says so itself, or where it does not, an object there has one uid by both.
fn is_same(one: &Remote, other: &Remote) -> bool {
    if let (Some(one), Some(other)) = (&one.identity, &other.identity) {
        return one == other;
    }
    let copy = |remote: &Remote| remote.workload.as_ref().and_then(|copy| copy.metadata.uid.clone());
    let mirror = |remote: &Remote| remote.job.as_ref().and_then(|mirror| mirror.metadata.uid.clone());
    let is_shared = |one: Option<String>, other: Option<String>| one.is_some() && one == other;
    is_shared(copy(one), copy(other)) || is_shared(mirror(one), mirror(other))
}

/// Whether what another name shows may be the job that the cluster of the record runs, which cannot be reached by its own:
/// nobody says which cluster it is.
pub(super) fn may_be(holder: Option<&Remote>, recorded: Option<&str>, other: &Remote) -> bool {
    let is_away = holder.is_none_or(|holder| holder.link != Link::Connected);
    let known = recorded.or(holder.and_then(|holder| holder.identity.as_deref()));
    is_away && other.job.is_some() && (known.is_none() || other.identity.is_none())
}
