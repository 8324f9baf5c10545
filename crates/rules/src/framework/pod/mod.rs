//! Pods that are queued themselves, one by one or as groups (JF-70). A pod waits behind a scheduling gate instead of being
//! suspended, and a pod that has to stop is deleted: it never starts again.
//!
//! - [`Unit`]: a pod or a group of them, as a Job of the framework.
//! - [`role`]: which pods of a group are alike.
//! - [`group`]: which pods of a group count, and which are too many or have had their day.
//! - [`plan`]: what to do next about a unit.

pub mod group;
pub mod plan;
pub mod role;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use types::kueue::{PodSet, ReclaimablePod};

use super::{
    Finished, Kind, Observed, PodSetInfo, TOPOLOGY_GATE, Write, annotation, label,
    pod_set::Conflict,
    topology::{self, Numbered},
};

/// The kind.
pub const POD: Kind = Kind { group: "", version: "v1", kind: "Pod", plural: "pods", framework: "pod" };

/// The label of pods that are queued, whose value is `true`, and the finalizer that keeps their end to be seen.
pub const MANAGED: &str = "kueue.x-k8s.io/managed";
/// Keeps a pod from being scheduled before it is admitted.
pub const ADMISSION_GATE: &str = "kueue.x-k8s.io/admission";
/// The annotation that names the kind of queued object that a pod is part of.
pub const SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// The group of a pod, as an annotation or a label.
pub const GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
/// The annotation with the number of pods of a group.
pub const GROUP_TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// The annotation of groups that are admitted whole with their first pod.
pub const FAST_ADMISSION: &str = "kueue.x-k8s.io/pod-group-fast-admission";
/// The annotation of groups that serve, and never end.
pub const SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// The annotation with the role of a pod in its group.
pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
/// The annotation that says, if it is `false`, that failed pods of a group are not replaced.
pub const RETRIABLE_IN_GROUP: &str = "kueue.x-k8s.io/retriable-in-group";
/// The annotation of Workloads that stand for groups.
pub const IS_GROUP_WORKLOAD: &str = "kueue.x-k8s.io/is-group-workload";
/// The label with the number of a pod in its group.
pub const POD_INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
/// The annotation that names the label from which that number comes.
pub const POD_INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// The pod condition of a pod that is about to be deleted.
pub const TERMINATION_TARGET: &str = "TerminationTarget";

/// The pod set of a pod that is in no group.
const POD_SET: &str = "main";

/// A pod, or a group of them, as it was read.
#[derive(Debug, Clone)]
pub struct Unit<'a> {
    /// Its pods, of which there is at least one. The first stands for all.
    pods: Vec<&'a Pod>,
    /// The name of the group.
    group: Option<&'a str>,
    /// When this was.
    now: Timestamp,
}

impl<'a> Unit<'a> {
    /// A pod that is in no group.
    pub fn single(pod: &'a Pod, now: Timestamp) -> Unit<'a> {
        Unit { pods: vec![pod], group: None, now }
    }

    /// A group, unless it has no pods.
    pub fn group(name: &'a str, pods: Vec<&'a Pod>, now: Timestamp) -> Option<Unit<'a>> {
        (!pods.is_empty()).then_some(Unit { pods, group: Some(name), now })
    }

    /// The same group with some of its pods.
    fn with(&self, pods: Vec<&'a Pod>) -> Unit<'a> {
        Unit { pods, ..self.clone() }
    }

    /// Its pods.
    pub fn pods(&self) -> &[&'a Pod] {
        &self.pods
    }

    /// Its pods that wait behind the gate.
    pub fn gated(&self) -> impl Iterator<Item = &'a Pod> + '_ {
        self.pods.iter().copied().filter(|pod| is_gated(pod))
    }

    /// The pods that a stop deletes: those that run or may run, or all of them.
    pub fn stoppable(&self, all: bool) -> impl Iterator<Item = &'a Pod> + '_ {
        let stays = move |pod: &Pod| !all && is_suspended(pod);
        let pods = self.pods.iter().copied();
        pods.filter(move |pod| pod.metadata.deletion_timestamp.is_none() && !stays(pod))
    }

    /// Whether it serves, and never ends.
    fn is_serving(&self) -> bool {
        self.group.is_some() && says(self.first(), SERVING, "true")
    }

    /// Whether it is admitted whole with its first pod.
    fn is_fast(&self) -> bool {
        says(self.first(), FAST_ADMISSION, "true")
    }

    fn first(&self) -> &'a Pod {
        self.pods[0]
    }

