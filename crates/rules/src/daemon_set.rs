//! One pod on every node that is meant: what the DaemonSet controller does next.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec,
    Toleration,
};

use crate::deployment::part;
use crate::quota::affinity::{matches, tolerates};
use crate::replicas::{Claim, PodRef, Wanted, claim, new_pod, owner_reference, phase, ready_since};
use crate::revisions::{self, REVISION_LABEL};

#[cfg(test)]
mod tests;

/// The annotation of a set, and the label of its pods, that count templates as they used to be counted.
const GENERATION: &str = "deprecated.daemonset.template.generation";
const GENERATION_LABEL: &str = "pod-template-generation";
const NODE_NAME: &str = "metadata.name";
/// A pod that failed is not replaced sooner than so long after it was made.
const BREATH: SignedDuration = SignedDuration::from_secs(1);
/// So many pods at most are created or deleted by one plan.
const MOST_PODS: usize = 250;

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Pods to adopt or to let go.
    pub claims: Vec<Claim>,
    /// The history has to be put right before anything else is decided.
    pub revision: Option<revisions::Step>,
    /// Pods to create.
    pub create: Vec<Pod>,
    /// Pods to delete.
    pub delete: Vec<PodRef>,
    /// What is to be told: kind, reason and message of events.
    pub events: Vec<(&'static str, &'static str, String)>,
    /// Revisions that nobody needs any more.
    pub forget: Vec<String>,
    /// The status, if it is another.
    pub status: Option<Box<DaemonSetStatus>>,
    /// When to look again, although nothing changes.
    pub look_again: Option<Timestamp>,
}

/// What a set wants of its pods.
pub fn wanted(set: &DaemonSet) -> Wanted<'_> {
    let spec = set.spec.as_ref();
    Wanted {
        api_version: "apps/v1",
        kind: "DaemonSet",
        owner: &set.metadata,
        replicas: 0,
        min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
        selector: spec.map(|spec| spec.selector.clone()),
        template: spec.map(|spec| &spec.template),
    }
}

/// Decides the next steps. `revisions` are those of the set; `pods` those that it controls, and those that nobody does.
pub fn decide(
    set: &DaemonSet,
    revisions: &[&ControllerRevision],
    pods: &[&Pod],
    nodes: &[&Node],
    now: Timestamp,
) -> Plan {
    let spec = set.spec.clone().unwrap_or_default();
    let wanted = wanted(set);
    let (claims, own) = claim(&wanted, pods);
    if set.metadata.deletion_timestamp.is_some() {
        return Plan { claims, ..Plan::default() };
    }
    let sorted = revisions::sorted(revisions);
    let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
    let make = |number| {
        let owner = owner_reference(&wanted);
        revisions::new(REVISION_LABEL, &set.metadata, owner, &spec.template, number, collisions)
    };
    let current = match revisions::find(&sorted, &spec.template, make) {
        Ok(current) => current,
        Err(step) => return Plan { claims, revision: Some(step), ..Plan::default() },
    };
    let hash = current.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL)).cloned();
    let mut on_nodes: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in &own {
        if let Some(node) = node_of(pod) {
            on_nodes.entry(node).or_default().push(pod);
        }
    }
    let mut rollout = Rollout {
        set,
        now,
        hash: hash.unwrap_or_default(),
        generation: set.metadata.annotations.as_ref().and_then(|all| all.get(GENERATION)).cloned(),
        template: template(&spec),
        nodes: nodes.iter().map(|node| (node_name(node), *node)).collect(),
        on_nodes,
        plan: Plan { claims, ..Plan::default() },
        spec,
    };
    rollout.keep();
    if rollout.plan.create.is_empty() && rollout.plan.delete.is_empty() {
        rollout.roll();
    }
    let live = |name: &str| {
        let is_of = |pod: &&Pod| {
            let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_LABEL));
            hash.is_some_and(|hash| name.ends_with(hash.as_str()))
        };
        Some(name) == current.metadata.name.as_deref() || own.iter().any(is_of)
    };
    let forget = revisions::surplus(&sorted, live, rollout.spec.revision_history_limit);
    rollout.finish(forget, collisions)
}

/// A rollout while its next steps are decided.
struct Rollout<'a> {
    set: &'a DaemonSet,
    spec: DaemonSetSpec,
    now: Timestamp,
    hash: String,
    generation: Option<String>,
    template: PodSpec,
    nodes: BTreeMap<&'a str, &'a Node>,
    on_nodes: BTreeMap<&'a str, Vec<&'a Pod>>,
    plan: Plan,
}

