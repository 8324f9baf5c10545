//! What becomes of pods, Deployments and StatefulSets that are submitted to a queue, and what may not become of them: on a
//! cluster of ours, on a real one that asks us, and on one that asks Kueue.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::PodSpec;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use operator::definitions::{Conversion, install};
use rules::framework::pod::role;
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::{asks_us, operated};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
const RETRIABLE: &str = "kueue.x-k8s.io/retriable-in-group";

fn of_kind(client: &Client, kind: &str) -> Api<DynamicObject> {
    let group = if matches!(kind, "Pod" | "Namespace") { "" } else { "apps" };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    match kind {
        "Namespace" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), "default", &resource),
    }
}

async fn create(client: &Client, kind: &str, object: Value) -> Result<DynamicObject, kube::Error> {
    let parsed = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    of_kind(client, kind).create(&PostParams::default(), &parsed).await
}

fn spec() -> Value {
    json!({ "containers": [{
        "name": "c", "image": "i", "ports": [{ "containerPort": 80 }], "resources": { "requests": { "cpu": "1" } },
    }] })
}

fn pod(name: &str, labels: Value, annotations: Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels, "annotations": annotations }, "spec": spec() })
}

fn of_apps(kind: &str, name: &str, labels: &Value) -> Value {
    let mut object = json!({
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": spec() },
        },
    });
    if kind == "StatefulSet" {
        object["spec"]["serviceName"] = json!(name);
    }
    object
}

/// JF-70, MK-DEP-01, MK-STS-01: what is submitted waits, or makes pods that do.
async fn waits(client: &Client) -> anyhow::Result<()> {
    let made = create(client, "Pod", pod("queued", json!({ QUEUE: "a" }), json!({}))).await?;
    let labels = made.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get(MANAGED).map(String::as_str), Some("true"));
    assert_eq!(made.metadata.finalizers, Some(vec![MANAGED.to_owned()]));
    let gates = json!([{ "name": "kueue.x-k8s.io/admission" }, { "name": "kueue.x-k8s.io/topology" }]);
    assert_eq!(made.data["spec"]["schedulingGates"], gates);
    let written = made.metadata.annotations.unwrap_or_default();
    let hash = role::hash(&serde_json::from_value::<PodSpec>(made.data["spec"].clone())?);
    assert_eq!(written.get("kueue.x-k8s.io/role-hash"), Some(&hash), "what makes a role is the same to all");

    let plain = create(client, "Pod", pod("plain", json!({}), json!({}))).await?;
    assert_eq!((plain.metadata.finalizers, plain.data["spec"].get("schedulingGates")), (None, None));

    let marks = |object: &DynamicObject| object.data["spec"]["template"]["metadata"].clone();
    let deployment =
        create(client, "Deployment", of_apps("Deployment", "web", &json!({ QUEUE: "a" }))).await?;
    let (labels, annotations) =
        (marks(&deployment)["labels"].clone(), marks(&deployment)["annotations"].clone());
    assert_eq!(labels, json!({ "app": "web", QUEUE: "a", MANAGED: "true" }));
    assert_eq!(annotations, json!({ PARENT: "deployment" }));
    let set = create(client, "StatefulSet", of_apps("StatefulSet", "db", &json!({ QUEUE: "a" }))).await?;
    assert_eq!(marks(&set)["labels"], json!({ "app": "db" }));
    assert_eq!(marks(&set)["annotations"], json!({ PARENT: "statefulset" }));
    let plain = create(client, "Deployment", of_apps("Deployment", "plain", &json!({}))).await?;
    assert_eq!(marks(&plain)["annotations"], Value::Null);
    // One that comes into a queue later says so to the pods that it makes from then on.
    let moved = Patch::Merge(json!({ "metadata": { "labels": { QUEUE: "a" } } }));
    let moved = of_kind(client, "Deployment").patch("plain", &PatchParams::default(), &moved).await?;
    assert_eq!(marks(&moved)["annotations"], json!({ PARENT: "deployment" }));
    Ok(())
}

