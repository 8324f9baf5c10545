//! What is there when a run begins.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    NAMESPACE, WORKERS,
    memory::{JOBS, WORKLOADS},
    network::Way,
    place_of,
};

/// Queues, a check and its clusters; and on every worker something that is somebody else's.
pub(super) fn set_up(manager: &Way, workers: &BTreeMap<&'static str, Way>) {
    let kueue = "kueue.x-k8s.io/v1beta2";
    let mut memory = manager.memory();
    let mut create = |resource: &str, kind: &str, version: &str, namespace: &str, name: &str, rest: Value| {
        let mut object = rest;
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        memory.create(place_of(resource, namespace, name), object).expect("nothing is there yet");
    };
    for name in [NAMESPACE, "kueue-system"] {
        create("/namespaces", "Namespace", "v1", "", name, json!({}));
    }
    create("kueue.x-k8s.io/resourceflavors", "ResourceFlavor", kueue, "", "default", json!({"spec": {}}));
    let flavors = json!([{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "3"}]}]);
    let spec = json!({
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": "mk"}]},
    });
    create("kueue.x-k8s.io/clusterqueues", "ClusterQueue", kueue, "", "team", json!({"spec": spec}));
    let spec = json!({"clusterQueue": "team"});
    create("kueue.x-k8s.io/localqueues", "LocalQueue", kueue, NAMESPACE, "team", json!({"spec": spec}));
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
    let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
    create("kueue.x-k8s.io/admissionchecks", "AdmissionCheck", kueue, "", "mk", json!({"spec": spec}));
    let spec = json!({"clusters": WORKERS});
    create("kueue.x-k8s.io/multikueueconfigs", "MultiKueueConfig", kueue, "", "all", json!({"spec": spec}));
    for name in WORKERS {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("https://{name}")}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        let data = k8s_openapi::ByteString(config.to_string().into_bytes());
        create("/secrets", "Secret", "v1", "kueue-system", name, json!({"data": {"kubeconfig": data}}));
        let spec = json!({"clusterSource": {"kubeConfig": {"location": name, "locationType": "Secret"}}});
        create(
            "kueue.x-k8s.io/multikueueclusters",
            "MultiKueueCluster",
            kueue,
            "",
            name,
            json!({"spec": spec}),
        );
    }
    drop(memory);
    for way in workers.values() {
        for (resource, kind, version) in [(JOBS, "Job", "batch/v1"), (WORKLOADS, "Workload", kueue)] {
            let place = place_of(resource, NAMESPACE, "theirs");
            let mut memory = way.memory();
            let metadata = json!({"name": "theirs", "namespace": NAMESPACE, "labels": {}});
            let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}});
            let there = memory.create(place.clone(), object).expect("nothing is there yet");
            let next = there["metadata"]["resourceVersion"]
                .as_str()
                .and_then(|it| it.parse::<u64>().ok())
                .unwrap_or(0)
                + 1;
            memory.change(&place, |object| {
                object["metadata"]["labels"]["version"] = json!(next.to_string());
            });
        }
    }
}
