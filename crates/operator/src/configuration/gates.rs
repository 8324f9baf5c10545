//! Feature gates: what Kueue does behind them is done here as by default, or not at all.
//!
//! A file may say what is so, and nothing else: whoever asks for what is not here is told. Only whether it is said who waits
//! where can be chosen.

use std::collections::BTreeMap;

use super::reader::{Problems, Section};

/// Gates that are on here: those that are by default, and the automation of quota, which a MultiKueueConfig asks for itself.
const ON: [&str; 49] = [
    "AdmissionFairSharing",
    "AdmissionGatedBy",
    "AssignQueueLabelsForPods",
    "CleanupProvisioningRequestsOnEviction",
    "DeferRayServiceFinalizationForRedisCleanup",
    "ElasticJobsViaWorkloadSlices",
    "FairSharingPreemptWithinNominal",
    "FairSharingPrioritizeNonBorrowing",
    "FinishOrphanedWorkloads",
    "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress",
    "HierarchicalCohorts",
    "KueueDRARejectWorkloadsWhenDRADisabled",
    "LocalQueueDefaulting",
    "LocalQueueMetrics",
    "ManagedJobsNamespaceSelector",
    "ManagedJobsNamespaceSelectorAlwaysRespected",
    "MetricForWorkloadCreationLatency",
    "MetricsForCohorts",
    "MultiKueue",
    "MultiKueueAdaptersForCustomJobs",
    "MultiKueueBatchJobWithManagedBy",
    "MultiKueueIncrementalDispatcherConfig",
    "MultiKueueIncrementalDispatcherRespectConfigOrder",
    "MultiKueueManagerQuotaAutomation",
    "MultiKueueRedoAdmissionOnEvictionInWorker",
    "MultiKueueRemoteSpecSync",
    "MultiKueueWaitForWorkloadAdmitted",
    "ObjectRetentionPolicies",
    "PartialAdmission",
    "PrioritySortingWithinCohort",
    "PropagateBatchJobLabelsToWorkload",
    "QuotaCheckStrategy",
    "ReclaimablePods",
    "SchedulingEquivalenceHashing",
    "SkipAncestorCheckForDeletedWorkloads",
    "SkipReassignmentForPodOwnedWorkloads",
    "TASAssignmentsEncodingByHostnamePrefix",
    "TASHandleOverlappingFlavors",
    "TASMultiLayerTopology",
    "TASProfileMixed",
    "TASRecomputeAssignmentWithinSchedulingCycle",
    "TASValidateWorkloadSliceSize",
    "TopologyAwareScheduling",
    "ValidateRayAndSparkJobUpdates",
    VISIBILITY,
    "WorkloadIdentifierAnnotations",
    "WorkloadValidateResourcesAreNonNegative",
    "WorkloadValidationForPodSetMetadata",
];

/// Gates that are on by default, behind which there is something that is not here yet.
const ABSENT: [&str; 5] = [
    "KueueDRAIntegration",
    "TASFailedNodeReplacement",
    "TASFailedNodeReplacementFailFast",
    "TASReplaceNodeOnNodeTaints",
    "TASReplaceNodeOnPodTermination",
];

/// Gates that are off by default.
const OFF: [&str; 22] = [
    "ConcurrentAdmission",
    "CustomMetricLabels",
    "DisableWaitForPodsReady",
    "ElasticJobsViaWorkloadSlicesWithTAS",
    "FailureRecoveryPolicy",
    "MultiKueueAllowInsecureKubeconfigs",
    "MultiKueueClusterProfile",
    "MultiKueueKubeConfigPathValidation",
    "MultiKueueOrchestratedPreemption",
    "PrioritizePreemptorWorkloads",
    "PriorityBoost",
    "RecomputeAssignmentUponPreemptionTargetsOverlap",
    "RejectUpdatesToCQWithInvalidOnFlavors",
    "SchedulerLongRequeueInterval",
    "SchedulerTimestampPreemptionBuffer",
    "ShortWorkloadNames",
    "TASBalancedPlacement",
    "TASReplaceNodeDueToNotReadyOverFixedTime",
    "TASRespectNodeAffinityPreferred",
    "UnadmittedWorkloadsExplicitStatus",
    "UnadmittedWorkloadsObservability",
    "WorkloadPriorityClassDefaulting",
];

/// Gates behind which Kueue does the same in another way, or something about objects that are not queued here.
const UNSEEN: [&str; 16] = [
    "FastQuotaReleaseInPodIntegration",
    "KueueDRAIntegrationConsumableCapacity",
    "KueueDRAIntegrationExtendedResource",
    "KueueDRAIntegrationPartitionableDevices",
    "LWSImmutableGroupSize",
    "PodIntegrationValidateGroupOwner",
    "RemoveFinalizersWithStrictPatch",
    "SchedulerLibraryIntegration",
    "SkipFinalizersForPodsSuspendedByParent",
    "SparkApplicationIntegration",
    "TASCacheNodeMatchResults",
    "TASCacheTopologyTree",
    "TASCachingRemainingResources",
    "TLSOptions",
    "VectorizedResourceRequests",
    "WorkloadRequestUseMergePatch",
];

/// The one gate that is as the file wants it.
const VISIBILITY: &str = "VisibilityOnDemand";

/// What the file says of gates that can be either.
pub(super) struct Gates {
    /// Whether it is said who waits where.
    pub(super) visibility: Option<bool>,
}

/// Says which gates cannot be as the file wants them.
pub(super) fn check(file: &mut Section, problems: &mut Problems) -> Gates {
    let path = file.path("featureGates");
    let mut gates: BTreeMap<String, bool> = file.value("featureGates", problems).unwrap_or_default();
    let visibility = gates.remove(VISIBILITY);
    for (gate, on) in gates {
        if UNSEEN.contains(&gate.as_str()) {
            problems
                .warnings
                .push(format!("{path}.{gate}: has no effect: nobody could tell the difference here"));
            continue;
        }
        let default = if ON.contains(&gate.as_str()) {
            true
        } else if OFF.contains(&gate.as_str()) || ABSENT.contains(&gate.as_str()) {
            false
        } else {
            problems.errors.push(format!("{path}.{gate}: is not known here; remove it"));
            continue;
        };
        if on != default {
            problems.errors.push(format!("{path}.{gate}: is not supported: it is always {default} here"));
        }
    }
    Gates { visibility }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every gate of Kueue's is known, by its default.
    #[test]
    fn gates_are_kueues() {
        let Some(tools) = testkit::go::Tools::for_test("crds") else { return };
        let path = tools.module("sigs.k8s.io/kueue").join("pkg/features/kube_features.go");
        let text = std::fs::read_to_string(path).expect("the module has gates");
        let gates = text.split("featuregate.Feature = \"").skip(1).filter_map(|rest| rest.split('"').next());
        let mut known = 0;
        for gate in gates {
            known += 1;
            if UNSEEN.contains(&gate) {
                continue;
            }
            // A gate has an entry for each release in which its default changed, the latest last.
            let (_, rest) = text.split_once(&format!("\n\t{gate}: {{")).expect("every gate has a default");
            let (entries, _) = rest.split_once("\n\t}").expect("entries end");
            let last = entries.rsplit(", Default:").next().unwrap_or_default().trim_start();
            // A MultiKueueConfig asks for this one itself.
            let is_on = last.starts_with("true") || gate == "MultiKueueManagerQuotaAutomation";
            let by_default = ON.contains(&gate) || ABSENT.contains(&gate);
            assert!(if is_on { by_default } else { OFF.contains(&gate) }, "{gate}: {is_on}");
        }
        assert!(known > 80, "only {known} gates were found");
    }
}
