//! ProvisioningRequestConfig: how nodes are asked for before a Workload starts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{
    is_default,
    object::{ApiVersion, Kind, resource},
};

/// How nodes are asked for by a check of the controller `kueue.x-k8s.io/provisioning-request`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfig {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<ProvisioningRequestConfig>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// How.
    #[serde(default)]
    pub spec: ProvisioningRequestConfigSpec,
}

resource!(ProvisioningRequestConfig, "provisioningrequestconfigs", ClusterResourceScope);

/// How nodes are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// Whom to ask.
    #[serde(default, skip_serializing_if = "is_default")]
    pub provisioning_class_name: String,
    /// What to tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Only for pods that ask for one of these resources; for all pods if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<String>,
    /// How often to ask again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    /// What pods are given once there are nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets are asked for as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// How often to ask again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestRetryStrategy {
    /// How often; 3 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit_count: Option<i32>,
    /// After how long the first time; 60 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_base_seconds: Option<i32>,
    /// After how long at most; 1800 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_max_seconds: Option<i32>,
}

/// What pods are given once there are nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Labels that their nodes must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_selector: Vec<ProvisioningRequestPodSetUpdatesNodeSelector>,
}

/// A label that nodes must have, with a value that whoever made them tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdatesNodeSelector {
    /// The label.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: String,
    /// The detail that is its value.
    #[serde(default, skip_serializing_if = "is_default")]
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are asked for as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodSetMergePolicy {
    /// Those that need the same of nodes.
    IdenticalWorkloadSchedulingRequirements,
    /// Those that are the same.
    IdenticalPodTemplates,
}
