//! What is shown of queues: who waits, who is in, and what they hold (CQ-8, LQ-3).

use std::collections::BTreeMap;

use jiff::Timestamp;
use types::{
    Amount,
    kueue::{
        ClusterQueue, ClusterQueueStatus, FairSharingStatus, FlavorUsage,
        LocalQueueAdmissionFairSharingStatus, LocalQueueFairSharingStatus, LocalQueueFlavorUsage,
        LocalQueueResourceUsage, LocalQueueStatus, ResourceUsage, Workload,
    },
};

use super::{
    names::FlavorResource,
    readiness::Readiness,
    requests::List,
    wire::{RequeuingTimestamp, reservation},
};
use crate::workload::{condition, state};

/// The most entries that the schema has room for, although a ClusterQueue may have more flavors (CQ-8).
const MOST_FLAVORS: usize = 64;

type Usage = BTreeMap<FlavorResource, Amount>;

/// Who is in, and what they hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Holders {
    /// How many hold quota.
    pub reserving: i32,
    /// How many of those may run.
    pub admitted: i32,
    /// What those hold that hold quota.
    pub reserved: Usage,
    /// What those hold that may run.
    pub used: Usage,
}

impl Holders {
    /// Adds up what some Workloads hold.
    pub fn sum<'a>(workloads: impl IntoIterator<Item = &'a Workload>) -> Holders {
        let mut sum = Holders::default();
        for workload in workloads {
            // Since when it queues makes no difference to what it holds.
            let Some(held) = reservation(workload, RequeuingTimestamp::Eviction) else { continue };
            let admitted = state::is_admitted(workload);
            sum.reserving += 1;
            sum.admitted += i32::from(admitted);
            for (fr, amount) in held.usage {
                *sum.reserved.entry(fr.clone()).or_default() += amount;
                if admitted {
                    *sum.used.entry(fr).or_default() += amount;
                }
            }
        }
        sum
    }
}

/// The status of a ClusterQueue.
pub fn cluster_queue(
    queue: &ClusterQueue,
    readiness: &Readiness,
    pending: usize,
    holders: &Holders,
    share: Option<i64>,
    now: Timestamp,
) -> ClusterQueueStatus {
    let mut status = ClusterQueueStatus {
        conditions: queue.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default(),
        flavors_reservation: flavor_usage(queue, &holders.reserved),
        flavors_usage: flavor_usage(queue, &holders.used),
        pending_workloads: count(pending),
        reserving_workloads: holders.reserving,
        admitted_workloads: holders.admitted,
        fair_sharing: share.map(|weighted_share| FairSharingStatus { weighted_share }),
    };
    condition::set(&mut status.conditions, active(readiness, queue.metadata.generation, now));
    status
}

/// The status of a LocalQueue, which shows the flavors of its ClusterQueue.
pub fn local_queue(
    queue: &types::kueue::LocalQueue,
    leads_to: Option<&ClusterQueue>,
    readiness: &Readiness,
    pending: usize,
    holders: &Holders,
    now: Timestamp,
) -> LocalQueueStatus {
    let before = queue.status.clone().unwrap_or_default();
    let usage = |usage: &Usage| leads_to.map(|queue| local_usage(queue, usage)).unwrap_or_default();
    let mut status = LocalQueueStatus {
        conditions: before.conditions,
        pending_workloads: count(pending),
        reserving_workloads: holders.reserving,
        admitted_workloads: holders.admitted,
        flavors_reservation: usage(&holders.reserved),
        flavors_usage: usage(&holders.used),
        fair_sharing: before.fair_sharing,
    };
    condition::set(&mut status.conditions, active(readiness, queue.metadata.generation, now));
    status
}

/// What a LocalQueue used, as its status shows it (QU-21). Its share is always zero, as in Kueue.
pub fn used(consumed: List, now: Timestamp) -> LocalQueueFairSharingStatus {
    LocalQueueFairSharingStatus {
        weighted_share: 0,
        admission_fair_sharing_status: Some(LocalQueueAdmissionFairSharingStatus {
            consumed_resources: consumed,
            last_update: condition::time(now),
        }),
    }
}

fn active(
    readiness: &Readiness,
    generation: Option<i64>,
    now: Timestamp,
) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition {
    let Readiness { active, reason, message } = readiness;
    condition::new("Active", *active, reason, message, generation, now)
}

fn count(number: usize) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

