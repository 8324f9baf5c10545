//! Cohort: queues that use each other's idle quota.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::{
    FairSharing, FairSharingStatus, ResourceGroup,
    object::{ApiVersion, Kind, resource},
};

/// A group of ClusterQueues and Cohorts. One exists by being named, too.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cohort {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<Cohort>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it has, and whose part it is.
    #[serde(default)]
    pub spec: CohortSpec,
    /// What was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<CohortStatus>,
}

resource!(Cohort, "cohorts", ClusterResourceScope);

/// What a Cohort has, and whose part it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    /// The Cohort that it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    /// Quota for the whole group, beyond what its members bring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_groups: Vec<ResourceGroup>,
    /// Its weight among its siblings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What was observed of a Cohort.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// Its share of what it borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
