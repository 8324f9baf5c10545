//! What the cluster holds, and who has to look when it changes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{LimitRange, Namespace},
    node::v1::RuntimeClass,
    scheduling::v1::PriorityClass,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Client, Resource};
use reconcile::{Builder, Cache, Change, Key, Tasks};
use rules::{
    dispatch::{Load, component},
    framework::{self, ungate},
    provisioning,
    quota::readiness,
    workload::{self, slice, state},
};
use types::kueue::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ProvisioningRequestConfig, ResourceFlavor, Topology,
    Workload, WorkloadPriorityClass,
};

use crate::{
    Settings,
    kinds::{self, Kinds},
    places::Places,
    pods,
    sharing::Sharing,
    work::Work,
};

/// Workloads that hold quota, by ClusterQueue.
pub(crate) const HOLDING: &str = "holding";
/// Workloads that have not ended, by LocalQueue.
pub(crate) const IN_QUEUE: &str = "in queue";
/// Workloads that have ended, by LocalQueue.
pub(crate) const ENDED: &str = "ended";
/// Workloads that wait for a worker, by its name.
pub(crate) const ASKED: &str = "asked";
/// Workloads that a worker has, by its name.
pub(crate) const RUNS: &str = "runs";
/// Workloads by the object that controls them.
pub(crate) const CONTROLLER: &str = "controller";
/// Workloads by the class that their priority comes from.
pub(crate) const CLASS: &str = "class";
/// Workloads that are slices of the same Job, by the first of them.
pub(crate) const SLICES: &str = "slices";
/// Workloads of a job that has several, by its uid.
pub(crate) const COMPONENTS: &str = "components";
/// Jobs by the Workload that somebody else made for them.
pub(crate) const PREBUILT: &str = "prebuilt";
/// Jobs by the class that their priority comes from.
pub(crate) const JOB_CLASS: &str = "class";
/// Jobs by the uid of the object that controls them.
pub(crate) const OWNER_UID: &str = "owner";
/// LocalQueues by the ClusterQueue that they lead to.
pub(crate) const LEADS_TO: &str = "leads to";

/// Everything that is watched.
#[derive(Clone)]
pub(crate) struct Caches {
    pub(crate) workloads: Cache<Workload>,
    pub(crate) local_queues: Cache<LocalQueue>,
    pub(crate) cluster_queues: Cache<ClusterQueue>,
    pub(crate) cohorts: Cache<Cohort>,
    pub(crate) flavors: Cache<ResourceFlavor>,
    pub(crate) checks: Cache<AdmissionCheck>,
    pub(crate) provisioning: Cache<ProvisioningRequestConfig>,
    pub(crate) topologies: Cache<Topology>,
    pub(crate) workload_classes: Cache<WorkloadPriorityClass>,
    pub(crate) pod_classes: Cache<PriorityClass>,
    pub(crate) namespaces: Cache<Namespace>,
    pub(crate) limits: Cache<LimitRange>,
    pub(crate) runtime_classes: Cache<RuntimeClass>,
    pub(crate) jobs: Cache<Job>,
    pub(crate) kinds: Kinds,
    pub(crate) places: Places,
    pub(crate) pods: pods::caches::Caches,
}

/// The caches, for whoever is told of changes by one of them. Empty until all of them exist; what is told before is
/// looked at anyway when everything was seen once.
pub(crate) type Cell = Arc<OnceLock<Caches>>;

impl Caches {
    /// Starts to watch.
    pub(crate) fn start(client: &Client, settings: &Settings, work: &Arc<Work>, tasks: &mut Tasks) -> Caches {
        let cell = Cell::default();
        let caches = Caches {
            workloads: workloads(client, work, &cell, tasks),
            local_queues: local_queues(client, work, &cell, tasks),
            cluster_queues: cluster_queues(client, work, &cell, tasks),
            cohorts: cohorts(client, work, tasks),
            flavors: flavors(client, work, &cell, tasks),
            checks: checks(client, work, &cell, tasks),
            provisioning: provisioning(client, work, &cell, tasks),
            topologies: topologies(client, work, &cell, tasks),
            workload_classes: workload_classes(client, work, &cell, tasks),
            pod_classes: Cache::new(Api::all(client.clone())).start(tasks),
            namespaces: namespaces(client, work, &cell, tasks),
            limits: limits(client, work, tasks),
            runtime_classes: runtime_classes(client, work, tasks),
            jobs: jobs(client, work, &cell, tasks),
            kinds: Kinds::start(client, kinds::wanted(settings), work, &cell, tasks),
            places: Places::new(client, work, tasks),
            pods: pods::caches::Caches::start(client, settings, work, &cell, tasks),
        };
        // Nobody else sets it.
        let _ = cell.set(caches.clone());
        caches
    }

