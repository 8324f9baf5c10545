use super::scenario::{Scenario, amount, check, pods, queue, quota, scenario, workload};
use crate::quota::config::{
    ClusterQueue, FlavorQuotas, Quota,
    ReclaimWithinCohort::{self, Any, LowerPriority as ReclaimLower},
    ResourceGroup,
    WithinClusterQueue::{LowerOrNewerEqualPriority, LowerPriority},
};

#[test]
fn pr_7_pr_v1_only_who_is_needed_goes() {
    let scenario = scenario()
        .queue(queue("q", quota(4)).within(LowerPriority))
        .running("q", &workload("a", 1).priority(-2), 1)
        .running("q", &workload("b", 3).priority(-1), 3)
        .head("q", workload("new", 3));
    check("PR-V1", &scenario, &["preempt ns/b (InClusterQueue) for ns/new to q…"]);
}

#[test]
fn pr_v2_the_later_admitted_goes_first() {
    let scenario = scenario()
        .queue(queue("q", quota(4)).within(LowerPriority))
        .running("q", &workload("a", 2).queued(1), 2)
        .running("q", &workload("b", 2).queued(2), 2)
        .head("q", workload("new", 2).priority(1));
    check("PR-V2", &scenario, &["preempt ns/b (InClusterQueue) for ns/new to q…"]);
}

#[test]
fn pr_1_newer_equal_priority() {
    let scenario = |queued: i64| {
        scenario()
            .queue(queue("q", quota(2)).within(LowerOrNewerEqualPriority))
            .running("q", &workload("a", 2).queued(10), 2)
            .head("q", workload("new", 2).queued(queued))
    };
    check("PR-1 older", &scenario(5), &["preempt ns/a (InClusterQueue) for ns/new to q…"]);
    check("PR-1 newer", &scenario(15), &["keep ns/new out of q, because couldn't assign…"]);
}

/// A ClusterQueue with so many cores, and so many of another resource, in the flavor `default`.
fn queue_of_two(name: &str, cores: i64, other: &str, count: i64) -> ClusterQueue {
    let other = (other.into(), Quota { nominal: amount(other, count), ..quota(0) });
    let resources: std::collections::BTreeMap<_, _> = [("cpu".into(), quota(cores)), other].into();
    let covered = resources.keys().cloned().collect();
    let flavors = vec![FlavorQuotas { name: "default".into(), resources }];
    ClusterQueue { groups: vec![ResourceGroup { covered, flavors }], ..ClusterQueue::new(name) }
}

/// What is asked for with nothing is none of the request: of that the queue may use more than its own.
#[test]
fn pr_2_pr_5_who_asks_for_none_of_a_resource_needs_no_room_for_it() {
    let scenario = |gpus: i64| {
        scenario()
            .queue(queue_of_two("a", 4, "gpu", 4).part_of("cohort").reclaim(Any))
            .queue(queue_of_two("b", 4, "gpu", 4).part_of("cohort"))
            .holding("a", &workload("a1", 0), &[("default", "gpu", 6)])
            .holding("b", &workload("b1", 8), &[("default", "cpu", 8)])
            .head("a", workload("new", 0).asking(vec![pods(1, &[("cpu", 4), ("gpu", gpus)])]))
    };
    check("PR-2 none", &scenario(0), &["preempt ns/b1 (InCohortReclamation) for ns/new to a…"]);
    check("PR-2 one", &scenario(1), &["keep ns/new out of a, because couldn't assign…"]);
}

/// Kueue makes room for the rest and not for `pods`: it would choose `b` alone, and then keep `new` out for ever.
#[test]
fn pr_6_room_is_made_for_pods_too() {
    let scenario = scenario()
        .queue(queue_of_two("q", 10, "pods", 2).within(LowerPriority))
        .holding("q", &workload("a", 1).queued(1), &[("default", "cpu", 1), ("default", "pods", 1)])
        .holding("q", &workload("b", 1).queued(2), &[("default", "cpu", 1), ("default", "pods", 1)])
        .head("q", workload("new", 0).asking(vec![pods(2, &[("cpu", 1)])]).priority(1));
    let both = "preempt ns/b (InClusterQueue), ns/a (InClusterQueue) for ns/new to q…";
    check("PR-6 pods", &scenario, &[both]);
}

