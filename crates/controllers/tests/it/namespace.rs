//! Namespaces that come with what every namespace has, and go with everything in them.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use reconcile::{Clock, Tasks};
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::cluster::{api_server, eventually};
use crate::job::job;

const NAMES: &str = "namespace-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,\
                     garbage-collector-controller,job-controller";

fn start(client: &Client, tasks: &mut Tasks) {
    let settings = controllers::Settings {
        root_ca: Some("a certificate".to_owned()),
        ..controllers::Settings::default()
    };
    controllers::start(client.clone(), &NAMES.parse().expect("names"), settings, Clock::system(), tasks);
}

async fn comes_and_goes(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = parse(json!({"metadata": {"name": "coming"}}));
    namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "coming");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "coming");
    eventually("the account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
    let certificates = eventually("the root certificates", || async {
        maps.get_opt("kube-root-ca.crt").await.expect("an answer")
    })
    .await;
    assert_eq!(certificates.data.expect("data")["ca.crt"], "a certificate");
    // Both come back.
    accounts.delete("default", &DeleteParams::default()).await.expect("deleted");
    maps.patch(
        "kube-root-ca.crt",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"ca.crt": "another"}})),
    )
    .await
    .expect("changed");
    eventually("the account, again", || async { accounts.get_opt("default").await.expect("an answer") })
        .await;
    eventually("the certificates, again", || async {
        let map = maps.get("kube-root-ca.crt").await.expect("it is there");
        (map.data.expect("data")["ca.crt"] == "a certificate").then_some(())
    })
    .await;

    let jobs: Api<Job> = Api::namespaced(client.clone(), "coming");
    jobs.create(&PostParams::default(), &parse(job("a", json!({"parallelism": 3})))).await.expect("created");
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    maps.create(&PostParams::default(), &parse(held)).await.expect("created");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "coming");
    eventually("pods", || async {
        let pods = pods.list(&kube::api::ListParams::default()).await.expect("a list").items;
        (pods.len() == 3).then_some(())
    })
    .await;
    namespaces.delete("coming", &DeleteParams::default()).await.expect("deleted");
    eventually("only what is held is left, and it is said", || async {
        let namespace = namespaces.get("coming").await.expect("it is held");
        let conditions = namespace.status.and_then(|status| status.conditions).unwrap_or_default();
        let message = |kind: &str| {
            let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
            condition.message.clone().filter(|_| condition.status == "True")
        };
        let content = message("NamespaceContentRemaining")?;
        let finalizers = message("NamespaceFinalizersRemaining")?;
        (content == "Some resources are remaining: configmaps. has 1 resource instances"
            && finalizers.ends_with("finalizers remaining: example.com/held in 1 resource instances"))
        .then_some(())
    })
    .await;
    maps.patch("held", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .expect("released");
    eventually("the namespace is gone", || async {
        namespaces.get_opt("coming").await.expect("an answer").is_none().then_some(())
    })
    .await;
}

fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of that kind")
}

#[tokio::test]
async fn p_4_5_in_this_process() {
    let client = Client::new(api_server().await, "default");
    let mut tasks = Tasks::new();
    start(&client, &mut tasks);
    comes_and_goes(&client).await;
}

#[tokio::test]
async fn p_4_5_on_a_real_api_server() {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return };
    let mut tasks = Tasks::new();
    start(&cluster.client(), &mut tasks);
    comes_and_goes(&cluster.client()).await;
}