impl<'a> Rollout<'a> {
    /// Sees to it that there is a pod where there should be one, and none where there should not.
    fn keep(&mut self) {
        for (name, node) in self.nodes.clone() {
            let pods = self.on_nodes.get(name).cloned().unwrap_or_default();
            let (runs, goes_on) = fits(&self.template, node);
            if pods.is_empty() {
                if runs {
                    self.create(name);
                }
            } else if goes_on {
                self.keep_on(name, &pods, runs);
            } else {
                pods.into_iter().filter(|pod| !is_leaving(pod)).for_each(|pod| self.delete(pod));
            }
        }
        // Pods on nodes that are gone go with them.
        let gone: Vec<&Pod> = self
            .on_nodes
            .iter()
            .filter(|(node, _)| !self.nodes.contains_key(*node))
            .flat_map(|(_, pods)| pods.iter().copied().filter(|pod| !is_leaving(pod) && is_bound(pod)))
            .collect();
        for pod in gone {
            self.delete(pod);
        }
    }

    fn keep_on(&mut self, node: &'a str, pods: &[&'a Pod], runs: bool) {
        let mut running = Vec::new();
        for pod in pods.iter().copied().filter(|pod| !is_leaving(pod)) {
            let meta = &pod.metadata;
            let name = format!("{}/{}", text(meta.namespace.as_ref()), text(meta.name.as_ref()));
            match phase(pod) {
                "Failed" => {
                    let created = meta.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
                    let due = created.checked_add(BREATH).unwrap_or(Timestamp::MAX);
                    if due > self.now {
                        self.look_at(due);
                        continue;
                    }
                    let message =
                        format!("Found failed daemon pod {name} on node {node}, will try to kill it");
                    self.plan.events.push(("Warning", "FailedDaemonPod", message));
                    self.delete(pod);
                }
                "Succeeded" => {
                    let message =
                        format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
                    self.plan.events.push(("Normal", "SucceededDaemonPod", message));
                    self.delete(pod);
                }
                _ => running.push(pod),
            }
        }
        running.sort_by_key(|pod| seniority(pod));
        if self.fences().0 == 0 {
            running.into_iter().skip(1).for_each(|pod| self.delete(pod));
            return;
        }
        if running.is_empty() {
            if runs {
                self.create(node);
            }
            return;
        }
        // While one surges there may be two: the oldest of the new and the oldest of the old.
        let (new, old): (Vec<&Pod>, Vec<&Pod>) = running.into_iter().partition(|pod| self.is_updated(pod));
        new.iter().skip(1).chain(old.iter().skip(1)).for_each(|pod| self.delete(pod));
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (ready_since(old).is_none() || self.is_available(new))
        {
            self.delete(old);
        }
    }

    /// Lets pods of older templates go, as far as the strategy allows.
    fn roll(&mut self) {
        let strategy = self.spec.update_strategy.clone().unwrap_or_default();
        if strategy.type_.as_deref() == Some("OnDelete") {
            return;
        }
        let (surge, unavailable) = self.fences();
        let (mut missing, mut surging) = (0, 0);
        let (mut replace, mut candidates) = (Vec::new(), Vec::new());
        for (node, pods) in self.on_nodes.clone() {
            let present = pods.into_iter().filter(|pod| !is_leaving(pod));
            let (new, old): (Vec<&Pod>, Vec<&Pod>) = present.partition(|pod| self.is_updated(pod));
            match (new.as_slice(), old.as_slice()) {
                ([], [old]) if self.is_available(old) => candidates.push((node, *old)),
                ([], [old]) => {
                    replace.push((node, *old));
                    missing += 1;
                }
                ([new], []) => missing += usize::from(!self.is_available(new)),
                ([_], [_]) => {
                    surging += 1;
                    missing += 1;
                }
                _ => missing += 1,
            }
        }
        let more =
            if surge > 0 { surge.saturating_sub(surging) } else { unavailable.saturating_sub(missing) };
        for (node, old) in replace.into_iter().chain(candidates.into_iter().take(more)) {
            if surge > 0 {
                let runs = self.nodes.get(node).is_some_and(|node| fits(&self.template, node).0);
                if runs { self.create(node) } else { self.delete(old) }
            } else {
                self.delete(old);
            }
        }
    }

    /// How many pods more on nodes, and how many nodes without one, there may be while rolling.
    fn fences(&self) -> (usize, usize) {
        let strategy = self.spec.update_strategy.clone().unwrap_or_default();
        let rolling = strategy.rolling_update.unwrap_or_default();
        let desired = self.nodes.values().filter(|node| fits(&self.template, node).0).count();
        let desired = i32::try_from(desired).unwrap_or(i32::MAX);
        let surge = part(rolling.max_surge.as_ref(), desired, true);
        let unavailable = match rolling.max_unavailable.as_ref() {
            None => 1,
            Some(some) => part(Some(some), desired, true),
        };
        let (surge, unavailable) = if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) };
        (usize::try_from(surge).unwrap_or(0), usize::try_from(unavailable).unwrap_or(0))
    }

    fn create(&mut self, node: &str) {
        let mut pod = new_pod(&wanted(self.set));
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(REVISION_LABEL.to_owned(), self.hash.clone());
        if let Some(generation) = &self.generation {
            labels.insert(GENERATION_LABEL.to_owned(), generation.clone());
        }
        let mut spec = self.template.clone();
        spec.affinity = Some(bound_to(node, spec.affinity));
        pod.spec = Some(spec);
        self.plan.create.push(pod);
    }

    fn delete(&mut self, pod: &Pod) {
        self.plan.delete.push(PodRef::of(pod));
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        let has = |label: &str, value: &str| {
            labels.and_then(|labels| labels.get(label)).is_some_and(|own| own == value)
        };
        has(REVISION_LABEL, &self.hash)
            || self.generation.as_ref().is_some_and(|generation| has(GENERATION_LABEL, generation))
    }

    fn available_at(&self, pod: &Pod) -> Option<Timestamp> {
        let wait = SignedDuration::from_secs(self.spec.min_ready_seconds.unwrap_or(0).into());
        let since = ready_since(pod)?;
        if wait.is_zero() { Some(Timestamp::MIN) } else { since.checked_add(wait).ok() }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        self.available_at(pod).is_some_and(|at| at <= self.now)
    }

    fn look_at(&mut self, at: Timestamp) {
        self.plan.look_again = Some(self.plan.look_again.map_or(at, |known| known.min(at)));
    }

    fn finish(mut self, forget: Vec<String>, collisions: i32) -> Plan {
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            collision_count: Some(collisions).filter(|count| *count > 0),
            conditions: self.set.status.as_ref().and_then(|status| status.conditions.clone()),
            ..DaemonSetStatus::default()
        };
        let (mut available, mut updated) = (0, 0);
        for (name, node) in &self.nodes {
            let mut pods = self.on_nodes.get(name).cloned().unwrap_or_default();
            pods.sort_by_key(|pod| seniority(pod));
            let first = pods.first();
            if !fits(&self.template, node).0 {
                status.number_misscheduled += i32::from(first.is_some());
                continue;
            }
            status.desired_number_scheduled += 1;
            let Some(pod) = first else { continue };
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(ready_since(pod).is_some());
            available += i32::from(self.is_available(pod));
            updated += i32::from(self.is_updated(pod));
        }
        let some = |number: i32| Some(number).filter(|number| *number != 0);
        status.number_available = some(available);
        status.updated_number_scheduled = some(updated);
        status.number_unavailable = some(status.desired_number_scheduled - available);
        let later = self.on_nodes.values().flatten().filter_map(|pod| self.available_at(pod));
        let later: Vec<Timestamp> = later.filter(|at| *at > self.now).collect();
        for at in later {
            self.look_at(at);
        }
        self.plan.create.truncate(MOST_PODS);
        self.plan.delete.truncate(MOST_PODS);
        self.plan.forget = forget;
        self.plan.status = Some(Box::new(status)).filter(|it| self.set.status.as_ref() != Some(&**it));
        self.plan
    }
}

