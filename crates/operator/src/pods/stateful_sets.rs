//! The controller of StatefulSets that are queued: makes groups of their pods, and a Workload for each group. Whether the pods
//! run is decided as for all groups.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::Api;
use reconcile::{Cache, Key, Next, Tasks};
use rules::framework::{
    Step,
    apps::{
        STATEFUL_SET,
        stateful_set::{Seen, Todo, decide, is_own, name},
    },
    queue_name,
};
use tracing::{debug, info};

use crate::{
    Context, Error,
    caches::OWNER_UID,
    error::is_outdated,
    events::About,
    write::{difference, patch_object},
};

/// How many StatefulSets are looked at at once.
const AT_ONCE: usize = 8;

/// Starts the controller.
pub(super) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let caches = &context.caches.pods;
    let (Some(sets), Some(pods)) = (caches.stateful_sets.clone(), caches.queued.clone()) else { return };
    let controller = Arc::new(Controller { context: Arc::clone(context), sets, pods });
    tasks.spawn("statefulsets", async move {
        controller.context.caches.ready().await;
        let queue = controller.context.work.stateful_sets.clone();
        queue.run(AT_ONCE, |key| Arc::clone(&controller).reconcile(key)).await;
    });
}

struct Controller {
    context: Arc<Context>,
    sets: Cache<StatefulSet>,
    pods: Cache<Pod>,
}

impl Controller {
    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, Error> {
        let Some(set) = self.sets.get(&key) else { return Ok(Next::Done) };
        let Some(todo) = self.todo(&key, &set).await? else { return Ok(Next::Done) };
        match &todo {
            Todo::Workload(plan) => match &plan.step {
                Step::Wait(_) => debug!(statefulset = %key, %todo, "decided"),
                Step::Retry(why) => {
                    let why = why.clone();
                    return Err(Error::Missing { kind: STATEFUL_SET.kind, job: key, why });
                }
                _ => info!(statefulset = %key, %todo, "decided"),
            },
            Todo::Pods(_) => info!(statefulset = %key, %todo, "decided"),
        }
        match self.apply(&set, &todo).await {
            Err(error) if is_outdated(&error) => Ok(Next::Done),
            Err(source) => Err(match &todo {
                Todo::Workload(plan) => crate::jobs::failure(&plan.step, key, STATEFUL_SET.kind, source),
                Todo::Pods(_) => {
                    let (doing, source) = ("mark the pods of", Box::new(source));
                    Error::Job { doing, kind: STATEFUL_SET.kind, job: key, source }
                }
            }),
            // What it did about pods leaves the Workload to be looked at; so does what others do.
            Ok(()) => {
                if matches!(todo, Todo::Pods(_)) {
                    self.context.work.stateful_sets.add(key);
                }
                Ok(Next::Done)
            }
        }
    }

    /// What to do; `None` if the StatefulSet is none of ours.
    async fn todo(&self, key: &Key, set: &StatefulSet) -> Result<Option<Todo>, Error> {
        let context = &*self.context;
        let manages_all = context.settings.manage_jobs_without_queue_name;
        let is_queued = queue_name(&set.metadata).is_some() || manages_all;
        let leaves = set.metadata.deletion_timestamp.is_some();
        if !is_queued || leaves || !is_own(set) || !context.manages_in(&key.namespace) {
            return Ok(None);
        }
        if context.ancestor(&set.metadata).await?.is_some() {
            return Ok(None);
        }
        let pods = self.pods.by(OWNER_UID, set.metadata.uid.as_deref().unwrap_or_default());
        let workload = Key::new(key.namespace.as_str(), name(&set.metadata));
        let workload = context.caches.workloads.get(&workload);
        Ok(Some(context.with_classes(|classes| {
            let seen = Seen {
                set,
                pods: &pods,
                workload: workload.as_ref(),
                manages_without_queue_name: manages_all,
                runs_elsewhere: &|workload| context.runs_elsewhere(workload),
                classes,
            };
            decide(&seen, context.clock.now())
        })))
    }

    async fn apply(&self, set: &StatefulSet, todo: &Todo) -> Result<(), kube::Error> {
        match todo {
            Todo::Workload(plan) => {
                let context = &*self.context;
                context.write_workload(STATEFUL_SET.kind, Some(&set.metadata), &plan.step).await?;
                for event in &plan.events {
                    let about = About::new(STATEFUL_SET.api_version(), STATEFUL_SET.kind, &set.metadata);
                    context.recorder.tell_of("statefulset-kueue-controller", about, event.clone());
                }
                Ok(())
            }
            Todo::Pods(pods) => {
                for next in pods {
                    self.write(next).await?;
                }
                Ok(())
            }
        }
    }

    async fn write(&self, next: &Pod) -> Result<(), kube::Error> {
        let Some(pod) = self.pods.get(&Key::of(next)) else { return Ok(()) };
        let version = next.metadata.resource_version.as_deref();
        let Some(body) = difference(&*pod, next, version) else { return Ok(()) };
        let namespace = next.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace);
        self.pods.put(patch_object(&api, next, body).await?);
        Ok(())
    }
}
