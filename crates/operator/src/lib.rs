//! Queues and quota on any cluster, by Kueue's API: Jobs become Workloads, Workloads get quota, Jobs start and stop.
//!
//! The way of a Job: `jobs` makes its Workload; `admission` gives that quota, in cycles over all queues;
//! `workloads` keeps its conditions true; `jobs` starts the Job when it is admitted and stops it when it is not any
//! more; `ungating` lets its pods go where they were placed; `queues` shows how queues stand. `pods` does for pods,
//! StatefulSets and LeaderWorkerSets what `jobs` does for Jobs, and `provisioning` asks for nodes. On a management cluster, [`dispatch`] sends
//! it to a worker. `visibility` tells who waits where.
//!
//! All that is decided is decided by [`rules`]. Here it is observed from caches and applied, through a client alone.

mod admission;
mod caches;
mod certificate;
mod client;
pub mod configuration;
mod connections;
pub mod definitions;
pub mod deploy;
pub mod dispatch;
mod error;
mod events;
mod jobs;
mod kinds;
pub mod leader;
mod metrics;
mod places;
mod pods;
mod provisioning;
mod queues;
pub mod rbac;
pub mod roles;
pub mod serve;
mod settings;
mod sharing;
mod ungating;
pub mod visibility;
pub mod webhooks;
mod work;
mod workloads;
mod write;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use kube::Client;
use reconcile::{Clock, Tasks};

pub use client::client;
pub use error::Error;
pub use settings::Settings;

/// A running operator.
#[derive(Clone)]
pub struct Operator {
    context: Arc<Context>,
}

/// What every part of the operator has at hand.
pub(crate) struct Context {
    client: Client,
    clock: Clock,
    settings: Settings,
    caches: caches::Caches,
    work: Arc<work::Work>,
    recorder: events::Recorder,
    metrics: Arc<metrics::Metrics>,
    admission: admission::Handle,
    dispatch: dispatch::Handle,
    acts: AtomicBool,
}

/// Starts an operator on the cluster of `client`, for as long as `tasks` live. It acts as soon as it has seen what
/// there is.
pub fn start(client: Client, settings: Settings, clock: Clock, tasks: &mut Tasks) -> Operator {
    let operator = observe(client, settings, clock, tasks);
    operator.act(tasks);
    operator
}

/// An operator that sees what there is and answers webhooks, for as long as `tasks` live, but does nothing of itself until
/// it is told to [act](Operator::act): one of several, of whom another leads (MK-HA-01).
pub fn observe(client: Client, settings: Settings, clock: Clock, tasks: &mut Tasks) -> Operator {
    let client = client::in_time(client, settings.deadline);
    let work = Arc::new(work::Work::default());
    let caches = caches::Caches::start(&client, &settings, &work, tasks);
    let metrics = Arc::<metrics::Metrics>::default();
    let context = Arc::new(Context {
        recorder: events::Recorder::start(client.clone(), clock.clone(), Arc::clone(&metrics), tasks),
        metrics,
        admission: admission::Handle::default(),
        dispatch: dispatch::Handle::default(),
        acts: AtomicBool::new(false),
        client,
        clock,
        settings,
        caches,
        work,
    });
    Operator { context }
}

impl Operator {
    /// Acts from now on, for as long as `tasks` live. To be called once.
    pub fn act(&self, tasks: &mut Tasks) {
        let context = &self.context;
        context.acts.store(true, Ordering::Relaxed);
        admission::start(context, tasks);
        workloads::start(context, tasks);
        jobs::start(context, tasks);
        pods::start(context, tasks);
        ungating::start(context, tasks);
        queues::start(context, tasks);
        provisioning::start(context, tasks);
        dispatch::start(context, tasks);
    }

    /// Waits until everything that there is was seen.
    pub async fn ready(&self) {
        self.context.caches.ready().await;
    }

    /// Whether everything that there is was seen.
    pub fn is_ready(&self) -> bool {
        self.context.caches.is_ready()
    }

    /// What it counted, in the format of Prometheus, and whether it leads or follows.
    pub fn metrics(&self) -> String {
        let acts = self.context.acts.load(Ordering::Relaxed);
        self.context.metrics.text(if acts { "leader" } else { "follower" })
    }
}
