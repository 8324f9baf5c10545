//! The management cluster itself: definitions, who acts, and whether webhooks answer.

use ::operator::definitions::{self, State};
use ::operator::leader::LEASE;
use ::operator::visibility::{GROUP, VERSIONS};
use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::Findings;
use crate::clusters::layout::Layout;
use crate::connect::Manager;
use crate::install::UPDATE_KUEUE;
use crate::{actors, failure};

/// Whether what all the rest depends on is there.
pub(super) async fn definitions(manager: &Manager, found: &mut Findings) -> anyhow::Result<bool> {
    let states = definitions::states(&manager.client).await?;
    Ok(judge_definitions(&manager.context_name(), &states, found))
}

fn judge_definitions(context: &str, states: &[(&'static str, State)], found: &mut Findings) -> bool {
    let of = |wanted: State| -> Vec<&str> {
        states.iter().filter(|(_, state)| *state == wanted).map(|(name, _)| *name).collect()
    };
    let (missing, too_old) = (of(State::Missing), of(State::Unusable));
    if !too_old.is_empty() {
        let version = definitions::VERSION;
        found.wrong(format!("{context} does not serve {} in {version}", too_old.join(", ")), UPDATE_KUEUE);
    } else if !missing.is_empty() {
        found.wrong(
            format!("{context} lacks the definitions of {}", missing.join(", ")),
            format!("ferry install --context {context}"),
        );
    } else {
        found.fine(format!("{context} has all definitions"));
    }
    too_old.is_empty() && missing.is_empty()
}

/// Whether somebody acts, and only one.
pub(super) async fn leases(manager: &Manager, now: Timestamp, found: &mut Findings) -> anyhow::Result<()> {
    let leases = actors::leases(manager).await?;
    let of = |lease: &&Lease| lease.metadata.namespace.as_ref() == Some(&manager.operator_namespace);
    let own = leases.iter().find(of);
    // An embedded cluster brings its operator along, which waits for nobody.
    let is_embedded = own.is_none() && definitions::is_embedded(&manager.client).await.unwrap_or(false);
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

/// Whether those answer whom the cluster asks who waits where. One who does not is asked about more than that.
pub(super) async fn visibility(manager: &Manager, found: &mut Findings) {
    let api: Api<APIService> = Api::all(manager.client.clone());
    for version in VERSIONS {
        // Whoever may not see them has no need to; that there is none is meant so.
        if let Ok(Some(there)) = api.get_opt(&format!("{version}.{GROUP}")).await {
            judge_api_service(&there, found);
        }
    }
}

fn judge_api_service(there: &APIService, found: &mut Findings) {
    let name = there.metadata.name.as_deref().unwrap_or_default();
    let conditions = there.status.as_ref().and_then(|status| status.conditions.as_ref());
    let Some(available) = conditions.into_iter().flatten().find(|it| it.type_ == "Available") else { return };
    if available.status == "True" {
        return found.fine(format!("the API service {name} is available"));
    }
    let why = available.message.as_deref().unwrap_or("without a reason");
    found.wrong(
        format!("the API service {name} is not available, and no namespace can be deleted: {why}"),
        format!("start its operator with --visibility-listen; or, if it will not come back: kubectl delete apiservice {name}"),
    );
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

    /// Definitions of a Kueue that is too old are not taken for fine, and `ferry install` is no remedy.
    #[test]
    fn definitions_that_are_too_old_are_wrong() {
        let judged = |states: &[(&'static str, State)]| {
            let mut found = Findings::default();
            let goes_on = judge_definitions("east", states, &mut found);
            let finding = found.0.remove(0);
            (goes_on, finding.grade, finding.what, finding.remedy)
        };
        let (usable, missing) = (("a", State::Usable), ("b", State::Missing));
        let (goes_on, grade, what, _) = judged(&[usable, ("c", State::Older)]);
        assert_eq!((goes_on, grade, what.as_str()), (true, Grade::Fine, "east has all definitions"));
        let (goes_on, grade, what, remedy) = judged(&[usable, missing]);
        assert_eq!((goes_on, grade, what.as_str()), (false, Grade::Wrong, "east lacks the definitions of b"));
        assert_eq!(remedy, "ferry install --context east");
        let (goes_on, grade, what, remedy) = judged(&[usable, missing, ("c", State::Unusable)]);
        assert_eq!(
            (goes_on, grade, what.as_str()),
            (false, Grade::Wrong, "east does not serve c in v1beta2")
        );
        assert!(remedy.contains("v0.15"), "{remedy}");
    }

    #[test]
    fn an_api_service_behind_which_nobody_answers_is_wrong() {
        let judged = |status: serde_json::Value| {
            let there = json!({ "metadata": { "name": "v1.x" }, "status": status });
            let mut found = Findings::default();
            judge_api_service(&serde_json::from_value(there).expect("an APIService"), &mut found);
            found.0.pop().map(|finding| (finding.grade, finding.what))
        };
        let available = |status: &str| json!({ "conditions": [{ "type": "Available", "status": status, "message": "no endpoints" }] });
        let fine = judged(available("True")).expect("a finding");
        assert_eq!(fine, (Grade::Fine, "the API service v1.x is available".to_owned()));
        let (grade, what) = judged(available("False")).expect("a finding");
        assert_eq!(grade, Grade::Wrong);
        assert!(
            what.contains("v1.x") && what.contains("namespace") && what.ends_with("no endpoints"),
            "{what}"
        );
        assert_eq!(judged(json!({})), None, "it is not known yet");
    }

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
