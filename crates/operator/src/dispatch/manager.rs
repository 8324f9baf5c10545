//! The lane of the manager: Workloads and jobs there, and word to the other lanes.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use reconcile::{Key, Next, Tasks};
use rules::{
    dispatch::{
        Adapter, Because, Check, HELD, Observed, Owner, Plan, Step,
        adapter::{Back, GROUP},
        group, held, held_identity, local,
    },
    workload::{
        patch::{self, ADMISSION_MANAGER, Manner},
        plan::{self, Event},
        state,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, info};
use types::kueue::{CheckState, Workload, WorkloadStatus};

use super::{
    Error, Shared,
    call::{MANAGER, within},
    due::Due,
    observe::decided,
    worker::resource,
};
use crate::{events::WORKLOADS, kinds::kind_of, write::difference_of};

/// Under this name a job's status is written.
const FIELD_MANAGER: &str = "kueue";
/// How soon to try again when somebody else wrote first.
const AGAIN: Duration = Duration::from_millis(20);

pub(super) fn start(shared: &Arc<Shared>, tasks: &mut Tasks) {
    let shared = Arc::clone(shared);
    tasks.spawn("dispatch", async move {
        shared.ready().await;
        shared.wake_all();
        let due = Due::default();
        let queue = shared.wake.workloads.clone();
        queue.run(shared.settings.concurrency, |key| work(&shared, &due, key)).await;
    });
}

async fn work(shared: &Arc<Shared>, due: &Due, key: Key) -> Result<Next, Error> {
    let (seen, plan) = decided(shared, &key);
    if plan.steps.is_empty() {
        debug!(workload = %key, %plan, "decided");
    } else {
        info!(workload = %key, %plan, "decided");
    }
    for step in &plan.steps {
        let worker = step.cluster().and_then(|cluster| shared.clusters.get(cluster.as_str())?.worker());
        if let Some(worker) = worker {
            worker.lane.add(key.clone());
        }
    }
    forget(shared, &key, &plan);
    if !only_news(&seen, &plan) {
        due.forget(&key);
    } else if let Some(wait) = due.wait(&key, shared.settings.collect, Instant::now()) {
        return Ok(Next::After(wait));
    }
    if !apply(shared, &key, &seen, &plan).await? {
        return Ok(Next::After(AGAIN));
    }
    due.forget(&key);
    Ok(match Next::at(plan.again, shared.clock.now()) {
        Next::Done => Next::Done,
        Next::After(wait) => Next::After(wait.max(AGAIN)),
    })
}

/// What is over and gone everywhere needs no notes any more.
fn forget(shared: &Shared, key: &Key, plan: &Plan) {
    let is_over = plan.steps.is_empty() && plan.again.is_none();
    if is_over && matches!(plan.because, Because::Gone | Because::Finished) {
        shared.forms.forget(key);
        shared.clusters.all().iter().for_each(|(_, connection)| connection.book.forget(key));
    }
}

/// Whether a plan only shows news of a job that goes on. The end of a job, and anything that somebody waits for, is more.
fn only_news(seen: &Observed, plan: &Plan) -> bool {
    matches!(plan.because, Because::Admitted(_))
        && seen.check.as_ref().is_some_and(|check| check.state == CheckState::Ready)
        && plan.on_manager().all(|step| matches!(step, Step::Mirror { .. }))
        && plan.on_manager().next().is_some()
}

/// Takes the steps on the manager. Says whether nobody else was faster.
async fn apply(shared: &Shared, key: &Key, seen: &Observed, plan: &Plan) -> Result<bool, Error> {
    let steps: Vec<&Step> = plan.on_manager().collect();
    let Some(local) = seen.local.as_deref() else { return Ok(true) };
    for step in &steps {
        if let (Step::Mirror { status, .. } | Step::Settle(status), Some(job)) = (step, seen.job.as_deref())
            && !show(shared, key, local, job, status).await?
        {
            return Ok(false);
        }
    }
    if is_left_alone(local, &steps) {
        return Ok(true);
    }
    let check = seen.check.as_ref().map_or("", |check| &check.name);
    let next = local::apply(local, check, &steps, shared.clock.now());
    let next = local::identified(next, |cluster| shared.clusters.get(cluster.as_str())?.identity());
    let Some(changes) = local::patch(local, &next) else { return Ok(true) };
    match write(shared, local, &next, changes).await {
        Ok(()) => {
            tell(shared, local, seen.check.as_ref(), &steps);
            tell_admission(shared, local, &next);
        }
        Err(error) if error.is_conflict() => return Ok(false),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(true)
}

/// Whether steps change nothing of a Workload, whose record says which cluster is meant if it has one.
fn is_left_alone(local: &Workload, steps: &[&Step]) -> bool {
    steps.iter().all(|step| matches!(step, Step::Mirror { .. } | Step::Settle(_)))
        && (held(local).is_none() || held_identity(local).is_some())
}

/// Writes the status of a Workload on the version that was decided on. It is written as Kueue would write it; where
/// somebody else wrote the list of nominated clusters, which is not taken back that way, what changes is named.
async fn write(shared: &Shared, old: &Workload, new: &Workload, mut changes: Value) -> Result<(), Error> {
    let namespace = old.metadata.namespace.as_deref().unwrap_or_default();
    let name = old.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Workload> = Api::namespaced(shared.client.clone(), namespace);
    let status = new.status.clone().unwrap_or_default();
    let (params, body) = (
        PatchParams::apply(ADMISSION_MANAGER).force(),
        Patch::Apply(patch::admission(old, &status, Manner::Strict)),
    );
    let call = api.patch_status(name, &params, &body);
    let version = match within(shared.settings.deadline, "write a Workload", MANAGER, call).await {
        Err(error) if error.code() == Some(422) => old.metadata.resource_version.clone(),
        Err(error) => return Err(error),
        Ok(answer) if is_left_over(&status, &answer) => answer.metadata.resource_version.clone(),
        Ok(answer) => {
            shared.workloads.put(answer);
            return Ok(());
        }
    };
    changes["metadata"]["resourceVersion"] = json!(version);
    let (params, body) = (params_of(), Patch::Merge(changes));
    let call = api.patch_status(name, &params, &body);
    shared.workloads.put(within(shared.settings.deadline, "write a Workload", MANAGER, call).await?);
    Ok(())
}

/// Whether a cluster, those that were nominated, or the record are still there although they were to go: somebody else
/// had written them, too, and what only one owner takes back stays (MK-DISP-14).
fn is_left_over(wanted: &WorkloadStatus, got: &Workload) -> bool {
    let is_held = |status: &WorkloadStatus| status.conditions.iter().any(|it| it.type_ == HELD);
    got.status.as_ref().is_some_and(|got| {
        got.cluster_name != wanted.cluster_name
            || got.nominated_cluster_names != wanted.nominated_cluster_names
            || is_held(got) != is_held(wanted)
    })
}

/// Shows the status of a job. Says whether nobody else was faster.
async fn show(
    shared: &Shared,
    key: &Key,
    local: &Workload,
    job: &DynamicObject,
    status: &Value,
) -> Result<bool, Error> {
    let Some(adapter) = Owner::of(local).and_then(|owner| owner.adapter()) else { return Ok(true) };
    if adapter.back == Back::Group {
        return show_members(shared, key, job, status).await;
    }
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let body = Patch::Merge(json!({
        "metadata": {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version},
        "status": replacing(job.data.get("status"), status),
    }));
    match patch_job(shared, adapter, &key.namespace, name, &body).await {
        Ok(()) => Ok(true),
        Err(error) if error.is_conflict() => Ok(false),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error),
    }
}

/// Shows the statuses of the pods of a group. Says whether nobody else was faster.
async fn show_members(
    shared: &Shared,
    key: &Key,
    group: &DynamicObject,
    status: &Value,
) -> Result<bool, Error> {
    let mut is_first = true;
    for (name, member, shown, next) in group::changes(group, status) {
        let body = Patch::Merge(json!({
            "metadata": {"uid": member["uid"], "resourceVersion": member["resourceVersion"]},
            "status": replacing(shown, next),
        }));
        match patch_job(shared, &GROUP, &key.namespace, name, &body).await {
            Err(error) if error.is_conflict() => is_first = false,
            Err(error) if error.is_not_found() => {}
            done => done?,
        }
    }
    Ok(is_first)
}

async fn patch_job(
    shared: &Shared,
    adapter: &Adapter,
    namespace: &str,
    name: &str,
    body: &Patch<Value>,
) -> Result<(), Error> {
    let (deadline, params) = (shared.settings.deadline, params_of());
    if adapter.kind == "Job" {
        let api: Api<Job> = Api::namespaced(shared.client.clone(), namespace);
        let answer =
            within(deadline, "show a job's status", MANAGER, api.patch_status(name, &params, body)).await?;
        shared.jobs.put(answer);
        return Ok(());
    }
    if adapter.kind == "Pod" {
        let api: Api<Pod> = Api::namespaced(shared.client.clone(), namespace);
        let answer =
            within(deadline, "show a job's status", MANAGER, api.patch_status(name, &params, body)).await?;
        if let Some(pods) = &shared.pods.queued {
            pods.put(answer);
        }
        return Ok(());
    }
    let api: Api<DynamicObject> = Api::namespaced_with(shared.client.clone(), namespace, &resource(adapter));
    let answer =
        within(deadline, "show a job's status", MANAGER, api.patch_status(name, &params, body)).await?;
    if let Some(objects) = shared.kinds.seen(&kind_of(adapter)) {
        objects.put(answer);
    }
    Ok(())
}

/// A merge patch that leaves nothing of what was there before, however deep it is.
fn replacing(old: Option<&Value>, new: &Value) -> Value {
    difference_of(old.unwrap_or(&Value::Null), new, None).unwrap_or_else(|| json!({}))
}

/// What was done is told where people look for it (section 9.4 of the rules).
fn tell(shared: &Shared, about: &Workload, check: Option<&Check>, steps: &[&Step]) {
    for step in steps {
        let event = match step {
            Step::Ready(cluster) => {
                if check.is_none_or(|check| check.state != CheckState::Ready) {
                    shared.metrics.admitted_on(about, cluster.as_str());
                }
                Event::normal("MultiKueue", &local::admitted_on(cluster))
            }
            Step::Retry { message, warn: true } => Event::warning("MultiKueue", message),
            Step::Retry { message, warn: false } => Event::normal("MultiKueue", message),
            _ => continue,
        };
        shared.recorder.tell(WORKLOADS, about, &event);
    }
}

/// Where the last check is this one, passing it admits (SM-11).
fn tell_admission(shared: &Shared, before: &Workload, after: &Workload) {
    if state::is_admitted(before) || !state::is_admitted(after) {
        return;
    }
    let now = shared.clock.now();
    shared.metrics.admitted(state::cluster_queue(after).unwrap_or_default(), after, now);
    shared.recorder.tell(WORKLOADS, after, &plan::admitted(after, now));
}

fn params_of() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A JSON merge patch, as an API server applies it.
    fn patched(mut there: Value, patch: &Value) -> Value {
        let Some(fields) = patch.as_object() else { return patch.clone() };
        if !there.is_object() {
            there = json!({});
        }
        for (key, value) in fields {
            match value {
                Value::Null => drop(there.as_object_mut().expect("it is one").remove(key)),
                value => there[key] = patched(there[key].take(), value),
            }
        }
        there
    }

    /// MK-FLOW-16: the pods of a Kubeflow job that is evicted were shown for ever, and its quota was never free: a worker does
    /// not say that there are none, it says nothing of them.
    #[test]
    fn what_a_worker_no_longer_says_is_shown_no_longer() {
        let running = json!({
            "conditions": [{"type": "Running", "status": "True"}], "startTime": "2026-01-01T00:00:00Z",
            "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 2, "failed": 1, "labelSelector": {"a": "b"}}},
        });
        let stopped = json!({
            "conditions": [{"type": "Suspended", "status": "True"}],
            "replicaStatuses": {"Master": {}, "Worker": {"failed": 1}},
        });
        for (old, new) in [
            (&running, &stopped),
            (&stopped, &running),
            (&running, &json!({})),
            (&json!({}), &running),
            (&running, &json!({"replicaStatuses": null})),
            (&running, &json!({"replicaStatuses": {"Worker": {"active": null}}})),
        ] {
            let shown = patched(old.clone(), &replacing(Some(old), new));
            assert!(same(&shown, new), "{old} became {shown}, not {new}");
        }
        assert_eq!(patched(Value::Null, &replacing(None, &running)), running);
    }

    /// The same, but for what is null, which an object does not keep.
    fn same(shown: &Value, new: &Value) -> bool {
        patched(json!({}), shown) == patched(json!({}), new)
    }
}
