//! Makes pods leave nodes that have taints which they do not tolerate, or not for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, Patch};
use reconcile::{Key, Next, Queue};
use rules::node_health::{may_stay, tainted_since};
use serde_json::json;

use crate::context::Context;
use crate::{Run, api};

/// Pods that are worked on at once.
const AT_ONCE: usize = 16;
/// Events are told under this name.
const SOURCE: &str = "taint-eviction-controller";

/// Says what the taint eviction controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
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
        let since: Mutex<BTreeMap<Key, Since>> = Mutex::default();
        queue.run(AT_ONCE, |key| look(&context, &since, key)).await;
    })
}

/// Since when a pod, by its uid, is on a node that it tolerates for a time only. Kept here, because taints that people set
/// do not say it.
struct Since {
    uid: Option<String>,
    at: Timestamp,
}

async fn look(context: &Context, known: &Mutex<BTreeMap<Key, Since>>, key: Key) -> Result<Next, Error> {
    let now = context.clock.now();
    let pod = context.kinds.pods.get(&key).filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let found = pod.and_then(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let node = context.kinds.nodes.get(&Key::new("", node))?;
        Some((may_stay(&pod, &node)?, tainted_since(&pod, &node, now), pod))
    });
    let at = {
        // Entries are set and removed whole.
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((stays, since, pod)) = &found else {
            known.remove(&key);
            return Ok(Next::Done);
        };
        let since = match known.get(&key).filter(|known| known.uid == pod.metadata.uid) {
            Some(known) => known.at,
            None => *since,
        };
        known.insert(key.clone(), Since { uid: pod.metadata.uid.clone(), at: since });
        since.checked_add(*stays).unwrap_or(Timestamp::MAX)
    };
    if at > now {
        return Ok(Next::After(Duration::try_from(at.duration_since(now)).unwrap_or_default()));
    }
    match found {
        Some((_, _, pod)) => evict(context, key, &pod, now).await,
        None => Ok(Next::Done),
    }
}

async fn evict(context: &Context, key: Key, pod: &Pod, now: Timestamp) -> Result<Next, Error> {
    let message = format!("Marking for deletion Pod {key}");
    context.events.tell(SOURCE, pod, "Normal", "TaintManagerEviction", message);
    let condition = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByTaintManager".to_owned()),
        message: Some("Taint manager: deleting due to NoExecute taint".to_owned()),
        observed_generation: pod.metadata.generation,
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