    /// Waits until everything was seen once.
    pub(crate) async fn ready(&self) {
        self.workloads.ready().await;
        self.local_queues.ready().await;
        self.cluster_queues.ready().await;
        self.cohorts.ready().await;
        self.flavors.ready().await;
        self.checks.ready().await;
        self.provisioning.ready().await;
        self.topologies.ready().await;
        self.workload_classes.ready().await;
        self.pod_classes.ready().await;
        self.namespaces.ready().await;
        self.limits.ready().await;
        self.runtime_classes.ready().await;
        self.jobs.ready().await;
        self.pods.ready().await;
    }

    /// Whether everything was seen once.
    pub(crate) fn is_ready(&self) -> bool {
        self.workloads.is_ready()
            && self.local_queues.is_ready()
            && self.cluster_queues.is_ready()
            && self.cohorts.is_ready()
            && self.flavors.is_ready()
            && self.checks.is_ready()
            && self.provisioning.is_ready()
            && self.topologies.is_ready()
            && self.workload_classes.is_ready()
            && self.pod_classes.is_ready()
            && self.namespaces.is_ready()
            && self.limits.is_ready()
            && self.runtime_classes.is_ready()
            && self.jobs.is_ready()
            && self.pods.is_ready()
    }

    /// Puts everything in line that a controller looks at.
    pub(crate) fn enqueue_all(&self, work: &Work) {
        let keys =
            |all: Vec<Key>, queue: &reconcile::Queue<Key>| all.into_iter().for_each(|key| queue.add(key));
        keys(self.jobs.all().iter().map(|it| Key::of(&**it)).collect(), &work.jobs);
        keys(self.workloads.all().iter().map(|it| Key::of(&**it)).collect(), &work.workloads);
        keys(self.cluster_queues.all().iter().map(|it| Key::of(&**it)).collect(), &work.cluster_queues);
        keys(self.local_queues.all().iter().map(|it| Key::of(&**it)).collect(), &work.local_queues);
        keys(self.cohorts.all().iter().map(|it| Key::of(&**it)).collect(), &work.cohorts);
        keys(self.flavors.all().iter().map(|it| Key::of(&**it)).collect(), &work.flavors);
        keys(self.checks.all().iter().map(|it| Key::of(&**it)).collect(), &work.checks);
        self.pods.enqueue_all(work);
        keys(self.workload_classes.all().iter().map(|it| Key::of(&**it)).collect(), &work.classes);
    }

    /// A flavor by its name.
    pub(crate) fn flavor(&self, name: &str) -> Option<Arc<ResourceFlavor>> {
        self.flavors.get(&Key::new("", name))
    }

    /// A check by its name.
    pub(crate) fn check(&self, name: &str) -> Option<Arc<AdmissionCheck>> {
        self.checks.get(&Key::new("", name))
    }

    /// Whether a Topology exists.
    pub(crate) fn has_topology(&self, name: &str) -> bool {
        self.topologies.get(&Key::new("", name)).is_some()
    }

    /// Whether a ClusterQueue admits, and why not.
    pub(crate) fn readiness(&self, queue: &ClusterQueue) -> readiness::Readiness {
        readiness::cluster_queue(
            queue,
            readiness::Referred {
                flavor: &|name| self.flavor(name),
                check: &|name| self.check(name),
                topology: &|name| self.has_topology(name),
            },
        )
    }

    /// Whether a ClusterQueue sends its Workloads to other clusters.
    pub(crate) fn sends_elsewhere(&self, queue: &ClusterQueue) -> bool {
        let multikueue = |name: &str| {
            self.check(name).is_some_and(|check| check.spec.controller_name == readiness::MULTIKUEUE)
        };
        readiness::check_names(queue).any(multikueue)
    }

