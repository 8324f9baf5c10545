//! The status and the end of ClusterQueues (CQ-4, CQ-7, CQ-8).

use std::sync::Arc;

use kube::Api;
use reconcile::{Key, Next, Tasks};
use rules::quota::{
    share::Share,
    status::{self, Holders},
};
use serde_json::json;
use types::kueue::ClusterQueue;

use super::in_use::hold;
use crate::{
    Context, Error,
    caches::{BATCH, HOLDING, LEADS_TO},
    error::is_outdated,
    write::{difference_of, patch_status},
};

/// How many are looked at at once, as Kueue's manifest has it.
const AT_ONCE: usize = 5;

/// Starts the controller.
pub(super) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let context = Arc::clone(context);
    tasks.spawn("cluster queues", async move {
        context.caches.ready().await;
        let queue = context.work.cluster_queues.clone();
        queue.run(AT_ONCE, |key| reconcile(Arc::clone(&context), key)).await;
    });
}

async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(mut queue) = context.caches.cluster_queues.get(&key) else {
        context.metrics.forget_cluster_queue(&key.name);
        return Ok(Next::Done);
    };
    let failed = |doing: &'static str, key: &Key| {
        let name = key.clone();
        move |source| Error::Object { doing, kind: "ClusterQueue", name, source: Box::new(source) }
    };
    let used = context.admission.holds_any(&key.name);
    match hold(&context, &*queue, used).await {
        Ok(Some(answer)) => {
            context.caches.cluster_queues.put(answer.clone());
            queue = Arc::new(answer);
        }
        Ok(None) => {}
        Err(error) if is_outdated(&error) => return Ok(Next::Done),
        Err(error) => return Err(failed("hold", &key)(error)),
    }
    if queue.metadata.deletion_timestamp.is_some() && !used {
        return Ok(Next::Done);
    }
    match show(&context, &queue).await {
        Ok(()) => Ok(Next::Done),
        Err(error) if is_outdated(&error) => Ok(Next::Done),
        Err(error) => Err(failed("write the status of", &key)(error)),
    }
}

/// Writes how a queue stands, if that is news.
async fn show(context: &Context, queue: &ClusterQueue) -> Result<(), kube::Error> {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let readiness = context.caches.readiness(queue);
    let (in_line, parked) = context.admission.waiting(name);
    let workloads = context.caches.workloads.by(HOLDING, name);
    let holders = Holders::sum(workloads.iter().map(|workload| &**workload));
    let shares = context.settings.quota.fair_sharing.is_some();
    let share = shares.then(|| context.admission.share_of_queue(name).unwrap_or_default());
    let state = match readiness.reason {
        "Ready" => "active",
        "Terminating" => "terminating",
        _ => "pending",
    };
    // Where nobody gets in, nobody is tried.
    let waiting = if readiness.active { (in_line, parked) } else { (0, in_line + parked) };
    context.metrics.cluster_queue(name, state, waiting, holders.reserving, holders.admitted);
    let leading = context.caches.local_queues.by(LEADS_TO, name);
    let ended = leading.iter().map(|queue| context.caches.ended_in(&Key::of(&**queue))).sum();
    context.metrics.ended_in_queue(name, ended);
    if context.settings.resource_metrics {
        context.metrics.resources(queue, &holders);
        context.metrics.pending_resources(queue, &context.admission.pending_resources(name));
        if let Some(share) = &share {
            context.metrics.share_of_queue(queue, share.weighted());
        }
    }
    for cohort in context.admission.above(name) {
        context.work.cohorts.add_after(Key::new("", cohort), BATCH);
    }
    let now = context.clock.now();
    let share = share.as_ref().map(Share::rounded);
    let next = status::cluster_queue(queue, &readiness, in_line + parked, &holders, share, now);
    let before = queue.status.clone().unwrap_or_default();
    if before == next && queue.status.is_some() {
        return Ok(());
    }
    let value = |status| json!({ "status": status });
    let from = queue.status.as_ref().map_or_else(|| json!({}), |status| value(json!(status)));
    // Others write conditions of it, too, and a list of them is replaced as a whole.
    let version = queue.metadata.resource_version.as_deref();
    let Some(body) = difference_of(&from, &value(json!(next)), version) else { return Ok(()) };
    let api: Api<ClusterQueue> = Api::all(context.client.clone());
    let answer = patch_status(&api, queue, body).await?;
    context.caches.cluster_queues.put(answer);
    Ok(())
}
