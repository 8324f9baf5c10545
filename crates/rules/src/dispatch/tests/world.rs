//! A small world at random: a manager with its core, two workers with theirs, watches that lag, answers that are lost,
//! requests that arrive late, clusters that go away and come back. In all of it plans are carried out as they are made.

use std::{collections::BTreeMap, sync::Arc};

use kube_core::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};
use types::kueue::{CheckState, Workload};

use super::fixture::{CHECK, ORIGIN, complete, job, now, running, set, workload};
use crate::dispatch::{
    Check, ClusterName, Link, Observed, Plan, Policy, Remote, Step, adapter, condition, copy, decide, local,
    observed, plan::Pods,
};

const CLUSTERS: [&str; 2] = ["east", "west"];

/// What is, and what was last seen of it.
struct World {
    local: Workload,
    job: DynamicObject,
    seen: (Arc<Workload>, Arc<DynamicObject>),
    workers: BTreeMap<&'static str, Worker>,
    version: u64,
}

#[derive(Default)]
struct Worker {
    workload: Option<Workload>,
    job: Option<DynamicObject>,
    pods: u32,
    /// Mirrors that were sent and have not arrived.
    late: Vec<DynamicObject>,
    seen: Remote,
    lost: bool,
}

impl World {
    fn new() -> World {
        let (local, job) = (workload(), job());
        let seen = (Arc::new(local.clone()), Arc::new(job.clone()));
        World {
            local,
            job,
            seen,
            workers: CLUSTERS.map(|name| (name, Worker::default())).into(),
            version: 10,
        }
    }

    fn observed(&self) -> Observed {
        let status = self.seen.0.status.as_ref().expect("a status");
        let remotes = self.workers.iter().map(|(name, worker)| {
            let link =
                if worker.lost { Link::Lost { since: now(), given_up: false } } else { Link::Connected };
            (ClusterName::from(*name), Remote { link, ..worker.seen.clone() })
        });
        Observed {
            local: Some(self.seen.0.clone()),
            check: Some(Check { name: CHECK.to_owned(), state: status.admission_checks[0].state }),
            job: Some(self.seen.1.clone()),
            others: Vec::new(),
            is_enabled: true,
            configured: CLUSTERS.map(ClusterName::from).to_vec(),
            remotes: remotes.collect(),
        }
    }

    fn plan(&self) -> Plan {
        decide(&self.observed(), &Policy::default(), now())
    }

    /// Does something. The first number says what, the second where or how.
    fn act(&mut self, what: u8, how: u8) {
        let name = CLUSTERS[usize::from(how % 2)];
        match what {
            0 => self.tell_manager(),
            1 => self.tell(name),
            2 | 3 => self.lead(),
            4..=6 => self.carry_out(name, how / 2),
            7 | 8 => self.core(),
            9 => self.preempt(),
            10 | 11 => self.worker(name).admit_or_start(),
            12 => self.worker(name).evict(),
            13 => self.worker(name).finish(),
            14 => self.lose_or_return(name),
            15 => self.arrive(name),
            16 => self.worker(name).reap(),
            17 => self.restart(),
            _ => self.go_on(how),
        }
        let with_pods = self.workers.iter().filter(|(_, worker)| worker.pods > 0).count();
        assert!(with_pods <= 1, "pods run on two clusters");
    }

    /// Most of what has to happen next happens.
    fn go_on(&mut self, but: u8) {
        for (i, (what, how)) in
            [(7, 0), (0, 0), (1, 0), (1, 1), (2, 0), (4, 0), (4, 1), (10, 0), (10, 1)].into_iter().enumerate()
        {
            if i != usize::from(but) + 2 {
                self.act(what, how);
            }
        }
    }

    fn worker(&mut self, name: &str) -> &mut Worker {
        self.workers.get_mut(name).expect("a worker")
    }

    fn tell_manager(&mut self) {
        self.seen = (Arc::new(self.local.clone()), Arc::new(self.job.clone()));
    }

