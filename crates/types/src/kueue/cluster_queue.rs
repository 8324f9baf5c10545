//! ClusterQueue: quota, and the rules by which Workloads get it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{
    is_default,
    object::{ApiVersion, Kind, resource},
};
use crate::Quantity;

/// A queue of Workloads with its own quota.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueue {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<ClusterQueue>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it has, and by which rules it gives it.
    #[serde(default)]
    pub spec: ClusterQueueSpec,
    /// What was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ClusterQueueStatus>,
}

resource!(ClusterQueue, "clusterqueues", ClusterResourceScope);

/// What a ClusterQueue has, and by which rules it gives it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueSpec {
    /// What it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_groups: Vec<ResourceGroup>,
    /// The Cohort that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort_name: Option<String>,
    /// Who is tried when the first in the queue does not get in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queueing_strategy: Option<QueueingStrategy>,
    /// Namespaces that it serves; `None` is none, and an empty selector all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// When to stop looking for a better flavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Who may be pushed out for its Workloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Checks that its Workloads have to pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// Its weight among its siblings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// How its LocalQueues share what it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// How a Workload may try several flavors at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// Resources that come from the same flavor, and the flavors they may come from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGroup {
    /// The resources.
    #[serde(default)]
    pub covered_resources: Vec<String>,
    /// The flavors, the first one tried first.
    #[serde(default)]
    pub flavors: Vec<FlavorQuotas>,
}

/// The quotas in one flavor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// The flavor.
    pub name: String,
    /// How much of each covered resource.
    #[serde(default)]
    pub resources: Vec<ResourceQuota>,
}

/// The quota for one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// The resource.
    pub name: String,
    /// What is its own.
    pub nominal_quota: Quantity,
    /// How much more may be used of what others leave; `None` is all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<Quantity>,
    /// How much of its own others may use; `None` is all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<Quantity>,
}

/// Who is tried when the first in a queue does not get in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QueueingStrategy {
    /// Nobody.
    #[serde(rename = "StrictFIFO")]
    StrictFifo,
    /// The next one.
    #[default]
    #[serde(rename = "BestEffortFIFO")]
    BestEffortFifo,
}

/// Whether a queue is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum StopPolicy {
    /// It is not.
    #[default]
    None,
    /// It is, and what runs goes on.
    Hold,
    /// It is, and what runs is evicted.
    HoldAndDrain,
}

/// When the search for a flavor ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorFungibility {
    /// At one that fits by borrowing; `MayStopSearch` unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_can_borrow: Option<FlavorFungibilityPolicy>,
    /// At one that fits by preemption; `TryNextFlavor` unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_can_preempt: Option<FlavorFungibilityPolicy>,
    /// Which is better when all were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<FlavorFungibilityPreference>,
}

/// What to do at a flavor that does not simply fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlavorFungibilityPolicy {
    /// Take it.
    MayStopSearch,
    /// Look whether a later one fits better.
    TryNextFlavor,
}

/// Which of two flavors is better when neither simply fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlavorFungibilityPreference {
    /// Rather borrow than preempt.
    BorrowingOverPreemption,
    /// Rather preempt than borrow.
    PreemptionOverBorrowing,
}

/// Who may be pushed out for a ClusterQueue's Workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePreemption {
    /// Workloads of queues in the cohort that use more than their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_within_cohort: Option<PreemptionPolicy>,
    /// Whether that goes even if the queue borrows itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// Workloads of the same queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_cluster_queue: Option<PreemptionPolicy>,
}

/// Which Workloads may be pushed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PreemptionPolicy {
    /// None.
    #[default]
    Never,
    /// Any, of other queues only.
    Any,
    /// Those of lower priority.
    LowerPriority,
    /// Those of lower priority and newer ones of the same, of the own queue only.
    LowerOrNewerEqualPriority,
}

/// Whether a queue may push others out and borrow nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// Whether.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<BorrowWithinCohortPolicy>,
    /// Only those of at most this priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Whether a queue may push others out and borrow nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum BorrowWithinCohortPolicy {
    /// It may not.
    #[default]
    Never,
    /// It may, those of lower priority.
    LowerPriority,
}

/// Checks that a queue's Workloads have to pass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// A check, and who has to pass it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// The AdmissionCheck.
    #[serde(default)]
    pub name: String,
    /// Only Workloads in these flavors; empty is all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_flavors: Vec<String>,
}

/// A weight in fair sharing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// The weight; 1 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Quantity>,
}

/// A share in fair sharing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// In thousandths of what could be borrowed, divided by the weight.
    #[serde(default)]
    pub weighted_share: i64,
}

/// How LocalQueues share what their ClusterQueue has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// How.
    pub admission_mode: AdmissionMode,
}

/// How LocalQueues share what their ClusterQueue has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmissionMode {
    /// Who used least comes first.
    UsageBasedAdmissionFairSharing,
    /// They do not.
    NoAdmissionFairSharing,
}

/// How a Workload may try several flavors at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionPolicy {
    /// Whether it may move once it is in.
    pub migration: ConcurrentAdmissionMigration,
}

/// Whether a Workload may move to a better flavor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionMigration {
    /// Whether.
    pub mode: ConcurrentAdmissionMigrationMode,
    /// Where to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Whether a Workload may move to a better flavor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConcurrentAdmissionMigrationMode {
    /// It may.
    TryPreferredFlavors,
    /// It stays where it got in first.
    RetainFirstAdmission,
}

/// Where a Workload may move to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionConstraints {
    /// The least preferred flavor that is worth it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_acceptable_flavor_name: Option<String>,
}

/// What was observed of a ClusterQueue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// `Active`: whether it admits Workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What Workloads that hold quota hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// What Workloads that are admitted hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_usage: Vec<FlavorUsage>,
    /// How many Workloads wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// How many hold quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// How many of those passed all checks, too.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// Its share of what it borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}

/// What is held in one flavor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// The flavor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
    /// How much of each resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceUsage>,
}

/// What is held of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// The resource.
    pub name: String,
    /// How much.
    #[serde(default = "Quantity::zero")]
    pub total: Quantity,
    /// How much of that is borrowed.
    #[serde(default = "Quantity::zero")]
    pub borrowed: Quantity,
}
