use serde_json::{Value, json};

use super::*;

/// An object of a kind with a spec and a status, in a version.
fn object(version: &str, kind: &str, spec: &Value, status: &Value) -> Value {
    let api_version = format!("{GROUP}/{version}");
    let mut object =
        json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "x" }, "spec": spec });
    if !status.is_null() {
        object["status"] = status.clone();
    }
    object
}

/// Up and down give each other.
#[track_caller]
fn both(kind: &str, old: (Value, Value), new: (Value, Value)) {
    up_only(kind, old.clone(), new.clone());
    down_only(kind, new, old);
}

#[track_caller]
fn up_only(kind: &str, old: (Value, Value), new: (Value, Value)) {
    let (old, new) = (object("v1beta1", kind, &old.0, &old.1), object("v1beta2", kind, &new.0, &new.1));
    assert_eq!(convert(&old, Version::V1beta2), Ok(new), "up");
}

#[track_caller]
fn down_only(kind: &str, new: (Value, Value), old: (Value, Value)) {
    let (old, new) = (object("v1beta1", kind, &old.0, &old.1), object("v1beta2", kind, &new.0, &new.1));
    assert_eq!(convert(&new, Version::V1beta1), Ok(old), "down");
}

#[test]
fn api_2_cluster_queues() {
    both(
        "ClusterQueue",
        (json!({ "cohort": "all", "stopPolicy": "None" }), Value::Null),
        (json!({ "cohortName": "all", "stopPolicy": "None" }), Value::Null),
    );
    up_only(
        "ClusterQueue",
        (
            json!({ "admissionChecks": ["a", "b"], "admissionChecksStrategy": { "admissionChecks": [{ "name": "c" }] },
                "flavorFungibility": { "whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt" } }),
            json!({ "pendingWorkloads": 3, "pendingWorkloadsStatus": {}, "fairSharing": { "weightedShare": 1, "admissionFairSharingStatus": {} } }),
        ),
        (
            json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "a" }, { "name": "b" }] },
                "flavorFungibility": { "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch" } }),
            json!({ "pendingWorkloads": 3, "fairSharing": { "weightedShare": 1 } }),
        ),
    );
    up_only("ClusterQueue", (json!({ "admissionChecks": [] }), Value::Null), (json!({}), Value::Null));
    down_only(
        "ClusterQueue",
        (
            json!({ "concurrentAdmissionPolicy": {}, "admissionChecksStrategy": { "admissionChecks": [{ "name": "c" }] } }),
            Value::Null,
        ),
        (json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "c" }] } }), Value::Null),
    );
}

#[test]
fn api_2_local_queues() {
    both(
        "LocalQueue",
        (json!({ "clusterQueue": "q" }), json!({ "flavorUsage": [{ "name": "f" }] })),
        (json!({ "clusterQueue": "q" }), json!({ "flavorsUsage": [{ "name": "f" }] })),
    );
    up_only("LocalQueue", (json!({}), json!({ "flavors": [] })), (json!({}), json!({})));
}

#[test]
fn api_2_cohorts() {
    let old =
        json!({ "fairSharing": { "weightedShare": 4, "admissionFairSharingStatus": { "lastUpdate": "x" } } });
    up_only("Cohort", (json!({}), old), (json!({}), json!({ "fairSharing": { "weightedShare": 4 } })));
}

/// MK-API-03, MK-API-06, MK-API-07.
#[test]
fn mkc_1_workers() {
    let config = json!({ "location": "east", "locationType": "Secret" });
    both(
        "MultiKueueCluster",
        (json!({ "kubeConfig": config }), Value::Null),
        (json!({ "clusterSource": { "kubeConfig": config } }), Value::Null),
    );
    both(
        "MultiKueueCluster",
        (
            json!({ "kubeConfig": { "location": "", "locationType": "" }, "clusterProfileRef": { "name": "p" } }),
            Value::Null,
        ),
        (json!({ "clusterSource": { "clusterProfileRef": { "name": "p" } } }), Value::Null),
    );
    down_only(
        "MultiKueueConfig",
        (json!({ "clusters": ["a"], "quotaManagement": "Manual" }), Value::Null),
        (json!({ "clusters": ["a"] }), Value::Null),
    );
}

