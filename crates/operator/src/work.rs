//! What is to be looked at: a queue of keys for every kind, and what the admission loop has to take in.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use reconcile::{Key, Queue};
use rules::framework::{Kind, apps::LEADER_WORKER_SET, batch::JOB, custom::ALL};
use tokio::sync::Notify;

use crate::{dispatch::Wake, pods::caches::Unit};

/// The queues of all controllers.
#[derive(Default)]
pub(crate) struct Work {
    /// Batch Jobs.
    pub(crate) jobs: Queue<Key>,
    /// Jobs of other kinds.
    pub(crate) kinds: Kinds,
    /// Pods that are queued themselves, and groups of them.
    pub(crate) pods: Queue<Unit>,
    /// StatefulSets whose pods are queued.
    pub(crate) stateful_sets: Queue<Key>,
    /// LeaderWorkerSets whose pods are queued.
    pub(crate) leader_worker_sets: Queue<Key>,
    /// Workloads.
    pub(crate) workloads: Queue<Key>,
    /// ClusterQueues, for their status and finalizers.
    pub(crate) cluster_queues: Queue<Key>,
    /// LocalQueues, for their status.
    pub(crate) local_queues: Queue<Key>,
    /// Cohorts, for their status.
    pub(crate) cohorts: Queue<Key>,
    /// ResourceFlavors, for their finalizers.
    pub(crate) flavors: Queue<Key>,
    /// AdmissionChecks, for their finalizers.
    pub(crate) checks: Queue<Key>,
    /// WorkloadPriorityClasses, for the Workloads that follow them.
    pub(crate) classes: Queue<Key>,
    /// Workloads that were placed by topology, by the name that pods know, for pods that wait for that.
    pub(crate) placed: Queue<Key>,
    /// Workloads and checks, for dispatch to other clusters.
    pub(crate) dispatch: Wake,
    /// Workloads, for the nodes that are asked for before they start.
    pub(crate) provisioning: Queue<Key>,
    /// AdmissionChecks, for whether nodes can be asked for by them.
    pub(crate) provisioning_checks: Queue<Key>,
    /// What the admission loop has to take in.
    pub(crate) inbox: Inbox,
}

/// The queues of the kinds of Jobs that Kubernetes does not bring along.
pub(crate) struct Kinds(Vec<(Kind, Queue<Key>)>);

impl Default for Kinds {
    fn default() -> Self {
        Kinds(ALL.iter().map(|shape| (shape.kind, Queue::new())).collect())
    }
}

impl Work {
    /// The queue of a kind of Job that others define, or of batch Job.
    pub(crate) fn jobs_of(&self, group: &str, kind: &str) -> Option<&Queue<Key>> {
        if (group, kind) == (JOB.group, JOB.kind) {
            return Some(&self.jobs);
        }
        if (group, kind) == (LEADER_WORKER_SET.group, LEADER_WORKER_SET.kind) {
            return Some(&self.leader_worker_sets);
        }
        let found = self.kinds.0.iter().find(|(of, _)| of.group == group && of.kind == kind);
        found.map(|(_, queue)| queue)
    }
}

/// What changed since the admission loop last looked.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    news: Mutex<News>,
    changed: Notify,
}

/// What changed.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Workloads.
    pub(crate) workloads: BTreeSet<Key>,
    /// LocalQueues.
    pub(crate) local_queues: BTreeSet<Key>,
    /// Namespaces whose labels or limits changed.
    pub(crate) namespaces: BTreeSet<String>,
    /// Whether queues, cohorts, flavors, checks or topologies changed.
    pub(crate) config: bool,
    /// Whether runtime classes changed.
    pub(crate) runtime_classes: bool,
    /// Whether nodes changed on which pods are placed, or all of them were seen at last.
    pub(crate) nodes: bool,
    /// Nodes of which pods take more or less that nobody placed there.
    pub(crate) pods_on: BTreeSet<String>,
}

impl News {
    /// Whether nothing changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.workloads.is_empty()
            && self.local_queues.is_empty()
            && self.namespaces.is_empty()
            && !self.config
            && !self.runtime_classes
            && !self.nodes
            && self.pods_on.is_empty()
    }
}

impl Inbox {
    /// Takes note of a change.
    pub(crate) fn note(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news());
        self.changed.notify_one();
    }

    /// What changed since this was asked last.
    pub(crate) fn take(&self) -> News {
        std::mem::take(&mut *self.news())
    }

    /// Waits until something changes.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn news(&self) -> MutexGuard<'_, News> {
        // Nothing panics between two states of a set.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
