//! ClusterQueues of the manager whose quota is that of their workers (MK-QA-01…05), where their configuration asks for it.
//!
//! Queues of workers are read, and not watched: few ask for this, and a worker's credentials need not allow it otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use reconcile::{Cache, Key, Tasks};
use rules::dispatch::{
    CONTROLLER, ClusterName, Link, check,
    quota::{AUTOMATION, Automation, automated, is_requested},
};
use serde_json::{Value, json};
use tracing::{info, warn};
use types::kueue::{AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueConfig};

use super::{
    Error, Shared,
    call::{MANAGER, within},
    connection::Connection,
};

/// How often a queue is written that others write at the same time.
const ATTEMPTS: usize = 5;

/// The manager's queues.
pub(super) struct Queues {
    pub(super) cluster_queues: Cache<ClusterQueue>,
    pub(super) local_queues: Cache<LocalQueue>,
}

/// The queues of a worker, as they were when it was last read.
struct There {
    local_queues: Vec<LocalQueue>,
    cluster_queues: Vec<ClusterQueue>,
}

/// What is known of the queues of workers.
type Known = BTreeMap<ClusterName, There>;

pub(super) fn start(shared: &Arc<Shared>, queues: Queues, tasks: &mut Tasks) {
    let shared = Arc::clone(shared);
    tasks.spawn("quota of workers", async move {
        shared.ready().await;
        queues.cluster_queues.ready().await;
        queues.local_queues.ready().await;
        let mut known = Known::new();
        loop {
            look(&shared, &mut known).await;
            // A queue may get its check at any time (MK-QA-05).
            let mut asked_for = shared.configs.all().iter().any(|config| is_requested(config));
            for queue in queues.cluster_queues.all() {
                asked_for |= look_after(&shared, &queues, &queue, &known).await;
            }
            let changed = shared.configured.notified();
            if asked_for {
                // What changes on workers is not told.
                let _ = tokio::time::timeout(shared.settings.heartbeat, changed).await;
            } else {
                changed.await;
            }
        }
    });
}

/// Reads the queues of all workers that anybody asks about, each once and all at the same time. One that does not answer
/// has what it had.
async fn look(shared: &Shared, known: &mut Known) {
    let configs = shared.configs.all();
    let clusters = configs.iter().filter(|config| is_requested(config)).flat_map(|it| &it.spec.clusters);
    let clusters: BTreeSet<&str> = clusters.map(String::as_str).collect();
    let connections = clusters.into_iter().filter_map(|cluster| shared.clusters.get(cluster));
    let connected: Vec<Arc<Connection>> = connections.filter(|it| it.link() == Link::Connected).collect();
    let read = join_all(connected.iter().map(|connection| on_worker(shared, connection))).await;
    for (connection, read) in connected.iter().zip(read) {
        match read {
            Ok(Some(there)) => drop(known.insert(connection.name.clone(), there)),
            Ok(None) => {}
            Err(error) => {
                let error = reconcile::chain(&error);
                warn!(cluster = %connection.name, %error, "failed to read the queues of a worker");
            }
        }
    }
}

/// Keeps the quota of a queue, if that is asked for. Says whether it is to be looked at again before anything changes.
async fn look_after(shared: &Shared, queues: &Queues, queue: &ClusterQueue, known: &Known) -> bool {
    let Some(check) = check_of(shared, queue) else {
        let says = said(queue).is_some();
        if says && let Err(error) = say_nothing(shared, queues, queue).await {
            let error = reconcile::chain(&error);
            warn!(cluster_queue = ?queue.metadata.name, %error, "failed to take back what a queue says of its quota");
        }
        return says;
    };
    let config = config_of(shared, &check);
    let requested = config.as_deref().is_some_and(is_requested);
    if !requested && said(queue).is_none() {
        return false;
    }
    let mut kept = keep(shared, queues, queue, config.as_deref(), known).await;
    // Its status is written by others, too, and most of all when its quota has just changed.
    for _ in 0..ATTEMPTS {
        if !kept.as_ref().is_err_and(Error::is_conflict) {
            break;
        }
        kept = again(shared, queues, queue, config.as_deref(), known).await;
    }
    if let Err(error) = kept {
        let error = reconcile::chain(&error);
        warn!(cluster_queue = ?queue.metadata.name, %error, "failed to take over the quota of workers");
    }
    requested
}

/// Nothing is said of a queue that leads to no workers any more (MK-QA-02).
async fn say_nothing(shared: &Shared, queues: &Queues, queue: &ClusterQueue) -> Result<(), Error> {
    let all = queue.status.iter().flat_map(|status| &status.conditions);
    let others: Vec<&Condition> = all.filter(|condition| condition.type_ != AUTOMATION).collect();
    write(shared, queues, queue, json!({"status": {"conditions": others}}), true).await.map(drop)
}

/// The same on the queue as it is now.
async fn again(
    shared: &Shared,
    queues: &Queues,
    queue: &ClusterQueue,
    config: Option<&MultiKueueConfig>,
    known: &Known,
) -> Result<(), Error> {
    let api: Api<ClusterQueue> = Api::all(shared.client.clone());
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    // Listed, which the operator may anyway.
    let this = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = within(shared.settings.deadline, "read a ClusterQueue", MANAGER, api.list(&this)).await?;
    match found.items.first() {
        Some(now) => keep(shared, queues, now, config, known).await,
        None => Ok(()),
    }
}

/// The MultiKueue check of a queue.
fn check_of(shared: &Shared, queue: &ClusterQueue) -> Option<Arc<AdmissionCheck>> {
    let rules = queue.spec.admission_checks_strategy.iter().flat_map(|it| &it.admission_checks);
    let mut checks = rules.filter_map(|rule| shared.checks.get(&Key::new("", rule.name.as_str())));
    checks.find(|object| object.spec.controller_name == CONTROLLER)
}

