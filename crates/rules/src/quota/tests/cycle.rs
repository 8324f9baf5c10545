use super::scenario::{check, cohort, pods, queue, quota, scenario, second, workload};
use crate::quota::{
    Moment, Outcome, Snapshot,
    config::{
        ClusterQueue,
        ReclaimWithinCohort::{Any, LowerPriority as ReclaimLower},
        WithinClusterQueue::LowerPriority,
    },
    cycle::{Policy, decide},
    workload::{Obstacle, PodSet},
};

#[test]
fn sc_v1_who_waits_for_quota_reserves_it() {
    let scenario = |a: ClusterQueue| {
        scenario()
            .queue(a.part_of("cohort"))
            .queue(queue("b", quota(0)).part_of("cohort"))
            .running("b", &workload("r", 3).priority(10), 3)
            .head("a", workload("wa", 4))
            .head("b", workload("wb", 1))
    };
    check(
        "SC-V1 reserves",
        &scenario(queue("a", quota(4)).reclaim(ReclaimLower)),
        &[
            "keep ns/wa out of a, because couldn't assign…",
            "keep ns/wb out of b, because Workload no longer fits after processing another workload",
        ],
    );
    check(
        "SC-V1 preempts",
        &scenario(queue("a", quota(4)).reclaim(Any)),
        &[
            "preempt ns/r (InCohortReclamation) for ns/wa to a…",
            "keep ns/wb out of b, because Workload no longer fits after processing another workload",
        ],
    );
}

#[test]
fn sc_9_a_queue_in_debt_reserves_nothing_for_others() {
    // Kueue books a negative reservation here, and so lets `b` have what `a` owes.
    let scenario = scenario()
        .queue(queue("a", quota(2).borrow(1)).part_of("cohort").within(LowerPriority))
        .queue(queue("b", quota(2)).part_of("cohort"))
        .running("a", &workload("debt", 4).priority(9), 4)
        .head("a", workload("wa", 3))
        .head("b", workload("wb", 2));
    let plan = scenario.plan();
    assert!(
        plan.decisions.iter().all(|decision| !matches!(decision.outcome, Outcome::Admit { .. })),
        "{plan}"
    );
}

#[test]
fn sc_3_obstacles_come_before_quota() {
    let scenario = |obstacle: Option<Obstacle>, queue: ClusterQueue| {
        let mut scenario = scenario().queue(queue).head("q", workload("w", 1));
        scenario.heads[0].obstacle = obstacle;
        scenario
    };
    let open = || queue("q", quota(4));
    let closed = || ClusterQueue { active: false, ..queue("q", quota(4)) };
    let keep = |message: &str| format!("keep ns/w out of q, because {message}");
    let check_one = |rule: &str, obstacle, queue, message: &str| {
        check(rule, &scenario(obstacle, queue), &[&keep(message)]);
    };
    check_one(
        "SC-3 checks",
        Some(Obstacle::FailedChecks),
        open(),
        "The workload has failed admission checks",
    );
    check_one("SC-3 inactive", None, closed(), "ClusterQueue q is inactive");
    let message = "workload namespace doesn't match ClusterQueue selector";
    check_one("QM-27 namespace", Some(Obstacle::NamespaceMismatch), open(), message);
    let invalid = Obstacle::InvalidResources("resources validation failed: …".into());
    check_one("QM-27 resources", Some(invalid), open(), "resources validation failed: …");
    check_one("SC-3 not found", None, queue("other", quota(4)), "ClusterQueue q not found");
    let cyclic = super::scenario::scenario()
        .cohort(cohort("x", Some("y"), quota(0)))
        .cohort(cohort("y", Some("x"), quota(0)))
        .queue(queue("q", quota(4)).part_of("x"))
        .head("q", workload("w", 1));
    check("CQ-6", &cyclic, &["keep ns/w out of q, because ClusterQueue q is inactive"]);
}

#[test]
fn sc_2_an_inactive_queue_lends_but_loses_nobody() {
    let scenario = scenario()
        .queue(ClusterQueue { active: false, ..queue("off", quota(4)).part_of("cohort") })
        .queue(queue("on", quota(1)).part_of("cohort").reclaim(Any))
        .running("off", &workload("r", 1), 1);
    let admitted = "admit ns/w to on with mainx1 cpu=4@default, borrowing";
    check("SC-2 lends", &scenario.clone().head("on", workload("w", 4)), &[admitted]);
    let debt = scenario.running("off", &workload("more", 4), 4).head("on", workload("w", 1));
    check("SC-2 not preempted", &debt, &["keep ns/w out of on, because couldn't assign…"]);
}

