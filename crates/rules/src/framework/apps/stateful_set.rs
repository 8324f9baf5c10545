//! What to do next about a StatefulSet that is queued: its pods become a group, for which there is one Workload that has
//! room for all of them, whether they are there or not. Without replicas that Workload is on hold (MK-STS-01, MK-STS-02).

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use types::kueue::{PodSet, ReclaimablePod, Workload};

use super::{STATEFUL_SET, is_of_another};
use crate::dispatch::{JOB_OWNER_GVK, JOB_OWNER_NAME, ORIGIN, ORIGIN_UID, adapter::gvk};
use crate::framework::{
    Finished, Kind, Observed, PREBUILT_WORKLOAD, PRIORITY_CLASS_LABEL, Plan, PodSetInfo, QUEUE_NAME_LABEL,
    TOPOLOGY_GATE, Write, annotation, build, label,
    name::workload_name,
    plan::{self, Step, What},
    pod::{
        ADMISSION_GATE, FAST_ADMISSION, GROUP_NAME, GROUP_TOTAL_COUNT, IS_GROUP_WORKLOAD, MANAGED,
        POD_INDEX_LABEL, ROLE_HASH, SERVING, SUSPENDING_PARENT, group_name, is_gated, is_held, is_terminated,
    },
    pod_set::Conflict,
    priority, queue_name,
    topology::{self, Numbered},
};
use crate::workload::{ADMISSION_GATED_BY, change, reason, state};

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

/// What to do about a StatefulSet.
#[derive(Debug, Clone, PartialEq)]
pub enum Todo {
    /// About its Workload.
    Workload(Plan),
    /// Write these pods, as they are here.
    Pods(Vec<Pod>),
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
    annotation(pod, SUSPENDING_PARENT) == Some(STATEFUL_SET.framework)
}

/// Decides what to do about a StatefulSet that is there and managed.
pub fn decide(seen: &Seen<'_>, now: Timestamp) -> Todo {
    let changed: Vec<Pod> = seen.pods.iter().filter_map(|pod| member(seen, pod)).collect();
    if changed.is_empty() { Todo::Workload(workload(seen, now)) } else { Todo::Pods(changed) }
}

fn replicas(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// A pod as it should be; `None` if it is.
fn member(seen: &Seen<'_>, pod: &Pod) -> Option<Pod> {
    let set = seen.set;
    let mut next = pod.clone();
    if is_terminated(pod) || pod.metadata.deletion_timestamp.is_some() {
        return is_held(pod).then(|| {
            next.metadata.finalizers.iter_mut().for_each(|all| all.retain(|it| it != MANAGED));
            next
        });
    }
    let (group, queue) = (name(&set.metadata), queue_name(&set.metadata));
    if group_name(&pod.metadata) == Some(group.as_str()) {
        let moved = queue.filter(|queue| queue_name(&pod.metadata) != Some(*queue) && replicas(set) > 0);
        let opens = is_of_before(seen, pod) && is_gated(pod);
        if let Some(queue) = moved {
            next.metadata
                .labels
                .get_or_insert_default()
                .insert(QUEUE_NAME_LABEL.to_owned(), queue.to_owned());
        }
        if opens && let Some(spec) = &mut next.spec {
            let closed = |name: &str| name == ADMISSION_GATE || name == TOPOLOGY_GATE;
            let gates = spec.scheduling_gates.take().unwrap_or_default();
            let rest: Vec<_> = gates.into_iter().filter(|gate| !closed(&gate.name)).collect();
            spec.scheduling_gates = Some(rest).filter(|gates| !gates.is_empty());
        }
        return (moved.is_some() || opens).then_some(next);
    }
    if queue.is_none() && !seen.manages_without_queue_name {
        return None;
    }
    let labels = next.metadata.labels.get_or_insert_default();
    labels.insert(MANAGED.to_owned(), "true".to_owned());
    let class = label(&set.metadata, PRIORITY_CLASS_LABEL);
    for (key, value) in [(QUEUE_NAME_LABEL, queue), (PRIORITY_CLASS_LABEL, class)] {
        if let Some(value) = value {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    let annotations = next.metadata.annotations.get_or_insert_default();
    let total = replicas(set).to_string();
    for (key, value) in [
        (PREBUILT_WORKLOAD, group.as_str()),
        (GROUP_NAME, &group),
        (GROUP_TOTAL_COUNT, &total),
        (FAST_ADMISSION, "true"),
        (SERVING, "true"),
        (POD_INDEX_LABEL, INDEX_LABEL),
        (ROLE_HASH, POD_SET),
    ] {
        annotations.insert(key.to_owned(), value.to_owned());
    }
    Some(next)
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
        return built(seen);
    };
    let mut next = Workload::clone(workload);
    if replicas(set) > 0 {
        let owner = owner(set);
        let owners = next.metadata.owner_references.get_or_insert_default();
        if owners.iter().all(|there| there.uid != owner.uid) {
            owners.push(owner);
            next.metadata.annotations.get_or_insert_default().extend(owner_annotations(set));
        }
        next.spec.queue_name = queue.map(str::to_owned);
    }
    let gates = annotation(&set.metadata, ADMISSION_GATED_BY).unwrap_or_default();
    if gates != state::admission_gates(workload).unwrap_or_default() {
        let annotations = next.metadata.annotations.get_or_insert_default();
        annotations.remove(ADMISSION_GATED_BY);
        if !gates.is_empty() {
            annotations.insert(ADMISSION_GATED_BY.to_owned(), gates.to_owned());
        }
    }
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

fn built(seen: &Seen<'_>) -> Plan {
    let job = Set(seen.set);
    let retry = |why| Plan::step(Step::Retry(why));
    let pod_sets = match job.pod_sets() {
        Ok(pod_sets) => build::sanitized(pod_sets),
        Err(why) => return retry(why),
    };
    let priority = match priority::of(&job, &pod_sets, seen.classes) {
        Ok(priority) => priority,
        Err(missing) => return retry(missing.0),
    };
    let mut workload = build::workload(&job, pod_sets, priority, &[]);
    workload.metadata.name = Some(name(&seen.set.metadata));
    workload.metadata.owner_references = Some(vec![owner(seen.set)]);
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(IS_GROUP_WORKLOAD.to_owned(), "true".to_owned());
    annotations.extend(owner_annotations(seen.set));
    let told = format!("Created Workload: {}", plan::key(&workload));
    Plan::step(Step::Create(Box::new(workload))).telling("CreatedWorkload", &told)
}

/// What tells dispatch that a Workload is the StatefulSet's, and not that of one of its pods (MK-FLOW-03).
fn owner_annotations(set: &StatefulSet) -> [(String, String); 2] {
    let name = set.metadata.name.clone().unwrap_or_default();
    let gvk = gvk(&STATEFUL_SET.api_version(), STATEFUL_SET.kind);
    [(JOB_OWNER_GVK.to_owned(), gvk), (JOB_OWNER_NAME.to_owned(), name)]
}

fn owner(set: &StatefulSet) -> OwnerReference {
    OwnerReference {
        api_version: STATEFUL_SET.api_version(),
        kind: STATEFUL_SET.kind.to_owned(),
        name: set.metadata.name.clone().unwrap_or_default(),
        uid: set.metadata.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
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

impl fmt::Display for Todo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Todo::Workload(plan) => plan.fmt(f),
            Todo::Pods(pods) => {
                let names: Vec<&str> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
                write!(f, "mark pods {}", names.join(", "))
            }
        }
    }
}
