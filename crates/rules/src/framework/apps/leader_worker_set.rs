//! What to do next about a LeaderWorkerSet that is queued: each of its replicas, a leader and its workers, is a group of pods
//! with a Workload of its own (MK-LWS-01). Replicas come and go one by one, and so do their Workloads.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_core::DynamicObject;
use types::kueue::{PodSet, Workload};

use super::{
    LEADER_WORKER_SET, Todo, is_part_of,
    part::{self, Membership},
    spec::{Spec, Status},
};
use crate::dispatch::{COMPONENT_INDEX, ORIGIN, ORIGIN_UID};
use crate::framework::{
    Finished, Kind, Observed, Plan, PodSetInfo, Write, annotation, label,
    name::workload_name,
    plan::{self, Step},
    pod::{group_name, is_gated},
    pod_set::Conflict,
    priority, queue_name,
    topology::{self, Numbered},
};

/// The pod set of leaders.
pub const LEADER: &str = "leader";
/// The pod set of workers, where leaders have a template of their own.
pub const WORKER: &str = "worker";
const ALL: &str = "main";

const PREFIX: &str = "leaderworkerset.sigs.k8s.io";
/// The label with the LeaderWorkerSet of a pod.
pub const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// Only pods that are no leaders have this annotation.
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";

/// No LeaderWorkerSet may have more replicas: each is a Workload.
pub const MOST_REPLICAS: i32 = 1_000_000;

/// A LeaderWorkerSet, as it was read.
#[derive(Debug, Clone)]
pub struct LeaderWorkerSet {
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

/// Everything that one decision depends on.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The LeaderWorkerSet.
    pub set: &'a LeaderWorkerSet,
    /// Those of its pods that are marked as queued.
    pub pods: &'a [Arc<Pod>],
    /// The Workloads that it owns.
    pub workloads: &'a [Arc<Workload>],
    /// Whether LeaderWorkerSets are managed that name no queue.
    pub manages_without_queue_name: bool,
    /// The labels that Workloads take over.
    pub copied_labels: &'a [String],
    /// The priority classes that there are.
    pub classes: priority::Classes<'a>,
}

impl LeaderWorkerSet {
    /// Reads an object of the kind.
    pub fn read(object: &DynamicObject) -> Result<LeaderWorkerSet, String> {
        let part = |name: &str| object.data.get(name).filter(|it| !it.is_null()).cloned();
        let read = |error: serde_json::Error| format!("failed to read the LeaderWorkerSet: {error}");
        Ok(LeaderWorkerSet {
            metadata: object.metadata.clone(),
            spec: part("spec").map(serde_json::from_value).transpose().map_err(read)?.unwrap_or_default(),
            status: part("status").map(serde_json::from_value).transpose().map_err(read)?.unwrap_or_default(),
        })
    }

    /// How many Workloads it has: one for each replica, also for those that a rollout adds for a while.
    fn components(&self) -> Result<i32, String> {
        let replicas = replicas(self.spec.replicas)?;
        let surges = self.spec.max_surge() > 0 && self.status.updated_replicas < replicas;
        Ok(if surges { replicas.max(self.status.replicas) } else { replicas })
    }

    /// What a pod is in its group.
    fn role(&self, pod: &Pod) -> &'static str {
        match self.spec.leader_worker_template.leader {
            None => ALL,
            Some(_) if annotation(&pod.metadata, LEADER_NAME).is_some() => WORKER,
            Some(_) => LEADER,
        }
    }
}

/// How many replicas there are (MK-LWS-02).
pub fn replicas(said: Option<i32>) -> Result<i32, String> {
    let (count, invalid) = (said.unwrap_or(1), "invalid LeaderWorkerSet replicas");
    match count {
        ..0 => Err(format!("{invalid}: must be >= 0, got {count}")),
        0..=MOST_REPLICAS => Ok(count),
        _ => Err(format!("{invalid}: must be <= {MOST_REPLICAS}, got {count}")),
    }
}

/// The name of the Workload of one replica. A mirror's is that of the object that it is a mirror of (MK-WIRE-03).
pub fn name(set: &ObjectMeta, index: &str) -> String {
    let origin = label(set, ORIGIN).and_then(|_| annotation(set, ORIGIN_UID));
    let uid = origin.or(set.uid.as_deref()).unwrap_or_default();
    let replica = format!("{}-{index}", set.name.as_deref().unwrap_or_default());
    workload_name(LEADER_WORKER_SET, &replica, uid, None)
}

/// The LeaderWorkerSet that a pod is part of, by its name, if that is queued.
pub fn of_part(pod: &ObjectMeta) -> Option<&str> {
    label(pod, SET_NAME).filter(|_| is_part_of(&LEADER_WORKER_SET, pod))
}

/// Decides what to do about a LeaderWorkerSet that is there and managed. Its Workloads come first: pods that wait for one that
/// is not there are told so.
pub fn decide(seen: &Seen<'_>) -> Todo {
    let plans = match workloads(seen) {
        Ok(plans) => plans,
        Err(why) => vec![Plan::retry(why)],
    };
    if !plans.is_empty() {
        return Todo::Workloads(plans);
    }
    let changed: Vec<Pod> = seen.pods.iter().filter_map(|pod| member(seen, pod)).collect();
    if changed.is_empty() {
        return Todo::Workloads(vec![Plan::wait("its Workloads are as they should be")]);
    }
    Todo::Pods(changed)
}

