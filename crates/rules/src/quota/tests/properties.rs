//! What holds for every tree and every decision, on random queues, cohorts, flavors and Workloads.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use types::Amount;

use super::scenario::{Scenario, amount, cohort, group, pods, scenario, second, workload};
use crate::quota::{
    Moment, Outcome, Plan, Snapshot,
    config::{
        BorrowWithinCohort, ClusterQueue, Flavor, Fungibility, Preemption, Preference, Quota,
        ReclaimWithinCohort, WhenCanBorrow, WhenCanPreempt, WithinClusterQueue,
    },
    cycle::{Policy, decide},
    fair::Strategy as Sharing,
    names::{ClusterQueueName, FlavorResource},
    plan::Because,
    tree::{CellId, NodeId, Tree},
    workload::{Head, PodSet, Reservation},
};

const FLAVORS: [&str; 2] = ["default", "spot"];

fn a_quota() -> impl Strategy<Value = Quota> {
    (0_i64..8, prop::option::weighted(0.3, 0_i64..6), prop::option::weighted(0.3, 0_i64..6)).prop_map(
        |(nominal, borrow, lend)| Quota {
            nominal: amount("cpu", nominal),
            borrowing_limit: borrow.map(|limit| amount("cpu", limit)),
            lending_limit: lend.map(|limit| amount("cpu", limit)),
        },
    )
}

fn a_preemption() -> impl Strategy<Value = Preemption> {
    let within = prop::sample::select(vec![
        WithinClusterQueue::Never,
        WithinClusterQueue::LowerPriority,
        WithinClusterQueue::LowerOrNewerEqualPriority,
    ]);
    let reclaim = prop::sample::select(vec![
        ReclaimWithinCohort::Never,
        ReclaimWithinCohort::LowerPriority,
        ReclaimWithinCohort::Any,
    ]);
    let borrow = prop::option::of(prop::option::of(-1_i64..3));
    (within, reclaim, borrow).prop_map(|(within_cluster_queue, reclaim_within_cohort, borrow)| Preemption {
        within_cluster_queue,
        reclaim_within_cohort,
        borrow_within_cohort: borrow
            .filter(|_| reclaim_within_cohort != ReclaimWithinCohort::Never)
            .map(|max_priority| BorrowWithinCohort { max_priority }),
    })
}

fn a_fungibility() -> impl Strategy<Value = Fungibility> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(borrow, preempt, prefer)| Fungibility {
        when_can_borrow: if borrow { WhenCanBorrow::TryNextFlavor } else { WhenCanBorrow::MayStopSearch },
        when_can_preempt: if preempt { WhenCanPreempt::TryNextFlavor } else { WhenCanPreempt::MayStopSearch },
        preference: if prefer && borrow && preempt {
            Preference::PreemptionOverBorrowing
        } else {
            Preference::BorrowingOverPreemption
        },
    })
}

fn a_queue(index: usize) -> impl Strategy<Value = ClusterQueue> {
    (a_quota(), a_quota(), 0_usize..4, a_preemption(), a_fungibility()).prop_map(
        move |(one, other, above, preemption, fungibility)| {
            let free = |quota: Quota| Quota { nominal: quota.nominal, ..Quota::default() };
            let limits = |quota: Quota| if above == 3 { free(quota) } else { quota };
            let flavors = [(FLAVORS[0], limits(one)), (FLAVORS[1], limits(other))];
            ClusterQueue {
                groups: vec![group("cpu", &flavors)],
                cohort: (above < 3).then(|| format!("c{above}").into()),
                preemption,
                fungibility,
                ..ClusterQueue::new(format!("q{index}"))
            }
        },
    )
}

fn a_policy() -> impl Strategy<Value = Policy> {
    let sharing = prop::option::weighted(
        0.3,
        prop::sample::select(vec![
            vec![Sharing::LessThanOrEqualToFinalShare],
            vec![Sharing::LessThanInitialShare],
            vec![Sharing::LessThanOrEqualToFinalShare, Sharing::LessThanInitialShare],
        ]),
    );
    sharing.prop_map(|fair_sharing| Policy { fair_sharing, ..Policy::default() })
}

