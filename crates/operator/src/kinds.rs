//! Kinds that others define: each is watched as soon as its definition is there, and no longer than that. A cluster that
//! lacks a definition lacks that kind only.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client,
    api::{ApiResource, PartialObjectMeta},
    core::{DynamicObject, GroupVersionKind},
};
use reconcile::{Cache, Change, Key, Tasks};
use rules::{
    dispatch::Adapter,
    framework::{
        Kind,
        apps::{LEADER_WORKER_SET, STATEFUL_SET},
        batch::JOB,
        custom::ALL,
    },
    provisioning::{POD_TEMPLATE, REQUEST},
    workload::state,
};
use tokio::sync::Notify;
use tracing::info;

use crate::{
    Settings,
    caches::{COMPONENTS, Cell, indexed},
    provisioning,
    work::Work,
};

const TRAINER: &str = "trainer.kubeflow.org";
/// What the TrainJobs of all namespaces can refer to.
pub(crate) const CLUSTER_TRAINING_RUNTIME: Kind = Kind {
    group: TRAINER,
    version: "v1alpha1",
    kind: "ClusterTrainingRuntime",
    plural: "clustertrainingruntimes",
    framework: "",
};
/// What the TrainJobs of a namespace can refer to.
pub(crate) const TRAINING_RUNTIME: Kind =
    Kind { kind: "TrainingRuntime", plural: "trainingruntimes", ..CLUSTER_TRAINING_RUNTIME };
const TRAIN_JOB: &str = "TrainJob";

/// The kinds that are watched. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Kinds {
    shared: Arc<Shared>,
}

struct Shared {
    held: Mutex<BTreeMap<String, Held>>,
    changed: Notify,
}

/// A kind that is watched.
struct Held {
    kind: Kind,
    objects: Cache<DynamicObject>,
    /// The watch ends with it.
    _watch: Tasks,
}

/// The kinds that matter under these settings: those that are managed, those that are dispatched, and what they refer to.
pub(crate) fn wanted(settings: &Settings) -> Vec<Kind> {
    let all = ALL.iter().map(|shape| shape.kind).chain([LEADER_WORKER_SET]);
    let managed = all.filter(|kind| settings.manages(kind));
    let dispatched = settings.dispatch.kinds.iter().map(|adapter| kind_of(adapter));
    let mut wanted: Vec<Kind> = managed.chain(dispatched).collect();
    // Those that Kubernetes brings along are watched by themselves.
    wanted.retain(|kind| !kind.group.is_empty() && ![JOB.group, STATEFUL_SET.group].contains(&kind.group));
    if wanted.iter().any(|kind| kind.kind == TRAIN_JOB) {
        wanted.extend([CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME]);
    }
    wanted.extend([REQUEST, POD_TEMPLATE]);
    wanted.sort();
    wanted.dedup();
    wanted
}

/// The kind that an adapter is for.
pub(crate) fn kind_of(adapter: &Adapter) -> Kind {
    Kind {
        group: adapter.group,
        version: adapter.version,
        kind: adapter.kind,
        plural: adapter.plural,
        framework: adapter.integration,
    }
}

/// How a kind is asked for.
pub(crate) fn resource(kind: &Kind) -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(kind.group, kind.version, kind.kind),
        kind.plural,
    )
}

