//! Deployments, ReplicaSets and ReplicationControllers, on a real API server.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use reconcile::Tasks;
use serde_json::json;
use testkit::{Behaviour, ControlPlane};

use crate::cluster::{api, create, eventually, start};

const NAMES: &str = "deployment-controller,replicaset-controller,replicationcontroller-controller,\
                     garbage-collector-controller,serviceaccount-controller";

async fn images(client: &Client) -> Vec<String> {
    let pods = api::<Pod>(client).list(&ListParams::default()).await.expect("a list");
    let mut images: Vec<String> = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .filter_map(|pod| pod.spec?.containers.into_iter().next()?.image)
        .collect();
    images.sort();
    images
}

#[tokio::test]
async fn pods_are_kept_rolled_and_collected() {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return };
    let client = &cluster.client();
    let mut tasks = Tasks::new();
    start(client, NAMES, &mut tasks);
    let _node = cluster.simulator().decide(|_| Behaviour::runs()).start().await.expect("a node");
    eventually("the service account", || async {
        api::<ServiceAccount>(client).get_opt("default").await.expect("an answer")
    })
    .await;
    let template = |image: &str| {
        json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": image}]},
        })
    };
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "x"}},
        "template": template("one"),
    }});
    create::<Deployment>(client, deployment).await;
    let deployments: Api<Deployment> = api(client);
    let rolled = |revision: &'static str| {
        let deployments = deployments.clone();
        async move {
            eventually(&format!("revision {revision} is complete"), || async {
                let deployment = deployments.get("d").await.expect("it is there");
                let status = deployment.status?;
                let done = deployment.metadata.annotations?.get("deployment.kubernetes.io/revision")?
                    == revision
                    && status.updated_replicas == Some(3)
                    && status.available_replicas == Some(3)
                    && status.replicas == Some(3)
                    && status
                        .conditions?
                        .iter()
                        .any(|it| it.reason.as_deref() == Some("NewReplicaSetAvailable"));
                done.then_some(())
            })
            .await;
        }
    };
    rolled("1").await;
    assert_eq!(images(client).await, ["one", "one", "one"]);
    let edit = Patch::Strategic(json!({"spec": {"template": template("two")}}));
    deployments.patch("d", &PatchParams::default(), &edit).await.expect("an edit");
    rolled("2").await;
    eventually("only new pods", || async { (images(client).await == ["two", "two", "two"]).then_some(()) })
        .await;
    let sets = api::<ReplicaSet>(client).list(&ListParams::default()).await.expect("a list").items;
    assert_eq!(sets.len(), 2);
    deployments.delete("d", &DeleteParams::foreground()).await.expect("deleted");
    eventually("nothing is left", || async {
        let sets = api::<ReplicaSet>(client).list(&ListParams::default()).await.expect("a list").items;
        let gone = deployments.get_opt("d").await.expect("an answer").is_none();
        (gone && sets.is_empty() && images(client).await.is_empty()).then_some(())
    })
    .await;

    let controller = json!({"metadata": {"name": "rc"}, "spec": {
        "replicas": 2, "selector": {"app": "x"}, "template": template("three"),
    }});
    create::<ReplicationController>(client, controller).await;
    let controllers: Api<ReplicationController> = api(client);
    eventually("two pods are ready", || async {
        let status = controllers.get("rc").await.expect("it is there").status?;
        (status.replicas == 2 && status.ready_replicas == Some(2)).then_some(())
    })
    .await;
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    controllers.delete("rc", &orphan).await.expect("deleted");
    eventually("it is gone", || async {
        controllers.get_opt("rc").await.expect("an answer").is_none().then_some(())
    })
    .await;
    assert_eq!(images(client).await, ["three", "three"], "its pods stay");
}
