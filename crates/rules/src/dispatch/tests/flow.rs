//! What the rules of MultiKueue ask for one by one, where the story of a Job in `decisions` does not come by.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use types::kueue::{CheckState, Workload};

use super::fixture::*;
use crate::dispatch::{Link, Plan, Policy, REPLACEMENT_FOR, Step, decide, local};

fn plan(seen: &Seen) -> Plan {
    decide(&seen.0, &Policy::default(), now())
}

/// MK-FLOW-05, MK-EXT-05: a kind that is known and was not switched on is refused like one that nobody knows.
#[test]
fn mk_flow_05_only_kinds_that_are_enabled_have_an_adapter() {
    let mut seen = seen().quota();
    seen.0.is_enabled = false;
    let refused = "reject (No multikueue adapter found for owner kind \"batch/v1, Kind=Job\", Previously: \"Pending\"), because not managed";
    check(seen.clone(), refused);
    // Whether its job was seen makes no difference: nobody looks for it.
    seen.0.job = None;
    check(seen, refused);
}

/// MK-FLOW-07: a configuration that cannot be read stops nothing that runs. Nothing new is offered, and the check says
/// what is missing.
#[test]
fn mk_flow_07_without_its_configuration_what_runs_goes_on() {
    let without = |seen: Seen| {
        let mut seen = seen;
        seen.0.configured.clear();
        seen
    };
    let runs = seen().quota().copy("east", &["Admitted"]).mirror("east", json!({})).ready("east");
    check(without(runs.clone()), "wait, because admitted on east");
    check(without(runs.clone().mirror("east", complete())), "mirror east, because ended on east");
    check(without(runs.lost("east", 5)), "wait, because east is lost");
    let says = "say (Waiting for a worker cluster to be configured), because no cluster can be asked";
    check(without(seen().quota()), says);
}

/// MK-FLOW-07, hazard 5: a cluster that cannot be read is one that cannot be asked, and no more than that.
#[test]
fn mk_flow_07_a_cluster_that_cannot_be_read_keeps_nobody_from_the_others() {
    let offered = seen().quota().nominated(&["east", "west"]).copy("east", &[]);
    let admitted = offered.copy("west", &["Admitted"]).lost("east", 5);
    check(admitted.clone(), "assign west, because admitted on west");
    check(admitted.clone().assigned("west"), "start west, because admitted on west");
    // What it may still hold waits for it to be back, and does not win then (MK-FLOW-21, MK-LOST-04).
    let back = admitted.assigned("west").remote("east", |east| east.link = Link::Connected);
    check(back, "delete east, start west, because admitted on west");
}

/// MK-FLOW-13: what is out of sync goes whatever the check says, so that nobody is wedged behind it; MK-ELA-08: a slice
/// that is out of sync is about to be given its job.
#[test]
fn mk_flow_13_what_is_out_of_sync_is_in_nobodys_way() {
    let out = |seen: Seen| {
        seen.remote("east", |east| {
            set(Arc::make_mut(east.workload.as_mut().expect("a copy")), "Finished", "OutOfSync");
        })
    };
    let ready = seen().quota().copy("east", &["Admitted"]).mirror("east", json!({})).ready("east");
    for state in [CheckState::Ready, CheckState::Retry, CheckState::Pending] {
        let deletes =
            plan(&out(ready.clone().check(state, ""))).to_string().starts_with("stop and delete east");
        assert!(deletes, "{state:?}");
    }
    // The same on a cluster that is not the one that was chosen.
    let other = out(seen()
        .quota()
        .copy("west", &["Admitted"])
        .mirror("west", json!({}))
        .ready("west")
        .copy("east", &[]));
    check(other, "delete east, because admitted on west");
    let elastic_job = |all: &mut Option<std::collections::BTreeMap<String, String>>| {
        all.get_or_insert_default().insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
    };
    let elastic = |local: &mut Workload| elastic_job(&mut local.metadata.annotations);
    // A slice whose job is another's, or not its size yet, is about to be given it (MK-ELA-08). One that has its job and does
    // not fit it stayed as it was for ever, said to run.
    let slice = ready.local(elastic).job(|job| elastic_job(&mut job.metadata.annotations));
    check(
        out(slice.clone()),
        "stop and delete east, refuse east (out of sync with its job), retry (Remote workload on worker cluster \"east\" is out \
         of sync with its user job, resetting for re-dispatch, Previously: \"Ready\"), because out of sync on east",
    );
    let of_another = slice.clone().remote("east", |east| {
        let mirror = Arc::make_mut(east.job.as_mut().expect("a mirror"));
        let annotations = mirror.metadata.annotations.as_mut().expect("annotations");
        annotations.insert("kueue.x-k8s.io/prebuilt-workload-name".into(), "job-j-before".into());
    });
    check(out(of_another), "wait, because another slice follows");
    let larger = slice.remote("east", |east| {
        Arc::make_mut(east.job.as_mut().expect("a mirror")).data["spec"]["parallelism"] = json!(3);
    });
    check(out(larger), "forward east, because admitted on east");
}

