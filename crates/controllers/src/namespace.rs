//! Deletes what a namespace contains when it is being deleted, then lets it go (4.5).
//!
//! Pods go first: what they read, such as secrets, stays until the last of them is gone.

use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta, PropagationPolicy};
use kube::discovery::verbs;
use reconcile::{Key, Next, Queue};
use rules::namespace_deletion::{FINALIZER, Progress, conditions};
use tracing::{debug, info};

use crate::context::Context;
use crate::discovery::{Served, discover};
use crate::{Run, api};

/// Namespaces that are worked on at once.
const AT_ONCE: usize = 8;
/// Kinds of one namespace that are worked on at once.
const KINDS_AT_ONCE: usize = 8;
/// What has a finalizer goes when somebody takes it off, unseen from here.
const POLL: Duration = Duration::from_secs(1);

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let (namespaces, pods) = (context.kinds.namespaces.wanted(), context.kinds.pods.wanted());
    let line = queue.clone();
    namespaces.on_change(move |change| {
        if change.new.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            line.add(change.key.clone());
        }
    });
    let (line, known) = (queue.clone(), namespaces.clone());
    pods.on_change(move |change| {
        let namespace = Key::new("", &change.key.namespace);
        let last = change.new.is_none() && known.is_ready() && {
            known.get(&namespace).is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
        };
        if last {
            line.add(namespace);
        }
    });
    context.work(queue, AT_ONCE, [namespaces.filled(), pods.filled()], sync)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let name = key.name;
    let Some(namespace) = context.kinds.namespaces.get(&Key::new("", &name)) else { return Ok(Next::Done) };
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.clone()).unwrap_or_default();
    if namespace.metadata.deletion_timestamp.is_none()
        || !finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    {
        return Ok(Next::Done);
    }
    let progress = delete_content(context, &name).await;
    debug!(namespace = name, ?progress, "deleted content");
    let namespace = report(context, &namespace, &progress).await?;
    if !progress.is_done() {
        if let Some(error) = progress.content_errors.into_iter().chain(progress.discovery_error).next() {
            return Err(Error::Content { namespace: name, error });
        }
        return Ok(Next::After(POLL));
    }
    let mut finalized = namespace.clone();
    finalized.spec.get_or_insert_default().finalizers =
        Some(finalizers.into_iter().filter(|finalizer| finalizer != FINALIZER).collect());
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let done = namespaces.replace_subresource("finalize", &name, &api::post(), &finalized).await;
    match done {
        Ok(_) => info!(namespace = name, "nothing is left in it"),
        Err(error) if api::is_not_found(&error) => {}
        Err(error) if api::is_conflict(&error) => return Ok(Next::After(Duration::from_millis(20))),
        Err(source) => return Err(Error::Finalize { namespace: name, source }),
    }
    Ok(Next::Done)
}

/// Writes what is left, if that is news.
async fn report(context: &Context, namespace: &Namespace, progress: &Progress) -> Result<Namespace, Error> {
    let status = namespace.status.clone().unwrap_or_default();
    let before = status.conditions.as_deref().unwrap_or_default();
    let terminating = status.phase.as_deref() == Some("Terminating");
    let conditions = conditions(before, progress, context.clock.now());
    if conditions.is_none() && terminating {
        return Ok(namespace.clone());
    }
    let mut changed = namespace.clone();
    let status = changed.status.get_or_insert_default();
    status.phase = Some("Terminating".to_owned());
    if conditions.is_some() {
        status.conditions = conditions;
    }
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let written = namespaces.replace_status(&namespace.name_any(), &api::post(), &changed).await;
    let failed = |source| Error::Status { namespace: namespace.name_any(), source };
    let written = written.map_err(failed)?;
    context.kinds.namespaces.put(written.clone());
    Ok(written)
}

