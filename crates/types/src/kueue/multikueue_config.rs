//! MultiKueueConfig: the worker clusters behind a check.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::object::{ApiVersion, Kind, resource};

/// The worker clusters that Workloads with a certain check are offered to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfig {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<MultiKueueConfig>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Which clusters.
    #[serde(default)]
    pub spec: MultiKueueConfigSpec,
}

resource!(MultiKueueConfig, "multikueueconfigs", ClusterResourceScope);

/// Which worker clusters, and who keeps the manager's quota in step with theirs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters. Where Workloads are offered step by step, it is in this order.
    #[serde(default)]
    pub clusters: Vec<String>,
    /// Who sets the quota of the manager's ClusterQueues; `Manual` unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

/// Who sets the quota of the manager's ClusterQueues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum QuotaManagement {
    /// People do.
    #[default]
    Manual,
    /// It follows from the quota of the workers' ClusterQueues.
    Automated,
}
