//! How many pods budgets let go, by what the controllers of their pods want, on an API server in this process.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{api, create, define, embedded, eventually, set_phase, things};
use crate::job::job;

fn owner(kind: &str, version: &str, name: &str, uid: Option<&String>) -> Value {
    json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true}])
}

async fn ready_pod(client: &Client, name: &str, app: &str, owners: Value) {
    let metadata = json!({"name": name, "labels": {"app": app}, "ownerReferences": owners});
    let spec = json!({"containers": [{"name": "main", "image": "x"}]});
    create::<Pod>(client, json!({"metadata": metadata, "spec": spec})).await;
    let ready = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    api::<Pod>(client).patch_status(name, &PatchParams::default(), &ready).await.expect("ready");
}

async fn budget(
    client: &Client,
    app: &str,
    wanted: impl Fn(&PodDisruptionBudgetStatus) -> bool,
) -> PodDisruptionBudgetStatus {
    let spec = json!({"maxUnavailable": "50%", "selector": {"matchLabels": {"app": app}}});
    create::<PodDisruptionBudget>(client, json!({"metadata": {"name": app}, "spec": spec})).await;
    eventually(&format!("the budget of {app} is what it should be"), || async {
        api::<PodDisruptionBudget>(client).get(app).await.expect("a budget").status.filter(&wanted)
    })
    .await
}

fn has_failed(why: &'static str) -> impl Fn(&PodDisruptionBudgetStatus) -> bool {
    move |status| {
        let conditions = status.conditions.iter().flatten();
        let mut failed = conditions.filter(|it| it.status == "False" && it.reason == "SyncFailed");
        failed.any(|it| it.message == why) && status.disruptions_allowed == 0
    }
}

#[tokio::test]
async fn a_budget_counts_what_the_controllers_of_its_pods_want() {
    let cluster = embedded("disruption-controller").await;
    let client = &cluster.client;
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    });
    let spec = |replicas: i32| json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let deployment: Deployment = create(client, json!({"metadata": {"name": "web"}, "spec": spec(4)})).await;
    let owners = owner("Deployment", "apps/v1", "web", deployment.metadata.uid.as_ref());
    // In the middle of a rollout: both of its sets are smaller than what it wants.
    for (name, replicas) in [("old", 3), ("new", 2)] {
        let metadata = json!({"name": name, "ownerReferences": owners});
        let set: ReplicaSet = create(client, json!({"metadata": metadata, "spec": spec(replicas)})).await;
        ready_pod(client, name, "web", owner("ReplicaSet", "apps/v1", name, set.metadata.uid.as_ref())).await;
    }
    budget(client, "web", |status| (status.expected_pods, status.desired_healthy) == (4, 2)).await;

    define(client).await;
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "thing"}, "spec": {"replicas": 3},
    });
    let thing: DynamicObject = serde_json::from_value(thing).expect("an object");
    let thing = things(client).create(&PostParams::default(), &thing).await.expect("created");
    let owners = owner("Thing", "example.com/v1", "thing", thing.metadata.uid.as_ref());
    ready_pod(client, "thing", "thing", owners).await;
    budget(client, "thing", |status| status.expected_pods == 3).await;
}

#[tokio::test]
async fn a_budget_lets_nobody_go_when_a_controller_does_not_say_what_it_wants() {
    let cluster = embedded("disruption-controller").await;
    let client = &cluster.client;
    let owned: Job = create(client, job("job", json!({"suspend": true}))).await;
    ready_pod(client, "job", "job", owner("Job", "batch/v1", "job", owned.metadata.uid.as_ref())).await;
    let status =
        budget(client, "job", has_failed("jobs.batch does not implement the scale subresource")).await;
    assert_eq!(status.disruptions_allowed, 0);

    let nobody = "11111111-2222-3333-4444-555555555555".to_owned();
    ready_pod(client, "lost", "lost", owner("ReplicaSet", "apps/v1", "lost", Some(&nobody))).await;
    budget(client, "lost", has_failed("found no controllers for pod \"lost\"")).await;
    ready_pod(client, "odd", "odd", owner("Odd", "example.com/v1", "odd", Some(&nobody))).await;
    budget(client, "odd", has_failed("no matches for kind \"Odd\" in version \"example.com/v1\"")).await;

    // Pods that nobody controls do not count, as numbers do not need them to.
    ready_pod(client, "alone", "alone", json!([])).await;
    budget(client, "alone", |status| {
        let conditions = status.conditions.iter().flatten();
        status.expected_pods == 0 && conditions.into_iter().any(|it| it.reason == "InsufficientPods")
    })
    .await;
    budget(client, "nobody", |status| status.expected_pods == 0).await;
    // A pod that has ended counts like one that runs: budgets should not match any.
    let ended = ["ended-1", "ended-2"];
    for name in ended {
        ready_pod(client, name, "ended", owner("Job", "batch/v1", "job", owned.metadata.uid.as_ref())).await;
        set_phase(client, &api::<Pod>(client).get(name).await.expect("a pod"), "Succeeded").await;
    }
    budget(client, "ended", has_failed("jobs.batch does not implement the scale subresource")).await;

    let events: Api<k8s_openapi::api::core::v1::Event> = api(client);
    for (about, expected, message) in [
        (
            "lost",
            "CalculateExpectedPodCountFailed",
            "Failed to calculate the number of expected pods: found no controllers for pod \"lost\"",
        ),
        (
            "alone",
            "UnmanagedPods",
            "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: \
             alone,},MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. As a result, the \
             status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for \
             these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
        ),
        ("nobody", "NoPods", "No matching pods found"),
    ] {
        eventually("it is told", || async {
            let events = events.list(&kube::api::ListParams::default()).await.expect("events");
            let mut told =
                events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(about));
            told.find(|told| {
                told.reason.as_deref() == Some(expected) && told.message.as_deref() == Some(message)
            })
        })
        .await;
    }
}

/// Whoever marked the pod died before it deleted it.
#[tokio::test]
async fn p_4_22_a_pod_that_was_to_go_and_is_not_deleted_says_so_no_more() {
    let cluster = embedded("disruption-controller").await;
    let client = &cluster.client;
    let now = Timestamp::now();
    for (name, since, reason) in [
        ("stays", SignedDuration::from_secs(118), "DeletionByTaintManager"),
        ("goes", SignedDuration::ZERO, "EvictionByEvictionAPI"),
        ("shut-down", SignedDuration::from_hours(1), "TerminationByKubelet"),
    ] {
        ready_pod(client, name, name, json!([])).await;
        let target = json!({
            "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "why",
            "lastTransitionTime": Time(now - since),
        });
        let marked = Patch::Strategic(json!({"status": {"conditions": [target]}}));
        api::<Pod>(client).patch_status(name, &PatchParams::default(), &marked).await.expect("marked");
    }
    let target = async |name: &str| {
        let status = api::<Pod>(client).get(name).await.expect("a pod").status.expect("a status");
        let target = status.conditions.into_iter().flatten().find(|it| it.type_ == "DisruptionTarget");
        target.expect("it was to go")
    };
    let taken_back = eventually("it is taken back", || async {
        Some(target("stays").await).filter(|target| target.status == "False")
    })
    .await;
    assert_eq!(
        (taken_back.reason, taken_back.message, taken_back.observed_generation),
        (None, None, Some(1))
    );
    assert!(taken_back.last_transition_time.is_some_and(|time| time.0 >= now), "it has changed");
    for name in ["goes", "shut-down"] {
        assert_eq!(target(name).await.status, "True", "{name}");
    }
}
