//! Queues and what they lead to.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use types::kueue::ClusterQueue;

use super::Findings;
use crate::clusters::layout::{Layout, config_of};
use crate::{join, quota};

/// The checks, configurations and queues of the management cluster.
pub(super) fn of_manager(layout: &Layout, found: &mut Findings) {
    let names: BTreeSet<&str> = layout.clusters.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
    for config in &layout.configs {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        for missing in config.spec.clusters.iter().filter(|cluster| !names.contains(cluster.as_str())) {
            found.wrong(
                format!("MultiKueueConfig {name} names cluster {missing}, which is not there"),
                format!("ferry join CONTEXT --name {missing} --config {name}"),
            );
        }
    }
    for cluster in &layout.clusters {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        if !layout.configs.iter().any(|config| config.spec.clusters.iter().any(|it| it == name)) {
            found.odd(
                format!("worker {name} is in no MultiKueueConfig, so nothing is sent there"),
                join::again(cluster),
            );
        }
    }
    for check in &layout.checks {
        let (name, config) = (check.metadata.name.as_deref().unwrap_or_default(), config_of(check));
        if config.is_some_and(|config| {
            !layout.configs.iter().any(|it| it.metadata.name.as_deref() == Some(config))
        }) {
            let config = config.unwrap_or_default();
            found.wrong(
                format!("check {name} leads to MultiKueueConfig {config}, which is not there"),
                format!("ferry join CONTEXT --config {config}"),
            );
        }
    }
    for queue in &layout.cluster_queues {
        of_cluster_queue("", queue, found);
    }
    for queue in &layout.local_queues {
        if layout.cluster_queue(&queue.spec.cluster_queue).is_none() {
            let namespace = queue.metadata.namespace.as_deref().unwrap_or_default();
            let name = queue.metadata.name.as_deref().unwrap_or_default();
            found.wrong(
                format!(
                    "queue {namespace}/{name} leads to ClusterQueue {}, which is not there",
                    queue.spec.cluster_queue
                ),
                "create it, or let the LocalQueue lead to another one",
            );
        }
    }
}

/// A queue that admits nothing, here or on a worker.
pub(super) fn of_cluster_queue(place: &str, queue: &ClusterQueue, found: &mut Findings) {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let conditions = queue.status.iter().flat_map(|status| &status.conditions);
    let is_inactive = |condition: &&Condition| condition.type_ == "Active" && condition.status != "True";
    if let Some(inactive) = conditions.into_iter().find(is_inactive) {
        let remedy = match inactive.reason.as_str() {
            "Stopped" => format!("if that is not meant: set spec.stopPolicy of ClusterQueue {name} to None"),
            "Terminating" => "it goes when nothing in it has quota any more".to_owned(),
            _ => "create what it names and is not there, or take it out of its spec".to_owned(),
        };
        found.wrong(format!("ClusterQueue {name}{place} admits nothing: {}", inactive.message), remedy);
        return;
    }
    let shares = quota::shares(queue);
    let empty: Vec<&str> = shares
        .iter()
        .filter(|(_, share)| share.total == types::Amount::default())
        .map(|(name, _)| name.as_str())
        .collect();
    if shares.is_empty() {
        found.wrong(
            format!("ClusterQueue {name}{place} has no quota at all"),
            "give it resourceGroups with a nominalQuota",
        );
    } else if !empty.is_empty() && queue.spec.cohort_name.is_none() {
        found.wrong(
            format!(
                "ClusterQueue {name}{place} has a quota of zero of {} and no cohort to borrow from",
                empty.join(", ")
            ),
            "raise its nominalQuota",
        );
    } else {
        found.fine(format!("ClusterQueue {name}{place} has quota"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn judged(spec: Value) -> String {
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "q" }, "spec": spec,
        });
        let mut found = Findings::default();
        of_cluster_queue("", &serde_json::from_value(queue).expect("a ClusterQueue"), &mut found);
        found.0.first().map(|finding| finding.what.clone()).unwrap_or_default()
    }

    #[test]
    fn quota_of_zero_is_found() {
        let groups = |cpu: &str| {
            let resources = json!([{ "name": "cpu", "nominalQuota": cpu }]);
            json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": resources }] }])
        };
        assert_eq!(judged(json!({})), "ClusterQueue q has no quota at all");
        assert_eq!(
            judged(json!({ "resourceGroups": groups("0") })),
            "ClusterQueue q has a quota of zero of cpu and no cohort to borrow from"
        );
        assert_eq!(judged(json!({ "resourceGroups": groups("1") })), "ClusterQueue q has quota");
        assert_eq!(
            judged(json!({ "cohortName": "c", "resourceGroups": groups("0") })),
            "ClusterQueue q has quota"
        );
    }
}
