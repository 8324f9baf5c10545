//! Keeps the status of pod disruption budgets, on which evictions depend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::Api;
use reconcile::{Key, Next, Queue};
use rules::disruption::decide;
use rules::job::spec as job_spec;
use rules::meta::{controller_of, selector};

use crate::context::Context;
use crate::{Run, api};

/// Budgets that are worked on at once.
const AT_ONCE: usize = 8;
/// Pods change in crowds.
const BATCH: Duration = Duration::from_millis(50);

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let budgets = kinds.disruption_budgets.feeding(&queue);
    let (pods, jobs, stateful) = (kinds.pods.wanted(), kinds.jobs.wanted(), kinds.stateful_sets.wanted());
    let (sets, controllers) = (kinds.replica_sets.wanted(), kinds.replication_controllers.wanted());
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
        jobs.filled(),
        sets.filled(),
        controllers.filled(),
        stateful.filled(),
    ];
    context.work(queue, AT_ONCE, reads, sync)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let Some(budget) = context.kinds.disruption_budgets.get(&key) else { return Ok(Next::Done) };
    let wanted = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let pods = context.kinds.pods.in_namespace(&key.namespace);
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let guarded =
        pods.iter().filter(|pod| selector::matches(wanted, pod.labels()) == Some(true) && !ended(pod));
    let guarded: Vec<&Pod> = guarded.map(Arc::as_ref).collect();
    let scale = scale(context, &key, &guarded);
    let now = context.clock.now();
    let (status, look_again) = decide(&budget, &guarded, &scale, now);
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

/// How many pods the controllers of these pods want, by the controller's uid.
fn scale(context: &Context, key: &Key, pods: &[&Pod]) -> BTreeMap<String, i32> {
    let kinds = &context.kinds;
    let mut scale = BTreeMap::new();
    for owner in pods.iter().filter_map(|pod| controller_of(&pod.metadata)) {
        let named = Key::new(&key.namespace, &owner.name);
        let wanted = match owner.kind.as_str() {
            "ReplicaSet" => {
                kinds.replica_sets.get(&named).map(|it| it.spec.clone().unwrap_or_default().replicas)
            }
            "ReplicationController" => kinds
                .replication_controllers
                .get(&named)
                .map(|it| it.spec.clone().unwrap_or_default().replicas),
            "StatefulSet" => {
                kinds.stateful_sets.get(&named).map(|it| it.spec.clone().unwrap_or_default().replicas)
            }
            "Job" => kinds.jobs.get(&named).map(|it| job_spec(&it).parallelism),
            _ => None,
        };
        if let Some(wanted) = wanted {
            scale.insert(owner.uid.clone(), wanted.unwrap_or(1));
        }
    }
    scale
}

#[derive(Debug, thiserror::Error)]
#[error("failed to write the status of budget {budget}")]
struct Error {
    budget: Key,
    source: kube::Error,
}
