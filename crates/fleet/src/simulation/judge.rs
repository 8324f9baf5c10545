//! What must never happen, and what must be true in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
};

use serde_json::Value;

use super::{NAMESPACE, World, is_finished, is_ours, memory::Place, network::Way, place_of};

impl World {
    /// Nothing happened that must never happen.
    pub(super) fn check(&mut self) {
        let mut where_pods_are: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
        for (cluster, pods) in self.pods.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (_, of) in pods.values() {
                where_pods_are.entry(of.clone()).or_default().insert(cluster);
            }
        }
        for (of, clusters) in where_pods_are.iter().filter(|(_, clusters)| clusters.len() > 1) {
            self.violations.insert(format!("the pods of {of} run on {clusters:?} at once"));
        }
        let mut ended = BTreeMap::new();
        for (name, way) in &self.workers {
            for (place, mirror) in way.memory().all("batch/jobs") {
                let of = mirror["metadata"]["annotations"]["kueue.x-k8s.io/multikueue-origin-uid"].as_str();
                if let Some(of) = of.filter(|_| is_finished(&mirror)) {
                    ended.insert((*name, place), of.to_owned());
                }
            }
        }
        for ((cluster, place), of) in std::mem::replace(&mut self.ended_there, ended) {
            let is_gone = self.workers[cluster].memory().get(&place).is_none();
            if is_gone && self.manager_job(&of).is_some_and(|job| !is_finished(&job)) {
                self.violations.insert(format!(
                    "{of} ended on {cluster} and was removed there before its end was recorded"
                ));
            }
        }
        for (_, job) in self.manager.memory().all("batch/jobs") {
            let uid = job["metadata"]["uid"].as_str().unwrap_or("").to_owned();
            if is_finished(&job) && !self.ran.contains(&uid) {
                self.violations.insert(format!("{uid} ended without having run"));
            }
        }
        for way in self.workers.values() {
            self.violations.extend(way.memory().violations.iter().cloned());
        }
        self.violations.extend(self.manager.memory().violations.iter().cloned());
    }

    /// The Job on the manager that has this uid.
    pub(super) fn manager_job(&self, uid: &str) -> Option<Arc<Value>> {
        let all = self.manager.memory().all("batch/jobs");
        all.into_iter().map(|(_, job)| job).find(|job| job["metadata"]["uid"] == *uid)
    }

    /// Whether every Job has ended and every worker is empty.
    pub(super) fn is_over(&self) -> bool {
        let jobs = self.manager.memory().all("batch/jobs");
        let deactivated = |job: &Value| {
            let workloads = self.manager.memory().all("kueue.x-k8s.io/workloads");
            workloads.iter().any(|(_, it)| {
                it["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
                    && it["spec"]["active"] == false
            })
        };
        // The copy of a slice that another one took over is left alone until its job has ended (MK-ELA-04).
        let is_replaced = |place: &Place| {
            let slice = self.manager.memory().get(place).cloned();
            let conditions = slice.and_then(|it| it["status"]["conditions"].as_array().cloned());
            conditions.into_iter().flatten().any(|it| it["reason"] == "WorkloadSliceReplaced")
        };
        let is_clean = |way: &Way| {
            let of = |resource: &str| {
                let all = way.memory().all(resource);
                all.iter().any(|(place, object)| is_ours(object) && !is_replaced(place))
            };
            !of("batch/jobs") && !of("kueue.x-k8s.io/workloads")
        };
        jobs.iter().all(|(_, job)| is_finished(job) || deactivated(job))
            && self.workers.values().all(is_clean)
    }

    pub(super) fn judge_the_end(&mut self) {
        if !self.is_over() {
            let jobs = self.manager.memory().all("batch/jobs");
            let workloads = self.manager.memory().all("kueue.x-k8s.io/workloads");
            let says = |job: &Value| {
                let is_its = |it: &&(Place, Arc<Value>)| {
                    it.1["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
                };
                workloads.iter().find(is_its).map_or(Value::Null, |(_, it)| it["status"].clone())
            };
            let open = jobs.iter().filter(|(_, job)| !is_finished(job));
            let open: Vec<String> = open.map(|(place, job)| format!("{} ({})", place.2, says(job))).collect();
            let mut left = Vec::new();
            for (name, way) in &self.workers {
                for resource in ["batch/jobs", "kueue.x-k8s.io/workloads"] {
                    let all = way.memory().all(resource);
                    left.extend(
                        all.iter()
                            .filter(|(_, it)| is_ours(it))
                            .map(|(place, _)| format!("{name}: {}", place.2)),
                    );
                }
            }
            self.violations.insert(format!("not over in the end: open {open:?}, left {left:?}"));
        }
        for (name, way) in &self.workers {
            for resource in ["batch/jobs", "kueue.x-k8s.io/workloads"] {
                let theirs = way.memory().get(&place_of(resource, NAMESPACE, "theirs")).cloned();
                if theirs
                    .is_none_or(|it| it["metadata"]["resourceVersion"] != it["metadata"]["labels"]["version"])
                {
                    self.violations.insert(format!("{name}: somebody else's {resource} was touched"));
                }
            }
        }
    }
}
