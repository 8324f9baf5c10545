//! Nodes that are not heard of, what keeps pods off them, and when the pods that are there have to go.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::quota::affinity::tolerates;

/// Conditions that only a living node can vouch for.
const VOUCHED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Nodes with this label do not tell whether the cluster is disrupted.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// What follows from a condition with this value: a taint that keeps new pods off.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// When a node was last heard of. Its own times are only compared with each other: clocks differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    signs: (Option<Timestamp>, Option<Timestamp>),
    at: Timestamp,
}

impl Heard {
    /// Listens: a lease that was renewed, or another heartbeat, is a sign of life.
    pub fn listen(before: Option<&Heard>, node: &Node, renewed: Option<Timestamp>, now: Timestamp) -> Heard {
        let signs =
            (condition(node, "Ready").and_then(|it| it.last_heartbeat_time.as_ref()).map(|it| it.0), renewed);
        match before {
            Some(before) if before.signs == signs => before.clone(),
            _ => Heard { signs, at: now },
        }
    }

    /// When the node counts as lost, if it is not heard of before.
    pub fn lost_at(&self, patience: SignedDuration) -> Timestamp {
        self.at.checked_add(patience).unwrap_or(Timestamp::MAX)
    }
}

fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The conditions of a node that is lost; `None` if they say so already.
pub fn conditions_of_lost(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let before = node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let mut after = before.clone();
    for kind in VOUCHED {
        match after.iter_mut().find(|condition| condition.type_ == kind) {
            Some(known) if known.status == "Unknown" => {}
            Some(known) => {
                "Unknown".clone_into(&mut known.status);
                known.reason = Some("NodeStatusUnknown".to_owned());
                known.message = Some("Kubelet stopped posting node status.".to_owned());
                known.last_transition_time = Some(Time(now));
            }
            None => after.push(NodeCondition {
                type_: kind.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: node.metadata.creation_timestamp.clone(),
                last_transition_time: Some(Time(now)),
            }),
        }
    }
    (after != before).then_some(after)
}

/// Whether no node is ready: then it is more likely that nothing can be heard than that all are lost. Nodes with the
/// label `node.kubernetes.io/exclude-disruption` do not count.
pub fn is_disrupted<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> bool {
    let excluded = |node: &Node| node.metadata.labels.as_ref().is_some_and(|it| it.contains_key(EXCLUDED));
    let mut counted = nodes.into_iter().filter(|node| !excluded(node)).peekable();
    let is_ready = |node| condition(node, "Ready").is_some_and(|ready| ready.status == "True");
    counted.peek().is_some() && !counted.any(is_ready)
}

