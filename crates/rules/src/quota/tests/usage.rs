//! Admission fair sharing: what LocalQueues used, and who comes first by that.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use proptest::prelude::*;
use types::Quantity;

use super::scenario::{check, key, local_queue, queue, quota, scenario, second, usage, workload};
use crate::quota::{
    Policy,
    config::{
        QueueingStrategy::{BestEffortFifo, StrictFifo},
        ReclaimWithinCohort::Any,
        WithinClusterQueue::LowerPriority,
    },
    fair::Strategy as Sharing,
    ledger::{Fate, Ledger, Opening},
    queue::{Queue, Requeue, Waiting},
    requests::List,
    usage::Settings,
    wire,
};

const HOUR: i64 = 3600;

fn settings(half_life: i64, interval: i64) -> Settings {
    let seconds = SignedDuration::from_secs;
    Settings { half_life: seconds(half_life), interval: seconds(interval), weights: BTreeMap::new() }
}

fn amounts(text: &str) -> List {
    let amount = |(name, amount): (&str, &str)| (name.to_owned(), amount.parse().expect("a quantity"));
    text.split_whitespace().filter_map(|it| it.split_once('=')).map(amount).collect()
}

fn text(list: &List) -> String {
    list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn qu_20_use_as_one_number() {
    let check = |used: &str, weight: f64, want: f64| {
        let weights = [("gpu".to_owned(), 10.0), ("memory".to_owned(), 0.0)].into();
        let usage = Settings { weights, ..settings(HOUR, 300) }.usage(&amounts(used), weight);
        assert_eq!(
            usage.as_f64().total_cmp(&want),
            std::cmp::Ordering::Equal,
            "{used} / {weight}: {usage:?}"
        );
    };
    check("", 1.0, 0.0);
    check("cpu=1500m", 1.0, 1.5);
    check("cpu=1 gpu=2", 1.0, 21.0);
    check("cpu=1 gpu=2 memory=1Gi", 2.0, 10.5);
    check("cpu=1", 0.5, 2.0);
    check("cpu=1", 0.0, f64::INFINITY);
    check("", 0.0, f64::INFINITY);
    check("", -1.0, f64::INFINITY);
    assert!(usage("1") < usage("2") && usage("1") == usage("1000m"));
}

#[test]
fn qu_21_use_fades() {
    let check = |half_life: i64, before: &str, held: &str, elapsed: i64, want: &str| {
        let elapsed_time = SignedDuration::from_secs(elapsed);
        let faded = settings(half_life, 300).faded(&amounts(before), &amounts(held), elapsed_time);
        assert_eq!(text(&faded), want, "{before} with {held} after {elapsed} s");
    };
    check(HOUR, "cpu=8", "", HOUR, "cpu=4");
    check(HOUR, "", "cpu=8", HOUR, "cpu=4");
    check(HOUR, "cpu=8", "cpu=8", HOUR, "cpu=8");
    check(HOUR, "cpu=8", "cpu=4 memory=1Gi", 2 * HOUR, "cpu=5 memory=805306368");
    check(HOUR, "cpu=8", "cpu=4", 0, "cpu=8");
    check(HOUR, "", "cpu=4", 0, "cpu=0");
    check(HOUR, "cpu=8", "cpu=4", -5, "cpu=8");
    check(HOUR, "cpu=1n", "", 1, "cpu=0");
    check(0, "cpu=8", "cpu=4", 0, "");
}

#[test]
fn qu_22_what_counts_at_once() {
    assert_eq!(text(&settings(HOUR, HOUR).penalty(&amounts("cpu=8 gpu=1"))), "cpu=4 gpu=500m");
    assert_eq!(text(&settings(HOUR, 0).penalty(&amounts("cpu=8"))), "cpu=0");
    assert_eq!(text(&settings(0, HOUR).penalty(&amounts("cpu=8"))), "cpu=0");
    let two = workload("two", 2).asking(vec![
        super::scenario::pods(3, &[("cpu", 1), ("gpu", 1)]),
        super::scenario::pods(1, &[("cpu", 2)]),
    ]);
    let total = two.total_requests();
    let list = crate::quota::usage::list(total.iter().map(|(name, amount)| (name, *amount)));
    assert_eq!(text(&list), "cpu=5 gpu=3");
}

/// What Kueue's own code makes of some amounts, half-lives and times: what is left, what a newcomer counts, and both as one
/// number, by weights.
#[test]
fn qu_20_qu_21_qu_22_kueue_comes_to_the_same() {
    let check = |before: &str, held: &str, (elapsed, half_life): (i64, i64), want: [&str; 2], number: f64| {
        let millis = SignedDuration::from_millis;
        let weights = [("memory".to_owned(), 0.25)].into();
        let settings = Settings { half_life: millis(half_life), interval: millis(300_000), weights };
        let faded = settings.faded(&amounts(before), &amounts(held), millis(elapsed));
        let penalty = settings.penalty(&amounts(held));
        assert_eq!([text(&faded), text(&penalty)], want, "{before}, then {held}");
        let usage = settings.usage(&crate::quota::usage::sum(&faded, &penalty), 2.5).as_f64();
        assert!((usage - number).abs() <= number * 1e-15, "{usage} is not {number}");
    };
    check(
        "cpu=8",
        "cpu=4 memory=1Gi",
        (7_200_000, 3_600_000),
        ["cpu=5 memory=805306368", "cpu=224502749n memory=60264497874412057n"],
        86_557_088.677_242_31,
    );
    check(
        "cpu=1500m memory=3Gi",
        "cpu=7 memory=10Mi",
        (1_000, 3_600_000),
        ["cpu=1501058872n memory=3220607332849637586n", "cpu=392879811n memory=588520487054805n"],
        322_119_586.091_244_7,
    );
    check(
        "cpu=333m memory=1",
        "cpu=100m memory=5Gi",
        (300_000, 604_800_000),
        ["cpu=332919902n memory=1845569416248118n", "cpu=34376n memory=1845568416591882n"],
        369_113.916_465_711_2,
    );
    check(
        "cpu=12345678n memory=123456789",
        "cpu=2 memory=7Gi",
        (17_250, 100_000),
        ["cpu=236346830n memory=956590278578160661n", "cpu=1750m memory=6576668672"],
        753_325_895.852_354_8,
    );
    check(
        "cpu=1 memory=1Gi",
        "cpu=0 memory=0",
        (1_000_000, 3_000),
        ["cpu=0 memory=0", "cpu=0 memory=0"],
        0.0,
    );
}

/// A ledger with the account `lq`, and all that is said of it.
struct Books {
    ledger: Ledger,
    settings: Settings,
}

impl Books {
    fn open(consumed: &str) -> Books {
        let mut books = Books { ledger: Ledger::default(), settings: settings(HOUR, HOUR) };
        books.opened("lq", "1", consumed, 0);
        books
    }

    fn opened(&mut self, queue: &str, uid: &str, consumed: &str, at: i64) {
        let consumed = amounts(consumed);
        let opening = Opening { uid: uid.to_owned(), weight: 1.0, consumed, shown_at: None };
        self.ledger.open(&local_queue(queue), opening, second(at));
    }

    fn penalize(&mut self, name: &str, queue: &str, requests: &str) {
        self.ledger.penalize(&key(name), &local_queue(queue), &amounts(requests), &self.settings);
    }

    #[track_caller]
    fn uses(&self, queue: &str, want: &str) {
        let uses = self.ledger.usage(&local_queue(queue), &self.settings).expect("an account");
        assert_eq!(uses, usage(want), "{queue} uses {uses:?}");
    }
}

#[test]
fn qu_22_penalties_count_until_they_are_use_or_dropped() {
    let mut books = Books::open("");
    books.uses("lq", "0");
    books.penalize("a", "lq", "cpu=8");
    books.uses("lq", "4");
    books.penalize("a", "lq", "cpu=8");
    books.uses("lq", "4");
    books.penalize("b", "lq", "cpu=2");
    books.uses("lq", "5");
    assert_eq!(books.ledger.penalized(&key("a")), Some(&local_queue("lq")));
    // It could not be written, it is gone, it ended, or it is in another LocalQueue now.
    assert_eq!(books.ledger.spare(&key("b")), Some(local_queue("lq")));
    assert_eq!(books.ledger.spare(&key("b")), None, "once");
    books.uses("lq", "4");
    // It is admitted: what counts does not change by that, and from then on it fades.
    assert_eq!(books.ledger.settle(&key("a"), &books.settings, second(0)), Some(local_queue("lq")));
    books.uses("lq", "4");
    assert_eq!(books.ledger.settle(&key("a"), &books.settings, second(0)), None, "once");
    let faded = books.ledger.sample(&local_queue("lq"), &books.settings, second(HOUR));
    assert_eq!(text(&faded.expect("an account")), "cpu=2");
    // What is there when one settles counts for the whole time since the last look.
    books.ledger.hold(&key("a"), &local_queue("lq"), amounts("cpu=8"));
    books.penalize("c", "lq", "cpu=1");
    books.ledger.settle(&key("c"), &books.settings, second(2 * HOUR));
    books.uses("lq", "5500m");
    // One that moves takes its penalty along.
    books.opened("other", "2", "", 0);
    books.penalize("d", "lq", "cpu=2");
    books.penalize("d", "other", "cpu=2");
    books.uses("lq", "5500m");
    books.uses("other", "1");
    // Where there is no LocalQueue, nobody counts.
    books.penalize("e", "nowhere", "cpu=2");
    assert_eq!(books.ledger.penalized(&key("e")), None);
}

#[test]
fn qu_21_what_is_written_down_and_when() {
    let mut books = Books::open("");
    let (lq, settings) = (local_queue("lq"), books.settings.clone());
    assert_eq!(books.ledger.due(&lq, &settings), Some(second(0)), "at once for the first time");
    let shown = books.ledger.sample(&lq, &settings, second(0));
    assert_eq!(text(&shown.expect("an account")), "");
    books.ledger.shown(&lq, second(0));
    assert_eq!(books.ledger.due(&lq, &settings), Some(second(HOUR)));
    books.ledger.hold(&key("a"), &lq, amounts("cpu=8"));
    books.ledger.hold(&key("b"), &lq, amounts("cpu=2"));
    books.ledger.hold(&key("b"), &lq, amounts("cpu=2"));
    books.ledger.release(&key("a"));
    let shown = books.ledger.sample(&lq, &settings, second(HOUR));
    assert_eq!(text(&shown.expect("an account")), "cpu=1");
    books.ledger.release(&key("b"));
    books.ledger.release(&key("b"));
    let before = books.ledger.sample(&lq, &settings, second(HOUR - 60));
    assert_eq!(text(&before.expect("an account")), "cpu=1", "time does not run backwards");
    let after = books.ledger.sample(&lq, &settings, second(2 * HOUR));
    assert_eq!(text(&after.expect("an account")), "cpu=500m");
    assert_eq!(books.ledger.due(&local_queue("nowhere"), &settings), None);
}

#[test]
fn sm_43_use_survives_a_restart_and_penalties_do_not() {
    let mut books = Books::open("cpu=4");
    books.penalize("a", "lq", "cpu=8");
    books.uses("lq", "8");
    books.opened("lq", "1", "cpu=100", 0);
    books.uses("lq", "8");
    // What was written down counts from the restart on, however long ago it was written.
    books = Books::open("cpu=4");
    books.uses("lq", "4");
    // Another one of this name begins anew, without the penalties of the one before.
    books.penalize("a", "lq", "cpu=8");
    books.opened("lq", "2", "", 0);
    books.uses("lq", "0");
    assert_eq!(books.ledger.penalized(&key("a")), None);
    books.ledger.close(&local_queue("lq"));
    assert_eq!(books.ledger.usage(&local_queue("lq"), &books.settings), None);
}

#[test]
fn qu_22_what_becomes_of_a_penalty() {
    let condition = |kind: &str| {
        let time = "2026-01-01T00:00:00Z";
        serde_json::json!({ "type": kind, "status": "True", "reason": "", "message": "", "lastTransitionTime": time })
    };
    let check = |queue: &str, active: bool, conditions: &[&str], want: Fate| {
        let conditions: Vec<_> = conditions.iter().map(|kind| condition(kind)).collect();
        let object = serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "namespace": "ns", "name": "w" },
            "spec": { "queueName": queue, "active": active, "podSets": [] },
            "status": { "conditions": conditions, "admission": { "clusterQueue": "cq", "podSetAssignments": [] } },
        });
        let object = serde_json::from_value(object).expect("a Workload");
        let fate = wire::fate(Some(&object), &local_queue("lq"), |queue| queue == "cq");
        assert_eq!(fate, want, "{queue}, {active}, {conditions:?}");
        let elsewhere = wire::fate(Some(&object), &local_queue("lq"), |_| false);
        assert_eq!(elsewhere, if want == Fate::Settled { Fate::Dropped } else { want });
    };
    check("lq", true, &[], Fate::Pending);
    check("lq", true, &["QuotaReserved"], Fate::Pending);
    check("lq", true, &["QuotaReserved", "Admitted"], Fate::Settled);
    check("lq", true, &["Evicted"], Fate::Pending);
    check("lq", true, &["QuotaReserved", "Finished"], Fate::Dropped);
    check("other", true, &["QuotaReserved", "Admitted"], Fate::Dropped);
    check("lq", false, &["QuotaReserved"], Fate::Pending);
    check("lq", false, &["QuotaReserved", "Admitted"], Fate::Pending);
    check("lq", false, &[], Fate::Dropped);
    assert_eq!(wire::fate(None, &local_queue("lq"), |_| true), Fate::Dropped);
}