/// The configuration behind a check.
fn config_of(shared: &Shared, check: &AdmissionCheck) -> Option<Arc<MultiKueueConfig>> {
    let name = check::config_name(check).ok()?;
    shared.configs.get(&Key::new("", name))
}

fn said(queue: &ClusterQueue) -> Option<&Condition> {
    queue.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == AUTOMATION)
}

/// The quota first, and then what is said of it.
async fn keep(
    shared: &Shared,
    queues: &Queues,
    queue: &ClusterQueue,
    config: Option<&MultiKueueConfig>,
    known: &Known,
) -> Result<(), Error> {
    let theirs = match config.filter(|config| is_requested(config)) {
        Some(config) => related(shared, queues, queue, config, known),
        None => Some(Vec::new()),
    };
    // A worker that was never read has an unknown quota, not none.
    let Some(theirs) = theirs else { return Ok(()) };
    let next = automated(queue, config, &theirs);
    let mut queue = queue.clone();
    if let Some(resources) = &next.resources {
        let mut groups = queue.spec.resource_groups.clone();
        if let Some(flavor) = groups.first_mut().and_then(|group| group.flavors.first_mut()) {
            flavor.resources.clone_from(resources);
        }
        if groups != queue.spec.resource_groups {
            info!(cluster_queue = ?queue.metadata.name, "takes over the quota of its workers");
            queue = write(shared, queues, &queue, json!({"spec": {"resourceGroups": groups}}), false).await?;
        }
    }
    let condition = condition(&queue, &next, Time(shared.clock.now()));
    if said(&queue).is_some_and(|old| {
        (&old.status, &old.reason, &old.message) == (&condition.status, &condition.reason, &condition.message)
    }) {
        return Ok(());
    }
    let others = queue.status.iter().flat_map(|status| &status.conditions);
    let mut conditions: Vec<&Condition> = others.filter(|other| other.type_ != AUTOMATION).collect();
    conditions.push(&condition);
    let body = json!({"status": {"conditions": conditions}});
    write(shared, queues, &queue, body, true).await.map(drop)
}

fn condition(queue: &ClusterQueue, next: &Automation, now: Time) -> Condition {
    let status = if next.status { "True" } else { "False" };
    let same = said(queue).filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    Condition {
        type_: AUTOMATION.to_owned(),
        status: status.to_owned(),
        reason: next.reason.to_owned(),
        message: next.message.clone(),
        last_transition_time: same.unwrap_or(now),
        observed_generation: queue.metadata.generation,
    }
}

/// The ClusterQueues of connected workers behind LocalQueues that are called as ours are (MK-QA-03); `None` if one of the
/// workers was never read.
fn related(
    shared: &Shared,
    queues: &Queues,
    queue: &ClusterQueue,
    config: &MultiKueueConfig,
    known: &Known,
) -> Option<Vec<ClusterQueue>> {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let ours = queues.local_queues.all();
    let ours: BTreeSet<Key> =
        ours.iter().filter(|local| local.spec.cluster_queue == name).map(|local| Key::of(&**local)).collect();
    let connections = config.spec.clusters.iter().filter_map(|cluster| shared.clusters.get(cluster));
    let mut found = Vec::new();
    let mut counted = BTreeSet::new();
    for connection in connections.filter(|it| it.link() == Link::Connected) {
        // A cluster with two names has its quota once (MK-CONN-21).
        if connection.identity().is_some_and(|identity| !counted.insert(identity)) {
            continue;
        }
        let There { local_queues, cluster_queues } = known.get(&connection.name)?;
        let led_to = local_queues.iter().filter(|local| ours.contains(&Key::of(*local)));
        let led_to: BTreeSet<&str> = led_to.map(|local| local.spec.cluster_queue.as_str()).collect();
        let is_led_to =
            |queue: &&ClusterQueue| queue.metadata.name.as_deref().is_some_and(|name| led_to.contains(name));
        found.extend(cluster_queues.iter().filter(is_led_to).cloned());
    }
    Some(found)
}

/// The queues of a worker; `None` if it is not connected any more.
async fn on_worker(shared: &Shared, connection: &Connection) -> Result<Option<There>, Error> {
    let Some(worker) = connection.worker() else { return Ok(None) };
    let (deadline, name, all) = (shared.settings.deadline, connection.name.as_str(), ListParams::default());
    let api = Api::<LocalQueue>::all(worker.client.clone());
    let local_queues = within(deadline, "list LocalQueues", name, api.list(&all)).await?.items;
    let api = Api::<ClusterQueue>::all(worker.client.clone());
    let cluster_queues = within(deadline, "list ClusterQueues", name, api.list(&all)).await?.items;
    Ok(Some(There { local_queues, cluster_queues }))
}

async fn write(
    shared: &Shared,
    queues: &Queues,
    queue: &ClusterQueue,
    mut body: Value,
    status: bool,
) -> Result<ClusterQueue, Error> {
    body["metadata"] = json!({"resourceVersion": queue.metadata.resource_version});
    let api: Api<ClusterQueue> = Api::all(shared.client.clone());
    let params = PatchParams { field_manager: Some("kueue".to_owned()), ..PatchParams::default() };
    let (name, patch) = (queue.metadata.name.as_deref().unwrap_or_default(), Patch::Merge(body));
    let (deadline, doing) = (shared.settings.deadline, "write a ClusterQueue");
    let answer = if status {
        within(deadline, doing, MANAGER, api.patch_status(name, &params, &patch)).await?
    } else {
        within(deadline, doing, MANAGER, api.patch(name, &params, &patch)).await?
    };
    queues.cluster_queues.put(answer.clone());
    Ok(answer)
}