#[test]
fn sc_5_partial_admission() {
    let elastic = |count, least| PodSet { min_count: Some(least), ..pods(count, &[("cpu", 1)]) };
    let scenario = |pod_set: PodSet| {
        scenario().queue(queue("q", quota(5))).head("q", workload("w", 0).asking(vec![pod_set]))
    };
    check("SC-5 full", &scenario(elastic(5, 1)), &["admit ns/w to q with mainx5 cpu=5@default"]);
    check("SC-5 part", &scenario(elastic(9, 2)), &["admit ns/w to q with mainx5 cpu=5@default"]);
    check("SC-5 least", &scenario(elastic(100, 5)), &["admit ns/w to q with mainx5 cpu=5@default"]);
    check("SC-5 too large", &scenario(elastic(9, 6)), &["keep ns/w out of q, because couldn't assign…"]);
}

#[test]
fn sc_5_preemption_for_the_full_size_comes_first() {
    let elastic = PodSet { min_count: Some(1), ..pods(4, &[("cpu", 1)]) };
    let scenario = scenario()
        .queue(queue("q", quota(4)).within(LowerPriority))
        .running("q", &workload("low", 2).priority(-1), 2)
        .head("q", workload("w", 0).asking(vec![elastic]));
    check("G-13", &scenario, &["preempt ns/low (InClusterQueue) for ns/w to q…"]);
}

#[test]
fn jf_62_pods_that_are_done_need_nothing() {
    let pod_set = PodSet { reclaimable: 2, ..pods(5, &[("cpu", 1)]) };
    let scenario = scenario().queue(queue("q", quota(3))).head("q", workload("w", 0).asking(vec![pod_set]));
    check("JF-62", &scenario, &["admit ns/w to q with mainx3 cpu=3@default"]);
}

#[test]
fn sc_6_who_borrows_least_has_the_first_turn() {
    let scenario = scenario()
        .queue(queue("a", quota(2)).part_of("cohort"))
        .queue(queue("b", quota(2)).part_of("cohort"))
        .queue(queue("c", quota(2)).part_of("cohort"))
        .head("a", workload("borrows", 4).priority(100).queued(1))
        .head("b", workload("late", 2).queued(3))
        .head("c", workload("early", 2).queued(2));
    check(
        "SC-6",
        &scenario,
        &[
            "admit ns/early to c with mainx1 cpu=2@default",
            "admit ns/late to b with mainx1 cpu=2@default",
            "keep ns/borrows out of a, because Workload no longer fits after processing another workload",
        ],
    );
    let mut important = scenario.clone();
    important.heads[1].workload.priority = 1;
    assert!(important.plan().to_string().starts_with("admit ns/late"));
}

#[test]
fn sc_7_nobody_is_pushed_out_twice() {
    let scenario = scenario()
        .queue(queue("a", quota(2)).part_of("cohort").reclaim(Any))
        .queue(queue("b", quota(2)).part_of("cohort").reclaim(Any))
        .queue(queue("c", quota(0)).part_of("cohort"))
        .running("c", &workload("r", 4), 4)
        .head("a", workload("wa", 2).queued(1))
        .head("b", workload("wb", 2).queued(2));
    check(
        "SC-7 overlap",
        &scenario,
        &[
            "preempt ns/r (InCohortReclamation) for ns/wa to a…",
            "keep ns/wb out of b, because Workload has overlapping preemption targets with another workload…",
        ],
    );
}

#[test]
fn sc_8_several_queues_of_a_cohort_admit_in_one_cycle() {
    let scenario = scenario()
        .queue(queue("a", quota(2)).part_of("cohort"))
        .queue(queue("b", quota(2)).part_of("cohort"))
        .head("a", workload("wa", 2))
        .head("b", workload("wb", 2));
    check(
        "SC-8",
        &scenario,
        &["admit ns/wa to a with mainx1 cpu=2@default", "admit ns/wb to b with mainx1 cpu=2@default"],
    );
}

/// As Kueue decides it: until the victim is gone, ten of eight cores are in use.
#[test]
fn sc_8_who_fits_once_victims_are_gone_is_not_kept_waiting_for_that() {
    let scenario = scenario()
        .queue(queue("a", quota(4).borrow(0)).part_of("cohort").within(LowerPriority))
        .queue(queue("b", quota(0)).part_of("cohort"))
        .queue(queue("c", quota(4)).part_of("cohort"))
        .running("a", &workload("low", 4).priority(-1), 4)
        .head("a", workload("wa", 1))
        .head("b", workload("wb", 2))
        .head("c", workload("wc", 4));
    check(
        "SC-8",
        &scenario,
        &[
            "preempt ns/low (InClusterQueue) for ns/wa to a…",
            "admit ns/wc to c with mainx1 cpu=4@default",
            "admit ns/wb to b with mainx1 cpu=2@default, borrowing",
        ],
    );
}

