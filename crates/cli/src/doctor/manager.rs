//! The management cluster itself: definitions, who acts, and whether webhooks answer.

use ::operator::definitions;
use ::operator::leader::LEASE;
use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::Findings;
use crate::clusters::layout::Layout;
use crate::connect::Manager;
use crate::{actors, failure};

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
pub(super) async fn leases(manager: &Manager, now: Timestamp, found: &mut Findings) -> anyhow::Result<()> {
    let leases = actors::leases(manager).await?;
    let of = |lease: &&Lease| lease.metadata.namespace.as_ref() == Some(&manager.operator_namespace);
    let own = leases.iter().find(of);
    // An embedded cluster brings its operator along, which waits for nobody.
    let is_embedded = own.is_none() && is_embedded(manager).await;
    if !is_embedded {
        judge_lease(own.and_then(|lease| lease.spec.as_ref()), manager, now, found);
    }
    let own_actor = is_embedded.then(|| "the operator of this embedded cluster".to_owned());
    let acting: Vec<String> =
        own_actor.into_iter().chain(leases.iter().filter_map(|lease| actors::actor(lease, now))).collect();
    if acting.len() > 1 {
        found.wrong(
            format!("{} act on queues at once: {}", acting.len(), acting.join(" and ")),
            "each waits only for the Lease in its own namespace: stop all but one, or give all the same \
             --namespace (ferry install --operator-namespace)",
        );
    }
    let there = actors::programs(manager).await?;
    if there.len() > 1 {
        let names: Vec<String> = there.iter().map(ToString::to_string).collect();
        found.odd(
            format!("two programs want to act on queues: {}", names.join(" and ")),
            "only the one with the Lease does; stop the other: kubectl -n NAMESPACE scale deployment NAME --replicas=0",
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
            format!(
                "the clock of {holder}, who acts, is {} s ahead of the management cluster's",
                -since.as_secs()
            ),
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
            judge_refusal(&format!("{namespace}/{name}"), &said, found);
        }
    }
    Ok(())
}

/// Why a Job in a queue would not be created. Only what an operator left behind is to be taken away.
fn judge_refusal(queue: &str, said: &str, found: &mut Findings) {
    if said.contains("failed calling webhook") && said.contains(".kb.io\"") {
        return found.wrong(
            format!("no Job can be created, since a webhook of the operator does not answer: {said}"),
            "start its operator; or, if it will not come back: kubectl delete \
             mutatingwebhookconfiguration kueue-mutating-webhook-configuration, and the validating one",
        );
    }
    let remedy = if said.contains("failed calling webhook") {
        "that webhook is not the operator's: whoever installed it has to start it again, or take it away"
    } else {
        "if such Jobs are to run, ask whoever set up what refuses it"
    };
    found.odd(format!("a Job in queue {queue} would be refused: {said}"), remedy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Grade;

    /// Nobody is told to delete Kueue's webhooks because somebody else's policy said no.
    #[test]
    fn only_a_silent_webhook_of_the_operator_is_to_be_taken_away() {
        let judged = |said: &str| {
            let mut found = Findings::default();
            judge_refusal("team/q", said, &mut found);
            let finding = found.0.remove(0);
            (finding.grade, finding.remedy.contains("kubectl delete"), finding.remedy.is_empty())
        };
        let silent = |name: &str| {
            format!("Internal error occurred: failed calling webhook \"{name}\": Post \"https://x\": EOF")
        };
        assert_eq!(judged(&silent("mjob.kb.io")), (Grade::Wrong, true, false));
        assert_eq!(judged(&silent("validation.gatekeeper.sh")), (Grade::Odd, false, false));
        for denied in ["validation.gatekeeper.sh", "vjob.kb.io"] {
            let said = format!("admission webhook \"{denied}\" denied the request: no");
            assert_eq!(judged(&said), (Grade::Odd, false, false), "{denied}");
        }
        assert_eq!(judged("jobs is forbidden: exceeded quota: small"), (Grade::Odd, false, false));
    }
}
