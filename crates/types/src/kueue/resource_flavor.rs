//! ResourceFlavor: a kind of node.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Deserialize, Serialize};

use super::object::{ApiVersion, Kind, resource};

/// A kind of node that resources come from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFlavor {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<ResourceFlavor>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Which nodes.
    #[serde(default)]
    pub spec: ResourceFlavorSpec,
}

resource!(ResourceFlavor, "resourceflavors", ClusterResourceScope);

/// Which nodes are of a flavor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFlavorSpec {
    /// Labels that the nodes have; pods in this flavor select them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Taints that the nodes have; pods in this flavor must tolerate them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
    /// Tolerations that pods in this flavor are given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// The Topology by which pods in this flavor are placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_name: Option<String>,
}
