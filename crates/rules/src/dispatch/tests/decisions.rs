//! What is decided in which situation.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::DynamicObject;
use serde_json::json;
use types::kueue::CheckState;

use super::fixture::*;
use crate::dispatch::{
    ClusterName, Dispatcher, Left, Link, ORIGIN_UID, Policy, Step, decide, held, held_by_another,
    held_identity, local, observed::leaves_within,
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

/// Ends are recorded on the manager before anything is removed from a worker.
#[test]
fn the_end_is_recorded_before_anything_is_removed() {
    let ended =
        seen().quota().copy("east", &["Admitted", "Finished"]).mirror("east", complete()).ready("east");
    check(ended.clone(), "mirror east, because ended on east");
    check(ended.clone().condition("Finished", "Succeeded"), "mirror east, because finished");
    let recorded = ended.clone().job(|job| job.data["status"] = complete());
    check(recorded.clone().condition("Finished", "Succeeded"), "delete east, because finished");
    // The Workload's end may be told before the mirror's.
    check(ended.clone().mirror("east", running()), "look at east, because ended on east");
    // A mirror that is gone after its end was told cannot tell more; the end stands (MK-ADP-09).
    let without = ended.clone().remote("east", |east| east.job = None);
    check(without.clone(), "look at east, because ended on east");
    check(without.clone().read("east"), "mirror east, because ended on east");
    let recorded = without.read("east").job(|job| job.data["status"] = complete());
    check(recorded.clone(), "wait, because ended on east");
    check(long_ago(recorded, "east"), "finish Because, because ended on east");
    // Also if the manager has evicted it meanwhile.
    check(ended.clone().evicted(), "mirror east, because ended on east");
    // Once it was read, the mirror's end is waited for: it is told.
    check(ended.mirror("east", running()).read("east"), "wait, because ended on east");
}

/// A job that cannot be started with what its flavors say stays as it is, and only its Workload ends (JF-51, MK-FLOW-14).
#[test]
fn a_workload_that_failed_to_start_there_has_ended() {
    let failed = |seen: Seen| {
        seen.remote("east", |east| {
            let copy = Arc::make_mut(east.workload.as_mut().expect("a copy"));
            set(copy, "Finished", "FailedToStart");
        })
    };
    let ready = seen().quota().copy("east", &["Admitted"]).mirror("east", json!({})).ready("east");
    let ended = failed(ready.clone());
    check(ended.clone(), "finish FailedToStart, because ended on east");
    check(ended.clone().read("east"), "finish FailedToStart, because ended on east");
    check(ended.clone().evicted(), "finish FailedToStart, because ended on east");
    check(
        ended.clone().remote("east", |east| east.job = None),
        "finish FailedToStart, because ended on east",
    );
    check(ended.condition("Finished", "FailedToStart"), "delete east, because finished");
}

/// A mirror that is deleted to run elsewhere fails, because its pods are deleted: that is not the end of its job. That it
/// completed nevertheless, or had failed before, is.
#[test]
fn a_mirror_that_fails_because_it_is_deleted_has_not_ended() {
    let ended = |kind: &str, at: Timestamp| {
        let mut status = running();
        status["conditions"] =
            json!([{"type": kind, "status": "True", "lastTransitionTime": at.to_string()}]);
        let mut seen = seen().quota().copy("west", &["Admitted"]).mirror("west", status).ready("west");
        seen.0.configured = vec!["east".into()];
        seen.remote("west", |west| {
            let mirror = Arc::make_mut(west.job.as_mut().expect("a mirror"));
            mirror.metadata.deletion_timestamp = Some(Time(ago(5)));
        })
    };
    check(ended("Failed", ago(5)), "delete west, because west is not configured");
    check(ended("Failed", ago(4)), "delete west, because west is not configured");
    check(ended("Failed", ago(6)), "mirror west, because ended on west");
    check(ended("Complete", ago(4)), "mirror west, because ended on west");
    // Nor is it shown while the manager takes it back.
    let evicted = ended("Failed", ago(4)).evicted();
    let plan = decide(&evicted.0, &Policy::default(), now());
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::Mirror { .. })), "{plan}");
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