    /// The LocalQueue that a Workload names.
    pub(crate) fn local_queue_of(&self, workload: &Workload) -> Option<Arc<LocalQueue>> {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        self.local_queues.get(&Key::new(namespace, state::queue_name(workload)))
    }

    /// A ClusterQueue by its name.
    pub(crate) fn cluster_queue(&self, name: &str) -> Option<Arc<ClusterQueue>> {
        self.cluster_queues.get(&Key::new("", name))
    }

    /// The Workloads that have not ended and name a LocalQueue.
    pub(crate) fn workloads_in(&self, local_queue: &Key) -> Vec<Arc<Workload>> {
        self.workloads.by(IN_QUEUE, &local_queue.to_string())
    }

    /// How many Workloads that name a LocalQueue have ended and are still there.
    pub(crate) fn ended_in(&self, local_queue: &Key) -> usize {
        self.workloads.count(ENDED, &local_queue.to_string())
    }

    /// Looks again at the Jobs of all kinds for which an index gave `value`.
    fn look_at_jobs(&self, work: &Work, index: &'static str, value: &str) {
        self.jobs.by(index, value).iter().for_each(|job| work.jobs.add(Key::of(&**job)));
        self.kinds.look_at_jobs(work, |objects| objects.by(index, value));
        self.pods.look_at(work, |pods| pods.by(index, value));
    }

    /// Looks again at the nodes of the Workloads that have to pass a check.
    fn look_at_nodes_for(&self, work: &Work, check: &str) {
        for workload in self.workloads.all() {
            if state::checks(&workload).iter().any(|it| it.name == check) {
                work.provisioning.add(Key::of(&*workload));
            }
        }
    }

    /// Looks again at a ClusterQueue and at all who wait for it or are in it.
    fn cluster_queue_changed(&self, work: &Work, name: &str) {
        work.cluster_queues.add(Key::new("", name));
        for local_queue in self.local_queues.by(LEADS_TO, name) {
            let key = Key::of(&*local_queue);
            for workload in self.workloads_in(&key) {
                work.workloads.add(Key::of(&*workload));
            }
            work.local_queues.add(key);
        }
    }
}

/// The value of the index by controller.
pub(crate) fn controller(group: &str, kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}.{group}/{namespace}/{name}")
}

fn controller_of(metadata: &ObjectMeta) -> Option<String> {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    Some(controller(group, &owner.kind, metadata.namespace.as_deref().unwrap_or_default(), &owner.name))
}

/// How long changes of Workloads are collected before the status of their queues is looked at (CQ-10). A status that
/// was written is looked at no sooner: while work comes and goes it would be outdated as soon as it is there.
pub(crate) const BATCH: Duration = Duration::from_secs(1);

fn workloads(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<Workload> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    let sharing = Sharing::default();
    Cache::new(Api::<Workload>::all(client.clone()))
        .trim(move |workload| sharing.trim(workload))
        .index(HOLDING, |workload| {
            let holds = workload::has_quota(workload)
                && !workload::is_finished(workload)
                && workload::is_active(workload);
            state::cluster_queue(workload).filter(|_| holds).map(str::to_owned).into_iter().collect()
        })
        .index(IN_QUEUE, |workload| {
            let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
            let queue = Key::new(namespace, state::queue_name(workload));
            if workload::is_finished(workload) { Vec::new() } else { vec![queue.to_string()] }
        })
        .index(ENDED, |workload| {
            let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
            let queue = || Key::new(namespace, state::queue_name(workload)).to_string();
            workload::is_finished(workload).then(queue).into_iter().collect()
        })
        .index(ASKED, Load::asked)
        .index(RUNS, |workload| Load::runs(workload).into_iter().collect())
        .index(CONTROLLER, |workload| controller_of(&workload.metadata).into_iter().collect())
        .index(COMPONENTS, |workload| component::whole(workload).map(str::to_owned).into_iter().collect())
        .index(CLASS, |workload| {
            let class = workload.spec.priority_class_ref.as_ref();
            let own = class.filter(|class| class.kind == "WorkloadPriorityClass");
            own.map(|class| class.name.clone()).into_iter().collect()
        })
        .index(SLICES, |workload| {
            let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
            slice::name(workload).map(|name| Key::new(namespace, name).to_string()).into_iter().collect()
        })
        .on_change(move |change| workload_changed(change, &work, cell.get()))
        .start(tasks)
}

