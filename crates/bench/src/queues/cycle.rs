//! The cycle alone: 50,000 Workloads wait in 1,000 ClusterQueues, and as many get in as there is room for.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rules::quota::{
    Moment, Policy, Snapshot,
    config::{
        ClusterQueue, Config, Flavor, FlavorQuotas, QueueingStrategy, Quota, ReclaimWithinCohort,
        ResourceGroup, WithinClusterQueue,
    },
    decide,
    names::{LocalQueueKey, WorkloadKey},
    queue::{Queue, Waiting},
    workload::{Head, PodSet, Workload},
};
use types::Amount;

const QUEUES: usize = 1_000;
const COHORTS: usize = 10;
const WORKLOADS: usize = 50_000;

/// Runs cycles until nobody gets in any more, and says how long they took.
pub(super) fn run() -> String {
    let now = Timestamp::now();
    let mut snapshot = Snapshot::new(config());
    let mut queues: Vec<Queue> = (0..QUEUES).map(|_| Queue::new(QueueingStrategy::default())).collect();
    let began = Instant::now();
    for index in 0..WORKLOADS {
        queues[index % QUEUES].push(Waiting::new(workload(index, now)), now);
    }
    let filled = began.elapsed();
    let (policy, mut cycle, mut admitted, mut longest) = (Policy::default(), 0, 0, Duration::ZERO);
    let began = Instant::now();
    loop {
        let started = Instant::now();
        let popped: Vec<(usize, Waiting)> =
            queues.iter_mut().enumerate().filter_map(|(at, queue)| Some((at, queue.pop()?))).collect();
        let heads: Vec<Head> = popped.iter().map(|(at, waiting)| head(*at, waiting)).collect();
        let plan = decide(&snapshot, &heads, &policy, Moment { now, cycle });
        let before = admitted;
        let by_key: BTreeMap<&WorkloadKey, &(usize, Waiting)> =
            popped.iter().map(|popped| (&popped.1.workload.key, popped)).collect();
        for decision in plan.decisions {
            let Some((at, waiting)) = by_key.get(&decision.workload) else { continue };
            match (decision.reservation(&waiting.workload, now), decision.requeue()) {
                (Some(reservation), _) => {
                    admitted += 1;
                    queues[*at].remove(&waiting.workload.key);
                    snapshot.reserve(reservation);
                }
                (None, Some(how)) => queues[*at].requeue(waiting.clone(), how, now),
                (None, None) => {}
            }
        }
        cycle += 1;
        longest = longest.max(started.elapsed());
        if admitted == before {
            break;
        }
    }
    let mean = began.elapsed() / u32::try_from(cycle).unwrap_or(1);
    format!(
        "the cycle alone, {WORKLOADS} waiting in {QUEUES} ClusterQueues: {admitted} admitted in {cycle} cycles of {mean:.1?} \
         in the mean and {longest:.1?} at most; queued in {filled:.1?}"
    )
}

fn config() -> Config {
    let quota = Quota {
        nominal: Amount::new(20_000),
        borrowing_limit: Some(Amount::new(100_000)),
        lending_limit: None,
    };
    let queue = |index: usize| {
        let flavors =
            vec![FlavorQuotas { name: "default".into(), resources: [("cpu".into(), quota)].into() }];
        let mut queue = ClusterQueue::new(format!("q{index}"));
        queue.cohort = Some(format!("c{}", index % COHORTS).into());
        queue.groups = vec![ResourceGroup { covered: ["cpu".into()].into(), flavors }];
        queue.preemption.within_cluster_queue = WithinClusterQueue::LowerPriority;
        queue.preemption.reclaim_within_cohort = ReclaimWithinCohort::Any;
        queue
    };
    Config {
        flavors: vec![Flavor::new("default")],
        cohorts: Vec::new(),
        cluster_queues: (0..QUEUES).map(queue).collect(),
    }
}

fn workload(index: usize, now: Timestamp) -> Workload {
    let (cores, priority) = match index / QUEUES % 10 {
        0..7 => (1, 50),
        7..9 => (5, 100),
        _ => (20, 200),
    };
    let requests = [("cpu".into(), Amount::new(cores * 1000))].into();
    Workload {
        key: WorkloadKey::new("n", &format!("w{index}")),
        uid: format!("u{index}"),
        local_queue: LocalQueueKey::new("n", "q"),
        job_uid: None,
        priority,
        queued_at: now,
        pod_sets: vec![PodSet { name: "main".into(), count: 1, requests, ..PodSet::default() }],
        elastic: false,
        replaces: None,
    }
}

fn head(queue: usize, waiting: &Waiting) -> Head {
    Head {
        workload: waiting.workload.clone(),
        cluster_queue: format!("q{queue}").into(),
        obstacle: None,
        progress: waiting.progress.clone(),
    }
}