fn of(name: &str, queue: &str, priority: i64) -> Waiting {
    let cores = 1 + i64::from(name.as_bytes()[0]);
    Waiting::new(workload(name, cores).of(queue).priority(priority))
}

fn names(mut queue: Queue) -> Vec<String> {
    std::iter::from_fn(|| queue.pop().map(|waiting| waiting.workload.key.name.to_string())).collect()
}

#[test]
fn qu_2_g_14_use_comes_before_all_else() {
    let mut queue = Queue::new(BestEffortFifo);
    for waiting in [of("a", "much", 9), of("b", "little", 0), of("c", "little", 5), of("d", "much", 0)] {
        queue.push(waiting, second(0));
    }
    queue.set_usage(&local_queue("much"), Some(usage("2")));
    queue.set_usage(&local_queue("little"), Some(usage("1")));
    assert_eq!(names(queue.clone()), ["a", "c", "b", "d"], "not where nobody asked for it");
    queue.set_by_usage(true);
    assert_eq!(names(queue.clone()), ["c", "b", "a", "d"]);
    // Use changes from one to the next.
    assert_eq!(queue.pop().map(|it| it.workload.key), Some(key("c")));
    queue.set_usage(&local_queue("little"), Some(usage("3")));
    assert_eq!(queue.pop().map(|it| it.workload.key), Some(key("a")));
    queue.set_usage(&local_queue("little"), Some(usage("2")));
    assert_eq!(names(queue.clone()), ["b", "d"], "of those who used the same it is as ever");
    queue.set_usage(&local_queue("much"), None);
    assert_eq!(names(queue.clone()), ["d", "b"], "who is not known used nothing");
    queue.set_by_usage(false);
    assert_eq!(names(queue), ["b", "d"]);
}

