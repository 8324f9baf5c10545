//! Pods with an identity, one after the other: what the StatefulSet controller does next.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::replicas::{Claim, PodRef, Wanted, claim, new_pod, owner_reference, phase, ready_since};
use crate::revisions::{self, HASH_LABEL, REVISION_LABEL};

#[cfg(test)]
mod tests;

/// The label of a pod that says its own name.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label of a pod that says its ordinal.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// A step on the way.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A claim that a pod needs and that is not there, and the pod.
    CreateClaim(Box<PersistentVolumeClaim>, String),
    /// A claim that is to follow others when they are deleted.
    OwnClaim {
        /// Its name.
        name: String,
        /// Whom it follows.
        owners: Vec<OwnerReference>,
        /// The pod of which this is told, if it is.
        told_of: Option<String>,
    },
    /// A pod that is not there.
    Create(Box<Pod>),
    /// A pod that has to go, or to be made anew.
    Delete(PodRef),
    /// A pod that has lost the labels that say who it is.
    Label(String, BTreeMap<String, String>),
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Pods to adopt or to let go.
    pub claims: Vec<Claim>,
    /// The history has to be put right before anything else is decided.
    pub revision: Option<revisions::Step>,
    /// In this order; the first that fails ends the plan.
    pub steps: Vec<Step>,
    /// Revisions that nobody needs any more.
    pub forget: Vec<String>,
    /// The status, if it is another.
    pub status: Option<Box<StatefulSetStatus>>,
    /// When to look again, although nothing changes.
    pub look_again: Option<Timestamp>,
}

/// What is there: revisions and pods that the set controls or might, and the claims of its namespace by name.
pub struct Observed<'a> {
    /// The set.
    pub set: &'a StatefulSet,
    /// Its revisions.
    pub revisions: &'a [&'a ControllerRevision],
    /// Pods that it controls, and those that nobody does.
    pub pods: &'a [&'a Pod],
    /// Looks for a claim.
    pub claim: &'a dyn Fn(&str) -> Option<PersistentVolumeClaim>,
}

/// What a set wants of its pods.
pub fn wanted<'a>(set: &'a StatefulSet, template: &'a PodTemplateSpec) -> Wanted<'a> {
    let spec = set.spec.as_ref();
    Wanted {
        api_version: "apps/v1",
        kind: "StatefulSet",
        owner: &set.metadata,
        replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
        min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
        selector: spec.map(|spec| spec.selector.clone()),
        template: Some(template),
    }
}

/// Decides the next steps.
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let set = seen.set;
    let spec = set.spec.clone().unwrap_or_default();
    let wanted = wanted(set, &spec.template);
    let name = set.metadata.name.clone().unwrap_or_default();
    let members: Vec<&Pod> =
        seen.pods.iter().copied().filter(|pod| identity(pod).is_some_and(|(of, _)| of == name)).collect();
    let (claims, own) = claim(&wanted, &members);
    let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
    let sorted = revisions::sorted(seen.revisions);
    let make = |number| {
        let owner = owner_reference(&wanted);
        revisions::new(HASH_LABEL, &set.metadata, owner, &spec.template, number, collisions)
    };
    let update = match revisions::find(&sorted, &spec.template, make) {
        Ok(update) => update,
        Err(step) => return Plan { claims, revision: Some(step), ..Plan::default() },
    };
    let named = set.status.as_ref().and_then(|status| status.current_revision.clone());
    let current = sorted.iter().find(|it| it.metadata.name == named).copied().unwrap_or(update);
    let label = |revision: &ControllerRevision| revision.metadata.name.clone().unwrap_or_default();
    let (current_name, update_name) = (label(current), label(update));
    let mut rollout = Rollout {
        set,
        now,
        current: revisions::template(current).unwrap_or_else(|| spec.template.clone()),
        current_name,
        update_name,
        pods: own,
        claim: seen.claim,
        steps: Vec::new(),
        taken_from_current: 0,
        spec,
    };
    if set.metadata.deletion_timestamp.is_none() {
        rollout.proceed();
    }
    let status = rollout.status(collisions);
    let look_again = rollout.next_available();
    let live = |name: &str| {
        name == rollout.current_name
            || name == rollout.update_name
            || rollout.pods.iter().any(|pod| revision_of(pod) == Some(name))
    };
    let forget = revisions::surplus(&sorted, live, rollout.spec.revision_history_limit);
    let status = Some(Box::new(status)).filter(|status| set.status.as_ref() != Some(&**status));
    Plan { claims, revision: None, steps: rollout.steps, forget, status, look_again }
}