fn reclaim(
    nominal: (i64, i64),
    a: impl Fn(crate::quota::config::ClusterQueue) -> crate::quota::config::ClusterQueue,
) -> Scenario {
    scenario()
        .queue(a(queue("a", quota(nominal.0)).part_of("cohort")))
        .queue(queue("b", quota(nominal.1)).part_of("cohort"))
}

#[test]
fn pr_v3_quota_is_taken_back_from_the_least_important() {
    let scenario = reclaim((6, 6), |a| a.reclaim(Any))
        .running("b", &workload("b1", 5).priority(10), 5)
        .running("b", &workload("b2", 5), 5)
        .head("a", workload("new", 5));
    check("PR-V3", &scenario, &["preempt ns/b2 (InCohortReclamation) for ns/new to a…"]);
}

#[test]
fn pr_v4_and_pr_v5_preempting_while_borrowing() {
    let scenario = |a: &dyn Fn(crate::quota::config::ClusterQueue) -> crate::quota::config::ClusterQueue| {
        reclaim((3, 9), a)
            .running("b", &workload("b1", 6).priority(-5), 6)
            .running("b", &workload("b2", 6), 6)
            .head("a", workload("new", 5).priority(10))
    };
    let borrows = "preempt ns/b1 (InCohortReclaimWhileBorrowing) for ns/new to a…";
    check("PR-V4", &scenario(&|a| a.reclaim(Any)), &["keep ns/new out of a, because couldn't assign…"]);
    check("PR-V5 nil", &scenario(&|a| a.reclaim(ReclaimLower).borrow_within(None)), &[borrows]);
    check("PR-V5 -1", &scenario(&|a| a.reclaim(ReclaimLower).borrow_within(Some(-1))), &[borrows]);
    check(
        "PR-V5 -10",
        &scenario(&|a| a.reclaim(ReclaimLower).borrow_within(Some(-10))),
        &["keep ns/new out of a, because couldn't assign…"],
    );
}

#[test]
fn pr_2_pr_v6_who_is_closer_to_the_quota_has_the_better_right() {
    let scenario = |policy: ReclaimWithinCohort, into: &str, priority: i64, theirs: i64| {
        scenario()
            .cohort(super::scenario::cohort("x", Some("root"), quota(0)))
            .cohort(super::scenario::cohort("y", Some("root"), quota(0)))
            .queue(queue("x1", quota(4)).part_of("x").reclaim(policy))
            .queue(queue("x2", quota(0)).part_of("x").reclaim(policy))
            .queue(queue("y1", quota(2)).part_of("y"))
            .running("y1", &workload("y", 6).priority(theirs), 6)
            .head(into, workload("new", 3).priority(priority))
    };
    for into in ["x1", "x2"] {
        let goes = format!("preempt ns/y (InCohortReclamation) for ns/new to {into}…");
        let stays = format!("keep ns/new out of {into}, because couldn't assign…");
        check("PR-V6 lower", &scenario(ReclaimLower, into, 1, 0), &[&goes]);
        check("PR-V6 equal", &scenario(ReclaimLower, into, 0, 0), &[&stays]);
        check("PR-V6 any", &scenario(Any, into, 0, 100), &[&goes]);
    }
}

#[test]
fn pr_6_pr_v7_nobody_falls_below_its_own_quota() {
    let scenario = scenario()
        .queue(queue("a", quota(4)).part_of("cohort").reclaim(Any))
        .queue(queue("b", quota(2)).part_of("cohort"))
        .queue(queue("c", quota(2)).part_of("cohort"))
        .running("b", &workload("b1", 2).queued(1), 2)
        .running("b", &workload("b2", 1).queued(2), 1)
        .running("b", &workload("b3", 1).queued(3), 1)
        .running("c", &workload("c1", 2).queued(4), 2)
        .running("c", &workload("c2", 2).queued(5).priority(5), 2)
        .head("a", workload("new", 4));
    let line = "preempt ns/c1 (InCohortReclamation), ns/b3 (InCohortReclamation), ns/b2 (InCohortReclamation) for ns/new to a…";
    check("PR-V7", &scenario, &[line]);
}

