//! The controller of Jobs of any kind: observes one with its Workloads, lets [`rules::framework`] decide, and does what
//! comes of it.
//!
//! A kind of Job is a [`Framework`]: how it is read, and where. All else is the same for all of them.

mod ancestors;
pub(crate) use ancestors::{OWNERS, has_managed_owner};
mod batch;
mod custom;
pub(crate) use custom::runtime;
mod writes;
pub(crate) use writes::failure;

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use reconcile::{Cache, Key, Next, Queue, Tasks};
use rules::{
    framework::{
        Kind, Observed, Plan, Seen, Step, Write,
        custom::ALL,
        decide,
        plan::{child, gone},
        prebuilt_workload,
        priority::Classes,
        queue_name,
    },
    meta::selector,
    workload::{ELASTIC_JOB, plan::Event, state},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tracing::{debug, info};
use types::kueue::Workload;

use crate::{
    Context, Error,
    caches::{CONTROLLER, controller},
    error::{is_not_found, is_outdated},
    events::{About, Once},
    write::{difference_of, patch_object, patch_status},
};

/// How many Jobs of a kind are looked at at once: as many as admissions are written at once, so that nobody who got in
/// waits for a hand to start it.
const AT_ONCE: usize = 32;

/// A kind of Job.
pub(crate) trait Framework: Send + Sync + 'static {
    /// Its objects.
    type Object: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Its names.
    fn kind(&self) -> Kind;

    /// What there is of it; `None` while that is not known.
    fn objects(&self, context: &Context) -> Option<Cache<Self::Object>>;

    /// Where objects of it are written.
    fn api(&self, client: Client, namespace: &str) -> Api<Self::Object>;

    /// What one of them says.
    fn observe<'a>(&'a self, object: &'a Self::Object, context: &Context) -> Box<dyn Observed + 'a>;
}

/// Starts the controllers of all kinds.
pub(crate) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    begin(batch::Batch, context, tasks);
    for shape in &ALL {
        begin(custom::Custom(shape), context, tasks);
    }
}

fn begin<F: Framework>(framework: F, context: &Arc<Context>, tasks: &mut Tasks) {
    let kind = framework.kind();
    let Some(queue) = context.work.jobs_of(kind.group, kind.kind).cloned() else { return };
    if context.settings.manages(&kind) {
        let context = Arc::clone(context);
        let controller = Arc::new(Controller { framework, kind, queue, told: Mutex::default(), context });
        tasks.spawn("jobs", controller.run());
    }
}

/// The controller of one kind.
struct Controller<F: Framework> {
    framework: F,
    kind: Kind,
    context: Arc<Context>,
    queue: Queue<Key>,
    told: Mutex<Once>,
}

