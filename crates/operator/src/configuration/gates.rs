//! Feature gates: what Kueue does behind them is done here as by default, or not at all.

use std::collections::BTreeMap;

use super::reader::{Problems, Section};

/// Gates that are on here: those that are by default, and the automation of quota, which a MultiKueueConfig asks for itself.
const ON: [&str; 39] = [
    "AdmissionFairSharing",
    "AdmissionGatedBy",
    "AssignQueueLabelsForPods",
    "CleanupProvisioningRequestsOnEviction",
    "ElasticJobsViaWorkloadSlices",
    "FairSharingPreemptWithinNominal",
    "FairSharingPrioritizeNonBorrowing",
    "FinishOrphanedWorkloads",
    "FlavorFungibility",
    "FlavorFungibilityPreserveScanProgress",
    "HierarchicalCohorts",
    "KueueDRAIntegration",
    "LocalQueueDefaulting",
    "LocalQueueMetrics",
    "ManagedJobsNamespaceSelector",
    "ManagedJobsNamespaceSelectorAlwaysRespected",
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
    "QuotaCheckStrategy",
    "ReclaimablePods",
    "SchedulingEquivalenceHashing",
    "SkipReassignmentForPodOwnedWorkloads",
    "TASFailedNodeReplacement",
    "TASFailedNodeReplacementFailFast",
    "TopologyAwareScheduling",
    "VisibilityOnDemand",
    "WorkloadIdentifierAnnotations",
    "WorkloadValidateResourcesAreNonNegative",
    "WorkloadValidationForPodSetMetadata",
];

/// Gates that are off by default.
const OFF: [&str; 18] = [
    "ConcurrentAdmission",
    "CustomMetricLabels",
    "DisableWaitForPodsReady",
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
    "UnadmittedWorkloadsExplicitStatus",
    "UnadmittedWorkloadsObservability",
    "WorkloadPriorityClassDefaulting",
];

/// Says which gates cannot be as the file wants them.
pub(super) fn check(file: &mut Section, problems: &mut Problems) {
    let path = file.path("featureGates");
    let gates: BTreeMap<String, bool> = file.value("featureGates", problems).unwrap_or_default();
    for (gate, on) in gates {
        let default = if ON.contains(&gate.as_str()) {
            true
        } else if OFF.contains(&gate.as_str()) {
            false
        } else {
            problems.errors.push(format!("{path}.{gate}: is not known here; remove it"));
            continue;
        };
        if on != default {
            problems.errors.push(format!("{path}.{gate}: is not supported: it is always {default} here"));
        }
    }
}
