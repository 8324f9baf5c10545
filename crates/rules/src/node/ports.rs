//! Ports of a node that pods ask for. The scheduler keeps those apart that ask for the same; a pod that chooses its node itself
//! is refused.

use k8s_openapi::api::core::v1::Pod;

use super::ending::{Ending, is_final};
use crate::schedule::host_ports;

const REASON: &str = "NodePorts";
const MESSAGE: &str = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";

/// Why the node does not take a pod that it has not begun with: another one of the node has a port that it asks for.
pub fn refusal<P: AsRef<Pod>>(pod: &Pod, others: impl FnOnce() -> Vec<P>) -> Option<Ending> {
    let wanted = host_ports(pod.spec.as_ref()?);
    if wanted.is_empty() || began(pod) {
        return None;
    }
    let others = others();
    let there = others.iter().map(AsRef::as_ref).filter(|other| {
        other.metadata.uid != pod.metadata.uid
            && began(other)
            && !is_final(other)
            && other.spec.as_ref().and_then(|spec| spec.node_name.as_ref())
                == pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref())
    });
    let mut taken = there.filter_map(|other| other.spec.as_ref()).flat_map(host_ports);
    let same = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
    let clash = taken.any(|(protocol, port, address)| {
        wanted.iter().any(|(p, number, ip)| *p == protocol && *number == port && same(ip, &address))
    });
    clash.then(|| Ending::Rejected { reason: REASON.to_owned(), message: MESSAGE.to_owned() })
}

fn began(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.start_time.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn pod(uid: &str, node: &str, ip: &str, phase: Option<&str>) -> Arc<Pod> {
        let ports = json!([{ "containerPort": 80, "hostPort": 80, "hostIP": ip }]);
        let spec = json!({ "nodeName": node, "containers": [{ "name": "c", "ports": ports }] });
        let status = phase.map(|phase| json!({ "phase": phase, "startTime": "2026-01-01T00:00:00Z" }));
        let pod = json!({ "metadata": { "uid": uid }, "spec": spec, "status": status });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn who_comes_second_is_refused() {
        let new = pod("new", "n", "", None);
        let refused = |other: Arc<Pod>| refusal(&new, || vec![new.clone(), other]).is_some();
        assert!(refused(pod("old", "n", "", Some("Running"))));
        assert!(refused(pod("old", "n", "127.0.0.1", Some("Pending"))));
        assert!(!refused(pod("old", "n", "", Some("Failed"))), "it has ended");
        assert!(!refused(pod("old", "n", "", None)), "it has not begun either");
        assert!(!refused(pod("old", "m", "", Some("Running"))), "it is elsewhere");
        let own = pod("new", "n", "10.0.0.1", None);
        assert!(refusal(&own, || vec![pod("old", "n", "127.0.0.1", Some("Running"))]).is_none());
        let running = pod("new", "n", "", Some("Running"));
        assert!(refusal(&running, || vec![pod("old", "n", "", Some("Running"))]).is_none());
    }
}
