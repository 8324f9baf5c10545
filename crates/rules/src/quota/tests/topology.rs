//! Placing within a cycle: who gets in is placed, nobody takes the same place, and who goes makes room.

use proptest::prelude::*;

use super::scenario::{Scenario, check, group, key, pods, queue, quota, scenario, workload};
use crate::quota::{
    Outcome,
    config::{ClusterQueue, Flavor, Topology, WithinClusterQueue::LowerPriority},
    names::ClusterQueueName,
    topology::{Placement, encoding},
    workload::{Layer, PodSet, TopologyRequest, Workload},
};

/// A flavor whose nodes are arranged by these levels.
fn arranged(name: &str, levels: &[&str]) -> Flavor {
    let levels = levels.iter().map(|level| (*level).to_owned()).collect();
    Flavor { topology: Some(Topology { name: "default".to_owned(), levels }), ..Flavor::new(name) }
}

/// Two racks of two nodes with two cores each, and queues that have no other flavor than these.
fn racks(queues: &[(&str, i64)]) -> Scenario {
    let mut all = scenario()
        .flavor(arranged("tas", &["rack", "kubernetes.io/hostname"]))
        .node("r1", "a1", 2)
        .node("r1", "a2", 2)
        .node("r2", "b1", 2)
        .node("r2", "b2", 2);
    for &(name, cores) in queues {
        all = all.queue(tas(name, cores));
    }
    all
}

fn tas(name: &str, cores: i64) -> ClusterQueue {
    ClusterQueue { groups: vec![group("cpu", &[("tas", quota(cores))])], ..ClusterQueue::new(name) }
}

/// `count` pods of one core each.
fn asking(name: &str, count: u32, request: impl Into<Option<TopologyRequest>>) -> Workload {
    workload(name, 0).asking(vec![PodSet { topology: request.into(), ..pods(count, &[("cpu", 1)]) }])
}

fn required(level: &str) -> TopologyRequest {
    TopologyRequest { required: Some(level.to_owned()), ..TopologyRequest::default() }
}

fn preferred(level: &str) -> TopologyRequest {
    TopologyRequest { preferred: Some(level.to_owned()), ..TopologyRequest::default() }
}

/// Lets those in that the plan lets in, and those out that it pushes out, and forgets the heads.
fn then(scenario: &Scenario) -> Scenario {
    let mut next = scenario.clone();
    next.heads.clear();
    for decision in scenario.plan().decisions {
        let head = scenario.heads.iter().find(|head| head.workload.key == decision.workload);
        let head = head.expect("every head is decided");
        next.running.extend(decision.reservation(&head.workload, super::scenario::second(1000)));
        if let Outcome::Preempt { victims, .. } = &decision.outcome {
            next.running.retain(|held| victims.iter().all(|victim| victim.workload != held.key));
        }
    }
    next
}

#[test]
fn ta_4_required_preferred_and_anywhere() {
    let one = |request: Option<TopologyRequest>| racks(&[("q", 8)]).head("q", asking("w", 3, request));
    let rack = "admit ns/w to q with mainx3 cpu=3@tas on a1x2, a2x1";
    check("TA-4 required", &one(required("rack").into()), &[rack]);
    check("TA-4 preferred", &one(preferred("kubernetes.io/hostname").into()), &[rack]);
    check("TA-1 implied", &one(None), &[rack]);
    check(
        "TA-4 required, too many",
        &racks(&[("q", 8)]).head("q", asking("w", 5, required("rack"))),
        &["keep ns/w out of q, because couldn't assign flavors to pod set main: \
           topology \"default\" allows to fit only 4 out of 5 pod(s)"],
    );
    check(
        "TA-4 preferred, over racks",
        &racks(&[("q", 8)]).head("q", asking("w", 5, preferred("rack"))),
        &["admit ns/w to q with mainx5 cpu=5@tas on a1x2, a2x2, b1x1"],
    );
}

#[test]
fn ta_4_slices_stay_together() {
    let request = TopologyRequest {
        slices: vec![Layer { level: "kubernetes.io/hostname".to_owned(), size: 2 }],
        ..required("rack")
    };
    let sliced = |count| racks(&[("q", 9)]).head("q", asking("w", count, request.clone()));
    check("TA-4 slices", &sliced(4), &["admit ns/w to q with mainx4 cpu=4@tas on a1x2, a2x2"]);
    check(
        "TA-4 no whole slices",
        &sliced(3),
        &["keep ns/w out of q, because couldn't assign flavors to pod set main: \
           slices of 2 pods cannot be made of 3 pod(s)"],
    );
    check(
        "TA-4 too many slices",
        &sliced(6),
        &["keep ns/w out of q, because couldn't assign flavors to pod set main: \
           topology \"default\" allows to fit only 2 out of 3 slice(s)"],
    );
}

