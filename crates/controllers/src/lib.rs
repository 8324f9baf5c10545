//! What a cluster brings along: Job, CronJob, garbage collection, namespaces, scheduling and the rest that batch work
//! needs.
//!
//! Every controller is one module of the same shape: it says which kinds it watches and which changes call for a look
//! (`kinds`), and for each key that comes up it observes from the caches, decides by a rule of [`rules`] and applies
//! the decision, each write safe to repeat. What is written goes back into the caches, so that the next decision sees
//! it; hence nothing has to be remembered between two decisions, and a restart changes no outcome.
//!
//! Nothing here knows how a cluster stores or serves anything: it is known through a [`kube::Client`] alone.

mod api;
mod cluster_roles;
mod context;
mod cron_job;
mod daemon_set;
mod deployment;
mod discovery;
mod disruption;
mod endpoints;
mod garbage;
mod history;
mod job;
mod kinds;
mod metrics;
mod namespace;
mod node_lifecycle;
mod pod_gc;
mod pods;
mod protection;
mod recorder;
mod replica_set;
mod resource_quota;
mod scheduler;
mod selection;
mod service_accounts;
mod settings;
mod stateful_set;
mod taint_eviction;
mod ttl;

use reconcile::{Clock, Tasks};

pub use self::metrics::{Metrics, Sample};
pub use self::selection::{NAMES, Selection, UnknownController};
pub use self::settings::Settings;

use self::context::Context;

/// Controllers that run.
#[derive(Debug, Clone)]
pub struct Running {
    /// What they count.
    pub metrics: Metrics,
}

/// Starts the selected controllers; they run for as long as `tasks` live.
pub fn start(
    client: kube::Client,
    selection: &Selection,
    settings: Settings,
    clock: Clock,
    tasks: &mut Tasks,
) -> Running {
    let context = Context::new(client, settings, clock, tasks);
    // First everybody says what is to be watched, then the watches begin: so that every kind is watched once.
    let mut runs: Vec<Run> = Vec::new();
    for (name, prepare) in CONTROLLERS {
        if selection.includes(name) {
            runs.push(prepare(&context));
        }
    }
    context.kinds.start(&context.client, tasks);
    for run in runs {
        tasks.spawn("controller", run);
    }
    Running { metrics: context.metrics }
}

/// A controller's work, from when its caches start to be filled.
type Run = futures::future::BoxFuture<'static, ()>;

/// Says what a controller watches, and returns its work.
type Prepare = fn(&Context) -> Run;

/// The controllers by name.
const CONTROLLERS: [(&str, Prepare); NAMES.len()] = [
    ("clusterrole-aggregation-controller", cluster_roles::prepare),
    ("cronjob-controller", cron_job::prepare),
    ("daemonset-controller", daemon_set::prepare),
    ("deployment-controller", deployment::prepare),
    ("disruption-controller", disruption::prepare),
    ("endpoints-controller", endpoints::prepare),
    ("endpointslice-controller", endpoints::prepare_slices),
    ("endpointslice-mirroring-controller", endpoints::prepare_mirrors),
    ("garbage-collector-controller", garbage::prepare),
    ("job-controller", job::prepare),
    ("namespace-controller", namespace::prepare),
    ("node-lifecycle-controller", node_lifecycle::prepare),
    ("persistentvolume-protection-controller", protection::prepare_volumes),
    ("persistentvolumeclaim-protection-controller", protection::prepare_claims),
    ("pod-garbage-collector-controller", pod_gc::prepare),
    ("replicaset-controller", replica_set::prepare),
    ("replicationcontroller-controller", replica_set::prepare_replication),
    ("resourcequota-controller", resource_quota::prepare),
    ("root-ca-certificate-publisher-controller", service_accounts::prepare_root_ca),
    ("scheduler", scheduler::prepare),
    ("serviceaccount-controller", service_accounts::prepare),
    ("statefulset-controller", stateful_set::prepare),
    ("taint-eviction-controller", taint_eviction::prepare),
    ("ttl-after-finished-controller", ttl::prepare),
    ("volumeattributesclass-protection-controller", protection::prepare_classes),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_controllers() {
        assert_eq!(CONTROLLERS.map(|(name, _)| name), NAMES);
    }
}
