//! Roles and bindings, and what nobody may give.

use apiserver::Cluster;
use apiserver::auth::User;
use apiserver::auth::user::AUTHENTICATED;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::ask_as;
use crate::{ask, cluster};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn make(cluster: &Cluster, path: &str, body: Value) {
    let (code, answer, _) = ask(cluster, Method::POST, path, Some(&body)).await;
    assert_eq!(code, 201, "{answer}");
}

/// A role `r` in the namespace default with these rules, bound to the user bot.
async fn allow(cluster: &Cluster, rules: Value) {
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    make(cluster, &format!("{RBAC}/namespaces/default/roles"), role).await;
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bot"}],
    });
    make(cluster, &format!("{RBAC}/namespaces/default/rolebindings"), binding).await;
}

fn bot() -> User {
    User::named("bot").in_groups([AUTHENTICATED])
}

#[tokio::test]
async fn rule_6_5_roles_allow_what_they_say_at_once_and_no_longer() {
    let cluster = cluster().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let get = async |path: &str| ask_as(&cluster, &bot(), &[], Method::GET, path, None).await;
    let (code, status) = get(maps).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "configmaps is forbidden: User \"bot\" cannot list resource \"configmaps\" in API group \"\" in the namespace \
         \"default\""
    );
    allow(&cluster, json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}])).await;
    assert_eq!(get(maps).await.0, 200);
    assert_eq!(get("/api/v1/configmaps").await.0, 403);
    assert_eq!(get("/api/v1/namespaces/kube-system/configmaps").await.0, 403);
    let (code, ..) = ask(&cluster, Method::DELETE, &format!("{RBAC}/namespaces/default/roles/r"), None).await;
    assert_eq!(code, 200);
    let (code, status) = get(maps).await;
    assert_eq!(code, 403);
    let why = "RBAC: role.rbac.authorization.k8s.io \"r\" not found";
    assert!(status["message"].as_str().is_some_and(|text| text.ends_with(why)), "{status}");
}

#[tokio::test]
async fn a_client_in_the_process_can_be_somebody() {
    let cluster = cluster().await;
    let client = kube::Client::new(cluster.as_user(User::named("bot")), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    assert!(
        matches!(maps.list(&ListParams::default()).await, Err(kube::Error::Api(status)) if status.code == 403)
    );
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    allow(&cluster, rules).await;
    maps.list(&ListParams::default()).await.expect("allowed now");
}

#[tokio::test]
async fn rule_6_7_nobody_gives_what_he_does_not_have() {
    let cluster = cluster().await;
    let rules = json!([
        {"verbs": ["get", "create", "update", "patch"], "apiGroups": ["rbac.authorization.k8s.io"],
         "resources": ["roles", "rolebindings"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
    ]);
    allow(&cluster, rules).await;
    let create = async |plural: &str, body: Value| {
        let path = format!("{RBAC}/namespaces/default/{plural}");
        ask_as(&cluster, &bot(), &[], Method::POST, &path, Some(&body)).await
    };
    let role = |verbs: &[&str]| json!({"metadata": {"name": "x"}, "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["configmaps"]}]});
    let (code, status) = create("roles", role(&["get", "list", "watch"])).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "roles.rbac.authorization.k8s.io \"x\" is forbidden: user \"bot\" (groups=[\"system:authenticated\"]) is attempting \
         to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"list\" \
         \"watch\"]}"
    );
    assert_eq!(create("roles", role(&["get"])).await.0, 201);

    let binding = |kind: &str, name: &str| {
        json!({"metadata": {"name": "y"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    };
    let (code, status) = create("rolebindings", binding("ClusterRole", "absent")).await;
    assert_eq!((code, &status["details"]["kind"]), (404, &json!("rolebindings")));
    assert_eq!(create("rolebindings", binding("Role", "x")).await.0, 201);
}

#[tokio::test]
async fn rule_6_4_impersonation() {
    let cluster = cluster().await;
    let as_alice =
        [("Impersonate-User", "alice"), ("Impersonate-Group", "team"), ("Impersonate-Extra-a%2fb", "c")];
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, status) = ask_as(&cluster, &bot(), &as_alice, Method::GET, path, None).await;
    assert_eq!(code, 403);
    let why = "users \"alice\" is forbidden: User \"bot\" cannot impersonate resource \"users\" in API group \"\" at the \
               cluster scope";
    assert_eq!(status["message"], why);
    let (code, status) = ask_as(&cluster, &User::server(), &as_alice, Method::GET, path, None).await;
    assert_eq!(code, 403, "alice may nothing");
    assert!(status["message"].as_str().is_some_and(|text| text.contains("User \"alice\" cannot list")));
    let masters = [("Impersonate-User", "alice"), ("Impersonate-Group", "system:masters")];
    let (code, _) = ask_as(&cluster, &User::server(), &masters, Method::GET, path, None).await;
    assert_eq!(code, 200);
    let nobody = [("Impersonate-Group", "team")];
    let (code, status) = ask_as(&cluster, &User::server(), &nobody, Method::GET, path, None).await;
    assert_eq!(code, 400);
    assert_eq!(status["message"], "requested [{Group  team    }] without impersonating a user");
}

#[tokio::test]
async fn rule_6_7_roles_made_of_others_follow_them() {
    let cluster = cluster().await;
    let view = async || {
        let (code, role, _) = ask(&cluster, Method::GET, &format!("{RBAC}/clusterroles/view"), None).await;
        assert_eq!(code, 200);
        role["rules"].to_string().contains("widgets")
    };
    assert!(!view().await);
    let part = json!({
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"verbs": ["get"], "apiGroups": ["example.com"], "resources": ["widgets"]}],
    });
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    make(&cluster, roles, part).await;
    let wait = async |expected: bool| {
        while view().await != expected {
            tokio::task::yield_now().await;
        }
    };
    let soon = std::time::Duration::from_secs(10);
    tokio::time::timeout(soon, wait(true)).await.expect("the part's rules are taken");
    assert_eq!(ask(&cluster, Method::DELETE, &format!("{roles}/widgets"), None).await.0, 200);
    tokio::time::timeout(soon, wait(false)).await.expect("and given up again");
}

/// A role with `"verbs": null` once took the server down.
#[tokio::test]
async fn roles_without_verbs_allow_nothing_and_harm_nobody() {
    let cluster = cluster().await;
    let roles = format!("{RBAC}/clusterroles");
    let role = json!({"metadata": {"name": "odd"}, "rules": [{"verbs": null, "resources": null}, {}]});
    let (code, ..) = ask(&cluster, Method::POST, &roles, Some(&role)).await;
    assert!(matches!(code, 201 | 422), "{code}");
    let bindings = format!("{RBAC}/clusterrolebindings");
    let binding = json!({
        "metadata": {"name": "odd"}, "subjects": null,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "odd"},
    });
    let (code, ..) = ask(&cluster, Method::POST, &bindings, Some(&binding)).await;
    assert!(matches!(code, 201 | 422), "{code}");
    let (code, _) = ask_as(&cluster, &bot(), &[], Method::GET, "/api/v1/pods", None).await;
    assert_eq!(code, 403);
}