/// MK-FLOW-27, MK-ADP-02: what runs and does not change costs no write and no event.
#[test]
fn mk_flow_27_nothing_is_written_twice() {
    let runs = seen()
        .quota()
        .copy("east", &["Admitted"])
        .mirror("east", running())
        .ready("east")
        .job(|job| (job.data["spec"]["suspend"], job.data["status"]) = (json!(false), running()));
    assert_eq!(plan(&runs).steps, Vec::<Step>::new());
    let local = runs.0.local.as_deref().expect("a Workload");
    let again = local::apply(local, CHECK, &[&Step::Ready("east".into())], now());
    assert_eq!(local::patch(local, &again), None);
}

/// MK-FLOW-30: nothing is offered unless the check is pending, no cluster is chosen and no eviction is under way.
#[test]
fn mk_flow_30_nothing_is_offered_while_something_is_not_over() {
    let offers =
        |seen: Seen| plan(&seen).steps.iter().any(|step| matches!(step, Step::Create(_) | Step::Nominate(_)));
    assert!(offers(seen().quota()));
    for state in [CheckState::Ready, CheckState::Retry, CheckState::Rejected] {
        assert!(!offers(seen().quota().check(state, "")), "{state:?}");
    }
    assert!(!offers(seen().quota().condition("Evicted", "Preempted")));
    assert!(!offers(seen().quota().assigned("east")));
    assert!(!offers(seen()), "without quota");
    assert!(!offers(seen().quota().condition("Finished", "Succeeded")));
}

/// MK-SM-01, MK-INT-06: each text as release 0.19 has it, with what the check said before.
#[test]
fn mk_sm_01_messages_tell_what_was_before() {
    let ready = seen().quota().copy("east", &["Admitted"]).mirror("east", json!({})).ready("east");
    let says = |seen: &Seen, policy: &Policy| {
        let plan = decide(&seen.0, policy, now());
        let said = plan.steps.iter().find_map(|step| match step {
            Step::Retry { message, .. } | Step::Reject(message) => Some(message.clone()),
            _ => None,
        });
        said.unwrap_or_else(|| panic!("{plan}"))
    };
    assert_eq!(
        says(&ready.clone().lost("east", 900), &patient()),
        "Admitting remote lost, Previously: \"Ready\""
    );
    let gone = ready.clone().remote("east", |east| (east.workload, east.job) = (None, None)).read("east");
    assert_eq!(says(&gone, &patient()), "Admitting remote no longer exists, Previously: \"Ready\"");
    let evicted = ready.copy("east", &["Evicted"]);
    assert_eq!(
        says(&evicted, &patient()),
        "Workload evicted on worker cluster: \"east\", resetting for re-admission. Previously: \"Ready\""
    );
    let unmanaged =
        seen().quota().check(CheckState::Ready, "").job(|job| job.data["spec"]["managedBy"] = json!("x/y"));
    assert!(says(&unmanaged, &patient()).ends_with(", Previously: \"Ready\""));
    assert_eq!(local::admitted_on(&"east".into()), "The workload was admitted on \"east\"");
}

/// MK-FLOW-14, MK-RUN-04: the end is told in the worker's words, if the controller of the kind has not told it in those of
/// the job.
#[test]
fn mk_flow_14_the_end_of_the_workload_is_that_on_the_worker() {
    let ended = seen()
        .quota()
        .copy("east", &["Admitted", "Finished"])
        .mirror("east", complete())
        .ready("east")
        .job(|job| job.data["status"] = complete());
    let early = plan(&ended);
    assert_eq!((early.steps, early.again), (vec![], Some(now() + SignedDuration::from_secs(5))));
    let steps = plan(&long_ago(ended, "east")).steps;
    assert_eq!(steps, [Step::Finish { reason: "Succeeded".to_owned(), message: "in words".to_owned() }]);
}

/// MK-DISP-04, MK-DISP-07: who is nominated is written when it changes, not when its order does; one who is nominated
/// and cannot be reached keeps nobody from being served.
#[test]
fn mk_disp_07_the_list_is_written_when_it_changes() {
    let offered = seen().quota().copy("east", &[]).copy("west", &[]);
    check(offered.clone().nominated(&["west", "east"]), "wait, because nominated");
    check(offered.nominated(&["east"]), "nominate east west, because nominated");
    let external = Policy { dispatcher: crate::dispatch::Dispatcher::External, ..Policy::default() };
    let told = seen().quota().nominated(&["east", "west"]).lost("east", 5);
    check_with(told, &external, "create west, because nominated");
}

