//! The Deployment controller: one ReplicaSet per template, and the way from one to the next.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PropagationPolicy};
use reconcile::{Key, Next, Queue};
use rules::deployment::{Plan, REVISION, decide, not_created, same_template};
use rules::meta::{controller_of, selector};
use serde_json::json;
use tracing::{debug, warn};

use crate::context::Context;
use crate::job::{BY_CONTROLLER, controller_uid};
use crate::{Run, api};

/// Events are told under this name.
const SOURCE: &str = "deployment-controller";
/// Deployments that are worked on at once.
const AT_ONCE: usize = 16;
/// Index of ReplicaSets by the uid of their Deployment.
pub(crate) const BY_OWNER: &str = "deployment";

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let (deployments, sets, pods) =
        (kinds.deployments.feeding(&queue), kinds.replica_sets.wanted(), kinds.pods.wanted());
    sets.index(BY_OWNER, |set| {
        controller_of(&set.metadata).map(|owner| owner.uid.clone()).into_iter().collect()
    });
    pods.index(BY_CONTROLLER, controller_uid);
    let (line, known) = (queue.clone(), deployments.clone());
    sets.on_change(move |change| {
        let mut owned = false;
        for owner in change.old.into_iter().chain(change.new).filter_map(|set| controller_of(&set.metadata)) {
            owned = true;
            if owner.kind == "Deployment" {
                line.add(Key::new(&change.key.namespace, &owner.name));
            }
        }
        let Some(set) = change.new.filter(|_| !owned && known.is_ready()) else { return };
        for deployment in known.in_namespace(&change.key.namespace) {
            let wanted = deployment.spec.as_ref().map(|spec| &spec.selector);
            if selector::matches(wanted, set.labels()) == Some(true) {
                line.add(Key::of(&*deployment));
            }
        }
    });
    let (line, known) = (queue.clone(), sets.clone());
    pods.on_change(move |change| {
        // A Deployment that recreates waits for its last old pod.
        let Some(pod) = change.old.filter(|_| change.new.is_none()) else { return };
        let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else {
            return;
        };
        let set =
            known.is_ready().then(|| known.get(&Key::new(&change.key.namespace, &owner.name))).flatten();
        if let Some(owner) = set.as_ref().and_then(|set| controller_of(&set.metadata)) {
            line.add(Key::new(&change.key.namespace, &owner.name));
        }
    });
    context.work(queue, AT_ONCE, [deployments.filled(), sets.filled(), pods.filled()], sync)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let Some(deployment) = context.kinds.deployments.get(&key) else { return Ok(Next::Done) };
    claim(context, &deployment, &key).await?;
    let uid = deployment.uid().unwrap_or_default();
    let sets = context.kinds.replica_sets.by(BY_OWNER, &uid);
    let template = deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let old_pods_run = sets.iter().filter(|set| !same_template(set, &template)).any(|set| {
        let pods = context.kinds.pods.by(BY_CONTROLLER, &set.uid().unwrap_or_default());
        let ended = |phase: Option<&str>| matches!(phase, Some("Succeeded" | "Failed"));
        pods.iter().any(|pod| !ended(pod.status.as_ref().and_then(|status| status.phase.as_deref())))
    });
    let now = context.clock.now();
    let sets: Vec<&ReplicaSet> = sets.iter().map(Arc::as_ref).collect();
    let plan = decide(&deployment, &sets, old_pods_run, now);
    debug!(deployment = %key, told = ?plan.events, "decided");
    let look_again = plan.look_again;
    match apply(context, &key, &deployment, plan).await {
        Ok(()) => {}
        Err(Error::Write { ref source, .. }) if api::is_conflict(source) => {
            return Ok(Next::After(Duration::from_millis(20)));
        }
        Err(error) => return Err(error),
    }
    let wait = look_again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    Ok(wait.map_or(Next::Done, Next::After))
}