    fn tell(&mut self, name: &str) {
        let worker = self.worker(name);
        if !worker.lost {
            worker.seen.workload = worker.workload.clone().map(Arc::new);
            worker.seen.job = worker.job.clone().map(Arc::new);
        }
    }

    /// The steps on the manager: each write fails if somebody else wrote since.
    fn lead(&mut self) {
        let plan = self.plan();
        let steps: Vec<&Step> = plan.on_manager().collect();
        for step in &steps {
            if let Step::Mirror { status, .. } | Step::Settle(status) = step
                && self.seen.1.metadata.resource_version == self.job.metadata.resource_version
            {
                self.write_job(|job| job.data["status"] = status.clone());
                self.seen.1 = Arc::new(self.job.clone());
            }
        }
        let next = local::apply(&self.seen.0, CHECK, &steps, now());
        if local::patch(&self.seen.0, &next).is_some()
            && self.seen.0.metadata.resource_version == self.local.metadata.resource_version
        {
            self.write(|local| *local = next);
            self.seen.0 = Arc::new(self.local.clone());
        }
    }

    /// The steps on a worker. Answers may be lost, and mirrors may arrive late.
    fn carry_out(&mut self, name: &str, how: u8) {
        let (plan, seen) = (self.plan(), self.seen.clone());
        let steps: Vec<Step> = plan.on(name).cloned().collect();
        self.version += 1;
        let uid = format!("uid-{}", self.version);
        let worker = self.worker(name);
        if worker.lost {
            return;
        }
        for step in steps {
            worker.take(&step, &seen, &uid, how % 3 == 1);
        }
        if how % 3 != 2 {
            self.tell(name);
        }
    }

    fn lose_or_return(&mut self, name: &str) {
        let worker = self.worker(name);
        worker.lost = !worker.lost;
        worker.seen.read_at = None;
        self.tell(name);
    }

    fn arrive(&mut self, name: &str) {
        let worker = self.worker(name);
        if let Some(mirror) = worker.late.pop()
            && worker.job.is_none()
        {
            worker.job = Some(mirror);
        }
    }

    fn restart(&mut self) {
        self.tell_manager();
        for name in CLUSTERS {
            self.worker(name).seen = Remote::default();
            self.tell(name);
        }
    }

    fn write(&mut self, change: impl FnOnce(&mut Workload)) {
        change(&mut self.local);
        self.version += 1;
        self.local.metadata.resource_version = Some(self.version.to_string());
    }

    fn write_job(&mut self, change: impl FnOnce(&mut DynamicObject)) {
        change(&mut self.job);
        self.version += 1;
        self.job.metadata.resource_version = Some(self.version.to_string());
    }

    /// What the manager's core does next: quota, eviction, start and end.
    fn core(&mut self) {
        if condition::is_true(&self.local, "Finished") {
            return;
        }
        let is = |kind: &str| condition::is_true(&self.local, kind);
        let state = self.local.status.as_ref().expect("a status").admission_checks[0].state;
        let suspended = self.job.data["spec"]["suspend"] == true;
        let active = self.job.data["status"]["active"].as_i64().unwrap_or(0);
        if adapter::job().is_finished(&self.job.data) {
            self.write(|local| set(local, "Finished", "Succeeded"));
        } else if is("QuotaReserved") && is("Evicted") && !suspended {
            self.write_job(|job| job.data["spec"]["suspend"] = json!(true));
        } else if is("QuotaReserved") && is("Evicted") && active == 0 {
            self.write(|local| clear(local, "QuotaReserved"));
        } else if !is("QuotaReserved") && suspended {
            self.write(|local| {
                clear(local, "Evicted");
                set(local, "QuotaReserved", "QuotaReserved");
            });
        } else if is("QuotaReserved") && state == CheckState::Retry {
            self.preempt();
        } else if is("QuotaReserved") && state == CheckState::Ready && suspended && !is("Evicted") {
            self.write_job(|job| job.data["spec"]["suspend"] = json!(false));
        }
    }

    fn preempt(&mut self) {
        if condition::is_true(&self.local, "QuotaReserved") && !condition::is_true(&self.local, "Finished") {
            self.write(|local| {
                set(local, "Evicted", "Preempted");
                let status = local.status.as_mut().expect("a status");
                status.admission_checks[0].state = CheckState::Pending;
                status.cluster_name = None;
                status.nominated_cluster_names.clear();
            });
        }
    }

