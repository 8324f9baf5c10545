//! AdmissionCheck: somebody else who has a say before a Workload starts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::{
    is_default,
    object::{ApiVersion, Kind, resource},
};

/// A check that Workloads have to pass after they were given quota.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheck {
    /// Which API.
    #[serde(default)]
    pub api_version: ApiVersion,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind<AdmissionCheck>,
    /// Its name and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who checks.
    pub spec: AdmissionCheckSpec,
    /// Whether that one is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<AdmissionCheckStatus>,
}

resource!(AdmissionCheck, "admissionchecks", ClusterResourceScope);

/// Who checks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// The controller that checks, for example `kueue.x-k8s.io/multikueue`.
    pub controller_name: String,
    /// An object with its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

/// An object with a check's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParametersReference {
    /// Its API group.
    #[serde(default, skip_serializing_if = "is_default")]
    pub api_group: String,
    /// Its kind.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: String,
}

/// What a check's controller says of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStatus {
    /// `Active`: whether the check can be passed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What a check says about one Workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CheckState {
    /// It may not start now, but later maybe: its quota is taken back.
    Retry,
    /// It may never start.
    Rejected,
    /// It is not known yet.
    Pending,
    /// It may start.
    Ready,
}