async fn delete_content(context: &Context, namespace: &str) -> Progress {
    let mut progress = Progress::default();
    let found = match discover(&context.client).await {
        Ok(found) => found,
        Err(error) => {
            progress.discovery_error = Some(reconcile::chain(&error));
            return progress;
        }
    };
    let deletable = |kind: &&Served| kind.namespaced && kind.supports(verbs::DELETE);
    let (pods, others): (Vec<&Served>, Vec<&Served>) =
        found.served.iter().filter(deletable).partition(|kind| kind.name() == "pods");
    for kinds in [pods, others] {
        let deletions = kinds.iter().map(|kind| delete_kind(context, kind, namespace).boxed());
        let results = api::together(KINDS_AT_ONCE, deletions.collect()).await;
        for (kind, result) in kinds.iter().zip(results) {
            match result {
                Ok(left) if left.is_empty() => {}
                Ok(left) => {
                    let resource = (kind.resource.plural.clone(), kind.resource.group.clone());
                    progress.remaining.insert(resource, left.len());
                    for finalizer in
                        left.into_iter().filter_map(|object| object.metadata.finalizers).flatten()
                    {
                        *progress.finalizers.entry(finalizer).or_default() += 1;
                    }
                }
                Err(error) => {
                    let error = format!("failed to delete {}: {}", kind.name(), reconcile::chain(&error));
                    progress.content_errors.push(error);
                }
            }
        }
        if !progress.is_done() {
            break;
        }
    }
    // What there is of the rest goes meanwhile; the namespace waits for those that may serve more.
    let (silent, why) = (found.silent.len(), found.failure());
    progress.discovery_error =
        why.map(|why| format!("Discovery failed for some groups, {silent} failing: {why}"));
    progress
}

/// Deletes what there is of a kind; returns what is left.
async fn delete_kind(
    context: &Context,
    kind: &Served,
    namespace: &str,
) -> kube::Result<Vec<PartialObjectMeta<DynamicObject>>> {
    let objects: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), namespace, &kind.resource);
    let list = || async {
        match objects.list_metadata(&ListParams::default()).await {
            Ok(list) => Ok(list.items),
            // Not served any more: nothing is left.
            Err(error) if api::is_not_found(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    };
    let listable = kind.supports(verbs::LIST);
    let found = if listable { list().await? } else { Vec::new() };
    if listable && found.iter().all(|object| is_leaving(&object.metadata)) {
        return Ok(found);
    }
    let params = api::delete(None, Some(PropagationPolicy::Background));
    if kind.supports(verbs::DELETE_COLLECTION) {
        match objects.delete_collection(&params, &ListParams::default()).await {
            Ok(_) => {}
            Err(error) if api::is_not_found(&error) => {}
            Err(error) => return Err(error),
        }
    } else {
        for object in &found {
            match objects.delete(&object.name_any(), &params).await {
                Ok(_) => {}
                Err(error) if api::is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    if !listable {
        return Ok(Vec::new());
    }
    let left = list().await?;
    if kind.name() == "pods" {
        // They end in their own time; the cache tells when the last is gone.
        debug!(namespace, left = left.len(), grace = grace(context, namespace), "pods were told to end");
    }
    Ok(left)
}

/// Whether a deleted object goes when its time is up, or when whoever holds it lets go. One that has neither is left over from a
/// deletion that was broken off, and has to be deleted again.
fn is_leaving(metadata: &ObjectMeta) -> bool {
    let has_time = metadata.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
    let is_held = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    metadata.deletion_timestamp.is_some() && (has_time || is_held)
}

/// How long the pods of a namespace may take to end.
fn grace(context: &Context, namespace: &str) -> i64 {
    let pods = context.kinds.pods.in_namespace(namespace);
    let grace = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    pods.iter().filter_map(|pod| grace(pod)).max().unwrap_or(0)
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the content of namespace {namespace} is not deleted: {error}")]
    Content { namespace: String, error: String },
    #[error("failed to write the status of namespace {namespace}")]
    Status { namespace: String, source: kube::Error },
    #[error("failed to finalize namespace {namespace}")]
    Finalize { namespace: String, source: kube::Error },
}
