//! The status of LocalQueues (LQ-2, LQ-3).

use std::sync::Arc;

use kube::Api;
use reconcile::{Key, Next, Tasks};
use rules::{
    quota::{
        readiness,
        status::{self, Holders},
    },
    workload::{has_quota, is_admissible, state},
};
use serde_json::json;
use types::kueue::{LocalQueue, LocalQueueStatus, StopPolicy, Workload};

use crate::{
    Context, Error,
    admission::Sample,
    error::is_outdated,
    write::{difference_of, patch_status},
};

/// How many are looked at at once, as Kueue's manifest has it.
const AT_ONCE: usize = 5;

/// Starts the controller.
pub(super) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let context = Arc::clone(context);
    tasks.spawn("local queues", async move {
        context.caches.ready().await;
        let queue = context.work.local_queues.clone();
        queue.run(AT_ONCE, |key| reconcile(Arc::clone(&context), key)).await;
    });
}

async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(queue) = context.caches.local_queues.get(&key) else {
        context.metrics.forget_local_queue(&key.namespace, &key.name);
        return Ok(Next::Done);
    };
    match show(&context, &key, &queue).await {
        Ok(next) => Ok(next),
        Err(error) if is_outdated(&error) => Ok(Next::Done),
        Err(source) => {
            let (doing, source) = ("write the status of", Box::new(source));
            Err(Error::Object { doing, kind: "LocalQueue", name: key, source })
        }
    }
}

/// Writes how a queue stands, if that is news, and from time to time what it used (QU-21). Says when that is next.
async fn show(context: &Context, key: &Key, queue: &LocalQueue) -> Result<Next, kube::Error> {
    let leads_to = context.caches.cluster_queue(&queue.spec.cluster_queue);
    let active = leads_to.as_ref().map(|queue| context.caches.readiness(queue).active);
    let readiness = readiness::local_queue(queue, active);
    let workloads = context.caches.workloads_in(key);
    let open = leads_to.is_some() && queue.spec.stop_policy.unwrap_or_default() == StopPolicy::None;
    let waiting: Vec<&Arc<Workload>> =
        workloads.iter().filter(|workload| open && is_admissible(workload)).collect();
    let waits = waiting.len();
    // What they hold in a ClusterQueue to which one of the same name led before is not of this one.
    let there = leads_to.is_some().then_some(queue.spec.cluster_queue.as_str());
    let holding =
        workloads.iter().filter(|it| has_quota(it) && there.is_some() && state::cluster_queue(it) == there);
    let holders = Holders::sum(holding.map(|workload| &**workload));
    let Holders { reserving, admitted, .. } = holders;
    let of_waiting = waiting.iter().map(|workload| Key::of(&***workload));
    let parked = match active {
        Some(true) => context.admission.parked(&queue.spec.cluster_queue, of_waiting),
        // Where nobody gets in, nobody is tried.
        _ => waits,
    };
    let tried = waits.saturating_sub(parked);
    context.metrics.local_queue(key, readiness.active, (tried, parked), reserving, admitted);
    context.metrics.ended_in_local_queue(key, context.caches.ended_in(key));
    if let Some(leads_to) = leads_to.as_deref() {
        context.metrics.local_resources(key, leads_to, &holders);
    }
    let now = context.clock.now();
    let mut next = status::local_queue(queue, leads_to.as_deref(), &readiness, waits, &holders, now);
    // Of a queue that lets nobody in nothing is written down, and what it used does not fade.
    let sample = if readiness.active { context.sample_usage(key, now) } else { None };
    if let Some(Sample { usage, .. }) = &sample {
        context.metrics.usage_of_local_queue(key, &queue.spec.cluster_queue, *usage);
    }
    if let Some(Sample { consumed: Some(consumed), .. }) = &sample {
        next.fair_sharing = Some(status::used(consumed.clone(), now));
    }
    if queue.status.as_ref() != Some(&next) {
        write(context, key, queue, &next).await?;
    }
    let Some(Sample { consumed, again_at, .. }) = sample else { return Ok(Next::Done) };
    if consumed.is_some() {
        context.usage_shown(key, now);
    }
    Ok(Next::at(Some(again_at), now))
}

async fn write(
    context: &Context,
    key: &Key,
    queue: &LocalQueue,
    next: &LocalQueueStatus,
) -> Result<(), kube::Error> {
    let value = |status| json!({ "status": status });
    let from = queue.status.as_ref().map_or_else(|| json!({}), |status| value(json!(status)));
    let Some(body) = difference_of(&from, &value(json!(next)), None) else { return Ok(()) };
    let api: Api<LocalQueue> = Api::namespaced(context.client.clone(), &key.namespace);
    let answer = patch_status(&api, queue, body).await?;
    context.caches.local_queues.put(answer);
    Ok(())
}
