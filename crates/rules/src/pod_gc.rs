//! Pods that nobody will delete, although they are of no use to anybody any more.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};

/// A pod to delete at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Removal<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Why, for people.
    pub because: &'static str,
    /// Its phase becomes `Failed` first: it has not ended by itself, and whoever counts pods has to see it end.
    pub mark_failed: bool,
    /// Reason and message of the condition `DisruptionTarget` that it gets with that.
    pub disruption: Option<(&'static str, &'static str)>,
}

/// Decides which pods to delete. `gone` are the nodes that have been missing for long; `most_ended` pods that have ended
/// are kept, or all if it is zero.
pub fn decide<'a>(
    pods: impl Iterator<Item = &'a Pod> + Clone,
    nodes: &BTreeMap<String, &Node>,
    gone: &[String],
    most_ended: usize,
) -> Vec<Removal<'a>> {
    let mut removals = Vec::new();
    let mut ended: Vec<&Pod> = pods.clone().filter(|pod| has_ended(pod)).collect();
    if most_ended > 0 && ended.len() > most_ended {
        // Evicted pods first, then the oldest.
        ended.sort_by_key(|pod| (!is_evicted(pod), created(pod), pod.metadata.name.clone()));
        let too_many = ended.len() - most_ended;
        removals.extend(
            ended.into_iter().take(too_many).map(|pod| removal(pod, "too many pods have ended", None)),
        );
    }
    let too_many: BTreeSet<*const Pod> =
        removals.iter().map(|removal| std::ptr::from_ref(removal.pod)).collect();
    let gone: BTreeSet<&str> = gone.iter().map(String::as_str).collect();
    for pod in pods.filter(|pod| !too_many.contains(&std::ptr::from_ref(*pod))) {
        let deleting = pod.metadata.deletion_timestamp.is_some();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        if node.is_empty() {
            if deleting {
                removals.push(removal(pod, "it was deleted before it had a node", None));
            }
        } else if gone.contains(node) {
            let disruption = ("DeletionByPodGC", "PodGC: node no longer exists");
            removals.push(removal(pod, "its node is gone", Some(disruption)));
        } else if deleting && nodes.get(node).is_some_and(|node| is_out_of_service(node)) {
            removals.push(removal(pod, "its node is out of service", None));
        }
    }
    removals
}

fn removal<'a>(
    pod: &'a Pod,
    because: &'static str,
    disruption: Option<(&'static str, &'static str)>,
) -> Removal<'a> {
    let mark_failed = !matches!(phase(pod), "Succeeded" | "Failed");
    Removal { pod, because, mark_failed, disruption: disruption.filter(|_| mark_failed) }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn has_ended(pod: &Pod) -> bool {
    !matches!(phase(pod), "Pending" | "Running" | "Unknown" | "")
}

fn is_evicted(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted")
}

fn created(pod: &Pod) -> Option<jiff::Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn is_out_of_service(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready =
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !ready && taints.into_iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, phase: &str, node: &str, deleting: bool, more: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2025-01-01T00:00:{:0>2}Z", name.len())},
            "spec": {"nodeName": node, "containers": []},
            "status": {"phase": phase, "reason": more["reason"]},
        });
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2025-01-02T00:00:00Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn p_4_8_what_is_removed() {
        let node = |ready: &str, taint: &str| -> Node {
            serde_json::from_value(json!({
                "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let (well, lost) = (node("True", "x"), node("False", "node.kubernetes.io/out-of-service"));
        let nodes = BTreeMap::from([("well".to_owned(), &well), ("lost".to_owned(), &lost)]);
        let none = json!({});
        let pods: Vec<Pod> = [
            ("runs", "Running", "well", false),
            ("waits", "Pending", "", false),
            ("waited", "Pending", "", true),
            ("stuck", "Running", "lost", true),
            ("on-lost", "Running", "lost", false),
            ("orphan", "Running", "gone", false),
            ("ended-orphan", "Succeeded", "gone", false),
            ("of-a-new-node", "Running", "unseen", false),
        ]
        .into_iter()
        .map(|(name, phase, node, deleting)| pod(name, phase, node, deleting, &none))
        .collect();
        let removals = decide(pods.iter(), &nodes, &["gone".to_owned()], 0);
        let print = |removal: &Removal<'_>| {
            let name = removal.pod.metadata.name.clone().unwrap();
            (name, removal.mark_failed, removal.disruption.is_some())
        };
        let expected = [
            ("waited", true, false),
            ("stuck", true, false),
            ("orphan", true, true),
            ("ended-orphan", false, false),
        ];
        let got: Vec<_> = removals.iter().map(print).collect();
        assert_eq!(got, expected.map(|(name, failed, disrupted)| (name.to_owned(), failed, disrupted)));
    }

    /// Each pod was compared with all that were to go.
    #[test]
    fn p_4_8_many_pods_are_each_removed_once() {
        let one = pod("p", "Succeeded", "gone", false, &json!({}));
        let pods = vec![one; 60_000];
        let removals = decide(pods.iter(), &BTreeMap::new(), &["gone".to_owned()], 10_000);
        assert_eq!(removals.len(), pods.len());
    }

    #[test]
    fn p_4_8_evicted_and_oldest_first() {
        let evicted = json!({"reason": "Evicted"});
        let none = json!({});
        let pods: Vec<Pod> = [
            ("a", "Succeeded", &none),
            ("bb", "Failed", &none),
            ("ccc", "Failed", &evicted),
            ("dddd", "Running", &none),
        ]
        .into_iter()
        .map(|(name, phase, more)| pod(name, phase, "n", false, more))
        .collect();
        let names = |most| {
            let removals = decide(pods.iter(), &BTreeMap::new(), &[], most);
            removals.iter().map(|removal| removal.pod.metadata.name.clone().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["ccc", "a"]);
        assert_eq!(names(3), Vec::<String>::new());
        assert_eq!(names(0), Vec::<String>::new(), "zero keeps all");
    }
}
