//! What to do next about a StatefulSet that is queued: its pods become a group, for which there is one Workload that has
//! room for all of them, whether they are there or not. Without replicas that Workload is on hold (MK-STS-01, MK-STS-02).

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use types::kueue::{PodSet, ReclaimablePod, Workload};

use super::{
    STATEFUL_SET, Todo, is_of_another, is_part_of,
    part::{self, Membership},
};
use crate::dispatch::{ORIGIN, ORIGIN_UID};
use crate::framework::{
    Finished, Kind, Observed, Plan, PodSetInfo, TOPOLOGY_GATE, Write, annotation, label,
    name::workload_name,
    plan::{self, What},
    pod::{
        ADMISSION_GATE, FAST_ADMISSION, POD_INDEX_LABEL, SERVING, SUSPENDING_PARENT, group_name, is_gated,
    },
    pod_set::Conflict,
    priority, queue_name,
    topology::{self, Numbered},
};
use crate::workload::{change, reason, state};

const POD_SET: &str = "main";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";
const REVISION_LABEL: &str = "controller-revision-hash";

/// Everything that one decision depends on.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The StatefulSet.
    pub set: &'a StatefulSet,
    /// Those of its pods that are marked as queued.
    pub pods: &'a [Arc<Pod>],
    /// The Workload that has the name of its own.
    pub workload: Option<&'a Arc<Workload>>,
    /// Whether StatefulSets are managed that name no queue.
    pub manages_without_queue_name: bool,
    /// Whether a Workload runs on another cluster.
    pub runs_elsewhere: &'a dyn Fn(&Workload) -> bool,
    /// The priority classes that there are.
    pub classes: priority::Classes<'a>,
}

/// The name of a StatefulSet's Workload. A mirror's is that of the object that it is a mirror of (MK-WIRE-03).
pub fn name(set: &ObjectMeta) -> String {
    let origin = label(set, ORIGIN).and_then(|_| annotation(set, ORIGIN_UID));
    let uid = origin.or(set.uid.as_deref()).unwrap_or_default();
    workload_name(STATEFUL_SET, set.name.as_deref().unwrap_or_default(), uid, None)
}

/// Whether the pods of a StatefulSet are queued as its own.
pub fn is_own(set: &StatefulSet) -> bool {
    let template = set.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    !is_of_another(template.and_then(|metadata| annotation(metadata, SUSPENDING_PARENT)))
}

/// Whether a pod is part of a StatefulSet that is queued.
pub fn is_part(pod: &ObjectMeta) -> bool {
    is_part_of(&STATEFUL_SET, pod)
}

/// Decides what to do about a StatefulSet that is there and managed.
pub fn decide(seen: &Seen<'_>, now: Timestamp) -> Todo {
    let changed: Vec<Pod> = seen.pods.iter().filter_map(|pod| member(seen, pod)).collect();
    if changed.is_empty() { Todo::Workloads(vec![workload(seen, now)]) } else { Todo::Pods(changed) }
}

fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// A pod as it should be; `None` if it is.
fn member(seen: &Seen<'_>, pod: &Pod) -> Option<Pod> {
    let set = seen.set;
    if part::is_over(pod) {
        return part::let_go(pod);
    }
    let (group, queue) = (name(&set.metadata), queue_name(&set.metadata));
    if group_name(&pod.metadata) == Some(group.as_str()) {
        let moved = part::moved(pod, queue.filter(|_| replicas(set) > 0));
        if !(is_of_before(seen, pod) && is_gated(pod)) {
            return moved;
        }
        let mut next = moved.unwrap_or_else(|| pod.clone());
        if let Some(spec) = &mut next.spec {
            let closed = |name: &str| name == ADMISSION_GATE || name == TOPOLOGY_GATE;
            let gates = spec.scheduling_gates.take().unwrap_or_default();
            let rest: Vec<_> = gates.into_iter().filter(|gate| !closed(&gate.name)).collect();
            spec.scheduling_gates = Some(rest).filter(|gates| !gates.is_empty());
        }
        return Some(next);
    }
    if queue.is_none() && !seen.manages_without_queue_name {
        return None;
    }
    Some(part::joined(
        pod,
        &Membership {
            whole: &set.metadata,
            group: &group,
            total: replicas(set),
            role: POD_SET,
            also: &[(FAST_ADMISSION, "true"), (SERVING, "true"), (POD_INDEX_LABEL, INDEX_LABEL)],
        },
    ))
}

