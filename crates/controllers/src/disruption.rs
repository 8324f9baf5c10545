//! Keeps the status of pod disruption budgets, on which evictions depend, and takes back what pods say that were to go and
//! do not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ObjectMeta};
use reconcile::{Key, Next, Queue};
use rules::disruption::{decide, fail_safe, needs_scale, stays, stays_at};
use rules::meta::{controller_of, selector};

use crate::context::Context;
use crate::discovery::{Served, discover};
use crate::{Run, api};

/// Events are told under this name.
const SOURCE: &str = "controllermanager";

/// Budgets, or pods, that are worked on at once.
const AT_ONCE: usize = 8;
/// Pods change in crowds.
const BATCH: Duration = Duration::from_millis(50);

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let (queue, targets): (Queue<Key>, Queue<Key>) = (Queue::new(), Queue::new());
    let kinds = &context.kinds;
    let budgets = kinds.disruption_budgets.feeding(&queue);
    let (pods, deployments) = (kinds.pods.wanted(), kinds.deployments.wanted());
    let (sets, stateful) = (kinds.replica_sets.wanted(), kinds.stateful_sets.wanted());
    let controllers = kinds.replication_controllers.wanted();
    let line = targets.clone();
    pods.on_change(move |change| {
        if change.new.is_some_and(|pod| stays_at(pod).is_some()) {
            line.add(change.key.clone());
        }
    });
    let (line, known) = (queue.clone(), budgets.clone());
    pods.on_change(move |change| {
        if !known.is_ready() {
            return;
        }
        for budget in known.in_namespace(&change.key.namespace) {
            let wanted = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let guards = |pod: &Arc<Pod>| selector::matches(wanted, pod.labels()) == Some(true);
            if change.old.into_iter().chain(change.new).any(guards) {
                line.add_after(Key::of(&*budget), BATCH);
            }
        }
    });
    let reads = [
        budgets.filled(),
        pods.filled(),
        deployments.filled(),
        sets.filled(),
        controllers.filled(),
        stateful.filled(),
    ];
    let stale = context.work(targets, AT_ONCE, [pods.filled()], take_back);
    futures::future::join(context.work(queue, AT_ONCE, reads, sync), stale).map(drop).boxed()
}

/// Takes back what a pod says that was to go, once it is clear that it does not.
async fn take_back(context: Context, key: Key) -> Result<Next, NotTakenBack> {
    let Some(pod) = context.kinds.pods.get(&key) else { return Ok(Next::Done) };
    let (now, at) = (context.clock.now(), stays_at(&pod));
    if at.is_none_or(|at| at > now) {
        return Ok(Next::at(at, now));
    }
    let written = context.kinds.pods.write_status(&context.client, &key, &stays(&pod, now)).await;
    written.map_err(|source| NotTakenBack { pod: key, source })
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let Some(budget) = context.kinds.disruption_budgets.get(&key) else { return Ok(Next::Done) };
    let wanted = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let pods = context.kinds.pods.in_namespace(&key.namespace);
    // Those that have ended count, too, as in Kubernetes.
    let guarded = pods.iter().filter(|pod| selector::matches(wanted, pod.labels()) == Some(true));
    let guarded: Vec<&Pod> = guarded.map(Arc::as_ref).collect();
    if guarded.is_empty() {
        context.events.tell(SOURCE, &*budget, "Normal", "NoPods", "No matching pods found");
    }
    let now = context.clock.now();
    let scale = if needs_scale(&budget) { scale(context, &key.namespace, &guarded).await } else { Ok(0) };
    let (status, look_again) = match scale {
        Ok(scale) => {
            let alone = guarded.iter().any(|pod| controller_of(&pod.metadata).is_none());
            if alone && needs_scale(&budget) {
                let message = format!(
                    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
                     status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
                     for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                    wanted.map(selector::in_go).unwrap_or_default()
                );
                context.events.tell(SOURCE, &*budget, "Warning", "UnmanagedPods", message);
            }
            decide(&budget, &guarded, scale, now)
        }
        Err(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            let reason = "CalculateExpectedPodCountFailed";
            context.events.tell(SOURCE, &*budget, "Warning", reason, message);
            (fail_safe(&budget, &why, now), None)
        }
    };
    if let Some(status) = status {
        let mut changed = (*budget).clone();
        changed.status = Some(status);
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(context.client.clone(), &key.namespace);
        match budgets.replace_status(&key.name, &api::post(), &changed).await {
            Ok(written) => context.kinds.disruption_budgets.put(written),
            Err(error) if api::is_not_found(&error) => return Ok(Next::Done),
            // Evictions write here, too.
            Err(error) if api::is_conflict(&error) => return Ok(Next::After(BATCH)),
            Err(source) => return Err(Error { budget: key, source }),
        }
    }
    let wait = look_again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default() + BATCH);
    Ok(wait.map_or(Next::Done, Next::After))
}