/// Whether a pod should run on a node, and whether one that is there may stay.
fn fits(spec: &PodSpec, node: &Node) -> (bool, bool) {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let is_named = spec.node_name.as_deref().is_none_or(|name| name.is_empty() || name == node_name(node));
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|it| it.node_affinity.as_ref())
        .and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let named = BTreeMap::from([(NODE_NAME.to_owned(), node_name(node).to_owned())]);
    let meant = |term: &NodeSelectorTerm| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|it| matches(it, &labels))
            && fields.iter().all(|it| matches(it, &named))
    };
    if !is_named || !selected || !required.is_none_or(|it| it.node_selector_terms.iter().any(meant)) {
        return (false, false);
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let hostile: Vec<&str> = taints
        .filter(|taint| !tolerations.iter().any(|it| tolerates(it, taint)))
        .map(|taint| taint.effect.as_str())
        .collect();
    let runs = !hostile.iter().any(|effect| matches!(*effect, "NoSchedule" | "NoExecute"));
    (runs, !hostile.contains(&"NoExecute"))
}

/// The spec of all pods of a set: they bear what makes other pods leave a node.
fn template(spec: &DaemonSetSpec) -> PodSpec {
    let mut pod = spec.template.spec.clone().unwrap_or_default();
    let mut borne = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if pod.host_network == Some(true) {
        borne.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    let tolerations = pod.tolerations.get_or_insert_default();
    for (key, effect) in borne {
        let toleration = Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    pod
}

/// An affinity to one node alone, whichever the template asks for: that was looked at already.
fn bound_to(node: &str, affinity: Option<Affinity>) -> Affinity {
    let mut affinity = affinity.unwrap_or_default();
    let required = NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![NodeSelectorRequirement {
                key: NODE_NAME.to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            }]),
            ..NodeSelectorTerm::default()
        }],
    };
    let nodes: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    nodes.required_during_scheduling_ignored_during_execution = Some(required);
    affinity
}

/// The node that a pod is on, or is meant for.
fn node_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return Some(node);
    }
    let nodes = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = nodes.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let named = fields.find(|field| field.key == NODE_NAME && field.operator == "In")?;
    named.values.as_ref()?.first().map(String::as_str)
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty())
}

/// Pods that are on a node before those that are not, then the older ones.
fn seniority(pod: &Pod) -> (bool, Option<Timestamp>, Option<String>) {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (!is_bound(pod), created, pod.metadata.name.clone())
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn node_name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}
