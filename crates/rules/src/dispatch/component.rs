//! Jobs that have several Workloads, one for each of their replicas: all of these go to the same cluster, where there is one
//! mirror for all of them (MK-LWS-02…07). The first of them chooses, the others follow; the last that leaves a cluster takes
//! the mirror along.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::DynamicObject;
use serde_json::Value;
use types::kueue::Workload;

use super::{
    Adapter, COMPONENT_INDEX, ClusterName, JOB_OWNER_GVK, ORIGIN_UID, PREBUILT_WORKLOAD, Remote, adapter,
    observed::{annotation, holder, is_finished},
    plan::Because,
};
use crate::framework::apps::leader_worker_set;

/// What a component does next to the others of its job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It chooses its cluster itself.
    First,
    /// It goes where another one is.
    Beside(ClusterName),
    /// It waits.
    Waits(Because),
    /// It cannot know where to go.
    Nowhere(String),
}

/// The uid of the job of which a Workload is one of several.
pub fn whole(workload: &Workload) -> Option<&str> {
    let gvk = annotation(&workload.metadata, JOB_OWNER_GVK)?;
    let adapter = adapter::ALL.iter().find(|it| it.components.is_some() && it.gvk() == gvk)?;
    let is_whole =
        |owner: &&OwnerReference| owner.kind == adapter.kind && owner.api_version == adapter.api_version();
    let owner = workload.metadata.owner_references.iter().flatten().find(is_whole)?;
    Some(owner.uid.as_str())
}

/// The number of a Workload among those of its job.
pub fn index(workload: &Workload) -> Option<u32> {
    annotation(&workload.metadata, COMPONENT_INDEX)?.parse().ok()
}

/// The cluster on which the job of a Workload may exist, as far as others go by it.
pub fn holds(workload: &Workload) -> Option<ClusterName> {
    holder(workload).filter(|_| !is_leaving(workload))
}

/// The Workloads of a mirror that has several, by their names.
pub fn links(adapter: &Adapter, mirror: &DynamicObject) -> Vec<String> {
    let (Some(path), Some(_)) = (adapter.components, annotation(&mirror.metadata, ORIGIN_UID)) else {
        return Vec::new();
    };
    let count = count(mirror, path).unwrap_or(0);
    (0..count).map(|index| leader_worker_set::name(&mirror.metadata, &index.to_string())).collect()
}

/// A cluster as one of several Workloads of a job sees it: the mirror is its own if it is to run there, and as long as others
/// may, it is not its to delete.
pub fn seen(
    remote: Remote,
    cluster: &ClusterName,
    local: Option<&Workload>,
    name: &str,
    uid: &str,
    others: &[Arc<Workload>],
) -> Remote {
    let is_of_another = |mirror: &DynamicObject| annotation(&mirror.metadata, ORIGIN_UID) != Some(uid);
    if remote.job.as_deref().is_some_and(is_of_another) {
        return remote;
    }
    let is_shared = others.iter().any(|other| holds(other).as_ref() == Some(cluster));
    let is_here =
        local.is_some_and(|local| holder(local).as_ref() == Some(cluster) && remote.copy_of(local).is_some());
    let mirror = remote.job.as_deref().filter(|_| is_here || !is_shared);
    Remote { job: mirror.map(|mirror| Arc::new(linked(mirror, name))), is_shared, ..remote }
}

/// A mirror as that of one of its Workloads.
fn linked(mirror: &DynamicObject, name: &str) -> DynamicObject {
    let mut mirror = mirror.clone();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert(PREBUILT_WORKLOAD.to_owned(), name.to_owned());
    mirror
}

/// What a Workload does next to the others of its job. That all of them are there is waited for by the first alone
/// (MK-LWS-02): where one of them runs, the others can follow at any time.
pub(super) fn place(
    adapter: &Adapter,
    job: Option<&DynamicObject>,
    local: &Workload,
    others: &[Arc<Workload>],
) -> Place {
    let (Some(path), Some(_)) = (adapter.components, whole(local)) else { return Place::First };
    let mut chosen: Option<ClusterName> = None;
    for cluster in others.iter().filter_map(|other| holds(other)) {
        match &chosen {
            Some(before) if *before != cluster => {
                let (a, b) = (before, cluster);
                return Place::Nowhere(format!(
                    "component workloads assigned to different clusters: \"{a}\" and \"{b}\""
                ));
            }
            _ => chosen = Some(cluster),
        }
    }
    if let Some(chosen) = chosen {
        return Place::Beside(chosen);
    }
    let Some(own) = index(local) else { return Place::Waits(Because::NotFirst) };
    let there = others.len() + 1;
    match job.map_or(Ok(1), |job| count(job, path)) {
        Err(why) => return Place::Nowhere(why),
        Ok(expected) if usize::try_from(expected).is_ok_and(|expected| there < expected) => {
            return Place::Waits(Because::Components { there, expected });
        }
        Ok(_) => {}
    }
    if others.iter().any(|other| index(other).is_some_and(|other| other < own)) {
        return Place::Waits(Because::NotFirst);
    }
    Place::First
}

fn count(job: &DynamicObject, path: &str) -> Result<i32, String> {
    let said = job.data.pointer(path).and_then(Value::as_i64);
    leader_worker_set::replicas(said.map(|said| i32::try_from(said).unwrap_or(i32::MAX)))
}

fn is_leaving(workload: &Workload) -> bool {
    workload.metadata.deletion_timestamp.is_some() || is_finished(workload)
}
