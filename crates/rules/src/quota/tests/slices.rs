//! Slices of elastic Jobs that take each other's place (JF-83).

use super::scenario::{Scenario, check, group, pods, queue, quota, scenario, workload};
use crate::quota::{
    config::{ClusterQueue, Flavor, WithinClusterQueue::LowerPriority},
    names::WorkloadKey,
    snapshot::Snapshot,
    workload::Workload,
};

fn grown(count: u32) -> Workload {
    workload("new", 0).asking(vec![pods(count, &[("cpu", 1)])]).replacing("old")
}

/// A queue with four cores, two of which the first slice holds.
fn running() -> Scenario {
    scenario().queue(queue("q", quota(4))).running("q", &workload("old", 2).elastic(), 2)
}

#[test]
fn jf_83_only_what_is_more_has_to_fit() {
    check("JF-83 fits", &running().head("q", grown(4)), &["admit ns/new to q with mainx4 cpu=4@default"]);
    check(
        "JF-83 too large",
        &running().head("q", grown(5)),
        &["keep ns/new out of q, because couldn't assign…"],
    );
    let beside = running().running("q", &workload("other", 1), 1);
    check(
        "JF-83 no room",
        &beside.clone().head("q", grown(4)),
        &[
            "keep ns/new out of q, because couldn't assign flavors to pod set main: insufficient unused quota for cpu \
           in flavor default, 1 more needed; ClusterQueue q has no more cpu in default",
        ],
    );
    check("JF-83 one more", &beside.head("q", grown(3)), &["admit ns/new to q with mainx3 cpu=3@default"]);
    let stranger = workload("new", 4);
    check("no slice", &running().head("q", stranger), &["keep ns/new out of q, because couldn't assign…"]);
}

#[test]
fn jf_83_the_flavor_stays() {
    let flavors = || ClusterQueue {
        groups: vec![group("cpu", &[("first", quota(3)), ("second", quota(9))])],
        ..ClusterQueue::new("q")
    };
    let running = |flavor: &str| {
        scenario().flavor(Flavor::new("first")).flavor(Flavor::new("second")).queue(flavors()).holding(
            "q",
            &workload("old", 2).elastic(),
            &[(flavor, "cpu", 2)],
        )
    };
    check("the first", &running("first").head("q", grown(3)), &["admit ns/new to q with mainx3 cpu=3@first"]);
    check(
        "the second",
        &running("second").head("q", grown(3)),
        &["admit ns/new to q with mainx3 cpu=3@second"],
    );
    check(
        "no other",
        &running("first").head("q", grown(4)),
        &[
            "keep ns/new out of q, because couldn't assign flavors to pod set main: could not assign second flavor since \
           the original workload is assigned: first, insufficient quota for cpu in flavor first…",
        ],
    );
}

#[test]
fn jf_83_others_go_for_a_slice_and_not_the_one_before() {
    let crowded = |priority: i64| {
        scenario()
            .queue(queue("q", quota(4)).within(LowerPriority))
            .running("q", &workload("old", 2).elastic(), 2)
            .running("q", &workload("other", 2).priority(priority), 2)
    };
    let important = |count: u32| grown(count).priority(5);
    check(
        "others go",
        &crowded(0).head("q", important(4)),
        &["preempt ns/other (InClusterQueue) for ns/new to q…"],
    );
    check("nobody may go", &crowded(9).head("q", important(4)), &["keep ns/new out of q…"]);
}

/// A slice that is evicted takes what it holds with it; until it is gone, nobody takes its place.
#[test]
fn jf_84_nobody_follows_one_that_is_evicted() {
    let mut evicted = running().head("q", grown(3));
    evicted.running[0].evicted = true;
    check(
        "evicted",
        &evicted,
        &["keep ns/new out of q, because The workload slice that it replaces is evicted"],
    );
    let gone = scenario().queue(queue("q", quota(4))).head("q", grown(4));
    check("gone", &gone, &["admit ns/new to q with mainx4 cpu=4@default"]);
}

/// In whatever order they come and go, what two slices hold together counts once.
#[test]
fn jf_83_what_a_slice_took_over_counts_once() {
    let scenario = running().running("q", &grown(3), 3);
    let [old, new] = [0, 1].map(|index: usize| scenario.running[index].clone());
    let used = |snapshot: &Snapshot| {
        let queue = snapshot.queue(&"q".into()).expect("a queue");
        queue.running().flat_map(|running| &running.uses).map(|used| used.amount.units()).sum::<i64>()
    };
    let in_tree = |snapshot: &Snapshot| {
        let tree = snapshot.tree();
        let node = tree.queue(&"q".into()).expect("a queue");
        let fr = tree.fr(&crate::quota::names::FlavorResource::new("default", "cpu")).expect("it is used");
        tree.usage(tree.cell(node, fr).expect("an account")).units()
    };
    let expect = |snapshot: &Snapshot, cores: i64, when: &str| {
        assert_eq!((used(snapshot), in_tree(snapshot)), (cores * 1000, cores * 1000), "{when}");
    };
    for order in [[&old, &new], [&new, &old]] {
        let mut snapshot = running().snapshot();
        for held in order {
            snapshot.reserve(held.clone());
        }
        expect(&snapshot, 3, "both are there");
        let mut taken_back = snapshot.clone();
        taken_back.release(&WorkloadKey::new("ns", "new"));
        expect(&taken_back, 2, "the second one was taken back");
        snapshot.release(&WorkloadKey::new("ns", "old"));
        expect(&snapshot, 3, "the first one has ended");
    }
}