#[test]
fn api_2_workloads() {
    for (source, group, kind) in PRIORITY_SOURCES {
        both(
            "Workload",
            (json!({ "priorityClassName": "high", "priorityClassSource": source }), Value::Null),
            (json!({ "priorityClassRef": { "group": group, "kind": kind, "name": "high" } }), Value::Null),
        );
    }
    up_only(
        "Workload",
        (json!({ "priorityClassName": "high", "priorityClassSource": "" }), Value::Null),
        (json!({}), Value::Null),
    );
    down_only(
        "Workload",
        (
            json!({ "preemptionGates": [{ "name": "g" }],
                "podSets": [{ "name": "main", "topologyRequest": { "required": "rack", "podsetSliceRequiredTopologyConstraints": [] } }] }),
            Value::Null,
        ),
        (json!({ "podSets": [{ "name": "main", "topologyRequest": { "required": "rack" } }] }), Value::Null),
    );
    both(
        "Workload",
        (json!({}), json!({ "accumulatedPastExexcutionTimeSeconds": 7 })),
        (json!({}), json!({ "accumulatedPastExecutionTimeSeconds": 7 })),
    );
}

fn placed(topology: &Value) -> (Value, Value) {
    (
        json!({}),
        json!({ "admission": { "podSetAssignments": [{ "name": "main", "topologyAssignment": topology }] } }),
    )
}

#[test]
fn ta_5_placement() {
    let levels = json!(["block", "host"]);
    let old = json!({ "levels": levels, "domains": [
        { "values": ["b1", "pool-a-1.local"], "count": 2 }, { "values": ["b1", "pool-b-1.local"], "count": 3 } ] });
    let new = json!({ "levels": levels, "slices": [{ "domainCount": 2, "podCounts": { "individual": [2, 3] }, "valuesPerLevel": [
        { "universal": "b1" }, { "individual": { "prefix": "pool-", "suffix": "-1.local", "roots": ["a", "b"] } } ] }] });
    both("Workload", placed(&old), placed(&new));
    let one = json!({ "levels": ["host"], "domains": [{ "values": ["ä"], "count": 2 }] });
    let folded = json!({ "levels": ["host"], "slices": [{ "domainCount": 1, "podCounts": { "universal": 2 }, "valuesPerLevel": [{ "universal": "ä" }] }] });
    both("Workload", placed(&one), placed(&folded));
    let none = json!({ "levels": ["host"], "domains": [] });
    both("Workload", placed(&none), placed(&json!({ "levels": ["host"], "slices": [] })));
    // A value that is another's beginning and end shares no byte twice.
    let overlap = json!({ "levels": ["host"], "domains": [{ "values": ["aa"], "count": 1 }, { "values": ["aaa"], "count": 1 }] });
    let there = convert(&object("v1beta1", "Workload", &json!({}), &placed(&overlap).1), Version::V1beta2)
        .expect("a version");
    let back = convert(&there, Version::V1beta1).expect("a version");
    assert_eq!(back["status"], placed(&overlap).1);
}

#[test]
fn ta_5_a_slice_cannot_claim_more_domains_than_it_spells_out() {
    let new = json!({ "levels": ["host"], "slices": [{ "domainCount": 4_000_000_000_u32, "podCounts": { "universal": 1 }, "valuesPerLevel": [{ "universal": "a" }] }] });
    let old = json!({ "levels": ["host"], "domains": [{ "values": ["a"], "count": 1 }] });
    down_only("Workload", placed(&new), placed(&old));
}

#[test]
fn ac_retry_delay_is_gone_and_other_kinds_change_in_name_only() {
    up_only(
        "AdmissionCheck",
        (json!({ "retryDelayMinutes": 15, "controllerName": "c" }), Value::Null),
        (json!({ "controllerName": "c" }), Value::Null),
    );
    both(
        "ResourceFlavor",
        (json!({ "nodeLabels": { "a": "b" } }), Value::Null),
        (json!({ "nodeLabels": { "a": "b" } }), Value::Null),
    );
}

#[test]
fn another_group_is_refused() {
    let error =
        convert(&json!({ "apiVersion": "batch/v1", "kind": "Job" }), Version::V1beta2).expect_err("not ours");
    assert_eq!(
        error.to_string(),
        "\"batch/v1\" is not a version that can be converted: want kueue.x-k8s.io/v1beta1 or kueue.x-k8s.io/v1beta2"
    );
}

#[test]
fn what_is_no_object_stays_as_it_is() {
    for kind in [
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "MultiKueueCluster",
        "MultiKueueConfig",
        "Workload",
        "AdmissionCheck",
    ] {
        for odd in [json!("text"), json!([1]), json!(7)] {
            both(kind, (odd.clone(), odd.clone()), (odd.clone(), odd.clone()));
        }
    }
}
