//! Who is put into the LocalQueue `default` although no queue was named, and who of them waits there.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use operator::definitions::{Conversion, install};
use operator::{Operator, Settings};
use reconcile::{Clock, Tasks};
use rules::webhook::Kind;
use serde_json::{Value, json};

use crate::{dispatch::fleet::eventually, world::World};

const NAMESPACE: &str = "team";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// Whole Jobs of three kinds, of which nobody queues the second by itself: group, version, kind, and name in paths.
const OWNERS: [(&str, &str, &str, &str); 3] = [
    ("example.com", "v1", "Foo", "foos"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("workload.codeflare.dev", "v1beta2", "AppWrapper", "appwrappers"),
];

async fn define(client: &Client) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (group, version, kind, plural) in OWNERS {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({
            "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
        });
        let definition = json!({ "metadata": { "name": format!("{plural}.{group}") }, "spec": {
            "group": group, "scope": "Namespaced", "versions": [version],
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
        } });
        definitions.create(&PostParams::default(), &serde_json::from_value(definition)?).await?;
    }
    Ok(())
}

fn api(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// Creates an object of one of the kinds. Returns a reference to it as the controller.
async fn owner(client: &Client, number: usize, queue: &str, of: Option<Value>) -> anyhow::Result<Value> {
    let (group, version, kind, _) = OWNERS[number];
    let labels = if queue.is_empty() { json!({}) } else { json!({ QUEUE: queue }) };
    let name = format!("whole-{number}");
    let metadata = json!({ "name": name, "labels": labels, "ownerReferences": Vec::from_iter(of) });
    let api_version = format!("{group}/{version}");
    let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
    let made = api(client, group, version, kind)
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    let uid = made.metadata.uid.unwrap_or_default();
    Ok(json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true }))
}

/// The queue that a new Job gets which names none, and whether it waits.
async fn becomes(operator: &Operator, of: Option<&Value>) -> anyhow::Result<(Value, Value)> {
    let metadata = json!({ "name": "j", "namespace": NAMESPACE, "ownerReferences": Vec::from_iter(of) });
    let container = json!({ "name": "c", "image": "i" });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": { "template": template } });
    let after = operator.default(Kind::Job, NAMESPACE, &job).await?;
    Ok((after["metadata"]["labels"][QUEUE].clone(), after["spec"]["suspend"].clone()))
}

/// JF-6, LQ-6. Who is part of what is queued is not suspended a second time: nobody would start it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_6_who_is_part_of_a_queued_job_does_not_wait_in_the_default_queue() -> anyhow::Result<()> {
    let client = World::embedded_cluster().await?;
    install(&client, &Conversion::Embedded).await?;
    define(&client).await?;
    let namespace = serde_json::from_value(json!({ "metadata": { "name": NAMESPACE } }))?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let settings = Settings {
        frameworks: ["batch/job", "workload.codeflare.dev/appwrapper"].into(),
        external_frameworks: vec![("example.com".to_owned(), "Foo".to_owned())],
        ..Settings::default()
    };
    let mut tasks = Tasks::new();
    let operator = operator::start(client.clone(), settings, Clock::system(), &mut tasks);
    operator.ready().await;

    let queues = api(&client, "kueue.x-k8s.io", "v1beta2", "LocalQueue");
    let queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": { "name": "default" },
        "spec": { "clusterQueue": "q" },
    });
    queues.create(&PostParams::default(), &serde_json::from_value(queue)?).await?;
    let put_into = async |queue: Value, waits: Value| {
        eventually(&format!("a Job of nobody is in {queue}"), async || {
            let became = becomes(&operator, None).await?;
            Ok((became == (queue.clone(), waits.clone())).then_some(()))
        })
        .await
    };
    put_into(json!("default"), json!(true)).await?;

    let of_external = owner(&client, 0, "q", None).await?;
    assert_eq!(becomes(&operator, Some(&of_external)).await?, (Value::Null, Value::Null), "external");
    let topmost = owner(&client, 2, "q", None).await?;
    let between = owner(&client, 1, "", Some(topmost)).await?;
    let further_down = becomes(&operator, Some(&between)).await?;
    assert_eq!(further_down, (json!("default"), Value::Null), "further down");

    // LQ-4, LQ-6: a stopped queue is none.
    for (policy, queue, waits) in [
        ("Hold", Value::Null, Value::Null),
        ("None", json!("default"), json!(true)),
        ("HoldAndDrain", Value::Null, Value::Null),
    ] {
        let stop = Patch::Merge(json!({ "spec": { "stopPolicy": policy } }));
        queues.patch("default", &PatchParams::default(), &stop).await?;
        put_into(queue, waits).await?;
    }

    // MK-WH-04: who is put into it although it is stopped can be dispatched later.
    for (kind, name, spec) in [
        ("AdmissionCheck", "dispatch", json!({ "controllerName": "kueue.x-k8s.io/multikueue" })),
        (
            "ClusterQueue",
            "q",
            json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "dispatch" }] } }),
        ),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind));
        let object = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec });
        Api::<DynamicObject>::all_with(client.clone(), &resource)
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
    }
    let job = json!({
        "metadata": { "name": "j", "labels": { QUEUE: "default" } },
        "spec": { "template": { "spec": { "containers": [] } } },
    });
    eventually("a Job in a stopped queue has a manager", async || {
        let after = operator.default(Kind::Job, NAMESPACE, &job).await?;
        Ok((after["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue").then_some(()))
    })
    .await?;
    tasks.stop().await;
    Ok(())
}