/// Four queues in up to three cohorts, where `c1` and `c2` are part of `c0`, with Workloads that fit, and heads.
fn a_scenario() -> impl Strategy<Value = Scenario> {
    let queues = (a_queue(0), a_queue(1), a_queue(2), a_queue(3));
    let cohorts = (a_quota(), a_quota(), a_quota());
    let running = prop::collection::vec((0_usize..4, 0_usize..2, 0_i64..5, -1_i64..3, any::<bool>()), 0..14);
    let heads = prop::collection::vec((1_i64..5, 1_u32..4, prop::option::of(1_u32..3), -1_i64..3), 4);
    (queues, cohorts, running, heads, a_policy()).prop_map(
        |((q0, q1, q2, q3), (c0, c1, c2), running, heads, policy)| {
            let root = Quota { nominal: c0.nominal, ..Quota::default() };
            let mut scenario = scenario()
                .flavor(Flavor::new("spot"))
                .cohort(cohort("c0", None, root))
                .cohort(cohort("c1", Some("c0"), c1))
                .cohort(cohort("c2", Some("c0"), c2))
                .policy(policy);
            for queue in [q0, q1, q2, q3] {
                scenario = scenario.queue(queue);
            }
            let mut snapshot = scenario.snapshot();
            for (index, (queue, flavor, cores, priority, evicted)) in (0_i64..).zip(running) {
                let name = format!("q{queue}");
                let one = workload(&format!("r{index}"), cores).priority(priority).queued(index);
                let mut next = scenario.clone().holding(&name, &one, &[(FLAVORS[flavor], "cpu", cores)]);
                if let Some(reservation) = next.running.last_mut() {
                    reservation.evicted = evicted;
                    let mut trial = snapshot.clone();
                    trial.reserve(reservation.clone());
                    if overdrawn(trial.tree(), &trial).is_none() {
                        snapshot = trial;
                        scenario = next;
                    }
                }
            }
            for (index, (cores, count, least, priority)) in (0_i64..).zip(heads) {
                let pod_set = PodSet {
                    min_count: least.filter(|least| *least <= count),
                    ..pods(count, &[("cpu", cores)])
                };
                let one = workload(&format!("h{index}"), cores).priority(priority).queued(100 + index);
                scenario = scenario.head(&format!("q{index}"), one.asking(vec![pod_set]));
            }
            scenario
        },
    )
}

/// All accounts of a snapshot, by the names of who has them.
fn accounts(snapshot: &Snapshot) -> Vec<(NodeId, CellId)> {
    let tree = snapshot.tree();
    let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
    for queue in snapshot.queues() {
        nodes.insert(queue.node);
        nodes.extend(tree.ancestors(queue.node));
    }
    nodes.into_iter().flat_map(|node| tree.listed(node).map(move |(_, cell)| (node, cell))).collect()
}

/// Who uses more than quota and borrowing limit allow.
fn overdrawn(tree: &Tree, snapshot: &Snapshot) -> Option<String> {
    accounts(snapshot).into_iter().find_map(|(node, cell)| {
        let own = tree.subtree(cell);
        let most = match (tree.parent(node), tree.quota(cell).borrowing_limit) {
            (None, _) => own,
            (Some(_), Some(limit)) => own + limit,
            (Some(_), None) => Amount::UNLIMITED,
        };
        (tree.usage(cell) > most).then(|| format!("{} uses {} of {most}", tree.name(node), tree.usage(cell)))
    })
}

fn now() -> Moment {
    Moment { now: second(1000), cycle: 1 }
}

/// The snapshot once the plan is carried out: who got in is in, who was pushed out is on the way out.
fn apply(snapshot: &Snapshot, heads: &[Head], plan: &Plan) -> Snapshot {
    let mut after = snapshot.clone();
    for decision in &plan.decisions {
        let head = heads
            .iter()
            .find(|head| head.workload.key == decision.workload)
            .expect("decisions are about heads");
        if let Some(reservation) = decision.reservation(&head.workload, now().now) {
            after.reserve(reservation);
        }
        if let Outcome::Preempt { victims, .. } = &decision.outcome {
            for victim in victims {
                let held = after.reservation(&victim.workload).expect("victims hold quota").clone();
                after.reserve(Reservation { evicted: true, ..held });
            }
        }
    }
    after
}