/// A leader and its workers are in the same rack, and a leader that asks for nothing gets a place, too.
#[test]
fn ta_4_a_group_is_placed_together() {
    let member = |name: &str, pod_set: PodSet| PodSet {
        name: name.into(),
        group: Some("g".to_owned()),
        topology: Some(required("rack")),
        ..pod_set
    };
    let group = |leader: PodSet, workers: u32| {
        let workers = member("workers", pods(workers, &[("cpu", 1)]));
        let all = vec![member("leader", leader), workers];
        racks(&[("q", 9)]).head("q", workload("w", 0).asking(all))
    };
    check(
        "TA-4 group",
        &group(pods(1, &[("cpu", 1)]), 3),
        &["admit ns/w to q with leaderx1 cpu=1@tas on a1x1, workersx3 cpu=3@tas on a1x1, a2x2"],
    );
    check(
        "TA-4 leader without requests",
        &group(pods(1, &[]), 4),
        &["admit ns/w to q with leaderx1 cpu=0@tas on a1x1, workersx4 cpu=4@tas on a1x2, a2x2"],
    );
    check(
        "TA-4 two leaders",
        &group(pods(2, &[("cpu", 1)]), 3),
        &[
            "keep ns/w out of q, because couldn't assign flavors to pod set leader: a group cannot be led by 2 pods",
        ],
    );
}

/// SC-8: heads of several queues in one cycle do not take the same place; the later one is placed anew.
#[test]
fn ta_3_no_place_is_given_twice() {
    let both = racks(&[("p", 8), ("q", 8)])
        .head("p", asking("one", 4, required("rack")))
        .head("q", asking("two", 4, required("rack")));
    check(
        "TA-3 two heads",
        &both,
        &[
            "admit ns/one to p with mainx4 cpu=4@tas on a1x2, a2x2",
            "admit ns/two to q with mainx4 cpu=4@tas on b1x2, b2x2",
        ],
    );
    let third = then(&both).head("p", asking("three", 1, None));
    check(
        "TA-3 nothing left",
        &third,
        &["keep ns/three out of p, because couldn't assign flavors to pod set main: \
           topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource \"cpu\": 4"],
    );
    let three = racks(&[("o", 8), ("p", 8), ("q", 8)])
        .head("o", asking("one", 3, required("rack")))
        .head("p", asking("two", 3, required("rack")))
        .head("q", asking("zwo", 2, required("rack")));
    check(
        "TA-3 three heads",
        &three,
        &[
            "admit ns/one to o with mainx3 cpu=3@tas on a1x2, a2x1",
            "admit ns/two to p with mainx3 cpu=3@tas on b1x2, b2x1",
            "keep ns/zwo out of q, because couldn't assign flavors to pod set main: \
             topology \"default\" allows to fit only 1 out of 2 pod(s). Total nodes: 4; excluded: resource \"cpu\": 2",
        ],
    );
}

/// PR-6: who is pushed out gives back its place, and only as many go as have to, though quota alone would be enough.
#[test]
fn pr_6_who_goes_makes_room() {
    let mut queues = racks(&[]);
    queues = queues.queue(tas("q", 20).within(LowerPriority));
    let low = queues.head("q", asking("low-a", 4, required("rack")).priority(-1));
    let low = then(&low).head("q", asking("low-b", 3, required("rack")).priority(-1));
    let full = then(&low).head("q", asking("high", 4, required("rack")).priority(1));
    check(
        "PR-6 for a place",
        &full,
        &[
            "preempt ns/low-a (InClusterQueue) for ns/high to q, because couldn't assign flavors to pod set main: \
           topology \"default\" allows to fit only 1 out of 4 pod(s). Total nodes: 4; excluded: resource \"cpu\": 3. \
           Pending the preemption of 1 workload(s)",
        ],
    );
    let after = then(&full).head("q", asking("high", 4, required("rack")).priority(1));
    check("PR-6 then", &after, &["admit ns/high to q with mainx4 cpu=4@tas on a1x2, a2x2"]);
    let never = then(&low).head("q", asking("high", 5, required("rack")).priority(1));
    check(
        "PR-6 in vain",
        &never,
        &["keep ns/high out of q, because couldn't assign flavors to pod set main: \
           topology \"default\" allows to fit only 1 out of 5 pod(s). Total nodes: 4; excluded: resource \"cpu\": 3"],
    );
}

