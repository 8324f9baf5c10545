//! Pods that wait for a node: the most important first, and none tried in vain.
//!
//! Pods that are the same to the scheduler form a shape. Once one of them fits nowhere, neither does any other, until
//! something changes that may make room. So thousands of pods that wait for the same thing cost one attempt.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::read::Pod;

/// The order in which pods are tried: by priority, then by age.
type Order = (Reverse<i32>, Option<Timestamp>, String);

/// Pods that wait.
#[derive(Debug, Default)]
pub struct Waiting {
    shapes: BTreeMap<String, Shape>,
    /// The first pod of each shape that is worth an attempt.
    heads: BTreeSet<(Order, String)>,
    by_uid: BTreeMap<String, (Order, String)>,
    with_labels: bool,
}

#[derive(Debug, Default)]
struct Shape {
    pods: BTreeMap<Order, Pod>,
    /// Why its pods fit nowhere, as things are.
    failed: Option<String>,
}

impl Waiting {
    /// How many pods wait.
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// Adds a pod, or takes in its changes. Returns why it fits nowhere, if that is known already.
    pub fn add(&mut self, pod: Pod) -> Option<&str> {
        self.remove(&pod.uid);
        let order = (Reverse(pod.priority), pod.created, pod.uid.clone());
        let key = pod.shape(self.with_labels);
        self.by_uid.insert(pod.uid.clone(), (order.clone(), key.clone()));
        self.unhead(&key);
        self.shapes.entry(key.clone()).or_default().pods.insert(order, pod);
        self.head(&key);
        self.shapes.get(&key).and_then(|shape| shape.failed.as_deref())
    }

    /// Takes out a pod that waits no more.
    pub fn remove(&mut self, uid: &str) -> Option<Pod> {
        let (order, key) = self.by_uid.remove(uid)?;
        self.unhead(&key);
        let shape = self.shapes.get_mut(&key)?;
        let pod = shape.pods.remove(&order);
        if shape.pods.is_empty() {
            self.shapes.remove(&key);
        } else {
            self.head(&key);
        }
        pod
    }

    /// The next pod to try; it still waits.
    pub fn first(&self) -> Option<&Pod> {
        let (order, key) = self.heads.first()?;
        self.shapes.get(key)?.pods.get(order)
    }

    /// The pod of this uid fits nowhere, and so do all that are like it.
    pub fn failed(&mut self, uid: &str, why: String) {
        let Some((_, key)) = self.by_uid.get(uid).cloned() else { return };
        self.unhead(&key);
        if let Some(shape) = self.shapes.get_mut(&key) {
            shape.failed = Some(why);
        }
    }

    /// Something has changed that may make room: all are worth an attempt again.
    pub fn try_again(&mut self) {
        let failed: Vec<String> = self
            .shapes
            .iter()
            .filter(|(_, shape)| shape.failed.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in failed {
            if let Some(shape) = self.shapes.get_mut(&key) {
                shape.failed = None;
            }
            self.head(&key);
        }
    }

    /// From now on the labels of pods matter to others.
    pub fn consider_labels(&mut self) {
        if self.with_labels {
            return;
        }
        self.with_labels = true;
        let shapes = std::mem::take(&mut self.shapes);
        self.heads.clear();
        self.by_uid.clear();
        for pod in shapes.into_values().flat_map(|shape| shape.pods.into_values()) {
            self.add(pod);
        }
    }

    fn unhead(&mut self, key: &str) {
        if let Some(order) = self.shapes.get(key).and_then(|shape| shape.pods.keys().next()) {
            self.heads.remove(&(order.clone(), key.to_owned()));
        }
    }

    fn head(&mut self, key: &str) {
        let Some(shape) = self.shapes.get(key).filter(|shape| shape.failed.is_none()) else { return };
        if let Some(order) = shape.pods.keys().next() {
            self.heads.insert((order.clone(), key.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, cpu: &str, priority: i32) -> Pod {
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"name": name}},
            "spec": {"priority": priority, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        });
        Pod::read(&serde_json::from_value(pod).unwrap())
    }

    fn first(waiting: &Waiting) -> &str {
        waiting.first().map_or("nobody", |pod| &pod.name)
    }

    #[test]
    fn by_priority_and_in_vain_only_once() {
        let mut waiting = Waiting::default();
        for (name, cpu, priority) in [("b", "9", 0), ("a", "9", 0), ("small", "1", 0), ("vip", "9", 5)] {
            assert_eq!(waiting.add(pod(name, cpu, priority)), None);
        }
        assert_eq!(first(&waiting), "vip");
        waiting.remove("vip");
        assert_eq!(first(&waiting), "a");
        waiting.failed("a", "too big".to_owned());
        assert_eq!(first(&waiting), "small", "b is like a");
        assert_eq!(waiting.add(pod("c", "9", 0)), Some("too big"));
        waiting.remove("small");
        assert_eq!(first(&waiting), "nobody");
        waiting.try_again();
        assert_eq!(first(&waiting), "a");
        waiting.remove("a");
        assert_eq!(first(&waiting), "b");
        assert_eq!(waiting.len(), 2);
    }

    #[test]
    fn labels_may_begin_to_matter() {
        let mut waiting = Waiting::default();
        waiting.add(pod("a", "1", 0));
        waiting.add(pod("b", "1", 0));
        waiting.failed("a", "no".to_owned());
        assert_eq!(first(&waiting), "nobody");
        waiting.consider_labels();
        assert_eq!(first(&waiting), "a");
        waiting.failed("a", "no".to_owned());
        assert_eq!(first(&waiting), "b", "it is not like a any more");
    }
}
