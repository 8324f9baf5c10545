//! A small language to set up queues and Workloads in tests. Amounts of `cpu` are whole cores.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use types::Amount;

use crate::quota::{
    config::{
        BorrowWithinCohort, ClusterQueue, Cohort, Config, Flavor, FlavorQuotas, Quota, ReclaimWithinCohort,
        ResourceGroup, WithinClusterQueue,
    },
    cycle::{Moment, Policy, decide},
    names::{FlavorResource, LocalQueueKey, WorkloadKey},
    plan::Plan,
    snapshot::Snapshot,
    topology::Node,
    usage::{Settings, Usage},
    workload::{Flavors, Head, Placements, PodSet, Reservation, Workload},
};

/// So many cores, or so many of anything else.
pub(in crate::quota) fn amount(resource: &str, count: i64) -> Amount {
    Amount::new(if resource == "cpu" { count * 1000 } else { count })
}

/// So many seconds after some beginning.
pub(in crate::quota) fn second(at: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + at).expect("the tests stay within the calendar")
}

pub(in crate::quota) fn key(name: &str) -> WorkloadKey {
    WorkloadKey::new("ns", name)
}

pub(in crate::quota) fn local_queue(name: &str) -> LocalQueueKey {
    LocalQueueKey::new("ns", name)
}

/// So much cpu as a number.
pub(in crate::quota) fn usage(cpu: &str) -> Usage {
    Settings::default().usage(&[("cpu".to_owned(), cpu.parse().expect("a quantity"))].into(), 1.0)
}

/// A quota of `nominal` without limits.
pub(in crate::quota) fn quota(nominal: i64) -> Quota {
    Quota { nominal: amount("cpu", nominal), borrowing_limit: None, lending_limit: None }
}

impl Quota {
    pub(in crate::quota) fn borrow(self, limit: i64) -> Quota {
        Quota { borrowing_limit: Some(amount("cpu", limit)), ..self }
    }

    pub(in crate::quota) fn lend(self, limit: i64) -> Quota {
        Quota { lending_limit: Some(amount("cpu", limit)), ..self }
    }
}

