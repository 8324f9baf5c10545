//! Pods that wait for a node: the most important first, and none tried in vain.
//!
//! Pods that are the same to the scheduler form a shape. Once one of them fits nowhere, neither does any other, until
//! something changes that may make room. So thousands of pods that wait for the same thing cost one attempt. Why they wait
//! has to be told to each of them, though, and once.

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
    /// Shapes that have failed and of whose pods some have not been told why.
    silent: BTreeSet<String>,
    with_labels: bool,
}

#[derive(Debug, Default)]
struct Shape {
    pods: BTreeMap<Order, Pod>,
    /// Whether its pods fit nowhere, as things are.
    failed: bool,
    /// Why they fit nowhere, or did when that was last tried.
    why: String,
    /// Pods that have not been told this.
    untold: BTreeSet<Order>,
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

    /// Adds a pod, or takes in its changes.
    pub fn add(&mut self, pod: Pod) {
        self.remove(&pod.uid);
        let order = (Reverse(pod.priority), pod.created, pod.uid.clone());
        let key = pod.shape(self.with_labels);
        self.by_uid.insert(pod.uid.clone(), (order.clone(), key.clone()));
        self.unhead(&key);
        let shape = self.shapes.entry(key.clone()).or_default();
        shape.untold.insert(order.clone());
        shape.pods.insert(order, pod);
        if shape.failed {
            self.silent.insert(key.clone());
        }
        self.head(&key);
    }

    /// Takes out a pod that waits no more.
    pub fn remove(&mut self, uid: &str) -> Option<Pod> {
        let (order, key) = self.by_uid.remove(uid)?;
        self.unhead(&key);
        let shape = self.shapes.get_mut(&key)?;
        let pod = shape.pods.remove(&order);
        shape.untold.remove(&order);
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

    /// The pod of this uid fits nowhere, and so do all that are like it. It is told by whoever tried it.
    pub fn failed(&mut self, uid: &str, why: String) {
        let Some((order, key)) = self.by_uid.get(uid).cloned() else { return };
        self.unhead(&key);
        let Some(shape) = self.shapes.get_mut(&key) else { return };
        if shape.why != why {
            shape.untold = shape.pods.keys().cloned().collect();
        }
        shape.untold.remove(&order);
        (shape.failed, shape.why) = (true, why);
        if !shape.untold.is_empty() {
            self.silent.insert(key);
        }
    }

    /// The next pod that fits nowhere and has not been told why, and why. It counts as told from then on.
    pub fn to_tell(&mut self) -> Option<(Pod, String)> {
        loop {
            let key = self.silent.first()?;
            // Its pods may be worth an attempt again by now, or not wait any more.
            if let Some(shape) = self.shapes.get_mut(key).filter(|shape| shape.failed)
                && let Some(order) = shape.untold.pop_first()
            {
                return shape.pods.get(&order).map(|pod| (pod.clone(), shape.why.clone()));
            }
            self.silent.pop_first();
        }
    }

    /// Something has changed that may make room: all are worth an attempt again.
    pub fn try_again(&mut self) {
        let failed: Vec<String> =
            self.shapes.iter().filter(|(_, shape)| shape.failed).map(|(key, _)| key.clone()).collect();
        for key in failed {
            if let Some(shape) = self.shapes.get_mut(&key) {
                shape.failed = false;
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
        self.silent.clear();
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
        let Some(shape) = self.shapes.get(key).filter(|shape| !shape.failed) else { return };
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
            waiting.add(pod(name, cpu, priority));
        }
        assert_eq!(first(&waiting), "vip");
        waiting.remove("vip");
        assert_eq!(first(&waiting), "a");
        waiting.failed("a", "too big".to_owned());
        assert_eq!(first(&waiting), "small", "b is like a");
        waiting.add(pod("c", "9", 0));
        assert_eq!(first(&waiting), "small", "so is c");
        waiting.remove("small");
        assert_eq!(first(&waiting), "nobody");
        waiting.try_again();
        assert_eq!(first(&waiting), "a");
        waiting.remove("a");
        assert_eq!(first(&waiting), "b");
        assert_eq!(waiting.len(), 2);
    }

    #[test]
    fn p_4_9_each_is_told_once_why_it_waits() {
        let mut waiting = Waiting::default();
        for name in ["a", "b", "c"] {
            waiting.add(pod(name, "9", 0));
        }
        let told = |waiting: &mut Waiting| {
            let told = std::iter::from_fn(|| waiting.to_tell());
            told.map(|(pod, why)| format!("{}: {why}", pod.name)).collect::<Vec<_>>()
        };
        assert_eq!(told(&mut waiting), Vec::<String>::new(), "nobody has tried");
        waiting.failed("a", "one is too small".to_owned());
        waiting.remove("c");
        assert_eq!(told(&mut waiting), ["b: one is too small"], "a was told by whoever tried it");
        waiting.add(pod("d", "9", 0));
        assert_eq!(told(&mut waiting), ["d: one is too small"], "it came later");
        waiting.try_again();
        waiting.add(pod("e", "9", 0));
        assert_eq!(told(&mut waiting), Vec::<String>::new(), "there may be room");
        waiting.failed("a", "one is too small".to_owned());
        assert_eq!(told(&mut waiting), ["e: one is too small"], "to the others it is nothing new");
        waiting.try_again();
        waiting.failed("a", "two are too small".to_owned());
        waiting.try_again();
        assert_eq!(told(&mut waiting), Vec::<String>::new(), "there may be room again");
        waiting.failed("a", "two are too small".to_owned());
        let all = ["b: two are too small", "d: two are too small", "e: two are too small"];
        assert_eq!(told(&mut waiting), all);
        assert_eq!(told(&mut waiting), Vec::<String>::new());
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
