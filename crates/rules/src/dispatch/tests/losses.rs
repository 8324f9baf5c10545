//! Clusters that are lost, that come back, that lose something themselves or are there twice, and who waits for them.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::DynamicObject;
use serde_json::json;
use types::kueue::CheckState;

use super::fixture::*;
use crate::dispatch::{ClusterName, Left, Link, ORIGIN_UID, Policy, decide, local, observed::leaves_within};

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