/// Every flavor in its order and every resource by name, also those of which nothing is used.
fn each_flavor(queue: &ClusterQueue) -> impl Iterator<Item = (&str, BTreeMap<&str, Amount>)> {
    let groups = queue.spec.resource_groups.iter();
    let flavors = groups.flat_map(|group| &group.flavors).take(MOST_FLAVORS);
    flavors.map(|flavor| {
        let quotas = flavor.resources.iter();
        let nominal = quotas.map(|it| (it.name.as_str(), Amount::from_quantity(&it.name, &it.nominal_quota)));
        (flavor.name.as_str(), nominal.collect())
    })
}

fn of(usage: &Usage, flavor: &str, resource: &str) -> Amount {
    usage.get(&FlavorResource::new(flavor, resource)).copied().unwrap_or_default()
}

fn flavor_usage(queue: &ClusterQueue, usage: &Usage) -> Vec<FlavorUsage> {
    let in_cohort = queue.spec.cohort_name.as_ref().is_some_and(|name| !name.is_empty());
    let flavors = each_flavor(queue).map(|(flavor, resources)| FlavorUsage {
        name: flavor.to_owned(),
        resources: resources
            .into_iter()
            .map(|(resource, nominal)| {
                let total = of(usage, flavor, resource);
                let borrowed = if in_cohort { (total - nominal).or_zero() } else { Amount::ZERO };
                ResourceUsage {
                    name: resource.to_owned(),
                    total: total.to_quantity(resource),
                    borrowed: borrowed.to_quantity(resource),
                }
            })
            .collect(),
    });
    flavors.collect()
}

fn local_usage(queue: &ClusterQueue, usage: &Usage) -> Vec<LocalQueueFlavorUsage> {
    let flavors = each_flavor(queue).map(|(flavor, resources)| LocalQueueFlavorUsage {
        name: flavor.to_owned(),
        resources: resources
            .into_keys()
            .map(|resource| LocalQueueResourceUsage {
                name: resource.to_owned(),
                total: of(usage, flavor, resource).to_quantity(resource),
            })
            .collect(),
    });
    flavors.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cq_8_every_flavor_and_resource_is_shown() {
        let queue: ClusterQueue = serde_json::from_value(json!({
            "metadata": { "name": "q", "generation": 2 },
            "spec": { "cohortName": "all", "resourceGroups": [{ "coveredResources": ["memory", "cpu"], "flavors": [
                { "name": "spot", "resources": [
                    { "name": "memory", "nominalQuota": "1Gi" }, { "name": "cpu", "nominalQuota": "1" },
                ] },
                { "name": "gold", "resources": [
                    { "name": "memory", "nominalQuota": "0" }, { "name": "cpu", "nominalQuota": "0" },
                ] },
            ] }] },
        }))
        .expect("a ClusterQueue");
        let workload = |admitted: &str, cpu: &str| -> Workload {
            let condition = |kind: &str, status: &str| {
                json!({
                    "type": kind, "status": status, "reason": "X", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            };
            serde_json::from_value(json!({
                "metadata": { "name": cpu }, "spec": { "podSets": [{ "name": "main", "count": 1 }] },
                "status": {
                    "conditions": [condition("QuotaReserved", "True"), condition("Admitted", admitted)],
                    "admission": { "clusterQueue": "q", "podSetAssignments": [{
                        "name": "main", "count": 1, "flavors": { "cpu": "spot" }, "resourceUsage": { "cpu": cpu },
                    }] },
                },
            }))
            .expect("a Workload")
        };
        let holders = Holders::sum([&workload("True", "1500m"), &workload("False", "2")]);
        let readiness =
            Readiness { active: true, reason: "Ready", message: "Can admit new workloads".into() };
        let now = Timestamp::from_second(0).expect("a time");
        let status = cluster_queue(&queue, &readiness, 7, &holders, None, now);
        let shown = serde_json::to_value(&status).expect("JSON");
        let resource = |name: &str, total: &str, borrowed: &str| json!({ "name": name, "total": total, "borrowed": borrowed });
        assert_eq!(
            shown["flavorsReservation"],
            json!([
                { "name": "spot", "resources": [resource("cpu", "3500m", "2500m"), resource("memory", "0", "0")] },
                { "name": "gold", "resources": [resource("cpu", "0", "0"), resource("memory", "0", "0")] },
            ])
        );
        assert_eq!(shown["flavorsUsage"][0]["resources"][0], resource("cpu", "1500m", "500m"));
        assert_eq!(
            (status.pending_workloads, status.reserving_workloads, status.admitted_workloads),
            (7, 2, 1)
        );
        assert_eq!(status.conditions[0].reason, "Ready");
    }
}
