//! What is decided in which situation.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use types::kueue::CheckState;

use super::fixture::*;
use crate::dispatch::{
    ClusterName, Dispatcher, Policy, Step, decide, held, held_by_another, held_identity, local,
};

/// MK-FLOW-14, MK-FLOW-20, MK-FLOW-25, MK-FLOW-26, MK-FLOW-28, MK-FLOW-31, MK-INT-05, MK-EVI-07: who was admitted gets it, not who
/// has quota; its mirror is there before the check is passed, and the others have gone before it starts.
#[test]
fn a_job_s_way() {
    check(seen(), "wait, because no quota");
    let nominated = seen().quota().nominated(&["east", "west"]);
    check(seen().quota(), "nominate east west, because nominated");
    check(nominated.clone(), "create east, create west, because nominated");
    let offered = nominated.copy("east", &[]).copy("west", &[]);
    check(offered.clone(), "wait, because nominated");
    check(offered.clone().copy("east", &["QuotaReserved"]), "wait, because nominated");
    let admitted = offered.copy("west", &["QuotaReserved", "Admitted"]);
    check(admitted.clone(), "assign west, because admitted on west");
    let assigned = admitted.assigned("west");
    check(assigned.clone(), "delete east, start west, because admitted on west");
    let started = assigned.remote("east", |east| east.workload = None).mirror("west", json!({}));
    check(started.clone(), "ready west, because admitted on west");
    let ready = started
        .ready("west")
        .condition("Admitted", "Admitted")
        .job(|job| job.data["spec"]["suspend"] = json!(false));
    check(ready.clone(), "wait, because admitted on west");
    let runs = ready.mirror("west", running());
    check(runs.clone(), "mirror west, because admitted on west");
    let runs = runs.job(|job| job.data["status"] = running());
    check(runs.clone(), "wait, because admitted on west");
    let ended = runs.mirror("west", complete());
    check(ended.clone(), "mirror west, because ended on west");
    let recorded = ended.job(|job| job.data["status"] = complete());
    check(recorded.clone(), "wait, because ended on west");
    let finished_there = recorded.copy("west", &["QuotaReserved", "Admitted", "Finished"]);
    // The Workload follows its job: that is for the manager's own controller of the kind to write (MK-RUN-04).
    check(finished_there.clone(), "wait, because ended on west");
    let finished = finished_there.condition("Finished", "Succeeded");
    check(finished.clone(), "delete west, because finished");
    check(finished.remote("west", |west| (west.workload, west.job) = (None, None)), "wait, because finished");
}

/// MK-FLOW-02, MK-FLOW-03, MK-FLOW-04, MK-FLOW-06, MK-ADP-04, MK-INT-07.
#[test]
fn not_every_workload_is_ours_to_run() {
    let mut none = seen().quota();
    none.0.check = None;
    check(none, "wait, because not delegated");
    check(
        seen().quota().local(|local| local.metadata.owner_references = None),
        "reject (No multikueue adapter found, Previously: \"Pending\"), because not managed",
    );
    check(
        seen().quota().local(|local| {
            let owner = &mut local.metadata.owner_references.as_mut().expect("owners")[0];
            (owner.api_version, owner.kind) = ("example.com/v1".into(), "Thing".into());
        }),
        "reject (No multikueue adapter found for owner kind \"example.com/v1, Kind=Thing\", Previously: \"Pending\"), because \
         not managed",
    );
    check(
        seen().quota().job(|job| job.data["spec"]["managedBy"] = json!("example.com/other")),
        "reject (The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \
         \"example.com/other\", Previously: \"Pending\"), because not managed",
    );
    let mut unseen = seen().quota();
    unseen.0.job = None;
    check(unseen, "wait, because its job was not seen");
    // #3841: what was offered goes when the check refuses.
    check(
        seen().quota().copy("east", &[]).check(CheckState::Rejected, "no"),
        "delete east, because rejected",
    );
}

