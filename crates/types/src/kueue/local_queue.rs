//! LocalQueue: a namespace's door to a ClusterQueue.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde::{Deserialize, Serialize};

use super::{
    FairSharing, StopPolicy, is_default,
    object::{ApiVersion, Kind, resource},
};
use crate::Quantity;

/// The queue that Jobs of a namespace name; it leads to a ClusterQueue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueue {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<LocalQueue>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Where it leads.
    #[serde(default)]
    pub spec: LocalQueueSpec,
    /// What was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<LocalQueueStatus>,
}

resource!(LocalQueue, "localqueues", NamespaceResourceScope);

/// Where a LocalQueue leads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    /// The ClusterQueue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster_queue: String,
    /// Whether it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// Its weight among the LocalQueues of its ClusterQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What was observed of a LocalQueue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// `Active`: whether Workloads may be submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// How many Workloads wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// How many hold quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// How many of those passed all checks, too.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// What those that hold quota hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_reservation: Vec<LocalQueueFlavorUsage>,
    /// What those that are admitted hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flavors_usage: Vec<LocalQueueFlavorUsage>,
    /// Its share of what its ClusterQueue has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// What is held in one flavor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorUsage {
    /// The flavor.
    pub name: String,
    /// How much of each resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<LocalQueueResourceUsage>,
}

/// What is held of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueResourceUsage {
    /// The resource.
    pub name: String,
    /// How much.
    #[serde(default = "Quantity::zero")]
    pub total: Quantity,
}

/// A LocalQueue's share.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// The share, of which Kueue makes no use.
    #[serde(default)]
    pub weighted_share: i64,
    /// What its Workloads used in the past.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<LocalQueueAdmissionFairSharingStatus>,
}

/// What the Workloads of a LocalQueue used, the longer ago the less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueAdmissionFairSharingStatus {
    /// How much of each resource.
    #[serde(default)]
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// As of when.
    pub last_update: Time,
}
