use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use super::scenario::{Scenario, amount, check, group, pods, queue, quota, scenario, workload};
use crate::quota::{
    config::{
        ClusterQueue, Flavor, FlavorQuotas, Preference, Quota, ResourceGroup, Topology, WhenCanBorrow,
        WhenCanPreempt, WithinClusterQueue::LowerPriority,
    },
    cycle::{Policy, Undeclared},
    flavors::ScanProgress,
    workload::{PodSet, TopologyRequest},
};

/// A queue with `cpu` in two flavors.
fn two(spot: i64, ondemand: i64) -> ClusterQueue {
    let groups = vec![group("cpu", &[("spot", quota(spot)), ("ondemand", quota(ondemand))])];
    ClusterQueue { groups, ..ClusterQueue::new("q") }
}

fn flavored() -> Scenario {
    scenario().flavor(Flavor::new("spot")).flavor(Flavor::new("ondemand"))
}

#[test]
fn fa_2_fa_v1_the_first_flavor_that_fits() {
    let scenario = flavored().queue(two(2, 4)).head("q", workload("w", 3));
    check("FA-V1", &scenario, &["admit ns/w to q with mainx1 cpu=3@ondemand"]);
    let scenario = flavored().queue(two(4, 4)).head("q", workload("w", 3));
    check("FA-2", &scenario, &["admit ns/w to q with mainx1 cpu=3@spot"]);
}

#[test]
fn fa_7_fa_v2_borrowing_or_the_next_flavor() {
    let scenario = |when_can_borrow| {
        let mut queue = two(2, 4).part_of("cohort");
        queue.fungibility.when_can_borrow = when_can_borrow;
        let lender =
            ClusterQueue { groups: vec![group("cpu", &[("spot", quota(2))])], ..ClusterQueue::new("lender") };
        flavored().queue(queue).queue(lender.part_of("cohort")).head("q", workload("w", 3))
    };
    let borrows = "admit ns/w to q with mainx1 cpu=3@spot, borrowing";
    check("FA-V2 default", &scenario(WhenCanBorrow::MayStopSearch), &[borrows]);
    check(
        "FA-V2 next",
        &scenario(WhenCanBorrow::TryNextFlavor),
        &["admit ns/w to q with mainx1 cpu=3@ondemand"],
    );
}

#[test]
fn fa_7_fa_v3_preemption_or_the_next_flavor() {
    let scenario = |when_can_preempt| {
        let mut queue = two(4, 4).within(LowerPriority);
        queue.fungibility.when_can_preempt = when_can_preempt;
        let low = workload("low", 3).priority(-1);
        flavored().queue(queue).holding("q", &low, &[("spot", "cpu", 3)]).head("q", workload("w", 3))
    };
    check(
        "FA-V3 default",
        &scenario(WhenCanPreempt::TryNextFlavor),
        &["admit ns/w to q with mainx1 cpu=3@ondemand"],
    );
    let preempts = "preempt ns/low (InClusterQueue) for ns/w to q…";
    check("FA-V3 stop", &scenario(WhenCanPreempt::MayStopSearch), &[preempts]);
}

#[test]
fn fa_8_what_is_worse_when_no_flavor_simply_fits() {
    // In `spot` the Workload fits by borrowing, in `ondemand` by preemption.
    let scenario = |preference| {
        let mut queue = two(2, 4).part_of("cohort").within(LowerPriority);
        queue.fungibility.when_can_borrow = WhenCanBorrow::TryNextFlavor;
        queue.fungibility.preference = preference;
        let lender =
            ClusterQueue { groups: vec![group("cpu", &[("spot", quota(2))])], ..ClusterQueue::new("lender") };
        let low = workload("low", 3).priority(-1);
        flavored()
            .queue(queue)
            .queue(lender.part_of("cohort"))
            .holding("q", &low, &[("ondemand", "cpu", 3)])
            .head("q", workload("w", 3))
    };
    let borrows = "admit ns/w to q with mainx1 cpu=3@spot, borrowing";
    check("FA-8 borrow", &scenario(Preference::BorrowingOverPreemption), &[borrows]);
    let preempts = "preempt ns/low (InClusterQueue) for ns/w to q…";
    check("FA-8 preempt", &scenario(Preference::PreemptionOverBorrowing), &[preempts]);
}