/// Whether a pod is of the revision before the one that is rolled out: it need not wait, it is about to go. On a cluster that
/// sends it elsewhere it waits all the same: nothing of it runs here.
fn is_of_before(seen: &Seen<'_>, pod: &Pod) -> bool {
    let Some(status) = &seen.set.status else { return false };
    let current = status.current_revision.as_deref();
    let elsewhere = seen.workload.is_some_and(|workload| (seen.runs_elsewhere)(workload));
    current != status.update_revision.as_deref()
        && current.is_some()
        && current == label(&pod.metadata, REVISION_LABEL)
        && !elsewhere
}

fn workload(seen: &Seen<'_>, now: Timestamp) -> Plan {
    let set = seen.set;
    let queue = queue_name(&set.metadata);
    let Some(workload) = seen.workload else {
        // What a manager has sent has a Workload that was sent with it.
        let is_mirror = label(&set.metadata, ORIGIN).is_some();
        if replicas(set) == 0 || is_mirror || queue.is_none() && !seen.manages_without_queue_name {
            return Plan::wait("it needs no Workload");
        }
        let built = part::workload(&Set(set), name(&set.metadata), seen.classes, &[]);
        return built.map_or_else(Plan::retry, part::created);
    };
    let mut next = Workload::clone(workload);
    if replicas(set) > 0 {
        let owner = part::owner(STATEFUL_SET, &set.metadata);
        let owners = next.metadata.owner_references.get_or_insert_default();
        if owners.iter().all(|there| there.uid != owner.uid) {
            owners.push(owner);
            let annotations = part::owner_annotations(STATEFUL_SET, &set.metadata);
            next.metadata.annotations.get_or_insert_default().extend(annotations);
        }
        next.spec.queue_name = queue.map(str::to_owned);
    }
    part::gated_as(&mut next, &set.metadata);
    if next != **workload {
        return plan::update(workload, next, "what its StatefulSet says");
    }
    let rests = !state::is_finished(workload) && state::is_active(workload);
    if replicas(set) == 0 && state::has_quota(workload) && rests {
        change::unreserve(&mut next, reason::ON_HOLD, "StatefulSet scaled to zero; workload on hold", now);
        return plan::status(workload, next, What::OnHold(true));
    }
    if replicas(set) > 0 && state::is_on_hold(workload) {
        let why = "Workload no longer on hold; waiting for quota reservation";
        change::unreserve(&mut next, reason::PENDING, why, now);
        return plan::status(workload, next, What::OnHold(false));
    }
    Plan::wait("its Workload is as it should be")
}

/// A StatefulSet, as far as its Workload is made of it. It starts, stops and ends as the group of its pods does.
struct Set<'a>(&'a StatefulSet);

impl Observed for Set<'_> {
    fn kind(&self) -> Kind {
        STATEFUL_SET
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
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
        let template = self.0.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let numbered = Numbered { index_label: Some(INDEX_LABEL), ..Numbered::default() };
        let topology_request = topology::request(&template, &numbered)?;
        Ok(vec![PodSet {
            name: Some(POD_SET.to_owned()),
            template: PodTemplateSpec { metadata: None, spec: template.spec }.into(),
            count: replicas(self.0),
            min_count: None,
            topology_request,
        }])
    }

    fn pods_ready(&self) -> bool {
        false
    }

    fn reclaimable(&self) -> Vec<ReclaimablePod> {
        Vec::new()
    }

    fn started(&self, _: &[PodSetInfo]) -> Result<Vec<Write>, Conflict> {
        Ok(Vec::new())
    }

    fn stopped(&self, _: Option<&[PodSetInfo]>) -> Vec<Write> {
        Vec::new()
    }
}