    /// Everything goes on as it should.
    fn calm(&mut self) {
        for _ in 0..200 {
            let is_empty =
                |worker: &Worker| worker.workload.is_none() && worker.job.is_none() && worker.late.is_empty();
            if condition::is_true(&self.local, "Finished") && self.workers.values().all(is_empty) {
                break;
            }
            for name in CLUSTERS {
                if self.worker(name).lost {
                    self.act(14, u8::from(name == "west"));
                }
            }
            for (what, how) in [
                (0, 0),
                (1, 0),
                (1, 1),
                (2, 0),
                (4, 0),
                (4, 1),
                (7, 0),
                (10, 0),
                (10, 1),
                (15, 0),
                (15, 1),
                (16, 0),
                (16, 1),
            ] {
                self.act(what, how);
            }
            for (name, how) in [("east", 0), ("west", 1)] {
                let chosen =
                    self.local.status.as_ref().expect("a status").cluster_name.as_deref() == Some(name);
                let runs = self.job.data["spec"]["suspend"] == false && self.worker(name).pods > 0;
                if chosen && runs {
                    self.act(13, how);
                }
            }
        }
    }
}

impl Worker {
    fn take(&mut self, step: &Step, seen: &(Arc<Workload>, Arc<DynamicObject>), uid: &str, late: bool) {
        match step {
            Step::Create(_) => {
                self.seen.read_at = None;
                if self.workload.is_none() {
                    let mut copy = copy::workload(&seen.0, ORIGIN);
                    copy.metadata.uid = Some(uid.to_owned());
                    self.workload = Some(copy);
                }
            }
            Step::Start(_) => {
                self.seen.read_at = None;
                let mut mirror = copy::mirror(adapter::job(), &seen.1, &seen.0, ORIGIN);
                mirror.metadata.uid = Some(uid.to_owned());
                if late {
                    self.late.push(mirror);
                } else if self.job.is_none() {
                    self.job = Some(mirror);
                }
            }
            Step::Delete(_, pods) => {
                let same_job = uid_of(self.seen.job.as_deref().map(|job| &job.metadata))
                    == uid_of(self.job.as_ref().map(|job| &job.metadata));
                let same_copy = uid_of(self.seen.workload.as_deref().map(|copy| &copy.metadata))
                    == uid_of(self.workload.as_ref().map(|copy| &copy.metadata));
                if same_job && (*pods == Pods::After || self.pods == 0) {
                    self.job = None;
                } else if same_job && let Some(job) = &mut self.job {
                    job.metadata.deletion_timestamp = job.metadata.deletion_timestamp.take().or_else(|| {
                        let time = condition::time(now());
                        Some(time)
                    });
                }
                if self.job.is_none() && same_copy {
                    self.workload = None;
                }
            }
            Step::Deactivate(_, _) => {
                if let Some(copy) = &mut self.workload {
                    set(copy, "DeactivationTarget", "EvictedOnManagerCluster");
                }
            }
            // A read is certain only when nothing can arrive any more.
            Step::Look(_) => {
                self.seen.workload = self.workload.clone().map(Arc::new);
                self.seen.job = self.job.clone().map(Arc::new);
                self.seen.read_at = self.late.is_empty().then(now);
            }
            Step::Refuse(..) | Step::Update(..) | Step::Forward(..) => {}
            step => panic!("{step} is not for a worker"),
        }
    }

    fn admit_or_start(&mut self) {
        let Some(copy) = &mut self.workload else { return };
        if condition::is_true(copy, "Finished") {
            return;
        }
        if condition::is_true(copy, "DeactivationTarget") {
            self.evict();
            return;
        }
        if !condition::is_true(copy, "Admitted") {
            clear(copy, "Evicted");
            set(copy, "Admitted", "Admitted");
            return;
        }
        let linked = |job: &DynamicObject| observed::link(&job.metadata) == copy.metadata.name.as_deref();
        if let Some(job) =
            self.job.as_mut().filter(|job| linked(job) && job.metadata.deletion_timestamp.is_none())
            && job.data["spec"]["suspend"] == true
        {
            job.data["spec"]["suspend"] = json!(false);
            job.data["status"] = running();
            self.pods = 2;
        }
    }

