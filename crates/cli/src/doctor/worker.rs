//! One worker: whether it is reached, what its credentials may do, its queues and its clock.

use ::operator::{Settings, rbac};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use rules::dispatch::{CORDONED, GIVEN_UP};
use serde_json::{Value, json};
use types::kueue::{ClusterQueue, LocalQueue, MultiKueueCluster, StopPolicy};

use super::clock::{self, Ahead};
use super::{Findings, queues};
use crate::clusters::layout::{Layout, active, annotation};
use crate::clusters::{self, counterparts};
use crate::connect::{Manager, within};
use crate::join::{self, CONTEXT};
use crate::{cordon, failure};

/// Everything about a worker, whose clock is compared with the management cluster's. What cannot be asked is a finding and no error: the other workers are looked at anyway.
pub(super) async fn examine(
    manager: &Manager,
    layout: &Layout,
    cluster: &MultiKueueCluster,
    clock: Option<Ahead>,
    now: Timestamp,
) -> Findings {
    let (mut found, name) = (Findings::default(), cluster.metadata.name.clone().unwrap_or_default());
    let server = manager.server_of(cluster).await;
    connection(cluster, server.as_deref(), now, &mut found);
    let is_lost = active(cluster).is_none_or(|active| active.status != "True");
    let seen = match clusters::look(manager, &name).await {
        Ok(seen) => seen,
        // That nobody reaches it is said once.
        Err(error) if is_lost && failure::is_unreachable(&error) => return found,
        Err(error) if failure::is_not_found(&error) => {
            found.wrong(
                format!("worker {name} has no queues: Kueue's definitions are missing there"),
                format!("ferry install --context {}", annotation(cluster, CONTEXT).unwrap_or("CONTEXT")),
            );
            return found;
        }
        Err(error) => {
            found.wrong(
                format!("worker {name} cannot be asked: {}", failure::text(&error)),
                format!("is it up, and its kubeconfig still good? {} makes a new one", join::again(cluster)),
            );
            return found;
        }
    };
    for queue in layout.queues_to(&name) {
        expect_queue(cluster, queue, &seen.local_queues, &mut found);
    }
    for queue in counterparts(layout, &name, &seen.local_queues) {
        leads_somewhere(&name, queue, &seen.cluster_queues, &mut found);
    }
    if let Ok(worker) = manager.worker(&name).await {
        permissions(cluster, &worker.client, &mut found).await;
        if let Some(manager) = clock
            && let Some(there) = clock::ask(&format!("worker {name}"), &worker.client, &mut found).await
        {
            clock::judge_worker(&name, there, manager, &mut found);
        }
    }
    found
}

fn connection(cluster: &MultiKueueCluster, server: Option<&str>, now: Timestamp, found: &mut Findings) {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let is_given_up = annotation(cluster, GIVEN_UP).is_some();
    let Some(condition) = active(cluster) else {
        return found.wrong(
            format!("no operator has said anything about worker {name}"),
            "does one act on the management cluster?",
        );
    };
    let is_cordoned = annotation(cluster, CORDONED).is_some();
    if condition.status == "True" && (is_given_up || is_cordoned) {
        let said = if is_given_up { "said to be given up" } else { "cordoned" };
        let so = if is_cordoned { ": it is offered no new Jobs" } else { "" };
        return found
            .odd(format!("worker {name} is connected, and {said}{so}"), format!("ferry uncordon {name}"));
    }
    if condition.status == "True" {
        return found.fine(format!("worker {name} is connected"));
    }
    let since = crate::output::age(condition.last_transition_time.0, now);
    let at = server.map(|server| format!(", at {server}")).unwrap_or_default();
    let why = format!("{}: {}", condition.reason, condition.message);
    if is_given_up {
        return found.odd(
            format!("worker {name} is given up, and not connected for {since}{at}: {why}"),
            format!("to do without it: ferry leave {name} --force; if it comes back: ferry uncordon {name}"),
        );
    }
    let remedy = match condition.reason.as_str() {
        "BadKubeConfig" | "InsecureKubeConfig" => format!("{} makes a new kubeconfig", join::again(cluster)),
        "ClientConnectionFailed" => format!(
            "is the cluster up, and reached from where the operator runs? Jobs that it holds wait for it; \
             if it will not come back: ferry drain --given-up {name}"
        ),
        "AnotherCluster" => format!(
            "give the kubeconfig of that cluster back to {name}; if it is gone, and its Jobs with it: ferry drain --given-up {name}"
        ),
        _ => format!("{} makes a worker of a kubeconfig", join::again(cluster)),
    };
    found.wrong(format!("worker {name} is not connected for {since}{at}: {why}"), remedy);
}

fn expect_queue(cluster: &MultiKueueCluster, queue: &LocalQueue, there: &[LocalQueue], found: &mut Findings) {
    let at = cluster.metadata.name.as_deref().unwrap_or_default();
    let namespace = queue.metadata.namespace.as_deref().unwrap_or_default();
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let same = |other: &&LocalQueue| {
        other.metadata.name == queue.metadata.name && other.metadata.namespace == queue.metadata.namespace
    };
    let Some(there) = there.iter().find(same) else {
        return found.wrong(
            format!("worker {at} lacks queue {namespace}/{name}, so its Jobs never run there"),
            format!("{} --mirror-namespace {namespace}", join::again(cluster)),
        );
    };
    let policy = there.spec.stop_policy.unwrap_or_default();
    if policy == StopPolicy::None {
        return found.fine(format!("worker {at} has queue {namespace}/{name}"));
    }
    let holders = cordon::holders(&there.metadata);
    let others: Vec<&str> = holders.iter().copied().filter(|it| *it != cordon::MANAGER).collect();
    let by = if others.is_empty() { String::new() } else { format!(" by {}", others.join(" and ")) };
    let what = format!("queue {namespace}/{name} on worker {at} is stopped ({policy:?}){by}");
    if holders.contains(&cordon::MANAGER) {
        found.odd(what, format!("ferry uncordon {at}"));
    } else {
        found.odd(what, "if that is not meant: set its spec.stopPolicy to None there");
    }
}