/// The snapshot once those who were pushed out are gone. Until then there may be more in use than there is: who gets in in
/// the same cycle may have the place of a victim that is still on the way out (SC-8).
fn settled(snapshot: &Snapshot, heads: &[Head], plan: &Plan) -> Snapshot {
    let mut after = apply(snapshot, heads, plan);
    for decision in &plan.decisions {
        if let Outcome::Preempt { victims, .. } = &decision.outcome {
            for victim in victims {
                after.release(&victim.workload);
            }
        }
    }
    after
}

fn usage(snapshot: &Snapshot) -> BTreeMap<(String, String), Amount> {
    let tree = snapshot.tree();
    let mut all = BTreeMap::new();
    for (node, cell) in accounts(snapshot) {
        let fr = tree
            .listed(node)
            .find(|&(_, listed)| listed == cell)
            .map(|(fr, _)| tree.flavor_resource(fr).to_string());
        all.insert((tree.name(node).to_string(), fr.unwrap_or_default()), tree.usage(cell));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nobody_uses_more_than_quota_and_borrowing_allow(scenario in a_scenario()) {
        let after = settled(&scenario.snapshot(), &scenario.heads, &scenario.plan());
        prop_assert_eq!(overdrawn(after.tree(), &after), None);
    }

    #[test]
    fn what_is_not_lent_is_not_used_by_others(scenario in a_scenario()) {
        let after = settled(&scenario.snapshot(), &scenario.heads, &scenario.plan());
        let tree = after.tree();
        for fr in FLAVORS.map(|flavor| FlavorResource::new(flavor, "cpu")) {
            let Some(fr) = tree.fr(&fr) else { continue };
            for lender in after.queues() {
                let root = tree.root(lender.node);
                let family: Vec<_> = after.queues().filter(|queue| tree.root(queue.node) == root).collect();
                let cohorts = ["c0", "c1", "c2"].map(|name| tree.cohort(&name.into()).expect("set up above"));
                let cohorts = cohorts.into_iter().filter(|&cohort| tree.root(cohort) == root);
                let cell = |node: NodeId| tree.cell(node, fr);
                let nominal = |node: NodeId| cell(node).map_or(Amount::ZERO, |cell| tree.quota(cell).nominal);
                let all: Amount = family.iter().map(|queue| nominal(queue.node)).chain(cohorts.map(nominal)).sum();
                let used: Amount = family.iter().filter(|queue| queue.node != lender.node)
                    .filter_map(|queue| cell(queue.node)).map(|cell| tree.usage(cell)).sum();
                let kept = cell(lender.node).map(|cell| tree.quota(cell)).and_then(|quota| {
                    quota.lending_limit.map(|limit| (quota.nominal - limit).or_zero())
                });
                prop_assert!(used <= all - kept.unwrap_or_default());
            }
        }
    }

    #[test]
    fn add_then_remove_leaves_the_tree_as_it_was(
        scenario in a_scenario(),
        more in prop::collection::vec((0_usize..4, 0_usize..2, 0_i64..9), 1..12),
        turn in any::<bool>(),
    ) {
        let mut snapshot = scenario.snapshot();
        let before = usage(&snapshot);
        let mut keys = Vec::new();
        for (index, (queue, flavor, cores)) in more.into_iter().enumerate() {
            let one = workload(&format!("more{index}"), cores);
            let held = Scenario::default().holding(&format!("q{queue}"), &one, &[(FLAVORS[flavor], "cpu", cores)]);
            snapshot.reserve(held.running[0].clone());
            keys.push(one.key);
        }
        if turn {
            keys.reverse();
        }
        for key in &keys {
            snapshot.release(key);
        }
        prop_assert_eq!(usage(&snapshot), before);
    }

    #[test]
    fn booked_one_by_one_or_all_anew_is_the_same(scenario in a_scenario()) {
        let mut snapshot = scenario.snapshot();
        let one_by_one = usage(&snapshot);
        snapshot.configure(scenario.config.clone());
        prop_assert_eq!(usage(&snapshot), one_by_one);
    }

    #[test]
    fn the_same_snapshot_gives_the_same_plan_and_stays_as_it_is(scenario in a_scenario()) {
        let snapshot = scenario.snapshot();
        let before = usage(&snapshot);
        let plan = decide(&snapshot, &scenario.heads, &scenario.policy, now());
        prop_assert_eq!(&plan, &decide(&snapshot, &scenario.heads, &scenario.policy, now()));
        prop_assert_eq!(usage(&snapshot), before);
        prop_assert_eq!(plan.decisions.len(), scenario.heads.len());
        prop_assert_eq!(plan.to_string().lines().count(), scenario.heads.len());
    }

    #[test]
    fn who_did_not_fit_does_not_fit_once_others_are_in(scenario in a_scenario()) {
        let snapshot = scenario.snapshot();
        let plan = decide(&snapshot, &scenario.heads, &scenario.policy, now());
        let after = apply(&snapshot, &scenario.heads, &plan);
        let again = decide(&after, &scenario.heads, &scenario.policy, now());
        for decision in &plan.decisions {
            let next = again.decisions.iter().find(|next| next.workload == decision.workload).expect("every head is decided");
            match &decision.outcome {
                Outcome::Admit { .. } => prop_assert_eq!(&next.outcome, &Outcome::Holds),
                Outcome::Wait { because: Because::NoFit | Because::NoCandidates, .. } => {
                    prop_assert!(!matches!(next.outcome, Outcome::Admit { .. }), "{}\nthen\n{}", plan, again);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn nobody_is_pushed_out_in_vain(scenario in a_scenario()) {
        let snapshot = scenario.snapshot();
        let plan = decide(&snapshot, &scenario.heads, &scenario.policy, now());
        for head in &scenario.heads {
            let first = plan.decisions.iter().find(|decision| decision.workload == head.workload.key);
            let mut outcome = first.expect("every head is decided").outcome.clone();
            let mut after = snapshot.clone();
            let mut rounds = 0;
            while let Outcome::Preempt { victims, .. } = &outcome {
                prop_assert!(!victims.is_empty());
                // Only who could do with less may find, once there is room, that more victims make room for more.
                prop_assert!(rounds == 0 || head.workload.pod_sets[0].slack() > 0);
                for victim in victims {
                    prop_assert!(after.release(&victim.workload).is_some());
                }
                let mut then = decide(&after, std::slice::from_ref(head), &scenario.policy, now());
                outcome = then.decisions.remove(0).outcome;
                prop_assert!(!matches!(outcome, Outcome::Wait { .. }), "{}\nthen {:?}", plan, outcome);
                rounds += 1;
            }
        }
    }

    #[test]
    fn victims_are_only_whom_policy_permits(scenario in a_scenario()) {
        let snapshot = scenario.snapshot();
        let tree = snapshot.tree();
        let find = |name: &ClusterQueueName| snapshot.queue(name).expect("set up above");
        let mut seen = BTreeSet::new();
        for decision in &decide(&snapshot, &scenario.heads, &scenario.policy, now()).decisions {
            let Outcome::Preempt { victims, .. } = &decision.outcome else { continue };
            let head = scenario.heads.iter().find(|head| head.workload.key == decision.workload).expect("a head");
            let own = find(&head.cluster_queue);
            for victim in victims {
                prop_assert!(seen.insert(victim.workload.clone()), "pushed out twice");
                let held = snapshot.reservation(&victim.workload).expect("victims hold quota");
                let theirs = find(&victim.cluster_queue);
                let lower = held.priority < head.workload.priority;
                let permitted = if own.node == theirs.node {
                    match own.config.preemption.within_cluster_queue {
                        WithinClusterQueue::Never => false,
                        WithinClusterQueue::LowerPriority => lower,
                        WithinClusterQueue::LowerOrNewerEqualPriority => {
                            lower || (held.priority == head.workload.priority && held.queued_at > head.workload.queued_at)
                        }
                    }
                } else {
                    let borrows = tree.listed(theirs.node).any(|(_, cell)| tree.borrows_with(cell, Amount::ZERO));
                    let family = tree.root(own.node) == tree.root(theirs.node);
                    borrows && family && match own.config.preemption.reclaim_within_cohort {
                        ReclaimWithinCohort::Never => false,
                        ReclaimWithinCohort::LowerPriority => lower,
                        ReclaimWithinCohort::Any => true,
                    }
                };
                prop_assert!(permitted, "{:?} for {:?}", held, head);
            }
        }
    }
}
