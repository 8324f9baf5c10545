//! What queues have and what is used of it, as amounts that can be shown.

use std::collections::BTreeMap;

use types::Amount;
use types::kueue::ClusterQueue;

/// How much of a resource is used, of how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Share {
    pub(crate) used: Amount,
    pub(crate) total: Amount,
}

impl Share {
    /// What is left; nothing if more is used than there is.
    pub(crate) fn free(self) -> Amount {
        (self.total - self.used).or_zero()
    }

    /// For example `6/8`.
    pub(crate) fn text(self, resource: &str) -> String {
        format!("{}/{}", self.used.text(resource), self.total.text(resource))
    }
}

/// What is reserved of a ClusterQueue's own quota, by resource, over all its flavors.
pub(crate) fn shares(queue: &ClusterQueue) -> BTreeMap<String, Share> {
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    for quota in flavors.flat_map(|flavor| &flavor.resources) {
        let nominal = Amount::from_quantity(&quota.name, &quota.nominal_quota);
        shares.entry(quota.name.clone()).or_default().total += nominal;
    }
    let used = queue.status.iter().flat_map(|status| &status.flavors_reservation);
    for used in used.flat_map(|flavor| &flavor.resources) {
        let share = shares.entry(used.name.clone()).or_default();
        share.used += Amount::from_quantity(&used.name, &used.total);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quota_of_all_flavors_together() {
        let flavor = |name: &str, cpu: &str| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": cpu }] });
        let groups =
            json!([{ "coveredResources": ["cpu"], "flavors": [flavor("a", "1500m"), flavor("b", "2")] }]);
        let used = json!([{ "name": "a", "resources": [{ "name": "cpu", "total": "1", "borrowed": "0" }] }]);
        let queue: ClusterQueue = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "q" },
            "spec": { "resourceGroups": groups }, "status": { "flavorsReservation": used },
        }))
        .expect("a ClusterQueue");
        let cpu = shares(&queue)["cpu"];
        assert_eq!((cpu.text("cpu").as_str(), cpu.free()), ("1/3500m", Amount::new(2500)));
    }
}
