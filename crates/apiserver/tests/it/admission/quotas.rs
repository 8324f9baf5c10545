//! What quotas allow and refuse, and that a real server says the same.

use http::Method;
use serde_json::{Value, json};

use crate::both::Both;

const BASE: &str = "/api/v1/namespaces/n";

/// A quota that somebody has counted, though no controller runs on either server.
async fn quota(both: &Both, name: &str, spec: Value, used: Value) {
    let quotas = format!("{BASE}/resourcequotas");
    let mut quota =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec});
    both.make(&quotas, &quota).await;
    quota["status"] = json!({"hard": quota["spec"]["hard"], "used": used});
    let path = format!("{quotas}/{name}/status");
    let (code, answer) = both.ask(&[], &Method::PUT, &path, Some(&quota)).await;
    assert_eq!(code, 200, "{answer}");
}

fn pod(name: &str, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        match key.as_str() {
            "resources" => pod["spec"]["containers"][0]["resources"] = value.clone(),
            key => pod["spec"][key] = value.clone(),
        }
    }
    pod
}

async fn used(both: &Both, name: &str) -> Value {
    let path = format!("{BASE}/resourcequotas/{name}");
    let (code, quota) = both.ask(&[], &Method::GET, &path, None).await;
    assert_eq!(code, 200, "{quota}");
    quota["status"]["used"].clone()
}

#[tokio::test]
async fn quotas_hold_as_on_a_real_server() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    both.make(&format!("{BASE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    let (pods, maps) = (format!("{BASE}/pods"), format!("{BASE}/configmaps"));
    let hard = json!({"pods": "3", "requests.cpu": "1", "limits.memory": "1Gi", "count/configmaps": "2",
                      "services.nodeports": "1", "count/jobs.batch": "1", "requests.example.com/gpu": "1"});
    let zero = json!({"pods": "0", "requests.cpu": "0", "limits.memory": "0", "count/configmaps": "1",
                      "services.nodeports": "0", "count/jobs.batch": "0", "requests.example.com/gpu": "0"});
    quota(&both, "main", json!({"hard": hard}), zero).await;
    both.until_real_refuses(&pods, &pod("probe", json!({})), "failed quota").await;

    let whole = |cpu: &str, memory: &str| json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "2", "memory": memory}}});
    let gpu = json!({"resources": {"requests": {"cpu": "1m"},
                     "limits": {"cpu": "1", "memory": "1Mi", "example.com/gpu": "2"}}});
    for (pod, expected) in [
        (pod("silent", json!({})), 403),
        (pod("whole", whole("600m", "256Mi")), 201),
        (pod("too-much-cpu", whole("600m", "1Mi")), 403),
        (pod("too-much-of-both", whole("700m", "2Gi")), 403),
        (pod("gpu", gpu), 403),
        (pod("second", whole("400m", "768Mi")), 201),
        (pod("third", whole("0", "0")), 201),
        (pod("fourth", whole("0", "0")), 403),
        (pod("second", whole("0", "0")), 403),
    ] {
        let (code, answer) = both.ask(&[], &Method::POST, &pods, Some(&pod)).await;
        assert_eq!(code, expected, "{answer}");
    }
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    for (map, expected) in [(map("a"), 201), (map("b"), 403)] {
        let (code, answer) = both.ask(&[], &Method::POST, &maps, Some(&map)).await;
        assert_eq!(code, expected, "{answer}");
    }
    let generated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
    assert_eq!(both.codes(&Method::POST, &maps, &generated).await, (403, 403));
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template":
        {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let jobs = "/apis/batch/v1/namespaces/n/jobs";
    both.make(jobs, &job).await;
    let mut second = job.clone();
    second["metadata"]["name"] = json!("k");
    assert_eq!(both.ask(&[], &Method::POST, jobs, Some(&second)).await.0, 403);
    assert_eq!(
        used(&both, "main").await,
        json!({"pods": "3", "requests.cpu": "1", "limits.memory": "1Gi", "count/configmaps": "2",
               "services.nodeports": "0", "count/jobs.batch": "1", "requests.example.com/gpu": "0"})
    );
}