/// The taints of a node as they follow from its conditions; `None` if it has them. Taints of others stay. While the
/// whole cluster is [disrupted](is_disrupted) none makes pods go.
pub fn taints(node: &Node, disrupted: bool, now: Timestamp) -> Option<Vec<Taint>> {
    let spec = node.spec.clone().unwrap_or_default();
    let before = spec.taints.unwrap_or_default();
    let value = |kind: &str| condition(node, kind).map(|condition| condition.status.as_str());
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, bad, key) in TAINTS {
        if value(kind) == Some(bad) {
            wanted.push((key, "NoSchedule"));
            if kind == "Ready" && !disrupted {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    if spec.unschedulable == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let is_ours = |taint: &Taint| {
        let by_condition = TAINTS.iter().any(|(kind, _, key)| {
            taint.key == *key
                && (taint.effect == "NoSchedule" || (taint.effect == "NoExecute" && *kind == "Ready"))
        });
        by_condition || (taint.key == UNSCHEDULABLE && taint.effect == "NoSchedule")
    };
    let is_wanted = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let mut after: Vec<Taint> =
        before.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in wanted {
        if !after.iter().any(|taint| taint.key == key && taint.effect == effect) {
            after.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    (after != before).then_some(after)
}

/// How long a pod may stay on its node after that was tainted; `None` if for as long as it likes. Of several tolerations
/// of one taint the first counts, and of several taints the one that is tolerated for the shortest time.
pub fn may_stay(pod: &Pod, node: &Node) -> Option<SignedDuration> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut shortest: Option<SignedDuration> = None;
    for taint in evicting(node) {
        let first: Option<&Toleration> = tolerations.iter().find(|it| tolerates(it, taint));
        let stays = match first {
            None => SignedDuration::ZERO,
            Some(toleration) => match toleration.toleration_seconds {
                None => continue,
                Some(seconds) => SignedDuration::from_secs(seconds.max(0)),
            },
        };
        shortest = Some(shortest.map_or(stays, |shortest| shortest.min(stays)));
    }
    shortest
}

/// Since when a pod is on a tainted node, as far as the taints tell: those that people set do not, and then it is since
/// now.
pub fn tainted_since(pod: &Pod, node: &Node, now: Timestamp) -> Timestamp {
    let added = evicting(node).map(|taint| taint.time_added.as_ref().map_or(now, |time| time.0)).min();
    let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
    added.unwrap_or(now).max(created).min(now)
}

fn evicting(node: &Node) -> impl Iterator<Item = &Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute")
}

/// Whether a pod says that it is ready, although its node is not.
pub fn is_falsely_ready(pod: &Pod, nodes: &BTreeMap<String, &Node>) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).and_then(|name| nodes.get(name));
    let lost =
        node.is_some_and(|node| condition(node, "Ready").is_some_and(|ready| ready.status == "Unknown"));
    lost && crate::replicas::ready_since(pod).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(ready: Option<(&str, i64)>, spec: Value) -> Node {
        let conditions: Vec<Value> = ready
            .iter()
            .map(|(status, second)| json!({"type": "Ready", "status": status, "lastHeartbeatTime": at(*second).to_string()}))
            .collect();
        serde_json::from_value(
            json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    #[test]
    fn a_node_that_is_not_heard_of_is_lost() {
        let patience = SignedDuration::from_secs(50);
        let quiet = node(Some(("True", 1)), json!({}));
        let first = Heard::listen(None, &quiet, Some(at(5)), at(100));
        let again = Heard::listen(Some(&first), &quiet, Some(at(5)), at(120));
        assert_eq!(again.lost_at(patience), at(150));
        let renewed = Heard::listen(Some(&again), &quiet, Some(at(6)), at(140));
        assert_eq!(renewed.lost_at(patience), at(190));
        let beaten = Heard::listen(Some(&renewed), &node(Some(("True", 2)), json!({})), Some(at(6)), at(150));
        assert_eq!(beaten.lost_at(patience), at(200));

        let conditions = conditions_of_lost(&quiet, at(200)).unwrap();
        let print = |it: &NodeCondition| format!("{}={} {}", it.type_, it.status, it.reason.clone().unwrap());
        assert_eq!(print(&conditions[0]), "Ready=Unknown NodeStatusUnknown");
        assert_eq!(print(&conditions[1]), "MemoryPressure=Unknown NodeStatusNeverUpdated");
        let mut lost = quiet;
        lost.status.as_mut().unwrap().conditions = Some(conditions);
        assert_eq!(conditions_of_lost(&lost, at(201)), None);
    }

    #[test]
    fn taints_follow_conditions() {
        let print = |taints: Option<Vec<Taint>>| {
            let list = taints
                .unwrap_or_default()
                .into_iter()
                .map(|it| format!("{}:{}", it.key.replace("node.kubernetes.io/", ""), it.effect));
            list.collect::<Vec<_>>().join(" ")
        };
        let theirs = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
        assert_eq!(taints(&node(Some(("True", 1)), theirs.clone()), false, at(1)), None);
        assert_eq!(
            print(taints(&node(Some(("Unknown", 1)), theirs), false, at(1))),
            "gpu:NoSchedule unreachable:NoSchedule unreachable:NoExecute"
        );
        let unready = json!({"unschedulable": true, "taints": [{"key": UNREACHABLE, "effect": "NoExecute"}]});
        assert_eq!(
            print(taints(&node(Some(("False", 1)), unready), false, at(1))),
            "not-ready:NoSchedule not-ready:NoExecute unschedulable:NoSchedule"
        );
        let well = json!({"taints": [{"key": NOT_READY, "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]});
        assert_eq!(print(taints(&node(Some(("True", 1)), well), false, at(1))), "gpu:NoExecute");
    }

    #[test]
    fn no_pod_has_to_go_while_no_node_is_ready() {
        let (ready, lost) = (node(Some(("True", 1)), json!({})), node(Some(("Unknown", 1)), json!({})));
        let silent = node(None, json!({}));
        let mut excluded = ready.clone();
        excluded.metadata.labels = Some(BTreeMap::from([(EXCLUDED.to_owned(), String::new())]));
        for (nodes, expected) in [
            (vec![], false),
            (vec![&lost], true),
            (vec![&lost, &silent], true),
            (vec![&lost, &ready], false),
            (vec![&lost, &excluded], true),
            (vec![&excluded], false),
        ] {
            assert_eq!(is_disrupted(nodes.iter().copied()), expected, "{nodes:?}");
        }
        let tainted = json!({"taints": [
            {"key": UNREACHABLE, "effect": "NoSchedule"},
            {"key": UNREACHABLE, "effect": "NoExecute"},
            {"key": "mine", "effect": "NoExecute"},
        ]});
        let after = taints(&node(Some(("Unknown", 1)), tainted), true, at(1)).unwrap();
        let after: Vec<(&str, &str)> = after.iter().map(|it| (it.key.as_str(), it.effect.as_str())).collect();
        assert_eq!(after, [(UNREACHABLE, "NoSchedule"), ("mine", "NoExecute")]);
    }

    #[test]
    fn pods_leave_when_they_tolerate_no_longer() {
        let tainted = |taints: Value| node(Some(("Unknown", 1)), json!({"taints": taints}));
        let unreachable =
            json!({"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": at(100).to_string()});
        let tainted_once = tainted(json!([unreachable]));
        let pod = |tolerations: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"creationTimestamp": at(50).to_string()},
                "spec": {"containers": [], "tolerations": tolerations}}))
            .unwrap()
        };
        let tolerate = |seconds: Value| json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let for_seconds = |seconds| Some(SignedDuration::from_secs(seconds));
        let (long, ever) = (tolerate(json!(300)), tolerate(json!(null)));
        assert_eq!(may_stay(&pod(json!([])), &tainted_once), for_seconds(0));
        assert_eq!(may_stay(&pod(json!([long])), &tainted_once), for_seconds(300));
        assert_eq!(may_stay(&pod(json!([ever])), &tainted_once), None);
        assert_eq!(may_stay(&pod(json!([ever, long])), &tainted_once), None, "the first toleration counts");
        assert_eq!(may_stay(&pod(json!([long, ever])), &tainted_once), for_seconds(300));
        assert_eq!(may_stay(&pod(json!([])), &node(Some(("True", 1)), json!({}))), None);
        let tainted_twice = tainted(json!([unreachable, {"key": "mine", "effect": "NoExecute"}]));
        assert_eq!(may_stay(&pod(json!([ever])), &tainted_twice), for_seconds(0));
        let mine = json!({"key": "mine", "operator": "Exists", "tolerationSeconds": 5});
        assert_eq!(may_stay(&pod(json!([long, mine])), &tainted_twice), for_seconds(5));

        let mut young = pod(json!([]));
        assert_eq!(tainted_since(&young, &tainted_once, at(110)), at(100));
        let by_people = tainted(json!([{"key": "mine", "effect": "NoExecute"}]));
        assert_eq!(tainted_since(&young, &by_people, at(110)), at(110));
        young.metadata.creation_timestamp = Some(Time(at(105)));
        assert_eq!(tainted_since(&young, &tainted_once, at(110)), at(105));
    }
}
