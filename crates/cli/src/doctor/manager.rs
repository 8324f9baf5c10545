//! The management cluster itself: definitions, who acts, and whether webhooks answer.

use ::operator::definitions;
use ::operator::leader::LEASE;
use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::Findings;
use crate::clusters::layout::Layout;
use crate::connect::Manager;
use crate::failure;

/// Programs that act on queues, by their Deployments.
const PROGRAMS: [&str; 2] = ["ferry", "kueue-controller-manager"];

/// Whether what all the rest depends on is there.
pub(super) async fn definitions(manager: &Manager, found: &mut Findings) -> anyhow::Result<bool> {
    let api: Api<CustomResourceDefinition> = Api::all(manager.client.clone());
    let mut missing = Vec::new();
    for name in definitions::names() {
        let there = api.get_opt(&name).await;
        if there.with_context(|| format!("failed to read the definition of {name}"))?.is_none() {
            missing.push(name);
        }
    }
    let context = manager.context_name();
    if missing.is_empty() {
        found.fine(format!("{context} has all definitions"));
    } else {
        found.wrong(
            format!("{context} lacks the definitions of {}", missing.join(", ")),
            format!("ferry install --context {context}"),
        );
    }
    Ok(missing.is_empty())
}

/// Whether somebody acts, and only one.
pub(super) async fn lease(manager: &Manager, now: Timestamp, found: &mut Findings) -> anyhow::Result<()> {
    let api: Api<Lease> = Api::namespaced(manager.client.clone(), &manager.operator_namespace);
    let lease = api.get_opt(LEASE).await.context("failed to read the Lease of the operator")?;
    // An embedded cluster brings its operator along, which waits for nobody.
    let is_embedded = lease.is_none() && is_embedded(manager).await;
    if !is_embedded {
        judge_lease(lease.and_then(|lease| lease.spec).as_ref(), manager, now, found);
    }
    let api: Api<Deployment> = Api::namespaced(manager.client.clone(), &manager.operator_namespace);
    let mut there = Vec::new();
    for name in PROGRAMS {
        let program = api.get_opt(name).await.context("failed to look for operators")?;
        let replicas = program.map(|program| program.spec.and_then(|spec| spec.replicas).unwrap_or(1));
        there.extend(replicas.filter(|replicas| *replicas > 0).map(|_| name));
    }
    if there.len() > 1 {
        found.odd(
            format!("two programs want to act on queues: {}", there.join(" and ")),
            format!(
                "only the one with the Lease does; stop the other: kubectl -n {} scale deployment NAME --replicas=0",
                manager.operator_namespace
            ),
        );
    }
    Ok(())
}

async fn is_embedded(manager: &Manager) -> bool {
    let version = manager.client.apiserver_version().await;
    version.is_ok_and(|version| version.git_version.contains("ferry"))
}

fn judge_lease(spec: Option<&LeaseSpec>, manager: &Manager, now: Timestamp, found: &mut Findings) {
    let start = "start an operator: ferry install, or ferry operator";
    let place = format!("{}/{LEASE}", manager.operator_namespace);
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let Some((spec, holder)) = spec.zip(holder) else {
        found.wrong(format!("nobody acts on queues: nobody has the Lease {place}"), start);
        return;
    };
    let renewed = spec.renew_time.as_ref().map(|renewed| now.duration_since(renewed.0));
    let lasts = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(15)));
    match renewed {
        Some(since) if since < -lasts => found.wrong(
            format!("the clock of {holder}, who acts, is {} s ahead of this machine's", -since.as_secs()),
            "set both clocks by the same source",
        ),
        Some(since) if since <= lasts => found.fine(format!("{holder} acts on queues")),
        _ => found.wrong(
            format!("nobody acts on queues: {holder} has not renewed the Lease {place} in time"),
            start,
        ),
    }
}

/// A Job in a queue has to wait; whether it would is asked without creating it.
pub(super) async fn webhooks(manager: &Manager, layout: &Layout, found: &mut Findings) -> anyhow::Result<()> {
    let Some(queue) = layout.local_queues.first() else { return Ok(()) };
    let namespace = queue.metadata.namespace.as_deref().unwrap_or_default();
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let container = json!({ "name": "c", "image": "i" });
    let probe = json!({
        "metadata": { "generateName": "ferry-doctor-", "labels": { "kueue.x-k8s.io/queue-name": name } },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } },
    });
    let probe: Job = serde_json::from_value(probe).context("failed to write a Job")?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let api: Api<Job> = Api::namespaced(manager.client.clone(), namespace);
    match api.create(&params, &probe).await {
        Ok(job) if job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)) => {
            found.fine("Jobs in queues wait for their quota");
        }
        Ok(_) => {
            let configurations: Api<MutatingWebhookConfiguration> = Api::all(manager.client.clone());
            let there = configurations.get_opt("kueue-mutating-webhook-configuration").await.ok().flatten();
            let why = if there.is_some() { "is there and changes nothing" } else { "is missing" };
            found.wrong(
                format!("Jobs in queues start without waiting for quota: the webhook configuration {why}"),
                "run the operator with --webhook-listen, and with --webhook-service inside of the cluster; \
                 until then create Jobs with suspend: true",
            );
        }
        Err(error) => {
            let said = failure::text(&anyhow::Error::from(error));
            if said.contains("webhook") {
                found.wrong(
                    format!("no Job can be created, since a webhook does not answer: {said}"),
                    "start its operator; or, if it will not come back: kubectl delete \
                     mutatingwebhookconfiguration kueue-mutating-webhook-configuration, and the validating one",
                );
            } else {
                found.odd(format!("a Job in queue {namespace}/{name} would be refused: {said}"), "");
            }
        }
    }
    Ok(())
}