/// MK-FLOW-01, MK-FLOW-08, MK-FLOW-11, MK-GC-01, MK-LOST-04, MK-TRG-02: nothing has to be remembered of what is gone, as all
/// that was known of it is on the workers.
#[test]
fn what_is_not_wanted_goes_from_every_cluster_that_can_be_reached() {
    let two = seen().copy("east", &["Admitted"]).mirror("east", running()).copy("west", &[]);
    let mut gone = two.clone();
    gone.0.local = None;
    check(gone, "delete east, delete west, because gone");
    let deleted =
        two.clone().local(|local| local.metadata.deletion_timestamp = metadata("x").creation_timestamp);
    check(deleted.clone(), "delete east, delete west, because deleted");
    check(deleted.lost("east", 5), "delete west, because deleted");
    // It may run elsewhere later: its pods go before it does.
    check(two.clone(), "stop and delete east, delete west, because no quota");
    check(two.mirror("east", complete()), "delete east, delete west, because no quota");
}

/// MK-FLOW-12, MK-FLOW-13, MK-FLOW-15: refusals, not ends.
#[test]
fn a_copy_that_is_out_of_sync_goes_and_its_cluster_is_not_asked_again_at_once() {
    for reason in ["OutOfSync", "OwnerNotFound"] {
        let out = |seen: Seen| {
            seen.remote("east", |east| {
                set(Arc::make_mut(east.workload.as_mut().expect("a copy")), "Finished", reason);
            })
        };
        let ready = out(seen().quota().copy("east", &["Admitted"]).ready("east"));
        check(
            ready.clone(),
            "delete east, refuse east (out of sync with its job), retry (Remote workload on worker cluster \"east\" is out of \
             sync with its user job, resetting for re-dispatch, Previously: \"Ready\"), because out of sync on east",
        );
        check(
            ready.clone().check(CheckState::Retry, ""),
            "delete east, refuse east (out of sync with its job), because out of sync on east",
        );
        check(ready.clone().evicted(), "delete east, because evicted");
        // We took the mirror away ourselves, and the worker noticed it before we took the copy away: no refusal.
        let taken_back = ready.check(CheckState::Pending, "").local(|local| {
            local.status.as_mut().expect("a status").cluster_name = None;
        });
        check(taken_back, "delete east, because leftovers on east");
        let offered =
            out(seen().quota().nominated(&["east", "west"]).copy("east", &["Admitted"]).copy("west", &[]));
        check(offered, "delete east, refuse east (in words), because nominated");
    }
}

/// MK-FLOW-02, ends are final, never twice: whoever refuses a Workload that runs, its user may have it tried again. Its mirror
/// was deleted whatever it said, and nobody waited for its pods.
#[test]
fn what_is_rejected_while_it_runs_is_taken_back() {
    let rejected = |seen: Seen| seen.check(CheckState::Rejected, "no");
    let ready = || seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    check(rejected(ready().mirror("east", complete())), "mirror east, because rejected");
    check(rejected(ready()), "stop and delete east, because rejected");
    let shown = rejected(ready()).job(|job| job.data["status"] = running());
    let empty = shown.clone().remote("east", |east| (east.workload, east.job) = (None, None));
    check(empty.clone(), "look at east, because rejected");
    check(empty.read("east"), "settle, unassign, because rejected");
    check(shown.lost("east", 5000), "wait, because rejected");
}

