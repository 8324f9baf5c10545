mod deleted;
mod elastic;
mod matching;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use types::kueue::{ResourceFlavor, Workload};

use super::*;
use crate::framework::{
    plan::{self, Plan, Seen, Settings, Step, decide},
    priority::Classes,
};
use crate::workload::{change, conditions, state};

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// A Job, its Workloads and everything around them; every step is carried out at once.
struct Life {
    job: Job,
    workloads: Vec<Arc<Workload>>,
    prebuilt: Option<Arc<Workload>>,
    pods: Vec<Pod>,
    settings: Settings,
    classes: Vec<(&'static str, i32)>,
    now: Timestamp,
    told: Vec<String>,
}

fn life() -> Life {
    let job = json!({
        "metadata": {
            "name": "name", "namespace": "ns", "uid": "uid",
            "labels": { "kueue.x-k8s.io/queue-name": "lq" },
        },
        "spec": {
            "parallelism": 3, "completions": 3, "suspend": true,
            "template": {
                "metadata": { "labels": {
                    "app": "x", "job-name": "name", "controller-uid": "uid",
                    "batch.kubernetes.io/job-name": "name", "batch.kubernetes.io/controller-uid": "uid",
                } },
                "spec": { "restartPolicy": "Never", "nodeSelector": { "disk": "ssd" }, "containers": [
                    { "name": "c", "image": "i", "env": [
                        { "name": "A", "value": "1" }, { "name": "B", "value": "2" }, { "name": "A", "value": "3" },
                    ] },
                ] },
            },
        },
    });
    Life {
        job: from(job),
        workloads: Vec::new(),
        prebuilt: None,
        pods: Vec::new(),
        settings: Settings::default(),
        classes: Vec::new(),
        now: "2026-01-01T00:00:10Z".parse().expect("a time"),
        told: Vec::new(),
    }
}

fn flavor(name: &str) -> Option<Arc<ResourceFlavor>> {
    let flavor = json!({ "metadata": { "name": name }, "spec": {
        "nodeLabels": { "zone": name },
        "tolerations": [{ "key": "spot", "operator": "Exists" }],
    } });
    (name != "missing").then(|| Arc::new(from(flavor)))
}

impl Life {
    fn plan(&self) -> Plan {
        let workload = |name: &str| self.classes.iter().find(|(it, _)| *it == name).map(|(_, value)| *value);
        let seen = Seen {
            job: &Batch(&self.job),
            workloads: &self.workloads,
            prebuilt: self.prebuilt.as_ref(),
            pods: &self.pods,
            flavor: &flavor,
            classes: Classes { workload: &workload, pod: &|_| None, default: None },
        };
        decide(&seen, &self.settings, self.now)
    }

    fn write(&mut self, writes: Vec<Write>) {
        for write in writes {
            let (Write::Object(next) | Write::Status(next)) = write;
            self.job = from(next);
        }
    }

    fn put(&mut self, of: &Arc<Workload>, next: Workload) {
        let all = self.workloads.iter_mut().chain(&mut self.prebuilt);
        let place = all.into_iter().find(|it| it.metadata.name == of.metadata.name).expect("the Workload");
        *place = Arc::new(next);
    }

