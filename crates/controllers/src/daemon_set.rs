//! The DaemonSet controller: one pod on every node that is meant.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use reconcile::{Key, Next, Queue};
use rules::daemon_set::{Plan, decide};
use rules::job::plan::slow_start;
use rules::meta::selector;
use tracing::debug;

use crate::context::Context;
use crate::job::{BY_CONTROLLER, FREE, controller_uid, free_labels};
use crate::{Run, api, history, pods};

/// Events are told under this name.
const SOURCE: &str = "daemonset-controller";
/// Sets that are worked on at once.
const AT_ONCE: usize = 16;
/// Requests about the pods of one set that are under way at once.
const PODS_AT_ONCE: usize = 64;

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let (sets, pods, nodes) = (kinds.daemon_sets.feeding(&queue), kinds.pods.wanted(), kinds.nodes.wanted());
    let revisions = history::wanted(context);
    pods.index(BY_CONTROLLER, controller_uid);
    pods.index(FREE, free_labels);
    pods.feed_controller("DaemonSet", &queue);
    revisions.feed_controller("DaemonSet", &queue);
    let (line, known) = (queue.clone(), sets.clone());
    pods.on_change(move |change| {
        let free = change.new.filter(|pod| controller_uid(pod).is_empty() && known.is_ready());
        let Some(pod) = free else { return };
        for set in known.in_namespace(&change.key.namespace) {
            let wanted = set.spec.as_ref().map(|spec| &spec.selector);
            if selector::matches(wanted, pod.labels()) == Some(true) {
                line.add(Key::of(&*set));
            }
        }
    });
    let (line, known) = (queue.clone(), sets.clone());
    nodes.on_change(move |change| {
        // Nodes say often that they are well; only what they are matters here.
        let matters =
            |node: &Arc<Node>| (node.metadata.labels.clone(), node.spec.clone().and_then(|it| it.taints));
        if change.old.map(matters) != change.new.map(matters) && known.is_ready() {
            known.all().iter().for_each(|set| line.add(Key::of(&**set)));
        }
    });
    context.work(queue, AT_ONCE, [sets.filled(), pods.filled(), nodes.filled(), revisions.filled()], sync)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let kinds = &context.kinds;
    let Some(set) = kinds.daemon_sets.get(&key) else { return Ok(Next::Done) };
    let uid = set.uid().unwrap_or_default();
    let (revisions, nodes) = (history::of(context, &uid), kinds.nodes.all());
    let mut pods = kinds.pods.by(BY_CONTROLLER, &uid);
    pods.extend(kinds.pods.by(FREE, &key.namespace));
    let now = context.clock.now();
    let plan = {
        let revisions: Vec<&ControllerRevision> = revisions.iter().map(Arc::as_ref).collect();
        let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).collect();
        let nodes: Vec<&Node> = nodes.iter().map(Arc::as_ref).collect();
        decide(&set, &revisions, &pods, &nodes, now)
    };
    let Plan { create, delete, .. } = &plan;
    debug!(daemon_set = %key, create = create.len(), delete = delete.len(), status = ?plan.status, "decided");
    pods::claim(context, &*set, &key, &plan.claims).await?;
    if let Some(step) = &plan.revision {
        if history::write(context, &key, step).await? {
            let mut changed = (*set).clone();
            let status = changed.status.get_or_insert_default();
            status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
            return write_status(context, &key, changed).await;
        }
        return Ok(Next::After(Duration::ZERO));
    }
    for (kind, reason, message) in &plan.events {
        context.events.tell(SOURCE, &*set, kind, reason, message.clone());
    }
    let failure = carry_out(context, &set, &plan).await;
    history::forget(context, &key, &plan.forget).await?;
    if let Some(status) = plan.status {
        let changed = DaemonSet { status: Some(*status), ..(*set).clone() };
        if let next @ Next::After(_) = write_status(context, &key, changed).await? {
            return Ok(next);
        }
    }
    if let Err(what) = failure {
        return Err(Error::Pods { set: key, what });
    }
    let wait = plan.look_again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    Ok(wait.map_or(Next::Done, Next::After))
}

async fn carry_out(context: &Context, set: &DaemonSet, plan: &Plan) -> Result<(), String> {
    for batch in slow_start(plan.create.len()) {
        let creations = plan.create[batch].iter().map(|pod| pods::create(context, SOURCE, set, pod).boxed());
        let done = api::together(PODS_AT_ONCE, creations.collect()).await;
        done.into_iter().collect::<Result<(), String>>()?;
    }
    let deletions = plan.delete.iter().map(|pod| pods::delete(context, SOURCE, set, pod).boxed());
    api::together(PODS_AT_ONCE, deletions.collect()).await.into_iter().collect()
}

async fn write_status(context: &Context, key: &Key, changed: DaemonSet) -> Result<Next, Error> {
    let written = context.kinds.daemon_sets.write_status(&context.client, key, &changed).await;
    written.map_err(|source| Error::Status { set: key.clone(), source })
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Claim(#[from] pods::Error),
    #[error(transparent)]
    History(#[from] history::Error),
    #[error("some pods of daemon set {set} are not as they should be: {what}")]
    Pods { set: Key, what: String },
    #[error("failed to write the status of daemon set {set}")]
    Status { set: Key, source: kube::Error },
}