impl<F: Framework> Controller<F> {
    async fn run(self: Arc<Self>) {
        self.context.caches.ready().await;
        let queue = self.queue.clone();
        queue.run(AT_ONCE, |key| Arc::clone(&self).reconcile(key)).await;
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, Error> {
        let now = self.context.clock.now();
        // What was not seen yet is not gone.
        let Some(objects) = self.framework.objects(&self.context) else { return Ok(Next::Done) };
        let object = objects.get(&key);
        let Some(plan) = self.plan(&key, object.as_deref()).await? else { return Ok(Next::Done) };
        match &plan.step {
            Step::Wait(_) => debug!(job = %key, kind = self.kind.kind, %plan, "decided"),
            Step::Retry(why) => {
                let why = why.clone();
                return Err(Error::Missing { kind: self.kind.kind, job: key, why });
            }
            _ => info!(job = %key, kind = self.kind.kind, %plan, "decided"),
        }
        match self.apply(object.as_deref(), &plan).await {
            Ok(()) => {}
            Err(error) if is_outdated(&error) => return Ok(Next::Done),
            Err(source) => return Err(failure(&plan.step, key, self.kind.kind, source)),
        }
        if let Some(object) = &object {
            self.tell(&key, object, &plan);
        }
        Ok(Next::at(plan.again_at, now))
    }

    /// What to do; `None` if the Job is none of ours.
    async fn plan(&self, key: &Key, object: Option<&F::Object>) -> Result<Option<Plan>, Error> {
        let Context { caches, settings, clock, .. } = &*self.context;
        let index = controller(self.kind.group, self.kind.kind, &key.namespace, &key.name);
        let workloads = caches.workloads.by(CONTROLLER, &index);
        let there = object.filter(|object| object.meta().deletion_timestamp.is_none());
        let Some(object) = there else {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
            return Ok(gone(&workloads, clock.now()));
        };
        let job = self.framework.observe(object, &self.context);
        if job.is_elsewhere() {
            return Ok(None);
        }
        let metadata = job.metadata();
        let namespace = caches.namespaces.get(&Key::new("", key.namespace.as_str()));
        let labels = namespace.and_then(|it| it.metadata.labels.clone()).unwrap_or_default();
        if selector::matches(Some(&settings.managed_namespaces), &labels) != Some(true) {
            return Ok(None);
        }
        let ancestor = match self.context.ancestor(metadata).await {
            Err(Error::TooDeep { kind, job, limit }) => {
                self.tell_once(key, object, &too_deep(limit));
                return Err(Error::TooDeep { kind, job, limit });
            }
            found => found?,
        };
        if queue_name(metadata).is_none() && !settings.manage_jobs_without_queue_name && ancestor.is_none() {
            return Ok(None);
        }
        if let Some(ancestor) = ancestor {
            let mut workloads = caches.workloads.by(CONTROLLER, &ancestor);
            workloads.retain(|workload| !state::is_finished(workload));
            workloads.sort_by_key(|workload| workload.metadata.creation_timestamp.clone().map(|time| time.0));
            return Ok(Some(child(&*job, workloads.last().map(|workload| &**workload))));
        }
        let prebuilt = prebuilt_workload(metadata)
            .and_then(|name| caches.workloads.get(&Key::new(key.namespace.as_str(), name)));
        let pods = if job.may_be_gated() { self.pods_of(key, &*job).await? } else { Vec::new() };
        let pod_classes = caches.pod_classes.all();
        let default = pod_classes.iter().filter(|class| class.global_default == Some(true));
        let default = default.min_by_key(|class| class.value);
        let seen = Seen {
            job: &*job,
            workloads: &workloads,
            prebuilt: prebuilt.as_ref(),
            pods: &pods,
            flavor: &|name| caches.flavor(name),
            classes: Classes {
                workload: &|name| caches.workload_classes.get(&Key::new("", name)).map(|class| class.value),
                pod: &|name| caches.pod_classes.get(&Key::new("", name)).map(|class| class.value),
                default: default
                    .map(|class| (class.metadata.name.as_deref().unwrap_or_default(), class.value)),
            },
        };
        Ok(Some(decide(&seen, &settings.jobs, clock.now())))
    }

    /// The pods of a Job. Few Jobs have pods that wait for a slice, and all that have are asked about when they change: so
    /// nobody watches the pods of a cluster for it.
    async fn pods_of(&self, key: &Key, job: &dyn Observed) -> Result<Vec<Pod>, Error> {
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let (label, value) = job.pod_label();
        let own = ListParams::default().labels(&format!("{label}={value}"));
        let listed = api.list(&own).await;
        let failed = |source| {
            let source = Box::new(source);
            Error::Job { doing: "look at the pods of", kind: self.kind.kind, job: key.clone(), source }
        };
        Ok(listed.map_err(failed)?.items)
    }

    /// Lets pods be scheduled. The gate alone is taken away, whatever else changed about them.
    async fn ungate(&self, of: &Workload, pods: &[String]) -> Result<(), kube::Error> {
        let namespace = of.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), namespace);
        let gate = json!({ "name": ELASTIC_JOB, "$patch": "delete" });
        let open = Patch::Strategic(json!({ "spec": { "schedulingGates": [gate] } }));
        for pod in pods {
            match api.patch(pod, &PatchParams::default(), &open).await {
                Ok(pod) => {
                    let Context { metrics, clock, .. } = &*self.context;
                    metrics.ungated(ELASTIC_JOB, of, &pod.metadata, clock.now());
                }
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn apply(&self, object: Option<&F::Object>, plan: &Plan) -> Result<(), kube::Error> {
        let context = &*self.context;
        match (&plan.step, object) {
            (Step::Start { given, .. }, Some(object)) => {
                let started = self.framework.observe(object, &self.context).started(given);
                // A contradiction is found when it is decided, and ends the Workload there.
                let Ok(writes) = started else { return Ok(()) };
                self.write(object, writes).await
            }
            (Step::Stop { restored, .. }, Some(object)) => {
                self.write(object, self.framework.observe(object, &self.context).stopped(restored.as_deref()))
                    .await
            }
            (Step::Ungate { of, pods }, _) => self.ungate(of, pods).await,
            (Step::DeleteJob, Some(object)) => {
                let name = object.meta().name.as_deref().unwrap_or_default();
                self.api(object).delete(name, &DeleteParams::background()).await.map(drop)
            }
            // Something is to be done about its Workload, or nothing with a Job that is not there.
            (step, object) => context.write_workload(self.kind.kind, object.map(Resource::meta), step).await,
        }
    }

    fn api(&self, object: &F::Object) -> Api<F::Object> {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        self.framework.api(self.context.client.clone(), namespace)
    }

    /// Writes the objects that a Job becomes, one after the other, each refused if somebody else came between.
    async fn write(&self, object: &F::Object, writes: Vec<Write>) -> Result<(), kube::Error> {
        let api = self.api(object);
        let value =
            |it: &F::Object| serde_json::to_value(it).expect("objects have string keys and finite numbers");
        let mut before = value(object);
        let mut version = object.meta().resource_version.clone();
        for write in writes {
            let (Write::Object(after) | Write::Status(after)) = &write;
            let Some(body) = difference_of(&before, after, version.as_deref()) else { continue };
            let answer = match write {
                Write::Object(_) => patch_object(&api, object, body).await?,
                Write::Status(_) => patch_status(&api, object, body).await?,
            };
            let (Write::Object(after) | Write::Status(after)) = write;
            before = after;
            version.clone_from(&answer.meta().resource_version);
            if let Some(objects) = self.framework.objects(&self.context) {
                objects.put(answer);
            }
        }
        Ok(())
    }

    fn tell(&self, key: &Key, object: &F::Object, plan: &Plan) {
        let waits = matches!(plan.step, Step::Wait(_));
        for event in &plan.events {
            if waits {
                self.tell_once(key, object, event);
            } else {
                self.tell_of(object, event);
            }
        }
    }

    /// What is told without doing anything would be told again with every look.
    fn tell_once(&self, key: &Key, object: &F::Object, event: &Event) {
        let is_new = self.told.lock().unwrap_or_else(PoisonError::into_inner).is_new(key, &event.message);
        if is_new {
            self.tell_of(object, event);
        }
    }

    fn tell_of(&self, object: &F::Object, event: &Event) {
        let by = format!("{}-kueue-controller", self.kind.framework);
        let about = About::new(self.kind.api_version(), self.kind.kind, object.meta());
        self.context.recorder.tell_of(by, about, event.clone());
    }
}

/// Nobody looks further up than this, so that nobody can say whether the Job is part of one that is managed (JF-2).
fn too_deep(limit: usize) -> Event {
    let why =
        format!("Terminated search for Kueue-managed Job because ancestor depth exceeded limit of {limit}");
    Event::warning("JobNestingTooDeep", &why)
}