/// A resource group of one resource: its flavors and their quotas.
pub(in crate::quota) fn group(resource: &str, flavors: &[(&str, Quota)]) -> ResourceGroup {
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
pub(in crate::quota) fn cohort(name: &str, parent: Option<&str>, quota: Quota) -> Cohort {
    Cohort {
        name: name.into(),
        parent: parent.map(Into::into),
        groups: vec![group("cpu", &[("default", quota)])],
        weight: 1.0,
    }
}

/// A ClusterQueue with `cpu` in the flavor `default`.
pub(in crate::quota) fn queue(name: &str, quota: Quota) -> ClusterQueue {
    ClusterQueue { groups: vec![group("cpu", &[("default", quota)])], ..ClusterQueue::new(name) }
}

impl ClusterQueue {
    pub(in crate::quota) fn part_of(mut self, cohort: &str) -> Self {
        self.cohort = Some(cohort.into());
        self
    }

    pub(in crate::quota) fn within(mut self, policy: WithinClusterQueue) -> Self {
        self.preemption.within_cluster_queue = policy;
        self
    }

    pub(in crate::quota) fn reclaim(mut self, policy: ReclaimWithinCohort) -> Self {
        self.preemption.reclaim_within_cohort = policy;
        self
    }

    pub(in crate::quota) fn borrow_within(mut self, max_priority: Option<i64>) -> Self {
        self.preemption.borrow_within_cohort = Some(BorrowWithinCohort { max_priority });
        self
    }

    pub(in crate::quota) fn by_usage(mut self) -> Self {
        self.by_usage = true;
        self
    }

    pub(in crate::quota) fn weighing(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }
}

/// A Workload of one pod that asks for `cores`.
pub(in crate::quota) fn workload(name: &str, cores: i64) -> Workload {
    Workload {
        key: key(name),
        uid: name.to_owned(),
        local_queue: local_queue("lq"),
        job_uid: None,
        priority: 0,
        queued_at: second(0),
        pod_sets: vec![pods(1, &[("cpu", cores)])],
        elastic: false,
        replaces: None,
    }
}

/// `count` pods that ask for the given amounts each.
pub(in crate::quota) fn pods(count: u32, requests: &[(&str, i64)]) -> PodSet {
    let requests = requests.iter().map(|&(name, count)| (name.into(), amount(name, count))).collect();
    PodSet { count, requests, ..PodSet::default() }
}

impl Workload {
    pub(in crate::quota) fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    pub(in crate::quota) fn queued(mut self, at: i64) -> Self {
        self.queued_at = second(at);
        self
    }

    pub(in crate::quota) fn asking(mut self, pod_sets: Vec<PodSet>) -> Self {
        self.pod_sets = pod_sets;
        self
    }

    /// One that came by this LocalQueue.
    pub(in crate::quota) fn of(mut self, queue: &str) -> Self {
        self.local_queue = local_queue(queue);
        self
    }

    /// One that may grow.
    pub(in crate::quota) fn elastic(mut self) -> Self {
        self.elastic = true;
        self
    }

    /// One that takes the place of another.
    pub(in crate::quota) fn replacing(mut self, before: &str) -> Self {
        (self.elastic, self.replaces) = (true, Some(key(before)));
        self
    }
}

/// The flavors of the only pod set of a Workload that holds these amounts.
fn flavors_of(held: &[(&str, &str, i64)]) -> Flavors {
    let flavors = held.iter().map(|&(flavor, resource, _)| (resource.into(), flavor.into()));
    [(PodSet::default().name, flavors.collect())].into()
}

/// Queues, Workloads in them and heads.
#[derive(Debug, Clone, Default)]
pub(in crate::quota) struct Scenario {
    pub config: Config,
    pub running: Vec<Reservation>,
    pub nodes: Vec<Arc<Node>>,
    pub heads: Vec<Head>,
    pub policy: Policy,
    pub used: Vec<(LocalQueueKey, Usage)>,
}

/// Nothing yet, but the flavor `default`.
pub(in crate::quota) fn scenario() -> Scenario {
    Scenario::default().flavor(Flavor::new("default"))
}

impl Scenario {
    pub(in crate::quota) fn flavor(mut self, flavor: Flavor) -> Self {
        self.config.flavors.push(flavor);
        self
    }

    pub(in crate::quota) fn cohort(mut self, cohort: Cohort) -> Self {
        self.config.cohorts.push(cohort);
        self
    }

    pub(in crate::quota) fn queue(mut self, queue: ClusterQueue) -> Self {
        self.config.cluster_queues.push(queue);
        self
    }

    /// A Workload that uses `cores` in the flavor `default`, since its `queued_at`.
    pub(in crate::quota) fn running(self, queue: &str, workload: &Workload, cores: i64) -> Self {
        self.holding(queue, workload, &[("default", "cpu", cores)])
    }

    /// A Workload that holds the given amounts.
    pub(in crate::quota) fn holding(
        mut self,
        queue: &str,
        workload: &Workload,
        held: &[(&str, &str, i64)],
    ) -> Self {
        let usage: BTreeMap<FlavorResource, Amount> = held
            .iter()
            .map(|&(flavor, resource, count)| {
                (FlavorResource::new(flavor, resource), amount(resource, count))
            })
            .collect();
        self.running.push(Reservation {
            key: workload.key.clone(),
            uid: workload.uid.clone(),
            local_queue: workload.local_queue.clone(),
            priority: workload.priority,
            queued_at: workload.queued_at,
            reserved_at: Some(workload.queued_at),
            evicted: false,
            pods_ready: true,
            cluster_queue: queue.into(),
            usage,
            replaces: workload.replaces.clone(),
            flavors: if workload.elastic { flavors_of(held) } else { Flavors::default() },
            places: Vec::new(),
            placements: Placements::default(),
        });
        self
    }

    /// How much a LocalQueue used.
    pub(in crate::quota) fn used(mut self, queue: &str, used: &str) -> Self {
        self.used.push((local_queue(queue), usage(used)));
        self
    }

    /// A node in a rack, with so many cores and room for 110 pods.
    pub(in crate::quota) fn node(mut self, rack: &str, name: &str, cores: i64) -> Self {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        self.nodes.push(Arc::new(Node {
            name: name.to_owned(),
            labels: [label("rack", rack), label("kubernetes.io/hostname", name)].into(),
            taints: Vec::new(),
            capacity: [("cpu".into(), amount("cpu", cores)), ("pods".into(), Amount::new(110))].into(),
        }));
        self
    }

    pub(in crate::quota) fn head(mut self, queue: &str, workload: Workload) -> Self {
        self.heads.push(Head { workload, cluster_queue: queue.into(), obstacle: None, progress: None });
        self
    }

    pub(in crate::quota) fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    pub(in crate::quota) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(self.config.clone());
        snapshot.settle(self.nodes.clone(), BTreeMap::new());
        for reservation in &self.running {
            snapshot.reserve(reservation.clone());
        }
        for (queue, usage) in &self.used {
            snapshot.set_usage(queue, Some(*usage));
        }
        snapshot
    }

    pub(in crate::quota) fn plan(&self) -> Plan {
        decide(&self.snapshot(), &self.heads, &self.policy, Moment { now: second(1000), cycle: 1 })
    }
}

/// Checks the plan, line by line. Of a reason only what Kueue does not say is left out: `…` stands for it.
#[track_caller]
pub(in crate::quota) fn check(rule: &str, scenario: &Scenario, want: &[&str]) {
    let plan = scenario.plan();
    let lines: Vec<String> = plan.decisions.iter().map(ToString::to_string).collect();
    let same = lines.len() == want.len()
        && lines.iter().zip(want).all(|(line, want)| match want.strip_suffix('…') {
            Some(start) => line.starts_with(start),
            None => line == want,
        });
    assert!(same, "{rule}:\n  got  {lines:#?}\n  want {want:#?}");
}
