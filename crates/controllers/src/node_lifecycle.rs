//! Nodes that are not heard of: says so, keeps new pods off them, and makes the pods that are there go in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, Patch};
use reconcile::{Key, Next, Queue};
use rules::node_health::{Heard, conditions_of_lost, is_falsely_ready, leaves_at, taints};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::context::Context;
use crate::{Run, api};

/// As often as Kubernetes looks.
const PERIOD: Duration = Duration::from_secs(5);
/// Pods that are worked on at once.
const AT_ONCE: usize = 16;
/// Leases of nodes are here.
const LEASES: &str = "kube-node-lease";
/// Events are told under this name.
const TAINT_EVICTION: &str = "taint-eviction-controller";

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

/// Says what the taint eviction controller watches, and returns its work.
pub(crate) fn prepare_eviction(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let (nodes, pods) = (context.kinds.nodes.wanted(), context.kinds.pods.wanted());
    pods.index("node", |pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).into_iter().collect());
    let line = queue.clone();
    pods.on_change(move |change| line.add(change.key.clone()));
    let (line, known) = (queue.clone(), pods.clone());
    nodes.on_change(move |change| {
        let taints = |node: Option<&Arc<Node>>| node.and_then(|node| node.spec.as_ref()?.taints.clone());
        if taints(change.old) != taints(change.new) && known.is_ready() {
            for pod in known.by("node", &change.key.name) {
                line.add(Key::of(&*pod));
            }
        }
    });
    let context = context.clone();
    Box::pin(async move {
        nodes.ready().await;
        pods.ready().await;
        queue
            .run(AT_ONCE, |key| {
                let context = context.clone();
                async move { evict(&context, key).await }
            })
            .await;
    })
}

async fn evict(context: &Context, key: Key) -> Result<Next, Error> {
    let Some(pod) = context.kinds.pods.get(&key) else { return Ok(Next::Done) };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let Some(node) = context.kinds.nodes.get(&Key::new("", node)) else { return Ok(Next::Done) };
    let now = context.clock.now();
    let Some(at) = leaves_at(&pod, &node, now).filter(|_| pod.metadata.deletion_timestamp.is_none()) else {
        return Ok(Next::Done);
    };
    if at > now {
        return Ok(Next::After(Duration::try_from(at.duration_since(now)).unwrap_or_default()));
    }
    let message = format!("Marking for deletion Pod {key}");
    context.events.tell(TAINT_EVICTION, &*pod, "Normal", "TaintManagerEviction", message);
    let condition = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByTaintManager".to_owned()),
        message: Some("Taint manager: deleting due to NoExecute taint".to_owned()),
        last_transition_time: Some(Time(now)),
        ..PodCondition::default()
    };
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let patch =
        Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}}));
    let marked = pods.patch_status(&key.name, &api::patch(), &patch).await;
    let deleted = match marked {
        Ok(_) => pods.delete(&key.name, &api::delete(pod.uid().as_deref(), None)).await.map(drop),
        Err(error) => Err(error),
    };
    match deleted {
        Ok(()) => Ok(Next::Done),
        Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => Ok(Next::Done),
        Err(source) => Err(Error { pod: key, source }),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("failed to make pod {pod} leave its node")]
struct Error {
    pod: Key,
    source: kube::Error,
}
