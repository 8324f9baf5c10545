//! Objects as Kueue v0.19.2 writes them read and write back unchanged.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;

/// Reads an object and writes it back: nothing may be lost, added or changed.
#[track_caller]
fn check<T: DeserializeOwned + Serialize>(object: Value) -> T {
    let read: T = serde_json::from_value(object.clone()).expect("the object is valid");
    assert_eq!(serde_json::to_value(&read).expect("objects are JSON"), object);
    read
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "Because", "message": "so it is",
        "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
    })
}

#[test]
fn resource_flavor() {
    check::<ResourceFlavor>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "spot"},
        "spec": {
            "nodeLabels": {"instance-type": "spot"},
            "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
            "topologyName": "racks",
        },
    }));
    check::<ResourceFlavor>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {},
    }));
}

#[test]
fn cluster_queue() {
    let queue = check::<ClusterQueue>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"},
        "spec": {
            "resourceGroups": [{
                "coveredResources": ["cpu", "memory"],
                "flavors": [{"name": "spot", "resources": [
                    {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "500m", "lendingLimit": "0"},
                    {"name": "memory", "nominalQuota": "36Gi"},
                ]}],
            }],
            "cohortName": "company",
            "queueingStrategy": "StrictFIFO",
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "flavorFungibility": {
                "whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor", "preference": "PreemptionOverBorrowing",
            },
            "preemption": {
                "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerOrNewerEqualPriority",
                "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
            },
            "admissionChecksStrategy": {"admissionChecks": [{"name": "multikueue"}, {"name": "budget", "onFlavors": ["spot"]}]},
            "stopPolicy": "HoldAndDrain",
            "fairSharing": {"weight": "500m"},
            "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            "concurrentAdmissionPolicy": {"migration": {
                "mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "spot"},
            }},
        },
        "status": {
            "conditions": [condition("Active")],
            "flavorsReservation": [{"name": "spot", "resources": [{"name": "cpu", "total": "12", "borrowed": "3"}]}],
            "flavorsUsage": [{"name": "spot", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]}],
            "pendingWorkloads": 7, "reservingWorkloads": 2, "admittedWorkloads": 0,
            "fairSharing": {"weightedShare": 250},
        },
    }));
    assert_eq!(queue.spec.stop_policy, Some(StopPolicy::HoldAndDrain));
}

#[test]
fn cohort_and_local_queue() {
    check::<Cohort>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "company"},
        "spec": {
            "parentName": "world",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "4"}]},
            ]}],
            "fairSharing": {"weight": "2"},
        },
        "status": {"fairSharing": {"weightedShare": 0}},
    }));
    check::<LocalQueue>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "main", "namespace": "ns"},
        "spec": {"clusterQueue": "team", "stopPolicy": "None", "fairSharing": {"weight": "1"}},
        "status": {
            "conditions": [condition("Active")],
            "pendingWorkloads": 0, "reservingWorkloads": 1, "admittedWorkloads": 1,
            "flavorsReservation": [{"name": "spot", "resources": [{"name": "cpu", "total": "1"}]}],
            "flavorsUsage": [{"name": "spot", "resources": [{"name": "cpu", "total": "1"}]}],
            "fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
                "consumedResources": {"cpu": "1500m"}, "lastUpdate": "2026-01-02T03:04:05Z",
            }},
        },
    }));
}

#[test]
fn workload_with_everything() {
    let workload = check::<Workload>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "job-name-ef3a1", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": {
            "podSets": [{
                "name": "main", "count": 3, "minCount": 1,
                "template": {"metadata": {}, "spec": {"containers": [
                    {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}},
                ]}},
                "topologyRequest": {
                    "required": "rack", "podIndexLabel": "batch.kubernetes.io/job-completion-index",
                    "podSetSliceRequiredTopology": "host", "podSetSliceSize": 2,
                    "podsetSliceRequiredTopologyConstraints": [{"topology": "host", "size": 2}],
                },
            }],
            "queueName": "main",
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            "priority": 100, "active": true, "maximumExecutionTimeSeconds": 60,
            "preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}],
        },
        "status": {
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": "team", "podSetAssignments": [{
                "name": "main", "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "3"}, "count": 3,
                "topologyAssignment": {"levels": ["rack", "host"], "slices": [{
                    "domainCount": 2,
                    "valuesPerLevel": [
                        {"universal": "r1"},
                        {"individual": {"prefix": "h", "suffix": "x", "roots": ["1", "2"]}},
                    ],
                    "podCounts": {"individual": [1, 2]},
                }]},
                "delayedTopologyRequest": "Ready",
            }]},
            "requeueState": {"count": 1, "requeueAt": "2026-01-02T03:04:05Z"},
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [{
                "name": "multikueue", "state": "Ready", "lastTransitionTime": "2026-01-02T03:04:05Z", "message": "",
                "requeueAfterSeconds": 10, "retryCount": 2,
                "podSetUpdates": [{"name": "main", "labels": {"a": "b"}, "annotations": {"c": "d"},
                    "nodeSelector": {"e": "f"}, "tolerations": [{"operator": "Exists"}]}],
            }],
            "resourceRequests": [{"name": "main", "resources": {"cpu": "3", "memory": "1Gi"}}],
            "accumulatedPastExecutionTimeSeconds": 5,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]},
            "nominatedClusterNames": ["east"], "clusterName": "east",
            "unhealthyNodes": [{"name": "n1"}],
            "preemptionGates": [{"name": "kueue.x-k8s.io/multikueue", "position": "Closed",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}],
        },
    }));
    let request = workload.spec.pod_sets[0].topology_request.as_ref().expect("given above");
    assert!(request.asks_for_placement());
}

#[test]
fn jf_15_numbering_pods_asks_for_no_placement() {
    let request = PodSetTopologyRequest { pod_index_label: Some("index".into()), ..Default::default() };
    assert!(!request.asks_for_placement());
}

#[test]
fn priority_class_and_admission_check() {
    check::<WorkloadPriorityClass>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"},
        "value": 1000, "description": "for the impatient",
    }));
    check::<AdmissionCheck>(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "multikueue"},
        "spec": {
            "controllerName": "kueue.x-k8s.io/multikueue",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config"},
        },
        "status": {"conditions": [condition("Active")]},
    }));
}

#[test]
fn items_of_a_list_need_not_say_what_they_are() {
    let queue: ClusterQueue =
        serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": {}})).expect("valid");
    let written = serde_json::to_value(&queue).expect("objects are JSON");
    assert_eq!(written["kind"], "ClusterQueue");
    assert_eq!(written["apiVersion"], API_VERSION);
}

#[test]
fn another_kind_or_version_is_refused() {
    let read = |version: &str, kind: &str| {
        serde_json::from_value::<Cohort>(
            json!({"apiVersion": version, "kind": kind, "metadata": {}, "spec": {}}),
        )
    };
    assert!(read(API_VERSION, "Cohort").is_ok());
    assert!(read("kueue.x-k8s.io/v1beta1", "Cohort").is_err());
    assert!(read(API_VERSION, "ClusterQueue").is_err());
}
