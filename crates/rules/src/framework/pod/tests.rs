use std::sync::Arc;

use serde_json::{Value, json};
use types::kueue::{ResourceFlavor, Workload};

use super::{
    plan::{Plan, Seen, Step, decide, gone},
    *,
};
use crate::framework::{plan as framework_plan, priority::Classes};
use crate::workload::state;

const NOW: &str = "2026-01-01T01:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn made(mut value: Value, more: &Value) -> Value {
    fn merge(into: &mut Value, more: &Value) {
        match (into, more) {
            (Value::Object(into), Value::Object(more)) => {
                more.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, more) => *into = more.clone(),
        }
    }
    merge(&mut value, more);
    value
}

/// A pod as webhooks leave it, in the queue `q`.
fn pod(name: &str, more: Value) -> Pod {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "finalizers": [MANAGED],
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "kueue.x-k8s.io/queue-name": "q", MANAGED: "true" },
        },
        "spec": {
            "schedulingGates": [{ "name": ADMISSION_GATE }, { "name": TOPOLOGY_GATE }],
            "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
        },
        "status": { "phase": "Pending" },
    });
    serde_json::from_value(made(pod, &more)).expect("a Pod")
}

/// A pod of the group `g`.
fn member(name: &str, of: &str, role: &str, more: Value) -> Pod {
    let annotations = json!({ GROUP_NAME: "g", GROUP_TOTAL_COUNT: of, ROLE_HASH: role });
    pod(name, made(json!({ "metadata": { "annotations": annotations } }), &more))
}

fn running() -> Value {
    json!({ "spec": { "schedulingGates": null, "nodeName": "n" }, "status": { "phase": "Running" } })
}

fn in_phase(phase: &str) -> Value {
    json!({ "spec": { "schedulingGates": null }, "status": { "phase": phase } })
}

