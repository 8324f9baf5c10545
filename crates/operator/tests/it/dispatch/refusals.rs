//! Workers that will not have a Workload, and how its user learns of it.

use k8s_openapi::api::{batch::v1::Job, events::v1::Event};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use types::kueue::Workload;

use super::fleet::{Fleet, Site, WORKERS, eventually, job};

const LONELY: &str = "lonely";

/// A namespace with a queue, as far as a cluster has neither.
async fn home(site: &Site) -> anyhow::Result<()> {
    site.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LONELY}})).await?;
    let (kueue, metadata) = ("kueue.x-k8s.io/v1beta2", json!({"name": "team", "namespace": LONELY}));
    let spec = json!({"clusterQueue": "team"});
    site.create(json!({"apiVersion": kueue, "kind": "LocalQueue", "metadata": metadata, "spec": spec})).await
}

async fn message(fleet: &Fleet) -> anyhow::Result<String> {
    let api: Api<Workload> = Api::namespaced(fleet.manager.client.clone(), LONELY);
    let workloads = api.list(&ListParams::default()).await?.items;
    let checks = workloads.iter().flat_map(|it| it.status.iter()).flat_map(|it| &it.admission_checks);
    Ok(checks.map(|check| check.message.clone()).collect::<Vec<_>>().join(", "))
}

/// MK-COPY-04, MK-ADP-08, MK-EVT-01, MK-EVT-02: nothing that a Job needs is copied with it. A worker without its namespace refuses it; that is
/// said in the check and in an event, it is asked again, and the other one is not kept from taking it.
pub(super) async fn a_namespace_is_missing(fleet: &mut Fleet) -> anyhow::Result<()> {
    home(&fleet.manager).await?;
    let mut object = job("homeless", json!({}));
    object["metadata"]["namespace"] = json!(LONELY);
    fleet.manager.create(object).await?;
    let missing = "namespaces \"lonely\" not found";
    let expected = format!("Waiting for a worker cluster: east: {missing}; west: {missing}");
    eventually("the check says what is missing", async || {
        let said = message(fleet).await?;
        if said == expected { Ok(Some(())) } else { anyhow::bail!("it says {said:?}") }
    })
    .await?;
    for worker in WORKERS {
        let note = format!("Worker cluster \"{worker}\" refused the workload: {missing}");
        let told = eventually("it is told", async || {
            let events: Api<Event> = Api::namespaced(fleet.manager.client.clone(), LONELY);
            let events = events.list(&ListParams::default()).await?;
            Ok(events.items.into_iter().find(|event| event.note.as_deref() == Some(&note)))
        })
        .await?;
        assert_eq!(told.reporting_controller.as_deref(), Some("kueue-workload-controller"));
        assert_eq!((told.reason.as_deref(), told.type_.as_deref()), (Some("MultiKueue"), Some("Warning")));
        assert_eq!(told.regarding.and_then(|about| about.kind).as_deref(), Some("Workload"));
    }
    home(&fleet.workers["west"]).await?;
    let jobs: Api<Job> = Api::namespaced(fleet.manager.client.clone(), LONELY);
    eventually("it completes where it can", async || {
        let status = jobs.get("homeless").await?.status.unwrap_or_default();
        let complete = status.conditions.unwrap_or_default().into_iter().any(|it| it.type_ == "Complete");
        Ok(complete.then_some(()))
    })
    .await?;
    let told: Vec<Value> = {
        let events: Api<Event> = Api::namespaced(fleet.manager.client.clone(), LONELY);
        let events = events.list(&ListParams::default()).await?.items;
        events
            .into_iter()
            .filter_map(|event| event.note)
            .filter(|note| note.contains("admitted on"))
            .map(Value::from)
            .collect()
    };
    assert_eq!(told, ["The workload was admitted on \"west\""], "once (MK-FLOW-27)");
    fleet.clean().await
}