    /// Until when a pod that runs and was told to go counts, if one does: a node that is lost never lets go of it.
    fn lingers_until(&self) -> Option<Timestamp> {
        let running = self.pods.iter().filter(|pod| phase(pod) == "Running");
        running.filter_map(|pod| leaves_by(pod)).filter(|until| *until >= self.now).min()
    }
}

/// The group that a pod is in.
pub fn group_name(metadata: &ObjectMeta) -> Option<&str> {
    annotation(metadata, GROUP_NAME).filter(|name| !name.is_empty()).or_else(|| label(metadata, GROUP_NAME))
}

/// How many pods the group of a pod has (JF-70).
pub fn total_count(metadata: &ObjectMeta) -> Result<i64, String> {
    if group_name(metadata).is_none() {
        return Err(format!("pod doesn't have a '{GROUP_NAME}' annotation/label"));
    }
    let Some(said) = annotation(metadata, GROUP_TOTAL_COUNT) else {
        return Err(format!("failed to extract '{GROUP_TOTAL_COUNT}' annotation"));
    };
    match types::go::atoi(said)? {
        count if count < 1 => Err(format!(
            "incorrect annotation value '{GROUP_TOTAL_COUNT}={said}': group total count should be greater than zero"
        )),
        count => Ok(count),
    }
}

/// Whether a pod waits to be admitted.
pub fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.into_iter().flatten().any(|gate| gate.name == ADMISSION_GATE)
}

/// Whether a pod has ended.
pub fn is_terminated(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether the end of a pod is kept to be seen.
pub fn is_held(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|it| it == MANAGED)
}

/// Whether a pod of a group is there to be not replaced.
pub fn is_unretriable(metadata: &ObjectMeta) -> bool {
    annotation(metadata, RETRIABLE_IN_GROUP) == Some("false")
}

/// A pod without the gates behind which it waits, with what it is given. The gate of topology stays for those who are given
/// a place.
fn opened(pod: &Pod, info: &PodSetInfo) -> Result<Pod, Conflict> {
    let mut template = PodTemplateSpec { metadata: Some(pod.metadata.clone()), spec: pod.spec.clone() };
    info.merge_into(&mut template)?;
    let is_placed = info.scheduling_gates.iter().any(|gate| gate.name == TOPOLOGY_GATE);
    let mut opened =
        Pod { metadata: template.metadata.unwrap_or_default(), spec: template.spec, ..pod.clone() };
    if let Some(spec) = &mut opened.spec {
        let stays = |name: &str| name != ADMISSION_GATE && (is_placed || name != TOPOLOGY_GATE);
        let gates = spec.scheduling_gates.take().unwrap_or_default();
        let gates: Vec<_> = gates.into_iter().filter(|gate| stays(&gate.name)).collect();
        spec.scheduling_gates = Some(gates).filter(|gates| !gates.is_empty());
    }
    Ok(opened)
}

