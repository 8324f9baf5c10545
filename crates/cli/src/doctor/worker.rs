//! One worker: whether it is reached, what its credentials may do, its queues and its clock.

use ::operator::{Settings, rbac};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use types::kueue::{LocalQueue, MultiKueueCluster};

use super::clock::{self, Ahead};
use super::{Findings, Grade, queues};
use crate::clusters::layout::{Layout, active};
use crate::clusters::{self, counterparts};
use crate::connect::{Manager, within};
use crate::failure;

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
    connection(cluster, &name, server.as_deref(), now, &mut found);
    let is_lost = found.count(Grade::Wrong) > 0;
    let seen = match clusters::look(manager, &name).await {
        Ok(seen) => seen,
        // That nobody reaches it is said once.
        Err(error) if is_lost && failure::is_unreachable(&error) => return found,
        Err(error) => {
            found.wrong(
                format!("worker {name} cannot be asked: {}", failure::text(&error)),
                format!("is it up, and its kubeconfig still good? ferry join CONTEXT --name {name} makes a new one"),
            );
            return found;
        }
    };
    for queue in layout.queues_to(&name) {
        expect_queue(&name, queue, &seen.local_queues, &mut found);
    }
    for queue in counterparts(layout, &name, &seen.local_queues) {
        let leads_to = seen
            .cluster_queues
            .iter()
            .find(|it| it.metadata.name.as_ref() == Some(&queue.spec.cluster_queue));
        if let Some(leads_to) = leads_to {
            queues::of_cluster_queue(&format!(" on {name}"), leads_to, &mut found);
        }
    }
    if let Ok(worker) = manager.worker(&name).await {
        permissions(&name, &worker.client, &mut found).await;
        if let Some(manager) = clock
            && let Some(there) = clock::ask(&format!("worker {name}"), &worker.client, &mut found).await
        {
            clock::judge_worker(&name, there, manager, &mut found);
        }
    }
    found
}

fn connection(
    cluster: &MultiKueueCluster,
    name: &str,
    server: Option<&str>,
    now: Timestamp,
    found: &mut Findings,
) {
    let Some(condition) = active(cluster) else {
        return found.wrong(
            format!("no operator has said anything about worker {name}"),
            "does one act on the management cluster?",
        );
    };
    if condition.status == "True" {
        return found.fine(format!("worker {name} is connected"));
    }
    let remedy = match condition.reason.as_str() {
        "BadKubeConfig" | "InsecureKubeConfig" => {
            format!("ferry join CONTEXT --name {name} makes a new kubeconfig")
        }
        "ClientConnectionFailed" => format!(
            "is the cluster up, and reached from where the operator runs? Jobs that it holds wait for it; \
             if it will not come back: ferry drain --given-up {name}"
        ),
        _ => "ferry join makes a worker of a kubeconfig".to_owned(),
    };
    let since = crate::output::age(condition.last_transition_time.0, now);
    let at = server.map(|server| format!(", at {server}")).unwrap_or_default();
    let why = format!("{}: {}", condition.reason, condition.message);
    found.wrong(format!("worker {name} is not connected for {since}{at}: {why}"), remedy);
}

fn expect_queue(cluster: &str, queue: &LocalQueue, there: &[LocalQueue], found: &mut Findings) {
    let namespace = queue.metadata.namespace.as_deref().unwrap_or_default();
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let same = |other: &&LocalQueue| {
        other.metadata.name == queue.metadata.name && other.metadata.namespace == queue.metadata.namespace
    };
    let Some(there) = there.iter().find(same) else {
        return found.wrong(
            format!("worker {cluster} lacks queue {namespace}/{name}, so its Jobs never run there"),
            format!("ferry join CONTEXT --name {cluster} --mirror-namespace {namespace}"),
        );
    };
    match there.spec.stop_policy.unwrap_or_default() {
        types::kueue::StopPolicy::None => {
            found.fine(format!("worker {cluster} has queue {namespace}/{name}"));
        }
        policy => found.odd(
            format!("queue {namespace}/{name} on worker {cluster} is stopped ({policy:?})"),
            format!("ferry uncordon {cluster}"),
        ),
    }
}

/// Whether the operator's credentials suffice, as the worker says of them.
async fn permissions(cluster: &str, client: &Client, found: &mut Findings) {
    let mut asked = Vec::new();
    for ask in rbac::worker(&Settings::default().dispatch.kinds) {
        for resource in &ask.resources {
            asked.extend(ask.verbs.iter().map(|verb| (ask.group, resource.clone(), *verb)));
        }
    }
    let answers = asked.iter().map(|(group, resource, verb)| may(cluster, client, group, resource, verb));
    let answers = futures::future::join_all(answers).await;
    let mut missing = Vec::new();
    for ((_, resource, verb), answer) in asked.iter().zip(answers) {
        match answer {
            Ok(true) => {}
            Ok(false) => missing.push(format!("{verb} {resource}")),
            Err(error) => {
                let said = failure::text(&error);
                return found
                    .odd(format!("worker {cluster} does not say what may be done there: {said}"), "");
            }
        }
    }
    if missing.is_empty() {
        found.fine(format!("the credentials for worker {cluster} suffice"));
    } else {
        found.wrong(
            format!("the credentials for worker {cluster} do not allow to {}", missing.join(", ")),
            format!("ferry join CONTEXT --name {cluster} gives what is needed"),
        );
    }
}

async fn may(
    cluster: &str,
    client: &Client,
    group: &str,
    resource: &str,
    verb: &str,
) -> anyhow::Result<bool> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes =
        json!({ "group": group, "resource": resource, "subresource": subresource, "verb": verb });
    let review = serde_json::from_value(json!({ "spec": { "resourceAttributes": attributes } }))?;
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = within(cluster, "ask for permissions", api.create(&params, &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