    /// Does what is decided, as long as there is something to do, and checks what that was.
    #[track_caller]
    fn expect(&mut self, expected: &[&str]) {
        let mut done = Vec::new();
        for _ in 0..20 {
            let plan = self.plan();
            done.push(plan.to_string());
            self.told.extend(plan.events.into_iter().map(|event| event.reason));
            match plan.step {
                Step::Wait(_) | Step::Retry(_) | Step::DeleteJob => break,
                Step::Create(workload) => self.workloads.push(Arc::from(workload)),
                Step::Update { of, next, .. } => self.put(&of, *next),
                Step::Delete(of) => {
                    let mut next = Workload::clone(&of);
                    next.metadata.deletion_timestamp = Some(crate::workload::condition::time(self.now));
                    self.put(&of, next);
                }
                Step::Status { of, next, .. } => {
                    let next = Workload { status: Some(*next), ..Workload::clone(&of) };
                    self.put(&of, next);
                }
                Step::Finalize(of) => {
                    let mut next = Workload::clone(&of);
                    next.metadata.finalizers = None;
                    self.put(&of, next);
                }
                Step::Ungate { pods, .. } => {
                    let ungated = self
                        .pods
                        .iter_mut()
                        .filter(|pod| pod.metadata.name.as_ref().is_some_and(|it| pods.contains(it)));
                    ungated.filter_map(|pod| pod.spec.as_mut()).for_each(|spec| spec.scheduling_gates = None);
                }
                Step::Start { given, .. } => {
                    self.write(Batch(&self.job).started(&given).expect("a start"));
                }
                Step::Stop { restored, .. } => self.write(Batch(&self.job).stopped(restored.as_deref())),
            }
        }
        assert_eq!(done, expected);
    }

    fn change(&mut self, change: impl FnOnce(&mut Workload)) {
        let of = Arc::clone(self.prebuilt.as_ref().unwrap_or_else(|| &self.workloads[0]));
        self.change_one(&of, change);
    }

    fn change_one(&mut self, of: &Arc<Workload>, change: impl FnOnce(&mut Workload)) {
        let mut next = Workload::clone(of);
        change(&mut next);
        self.put(of, next);
    }

    fn admit(&mut self, flavor: &str) {
        let of = Arc::clone(self.prebuilt.as_ref().unwrap_or_else(|| &self.workloads[0]));
        self.admit_one(&of, flavor);
    }

    fn admit_one(&mut self, of: &Arc<Workload>, flavor: &str) {
        let now = self.now;
        self.change_one(of, |workload| {
            let count = workload.spec.pod_sets[0].count;
            let admission = json!({ "clusterQueue": "cq", "podSetAssignments": [
                { "name": "main", "flavors": { "cpu": flavor }, "resourceUsage": { "cpu": "3" }, "count": count },
            ] });
            change::reserve(workload, from(admission), now);
            change::sync_admitted(workload, now);
        });
    }

    fn template(&self) -> Value {
        serde_json::to_value(&job::spec(&self.job).template).expect("a template")
    }
}

const CREATE: &str = "create ns/job-name-ef3a1";
const WAITS: &str = "wait, because its Workload is not admitted";
const RUNS: &str = "wait, because it runs";
const START: &str = "start, because ns/job-name-ef3a1 is admitted";

fn running() -> Life {
    let mut life = life();
    life.expect(&[CREATE, WAITS]);
    life.admit("gold");
    life.expect(&[START, RUNS]);
    life
}

/// MK-QR-01.
#[test]
fn jf_11_jf_12_jf_13_jf_15_the_workload_of_a_job() {
    let mut life = life();
    life.job.metadata.annotations =
        Some([("provreq.kueue.x-k8s.io/x".into(), "y".into()), ("other".into(), "z".into())].into());
    life.job.metadata.labels.get_or_insert_default().insert("team".into(), "a".into());
    life.job
        .metadata
        .labels
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/max-exec-time-seconds".into(), "60".into());
    life.settings.copied_labels = vec!["team".into(), "absent".into()];
    life.expect(&[CREATE, WAITS]);
    let made = serde_json::to_value(&*life.workloads[0]).expect("JSON");
    assert_eq!(
        made["metadata"],
        json!({
            "name": "job-name-ef3a1", "namespace": "ns",
            "labels": { "kueue.x-k8s.io/job-uid": "uid", "team": "a" },
            "annotations": { "provreq.kueue.x-k8s.io/x": "y" },
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "name", "uid": "uid",
                "controller": true, "blockOwnerDeletion": true,
            }],
        })
    );
    let spec = &made["spec"];
    assert_eq!((&spec["queueName"], &spec["priority"]), (&json!("lq"), &json!(0)));
    assert_eq!(spec["maximumExecutionTimeSeconds"], json!(60));
    assert_eq!(spec["active"], Value::Null);
    let pods = &spec["podSets"][0];
    assert_eq!((&pods["name"], &pods["count"]), (&json!("main"), &json!(3)));
    assert_eq!(
        pods["topologyRequest"],
        json!({ "podIndexLabel": "batch.kubernetes.io/job-completion-index" })
    );
    assert_eq!(
        pods["template"]["metadata"]["labels"],
        json!({ "app": "x", "batch.kubernetes.io/job-name": "name" })
    );
    // JF-13: the last value in the first place.
    assert_eq!(
        pods["template"]["spec"]["containers"][0]["env"],
        json!([{ "name": "A", "value": "3" }, { "name": "B", "value": "2" }])
    );
    assert_eq!(life.told, ["CreatedWorkload"]);
}