fn workload_changed(change: &Change<'_, Workload>, work: &Work, caches: Option<&Caches>) {
    work.workloads.add(change.key.clone());
    work.dispatch.workload(change.key.clone());
    if change.latest().is_some_and(|workload| !state::checks(workload).is_empty()) {
        work.provisioning.add(change.key.clone());
    }
    work.inbox.note(|news| {
        news.workloads.insert(change.key.clone());
    });
    if let Some(workload) = change.new.filter(|workload| ungate::is_placed(workload)) {
        work.placed.add(Key::new(change.key.namespace.clone(), ungate::known_as(workload)));
    }
    // What it was says who else has to look only if it was somebody else's.
    let old = change.old.filter(|old| change.new.is_none_or(|new| whose(old) != whose(new)));
    for workload in old.into_iter().chain(change.new) {
        let owners = workload.metadata.owner_references.iter().flatten();
        for owner in owners {
            let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
            if let Some(jobs) = work.jobs_of(group, &owner.kind) {
                jobs.add(Key::new(change.key.namespace.clone(), owner.name.clone()));
            }
        }
        let Some(caches) = caches else { continue };
        caches.wake_components(work, change, workload);
        caches.look_at_jobs(work, PREBUILT, &change.key.to_string());
        caches.pods.workload_changed(work, change.key, workload);
        // Jobs that are part of another one run only while that one's Workload may.
        for owner in workload.metadata.owner_references.iter().flatten() {
            caches.look_at_jobs(work, OWNER_UID, &owner.uid);
        }
        let local_queue = Key::new(change.key.namespace.clone(), state::queue_name(workload));
        let leads_to = caches.local_queues.get(&local_queue).map(|queue| queue.spec.cluster_queue.clone());
        let cluster_queue = state::cluster_queue(workload).map(str::to_owned).or(leads_to);
        work.local_queues.add_after(local_queue, BATCH);
        if let Some(name) = cluster_queue {
            work.cluster_queues.add_after(Key::new("", name), BATCH);
        }
    }
}

/// Whose a Workload is: of these objects, in this LocalQueue, and of this ClusterQueue once it is admitted.
fn whose(workload: &Workload) -> (Option<&[OwnerReference]>, &str, Option<&str>) {
    let owners = workload.metadata.owner_references.as_deref();
    (owners, state::queue_name(workload), state::cluster_queue(workload))
}

/// Whether more than the status of an object changed.
fn is_respecified(old: Option<&ObjectMeta>, new: Option<&ObjectMeta>) -> bool {
    let of = |it: Option<&ObjectMeta>| {
        it.map(|it| (it.uid.clone(), it.generation, it.deletion_timestamp.is_some()))
    };
    of(old) != of(new)
}

fn local_queues(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<LocalQueue> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<LocalQueue>::all(client.clone()))
        .index(LEADS_TO, |queue| vec![queue.spec.cluster_queue.clone()])
        .on_change(move |change| {
            if !is_respecified(change.old.map(|it| &it.metadata), change.new.map(|it| &it.metadata)) {
                work.local_queues.add_after(change.key.clone(), BATCH);
                return;
            }
            work.local_queues.add(change.key.clone());
            work.inbox.note(|news| {
                news.local_queues.insert(change.key.clone());
            });
            if let Some(caches) = cell.get() {
                for workload in caches.workloads_in(change.key) {
                    work.workloads.add(Key::of(&*workload));
                }
            }
        })
        .start(tasks)
}

fn cluster_queues(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<ClusterQueue> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<ClusterQueue>::all(client.clone()))
        .on_change(move |change| {
            if !is_respecified(change.old.map(|it| &it.metadata), change.new.map(|it| &it.metadata)) {
                work.cluster_queues.add_after(change.key.clone(), BATCH);
                return;
            }
            work.cluster_queues.add(change.key.clone());
            work.inbox.note(|news| news.config = true);
            let Some(caches) = cell.get() else { return };
            caches.cluster_queue_changed(&work, &change.key.name);
            // What it referred to before may go now, and what it refers to may not.
            for queue in change.old.into_iter().chain(change.new) {
                for name in readiness::flavors(queue) {
                    work.flavors.add(Key::new("", name));
                }
                readiness::check_names(queue).for_each(|name| work.checks.add(Key::new("", name)));
                let cohort = queue.spec.cohort_name.iter().filter(|name| !name.is_empty());
                cohort.for_each(|name| work.cohorts.add(Key::new("", name.as_str())));
            }
        })
        .start(tasks)
}

