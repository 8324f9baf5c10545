//! What kinds and fields mean, as `kubectl explain` shows it.

use serde_json::{Value, json};

/// Kind or field of a kind, and what it means. A field is said once for both versions.
const WORDS: &[(&str, &str)] = &[
    (
        "AdmissionCheck",
        "A condition that something outside of the quota must meet before a Workload may start.",
    ),
    ("AdmissionCheck.spec.controllerName", "Who answers this check, for example kueue.x-k8s.io/multikueue."),
    ("AdmissionCheck.spec.parameters", "An object with settings for whoever answers this check."),
    ("ClusterQueue", "Quota that Workloads of several namespaces share, and the rules by which they get it."),
    (
        "ClusterQueue.spec.admissionChecksStrategy",
        "The checks that a Workload has to pass after it got quota.",
    ),
    ("ClusterQueue.spec.cohort", "The cohort with which unused quota is shared."),
    ("ClusterQueue.spec.cohortName", "The cohort with which unused quota is shared."),
    (
        "ClusterQueue.spec.fairSharing",
        "How much of what is shared this queue may count on when others want it too.",
    ),
    (
        "ClusterQueue.spec.flavorFungibility",
        "When to try the next flavor instead of borrowing or preempting in this one.",
    ),
    (
        "ClusterQueue.spec.namespaceSelector",
        "Which namespaces may use this queue: none if absent, all if empty.",
    ),
    ("ClusterQueue.spec.preemption", "Which Workloads may be evicted so that one of this queue gets in."),
    (
        "ClusterQueue.spec.queueingStrategy",
        "Whether a Workload that does not fit blocks those behind it (StrictFIFO) or not (BestEffortFIFO).",
    ),
    (
        "ClusterQueue.spec.resourceGroups",
        "Resources that are assigned together, and the flavors in which there is quota for them, in the order in which they are tried.",
    ),
    (
        "ClusterQueue.spec.stopPolicy",
        "Hold stops new admissions; HoldAndDrain also evicts what was admitted.",
    ),
    ("ClusterQueue.status.admittedWorkloads", "How many Workloads are admitted and not finished."),
    ("ClusterQueue.status.flavorsReservation", "Quota that is reserved, by flavor and resource."),
    ("ClusterQueue.status.flavorsUsage", "Quota that admitted Workloads use, by flavor and resource."),
    ("ClusterQueue.status.pendingWorkloads", "How many Workloads wait."),
    ("ClusterQueue.status.reservingWorkloads", "How many Workloads hold a reservation."),
    ("Cohort", "A node in the tree along which ClusterQueues share quota."),
    ("Cohort.spec.parentName", "The cohort above this one; without it this is the root of a tree."),
    ("Cohort.spec.resourceGroups", "Quota of the cohort itself, for everything below it."),
    (
        "LocalQueue",
        "The door of a namespace to a ClusterQueue: Jobs name it in the label kueue.x-k8s.io/queue-name.",
    ),
    ("LocalQueue.spec.clusterQueue", "The ClusterQueue whose quota is used."),
    (
        "LocalQueue.spec.stopPolicy",
        "Hold stops new admissions through this queue; HoldAndDrain also evicts what was admitted.",
    ),
    ("MultiKueueCluster", "A worker cluster and how to reach it."),
    (
        "MultiKueueCluster.spec.clusterSource",
        "Where the way to the cluster is found: a kubeconfig, or a ClusterProfile.",
    ),
    (
        "MultiKueueCluster.spec.clusterSource.kubeConfig.location",
        "The name of a Secret with a key kubeconfig, in the namespace of the operator, or the path of a file.",
    ),
    ("MultiKueueCluster.spec.kubeConfig", "Where the kubeconfig of the cluster is found."),
    ("MultiKueueCluster.status.conditions", "Active says whether the cluster is connected, and if not, why."),
    (
        "MultiKueueConfig",
        "A set of worker clusters to which Workloads can be dispatched; an AdmissionCheck refers to it.",
    ),
    (
        "MultiKueueConfig.spec.clusters",
        "Names of MultiKueueClusters. The incremental dispatcher tries them in this order.",
    ),
    ("ProvisioningRequestConfig", "How capacity is asked of a cluster autoscaler before a Workload starts."),
    ("ResourceFlavor", "A kind of node that quota can be given for."),
    (
        "ResourceFlavor.spec.nodeLabels",
        "The labels of these nodes; pods of a Workload that got this flavor select them.",
    ),
    (
        "ResourceFlavor.spec.nodeTaints",
        "Taints of these nodes, which a Workload must tolerate to get this flavor.",
    ),
    ("ResourceFlavor.spec.tolerations", "Tolerations that pods get along with this flavor."),
    ("ResourceFlavor.spec.topologyName", "The Topology that says how these nodes are arranged."),
    ("Topology", "How nodes are arranged, from the widest domain to the narrowest."),
    ("Topology.spec.levels", "The node labels that name the domains, widest first."),
    ("Workload", "A unit of work that gets quota as a whole: what a Job needs, and how far it has come."),
    ("Workload.spec.active", "A Workload that is not active is neither queued nor running."),
    (
        "Workload.spec.maximumExecutionTimeSeconds",
        "How long the Workload may be admitted before it is deactivated.",
    ),
    ("Workload.spec.podSets", "Groups of equal pods."),
    ("Workload.spec.priority", "Who goes first, and who may evict whom: higher before lower."),
    ("Workload.spec.queueName", "The LocalQueue in which the Workload waits."),
    ("Workload.status.admission", "The ClusterQueue and the flavors whose quota is reserved."),
    ("Workload.status.admissionChecks", "Where each check of the ClusterQueue stands."),
    ("Workload.status.clusterName", "The worker cluster on which the Workload runs."),
    ("Workload.status.nominatedClusterNames", "The worker clusters on which the Workload may try to get in."),
    (
        "Workload.status.conditions",
        "QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued and Finished, each with its reason.",
    ),
    ("Workload.status.reclaimablePods", "Pods that are done and need their quota no longer."),
    (
        "Workload.status.requeueState",
        "How often the Workload was evicted for not being ready, and when it may try again.",
    ),
    ("WorkloadPriorityClass", "A priority for Workloads, apart from the priority of their pods."),
    ("WorkloadPriorityClass.description", "What the class is for."),
    ("WorkloadPriorityClass.value", "The priority; higher goes first."),
];

/// Says in a definition what its kind and fields mean.
pub(super) fn describe(definition: &mut Value) {
    let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let Some(Value::Array(versions)) = definition["spec"].get_mut("versions") else { return };
    for version in versions {
        for (place, words) in WORDS {
            let mut parts = place.split('.');
            if parts.next() != Some(kind.as_str()) {
                continue;
            }
            let pointer =
                parts.fold("/schema/openAPIV3Schema".to_owned(), |path, field| path + "/properties/" + field);
            if let Some(schema) = version.pointer_mut(&pointer) {
                schema["description"] = json!(words);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Conversion, all};
    use super::*;

    #[test]
    fn every_word_is_about_something_that_exists() {
        let definitions = all(&Conversion::Embedded);
        let text = serde_json::to_string(&definitions).expect("JSON");
        for (place, words) in WORDS {
            assert!(text.contains(&json!(words).to_string()), "{place} is not there");
        }
        for definition in &definitions {
            let versions = definition["spec"]["versions"].as_array().expect("versions");
            let said = versions
                .iter()
                .all(|version| version["schema"]["openAPIV3Schema"]["description"].is_string());
            assert!(said, "{}", definition["metadata"]["name"]);
        }
    }
}