/// MK-DISP-05, MK-ELA-01, MK-ELA-02, MK-ELA-04: the slice that follows goes where the job runs, and takes the job over
/// when it is admitted there; until then the job is left alone.
#[test]
fn mk_disp_05_a_slice_follows_the_one_before() {
    let elastic = |seen: Seen| {
        let mark = |all: &mut Option<std::collections::BTreeMap<String, String>>| {
            all.get_or_insert_default().insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
        };
        seen.local(|local| mark(&mut local.metadata.annotations))
            .job(|job| mark(&mut job.metadata.annotations))
    };
    let before = elastic(seen().quota()).copy("east", &["Admitted"]).mirror("east", running());
    let mut next = before.clone().local(|local| {
        (local.metadata.name, local.metadata.uid) = (Some("job-j-next".into()), Some("workload-2".into()));
        local.spec.pod_sets[0].count = 3;
        let annotations = local.metadata.annotations.get_or_insert_default();
        annotations.insert(REPLACEMENT_FOR.into(), "ns/job-j-12345".into());
        local.status.as_mut().expect("a status").cluster_name = Some("east".into());
    });
    next.0.remotes.get_mut("east").expect("a cluster").workload = None;
    let next = next.job(|job| job.data["spec"]["parallelism"] = json!(3));
    check(next.clone(), "mirror east, create east, because nominated");
    check(next.clone().lost("east", 5), "wait, because east is lost");
    let offered = next.copy("east", &[]);
    check(offered.clone(), "mirror east, because nominated");
    // Meanwhile the job goes on by the slice before: it may end, shrink, or be taken back.
    let ended = offered.clone().remote("east", |east| {
        Arc::make_mut(east.job.as_mut().expect("a mirror")).data["status"] = complete();
    });
    check(ended.clone(), "mirror east, because ended on east");
    check(ended.clone().condition("Evicted", "Preempted"), "mirror east, because ended on east");
    let forgotten = ended.local(|local| local.status.as_mut().expect("a status").cluster_name = None);
    check(forgotten, "mirror east, because ended on east");
    // Once that is recorded, nothing starts again, whoever cleans up first.
    let recorded = offered.clone().copy("east", &["Admitted"]).job(|job| job.data["status"] = complete());
    check(recorded.remote("east", |east| east.job = None), "wait, because finished");
    let smaller = offered.clone().local(|local| local.spec.pod_sets[0].count = 1);
    check(smaller, "update east, because nominated");
    let evicted = offered.clone().condition("Evicted", "Preempted");
    check(evicted, "mirror east, stop and delete east, because evicted");
    let taken_back =
        offered.clone().local(|local| local.status.as_mut().expect("a status").conditions.clear());
    check(taken_back, "stop and delete east, because no quota");
    let admitted = offered.clone().copy("east", &["Admitted"]);
    check(admitted.clone(), "forward east, because admitted on east");
    let repointed = admitted.mirror("east", running());
    check(repointed.clone(), "mirror east, ready east, because admitted on east");
    // The slice before does not take the job back, nor away, before it is told that it was replaced.
    let mut old = before.ready("east");
    old.0.remotes.get_mut("east").expect("a cluster").job = repointed.0.remotes["east"].job.clone();
    check(old.clone(), "wait, because another slice follows");
    let replaced = old.condition("Finished", "WorkloadSliceReplaced");
    check(replaced.clone(), "wait, because another slice follows");
    // What is left of it goes when the job has ended.
    check(replaced.job(|job| job.data["status"] = complete()), "delete east, because finished");
}

/// A slice that is over, or waits for quota, leaves alone what another one runs by. It took the mirror of the one before away
/// when nobody wanted it any more, and what ran there still ran when the Job was started elsewhere.
#[test]
fn mk_ela_04_the_job_is_the_concern_of_the_slice_that_it_runs_by() {
    let slice = |seen: Seen| {
        seen.local(|local| {
            let annotations = local.metadata.annotations.get_or_insert_default();
            annotations.insert("kueue.x-k8s.io/elastic-job".into(), "true".into());
        })
    };
    let follows = |seen: Seen| {
        slice(seen).local(|local| {
            let annotations = local.metadata.annotations.get_or_insert_default();
            annotations.insert(REPLACEMENT_FOR.into(), "ns/job-j-12345".into());
        })
    };
    assert!(slice(seen()).0.is_current(), "the first one");
    assert!(slice(seen().quota()).0.is_current());
    assert!(!slice(seen().quota().condition("Finished", "OutOfSync")).0.is_current());
    assert!(seen().quota().condition("Finished", "Succeeded").0.is_current(), "it has no others beside it");
    assert!(!follows(seen()).0.is_current(), "it waits");
    assert!(follows(seen().quota()).0.is_current());
    assert!(follows(seen().assigned("east")).0.is_current(), "its cluster may hold the job");
    let mut gone = seen();
    gone.0.job = None;
    assert!(!gone.0.is_current());
}

/// MK-ELA-02, WL-10: the slice that follows says where the job may exist from when it has quota.
#[test]
fn mk_ela_02_a_slice_is_held_where_the_one_before_is() {
    let before = seen().quota().assigned("east").0.local.expect("a Workload");
    let before = local::apply(&before, CHECK, &[&Step::Assign("east".into())], now());
    let mut next = Workload::default();
    local::follow(&mut next, &before, now());
    assert_eq!(next.status.as_ref().and_then(|status| status.cluster_name.as_deref()), Some("east"));
    assert_eq!(crate::dispatch::held(&next), Some("east".into()));
    let mut here = Workload::default();
    local::follow(&mut here, &seen().quota().0.local.expect("a Workload"), now());
    assert_eq!((crate::dispatch::held(&here), here.status.unwrap_or_default().cluster_name), (None, None));
}
