//! Kueue's older version on a cluster of ours and on a real one (API-2).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use operator::definitions::{Conversion, install};
use operator::webhooks::server::{Reach, Webhooks};
use reconcile::{Clock, Tasks};
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::operated;

fn api(client: &Client, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", version, kind));
    match kind {
        "Workload" | "LocalQueue" => Api::namespaced_with(client.clone(), "default", &resource),
        _ => Api::all_with(client.clone(), &resource),
    }
}

/// Manifests of the older version, each of a kind that differs, and a field that tells which version is shown.
fn manifests() -> Vec<(&'static str, Value, &'static str)> {
    let resources = json!([{ "name": "cpu", "nominalQuota": "4" }]);
    let groups =
        json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": resources }] }]);
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    vec![
        (
            "ClusterQueue",
            json!({
                "cohort": "all", "namespaceSelector": {}, "resourceGroups": groups, "admissionChecks": ["check"],
                "flavorFungibility": { "whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor" },
            }),
            "/spec/cohortName",
        ),
        ("LocalQueue", json!({ "clusterQueue": "older" }), "/spec/clusterQueue"),
        (
            "MultiKueueCluster",
            json!({ "kubeConfig": { "location": "worker", "locationType": "Secret" } }),
            "/spec/clusterSource/kubeConfig/location",
        ),
        (
            "Workload",
            json!({
                "queueName": "queue", "active": false, "priority": 5, "priorityClassName": "high",
                "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
                "podSets": [{ "name": "main", "count": 1, "template": template }],
            }),
            "/spec/priorityClassRef/kind",
        ),
        ("Cohort", json!({ "resourceGroups": groups }), "/spec/resourceGroups/0/coveredResources/0"),
    ]
}

/// What each manifest reads back as: its spec in the newer version, and in its own.
async fn read_back(client: &Client) -> anyhow::Result<Vec<(&'static str, Value, Value)>> {
    let mut all = Vec::new();
    for (kind, spec, told_by) in manifests() {
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind, "metadata": { "name": "older" }, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object)?;
        api(client, "v1beta1", kind).create(&PostParams::default(), &object).await?;
        let new = api(client, "v1beta2", kind).get("older").await?;
        let old = api(client, "v1beta1", kind).get("older").await?;
        assert!(new.data.pointer(told_by).is_some(), "{kind} has no {told_by}: {}", new.data);
        all.push((kind, new.data["spec"].clone(), old.data["spec"].clone()));
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_2_older_manifests_read_back_as_on_a_real_cluster() -> anyhow::Result<()> {
    let ours = operated("versions").await?;
    let here = read_back(&ours.client()).await?;
    assert_eq!(here[0].1["cohortName"], "all");
    assert_eq!(here[0].1["admissionChecksStrategy"]["admissionChecks"][0]["name"], "check");
    assert_eq!(here[0].1["flavorFungibility"]["whenCanBorrow"], "MayStopSearch");
    assert_eq!(here[0].2["cohort"], "all");
    assert_eq!(here[3].1["priorityClassRef"]["name"], "high");
    assert_eq!(here[3].2["priorityClassName"], "high");
    ours.stop().await;

    let Some(real) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = real.client();
    install(&client, &Conversion::Embedded).await?;
    let mut tasks = Tasks::new();
    let operator =
        operator::start(client.clone(), operator::Settings::default(), Clock::system(), &mut tasks);
    operator.ready().await;
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let _webhooks = Webhooks::start(operator, anywhere, Reach::Url, &mut tasks).await?;
    until_converted(&client).await?;
    assert_eq!(read_back(&client).await?, here);
    Ok(())
}

/// A real server takes a moment to hear who converts.
async fn until_converted(client: &Client) -> anyhow::Result<()> {
    for attempt in 0..400 {
        let name = format!("probe-{attempt}");
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": { "name": name },
            "spec": { "cohort": "probe", "namespaceSelector": {} },
        });
        let object: DynamicObject = serde_json::from_value(object)?;
        api(client, "v1beta1", "ClusterQueue").create(&PostParams::default(), &object).await?;
        let new = api(client, "v1beta2", "ClusterQueue").get(&name).await?;
        if new.data["spec"]["cohortName"] == "probe" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    anyhow::bail!("the server does not ask who converts")
}
