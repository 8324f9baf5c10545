//! The quota of a manager's ClusterQueue, kept in step with that of its workers' (MK-QA-01…04).

use std::collections::{BTreeMap, BTreeSet};

use types::{
    Quantity,
    kueue::{ClusterQueue, MultiKueueConfig, QuotaManagement, ResourceQuota},
};

/// The condition of a ClusterQueue that tells of it.
pub const AUTOMATION: &str = "MultiKueueManagerQuotaAutomation";

/// What is said of a ClusterQueue, and what its only flavor offers from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct Automation {
    /// Whether its quota follows from that of workers.
    pub status: bool,
    /// In a word.
    pub reason: &'static str,
    /// In words.
    pub message: String,
    /// What its flavor offers, if that follows.
    pub resources: Option<Vec<ResourceQuota>>,
}

/// Whether somebody asked for it.
pub fn is_requested(config: &MultiKueueConfig) -> bool {
    config.spec.quota_management == Some(QuotaManagement::Automated)
}

/// What the quota of a ClusterQueue is, with this configuration and these queues on workers that its own lead to.
pub fn automated<'a>(
    queue: &ClusterQueue,
    config: Option<&MultiKueueConfig>,
    related: impl IntoIterator<Item = &'a ClusterQueue>,
) -> Automation {
    let not = |reason, message: &str| Automation {
        status: false,
        reason,
        message: message.to_owned(),
        resources: None,
    };
    let Some(config) = config else {
        return not("UnsupportedConfiguration", "The referenced MultiKueueConfig was not found.");
    };
    if !is_requested(config) {
        return not("NotRequested", "MultiKueue manager quota automation has not been requested.");
    }
    let [group] = queue.spec.resource_groups.as_slice() else {
        return not("UnsupportedConfiguration", ONE_FLAVOR);
    };
    if group.flavors.len() != 1 {
        return not("UnsupportedConfiguration", ONE_FLAVOR);
    }
    let sums = sums(related);
    let covered: BTreeSet<&str> = group.covered_resources.iter().map(String::as_str).collect();
    let missing: Vec<&str> = sums.keys().copied().filter(|name| !covered.contains(name)).collect();
    if !missing.is_empty() {
        let what = "manager-side coveredResources is missing resources configured on workers";
        return not("UnsupportedConfiguration", &format!("{what}: [{}]", missing.join(" ")));
    }
    let resources = group.covered_resources.iter().map(|name| ResourceQuota {
        name: name.clone(),
        nominal_quota: sums.get(name.as_str()).cloned().unwrap_or_default(),
        borrowing_limit: None,
        lending_limit: None,
    });
    Automation {
        status: true,
        reason: "QuotaAutomated",
        message: "ClusterQueue quota is automatically managed based on MultiKueue workers.".to_owned(),
        resources: Some(resources.collect()),
    }
}

const ONE_FLAVOR: &str =
    "Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor";

fn sums<'a>(queues: impl IntoIterator<Item = &'a ClusterQueue>) -> BTreeMap<&'a str, Quantity> {
    let mut sums: BTreeMap<&str, Quantity> = BTreeMap::new();
    let groups = queues.into_iter().flat_map(|queue| &queue.spec.resource_groups);
    for resource in groups.flat_map(|group| &group.flavors).flat_map(|flavor| &flavor.resources) {
        *sums.entry(&resource.name).or_default() += &resource.nominal_quota;
    }
    sums
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue(flavors: &[&[(&str, &str)]]) -> ClusterQueue {
        let covered: Vec<&str> =
            flavors.first().into_iter().flat_map(|one| one.iter().map(|(name, _)| *name)).collect();
        let flavors: Vec<_> = flavors
            .iter()
            .enumerate()
            .map(|(index, resources)| {
                let resources: Vec<_> = resources
                    .iter()
                    .map(|(name, quota)| json!({"name": name, "nominalQuota": quota}))
                    .collect();
                json!({"name": format!("f{index}"), "resources": resources})
            })
            .collect();
        let spec = json!({"resourceGroups": [{"coveredResources": covered, "flavors": flavors}]});
        serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).expect("a ClusterQueue")
    }

    fn config(management: &str) -> MultiKueueConfig {
        let spec = json!({"clusters": ["east"], "quotaManagement": management});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).expect("a MultiKueueConfig")
    }

    fn check(
        ours: &ClusterQueue,
        config: Option<&MultiKueueConfig>,
        theirs: &[ClusterQueue],
        expected: &str,
    ) {
        let said = automated(ours, config, theirs);
        let resources =
            said.resources.iter().flatten().map(|it| format!(" {}={}", it.name, it.nominal_quota));
        assert_eq!(format!("{} {}{}", said.status, said.message, resources.collect::<String>()), expected);
    }

    /// MK-QA-01, MK-QA-04.
    #[test]
    fn the_sum_of_what_workers_offer() {
        let (ours, on) = (queue(&[&[("cpu", "0"), ("memory", "0"), ("gpu", "7")]]), config("Automated"));
        let theirs = [
            queue(&[&[("cpu", "2"), ("memory", "1G")], &[("cpu", "1")]]),
            queue(&[&[("cpu", "1200m"), ("memory", "4G")]]),
        ];
        let managed = "true ClusterQueue quota is automatically managed based on MultiKueue workers.";
        check(&ours, Some(&on), &theirs, &format!("{managed} cpu=4200m memory=5G gpu=0"));
        check(&ours, Some(&on), &[], &format!("{managed} cpu=0 memory=0 gpu=0"));
        check(
            &ours,
            Some(&config("Manual")),
            &theirs,
            "false MultiKueue manager quota automation has not been requested.",
        );
        check(&ours, None, &theirs, "false The referenced MultiKueueConfig was not found.");
        let two = queue(&[&[("cpu", "1")], &[("cpu", "1")]]);
        check(&two, Some(&on), &theirs, &format!("false {ONE_FLAVOR}"));
        let missing =
            "false manager-side coveredResources is missing resources configured on workers: [memory]";
        check(&queue(&[&[("cpu", "1")]]), Some(&on), &theirs, missing);
    }
}
