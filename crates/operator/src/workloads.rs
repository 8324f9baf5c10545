//! The controller of Workloads: observes one, lets [`rules::workload`] decide, and writes what comes of it.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, api::DeleteParams};
use reconcile::{Key, Next, Tasks};
use rules::workload::{Plan, Seen, Step, decide, patch::Manner, plan::Change, state};
use serde_json::json;
use tracing::{debug, info};
use types::kueue::Workload;

use crate::{Context, Error, error::is_outdated, events::WORKLOADS};

/// How many Workloads are looked at at once: as many as admissions are written at once.
const AT_ONCE: usize = 32;

/// Starts the controller.
pub(crate) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let context = Arc::clone(context);
    tasks.spawn("workloads", async move {
        context.caches.ready().await;
        context.caches.enqueue_all(&context.work);
        let queue = context.work.workloads.clone();
        queue.run(AT_ONCE, |key| reconcile(Arc::clone(&context), key)).await;
    });
}

async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(workload) = context.caches.workloads.get(&key) else { return Ok(Next::Done) };
    let now = context.clock.now();
    let plan = plan(&context, &workload, now);
    if plan.step == Step::Wait {
        debug!(workload = %key, %plan, "decided");
    } else {
        info!(workload = %key, %plan, "decided");
    }
    match apply(&context, &workload, &plan).await {
        Ok(()) => {}
        Err(error) if is_outdated(&error) => return Ok(Next::Done),
        Err(source) => {
            let (doing, source) = (doing(&plan.step), Box::new(source));
            return Err(Error::Workload { doing, workload: key, source });
        }
    }
    for event in &plan.events {
        context.recorder.tell(WORKLOADS, &*workload, event);
    }
    Ok(Next::at(plan.again_at, now))
}

fn plan(context: &Context, workload: &Workload, now: Timestamp) -> Plan {
    let local_queue = context.caches.local_queue_of(workload);
    let cluster_queue =
        local_queue.as_ref().and_then(|queue| context.caches.cluster_queue(&queue.spec.cluster_queue));
    let active = cluster_queue.as_ref().is_some_and(|queue| context.caches.readiness(queue).active);
    let lost_hosts = context.lost_hosts(workload);
    let seen = Seen {
        workload,
        local_queue: local_queue.as_deref(),
        cluster_queue: cluster_queue.as_deref(),
        active,
        lost_hosts: &lost_hosts,
    };
    decide(&seen, &context.settings.workloads, now)
}

fn doing(step: &Step) -> &'static str {
    match step {
        Step::Wait => "look at",
        Step::Status { .. } => "write the status of",
        Step::Checks(_) => "list the checks of",
        Step::Deactivate => "deactivate",
        Step::Finalize => "let go of",
        Step::Delete => "delete",
    }
}

async fn apply(context: &Context, workload: &Workload, plan: &Plan) -> Result<(), kube::Error> {
    match &plan.step {
        Step::Wait => {}
        Step::Status { next, change } => {
            let answer = context.apply_admission(workload, next, Manner::Strict).await?;
            count(context, workload, &answer, change);
        }
        Step::Checks(checks) => {
            let version = &workload.metadata.resource_version;
            let body = json!({
                "metadata": { "resourceVersion": version },
                "status": { "admissionChecks": checks },
            });
            context.patch_workload_status(workload, body).await?;
        }
        Step::Deactivate => {
            let mut next = workload.clone();
            next.spec.active = Some(false);
            context.patch_workload(workload, &next).await?;
        }
        Step::Finalize => {
            context.finalize_workload(workload).await?;
        }
        Step::Delete => {
            let released = context.finalize_workload(workload).await?;
            if released.metadata.deletion_timestamp.is_none() {
                delete(context, &released).await?;
            }
        }
    }
    Ok(())
}

/// Deletes a Workload, which stays until it is let go.
pub(crate) async fn delete(context: &Context, workload: &Workload) -> Result<(), kube::Error> {
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let name = workload.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Workload> = Api::namespaced(context.client.clone(), namespace);
    let params = DeleteParams::default().preconditions(kube::api::Preconditions {
        uid: workload.metadata.uid.clone(),
        resource_version: None,
    });
    match api.delete(name, &params).await?.left() {
        Some(leaving) if leaving.metadata.finalizers.is_some() => context.caches.workloads.put(leaving),
        _ => context.caches.workloads.removed(workload),
    }
    Ok(())
}

fn count(context: &Context, before: &Workload, after: &Workload, change: &Change) {
    let cluster_queue = state::cluster_queue(before).or(state::cluster_queue(after)).unwrap_or_default();
    let now = context.clock.now();
    match change {
        Change::Admitted => context.metrics.admitted(cluster_queue, after, now),
        Change::Evicted { eviction, first } if state::cluster_queue(before).is_some() => {
            context.metrics.evicted(cluster_queue, after, eviction, *first);
        }
        Change::Finished(_) => context.metrics.finished(cluster_queue, after),
        Change::Released => context.metrics.released(before, now),
        _ => {}
    }
}