#[test]
fn sc_12_the_preemptor_gets_in_once_the_victim_is_gone() {
    let scenario = scenario()
        .queue(queue("q", quota(2)).within(LowerPriority))
        .running("q", &workload("low", 2).priority(-1), 2)
        .head("q", workload("w", 2));
    let mut snapshot = scenario.snapshot();
    let at = Moment { now: second(1000), cycle: 1 };
    let before = decide(&snapshot, &scenario.heads, &Policy::default(), at);
    assert!(matches!(before.decisions[0].outcome, Outcome::Preempt { .. }), "{before}");
    snapshot.release(&workload("low", 2).key);
    let after = decide(&snapshot, &scenario.heads, &Policy::default(), at);
    let reservation = after.decisions[0].reservation(&scenario.heads[0].workload, at.now).expect("it got in");
    snapshot.reserve(reservation);
    let again = decide(&snapshot, &scenario.heads, &Policy::default(), at);
    assert_eq!(again.to_string(), "leave ns/w in q\n");
}

#[test]
fn jf_65_nobody_gets_in_before_the_pods_of_others_are_ready() {
    let blocking = Policy { block_admission: true, ..Policy::default() };
    let mut scenario = scenario()
        .queue(queue("a", quota(4)))
        .queue(queue("b", quota(4)))
        .running("a", &workload("r", 1), 1)
        .head("a", workload("wa", 1).queued(1))
        .head("b", workload("wb", 1).queued(2))
        .policy(blocking);
    let waits = |name: &str, queue: &str| {
        format!(
            "keep ns/{name} out of {queue}, because waiting for all admitted workloads to be in PodsReady condition"
        )
    };
    check(
        "JF-65 one at a time",
        &scenario,
        &["admit ns/wa to a with mainx1 cpu=1@default", &waits("wb", "b")],
    );
    assert_eq!(scenario.plan().decisions[1].reason(), Some("Waiting"));
    scenario.running[0].pods_ready = false;
    check("JF-65 not ready", &scenario, &[&waits("wa", "a"), &waits("wb", "b")]);
}

#[test]
fn qm_8_a_quota_cut_evicts_nobody_and_a_queue_that_comes_back_finds_its_workloads() {
    let scenario =
        scenario().queue(queue("q", quota(4))).running("q", &workload("r", 3), 3).head("q", workload("w", 1));
    let mut snapshot: Snapshot = scenario.snapshot();
    let mut cut = scenario.config.clone();
    cut.cluster_queues = vec![queue("q", quota(1))];
    snapshot.configure(cut);
    let at = Moment { now: second(1000), cycle: 1 };
    let plan = decide(&snapshot, &scenario.heads, &Policy::default(), at);
    assert!(
        plan.to_string().contains("insufficient unused quota for cpu in flavor default, 1 more needed"),
        "{plan}"
    );
    let mut gone = scenario.config.clone();
    gone.cluster_queues.clear();
    snapshot.configure(gone);
    assert!(!snapshot.holds(&workload("r", 3).key));
    snapshot.configure(scenario.config.clone());
    assert!(snapshot.holds(&workload("r", 3).key));
    let plan = decide(&snapshot, &scenario.heads, &Policy::default(), at);
    assert_eq!(plan.to_string(), "admit ns/w to q with mainx1 cpu=1@default\n");
}

#[test]
fn sc_4_the_full_size_if_it_fits_or_can_be_made_to_fit() {
    let scenario = |low: i64| {
        super::scenario::scenario().queue(queue("q", quota(4)).within(LowerPriority)).running(
            "q",
            &workload("low", 3).priority(low),
            3,
        )
    };
    check(
        "SC-4 fits",
        &scenario(0).head("q", workload("w", 1)),
        &["admit ns/w to q with mainx1 cpu=1@default"],
    );
    check(
        "SC-4 preempts",
        &scenario(-1).head("q", workload("w", 4)),
        &["preempt ns/low (InClusterQueue) for ns/w to q…"],
    );
    check(
        "SC-4 neither",
        &scenario(0).head("q", workload("w", 4)),
        &["keep ns/w out of q, because couldn't…"],
    );
}
