//! Pods, groups of them, and StatefulSets on workers.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::ResourceRequirements, apimachinery::pkg::apis::meta::v1::Time};
use kube_core::DynamicObject;
use serde_json::{Value, json};
use types::kueue::Workload;

use super::fixture::{Seen, ago, check, now, object, seen, workload};
use crate::dispatch::{Adapter, Owner, adapter::GROUP, copy, group, mirror};

fn pod(name: &str, more: Value) -> DynamicObject {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}") },
        "spec": { "nodeName": "n", "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }] },
        "status": { "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" },
        ] },
    });
    for (key, value) in more.as_object().expect("fields") {
        if let (Value::Object(into), Value::Object(value)) = (&mut pod[key], value) {
            into.extend(value.clone());
        }
    }
    object(pod)
}

fn of_pod() -> &'static Adapter {
    Adapter::of("v1", "Pod").expect("a known kind")
}

/// The mirror of a pod of the group `g` in this phase.
fn mirrored(name: &str, phase: &str) -> DynamicObject {
    let mut local = of_group();
    local.metadata.name = Some("g".to_owned());
    let mut mirror = copy::mirror(of_pod(), &pod(name, json!({})), &local, "multikueue");
    mirror.metadata.namespace = Some("ns".to_owned());
    mirror.data["status"] = json!({ "phase": phase });
    mirror
}

/// The Workload of a group of pods.
fn of_group() -> Workload {
    let mut local = workload();
    local.metadata.name = Some("g".to_owned());
    local.metadata.annotations =
        Some([("kueue.x-k8s.io/is-group-workload".to_owned(), "true".to_owned())].into());
    let owner = |name: &str| {
        serde_json::from_value(
            json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": format!("uid-{name}") }),
        )
        .expect("an owner")
    };
    local.metadata.owner_references = Some(vec![owner("a"), owner("b")]);
    local
}

/// MK-POD-01: a pod is copied with its gates, bound to its Workload, and without the node that it never had.
#[test]
fn mk_pod_01_a_pod_is_copied_as_it_is() {
    let mirror = mirrored("a", "Pending");
    assert_eq!(mirror.data["spec"], json!({ "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }] }));
    let annotations = mirror.metadata.annotations.unwrap_or_default();
    assert_eq!(annotations["kueue.x-k8s.io/prebuilt-workload-name"], "g");
    assert_eq!(annotations["kueue.x-k8s.io/multikueue-origin-uid"], "uid-a");
    assert_eq!(of_pod().refuses(&json!({})), None, "every pod is ours to send");
}

/// MK-FLOW-03, MK-WIRE-03: a group is one job; so is a StatefulSet, although its pods own its Workload, too.
#[test]
fn mk_flow_03_whose_a_workload_is() {
    let owner = Owner::of(&of_group()).expect("an owner");
    assert!(owner.is_group && owner.adapter() == Some(&GROUP));
    let mut of_set = of_group();
    of_set.metadata.annotations.get_or_insert_default().extend([
        ("kueue.x-k8s.io/job-owner-gvk".to_owned(), "apps/v1, Kind=StatefulSet".to_owned()),
        ("kueue.x-k8s.io/job-owner-name".to_owned(), "db".to_owned()),
    ]);
    let owner = Owner::of(&of_set).expect("an owner");
    assert_eq!((owner.is_group, owner.kind.as_str(), owner.name.as_str()), (false, "StatefulSet", "db"));
    let mut alone = of_group();
    alone.metadata.annotations = None;
    assert!(!Owner::of(&alone).expect("an owner").is_group);
}

/// MK-FLOW-18: a worker's Kueue writes out what nobody said of the pods of a Workload, which makes it no other one.
#[test]
fn mk_flow_18_what_is_empty_is_as_good_as_absent() {
    let seen = of_pods(&[pod("a", json!({})), pod("b", json!({}))]).quota().ready("east");
    let seen = seen.copy("east", &["QuotaReserved", "Admitted"]).remote("east", |remote| {
        let copy = Arc::make_mut(remote.workload.as_mut().expect("a copy"));
        let template = &mut copy.spec.pod_sets[0].template;
        assert_eq!(template.metadata, None);
        template.metadata = Some(kube_core::ObjectMeta::default());
        template.spec.as_mut().expect("a spec").containers[0].resources =
            Some(ResourceRequirements::default());
    });
    check(seen, "start east, because admitted on east");
}

/// MK-STS-02: nothing is shown of a StatefulSet, whose controller here says how it fares here.
#[test]
fn mk_sts_02_a_stateful_set_speaks_for_itself() {
    let adapter = Adapter::of("apps/v1", "StatefulSet").expect("a known kind");
    let set = |replicas: i32| {
        object(json!({ "metadata": { "name": "db" }, "status": { "readyReplicas": replicas } }))
    };
    assert_eq!(mirror::status(adapter, &set(0), &set(3), now()), None);
    assert!(!adapter.is_finished(&set(3).data));
}

/// MK-POD-06: who failed because it was deleted has not ended; who had ended before has.
#[test]
fn mk_pod_06_who_was_killed_has_not_ended() {
    let killed = |status: Value| {
        let leaving =
            json!({ "deletionTimestamp": "2026-01-02T10:00:30Z", "deletionGracePeriodSeconds": 30 });
        of_pod().is_killed(&pod("a", json!({ "metadata": leaving, "status": status })))
    };
    let ended = |at: &str| json!({ "phase": "Failed", "containerStatuses": [{ "state": { "terminated": { "finishedAt": at } } }] });
    assert!(killed(json!({ "phase": "Failed" })));
    assert!(killed(ended("2026-01-02T10:00:01Z")));
    assert!(!killed(ended("2026-01-02T09:59:59Z")));
    assert!(!killed(json!({ "phase": "Succeeded" })));
    assert!(!of_pod().is_killed(&pod("a", json!({ "status": { "phase": "Failed" } }))));
}

/// Ends are final, whatever comes from a worker that was asked twice.
#[test]
fn mk_pod_04_a_pod_that_has_ended_does_not_live_again() {
    let status = |shown: &str, reported: &str| {
        let of = |phase: &str| pod("a", json!({ "status": { "phase": phase, "conditions": [] } }));
        mirror::status(of_pod(), &of(shown), &of(reported), now()).map(|status| status["phase"].clone())
    };
    assert_eq!(status("Succeeded", "Pending"), None);
    assert_eq!(status("Failed", "Running"), None);
    assert_eq!(status("Running", "Failed"), Some(json!("Failed")));
}

/// MK-POD-06: what no cluster has any more waits again behind its gate.
#[test]
fn mk_pod_06_who_is_nowhere_waits_again() {
    let settled = |status: Value| mirror::settled(of_pod(), &pod("a", json!({ "status": status })), now());
    let next = settled(json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] }));
    let next = next.expect("it is shown otherwise");
    assert_eq!(
        (&next["phase"], &next["conditions"][0]["reason"]),
        (&json!("Pending"), &json!("SchedulingGated"))
    );
    assert_eq!(settled(next), None, "it shows that already");
    assert_eq!(settled(json!({ "phase": "Succeeded", "conditions": [] })), None, "ends are final");
}