/// MK-RUN-01: on the manager, too, where the flavors are the manager's.
#[test]
fn jf_50_started_jobs_get_what_their_flavor_says() {
    let life = running();
    assert_eq!(
        life.template()["metadata"],
        json!({
            "annotations": { "kueue.x-k8s.io/workload": "job-name-ef3a1" },
            "labels": {
                "app": "x", "job-name": "name", "controller-uid": "uid",
                "batch.kubernetes.io/job-name": "name", "batch.kubernetes.io/controller-uid": "uid",
                "kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/local-queue-name": "lq",
                "kueue.x-k8s.io/cluster-queue-name": "cq",
            },
        })
    );
    assert_eq!(life.template()["spec"]["nodeSelector"], json!({ "disk": "ssd", "zone": "gold" }));
    assert_eq!(life.template()["spec"]["tolerations"], json!([{ "key": "spot", "operator": "Exists" }]));
    assert_eq!(job::spec(&life.job).suspend, Some(false));
    assert_eq!(life.told, ["CreatedWorkload", "Started"]);
}

#[test]
fn sm_t4_an_evicted_job_stops_and_gives_back_its_quota_when_nothing_runs() {
    let before = life().template();
    let mut life = running();
    life.job.status = Some(from(json!({ "active": 2, "startTime": "2026-01-01T00:00:11Z" })));
    let eviction =
        change::Eviction { reason: "Preempted", cause: String::new(), message: "for another".into() };
    let now = life.now;
    life.change(|workload| {
        change::preempted(workload, "InClusterQueue", "for another", now);
        change::evict(workload, &eviction, now);
    });
    life.expect(&["stop, because for another", "wait, because it is evicted and still has active pods"]);
    assert_eq!(life.template(), before);
    assert_eq!(job::status(&life.job).start_time, None);
    assert_eq!(life.job.metadata.annotations.clone().unwrap_or_default(), [].into());
    life.job.status = None;
    life.expect(&["write quota given back to ns/job-name-ef3a1", "wait, because it is evicted"]);
    let shown: Vec<String> = conditions(&life.workloads[0])
        .iter()
        .map(|it| format!("{}={}/{}", it.type_, it.status, it.reason))
        .collect();
    assert_eq!(
        shown,
        [
            "QuotaReserved=False/Pending",
            "Admitted=False/NoReservation",
            "Preempted=True/InClusterQueue",
            "Evicted=True/Preempted",
            "Requeued=True/Preempted",
        ]
    );
    assert_eq!(life.told, ["CreatedWorkload", "Started", "Stopped"]);
    life.admit("gold");
    life.expect(&[START, RUNS]);
}

#[test]
fn jf_53_g_15_a_stop_that_was_interrupted_goes_on() {
    let before = life().template();
    let mut life = running();
    life.job.status = Some(from(json!({ "startTime": "2026-01-01T00:00:11Z" })));
    let restored = [PodSetInfo::original(&life.workloads[0].spec.pod_sets[0])];
    let writes = Batch(&life.job).stopped(Some(&restored));
    assert_eq!(writes.len(), 3);
    for done in 0..3 {
        let mut life = running();
        life.job.status = Some(from(json!({ "startTime": "2026-01-01T00:00:11Z" })));
        life.write(writes[..done].to_vec());
        assert!(!Batch(&life.job).is_suspended(), "after {done} writes");
        life.write(Batch(&life.job).stopped(Some(&restored)));
        assert_eq!(life.template(), before);
        assert!(Batch(&life.job).is_suspended() && Batch(&life.job).stopped(Some(&restored)).is_empty());
    }
}

