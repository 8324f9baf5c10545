//! What follows when an owner goes, on an API server in this process and on a real one.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::cluster::{api, create, define, embedded, eventually, start, things};
use crate::job::job;

fn owned_by(kind: &str, version: &str, owner: &str, uid: Option<&String>, blocks: bool) -> Value {
    json!([{"apiVersion": version, "kind": kind, "name": owner, "uid": uid, "blockOwnerDeletion": blocks}])
}

async fn map(client: &Client, name: &str, owners: Value) -> ConfigMap {
    create(client, json!({"metadata": {"name": name, "ownerReferences": owners}})).await
}

async fn names(client: &Client) -> Vec<String> {
    let maps: Api<ConfigMap> = api(client);
    let maps = maps.list(&ListParams::default()).await.expect("a list");
    let names = maps.into_iter().map(|map| map.metadata.name.expect("a name"));
    names.filter(|name| name != "kube-root-ca.crt").collect()
}

async fn left(client: &Client, expected: &[&str]) {
    eventually(&format!("only {expected:?} are left"), || async {
        (names(client).await == expected).then_some(())
    })
    .await;
}

async fn background(client: &Client) {
    let owner = map(client, "owner", json!([])).await;
    let other = map(client, "other", json!([])).await;
    let of_owner = owned_by("ConfigMap", "v1", "owner", owner.metadata.uid.as_ref(), false);
    let child = map(client, "child", of_owner.clone()).await;
    map(client, "grandchild", owned_by("ConfigMap", "v1", "child", child.metadata.uid.as_ref(), false)).await;
    let mut both = of_owner.as_array().cloned().expect("a list");
    let of_other = owned_by("ConfigMap", "v1", "other", other.metadata.uid.as_ref(), false);
    both.extend(of_other.as_array().cloned().expect("a list"));
    map(client, "of-both", json!(both)).await;
    api::<ConfigMap>(client).delete("owner", &DeleteParams::background()).await.expect("deleted");
    left(client, &["of-both", "other"]).await;
    eventually("one owner is left", || async {
        let map = api::<ConfigMap>(client).get("of-both").await.expect("it stays");
        (map.metadata.owner_references.unwrap_or_default().len() == 1).then_some(())
    })
    .await;
    // An owner that never was, is not there now.
    let nobody = "11111111-2222-3333-4444-555555555555".to_owned();
    map(client, "of-nobody", owned_by("ConfigMap", "v1", "nobody", Some(&nobody), false)).await;
    left(client, &["of-both", "other"]).await;
    api::<ConfigMap>(client).delete("other", &DeleteParams::background()).await.expect("deleted");
    left(client, &[]).await;
}

async fn foreground(client: &Client) {
    let maps: Api<ConfigMap> = api(client);
    let owner = map(client, "owner", json!([])).await;
    let held = json!({
        "metadata": {
            "name": "held",
            "finalizers": ["example.com/held"],
            "ownerReferences": owned_by("ConfigMap", "v1", "owner", owner.metadata.uid.as_ref(), true),
        },
    });
    create::<ConfigMap>(client, held).await;
    map(client, "free", owned_by("ConfigMap", "v1", "owner", owner.metadata.uid.as_ref(), false)).await;
    maps.delete("owner", &DeleteParams::foreground()).await.expect("deleted");
    left(client, &["held", "owner"]).await;
    let release = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    eventually("the dependent is told to go", || async {
        maps.get("held").await.expect("it is held").metadata.deletion_timestamp
    })
    .await;
    maps.patch("held", &kube::api::PatchParams::default(), &release).await.expect("released");
    left(client, &[]).await;
}

async fn orphan(client: &Client) {
    create::<Job>(client, job("owner", json!({"suspend": true}))).await;
    let jobs: Api<Job> = api(client);
    let owner = jobs.get("owner").await.expect("the Job");
    map(client, "dependent", owned_by("Job", "batch/v1", "owner", owner.metadata.uid.as_ref(), true)).await;
    // orphaning is what a Job's deletion does unless more is said.
    jobs.delete("owner", &DeleteParams::default()).await.expect("deleted");
    eventually("the Job is gone", || async {
        jobs.get_opt("owner").await.expect("an answer").is_none().then_some(())
    })
    .await;
    let dependent = api::<ConfigMap>(client).get("dependent").await.expect("it stays");
    assert_eq!(dependent.metadata.owner_references, None);
    api::<ConfigMap>(client).delete("dependent", &DeleteParams::default()).await.expect("deleted");
}

async fn serve(client: &Client, served: bool) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definition = definitions.get("things.example.com").await.expect("the definition");
    definition.spec.versions[0].served = served;
    definitions.replace("things.example.com", &PostParams::default(), &definition).await.expect("changed");
}