/// A rollout while its next steps are decided.
struct Rollout<'a> {
    set: &'a StatefulSet,
    spec: StatefulSetSpec,
    now: Timestamp,
    current: PodTemplateSpec,
    current_name: String,
    update_name: String,
    pods: Vec<&'a Pod>,
    claim: &'a dyn Fn(&str) -> Option<PersistentVolumeClaim>,
    steps: Vec<Step>,
    /// Pods of the current revision that go in favour of the next.
    taken_from_current: i32,
}

impl<'a> Rollout<'a> {
    fn first(&self) -> i32 {
        self.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
    }

    fn end(&self) -> i32 {
        self.first().saturating_add(self.spec.replicas.unwrap_or(1))
    }

    fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn pod(&self, ordinal: i32) -> Option<&'a Pod> {
        self.pods.iter().copied().find(|pod| ordinal_of(pod) == Some(ordinal))
    }

    /// Pods beyond the wanted ones, the last first.
    fn condemned(&self) -> Vec<&'a Pod> {
        let inside = self.first()..self.end();
        let outside = |pod: &&Pod| ordinal_of(pod).is_some_and(|ordinal| !inside.contains(&ordinal));
        let mut condemned: Vec<&Pod> = self.pods.iter().copied().filter(outside).collect();
        condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal_of(pod)));
        condemned
    }

    fn proceed(&mut self) {
        for ordinal in self.first()..self.end() {
            if self.keep(ordinal) && self.is_ordered() {
                return;
            }
        }
        let condemned = self.condemned();
        for pod in &condemned {
            self.own_claims(pod, false);
        }
        // A pod that does not come up may go before those after it do; otherwise one waits for the other.
        let first_unavailable = (self.first()..self.end())
            .map(|ordinal| self.pod(ordinal))
            .find(|pod| pod.is_none_or(|pod| self.is_unavailable(pod)))
            .map(|pod| pod.map(name_of));
        let first_unavailable = first_unavailable.unwrap_or_else(|| {
            condemned.iter().rev().find(|pod| self.is_unavailable(pod)).map(|pod| name_of(pod))
        });
        for pod in condemned {
            if is_leaving(pod) {
                if self.is_ordered() {
                    return;
                }
                continue;
            }
            let waits = self.is_ordered()
                && !(is_ready(pod) && self.is_available(pod))
                && first_unavailable != Some(name_of(pod));
            if waits {
                return;
            }
            self.steps.push(Step::Delete(PodRef::of(pod)));
            if self.is_ordered() {
                return;
            }
        }
        self.roll();
    }

    /// Keeps the pod of an ordinal. Returns whether the next one has to wait for it.
    fn keep(&mut self, ordinal: i32) -> bool {
        let Some(pod) = self.pod(ordinal) else {
            let pod = self.new_pod(ordinal);
            self.create_claims(&pod);
            self.steps.push(Step::Create(Box::new(pod)));
            return true;
        };
        if matches!(phase(pod), "Failed" | "Succeeded") {
            if !is_leaving(pod) {
                self.steps.push(Step::Delete(PodRef::of(pod)));
            }
            return true;
        }
        if phase(pod) == "Pending" {
            self.create_claims(pod);
        }
        if self.is_ordered() && (is_leaving(pod) || !is_ready(pod) || !self.is_available(pod)) {
            return true;
        }
        let labels = identity_labels(name_of(pod), ordinal);
        let own = pod.metadata.labels.clone().unwrap_or_default();
        if own.get(POD_NAME) != labels.get(POD_NAME) {
            self.steps.push(Step::Label(name_of(pod).to_owned(), labels));
        }
        self.own_claims(pod, true);
        false
    }

    /// Lets pods of older revisions go, the last first, one at a time.
    fn roll(&mut self) {
        let strategy = self.spec.update_strategy.clone().unwrap_or_default();
        if strategy.type_.as_deref() == Some("OnDelete") {
            return;
        }
        let partition = strategy.rolling_update.and_then(|rolling| rolling.partition).unwrap_or(0);
        let first = self.first().saturating_add(partition.max(0));
        for ordinal in (first..self.end()).rev() {
            let Some(pod) = self.pod(ordinal) else { return };
            if revision_of(pod) != Some(&self.update_name) && !is_leaving(pod) {
                self.steps.push(Step::Delete(PodRef::of(pod)));
                self.taken_from_current += 1;
                return;
            }
            if self.is_unavailable(pod) {
                return;
            }
        }
    }

    fn new_pod(&self, ordinal: i32) -> Pod {
        let strategy = self.spec.update_strategy.clone().unwrap_or_default();
        let is_rolling = strategy.type_.as_deref() != Some("OnDelete");
        let status = self.set.status.as_ref();
        let kept = match strategy.rolling_update {
            Some(rolling) => rolling.partition.unwrap_or(0),
            None if is_rolling => status.and_then(|status| status.current_replicas).unwrap_or(0),
            None => 0,
        };
        let (template, revision) = if ordinal < self.first().saturating_add(kept) {
            (&self.current, &self.current_name)
        } else {
            (&self.spec.template, &self.update_name)
        };
        let mut pod = new_pod(&wanted(self.set, template));
        let name = format!("{}-{ordinal}", self.set.metadata.name.as_deref().unwrap_or_default());
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.extend(identity_labels(&name, ordinal));
        labels.insert(REVISION_LABEL.to_owned(), revision.clone());
        pod.metadata.name = Some(name.clone());
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(name.clone());
        spec.subdomain.clone_from(&self.spec.service_name);
        let claimed: Vec<Volume> = self
            .claim_templates()
            .map(|template| {
                let volume = name_in(&template.metadata);
                let source = PersistentVolumeClaimVolumeSource {
                    claim_name: format!("{volume}-{name}"),
                    ..PersistentVolumeClaimVolumeSource::default()
                };
                Volume { name: volume, persistent_volume_claim: Some(source), ..Volume::default() }
            })
            .collect();
        if !claimed.is_empty() {
            let own = spec.volumes.take().unwrap_or_default();
            let own = own.into_iter().filter(|volume| claimed.iter().all(|claim| claim.name != volume.name));
            spec.volumes = Some(claimed.iter().cloned().chain(own).collect());
        }
        pod
    }

    fn claim_templates(&self) -> impl Iterator<Item = &PersistentVolumeClaim> {
        self.spec.volume_claim_templates.iter().flatten()
    }

    fn create_claims(&mut self, pod: &Pod) {
        let pod_name = name_of(pod).to_owned();
        let mut steps = Vec::new();
        for template in self.claim_templates() {
            let mut claim = template.clone();
            let name = format!("{}-{pod_name}", name_in(&template.metadata));
            if (self.claim)(&name).is_some() {
                continue;
            }
            claim.metadata.name = Some(name);
            claim.metadata.namespace.clone_from(&self.set.metadata.namespace);
            let labels = self.spec.selector.match_labels.clone().unwrap_or_default();
            claim.metadata.labels.get_or_insert_default().extend(labels);
            claim.metadata.owner_references =
                Some(self.claim_owners(pod, Vec::new())).filter(|owners| !owners.is_empty());
            steps.push(Step::CreateClaim(Box::new(claim), pod_name.clone()));
        }
        self.steps.extend(steps);
    }

    /// Whom a pod's claims follow, by the policy of the set.
    fn own_claims(&mut self, pod: &Pod, is_told: bool) {
        let mut steps = Vec::new();
        for template in self.claim_templates() {
            let name = format!("{}-{}", name_in(&template.metadata), name_of(pod));
            let Some(claim) = (self.claim)(&name) else { continue };
            let known = claim.metadata.owner_references.unwrap_or_default();
            let owners = self.claim_owners(pod, known.clone());
            if owners != known {
                let told_of = (is_told && steps.is_empty()).then(|| name_of(pod).to_owned());
                steps.push(Step::OwnClaim { name, owners, told_of });
            }
        }
        self.steps.extend(steps);
    }

    fn claim_owners(&self, pod: &Pod, mut owners: Vec<OwnerReference>) -> Vec<OwnerReference> {
        let policy = self.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
        let deletes = |word: Option<&str>| word == Some("Delete");
        let inside = ordinal_of(pod).is_some_and(|ordinal| (self.first()..self.end()).contains(&ordinal));
        let follows_pod = deletes(policy.when_scaled.as_deref()) && !inside;
        let follows_set = deletes(policy.when_deleted.as_deref()) && !follows_pod;
        let set = owner_reference(&wanted(self.set, &self.spec.template));
        let of_pod = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: name_of(pod).to_owned(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        for (reference, follows) in [(set, follows_set), (of_pod, follows_pod)] {
            let is_same =
                |owner: &OwnerReference| owner.kind == reference.kind && owner.name == reference.name;
            if !follows {
                owners.retain(|owner| !is_same(owner));
            } else if !owners.iter().any(|owner| owner.uid == reference.uid) {
                owners.push(reference);
            }
        }
        owners
    }

    fn patience(&self) -> SignedDuration {
        SignedDuration::from_secs(self.spec.min_ready_seconds.unwrap_or(0).into())
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let wait = self.patience();
        let long_enough =
            |since: Timestamp| wait.is_zero() || since.checked_add(wait).is_ok_and(|at| at <= self.now);
        ready_since(pod).is_some_and(long_enough)
    }

    fn is_unavailable(&self, pod: &Pod) -> bool {
        !self.is_available(pod) || is_leaving(pod)
    }

    /// When the next pod will have been ready for long enough.
    fn next_available(&self) -> Option<Timestamp> {
        let wait = self.patience();
        let waiting = self.pods.iter().filter(|pod| !self.is_available(pod));
        waiting.filter_map(|pod| ready_since(pod)?.checked_add(wait).ok()).min()
    }

    fn status(&self, collisions: i32) -> StatefulSetStatus {
        let count = |test: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.iter().filter(|pod| test(pod)).count()).unwrap_or(i32::MAX)
        };
        let created = |pod: &Pod| !phase(pod).is_empty();
        let of = |revision: &str| {
            count(&|pod| created(pod) && !is_leaving(pod) && revision_of(pod) == Some(revision))
        };
        let (replicas, ready) = (count(&created), count(&is_ready));
        let updated = of(&self.update_name);
        let wanted = self.spec.replicas.unwrap_or(1);
        let is_rolling =
            self.spec.update_strategy.as_ref().and_then(|it| it.type_.as_deref()) != Some("OnDelete");
        let is_complete = is_rolling && updated == wanted && ready == wanted && replicas == wanted;
        let (current, current_name) = if is_complete {
            (updated, &self.update_name)
        } else {
            (of(&self.current_name) - self.taken_from_current, &self.current_name)
        };
        StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas,
            ready_replicas: some(ready),
            available_replicas: Some(count(&|pod| is_ready(pod) && self.is_available(pod))),
            current_replicas: some(current),
            updated_replicas: some(updated),
            current_revision: Some(current_name.clone()),
            update_revision: Some(self.update_name.clone()),
            collision_count: Some(collisions),
            conditions: self.set.status.as_ref().and_then(|status| status.conditions.clone()),
        }
    }
}

fn some(number: i32) -> Option<i32> {
    Some(number).filter(|number| *number != 0)
}

fn name_in(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Of which set a pod is by its name, and which of its pods.
fn identity(pod: &Pod) -> Option<(&str, i32)> {
    let (set, ordinal) = name_of(pod).rsplit_once('-')?;
    let is_number = !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Some((set, ordinal.parse().ok()?))).flatten()
}

fn ordinal_of(pod: &Pod) -> Option<i32> {
    identity(pod).map(|(_, ordinal)| ordinal)
}

fn identity_labels(name: &str, ordinal: i32) -> BTreeMap<String, String> {
    BTreeMap::from([(POD_NAME.to_owned(), name.to_owned()), (POD_INDEX.to_owned(), ordinal.to_string())])
}

fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(REVISION_LABEL).map(String::as_str)
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn is_ready(pod: &Pod) -> bool {
    phase(pod) == "Running" && ready_since(pod).is_some()
}