/// MK-POD-02, MK-POD-03, MK-POD-05.
#[test]
fn mk_pod_02_a_group_is_what_its_pods_are() {
    let leaving = json!({ "metadata": { "deletionTimestamp": "2026-01-02T10:00:00Z" } });
    let done = json!({ "status": { "phase": "Succeeded" } });
    let here = group::local(&[pod("a", json!({})), pod("b", json!({})), pod("c", leaving), pod("d", done)]);
    let here = here.expect("a group");
    assert_eq!(group::missing(&here, None), ["a", "b"], "not who leaves, and not who has ended");
    let mut stranger = mirrored("b", "Running");
    stranger
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("kueue.x-k8s.io/multikueue-origin-uid".to_owned(), "uid-of-an-earlier-b".to_owned());
    let (a, c, e) = (mirrored("a", "Running"), mirrored("c", "Running"), mirrored("e", "Running"));
    let there = group::mirror(Some(&here), "g", [&a, &stranger, &c, &e]).expect("something is there");
    assert_eq!(group::missing(&here, Some(&there)), ["b"]);
    assert_eq!(group::surplus(&there), ["b", "c", "e"]);
    let late = [mirrored("d", "Pending"), mirrored("a", "Pending")];
    let late = group::mirror(Some(&here), "g", &late).expect("something is there");
    assert_eq!(group::surplus(&late), ["d"], "who has ended does not run again");
    let status = mirror::status(&GROUP, &here, &there, now()).expect("something is new");
    let changes: Vec<(&str, &Value)> =
        group::changes(&here, &status).map(|(name, _, _, next)| (name, &next["phase"])).collect();
    assert_eq!(changes, [("a", &json!("Running"))]);
    assert_eq!(group::mirror(Some(&here), "g", []), None);
    assert_eq!(group::local(&[]), None);
}

fn of_pods(pods: &[DynamicObject]) -> Seen {
    let mut seen = seen();
    seen.0.local = Some(Arc::new(of_group()));
    seen.0.job = group::local(pods).map(Arc::new);
    seen
}

fn with(mut seen: Seen, mirrors: &[DynamicObject]) -> Seen {
    let job = seen.0.job.clone();
    let remote = seen.0.remotes.get_mut("east").expect("a cluster");
    remote.job = group::mirror(job.as_deref(), "g", mirrors).map(Arc::new);
    seen
}