/// SC-9: what somebody waits for that others may not be made to give is not given to those after it.
#[test]
fn sc_9_a_place_is_kept_for_who_waits() {
    let held = then(&racks(&[("p", 8), ("q", 8)]).head("p", asking("one", 3, required("rack"))));
    let scenario =
        held.head("p", asking("big", 8, preferred("rack")).priority(1)).head("q", asking("small", 1, None));
    check(
        "SC-9",
        &scenario,
        &[
            "keep ns/big out of p, because couldn't assign flavors to pod set main: insufficient unused quota for cpu in \
             flavor tas, 3 more needed…",
            "keep ns/small out of q, because couldn't assign flavors to pod set main: topology \"default\" doesn't allow to \
             fit any of 1 pod(s)…",
        ],
    );
}

/// Two flavors of the same nodes share what is left of them.
#[test]
fn ta_3_flavors_share_nodes() {
    let scenario = racks(&[("q", 8)])
        .flavor(arranged("other", &["kubernetes.io/hostname"]))
        .queue(ClusterQueue { groups: vec![group("cpu", &[("other", quota(8))])], ..ClusterQueue::new("z") })
        .head("q", asking("one", 7, preferred("rack")))
        .head("z", asking("two", 2, None));
    check(
        "TA-3 shared",
        &scenario,
        &[
            "admit ns/one to q with mainx7 cpu=7@tas on a1x2, a2x2, b1x2, b2x1",
            "keep ns/two out of z, because couldn't assign flavors to pod set main: topology \"default\" allows to fit only \
             1 out of 2 pod(s). Total nodes: 4; excluded: resource \"cpu\": 3",
        ],
    );
}

/// JF-83: pods that come to others leave those where they are.
#[test]
fn jf_83_more_pods_leave_the_others_where_they_are() {
    let first = racks(&[("q", 8)]).head("q", asking("one", 2, None).elastic());
    check("JF-83 first", &first, &["admit ns/one to q with mainx2 cpu=2@tas on a1x2"]);
    let second = then(&first).head("q", asking("two", 3, None).replacing("one"));
    check("JF-83 second", &second, &["admit ns/two to q with mainx3 cpu=3@tas on a1x2, a2x1"]);
    let after = then(&second);
    let held = after.snapshot();
    let name = ClusterQueueName::from("q");
    let running = held.queue(&name).expect("a queue").running();
    let places: Vec<(String, usize)> =
        running.map(|it| (it.reservation.key.to_string(), it.places.len())).collect();
    assert_eq!(places, [("ns/one".to_owned(), 0), ("ns/two".to_owned(), 2)], "what is held is held once");
    assert!(held.reservation(&key("two")).is_some());
}

/// What is written is read again as the same reservation, so that a restart changes nothing.
#[test]
fn ta_5_a_placement_survives() {
    let scenario = racks(&[("q", 8)]).head("q", asking("w", 3, required("rack")));
    let plan = scenario.plan();
    let Outcome::Admit { pod_sets, .. } = &plan.decisions[0].outcome else { panic!("{plan}") };
    let placement: &Placement = pod_sets[0].placement.as_ref().expect("a placement");
    assert_eq!(placement.levels, ["kubernetes.io/hostname"]);
    assert_eq!(encoding::decode(&encoding::encode(placement)).as_ref(), Some(placement));
}

/// A queue without topology is not concerned, and neither is one that dispatches.
#[test]
fn ta_2_nobody_else_is_placed() {
    let deferring = ClusterQueue { defers_topology: true, ..tas("away", 9) };
    let all = racks(&[("here", 4)]).queue(deferring).queue(queue("plain", quota(4)));
    let placing: Vec<String> = all.config.placing().map(ToString::to_string).collect();
    assert_eq!(placing, ["here"]);
    check(
        "TA-8",
        &all.head("away", asking("w", 9, None)).head("plain", workload("v", 3)),
        &["admit ns/v to plain with mainx1 cpu=3@default", "admit ns/w to away with mainx9 cpu=9@tas"],
    );
    let scenario = racks(&[]).queue(queue("q", quota(4))).head("q", workload("w", 3));
    check("TA-2", &scenario, &["admit ns/w to q with mainx1 cpu=3@default"]);
}