/// How many pods the controllers of these pods want; an error says why nobody knows. Pods without one do not count.
async fn scale(context: &Context, namespace: &str, pods: &[&Pod]) -> Result<i32, String> {
    let mut asked = BTreeSet::new();
    let mut scale: BTreeMap<String, i32> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = controller_of(&pod.metadata) else { continue };
        if asked.insert(&owner.uid) {
            let Some((uid, wanted)) = wanted_by(context, namespace, owner).await? else {
                return Err(format!("found no controllers for pod {:?}", pod.name_any()));
            };
            scale.insert(uid, wanted);
        }
    }
    Ok(scale.into_values().fold(0, i32::saturating_add))
}

/// The controller that counts, by its uid, and how many pods it wants: the Deployment of a ReplicaSet, or the owner itself.
async fn wanted_by(
    context: &Context,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<(String, i32)>, String> {
    let kinds = &context.kinds;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let named = Key::new(namespace, &owner.name);
    let is_meant = |meta: &ObjectMeta| meta.uid.as_ref() == Some(&owner.uid);
    let own = |replicas: Option<i32>| Some((owner.uid.clone(), replicas.unwrap_or(1)));
    let known = match (group, owner.kind.as_str()) {
        ("", "ReplicationController") => kinds
            .replication_controllers
            .get(&named)
            .filter(|found| is_meant(&found.metadata))
            .and_then(|found| own(found.spec.as_ref()?.replicas)),
        ("apps", "StatefulSet") => kinds
            .stateful_sets
            .get(&named)
            .filter(|found| is_meant(&found.metadata))
            .and_then(|found| own(found.spec.as_ref()?.replicas)),
        ("apps" | "extensions", "ReplicaSet") => {
            let found = kinds.replica_sets.get(&named).filter(|found| is_meant(&found.metadata));
            found.and_then(|found| match controller_of(&found.metadata) {
                Some(deployment) if deployment.kind == "Deployment" => {
                    let found = kinds.deployments.get(&Key::new(namespace, &deployment.name))?;
                    let uid = found.uid().filter(|uid| *uid == deployment.uid)?;
                    Some((uid, found.spec.as_ref()?.replicas.unwrap_or(1)))
                }
                _ => own(found.spec.as_ref()?.replicas),
            })
        }
        _ => None,
    };
    if known.is_some() {
        return Ok(known);
    }
    scale_of(context, namespace, owner).await
}

/// What an owner of any kind says by its scale.
async fn scale_of(
    context: &Context,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<(String, i32)>, String> {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let found = discover(&context.client).await.map_err(|error| api::message(&error))?.served;
    let is_meant = |kind: &&Served| kind.resource.group == group && kind.resource.kind == owner.kind;
    let Some(kind) = found.iter().find(is_meant) else {
        return Err(format!("no matches for kind {:?} in version {:?}", owner.kind, owner.api_version));
    };
    if !kind.has_scale {
        return Err(format!("{} does not implement the scale subresource", kind.name()));
    }
    let objects: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), namespace, &kind.resource);
    match objects.get_scale(&owner.name).await {
        Ok(scale) if scale.metadata.uid.as_ref() == Some(&owner.uid) => {
            let wanted = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
            Ok(Some((owner.uid.clone(), wanted)))
        }
        Ok(_) => Ok(None),
        Err(error) if api::is_not_found(&error) => Ok(None),
        Err(error) => Err(api::message(&error)),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("failed to write the status of budget {budget}")]
struct Error {
    budget: Key,
    source: kube::Error,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to take back that pod {pod} was to go")]
struct NotTakenBack {
    pod: Key,
    source: kube::Error,
}
