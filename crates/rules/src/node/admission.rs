//! Whether a node takes a pod that it has not begun with. The scheduler sends no others, but a pod may name its node itself, and
//! there are other schedulers.
//!
//! It departs from Kubernetes in that no pod has to end for a critical one: that is left to the scheduler.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};

use super::ending::{Ending, is_final};
use crate::{
    pod::resources::is_extended,
    quota::affinity::{describes, tolerates},
    schedule::{Resources, host_ports},
};

/// The label that says what system a node has.
const SYSTEM: &str = "kubernetes.io/os";

/// What the pods of a node have of it.
#[derive(Debug, Default)]
pub struct Taken {
    /// By their uids.
    shares: HashMap<String, Share>,
    sum: Resources,
}

#[derive(Debug)]
struct Share {
    generation: Option<i64>,
    requests: Resources,
    ports: BTreeSet<(String, i32, String)>,
}

impl Taken {
    /// Takes in how a pod of the node is: it has its share from its beginning to its end.
    pub fn see(&mut self, pod: &Pod) {
        if is_final(pod) {
            self.leave(pod);
        } else if began(pod) {
            self.take(pod);
        }
    }

    /// Gives a pod, which may begin, its share.
    pub fn take(&mut self, pod: &Pod) {
        let (uid, generation) = (uid(pod), pod.metadata.generation);
        if self.shares.get(uid).is_some_and(|share| share.generation == generation) {
            return;
        }
        self.leave(pod);
        let Some(spec) = &pod.spec else { return };
        let share = Share { generation, requests: Resources::of_pod(pod), ports: host_ports(spec) };
        self.sum.add(&share.requests);
        self.shares.insert(uid.to_owned(), share);
    }

    /// The pod has no share any more.
    pub fn leave(&mut self, pod: &Pod) {
        if let Some(share) = self.shares.remove(uid(pod)) {
            self.sum.subtract(&share.requests);
        }
    }

    /// Counts anew: these are the pods of the node. Who may begin and has not yet keeps its share.
    pub fn recount<P: AsRef<Pod>>(&mut self, pods: &[P]) {
        let there: HashSet<&str> = pods.iter().map(|pod| uid(pod.as_ref())).collect();
        self.shares.retain(|uid, _| there.contains(uid.as_str()));
        self.sum = Resources::default();
        for share in self.shares.values() {
            self.sum.add(&share.requests);
        }
        for pod in pods {
            self.see(pod.as_ref());
        }
    }
}

/// Why the node does not take a pod, if so, beside those that have their shares: the first reason of those that Kubernetes
/// looks for.
pub fn refusal(node: &Node, pod: &Pod, taken: &Taken) -> Option<Ending> {
    let spec = pod.spec.as_ref()?;
    let labels = node.metadata.labels.as_ref();
    let rejected =
        |reason: &str, message: String| Some(Ending::Rejected { reason: reason.to_owned(), message });
    let failed = |predicate: &str, why: &str| {
        rejected(predicate, format!("Predicate {predicate} failed: node(s) {why}"))
    };
    if let Some(system) = labels.and_then(|labels| labels.get(SYSTEM)) {
        let asked = pod.metadata.labels.as_ref().and_then(|labels| labels.get(SYSTEM));
        if asked.is_some_and(|asked| asked != system) {
            let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
            return rejected("PodOSSelectorNodeLabelDoesNotMatch", message.to_owned());
        }
        if spec.os.as_ref().is_some_and(|os| os.name != *system) {
            let message = "Failed to admit pod as the OS field doesn't match node OS";
            return rejected("PodOSNotSupported", message.to_owned());
        }
    }
    if let Some(missing) = missing(node, pod, taken) {
        let Missing { name, asked, used, capacity } = missing;
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}"
        );
        return rejected(&format!("OutOf{name}"), message);
    }
    if !is_wanted(spec, node, labels.unwrap_or(&BTreeMap::new())) {
        return failed("NodeAffinity", "didn't match Pod's node affinity/selector");
    }
    if has_ports_of_others(pod, spec, taken) {
        return failed("NodePorts", "didn't have free ports for the requested pod ports");
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    if taints.any(|taint| taint.effect == "NoExecute" && !tolerations.iter().any(|it| tolerates(it, taint))) {
        return failed("TaintToleration", "had taints that the pod didn't tolerate");
    }
    None
}