/// MK-FLOW-16, MK-FLOW-25.2, MK-EVI-01, MK-SM-05.
#[test]
fn the_manager_evicts() {
    let mut pods = running();
    pods["conditions"] = json!([{"type": "Suspended", "status": "True"}]);
    let shown = |seen: Seen| seen.job(|job| job.data["status"] = pods);
    let evicted =
        shown(seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east").evicted());
    check(evicted.clone(), "deactivate east, because evicted");
    check(evicted.clone().copy("east", &["Admitted", "DeactivationTarget"]), "wait, because evicted");
    let stopped = evicted.clone().copy("east", &["Evicted"]);
    check(stopped.clone(), "wait, because evicted");
    check(stopped.clone().mirror("east", json!({"active": 0})), "mirror east, because evicted");
    // Nobody else can say that the pods are gone if the mirror is.
    let without = stopped.remote("east", |east| east.job = None);
    check(without.clone(), "look at east, because evicted");
    check(without.clone().read("east"), "settle, because evicted");
    let empty = without.remote("east", |east| east.workload = None);
    check(empty.clone(), "look at east, because evicted");
    check(empty.clone().read("east"), "settle, forget, because evicted");
    // And nothing is offered to anybody before the eviction is over.
    check(empty.read("east").wrote(&[Step::Forget]), "wait, because evicted");
    // Quota was taken back, but it had ended before anybody could stop it.
    let ended = seen().copy("east", &["Evicted"]).mirror("east", complete()).ready("east").evicted();
    check(ended, "mirror east, because ended on east");
    // Quota was taken back: what is there goes, and the record with it.
    let withdrawn = seen().copy("east", &["Evicted"]).mirror("east", json!({})).ready("east").evicted();
    check(withdrawn.clone(), "stop and delete east, because no quota");
    let empty = withdrawn.remote("east", |east| (east.workload, east.job) = (None, None));
    check(empty.clone(), "look at east, because no quota");
    check(empty.read("east"), "forget, because no quota");
}

/// MK-FLOW-17, MK-EVI-04.
#[test]
fn the_worker_evicts() {
    let evicted = seen().quota().copy("east", &["Evicted"]).mirror("east", json!({})).ready("east");
    check(
        evicted.clone(),
        "retry (Workload evicted on worker cluster: \"east\", resetting for re-admission. Previously: \"Ready\"), because \
         evicted on east",
    );
    check(evicted.clone().check(CheckState::Retry, ""), "wait, because evicted on east");
    // Before the check was passed, nobody has to be evicted on the manager.
    let assigned = seen().quota().copy("east", &["Evicted"]).assigned("east");
    check(assigned.clone(), "delete east, because evicted on east");
    let empty = assigned.remote("east", |east| east.workload = None);
    check(empty.clone(), "look at east, because missing on east");
    check(empty.read("east"), "unassign, because missing on east");
}

/// MK-FLOW-21: the running copy is preferred over a returning earlier one.
#[test]
fn the_recorded_cluster_is_the_only_one() {
    let both = seen()
        .quota()
        .copy("west", &["Admitted"])
        .mirror("west", json!({}))
        .ready("west")
        .copy("east", &["Admitted"]);
    check(both.clone(), "delete east, wait, because admitted on west".replace(", wait", "").as_str());
    check(both.mirror("east", running()), "stop and delete east, because admitted on west");
}

/// MK-SM-04: a manager that keeps no record has chosen. What runs is on record before anybody can take it back, and what was
/// taken back is where it is.
#[test]
fn what_another_manager_chose_is_on_record() {
    let unrecorded = |seen: Seen| {
        seen.local(|local| {
            let status = local.status.as_mut().expect("a status");
            status.conditions.retain(|condition| condition.type_ != "ferry.dev/Held");
        })
    };
    let pods = |seen: Seen| {
        seen.job(|job| (job.data["spec"]["suspend"], job.data["status"]) = (json!(false), running()))
    };
    let runs = pods(seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east"));
    check(runs.clone(), "wait, because admitted on east");
    let taken_over = unrecorded(runs.clone());
    check(taken_over.clone(), "hold east, because admitted on east");
    let held = taken_over.wrote(&[Step::Hold("east".into())]);
    assert_eq!(crate::dispatch::held(held.0.local.as_deref().expect("a Workload")), Some("east".into()));
    check(held, "wait, because admitted on east");
    // It was evicted by then, and nobody saw the end of that.
    let evicted = unrecorded(runs.evicted());
    check(evicted.clone(), "hold east, because evicted");
    let held = evicted.wrote(&[Step::Hold("east".into())]);
    check(held, "deactivate east, because evicted");
}

/// MK-FLOW-23, MK-FLOW-24.
#[test]
fn a_cluster_is_no_longer_configured() {
    let mut removed = seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    removed.0.configured.remove(0);
    check(removed.clone(), "stop and delete east, because east is not configured");
    let empty = removed.clone().remote("east", |east| (east.workload, east.job) = (None, None));
    check(empty.clone(), "look at east, because east is not configured");
    check(
        empty.read("east"),
        "retry (Admitting remote no longer exists, Previously: \"Ready\"), because east is not configured",
    );
    check_with(
        removed.clone().lost("east", 60),
        &patient(),
        "say (The workload was admitted on \"east\", which cannot be reached since 2026-01-02T09:59:00Z; if it is gone for \
         good: ferry drain --given-up east), because east is lost",
    );
    removed.0.remotes.remove("east");
    let says =
        "say (The workload was admitted on \"east\", whose MultiKueueCluster is gone), because east is lost";
    check_with(removed, &patient(), says);
}

/// Never twice and never lost: a Workload that is deleted without its Job is kept by its record until its worker has
/// nothing of it any more.
#[test]
fn a_workload_is_deleted_and_its_job_is_not() {
    let deleted = |seen: Seen| seen.local(|local| local.metadata.deletion_timestamp = Some(Time(now())));
    let ready =
        || deleted(seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east"));
    check(ready(), "stop and delete east, because deleted");
    check(ready().mirror("east", complete()), "mirror east, because deleted");
    let shown = ready().job(|job| job.data["status"] = running());
    let empty = shown.clone().remote("east", |east| (east.workload, east.job) = (None, None));
    check(empty.clone(), "look at east, because deleted");
    check(empty.read("east"), "settle, unassign, because deleted");
    check(
        shown.clone().lost("east", 5000),
        "say (The workload was admitted on \"east\", which cannot be reached since 2026-01-02T08:36:40Z; if it is gone for good: \
         ferry drain --given-up east), because deleted",
    );
    check_with(shown.clone().lost("east", 5000), &patient(), "settle, unassign, because deleted");
    // Nobody waits for pods of a Job that has ended, or goes as well.
    check(ready().job(|job| job.data["status"] = complete()), "delete east, because deleted");
    check(
        shown.job(|job| job.metadata.deletion_timestamp = Some(Time(now()))),
        "delete east, because deleted",
    );
    check(deleted(seen().quota().copy("east", &[])), "delete east, because deleted");
}

/// MK-FLOW-18, MK-FLOW-19.
#[test]
fn copies_follow_the_priority_and_nothing_else() {
    let class = |name: &str, kind: &str| {
        Some(types::kueue::PriorityClassRef { group: "g".into(), kind: kind.into(), name: name.into() })
    };
    let with = |kind: &str| {
        let kind = kind.to_owned();
        seen().quota().local(move |local| local.spec.priority_class_ref = class("low", &kind))
    };
    let offered =
        with("WorkloadPriorityClass").nominated(&["east", "west"]).copy("east", &[]).copy("west", &[]);
    let raised = |seen: Seen| {
        seen.local(|local| local.spec.priority_class_ref = class("high", "WorkloadPriorityClass"))
    };
    check(raised(offered.clone()), "update east, update west, because nominated");
    let runs = raised(offered.clone().copy("east", &["Admitted"]).mirror("east", json!({})).ready("east"));
    check(runs, "delete west, update east, because admitted on east");
    let other = offered.clone().local(|local| local.spec.queue_name = Some("other".into()));
    check(other, "delete east, delete west, because nominated");
    let pods = with("PriorityClass").nominated(&["east", "west"]).copy("east", &[]).copy("west", &[]);
    check(raised(pods), "delete east, delete west, because nominated");
    // Gates are each cluster's own (MK-PRE-04), and an absent list is an empty one.
    let gated = offered.remote("east", |east| {
        let copy = Arc::make_mut(east.workload.as_mut().expect("a copy"));
        copy.spec.preemption_gates = vec![types::kueue::PreemptionGate { name: "g".into() }];
        copy.spec.pod_sets[0].template.metadata = Some(metadata("").clone()).filter(|_| false);
    });
    check(gated, "wait, because nominated");
}

/// MK-DISP-02, MK-SM-03, MK-FLOW-22.
#[test]
fn nothing_is_offered_too_early() {
    let waits = seen().quota().local(|local| {
        let checks = &mut local.status.as_mut().expect("a status").admission_checks;
        let mut other = checks[0].clone();
        other.name = "budget".into();
        checks.push(other);
    });
    check(waits, "wait, because other checks: budget");
    check(seen().quota().check(CheckState::Retry, ""), "wait, because about to be evicted");
    check(
        seen().quota().check(CheckState::Ready, ""),
        "retry (Admission check is Ready but no admitting cluster is recorded; this is unexpected, please report it, \
         Previously: \"Ready\"), because no cluster is recorded",
    );
}

/// MK-DISP-04, MK-DISP-07, MK-DISP-08, MK-DEL-02, MK-CONN-15.
#[test]
fn clusters_that_cannot_be_asked_are_not_and_the_check_says_why() {
    check(seen().quota().lost("east", 5), "nominate west, because nominated");
    check(seen().quota().refuses("east", "taken"), "nominate west, because nominated");
    check(seen().quota().remote("east", |east| east.lacks_kind = true), "nominate west, because nominated");
    let none = seen().quota().lost("east", 5).refuses("west", "no such namespace");
    let says = "Waiting for a worker cluster: east is not connected; west: no such namespace";
    check(none.clone(), &format!("say ({says}), because no cluster can be asked"));
    check(none.check(CheckState::Pending, says), "wait, because no cluster can be asked");
    let again = seen().quota().check(CheckState::Pending, says);
    check(again, "nominate east west, say (), because nominated");
    // Admitted, but somebody else's job is in the way: no job, no harm.
    let clash = seen().quota().copy("east", &["Admitted"]).assigned("east").refuses("east", "taken");
    check(clash.clone(), "delete east, because refused by east");
    let empty = clash.remote("east", |east| east.workload = None).read("east");
    check(empty, "unassign, because missing on east");
}

/// What its administrator cordoned is offered nothing new, and keeps what it has.
#[test]
fn a_cluster_is_cordoned() {
    let cordoned = |seen: Seen, cluster: &str| seen.remote(cluster, |remote| remote.is_cordoned = true);
    check(cordoned(seen().quota(), "east"), "nominate west, because nominated");
    let offered = seen().quota().nominated(&["east", "west"]).copy("east", &["Admitted"]);
    check(cordoned(offered, "east"), "nominate west, delete east, create west, because nominated");
    let incremental = Policy { dispatcher: Dispatcher::Incremental { step: 1 }, ..Policy::default() };
    let asked = cordoned(seen().quota().nominated(&["east"]), "east");
    check_with(asked, &incremental, "nominate west, because nominated");
    let runs = seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    let goes_on = decide(&runs.0, &Policy::default(), now()).to_string();
    check(cordoned(runs, "east"), &goes_on);
    let says = "Waiting for a worker cluster: east is cordoned; west is not connected";
    let none = cordoned(seen().quota().lost("west", 5), "east");
    check(none, &format!("say ({says}), because no cluster can be asked"));
}

/// MK-FLOW-10, MK-ELA-03, MK-ELA-05, MK-ELA-06.
#[test]
fn elastic_jobs_grow_and_shrink() {
    let elastic = |seen: Seen, count: i32| {
        seen.local(|local| {
            local
                .metadata
                .annotations
                .get_or_insert_default()
                .insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
            local.spec.pod_sets[0].count = count;
        })
        .job(|job| {
            job.metadata
                .annotations
                .get_or_insert_default()
                .insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
        })
    };
    let runs = elastic(seen().quota(), 2).copy("east", &["Admitted"]).mirror("east", json!({})).ready("east");
    check(runs.clone(), "wait, because admitted on east");
    let smaller = elastic(runs.clone(), 1).job(|job| job.data["spec"]["parallelism"] = json!(1));
    check(smaller, "update east, forward east, because admitted on east");
    // The larger slice is not admitted yet.
    check(
        runs.clone().job(|job| job.data["spec"]["parallelism"] = json!(3)),
        "wait, because admitted on east",
    );
    let next = |seen: Seen| {
        seen.local(|local| {
            local.metadata.name = Some("job-j-next".into());
            local.metadata.uid = Some("workload-2".into());
            let annotations = local.metadata.annotations.get_or_insert_default();
            annotations
                .insert("kueue.x-k8s.io/workload-slice-replacement-for".into(), "ns/job-j-12345".into());
        })
    };
    let grown = next(elastic(runs.clone(), 3)).job(|job| job.data["spec"]["parallelism"] = json!(3));
    check(grown.copy("east", &["Admitted"]), "forward east, because admitted on east");
    check(next(elastic(seen(), 3)), "wait, because another slice follows");
    // A copy of it that came to be after all goes, but not the job of the slice before.
    check(next(elastic(seen(), 3)).copy("west", &[]), "delete west, because another slice follows");
    let beside = next(elastic(seen(), 3)).copy("west", &[]).mirror("west", running());
    check(beside, "wait, because another slice follows");
    check(runs.condition("Finished", "WorkloadSliceReplaced"), "wait, because another slice follows");
}

/// One write for all steps, on the version that was decided on, clearing the list whoever wrote it (MK-DISP-15).
#[test]
fn the_write_names_what_it_changes() {
    let before = seen().quota().nominated(&["east"]).0.local.expect("a Workload");
    let step = Step::Assign("east".into());
    let after = local::apply(&before, CHECK, &[&step], now());
    let patch = local::patch(&before, &after).expect("something changed");
    assert_eq!(patch["metadata"], json!({"uid": "workload-1", "resourceVersion": "1"}));
    assert_eq!(patch["status"]["nominatedClusterNames"], json!(null));
    assert_eq!(patch["status"]["clusterName"], json!("east"));
    assert_eq!(patch["status"]["conditions"][1]["type"], "ferry.dev/Held");
    assert!(patch["status"].get("admissionChecks").is_none(), "{patch}");
    assert_eq!(local::patch(&after, &local::apply(&after, CHECK, &[&step], now())), None);
    // MK-FLOW-26, MK-SM-02: the time of the check is that of its change.
    let ready = local::apply(&after, CHECK, &[&Step::Ready("east".into())], now());
    let check = &ready.status.as_ref().expect("a status").admission_checks[0];
    assert_eq!(
        (check.state, check.message.as_str()),
        (CheckState::Ready, "The workload was admitted on \"east\"")
    );
    assert_eq!(check.last_transition_time.as_ref().map(|time| time.0), Some(now()));
    // Passing the last check admits, in the same write (SM-11).
    let patch = local::patch(&after, &ready).expect("something changed");
    let conditions = patch["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|it| it["type"] == "Admitted" && it["status"] == "True"), "{patch}");
    let later =
        local::apply(&ready, CHECK, &[&Step::Ready("east".into())], now() + SignedDuration::from_secs(9));
    assert_eq!(local::patch(&ready, &later), None);
}

/// A record says which cluster it means, and goes on saying so; nobody has to know it.
#[test]
fn a_record_tells_its_cluster_from_others_of_the_same_name() {
    let before = seen().quota().nominated(&["east"]).0.local.expect("a Workload");
    let step = Step::Assign("east".into());
    let plain = local::apply(&before, CHECK, &[&step], now());
    assert_eq!((held(&plain), held_identity(&plain)), (Some("east".into()), None));
    let plain_one = plain.clone();
    let identity = |cluster: &ClusterName| Some(format!("uid-of-{cluster}"));
    let known = local::identified(plain, identity);
    assert_eq!((held(&known), held_identity(&known)), (Some("east".into()), Some("uid-of-east")));
    // It goes on saying so, whatever else is written, and whoever has the name then.
    for step in [Step::Ready("east".into()), Step::Say("it cannot be reached".into())] {
        let later = local::apply(&known, CHECK, &[&step], now());
        for now in [None, Some("another".to_owned())] {
            assert_eq!(held_identity(&local::identified(later.clone(), |_| now)), Some("uid-of-east"));
        }
    }
    let again = local::apply(&known, CHECK, &[&Step::Ready("east".into())], now());
    let mut next = before.as_ref().clone();
    local::follow(&mut next, &again, now());
    assert_eq!((held(&next), held_identity(&next)), (Some("east".into()), Some("uid-of-east")));
    let all = || [&plain_one, &again];
    assert_eq!(held_by_another(all(), &"east".into(), "uid-of-east"), None);
    assert_eq!(held_by_another(all(), &"east".into(), "another"), Some("uid-of-east"));
    assert_eq!(held_by_another(all(), &"west".into(), "another"), None);
    let forgotten = local::identified(local::apply(&again, CHECK, &[&Step::Forget], now()), identity);
    assert_eq!((held(&forgotten), held_identity(&forgotten)), (None, None));
}

/// AC-5: what a check says is always the latest; since when it says so is when its state changed.
#[test]
fn ac_5_the_time_of_a_check_is_that_of_its_state() {
    let second = |second: i64| now() + SignedDuration::from_secs(second);
    let before = seen().quota().0.local.expect("a Workload");
    let check = |workload: &types::kueue::Workload| {
        let check = workload.status.as_ref().expect("a status").admission_checks[0].clone();
        (check.state, check.message, check.last_transition_time.map(|time| time.0))
    };
    let ready = local::apply(&before, CHECK, &[&Step::Ready("east".into())], second(1));
    let on_east = "The workload was admitted on \"east\"".to_owned();
    assert_eq!(check(&ready), (CheckState::Ready, on_east, Some(second(1))));
    let says = local::apply(&ready, CHECK, &[&Step::Say("still".into())], second(2));
    assert_eq!(check(&says), (CheckState::Ready, "still".into(), Some(second(1))));
    let rejected = local::apply(&says, CHECK, &[&Step::Reject("never".into())], second(3));
    assert_eq!(check(&rejected), (CheckState::Rejected, "never".into(), Some(second(3))));
}
