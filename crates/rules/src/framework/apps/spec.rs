//! What a LeaderWorkerSet says, as far as anything is decided by it.

use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::util::intstr::IntOrString};
use serde::Deserialize;

/// Its spec.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    /// How many groups of pods there are.
    pub(crate) replicas: Option<i32>,
    /// What a group is made of.
    pub(crate) leader_worker_template: Template,
    rollout_strategy: Option<RolloutStrategy>,
}

/// What a group is made of.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Template {
    /// Its first pod, if that is unlike the others.
    #[serde(rename = "leaderTemplate")]
    pub(crate) leader: Option<PodTemplateSpec>,
    /// Its pods.
    #[serde(rename = "workerTemplate")]
    pub(crate) worker: PodTemplateSpec,
    /// How many they are, the leader included.
    pub(crate) size: Option<i32>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RolloutStrategy {
    rolling_update_configuration: Option<RollingUpdate>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RollingUpdate {
    max_surge: Option<IntOrString>,
}

/// Its status.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    /// How many groups there are.
    pub(crate) replicas: i32,
    /// How many of them are of the template as it is now.
    pub(crate) updated_replicas: i32,
}

impl Spec {
    /// How many pods a group has.
    pub(crate) fn size(&self) -> i32 {
        self.leader_worker_template.size.unwrap_or(1)
    }

    /// How many groups a rollout may add. Of a percentage Kueue makes nothing.
    pub(crate) fn max_surge(&self) -> i32 {
        let rollout = self.rollout_strategy.as_ref();
        let update = rollout.and_then(|rollout| rollout.rolling_update_configuration.as_ref());
        match update.and_then(|update| update.max_surge.as_ref()) {
            Some(IntOrString::Int(count)) => *count,
            Some(IntOrString::String(text)) => text.parse().unwrap_or(0),
            None => 0,
        }
    }
}