#[tokio::test]
async fn quotas_are_about_scopes_and_changes_as_on_a_real_server() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    both.make(&format!("{BASE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    let pods = format!("{BASE}/pods");
    let scoped = json!({"hard": {"pods": "1"}, "scopes": ["Terminating"]});
    quota(&both, "ending", scoped, json!({"pods": "0"})).await;
    let nodes = json!({"hard": {"services.nodeports": "1", "services": "5"}});
    quota(&both, "ports", nodes, json!({"services.nodeports": "0", "services": "0"})).await;
    let unknown = json!({"hard": {"count/secrets": "1"}});
    quota(&both, "unknown", unknown, json!({})).await;
    let secrets = format!("{BASE}/secrets");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    both.until_real_refuses(&secrets, &secret, "status unknown").await;

    let (code, answer) = both.ask(&[], &Method::POST, &secrets, Some(&secret)).await;
    assert_eq!(code, 403, "{answer}");
    let ending = json!({"activeDeadlineSeconds": 60});
    for (pod, expected) in [
        (pod("stays", json!({})), 201),
        (pod("ends", ending.clone()), 201),
        (pod("ends-too", ending), 403),
        (pod("stays-too", json!({})), 201),
    ] {
        let (code, answer) = both.ask(&[], &Method::POST, &pods, Some(&pod)).await;
        assert_eq!(code, expected, "{answer}");
    }
    let patch = [("Content-Type", "application/merge-patch+json")];
    let deadline = json!({"spec": {"activeDeadlineSeconds": 5}});
    let path = format!("{pods}/stays");
    let (code, answer) = both.ask(&patch, &Method::PATCH, &path, Some(&deadline)).await;
    assert_eq!(code, 403, "a pod that comes into the scope is charged: {answer}");

    let services = format!("{BASE}/services");
    let service = |name: &str, kind: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
               "spec": {"type": kind, "ports": [{"port": 80}]}})
    };
    for (name, kind, expected) in [("a", "NodePort", 201), ("b", "NodePort", 403), ("c", "ClusterIP", 201)] {
        let codes = both.codes(&Method::POST, &services, &service(name, kind)).await;
        assert_eq!(codes, (expected, expected), "{name}");
    }
    let path = format!("{services}/c");
    let to_node_port = json!({"spec": {"type": "NodePort"}});
    let (code, answer) = both.ask(&patch, &Method::PATCH, &path, Some(&to_node_port)).await;
    assert_eq!(code, 403, "{answer}");
    let dry = format!("{BASE}/services?dryRun=All");
    assert_eq!(both.codes(&Method::POST, &dry, &service("d", "NodePort")).await, (403, 403));
    assert_eq!(used(&both, "ports").await, json!({"services.nodeports": "1", "services": "2"}));
    assert_eq!(used(&both, "ending").await, json!({"pods": "1"}));
}