/// MK-RUN-04, MK-WRK-08.
#[test]
fn jf_42_finished_jobs_finish_their_workload() {
    for (condition, reason) in [("Complete", "Succeeded"), ("Failed", "Failed")] {
        let mut life = running();
        life.job.status = Some(from(
            json!({ "conditions": [{ "type": condition, "status": "True", "message": "so it went" }] }),
        ));
        let finished = format!("write finished ({reason}) to ns/job-name-ef3a1");
        life.expect(&[&finished, "let go of ns/job-name-ef3a1", "wait, because its Workload has ended"]);
        let end = state::find(&life.workloads[0], "Finished").expect("the condition");
        assert_eq!((end.reason.as_str(), end.message.as_str()), (reason, "so it went"));
        assert_eq!(life.told, ["CreatedWorkload", "Started", "FinishedWorkload"]);
    }
}

#[test]
fn jf_31_a_suspended_job_that_changes_changes_its_workload() {
    let mut life = life();
    life.expect(&[CREATE, WAITS]);
    life.change(|workload| workload.spec.active = Some(false));
    life.job.spec.as_mut().expect("a spec").parallelism = Some(2);
    life.expect(&["update ns/job-name-ef3a1 in its spec", WAITS]);
    let spec = &life.workloads[0].spec;
    assert_eq!((spec.pod_sets[0].count, spec.active), (2, Some(false)));
    // What is injected or does not count makes no difference.
    let template = &mut life.job.spec.as_mut().expect("a spec").template;
    template.spec.as_mut().expect("a spec").node_selector = None;
    template.metadata = None;
    life.expect(&[WAITS]);
}

#[test]
fn jf_31_a_running_job_that_changes_starts_over() {
    let mut life = running();
    let template = &mut life.job.spec.as_mut().expect("a spec").template;
    template.spec.as_mut().expect("a spec").containers[0].image = Some("other".into());
    life.expect(&[
        "stop, because No matching Workload; restoring pod templates according to existent Workload",
        "delete ns/job-name-ef3a1",
        "let go of ns/job-name-ef3a1",
        CREATE,
        WAITS,
    ]);
}

#[test]
fn jf_17_no_workload_before_all_pods_are_gone() {
    let mut life = life();
    life.job.spec.as_mut().expect("a spec").suspend = Some(false);
    life.job.status = Some(from(json!({ "active": 1 })));
    life.expect(&[
        "stop, because Missing Workload; unable to restore pod templates",
        "wait, because it still has active pods",
    ]);
    life.job.status = None;
    life.expect(&[CREATE, WAITS]);
}

#[test]
fn jf_33_priority_follows_the_label() {
    let mut life = life();
    life.job
        .metadata
        .labels
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/priority-class".into(), "low".into());
    life.expect(&["try again, because WorkloadPriorityClass low not found"]);
    life.classes = vec![("low", 5), ("high", 50)];
    life.expect(&[CREATE, WAITS]);
    assert_eq!(life.workloads[0].spec.priority, Some(5));
    life.admit("gold");
    life.expect(&[START, RUNS]);
    life.job
        .metadata
        .labels
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/priority-class".into(), "high".into());
    life.expect(&["update ns/job-name-ef3a1 in its priority", RUNS]);
    assert_eq!(life.workloads[0].spec.priority, Some(50));
    // One that reserved quota without any class cannot be given one.
    let mut life = running();
    life.classes = vec![("low", 5)];
    life.job
        .metadata
        .labels
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/priority-class".into(), "low".into());
    life.expect(&[RUNS]);
}

