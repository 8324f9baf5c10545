//! Whether a ClusterQueue or a LocalQueue admits, and why not (CQ-4, LQ-2).

use std::collections::BTreeSet;
use std::sync::Arc;

use types::kueue::{AdmissionCheck, ClusterQueue, LocalQueue, ResourceFlavor, StopPolicy};

use crate::workload::condition;

/// The controller of checks that send Workloads to other clusters.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// The controller of checks that ask for more nodes.
pub const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";

/// Whether a queue admits, as its condition `Active` says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// Whether it does.
    pub active: bool,
    /// Why, or why not.
    pub reason: &'static str,
    /// The same in words.
    pub message: String,
}

/// The objects that a ClusterQueue refers to.
#[derive(Clone, Copy)]
pub struct Referred<'a> {
    /// Flavors.
    pub flavor: &'a dyn Fn(&str) -> Option<Arc<ResourceFlavor>>,
    /// Checks.
    pub check: &'a dyn Fn(&str) -> Option<Arc<AdmissionCheck>>,
    /// Whether a Topology exists.
    pub topology: &'a dyn Fn(&str) -> bool,
}

/// Whether a ClusterQueue admits. Of several reasons against it the first counts, and the message has them all.
pub fn cluster_queue(queue: &ClusterQueue, referred: Referred<'_>) -> Readiness {
    if queue.metadata.deletion_timestamp.is_some() {
        let message = "Can't admit new workloads; clusterQueue is terminating".to_owned();
        return Readiness { active: false, reason: "Terminating", message };
    }
    let mut against: Vec<(&'static str, String)> = Vec::new();
    if queue.spec.stop_policy.unwrap_or_default() != StopPolicy::None {
        against.push(("Stopped", "is stopped".to_owned()));
    }
    let names = flavors(queue);
    let missing: Vec<&str> = names.iter().copied().filter(|name| (referred.flavor)(name).is_none()).collect();
    if !missing.is_empty() {
        let message = format!("references missing ResourceFlavor(s): {}", missing.join(","));
        against.push(("FlavorNotFound", message));
    }
    let multikueue = checks(queue, &names, referred, &mut against);
    if !multikueue {
        for name in &names {
            let flavor = (referred.flavor)(name);
            let topology = flavor.as_ref().and_then(|flavor| flavor.spec.topology_name.as_deref());
            if let Some(topology) = topology.filter(|topology| !(referred.topology)(topology)) {
                let message = format!("there is no Topology {topology:?} for TAS flavor {name:?}");
                against.push(("TopologyNotFound", message));
            }
        }
    }
    let Some((reason, _)) = against.first() else {
        return Readiness { active: true, reason: "Ready", message: "Can admit new workloads".to_owned() };
    };
    let all: Vec<&str> = against.iter().map(|(_, message)| message.as_str()).collect();
    let message = format!("Can't admit new workloads: {}.", all.join(", "));
    Readiness { active: false, reason, message }
}

/// What the checks of a ClusterQueue say against it. True if one of them sends Workloads to other clusters.
fn checks(
    queue: &ClusterQueue,
    flavors: &[&str],
    referred: Referred<'_>,
    against: &mut Vec<(&'static str, String)>,
) -> bool {
    let all: BTreeSet<&str> = flavors.iter().copied().collect();
    let mut missing = BTreeSet::new();
    let mut inactive = BTreeSet::new();
    let mut multikueue = BTreeSet::new();
    let mut per_flavor = BTreeSet::new();
    let mut provisioning = BTreeSet::new();
    for rule in queue.spec.admission_checks_strategy.iter().flat_map(|it| &it.admission_checks) {
        let name = rule.name.as_str();
        let Some(check) = (referred.check)(name) else {
            missing.insert(name);
            continue;
        };
        if !is_active(&check) {
            inactive.insert(name);
        }
        if check.spec.controller_name == PROVISIONING {
            provisioning.insert(name);
        }
        if check.spec.controller_name == MULTIKUEUE {
            multikueue.insert(name);
            let on: BTreeSet<&str> = rule.on_flavors.iter().map(String::as_str).collect();
            if !on.is_empty() && on != all {
                per_flavor.insert(name);
            }
        }
    }
    let join = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(",");
    if !missing.is_empty() {
        let message = format!("references missing AdmissionCheck(s): {}", join(&missing));
        against.push(("AdmissionCheckNotFound", message));
    }
    if !inactive.is_empty() {
        let message = format!("references inactive AdmissionCheck(s): {}", join(&inactive));
        against.push(("AdmissionCheckInactive", message));
    }
    if multikueue.len() > 1 {
        let message = format!(
            "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}",
            join(&multikueue)
        );
        against.push(("MultipleMultiKueueAdmissionChecks", message));
    }
    if !per_flavor.is_empty() {
        let message =
            format!("Cannot specify MultiKueue AdmissionCheck per flavor, found: {}", join(&per_flavor));
        against.push(("MultiKueueAdmissionCheckAppliedPerFlavor", message));
    }
    if !multikueue.is_empty() && !provisioning.is_empty() {
        let message = format!(
            "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {}, {}",
            join(&multikueue),
            join(&provisioning)
        );
        against.push(("MultiKueueWithProvisioningRequest", message));
    }
    !multikueue.is_empty()
}

/// Whether the controller of a check says that it can be passed.
pub fn is_active(check: &AdmissionCheck) -> bool {
    check.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, "Active"))
}

