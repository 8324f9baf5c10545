use serde_json::{Value, json};

use crate::quota::topology::read;

fn node(unschedulable: bool, conditions: Value) -> k8s_openapi::api::core::v1::Node {
    let node = json!({
        "metadata": { "name": "x1", "labels": { "rack": "r1" } },
        "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }], "unschedulable": unschedulable },
        "status": {
            "allocatable": { "cpu": "1500m", "memory": "1Gi", "pods": "110" }, "conditions": conditions,
        },
    });
    serde_json::from_value(node).expect("a node")
}

/// TA-3: nodes count that are ready and take pods.
#[test]
fn ta_3_which_nodes_count() {
    let ready = |status: &str| json!([{ "type": "Ready", "status": status }]);
    let read_in = read::node(&node(false, ready("True"))).expect("a node that takes pods");
    assert_eq!((read_in.name.as_str(), read_in.labels["rack"].as_str()), ("x1", "r1"));
    let amounts: Vec<(String, i64)> =
        read_in.capacity.iter().map(|(name, amount)| (name.to_string(), amount.units())).collect();
    assert_eq!(amounts, [("cpu".to_owned(), 1500), ("memory".to_owned(), 1 << 30), ("pods".to_owned(), 110)]);
    assert_eq!(read::node(&node(true, ready("True"))), None);
    for status in ["False", "Unknown"] {
        assert_eq!(read::node(&node(false, ready(status))), None, "{status}");
    }
    assert_eq!(read::node(&node(false, json!([]))), None);
}

/// TA-3: pods take what they ask for and a place, and those that were placed are counted by their Workloads.
#[test]
fn ta_3_which_pods_count() {
    let pod = |annotation: Option<&str>, phase: &str| -> k8s_openapi::api::core::v1::Pod {
        let container = json!({ "name": "c", "resources": { "requests": { "cpu": "250m" } } });
        let mut pod = json!({
            "metadata": { "name": "p" }, "spec": { "containers": [container.clone(), container] },
            "status": { "phase": phase },
        });
        if let Some(key) = annotation {
            pod["metadata"]["annotations"] = json!({ format!("kueue.x-k8s.io/{key}"): "rack" });
        }
        serde_json::from_value(pod).expect("a pod")
    };
    let running = pod(None, "Running");
    let usage = read::usage(running.spec.as_ref().expect("a spec"));
    assert_eq!((usage["cpu"].units(), usage["pods"].units()), (500, 1));
    assert!(!read::is_placed(&running) && !read::has_ended(&running));
    for key in ["podset-required-topology", "podset-preferred-topology", "podset-unconstrained-topology"] {
        assert!(read::is_placed(&pod(Some(key), "Running")), "{key}");
    }
    assert!(!read::is_placed(&pod(Some("podset-group-name"), "Running")));
    assert!(read::has_ended(&pod(None, "Failed")) && read::has_ended(&pod(None, "Succeeded")));
}
