//! What the Deployment controller does: which ReplicaSets there are, how large each is, and what the status says.
//!
//! A plan is one step: sets are created, scaled or deleted, and what follows from it comes back as a change of theirs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetSpec,
};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

mod rollout;
mod status;
#[cfg(test)]
mod tests;

pub use self::status::not_created;

/// The label that tells the pods of one template from those of another.
pub const HASH_LABEL: &str = "pod-template-hash";
/// The annotation with the number of a template.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Characters that spell no words.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// A set to create.
    pub create: Option<Box<ReplicaSet>>,
    /// Sets to write as they are here.
    pub update: Vec<ReplicaSet>,
    /// Sets to delete, by name and uid.
    pub delete: Vec<(String, String)>,
    /// What was scaled: told as an event once it is written.
    pub events: Vec<String>,
    /// The revision to write into the Deployment's annotation, if it is another.
    pub revision: Option<String>,
    /// The status, if it is another.
    pub status: Option<Box<DeploymentStatus>>,
    /// When to look again, although nothing changes.
    pub look_again: Option<Timestamp>,
}

/// Decides the next step. `sets` are those that the Deployment controls; `old_pods_run` says whether pods of any but the
/// newest template have not ended.
pub fn decide(deployment: &Deployment, sets: &[&ReplicaSet], old_pods_run: bool, now: Timestamp) -> Plan {
    let mut rollout = Rollout::new(deployment, sets);
    let deleting = deployment.metadata.deletion_timestamp.is_some();
    let spec = deployment.spec.clone().unwrap_or_default();
    if !deleting {
        let recreate = spec.strategy.as_ref().and_then(|it| it.type_.as_deref()) == Some("Recreate");
        if spec.paused == Some(true) || rollout.is_scaling() {
            rollout.sync_revisions();
            rollout.scale();
            if spec.paused == Some(true) && rollout.is_saturated() {
                rollout.clean_up();
            }
        } else {
            rollout.rolls = true;
            if recreate {
                rollout.recreate(old_pods_run);
            } else {
                rollout.roll();
            }
        }
    }
    rollout.finish(now)
}

/// A rollout while a step of it is decided.
struct Rollout<'a> {
    deployment: &'a Deployment,
    replicas: i32,
    template: PodTemplateSpec,
    /// The set of the current template, if there is one.
    new: Option<ReplicaSet>,
    /// The others, the oldest first.
    old: Vec<ReplicaSet>,
    before: BTreeMap<String, ReplicaSet>,
    plan: Plan,
    created: bool,
    /// Whether this is a step of the rollout: its progress is nothing to ask for while it is paused, scaled or deleted.
    rolls: bool,
}

impl<'a> Rollout<'a> {
    fn new(deployment: &'a Deployment, sets: &[&ReplicaSet]) -> Self {
        let spec = deployment.spec.clone().unwrap_or_default();
        let mut all: Vec<ReplicaSet> = sets.iter().map(|set| (*set).clone()).collect();
        all.sort_by_key(|set| (created(set), set.metadata.name.clone()));
        let before = all.iter().map(|set| (name(&set.metadata), set.clone())).collect();
        let place = all.iter().position(|set| same_template(set, &spec.template));
        let new = place.map(|place| all.remove(place));
        Rollout {
            deployment,
            replicas: spec.replicas.unwrap_or(1),
            template: spec.template,
            new,
            old: all,
            before,
            plan: Plan::default(),
            created: false,
            rolls: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new)
    }

    fn most_surge(&self) -> i32 {
        self.fences().0
    }

    fn most_unavailable(&self) -> i32 {
        self.fences().1
    }

