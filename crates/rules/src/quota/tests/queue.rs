use super::scenario::{key, second, workload};
use crate::quota::{
    config::QueueingStrategy::{self, BestEffortFifo, StrictFifo},
    flavors::ScanProgress,
    queue::{Queue, Requeue, Waiting},
};

fn waiting(name: &str, priority: i64, queued: i64) -> Waiting {
    // Every Workload asks for something else, so that none is parked for another's sake.
    Waiting::new(workload(name, 1 + i64::from(name.as_bytes()[0])).priority(priority).queued(queued))
}

fn queue_of(strategy: QueueingStrategy, all: &[Waiting]) -> Queue {
    let mut queue = Queue::new(strategy);
    for waiting in all {
        queue.push(waiting.clone(), second(0));
    }
    queue
}

fn names(mut queue: Queue) -> Vec<String> {
    std::iter::from_fn(|| queue.pop().map(|waiting| waiting.workload.key.name.to_string())).collect()
}

#[test]
fn qu_2_the_order_of_a_queue() {
    let all = [waiting("c", 0, 1), waiting("b", 5, 9), waiting("d", 0, 2), waiting("a", 0, 2)];
    assert_eq!(names(queue_of(BestEffortFifo, &all)), ["b", "c", "a", "d"]);
}

#[test]
fn qu_6_where_a_workload_goes_that_did_not_get_in() {
    let check = |how: Requeue, best_effort: (usize, usize), strict: (usize, usize)| {
        for (strategy, want) in [(BestEffortFifo, best_effort), (StrictFifo, strict)] {
            let mut queue = queue_of(strategy, &[waiting("a", 0, 0)]);
            let popped = queue.pop().expect("one was pushed");
            assert_eq!(queue.len(), (1, 0), "a popped Workload still waits");
            queue.requeue(popped, how, second(0));
            assert_eq!(queue.len(), want, "{how:?} in {strategy:?}");
        }
    };
    check(Requeue::NoFit, (0, 1), (1, 0));
    check(Requeue::NoCandidates, (0, 1), (1, 0));
    check(Requeue::Generic, (0, 1), (1, 0));
    check(Requeue::NamespaceMismatch, (0, 1), (0, 1));
    check(Requeue::FailedAfterNomination, (1, 0), (1, 0));
    check(Requeue::PendingPreemption, (1, 0), (1, 0));
    check(Requeue::PreemptionFailed, (1, 0), (1, 0));
}

#[test]
fn qu_6_untried_flavors_and_changes_bring_it_back_at_once() {
    let mut queue = queue_of(BestEffortFifo, &[waiting("a", 0, 0)]);
    let mut popped = queue.pop().expect("one was pushed");
    popped.progress =
        Some(ScanProgress { tried: vec![[("cpu".into(), Some(0))].into()], ..ScanProgress::default() });
    queue.requeue(popped.clone(), Requeue::NoCandidates, second(0));
    assert_eq!(queue.len(), (1, 0), "flavors are left");
    popped = queue.pop().expect("it is in line");
    popped.progress = None;
    queue.retry(second(0), |_| true);
    queue.requeue(popped, Requeue::NoFit, second(0));
    assert_eq!(queue.len(), (1, 0), "something changed since it was popped");
}

#[test]
fn qu_7_a_strict_queue_is_blocked_by_its_head() {
    let all = [waiting("large", 0, 1), waiting("small", 0, 2)];
    let next = |strategy| {
        let mut queue = queue_of(strategy, &all);
        let head = queue.pop().expect("two were pushed");
        queue.requeue(head, Requeue::NoFit, second(0));
        queue.pop().expect("one is left").workload.key
    };
    assert_eq!(next(StrictFifo), key("large"));
    assert_eq!(next(BestEffortFifo), key("small"));
}

#[test]
fn qu_8_a_preemptor_keeps_its_place() {
    let next = |strategy| {
        let mut queue = queue_of(strategy, &[waiting("preemptor", 0, 1)]);
        let head = queue.pop().expect("one was pushed");
        queue.requeue(head, Requeue::PendingPreemption, second(0));
        queue.push(waiting("important", 9, 2), second(0));
        assert_eq!(queue.in_order().len(), 2);
        queue.pop().expect("two wait").workload.key
    };
    assert_eq!(next(BestEffortFifo), key("preemptor"));
    assert_eq!(next(StrictFifo), key("important"));
}

#[test]
fn qu_9_parked_until_it_is_time() {
    let later = Waiting { not_before: Some(second(10)), ..waiting("a", 0, 0) };
    let mut queue = queue_of(BestEffortFifo, &[later, Waiting { held_back: true, ..waiting("b", 0, 0) }]);
    assert_eq!(queue.len(), (0, 2));
    assert!(!queue.retry(second(9), |_| true));
    assert!(queue.retry(second(10), |_| true), "the second itself counts");
    assert_eq!(queue.len(), (1, 1));
}

#[test]
fn qu_10_a_retry_leaves_out_foreign_namespaces() {
    let mut queue = queue_of(BestEffortFifo, &[waiting("a", 0, 0)]);
    let popped = queue.pop().expect("one was pushed");
    queue.requeue(popped, Requeue::NamespaceMismatch, second(0));
    assert!(!queue.retry(second(0), |_| false));
    assert!(queue.retry(second(0), |workload| workload.key == key("a")));
}

