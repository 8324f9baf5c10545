//! Quota and what is reserved and used of it, where metrics are told to show it.

use std::collections::BTreeMap;

use reconcile::Key;
use rules::quota::{names::FlavorResource, status::Holders};
use types::{
    Amount,
    kueue::{ClusterQueue, FlavorQuotas, ResourceQuota},
};

use super::{Metrics, is_of, label};

/// What is shown of each resource of a ClusterQueue.
const RESOURCES: [&str; 5] = [
    "kueue_cluster_queue_nominal_quota",
    "kueue_cluster_queue_borrowing_limit",
    "kueue_cluster_queue_lending_limit",
    "kueue_cluster_queue_resource_reservation",
    "kueue_cluster_queue_resource_usage",
];
/// What is shown of each resource of a LocalQueue.
const LOCAL: [&str; 2] = ["kueue_local_queue_resource_reservation", "kueue_local_queue_resource_usage"];
/// What is waited for.
const PENDING: &str = "kueue_cluster_queue_resource_pending";

impl Metrics {
    /// The quota of a ClusterQueue, and what of it is reserved and used, flavor by flavor.
    pub(crate) fn resources(&self, queue: &ClusterQueue, holders: &Holders) {
        let name = queue.metadata.name.as_deref().unwrap_or_default();
        let cohort = queue.spec.cohort_name.as_deref().unwrap_or_default();
        // What it had before, or had in another cohort, is not its any more.
        let of_queue = label("cluster_queue", name);
        self.clear(&RESOURCES, |labels| labels.split(',').any(|it| it == of_queue));
        for (flavor, quota) in quotas(queue) {
            let resource = quota.name.as_str();
            let [nominal, borrowing, lending] =
                [Some(&quota.nominal_quota), quota.borrowing_limit.as_ref(), quota.lending_limit.as_ref()]
                    .map(|limit| {
                        limit
                            .map_or(f64::INFINITY, |it| amount(resource, Amount::from_quantity(resource, it)))
                    });
            let [reserved, used] = used_of(holders, &flavor.name, resource);
            let values = [nominal, borrowing, lending, reserved, used];
            let labels = [
                ("cohort", cohort),
                ("cluster_queue", name),
                ("flavor", &*flavor.name),
                ("resource", resource),
            ];
            for (family, value) in RESOURCES.into_iter().zip(values) {
                self.set(family, &labels, value);
            }
        }
    }

    /// What those ask for together who wait for a ClusterQueue: of every resource that it covers, and of others.
    pub(crate) fn pending_resources(&self, queue: &ClusterQueue, pending: &BTreeMap<String, Amount>) {
        let name = queue.metadata.name.as_deref().unwrap_or_default();
        let of_queue = label("cluster_queue", name);
        self.clear(&[PENDING], |labels| is_of(labels, &of_queue));
        let covered = queue.spec.resource_groups.iter().flat_map(|group| &group.covered_resources);
        let mut all: BTreeMap<&str, Amount> = covered.map(|it| (it.as_str(), Amount::ZERO)).collect();
        all.extend(pending.iter().map(|(resource, asked)| (resource.as_str(), *asked)));
        for (resource, asked) in all {
            let labels = [("cluster_queue", name), ("resource", resource)];
            self.set(PENDING, &labels, amount(resource, asked));
        }
    }

    /// What the Workloads of a LocalQueue hold, in every flavor of the ClusterQueue that it leads to.
    pub(crate) fn local_resources(&self, key: &Key, leads_to: &ClusterQueue, holders: &Holders) {
        let of_queue = format!("{},{}", label("name", &key.name), label("namespace", &key.namespace));
        self.clear(&LOCAL, |labels| is_of(labels, &of_queue));
        for (flavor, quota) in quotas(leads_to) {
            let labels = [
                ("name", key.name.as_str()),
                ("namespace", key.namespace.as_str()),
                ("flavor", &*flavor.name),
                ("resource", &*quota.name),
            ];
            for (family, value) in LOCAL.into_iter().zip(used_of(holders, &flavor.name, &quota.name)) {
                self.set(family, &labels, value);
            }
        }
    }