    /// How many pods more, and how many less, than wanted there may be while rolling.
    fn fences(&self) -> (i32, i32) {
        let strategy = self.deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
        if strategy.and_then(|it| it.type_.as_deref()) == Some("Recreate") {
            return (0, 0);
        }
        let rolling = strategy.and_then(|it| it.rolling_update.clone()).unwrap_or_default();
        let surge = part(rolling.max_surge.as_ref(), self.replicas, true);
        let unavailable = part(rolling.max_unavailable.as_ref(), self.replicas, false);
        // Something has to move.
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(self.replicas.max(1))) }
    }

    /// Sets the size of a set, and its annotations with it.
    fn resize(&mut self, at: Option<usize>, size: i32) {
        let (desired, most) = (self.replicas, self.replicas.saturating_add(self.most_surge()));
        let set = match at {
            None => self.new.as_mut(),
            Some(place) => self.old.get_mut(place),
        };
        let Some(set) = set else { return };
        let from = replicas(set);
        let annotations = set.metadata.annotations.get_or_insert_default();
        annotations.insert(DESIRED.to_owned(), desired.to_string());
        annotations.insert(MOST.to_owned(), most.to_string());
        if from == size {
            return;
        }
        set.spec.get_or_insert_default().replicas = Some(size);
        let way = if size > from { "up" } else { "down" };
        let set = name(&set.metadata);
        self.plan.events.push(format!("Scaled {way} replica set {set} from {from} to {size}"));
    }

    /// Gives the newest set the highest revision, and the Deployment with it.
    fn sync_revisions(&mut self) {
        let highest = self.old.iter().filter_map(revision).max().unwrap_or(0);
        let annotations = self.copied_annotations();
        let min_ready = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let Some(new) = &mut self.new else { return };
        let known = revision(new).unwrap_or(0);
        let next = known.max(highest + i64::from(known <= highest));
        let all = new.metadata.annotations.get_or_insert_default();
        all.extend(annotations);
        if known < next {
            if known > 0 {
                let history = all.entry(REVISION_HISTORY.to_owned()).or_default();
                *history = if history.is_empty() { known.to_string() } else { format!("{history},{known}") };
            }
            all.insert(REVISION.to_owned(), next.to_string());
        }
        new.spec.get_or_insert_default().min_ready_seconds = min_ready;
        let written = self.deployment.metadata.annotations.as_ref().and_then(|all| all.get(REVISION));
        let next = next.to_string();
        if written != Some(&next) {
            self.plan.revision = Some(next);
        }
    }

    fn copied_annotations(&self) -> BTreeMap<String, String> {
        let own = [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED, MOST];
        let mut annotations = self.deployment.metadata.annotations.clone().unwrap_or_default();
        annotations.retain(|key, _| !own.contains(&key.as_str()));
        annotations
    }

    /// Makes the set of the current template, of this size.
    fn create(&mut self, size: i32) {
        let meta = &self.deployment.metadata;
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = hash(&self.template, collisions.unwrap_or(0));
        let mut template = self.template.clone();
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.clone());
        let labels = labels.clone();
        let spec = self.deployment.spec.clone().unwrap_or_default();
        let mut selector: LabelSelector = spec.selector;
        selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
        let mut annotations = self.copied_annotations();
        let most = self.replicas.saturating_add(self.most_surge());
        annotations.insert(DESIRED.to_owned(), self.replicas.to_string());
        annotations.insert(MOST.to_owned(), most.to_string());
        let highest = self.old.iter().filter_map(revision).max().unwrap_or(0);
        annotations.insert(REVISION.to_owned(), (highest + 1).to_string());
        let set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{}-{hash}", name(meta))),
                namespace: meta.namespace.clone(),
                labels: Some(labels),
                annotations: Some(annotations),
                owner_references: Some(vec![OwnerReference {
                    api_version: "apps/v1".to_owned(),
                    kind: "Deployment".to_owned(),
                    name: name(meta),
                    uid: meta.uid.clone().unwrap_or_default(),
                    controller: Some(true),
                    block_owner_deletion: Some(true),
                }]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(size),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        if size > 0 {
            let event = format!("Scaled up replica set {} from 0 to {size}", name(&set.metadata));
            self.plan.events.push(event);
        }
        self.plan.revision = Some((highest + 1).to_string());
        self.new = Some(set);
        self.created = true;
    }

    /// Old sets that are empty and not needed to go back to.
    fn clean_up(&mut self) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        let keep = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut old: Vec<&ReplicaSet> =
            self.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        old.sort_by_key(|set| (revision(set).unwrap_or(0), created(set)));
        let too_many = old.len().saturating_sub(keep);
        for set in old.into_iter().take(too_many) {
            let status = set.status.as_ref();
            let settled = status.and_then(|status| status.observed_generation) >= set.metadata.generation;
            if replicas(set) == 0 && status.is_none_or(|status| status.replicas == 0) && settled {
                let uid = set.metadata.uid.clone().unwrap_or_default();
                self.plan.delete.push((name(&set.metadata), uid));
            }
        }
    }

    fn finish(mut self, now: Timestamp) -> Plan {
        let sets: Vec<ReplicaSet> = self.all().cloned().collect();
        if self.created {
            self.plan.create = self.new.clone().map(Box::new);
        }
        for set in sets {
            let known = self.before.get(&name(&set.metadata));
            if known.is_some_and(|known| {
                known.spec != set.spec || known.metadata.annotations != set.metadata.annotations
            }) {
                self.plan.update.push(set);
            }
        }
        let (status, look_again) = status::next(&self, now);
        self.plan.look_again = look_again;
        if self.deployment.status.as_ref() != Some(&status) {
            self.plan.status = Some(Box::new(status));
        }
        self.plan
    }
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}

fn created(set: &ReplicaSet) -> Option<Timestamp> {
    set.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn revision(set: &ReplicaSet) -> Option<i64> {
    set.metadata.annotations.as_ref()?.get(REVISION)?.parse().ok()
}

/// Whether a set has this template, whatever its hash is.
pub fn same_template(set: &ReplicaSet, template: &PodTemplateSpec) -> bool {
    let plain = |template: &PodTemplateSpec| {
        let mut plain = template.clone();
        if let Some(labels) = plain.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        if let Some(meta) = &mut plain.metadata {
            meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
        }
        plain
    };
    let of_set = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    of_set.is_some_and(|of_set| plain(of_set) == plain(template))
}

/// A number, or a percentage of another.
pub(crate) fn part(value: Option<&IntOrString>, of: i32, up: bool) -> i32 {
    match value {
        None => 0,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let hundredfold = i64::from(of) * percent;
            let part = if up { (hundredfold + 99) / 100 } else { hundredfold / 100 };
            i32::try_from(part).unwrap_or(i32::MAX)
        }
    }
}

/// A short name for a template. It only has to differ where templates do: sets are found by template, not by name.
fn hash(template: &PodTemplateSpec, collisions: i32) -> String {
    let mut text = serde_json::to_vec(template).unwrap_or_default();
    if collisions > 0 {
        text.extend(collisions.to_le_bytes());
    }
    let mut hash: u32 = 0x811c_9dc5;
    for byte in text {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    let letter = |digit: u8| char::from(SAFE[usize::from(digit) % SAFE.len()]);
    hash.to_string().bytes().map(letter).collect()
}

/// The condition of a type.
fn condition<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

fn new_condition(
    kind: &str,
    value: bool,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: if value { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: Some(Time(now)),
        last_update_time: Some(Time(now)),
    }
}

fn set_condition(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(old) if old.status == new.status && old.reason == new.reason => {}
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time.clone_from(&old.last_transition_time);
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
    }
}

fn seconds(number: i32) -> SignedDuration {
    SignedDuration::from_secs(number.into())
}