/// The flavors of a ClusterQueue, in its order.
pub fn flavors(queue: &ClusterQueue) -> Vec<&str> {
    let groups = queue.spec.resource_groups.iter();
    groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

/// The checks of a ClusterQueue.
pub fn check_names(queue: &ClusterQueue) -> impl Iterator<Item = &str> {
    let strategy = queue.spec.admission_checks_strategy.iter();
    strategy.flat_map(|it| &it.admission_checks).map(|rule| rule.name.as_str())
}

/// Whether a ClusterQueue sends its Workloads to other clusters.
pub fn sends_elsewhere(queue: &ClusterQueue, referred: Referred<'_>) -> bool {
    check_names(queue)
        .any(|name| (referred.check)(name).is_some_and(|check| check.spec.controller_name == MULTIKUEUE))
}

/// Whether a LocalQueue takes Workloads. `leads_to` is its ClusterQueue, and whether that admits.
pub fn local_queue(queue: &LocalQueue, leads_to: Option<bool>) -> Readiness {
    let no = |reason, message: &str| Readiness { active: false, reason, message: message.to_owned() };
    if queue.spec.stop_policy.unwrap_or_default() != StopPolicy::None {
        return no("Stopped", "LocalQueue is stopped");
    }
    let inactive = "Can't submit new workloads to clusterQueue";
    match leads_to {
        None => no("ClusterQueueDoesNotExist", inactive),
        Some(false) => no("ClusterQueueIsInactive", inactive),
        Some(true) => {
            let message = "Can submit new workloads to localQueue".to_owned();
            Readiness { active: true, reason: "Ready", message }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: (&str, &str)) {
        let queue: ClusterQueue =
            serde_json::from_value(json!({ "metadata": { "name": "q" }, "spec": spec })).expect("a queue");
        let flavor = |name: &str| {
            let topology = name.strip_prefix("tas-").map(|name| json!(name));
            let flavor = json!({ "metadata": { "name": name }, "spec": { "topologyName": topology } });
            (!name.starts_with("no-")).then(|| Arc::new(serde_json::from_value(flavor).expect("a flavor")))
        };
        let admission_check = |name: &str| {
            let controller = match &name[..2] {
                "mk" => MULTIKUEUE,
                "pr" => PROVISIONING,
                "no" => return None,
                _ => "example.com/other",
            };
            let active = if name.contains("off") { "False" } else { "True" };
            let check = json!({
                "metadata": { "name": name },
                "spec": { "controllerName": controller },
                "status": { "conditions": [{
                    "type": "Active", "status": active, "reason": "X", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }] },
            });
            Some(Arc::new(serde_json::from_value(check).expect("a check")))
        };
        let referred =
            Referred { flavor: &flavor, check: &admission_check, topology: &|name| name == "known" };
        let ready = cluster_queue(&queue, referred);
        assert_eq!((ready.reason, ready.message.as_str()), expected);
        assert_eq!(ready.active, expected.0 == "Ready");
    }

    fn spec(flavors: &[&str], checks: Value, stop: &str) -> Value {
        let flavors: Vec<Value> =
            flavors.iter().map(|name| json!({ "name": name, "resources": [] })).collect();
        json!({
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": flavors }],
            "admissionChecksStrategy": { "admissionChecks": checks },
            "stopPolicy": stop,
        })
    }

    /// MK-CQ-01, MK-CQ-02, MK-CQ-03.
    #[test]
    fn cq_4_all_reasons_in_their_order() {
        check(spec(&["a", "b"], json!([{ "name": "xx" }]), "None"), ("Ready", "Can admit new workloads"));
        check(
            spec(&["a", "no-b", "no-a"], json!([{ "name": "no-x" }, { "name": "x-off" }]), "Hold"),
            (
                "Stopped",
                "Can't admit new workloads: is stopped, references missing ResourceFlavor(s): no-b,no-a, \
                 references missing AdmissionCheck(s): no-x, references inactive AdmissionCheck(s): x-off.",
            ),
        );
        check(
            spec(&["a", "b"], json!([{ "name": "mk2" }, { "name": "mk1", "onFlavors": ["a"] }]), "None"),
            (
                "MultipleMultiKueueAdmissionChecks",
                "Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks on the same \
                 ClusterQueue, found: mk1,mk2, Cannot specify MultiKueue AdmissionCheck per flavor, found: mk1.",
            ),
        );
        check(
            spec(&["a"], json!([{ "name": "mk" }, { "name": "pr" }]), "None"),
            (
                "MultiKueueWithProvisioningRequest",
                "Can't admit new workloads: Cannot use both MultiKueue and ProvisioningRequest \
                 AdmissionChecks together, found: mk, pr.",
            ),
        );
    }

    /// MK-CQ-04.
    #[test]
    fn cq_5_topologies_matter_only_where_pods_run() {
        check(spec(&["tas-known"], json!([]), "None"), ("Ready", "Can admit new workloads"));
        check(
            spec(&["tas-other"], json!([]), "None"),
            (
                "TopologyNotFound",
                "Can't admit new workloads: there is no Topology \"other\" for TAS flavor \"tas-other\".",
            ),
        );
        check(spec(&["tas-other"], json!([{ "name": "mk" }]), "None"), ("Ready", "Can admit new workloads"));
    }

    #[test]
    fn lq_2_reasons() {
        let queue = |stop: &str| -> LocalQueue {
            serde_json::from_value(json!({ "spec": { "clusterQueue": "q", "stopPolicy": stop } }))
                .expect("a LocalQueue")
        };
        assert_eq!(local_queue(&queue("Hold"), Some(true)).reason, "Stopped");
        assert_eq!(local_queue(&queue("None"), None).reason, "ClusterQueueDoesNotExist");
        assert_eq!(local_queue(&queue("None"), Some(false)).reason, "ClusterQueueIsInactive");
        assert!(local_queue(&queue("None"), Some(true)).active);
    }
}