fn cohorts(client: &Client, work: &Arc<Work>, tasks: &mut Tasks) -> Cache<Cohort> {
    let work = Arc::clone(work);
    Cache::new(Api::<Cohort>::all(client.clone()))
        .on_change(move |change| {
            work.cohorts.add(change.key.clone());
            if is_respecified(change.old.map(|it| &it.metadata), change.new.map(|it| &it.metadata)) {
                work.inbox.note(|news| news.config = true);
            }
        })
        .start(tasks)
}

fn flavors(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<ResourceFlavor> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<ResourceFlavor>::all(client.clone()))
        .on_change(move |change| {
            work.flavors.add(change.key.clone());
            work.inbox.note(|news| news.config = true);
            let Some(caches) = cell.get() else { return };
            for queue in caches.cluster_queues.all() {
                if readiness::flavors(&queue).contains(&change.key.name.as_str()) {
                    caches.cluster_queue_changed(&work, &Key::of(&*queue).name);
                }
            }
        })
        .start(tasks)
}

fn checks(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<AdmissionCheck> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<AdmissionCheck>::all(client.clone()))
        .on_change(move |change| {
            work.checks.add(change.key.clone());
            work.dispatch.check(change.key.clone());
            work.provisioning_checks.add(change.key.clone());
            let active = |check: Option<&Arc<AdmissionCheck>>| check.map(|check| readiness::is_active(check));
            let respecified =
                is_respecified(change.old.map(|it| &it.metadata), change.new.map(|it| &it.metadata));
            if !respecified && active(change.old) == active(change.new) {
                return;
            }
            work.inbox.note(|news| news.config = true);
            let Some(caches) = cell.get() else { return };
            if respecified {
                caches.workloads.all().iter().for_each(|it| work.dispatch.workload(Key::of(&**it)));
                caches.look_at_nodes_for(&work, &change.key.name);
            }
            for queue in caches.cluster_queues.all() {
                if readiness::check_names(&queue).any(|name| name == change.key.name) {
                    caches.cluster_queue_changed(&work, &Key::of(&*queue).name);
                }
            }
        })
        .start(tasks)
}

fn provisioning(
    client: &Client,
    work: &Arc<Work>,
    cell: &Cell,
    tasks: &mut Tasks,
) -> Cache<ProvisioningRequestConfig> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<ProvisioningRequestConfig>::all(client.clone()))
        .on_change(move |change| {
            let Some(caches) = cell.get() else { return };
            for check in caches.checks.all() {
                if provisioning::config_name(&check) == Some(Ok(change.key.name.as_str())) {
                    let key = Key::of(&*check);
                    caches.look_at_nodes_for(&work, &key.name);
                    work.provisioning_checks.add(key);
                }
            }
        })
        .start(tasks)
}

fn topologies(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<Topology> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<Topology>::all(client.clone()))
        .on_change(move |change| {
            work.inbox.note(|news| news.config = true);
            let Some(caches) = cell.get() else { return };
            for flavor in caches.flavors.all() {
                if flavor.spec.topology_name.as_deref() != Some(change.key.name.as_str()) {
                    continue;
                }
                let name = flavor.metadata.name.as_deref().unwrap_or_default();
                for queue in caches.cluster_queues.all() {
                    if readiness::flavors(&queue).contains(&name) {
                        caches.cluster_queue_changed(&work, &Key::of(&*queue).name);
                    }
                }
            }
        })
        .start(tasks)
}

fn workload_classes(
    client: &Client,
    work: &Arc<Work>,
    cell: &Cell,
    tasks: &mut Tasks,
) -> Cache<WorkloadPriorityClass> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<WorkloadPriorityClass>::all(client.clone()))
        .on_change(move |change| {
            work.classes.add(change.key.clone());
            let Some(caches) = cell.get() else { return };
            caches.look_at_jobs(&work, JOB_CLASS, &change.key.name);
        })
        .start(tasks)
}