/// MK-POD-02, MK-POD-05: decided as for every other job, and then who joined or left.
#[test]
fn mk_pod_02_where_a_group_runs() {
    let both = || of_pods(&[pod("a", json!({})), pod("b", json!({}))]).quota();
    let at_east = |seen: Seen| seen.ready("east").copy("east", &["QuotaReserved", "Admitted"]);
    check(at_east(both()), "start east, because admitted on east");
    let half = with(at_east(both()), &[mirrored("a", "Running")]);
    check(half, "mirror east, start east, because admitted on east");
    let whole = with(
        at_east(both()),
        &[mirrored("a", "Pending"), mirrored("b", "Pending"), mirrored("c", "Running")],
    );
    check(whole, "prune east, because admitted on east");
}

/// MK-POD-06: the end of each pod is recorded, and then the end of the group. That the worker says that a group has ended may be
/// heard before the ends of its pods are.
#[test]
fn mk_pod_06_the_ends_of_its_pods_come_before_the_end_of_a_group() {
    let done = || json!({ "status": { "phase": "Succeeded" } });
    let over = |a: Value, b: Value| {
        let seen = of_pods(&[pod("a", a), pod("b", b)]).quota().ready("east");
        seen.copy("east", &["QuotaReserved", "Admitted", "Finished"])
    };
    let (a, b) = (mirrored("a", "Succeeded"), mirrored("b", "Succeeded"));
    let unheard = with(over(done(), json!({})), &[a.clone(), mirrored("b", "Running")]);
    check(unheard, "look at east, because ended on east");
    let unrecorded = with(over(done(), json!({})), &[a.clone(), b.clone()]);
    check(unrecorded, "mirror east, because ended on east");
    check(with(over(done(), done()), &[a.clone(), b]), "finish Succeeded, because ended on east");

    let running = || json!({ "status": { "phase": "Running" } });
    let one_gone = || with(over(done(), running()), std::slice::from_ref(&a));
    check(one_gone(), "look at east, because ended on east");
    check(one_gone().read("east"), "mirror east, because ended on east");
    let one_unheard = with(over(done(), json!({})), std::slice::from_ref(&a));
    check(one_unheard, "look at east, because ended on east");
    let all_gone = |b: Value| with(over(done(), b), &[]).read("east");
    check(all_gone(running()), "mirror east, because ended on east");
    check(all_gone(json!({})), "finish Succeeded, because ended on east"); // it came too late
}

/// MK-POD-06: a pod that has ended is recorded before its group is taken back, so that it does not run again with the others.
#[test]
fn mk_pod_06_ends_are_recorded_before_a_group_is_taken_back() {
    let mirrors = [mirrored("a", "Succeeded"), mirrored("b", "Running")];
    let withdrawn = |a: Value| {
        let seen = of_pods(&[pod("a", a), pod("b", json!({}))]).quota().assigned("east");
        let seen = seen.copy("east", &["QuotaReserved", "Admitted"]);
        let quota = |local: &mut Workload| {
            let status = local.status.as_mut().expect("a status");
            status.conditions.retain(|it| it.type_ != "QuotaReserved");
        };
        with(seen.local(quota), &mirrors)
    };
    check(withdrawn(json!({})), "mirror east, because no quota");
    check(withdrawn(json!({ "status": { "phase": "Succeeded" } })), "stop and delete east, because no quota");
}

/// MK-POD-06: a pod that the worker has deleted waits again, whatever is left of its group there; the manager waits for all of
/// them before it gives quota back.
#[test]
fn mk_pod_06_a_pod_that_is_gone_waits_again_while_others_are_there() {
    let running = json!({ "status": { "phase": "Running", "conditions": [] } });
    let failed = json!({ "status": { "phase": "Failed" } });
    let seen = || {
        let seen = of_pods(&[pod("a", failed.clone()), pod("b", running.clone())]).quota().ready("east");
        let seen = seen.evicted().copy("east", &["QuotaReserved", "Evicted"]);
        with(seen, &[mirrored("a", "Failed")])
    };
    check(seen(), "look at east, because evicted");
    check(seen().read("east"), "settle, because evicted");
}

/// Never lost: a pod of a group that does not go is no secret, whichever it is.
#[test]
fn a_group_is_being_deleted_since_the_first_of_its_pods_is() {
    let leaves = |name: &str, since: i64| {
        let mut mirror = mirrored(name, "Running");
        mirror.metadata.deletion_timestamp = Some(Time(ago(since)));
        mirror
    };
    let since = |mirrors: &[DynamicObject]| {
        let group = group::mirror(None, "g", mirrors).expect("some are there");
        group.metadata.deletion_timestamp.map(|since| since.0)
    };
    assert_eq!(since(&[mirrored("a", "Running")]), None);
    assert_eq!(since(&[leaves("a", 5), mirrored("b", "Running"), leaves("c", 9)]), Some(ago(9)));
}
