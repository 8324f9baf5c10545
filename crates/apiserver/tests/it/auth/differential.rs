//! Who may do what, asked of our server and of a real one.

use http::Method;
use kube::Client;
use serde_json::{Value, json};

use crate::both::Both;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Objects of a list without what differs from one server to the next.
async fn listed(client: &Client, path: &str) -> Vec<Value> {
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    let list: Value =
        serde_json::from_str(&client.request_text(request).await.expect("a list")).expect("JSON");
    let mut items = list["items"].as_array().cloned().expect("items");
    for item in &mut items {
        // The rules of aggregated roles are written by a controller, which does not run beside the real server here;
        // and PriorityClasses are described in a sentence.
        if !item["aggregationRule"].is_null() {
            item["rules"] = Value::Null;
        }
        item.as_object_mut().expect("an object").retain(|key, _| key != "description" && key != "status");
        let kept = ["name", "namespace", "labels", "annotations"];
        item["metadata"].as_object_mut().expect("metadata").retain(|key, _| kept.contains(&key.as_str()));
    }
    items
}

#[tokio::test]
async fn rule_3_3_the_first_objects_are_a_real_servers() {
    let Some(both) = Both::start().await else { return };
    for path in [
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.k8s.io/v1/roles",
        "/apis/rbac.authorization.k8s.io/v1/rolebindings",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    ] {
        let (ours, real) = (listed(both.ours(), path).await, listed(both.real(), path).await);
        assert!(!real.is_empty(), "{path}");
        assert_eq!(ours, real, "{path}");
    }
}