/// MK-FLOW-22, MK-LOST-01, MK-LOST-02, MK-LOST-03, MK-LOST-05; hazard 10.
#[test]
fn a_cluster_is_lost() {
    let ready = seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    // Without a limit, nothing runs elsewhere while it may still run there; and the Workload says so.
    check(ready.clone().lost("east", 5), "wait, because east is lost");
    check(
        ready.clone().lost("east", 5000),
        "say (The workload was admitted on \"east\", which cannot be reached since 2026-01-02T08:36:40Z; if it is gone for \
         good: ferry drain --given-up east), because east is lost",
    );
    check_with(ready.clone().lost("east", 30), &patient(), "wait, because east is lost");
    let retry = "retry (Admitting remote lost, Previously: \"Ready\"), because east is lost";
    check_with(ready.clone().lost("east", 900), &patient(), retry);
    let given_up =
        ready.clone().remote("east", |east| east.link = Link::Lost { since: ago(5), given_up: true });
    check(given_up, retry);
    let connecting = ready.clone().remote("east", |east| east.link = Link::Connecting);
    check_with(connecting, &patient(), "wait, because east is lost");
    // The core evicts; the quota comes back only when no pods are shown, and nobody else will say so (MK-LOST-07).
    let evicted = ready.clone().lost("east", 900).evicted().job(|job| job.data["status"] = running());
    let says = |since: &str| {
        format!(
            "say (Waiting for worker cluster \"east\", which cannot be reached since {since}; if it is gone for good: ferry drain \
             --given-up east), because east is lost"
        )
    };
    check(evicted.clone(), &says("2026-01-02T09:45:00Z"));
    check(evicted.clone().lost("east", 5), "wait, because east is lost");
    check_with(evicted, &patient(), "settle, forget, because east is lost");
    // Chosen, and lost before anybody was told: a job may have been created there nevertheless.
    let assigned = seen().quota().copy("east", &["Admitted"]).assigned("east").lost("east", 800);
    check(assigned.clone(), &says("2026-01-02T09:46:40Z"));
    check_with(assigned.lost("east", 900), &patient(), "unassign, because east is lost");
    // It is back: what it says is gone again.
    let back = ready
        .check(CheckState::Ready, "The workload was admitted on \"east\", which cannot be reached since x");
    check(back, "mirror east, ready east, because admitted on east");
}

/// Never lost: whoever waits for a cluster says so, wherever it was when the cluster went away, and says so no longer when it
/// is back. Only what was running before did.
#[test]
fn the_check_says_which_cluster_is_waited_for() {
    let waits = "Waiting for worker cluster \"east\", which cannot be reached since 2026-01-02T09:45:00Z; if it is gone for good: \
                 ferry drain --given-up east";
    let withdrawn = seen().copy("east", &["Evicted"]).mirror("east", running()).ready("east").evicted();
    check(withdrawn.clone().lost("east", 900), &format!("say ({waits}), because no quota"));
    check(withdrawn.clone().lost("east", 5), "wait, because no quota");
    let said = withdrawn.check(CheckState::Pending, waits);
    check(said.clone().lost("east", 900), "wait, because no quota");
    check(said.clone(), "stop and delete east, say (), because no quota");
    let given_up =
        said.clone().remote("east", |east| east.link = Link::Lost { since: ago(900), given_up: true });
    check(given_up, "forget, say (), because no quota");
    let mut gone = said;
    gone.0.remotes.remove("east");
    let whose =
        "say (Waiting for worker cluster \"east\", whose MultiKueueCluster is gone), because no quota";
    check(gone, whose);
    // A check that was passed says again what it said when it was.
    let missing = seen()
        .quota()
        .copy("east", &[])
        .ready("east")
        .check(CheckState::Ready, "The workload was admitted on \"east\", which cannot be reached since x");
    check(missing, "delete east, say (The workload was admitted on \"east\"), because missing on east");
}

/// Never lost: a cluster may be there, and not permit that its jobs are seen. What it has of them is left alone, and both its own
/// Workloads and those that it is not offered say why.
#[test]
fn jobs_that_may_not_be_seen_are_left_alone() {
    let hides = |seen: Seen| {
        seen.remote("east", |east| {
            (east.link, east.hides) = (Link::Connecting, Some("jobs.batch is forbidden".into()));
        })
    };
    let ready = seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    check(
        hides(ready.clone()),
        "say (The workload was admitted on \"east\", which does not show its jobs: jobs.batch is forbidden), because east is lost",
    );
    check(
        hides(ready.evicted()),
        "say (Waiting for worker cluster \"east\", which does not show its jobs: jobs.batch is forbidden), because east is lost",
    );
    check(
        hides(seen().quota().lost("west", 5)),
        "say (Waiting for a worker cluster: east does not show its jobs: jobs.batch is forbidden; west is not connected), because no \
         cluster can be asked",
    );
}

