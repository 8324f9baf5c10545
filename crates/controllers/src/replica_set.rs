//! The controllers of ReplicaSets and ReplicationControllers: so many pods, no more and no less.

mod owner;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::ResourceExt as _;
use kube::api::Api;
use reconcile::{Change, Key, Next, Queue};
use rules::job::plan::slow_start;
use rules::meta::{controller_of, selector};
use rules::replicas::{Plan, decide};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::debug;

pub(crate) use self::owner::Owner;
use crate::context::Context;
use crate::deployment::BY_OWNER;
use crate::job::{BY_CONTROLLER, FREE, controller_uid, free_labels};
use crate::{Run, api, pods};

/// Owners that are worked on at once.
const AT_ONCE: usize = 16;
/// Requests about the pods of one owner that are under way at once.
const PODS_AT_ONCE: usize = 64;

/// Says what the ReplicaSet controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    prepare_for::<ReplicaSet>(context)
}

/// Says what the ReplicationController controller watches, and returns its work.
pub(crate) fn prepare_replication(context: &Context) -> Run {
    prepare_for::<ReplicationController>(context)
}

fn prepare_for<K>(context: &Context) -> Run
where
    K: Owner + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let queue: Queue<Key> = Queue::new();
    let (owners, pods) = (K::cache(&context.kinds).feeding(&queue), context.kinds.pods.wanted());
    owners.index(BY_OWNER, |owner| {
        controller_of(owner.meta()).map(|owner| owner.uid.clone()).into_iter().collect()
    });
    pods.index(BY_CONTROLLER, controller_uid);
    pods.index(FREE, free_labels);
    let (line, of) = (queue.clone(), context.clone());
    pods.on_change(move |change| pod_changed::<K>(&of, &line, change));
    context.work(queue, AT_ONCE, [owners.filled(), pods.filled()], |context, key| {
        async move { sync::<K>(&context, key).await }.boxed()
    })
}

fn pod_changed<K: Owner>(context: &Context, line: &Queue<Key>, change: &Change<'_, Pod>) {
    let mut owned = false;
    for pod in change.old.into_iter().chain(change.new) {
        if let Some(owner) = controller_of(&pod.metadata) {
            owned = true;
            if owner.kind == K::KIND {
                line.add(Key::new(&change.key.namespace, &owner.name));
            }
        }
    }
    let Some(pod) = change.new.filter(|_| !owned) else { return };
    let owners = K::cache(&context.kinds);
    if owners.is_ready() {
        for owner in owners.in_namespace(&change.key.namespace) {
            if selector::matches(owner.wanted().selector.as_ref(), pod.labels()) == Some(true) {
                line.add(Key::of(&*owner));
            }
        }
    }
}

async fn sync<K>(context: &Context, key: Key) -> Result<Next, Error>
where
    K: Owner + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let Some(owner) = K::cache(&context.kinds).get(&key) else { return Ok(Next::Done) };
    let wanted = owner.wanted();
    let uid = owner.meta().uid.clone().unwrap_or_default();
    let mut pods = context.kinds.pods.by(BY_CONTROLLER, &uid);
    let labels = wanted.selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
    let free = match labels.and_then(|labels| labels.first_key_value()) {
        Some((label, value)) => format!("{}/{label}={value}", key.namespace),
        None => key.namespace.clone(),
    };
    pods.extend(context.kinds.pods.by(FREE, &free));
    let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).collect();
    let sisters = controller_of(owner.meta()).map(|owner| K::cache(&context.kinds).by(BY_OWNER, &owner.uid));
    let uids = sisters.into_iter().flatten().filter_map(|sister| sister.meta().uid.clone());
    let related: Vec<Arc<Pod>> = uids.flat_map(|uid| context.kinds.pods.by(BY_CONTROLLER, &uid)).collect();
    let related: Vec<&Pod> = related.iter().map(Arc::as_ref).collect();
    let now = context.clock.now();
    let plan = decide(&wanted, &pods, &related, now);
    let Plan { create, delete, counts, .. } = &plan;
    debug!(owner = %key, create = create.len(), delete = delete.len(), ?counts, "decided");
    pods::claim(context, &*owner, &key, &plan.claims).await?;
    let failure = carry_out(context, &*owner, &plan).await;
    // Pods were put into the cache as they were written: what is counted now is what there is.
    let changed = owner.with_status(counts, failure.as_ref(), now);
    if let Some(changed) = changed {
        let owners: Api<K> = Api::namespaced(context.client.clone(), &key.namespace);
        match owners.replace_status(&key.name, &api::post(), &changed).await {
            Ok(written) => K::cache(&context.kinds).put(written),
            Err(error) if api::is_not_found(&error) => return Ok(Next::Done),
            Err(error) if api::is_conflict(&error) => return Ok(Next::After(Duration::from_millis(20))),
            Err(source) => return Err(Error::Status { owner: key, source }),
        }
    }
    if let Some(failure) = failure {
        return Err(Error::Pods { owner: key, what: failure.message });
    }
    let wait = plan.look_again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    Ok(wait.map_or(Next::Done, Next::After))
}

/// Why pods are not as they should be, for the condition `ReplicaFailure`.
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

async fn carry_out<K: Owner>(context: &Context, owner: &K, plan: &Plan) -> Option<Failure> {
    for batch in slow_start(plan.create.len()) {
        let creations =
            plan.create[batch].iter().map(|pod| pods::create(context, K::SOURCE, owner, pod).boxed());
        let done = api::together(PODS_AT_ONCE, creations.collect()).await;
        if let Some(message) = done.into_iter().find_map(Result::err) {
            return Some(Failure { reason: "FailedCreate", message });
        }
    }
    let deletions = plan.delete.iter().map(|pod| pods::delete(context, K::SOURCE, owner, pod).boxed());
    let done = api::together(PODS_AT_ONCE, deletions.collect()).await;
    let message = done.into_iter().find_map(Result::err)?;
    Some(Failure { reason: "FailedDelete", message })
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Claim(#[from] pods::Error),
    #[error("some pods of {owner} are not as they should be: {what}")]
    Pods { owner: Key, what: String },
    #[error("failed to write the status of {owner}")]
    Status { owner: Key, source: kube::Error },
}
