use super::{
    scenario::{Scenario, amount, check, queue, quota, scenario, workload},
    tree::qm_v2_parts,
};
use crate::quota::{
    config::{
        ClusterQueue,
        ReclaimWithinCohort::{Any, LowerPriority as Lower},
    },
    cycle::Policy,
    fair::Strategy::{self, LessThanInitialShare as Initial, LessThanOrEqualToFinalShare as Final},
    names::FlavorResource,
    share::Share,
    tree::Tree,
};

fn fair(strategies: &[Strategy]) -> Policy {
    Policy { fair_sharing: Some(strategies.to_vec()), ..Policy::default() }
}

fn share(tree: &mut Tree, queue: &str, cores: i64) -> Share {
    let node = tree.queue(&queue.into()).expect("the test names what it set up");
    let (_, cell) = tree.open(node, &FlavorResource::new("default", "cpu"));
    tree.trial(|tree| {
        tree.add(cell, amount("cpu", cores));
        Share::of(tree, node)
    })
}

#[test]
fn fs_v1_shares() {
    let queues = |weight: f64| {
        vec![
            queue("a", quota(4)).part_of("cohort").weighing(weight),
            queue("b", quota(4)).part_of("cohort"),
            queue("c", quota(4)).part_of("cohort"),
        ]
    };
    let mut tree = Tree::new(&[], &queues(1.0));
    assert_eq!(share(&mut tree, "a", 7).rounded(), 250);
    assert_eq!(share(&mut tree, "a", 4).rounded(), 0);
    assert_eq!(share(&mut tree, "b", 6).rounded(), 167);
    assert_eq!(share(&mut tree, "a", 7).dominant().map(ToString::to_string).as_deref(), Some("cpu"));
    assert_eq!(share(&mut Tree::new(&[], &queues(2.0)), "a", 7).rounded(), 125);
    let weightless = share(&mut Tree::new(&[], &queues(0.0)), "a", 7);
    assert_eq!(weightless.rounded(), i64::MAX);
    assert!(share(&mut tree, "b", 6).compare(&weightless).is_lt());

    let (cohorts, queues) = qm_v2_parts();
    let mut tree = Tree::new(&cohorts, &queues);
    assert_eq!(share(&mut tree, "t1", 9).rounded(), 334);
    let t1 = tree.queue(&"t1".into()).expect("set up above");
    let org1 = tree.cohort(&"org1".into()).expect("set up above");
    let (_, cell) = tree.open(t1, &FlavorResource::new("default", "cpu"));
    tree.add(cell, amount("cpu", 12));
    assert_eq!(Share::of(&tree, org1).rounded(), 134);
}

#[test]
fn fs_v1_strategies() {
    let scenario = |strategies: &[Strategy]| {
        scenario()
            .queue(queue("a", quota(4)).part_of("cohort"))
            .queue(queue("b", quota(4)).part_of("cohort").reclaim(Any))
            .queue(queue("c", quota(4)).part_of("cohort"))
            .running("a", &workload("a1", 5), 5)
            .running("a", &workload("a2", 2).queued(1), 2)
            .running("b", &workload("b1", 4), 4)
            .running("c", &workload("c1", 1), 1)
            .head("b", workload("w", 2))
            .policy(fair(strategies))
    };
    let stays = "keep ns/w out of b, because couldn't assign…";
    let goes = "preempt ns/a2 (InCohortFairSharing) for ns/w to b…";
    check("FS-V1 final", &scenario(&[Final]), &[stays]);
    check("FS-V1 initial", &scenario(&[Initial]), &[goes]);
    check("FS-6 both", &scenario(&[Final, Initial]), &[goes]);
}

#[test]
fn fs_5_who_stays_within_its_own_takes_it_back() {
    let scenario = scenario()
        .queue(queue("a", quota(4)).part_of("cohort").weighing(100.0))
        .queue(queue("b", quota(4)).part_of("cohort").reclaim(Any).weighing(0.0))
        .running("a", &workload("a1", 3), 3)
        .running("a", &workload("a2", 3).queued(1), 3)
        .head("b", workload("w", 4))
        .policy(fair(&[Final]));
    check("FS-5", &scenario, &["preempt ns/a2 (InCohortReclamation) for ns/w to b…"]);
}