#[test]
fn jf_36_a_new_queue_goes_to_the_workload() {
    let mut life = life();
    life.expect(&[CREATE, WAITS]);
    life.job
        .metadata
        .labels
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/queue-name".into(), "other".into());
    life.expect(&["update ns/job-name-ef3a1 in its queue", WAITS]);
    assert_eq!(life.workloads[0].spec.queue_name.as_deref(), Some("other"));
}

#[test]
fn jf_40_a_running_job_that_is_not_admitted_stops() {
    let mut life = life();
    life.expect(&[CREATE, WAITS]);
    life.job.spec.as_mut().expect("a spec").suspend = Some(false);
    life.expect(&["stop, because Not admitted by cluster queue", WAITS]);
}

#[test]
fn jf_51_what_contradicts_never_starts() {
    let mut life = life();
    let template = &mut life.job.spec.as_mut().expect("a spec").template;
    template.spec.as_mut().expect("a spec").node_selector = Some([("zone".into(), "silver".into())].into());
    life.expect(&[CREATE, WAITS]);
    life.admit("gold");
    life.expect(&[
        "write finished (FailedToStart) to ns/job-name-ef3a1",
        "let go of ns/job-name-ef3a1",
        "wait, because its Workload has ended",
    ]);
    let end = state::find(&life.workloads[0], "Finished").expect("the condition");
    assert_eq!(
        end.message,
        "invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=zone, value1=silver, value2=gold"
    );
}

#[test]
fn jf_51_a_missing_flavor_is_waited_for() {
    let mut life = life();
    life.expect(&[CREATE, WAITS]);
    life.admit("missing");
    life.expect(&["try again, because ResourceFlavor missing not found"]);
}

#[test]
fn jf_52_partial_admission_and_back() {
    let mut life = life();
    let annotations = life.job.metadata.annotations.get_or_insert_default();
    annotations.insert(MIN_PARALLELISM.into(), "1".into());
    annotations.insert(COMPLETIONS_EQUAL_PARALLELISM.into(), "true".into());
    life.expect(&[CREATE, WAITS]);
    assert_eq!(life.workloads[0].spec.pod_sets[0].min_count, Some(1));
    life.admit("gold");
    life.change(|workload| {
        let admission = workload.status.as_mut().and_then(|it| it.admission.as_mut()).expect("an admission");
        admission.pod_set_assignments[0].count = Some(2);
    });
    life.expect(&[START, RUNS]);
    assert_eq!((job::spec(&life.job).parallelism, job::spec(&life.job).completions), (Some(2), Some(2)));
    let eviction = change::Eviction { reason: "Preempted", cause: String::new(), message: "x".into() };
    let now = life.now;
    life.change(|workload| {
        change::evict(workload, &eviction, now);
    });
    life.expect(&[
        "stop, because x",
        "write quota given back to ns/job-name-ef3a1",
        "wait, because it is evicted",
    ]);
    assert_eq!((job::spec(&life.job).parallelism, job::spec(&life.job).completions), (Some(3), Some(3)));
}

/// MK-JOB-08: on the manager the status is that of the worker.
#[test]
fn jf_60_pods_that_are_done_give_back_their_share() {
    let mut life = running();
    life.job.status = Some(from(json!({ "succeeded": 1, "active": 2 })));
    life.expect(&["write reclaimable pods [mainx1] to ns/job-name-ef3a1", RUNS]);
    let count = |spec: Value, status: Value| {
        let job: Job = from(json!({ "spec": spec, "status": status }));
        Batch(&job).reclaimable().first().map_or(0, |pod| pod.count)
    };
    let spec = json!({ "parallelism": 3, "completions": 5, "template": {} });
    assert_eq!(count(spec.clone(), json!({ "succeeded": 2 })), 0);
    assert_eq!(count(spec, json!({ "succeeded": 4 })), 2);
    let indexed = json!({ "parallelism": 3, "completions": 4, "completionMode": "Indexed", "template": {} });
    assert_eq!(count(indexed.clone(), json!({ "completedIndexes": "0,1", "failedIndexes": "1-2" })), 2);
    assert_eq!(count(indexed, json!({ "completedIndexes": "4-9" })), 0);
}