#[test]
fn qu_2_a_preemptor_keeps_its_place_only_among_those_who_used_as_much() {
    let next = |strategy, preemptors: &str| {
        let mut queue = Queue::new(strategy);
        queue.set_by_usage(true);
        queue.set_usage(&local_queue("its"), Some(usage(preemptors)));
        queue.set_usage(&local_queue("other"), Some(usage("1")));
        queue.push(of("preemptor", "its", 0), second(0));
        let head = queue.pop().expect("one was pushed");
        queue.requeue(head, Requeue::PendingPreemption, second(0));
        queue.push(of("important", "other", 9), second(0));
        let first = queue.in_order()[0].workload.key.clone();
        assert_eq!(queue.pop().map(|it| it.workload.key), Some(first.clone()));
        first.name.to_string()
    };
    assert_eq!(next(BestEffortFifo, "1"), "preemptor");
    assert_eq!(next(BestEffortFifo, "2"), "important");
    assert_eq!(next(StrictFifo, "1"), "important");
}

#[test]
fn qu_13_those_of_another_local_queue_are_not_behind_one_who_asks_for_the_same() {
    let mut queue = Queue::new(BestEffortFifo);
    queue.set_by_usage(true);
    let alike = |name: &str, lq: &str| Waiting::new(workload(name, 1).of(lq));
    for waiting in [alike("a1", "a"), alike("a2", "a"), alike("b1", "b"), alike("b2", "b")] {
        queue.push(waiting, second(0));
    }
    let head = queue.pop().expect("four were pushed");
    queue.requeue(head, Requeue::NoFit, second(0));
    assert_eq!((queue.len(), queue.pop()), ((0, 4), None), "one does not fit, so none does");
    queue.retry(second(0), |_| true);
    assert_eq!(queue.len(), (4, 0));
    queue.set_usage(&local_queue("a"), Some(usage("1")));
    assert_eq!(names(queue.clone()), ["b1", "b2", "a1", "a2"]);
    queue.set_by_usage(false);
    assert_eq!(names(queue), ["a1", "a2", "b1", "b2"]);
}