/// What the node has too little of.
struct Missing {
    name: String,
    asked: i64,
    used: i64,
    capacity: i64,
}

fn missing(node: &Node, pod: &Pod, taken: &Taken) -> Option<Missing> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let (capacity, most_pods) = Resources::of_node(allocatable);
    let others = taken.shares.len() - usize::from(taken.shares.contains_key(uid(pod)));
    let others = i64::try_from(others).unwrap_or(i64::MAX);
    if others >= most_pods {
        return Some(Missing { name: "pods".to_owned(), asked: 1, used: others, capacity: most_pods });
    }
    let mut used = taken.sum.clone();
    if let Some(own) = taken.shares.get(uid(pod)) {
        used.subtract(&own.requests);
    }
    let asked = Resources::of_pod(pod);
    let usual = [
        ("cpu", asked.milli_cpu, used.milli_cpu, capacity.milli_cpu),
        ("memory", asked.memory, used.memory, capacity.memory),
        ("ephemeral-storage", asked.ephemeral_storage, used.ephemeral_storage, capacity.ephemeral_storage),
    ];
    let of = |resources: &Resources, name: &String| resources.others.get(name).copied().unwrap_or(0);
    // What a node does not know may be there in the cluster, and is not the node's to count.
    let counts = |name: &&String| capacity.others.contains_key(*name) || !is_extended(name);
    let others = asked.others.iter().filter(|(name, _)| counts(name));
    let others = others.map(|(name, asked)| (name.as_str(), *asked, of(&used, name), of(&capacity, name)));
    let mut all = usual.into_iter().chain(others);
    let short = all.find(|(_, asked, used, capacity)| *asked > 0 && *asked > capacity - used);
    short.map(|(name, asked, used, capacity)| Missing { name: name.to_owned(), asked, used, capacity })
}

/// Whether the node is one that the pod asks for.
fn is_wanted(spec: &PodSpec, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let mut selected = spec.node_selector.iter().flatten();
    selected.all(|(key, value)| labels.get(key) == Some(value))
        && required
            .is_none_or(|one_of| one_of.node_selector_terms.iter().any(|term| describes(term, name, labels)))
}

fn has_ports_of_others(pod: &Pod, spec: &PodSpec, taken: &Taken) -> bool {
    let wanted = host_ports(spec);
    if wanted.is_empty() {
        return false;
    }
    let same = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
    let others = taken.shares.iter().filter(|(other, _)| *other != uid(pod));
    others.flat_map(|(_, share)| &share.ports).any(|(protocol, port, address)| {
        wanted.iter().any(|(p, number, ip)| p == protocol && number == port && same(ip, address))
    })
}

