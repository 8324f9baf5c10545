//! What goes wrong, and what people do: users submit and delete, others delete and change what is not theirs.

use std::{collections::BTreeMap, sync::Arc};

use rules::framework::pod::{GROUP_NAME, GROUP_TOTAL_COUNT};
use serde_json::{Value, json};
use tracing::info;

use super::{
    NAMESPACE, WORKERS, World, is_finished, is_ours,
    judge::has_finished,
    memory::{JOBS, PODS, Place, WORKLOADS},
    place_of,
};

/// How many things users submit in one run.
const SUBMITTED: u64 = 12;
/// How many pods a group has.
pub(super) const MEMBERS: usize = 2;
/// The queue of everything.
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

impl World {
    /// Something goes wrong, or somebody does something.
    pub(super) fn mischief(&mut self) {
        let at = self.clock.now();
        for name in passed(&mut self.thaws) {
            info!(%at, worker = name, "thaws");
            self.workers[name].freeze(false);
        }
        for name in passed(&mut self.wakes) {
            info!(%at, worker = name, "controllers go on");
        }
        if let Some(left) = self.starts.take() {
            if left > 1 {
                self.starts = Some(left - 1);
            } else {
                self.start();
            }
        }
        self.returns.iter_mut().for_each(|(left, _)| *left -= 1);
        for (_, place) in self.returns.extract_if(.., |(left, _)| *left == 0).collect::<Vec<_>>() {
            self.set_active(&place, true);
        }
        if self.submitted < SUBMITTED && self.random.happens(30) {
            self.submit();
        }
        let worker = WORKERS[usize::try_from(self.random.below(2)).unwrap_or(0)];
        if self.random.happens(self.climate.freezes) && self.thaws.is_empty() {
            info!(%at, worker, "freezes");
            self.workers[worker].freeze(true);
            self.thaws.insert(worker, 1 + self.random.below(400));
        }
        if self.random.happens(self.climate.naps) && self.wakes.is_empty() {
            info!(%at, worker, "controllers pause");
            self.wakes.insert(worker, 1 + self.random.below(200));
        }
        if self.random.happens(self.climate.kills) && self.operator.is_some() {
            info!(%at, "the operator is killed");
            self.operator = None;
            self.starts = Some(1 + self.random.below(100));
        }
        if self.random.happens(self.climate.deletes) {
            self.delete_a_job();
        }
        if self.random.happens(self.climate.deactivations) {
            self.evict_a_workload();
        }
        if self.random.happens(self.climate.vandals) {
            self.vandalise(worker);
        }
        if self.random.happens(self.climate.meddlers) {
            self.meddle();
        }
    }

    /// A Job, a pod, or a group of pods.
    fn submit(&mut self) {
        self.submitted += 1;
        let number = self.submitted;
        match number % 3 {
            1 if self.climate.pods => self.create_pod(&format!("pod-{}", number % 2), None),
            2 if self.climate.pods => self.create_group(&format!("group-{}", number % 2)),
            _ => self.create_job(&format!("job-{}", number % 5)),
        }
    }

