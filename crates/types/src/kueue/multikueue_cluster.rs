//! MultiKueueCluster: a worker cluster and the way to it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{
    is_default,
    object::{ApiVersion, Kind, resource},
};

/// A worker cluster.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueCluster {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<MultiKueueCluster>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The way to it.
    #[serde(default)]
    pub spec: MultiKueueClusterSpec,
    /// Whether it can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<MultiKueueClusterStatus>,
}

resource!(MultiKueueCluster, "multikueueclusters", ClusterResourceScope);

/// The way to a worker cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// Where to find how to connect.
    #[serde(default)]
    pub cluster_source: ClusterSource,
}

/// Where to find how to connect to a worker cluster: in exactly one of these.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSource {
    /// In a kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// In a ClusterProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Where a kubeconfig is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// The name of a Secret in the operator's own namespace, or a path on its file system.
    #[serde(default)]
    pub location: String,
    /// Which of the two; a Secret unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location_type: Option<LocationType>,
}

/// What a kubeconfig's location is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LocationType {
    /// The name of a Secret.
    #[default]
    Secret,
    /// A path.
    Path,
}

/// A ClusterProfile by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileReference {
    /// Its name, in the operator's own namespace.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
}

/// Whether a worker cluster can be reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// `Active`: whether it is connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