fn is_suspended(pod: &Pod) -> bool {
    is_terminated(pod) || is_gated(pod)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn says(pod: &Pod, key: &str, value: &str) -> bool {
    annotation(&pod.metadata, key) == Some(value)
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

/// When a pod that was told to go has had all the time it was given. The API server names the time at which that is over, and
/// Kueue adds the time once more.
fn leaves_by(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds?);
    pod.metadata.deletion_timestamp.as_ref()?.0.checked_add(grace).ok()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
    ready.is_some_and(|condition| condition.status == "True")
}

/// A pod set of pods like this one.
fn pod_set(pod: &Pod, name: String, count: i32) -> Result<PodSet, String> {
    let whole = PodTemplateSpec { metadata: Some(pod.metadata.clone()), spec: None };
    let numbered = Numbered { index_label: Some(POD_INDEX), ..Numbered::default() };
    Ok(PodSet {
        name: Some(name),
        template: PodTemplateSpec { metadata: None, spec: pod.spec.clone() }.into(),
        count,
        min_count: None,
        topology_request: topology::request(&whole, &numbered)?,
    })
}

impl Observed for Unit<'_> {
    fn kind(&self) -> Kind {
        POD
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.first().metadata
    }

    /// A group is as soon as one of its pods is.
    fn is_suspended(&self) -> bool {
        self.pods.iter().any(|pod| is_suspended(pod))
    }

    /// Nobody waits for a pod that is alone: as soon as it is deleted, its quota is free.
    fn is_active(&self) -> bool {
        let runs =
            |pod: &&Pod| phase(pod) == "Running" && leaves_by(pod).is_none_or(|until| until >= self.now);
        self.group.is_some() && self.pods.iter().any(runs)
    }

    fn finished(&self) -> Option<Finished> {
        if self.is_serving() {
            return None;
        }
        let first = self.first();
        if self.group.is_none() {
            let message = first.status.as_ref().and_then(|status| status.message.clone()).unwrap_or_default();
            return is_terminated(first).then(|| Finished { success: phase(first) == "Succeeded", message });
        }
        let total = total_count(&first.metadata).ok()?;
        let succeeded = self.pods.iter().filter(|pod| phase(pod) == "Succeeded").count();
        let all_ended = self.pods.iter().all(|pod| is_terminated(pod));
        let given_up = all_ended && self.pods.iter().any(|pod| is_unretriable(&pod.metadata));
        let is_over = i64::try_from(succeeded) == Ok(total) || given_up;
        is_over.then(|| Finished { success: true, message: format!("Pods succeeded: {succeeded}/{total}.") })
    }

    fn pod_sets(&self) -> Result<Vec<PodSet>, String> {
        match self.group {
            None => Ok(vec![pod_set(self.first(), POD_SET.to_owned(), 1)?]),
            Some(_) if self.is_fast() => group::whole(self),
            Some(_) => group::roles(&self.pods),
        }
    }

    fn pods_ready(&self) -> bool {
        let all = self.pods.iter().all(|pod| is_ready(pod));
        let enough = || {
            let total = total_count(&self.first().metadata)
                .and_then(|it| usize::try_from(it).map_err(|it| it.to_string()));
            total.is_ok_and(|total| self.pods.len() >= total)
        };
        all && (self.group.is_none() || enough())
    }

    fn reclaimable(&self) -> Vec<ReclaimablePod> {
        if self.group.is_none() || self.is_serving() {
            return Vec::new();
        }
        let mut all: Vec<ReclaimablePod> = Vec::new();
        for pod in self.pods.iter().filter(|pod| phase(pod) == "Succeeded") {
            let role = role::of(pod);
            match all.iter_mut().find(|there| there.name == role) {
                Some(there) => there.count += 1,
                None => all.push(ReclaimablePod { name: role, count: 1 }),
            }
        }
        all
    }

    /// What becomes of each pod that waits, in their order.
    fn started(&self, given: &[PodSetInfo]) -> Result<Vec<Write>, Conflict> {
        let mut writes = Vec::new();
        for pod in self.gated() {
            let info = if self.group.is_none() {
                let [info] = given else {
                    let why = "invalid podset infos: expecting 1 pod set got";
                    return Err(Conflict(format!("{why} {}", given.len())));
                };
                info
            } else {
                let role = role::of(pod);
                let missing = || {
                    let why = "invalid podset infos: podSetInfo with the name";
                    Conflict(format!("{why} '{role}' is not found"))
                };
                given.iter().find(|info| info.name == role).ok_or_else(missing)?
            };
            let value = serde_json::to_value(opened(pod, info)?);
            writes.push(Write::Object(value.expect("a pod has string keys and finite numbers")));
        }
        Ok(writes)
    }

    fn is_stopped(&self, _: Option<&[PodSetInfo]>) -> bool {
        self.stoppable(false).next().is_none()
    }

    /// A pod that stops is deleted, which is no write to it.
    fn stopped(&self, _: Option<&[PodSetInfo]>) -> Vec<Write> {
        Vec::new()
    }
}

/// A pod as it is without what nobody decides by.
pub fn trim(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
}

#[cfg(test)]
mod tests;