    fn create_job(&mut self, name: &str) {
        info!(at = %self.clock.now(), job = name, "is submitted");
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE: "team"}},
            "spec": {
                "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "parallelism": 1, "completions": 2,
                "completionMode": "NonIndexed", "backoffLimit": 0, "template": {"spec": pod_spec()},
            },
        });
        if self.submitted % 10 * 100 < self.climate.elastic {
            job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/elastic-job": "true"});
        }
        // A Job of that name may still be there.
        let _ = self.manager.memory().create(place_of(JOBS, NAMESPACE, name), job);
    }

    /// A pod, which may be of a group that a number tells from earlier ones of its name.
    fn create_pod(&mut self, name: &str, group: Option<(&str, u64)>) {
        info!(at = %self.clock.now(), pod = name, "is submitted");
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QUEUE: "team"}},
            "spec": pod_spec(),
        });
        if let Some((group, _)) = group {
            pod["metadata"]["labels"][GROUP_NAME] = json!(group);
            pod["metadata"]["annotations"] = json!({GROUP_TOTAL_COUNT: MEMBERS.to_string()});
        }
        let created = self.manager.memory().create(place_of(PODS, NAMESPACE, name), pod);
        // A pod of that name may still be there.
        let Ok(pod) = created else { return };
        if let (Some((_, number)), Some(uid)) = (group, pod["metadata"]["uid"].as_str()) {
            self.groups.insert(uid.to_owned(), number);
        }
    }

    fn create_group(&mut self, name: &str) {
        if self.members().contains_key(name) {
            return;
        }
        for member in 0..MEMBERS {
            self.create_pod(&format!("{name}-{member}"), Some((name, self.submitted)));
        }
    }

    /// The pods of each group that users see.
    pub(super) fn members(&self) -> BTreeMap<String, Vec<Arc<Value>>> {
        let mut groups: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
        for (_, pod) in self.manager.memory().all(PODS) {
            if let Some(group) = pod["metadata"]["labels"][GROUP_NAME].as_str() {
                groups.entry(group.to_owned()).or_default().push(Arc::clone(&pod));
            }
        }
        groups
    }

    /// Groups that have fewer pods than they should, with their numbers: a pod failed, or was deleted. A group whose Workload
    /// has ended needs none, and one whose Workload goes is to go, too.
    pub(super) fn incomplete_groups(&self) -> Vec<(String, u64)> {
        let leaves = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
        let incomplete = self.members().into_iter().filter_map(|(name, pods)| {
            let workload = self.manager.memory().get(&place_of(WORKLOADS, NAMESPACE, &name)).cloned();
            let is_wanted = match workload {
                Some(workload) => !leaves(&workload) && !has_finished(&workload),
                None => pods.iter().any(|pod| !leaves(pod)),
            };
            let counts = |pod: &&Arc<Value>| !leaves(pod) && pod["status"]["phase"] != "Failed";
            let lacks = pods.iter().filter(counts).count() < MEMBERS;
            let uid = pods.first()?["metadata"]["uid"].as_str()?;
            (is_wanted && lacks).then_some((name, *self.groups.get(uid)?))
        });
        incomplete.collect()
    }

    /// Users replace pods that their groups lack, sooner or later.
    pub(super) fn complete_groups(&mut self) {
        for (name, number) in self.incomplete_groups() {
            if self.random.happens(50) {
                self.replaced += 1;
                self.create_pod(&format!("{name}-r{}", self.replaced), Some((&name, number)));
            }
        }
    }

    /// Of a group, one pod is deleted, or all of it: with its Workload, which would wait for other pods.
    fn delete_a_job(&mut self) {
        let mut jobs = self.manager.memory().all(JOBS);
        jobs.extend(self.manager.memory().all(PODS));
        let Some((place, job)) = self.pick(jobs) else { return };
        let group = &job["metadata"]["labels"][GROUP_NAME];
        let mut deleted = vec![place.clone()];
        if group.is_string() && self.random.happens(500) {
            let pods = self.manager.memory().all(PODS);
            let of_group =
                pods.into_iter().filter(|(_, pod)| pod["metadata"]["labels"][GROUP_NAME] == *group);
            deleted = of_group.map(|(place, _)| place).collect();
            deleted.push(place_of(WORKLOADS, NAMESPACE, group.as_str().unwrap_or_default()));
        }
        for place in deleted {
            info!(at = %self.clock.now(), job = place.2, "is deleted");
            // It may be gone.
            let _ = self.manager.memory().delete(&place, &json!({"propagationPolicy": "Background"}), false);
        }
        if place.0 == JOBS && self.random.happens(600) {
            self.create_job(&place.2);
        }
    }

    /// As preemption does it: by the operator's own core, which is asked by deactivating, mostly for a moment only.
    fn evict_a_workload(&mut self) {
        let workloads = self.manager.memory().all(WORKLOADS);
        if let Some((place, workload)) = self.pick(workloads) {
            let active = workload["spec"]["active"] == false;
            self.set_active(&place, active);
            if !active && self.random.happens(700) {
                self.returns.push((1 + self.random.below(10), place));
            }
        }
    }

    pub(super) fn set_active(&self, place: &Place, active: bool) {
        info!(at = %self.clock.now(), workload = place.2, active, "is changed");
        self.manager.memory().change(place, |object| object["spec"]["active"] = json!(active));
    }

    /// Somebody on a worker deletes what belongs to others: a Job as `kubectl` does, so that its pods go after it.
    fn vandalise(&mut self, worker: &'static str) {
        let way = self.workers[worker].clone();
        let mut ours = way.memory().all(WORKLOADS);
        ours.extend(way.memory().all(JOBS));
        // Whoever deletes a Job that has ended takes its end away, and it runs again.
        ours.retain(|(_, object)| is_ours(object) && !is_finished(object));
        if let Some((place, _)) = self.pick(ours) {
            info!(at = %self.clock.now(), worker, what = place.2, "is vandalised");
            // It is there: it was just listed.
            let _ = way.memory().delete(&place, &json!({"propagationPolicy": "Background"}), false);
        }
    }

    /// Somebody deletes a Workload on the manager, or makes its Job another one.
    fn meddle(&mut self) {
        let at = self.clock.now();
        if self.random.happens(500) {
            let workloads = self.manager.memory().all(WORKLOADS);
            if let Some((place, _)) = self.pick(workloads) {
                info!(%at, workload = place.2, "is deleted");
                // It is there: it was just listed.
                let _ = self.manager.memory().delete(&place, &json!({}), false);
            }
            return;
        }
        let mut jobs = self.manager.memory().all(JOBS);
        jobs.retain(|(_, job)| !is_finished(job));
        if let Some((place, job)) = self.pick(jobs) {
            let parallelism = if job["spec"]["parallelism"] == 1 { 2 } else { 1 };
            info!(%at, job = place.2, parallelism, "is changed");
            self.manager.memory().change(&place, |job| job["spec"]["parallelism"] = json!(parallelism));
        }
    }

    fn pick(&mut self, from: Vec<(Place, Arc<Value>)>) -> Option<(Place, Arc<Value>)> {
        let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
        let index = usize::try_from(self.random.below(count)).ok()?;
        from.into_iter().nth(index)
    }
}

/// What a pod is to do.
fn pod_spec() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"restartPolicy": "Never", "containers": [container]})
}

/// Those whose time has come, after one more moment.
fn passed(waiting: &mut BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    for left in waiting.values_mut() {
        *left -= 1;
    }
    let over: Vec<&'static str> =
        waiting.iter().filter(|(_, left)| **left == 0).map(|(name, _)| *name).collect();
    waiting.retain(|_, left| *left > 0);
    over
}
