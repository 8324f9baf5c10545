//! The lane of a worker: what it holds of ours, and the steps that are taken there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::{DynamicObject, GroupVersionKind},
};
use reconcile::{Cache, Key, Next, Queue, Tasks};
use rules::{
    dispatch::{
        self, Adapter, ClusterName, ORIGIN, Observed, Owner, Step, component, copy, group, observed,
        plan::Pods,
    },
    workload::{
        change,
        patch::{self, ADMISSION_MANAGER, Manner},
        plan::Event,
    },
};
use serde_json::{Value, json};
use tracing::{debug, info};
use types::kueue::{RESOURCE_IN_USE, Workload};

use super::{
    Shared,
    call::{Error, within},
    connection::{self, Connection},
    members,
    observe::decided,
};
use crate::{
    caches::{CONTROLLER, controller},
    events::WORKLOADS,
    sharing::Sharing,
};

mod look;

/// Mirrors by the Workload that they belong to.
const BY_LINK: &str = "link";
/// The finalizer of what stays until everything that it owns is gone.
const FOREGROUND_DELETION: &str = "foregroundDeletion";
/// Under this name everything but admission is written.
const FIELD_MANAGER: &str = "kueue";

/// A worker cluster as it is reached and seen now.
pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) workloads: Cache<Workload>,
    /// Workloads about which something is to be done here.
    pub(super) lane: Queue<Key>,
    name: ClusterName,
    /// In the order of their names.
    kinds: Vec<Kind>,
}

struct Kind {
    adapter: &'static Adapter,
    objects: Cache<DynamicObject>,
}

impl Worker {
    /// Watches what is ours there, and works.
    pub(super) fn start(
        shared: &Arc<Shared>,
        connection: &Arc<Connection>,
        client: Client,
        tasks: &mut Tasks,
    ) -> Arc<Worker> {
        let ours = format!("{ORIGIN}={}", shared.settings.origin);
        let (wake, sharing) = (shared.wake.clone(), Sharing::default());
        let workloads = Cache::new(Api::<Workload>::all(client.clone()))
            .labels(&ours)
            .trim(move |workload| sharing.trim(workload))
            .on_change(move |change| wake.workload(change.key.clone()))
            .start(tasks);
        let mut kinds = BTreeMap::new();
        for adapter in &shared.settings.kinds {
            let (wake, found, adapter) = (shared.wake.clone(), shared.workloads.clone(), *adapter);
            let (book, clock) = (Arc::clone(&connection.book), shared.clock.clone());
            let objects = Cache::new(Api::<DynamicObject>::all_with(client.clone(), &resource(adapter)))
                .labels(&ours)
                .index(BY_LINK, move |object: &DynamicObject| {
                    links(adapter, object).iter().map(Key::to_string).collect()
                })
                .on_change(move |change| {
                    if let Some(old) = change.old.filter(|old| is_gone(old, change.new)) {
                        let outlived = may_be_outlived(adapter, old);
                        for key in links(adapter, old) {
                            let local = found.get(&key).filter(|_| outlived);
                            let pods = local.as_deref().and_then(observed::leaves_within);
                            book.gone(&key, pods, clock.now());
                        }
                    }
                    let both = change.old.into_iter().chain(change.new);
                    both.flat_map(|object| links(adapter, object)).for_each(|key| wake.workload(key));
                    // A job may wait for that of an earlier one of its name to be gone.
                    let owner =
                        controller(adapter.group, adapter.kind, &change.key.namespace, &change.key.name);
                    found.by(CONTROLLER, &owner).iter().for_each(|it| wake.workload(Key::of(&**it)));
                })
                .start(tasks);
            let (of, seen) = (Arc::clone(shared), objects.clone());
            tasks.spawn("kind", async move {
                // What waited to hear whether the kind is known there, or for what there is of it, waits no longer.
                seen.settled().await;
                of.wake_all();
                if !seen.is_ready() {
                    seen.ready().await;
                    of.wake_all();
                }
            });
            kinds.insert(adapter.gvk(), Kind { adapter, objects });
        }
        let (name, lane) = (connection.name.clone(), Queue::new());
        let kinds = kinds.into_values().collect();
        let worker = Arc::new(Worker { client, workloads, lane, name, kinds });
        let (of, with, by) = (Arc::clone(shared), Arc::clone(connection), Arc::clone(&worker));
        tasks.spawn("lane", async move {
            let lane = by.lane.clone();
            lane.run(of.settings.concurrency, |key| by.work(&of, &with, key)).await;
        });
        let (of, by) = (Arc::clone(shared), Arc::clone(&worker));
        tasks.spawn("clean up", async move {
            loop {
                tokio::time::sleep(of.settings.clean_up).await;
                by.wake_held(&of);
            }
        });
        worker
    }