/// Never lost: a mirror that does not go, because of a finalizer or a node that is dead, kept its job waiting without a word.
#[test]
fn a_mirror_that_does_not_go_is_no_secret() {
    let leaves = |seen: Seen, cluster: &str, since: i64| {
        seen.remote(cluster, |remote| {
            let mirror = Arc::make_mut(remote.job.as_mut().expect("a mirror"));
            mirror.metadata.deletion_timestamp = Some(Time(ago(since)));
        })
    };
    let what = |cluster: &str| {
        format!(
            "say (Waiting for worker cluster \"{cluster}\", where the job is being deleted since 2026-01-02T09:58:20Z and its pods \
             or finalizers keep it; whoever knows that nothing of it runs any more can remove them there)"
        )
    };
    let withdrawn = seen().copy("east", &["Evicted"]).mirror("east", running()).ready("east").evicted();
    check(leaves(withdrawn.clone(), "east", 5), "stop and delete east, because no quota");
    let plan = decide(&leaves(withdrawn.clone(), "east", 5).0, &Policy::default(), now());
    assert_eq!(plan.again, Some(now() + SignedDuration::from_secs(55)));
    let stays = leaves(withdrawn, "east", 100);
    check(stays.clone(), &format!("stop and delete east, {}, because no quota", what("east")));
    let there = seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    let taken_out = leaves(there.clone().mirror("east", json!({})), "east", 100);
    let mut taken_out = taken_out;
    taken_out.0.configured.remove(0);
    check(
        taken_out,
        "stop and delete east, say (The workload was admitted on \"east\", where the job is being deleted since \
         2026-01-02T09:58:20Z and its pods or finalizers keep it; whoever knows that nothing of it runs any more can remove them \
         there), because east is not configured",
    );
    // Somebody else deletes it while it runs: said once, and its status is still shown.
    let shown = |job: &mut DynamicObject| {
        (job.data["spec"]["suspend"], job.data["status"]) = (json!(false), running());
    };
    let deleted = leaves(there, "east", 100).job(shown);
    let plan = decide(&deleted.0, &Policy::default(), now());
    let said = deleted.clone().wrote(&plan.steps);
    check(said.clone(), "wait, because admitted on east");
    check(leaves(said, "east", 5), "ready east, because admitted on east");
    // What an earlier attempt left is on a cluster that nobody has chosen.
    let left = seen().quota().nominated(&["east", "west"]).copy("west", &[]).mirror("west", running());
    let left = leaves(left, "west", 100);
    check(left, &format!("stop and delete west, {}, because leftovers on west", what("west")));
}

/// Never twice: somebody deletes a mirror on its worker, and its pods go after it. Until they are gone nothing starts elsewhere,
/// and no quota comes back.
#[test]
fn pods_that_outlive_their_job_are_waited_for() {
    let gone = |left: Option<Left>| seen().quota().ready("east").remote("east", |east| east.left = left);
    let says = "say (The workload was admitted on \"east\", where the job is gone and ";
    check(
        gone(Some(Left::Pods(2))),
        &format!(
            "look at east, {says}2 of its pods are not; whoever knows that nothing of it runs any more can remove them there), \
             because missing on east"
        ),
    );
    check(
        gone(Some(Left::Until(now() + SignedDuration::from_secs(30)))),
        &format!(
            "look at east, {says}its pods may not be until 2026-01-02T10:00:30Z), because missing on east"
        ),
    );
    check(
        gone(None).read("east"),
        "retry (Admitting remote no longer exists, Previously: \"Ready\"), because missing on east",
    );
    let evicted = gone(Some(Left::Pods(1))).evicted().job(|job| job.data["status"] = running());
    check(
        evicted,
        "look at east, say (Waiting for worker cluster \"east\", where the job is gone and 1 of its pods are not; whoever knows \
         that nothing of it runs any more can remove them there), because evicted",
    );
    let grace = |seconds: Option<i64>| {
        let mut workload = workload();
        let spec = workload.spec.pod_sets[0].template.spec.get_or_insert_default();
        spec.termination_grace_period_seconds = seconds;
        leaves_within(&workload).expect("it has pods").as_secs()
    };
    assert_eq!((grace(None), grace(Some(3600)), grace(Some(0))), (40, 3610, 10));
    let mut pod = workload();
    let owner = &mut pod.metadata.owner_references.as_mut().expect("an owner")[0];
    (owner.api_version, owner.kind) = ("v1".into(), "Pod".into());
    assert_eq!(leaves_within(&pod), None, "a pod is there until it is gone");
}

