//! The check that asks a cluster autoscaler for nodes before a Workload starts: what it asks for, and what the answer
//! means for the check (PRC-2 to PRC-5).

pub mod name;
pub mod plan;
mod pods;
#[cfg(test)]
mod tests;

pub use crate::quota::readiness::PROVISIONING as CONTROLLER;
pub use plan::{Check, Plan, Seen, Step, decide};

use types::kueue::{AdmissionCheck, ProvisioningRequestConfigSpec, ProvisioningRequestRetryStrategy};

use crate::framework::Kind;
use crate::workload::change::BackOff;
use crate::workload::parameters::{self, Active};

/// The kind of the object with a check's settings, and its name in paths.
const CONFIG: (&str, &str) = ("ProvisioningRequestConfig", "provisioningrequestconfigs");
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

/// The name of the settings of a check, or what is wrong with it; `None` if somebody else answers for it.
pub fn config_name(check: &AdmissionCheck) -> Option<Result<&str, String>> {
    (check.spec.controller_name == CONTROLLER).then(|| parameters::name(check, CONFIG.0))
}

/// What the condition `Active` of a check says, whose settings are named so, and exist or do not.
pub fn active(name: Result<&str, String>, exists: impl FnOnce(&str) -> bool) -> Active {
    let bad = |message: String| Active { status: false, reason: "BadParametersRef", message };
    match name {
        Ok(name) if exists(name) => Active::yes(),
        Ok(name) => bad(parameters::not_found(CONFIG.1, name)),
        Err(why) => bad(why),
    }
}

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