#[test]
fn fa_8_a_resource_that_needs_room_is_not_taken_to_fit() {
    // Found by comparison with Kueue, which looks at the worse of the two only, and takes borrowing to be worse here.
    let both = |cpu: Quota, gpu: Quota| ResourceGroup {
        covered: ["cpu".into(), "gpu".into()].into(),
        flavors: vec![FlavorQuotas {
            name: "default".into(),
            resources: [("cpu".into(), cpu), ("gpu".into(), gpu)].into(),
        }],
    };
    let gpus = |count| Quota { nominal: amount("gpu", count), ..Quota::default() };
    let mut queue = ClusterQueue { groups: vec![both(quota(1), gpus(2))], ..ClusterQueue::new("q") };
    queue.fungibility.when_can_borrow = WhenCanBorrow::TryNextFlavor;
    queue.fungibility.preference = Preference::PreemptionOverBorrowing;
    let lender = ClusterQueue { groups: vec![both(quota(1), gpus(0))], ..ClusterQueue::new("lender") };
    let scenario = scenario()
        .queue(queue.part_of("cohort").within(LowerPriority))
        .queue(lender.part_of("cohort"))
        .holding("q", &workload("low", 0).priority(-1), &[("default", "gpu", 2)])
        .head("q", workload("w", 0).asking(vec![pods(1, &[("cpu", 2), ("gpu", 1)])]));
    check("FA-8 worst", &scenario, &["preempt ns/low (InClusterQueue) for ns/w to q…"]);
}

fn tainted(effect: &str) -> Flavor {
    let taint =
        Taint { key: "gpu".into(), value: Some("yes".into()), effect: effect.into(), time_added: None };
    Flavor { taints: vec![taint], ..Flavor::new("spot") }
}

#[test]
fn fa_3_taints_keep_out_who_does_not_tolerate_them() {
    let scenario = |flavor: Flavor, tolerations: Vec<Toleration>| {
        let queue =
            ClusterQueue { groups: vec![group("cpu", &[("spot", quota(4))])], ..ClusterQueue::new("q") };
        let pod_set = PodSet { tolerations, ..pods(1, &[("cpu", 1)]) };
        scenario().flavor(flavor).queue(queue).head("q", workload("w", 1).asking(vec![pod_set]))
    };
    let toleration = |operator: &str, value: Option<&str>| Toleration {
        key: Some("gpu".into()),
        operator: Some(operator.into()),
        value: value.map(Into::into),
        ..Toleration::default()
    };
    let out = "keep ns/w out of q, because couldn't assign flavors to pod set main: \
               untolerated taint {gpu yes NoSchedule <nil>} in flavor spot";
    let admitted = "admit ns/w to q with mainx1 cpu=1@spot";
    check("FA-3 NoSchedule", &scenario(tainted("NoSchedule"), vec![]), &[out]);
    check("FA-3 PreferNoSchedule", &scenario(tainted("PreferNoSchedule"), vec![]), &[admitted]);
    check("FA-3 Exists", &scenario(tainted("NoExecute"), vec![toleration("Exists", None)]), &[admitted]);
    check(
        "FA-3 Equal",
        &scenario(tainted("NoSchedule"), vec![toleration("Equal", Some("yes"))]),
        &[admitted],
    );
    check(
        "FA-3 other value",
        &scenario(tainted("NoSchedule"), vec![toleration("Equal", Some("no"))]),
        &[out],
    );
    let given = Flavor { tolerations: vec![toleration("Exists", None)], ..tainted("NoSchedule") };
    check("FA-3 by the flavor", &scenario(given, vec![]), &[admitted]);
}

