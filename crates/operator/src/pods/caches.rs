//! What there is of pods that are queued and of StatefulSets whose pods are, and who has to look when it changes. Pods that are
//! not queued are not watched: a cluster that queues none pays for an empty list.

use std::{
    fmt::{self, Display},
    sync::Arc,
};

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::{Api, Client};
use reconcile::{Cache, Change, Key, Tasks};
use rules::framework::{
    QUEUE_NAME_LABEL, annotation,
    apps::{STATEFUL_SET, leader_worker_set, stateful_set},
    pod::{self, IS_GROUP_WORKLOAD, POD},
};
use types::kueue::Workload;

use crate::{
    Settings,
    caches::{Cell, indexed},
    work::Work,
};

/// Pods by their group.
pub(crate) const GROUP: &str = "group";

/// Pods by the LeaderWorkerSet that they are part of.
pub(crate) const SET: &str = "set";

/// What is decided about at once: a pod, or a group of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// A pod that is in no group.
    Pod(Key),
    /// A group.
    Group(Key),
}

impl Unit {
    /// The unit that a pod is, or is part of.
    pub(crate) fn of(pod: &Pod) -> Unit {
        let key = Key::of(pod);
        match pod::group_name(&pod.metadata) {
            Some(group) => Unit::Group(Key::new(key.namespace, group)),
            None => Unit::Pod(key),
        }
    }

    /// Its namespace and name.
    pub(crate) fn key(&self) -> &Key {
        let (Unit::Pod(key) | Unit::Group(key)) = self;
        key
    }
}

impl Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unit::Pod(key) => key.fmt(f),
            Unit::Group(key) => write!(f, "group {key}"),
        }
    }
}

/// What is watched; nothing of what is not managed.
#[derive(Clone)]
pub(crate) struct Caches {
    /// Pods that are queued.
    pub(crate) queued: Option<Cache<Pod>>,
    /// StatefulSets that are in a queue.
    pub(crate) stateful_sets: Option<Cache<StatefulSet>>,
}

impl Caches {
    /// Starts to watch.
    pub(crate) fn start(
        client: &Client,
        settings: &Settings,
        work: &Arc<Work>,
        cell: &Cell,
        tasks: &mut Tasks,
    ) -> Caches {
        Caches {
            queued: settings.queues_pods().then(|| queued(client, work, cell, tasks)),
            stateful_sets: settings
                .manages(&STATEFUL_SET)
                .then(|| stateful_sets(client, settings, work, cell, tasks)),
        }
    }

    /// Waits until everything was seen once.
    pub(crate) async fn ready(&self) {
        if let Some(queued) = &self.queued {
            queued.ready().await;
        }
        if let Some(sets) = &self.stateful_sets {
            sets.ready().await;
        }
    }

    /// Whether everything was seen once.
    pub(crate) fn is_ready(&self) -> bool {
        self.queued.as_ref().is_none_or(Cache::is_ready)
            && self.stateful_sets.as_ref().is_none_or(Cache::is_ready)
    }

    /// The pods of a group.
    pub(crate) fn of_group(&self, group: &Key) -> Vec<Arc<Pod>> {
        self.queued.as_ref().map(|queued| queued.by(GROUP, &group.to_string())).unwrap_or_default()
    }

    /// Looks again at everything.
    pub(crate) fn enqueue_all(&self, work: &Work) {
        let pods = self.queued.as_ref().map(Cache::all).unwrap_or_default();
        for pod in pods {
            work.pods.add(Unit::of(&pod));
        }
        let sets = self.stateful_sets.as_ref().map(Cache::all).unwrap_or_default();
        for set in sets {
            work.stateful_sets.add(Key::of(&*set));
        }
    }

    /// Looks again at pods that `of` finds.
    pub(crate) fn look_at(&self, work: &Work, of: impl Fn(&Cache<Pod>) -> Vec<Arc<Pod>>) {
        let pods = self.queued.as_ref().map(of).unwrap_or_default();
        for pod in pods {
            work.pods.add(Unit::of(&pod));
        }
    }