/// MK-LOST-06: reachable, but nothing is there any more. That is read before it is believed.
#[test]
fn what_was_admitted_vanishes() {
    let gone = seen().quota().ready("east");
    check(gone.clone(), "look at east, because missing on east");
    let retry = "retry (Admitting remote no longer exists, Previously: \"Ready\"), because missing on east";
    check(gone.clone().read("east"), retry);
    check(gone.clone().mirror("east", running()), "stop and delete east, because missing on east");
    check(gone.copy("east", &[]), "delete east, because missing on east");
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

/// A cluster with two names is one, and nothing of it goes by one name because the job is there by the other. It was emptied
/// and started again, for as long as both names were there.
#[test]
fn a_cluster_has_two_names() {
    let named = |mut seen: Seen, name: &str| {
        let east = seen.0.remotes[&ClusterName::from("east")].clone();
        seen.0.remotes.insert(name.into(), east);
        seen
    };
    let known = |seen: Seen| seen.remote("east", |east| east.identity = Some("uid-of-east".into()));
    let recorded = |seen: Seen| {
        seen.local(|local| {
            *local = local::identified(std::mem::take(local), |_| Some("uid-of-east".into()));
        })
    };
    let seen_there = |seen: Seen| {
        seen.remote("east", |east| {
            Arc::make_mut(east.workload.as_mut().expect("a copy")).metadata.uid = Some("copy".into());
        })
    };
    let runs = || seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    // Whichever comes first by name, whether the cluster says who it is or an object there does.
    for name in ["a-east", "z-east"] {
        check(named(known(runs()), name), "mirror east, because admitted on east");
        check(named(seen_there(runs()), name), "mirror east, because admitted on east");
        check(named(known(runs().evicted()), name), "mirror east, deactivate east, because evicted");
        let taken_back = known(runs()).local(|local| {
            let conditions = &mut local.status.as_mut().expect("a status").conditions;
            conditions.retain(|condition| condition.type_ != "QuotaReserved");
        });
        check(named(taken_back, name), "stop and delete east, because no quota");
        let mut gone = known(runs());
        gone.0.local = None;
        gone.0.configured.clear();
        check(named(gone, name), &format!("delete {}, because gone", "east".min(name)));
        // By the name of the record it cannot be reached, or is not there any more.
        check(named(recorded(known(runs())), name).lost("east", 5), "wait, because east is lost");
        let unreached = named(recorded(known(runs())), name).remote("east", |east| {
            (east.link, east.identity, east.workload, east.job) = (Link::Connecting, None, None, None);
        });
        check(unreached, "wait, because east is lost");
        let mut forgotten = named(recorded(known(runs())), name);
        forgotten.0.remotes.remove("east");
        let says = "say (The workload was admitted on \"east\", whose MultiKueueCluster is gone), because east is lost";
        check(forgotten, says);
        // Nobody says who it is, and it may be.
        let unknown = named(runs(), name).remote("east", |east| {
            (east.link, east.workload, east.job) = (Link::Connecting, None, None);
        });
        check(unknown, "wait, because east is lost");
    }
    // Another team has it under another name.
    let mut theirs = named(known(seen().quota()), "a-east");
    theirs.0.configured = vec!["a-east".into()];
    check(theirs.clone(), "nominate a-east, because nominated");
    let offered = theirs.nominated(&["a-east"]);
    check(offered.clone(), "create a-east, because nominated");
    let offered = offered.copy("east", &["Admitted"]).copy("a-east", &["Admitted"]);
    check(offered.clone(), "assign a-east, because admitted on a-east");
    let theirs = offered.assigned("a-east").mirror("east", json!({})).mirror("a-east", json!({}));
    check(theirs.clone(), "ready a-east, because admitted on a-east");
    check(theirs.ready("a-east"), "wait, because admitted on a-east");
    // One team has it twice.
    let mut twice = named(known(seen().quota()), "a-east");
    twice.0.configured.push("a-east".into());
    check(twice.clone(), "nominate east west, because nominated");
    let says =
        "Waiting for a worker cluster: east: full; west is not connected; a-east is the same cluster as east";
    let none = twice.refuses("east", "full").lost("west", 5);
    check(none, &format!("say ({says}), because no cluster can be asked"));
    // Two clusters are two, also if one of them cannot be reached.
    let other = |seen: Seen| {
        named(known(seen), "other").remote("other", |it| it.identity = Some("uid-of-other".into()))
    };
    check(other(runs()), "stop and delete other, mirror east, because admitted on east");
    check(other(recorded(runs())).lost("east", 5), "stop and delete other, because east is lost");
}

/// What may still arrive by one name of a cluster may arrive there.
#[test]
fn what_was_sent_by_one_name_counts_for_the_other() {
    let until = now() + SignedDuration::from_secs(30);
    let mut gone = seen().copy("east", &[]).mirror("east", complete());
    gone.0.local = None;
    let east = gone.0.remotes[&ClusterName::from("east")].clone();
    gone.0.remotes.insert("east-new".into(), east);
    for name in ["east", "east-new"] {
        gone = gone.remote(name, |remote| remote.identity = Some("uid-of-east".into()));
    }
    check(gone.clone(), "delete east, because gone");
    let doubted = gone.remote("east-new", |remote| remote.doubt_until = Some(until));
    check(doubted, "wait, because gone");
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

/// A cluster that was given up comes back before another one was chosen.
#[test]
fn what_a_returning_cluster_did_counts() {
    let open =
        seen().quota().nominated(&["east", "west"]).copy("east", &["Admitted"]).copy("west", &["Admitted"]);
    check(open.clone().mirror("west", running()), "assign west, because admitted on west");
    check(open.clone().mirror("west", complete()), "mirror west, because ended on west");
    check(
        open.clone().copy("west", &[]).mirror("west", running()),
        "stop and delete west, because leftovers on west",
    );
    check(
        open.clone().nominated(&["east"]).mirror("west", running()),
        "nominate west, because admitted on west",
    );
    // The mirror of an earlier job of that name.
    let earlier = open.mirror("west", running()).remote("west", |west| {
        let mirror = Arc::make_mut(west.job.as_mut().expect("a mirror"));
        mirror.metadata.annotations.as_mut().expect("annotations").insert(ORIGIN_UID.into(), "job-0".into());
    });
    check(earlier, "stop and delete west, because leftovers on west");
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

/// Ends are final: what was sent and not answered may arrive after the end, and must not run again. The mirror that has
/// ended stays until then, and has its name.
#[test]
fn a_mirror_that_has_ended_stays_while_another_may_arrive() {
    let until = |seconds: i64| Some(now() + SignedDuration::from_secs(seconds));
    let ended = seen()
        .quota()
        .copy("east", &["Admitted"])
        .ready("east")
        .mirror("east", complete())
        .job(|job| job.data["status"] = complete())
        .condition("Finished", "Succeeded");
    let doubted = |seen: Seen, seconds| seen.remote("east", |east| east.doubt_until = until(seconds));
    check(ended.clone(), "delete east, because finished");
    let waits = doubted(ended.clone(), 30);
    check(waits.clone(), "wait, because finished");
    assert_eq!(decide(&waits.0, &Policy::default(), now()).again, until(30));
    check(doubted(ended.clone(), 0), "delete east, because finished");
    // What still runs is not wanted any more.
    check(doubted(ended.mirror("east", running()), 30), "delete east, because finished");
}

/// Never lost: what runs is shown to its end, also if its queue asks for no check any more (AC-4).
#[test]
fn the_check_of_what_runs_is_taken_away() {
    let unchecked = |mut seen: Seen| {
        seen.0.check = None;
        seen.local(|local| local.status.as_mut().expect("a status").admission_checks.clear())
    };
    let ready = || seen().quota().copy("east", &["Admitted"]).mirror("east", running()).ready("east");
    check(unchecked(ready()), "mirror east, because not delegated");
    check(unchecked(ready().mirror("east", complete())), "mirror east, because ended on east");
    let ended = ready().job(|job| job.data["status"] = complete()).condition("Finished", "Succeeded");
    check(unchecked(ended), "delete east, because finished");
    let evicted = ready().condition("Evicted", "Preempted");
    check(unchecked(evicted), "mirror east, deactivate east, because evicted");
    check(unchecked(seen().quota().copy("east", &["Admitted"])), "wait, because not delegated");
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
