//! Nodes that are not heard of: says so, and keeps new pods off them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, Patch};
use reconcile::Key;
use rules::node_health::{Heard, conditions_of_lost, is_disrupted, is_falsely_ready, taints};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::context::Context;
use crate::{Run, api};

/// As often as Kubernetes looks.
const PERIOD: Duration = Duration::from_secs(5);
/// Leases of nodes are here.
const LEASES: &str = "kube-node-lease";

/// Says what the node lifecycle controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let (nodes, leases, pods) =
        (context.kinds.nodes.wanted(), context.kinds.leases.wanted(), context.kinds.pods.wanted());
    let context = context.clone();
    Box::pin(async move {
        nodes.ready().await;
        leases.ready().await;
        pods.ready().await;
        let mut seen = Seen::default();
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            look(&context, &mut seen).await;
        }
    })
}

/// What is remembered between two looks.
#[derive(Default)]
struct Seen {
    /// When each node was last heard of.
    heard: BTreeMap<String, Heard>,
    /// Whether none of them was ready.
    disrupted: bool,
}

/// Looks at all nodes once.
async fn look(context: &Context, seen: &mut Seen) {
    let now = context.clock.now();
    let patience = SignedDuration::try_from(context.settings.node_patience).unwrap_or(SignedDuration::MAX);
    let nodes = context.kinds.nodes.all();
    seen.heard.retain(|name, _| nodes.iter().any(|node| node.name_any() == *name));
    let failed = |name: &str, error: &kube::Error| {
        warn!(node = name, error = reconcile::chain(error), "failed to say how a node is");
    };
    for node in &nodes {
        let name = node.name_any();
        let lease = context.kinds.leases.get(&Key::new(LEASES, &name));
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0));
        let last = Heard::listen(seen.heard.get(&name), node, renewed, now);
        let lost = last.lost_at(patience) <= now;
        seen.heard.insert(name.clone(), last);
        if lost && let Err(error) = say_lost(context, node).await {
            failed(&name, &error);
        }
    }
    let nodes = context.kinds.nodes.all();
    let disrupted = is_disrupted(nodes.iter().map(|node| &**node));
    if disrupted != seen.disrupted {
        info!(disrupted, "whether no node is ready");
        seen.disrupted = disrupted;
        if !disrupted {
            // Nothing was heard of anybody: the others have as long as if they had just been heard of.
            seen.heard.clear();
        }
    }
    for node in &nodes {
        if let Err(error) = taint(context, node, disrupted).await {
            failed(&node.name_any(), &error);
        }
    }
    let nodes = context.kinds.nodes.all();
    let nodes: BTreeMap<String, &Node> = nodes.iter().map(|node| (node.name_any(), &**node)).collect();
    for pod in context.kinds.pods.all().into_iter().filter(|pod| is_falsely_ready(pod, &nodes)) {
        let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now)});
        let pods: Api<Pod> = Api::namespaced(context.client.clone(), &pod.namespace().unwrap_or_default());
        let patch =
            Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}}));
        match pods.patch_status(&pod.name_any(), &api::patch(), &patch).await {
            Ok(changed) => context.kinds.pods.put(changed),
            Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => {}
            Err(error) => {
                warn!(pod = %Key::of(&*pod), error = reconcile::chain(&error), "failed to say that it is not ready");
            }
        }
    }
}

/// Says of a node that nothing is known of it.
async fn say_lost(context: &Context, node: &Node) -> kube::Result<()> {
    let Some(conditions) = conditions_of_lost(node, context.clock.now()) else { return Ok(()) };
    let name = node.name_any();
    info!(node = name, "not heard of");
    let mut changed = node.clone();
    changed.status.get_or_insert_default().conditions = Some(conditions);
    let nodes: Api<Node> = Api::all(context.client.clone());
    written(context, nodes.replace_status(&name, &api::post(), &changed).await)
}

/// Gives a node the taints that follow from how it is.
async fn taint(context: &Context, node: &Node, disrupted: bool) -> kube::Result<()> {
    let Some(taints) = taints(node, disrupted, context.clock.now()) else { return Ok(()) };
    let mut changed = node.clone();
    changed.spec.get_or_insert_default().taints = Some(taints);
    let nodes: Api<Node> = Api::all(context.client.clone());
    written(context, nodes.replace(&node.name_any(), &api::post(), &changed).await)
}

/// Takes in what was written. A node that is heard of after all, or changed by somebody, is looked at again soon.
fn written(context: &Context, answer: kube::Result<Node>) -> kube::Result<()> {
    match answer {
        Ok(node) => context.kinds.nodes.put(node),
        Err(error) if api::is_conflict(&error) || api::is_not_found(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
