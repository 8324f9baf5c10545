//! Nodes that a Workload was placed on and that are lost to it (TA-7).

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use types::kueue::Workload;

use crate::{
    framework::ungate,
    quota::topology::{HOSTNAME, encoding, read},
};

/// The hosts of a Workload's placement on which its pods cannot run any more: those that are gone, and those that are not
/// ready and on which none of its pods goes on. `ready` says whether a host is ready; `None` if it is not there.
pub fn lost(workload: &Workload, ready: impl Fn(&str) -> Option<bool>, pods: &[Arc<Pod>]) -> Vec<String> {
    if !ungate::is_placed(workload) {
        return Vec::new();
    }
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assigned = admission.into_iter().flat_map(|admission| &admission.pod_set_assignments);
    let placements = assigned.filter_map(|it| encoding::decode(it.topology_assignment.as_ref()?));
    let hosts: BTreeSet<String> =
        placements.flat_map(|it| it.hosts().map(str::to_owned).collect::<Vec<_>>()).collect();
    let goes_on = |host: &str| pods.iter().any(|pod| told(pod) == Some(host) && is_alive(pod));
    let is_lost = |host: &String| ready(host).is_none_or(|ready| !ready && !goes_on(host));
    hosts.into_iter().filter(is_lost).collect()
}

/// The host that a pod may be scheduled on alone.
fn told(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_selector.as_ref()?.get(HOSTNAME).map(String::as_str)
}

fn is_alive(pod: &Pod) -> bool {
    !read::has_ended(pod) && pod.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ta_7_which_hosts_are_lost() {
        let roots = json!({ "prefix": "x", "roots": ["1", "2", "3"] });
        let slice = json!({
            "domainCount": 3, "valuesPerLevel": [{ "individual": roots }], "podCounts": { "universal": 1 },
        });
        let at = "2026-01-01T00:00:00Z";
        let mut placed = json!({
            "metadata": { "name": "w", "namespace": "ns" }, "spec": { "podSets": [] },
            "status": {
                "conditions": [{
                    "type": "Admitted", "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": at,
                }],
                "admission": { "clusterQueue": "q", "podSetAssignments": [{
                    "name": "main", "topologyAssignment": { "levels": [HOSTNAME], "slices": [slice] },
                }] },
            },
        });
        let pod = |host: &str, deleted: bool, phase: &str| -> Arc<Pod> {
            let pod = json!({
                "metadata": { "name": "p", "deletionTimestamp": deleted.then_some(at) },
                "spec": { "containers": [], "nodeSelector": { HOSTNAME: host } }, "status": { "phase": phase },
            });
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        let check = |workload: &Value, pods: &[Arc<Pod>], want: &[&str]| {
            let workload: Workload = serde_json::from_value(workload.clone()).expect("a workload");
            let ready = |host: &str| match host {
                "x1" => Some(true),
                "x2" => Some(false),
                _ => None,
            };
            assert_eq!(lost(&workload, ready, pods), want);
        };
        check(&placed, &[], &["x2", "x3"]);
        check(&placed, &[pod("x2", false, "Running"), pod("x3", false, "Running")], &["x3"]);
        check(&placed, &[pod("x2", true, "Running"), pod("x2", false, "Failed")], &["x2", "x3"]);
        placed["status"]["conditions"][0]["status"] = json!("False");
        check(&placed, &[], &[]);
    }
}