/// Adopts sets that nobody controls and that the selector matches; lets go of those that it does not match any more.
async fn claim(context: &Context, deployment: &Deployment, key: &Key) -> Result<(), Error> {
    if deployment.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let wanted = deployment.spec.as_ref().map(|spec| &spec.selector);
    let sets: Api<ReplicaSet> = Api::namespaced(context.client.clone(), &key.namespace);
    for set in context.kinds.replica_sets.in_namespace(&key.namespace) {
        let matches = selector::matches(wanted, set.labels()) == Some(true);
        let owners = match controller_of(&set.metadata) {
            None if matches && set.metadata.deletion_timestamp.is_none() => json!([{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": key.name, "uid": deployment.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }]),
            Some(owner) if Some(&owner.uid) == deployment.metadata.uid.as_ref() && !matches => {
                json!([{"$patch": "delete", "uid": owner.uid}])
            }
            _ => continue,
        };
        let patch = Patch::Strategic(json!({"metadata": {"uid": set.uid(), "ownerReferences": owners}}));
        match sets.patch(&set.name_any(), &api::patch(), &patch).await {
            Ok(changed) => context.kinds.replica_sets.put(changed),
            Err(error) if api::is_not_found(&error) => {}
            Err(source) => return Err(Error::Write { deployment: key.clone(), source }),
        }
    }
    Ok(())
}

async fn apply(context: &Context, key: &Key, deployment: &Deployment, plan: Plan) -> Result<(), Error> {
    let sets: Api<ReplicaSet> = Api::namespaced(context.client.clone(), &key.namespace);
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), &key.namespace);
    let failed = |source| Error::Write { deployment: key.clone(), source };
    let mut current = deployment.clone();
    if let Some(set) = plan.create {
        match sets.create(&api::post(), &set).await {
            Ok(created) => context.kinds.replica_sets.put(created),
            Err(error) if api::is_namespace_terminating(&error) => return Ok(()),
            Err(error) if api::is_already_exists(&error) => {
                let existing = sets.get(&set.name_any()).await.map_err(failed)?;
                let ours = controller_of(&existing.metadata)
                    .is_some_and(|owner| Some(&owner.uid) == deployment.metadata.uid.as_ref());
                let same =
                    deployment.spec.as_ref().is_some_and(|spec| same_template(&existing, &spec.template));
                if ours && same {
                    context.kinds.replica_sets.put(existing);
                } else {
                    // Another template has its name: the next name is made from a higher count.
                    let count =
                        current.status.as_ref().and_then(|status| status.collision_count).unwrap_or(0);
                    current.status.get_or_insert_default().collision_count = Some(count + 1);
                    let written = deployments.replace_status(&key.name, &api::post(), &current).await;
                    context.kinds.deployments.put(written.map_err(failed)?);
                }
                return Ok(());
            }
            Err(error) => {
                let message = format!(
                    "Failed to create new replica set {:?}: {}",
                    set.name_any(),
                    api::message(&error)
                );
                context.events.tell(SOURCE, deployment, "Warning", "ReplicaSetCreateError", message.clone());
                if let Some(status) = not_created(deployment, message, context.clock.now()) {
                    current.status = Some(status);
                    match deployments.replace_status(&key.name, &api::post(), &current).await {
                        Ok(written) => context.kinds.deployments.put(written),
                        // The next attempt says it.
                        Err(error) => {
                            warn!(deployment = %key, error = reconcile::chain(&error), "failed to say why it has no set");
                        }
                    }
                }
                return Err(failed(error));
            }
        }
    }
    for set in &plan.update {
        let written = sets.replace(&set.name_any(), &api::post(), set).await.map_err(failed)?;
        context.kinds.replica_sets.put(written);
    }
    for message in plan.events {
        context.events.tell(SOURCE, deployment, "Normal", "ScalingReplicaSet", message);
    }
    for (name, uid) in plan.delete {
        match sets.delete(&name, &api::delete(Some(&uid), Some(PropagationPolicy::Background))).await {
            Ok(_) => {}
            Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    if let Some(revision) = plan.revision {
        // As a status, so that it counts as no change of what is wanted: annotations do, otherwise.
        let patch = Patch::Merge(json!({"metadata": {"annotations": {REVISION: revision}}}));
        current = deployments.patch_status(&key.name, &api::patch(), &patch).await.map_err(failed)?;
        context.kinds.deployments.put(current.clone());
    }
    if let Some(status) = plan.status {
        current.status = Some(*status);
        let written = deployments.replace_status(&key.name, &api::post(), &current).await.map_err(failed)?;
        context.kinds.deployments.put(written);
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to carry on deployment {deployment}")]
    Write { deployment: Key, source: kube::Error },
}