    /// Waits until all kinds were seen that are known there.
    pub(super) async fn kinds_settled(&self) {
        for kind in &self.kinds {
            kind.objects.settled().await;
        }
    }

    /// Whether the cluster knows a kind; `None` as long as it has not said so.
    pub(super) fn knows(&self, adapter: &Adapter) -> Option<bool> {
        let Some(kind) = self.kind(adapter) else { return Some(false) };
        kind.objects.is_settled().then(|| kind.objects.is_ready())
    }

    /// Why the cluster does not show its jobs of a kind, if it says so.
    pub(super) fn hides(&self, adapter: &Adapter) -> Option<String> {
        self.kind(adapter)?.objects.refusal().map(|status| status.message)
    }

    fn kind(&self, adapter: &Adapter) -> Option<&Kind> {
        let gvk = |it: &Adapter| (it.kind, it.group, it.version);
        self.kinds.iter().find(|kind| gvk(kind.adapter) == gvk(adapter))
    }

    /// Looks at everything of ours that is here (MK-GC-01, MK-GC-03).
    pub(super) fn wake_held(&self, shared: &Shared) {
        self.workloads.all().iter().for_each(|copy| shared.wake.workload(Key::of(&**copy)));
        for kind in &self.kinds {
            let all = kind.objects.all();
            let keys = all.iter().flat_map(|object| links(kind.adapter, object));
            keys.for_each(|key| shared.wake.workload(key));
        }
    }

    /// The mirror of a Workload's job: the object of that name, or one that says it belongs to the Workload. `is_current`
    /// says whether the job is the one that has its name on the manager now, and runs by this Workload.
    pub(super) fn job(
        &self,
        key: &Key,
        job: Option<(&'static Adapter, &Key)>,
        is_current: bool,
    ) -> Option<Arc<DynamicObject>> {
        let named = job.and_then(|(adapter, job)| {
            let mirror = self.kind(adapter)?.objects.get(job)?;
            concerns(adapter, &mirror, key, is_current).then_some(mirror)
        });
        named.or_else(|| self.linked(key).map(|(_, mirror)| mirror).next())
    }

    /// Every object that says it belongs to a Workload.
    fn linked<'a>(&'a self, key: &Key) -> impl Iterator<Item = (&'a Kind, Arc<DynamicObject>)> + use<'a> {
        let key = key.to_string();
        self.kinds.iter().flat_map(move |kind| {
            kind.objects.by(BY_LINK, &key).into_iter().map(move |mirror| (kind, mirror))
        })
    }

    /// Whether something says that it belongs to a Workload.
    pub(super) fn has_mirror(&self, key: &Key) -> bool {
        self.linked(key).next().is_some()
    }

    /// The uid of the job of a Workload, if that has several Workloads and a mirror here.
    pub(super) fn whole_of(&self, key: &Key) -> Option<String> {
        let (_, mirror) = self.linked(key).find(|(kind, _)| kind.adapter.components.is_some())?;
        mirror.metadata.annotations.as_ref()?.get(dispatch::ORIGIN_UID).cloned()
    }

    /// The pods that say they belong to a Workload.
    pub(super) fn pods_of(&self, key: &Key) -> Vec<Arc<DynamicObject>> {
        let pods = self.linked(key).filter(|(kind, _)| kind.adapter.kind == "Pod");
        pods.map(|(_, pod)| pod).collect()
    }

    async fn work(&self, shared: &Arc<Shared>, connection: &Connection, key: Key) -> Result<Next, Error> {
        let (seen, plan) = decided(shared, &key);
        let lane = Lane { shared, connection, worker: self, key: &key, seen: &seen };
        for step in plan.on(self.name.as_str()) {
            info!(workload = %key, cluster = %self.name, %step, because = %plan.because, "taking");
            if let Some(wait) = lane.take(step).await? {
                return Ok(Next::After(wait));
            }
        }
        Ok(Next::Done)
    }

    fn workloads_in(&self, namespace: &str) -> Api<Workload> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn objects_in(&self, adapter: &Adapter, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource(adapter))
    }
}