/// Whether a queue of a worker has quota behind it.
fn leads_somewhere(cluster: &str, queue: &LocalQueue, there: &[ClusterQueue], found: &mut Findings) {
    let leads_to = &queue.spec.cluster_queue;
    match there.iter().find(|it| it.metadata.name.as_ref() == Some(leads_to)) {
        Some(leads_to) => queues::of_cluster_queue(&format!(" on {cluster}"), leads_to, found),
        None => found.wrong(
            format!(
                "queue {}/{} on worker {cluster} leads to ClusterQueue {leads_to}, which is not there",
                queue.metadata.namespace.as_deref().unwrap_or_default(),
                queue.metadata.name.as_deref().unwrap_or_default(),
            ),
            "create the ClusterQueue on the worker, or let the LocalQueue lead to another one",
        ),
    }
}

/// Whether the operator's credentials suffice, as the worker says of them.
async fn permissions(cluster: &MultiKueueCluster, client: &Client, found: &mut Findings) {
    let (again, cluster) = (join::again(cluster), cluster.metadata.name.as_deref().unwrap_or_default());
    let mut asked = Vec::new();
    for ask in rbac::worker(&Settings::default().dispatch.kinds) {
        for (resource, verb) in
            ask.resources.iter().flat_map(|it| ask.verbs.iter().map(move |verb| (it, verb)))
        {
            let (of, part) = resource.split_once('/').unwrap_or((resource, ""));
            let attributes = json!({
                "group": ask.group, "resource": of, "subresource": part, "verb": verb, "name": ask.names.first(),
            });
            asked.push((format!("{verb} {resource}"), attributes));
        }
    }
    let answers = asked.iter().map(|(_, attributes)| may(cluster, client, attributes));
    let answers = futures::future::join_all(answers).await;
    let mut missing = Vec::new();
    for ((what, _), answer) in asked.into_iter().zip(answers) {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(what),
            Err(error) => {
                let said = failure::text(&error);
                return found.odd(
                    format!("worker {cluster} does not say what may be done there: {said}"),
                    "try again; its API server should answer SelfSubjectAccessReviews to everybody",
                );
            }
        }
    }
    if missing.is_empty() {
        found.fine(format!("the credentials for worker {cluster} suffice"));
    } else {
        found.wrong(
            format!("the credentials for worker {cluster} do not allow to {}", missing.join(", ")),
            format!("{again} gives what is needed"),
        );
    }
}

async fn may(cluster: &str, client: &Client, attributes: &Value) -> anyhow::Result<bool> {
    let review = serde_json::from_value(json!({ "spec": { "resourceAttributes": attributes } }))?;
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = within(cluster, "ask for permissions", api.create(&params, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<K: serde::de::DeserializeOwned>(kind: &str, metadata: Value, spec: Value) -> K {
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec,
        });
        serde_json::from_value(object).expect("an object")
    }

    fn found(judge: impl Fn(&mut Findings)) -> (String, String) {
        let mut found = Findings::default();
        judge(&mut found);
        let finding = found.0.remove(0);
        (finding.what, finding.remedy)
    }

    fn east(annotations: Value) -> MultiKueueCluster {
        let metadata = json!({ "name": "east", "annotations": annotations });
        read("MultiKueueCluster", metadata, json!({ "clusterSource": {} }))
    }

    #[test]
    fn a_queue_that_leads_nowhere_on_a_worker_is_found() {
        let queue: LocalQueue = read(
            "LocalQueue",
            json!({ "name": "q", "namespace": "team" }),
            json!({ "clusterQueue": "gone" }),
        );
        let (what, remedy) = found(|found| leads_somewhere("east", &queue, &[], found));
        assert_eq!(what, "queue team/q on worker east leads to ClusterQueue gone, which is not there");
        assert!(!remedy.is_empty());
    }

    /// What is to be typed is told as far as it is known.
    #[test]
    fn a_worker_is_joined_again_by_the_context_that_it_was_joined_with() {
        let queue: LocalQueue =
            read("LocalQueue", json!({ "name": "q", "namespace": "team" }), json!({ "clusterQueue": "q" }));
        let remedy = |cluster: &MultiKueueCluster| found(|found| expect_queue(cluster, &queue, &[], found)).1;
        assert_eq!(remedy(&east(json!({}))), "ferry join CONTEXT --name east --mirror-namespace team");
        assert_eq!(remedy(&east(json!({ CONTEXT: "east" }))), "ferry join east --mirror-namespace team");
        assert_eq!(
            remedy(&east(json!({ CONTEXT: "prod" }))),
            "ferry join prod --name east --mirror-namespace team"
        );
    }

    #[test]
    fn a_worker_that_is_back_and_given_up_is_odd() {
        let mut cluster =
            serde_json::to_value(east(json!({ GIVEN_UP: "2026-01-02T10:00:00Z", CORDONED: "true" })))
                .expect("JSON");
        cluster["status"] = json!({ "conditions": [{
            "type": "Active", "status": "True", "reason": "Active", "message": "Connected",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] });
        let cluster: MultiKueueCluster = serde_json::from_value(cluster).expect("a worker");
        let (what, remedy) = found(|found| connection(&cluster, None, Timestamp::UNIX_EPOCH, found));
        assert_eq!(what, "worker east is connected, and said to be given up: it is offered no new Jobs");
        assert_eq!(remedy, "ferry uncordon east");
    }
}
