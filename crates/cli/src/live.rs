//! Jobs as they are now, and word of their changes.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::{Api, Client};
use reconcile::{Cache, Tasks};
use tokio::sync::Notify;
use types::kueue::Workload;

use crate::jobs::{self, Found};

/// Jobs as they are now, for as long as this is held.
pub(crate) struct Live {
    jobs: Cache<Job>,
    workloads: Cache<Workload>,
    changed: Arc<Notify>,
    tasks: Tasks,
}

impl Live {
    /// Begins to look, and returns when everything that there is was seen.
    pub(crate) async fn start(client: &Client, namespace: Option<&str>) -> anyhow::Result<Live> {
        // A watch tries forever; whether it can work at all is asked once.
        jobs::list(client, namespace).await?;
        let (mut tasks, changed) = (Tasks::new(), Arc::new(Notify::new()));
        let jobs: Api<Job> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let workloads: Api<Workload> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let (one, other) = (Arc::clone(&changed), Arc::clone(&changed));
        let jobs = Cache::new(jobs).on_change(move |_| one.notify_one()).start(&mut tasks);
        let workloads = Cache::new(workloads).on_change(move |_| other.notify_one()).start(&mut tasks);
        jobs.ready().await;
        workloads.ready().await;
        Ok(Live { jobs, workloads, changed, tasks })
    }

    /// All of them.
    pub(crate) fn found(&self) -> Vec<Found> {
        jobs::join(self.jobs.all(), self.workloads.all())
    }

    /// The one with this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Found> {
        self.found().into_iter().find(|found| found.view.uid == uid)
    }

    /// Waits for the next change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Looks no longer. Whoever just lets go of it may hear that a watch failed, because connections end with the program.
    pub(crate) async fn stop(mut self) {
        self.tasks.stop().await;
    }
}
