//! The StatefulSet controller: pods with an identity, one after the other.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, Patch};
use reconcile::{Key, Next, Queue};
use rules::meta::selector;
use rules::stateful_set::{Observed, Step, decide};
use serde_json::json;
use tracing::debug;

use crate::context::Context;
use crate::job::{BY_CONTROLLER, FREE, controller_uid, free_labels};
use crate::{Run, api, history, pods};

/// Events are told under this name.
const SOURCE: &str = "statefulset-controller";
/// Sets that are worked on at once.
const AT_ONCE: usize = 16;

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let (sets, pods) = (kinds.stateful_sets.feeding(&queue), kinds.pods.wanted());
    let (claims, revisions) = (kinds.volume_claims.wanted(), history::wanted(context));
    pods.index(BY_CONTROLLER, controller_uid);
    pods.index(FREE, free_labels);
    pods.feed_controller("StatefulSet", &queue);
    let (line, known) = (queue.clone(), sets.clone());
    pods.on_change(move |change| {
        let free = change.new.filter(|pod| controller_uid(pod).is_empty() && known.is_ready());
        let Some(pod) = free else { return };
        for set in known.in_namespace(&change.key.namespace) {
            let wanted = set.spec.as_ref().map(|spec| &spec.selector);
            if selector::matches(wanted, pod.labels()) == Some(true) {
                line.add(Key::of(&*set));
            }
        }
    });
    revisions.feed_controller("StatefulSet", &queue);
    context.work(queue, AT_ONCE, [sets.filled(), pods.filled(), claims.filled(), revisions.filled()], sync)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let kinds = &context.kinds;
    let Some(set) = kinds.stateful_sets.get(&key) else { return Ok(Next::Done) };
    let uid = set.uid().unwrap_or_default();
    let revisions = history::of(context, &uid);
    let mut pods = kinds.pods.by(BY_CONTROLLER, &uid);
    pods.extend(kinds.pods.by(FREE, &key.namespace));
    let claim = |name: &str| Some((*kinds.volume_claims.get(&Key::new(&key.namespace, name))?).clone());
    let now = context.clock.now();
    let plan = {
        let revisions: Vec<&ControllerRevision> = revisions.iter().map(Arc::as_ref).collect();
        let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).collect();
        decide(&Observed { set: &set, revisions: &revisions, pods: &pods, claim: &claim }, now)
    };
    debug!(stateful_set = %key, steps = plan.steps.len(), status = ?plan.status, "decided");
    pods::claim(context, &*set, &key, &plan.claims).await?;
    if let Some(step) = &plan.revision {
        if history::write(context, &key, step).await? {
            let mut changed = (*set).clone();
            let status = changed.status.get_or_insert_default();
            status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
            return write_status(context, &key, changed).await;
        }
        return Ok(Next::After(Duration::ZERO));
    }
    let mut failure = None;
    for step in &plan.steps {
        if let Err(error) = carry_out(context, &set, &key, step).await {
            failure = Some(error);
            break;
        }
    }
    history::forget(context, &key, &plan.forget).await?;
    if let Some(status) = plan.status {
        let changed = StatefulSet { status: Some(*status), ..(*set).clone() };
        if let next @ Next::After(_) = write_status(context, &key, changed).await? {
            return Ok(next);
        }
    }
    if let Some(what) = failure {
        return Err(Error::Step { set: key, what });
    }
    let wait = plan.look_again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
    Ok(wait.map_or(Next::Done, Next::After))
}

async fn write_status(context: &Context, key: &Key, changed: StatefulSet) -> Result<Next, Error> {
    let written = context.kinds.stateful_sets.write_status(&context.client, key, &changed).await;
    written.map_err(|source| Error::Status { set: key.clone(), source })
}

/// Carries out a step and tells of it, as upstream words it. Returns what kept it from being done.
async fn carry_out(context: &Context, set: &StatefulSet, key: &Key, step: &Step) -> Result<(), String> {
    let name = &key.name;
    let told = |result: kube::Result<()>, verb: &str, what: String| match result {
        Ok(()) => {
            let word = if what.starts_with("Claim") { "success" } else { "successful" };
            let message = format!("{verb} {what} in StatefulSet {name} {word}");
            context.events.tell(SOURCE, set, "Normal", &format!("Successful{verb}"), message);
            Ok(())
        }
        Err(error) if api::is_namespace_terminating(&error) => Ok(()),
        Err(error) => {
            let error = api::message(&error);
            let what = what.replacen(" Pod ", " for Pod ", usize::from(what.starts_with("Claim")));
            let message = format!("{verb} {what} in StatefulSet {name} failed error: {error}");
            context.events.tell(SOURCE, set, "Warning", &format!("Failed{verb}"), message);
            Err(error)
        }
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &key.namespace);
    match step {
        Step::CreateClaim(claim, pod) => {
            let done = match claims.create(&api::post(), claim).await {
                Err(error) if api::is_already_exists(&error) => return Ok(()),
                done => done.map(|created| context.kinds.volume_claims.put(created)),
            };
            told(done, "Create", format!("Claim {} Pod {pod}", claim.name_any()))
        }
        Step::OwnClaim { name, owners, told_of } => {
            let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
            let done = match claims.patch(name, &api::patch(), &patch).await {
                Err(error) if api::is_not_found(&error) => Ok(()),
                done => done.map(|written| context.kinds.volume_claims.put(written)),
            };
            match told_of {
                Some(pod) => told(done, "Update", format!("Pod {pod}")),
                None => done.map_err(|error| api::message(&error)),
            }
        }
        Step::Create(pod) => {
            let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
            let done = match pods.create(&api::post(), pod).await {
                // The cache has not heard of it yet, or it is somebody else's: nothing to tell, but to try again.
                Err(error) if api::is_already_exists(&error) => return Err(api::message(&error)),
                done => done.map(|created| context.kinds.pods.put(created)),
            };
            told(done, "Create", format!("Pod {}", pod.name_any()))
        }
        Step::Delete(pod) => match pods::remove(context, &key.namespace, pod).await {
            Ok(false) => Ok(()),
            done => told(done.map(drop), "Delete", format!("Pod {}", pod.name)),
        },
        Step::Label(pod, labels) => {
            let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
            let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
            let done = pods.patch(pod, &api::patch(), &patch).await;
            let done = done.map(|written| context.kinds.pods.put(written));
            told(done, "Update", format!("Pod {pod}"))
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Claim(#[from] pods::Error),
    #[error(transparent)]
    History(#[from] history::Error),
    #[error("failed to carry on stateful set {set}: {what}")]
    Step { set: Key, what: String },
    #[error("failed to write the status of stateful set {set}")]
    Status { set: Key, source: kube::Error },
}
