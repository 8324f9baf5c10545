//! The controllers of what is queued by making groups of its pods, and a Workload for each group: StatefulSets and
//! LeaderWorkerSets. Whether the pods run is decided as for all groups.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Api;
use reconcile::{Cache, Key, Next, Queue, Tasks};
use rules::framework::{Kind, Plan, Step, apps::Todo, queue_name};
use tracing::{debug, info};

use crate::{
    Context, Error,
    error::is_outdated,
    events::About,
    write::{difference, patch_object},
};

/// How many objects of a kind are looked at at once.
const AT_ONCE: usize = 8;
/// How many Workloads or pods of an object are written at once.
const WRITES_AT_ONCE: usize = 8;

/// A kind of object whose pods are groups.
pub(super) trait Whole: Send + Sync + 'static {
    /// Its objects.
    type Object: Send + Sync;
    /// Its names.
    const KIND: Kind;

    /// Those that are to be looked at.
    fn queue(context: &Context) -> &Queue<Key>;
    /// An object, if it is there.
    fn get(&self, context: &Context, key: &Key) -> Option<Arc<Self::Object>>;
    /// Its name and the like.
    fn metadata(object: &Self::Object) -> &ObjectMeta;
    /// Whether its pods are queued as its own.
    fn is_own(_: &Self::Object) -> bool {
        true
    }
    /// What to do about it.
    fn todo(&self, context: &Context, pods: &Cache<Pod>, key: &Key, object: &Self::Object) -> Todo;
}

/// Starts the controller of a kind.
pub(super) fn start<W: Whole>(whole: W, context: &Arc<Context>, tasks: &mut Tasks) {
    let Some(pods) = context.caches.pods.queued.clone() else { return };
    if !context.settings.manages(&W::KIND) {
        return;
    }
    let controller = Arc::new(Controller { context: Arc::clone(context), whole, pods });
    tasks.spawn(W::KIND.plural, async move {
        controller.context.caches.ready().await;
        let queue = W::queue(&controller.context).clone();
        queue.run(AT_ONCE, |key| Arc::clone(&controller).reconcile(key)).await;
    });
}

struct Controller<W> {
    context: Arc<Context>,
    whole: W,
    pods: Cache<Pod>,
}

impl<W: Whole> Controller<W> {
    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, Error> {
        let Some(object) = self.whole.get(&self.context, &key) else { return Ok(Next::Done) };
        if !self.is_ours(&key, &object).await? {
            return Ok(Next::Done);
        }
        let kind = W::KIND.kind;
        match self.whole.todo(&self.context, &self.pods, &key, &object) {
            Todo::Pods(pods) => {
                let texts: Vec<&str> = pods.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
                info!(kind, whole = %key, pods = texts.join(", "), "marking");
                let writes = stream::iter(pods).map(|next| self.write(next));
                let done: Result<Vec<()>, kube::Error> =
                    writes.buffer_unordered(WRITES_AT_ONCE).try_collect().await;
                match done {
                    Err(error) if is_outdated(&error) => {}
                    Err(source) => {
                        let (doing, source) = ("mark the pods of", Box::new(source));
                        return Err(Error::Job { doing, kind, job: key, source });
                    }
                    // What it did about pods leaves the Workload to be looked at.
                    Ok(_) => W::queue(&self.context).add(key),
                }
            }
            Todo::Workloads(plans) => {
                let writes = stream::iter(plans).map(|plan| self.take(&key, &object, plan));
                let _: Vec<()> = writes.buffer_unordered(WRITES_AT_ONCE).try_collect().await?;
            }
        }
        Ok(Next::Done)
    }

    async fn is_ours(&self, key: &Key, object: &W::Object) -> Result<bool, Error> {
        let (context, metadata) = (&*self.context, W::metadata(object));
        let is_queued = queue_name(metadata).is_some() || context.settings.manage_jobs_without_queue_name;
        let leaves = metadata.deletion_timestamp.is_some();
        if !is_queued || leaves || !W::is_own(object) || !context.manages_in(&key.namespace) {
            return Ok(false);
        }
        Ok(context.ancestor(metadata).await?.is_none())
    }

    /// Takes one step about a Workload.
    async fn take(&self, key: &Key, object: &W::Object, plan: Plan) -> Result<(), Error> {
        let (kind, context, metadata) = (W::KIND, &*self.context, W::metadata(object));
        match &plan.step {
            Step::Wait(_) => debug!(kind = kind.kind, whole = %key, %plan, "decided"),
            Step::Retry(why) => {
                return Err(Error::Missing { kind: kind.kind, job: key.clone(), why: why.clone() });
            }
            _ => info!(kind = kind.kind, whole = %key, %plan, "decided"),
        }
        match context.write_workload(kind.kind, Some(metadata), &plan.step).await {
            Err(error) if is_outdated(&error) => return Ok(()),
            Err(source) => return Err(crate::jobs::failure(&plan.step, key.clone(), kind.kind, source)),
            Ok(()) => {}
        }
        for event in &plan.events {
            let about = About::new(kind.api_version(), kind.kind, metadata);
            let by = format!("{}-kueue-controller", kind.framework);
            context.recorder.tell_of(by, about, event.clone());
        }
        Ok(())
    }

    async fn write(&self, next: Pod) -> Result<(), kube::Error> {
        let Some(pod) = self.pods.get(&Key::of(&next)) else { return Ok(()) };
        let version = next.metadata.resource_version.as_deref();
        let Some(body) = difference(&*pod, &next, version) else { return Ok(()) };
        let namespace = next.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace);
        self.pods.put(patch_object(&api, &next, body).await?);
        Ok(())
    }
}