/// What is done, with what, and what is wrong with it. What has no name is new.
fn refused() -> Vec<(&'static str, &'static str, Value, String)> {
    let both = |place: &str| format!("both the '{COUNT}' annotation and the '{GROUP}' {place} should be set");
    let at = |place: &str, key: &str| format!("metadata.{place}[{key}]");
    let new = |labels: Value, annotations: Value| pod("refused", labels, annotations);
    let marked = |place: &str, key: &str, value: Value| json!({ "metadata": { place: { key: value } } });
    vec![
        (
            "Pod",
            "",
            new(json!({ QUEUE: "a", MANAGED: "no" }), json!({ PARENT: "nobody" })),
            format!("{}: Forbidden: managed label value can only be 'true'", at("labels", MANAGED)),
        ),
        (
            "Pod",
            "",
            new(json!({ QUEUE: "a", GROUP: "g" }), json!({})),
            format!("{}: Required value: {}", at("annotations", COUNT), both("label")),
        ),
        (
            "Pod",
            "",
            new(json!({ QUEUE: "a" }), json!({ COUNT: "2" })),
            format!("{}: Required value: {}", at("labels", GROUP), both("label")),
        ),
        (
            "Pod",
            "",
            new(json!({ QUEUE: "a" }), json!({ GROUP: "g" })),
            format!("{}: Required value: {}", at("annotations", COUNT), both("annotation")),
        ),
        (
            "Pod",
            "",
            new(json!({ QUEUE: "a", GROUP: "g" }), json!({ COUNT: "two" })),
            format!(
                "{}: Invalid value: \"two\": strconv.Atoi: parsing \"two\": invalid syntax",
                at("annotations", COUNT)
            ),
        ),
        (
            "Pod",
            "",
            new(
                json!({ QUEUE: "a", GROUP: "g" }),
                json!({ COUNT: "2", "kueue.x-k8s.io/prebuilt-workload-name": "h" }),
            ),
            format!(
                "{}: Invalid value: \"h\": prebuilt workload and pod group should be equal",
                at("annotations", "kueue.x-k8s.io/prebuilt-workload-name")
            ),
        ),
        (
            "Pod",
            "",
            new(json!({ QUEUE: "a" }), json!({ "kueue.x-k8s.io/elastic-job": "true" })),
            format!(
                "{}: Forbidden: elastic job is not supported for \"/v1, Kind=Pod\"",
                at("annotations", "kueue.x-k8s.io/elastic-job")
            ),
        ),
        (
            "Pod",
            "member",
            marked("labels", GROUP, json!("h")),
            format!("{}: Invalid value: \"h\": field is immutable", at("labels", GROUP)),
        ),
        (
            "Pod",
            "member",
            marked("annotations", RETRIABLE, json!("true")),
            format!(
                "{}: Forbidden: unretriable pod group can't be converted to retriable",
                at("annotations", RETRIABLE)
            ),
        ),
        (
            "Deployment",
            "web",
            marked("labels", QUEUE, Value::Null),
            format!("{}: Invalid value: \"\": field is immutable", at("labels", QUEUE)),
        ),
        (
            "StatefulSet",
            "db",
            marked("labels", QUEUE, Value::Null),
            format!("{}: Invalid value: \"\": field is immutable", at("labels", QUEUE)),
        ),
        (
            "StatefulSet",
            "db",
            json!({ "spec": { "replicas": 3 } }),
            "spec.replicas: Invalid value: 3: field is immutable".to_owned(),
        ),
        (
            "StatefulSet",
            "db",
            json!({ "spec": { "template": { "spec": { "nodeSelector": { "zone": "z" } } } } }),
            r#"spec.template.spec.nodeSelector: Invalid value: {"zone":"z"}: field is immutable"#.to_owned(),
        ),
        (
            "StatefulSet",
            "db",
            json!({ "spec": { "template": { "spec": { "containers": [
                { "name": "c", "image": "i", "ports": [{ "containerPort": 80, "protocol": "TCP" }], "resources": { "requests": { "cpu": "2" } } },
            ] } } } }),
            r#"spec.template.spec.containers[0].resources.requests: Invalid value: {"cpu":"2"}: field is immutable"#
                .to_owned(),
        ),
    ]
}