/// A pod as it should be; `None` if it is.
fn member(seen: &Seen<'_>, pod: &Pod) -> Option<Pod> {
    let set = seen.set;
    if part::is_over(pod) {
        return part::let_go(pod);
    }
    let queue = queue_name(&set.metadata);
    // To which replica it belongs is said by its own controller.
    let group = name(&set.metadata, label(&pod.metadata, GROUP_INDEX)?);
    if group_name(&pod.metadata) == Some(group.as_str()) {
        return part::moved(pod, queue.filter(|_| is_gated(pod)));
    }
    if queue.is_none() && !seen.manages_without_queue_name {
        return None;
    }
    let (total, role) = (set.spec.size(), set.role(pod));
    Some(part::joined(pod, &Membership { whole: &set.metadata, group: &group, total, role, also: &[] }))
}

/// What is to be done about its Workloads; nothing if they are as they should be.
fn workloads(seen: &Seen<'_>) -> Result<Vec<Plan>, String> {
    let set = seen.set;
    let is_queued = queue_name(&set.metadata).is_some() || seen.manages_without_queue_name;
    // What a manager has sent has Workloads that were sent with it.
    let is_mirror = label(&set.metadata, ORIGIN).is_some();
    let mut there: BTreeMap<&str, &Arc<Workload>> =
        seen.workloads.iter().map(|it| (it.metadata.name.as_deref().unwrap_or_default(), it)).collect();
    let mut plans = Vec::new();
    for index in 0..set.components()? {
        let name = name(&set.metadata, &index.to_string());
        match there.remove(name.as_str()) {
            Some(workload) => plans.extend(followed(seen, workload)?),
            None if is_mirror || !is_queued => {}
            None => {
                let mut workload = part::workload(set, name, seen.classes, seen.copied_labels)?;
                let annotations = workload.metadata.annotations.get_or_insert_default();
                annotations.insert(COMPONENT_INDEX.to_owned(), index.to_string());
                plans.push(part::created(workload));
            }
        }
    }
    let surplus = there.into_values().filter(|workload| !plan::is_leaving(workload));
    plans.extend(surplus.map(|workload| Plan::step(Step::Delete(Arc::clone(workload)))));
    Ok(plans)
}

/// The Workload of a replica after what may have changed: its queue, its gates and how important it is.
fn followed(seen: &Seen<'_>, workload: &Arc<Workload>) -> Result<Option<Plan>, String> {
    if plan::is_leaving(workload) {
        return Ok(None);
    }
    let set = seen.set;
    let mut next = Workload::clone(workload);
    next.spec.queue_name = queue_name(&set.metadata).map(str::to_owned);
    part::gated_as(&mut next, &set.metadata);
    if priority::follows(set, workload) {
        let priority =
            priority::of(set, &workload.spec.pod_sets, seen.classes).map_err(|missing| missing.0)?;
        next.spec.priority_class_ref = priority.class;
        next.spec.priority = Some(priority.value);
    }
    Ok((next != **workload).then(|| plan::update(workload, next, "what its LeaderWorkerSet says")))
}

/// Its own controller's marks are of one replica; a Workload is made before there is any.
fn unmarked(mut template: PodTemplateSpec) -> PodTemplateSpec {
    let stays = |key: &String| !key.starts_with(PREFIX) || key == SET_NAME;
    if let Some(metadata) = &mut template.metadata {
        metadata.labels.iter_mut().for_each(|labels| labels.retain(|key, _| stays(key)));
        metadata.annotations.iter_mut().for_each(|annotations| annotations.retain(|key, _| stays(key)));
    }
    template
}

/// The pods of one replica.
pub(crate) fn pod_sets(spec: &Spec) -> Result<Vec<PodSet>, String> {
    let of = &spec.leader_worker_template;
    let Some(leader) = &of.leader else {
        return Ok(vec![pod_set(ALL, spec.size(), &of.worker, true)?]);
    };
    Ok(vec![pod_set(LEADER, 1, leader, false)?, pod_set(WORKER, spec.size() - 1, &of.worker, true)?])
}

fn pod_set(name: &str, count: i32, template: &PodTemplateSpec, numbered: bool) -> Result<PodSet, String> {
    let numbered = Numbered { index_label: numbered.then_some(WORKER_INDEX), ..Numbered::default() };
    Ok(PodSet {
        name: Some(name.to_owned()),
        count,
        min_count: None,
        topology_request: topology::request(template, &numbered)?,
        template: unmarked(template.clone()).into(),
    })
}

/// One of its replicas, as far as its Workload is made of it. It starts, stops and ends as the group of its pods does.
impl Observed for LeaderWorkerSet {
    fn kind(&self) -> Kind {
        LEADER_WORKER_SET
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn is_suspended(&self) -> bool {
        false
    }

    fn is_active(&self) -> bool {
        false
    }

    fn finished(&self) -> Option<Finished> {
        None
    }

    fn pod_sets(&self) -> Result<Vec<PodSet>, String> {
        pod_sets(&self.spec)
    }

    fn pods_ready(&self) -> bool {
        false
    }

    fn started(&self, _: &[PodSetInfo]) -> Result<Vec<Write>, Conflict> {
        Ok(Vec::new())
    }

    fn stopped(&self, _: Option<&[PodSetInfo]>) -> Vec<Write> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