#[tokio::test]
async fn quotas_are_about_devices_and_what_resized_pods_have_as_on_a_real_server() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    both.make(&format!("{BASE}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    let (gpus, claims) = ("gpu.deviceclass.resource.k8s.io/devices", "count/resourceclaims.resource.k8s.io");
    let limits = json!({"hard": {(gpus): "3", (claims): "3", "requests.cpu": "3"}});
    quota(&both, "q", limits, json!({(gpus): "0", (claims): "0", "requests.cpu": "0"})).await;
    let claim = |name: &str, request: Value| {
        let mut named = json!({"name": "r"});
        named.as_object_mut().expect("an object").extend(request.as_object().expect("an object").clone());
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [named]}}})
    };
    let exactly = |count: i64| json!({"exactly": {"deviceClassName": "gpu", "count": count}});
    let path = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims";
    both.until_real_refuses(path, &claim("probe", exactly(4)), "exceeded quota").await;
    let first = |count: i64| json!({"name": format!("s{count}"), "deviceClassName": "gpu", "count": count});
    for (claim, expected) in [
        (claim("two", exactly(2)), 201),
        (claim("too-many", exactly(2)), 403),
        (claim("all", json!({"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})), 403),
        (claim("any-too-many", json!({"firstAvailable": [first(1), first(2)]})), 403),
        (claim("other", json!({"exactly": {"deviceClassName": "other", "count": 9}})), 201),
        (claim("one", json!({"firstAvailable": [first(1)]})), 201),
        (claim("fourth", json!({"exactly": {"deviceClassName": "other"}})), 403),
    ] {
        let (code, answer) = both.ask(&[], &Method::POST, path, Some(&claim)).await;
        assert_eq!(code, expected, "{answer}");
    }
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let patch = [("Content-Type", "application/merge-patch+json")];
    let one = format!("{path}/one");
    let (code, answer) = both.ask(&patch, &Method::PATCH, &one, Some(&labelled)).await;
    assert_eq!(code, 200, "what it has is not taken again: {answer}");

    let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
    both.make(&format!("{BASE}/pods"), &pod("p", json!({"resources": cpu("2")}))).await;
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "",
        "ready": true, "restartCount": 0, "state": {"running": {}}, "resources": cpu("2"),
        "allocatedResources": {"cpu": "2"}}]}});
    let (code, answer) =
        both.ask(&patch, &Method::PATCH, &format!("{BASE}/pods/p/status"), Some(&status)).await;
    assert_eq!(code, 200, "{answer}");
    let merge = [("Content-Type", "application/strategic-merge-patch+json")];
    for (asked, expected) in [("1", 200), ("2", 200), ("3", 200), ("4", 403)] {
        let resized = json!({"spec": {"containers": [{"name": "c", "resources": cpu(asked)}]}});
        let path = format!("{BASE}/pods/p/resize");
        let (code, answer) = both.ask(&merge, &Method::PATCH, &path, Some(&resized)).await;
        assert_eq!(code, expected, "{asked}: {answer}");
    }
    assert_eq!(used(&both, "q").await, json!({(gpus): "3", (claims): "3", "requests.cpu": "3"}));
}

#[tokio::test]
async fn concurrent_creates_do_not_overshoot_a_quota() {
    let store = store::Store::open(store::Options::ephemeral()).expect("a store");
    let cluster = apiserver::Cluster::open(store, rules::job::Settings::default()).await.expect("a cluster");
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let mut quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
                           "spec": {"hard": {"count/configmaps": "20"}}});
    crate::ask(&cluster, Method::POST, quotas, Some(&quota)).await;
    quota["status"] = json!({"hard": {"count/configmaps": "20"}, "used": {"count/configmaps": "0"}});
    let (code, ..) = crate::ask(&cluster, Method::PUT, &format!("{quotas}/q/status"), Some(&quota)).await;
    assert_eq!(code, 200);
    let creates = (0..100).map(|number| {
        let cluster = cluster.clone();
        tokio::spawn(async move {
            let map = json!({"metadata": {"name": format!("m{number}")}});
            crate::ask(&cluster, Method::POST, "/api/v1/namespaces/default/configmaps", Some(&map)).await.0
        })
    });
    let codes: Vec<u16> =
        futures::future::join_all(creates).await.into_iter().map(|code| code.expect("an answer")).collect();
    let made = codes.iter().filter(|code| **code == 201).count();
    assert_eq!((made, codes.iter().filter(|code| **code == 403).count()), (20, 80));
    let (_, quota, _) = crate::ask(&cluster, Method::GET, &format!("{quotas}/q"), None).await;
    assert_eq!(quota["status"]["used"]["count/configmaps"], "20");
}
