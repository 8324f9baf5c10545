//! So many pods of one kind: what the controllers of ReplicaSets and ReplicationControllers do.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::meta::{controller_of, selector};

#[cfg(test)]
mod tests;

/// So many pods at most are created or deleted by one plan.
const MOST_PODS: usize = 500;
/// Pods with a lower number in this annotation go first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What is wanted, by whom.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The API of the owner.
    pub api_version: &'static str,
    /// The kind of the owner.
    pub kind: &'static str,
    /// The owner.
    pub owner: &'a ObjectMeta,
    /// How many pods.
    pub replicas: i32,
    /// A pod counts as available once it was ready for so long.
    pub min_ready_seconds: i32,
    /// Which pods are its own.
    pub selector: Option<LabelSelector>,
    /// What they are made of.
    pub template: Option<&'a PodTemplateSpec>,
}

/// A pod by name and uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A change of a pod's owner, as a strategic merge patch.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The pod.
    pub pod: PodRef,
    /// Whether it gets an owner; only after a fresh look at the owner. Otherwise it loses it.
    pub adopts: bool,
    /// The patch.
    pub patch: Value,
}

/// What is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods that are neither ended nor told to.
    pub replicas: i32,
    /// Of these, those with all labels of the template.
    pub fully_labeled: i32,
    /// Of these, those that are ready.
    pub ready: i32,
    /// Of these, those that have been ready for long enough.
    pub available: i32,
    /// Pods that are told to end and have not.
    pub terminating: i32,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Owners to change first.
    pub claims: Vec<Claim>,
    /// Pods to create.
    pub create: Vec<Pod>,
    /// Pods to delete.
    pub delete: Vec<PodRef>,
    /// What is there before that.
    pub counts: Counts,
    /// When to look again, although nothing changes.
    pub look_again: Option<Timestamp>,
}

/// Decides what to do about the pods of a namespace. `related` are the pods of all owners that have the same controller as
/// this one, its own among them; there are none if nobody controls it.
pub fn decide(wanted: &Wanted<'_>, pods: &[&Pod], related: &[&Pod], now: Timestamp) -> Plan {
    let (claims, own) = claim(wanted, pods);
    let active: Vec<&Pod> = own.iter().copied().filter(|pod| is_active(pod)).collect();
    let terminating =
        own.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some() && !has_ended(pod)).count();
    let wait = SignedDuration::from_secs(wanted.min_ready_seconds.into());
    let template_labels = wanted.template.and_then(|template| template.metadata.as_ref());
    let template_labels = template_labels.and_then(|meta| meta.labels.clone()).unwrap_or_default();
    let none = BTreeMap::new();
    let labeled = |pod: &&&Pod| {
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        template_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let ready: Vec<Timestamp> = active.iter().filter_map(|pod| ready_since(pod)).collect();
    let available_at = |since: &Timestamp| since.checked_add(wait).unwrap_or(Timestamp::MAX);
    let counts = Counts {
        replicas: count(active.len()),
        fully_labeled: count(active.iter().filter(labeled).count()),
        ready: count(ready.len()),
        available: count(ready.iter().filter(|since| wait.is_zero() || available_at(since) <= now).count()),
        terminating: count(terminating),
    };
    let look_again = ready.iter().map(available_at).filter(|at| *at > now).min().filter(|_| !wait.is_zero());
    let mut plan = Plan { claims, create: Vec::new(), delete: Vec::new(), counts, look_again };
    if wanted.owner.deletion_timestamp.is_some() {
        return plan;
    }
    let difference = i64::from(wanted.replicas) - i64::from(counts.replicas);
    let number = usize::try_from(difference.unsigned_abs()).unwrap_or(MOST_PODS).min(MOST_PODS);
    if difference > 0 {
        plan.create = vec![new_pod(wanted); number];
    } else if difference < 0 {
        let mut victims = active;
        let mut on_node: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for pod in related.iter().filter(|pod| is_active(pod)) {
            *on_node.entry(node(pod)).or_default() += 1;
        }
        victims.sort_by_key(|pod| parting(pod, on_node.get(&node(pod)).copied().unwrap_or(0)));
        plan.delete = victims.into_iter().take(number).map(PodRef::of).collect();
    }
    plan
}

impl PodRef {
    /// A pod.
    pub fn of(pod: &Pod) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        PodRef { name: text(&pod.metadata.name), uid: text(&pod.metadata.uid) }
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// The owner reference of a pod.
pub fn owner_reference(wanted: &Wanted<'_>) -> OwnerReference {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    OwnerReference {
        api_version: wanted.api_version.to_owned(),
        kind: wanted.kind.to_owned(),
        name: text(&wanted.owner.name),
        uid: text(&wanted.owner.uid),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Pods to adopt or to let go, and those that are its own then.
pub(crate) fn claim<'a>(wanted: &Wanted<'_>, pods: &[&'a Pod]) -> (Vec<Claim>, Vec<&'a Pod>) {
    let deleting = wanted.owner.deletion_timestamp.is_some();
    let none = BTreeMap::new();
    let (mut claims, mut own) = (Vec::new(), Vec::new());
    for &pod in pods.iter().filter(|pod| pod.metadata.namespace == wanted.owner.namespace) {
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let matches = selector::matches(wanted.selector.as_ref(), labels) == Some(true);
        let uid = &pod.metadata.uid;
        match controller_of(&pod.metadata) {
            Some(owner) if Some(&owner.uid) == wanted.owner.uid.as_ref() => {
                if matches {
                    own.push(pod);
                } else if !deleting {
                    let gone = json!([{"$patch": "delete", "uid": owner.uid}]);
                    let patch = json!({"metadata": {"uid": uid, "ownerReferences": gone}});
                    claims.push(Claim { pod: PodRef::of(pod), adopts: false, patch });
                }
            }
            None if matches && !deleting && is_active(pod) => {
                let patch = json!({"metadata": {"uid": uid, "ownerReferences": [owner_reference(wanted)]}});
                claims.push(Claim { pod: PodRef::of(pod), adopts: true, patch });
                own.push(pod);
            }
            _ => {}
        }
    }
    (claims, own)
}

/// A pod of the template, with a name of its own.
pub(crate) fn new_pod(wanted: &Wanted<'_>) -> Pod {
    let template = wanted.template.cloned().unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", wanted.owner.name.as_deref().unwrap_or_default())),
            namespace: wanted.owner.namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![owner_reference(wanted)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Neither ended nor told to.
pub fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && pod.metadata.deletion_timestamp.is_none()
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// Since when a pod is ready; `None` if it is not.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready =
        conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(ready.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0))
}

/// Which pod to part with first: one without a node, that does not run, that is not ready, that costs least, that has
/// the most of its kind beside it, that became ready last, that restarted most often, that is youngest.
type Parting = (
    bool,
    u8,
    bool,
    i64,
    Reverse<usize>,
    Reverse<Option<Timestamp>>,
    Reverse<i32>,
    Reverse<Option<Timestamp>>,
);

fn parting(pod: &Pod, neighbours: usize) -> Parting {
    let running = match phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    let annotations = pod.metadata.annotations.as_ref();
    let cost =
        annotations.and_then(|all| all.get(DELETION_COST)).and_then(|cost| cost.parse().ok()).unwrap_or(0);
    let since = ready_since(pod);
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let restarts = containers.map(|container| container.restart_count).max().unwrap_or(0);
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (
        node(pod).is_some(),
        running,
        since.is_some(),
        cost,
        Reverse(neighbours),
        Reverse(since),
        Reverse(restarts),
        Reverse(created),
    )
}