/// A Workload with these conditions that are true, of these pod sets.
fn workload(name: &str, sets: &[(&str, i32)], conditions: &[&str], more: Value) -> Arc<Workload> {
    let sets: Vec<Value> = sets
        .iter()
        .map(|(name, count)| {
            let spec = pod("x", json!({})).spec;
            json!({ "name": name, "count": count, "template": { "spec": spec } })
        })
        .collect();
    let assignments: Vec<Value> =
        sets.iter().map(|set| json!({ "name": set["name"], "flavors": { "cpu": "f" } })).collect();
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|kind| {
            json!({
                "type": kind, "status": "True", "reason": "Because", "message": "of something",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let workload = json!({
        "metadata": { "name": name, "namespace": "ns", "finalizers": ["kueue.x-k8s.io/resource-in-use"] },
        "spec": { "queueName": "q", "priority": 0, "podSets": sets },
        "status": {
            "conditions": conditions, "admission": { "clusterQueue": "cq", "podSetAssignments": assignments },
        },
    });
    Arc::new(serde_json::from_value(made(workload, &more)).expect("a Workload"))
}

fn of_group(sets: &[(&str, i32)], owners: &[&str], conditions: &[&str]) -> Arc<Workload> {
    let owners: Vec<Value> = owners
        .iter()
        .map(|name| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": format!("uid-{name}") }))
        .collect();
    let metadata = json!({ "annotations": { IS_GROUP_WORKLOAD: "true" }, "ownerReferences": owners });
    workload("g", sets, conditions, json!({ "metadata": metadata }))
}

fn of_pod(name: &str, conditions: &[&str]) -> Arc<Workload> {
    let owner = json!({
        "apiVersion": "v1", "kind": "Pod", "name": name, "uid": format!("uid-{name}"), "controller": true,
    });
    workload("w", &[("main", 1)], conditions, json!({ "metadata": { "ownerReferences": [owner] } }))
}

const QUOTA: [&str; 2] = ["QuotaReserved", "Admitted"];
const EVICTED: [&str; 3] = ["QuotaReserved", "Admitted", "Evicted"];

fn flavor() -> Arc<ResourceFlavor> {
    let flavor = json!({ "metadata": { "name": "f" }, "spec": { "nodeLabels": { "pool": "f" } } });
    Arc::new(serde_json::from_value(flavor).expect("a ResourceFlavor"))
}

fn plan_of(unit: &Unit<'_>, workloads: &[Arc<Workload>], elsewhere: bool) -> Plan {
    let prebuilt = super::super::prebuilt_workload(unit.metadata()).and_then(|_| workloads.first());
    let seen = Seen {
        unit,
        workloads,
        prebuilt,
        runs_elsewhere: &|_| elsewhere,
        flavor: &|_| Some(flavor()),
        classes: Classes { workload: &|_| None, pod: &|_| None, default: None },
    };
    decide(&seen, &framework_plan::Settings::default(), at(NOW))
}

#[track_caller]
fn check(pod: &Pod, workloads: &[Arc<Workload>], expected: &str) {
    let unit = Unit::single(pod, at(NOW));
    assert_eq!(plan_of(&unit, workloads, false).to_string(), expected);
}

#[track_caller]
fn check_group(pods: &[Pod], workloads: &[Arc<Workload>], expected: &str) -> Plan {
    let unit = Unit::group("g", pods.iter().collect(), at(NOW)).expect("pods");
    let plan = plan_of(&unit, workloads, false);
    assert_eq!(plan.to_string(), expected);
    plan
}

#[test]
fn jf_70_the_life_of_a_pod() {
    let gated = pod("p", json!({}));
    let name = super::super::name::workload_name(POD, "p", "uid-p", None);
    check(&gated, &[], &format!("create ns/{name}"));
    check(&gated, &[of_pod("p", &[])], "wait, because its Workload is not admitted");
    check(&gated, &[of_pod("p", &QUOTA)], "start, because ns/w is admitted");
    let runs = pod("p", running());
    check(&runs, &[of_pod("p", &QUOTA)], "wait, because it runs");
    let done = pod("p", in_phase("Succeeded"));
    check(&done, &[of_pod("p", &QUOTA)], "write finished (Succeeded) to ns/w");
    check(&pod("p", in_phase("Failed")), &[of_pod("p", &QUOTA)], "write finished (Failed) to ns/w");
    check(&done, &[of_pod("p", &["Finished"])], "let go of pods p");
    let free = pod("p", made(in_phase("Succeeded"), &json!({ "metadata": { "finalizers": [] } })));
    check(&free, &[of_pod("p", &["Finished"])], "let go of ns/w");
}

/// One that stops is deleted, and its quota is free at once. It is not tried again: there is no such pod any more.
#[test]
fn jf_56_a_pod_that_has_to_go() {
    let runs = pod("p", running());
    check(&runs, &[of_pod("p", &["Evicted"])], "stop, because of something");
    let plan = plan_of(&Unit::single(&runs, at(NOW)), &[of_pod("p", &EVICTED)], false);
    let Step::Job(framework_plan::Step::Stop { reason, .. }) = &plan.step else { panic!("{plan}") };
    assert_eq!(reason, "WorkloadEvictedDueToBecause");
    check(&runs, &[of_pod("p", &["QuotaReserved"])], "stop, because Not admitted by cluster queue");
    let gated = pod("p", json!({}));
    let preempted = json!({ "status": { "conditions": [
        { "type": "QuotaReserved", "status": "True", "reason": "", "message": "", "lastTransitionTime": NOW },
        { "type": "Evicted", "status": "True", "reason": "Preempted", "message": "m", "lastTransitionTime": NOW },
    ] } });
    let evicted = serde_json::to_value(&*of_pod("p", &[])).expect("a Workload");
    let evicted: Workload = serde_json::from_value(made(evicted, &preempted)).expect("a Workload");
    let requeued = |elsewhere: bool| {
        let unit = Unit::single(&gated, at(NOW));
        let plan = plan_of(&unit, &[Arc::new(evicted.clone())], elsewhere);
        let Step::Job(framework_plan::Step::Status { next, .. }) = plan.step else { panic!("{plan}") };
        next.conditions.iter().find(|it| it.type_ == "Requeued").map(|it| it.status.clone())
    };
    assert_eq!(requeued(false).as_deref(), Some("False"));
    assert_eq!(requeued(true).as_deref(), Some("True"), "it was never deleted here");
}

/// JF-41, JF-70: a pod that is deleted takes its Workload with it, and is let go when that has ended.
#[test]
fn jf_41_a_pod_that_is_deleted() {
    let leaving = json!({ "metadata": { "deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30 } });
    let gone = pod("p", made(running(), &leaving));
    check(&gone, &[of_pod("p", &QUOTA)], "write finished (OwnerNotFound) to ns/w");
    check(&gone, &[of_pod("p", &["Finished"])], "let go of ns/w");
    check(&gone, &[], "let go of pods p");
    let deleted = json!({ "metadata": { "deletionTimestamp": NOW } });
    let workload = serde_json::to_value(&*of_pod("p", &[])).expect("a Workload");
    let workload: Workload = serde_json::from_value(made(workload, &deleted)).expect("a Workload");
    check(&pod("p", json!({})), &[Arc::new(workload)], "stop, because Workload is deleted");
}

/// JF-55: what runs elsewhere waits here.
#[test]
fn jf_55_what_runs_elsewhere_is_not_let_through() {
    let gated = pod("p", json!({}));
    let unit = Unit::single(&gated, at(NOW));
    let plan = plan_of(&unit, &[of_pod("p", &QUOTA)], true);
    assert_eq!(plan.to_string(), "wait, because it runs on another cluster");
}

/// JF-50, JF-51: one write lets a pod through, with what its flavors say; a gate of somebody else stays.
#[test]
fn jf_50_a_pod_is_let_through_with_what_it_is_given() {
    let gates = json!([{ "name": "theirs" }, { "name": ADMISSION_GATE }, { "name": TOPOLOGY_GATE }]);
    let gated = pod("p", json!({ "spec": { "schedulingGates": gates, "nodeSelector": { "zone": "z" } } }));
    let info = |gates: &[&str], pool: &str| PodSetInfo {
        name: "main".to_owned(),
        node_selector: [("pool".to_owned(), pool.to_owned())].into(),
        scheduling_gates: gates
            .iter()
            .map(|name| k8s_openapi::api::core::v1::PodSchedulingGate { name: (*name).to_owned() })
            .collect(),
        ..PodSetInfo::default()
    };
    let unit = Unit::single(&gated, at(NOW));
    let given = |info: PodSetInfo| {
        let writes = unit.started(&[info]).expect("it can start");
        let [Write::Object(next)] = &writes[..] else { panic!("one write") };
        next["spec"].clone()
    };
    let next = given(info(&[], "f"));
    assert_eq!(next["schedulingGates"], json!([{ "name": "theirs" }]));
    assert_eq!(next["nodeSelector"], json!({ "pool": "f", "zone": "z" }));
    let placed = given(info(&[TOPOLOGY_GATE], "f"));
    assert_eq!(placed["schedulingGates"], json!([{ "name": "theirs" }, { "name": TOPOLOGY_GATE }]));
    let other = PodSetInfo { node_selector: [("zone".to_owned(), "y".to_owned())].into(), ..info(&[], "f") };
    assert!(unit.started(&[other]).is_err(), "it wants to be elsewhere");
    assert!(unit.started(&[]).is_err());
}

#[test]
fn jf_70_the_life_of_a_group() {
    let pods =
        |more: &dyn Fn(&str) -> Value| [member("a", "2", "x", more("a")), member("b", "2", "y", more("b"))];
    let gated = pods(&|_| json!({}));
    let plan = check_group(&gated, &[], "create ns/g");
    let Step::Job(framework_plan::Step::Create(made)) = plan.step else { panic!("it is created") };
    assert_eq!(
        made.spec.pod_sets.iter().map(|it| (it.name(), it.count)).collect::<Vec<_>>(),
        [("x", 1), ("y", 1)]
    );
    let owners = made.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(
        owners.iter().map(|it| (&*it.name, it.controller)).collect::<Vec<_>>(),
        [("a", None), ("b", None)]
    );
    assert_eq!(made.metadata.labels, None, "no pod is the whole group");
    let sets = [("x", 1), ("y", 1)];
    let of = |conditions: &[&str]| [of_group(&sets, &["a", "b"], conditions)];
    check_group(&gated, &of(&[]), "wait, because its Workload is not admitted");
    check_group(&gated, &of(&QUOTA), "start, because ns/g is admitted");
    let runs = pods(&|_| running());
    check_group(&runs, &of(&QUOTA), "wait, because it runs");
    check_group(&runs, &of(&EVICTED), "stop, because of something");
    let half = pods(&|name| if name == "a" { in_phase("Succeeded") } else { running() });
    check_group(&half, &of(&QUOTA), "write reclaimable pods [xx1] to ns/g");
    let done = pods(&|_| in_phase("Succeeded"));
    check_group(&done, &of(&QUOTA), "write finished (Succeeded) to ns/g");
    check_group(&done, &of(&["Finished"]), "let go of pods a, b");
}

#[test]
fn jf_70_a_group_waits_for_its_pods() {
    let one = [member("a", "2", "x", json!({}))];
    let plan = check_group(&one, &[], "wait, because 'g' group has fewer runnable pods than expected");
    assert_eq!(plan.events[0].reason, "ErrWorkloadCompose");
    let fast = json!({ "metadata": { "annotations": { FAST_ADMISSION: "true" } } });
    let plan = check_group(&[member("a", "2", "x", fast)], &[], "create ns/g");
    let Step::Job(framework_plan::Step::Create(made)) = plan.step else { panic!("it is created") };
    assert_eq!(made.spec.pod_sets[0].count, 2, "it is admitted whole");
    let queue = json!({ "metadata": { "labels": { "kueue.x-k8s.io/queue-name": "other" } } });
    check_group(
        &[member("a", "2", "x", json!({})), member("b", "2", "x", queue)],
        &[],
        "wait, because pods 'a' and 'b' has different queue names: q!=other",
    );
    let more = json!({ "metadata": { "annotations": { GROUP_TOTAL_COUNT: "3" } } });
    check_group(
        &[member("a", "2", "x", json!({})), member("b", "2", "x", more)],
        &[],
        "wait, because pods 'a' and 'b' has different 'kueue.x-k8s.io/pod-group-total-count' values: 2!=3",
    );
}

/// Of pods that are too many those go that wait, and the newest; of those that failed the ones that were replaced are let go.
#[test]
fn jf_70_who_counts_in_a_group() {
    let young = json!({ "metadata": { "creationTimestamp": "2026-01-01T00:30:00Z" } });
    let three =
        [member("a", "2", "x", young), member("b", "2", "x", json!({})), member("c", "2", "x", running())];
    check_group(&three[..2], &[], "create ns/g");
    let waiting = [three[0].clone(), three[1].clone(), member("c", "2", "x", json!({}))];
    check_group(&waiting, &[], "delete pods a, because they are too many");
    check_group(
        &[member("c", "1", "x", running())],
        &[],
        "stop, because Missing Workload; unable to restore pod templates",
    );
    let of = |conditions: &[&str]| [of_group(&[("x", 2)], &["b", "c"], conditions)];
    check_group(&three, &of(&QUOTA), "delete pods a, because they are too many");
    let failed = [member("b", "2", "x", in_phase("Failed")), member("c", "2", "x", running())];
    check_group(&failed, &of(&QUOTA), "write which pods are missing to ns/g");
    let again = [failed[0].clone(), failed[1].clone(), member("d", "2", "x", json!({}))];
    check_group(&again, &of(&QUOTA), "update ns/g in its owners");
    check_group(&again, &[of_group(&[("x", 2)], &["b", "c", "d"], &QUOTA)], "let go of pods b");
    let foreign = [workload("g", &[("x", 2)], &[], json!({}))];
    let plan = check_group(&three[..2], &foreign, "wait, because a Workload of its name is not its own");
    assert_eq!(plan.events[0].reason, "WorkloadNameConflict");
}

/// A group is over when all have done what they are for, or when those that failed are not to be replaced; one that serves
/// never is.
#[test]
fn jf_70_when_a_group_is_over() {
    let over = |first: Value, second: Value| {
        let pods = [member("a", "2", "x", first), member("b", "2", "x", second)];
        let unit = Unit::group("g", pods.iter().collect(), at(NOW)).expect("pods");
        unit.finished().map(|end| end.message)
    };
    let done = || in_phase("Succeeded");
    assert_eq!(over(done(), done()).as_deref(), Some("Pods succeeded: 2/2."));
    assert_eq!(over(done(), in_phase("Failed")), None, "it may be replaced");
    let once = json!({ "metadata": { "annotations": { RETRIABLE_IN_GROUP: "false" } } });
    assert_eq!(over(made(done(), &once), in_phase("Failed")).as_deref(), Some("Pods succeeded: 1/2."));
    assert_eq!(over(made(done(), &once), running()), None);
    let serves = json!({ "metadata": { "annotations": { SERVING: "true" } } });
    assert_eq!(over(made(done(), &serves), made(done(), &serves)), None);
}

/// MK-WRK-02, MK-WRK-03: a Workload that was there before its pods is owned by all of them, and has room for them.
#[test]
fn mk_wrk_02_a_group_whose_workload_is_there() {
    let linked = |name: &str| {
        let link = json!({ "metadata": { "annotations": { "kueue.x-k8s.io/prebuilt-workload-name": "g" } } });
        member(name, "2", "x", link)
    };
    let one = [linked("a")];
    check_group(&one, &[], "wait, because there is no Workload g for it");
    check_group(&one, &[of_group(&[("x", 2)], &[], &QUOTA)], "update ns/g in its owners");
    check_group(&one, &[of_group(&[("x", 2)], &["a"], &QUOTA)], "start, because ns/g is admitted");
    check_group(&one, &[of_group(&[("y", 2)], &["a"], &QUOTA)], "write finished (OutOfSync) to ns/g");
    let two = [linked("a"), linked("b")];
    check_group(&two, &[of_group(&[("x", 1)], &["a", "b"], &QUOTA)], "write finished (OutOfSync) to ns/g");
}

/// Nobody is left for whom the Workload of a group would be kept.
#[test]
fn jf_70_a_group_without_pods() {
    let plan = gone(&of_group(&[("x", 2)], &["a"], &QUOTA)).map(|plan| plan.to_string());
    assert_eq!(plan.as_deref(), Some("let go of ns/g"));
    assert_eq!(gone(&of_pod("p", &QUOTA)), None, "it is somebody else's");
}

/// A pod that runs counts until it has had the time that it was given to end.
#[test]
fn jf_70_pods_that_do_not_end() {
    let told = |at: &str| {
        let leaving = json!({ "metadata": { "deletionTimestamp": at, "deletionGracePeriodSeconds": 30 } });
        member("a", "1", "x", made(running(), &leaving))
    };
    let counts = |pod: &Pod| Unit::group("g", vec![pod], at(NOW)).expect("a pod").is_active();
    assert!(counts(&member("a", "1", "x", running())));
    assert!(counts(&told("2026-01-01T00:59:40Z")));
    assert!(!counts(&told("2026-01-01T00:59:20Z")));
    assert!(!counts(&member("a", "1", "x", json!({}))));
    let stuck = [told("2026-01-01T00:59:40Z")];
    let unit = Unit::group("g", stuck.iter().collect(), at(NOW)).expect("a pod");
    let plan = plan_of(&unit, &[of_group(&[("x", 1)], &["a"], &EVICTED)], false);
    assert_eq!(plan.again_at, Some(at("2026-01-01T01:00:11Z")), "{plan}");
    assert!(!state::is_finished(&of_group(&[], &[], &[])));
}
