//! What happens to a Job and its pods, in both worlds: each step one write, or several that no status tells apart.

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy};
use rules::job::pods::INDEX_KEY;
use serde_json::{Value, json};

use crate::now;
use crate::world::{JOB, World};

/// One thing that happens.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A pod is bound to a node and runs, ready.
    Start(Which),
    /// A pod ends, long ago as far as delays are concerned.
    End(Which, i32),
    /// A pod fails, just now.
    FailNow(Which),
    /// A pod fails, and has this condition.
    FailWith(Which, &'static str),
    /// The container of a running pod was restarted so many times.
    Restart(Which, i32),
    /// Somebody deletes a pod.
    Delete(Which),
    /// A deleted pod is removed by its node.
    Remove(Which),
    /// Somebody changes a pod's label `app`.
    Relabel(Which, &'static str),
    /// Somebody changes the Job.
    Edit(Value),
    /// The namespace is allowed so many pods.
    Quota(u32),
    /// Somebody deletes the Job and keeps its pods; nobody is there to finish that.
    DeleteJob,
}

/// Which pod. Pods that answer to the same description are as good as each other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    /// One that is not started.
    New,
    /// One that runs.
    Running,
    /// One that is told to end and has not.
    Terminating,
    /// One that has ended and is told to go.
    Ended,
    /// One that is not ended, of this index.
    Index(u32),
    /// One in this part of its life, and of this index if the Job has any.
    Exactly(Life, Option<u32>),
}

/// The parts of a pod's life in which something can happen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    New,
    Running,
    Terminating,
    Ended,
}

/// In which part of its life a pod is; `None` when nothing can happen to it any more.
pub(crate) fn life(pod: &Pod) -> Option<Life> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let ended = matches!(phase, "Succeeded" | "Failed");
    match (ended, pod.metadata.deletion_timestamp.is_some()) {
        (false, true) => Some(Life::Terminating),
        (true, true) => Some(Life::Ended),
        (true, false) => None,
        (false, false) if phase == "Running" => Some(Life::Running),
        (false, false) => Some(Life::New),
    }
}

pub(crate) fn index(pod: &Pod) -> Option<u32> {
    pod.metadata.annotations.as_ref()?.get(INDEX_KEY)?.parse().ok()
}

impl Which {
    fn matches(self, pod: &Pod) -> bool {
        let life = life(pod);
        match self {
            Which::New => life == Some(Life::New),
            Which::Running => life == Some(Life::Running),
            Which::Terminating => life == Some(Life::Terminating),
            Which::Ended => life == Some(Life::Ended),
            Which::Index(wanted) => {
                index(pod) == Some(wanted) && life.is_some_and(|life| life != Life::Ended)
            }
            Which::Exactly(wanted, of) => life == Some(wanted) && index(pod) == of,
        }
    }
}

impl Step {
    pub(crate) async fn apply(&self, world: &World) -> anyhow::Result<()> {
        let long_ago = || now() - SignedDuration::from_hours(1);
        match self {
            Step::Start(which) => {
                let name = find(world, *which).await?;
                let target = ObjectReference {
                    kind: Some("Node".to_owned()),
                    name: Some("node".to_owned()),
                    ..ObjectReference::default()
                };
                let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
                let binding = Binding { metadata, target };
                let params = PostParams::default();
                let _: Value = world.pods.create_subresource("binding", &name, &params, &binding).await?;
                let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": long_ago()}]);
                set_status(world, &name, json!({"phase": "Running", "conditions": ready})).await
            }
            Step::End(which, code) => end(world, *which, *code, long_ago(), None).await,
            Step::FailNow(which) => end(world, *which, 1, now(), None).await,
            Step::FailWith(which, condition) => end(world, *which, 1, long_ago(), Some(condition)).await,
            Step::Restart(which, count) => {
                let name = find(world, *which).await?;
                let container = container(&json!({"running": {"startedAt": long_ago()}}), *count);
                set_status(world, &name, json!({"containerStatuses": [container]})).await
            }
            Step::Delete(which) => {
                let name = find(world, *which).await?;
                world.pods.delete(&name, &DeleteParams::default()).await.map(drop).context("delete")
            }
            Step::Remove(which) => {
                let name = find(world, *which).await?;
                let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
                world.pods.delete(&name, &params).await.map(drop).context("remove")
            }
            Step::Relabel(which, value) => {
                let name = find(world, *which).await?;
                let patch = Patch::Merge(json!({"metadata": {"labels": {"app": value}}}));
                world.pods.patch(&name, &PatchParams::default(), &patch).await.map(drop).context("relabel")
            }
            Step::Edit(patch) => {
                let patch = Patch::Merge(patch.clone());
                world.jobs.patch(JOB, &PatchParams::default(), &patch).await.map(drop).context("edit")
            }
            Step::Quota(pods) => set_quota(world, *pods).await,
            Step::DeleteJob => {
                let params = DeleteParams {
                    propagation_policy: Some(PropagationPolicy::Orphan),
                    ..DeleteParams::default()
                };
                world.jobs.delete(JOB, &params).await.map(drop).context("delete the Job")
            }
        }
    }
}

/// Nobody is there to count what is used; the API server does it by itself once the status is there.
async fn set_quota(world: &World, pods: u32) -> anyhow::Result<()> {
    let hard = json!({"pods": pods.to_string()});
    let used = world.pods.list(&ListParams::default()).await?.items.len().to_string();
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "quota"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {"pods": used}},
    });
    let params = PatchParams::apply("test").force();
    world.quotas.patch("quota", &params, &Patch::Apply(&quota)).await.context("the quota")?;
    world
        .quotas
        .patch_status("quota", &params, &Patch::Apply(&quota))
        .await
        .map(drop)
        .context("the quota's status")
}

async fn end(
    world: &World,
    which: Which,
    code: i32,
    at: Timestamp,
    condition: Option<&str>,
) -> anyhow::Result<()> {
    let name = find(world, which).await?;
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let at = Timestamp::from_second(at.as_second())?;
    let container =
        container(&json!({"terminated": {"exitCode": code, "startedAt": at, "finishedAt": at}}), 0);
    let mut conditions = vec![json!({"type": "Ready", "status": "False", "lastTransitionTime": at})];
    conditions
        .extend(condition.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": at})));
    let status = json!({"phase": phase, "conditions": conditions, "containerStatuses": [container]});
    set_status(world, &name, status).await
}

fn container(state: &Value, restarts: i32) -> Value {
    json!({
        "name": "main", "image": "x", "imageID": "x", "ready": false, "restartCount": restarts, "state": state,
    })
}

async fn set_status(world: &World, name: &str, status: Value) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    world.pods.patch_status(name, &PatchParams::default(), &patch).await.map(drop).context("status")
}

/// The pod that answers to the description; of several the one that was restarted least.
async fn find(world: &World, which: Which) -> anyhow::Result<String> {
    let mut pods = world.pods.list(&ListParams::default()).await?.items;
    pods.retain(|pod| which.matches(pod));
    let restarts = |pod: &Pod| -> i32 {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        statuses.map(|status| status.restart_count).sum()
    };
    pods.sort_by_key(restarts);
    let pod = pods.into_iter().next().with_context(|| format!("there is no pod that is {which:?}"))?;
    pod.metadata.name.context("a stored pod has a name")
}
