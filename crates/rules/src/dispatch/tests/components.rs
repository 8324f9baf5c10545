//! LeaderWorkerSets on workers: one mirror, and as many Workloads as there are replicas.

use std::sync::Arc;

use kube_core::DynamicObject;
use serde_json::json;
use types::kueue::Workload;

use super::fixture::{ORIGIN, Seen, check, check_with, now, object, patient, seen, workload};
use crate::dispatch::{Adapter, Remote, Step, component, copy, local, mirror};
use crate::framework::apps::leader_worker_set;

fn of_set() -> &'static Adapter {
    Adapter::of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet").expect("a known kind")
}

/// The LeaderWorkerSet on the manager.
fn set(replicas: i32) -> DynamicObject {
    object(json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "name": "llm", "namespace": "ns", "uid": "uid-llm" },
        "spec": { "replicas": replicas, "leaderWorkerTemplate": { "size": 2 } },
    }))
}

/// The Workload of one of its replicas.
fn part(index: i32) -> Workload {
    let mut part = workload();
    let name = leader_worker_set::name(&set(1).metadata, &index.to_string());
    part.metadata.uid = Some(format!("uid-{index}"));
    part.metadata.name = Some(name);
    part.metadata.labels = None;
    let annotations = [
        ("kueue.x-k8s.io/job-owner-gvk", "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet".to_owned()),
        ("kueue.x-k8s.io/job-owner-name", "llm".to_owned()),
        ("kueue.x-k8s.io/component-workload-index", index.to_string()),
    ];
    part.metadata.annotations = Some(annotations.map(|(key, value)| (key.to_owned(), value)).into());
    let owner = json!({ "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "llm", "uid": "uid-llm" });
    part.metadata.owner_references = Some(vec![serde_json::from_value(owner).expect("an owner")]);
    part
}

/// Another one of its Workloads, on a cluster.
fn on(index: i32, cluster: &str) -> Workload {
    local::apply(&part(index), "mk", &[&Step::Assign(cluster.into())], now())
}

/// One of its Workloads among others, with quota.
fn among(index: i32, replicas: i32, others: Vec<Workload>) -> Seen {
    let mut seen = seen().local(|local| *local = part(index));
    seen.0.job = Some(Arc::new(set(replicas)));
    seen.0.others = others.into_iter().map(Arc::new).collect();
    seen.quota()
}

/// What is on a cluster is seen as one of several Workloads sees it.
fn with_mirror(mut seen: Seen, cluster: &str) -> Seen {
    let local = seen.0.local.clone().expect("a Workload");
    let mirror = copy::mirror(of_set(), &set(2), &local, ORIGIN);
    for (name, remote) in &mut seen.0.remotes {
        let there = Remote {
            job: (name.as_str() == cluster).then(|| Arc::new(mirror.clone())),
            ..std::mem::take(remote)
        };
        let key = local.metadata.name.clone().unwrap_or_default();
        *remote = component::seen(there, name, Some(&local), &key, "uid-llm", &seen.0.others);
    }
    seen
}

/// MK-LWS-02, MK-LWS-03: the first chooses, once all are there.
#[test]
fn mk_lws_02_nothing_is_sent_before_all_are_there() {
    check(among(0, 2, vec![]), "wait, because 1 of 2 components are there");
    check(among(0, 2, vec![part(1)]), "nominate east west, because nominated");
    check(among(1, 2, vec![part(0)]), "wait, because another component chooses");
    check(among(0, 1, vec![]), "nominate east west, because nominated");
    let said = "say (Waiting for a worker cluster: invalid LeaderWorkerSet replicas: must be >= 0, got -1), \
                because no cluster can be asked";
    check(among(0, -1, vec![]), said);
}

/// MK-LWS-04: where one is, the others follow, and to no other cluster, whoever chooses otherwise; also those that come later.
#[test]
fn mk_lws_04_the_others_follow() {
    check(among(1, 2, vec![on(0, "west")]), "nominate west, because nominated");
    check(among(1, 5, vec![on(0, "west")]), "nominate west, because nominated");
    check(among(0, 2, vec![on(1, "west")]), "nominate west, because nominated");
    check(among(1, 2, vec![on(0, "west")]).nominated(&["west"]), "create west, because nominated");
    let both = among(1, 2, vec![on(0, "west")])
        .nominated(&["east", "west"])
        .copy("east", &["QuotaReserved", "Admitted"]);
    check(both, "nominate west, delete east, create west, because nominated");
    let lost = among(1, 2, vec![on(0, "west")]).nominated(&["west"]).lost("west", 3);
    check(
        lost,
        "say (Waiting for a worker cluster: east was not nominated; west is not connected), because nominated",
    );
}

/// MK-LWS-05.
#[test]
fn mk_lws_05_they_are_never_apart() {
    check(
        among(2, 3, vec![on(0, "west"), on(1, "east")]),
        "say (Waiting for a worker cluster: component workloads assigned to different clusters: \"west\" and \"east\"), \
         because no cluster can be asked",
    );
}

/// MK-LWS-06: there is one mirror, which belongs to none of them alone, and whose status stays there.
#[test]
fn mk_lws_06_there_is_one_mirror() {
    let mirror_of = copy::mirror(of_set(), &set(2), &part(0), ORIGIN);
    let annotations = mirror_of.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations["kueue.x-k8s.io/multikueue-origin-uid"], "uid-llm");
    assert!(!annotations.contains_key("kueue.x-k8s.io/prebuilt-workload-name"));
    assert_eq!(
        mirror_of.metadata.labels,
        Some([("kueue.x-k8s.io/multikueue-origin".to_owned(), ORIGIN.to_owned())].into())
    );
    let names = [part(0), part(1)].map(|it| it.metadata.name.unwrap_or_default());
    assert_eq!(component::links(of_set(), &mirror_of), names);
    assert_eq!(mirror::status(of_set(), &set(2), &mirror_of, now()), None);
    let admitted = |seen: Seen| seen.assigned("west").copy("west", &["QuotaReserved", "Admitted"]);
    check(admitted(among(0, 2, vec![part(1)])), "start west, because admitted on west");
    check(admitted(among(1, 2, vec![on(0, "west")])), "start west, because admitted on west");
    let there = |seen| with_mirror(admitted(seen), "west");
    check(there(among(1, 2, vec![on(0, "west")])), "ready west, because admitted on west");
}

/// MK-LWS-07: the mirror has as many replicas as there are here. Kueue leaves it as it was.
#[test]
fn mk_lws_07_replicas_are_passed_on() {
    let ready = |replicas| {
        let seen = among(0, replicas, vec![on(1, "west")]).ready("west");
        with_mirror(seen.copy("west", &["QuotaReserved", "Admitted"]), "west")
    };
    check(ready(2), "wait, because admitted on west");
    check(ready(3), "forward west, because admitted on west");
}

/// One that leaves takes its copy, and the last one takes the mirror (never twice, never lost).
#[test]
fn mk_lws_06_the_last_one_takes_the_mirror() {
    let leaves = |others: Vec<Workload>| {
        let seen = among(1, 2, others).ready("west").copy("west", &["QuotaReserved", "Admitted"]);
        let seen = seen.evicted().local(|local| {
            let conditions = &mut local.status.as_mut().expect("a status").conditions;
            conditions.retain(|it| it.type_ != "QuotaReserved");
        });
        with_mirror(seen, "west")
    };
    check(leaves(vec![on(0, "west")]), "delete west beside others, because no quota");
    check(leaves(vec![part(0)]), "stop and delete west, because no quota");
    let mut going = on(0, "west");
    going.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-02T09:00:00Z")).expect("a time");
    check(leaves(vec![going]), "stop and delete west, because no quota");
    // Without a copy nothing of it is there, although the mirror is.
    let gone = |others| leaves(others).remote("west", |remote| remote.workload = None).read("west");
    check(with_mirror(gone(vec![on(0, "west")]), "west"), "forget, because no quota");
    check(with_mirror(gone(vec![part(0)]), "west"), "stop and delete west, because no quota");
}

/// One whose LeaderWorkerSet was deleted and made again leaves alone what the new one has, and clears away what the old one had.
#[test]
fn mk_lws_06_an_earlier_mirror_is_nobodys() {
    let seen = among(1, 2, vec![on(0, "west")]).ready("west").copy("west", &["QuotaReserved", "Admitted"]);
    let mut earlier = set(2);
    earlier.metadata.uid = Some("an-earlier-one".to_owned());
    let local = seen.0.local.clone().expect("a Workload");
    let earlier = copy::mirror(of_set(), &earlier, &local, ORIGIN);
    let remote = Remote { job: Some(Arc::new(earlier)), ..Remote::default() };
    let seen_of = component::seen(remote, &"west".into(), Some(&local), "w", "uid-llm", &seen.0.others);
    assert!(!seen_of.is_shared && seen_of.job.is_some());
    let seen = seen.remote("west", |remote| remote.job = seen_of.job);
    check(seen, "stop and delete west, because leftovers on west");
}

/// Each gives up a lost cluster by itself, and when the last one has, the first chooses anew.
#[test]
fn mk_lws_04_a_lost_cluster_is_left_by_all() {
    let lost = |seconds| among(1, 2, vec![on(0, "west")]).ready("west").lost("west", seconds);
    check_with(
        lost(60 * 16),
        &patient(),
        "retry (Admitting remote lost, Previously: \"Ready\"), because west is lost",
    );
    check(among(0, 2, vec![part(1)]), "nominate east west, because nominated");
}
