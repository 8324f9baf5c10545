//! What can be asked about who may what. The recorded corpus asks more (topic `auth`).

use apiserver::auth::User;
use http::Method;
use serde_json::{Value, json};

use super::ask_as;
use crate::{ask, cluster};

const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

#[tokio::test]
async fn rule_6_8_who_may_what() {
    let cluster = cluster().await;
    let review = async |spec: Value| {
        let path = format!("{AUTHORIZATION}/subjectaccessreviews");
        let (code, answer, _) = ask(&cluster, Method::POST, &path, Some(&json!({"spec": spec}))).await;
        assert_eq!(code, 201, "{answer}");
        answer["status"].clone()
    };
    let pods = json!({"verb": "get", "resource": "pods", "namespace": "default"});
    let status = review(json!({"user": "a", "resourceAttributes": pods})).await;
    assert_eq!(status, json!({"allowed": false}));
    let status = review(json!({"groups": ["system:masters"], "user": "a", "resourceAttributes": pods})).await;
    assert_eq!(status, json!({"allowed": true}));
    let version = json!({"verb": "get", "path": "/version"});
    let status =
        review(json!({"groups": ["system:unauthenticated"], "nonResourceAttributes": version})).await;
    assert_eq!(status["allowed"], true);
    let why = "RBAC: allowed by ClusterRoleBinding \"system:public-info-viewer\" of ClusterRole \
               \"system:public-info-viewer\" to Group \"system:unauthenticated\"";
    assert_eq!(status["reason"], why);
}

#[tokio::test]
async fn rule_6_8_local_reviews_are_about_their_namespace() {
    let cluster = cluster().await;
    let path = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    let ask = async |body: Value| {
        let (code, answer, _) = ask(&cluster, Method::POST, &path, Some(&body)).await;
        (code, answer["message"].as_str().unwrap_or("").to_owned())
    };
    let spec = |namespace: &str| json!({"user": "a", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": namespace}});
    let here = json!({"metadata": {"namespace": "default"}, "spec": spec("default")});
    assert_eq!(ask(here).await.0, 201);
    let (code, why) = ask(json!({"metadata": {"namespace": "default"}, "spec": spec("other")})).await;
    assert_eq!(code, 422);
    assert!(
        why.contains(
            "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace"
        ),
        "{why}"
    );
}

#[tokio::test]
async fn rule_6_9_nodes_may_do_what_nodes_need() {
    let cluster = cluster().await;
    let node = User::named("system:node:n1").in_groups(["system:nodes", "system:authenticated"]);
    let (code, _) = ask_as(&cluster, &node, &[], Method::GET, "/api/v1/nodes", None).await;
    assert_eq!(code, 200);
    let (code, _) = ask_as(&cluster, &node, &[], Method::DELETE, "/api/v1/namespaces/default", None).await;
    assert_eq!(code, 403);
}
