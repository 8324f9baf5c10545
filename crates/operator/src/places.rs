//! Nodes and pods, watched while some queue places pods by topology, and no longer than that: a cluster without topologies
//! pays for neither.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{
    Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use reconcile::{Cache, Change, Key, Tasks};
use rules::{
    field::Path,
    framework::ungate,
    quota::{
        requests::PodResources,
        topology::{HOSTNAME, Resources, read},
    },
};
use tracing::info;

use crate::work::Work;

/// Pods that nobody placed, by the node that they are on.
pub(crate) const ON_NODE: &str = "on node";
/// Nodes by their host names.
pub(crate) const HOST: &str = "host";
/// Pods that were placed, by the Workload that they know.
pub(crate) const OF_WORKLOAD: &str = "of workload";

/// The watches. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Places {
    client: Client,
    work: Arc<Work>,
    held: Arc<Mutex<Option<Held>>>,
}

struct Held {
    seen: Seen,
    /// The watches end with it.
    _watch: Tasks,
}

/// What is watched.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) nodes: Cache<Node>,
    pub(crate) pods: Cache<Pod>,
}

impl Seen {
    /// Whether a host is ready; `None` if it is not there.
    pub(crate) fn is_ready(&self, host: &str) -> Option<bool> {
        let nodes = self.nodes.by(HOST, host);
        let ready = |node: &Arc<Node>| read::is_ready(node);
        (!nodes.is_empty()).then(|| nodes.iter().any(ready))
    }

    /// What pods take of a node that nobody placed there.
    pub(crate) fn taken_of(&self, node: &str) -> Resources {
        let mut sum = Resources::new();
        for pod in self.pods.by(ON_NODE, node) {
            if let Some((_, usage)) = usage(&pod) {
                for (name, amount) in usage {
                    *sum.entry(name).or_default() += amount;
                }
            }
        }
        sum
    }
}

impl Places {
    /// Nothing is watched yet.
    pub(crate) fn new(client: &Client, work: &Arc<Work>, tasks: &mut Tasks) -> Places {
        let places = Places { client: client.clone(), work: Arc::clone(work), held: Arc::default() };
        let ending = Ending(places.clone());
        tasks.spawn("places", async move {
            let _ending = ending;
            std::future::pending::<()>().await;
        });
        places
    }

    /// Watches from now on, or no longer.
    pub(crate) fn want(&self, wanted: bool) {
        let mut held = self.held();
        if wanted == held.is_some() {
            return;
        }
        info!(wanted, "nodes and pods, to place by topology");
        *held = wanted.then(|| self.begin());
    }

    /// What is watched, once all of it was seen.
    pub(crate) fn seen(&self) -> Option<Seen> {
        let held = self.held();
        let seen = &held.as_ref()?.seen;
        (seen.nodes.is_ready() && seen.pods.is_ready()).then(|| seen.clone())
    }

    fn begin(&self) -> Held {
        let mut watch = Tasks::new();
        let work = Arc::clone(&self.work);
        let nodes = Cache::new(Api::<Node>::all(self.client.clone()))
            .trim(trim_node)
            .index(HOST, |node| {
                let labels = node.metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(HOSTNAME)).cloned().into_iter().collect()
            })
            .on_change(move |change| node_changed(change, &work))
            .start(&mut watch);
        let work = Arc::clone(&self.work);
        let pods = Cache::new(Api::<Pod>::all(self.client.clone()))
            .fields("status.phase!=Succeeded,status.phase!=Failed")
            .trim(trim_pod)
            .index(ON_NODE, |pod| usage(pod).map(|(node, _)| node.to_owned()).into_iter().collect())
            .index(OF_WORKLOAD, |pod| workload_of(pod).map(|key| key.to_string()).into_iter().collect())
            .on_change(move |change| pod_changed(change, &work))
            .start(&mut watch);
        let (work, seen) = (Arc::clone(&self.work), Seen { nodes, pods });
        let all = seen.clone();
        watch.spawn("places", async move {
            all.nodes.ready().await;
            all.pods.ready().await;
            // What was told of before was not looked at.
            all.pods.all().iter().filter_map(|pod| workload_of(pod)).for_each(|key| work.placed.add(key));
            work.inbox.note(|news| news.nodes = true);
        });
        Held { seen, _watch: watch }
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        // Holders only move values.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the watches with whoever began them.
struct Ending(Places);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.held().take();
    }
}

fn node_changed(change: &Change<'_, Node>, work: &Work) {
    let read = |node: Option<&Arc<Node>>| node.and_then(|node| read::node(node));
    if read(change.old) != read(change.new) {
        work.inbox.note(|news| news.nodes = true);
    }
}

fn pod_changed(change: &Change<'_, Pod>, work: &Work) {
    for key in change.old.into_iter().chain(change.new).filter_map(|pod| workload_of(pod)) {
        work.placed.add(key);
    }
    let (old, new) = (change.old.and_then(|pod| usage(pod)), change.new.and_then(|pod| usage(pod)));
    if old != new {
        let nodes: Vec<String> = old.into_iter().chain(new).map(|(node, _)| node.to_owned()).collect();
        work.inbox.note(|news| news.pods_on.extend(nodes));
    }
}

/// The Workload that a pod knows that was placed.
fn workload_of(pod: &Pod) -> Option<Key> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = ungate::belongs_to(pod).filter(|_| read::is_placed(pod))?;
    Some(Key::new(namespace, name))
}

