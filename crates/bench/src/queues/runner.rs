//! What stands for the rest of the world: it makes queues and Workloads, and ends each Workload that is admitted.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    runtime::{WatchStreamExt as _, watcher},
};
use rules::workload::{change, has_quota, is_admitted, is_evicted, is_finished};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};
use types::kueue::Workload;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many writes are under way at once.
const AT_ONCE: usize = 32;
const COHORTS: usize = 5;
const QUEUES: usize = 30;
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// Who takes the quota of an evicted Workload back that belongs to no Job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Evictions {
    /// The manager does.
    OfTheManager,
    /// The runner has to, as in Kueue's own test.
    OfTheRunner,
}

/// Workloads that wait.
pub(super) struct Round {
    pub(super) client: Client,
    namespace: &'static str,
    pub(super) number: usize,
}

impl Round {
    /// Makes queues, and Workloads in them.
    pub(super) async fn prepare(
        client: &Client,
        namespace: &'static str,
        number: usize,
    ) -> anyhow::Result<Round> {
        let began = Instant::now();
        let create = |object: Value| create(client, namespace, object);
        create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } })).await?;
        let flavor = json!({ "name": namespace });
        create(json!({ "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": flavor })).await?;
        for queue in 0..QUEUES {
            create(cluster_queue(namespace, queue)).await?;
            let spec = json!({ "clusterQueue": format!("{namespace}-{queue}") });
            let metadata = json!({ "name": format!("q{queue}"), "namespace": namespace });
            create(json!({ "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": spec }))
                .await?;
        }
        let workloads = futures::stream::iter((0..number).map(|it| create(workload(namespace, it))));
        workloads.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        eprintln!("{namespace}: made {number} Workloads in {:?}", began.elapsed());
        Ok(Round { client: client.clone(), namespace, number })
    }

    /// Ends every Workload that is admitted, until all have ended. Returns how long that took.
    pub(super) async fn play(&self, evictions: Evictions) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let api: Api<Workload> = Api::namespaced(self.client.clone(), self.namespace);
        let (permits, mut writes) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
        let (mut ended, mut ending) = (BTreeSet::new(), BTreeSet::new());
        let mut events = watcher::watcher(api.clone(), watcher::Config::default()).applied_objects().boxed();
        while ended.len() < self.number {
            let event = tokio::time::timeout(PATIENCE, events.try_next()).await;
            let event = event.with_context(|| format!("only {} of {} ended", ended.len(), self.number))?;
            let workload = event?.context("a watch does not end")?;
            let name = workload.metadata.name.clone().unwrap_or_default();
            if is_finished(&workload) {
                ended.insert(name);
                continue;
            }
            if is_evicted(&workload) {
                ending.remove(&name);
            }
            // Nobody but the runner ends a Workload, and once is enough.
            if wanted(&workload, evictions).is_none() || is_admitted(&workload) && !ending.insert(name) {
                continue;
            }
            while let Some(written) = writes.try_join_next() {
                written??;
            }
            let (api, permits) = (api.clone(), Arc::clone(&permits));
            writes.spawn(async move {
                let _permit = permits.acquire_owned().await?;
                write(&api, workload, evictions).await
            });
        }
        let wall = began.elapsed();
        eprintln!("{}: {} Workloads in {wall:?}", self.namespace, self.number);
        Ok(wall)
    }

    /// Takes the Workloads away, so that nobody else has to look at them.
    pub(super) async fn clear(self) -> anyhow::Result<()> {
        let api: Api<Workload> = Api::namespaced(self.client.clone(), self.namespace);
        let all = api.list_metadata(&ListParams::default()).await?;
        let delete = |name: String| {
            let api = api.clone();
            async move {
                let released = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                api.patch(&name, &PatchParams::default(), &released).await?;
                api.delete(&name, &DeleteParams::default()).await.map(drop)
            }
        };
        let names = all.items.into_iter().filter_map(|it| it.metadata.name);
        futures::stream::iter(names.map(delete)).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(())
    }
}

/// Writes what is wanted of a Workload as it is now: the manager may write at the same time.
async fn write(api: &Api<Workload>, mut workload: Workload, evictions: Evictions) -> anyhow::Result<()> {
    let name = workload.metadata.name.clone().unwrap_or_default();
    while let Some(body) = wanted(&workload, evictions) {
        match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(body)).await {
            Err(kube::Error::Api(refused)) if refused.is_conflict() => workload = api.get(&name).await?,
            written => return written.map(drop).with_context(|| format!("failed to write {name}")),
        }
    }
    Ok(())
}

/// What the rest of the world makes of a Workload: it ends one that is admitted.
fn wanted(workload: &Workload, evictions: Evictions) -> Option<Value> {
    if is_finished(workload) {
        return None;
    }
    let now = jiff::Timestamp::now();
    let mut next = workload.clone();
    let is_released = is_evicted(workload) && has_quota(workload);
    if is_released && evictions == Evictions::OfTheRunner {
        change::release(&mut next, now);
    } else if !is_released && is_admitted(workload) {
        change::finish(&mut next, "Succeeded", "played", now);
    } else {
        return None;
    }
    let conditions = next.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let mut body = json!({ "status": { "conditions": conditions } });
    body["metadata"]["resourceVersion"] = json!(workload.metadata.resource_version);
    if is_released {
        body["status"]["admission"] = Value::Null;
    }
    Some(body)
}

async fn create(client: &Client, namespace: &str, object: Value) -> anyhow::Result<()> {
    let (version, kind) =
        (object["apiVersion"].as_str().unwrap_or("v1"), object["kind"].as_str().unwrap_or(""));
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = if object["metadata"]["namespace"].is_null() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    };
    let parsed = serde_json::from_value(object)?;
    api.create(&PostParams::default(), &parsed).await?;
    Ok(())
}

/// As in Kueue's own test: 20 of its own, up to 100 more of what others leave.
fn cluster_queue(namespace: &str, queue: usize) -> Value {
    let quota = json!({ "name": "cpu", "nominalQuota": "20", "borrowingLimit": "100" });
    let flavors = json!([{ "name": namespace, "resources": [quota] }]);
    json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": { "name": format!("{namespace}-{queue}") },
        "spec": {
            "cohortName": format!("{namespace}-{}", queue % COHORTS),
            "namespaceSelector": {},
            "preemption": { "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority" },
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": flavors }],
        },
    })
}

/// Of ten, seven are small, two medium and one is large; the larger, the more important.
fn workload(namespace: &str, index: usize) -> Value {
    let (cpu, priority) = match index / QUEUES % 10 {
        0..7 => ("1", 50),
        7..9 => ("5", 100),
        _ => ("20", 200),
    };
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } });
    let pod = json!({ "restartPolicy": "Never", "containers": [container] });
    json!({
        "apiVersion": KUEUE, "kind": "Workload",
        "metadata": { "name": format!("w{index}"), "namespace": namespace },
        "spec": {
            "queueName": format!("q{}", index % QUEUES), "priority": priority,
            "podSets": [{ "name": "main", "count": 1, "template": { "spec": pod } }],
        },
    })
}
