//! Which clusters are asked.

use std::sync::Arc;

use jiff::SignedDuration;

use super::fixture::*;
use crate::dispatch::{Dispatcher, Load, PATIENCE, Policy, Remote, decide};

/// MK-API-02, MK-DISP-03, MK-DISP-09, MK-DISP-10, MK-DISP-11, MK-DISP-12, MK-DISP-13.
#[test]
fn dispatchers() {
    let three = |seen: Seen| {
        let mut seen = seen;
        seen.0.configured = ["south", "west", "east"].map(Into::into).to_vec();
        seen.0.remotes.insert("south".into(), Remote::default());
        seen
    };
    let incremental = Policy { dispatcher: Dispatcher::Incremental { step: 1 }, ..Policy::default() };
    let first = three(seen().quota());
    check_with(first.clone(), &incremental, "nominate south, because nominated");
    let plan = decide(&first.0, &incremental, now());
    assert_eq!(plan.again, Some(now() + SignedDuration::from_mins(5)));
    let later = |seconds: i64| {
        three(seen().quota()).nominated(&["south"]).copy("south", &[]).local(|local| {
            let reserved = &mut local.status.as_mut().expect("a status").conditions[0];
            reserved.last_transition_time.0 = ago(seconds);
        })
    };
    check_with(later(299), &incremental, "wait, because nominated");
    check_with(later(300), &incremental, "nominate south west, because nominated");
    check_with(later(3000), &incremental, "nominate south west east, because nominated");
    // Who cannot be reached takes no place from others (MK-DISP-12).
    check_with(first.lost("south", 5), &incremental, "nominate west, because nominated");
    let external = Policy { dispatcher: Dispatcher::External, ..Policy::default() };
    check_with(
        three(seen().quota()),
        &external,
        "say (Waiting for a worker cluster: south was not nominated; west was not nominated; east was not nominated), because no cluster can be asked",
    );
    check_with(
        three(seen().quota()).nominated(&["east"]).copy("west", &[]),
        &external,
        "create east, delete west, because nominated",
    );
}

/// MK-DISP-17.
#[test]
fn the_cluster_with_the_least_to_do_is_asked_first() {
    let policy = Policy { dispatcher: Dispatcher::LeastLoaded, ..Policy::default() };
    let check = |seen: Seen, expected: &str| check_with(seen, &policy, expected);
    let load = |asked, runs| move |remote: &mut Remote| remote.load = Load { asked, runs };
    // Where all have as much to do, their configuration says who is first.
    check(seen().quota(), "nominate east, because nominated");
    check(seen().quota().remote("east", load(0, 1)), "nominate west, because nominated");
    // Who has others wait is busier than who runs more.
    let waits = seen().quota().remote("east", load(1, 0)).remote("west", load(0, 7));
    check(waits, "nominate west, because nominated");
    let asked = || seen().quota().nominated(&["west"]).remote("west", load(3, 3));
    check(asked(), "create west, because nominated");
    assert_eq!(decide(&asked().copy("west", &[]).0, &policy, now()).again, Some(now() + PATIENCE));
    check(asked().copy("west", &["Admitted"]), "assign west, because admitted on west");
    // Others are asked as soon as it says that it has no room, or if it says nothing for long.
    let full = asked().copy("west", &["QuotaReserved"]).remote("west", |remote| {
        let copy = Arc::make_mut(remote.workload.as_mut().expect("a copy"));
        copy.status.as_mut().expect("a status").conditions[0].status = "False".to_owned();
    });
    check(full, "nominate west east, because nominated");
    let silent = |seconds: i64| {
        asked().copy("west", &[]).local(|local| {
            let reserved = &mut local.status.as_mut().expect("a status").conditions[0];
            reserved.last_transition_time.0 = ago(seconds);
        })
    };
    check(silent(9), "wait, because nominated");
    check(silent(10), "nominate west east, because nominated");
    // Who cannot be reached is not waited for.
    check(asked().lost("west", 5), "nominate west east, because nominated");
}

/// MK-DISP-17.
#[test]
fn what_a_cluster_has_to_do() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<String>>();
    let check = |seen: Seen, asked: &[&str], runs: Option<&str>| {
        let local = seen.0.local.expect("a Workload");
        assert_eq!((Load::asked(&local), Load::runs(&local).as_deref()), (names(asked), runs));
    };
    let ends = |seen: Seen| seen.condition("Finished", "Succeeded");
    let (asked, runs) = (seen().quota().nominated(&["east", "west"]), seen().quota().ready("east"));
    check(seen().quota(), &[], None);
    check(asked.clone(), &["east", "west"], None);
    check(runs.clone(), &[], Some("east"));
    check(ends(asked), &[], None);
    check(ends(runs), &[], None);
}
