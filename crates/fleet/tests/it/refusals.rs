//! What may not become of a queued Job, said by a cluster of ours, by a real one that asks us, and by one that asks Kueue.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use operator::definitions::{Conversion, install};
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::{asks_us, operated};

const PATIENCE: Duration = Duration::from_secs(60);
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const TIME_LIMIT: &str = "kueue.x-k8s.io/max-exec-time-seconds";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const LEAST: &str = "kueue.x-k8s.io/job-min-parallelism";
const EQUAL: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";

/// What somebody does.
enum Doing {
    /// He changes a Job.
    Changes(&'static str, Value),
    /// He submits one to a queue, with annotations.
    Submits(&'static str, &'static str, Value),
}

/// JF-24, JF-34, JF-35: what is done to Jobs, and what is wrong with it.
fn refused() -> Vec<(Doing, &'static str)> {
    vec![
        (
            Doing::Changes("running", labelled(QUEUE, json!("b"))),
            r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "b": field is immutable"#,
        ),
        (
            Doing::Changes("running", labelled(QUEUE, Value::Null)),
            r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "": field is immutable"#,
        ),
        (
            Doing::Changes("running", annotated(PREBUILT, "other")),
            r#"metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: "other": field is immutable"#,
        ),
        (
            Doing::Changes("running", labelled(TIME_LIMIT, json!("60"))),
            r#"metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: "60": field is immutable"#,
        ),
        (
            Doing::Changes("running", labelled(CLASS, json!("high"))),
            r#"metadata.labels[kueue.x-k8s.io/priority-class]: Invalid value: "high": WorkloadPriorityClass cannot be added to a non-suspended workload"#,
        ),
        (
            Doing::Changes("running", annotated(ELASTIC, "true")),
            "metadata.annotations[kueue.x-k8s.io/elastic-job]: Invalid value: true: field is immutable",
        ),
        (
            Doing::Changes("partial", json!({ "spec": { "parallelism": 2 } })),
            "spec.parallelism: Forbidden: cannot change when partial admission is enabled and the job is not suspended",
        ),
        (
            Doing::Changes("equal", annotated(EQUAL, "false")),
            "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]: Forbidden: field is immutable while the job is not suspended",
        ),
        (
            Doing::Submits("none", "a", json!({ LEAST: "0" })),
            "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: 0: should be between 0 and 2",
        ),
        (
            Doing::Submits("nowhere", "a_b", json!({})),
            r#"metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ),
    ]
}

fn labelled(key: &str, value: Value) -> Value {
    json!({ "metadata": { "labels": { key: value } } })
}

fn annotated(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// A Job of three pods in a queue.
fn job(name: &str, queue: &str, annotations: Value) -> Job {
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    let spec = json!({
        "parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": template,
    });
    let metadata = json!({ "name": name, "labels": { QUEUE: queue }, "annotations": annotations });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a Job")
}

fn jobs(client: &Client) -> Api<Job> {
    Api::namespaced(client.clone(), "default")
}

async fn create(client: &Client, kind: &str, name: &str, spec: Value) -> anyhow::Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind));
    let api: Api<DynamicObject> = match kind {
        "LocalQueue" => Api::namespaced_with(client.clone(), "default", &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec,
    });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Two queues, and Jobs that run in one of them.
async fn prepare(client: &Client) -> anyhow::Result<()> {
    create(client, "ResourceFlavor", "default", json!({})).await?;
    let resources = json!([{ "name": "cpu", "nominalQuota": "20" }]);
    let group =
        json!({ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": resources }] });
    create(client, "ClusterQueue", "q", json!({ "namespaceSelector": {}, "resourceGroups": [group] }))
        .await?;
    for queue in ["a", "b"] {
        create(client, "LocalQueue", queue, json!({ "clusterQueue": "q" })).await?;
    }
    let running =
        [("running", json!({})), ("partial", json!({ LEAST: "1" })), ("equal", json!({ EQUAL: "true" }))];
    for (name, annotations) in running {
        let made = jobs(client).create(&PostParams::default(), &job(name, "a", annotations)).await?;
        anyhow::ensure!(made.spec.and_then(|spec| spec.suspend) == Some(true), "{name} does not wait");
        let runs = |job: Option<&Job>| {
            job.and_then(|job| job.spec.as_ref()).is_some_and(|spec| spec.suspend == Some(false))
        };
        tokio::time::timeout(PATIENCE, await_condition(jobs(client), name, runs)).await??;
    }
    Ok(())
}

/// All of it is refused, and nothing else.
async fn refuses(client: &Client) -> anyhow::Result<()> {
    Box::pin(prepare(client)).await?;
    let (jobs, params) = (jobs(client), PatchParams::default());
    for (doing, why) in refused() {
        let done = match doing {
            Doing::Changes(name, patch) => jobs.patch(name, &params, &Patch::Merge(patch)).await,
            Doing::Submits(name, queue, annotations) => {
                jobs.create(&PostParams::default(), &job(name, queue, annotations)).await
            }
        };
        let Err(kube::Error::Api(status)) = done else { anyhow::bail!("not {why}: {done:?}") };
        let denied = format!("admission webhook \"vjob.kb.io\" denied the request: {why}");
        assert_eq!((status.code, status.message), (403, denied));
    }
    // Who waits may still go elsewhere, and who runs may be told more about himself.
    jobs.create(&PostParams::default(), &job("waits", "nobodys", json!({}))).await?;
    jobs.patch("waits", &params, &Patch::Merge(labelled(QUEUE, json!("alike")))).await?;
    jobs.patch("running", &params, &Patch::Merge(annotated("example.com/seen", "true"))).await?;
    Box::pin(stopped_by_default(client)).await
}

/// LQ-4, LQ-6: nobody is put into a LocalQueue `default` that is stopped, and nobody has to be in one.
async fn stopped_by_default(client: &Client) -> anyhow::Result<()> {
    create(client, "LocalQueue", "default", json!({ "clusterQueue": "q", "stopPolicy": "Hold" })).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "LocalQueue"));
    let queues: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let is_known = |queue: Option<&DynamicObject>| {
        queue.is_some_and(|queue| queue.data["status"]["conditions"][0]["reason"] == "Stopped")
    };
    tokio::time::timeout(PATIENCE, await_condition(queues, "default", is_known)).await??;
    let mut unnamed = job("unnamed", "", json!({}));
    unnamed.metadata.labels = None;
    let made = jobs(client).create(&PostParams::default(), &unnamed).await?;
    assert_eq!(made.spec.and_then(|spec| spec.suspend), Some(false));
    assert_eq!(made.metadata.labels.unwrap_or_default().get(QUEUE), None);
    let leaves = Patch::Merge(labelled(QUEUE, Value::Null));
    jobs(client).patch("waits", &PatchParams::default(), &leaves).await?;
    Ok(())
}

/// Waits until a real server asks about Jobs: it takes a moment to hear of it.
async fn until_asked(client: &Client) -> anyhow::Result<()> {
    for attempt in 0..400 {
        let probe = job(&format!("probe-{attempt}"), "nobodys", json!({}));
        let made = jobs(client).create(&PostParams::default(), &probe).await?;
        if made.spec.and_then(|spec| spec.suspend) == Some(true) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the server does not ask about Jobs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_34_in_the_process_of_a_cluster() -> anyhow::Result<()> {
    let cluster = operated("refusals").await?;
    Box::pin(refuses(&cluster.client())).await?;
    cluster.stop().await;
    Ok(())
}

/// WH-1: a server that cannot ask writes nothing that it would have to ask about, and everything else; WH-2: Jobs of the
/// system among it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_34_by_a_real_server_that_asks_us() -> anyhow::Result<()> {
    let Some(real) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = real.client();
    let (webhooks, mut tasks) = asks_us(&real).await?;
    until_asked(&client).await?;
    Box::pin(refuses(&client)).await?;

    drop(webhooks);
    tasks.stop().await;
    let unasked = |done: Result<Job, kube::Error>, webhook: &str| {
        let Err(kube::Error::Api(status)) = done else { panic!("{webhook}: accepted {done:?}") };
        assert_eq!(status.code, 500, "{status:?}");
        let failed = format!("Internal error occurred: failed calling webhook \"{webhook}\": ");
        assert!(status.message.starts_with(&failed), "{status:?}");
    };
    let late = job("late", "a", json!({}));
    unasked(jobs(&client).create(&PostParams::default(), &late).await, "mjob.kb.io");
    let seen = Patch::Merge(annotated("example.com/seen", "again"));
    unasked(jobs(&client).patch("running", &PatchParams::default(), &seen).await, "vjob.kb.io");
    create(&client, "LocalQueue", "late", json!({ "clusterQueue": "q" })).await?;
    let system: Api<Job> = Api::namespaced(client.clone(), "kube-system");
    system.create(&PostParams::default(), &late).await?;
    Ok(())
}

/// The judge of what is refused, and in which words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jf_34_by_a_real_server_that_asks_kueue() -> anyhow::Result<()> {
    let Some(real) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = real.client();
    install(&client, &Conversion::Embedded).await?;
    let core: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace")));
    let home = json!({ "metadata": { "name": "kueue-system" } });
    core.create(&PostParams::default(), &serde_json::from_value(home)?).await?;
    let kueue = real.kueue(&json!({})).await?;
    let (port, certificate) = kueue.webhooks();
    for (kind, letter, path, operations) in [
        ("MutatingWebhookConfiguration", 'm', "mutate", json!(["CREATE"])),
        ("ValidatingWebhookConfiguration", 'v', "validate", json!(["CREATE", "UPDATE"])),
    ] {
        let rules = json!([{
            "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": operations, "resources": ["jobs"],
        }]);
        let object = json!({ "metadata": { "name": "kueue" }, "webhooks": [{
            "name": format!("{letter}job.kb.io"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "rules": rules,
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/{path}-batch-v1-job"),
                "caBundle": ByteString(certificate.as_bytes().to_vec()),
            },
        }] });
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    until_asked(&client).await?;
    Box::pin(refuses(&client)).await?;
    Ok(())
}
