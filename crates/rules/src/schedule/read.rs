//! What a decision needs to know of a pod, read once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    self as core, NodeSelectorTerm, PodAffinityTerm, PreferredSchedulingTerm, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};

use super::DEFAULT_SCHEDULER;
use super::resources::Resources;

/// A pod, waiting or placed.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its priority; zero if it has none.
    pub priority: i32,
    /// Whether it may make others end.
    pub preempts: bool,
    /// What it asks for.
    pub requests: Resources,
    /// The node that it is on.
    pub node: Option<String>,
    /// The node that others were made to leave for it.
    pub nominated_node: Option<String>,
    /// Whether it is held back.
    pub gated: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it is being deleted to make room.
    pub preempted: bool,
    /// Whether it has ended.
    pub ended: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it was started; it is taken to have started when it was created if nobody said.
    pub started: Option<Timestamp>,
    /// Who schedules it.
    pub scheduler: String,
    pub(super) for_score: (i64, i64),
    pub(super) node_selector: BTreeMap<String, String>,
    pub(super) required_nodes: Option<Vec<NodeSelectorTerm>>,
    pub(super) preferred_nodes: Vec<PreferredSchedulingTerm>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) near: Vec<PodAffinityTerm>,
    pub(super) apart: Vec<PodAffinityTerm>,
    pub(super) rather_near: Vec<WeightedPodAffinityTerm>,
    pub(super) rather_apart: Vec<WeightedPodAffinityTerm>,
    pub(super) spread: Vec<TopologySpreadConstraint>,
    pub(super) ports: BTreeSet<(String, i32, String)>,
}

impl Pod {
    /// Reads a pod.
    pub fn read(pod: &core::Pod) -> Pod {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (meta, empty) = (&pod.metadata, core::PodSpec::default());
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let status = pod.status.as_ref();
        let requests = Resources::of_pod(pod);
        let affinity = spec.affinity.clone().unwrap_or_default();
        let nodes = affinity.node_affinity.unwrap_or_default();
        let near = affinity.pod_affinity.unwrap_or_default();
        let apart = affinity.pod_anti_affinity.unwrap_or_default();
        let conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        let preempted = conditions.clone().any(|condition| {
            condition.type_ == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason.as_deref() == Some("PreemptionByScheduler")
        });
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        Pod {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: text(&meta.uid),
            labels: meta.labels.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            preempts: spec.preemption_policy.as_deref() != Some("Never"),
            node: filled(&spec.node_name),
            nominated_node: status.and_then(|status| filled(&status.nominated_node_name)),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            deleting: meta.deletion_timestamp.is_some(),
            preempted: preempted && meta.deletion_timestamp.is_some(),
            ended: status
                .is_some_and(|status| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))),
            created,
            started: status.and_then(|status| status.start_time.as_ref()).map(|time| time.0).or(created),
            scheduler: filled(&spec.scheduler_name).unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned()),
            for_score: Resources::for_score(spec, &requests),
            requests,
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required_nodes: nodes
                .required_during_scheduling_ignored_during_execution
                .map(|selector| selector.node_selector_terms),
            preferred_nodes: nodes.preferred_during_scheduling_ignored_during_execution.unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            near: near.required_during_scheduling_ignored_during_execution.unwrap_or_default(),
            apart: apart.required_during_scheduling_ignored_during_execution.unwrap_or_default(),
            rather_near: near.preferred_during_scheduling_ignored_during_execution.unwrap_or_default(),
            rather_apart: apart.preferred_during_scheduling_ignored_during_execution.unwrap_or_default(),
            spread: spec.topology_spread_constraints.clone().unwrap_or_default(),
            ports: ports(spec),
        }
    }

    /// What the scheduler looks at: what is decided about one pod holds for all others that give the same here. Labels
    /// and namespace are part of it when the pod's neighbours matter to it, or it to them.
    pub(super) fn shape(&self, with_labels: bool) -> String {
        let neighbours = (&self.near, &self.apart, &self.spread);
        let own = !(self.near.is_empty() && self.apart.is_empty() && self.spread.is_empty());
        let who = (own || with_labels).then_some((&self.namespace, &self.labels));
        let nodes = (&self.node_selector, &self.required_nodes, &self.tolerations, &self.ports);
        let nominated = self.nominated_node.as_ref().map(|node| (node, &self.uid));
        format!("{:?}", (&self.requests, nodes, neighbours, who, self.priority, self.preempts, nominated))
    }
}

/// The ports of the node that a pod takes: protocol, port, address.
pub(crate) fn ports(spec: &core::PodSpec) -> BTreeSet<(String, i32, String)> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let address = port.host_ip.clone().filter(|ip| !ip.is_empty() && ip != "0.0.0.0").unwrap_or_default();
        Some((protocol, number, address))
    });
    taken.collect()
}
