//! Dispatch: Workloads of a management cluster run on worker clusters, and look as if they ran here.
//!
//! What to do is decided by [`rules::dispatch`]; here it is observed and carried out. There is a lane for the manager and
//! one for every worker. Each lane takes Workloads from a queue of its own, decides anew, and takes the steps that are
//! its own; answers go into the caches, and whoever has to act on them is woken. So a worker that is slow or gone keeps
//! only its own lane busy.
//!
//! - `clusters`: MultiKueueClusters, the way to them, and their condition; `connection` is one of them, kept up.
//! - `checks`: the condition of AdmissionChecks.
//! - `observe`: what a decision looks at, with `forms` of jobs that are made once; `manager` and `worker` are the lanes.
//! - `quota`: ClusterQueues whose quota is that of their workers.
//! - `book`: what is remembered about a Workload on a worker and is in no object. All of it may be forgotten.

mod book;
mod call;
mod checks;
mod clusters;
mod connection;
mod due;
mod forms;
mod kubeconfig;
mod manager;
mod members;
mod observe;
#[cfg(feature = "planted")]
mod planted;
mod quota;
mod settings;
mod worker;

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::batch::v1::Job;
use kube::{Api, Client};
use reconcile::{Cache, Clock, Key, Queue, Tasks};
use tokio::sync::Notify;
use types::kueue::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig, Workload};

pub use call::Error;
#[cfg(feature = "planted")]
pub use planted::Planted;
pub use settings::{Connect, Settings};

use clusters::Clusters;

use crate::{Context, events::Recorder, kinds::Kinds, metrics::Metrics, pods};

/// Who has to look because something changed on the manager.
#[derive(Debug, Default, Clone)]
pub(crate) struct Wake {
    workloads: Queue<Key>,
    checks: Queue<Key>,
}

impl Wake {
    /// Something about a Workload changed.
    pub(crate) fn workload(&self, key: Key) {
        self.workloads.add(key);
    }

    /// A check changed.
    pub(crate) fn check(&self, key: Key) {
        self.checks.add(key);
    }
}

/// What others may ask of dispatch.
#[derive(Default)]
pub(crate) struct Handle(OnceLock<Arc<Shared>>);

impl Handle {
    /// A Workload that is about to get quota, with the clusters that it is offered to, as far as that is known.
    pub(crate) fn offered(&self, next: Workload) -> Workload {
        match self.0.get().filter(|shared| shared.is_ready()) {
            Some(shared) => observe::offered(shared, next),
            None => next,
        }
    }
}

/// What every part of dispatch has at hand.
struct Shared {
    client: Client,
    clock: Clock,
    settings: Settings,
    wake: Wake,
    workloads: Cache<Workload>,
    jobs: Cache<Job>,
    /// The same, as a decision looks at them.
    forms: forms::Forms,
    checks: Cache<AdmissionCheck>,
    /// Jobs on the manager of kinds that others define.
    kinds: Kinds,
    /// Pods on the manager that are queued, and StatefulSets.
    pods: pods::caches::Caches,
    configs: Cache<MultiKueueConfig>,
    /// Told when a configuration changed.
    configured: Arc<Notify>,
    objects: Cache<MultiKueueCluster>,
    clusters: Clusters,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

/// Starts dispatch on the management cluster, for as long as `tasks` live.
pub(crate) fn start(context: &Context, tasks: &mut Tasks) {
    let (client, clock, wake) =
        (context.client.clone(), context.clock.clone(), context.work.dispatch.clone());
    let mut settings = context.settings.dispatch.clone();
    settings.namespace.clone_from(&context.settings.namespace);
    let caches = &context.caches;
    let (workloads, jobs, checks) = (caches.workloads.clone(), caches.jobs.clone(), caches.checks.clone());
    let (clusters, configured) = (Clusters::new(), Arc::new(Notify::new()));
    let configs = {
        let (workloads, wake, checks) = (workloads.clone(), wake.clone(), checks.clone());
        let configured = Arc::clone(&configured);
        Cache::new(Api::<MultiKueueConfig>::all(client.clone()))
            .on_change(move |_| {
                configured.notify_one();
                checks.all().iter().for_each(|check| wake.check(Key::of(&**check)));
                workloads.all().iter().for_each(|it| wake.workload(Key::of(&**it)));
            })
            .start(tasks)
    };
    let objects = {
        let (wake, checks, changed) = (wake.clone(), checks.clone(), clusters.changed.clone());
        let workloads = workloads.clone();
        Cache::new(Api::<MultiKueueCluster>::all(client.clone()))
            .on_change(move |change| {
                changed.add(change.key.name.clone());
                checks.all().iter().for_each(|check| wake.check(Key::of(&**check)));
                // What waits for a lost cluster, or for one that is cordoned, waits for this word and for nothing else.
                let said = |object: Option<&Arc<MultiKueueCluster>>| {
                    object.map(|it| (clusters::given_up_at(it), clusters::is_cordoned(it)))
                };
                if said(change.old).unwrap_or_default() != said(change.new).unwrap_or_default() {
                    workloads.all().iter().for_each(|it| wake.workload(Key::of(&**it)));
                }
            })
            .start(tasks)
    };
    let kinds = caches.kinds.clone();
    let shared = Arc::new(Shared {
        client,
        clock,
        settings,
        wake,
        workloads,
        jobs,
        forms: forms::Forms::default(),
        checks,
        kinds,
        pods: caches.pods.clone(),
        configs,
        configured,
        objects,
        clusters,
        recorder: context.recorder.clone(),
        metrics: Arc::clone(&context.metrics),
    });
    // Nobody else sets it.
    let _ = context.dispatch.0.set(Arc::clone(&shared));
    clusters::start(&shared, tasks);
    checks::start(&shared, tasks);
    manager::start(&shared, tasks);
    let queues = quota::Queues {
        cluster_queues: caches.cluster_queues.clone(),
        local_queues: caches.local_queues.clone(),
    };
    quota::start(&shared, queues, tasks);
}

impl Shared {
    /// Waits until everything on the manager was seen once. Before that nobody may say that something is not there.
    async fn ready(&self) {
        self.workloads.ready().await;
        self.jobs.ready().await;
        self.pods.ready().await;
        self.checks.ready().await;
        self.configs.ready().await;
        self.objects.ready().await;
    }

    /// Whether everything on the manager was seen once.
    fn is_ready(&self) -> bool {
        self.workloads.is_ready()
            && self.jobs.is_ready()
            && self.pods.is_ready()
            && self.checks.is_ready()
            && self.configs.is_ready()
            && self.objects.is_ready()
    }

    /// Looks again at every Workload.
    fn wake_all(&self) {
        self.workloads.all().iter().for_each(|workload| self.wake.workload(Key::of(&**workload)));
    }
}