#[test]
fn fa_4_affinity_counts_as_far_as_the_flavor_has_the_labels() {
    let flavor = |name: &str| Flavor { labels: [("kind".into(), name.into())].into(), ..Flavor::new(name) };
    let scenario = |pod_set: PodSet| {
        let groups = vec![group("cpu", &[("spot", quota(4)), ("ondemand", quota(4))])];
        let queue = ClusterQueue { groups, ..ClusterQueue::new("q") };
        let workload = workload("w", 1).asking(vec![pod_set]);
        scenario().flavor(flavor("spot")).flavor(flavor("ondemand")).queue(queue).head("q", workload)
    };
    let selecting = |key: &str, value: &str| PodSet {
        node_selector: [(key.into(), value.into())].into(),
        ..pods(1, &[("cpu", 1)])
    };
    let term = |key: &str, operator: &str, values: &[&str]| NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: Some(values.iter().map(|&value| value.into()).collect()),
        }]),
        match_fields: None,
    };
    let with = |terms: Vec<NodeSelectorTerm>| PodSet { node_affinity: terms, ..pods(1, &[("cpu", 1)]) };
    let spot = "admit ns/w to q with mainx1 cpu=1@spot";
    let ondemand = "admit ns/w to q with mainx1 cpu=1@ondemand";
    check("FA-4 selector", &scenario(selecting("kind", "ondemand")), &[ondemand]);
    check("FA-4 unknown key", &scenario(selecting("zone", "a")), &[spot]);
    check("FA-4 In", &scenario(with(vec![term("kind", "In", &["ondemand"])])), &[ondemand]);
    check("FA-4 NotIn", &scenario(with(vec![term("kind", "NotIn", &["spot"])])), &[ondemand]);
    check(
        "FA-4 unknown term",
        &scenario(with(vec![term("kind", "In", &["none"]), term("zone", "In", &["a"])])),
        &[spot],
    );
    let out = "keep ns/w out of q, because couldn't assign flavors to pod set main: \
               flavor ondemand doesn't match node affinity, flavor spot doesn't match node affinity";
    check("FA-4 none", &scenario(selecting("kind", "other")), &[out]);
}

#[test]
fn fa_5_and_fa_10_messages() {
    let one = flavored().queue(queue("q", quota(4))).running("q", &workload("r", 3), 3);
    let message = "keep ns/w out of q, because couldn't assign flavors to pod set main: \
                   insufficient unused quota for cpu in flavor default, 1 more needed; \
                   ClusterQueue q has no more cpu in default";
    check("FA-5 unused", &one.clone().head("q", workload("w", 2)), &[message]);
    let driver = PodSet { name: "driver".into(), ..pods(1, &[("cpu", 1)]) };
    let workers = PodSet { name: "workers".into(), ..pods(2, &[("cpu", 2)]) };
    let message = "keep ns/w out of q, because couldn't assign flavors to pod set workers: \
                   insufficient quota for cpu in flavor default, previously considered podsets requests (1) + \
                   current podset request (4) > maximum capacity (4)";
    check(
        "FA-5 capacity",
        &one.clone().head("q", workload("w", 0).asking(vec![driver, workers])),
        &[message],
    );
    let missing = PodSet { name: "missing".into(), ..pods(1, &[("cpu", 2)]) };
    let also = PodSet { name: "also".into(), ..pods(1, &[("cpu", 1)]) };
    let message = "keep ns/w out of q, because couldn't assign flavors to pod set missing: \
                   insufficient unused quota for cpu in flavor default, 1 more needed; \
                   couldn't assign flavors to pod set also: \
                   insufficient unused quota for cpu in flavor default, 2 more needed; \
                   ClusterQueue q has no more cpu in default";
    check("FA-10", &one.head("q", workload("w", 0).asking(vec![missing, also])), &[message]);
    let gone = ClusterQueue { groups: vec![group("cpu", &[("gone", quota(1))])], ..ClusterQueue::new("q") };
    let message =
        "keep ns/w out of q, because couldn't assign flavors to pod set main: flavor gone not found";
    check("FA-3", &flavored().queue(gone).head("q", workload("w", 1)), &[message]);
}