    /// Looks again at the StatefulSets of a namespace.
    pub(crate) fn look_in(&self, work: &Work, namespace: &str) {
        self.look_at(work, |pods| pods.in_namespace(namespace));
        let sets = self.stateful_sets.as_ref().map(|sets| sets.in_namespace(namespace)).unwrap_or_default();
        for set in sets {
            work.stateful_sets.add(Key::of(&*set));
        }
    }

    /// A Workload changed, which may be that of pods.
    pub(crate) fn workload_changed(&self, work: &Work, key: &Key, workload: &Workload) {
        if self.queued.is_none() {
            return;
        }
        let group = || Unit::Group(key.clone());
        let is_of_group = annotation(&workload.metadata, IS_GROUP_WORKLOAD) == Some("true");
        if is_of_group || !self.of_group(key).is_empty() {
            work.pods.add(group());
        }
        for owner in workload.metadata.owner_references.iter().flatten() {
            let owned = || Key::new(key.namespace.as_str(), owner.name.as_str());
            if owner.api_version == POD.api_version() && owner.kind == POD.kind && !is_of_group {
                work.pods.add(Unit::Pod(owned()));
            }
            if owner.kind == STATEFUL_SET.kind {
                work.stateful_sets.add(owned());
            }
        }
    }
}

fn queued(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<Pod> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    indexed(Cache::new(Api::<Pod>::all(client.clone())))
        .labels(&format!("{}=true", pod::MANAGED))
        .trim(pod::trim)
        .index(GROUP, |pod| match Unit::of(pod) {
            Unit::Group(key) => vec![key.to_string()],
            Unit::Pod(_) => Vec::new(),
        })
        .index(SET, |pod| set_of(pod).map(|set| set.to_string()).into_iter().collect())
        .on_change(move |change| pod_changed(change, &work, &cell))
        .start(tasks)
}

/// The LeaderWorkerSet that a pod is part of.
fn set_of(pod: &Pod) -> Option<Key> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    leader_worker_set::of_part(&pod.metadata).map(|set| Key::new(namespace, set))
}

fn pod_changed(change: &Change<'_, Pod>, work: &Work, cell: &Cell) {
    // One that joins a group is no longer alone.
    for pod in change.old.into_iter().chain(change.new) {
        let unit = Unit::of(pod);
        if stateful_set::is_part(&pod.metadata) {
            let mut owners = pod.metadata.owner_references.iter().flatten();
            let set = owners.find(|it| it.controller == Some(true) && it.kind == STATEFUL_SET.kind);
            if let Some(set) = set {
                work.stateful_sets.add(Key::new(change.key.namespace.as_str(), set.name.as_str()));
            }
        }
        if let Some(set) = set_of(pod) {
            work.leader_worker_sets.add(set);
        }
        match (&unit, cell.get()) {
            (Unit::Group(key), _) => work.dispatch.workload(key.clone()),
            (Unit::Pod(key), Some(caches)) => caches.wake_dispatch(work, POD.group, POD.kind, key),
            (Unit::Pod(_), None) => {}
        }
        work.pods.add(unit);
    }
}

fn stateful_sets(
    client: &Client,
    settings: &Settings,
    work: &Arc<Work>,
    cell: &Cell,
    tasks: &mut Tasks,
) -> Cache<StatefulSet> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    let all = indexed(Cache::new(Api::<StatefulSet>::all(client.clone())));
    let some = if settings.manage_jobs_without_queue_name { all } else { all.labels(QUEUE_NAME_LABEL) };
    some.trim(|set| set.metadata.managed_fields = None)
        .on_change(move |change| {
            work.stateful_sets.add(change.key.clone());
            let (Some(caches), Some(set)) = (cell.get(), change.latest()) else { return };
            let workload = stateful_set::name(&set.metadata);
            if caches.workloads.get(&Key::new(change.key.namespace.as_str(), workload.as_str())).is_some() {
                work.dispatch.workload(Key::new(change.key.namespace.as_str(), workload));
            }
        })
        .start(tasks)
}
