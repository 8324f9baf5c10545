//! Nodes that an autoscaler is asked for before a Workload starts. The autoscaler is played by the test.

use anyhow::Context as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{World, checks::is_rejected};
use crate::world::{define_requests, suspended};

const CLASS: &str = "check-capacity.autoscaling.x-k8s.io";

/// A queue whose Workloads start once there are nodes. Returns the name of its check.
async fn queue_with_nodes(world: &World, retries: i32) -> anyhow::Result<String> {
    let (check, config) = (world.name_of("nodes"), world.name_of("config"));
    let parameters =
        json!({ "apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": config });
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": { "name": check },
            "spec": { "controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters },
        }))
        .await?;
    world.is("AdmissionCheck", &check, "Active=False/BadParametersRef").await?;
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ProvisioningRequestConfig",
            "metadata": { "name": config },
            "spec": {
                "provisioningClassName": CLASS, "parameters": { "zone": "a" },
                "retryStrategy": { "backoffLimitCount": retries, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1 },
                "podSetUpdates": { "nodeSelector": [
                    { "key": "made-for", "valueFromProvisioningClassDetail": "group" },
                ] },
            },
        }))
        .await?;
    world.is("AdmissionCheck", &check, "Active=True/Active").await?;
    let checks = json!({ "admissionChecks": [{ "name": check }] });
    world.queue("a", "2", json!({ "admissionChecksStrategy": checks })).await?;
    Ok(check)
}

/// What the autoscaler says to a request.
async fn answered(world: &World, request: &str, kind: &str, message: &str) -> anyhow::Result<()> {
    let condition = json!({
        "type": kind, "status": "True", "reason": "Played", "message": message,
        "lastTransitionTime": jiff::Timestamp::now().to_string(),
    });
    let status = json!({ "conditions": [condition], "provisioningClassDetails": { "group": "g1" } });
    world.patch_status("ProvisioningRequest", request, status).await
}

fn owner(object: &DynamicObject) -> Value {
    let owners = object.metadata.owner_references.iter().flatten();
    json!(owners.map(|owner| format!("{} {}", owner.kind, owner.name)).collect::<Vec<_>>())
}

/// PRC-2, PRC-4, PRC-5: nodes are asked for when there is quota, the Job starts on them, and the request goes with it.
pub(super) async fn prc_2_nodes_first(world: &World) -> anyhow::Result<()> {
    if !define_requests(&world.client).await? {
        return Ok(());
    }
    let check = queue_with_nodes(world, 3).await?;
    let more = json!({
        "metadata": { "annotations": { "provreq.kueue.x-k8s.io/maxRunDurationSeconds": "60" } },
    });
    let workload = world.job("job", "a", "1", more).await?;
    let request = format!("{workload}-{check}-1");
    let template = format!("ppt-{request}-main");
    let made = world.there("ProvisioningRequest", &request, |_| true).await?;
    assert_eq!(
        made.data["spec"],
        json!({
            "provisioningClassName": CLASS, "parameters": { "zone": "a", "maxRunDurationSeconds": "60" },
            "podSets": [{ "podTemplateRef": { "name": template }, "count": 1 }],
        })
    );
    assert_eq!(owner(&made), json!([format!("Workload {workload}")]));
    let of_request = json!([format!("ProvisioningRequest {request}")]);
    let pods = world.there("PodTemplate", &template, |it| owner(it) == of_request).await?;
    assert_eq!(pods.data["template"]["spec"]["nodeSelector"], json!({ "pool": "default" }));
    assert!(suspended(&world.jobs().get("job").await?), "nothing starts before there are nodes");

    answered(world, &request, "Provisioned", "there they are").await?;
    world.shows(&workload, &["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"]).await?;
    let job = world.sees_job("job", "started", |job| !suspended(job)).await?;
    let template = job.spec.context("a spec")?.template;
    let selector = template.spec.context("a pod")?.node_selector;
    assert_eq!(json!(selector), json!({ "made-for": "g1", "pool": "default" }));
    let annotations = template.metadata.and_then(|it| it.annotations).unwrap_or_default();
    let of = |key: &str| annotations.get(&format!("autoscaling.x-k8s.io/{key}")).cloned().unwrap_or_default();
    assert_eq!(
        (of("consume-provisioning-request"), of("provisioning-class-name")),
        (request.clone(), CLASS.to_owned())
    );
    world.runs("job").await?;
    world.completes("job").await?;
    world.workload(&workload, "finished", rules::workload::is_finished).await?;
    world.gone("ProvisioningRequest", &request).await
}

/// PRC-4: what fails is tried again as often as settings say, and then no more.
pub(super) async fn prc_4_no_nodes(world: &World) -> anyhow::Result<()> {
    if !define_requests(&world.client).await? {
        return Ok(());
    }
    let check = queue_with_nodes(world, 1).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    for attempt in 1..=2 {
        let request = format!("{workload}-{check}-{attempt}");
        world.there("ProvisioningRequest", &request, |_| true).await?;
        answered(world, &request, "Failed", "nothing is left").await?;
        world.gone("ProvisioningRequest", &request).await?;
    }
    is_rejected(world, &workload, &check, "nothing is left").await
}
