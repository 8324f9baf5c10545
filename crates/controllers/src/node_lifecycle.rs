//! Nodes that are not heard of: says so, and keeps new pods off them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, Patch};
use reconcile::Key;
use rules::node_health::{Heard, conditions_of_lost, is_falsely_ready, taints};
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
        let mut heard: BTreeMap<String, Heard> = BTreeMap::new();
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            look(&context, &mut heard).await;
        }
    })
}

/// Looks at all nodes once. `heard` remembers when each was last heard of.
async fn look(context: &Context, heard: &mut BTreeMap<String, Heard>) {
    let now = context.clock.now();
    let patience = SignedDuration::try_from(context.settings.node_patience).unwrap_or(SignedDuration::MAX);
    let nodes = context.kinds.nodes.all();
    heard.retain(|name, _| nodes.iter().any(|node| node.name_any() == *name));
    for node in &nodes {
        let name = node.name_any();
        let lease = context.kinds.leases.get(&Key::new(LEASES, &name));
        let renewed = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0));
        let last = Heard::listen(heard.get(&name), node, renewed, now);
        let lost = last.lost_at(patience) <= now;
        heard.insert(name.clone(), last);
        if let Err(error) = keep(context, node, lost).await {
            warn!(node = name, error = reconcile::chain(&error), "failed to say how a node is");
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

/// Brings conditions and taints of a node up to date.
async fn keep(context: &Context, node: &Node, lost: bool) -> kube::Result<()> {
    let now = context.clock.now();
    let nodes: Api<Node> = Api::all(context.client.clone());
    let name = node.name_any();
    let mut current = node.clone();
    if let Some(conditions) = conditions_of_lost(&current, now).filter(|_| lost) {
        info!(node = name, "not heard of");
        current.status.get_or_insert_default().conditions = Some(conditions);
        current = match nodes.replace_status(&name, &api::post(), &current).await {
            Ok(written) => written,
            // It is heard of after all, or changed by somebody: it is looked at again soon.
            Err(error) if api::is_conflict(&error) || api::is_not_found(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        context.kinds.nodes.put(current.clone());
    }
    if let Some(taints) = taints(&current, now) {
        current.spec.get_or_insert_default().taints = Some(taints);
        match nodes.replace(&name, &api::post(), &current).await {
            Ok(written) => context.kinds.nodes.put(written),
            Err(error) if api::is_conflict(&error) || api::is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
