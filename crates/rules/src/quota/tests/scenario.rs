//! A small language to set up queues and Workloads in tests. Amounts of `cpu` are whole cores.

use std::collections::BTreeMap;

use jiff::Timestamp;
use types::Amount;

use crate::quota::{
    config::{
        BorrowWithinCohort, ClusterQueue, Cohort, Config, Flavor, FlavorQuotas, Quota, ReclaimWithinCohort,
        ResourceGroup, WithinClusterQueue,
    },
    cycle::{Moment, Policy, decide},
    names::{FlavorResource, WorkloadKey},
    plan::Plan,
    snapshot::Snapshot,
    workload::{Head, PodSet, Reservation, Workload},
};

/// So many cores, or so many of anything else.
pub(super) fn amount(resource: &str, count: i64) -> Amount {
    Amount::new(if resource == "cpu" { count * 1000 } else { count })
}

/// So many seconds after some beginning.
pub(super) fn second(at: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + at).expect("the tests stay within the calendar")
}

pub(super) fn key(name: &str) -> WorkloadKey {
    WorkloadKey::new("ns", name)
}

/// A quota of `nominal` without limits.
pub(super) fn quota(nominal: i64) -> Quota {
    Quota { nominal: amount("cpu", nominal), borrowing_limit: None, lending_limit: None }
}

impl Quota {
    pub(super) fn borrow(self, limit: i64) -> Quota {
        Quota { borrowing_limit: Some(amount("cpu", limit)), ..self }
    }

    pub(super) fn lend(self, limit: i64) -> Quota {
        Quota { lending_limit: Some(amount("cpu", limit)), ..self }
    }
}

/// A resource group of one resource: its flavors and their quotas.
pub(super) fn group(resource: &str, flavors: &[(&str, Quota)]) -> ResourceGroup {
    ResourceGroup {
        covered: [resource.into()].into(),
        flavors: flavors
            .iter()
            .map(|&(name, quota)| FlavorQuotas {
                name: name.into(),
                resources: [(resource.into(), quota)].into(),
            })
            .collect(),
    }
}

/// A Cohort with quota of its own.
pub(super) fn cohort(name: &str, parent: Option<&str>, quota: Quota) -> Cohort {
    Cohort {
        name: name.into(),
        parent: parent.map(Into::into),
        groups: vec![group("cpu", &[("default", quota)])],
        weight: 1.0,
    }
}

/// A ClusterQueue with `cpu` in the flavor `default`.
pub(super) fn queue(name: &str, quota: Quota) -> ClusterQueue {
    ClusterQueue { groups: vec![group("cpu", &[("default", quota)])], ..ClusterQueue::new(name) }
}

impl ClusterQueue {
    pub(super) fn part_of(mut self, cohort: &str) -> Self {
        self.cohort = Some(cohort.into());
        self
    }

    pub(super) fn within(mut self, policy: WithinClusterQueue) -> Self {
        self.preemption.within_cluster_queue = policy;
        self
    }

    pub(super) fn reclaim(mut self, policy: ReclaimWithinCohort) -> Self {
        self.preemption.reclaim_within_cohort = policy;
        self
    }

    pub(super) fn borrow_within(mut self, max_priority: Option<i64>) -> Self {
        self.preemption.borrow_within_cohort = Some(BorrowWithinCohort { max_priority });
        self
    }

    pub(super) fn weighing(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }
}

/// A Workload of one pod that asks for `cores`.
pub(super) fn workload(name: &str, cores: i64) -> Workload {
    Workload {
        key: key(name),
        uid: name.to_owned(),
        job_uid: None,
        priority: 0,
        queued_at: second(0),
        pod_sets: vec![pods(1, &[("cpu", cores)])],
    }
}

/// `count` pods that ask for the given amounts each.
pub(super) fn pods(count: u32, requests: &[(&str, i64)]) -> PodSet {
    let requests = requests.iter().map(|&(name, count)| (name.into(), amount(name, count))).collect();
    PodSet { count, requests, ..PodSet::default() }
}

impl Workload {
    pub(super) fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    pub(super) fn queued(mut self, at: i64) -> Self {
        self.queued_at = second(at);
        self
    }

    pub(super) fn asking(mut self, pod_sets: Vec<PodSet>) -> Self {
        self.pod_sets = pod_sets;
        self
    }
}

/// Queues, Workloads in them and heads.
#[derive(Debug, Clone, Default)]
pub(super) struct Scenario {
    pub config: Config,
    pub running: Vec<Reservation>,
    pub heads: Vec<Head>,
    pub policy: Policy,
}

/// Nothing yet, but the flavor `default`.
pub(super) fn scenario() -> Scenario {
    Scenario::default().flavor(Flavor::new("default"))
}

impl Scenario {
    pub(super) fn flavor(mut self, flavor: Flavor) -> Self {
        self.config.flavors.push(flavor);
        self
    }

    pub(super) fn cohort(mut self, cohort: Cohort) -> Self {
        self.config.cohorts.push(cohort);
        self
    }

    pub(super) fn queue(mut self, queue: ClusterQueue) -> Self {
        self.config.cluster_queues.push(queue);
        self
    }

    /// A Workload that uses `cores` in the flavor `default`, since its `queued_at`.
    pub(super) fn running(self, queue: &str, workload: &Workload, cores: i64) -> Self {
        self.holding(queue, workload, &[("default", "cpu", cores)])
    }

    /// A Workload that holds the given amounts.
    pub(super) fn holding(mut self, queue: &str, workload: &Workload, held: &[(&str, &str, i64)]) -> Self {
        let usage: BTreeMap<FlavorResource, Amount> = held
            .iter()
            .map(|&(flavor, resource, count)| {
                (FlavorResource::new(flavor, resource), amount(resource, count))
            })
            .collect();
        self.running.push(Reservation {
            key: workload.key.clone(),
            uid: workload.uid.clone(),
            priority: workload.priority,
            queued_at: workload.queued_at,
            reserved_at: Some(workload.queued_at),
            evicted: false,
            pods_ready: true,
            cluster_queue: queue.into(),
            usage,
        });
        self
    }

    pub(super) fn head(mut self, queue: &str, workload: Workload) -> Self {
        self.heads.push(Head { workload, cluster_queue: queue.into(), obstacle: None, progress: None });
        self
    }

    pub(super) fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(self.config.clone());
        for reservation in &self.running {
            snapshot.reserve(reservation.clone());
        }
        snapshot
    }

    pub(super) fn plan(&self) -> Plan {
        decide(&self.snapshot(), &self.heads, &self.policy, Moment { now: second(1000), cycle: 1 })
    }
}

/// Checks the plan, line by line. Of a reason only what Kueue does not say is left out: `…` stands for it.
#[track_caller]
pub(super) fn check(rule: &str, scenario: &Scenario, want: &[&str]) {
    let plan = scenario.plan();
    let lines: Vec<String> = plan.decisions.iter().map(ToString::to_string).collect();
    let same = lines.len() == want.len()
        && lines.iter().zip(want).all(|(line, want)| match want.strip_suffix('…') {
            Some(start) => line.starts_with(start),
            None => line == want,
        });
    assert!(same, "{rule}:\n  got  {lines:#?}\n  want {want:#?}");
}