#[test]
fn qu_12_a_parked_workload_comes_back_when_it_asks_for_something_else() {
    let mut queue = queue_of(BestEffortFifo, &[waiting("a", 0, 0)]);
    let popped = queue.pop().expect("one was pushed");
    queue.requeue(popped, Requeue::NoFit, second(0));
    queue.push(waiting("a", 0, 0), second(0));
    assert_eq!(queue.len(), (0, 1), "nothing changed");
    queue.push(Waiting::new(workload("a", 1)), second(0));
    assert_eq!(queue.len(), (1, 0), "it asks for less");
}

#[test]
fn qu_13_who_asks_for_the_same_waits_too() {
    let alike = |name: &str| Waiting::new(workload(name, 7));
    let mut queue = queue_of(BestEffortFifo, &[alike("a"), alike("b"), waiting("other", 0, 9)]);
    let popped = queue.pop().expect("three were pushed");
    queue.requeue(popped, Requeue::NoFit, second(0));
    assert_eq!(queue.len(), (1, 2));
    queue.push(alike("late"), second(0));
    assert_eq!(queue.len(), (1, 3), "a newcomer is parked on arrival");
    assert!(queue.retry(second(0), |_| true));
    assert_eq!(queue.len(), (4, 0));
    let mut strict = queue_of(StrictFifo, &[alike("a"), alike("b")]);
    let popped = strict.pop().expect("two were pushed");
    strict.requeue(popped, Requeue::NoFit, second(0));
    assert_eq!(strict.len(), (2, 0));
}

#[test]
fn qu_14_a_popped_workload_is_left_alone() {
    let mut queue = queue_of(BestEffortFifo, &[waiting("a", 0, 0)]);
    let popped = queue.pop().expect("one was pushed");
    queue.push(waiting("a", 5, 0), second(0));
    assert_eq!(queue.len(), (1, 0));
    queue.remove(&popped.workload.key);
    assert!(queue.is_empty());
}

#[test]
fn fa_9_an_update_does_not_forget_where_the_search_stopped() {
    let mut queue = queue_of(BestEffortFifo, &[waiting("a", 0, 0)]);
    let mut popped = queue.pop().expect("one was pushed");
    popped.progress = Some(ScanProgress { cycle: 7, ..ScanProgress::default() });
    queue.requeue(popped.clone(), Requeue::FailedAfterNomination, second(0));
    queue.push(waiting("a", 0, 0), second(0));
    assert_eq!(queue.pop().expect("it is in line").progress, popped.progress);
}

#[test]
fn qu_13_those_who_ask_for_the_same_follow_each_other() {
    let alike = |name: &str, queued: i64| Waiting::new(workload(name, 1).queued(queued));
    let all: Vec<Waiting> = (0..5).map(|n| alike(&format!("w{n}"), n)).collect();
    let mut queue = queue_of(BestEffortFifo, &all);
    let first = queue.pop().expect("one is in line");
    queue.requeue(first, Requeue::NoFit, second(0));
    assert_eq!((queue.len(), queue.pop()), ((0, 5), None), "one does not fit, so none does");
    queue.push(alike("w5", 5), second(0));
    assert_eq!(queue.len(), (0, 6), "nor does a newcomer");
    assert!(queue.retry(second(0), |_| true));
    assert_eq!(queue.len(), (6, 0), "all of them may be tried again");
    // One that changes leaves the others as they are, and one that goes makes way.
    queue.remove(&key("w0"));
    queue.push(Waiting { held_back: true, ..alike("w2", 2) }, second(0));
    assert_eq!(queue.len(), (4, 1));
    let order: Vec<String> =
        queue.in_order().iter().map(|waiting| waiting.workload.key.name.to_string()).collect();
    assert_eq!(order, ["w1", "w2", "w3", "w4", "w5"]);
    assert_eq!(names(queue.clone()), ["w1", "w3", "w4", "w5"]);
    // The second of two who fit finds no room: the rest waits with it.
    queue.pop().expect("w1 gets in");
    let second_one = queue.pop().expect("w3 is next");
    queue.requeue(second_one, Requeue::NoCandidates, second(0));
    assert_eq!((queue.len(), queue.pop()), ((0, 4), None));
}

#[test]
fn qu_1_a_workload_is_in_one_place_at_a_time() {
    let mut queue = queue_of(BestEffortFifo, &[waiting("a", 0, 0), waiting("a", 0, 0), waiting("b", 0, 1)]);
    assert_eq!(queue.len(), (2, 0));
    let popped = queue.pop().expect("it is in line");
    assert_eq!((popped.workload.key.clone(), queue.len()), (key("a"), (2, 0)));
    queue.push(popped.clone(), second(0));
    assert_eq!(queue.in_order().len(), 1, "it is not in line while it is looked at");
    queue.requeue(popped, Requeue::NoFit, second(0));
    assert_eq!(queue.len(), (1, 1));
    queue.retry(second(0), |_| true);
    assert_eq!(queue.len(), (2, 0));
    queue.remove(&key("a"));
    assert_eq!(names(queue), ["b"]);
}