#[test]
fn fa_5_who_has_nothing_left_is_named() {
    let scenario = scenario()
        .queue(queue("a", quota(2).borrow(1)).part_of("cohort"))
        .queue(queue("b", quota(2)).part_of("cohort"))
        .running("b", &workload("r", 1), 1)
        .head("a", workload("w", 3));
    let admitted = "admit ns/w to a with mainx1 cpu=3@default, borrowing";
    check("FA-5 fits", &scenario, &[admitted]);
    let message = "keep ns/w out of a, because couldn't assign flavors to pod set main: \
                   insufficient unused quota for cpu in flavor default, 2 more needed; Cohort cohort has no more cpu in default";
    check("FA-5 cohort", &scenario.running("b", &workload("more", 2), 2), &[message]);
}

#[test]
fn fa_9_the_search_goes_on_where_it_stopped() {
    let mut queue = two(4, 4).within(LowerPriority);
    queue.fungibility.when_can_preempt = WhenCanPreempt::MayStopSearch;
    let low = workload("low", 3).priority(-1);
    let mut scenario =
        flavored().queue(queue).holding("q", &low, &[("spot", "cpu", 3)]).head("q", workload("w", 3));
    let shape = scenario.heads[0].workload.shape();
    let progress =
        ScanProgress { tried: vec![[("cpu".into(), Some(0))].into()], generation: 1, cycle: 1, shape };
    assert!(progress.has_more());
    scenario.heads[0].progress = Some(progress.clone());
    check("FA-9 goes on", &scenario, &["admit ns/w to q with mainx1 cpu=3@ondemand"]);
    scenario.heads[0].progress = Some(ScanProgress { shape: shape ^ 1, ..progress });
    check("FA-9 other shape", &scenario, &["preempt ns/low (InClusterQueue) for ns/w to q…"]);
}

#[test]
fn fa_9_an_exhausted_list_starts_over() {
    let scenario = flavored().queue(two(4, 4)).holding(
        "q",
        &workload("r", 0),
        &[("spot", "cpu", 4), ("ondemand", "cpu", 4)],
    );
    let plan = scenario.head("q", workload("w", 3)).plan();
    let progress = plan.decisions[0].progress.as_ref().expect("a Workload that waits keeps its progress");
    assert_eq!(progress.tried, vec![[("cpu".into(), None)].into()]);
    assert!(!progress.has_more());
}

#[test]
fn qm_24_pods_are_counted_where_the_queue_covers_them() {
    let groups = vec![
        group("cpu", &[("default", quota(9))]),
        group("pods", &[("default", Quota { nominal: amount("pods", 3), ..quota(0) })]),
    ];
    let scenario = |count| {
        let queue = ClusterQueue { groups: groups.clone(), ..ClusterQueue::new("q") };
        scenario().queue(queue).head("q", workload("w", 0).asking(vec![pods(count, &[("cpu", 1)])]))
    };
    check("QM-24 fits", &scenario(3), &["admit ns/w to q with mainx3 cpu=3@default pods=3@default"]);
    let message = "keep ns/w out of q, because couldn't assign flavors to pod set main: insufficient quota for pods in \
                   flavor default, previously considered podsets requests (0) + current podset request (4) > \
                   maximum capacity (3)";
    check("QM-24 too many", &scenario(4), &[message]);
}

#[test]
fn qm_24_room_for_pods_is_made_by_preemption() {
    // Found by comparison with Kueue, which forgets `pods` when it counts how many have to go.
    let pods_only =
        |nominal: i64| group("pods", &[("default", Quota { nominal: amount("pods", nominal), ..quota(0) })]);
    let queue = ClusterQueue { groups: vec![pods_only(3)], ..ClusterQueue::new("q") };
    let scenario = scenario()
        .queue(queue.within(LowerPriority))
        .holding("q", &workload("a", 0).queued(1), &[("default", "pods", 1)])
        .holding("q", &workload("b", 0).queued(2), &[("default", "pods", 1)])
        .holding("q", &workload("c", 0).queued(3), &[("default", "pods", 1)])
        .head("q", workload("w", 0).priority(1).asking(vec![pods(2, &[])]));
    check(
        "QM-24 preempt",
        &scenario,
        &["preempt ns/c (InClusterQueue), ns/b (InClusterQueue) for ns/w to q…"],
    );
}

