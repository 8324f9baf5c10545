//! Objects that may not go while others refer to them: flavors and checks (RF-3, AC-2).

use std::{fmt::Debug, sync::Arc};

use kube::{Api, Resource, core::ClusterResourceScope};
use reconcile::{Cache, Key, Next, Queue, Tasks};
use rules::quota::readiness;
use serde::{Serialize, de::DeserializeOwned};
use types::kueue::{ClusterQueue, RESOURCE_IN_USE};

use crate::{
    Context, Error,
    error::is_outdated,
    write::{difference, patch_object},
};

/// Starts the controllers.
pub(super) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let refers = |queue: &ClusterQueue, name: &str| readiness::flavors(queue).contains(&name);
    let (cache, queue) = (context.caches.flavors.clone(), context.work.flavors.clone());
    tasks.spawn("flavors", run(Arc::clone(context), cache, queue, refers));
    let refers = |queue: &ClusterQueue, name: &str| readiness::check_names(queue).any(|it| it == name);
    let (cache, queue) = (context.caches.checks.clone(), context.work.checks.clone());
    tasks.spawn("checks", run(Arc::clone(context), cache, queue, refers));
}

async fn run<K>(
    context: Arc<Context>,
    cache: Cache<K>,
    queue: Queue<Key>,
    refers: impl Fn(&ClusterQueue, &str) -> bool,
) where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    context.caches.ready().await;
    let reconcile = |key: Key| {
        let object = cache.get(&key);
        let used = context.caches.cluster_queues.all().iter().any(|queue| refers(queue, &key.name));
        let (context, cache) = (Arc::clone(&context), cache.clone());
        async move {
            let Some(object) = object else { return Ok(Next::Done) };
            match hold(&context, &*object, used).await {
                Ok(Some(answer)) => cache.put(answer),
                Ok(None) => {}
                Err(error) if is_outdated(&error) => {}
                Err(source) => {
                    let source = Box::new(source);
                    return Err(Error::Object { doing: "hold", kind: "object", name: key, source });
                }
            }
            Ok(Next::Done)
        }
    };
    queue.run(1, reconcile).await;
}

/// Holds an object, or lets go of one that is to be deleted and that nobody uses. Its new form, if it changed and is
/// still there.
pub(super) async fn hold<K>(context: &Context, object: &K, used: bool) -> Result<Option<K>, kube::Error>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let mut next = object.clone();
    let deleting = object.meta().deletion_timestamp.is_some();
    let finalizers = next.meta_mut().finalizers.get_or_insert_default();
    let held = finalizers.iter().any(|it| it == RESOURCE_IN_USE);
    match (deleting, held) {
        (false, false) => finalizers.push(RESOURCE_IN_USE.to_owned()),
        (true, true) if !used => finalizers.retain(|it| it != RESOURCE_IN_USE),
        _ => return Ok(None),
    }
    let version = object.meta().resource_version.as_deref();
    let Some(body) = difference(object, &next, version) else { return Ok(None) };
    let api: Api<K> = Api::all(context.client.clone());
    let answer = patch_object(&api, object, body).await?;
    Ok((!deleting).then_some(answer))
}