    fn clear(&self, of: &[&'static str], is_outdated: impl Fn(&str) -> bool) {
        for (_, family) in self.families().iter_mut().filter(|(family, _)| of.contains(family)) {
            family.series.retain(|labels, _| !is_outdated(labels));
        }
    }
}

/// Every quota of a ClusterQueue, with its flavor.
fn quotas(queue: &ClusterQueue) -> impl Iterator<Item = (&FlavorQuotas, &ResourceQuota)> {
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    flavors.flat_map(|flavor| flavor.resources.iter().map(move |quota| (flavor, quota)))
}

/// What is reserved and used of a resource.
fn used_of(holders: &Holders, flavor: &str, resource: &str) -> [f64; 2] {
    let of = |usage: &BTreeMap<FlavorResource, Amount>| {
        let used = usage.get(&FlavorResource::new(flavor, resource));
        amount(resource, used.copied().unwrap_or_default())
    };
    [of(&holders.reserved), of(&holders.used)]
}

/// An amount in whole units.
pub(super) fn amount(resource: &str, amount: Amount) -> f64 {
    if amount.is_unlimited() {
        return f64::INFINITY;
    }
    #[expect(clippy::cast_precision_loss, reason = "as exact as Prometheus counts")]
    let units = amount.units() as f64;
    if resource == "cpu" { units / 1000.0 } else { units }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_1_quota_is_shown_flavor_by_flavor() {
        let queue = |cohort: &str| -> ClusterQueue {
            let quota = |name: &str, nominal: &str, limit: Option<&str>| serde_json::json!({ "name": name, "nominalQuota": nominal, "borrowingLimit": limit });
            let most = quota("pods", "9223372036854775807", None);
            let resources = [quota("cpu", "1500m", Some("2")), quota("memory", "1Gi", None), most];
            let flavors = serde_json::json!([{ "name": "spot", "resources": resources }]);
            let groups = serde_json::json!([{ "coveredResources": ["cpu", "memory"], "flavors": flavors }]);
            let spec = serde_json::json!({ "cohortName": cohort, "resourceGroups": groups });
            let queue = serde_json::json!({ "metadata": { "name": "q" }, "spec": spec });
            serde_json::from_value(queue).expect("a ClusterQueue")
        };
        let mut holders = Holders::default();
        holders.reserved.insert(FlavorResource::new("spot", "cpu"), Amount::new(750));
        let metrics = Metrics::default();
        metrics.resources(&queue("old"), &holders);
        metrics.resources(&queue("new"), &holders);
        let text = metrics.text("leader");
        let shown = |family: &str, resource: &str, value: &str| {
            let labels = format!(
                r#"cohort="new",cluster_queue="q",flavor="spot",resource="{resource}",replica_role="leader""#
            );
            let line = format!("kueue_cluster_queue_{family}{{{labels}}} {value}");
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        };
        shown("nominal_quota", "cpu", "1.5");
        shown("nominal_quota", "memory", "1073741824");
        shown("nominal_quota", "pods", "+Inf");
        shown("borrowing_limit", "cpu", "2");
        shown("borrowing_limit", "memory", "+Inf");
        shown("lending_limit", "cpu", "+Inf");
        shown("resource_reservation", "cpu", "0.75");
        shown("resource_usage", "cpu", "0");
        assert!(!text.contains("\"old\""), "it is in another cohort now");
        let pending = BTreeMap::from([("cpu".to_owned(), Amount::new(2500))]);
        metrics.pending_resources(&queue("new"), &BTreeMap::from([("gpu".to_owned(), Amount::new(1))]));
        metrics.pending_resources(&queue("new"), &pending);
        let key = Key::new("ns", "lq");
        metrics.local_resources(&key, &queue("new"), &holders);
        let text = metrics.text("leader");
        for line in [
            r#"kueue_cluster_queue_resource_pending{cluster_queue="q",resource="cpu",replica_role="leader"} 2.5"#,
            r#"kueue_cluster_queue_resource_pending{cluster_queue="q",resource="memory",replica_role="leader"} 0"#,
            r#"kueue_local_queue_resource_reservation{name="lq",namespace="ns",flavor="spot",resource="cpu",replica_role="leader"} 0.75"#,
            r#"kueue_local_queue_resource_usage{name="lq",namespace="ns",flavor="spot",resource="memory",replica_role="leader"} 0"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("gpu"), "nobody asks for it any more");
    }
}