/// MK-EVI-05: likewise.
#[test]
fn jf_63_pods_are_ready_or_not() {
    let mut life = life();
    life.settings.pods_ready = true;
    // That is said with what is said first of its quota; if it was not, it is said now.
    life.expect(&[CREATE, WAITS]);
    life.admit("gold");
    life.expect(&["write pods ready: false to ns/job-name-ef3a1", START, RUNS]);
    let reason =
        |life: &Life| state::find(&life.workloads[0], "PodsReady").expect("the condition").reason.clone();
    assert_eq!(reason(&life), "WaitForStart");
    life.job.status = Some(from(json!({ "ready": 2, "uncountedTerminatedPods": { "succeeded": ["a"] } })));
    life.expect(&["write pods ready: true to ns/job-name-ef3a1", RUNS]);
    assert_eq!(reason(&life), "Started");
    life.job.status = Some(from(json!({ "ready": 2 })));
    life.expect(&["write pods ready: false to ns/job-name-ef3a1", RUNS]);
    assert_eq!(reason(&life), "WaitForRecovery");
    life.job.status = Some(from(json!({ "ready": 3 })));
    life.expect(&["write pods ready: true to ns/job-name-ef3a1", RUNS]);
    assert_eq!(reason(&life), "Recovered");
}

/// MK-WRK-02, MK-WRK-03, MK-WRK-05, MK-INT-03.
#[test]
fn jf_20_jf_21_jf_22_jf_23_prebuilt_workloads() {
    let mut life = life();
    life.job
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/prebuilt-workload-name".into(), "made".into());
    life.job.spec.as_mut().expect("a spec").suspend = Some(false);
    life.expect(&["stop, because missing workload", "wait, because there is no Workload made for it"]);
    let pod_sets = Batch(&life.job).pod_sets().expect("pod sets");
    let made = Workload {
        metadata: ObjectMeta {
            name: Some("made".into()),
            namespace: Some("ns".into()),
            ..ObjectMeta::default()
        },
        spec: types::kueue::WorkloadSpec {
            pod_sets: crate::framework::build::sanitized(pod_sets),
            queue_name: Some("lq".into()),
            ..types::kueue::WorkloadSpec::default()
        },
        ..Workload::default()
    };
    life.prebuilt = Some(Arc::new(made));
    life.expect(&["update ns/made in its owner", WAITS]);
    let metadata = &life.prebuilt.as_ref().expect("it").metadata;
    assert_eq!(metadata.labels.clone().unwrap_or_default()["kueue.x-k8s.io/job-uid"], "uid");
    life.change(|workload| {
        workload
            .metadata
            .labels
            .get_or_insert_default()
            .insert("kueue.x-k8s.io/multikueue-origin".into(), "m".into());
    });
    life.admit("gold");
    life.expect(&["start, because ns/made is admitted", RUNS]);
    // MK-WRK-05
    assert_eq!(
        life.template()["metadata"]["labels"]["kueue.x-k8s.io/multikueue-worker-workload-pod"],
        "true"
    );
    life.change(|workload| workload.spec.pod_sets[0].count = 7);
    life.expect(&[
        "write finished (OutOfSync) to ns/made",
        "stop, because missing workload",
        "wait, because there is no Workload made for it",
    ]);
    let end = state::find(life.prebuilt.as_ref().expect("it"), "Finished").expect("the condition");
    assert_eq!(end.message, "The prebuilt workload is out of sync with its user job");
    // JF-22: one that belongs to another is none of ours.
    life.change(|workload| {
        workload.metadata.owner_references.as_mut().expect("owners")[0].uid = "other".into();
    });
    life.expect(&["wait, because there is no Workload made for it"]);
}