fn namespaces(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<Namespace> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    Cache::new(Api::<Namespace>::all(client.clone()))
        .on_change(move |change| {
            let labels = |namespace: Option<&Arc<Namespace>>| namespace.map(|it| it.metadata.labels.clone());
            if labels(change.old) == labels(change.new) {
                return;
            }
            work.inbox.note(|news| {
                news.namespaces.insert(change.key.name.clone());
            });
            let Some(caches) = cell.get() else { return };
            caches.jobs.in_namespace(&change.key.name).iter().for_each(|job| work.jobs.add(Key::of(&**job)));
            caches.kinds.look_at_jobs(&work, |objects| objects.in_namespace(&change.key.name));
            caches.pods.look_in(&work, &change.key.name);
        })
        .start(tasks)
}

fn limits(client: &Client, work: &Arc<Work>, tasks: &mut Tasks) -> Cache<LimitRange> {
    let work = Arc::clone(work);
    Cache::new(Api::<LimitRange>::all(client.clone()))
        .on_change(move |change| {
            work.inbox.note(|news| {
                news.namespaces.insert(change.key.namespace.clone());
            });
        })
        .start(tasks)
}

fn runtime_classes(client: &Client, work: &Arc<Work>, tasks: &mut Tasks) -> Cache<RuntimeClass> {
    let work = Arc::clone(work);
    Cache::new(Api::<RuntimeClass>::all(client.clone()))
        .on_change(move |_| work.inbox.note(|news| news.runtime_classes = true))
        .start(tasks)
}

fn jobs(client: &Client, work: &Arc<Work>, cell: &Cell, tasks: &mut Tasks) -> Cache<Job> {
    let (work, cell) = (Arc::clone(work), Arc::clone(cell));
    indexed(Cache::new(Api::<Job>::all(client.clone())))
        .on_change(move |change| {
            work.jobs.add(change.key.clone());
            let Some(caches) = cell.get() else { return };
            caches.wake_dispatch(&work, "batch", "Job", change.key);
        })
        .start(tasks)
}

impl Caches {
    /// Something about a Job changed that may run on another cluster.
    pub(crate) fn wake_dispatch(&self, work: &Work, group: &str, kind: &str, key: &Key) {
        let owner = controller(group, kind, &key.namespace, &key.name);
        for workload in self.workloads.by(CONTROLLER, &owner) {
            work.dispatch.workload(Key::of(&*workload));
        }
    }

    /// A Workload changed that may be one of several of its job: the others go where it is, and the first of them waits until all
    /// are there.
    fn wake_components(&self, work: &Work, change: &Change<'_, Workload>, workload: &Workload) {
        let Some(whole) = component::whole(workload) else { return };
        let held =
            |workload: Option<&Arc<Workload>>| workload.and_then(|workload| component::holds(workload));
        if held(change.old) != held(change.new) {
            self.workloads.by(COMPONENTS, whole).iter().for_each(|it| work.dispatch.workload(Key::of(&**it)));
        } else if change.old.is_some() != change.new.is_some() {
            let all = self.workloads.by(COMPONENTS, whole);
            let first = all.iter().min_by_key(|it| component::index(it));
            if let Some(first) = first {
                work.dispatch.workload(Key::of(&**first));
            }
        }
    }
}

/// Makes Jobs of any kind findable by what others know of them.
pub(crate) fn indexed<K>(jobs: Builder<K>) -> Builder<K>
where
    K: Resource + std::fmt::Debug + Send + Sync + 'static,
{
    jobs.index(PREBUILT, |job| {
        let namespace = job.meta().namespace.as_deref().unwrap_or_default();
        let name = framework::prebuilt_workload(job.meta());
        name.map(|name| Key::new(namespace, name).to_string()).into_iter().collect()
    })
    .index(JOB_CLASS, |job| {
        let class = framework::label(job.meta(), framework::PRIORITY_CLASS_LABEL);
        class.map(str::to_owned).into_iter().collect()
    })
    .index(OWNER_UID, |job| {
        let owners = job.meta().owner_references.iter().flatten();
        owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).collect()
    })
}