fn definition(kind: &Kind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

/// The definition without which a kind is of no interest: its own, or that of those that refer to it.
fn defined_by(kind: &Kind) -> String {
    definition(if *kind == POD_TEMPLATE { &REQUEST } else { kind })
}

impl Kinds {
    /// Watches definitions, and the kinds that they define.
    pub(crate) fn start(
        client: &Client,
        wanted: Vec<Kind>,
        work: &Arc<Work>,
        cell: &Cell,
        tasks: &mut Tasks,
    ) -> Kinds {
        let shared = Arc::new(Shared { held: Mutex::default(), changed: Notify::new() });
        let kinds = Kinds { shared };
        if wanted.is_empty() {
            return kinds;
        }
        let this = kinds.clone();
        let definitions = Cache::new(Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone()))
            .on_change(move |_| this.shared.changed.notify_one())
            .start(tasks);
        let watch = Watch {
            kinds: kinds.clone(),
            client: client.clone(),
            work: Arc::clone(work),
            cell: Arc::clone(cell),
        };
        tasks.spawn("kinds", async move {
            let _ending = Ending(watch.kinds.clone());
            definitions.ready().await;
            loop {
                for kind in &wanted {
                    let is_defined = definitions.get(&Key::new("", defined_by(kind))).is_some();
                    watch.bring_in_line(kind, is_defined);
                }
                watch.kinds.shared.changed.notified().await;
            }
        });
        kinds
    }

    /// The objects of a kind; `None` unless all of them were seen.
    pub(crate) fn seen(&self, kind: &Kind) -> Option<Cache<DynamicObject>> {
        let held = self.held();
        let held = held.get(&definition(kind)).filter(|held| held.objects.is_ready())?;
        Some(held.objects.clone())
    }

    /// Looks again at Jobs of every kind that `of` finds.
    pub(crate) fn look_at_jobs(
        &self,
        work: &Work,
        of: impl Fn(&Cache<DynamicObject>) -> Vec<Arc<DynamicObject>>,
    ) {
        let all: Vec<(Kind, Cache<DynamicObject>)> =
            self.held().values().map(|held| (held.kind, held.objects.clone())).collect();
        for (kind, objects) in all {
            if let Some(queue) = work.jobs_of(kind.group, kind.kind) {
                for job in of(&objects) {
                    queue.add(Key::of(&*job));
                }
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        // Holders only move values.
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the watches with whoever began them: what they tell holds on to it.
struct Ending(Kinds);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.held().clear();
    }
}

/// What it takes to watch a kind.
struct Watch {
    kinds: Kinds,
    client: Client,
    work: Arc<Work>,
    cell: Cell,
}

impl Watch {
    fn bring_in_line(&self, kind: &Kind, is_defined: bool) {
        let name = definition(kind);
        let mut held = self.kinds.held();
        if is_defined == held.contains_key(&name) {
            return;
        }
        if is_defined {
            info!(kind = name, "watched from now on");
            held.insert(name, self.begin(*kind));
        } else {
            info!(kind = name, "no longer defined");
            held.remove(&name);
        }
    }

    fn begin(&self, kind: Kind) -> Held {
        let mut watch = Tasks::new();
        let (work, cell) = (Arc::clone(&self.work), Arc::clone(&self.cell));
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource(&kind));
        let objects = indexed(Cache::new(api))
            .on_change(move |change| changed(&kind, change, &work, &cell))
            .start(&mut watch);
        let (work, cell, seen) = (Arc::clone(&self.work), Arc::clone(&self.cell), objects.clone());
        watch.spawn("kind", async move {
            seen.ready().await;
            look_at_all(&kind, &work, &cell);
        });
        Held { kind, objects, _watch: watch }
    }
}

fn changed(kind: &Kind, change: &Change<'_, DynamicObject>, work: &Work, cell: &Cell) {
    if let Some(queue) = work.jobs_of(kind.group, kind.kind) {
        queue.add(change.key.clone());
    }
    if [REQUEST, POD_TEMPLATE].contains(kind) {
        return provisioning::changed(change, work);
    }
    let Some(caches) = cell.get() else { return };
    caches.wake_dispatch(work, kind.group, kind.kind, change.key);
    let uid = change.latest().and_then(|object| object.metadata.uid.as_deref());
    for component in caches.workloads.by(COMPONENTS, uid.unwrap_or_default()) {
        work.dispatch.workload(Key::of(&*component));
    }
    if kind.group == TRAINER && kind.kind != TRAIN_JOB {
        // Their pods come from it.
        let train_jobs = ALL.iter().find(|shape| shape.kind.kind == TRAIN_JOB).map(|shape| shape.kind);
        let train_jobs = train_jobs.and_then(|kind| caches.kinds.seen(&kind));
        if let (Some(train_jobs), Some(queue)) = (train_jobs, work.jobs_of(TRAINER, TRAIN_JOB)) {
            train_jobs.all().iter().for_each(|job| queue.add(Key::of(&**job)));
        }
    }
}

/// What belongs to Jobs that were not seen before, or are gone, waits for them to be seen.
fn look_at_all(kind: &Kind, work: &Work, cell: &Cell) {
    let Some(caches) = cell.get() else { return };
    for workload in caches.workloads.all() {
        if *kind == REQUEST && !state::checks(&workload).is_empty() {
            work.provisioning.add(Key::of(&*workload));
        }
        let owners = workload.metadata.owner_references.iter().flatten();
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let of_kind = |owner: &&OwnerReference| {
            let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            // A LeaderWorkerSet is one of several owners of its Workloads.
            let is_whole = owner.controller == Some(true) || *kind == LEADER_WORKER_SET;
            is_whole && group == kind.group && owner.kind == kind.kind
        };
        for owner in owners.filter(of_kind) {
            work.dispatch.workload(Key::of(&*workload));
            if let Some(queue) = work.jobs_of(kind.group, kind.kind) {
                queue.add(Key::new(namespace, owner.name.as_str()));
            }
        }
    }
}
