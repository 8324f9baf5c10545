//! What pods get before their own rules look at them, and that a real server gives them the same.

use http::Method;
use serde_json::{Value, json};

use crate::both::Both;

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

#[tokio::test]
async fn rule_3_5_pods_get_what_a_real_server_gives_them() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let (accounts, pods) = ("/api/v1/namespaces/n/serviceaccounts", "/api/v1/namespaces/n/pods");
    let create = async |pod: &Value| both.ask(&[], &Method::POST, pods, Some(pod)).await;

    let (code, status) = create(&pod("early", json!({"serviceAccountName": "absent"}))).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    both.make(accounts, &json!({"metadata": {"name": "default"}})).await;
    both.make(
        accounts,
        &json!({"metadata": {"name": "plain"}, "automountServiceAccountToken": false,
                "imagePullSecrets": [{"name": "s"}]}),
    )
    .await;
    for (class, value, default) in [("high", 100, false), ("usual", 10, true)] {
        let class = json!({"metadata": {"name": class}, "value": value, "globalDefault": default});
        both.make("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
    }
    let (classes, second) = (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        json!({"metadata": {"name": "second"}, "value": 1, "globalDefault": true}),
    );
    both.until_real_refuses(classes, &second, "Only one default can exist").await;
    assert_eq!(both.ask(&[], &Method::POST, classes, Some(&second)).await.0, 403);

    for (name, spec, expected) in [
        ("bare", json!({}), 201),
        ("plain", json!({"serviceAccountName": "plain"}), 201),
        ("wants-token", json!({"serviceAccountName": "plain", "automountServiceAccountToken": true}), 201),
        ("high", json!({"priorityClassName": "high"}), 201),
        ("unknown-class", json!({"priorityClassName": "nothing"}), 403),
        ("wrong-priority", json!({"priorityClassName": "high", "priority": 7}), 403),
        ("tolerates", json!({"tolerations": [{"operator": "Exists"}]}), 201),
        (
            "init",
            json!({"initContainers": [{"name": "i", "image": "i", "volumeMounts": [
                {"name": "v", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
                "volumes": [{"name": "v", "emptyDir": {}}]}),
            201,
        ),
    ] {
        let (code, answer) = create(&pod(name, spec)).await;
        assert_eq!(code, expected, "{name}: {answer}");
    }
}

#[tokio::test]
async fn limit_ranges_hold_as_on_a_real_server() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let base = "/api/v1/namespaces/n";
    both.make(&format!("{base}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"},
         "min": {"cpu": "100m"}, "max": {"cpu": "2", "memory": "2Gi"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "3"}},
    ]}});
    both.make(&format!("{base}/limitranges"), &range).await;
    for (name, resources, expected) in [
        ("none", json!({}), 201),
        ("small", json!({"requests": {"cpu": "50m"}}), 403),
        ("large", json!({"limits": {"cpu": "3"}}), 403),
        ("ratio", json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}}), 403),
    ] {
        let containers = json!({"containers": [{"name": "c", "image": "i", "resources": resources}]});
        let path = format!("{base}/pods");
        let (code, answer) = both.ask(&[], &Method::POST, &path, Some(&pod(name, containers))).await;
        assert_eq!(code, expected, "{name}: {answer}");
    }
    let sized = json!({"metadata": {"name": "s"}, "spec": {"limits": [{"type": "PersistentVolumeClaim",
        "min": {"storage": "1Mi"}, "max": {"storage": "10Gi"}, "maxLimitRequestRatio": {"storage": "2"}}]}});
    both.make(&format!("{base}/limitranges"), &sized).await;
    let claim = |name: &str, storage: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": storage}}}})
    };
    let path = format!("{base}/persistentvolumeclaims");
    both.until_real_refuses(&path, &claim("probe", "11Gi"), "maximum storage usage").await;
    for (claim, expected) in [(claim("fits", "1Gi"), 201), (claim("large", "11Gi"), 403)] {
        let codes = both.codes(&Method::POST, &path, &claim).await;
        assert_eq!(codes, (expected, expected), "{claim}");
    }
}

#[tokio::test]
async fn rule_3_5_pods_get_what_their_runtime_class_says_on_a_real_server() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let pods = "/api/v1/namespaces/n/pods";
    both.make("/api/v1/namespaces/n/serviceaccounts", &json!({"metadata": {"name": "default"}})).await;
    let any = json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"});
    let class = |name: &str, scheduling: Value| {
        json!({"metadata": {"name": name}, "handler": "h", "overhead": {"podFixed": {"memory": "128Mi"}},
            "scheduling": scheduling})
    };
    for class in [
        class("all", json!({"tolerations": [{"operator": "Exists"}]})),
        class("one", json!({"tolerations": [any]})),
        class("plain", Value::Null),
    ] {
        both.make("/apis/node.k8s.io/v1/runtimeclasses", &class).await;
    }
    let waits = |seconds: i64| json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let overhead = |memory: &str| json!({"runtimeClassName": "plain", "overhead": {"memory": memory}});
    for (name, spec, expected) in [
        // Whoever tolerates everything is not driven out after five minutes.
        ("all", json!({"runtimeClassName": "all"}), 201),
        ("all-too", json!({"runtimeClassName": "one", "tolerations": [{"operator": "Exists"}]}), 201),
        ("twice", json!({"runtimeClassName": "one", "tolerations": [any, waits(60), waits(600)]}), 201),
        (
            "equal",
            json!({"runtimeClassName": "one", "tolerations": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
            201,
        ),
        ("alone", json!({"runtimeClassName": "plain", "tolerations": [any, {"operator": "Exists"}]}), 201),
        ("same-overhead", overhead("134217728"), 201),
        ("other-overhead", overhead("128M"), 403),
    ] {
        let (code, answer) = both.ask(&[], &Method::POST, pods, Some(&pod(name, spec))).await;
        assert_eq!(code, expected, "{name}: {answer}");
    }
}

#[tokio::test]
async fn rule_3_5_mirror_pods_name_no_secrets_on_a_real_server() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().expect("an object").extend(source.as_object().expect("an object").clone());
        json!({"volumes": [volume]})
    };
    let from = json!([{"secretRef": {"name": "s"}}]);
    let key = json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    let container = |field: &str, value: &Value| json!([{"name": "c", "image": "i", (field): value}]);
    for (name, spec, expected) in [
        ("plain", json!({}), 201),
        ("pulls", json!({"imagePullSecrets": [{"name": "s"}]}), 403),
        ("env", json!({"containers": container("env", &key)}), 403),
        ("env-from", json!({"containers": container("envFrom", &from)}), 403),
        ("volume", volume(json!({"secret": {"secretName": "s"}})), 403),
        ("projected", volume(json!({"projected": {"sources": [{"secret": {"name": "s"}}]}})), 403),
        ("csi", volume(json!({"csi": {"driver": "d.io", "nodePublishSecretRef": {"name": "s"}}})), 403),
        ("csi-plain", volume(json!({"csi": {"driver": "d.io"}})), 201),
        ("flex", volume(json!({"flexVolume": {"driver": "a/b", "secretRef": {"name": "s"}}})), 403),
    ] {
        let mut mirror = pod(name, spec);
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        mirror["spec"]["nodeName"] = json!("n");
        let path = "/api/v1/namespaces/n/pods";
        let (code, answer) = both.ask(&[], &Method::POST, path, Some(&mirror)).await;
        assert_eq!(code, expected, "{name}: {answer}");
    }
}
