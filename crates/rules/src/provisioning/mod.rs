//! The check that asks a cluster autoscaler for nodes before a Workload starts: what it asks for, and what the answer
//! means for the check (PRC-2 to PRC-5).

pub mod name;
pub mod plan;
mod pods;
#[cfg(test)]
mod tests;

pub use plan::{Check, Plan, Seen, Step, decide};

use types::kueue::{ProvisioningRequestConfigSpec, ProvisioningRequestRetryStrategy};

use crate::framework::Kind;
use crate::workload::change::BackOff;

/// Who answers for checks of this sort; the status of Workloads is written under this name, too.
pub const CONTROLLER: &str = "kueue.x-k8s.io/provisioning-request";
/// The kind of the object with a check's settings, and its name in paths.
pub const CONFIG: (&str, &str) = ("ProvisioningRequestConfig", "provisioningrequestconfigs");
/// What is asked for.
pub const REQUEST: Kind = Kind {
    group: "autoscaling.x-k8s.io",
    version: "v1",
    kind: "ProvisioningRequest",
    plural: "provisioningrequests",
    framework: "",
};
/// What the pods are, for which room is asked for.
pub const POD_TEMPLATE: Kind =
    Kind { group: "", version: "v1", kind: "PodTemplate", plural: "podtemplates", framework: "" };

/// How often nodes are asked for again, and after how long (PRC-1).
fn back_off(config: &ProvisioningRequestConfigSpec) -> BackOff {
    let strategy = config.retry_strategy.clone().unwrap_or_default();
    let ProvisioningRequestRetryStrategy { backoff_limit_count, backoff_base_seconds, backoff_max_seconds } =
        strategy;
    BackOff {
        base_seconds: backoff_base_seconds.unwrap_or(60),
        max_seconds: backoff_max_seconds.unwrap_or(1800),
        limit: Some(backoff_limit_count.unwrap_or(3)),
    }
}
