//! MultiKueueClusters: who is connected, and what their condition says.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use reconcile::{Cache, Key, Next, Queue, Tasks};
use rules::{
    dispatch::{CORDONED, ClusterName, GIVEN_UP, Link},
    workload::plan::Event,
};
use serde_json::{Value, json};
use tracing::info;
use types::kueue::{LocationType, MultiKueueCluster};

use super::{
    Error, Shared,
    call::{self, MANAGER, within},
    connection::{self, Connection},
    kubeconfig,
};

/// Under this name conditions are written.
const FIELD_MANAGER: &str = "kueue";
/// Under this name events are told.
const CLUSTERS: &str = "multikueue-cluster";
/// The condition of a cluster that is connected.
const ACTIVE: &str = "Active";

/// The clusters that there are.
pub(super) struct Clusters {
    /// Clusters to be looked at, by name.
    pub(super) changed: Queue<String>,
    connections: Mutex<BTreeMap<ClusterName, Arc<Connection>>>,
}

impl Clusters {
    pub(super) fn new() -> Clusters {
        Clusters { changed: Queue::new(), connections: Mutex::default() }
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<(ClusterName, Arc<Connection>)> {
        self.lock().iter().map(|(name, connection)| (name.clone(), Arc::clone(connection))).collect()
    }

    /// One of them.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Connection>> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterName, Arc<Connection>>> {
        // Every holder makes one change.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those who keep connections up, with the kubeconfig that each was started with. They end with whoever holds this.
type Keepers = Mutex<BTreeMap<String, (Value, Tasks)>>;

pub(super) fn start(shared: &Arc<Shared>, tasks: &mut Tasks) {
    let secrets = {
        let (changed, objects) = (shared.clusters.changed.clone(), shared.objects.clone());
        Cache::new(Api::<Secret>::namespaced(shared.client.clone(), &shared.settings.namespace))
            .on_change(move |change| {
                let uses = |object: &&Arc<MultiKueueCluster>| {
                    let place = object.spec.cluster_source.kube_config.as_ref();
                    place.is_some_and(|place| place.location == change.key.name)
                };
                objects.all().iter().filter(uses).for_each(|object| changed.add(Key::of(&**object).name));
            })
            .start(tasks)
    };
    let shared = Arc::clone(shared);
    tasks.spawn("clusters", async move {
        shared.objects.ready().await;
        secrets.ready().await;
        shared.objects.all().iter().for_each(|object| shared.clusters.changed.add(Key::of(&**object).name));
        let keepers = Keepers::default();
        let changed = shared.clusters.changed.clone();
        changed.run(4, |name| reconcile(&shared, &secrets, &keepers, name)).await;
    });
}

async fn reconcile(
    shared: &Arc<Shared>,
    secrets: &Cache<Secret>,
    keepers: &Keepers,
    name: String,
) -> Result<Next, Error> {
    let lock = || keepers.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(object) = shared.objects.get(&Key::new("", name.as_str())) else {
        if lock().remove(&name).is_some() | shared.clusters.lock().remove(name.as_str()).is_some() {
            info!(cluster = %name, "forgotten");
            shared.metrics.forget_worker(&name);
            shared.wake_all();
        }
        return Ok(Next::Done);
    };
    let cluster = ClusterName::from(name.as_str());
    let connection = {
        let mut all = shared.clusters.lock();
        let new = || Arc::new(Connection::new(cluster.clone(), lost_since(&object), shared));
        Arc::clone(all.entry(cluster.clone()).or_insert_with(new))
    };
    let place = object.spec.cluster_source.kube_config.as_ref();
    let is_file = place.is_some_and(|place| place.location_type == Some(LocationType::Path));
    match kubeconfig::load(&object.spec.cluster_source, secrets, &shared.settings).await {
        Err(bad) => {
            lock().remove(&name);
            connection.failed(bad.reason, bad.message, shared);
        }
        Ok(config) => {
            let is_same = lock().get(&name).is_some_and(|(with, _)| *with == config);
            if !is_same {
                if is_file && shared.settings.kubeconfig_directory.is_none() {
                    warn_of_file(shared, &object);
                }
                let mut tasks = Tasks::new();
                let keeper = connection::keep_up(Arc::clone(shared), Arc::clone(&connection), config.clone());
                tasks.spawn("connection", keeper);
                lock().insert(name.clone(), (config, tasks));
            }
        }
    }
    write_condition(shared, &object, &connection).await?;
    // Nobody tells of changes in a file.
    Ok(if is_file { Next::After(shared.settings.heartbeat) } else { Next::Done })
}

/// Files may be anywhere, and who can name one is not who can read it (MK-CONN-08).
fn warn_of_file(shared: &Shared, object: &MultiKueueCluster) {
    let note = "A kubeconfig is read from a file that may be anywhere; keep it in a Secret";
    shared.recorder.tell(CLUSTERS, object, &Event::warning("DeprecatedPathUsage", note));
}

/// Since when a cluster was out of reach, says its condition: the time goes on while nobody is here to count it.
fn lost_since(object: &MultiKueueCluster) -> Option<Timestamp> {
    let active = active(object)?;
    (active.status == "False").then_some(active.last_transition_time.0)
}

fn active(object: &MultiKueueCluster) -> Option<&Condition> {
    object.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == ACTIVE)
}

/// When an administrator said that nothing runs on a cluster any more.
pub(super) fn given_up_at(object: &MultiKueueCluster) -> Option<Timestamp> {
    object.metadata.annotations.as_ref()?.get(GIVEN_UP)?.parse().ok()
}

/// Whether an administrator wants nothing new to be sent to a cluster.
pub(super) fn is_cordoned(object: &MultiKueueCluster) -> bool {
    object.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(CORDONED))
}

/// Whether a cluster can be used, says its condition; `None` if it does not exist.
pub(super) fn is_active(object: Option<&MultiKueueCluster>) -> Option<bool> {
    object.map(|object| active(object).is_some_and(|active| active.status == "True"))
}

async fn write_condition(
    shared: &Shared,
    object: &MultiKueueCluster,
    connection: &Connection,
) -> Result<(), Error> {
    let Some(report) = connection.report() else { return Ok(()) };
    let status = if report.active { "True" } else { "False" };
    let old = active(object);
    if old.is_some_and(|old| {
        old.status == status && old.reason == report.reason && old.message == report.message
    }) {
        return Ok(());
    }
    let same = old.filter(|old| old.status == status).map(|old| old.last_transition_time.clone());
    let since = match connection.link() {
        Link::Lost { since, .. } => since,
        Link::Connected | Link::Connecting => shared.clock.now(),
    };
    let since = Timestamp::from_second(since.as_second()).unwrap_or(since);
    let condition = Condition {
        type_: ACTIVE.to_owned(),
        status: status.to_owned(),
        reason: report.reason.to_owned(),
        message: report.message,
        last_transition_time: same.unwrap_or(Time(since)),
        observed_generation: object.metadata.generation,
    };
    let others = object.status.iter().flat_map(|status| &status.conditions);
    let mut conditions: Vec<&Condition> = others.filter(|other| other.type_ != ACTIVE).collect();
    conditions.push(&condition);
    let body = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version},
        "status": {"conditions": conditions},
    });
    let api: Api<MultiKueueCluster> = Api::all(shared.client.clone());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(body);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let call = api.patch_status(name, &params, &patch);
    match within(shared.settings.deadline, "write a cluster's condition", MANAGER, call).await {
        Ok(answer) => shared.objects.put(answer),
        // The change that was in between wakes.
        Err(error) if call::Error::is_conflict(&error) || error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