#[test]
fn qm_25_resources_that_the_queue_does_not_list() {
    let scenario = |count: i64| {
        let pod_set = pods(1, &[("cpu", 1), ("example.com/gpu", count)]);
        scenario().queue(queue("q", quota(4))).head("q", workload("w", 0).asking(vec![pod_set]))
    };
    let message = "keep ns/w out of q, because couldn't assign flavors to pod set main: \
                   resource example.com/gpu unavailable in ClusterQueue";
    let admitted = "admit ns/w to q with mainx1 cpu=1@default";
    check("QM-25 blocked", &scenario(1), &[message]);
    check("QM-25 zero", &scenario(0), &[admitted]);
    let ignoring = Policy { undeclared: Undeclared::Ignore, ..Policy::default() };
    check("QM-25 ignored", &scenario(1).policy(ignoring), &[admitted]);
}

#[test]
fn qm_10_only_what_the_queue_lists_itself() {
    let lender =
        ClusterQueue { groups: vec![group("cpu", &[("spot", quota(9))])], ..ClusterQueue::new("lender") };
    let scenario = flavored()
        .queue(queue("q", quota(1)).part_of("cohort"))
        .queue(lender.part_of("cohort"))
        .head("q", workload("w", 2));
    let message = "keep ns/w out of q, because couldn't assign flavors to pod set main: insufficient quota for cpu in \
                   flavor default, previously considered podsets requests (0) + current podset request (2) > \
                   maximum capacity (1)";
    check("QM-10", &scenario, &[message]);
}

#[test]
fn fa_1_groups_are_independent_and_grouped_pod_sets_are_not() {
    let groups = vec![
        group("cpu", &[("spot", quota(2)), ("ondemand", quota(8))]),
        group("example.com/gpu", &[("default", Quota { nominal: amount("gpu", 4), ..quota(0) })]),
    ];
    let queue = ClusterQueue { groups, ..ClusterQueue::new("q") };
    let leader = PodSet { name: "leader".into(), ..pods(1, &[("cpu", 1)]) };
    let workers = PodSet { name: "workers".into(), ..pods(2, &[("cpu", 2), ("example.com/gpu", 2)]) };
    let scenario =
        |pod_sets: Vec<PodSet>| flavored().queue(queue.clone()).head("q", workload("w", 0).asking(pod_sets));
    check(
        "FA-1 apart",
        &scenario(vec![leader.clone(), workers.clone()]),
        &["admit ns/w to q with leaderx1 cpu=1@spot, workersx2 cpu=4@ondemand example.com/gpu=4@default"],
    );
    let together = |pod_set: PodSet| PodSet { group: Some("g".into()), ..pod_set };
    check(
        "FA-1 together",
        &scenario(vec![together(leader), together(workers)]),
        &["admit ns/w to q with leaderx1 cpu=1@ondemand, workersx2 cpu=4@ondemand example.com/gpu=4@default"],
    );
}

