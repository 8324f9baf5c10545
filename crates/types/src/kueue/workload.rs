//! Workload: what a Job asks for, and what it was given.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PodTemplateSpec, Toleration},
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
};
use serde::{Deserialize, Serialize};

use super::{
    CheckState, is_default,
    object::{ApiVersion, Kind, resource},
};
use crate::{Quantity, Shared};

/// What a Job asks for, and what it was given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<Workload>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it asks for.
    #[serde(default)]
    pub spec: WorkloadSpec,
    /// What it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<WorkloadStatus>,
}

resource!(Workload, "workloads", NamespaceResourceScope);

/// What a Workload asks for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec {
    /// Its pods, by kind.
    #[serde(default)]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue that it waits in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_name: Option<String>,
    /// Where its priority comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Its priority; 0 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether it may run; true unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// How long it may run, over all its attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that keep it from pushing others out while they are closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGate>,
}

/// Pods that are alike.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Its name; `main` unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What each pod is like: the larger part of a Workload, and often that of many others, too.
    #[serde(default)]
    pub template: Shared<PodTemplateSpec>,
    /// How many there are; 1 unless said.
    #[serde(default = "one")]
    pub count: i32,
    /// How few would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i32>,
    /// Where they should be, relative to each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

fn one() -> i32 {
    1
}

impl PodSet {
    /// Its name.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("main")
    }
}

/// Where pods should be, relative to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// All in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// If possible all in one domain of this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Anywhere, but placed nevertheless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// The label that numbers the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// The label that numbers groups of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// How many groups there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Pod sets of the same group get the same flavors and the same domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// The level at which slices of the pod set are in one domain each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// How many pods such a slice has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_size: Option<i32>,
    /// The same for slices within slices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub podset_slice_required_topology_constraints: Vec<PodsetSliceRequiredTopologyConstraint>,
}

impl PodSetTopologyRequest {
    /// Whether it asks for a placement. Without, it only says how the pods are numbered.
    pub fn asks_for_placement(&self) -> bool {
        self.required.is_some()
            || self.preferred.is_some()
            || self.unconstrained.is_some()
            || self.pod_set_slice_required_topology.is_some()
            || self.pod_set_slice_size.is_some()
            || !self.podset_slice_required_topology_constraints.is_empty()
    }
}

/// That slices of pods are in one domain each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsetSliceRequiredTopologyConstraint {
    /// Of which level.
    #[serde(default, skip_serializing_if = "is_default")]
    pub topology: String,
    /// Of how many pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub size: i32,
}

/// The object that a priority comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PriorityClassRef {
    /// Its API group, `kueue.x-k8s.io` or `scheduling.k8s.io`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub group: String,
    /// Its kind, `WorkloadPriorityClass` or `PriorityClass`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
}

/// A gate that keeps a Workload from pushing others out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// Its name.
    pub name: String,
}

/// What a Workload was given, and how it went.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Where it stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What it holds, and where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Shared<Admission>>,
    /// When it may be tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods that need nothing any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// What its checks say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What it asks for after all adjustments, while it waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_requests: Vec<PodSetRequest>,
    /// How long it ran in earlier attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// How often it was evicted, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters that it is offered to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nominated_cluster_names: Vec<String>,
    /// The worker cluster that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Nodes of its placement that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// How its gates stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// What a Workload holds, and where.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The ClusterQueue.
    pub cluster_queue: String,
    /// What each pod set holds.
    #[serde(default)]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What a pod set holds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Which one.
    pub name: String,
    /// The flavor of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// How much of each resource, for all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// For how many pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Where they are placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Whether the placement is still to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}

/// Whether a placement is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DelayedTopologyRequestState {
    /// It is.
    Pending,
    /// It is done.
    Ready,
}

/// Where pods are placed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignment {
    /// The node labels that name a domain, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<String>,
    /// Domains and their numbers of pods, in compressed form.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// Some domains and their numbers of pods.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSlice {
    /// How many domains.
    #[serde(default, skip_serializing_if = "is_default")]
    pub domain_count: i32,
    /// What they are called, level by level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_per_level: Vec<TopologyAssignmentSliceLevelValues>,
    /// How many pods each of them has.
    #[serde(default)]
    pub pod_counts: TopologyAssignmentSlicePodCounts,
}

/// The label values of some domains at one level.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSliceLevelValues {
    /// The same for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// One for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub individual: Option<TopologyAssignmentSliceLevelIndividualValues>,
}

/// Label values that start and end alike.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSliceLevelIndividualValues {
    /// How all of them start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// How all of them end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// What is between.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
}

/// The numbers of pods of some domains.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSlicePodCounts {
    /// The same for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub universal: Option<i32>,
    /// One for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub individual: Vec<i32>,
}

/// When a Workload may be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// How often it was put off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Not before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods that need nothing any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// Of which pod set.
    pub name: String,
    /// How many.
    pub count: i32,
}

/// What a check says about a Workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// Which check.
    pub name: String,
    /// What it says.
    pub state: CheckState,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// In words.
    #[serde(default)]
    pub message: String,
    /// How long to wait before the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i32>,
    /// How often it said `Retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// What it changes about the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// What a check changes about the pods of a pod set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// Which pod set.
    pub name: String,
    /// More labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// More annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// More labels that their nodes must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// More taints that they tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// What a pod set asks for after all adjustments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// Which pod set.
    pub name: String,
    /// How much of each resource, for all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Quantity>,
}

/// How often a Workload was evicted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// By reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<WorkloadSchedulingStatsEviction>,
}

/// How often a Workload was evicted for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSchedulingStatsEviction {
    /// The reason.
    pub reason: String,
    /// What was behind it; may be empty.
    #[serde(default)]
    pub underlying_cause: String,
    /// How often.
    pub count: i32,
}

/// A node that failed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// Its name.
    pub name: String,
}

/// How a gate stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// Which one.
    pub name: String,
    /// Open or closed.
    pub position: PreemptionGatePosition,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// Whether a gate is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreemptionGatePosition {
    /// It is not.
    Closed,
    /// It is.
    Open,
}
