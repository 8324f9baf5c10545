//! Deletes pods that nobody will: too many that have ended, those of nodes that are gone or out of service, and those
//! that were deleted before they had a node.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, Patch};
use reconcile::Key;
use rules::pod_gc::{Removal, decide};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::context::Context;
use crate::{Run, api};

/// As often as Kubernetes looks.
const PERIOD: Duration = Duration::from_secs(20);
/// A node that is missing may be on its way: its pods are left alone for so long.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Deletions that are under way at once.
const AT_ONCE: usize = 32;

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let (pods, nodes) = (context.kinds.pods.wanted(), context.kinds.nodes.wanted());
    let context = context.clone();
    Box::pin(async move {
        pods.ready().await;
        nodes.ready().await;
        let mut missing: BTreeMap<String, Instant> = BTreeMap::new();
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            look(&context, &mut missing).await;
        }
    })
}

/// Looks at all pods once. `missing` remembers since when a node has been missing.
async fn look(context: &Context, missing: &mut BTreeMap<String, Instant>) {
    let (pods, nodes) = (context.kinds.pods.all(), context.kinds.nodes.all());
    let known: BTreeMap<String, &Node> = nodes.iter().map(|node| (node.name_any(), &**node)).collect();
    let now = Instant::now();
    let named = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    let absent: BTreeMap<String, Instant> = named
        .filter(|name| !name.is_empty() && !known.contains_key(name))
        .map(|name| (name.clone(), missing.get(&name).copied().unwrap_or(now)))
        .collect();
    *missing = absent;
    let mut gone = Vec::new();
    for (name, since) in missing.iter().filter(|(_, since)| now.duration_since(**since) >= QUARANTINE) {
        let nodes: Api<Node> = Api::all(context.client.clone());
        match nodes.get_opt(name).await {
            Ok(None) => gone.push(name.clone()),
            Ok(Some(_)) => {}
            Err(error) => {
                let since = since.elapsed();
                warn!(
                    node = name,
                    ?since,
                    error = reconcile::chain(&error),
                    "failed to look for a missing node"
                );
            }
        }
    }
    let removals = decide(pods.iter().map(|pod| &**pod), &known, &gone, context.settings.terminated_pods);
    let work = removals.iter().map(|removal| remove(context, removal).boxed());
    for (removal, result) in removals.iter().zip(api::together(AT_ONCE, work.collect()).await) {
        let pod = Key::of(removal.pod);
        match result {
            Ok(()) => info!(%pod, because = removal.because, "deleted"),
            Err(error) => warn!(%pod, error = reconcile::chain(&error), "failed to delete"),
        }
    }
}

async fn remove(context: &Context, removal: &Removal<'_>) -> kube::Result<()> {
    let pod = removal.pod;
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
    if removal.mark_failed {
        let generation = pod.metadata.generation;
        let mut status = json!({"phase": "Failed", "observedGeneration": generation});
        if let Some((reason, message)) = removal.disruption {
            let condition = PodCondition {
                type_: "DisruptionTarget".to_owned(),
                status: "True".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                observed_generation: generation,
                last_transition_time: Some(Time(context.clock.now())),
                ..PodCondition::default()
            };
            status["conditions"] = json!([condition]);
        }
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": status}));
        pods.patch_status(&pod.name_any(), &api::patch(), &patch).await?;
    }
    let mut params = api::delete(pod.uid().as_deref(), None);
    params.grace_period_seconds = Some(0);
    match pods.delete(&pod.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => Ok(()),
        Err(error) => Err(error),
    }
}
