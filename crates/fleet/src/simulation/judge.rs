//! What must never happen, and what must be true in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
};

use serde_json::Value;

use super::{
    NAMESPACE, World, is_finished, is_ours,
    memory::{JOBS, PODS, Place, WORKLOADS},
    mischief::MEMBERS,
    network::Way,
    place_of,
    worker::condition,
};

/// What a worker may have of ours.
const OF_WORKERS: [&str; 3] = [JOBS, PODS, WORKLOADS];

impl World {
    /// Nothing happened that must never happen.
    pub(super) fn check(&mut self) {
        let mut where_pods_are: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
        for (cluster, pods) in self.pods.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (_, of) in pods.values() {
                let group = self.groups.get(of).map(|number| format!("group {number}"));
                where_pods_are.entry(group.unwrap_or_else(|| of.clone())).or_default().insert(cluster);
            }
        }
        for (of, clusters) in where_pods_are.iter().filter(|(_, clusters)| clusters.len() > 1) {
            self.violations.insert(format!("the pods of {of} run on {clusters:?} at once"));
        }
        self.check_ends();
        self.check_ends_of_groups();
        for (_, job) in self.submitted_objects() {
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

    /// What has ended on a worker stays there until the manager has recorded it.
    fn check_ends(&mut self) {
        let mut ended = BTreeMap::new();
        for (name, way) in &self.workers {
            for (place, mirror) in submitted_objects(way) {
                let of = origin(&mirror).filter(|of| !self.groups.contains_key(*of));
                if let Some(of) = of.filter(|_| has_ended_by_itself(&mirror)) {
                    ended.insert((*name, place), of.to_owned());
                }
            }
        }
        for ((cluster, place), of) in std::mem::replace(&mut self.ended_there, ended) {
            let is_gone = self.workers[cluster].memory().get(&place).is_none();
            if is_gone && self.wanted(&of).is_some_and(|job| !is_finished(&job)) {
                self.violations.insert(format!(
                    "{of} ended on {cluster} and was removed there before its end was recorded"
                ));
            }
        }
    }

    /// The same for groups. A pod that has ended may run again as long as its group has not.
    fn check_ends_of_groups(&mut self) {
        let mut ended: BTreeMap<(&'static str, u64), BTreeSet<String>> = BTreeMap::new();
        let mut there: BTreeSet<(&'static str, String)> = BTreeSet::new();
        for (name, way) in &self.workers {
            for (_, mirror) in way.memory().all(PODS) {
                let Some(of) = origin(&mirror) else { continue };
                there.insert((name, of.to_owned()));
                if let Some(number) = self.groups.get(of).filter(|_| mirror["status"]["phase"] == "Succeeded")
                {
                    ended.entry((name, *number)).or_default().insert(of.to_owned());
                }
            }
        }
        ended.retain(|_, pods| pods.len() == MEMBERS);
        for ((cluster, number), pods) in std::mem::replace(&mut self.ended_groups, ended) {
            let stay: Vec<Arc<Value>> = pods.iter().filter_map(|of| self.wanted(of)).collect();
            let is_gone = pods.iter().any(|of| !there.contains(&(cluster, of.clone())));
            if is_gone && stay.len() == pods.len() && !stay.iter().all(|pod| is_finished(pod)) {
                self.violations.insert(format!(
                    "group {number} ended on {cluster} and was removed there before its end was recorded"
                ));
            }
        }
    }

    /// Jobs and pods of users.
    pub(super) fn submitted_objects(&self) -> Vec<(Place, Arc<Value>)> {
        submitted_objects(&self.manager)
    }

    /// The Job or the pod on the manager that has this uid.
    pub(super) fn manager_job(&self, uid: &str) -> Option<Arc<Value>> {
        let all = self.submitted_objects();
        all.into_iter().map(|(_, job)| job).find(|job| job["metadata"]["uid"] == *uid)
    }

    /// The same, unless its user has deleted it.
    fn wanted(&self, uid: &str) -> Option<Arc<Value>> {
        self.manager_job(uid).filter(|job| job["metadata"]["deletionTimestamp"].is_null())
    }

    /// Jobs and pods that have not ended, or that are held although they have, unless they are deactivated. A pod that never
    /// ran may have come to its group after that had ended.
    fn open(&self) -> Vec<(Place, Arc<Value>)> {
        let workloads = self.manager.memory().all(WORKLOADS);
        let is_deactivated = |job: &Value| {
            workloads.iter().any(|(_, it)| is_workload_of(it, job) && it["spec"]["active"] == false)
        };
        let is_held =
            |job: &Value| job["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let is_late = |job: &Value| {
            let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
            let mut its = workloads.iter().filter(|(_, it)| is_workload_of(it, job));
            self.groups.contains_key(uid) && !self.ran.contains(uid) && its.any(|(_, it)| has_finished(it))
        };
        let is_done =
            |job: &Value| (is_finished(job) || is_late(job)) && !is_held(job) || is_deactivated(job);
        let mut open = self.submitted_objects();
        open.retain(|(_, job)| !is_done(job));
        open
    }

    /// Whether every Job has ended and every worker is empty.
    pub(super) fn is_over(&self) -> bool {
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
            !OF_WORKERS.iter().any(|resource| of(resource))
        };
        self.open().is_empty() && self.incomplete_groups().is_empty() && self.workers.values().all(is_clean)
    }

    pub(super) fn judge_the_end(&mut self) {
        if !self.is_over() {
            let workloads = self.manager.memory().all(WORKLOADS);
            let says = |job: &Value| {
                let is_its = |it: &&(Place, Arc<Value>)| is_workload_of(&it.1, job);
                workloads.iter().find(is_its).map_or(Value::Null, |(_, it)| it["status"].clone())
            };
            let open = self.open();
            let open: Vec<String> =
                open.iter().map(|(place, job)| format!("{} ({})", place.2, says(job))).collect();
            let mut left = Vec::new();
            for (name, way) in &self.workers {
                for resource in OF_WORKERS {
                    let all = way.memory().all(resource);
                    left.extend(
                        all.iter()
                            .filter(|(_, it)| is_ours(it))
                            .map(|(place, _)| format!("{name}: {}", place.2)),
                    );
                }
            }
            let incomplete = self.incomplete_groups();
            self.violations.insert(format!(
                "not over in the end: open {open:?}, left {left:?}, incomplete {incomplete:?}"
            ));
        }
        for (name, way) in &self.workers {
            for resource in [JOBS, WORKLOADS] {
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

/// The Jobs and pods of a cluster.
fn submitted_objects(way: &Way) -> Vec<(Place, Arc<Value>)> {
    let memory = way.memory();
    [memory.all(JOBS), memory.all(PODS)].concat()
}

/// The uid of what a mirror is of.
fn origin(mirror: &Value) -> Option<&str> {
    mirror["metadata"]["annotations"]["kueue.x-k8s.io/multikueue-origin-uid"].as_str()
}

/// A pod that is deleted fails, which is no end of what it mirrors.
fn has_ended_by_itself(mirror: &Value) -> bool {
    let is_deleted_pod = mirror["kind"] == "Pod" && mirror["metadata"]["deletionTimestamp"].is_string();
    is_finished(mirror) && !is_deleted_pod
}

/// Whether a Workload has ended.
pub(super) fn has_finished(workload: &Value) -> bool {
    condition(workload, "Finished") == Some("True")
}

fn is_workload_of(workload: &Value, job: &Value) -> bool {
    let mut owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["uid"] == job["metadata"]["uid"])
}
