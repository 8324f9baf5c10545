//! Topology: how nodes are arranged.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{
    is_default,
    object::{ApiVersion, Kind, resource},
};

/// How the nodes of a flavor are arranged, from the widest domain to the narrowest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<Topology>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The domains.
    #[serde(default)]
    pub spec: TopologySpec,
}

resource!(Topology, "topologies", ClusterResourceScope);

/// The domains.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// From the widest to the narrowest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<TopologyLevel>,
}

/// One kind of domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The label by which nodes say in which domain of this kind they are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node_label: String,
}