/// JF-56: a Job is stopped for one of four reasons, and each is told in Kueue's words.
#[test]
fn jf_56_a_stop_says_why() {
    let check = |expected: &str, mut life: Life, change: &dyn Fn(&mut Life)| {
        change(&mut life);
        let plan = life.plan();
        let Step::Stop { why, restored, .. } = &plan.step else { panic!("{plan} is no stop") };
        assert_eq!(why, expected);
        assert!(restored.is_some(), "{expected}: its pods become what they were");
        let told: Vec<(&str, &str)> =
            plan.events.iter().map(|event| (event.reason.as_str(), event.message.as_str())).collect();
        assert_eq!(told, [("Stopped", expected)]);
    };
    check("Workload is deleted", running(), &|life| {
        let now = crate::workload::condition::time(life.now);
        life.change(|workload| workload.metadata.deletion_timestamp = Some(now));
    });
    check("The ClusterQueue is stopped", running(), &|life| {
        let now = life.now;
        life.change(|workload| {
            let eviction = change::Eviction {
                reason: "ClusterQueueStopped",
                cause: String::new(),
                message: "The ClusterQueue is stopped".to_owned(),
            };
            change::evict(workload, &eviction, now);
        });
    });
    let unmatched = "No matching Workload; restoring pod templates according to existent Workload";
    check(unmatched, running(), &|life| {
        let template = &mut life.job.spec.as_mut().expect("a spec").template;
        template.spec.as_mut().expect("a spec").containers[0].image = Some("other".into());
    });
    let mut waiting = life();
    waiting.expect(&[CREATE, WAITS]);
    check("Not admitted by cluster queue", waiting, &|life| {
        life.job.spec.as_mut().expect("a spec").suspend = Some(false);
    });
}

/// JF-55: on a manager a Job is started like any other, once a worker has it. Who runs its pods is not for us to say:
/// `managedBy` stays, and keeps the manager's own controller away.
#[test]
fn jf_55_a_job_that_runs_elsewhere_is_started_on_the_manager() {
    let check_is = |life: &mut Life, state: &str| {
        let (now, state) = (life.now, state.to_owned());
        life.change(|workload| {
            let check = json!([{
                "name": "mk", "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
            workload.status.get_or_insert_default().admission_checks = from(check);
            change::sync_admitted(workload, now);
        });
    };
    let mut life = life();
    let multikueue = "kueue.x-k8s.io/multikueue";
    life.job.spec.as_mut().expect("a spec").managed_by = Some(multikueue.to_owned());
    life.expect(&[CREATE, WAITS]);
    check_is(&mut life, "Pending");
    life.admit("gold");
    life.expect(&[WAITS]);
    check_is(&mut life, "Ready");
    life.expect(&[START, RUNS]);
    let spec = life.job.spec.as_ref().expect("a spec");
    assert_eq!((spec.suspend, spec.managed_by.as_deref()), (Some(false), Some(multikueue)));
}

#[test]
fn jf_41_workloads_of_a_job_that_is_gone_end() {
    let mut life = running();
    let plan = plan::gone(&life.workloads, life.now).expect("something to do");
    assert_eq!(plan.to_string(), "write finished (OwnerNotFound) to ns/job-name-ef3a1");
    let Step::Status { of, next, .. } = plan.step else { panic!("a status") };
    life.put(&of, Workload { status: Some(*next), ..Workload::clone(&of) });
    let plan = plan::gone(&life.workloads, life.now).expect("something to do");
    assert_eq!(plan.to_string(), "let go of ns/job-name-ef3a1");
    life.change(|workload| workload.metadata.finalizers = None);
    assert_eq!(plan::gone(&life.workloads, life.now), None);
}

/// A Job that was deleted and submitted again at once, while the Workload of the first is still about to go.
#[test]
fn a_job_does_not_wait_for_the_workload_of_an_earlier_one_of_its_name() {
    let mut life = life();
    life.expect(&["create ns/job-name-ef3a1", "wait, because its Workload is not admitted"]);
    life.job.metadata.uid = Some("another".to_owned());
    life.change(|workload| {
        workload.metadata.deletion_timestamp = Some(crate::workload::condition::time(Timestamp::UNIX_EPOCH));
    });
    life.expect(&[
        "let go of ns/job-name-ef3a1",
        "create ns/job-name-5f21a",
        "wait, because its Workload is not admitted",
    ]);
}