/// One Workload in the lane of a worker.
struct Lane<'a> {
    shared: &'a Arc<Shared>,
    connection: &'a Connection,
    worker: &'a Worker,
    key: &'a Key,
    seen: &'a Observed,
}

impl Lane<'_> {
    /// Takes a step. Says how long to wait if it has to be taken again.
    async fn take(&self, step: &Step) -> Result<Option<Duration>, Error> {
        match step {
            Step::Create(_) => self.create().await?,
            Step::Start(_) => self.start().await?,
            Step::Update(_, spec) => self.update(&json!({"spec": spec})).await?,
            Step::Forward(_, patch) => self.forward(patch).await?,
            Step::Deactivate(_, message) => self.deactivate(message).await?,
            Step::Delete(_, pods) => self.delete(*pods).await?,
            Step::Prune(_) => self.prune().await?,
            Step::Look(_) => return self.look().await,
            Step::Refuse(_, why) => self.refuse(why),
            other => debug!(step = %other, "not for a worker"),
        }
        Ok(None)
    }

    async fn create(&self) -> Result<(), Error> {
        let Some(local) = self.seen.local.as_deref() else { return Ok(()) };
        self.connection.book.writes(self.key);
        let copy = copy::workload(local, &self.shared.settings.origin);
        let (api, params) = (self.worker.workloads_in(&self.key.namespace), PostParams::default());
        match self.call("create a Workload", api.create(&params, &copy)).await {
            Ok(answer) => {
                self.shared.metrics.dispatched(local, self.worker.name.as_str());
                self.worker.workloads.put(answer);
            }
            Err(error) if error.is_already_exists() => {
                let there = self.call("read a Workload", api.get(&self.key.name)).await?;
                self.claim_workload(there);
            }
            Err(error) if error.is_refusal() => self.refuse(&error.said()),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn start(&self) -> Result<(), Error> {
        let (Some(local), Some(job)) = (self.seen.local.as_deref(), self.seen.job.as_deref()) else {
            return Ok(());
        };
        let Some(kind) = self.kind() else { return Ok(()) };
        self.connection.book.writes(self.key);
        if !self.is_group() {
            return self.create_mirror(kind, job, local).await;
        }
        let there = self.worker.pods_of(self.key);
        let there = group::mirror(Some(job), &self.key.name, there.iter().map(|pod| &**pod));
        let missing = group::missing(job, there.as_ref());
        for pod in members::pods_of(self.shared, self.key, local) {
            if pod.metadata.name.as_ref().is_some_and(|name| missing.contains(name)) {
                self.create_mirror(kind, &members::form_of(&pod), local).await?;
            }
        }
        Ok(())
    }

    async fn create_mirror(&self, kind: &Kind, job: &DynamicObject, local: &Workload) -> Result<(), Error> {
        let mirror = copy::mirror(kind.adapter, job, local, &self.shared.settings.origin);
        let api = self.worker.objects_in(kind.adapter, &self.key.namespace);
        let params = PostParams::default();
        match self.call("create a job", api.create(&params, &mirror)).await {
            Ok(answer) => kind.objects.put(answer),
            Err(error) if error.is_already_exists() => {
                let name = mirror.metadata.name.as_deref().unwrap_or_default();
                let there = self.call("read a job", api.get(name)).await?;
                self.claim_job(kind, there);
            }
            Err(error) if error.is_refusal() => self.refuse(&error.said()),
            Err(error) => {
                if error.is_in_doubt() {
                    self.connection.book.doubts(self.key, self.shared.clock.now());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Pods that are none of the group's on the manager go (MK-POD-05).
    async fn prune(&self) -> Result<(), Error> {
        let Some(kind) = self.kind() else { return Ok(()) };
        let there = self.worker.pods_of(self.key);
        let mirror = group::mirror(self.seen.job.as_deref(), &self.key.name, there.iter().map(|pod| &**pod));
        let surplus = mirror.as_ref().map(group::surplus).unwrap_or_default();
        for pod in
            there.iter().filter(|pod| pod.metadata.name.as_ref().is_some_and(|it| surplus.contains(it)))
        {
            self.delete_mirror(kind, pod, Pods::After).await?;
        }
        Ok(())
    }

    fn is_group(&self) -> bool {
        self.seen.local.as_deref().and_then(Owner::of).is_some_and(|owner| owner.is_group)
    }

    async fn update(&self, change: &Value) -> Result<(), Error> {
        let Some(copy) = self.worker.workloads.get(self.key) else { return Ok(()) };
        let mut body = change.clone();
        body["metadata"] =
            json!({"uid": copy.metadata.uid, "resourceVersion": copy.metadata.resource_version});
        let api = self.worker.workloads_in(&self.key.namespace);
        let (params, body) = (Self::params(), Patch::Merge(body));
        let answer = self.call("change a Workload", api.patch(&self.key.name, &params, &body)).await;
        Self::answered(answer, &self.worker.workloads)
    }

    async fn forward(&self, change: &Value) -> Result<(), Error> {
        let (Some(kind), Some(name)) = (self.kind(), self.job_name()) else { return Ok(()) };
        let Some(mirror) = kind.objects.get(&Key::new(self.key.namespace.as_str(), name.as_str())) else {
            return Ok(());
        };
        let mut body = change.clone();
        body["metadata"]["uid"] = json!(mirror.metadata.uid);
        body["metadata"]["resourceVersion"] = json!(mirror.metadata.resource_version);
        let api = self.worker.objects_in(kind.adapter, &self.key.namespace);
        let (params, body) = (Self::params(), Patch::Merge(body));
        let answer = self.call("change a job", api.patch(&name, &params, &body)).await;
        Self::answered(answer, &kind.objects)
    }

    /// Written the way Kueue writes it, so that Kueue can take it back.
    async fn deactivate(&self, message: &str) -> Result<(), Error> {
        let Some(copy) = self.worker.workloads.get(self.key) else { return Ok(()) };
        let mut next = (*copy).clone();
        change::deactivation_target(&mut next, "EvictedOnManagerCluster", message, self.shared.clock.now());
        let status = next.status.unwrap_or_default();
        let body = Patch::Apply(patch::admission(&copy, &status, Manner::Strict));
        let params = PatchParams::apply(ADMISSION_MANAGER).force();
        let api = self.worker.workloads_in(&self.key.namespace);
        let answer =
            self.call("deactivate a Workload", api.patch_status(&self.key.name, &params, &body)).await;
        Self::answered(answer, &self.worker.workloads)
    }

    /// The mirror first, and the copy when the mirror is gone (MK-DEL-03).
    async fn delete(&self, pods: Pods) -> Result<(), Error> {
        let named = self.kind().zip(self.job_name()).and_then(|(kind, name)| {
            Some((kind, kind.objects.get(&Key::new(self.key.namespace.as_str(), name))?))
        });
        let is_current = self.seen.is_current();
        let named = named.filter(|(kind, mirror)| concerns(kind.adapter, mirror, self.key, is_current));
        let mut mirrors: Vec<(&Kind, Arc<DynamicObject>)> = self.worker.linked(self.key).collect();
        if let Some((kind, mirror)) = named
            && mirrors.iter().all(|(_, other)| other.metadata.uid != mirror.metadata.uid)
        {
            mirrors.push((kind, mirror));
        }
        // Pods of a group take their time to go, all at once.
        let mut all_gone = true;
        if pods == Pods::OfOthers {
            mirrors.clear();
        }
        for (kind, mirror) in mirrors {
            all_gone &= self.delete_mirror(kind, &mirror, pods).await?;
        }
        if !all_gone {
            // Their end wakes.
            return Ok(());
        }
        let Some(copy) = self.worker.workloads.get(self.key) else { return Ok(()) };
        self.delete_copy(&copy).await
    }

    /// Whether the mirror is gone.
    async fn delete_mirror(&self, kind: &Kind, mirror: &DynamicObject, pods: Pods) -> Result<bool, Error> {
        if mirror.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let mut params = only(mirror.metadata.uid.as_deref());
        if pods == Pods::Before {
            // It may have ended since it was seen, and then it must not run again.
            let seen = mirror.metadata.resource_version.clone();
            params.preconditions.iter_mut().for_each(|only| only.resource_version.clone_from(&seen));
        }
        params.propagation_policy = propagation(kind.adapter, pods);
        let name = mirror.metadata.name.as_deref().unwrap_or_default();
        let api = self.worker.objects_in(kind.adapter, &self.key.namespace);
        match self.call("delete a job", api.delete(name, &params)).await {
            Ok(answer) => {
                let still = answer.left();
                let is_gone = still.is_none();
                match still {
                    Some(still) => kind.objects.put(still),
                    None => kind.objects.removed(mirror),
                }
                Ok(is_gone)
            }
            Err(error) if error.is_not_found() => {
                kind.objects.removed(mirror);
                Ok(true)
            }
            // It changed, or another one of that name took its place.
            Err(error) if error.is_conflict() => {
                self.look().await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn delete_copy(&self, copy: &Workload) -> Result<(), Error> {
        let api = self.worker.workloads_in(&self.key.namespace);
        let finalizers = copy.metadata.finalizers.as_deref().unwrap_or_default();
        if finalizers.iter().any(|finalizer| finalizer == RESOURCE_IN_USE) {
            let rest: Vec<&String> =
                finalizers.iter().filter(|finalizer| *finalizer != RESOURCE_IN_USE).collect();
            let metadata = json!({"finalizers": rest, "uid": copy.metadata.uid, "resourceVersion": copy.metadata.resource_version});
            let (params, body) = (Self::params(), Patch::Merge(json!({"metadata": metadata})));
            match self.call("release a Workload", api.patch(&self.key.name, &params, &body)).await {
                Ok(answer) if copy.metadata.deletion_timestamp.is_none() => self.worker.workloads.put(answer),
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Self::answered(Err(error), &self.worker.workloads),
            }
        }
        if copy.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        match self
            .call("delete a Workload", api.delete(&self.key.name, &only(copy.metadata.uid.as_deref())))
            .await
        {
            Ok(answer) => match answer.left() {
                Some(still) => self.worker.workloads.put(still),
                None => self.worker.workloads.removed(copy),
            },
            Err(error) if error.is_not_found() => self.worker.workloads.removed(copy),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The cluster is not asked again for a while, and whoever looks at the Workload can see why.
    fn refuse(&self, why: &str) {
        if !self.connection.book.refuse(self.key, why, self.shared.clock.now()) {
            return;
        }
        if let Some(local) = self.seen.local.as_deref() {
            self.shared.metrics.refused(local, self.worker.name.as_str());
            let note = format!("Worker cluster \"{}\" refused the workload: {why}", self.worker.name);
            self.shared.recorder.tell(WORKLOADS, local, &Event::warning("MultiKueue", &note));
        }
        self.shared.wake.workload(self.key.clone());
    }

    /// Whether something is of this very Workload or job, and was created under another origin. It is not touched, but
    /// neither can the cluster be said to hold nothing: it may run (MK-ORI-02).
    fn was_ours(&self, there: &kube::core::ObjectMeta) -> bool {
        let of = there.annotations.as_ref().and_then(|all| all.get(dispatch::ORIGIN_UID));
        let local = self.seen.local.as_deref().and_then(|local| local.metadata.uid.as_ref());
        let job = self.seen.job.as_deref().and_then(|job| job.metadata.uid.as_ref());
        of.is_some() && (of == local || of == job) && !is_ours(there, &self.shared.settings.origin)
    }

    /// Takes note of a Workload of this name, if it is ours (MK-COPY-05).
    fn claim_workload(&self, there: Workload) {
        if is_ours(&there.metadata, &self.shared.settings.origin) {
            self.worker.workloads.put(there);
        } else {
            self.refuse("a Workload of this name there belongs to somebody else");
        }
    }

    /// Takes note of a job of this name, if it is ours (MK-DEL-01, MK-DEL-02).
    fn claim_job(&self, kind: &Kind, there: DynamicObject) {
        if is_ours(&there.metadata, &self.shared.settings.origin) {
            kind.objects.put(there);
        } else {
            self.refuse(&format!("a {} of this name there belongs to somebody else", kind.adapter.kind));
        }
    }

    /// What became of a change. One that somebody else made first wakes by itself.
    fn answered<K>(answer: Result<K, Error>, cache: &Cache<K>) -> Result<(), Error>
    where
        K: kube::Resource + std::fmt::Debug + Send + Sync + 'static,
    {
        match answer {
            Ok(object) => cache.put(object),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn call<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Error> {
        within(self.shared.settings.deadline, doing, self.worker.name.as_str(), call).await
    }

    fn kind(&self) -> Option<&Kind> {
        let adapter = self.seen.local.as_deref().and_then(Owner::of)?.adapter()?;
        self.worker.kind(adapter)
    }

    fn job_name(&self) -> Option<String> {
        self.seen.local.as_deref().and_then(Owner::of).map(|owner| owner.name)
    }

    fn params() -> PatchParams {
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
    }
}

/// In which order a mirror and its pods go. Kueue deletes Jobs and external kinds in the background and leaves the rest to
/// the API server (MK-DEL-04); so do we where nobody waits for the pods.
fn propagation(adapter: &Adapter, pods: Pods) -> Option<PropagationPolicy> {
    match pods {
        Pods::Before => Some(PropagationPolicy::Foreground),
        Pods::After if adapter.deletes_in_background => Some(PropagationPolicy::Background),
        Pods::After | Pods::OfOthers => None,
    }
}

/// This very object and no other of its name.
fn only(uid: Option<&str>) -> DeleteParams {
    let uid = uid.map(str::to_owned);
    DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    }
}

fn is_ours(metadata: &kube::core::ObjectMeta, origin: &str) -> bool {
    metadata.labels.as_ref().and_then(|labels| labels.get(dispatch::ORIGIN)).is_some_and(|of| of == origin)
}

/// The Workloads that a mirror belongs to: the one that it names, or those that are named after it (MK-LWS-01).
fn links(adapter: &Adapter, object: &DynamicObject) -> Vec<Key> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let components = component::links(adapter, object).into_iter().map(|name| Key::new(namespace, name));
    components.chain(linked(object)).collect()
}

/// The Workload that a mirror names.
fn linked(object: &DynamicObject) -> Option<Key> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    observed::link(&object.metadata).map(|name| Key::new(namespace, name))
}

/// Whether an object is no longer there, or another one has its name.
fn is_gone(old: &DynamicObject, new: Option<&Arc<DynamicObject>>) -> bool {
    new.is_none_or(|new| new.metadata.uid != old.metadata.uid)
}

/// Whether a mirror that is gone may have gone before its pods: it had not ended, and whoever deleted it did not wait for
/// them.
fn may_be_outlived(adapter: &Adapter, mirror: &DynamicObject) -> bool {
    let finalizers = mirror.metadata.finalizers.as_deref().unwrap_or_default();
    let went_last = mirror.metadata.deletion_timestamp.is_some()
        && finalizers.iter().any(|finalizer| finalizer == FOREGROUND_DELETION);
    !went_last && !adapter.is_finished(&mirror.data)
}

/// Whether a mirror that has the name of a Workload's job is that Workload's concern. Whoever has the name now clears away
/// what an earlier job has left there; an earlier one leaves alone what a later one has put there.
fn concerns(adapter: &Adapter, mirror: &DynamicObject, workload: &Key, is_current: bool) -> bool {
    let links = links(adapter, mirror);
    is_current || links.is_empty() || links.contains(workload)
}

/// How a kind is asked for.
pub(super) fn resource(adapter: &Adapter) -> ApiResource {
    let kind = GroupVersionKind::gvk(adapter.group, adapter.version, adapter.kind);
    ApiResource::from_gvk_with_plural(&kind, adapter.plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Job that was deleted and submitted again has another Workload, and both find the same mirror by its name.
    #[test]
    fn what_a_later_job_put_there_is_not_cleared_away() {
        let kind = dispatch::adapter::ALL.iter().find(|it| it.kind == "Job").expect("a known kind");
        let mut mirror = DynamicObject::new("a", &resource(kind)).within("team");
        let (earlier, later) = (Key::new("team", "job-a-1"), Key::new("team", "job-a-2"));
        assert!(concerns(kind, &mirror, &earlier, false), "one that belongs to nobody");
        let link = (dispatch::PREBUILT_WORKLOAD.to_owned(), "job-a-2".to_owned());
        mirror.metadata.annotations = Some([link].into());
        for (workload, is_current, expected) in
            [(&later, true, true), (&later, false, true), (&earlier, true, true), (&earlier, false, false)]
        {
            assert_eq!(concerns(kind, &mirror, workload, is_current), expected, "{workload} {is_current}");
        }
    }

    /// Never twice: a Job that somebody deletes as `kubectl` does is gone while its pods go on.
    #[test]
    fn a_mirror_that_is_gone_may_be_outlived_by_its_pods() {
        let kind = dispatch::adapter::job();
        let runs = DynamicObject::new("a", &resource(kind)).within("team");
        let mut leaves = runs.clone();
        let at = jiff::Timestamp::UNIX_EPOCH;
        leaves.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        let mut goes_last = leaves.clone();
        goes_last.metadata.finalizers = Some(vec![FOREGROUND_DELETION.to_owned()]);
        let mut ended = runs.clone();
        ended.data = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        for (mirror, expected) in [(&runs, true), (&leaves, true), (&goes_last, false), (&ended, false)] {
            assert_eq!(may_be_outlived(kind, mirror), expected, "{mirror:?}");
        }
        let mut next = runs.clone();
        next.metadata.uid = Some("next".to_owned());
        assert!(is_gone(&runs, None) && is_gone(&runs, Some(&Arc::new(next))));
        assert!(!is_gone(&runs, Some(&Arc::new(leaves))));
    }

    /// MK-DEL-04; and what may run again elsewhere is gone only when its pods are (never twice).
    #[test]
    fn mk_del_04_who_waits_for_pods() {
        let of = |kind: &str| dispatch::adapter::ALL.iter().find(|it| it.kind == kind).expect("a known kind");
        assert_eq!(propagation(of("Job"), Pods::After), Some(PropagationPolicy::Background));
        assert_eq!(propagation(of("PipelineRun"), Pods::After), Some(PropagationPolicy::Background));
        assert_eq!(propagation(of("JobSet"), Pods::After), None);
        for adapter in &dispatch::adapter::ALL {
            assert_eq!(
                propagation(adapter, Pods::Before),
                Some(PropagationPolicy::Foreground),
                "{}",
                adapter.kind
            );
        }
    }
}
