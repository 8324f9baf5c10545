//! WorkloadPriorityClass: a priority with a name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{
    is_default,
    object::{ApiVersion, Kind, resource},
};

/// A priority that Workloads refer to by name. It does not touch the priority of their pods.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPriorityClass {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<WorkloadPriorityClass>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The priority; more is more important.
    pub value: i32,
    /// What it is for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub description: String,
}

resource!(WorkloadPriorityClass, "workloadpriorityclasses", ClusterResourceScope);