#[test]
fn ta_2_and_ta_8_topology_is_left_to_who_places() {
    let topology = Topology { name: "racks".to_owned(), levels: vec!["rack".into()] };
    let racks = Flavor { topology: Some(topology), ..Flavor::new("racks") };
    let scenario = |request: Option<TopologyRequest>, defers: bool, both: bool| {
        let mut flavors = vec![("racks", quota(4))];
        if both {
            flavors.push(("default", quota(4)));
        }
        let queue = ClusterQueue {
            groups: vec![group("cpu", &flavors)],
            defers_topology: defers,
            ..ClusterQueue::new("q")
        };
        let pod_set = PodSet { topology: request, ..pods(1, &[("cpu", 1)]) };
        scenario().flavor(racks.clone()).queue(queue).head("q", workload("w", 0).asking(vec![pod_set]))
    };
    let request =
        |level: &str| Some(TopologyRequest { required: Some(level.into()), ..TopologyRequest::default() });
    let racks_line = "admit ns/w to q with mainx1 cpu=1@racks";
    check("TA-2 not asked", &scenario(None, true, true), &["admit ns/w to q with mainx1 cpu=1@default"]);
    check("TA-2 asked", &scenario(request("rack"), true, true), &[racks_line]);
    check("TA-1 implied", &scenario(None, true, false), &[racks_line]);
    let deferred = scenario(request("rack"), true, true).plan();
    let crate::quota::Outcome::Admit { pod_sets, .. } = &deferred.decisions[0].outcome else {
        panic!("{deferred}")
    };
    assert!(pod_sets[0].topology_pending);
    check(
        "TA-2 level",
        &scenario(request("block"), true, true),
        &["keep ns/w out of q, because couldn't assign flavors to pod set main: \
           Flavor \"default\" does not support TopologyAwareScheduling, \
           Flavor \"racks\" does not contain the requested level"],
    );
    check(
        "TA-3 no nodes",
        &scenario(request("rack"), false, true),
        &[
            "keep ns/w out of q, because couldn't assign flavors to pod set main: no topology domains at level: rack",
        ],
    );
}

#[test]
fn fa_6_a_flavor_is_as_good_as_the_worst_of_its_resources() {
    let flavor = |name: &str, cpu: i64, gpu: i64| FlavorQuotas {
        name: name.into(),
        resources: [
            ("cpu".into(), quota(cpu)),
            ("gpu".into(), Quota { nominal: amount("gpu", gpu), ..Quota::default() }),
        ]
        .into(),
    };
    let group = ResourceGroup {
        covered: ["cpu".into(), "gpu".into()].into(),
        flavors: vec![flavor("spot", 9, 0), flavor("ondemand", 1, 1)],
    };
    let queue = ClusterQueue { groups: vec![group], ..ClusterQueue::new("q") };
    let both = workload("w", 0).asking(vec![pods(1, &[("cpu", 1), ("gpu", 1)])]);
    let scenario = flavored().queue(queue).head("q", both);
    check("FA-6", &scenario, &["admit ns/w to q with mainx1 cpu=1@ondemand gpu=1@ondemand"]);
}

/// SC-10: which flavors a Workload could not simply have is told when it gets in, and nothing where there was no choice.
#[test]
fn sc_10_which_flavors_were_considered() {
    let considered = |scenario: &Scenario| {
        let plan = scenario.plan();
        let crate::quota::Outcome::Admit { considered, .. } = &plan.decisions[0].outcome else {
            panic!("{plan}")
        };
        considered.clone()
    };
    assert_eq!(considered(&flavored().queue(two(4, 4)).head("q", workload("w", 3))), "");
    assert_eq!(
        considered(&flavored().queue(two(2, 4)).head("q", workload("w", 3))),
        "main: spot(NoFit;insufficient quota for cpu in flavor spot, previously considered podsets requests (0) + current \
         podset request (3) > maximum capacity (2))",
    );
    let tainted = scenario().flavor(tainted("NoSchedule")).flavor(Flavor::new("ondemand"));
    assert_eq!(
        considered(&tainted.queue(two(4, 4)).head("q", workload("w", 3))),
        "main: spot(NoFit;untolerated taint {gpu yes NoSchedule <nil>} in flavor spot)",
    );
    let low = workload("low", 3).priority(-1);
    let queue = two(4, 4).within(LowerPriority);
    let preempting =
        flavored().queue(queue).holding("q", &low, &[("spot", "cpu", 3)]).head("q", workload("w", 3));
    assert_eq!(
        considered(&preempting),
        "main: spot(preemptionMode=Preempt;insufficient unused quota for cpu in flavor spot, 2 more needed)",
    );
    let lender =
        ClusterQueue { groups: vec![group("cpu", &[("spot", quota(2))])], ..ClusterQueue::new("lender") };
    let borrowing = flavored().queue(two(2, 4).part_of("cohort")).queue(lender.part_of("cohort"));
    assert_eq!(considered(&borrowing.head("q", workload("w", 3))), "main: spot(Fit;borrow=1)");
}