/// A definition that is not served for a while, or an API service that is made anew, costs nobody what it owns.
#[tokio::test]
async fn what_objects_own_outlives_that_their_kind_is_not_served() {
    let cluster = embedded("garbage-collector-controller").await;
    let client = &cluster.client;
    let maps: Api<ConfigMap> = api(client);
    define(client).await;
    let things = things(client);
    let thing = |metadata: Value| {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata});
        serde_json::from_value::<DynamicObject>(object).expect("an object")
    };
    let owner = things.create(&PostParams::default(), &thing(json!({"name": "owner"}))).await.expect("made");
    map(client, "child", owned_by("Thing", "example.com/v1", "owner", owner.metadata.uid.as_ref(), false))
        .await;
    // This one tells when the collector has lost sight of the kind: nothing that it sees holds it up any more.
    let waiter = map(client, "waiter", json!([])).await;
    let held = json!({
        "name": "held",
        "finalizers": ["example.com/held"],
        "ownerReferences": owned_by("ConfigMap", "v1", "waiter", waiter.metadata.uid.as_ref(), true),
    });
    things.create(&PostParams::default(), &thing(held)).await.expect("made");
    maps.delete("waiter", &DeleteParams::foreground()).await.expect("deleted");
    eventually("the collector sees what holds it up", || async {
        things.get("held").await.expect("it is held").metadata.deletion_timestamp
    })
    .await;
    serve(client, false).await;
    left(client, &["child"]).await;
    serve(client, true).await;
    eventually("it is served again", || async {
        things.get_opt("owner").await.ok().flatten().filter(|found| found.metadata.uid == owner.metadata.uid)
    })
    .await;
    assert_eq!(names(client).await, ["child"], "its owner was there all the time");
    things.delete("owner", &DeleteParams::background()).await.expect("deleted");
    left(client, &[]).await;
}

/// Owners are in the same namespace, or in none. A reference to another namespace means nobody, which is told.
#[tokio::test]
async fn owners_are_not_in_other_namespaces() {
    let cluster = embedded("garbage-collector-controller").await;
    let client = &cluster.client;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a namespace");
    namespaces.create(&PostParams::default(), &other).await.expect("created");
    let elsewhere: Api<ConfigMap> = Api::namespaced(client.clone(), "other");
    let owner = serde_json::from_value(json!({"metadata": {"name": "owner"}})).expect("a map");
    let owner: ConfigMap = elsewhere.create(&PostParams::default(), &owner).await.expect("created");
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = |metadata: Value| {
        serde_json::from_value::<ClusterRole>(json!({"metadata": metadata})).expect("a role")
    };
    let wide = roles.create(&PostParams::default(), &role(json!({"name": "wide"}))).await.expect("created");
    let of_wide =
        owned_by("ClusterRole", "rbac.authorization.k8s.io/v1", "wide", wide.metadata.uid.as_ref(), false);
    map(client, "of-wide", of_wide).await;
    let of_owner = owned_by("ConfigMap", "v1", "owner", owner.metadata.uid.as_ref(), false);
    let odd = json!({"name": "odd", "ownerReferences": of_owner});
    roles.create(&PostParams::default(), &role(odd)).await.expect("created");
    map(client, "stray", of_owner).await;
    left(client, &["of-wide"]).await;
    let uid = owner.metadata.uid.clone().expect("a uid");
    let message = format!(
        "ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: {uid}] does not exist in namespace \"default\""
    );
    let events: Api<Event> = api(client);
    eventually("it is told", || async {
        let events = events.list(&ListParams::default()).await.expect("events");
        let mut told =
            events.into_iter().filter(|event| event.reason.as_deref() == Some("OwnerRefInvalidNamespace"));
        told.find(|event| event.message.as_ref() == Some(&message))
    })
    .await;
    roles.delete("wide", &DeleteParams::background()).await.expect("deleted");
    left(client, &[]).await;
    assert!(elsewhere.get_opt("owner").await.expect("an answer").is_some());
    assert!(roles.get_opt("odd").await.expect("an answer").is_some(), "nobody can say what was meant");
}

#[tokio::test]
async fn x_02_to_x_04_in_this_process() {
    let cluster = embedded("garbage-collector-controller").await;
    background(&cluster.client).await;
    foreground(&cluster.client).await;
    orphan(&cluster.client).await;
}

#[tokio::test]
async fn x_02_to_x_04_on_a_real_api_server() {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return };
    let mut tasks = reconcile::Tasks::new();
    start(&cluster.client(), "garbage-collector-controller", &mut tasks);
    background(&cluster.client()).await;
    foreground(&cluster.client()).await;
    orphan(&cluster.client()).await;
}