/// Heads of three queues on random nodes.
fn a_crowd() -> impl Strategy<Value = Scenario> {
    let node = (0_usize..3, 0_i64..5);
    let request = (0_usize..4, any::<bool>());
    let head = (1_u32..6, request, -1_i64..2);
    (prop::collection::vec(node, 1..7), prop::collection::vec(head, 9)).prop_map(|(nodes, heads)| {
        let flavor = arranged("tas", &["rack", "kubernetes.io/hostname"]);
        let mut all = scenario().flavor(flavor);
        for (index, (rack, cores)) in nodes.into_iter().enumerate() {
            all = all.node(&format!("r{rack}"), &format!("n{index}"), cores);
        }
        for name in ["p", "q", "r"] {
            all = all.queue(tas(name, 30).within(LowerPriority));
        }
        for (index, (count, (kind, host), priority)) in heads.into_iter().enumerate() {
            let level = if host { "kubernetes.io/hostname" } else { "rack" };
            let request = match kind {
                0 => Some(required(level)),
                1 => Some(preferred(level)),
                2 => Some(TopologyRequest { unconstrained: true, ..TopologyRequest::default() }),
                _ => None,
            };
            let one = asking(&format!("w{index}"), count, request).priority(priority);
            all = all.head(["p", "q", "r"][index % 3], one);
        }
        all
    })
}

/// What is taken of each node, and what it has.
fn overfull(scenario: &Scenario) -> Option<String> {
    let taken = scenario.snapshot().tree().ground().all_taken();
    let cores = |name: &str| taken.iter().find(|(spot, _)| spot.as_str() == name).map(|(_, it)| it["cpu"]);
    scenario.nodes.iter().find_map(|node| {
        let used = cores(&node.name)?;
        (used > node.capacity["cpu"]).then(|| format!("{}: {used} of {}", node.name, node.capacity["cpu"]))
    })
}

/// All flavors of a queue without any place by topology, and none can.
#[test]
fn ta_2_a_queue_without_flavors_places_nobody() {
    let into = |queue: ClusterQueue, request: Option<TopologyRequest>| {
        let pod_set = PodSet { topology: request, ..pods(1, &[]) };
        scenario().queue(queue).head("q", workload("new", 0).asking(vec![pod_set]))
    };
    let nowhere = "keep ns/new out of q, because failed to assign flavors to pod set main: \
                   workload requires Topology, but there is no TAS cache information";
    check("TA-2 empty", &into(ClusterQueue::new("q"), None), &[nowhere]);
    check("TA-2 other flavors", &into(queue("q", quota(1)), Some(required("rack"))), &[nowhere]);
    check("TA-2 asks for none", &into(queue("q", quota(1)), None), &["admit ns/new to q…"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// TA-3, SC-8: whoever gets in, in whatever order, all pods have a place and no node is given away twice.
    #[test]
    fn ta_3_nodes_are_never_overfull(crowd in a_crowd()) {
        let mut now = crowd.clone();
        let mut waiting = std::mem::take(&mut now.heads);
        for _ in 0..12 {
            // One head of each queue at a time.
            let mut turn: Vec<crate::quota::workload::Head> = Vec::new();
            for head in &waiting {
                if turn.iter().all(|other| other.cluster_queue != head.cluster_queue) {
                    turn.push(head.clone());
                }
            }
            now.heads.clone_from(&turn);
            let plan = now.plan();
            prop_assert_eq!(&plan, &now.plan());
            for decision in &plan.decisions {
                if let Outcome::Admit { pod_sets, .. } = &decision.outcome {
                    let placed = pod_sets[0].placement.as_ref().map(Placement::count);
                    prop_assert_eq!(placed, Some(pod_sets[0].count), "{}", plan);
                }
                // Who got in waits no more, and who waits goes to the end of the line.
                let at = waiting.iter().position(|head| head.workload.key == decision.workload);
                let head = waiting.remove(at.expect("a head"));
                if !matches!(decision.outcome, Outcome::Admit { .. }) {
                    waiting.push(head);
                }
            }
            now = then(&now);
            prop_assert_eq!(overfull(&now), None, "{}", plan);
        }
    }
}