/// What a pod takes that nobody placed, and of which node.
fn usage(pod: &Pod) -> Option<(&str, Resources)> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.as_deref().filter(|node| !node.is_empty())?;
    let counts = !read::is_placed(pod) && !read::has_ended(pod);
    counts.then(|| (node, read::usage(spec)))
}

/// Leaves of an object what names it.
fn identity(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        ..ObjectMeta::default()
    }
}

/// Leaves of a node what decides about places.
fn trim_node(node: &mut Node) {
    let labels = node.metadata.labels.take();
    node.metadata = ObjectMeta { labels, ..identity(&node.metadata) };
    if let Some(spec) = node.spec.take() {
        let (taints, unschedulable) = (spec.taints, spec.unschedulable);
        node.spec = Some(NodeSpec { taints, unschedulable, ..NodeSpec::default() });
    }
    if let Some(status) = node.status.take() {
        let mut conditions = status.conditions.unwrap_or_default();
        conditions.retain(|condition| condition.type_ == "Ready");
        let (allocatable, conditions) = (status.allocatable, Some(conditions));
        node.status = Some(NodeStatus { allocatable, conditions, ..NodeStatus::default() });
    }
}

/// Leaves of a pod what decides about places: what it takes, or which place it has.
fn trim_pod(pod: &mut Pod) {
    let placed = read::is_placed(pod);
    let kept = |map: Option<std::collections::BTreeMap<String, String>>| map.filter(|_| placed);
    let (labels, annotations) = (kept(pod.metadata.labels.take()), kept(pod.metadata.annotations.take()));
    let annotations = annotations.map(|mut annotations| {
        annotations.retain(|key, _| key.starts_with("kueue.x-k8s.io/"));
        annotations
    });
    pod.metadata = ObjectMeta { labels, annotations, ..identity(&pod.metadata) };
    if let Some(spec) = pod.spec.take() {
        let total = || PodResources::read(&spec, &Path::new("spec")).map(|it| it.total()).unwrap_or_default();
        let requests = total().into_iter().map(|(name, quantity)| (name, (&quantity).into())).collect();
        let resources = ResourceRequirements { requests: Some(requests), ..ResourceRequirements::default() };
        let whole = Container { resources: Some(resources), ..Container::default() };
        pod.spec = Some(PodSpec {
            containers: if placed { Vec::new() } else { vec![whole] },
            node_name: spec.node_name,
            node_selector: spec.node_selector.filter(|_| placed),
            scheduling_gates: spec.scheduling_gates.filter(|_| placed),
            ..PodSpec::default()
        });
    }
    if let Some(status) = pod.status.take() {
        pod.status = Some(PodStatus { phase: status.phase, ..PodStatus::default() });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// TA-3: what is left of a pod says the same about places.
    #[test]
    fn ta_3_trimmed_pods_take_as_much() {
        let container = json!({
            "name": "c", "image": "i", "resources": { "requests": { "cpu": "250m", "memory": "1Gi" } },
            "env": [{ "name": "A", "value": "B" }],
        });
        let written = json!({
            "metadata": { "name": "p", "namespace": "ns", "labels": { "a": "b" }, "annotations": { "c": "d" } },
            "spec": {
                "nodeName": "x1", "containers": [container, container], "overhead": { "cpu": "100m" },
                "initContainers": [{ "name": "i", "resources": { "requests": { "cpu": "2" } } }],
            },
            "status": { "phase": "Running", "podIP": "10.0.0.1" },
        });
        let whole: Pod = serde_json::from_value(written.clone()).expect("a pod");
        let mut trimmed = whole.clone();
        trim_pod(&mut trimmed);
        let taken = usage(&whole).expect("it takes something");
        assert_eq!((taken.0, taken.1["cpu"].units()), ("x1", 2100));
        assert_eq!(usage(&trimmed), Some(taken));
        assert!(trimmed.metadata.labels.is_none() && trimmed.metadata.annotations.is_none());
        let mut placed = written;
        placed["metadata"]["annotations"] = json!({
            "kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/workload": "w", "other": "x",
        });
        placed["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/topology" }]);
        let mut placed: Pod = serde_json::from_value(placed).expect("a pod");
        trim_pod(&mut placed);
        assert_eq!((usage(&placed), workload_of(&placed)), (None, Some(Key::new("ns", "w"))));
        let spec = placed.spec.expect("a spec");
        assert!(spec.scheduling_gates.is_some() && spec.containers.is_empty());
        assert_eq!(placed.metadata.annotations.map(|it| it.len()), Some(2));
    }

    #[test]
    fn ta_3_trimmed_nodes_are_the_same() {
        let mut node: Node = serde_json::from_value(json!({
            "metadata": { "name": "x1", "labels": { "rack": "r1" }, "annotations": { "a": "b" } },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }], "podCIDR": "10.0.0.0/24" },
            "status": {
                "allocatable": { "cpu": "4" }, "capacity": { "cpu": "5" }, "images": [],
                "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "False" }],
            },
        }))
        .expect("a node");
        let before = read::node(&node).expect("a node that takes pods");
        trim_node(&mut node);
        assert_eq!(read::node(&node), Some(before));
        assert_eq!(node.metadata.annotations, None);
    }
}