#[tokio::test]
async fn section_6_requests_of_many_users_are_answered_alike() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let account = json!({"metadata": {"name": "bot"}});
    both.make("/api/v1/namespaces/n/serviceaccounts", &account).await;
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"verbs": ["get", "list", "create"], "apiGroups": [""], "resources": ["configmaps", "pods/log"]},
        {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["bot"]},
    ]});
    both.make(&format!("{RBAC}/namespaces/n/roles"), &role).await;
    let binding = json!({
        "metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "team"},
                     {"kind": "ServiceAccount", "name": "bot"}],
    });
    both.make(&format!("{RBAC}/namespaces/n/rolebindings"), &binding).await;
    let broken = json!({
        "metadata": {"name": "broken"}, "subjects": [{"kind": "User", "name": "eve"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "absent"},
    });
    both.make(&format!("{RBAC}/clusterrolebindings"), &broken).await;
    settle(&both).await;

    let users: [&[(&str, &str)]; 9] = [
        &[("Impersonate-User", "alice")],
        &[("Impersonate-User", "x"), ("Impersonate-Group", "team")],
        &[("Impersonate-User", "system:serviceaccount:n:bot")],
        &[("Impersonate-User", "system:anonymous")],
        &[("Impersonate-User", "eve")],
        &[("Impersonate-User", "x"), ("Impersonate-Group", "system:unauthenticated")],
        &[("Impersonate-User", "x"), ("Impersonate-Uid", "u"), ("Impersonate-Extra-scopes", "a")],
        &[("Impersonate-Uid", "u")],
        &[("Impersonate-Group", "g")],
    ];
    let map = json!({"metadata": {"name": "m"}});
    let wide = json!({"metadata": {"name": "w"}, "rules": [
        {"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["configmaps", "secrets"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x", "y"]},
    ]});
    let bind = |kind: &str, name: &str| {
        json!({"metadata": {"name": "bind"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    };
    let aggregated =
        json!({"metadata": {"name": "agg"}, "aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": []});
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let rules = json!({"spec": {"namespace": "n"}});
    let may = |resource: &str| json!({"spec": {"resourceAttributes": {"verb": "get", "resource": resource, "namespace": "n"}}});
    let dry = "?dryRun=All";
    let requests: Vec<(Method, String, Option<Value>)> = vec![
        (Method::GET, "/api/v1/namespaces/n/configmaps/absent".into(), None),
        (Method::GET, "/api/v1/configmaps".into(), None),
        (
            Method::GET,
            "/api/v1/namespaces/n/configmaps?watch=1&fieldSelector=metadata.name=a&timeoutSeconds=1".into(),
            None,
        ),
        (Method::POST, format!("/api/v1/namespaces/n/configmaps{dry}"), Some(map.clone())),
        (Method::DELETE, "/api/v1/namespaces/n/configmaps".into(), None),
        (Method::GET, "/apis/batch/v1/namespaces/n/jobs/j/status".into(), None),
        (Method::GET, "/api/v1/nodes/n".into(), None),
        (Method::GET, "/apis/nothing/v1/x".into(), None),
        (Method::GET, "/healthz".into(), None),
        (Method::GET, "/metrics".into(), None),
        (Method::POST, "/logs".into(), None),
        (Method::POST, format!("{RBAC}/namespaces/n/roles{dry}"), Some(wide)),
        (Method::POST, format!("{RBAC}/namespaces/n/rolebindings{dry}"), Some(bind("Role", "r"))),
        (
            Method::POST,
            format!("{RBAC}/namespaces/n/rolebindings{dry}"),
            Some(bind("ClusterRole", "cluster-admin")),
        ),
        (Method::POST, format!("{RBAC}/namespaces/n/rolebindings{dry}"), Some(bind("ClusterRole", "absent"))),
        (Method::POST, format!("{RBAC}/clusterroles{dry}"), Some(aggregated)),
        (Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews".into(), Some(whoami)),
        (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews".into(), Some(rules)),
        (
            Method::POST,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".into(),
            Some(may("configmaps")),
        ),
        (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".into(), Some(may("secrets"))),
        (Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews".into(), Some(may("secrets"))),
        (Method::POST, "/api/v1/namespaces/n/serviceaccounts/bot/token".into(), Some(json!({}))),
        (Method::PATCH, "/api/v1/namespaces/n/secrets/s".into(), Some(json!({}))),
    ];
    for user in users {
        for (method, path, body) in &requests {
            let mut headers = user.to_vec();
            if *method == Method::PATCH {
                headers.push(("Content-Type", "application/merge-patch+json"));
            }
            both.ask(&headers, method, path, body.as_ref()).await;
        }
    }
}

/// The real server learns of roles and bindings a moment later.
async fn settle(both: &Both) {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": "eve", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "n"}}});
    let body = serde_json::to_vec(&review).expect("JSON prints");
    loop {
        let request = http::Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let request = request.header("Content-Type", "application/json").body(body.clone());
        let text = both.real().request_text(request.expect("a request")).await.expect("a review");
        if text.contains("absent") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn rule_6_2_tokens_are_requested_and_reviewed_alike() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let account = json!({"metadata": {"name": "bot"}});
    both.make("/api/v1/namespaces/n/serviceaccounts", &account).await;
    both.make("/api/v1/namespaces/n/secrets", &json!({"metadata": {"name": "s"}})).await;
    let bound = |kind: &str, name: &str, uid: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}});
    for (meta, spec) in [
        (json!({}), json!({})),
        (json!({}), json!({"audiences": ["a"], "expirationSeconds": 601})),
        (json!({}), json!({"expirationSeconds": 599})),
        (json!({}), json!({"expirationSeconds": 4_294_967_297_i64})),
        (json!({}), bound("Secret", "s", "")),
        (json!({}), bound("Secret", "s", "other")),
        (json!({}), bound("Secret", "absent", "")),
        (json!({}), bound("Pod", "absent", "")),
        (json!({}), bound("Node", "absent", "")),
        (json!({}), bound("ConfigMap", "x", "")),
        (json!({"name": "other"}), json!({})),
        (json!({"namespace": "other"}), json!({})),
        (json!({"uid": "other"}), json!({})),
    ] {
        let request = json!({"metadata": meta, "spec": spec});
        let path = "/api/v1/namespaces/n/serviceaccounts/bot/token";
        both.ask(&[], &Method::POST, path, Some(&request)).await;
    }
    let path = "/api/v1/namespaces/n/serviceaccounts/absent/token";
    both.ask(&[], &Method::POST, path, Some(&json!({}))).await;
    for token in ["", "x", "a.b.c", "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJvdGhlciJ9.AAAA"] {
        let review = json!({"spec": {"token": token}});
        both.ask(&[], &Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", Some(&review)).await;
    }
}