#[test]
fn pr_7_pr_v8_who_turns_out_not_to_be_needed_stays() {
    let scenario = reclaim((6, 6), |a| a.reclaim(Any).within(LowerPriority))
        .running("a", &workload("a1", 5).priority(-1), 5)
        .running("b", &workload("b1", 7).priority(5), 7)
        .head("a", workload("new", 5));
    check("PR-V8", &scenario, &["preempt ns/a1 (InClusterQueue) for ns/new to a…"]);
}

#[test]
fn pr_4_those_on_their_way_out_go_first() {
    let mut scenario = scenario()
        .queue(queue("q", quota(4)).within(LowerPriority))
        .running("q", &workload("a", 2).priority(-9), 2)
        .running("q", &workload("b", 2).priority(-1), 2)
        .head("q", workload("new", 2));
    scenario.running[1].evicted = true;
    check("PR-4", &scenario, &["preempt ns/b (InClusterQueue) for ns/new to q…"]);
}

#[test]
fn pr_9_the_message_says_for_whom_and_from_where() {
    let mut scenario = reclaim((6, 6), |a| a.reclaim(Any))
        .running("b", &workload("b1", 10), 10)
        .head("a", workload("new", 5));
    scenario.heads[0].workload.job_uid = Some("job-uid".into());
    let plan = scenario.plan();
    let crate::quota::Outcome::Preempt { victims, message, .. } = &plan.decisions[0].outcome else {
        panic!("{plan}");
    };
    assert_eq!(
        victims[0].message,
        "Preempted to accommodate a workload (UID: new, JobUID: job-uid) due to reclamation within the cohort; \
         preemptor path: /cohort/a; preemptee path: /cohort/b"
    );
    assert_eq!(
        message,
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 3 more needed. \
         Pending the preemption of 1 workload(s)"
    );
}

#[test]
fn pr_5_when_room_may_be_made_by_borrowing() {
    // Nobody else has to go: it may borrow what its own leave.
    let own = reclaim((2, 4), |a| a.within(LowerPriority))
        .running("a", &workload("low", 5).priority(-1), 5)
        .running("a", &workload("same", 1), 1)
        .head("a", workload("new", 2));
    check("PR-5 own", &own, &["preempt ns/low (InClusterQueue) for ns/new to a…"]);
    // Who has used up its own takes nothing back from others.
    let using = |used: i64| {
        reclaim((3, 3), |a| a.reclaim(Any))
            .queue(queue("c", quota(2)).part_of("cohort"))
            .running("a", &workload("own", used), used)
            .running("b", &workload("theirs", 8 - used), 8 - used)
            .head("a", workload("new", 1))
    };
    check("PR-5 below", &using(2), &["preempt ns/theirs (InCohortReclamation) for ns/new to a…"]);
    check("PR-5 used up", &using(3), &["keep ns/new out of a, because couldn't assign…"]);
}

#[test]
fn pr_8_the_reason_says_whose_right_was_the_better() {
    let within = scenario()
        .queue(queue("q", quota(1)).within(LowerPriority))
        .running("q", &workload("low", 1).priority(-1), 1)
        .head("q", workload("new", 1));
    check("PR-8 own", &within, &["preempt ns/low (InClusterQueue) for…"]);
    let back = reclaim((1, 0), |a| a.reclaim(Any))
        .running("b", &workload("low", 1), 1)
        .head("a", workload("new", 1));
    check("PR-8 reclaim", &back, &["preempt ns/low (InCohortReclamation) for…"]);
    let borrowing = reclaim((3, 9), |a| a.reclaim(ReclaimLower).borrow_within(None))
        .running("b", &workload("lower", 6).priority(-5), 6)
        .running("b", &workload("low", 6), 6)
        .head("a", workload("new", 5).priority(10));
    check("PR-8 borrowing", &borrowing, &["preempt ns/lower (InCohortReclaimWhileBorrowing) for…"]);
}
