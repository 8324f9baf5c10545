//! Dispatch: Workloads of a management cluster run on worker clusters, and look as if they ran here.
//!
//! What to do is decided by [`rules::dispatch`]; here it is observed and carried out. There is a lane for the manager and
//! one for every worker. Each lane takes Workloads from a queue of its own, decides anew, and takes the steps that are
//! its own; answers go into the caches, and whoever has to act on them is woken. So a worker that is slow or gone keeps
//! only its own lane busy.
//!
//! - [`clusters`]: MultiKueueClusters, the way to them, and their condition; [`connection`] is one of them, kept up.
//! - [`checks`]: the condition of AdmissionChecks.
//! - [`observe`]: what a decision looks at; [`manager`] and [`worker`] are the lanes.
//! - [`book`]: what is remembered about a Workload on a worker and is in no object. All of it may be forgotten.

mod book;
mod call;
mod checks;
mod clusters;
mod connection;
mod events;
mod kubeconfig;
mod manager;
mod observe;
mod settings;
mod worker;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::batch::v1::Job;
use kube::{Api, Client, core::DynamicObject};
use reconcile::{Cache, Clock, Key, Queue, Tasks};
use types::kueue::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig, Workload};

pub use call::Error;
pub use settings::{Connect, Settings};

use clusters::Clusters;
use events::Recorder;

/// Whoever has to look at a Workload because something about it changed on the manager.
#[derive(Clone, Default)]
pub struct Wake {
    workloads: Queue<Key>,
}

impl Wake {
    /// A Workload changed.
    pub fn workload(&self, key: Key) {
        self.workloads.add(key);
    }
}

/// What the manager holds, as others may watch it already.
#[derive(Clone)]
pub struct Local {
    /// Its Workloads; each change wakes.
    pub workloads: Cache<Workload>,
    /// Its Jobs; each change wakes the Workloads that they own.
    pub jobs: Cache<Job>,
    /// Its checks.
    pub checks: Cache<AdmissionCheck>,
}

/// Workloads by the Job that they are for.
pub(crate) const BY_OWNER: &str = "dispatch owner";

/// The Jobs that a Workload is for, as that index has them.
pub(crate) fn by_owner(workload: &Workload) -> Vec<String> {
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let owners = workload.metadata.owner_references.iter().flatten();
    owners.map(|owner| Key::new(namespace, owner.name.as_str()).to_string()).collect()
}

impl Local {
    /// Watches all of it.
    pub fn start(client: &Client, wake: &Wake, tasks: &mut Tasks) -> Local {
        let of = wake.clone();
        let workloads = Cache::new(Api::<Workload>::all(client.clone()))
            .index(BY_OWNER, by_owner)
            .on_change(move |change| of.workload(change.key.clone()))
            .start(tasks);
        let (of, found) = (wake.clone(), workloads.clone());
        let jobs = Cache::new(Api::<Job>::all(client.clone()))
            .on_change(move |change| {
                found.by(BY_OWNER, &change.key.to_string()).iter().for_each(|it| of.workload(Key::of(&**it)));
            })
            .start(tasks);
        let (of, found) = (wake.clone(), workloads.clone());
        let checks = Cache::new(Api::<AdmissionCheck>::all(client.clone()))
            .on_change(move |_| found.all().iter().for_each(|it| of.workload(Key::of(&**it))))
            .start(tasks);
        Local { workloads, jobs, checks }
    }

    async fn ready(&self) {
        self.workloads.ready().await;
        self.jobs.ready().await;
        self.checks.ready().await;
    }
}

/// What every part of dispatch has at hand.
struct Shared {
    client: Client,
    clock: Clock,
    settings: Settings,
    local: Local,
    wake: Wake,
    /// Jobs on the manager of kinds other than batch Job.
    kinds: BTreeMap<String, Cache<DynamicObject>>,
    configs: Cache<MultiKueueConfig>,
    objects: Cache<MultiKueueCluster>,
    clusters: Clusters,
    recorder: Recorder,
    /// AdmissionChecks whose condition has to be looked at.
    checks: Queue<Key>,
}

/// Starts dispatch on the management cluster of `client`, for as long as `tasks` live.
pub fn start(client: Client, settings: Settings, clock: Clock, local: Local, wake: Wake, tasks: &mut Tasks) {
    let (checks, clusters) = (Queue::new(), Clusters::new());
    let configs = {
        let (workloads, wake, checks, known) =
            (local.workloads.clone(), wake.clone(), checks.clone(), local.checks.clone());
        Cache::new(Api::<MultiKueueConfig>::all(client.clone()))
            .on_change(move |_| {
                known.all().iter().for_each(|check| checks.add(Key::of(&**check)));
                workloads.all().iter().for_each(|it| wake.workload(Key::of(&**it)));
            })
            .start(tasks)
    };
    let objects = {
        let (checks, known, changed) = (checks.clone(), local.checks.clone(), clusters.changed.clone());
        Cache::new(Api::<MultiKueueCluster>::all(client.clone()))
            .on_change(move |change| {
                changed.add(change.key.name.clone());
                known.all().iter().for_each(|check| checks.add(Key::of(&**check)));
            })
            .start(tasks)
    };
    let kinds = settings.kinds.iter().filter(|adapter| adapter.kind != "Job").map(|adapter| {
        let (wake, found) = (wake.clone(), local.workloads.clone());
        let objects = Cache::new(Api::<DynamicObject>::all_with(client.clone(), &worker::resource(adapter)))
            .on_change(move |change| {
                found
                    .by(BY_OWNER, &change.key.to_string())
                    .iter()
                    .for_each(|it| wake.workload(Key::of(&**it)));
            })
            .start(tasks);
        (adapter.gvk(), objects)
    });
    let kinds = kinds.collect();
    let recorder = Recorder::start(client.clone(), clock.clone(), tasks);
    let shared = Arc::new(Shared {
        client,
        clock,
        settings,
        local,
        wake,
        kinds,
        configs,
        objects,
        clusters,
        recorder,
        checks,
    });
    clusters::start(&shared, tasks);
    checks::start(&shared, tasks);
    manager::start(&shared, tasks);
}

impl Shared {
    /// Waits until everything on the manager was seen once. Before that nobody may say that something is not there.
    async fn ready(&self) {
        self.local.ready().await;
        self.configs.ready().await;
        self.objects.ready().await;
    }

    /// Looks again at every Workload.
    fn wake_all(&self) {
        self.local.workloads.all().iter().for_each(|workload| self.wake.workload(Key::of(&**workload)));
    }
}
