//! What guards batch namespaces: quotas and budgets, and roles made of roles, on a real API server.

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, PostParams};
use reconcile::Tasks;
use serde_json::json;
use testkit::{Behaviour, ControlPlane};

use crate::cluster::{api, create, eventually, set_phase, start};

const NAMES: &str = "resourcequota-controller,disruption-controller,clusterrole-aggregation-controller,\
                     serviceaccount-controller,replicaset-controller";

#[tokio::test]
async fn quotas_budgets_and_roles_are_kept() {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return };
    let client = &cluster.client();
    let mut tasks = Tasks::new();
    start(client, NAMES, &mut tasks);
    let _node = cluster.simulator().decide(|_| Behaviour::runs()).start().await.expect("a node");
    eventually("the service account", || async {
        api::<ServiceAccount>(client).get_opt("default").await.expect("an answer")
    })
    .await;

    let devices = "gpu.deviceclass.resource.k8s.io/devices";
    let hard =
        json!({"pods": "2", "requests.cpu": "1", "configmaps": "5", "count/jobs.batch": "1", (devices): "4"});
    create::<ResourceQuota>(client, json!({"metadata": {"name": "quota"}, "spec": {"hard": hard}})).await;
    let quotas: Api<ResourceQuota> = api(client);
    let used = |name: &'static str, amount: &'static str| {
        let quotas = quotas.clone();
        async move {
            eventually(&format!("{amount} of {name} is used"), || async {
                let status = quotas.get("quota").await.expect("a quota").status?;
                (status.used?.get(name)?.0 == amount).then_some(())
            })
            .await;
        }
    };
    used("pods", "0").await;
    let pod = |name: &str| {
        let container = json!({"name": "main", "image": "x", "resources": {"requests": {"cpu": "250m"}}});
        json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"containers": [container]}})
    };
    let first: Pod = create(client, pod("a")).await;
    create::<Pod>(client, pod("b")).await;
    create::<ConfigMap>(client, json!({"metadata": {"name": "one"}})).await;
    used("pods", "2").await;
    used("requests.cpu", "500m").await;
    used("configmaps", "1").await;
    let exactly = json!({"deviceClassName": "gpu", "count": 2});
    let requests = json!([{"name": "r", "exactly": exactly}]);
    create::<ResourceClaim>(
        client,
        json!({"metadata": {"name": "two"}, "spec": {"devices": {"requests": requests}}}),
    )
    .await;
    used(devices, "2").await;
    let third = serde_json::from_value(pod("c")).expect("a pod");
    let refused = api::<Pod>(client).create(&PostParams::default(), &third).await.expect_err("too many");
    assert!(
        refused.to_string().contains("exceeded quota: quota, requested: pods=1, used: pods=2"),
        "{refused}"
    );

    let budget = json!({"metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    create::<PodDisruptionBudget>(client, budget).await;
    let budgets: Api<PodDisruptionBudget> = api(client);
    let allowed = |number: i32| {
        let budgets = budgets.clone();
        async move {
            eventually(&format!("{number} may go"), || async {
                let status = budgets.get("budget").await.expect("a budget").status?;
                (status.disruptions_allowed == number && status.observed_generation == Some(1)).then_some(())
            })
            .await;
        }
    };
    allowed(1).await;
    set_phase(client, &first, "Failed").await;
    used("pods", "1").await;
    allowed(0).await;

    let roles: Api<ClusterRole> = Api::all(client.clone());
    let part = json!({
        "metadata": {"name": "part", "labels": {"into": "whole"}},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    });
    let whole = json!({
        "metadata": {"name": "whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"into": "whole"}}]},
        "rules": [],
    });
    for role in [whole, part] {
        let role = serde_json::from_value(role).expect("a role");
        roles.create(&PostParams::default(), &role).await.expect("created");
    }
    eventually("the whole has its part", || async {
        let rules = roles.get("whole").await.expect("a role").rules?;
        (rules.len() == 1 && rules[0].verbs == ["get"]).then_some(())
    })
    .await;
}
