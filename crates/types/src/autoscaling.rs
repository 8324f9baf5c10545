//! ProvisioningRequest, by which a cluster autoscaler is asked for nodes (`autoscaling.x-k8s.io/v1`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};

/// Nodes that are asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequest {
    /// Its name and the like.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: ProvisioningRequestSpec,
    /// What came of it.
    pub status: ProvisioningRequestStatus,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestSpec {
    /// Room for these pods.
    pub pod_sets: Vec<ProvisioningRequestPodSet>,
    /// Who is asked.
    pub provisioning_class_name: String,
    /// What else is said.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// Pods that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestPodSet {
    /// The PodTemplate that says what they are.
    pub pod_template_ref: Reference,
    /// How many there are.
    pub count: i32,
}

/// An object in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reference {
    /// Its name.
    pub name: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestStatus {
    /// How far it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What those who were asked tell about the nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub provisioning_class_details: BTreeMap<String, String>,
}

impl ProvisioningRequest {
    /// The condition of this type, if it is true.
    pub fn is(&self, type_: &str) -> Option<&Condition> {
        self.condition(type_).filter(|condition| condition.status == "True")
    }

    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }
}