#[test]
fn fs_3_who_may_be_pushed_out() {
    let run = |a: fn(ClusterQueue) -> ClusterQueue| {
        scenario()
            .queue(a(queue("a", quota(6)).part_of("cohort")))
            .queue(queue("b", quota(2)).part_of("cohort"))
            .queue(queue("c", quota(2)).part_of("cohort"))
            .running("b", &workload("b1", 4).priority(5), 4)
            .running("b", &workload("b2", 4).queued(1).priority(1), 4)
            .running("c", &workload("c1", 2), 2)
            .head("a", workload("w", 4).priority(3))
            .policy(fair(&[Final, Initial]))
    };
    // Who is within its own is left alone, however unimportant.
    check("FS-3 any", &run(|a| a.reclaim(Any)), &["preempt ns/b2 (InCohortReclamation) for ns/w to a…"]);
    check("FS-3 lower", &run(|a| a.reclaim(Lower)), &["preempt ns/b2 (InCohortReclamation) for ns/w to a…"]);
    // What is said about borrowing does not count, and without reclaiming nobody of another queue goes.
    check("FS-3 never", &run(|a| a.borrow_within(None)), &["keep ns/w out of a, because couldn't assign…"]);
}

#[test]
fn fs_4_the_largest_share_loses_first() {
    let run = |used: (i64, i64)| {
        scenario()
            .queue(queue("a", quota(4)).part_of("cohort").reclaim(Any))
            .queue(queue("b", quota(3)).part_of("cohort"))
            .queue(queue("c", quota(3)).part_of("cohort"))
            .running("b", &workload("b1", used.0), used.0)
            .running("c", &workload("c1", used.1).priority(9), used.1)
            .head("a", workload("w", 1))
            .policy(fair(&[Final, Initial]))
    };
    check("FS-4 b", &run((6, 4)), &["preempt ns/b1 (InCohortReclamation) for ns/w to a…"]);
    check("FS-4 c", &run((4, 6)), &["preempt ns/c1 (InCohortReclamation) for ns/w to a…"]);
    check("FS-4 even", &run((5, 5)), &["preempt ns/b1 (InCohortReclamation) for ns/w to a…"]);
}

#[test]
fn fs_7_who_is_not_needed_stays() {
    let scenario = scenario()
        .queue(queue("a", quota(4)).part_of("cohort").reclaim(Any))
        .queue(queue("b", quota(2)).part_of("cohort"))
        .running("b", &workload("small", 1).priority(-1), 1)
        .running("b", &workload("large", 5), 5)
        .head("a", workload("w", 4))
        .policy(fair(&[Final, Initial]));
    check("FS-7", &scenario, &["preempt ns/large (InCohortReclamation) for ns/w to a…"]);
}

fn first_turn(scenario: &Scenario) -> String {
    scenario.plan().decisions[0].workload.name.to_string()
}

#[test]
fn fs_2_the_smallest_share_has_the_first_turn() {
    let scenario = scenario()
        .queue(queue("a", quota(0)).part_of("cohort"))
        .queue(queue("b", quota(0)).part_of("cohort"))
        .queue(queue("pool", quota(10)).part_of("cohort"))
        .running("a", &workload("r", 3), 3)
        .head("a", workload("wa", 1).priority(100))
        .head("b", workload("wb", 2))
        .policy(fair(&[Final, Initial]));
    assert_eq!(first_turn(&scenario), "wb");
    let mut even = scenario.clone();
    even.running.clear();
    even.heads[1].workload.pod_sets = even.heads[0].workload.pod_sets.clone();
    assert_eq!(first_turn(&even), "wa", "equal shares go by priority");
    even.heads[0].workload.priority = 0;
    even.heads[1].workload.queued_at = super::scenario::second(-5);
    assert_eq!(first_turn(&even), "wb", "and then by age");
    let own = scenario.queue(queue("d", quota(9)).part_of("cohort")).head("d", workload("wd", 9));
    assert_eq!(first_turn(&own), "wd", "who does not borrow comes before who does");
}