#[test]
fn qu_23_g_7_who_used_more_goes_first_whatever_the_priority() {
    let run = |by_usage: bool| {
        let q = queue("q", quota(4)).within(LowerPriority);
        scenario()
            .queue(if by_usage { q.by_usage() } else { q })
            .used("much", "9")
            .used("little", "1")
            .running("q", &workload("a", 2).of("little").priority(-9), 2)
            .running("q", &workload("b", 2).of("much").priority(-1), 2)
            .head("q", workload("new", 2).of("third"))
    };
    check("QU-23", &run(true), &["preempt ns/b (InClusterQueue) for ns/new to q…"]);
    check("QU-23 off", &run(false), &["preempt ns/a (InClusterQueue) for ns/new to q…"]);
    let mut evicted = run(true);
    evicted.running[0].evicted = true;
    check("PR-4 first", &evicted, &["preempt ns/a (InClusterQueue) for ns/new to q…"]);
    // With fair sharing among ClusterQueues it is the same inside of one.
    let policy =
        Policy { fair_sharing: Some(vec![Sharing::LessThanOrEqualToFinalShare]), ..Policy::default() };
    check("QU-23 fair", &run(true).policy(policy), &["preempt ns/b (InClusterQueue) for ns/new to q…"]);
}

#[test]
fn qu_23_between_queues_priority_decides() {
    // By priority the order is a1, b, a2; a1 and a2 change places by what their LocalQueues used.
    let run = |needed: i64| {
        scenario()
            .queue(queue("new", quota(6)).part_of("cohort").reclaim(Any))
            .queue(queue("a", quota(0)).part_of("cohort").by_usage())
            .queue(queue("b", quota(0)).part_of("cohort"))
            .used("little", "1")
            .used("much", "9")
            .running("a", &workload("a1", 2).of("little").priority(1), 2)
            .running("b", &workload("b", 2).of("much").priority(2), 2)
            .running("a", &workload("a2", 2).of("much").priority(3), 2)
            .head("new", workload("new", needed))
    };
    check("QU-23 one", &run(2), &["preempt ns/a2 (InCohortReclamation) for ns/new to new…"]);
    let two = "preempt ns/a2 (InCohortReclamation), ns/b (InCohortReclamation) for ns/new to new…";
    check("QU-23 two", &run(4), &[two]);
}