async fn refuses(client: &Client) -> anyhow::Result<()> {
    let member = pod("member", json!({ QUEUE: "a", GROUP: "g" }), json!({ COUNT: "2", RETRIABLE: "false" }));
    create(client, "Pod", member).await?;
    for (kind, name, what, why) in refused() {
        let done = match name {
            "" => create(client, kind, what).await,
            name => of_kind(client, kind).patch(name, &PatchParams::default(), &Patch::Merge(what)).await,
        };
        let Err(kube::Error::Api(status)) = done else { anyhow::bail!("not {why}: {done:?}") };
        let by = format!("v{}.kb.io", kind.to_lowercase());
        let denied = format!("admission webhook \"{by}\" denied the request: {why}");
        assert_eq!((status.code, status.message), (403, denied));
    }
    let to_nothing = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    of_kind(client, "StatefulSet").patch("db", &PatchParams::default(), &to_nothing).await?;
    Ok(())
}

async fn plays(client: &Client) -> anyhow::Result<()> {
    Box::pin(waits(client)).await?;
    Box::pin(refuses(client)).await
}

/// A real server takes a moment to hear whom to ask.
async fn until_asked(client: &Client) -> anyhow::Result<()> {
    for (kind, object) in [
        ("Pod", pod("probe", json!({ MANAGED: "no" }), json!({ PARENT: "nobody" }))),
        ("Deployment", of_apps("Deployment", "probe", &json!({ QUEUE: "a_b" }))),
        ("StatefulSet", of_apps("StatefulSet", "probe", &json!({ QUEUE: "a_b" }))),
    ] {
        let mut attempt = 0;
        loop {
            let mut object = object.clone();
            object["metadata"]["name"] = json!(format!("probe-{attempt}"));
            if create(client, kind, object).await.is_err() {
                break;
            }
            attempt += 1;
            anyhow::ensure!(attempt < 400, "the server does not ask about {kind}s");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    // Who is asked to change new pods is heard of apart from who judges them.
    for attempt in 0..400 {
        let probe =
            create(client, "Pod", pod(&format!("late-{attempt}"), json!({ QUEUE: "a" }), json!({}))).await?;
        if probe.data["spec"].get("schedulingGates").is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the server does not ask about new pods")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_70_in_the_process_of_a_cluster() -> anyhow::Result<()> {
    let cluster = operated("waiting").await?;
    Box::pin(plays(&cluster.client())).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_70_by_a_real_server_that_asks_us() -> anyhow::Result<()> {
    let Some(real) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = real.client();
    let _asking = asks_us(&real).await?;
    Box::pin(until_asked(&client)).await?;
    Box::pin(plays(&client)).await
}

/// The judge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_70_by_a_real_server_that_asks_kueue() -> anyhow::Result<()> {
    let Some(real) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = real.client();
    install(&client, &Conversion::Embedded).await?;
    create(&client, "Namespace", json!({ "metadata": { "name": "kueue-system" } })).await?;
    let frameworks = json!({ "frameworks": ["batch/job", "pod", "deployment", "statefulset"] });
    let kueue = real.kueue(&json!({ "integrations": frameworks })).await?;
    let (port, certificate) = kueue.webhooks();
    for (kind, letter, verb) in
        [("MutatingWebhookConfiguration", 'm', "mutate"), ("ValidatingWebhookConfiguration", 'v', "validate")]
    {
        let asked = [("", "pod"), ("apps", "deployment"), ("apps", "statefulset")].map(|(group, name)| {
            let operations = if letter == 'm' && name == "pod" { json!(["CREATE"]) } else { json!(["CREATE", "UPDATE"]) };
            json!({
                "name": format!("{letter}{name}.kb.io"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "rules": [{
                    "apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [format!("{name}s")],
                }],
                "clientConfig": {
                    "url": format!("https://127.0.0.1:{port}/{verb}-{group}-v1-{name}"),
                    "caBundle": ByteString(certificate.as_bytes().to_vec()),
                },
            })
        });
        let object = json!({ "metadata": { "name": "kueue" }, "webhooks": asked });
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    Box::pin(until_asked(&client)).await?;
    Box::pin(plays(&client)).await
}