fn began(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.start_time.is_some())
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn node() -> Node {
        let taint = json!({ "key": "k", "effect": "NoExecute" });
        serde_json::from_value(json!({
            "metadata": { "name": "n", "labels": { "kubernetes.io/os": "linux", "zone": "a" } },
            "spec": { "taints": [taint, { "key": "other", "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "2", "memory": "1Gi", "pods": "3", "example.com/gpu": "1" } },
        }))
        .expect("a node")
    }

    /// A pod that tolerates what the node has; `status` is of one that began.
    fn pod(uid: &str, spec: Value, status: Value) -> Arc<Pod> {
        let tolerations = json!([{ "key": "k", "operator": "Exists" }]);
        let mut whole =
            json!({ "nodeName": "n", "tolerations": tolerations, "containers": [{ "name": "c" }] });
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        let pod = json!({ "metadata": { "uid": uid }, "spec": whole, "status": status });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn asks(requests: Value) -> Value {
        json!({ "containers": [{ "name": "c", "resources": { "requests": requests } }] })
    }

    fn phase(phase: &str) -> Value {
        json!({ "phase": phase, "startTime": "2026-01-01T00:00:00Z" })
    }

    fn told(pod: &Pod, taken: &Taken) -> Option<(String, String)> {
        match refusal(&node(), pod, taken)? {
            Ending::Rejected { reason, message } => Some((reason, message)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_that_names_its_node_has_to_fit_there() {
        let mut taken = Taken::default();
        taken.see(&pod("old", asks(json!({ "cpu": "500m" })), phase("Running")));
        let check = |spec: Value, expected: Option<(&str, &str)>| {
            let found = told(&pod("new", spec.clone(), json!({})), &taken);
            let expected = expected.map(|(reason, message)| (reason.to_owned(), message.to_owned()));
            assert_eq!(found, expected, "{spec}");
        };
        check(json!({}), None);
        check(asks(json!({ "cpu": "1500m", "memory": "1Gi" })), None);
        let message = "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000";
        check(asks(json!({ "cpu": "1501m", "memory": "2Gi" })), Some(("OutOfcpu", message)));
        let message = "Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1";
        check(asks(json!({ "example.com/gpu": "2" })), Some(("OutOfexample.com/gpu", message)));
        check(asks(json!({ "example.com/unknown": "2" })), None);
        let message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        check(json!({ "nodeSelector": { "zone": "a" } }), None);
        check(json!({ "nodeSelector": { "zone": "b" } }), Some(("NodeAffinity", message)));
        let affinity = |names: &[&str]| {
            let field = json!({ "key": "metadata.name", "operator": "In", "values": names });
            let terms = json!({ "nodeSelectorTerms": [{ "matchFields": [field] }] });
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } } })
        };
        check(affinity(&["n"]), None);
        check(affinity(&["m"]), Some(("NodeAffinity", message)));
        let message = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        check(json!({ "tolerations": [] }), Some(("TaintToleration", message)));
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        check(json!({ "os": { "name": "windows" } }), Some(("PodOSNotSupported", message)));
        check(json!({ "os": { "name": "linux" } }), None);
    }

    #[test]
    fn a_share_is_had_from_the_beginning_to_the_end() {
        let mut taken = Taken::default();
        let new = pod("new", asks(json!({ "cpu": "2" })), json!({}));
        let old = |status: Value| pod("old", asks(json!({ "cpu": "1" })), status);
        taken.see(&old(json!({})));
        assert_eq!(told(&new, &taken), None, "it has not begun");
        taken.take(&old(json!({})));
        taken.see(&old(json!({})));
        assert!(told(&new, &taken).is_some(), "it may begin");
        taken.recount(&[old(json!({}))]);
        assert!(told(&new, &taken).is_some(), "it still may");
        taken.recount::<Arc<Pod>>(&[]);
        assert_eq!(told(&new, &taken), None, "it is gone");
        taken.see(&old(phase("Running")));
        taken.see(&old(phase("Running")));
        assert!(told(&new, &taken).is_some_and(|(_, message)| message.contains("used: 1000")));
        taken.see(&old(phase("Succeeded")));
        assert_eq!(told(&new, &taken), None, "it has ended");
        taken.take(&new);
        assert_eq!(told(&new, &taken), None, "it is not in its own way");
        for uid in ["1", "2", "3"] {
            taken.leave(&new);
            assert_eq!(told(&new, &taken), None);
            taken.take(&pod(uid, json!({}), json!({})));
        }
        assert!(told(&new, &taken).is_some_and(|(reason, _)| reason == "OutOfpods"));
    }

    #[test]
    fn who_comes_second_to_a_port_of_the_node_is_refused() {
        let with = |uid: &str, ip: &str, status: Value| {
            let ports = json!([{ "containerPort": 80, "hostPort": 80, "hostIP": ip }]);
            pod(uid, json!({ "containers": [{ "name": "c", "ports": ports }] }), status)
        };
        let is_refused = |new: &Pod, old: &Pod| {
            let mut taken = Taken::default();
            taken.see(old);
            told(new, &taken).is_some_and(|(reason, _)| reason == "NodePorts")
        };
        let new = with("new", "", json!({}));
        assert!(is_refused(&new, &with("old", "", phase("Running"))));
        assert!(is_refused(&new, &with("old", "127.0.0.1", phase("Pending"))));
        assert!(!is_refused(&new, &with("old", "", phase("Failed"))), "it has ended");
        assert!(!is_refused(&new, &with("old", "", json!({}))), "it has not begun either");
        let own = with("new", "10.0.0.1", json!({}));
        assert!(!is_refused(&own, &with("old", "127.0.0.1", phase("Running"))));
    }
}