fn an_amount() -> impl Strategy<Value = Quantity> {
    (0_i64..1_000_000).prop_map(|millis| Quantity::from_millis(millis, types::quantity::Format::DecimalSi))
}

fn cpu(amount: &Quantity) -> List {
    [("cpu".to_owned(), amount.clone())].into()
}

proptest! {
    /// However often it is looked at, use comes to the same, and is between what it was and what is held.
    #[test]
    fn qu_21_looking_more_often_changes_nothing(
        before in an_amount(), held in an_amount(), seconds in 1_i64..20_000, looks in 1_i32..20,
    ) {
        let settings = settings(HOUR, 300);
        let elapsed = SignedDuration::from_secs(seconds);
        let once = settings.faded(&cpu(&before), &cpu(&held), elapsed)["cpu"].clone();
        let mut often = cpu(&before);
        for _ in 0..looks {
            often = settings.faded(&often, &cpu(&held), elapsed / looks);
        }
        let off = (once.to_f64() - often["cpu"].to_f64()).abs();
        prop_assert!(off < 1e-6, "{once} and {often:?}");
        let (low, high) = (before.clone().min(held.clone()).to_f64(), before.max(held).to_f64());
        prop_assert!(once.to_f64() >= low - 1e-6 && once.to_f64() <= high + 1e-6, "{low} {once} {high}");
    }

    /// Penalties that were given are all taken back or used, and nothing is left of those who left.
    #[test]
    fn qu_22_nothing_is_left_of_who_is_gone(
        steps in prop::collection::vec((0_usize..6, 0_usize..5, an_amount()), 1..40),
    ) {
        let mut books = Books::open("");
        let lq = local_queue("lq");
        let names = ["a", "b", "c", "d", "e"];
        for (step, who, amount) in steps {
            let who = key(names[who]);
            match step {
                0 | 1 => books.ledger.penalize(&who, &lq, &cpu(&amount), &books.settings),
                2 => drop(books.ledger.spare(&who)),
                3 => drop(books.ledger.settle(&who, &books.settings, second(0))),
                4 => books.ledger.hold(&who, &lq, cpu(&amount)),
                _ => books.ledger.release(&who),
            }
        }
        for name in names {
            books.ledger.spare(&key(name));
            books.ledger.release(&key(name));
        }
        let settled = books.ledger.sample(&lq, &books.settings, second(0)).expect("an account");
        let uses = books.ledger.usage(&lq, &books.settings).expect("an account");
        prop_assert_eq!(uses, books.settings.usage(&settled, 1.0), "only what was settled counts");
        let mut later = settled.clone();
        for hour in 1..200 {
            later = books.ledger.sample(&lq, &books.settings, second(hour * HOUR)).expect("an account");
        }
        prop_assert!(later.values().all(Quantity::is_zero), "{later:?} of {settled:?} is left for ever");
    }

    /// A queue gives its Workloads out in the order that it shows, whatever was tried before.
    #[test]
    fn qu_2_given_out_as_shown(
        all in prop::collection::vec((0_usize..3, 0_i64..3, 0_i64..4, 0_i64..3), 1..20),
        used in prop::array::uniform3(0_i64..3),
        tried in 0_usize..5,
        by_usage in any::<bool>(),
    ) {
        let lanes = ["x", "y", "z"];
        let mut queue = Queue::new(BestEffortFifo);
        for (index, (lane, priority, queued, cores)) in all.into_iter().enumerate() {
            let workload = workload(&format!("w{index}"), 1 + cores).of(lanes[lane]);
            queue.push(Waiting::new(workload.priority(priority).queued(queued)), second(0));
        }
        for _ in 0..tried {
            if let Some(head) = queue.pop() {
                queue.requeue(head, Requeue::NoFit, second(0));
            }
        }
        queue.set_by_usage(by_usage);
        for (lane, used) in lanes.iter().zip(used) {
            queue.set_usage(&local_queue(lane), Some(usage(&used.to_string())));
        }
        queue.retry(second(0), |_| true);
        let shown: Vec<String> =
            queue.in_order().iter().map(|it| it.workload.key.name.to_string()).collect();
        prop_assert_eq!(names(queue), shown);
    }
}