    fn evict(&mut self) {
        let Some(copy) = self.workload.as_mut().filter(|copy| condition::is_true(copy, "Admitted")) else {
            return;
        };
        if condition::is_true(copy, "Finished") {
            return;
        }
        if condition::is_true(copy, "DeactivationTarget") {
            copy.spec.active = Some(false);
        }
        clear(copy, "Admitted");
        set(copy, "Evicted", "Preempted");
        if let Some(job) = &mut self.job {
            job.data["spec"]["suspend"] = json!(true);
        }
    }

    fn finish(&mut self) {
        let runs = |job: &&mut DynamicObject| job.data["spec"]["suspend"] == false;
        if let (Some(copy), Some(job)) = (&mut self.workload, self.job.as_mut().filter(runs)) {
            job.data["status"] = complete();
            set(copy, "Finished", "Succeeded");
            self.pods = 0;
        }
    }

    /// Pods of a Job that is suspended, deleted or gone end.
    fn reap(&mut self) {
        let deleted = self.job.as_ref().is_some_and(|job| job.metadata.deletion_timestamp.is_some());
        match &mut self.job {
            None => self.pods = 0,
            Some(_) if deleted => (self.pods, self.job) = (0, None),
            Some(job) if job.data["spec"]["suspend"] == true => {
                self.pods = 0;
                if job.data["status"].is_object() {
                    job.data["status"]["active"] = json!(0);
                    job.data["status"]["ready"] = json!(0);
                    let suspended = json!({"type": "Suspended", "status": "True"});
                    job.data["status"]["conditions"] = json!([suspended]);
                    job.data["status"].as_object_mut().expect("a status").remove("startTime");
                }
            }
            Some(_) => {}
        }
    }
}

fn clear(workload: &mut Workload, kind: &str) {
    workload.status.get_or_insert_default().conditions.retain(|condition| condition.type_ != kind);
}

fn uid_of(metadata: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>) -> Option<&str> {
    metadata.and_then(|metadata| metadata.uid.as_deref())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Whatever happens in which order: never on two clusters at once, and in the end it ends, and nothing is left.
    #[test]
    fn never_twice_and_never_lost(actions in prop::collection::vec((0..30_u8, 0..6_u8), 0..120)) {
        let mut world = World::new();
        for (what, how) in actions {
            world.act(what, how);
        }
        world.calm();
        prop_assert!(adapter::job().is_finished(&world.job.data), "{}\n{}", world.plan(), serde_json::to_string(&world.local.status).expect("JSON"));
        prop_assert!(condition::is_true(&world.local, "Finished"));
        for (name, worker) in &world.workers {
            prop_assert!(worker.workload.is_none() && worker.job.is_none() && worker.pods == 0, "{name}: {}", world.plan());
        }
    }

    /// Plans come to rest: carried out while nothing else happens, they leave nothing to do.
    #[test]
    fn deciding_again_after_applying_changes_nothing(actions in prop::collection::vec((0..30_u8, 0..6_u8), 0..60)) {
        let mut world = World::new();
        for (what, how) in actions {
            world.act(what, how);
        }
        for name in CLUSTERS {
            world.worker(name).late.clear();
        }
        for _ in 0..12 {
            for (what, how) in [(0, 0), (1, 0), (1, 1), (2, 0), (4, 0), (4, 1), (16, 0), (16, 1), (0, 0), (1, 0), (1, 1)] {
                world.act(what, how);
            }
        }
        let rest = world.plan();
        prop_assert!(rest.steps.is_empty(), "{rest}");
    }
}

#[test]
fn a_world_in_which_nothing_goes_wrong() {
    let mut world = World::new();
    world.calm();
    let status: Value = world.job.data["status"].clone();
    assert_eq!(status["succeeded"], 2);
}
