//! The controller of pods that are queued, one by one or as groups: observes them with their Workloads, lets
//! [`rules::framework::pod`] decide, and does what comes of it. `wholes` makes groups of the pods of StatefulSets and
//! LeaderWorkerSets.

pub(crate) mod caches;
mod leader_worker_sets;
mod stateful_sets;
mod wholes;

use std::sync::{Arc, Mutex, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use reconcile::{Cache, Key, Next, Tasks};
use rules::{
    dispatch::{self, JOB_OWNER_NAME, component},
    framework::{
        self, Observed as _, Write, annotation,
        apps::{LEADER_WORKER_SET, is_grouped},
        plan::WORKLOAD_DELETED,
        pod::{
            self, ADMISSION_GATE, MANAGED, POD, SUSPENDING_PARENT, TERMINATION_TARGET,
            plan::{Plan, Seen, Step, decide, gone},
        },
        prebuilt_workload,
        priority::Classes,
        queue_name,
    },
    meta::selector,
    quota::readiness,
    workload::{condition, plan::Event, state},
};
use serde_json::{Value, json};
use tracing::{debug, info};
use types::kueue::Workload;

use self::caches::Unit;
use crate::{
    Context, Error,
    caches::{CONTROLLER, controller},
    error::{is_not_found, is_outdated},
    events::{About, Once},
    write::{difference, difference_of, patch_object},
};

/// How many units are looked at at once.
const AT_ONCE: usize = 32;
/// How many pods of a group are written at once.
const PODS_AT_ONCE: usize = 16;
/// Under this name it is said why a pod is deleted.
const MANAGER: &str = "kueue";

/// Starts the controllers.
pub(crate) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let Some(pods) = context.caches.pods.queued.clone() else { return };
    let controller = Arc::new(Controller { pods, told: Mutex::default(), context: Arc::clone(context) });
    tasks.spawn("pods", async move {
        controller.context.caches.ready().await;
        let queue = controller.context.work.pods.clone();
        queue.run(AT_ONCE, |unit| Arc::clone(&controller).reconcile(unit)).await;
    });
    wholes::start(stateful_sets::StatefulSets, context, tasks);
    wholes::start(leader_worker_sets::LeaderWorkerSets, context, tasks);
}

struct Controller {
    context: Arc<Context>,
    pods: Cache<Pod>,
    told: Mutex<Once>,
}

impl Context {
    /// Whether a Workload runs on another cluster.
    pub(crate) fn runs_elsewhere(&self, workload: &Workload) -> bool {
        state::checks(workload).iter().any(|check| {
            let found = self.caches.check(&check.name);
            found.is_some_and(|check| check.spec.controller_name == readiness::MULTIKUEUE)
        })
    }

    /// Whether anything is managed in a namespace.
    pub(crate) fn manages_in(&self, namespace: &str) -> bool {
        let found = self.caches.namespaces.get(&Key::new("", namespace));
        let labels = found.and_then(|it| it.metadata.labels.clone()).unwrap_or_default();
        selector::matches(Some(&self.settings.managed_namespaces), &labels) == Some(true)
    }

    /// Lets `decide` see the priority classes that there are.
    pub(crate) fn with_classes<T>(&self, decide: impl FnOnce(Classes<'_>) -> T) -> T {
        let caches = &self.caches;
        let pod_classes = caches.pod_classes.all();
        let default = pod_classes.iter().filter(|class| class.global_default == Some(true));
        let default = default.min_by_key(|class| class.value);
        decide(Classes {
            workload: &|name| caches.workload_classes.get(&Key::new("", name)).map(|class| class.value),
            pod: &|name| caches.pod_classes.get(&Key::new("", name)).map(|class| class.value),
            default: default.map(|class| (class.metadata.name.as_deref().unwrap_or_default(), class.value)),
        })
    }
}

impl Controller {
    async fn reconcile(self: Arc<Self>, unit: Unit) -> Result<Next, Error> {
        let now = self.context.clock.now();
        let pods = self.of(&unit);
        let Some(plan) = self.plan(&unit, &pods, now) else { return Ok(Next::Done) };
        match &plan.step {
            Step::Job(framework::Step::Wait(_)) => debug!(pods = %unit, %plan, "decided"),
            Step::Job(framework::Step::Retry(why)) => {
                let (kind, job, why) = (POD.kind, unit.key().clone(), why.clone());
                return Err(Error::Missing { kind, job, why });
            }
            _ => info!(pods = %unit, %plan, "decided"),
        }
        match self.apply(&unit, &pods, &plan, now).await {
            Ok(()) => {}
            Err(error) if is_outdated(&error) => return Ok(Next::Done),
            Err(source) => return Err(failure(&plan.step, unit.key().clone(), source)),
        }
        if let Some(first) = pods.first() {
            self.tell(unit.key(), first, &plan);
        }
        Ok(Next::at(plan.again_at, now))
    }

    /// The pods of a unit. Those that joined a group since are none of their own.
    fn of(&self, unit: &Unit) -> Vec<Arc<Pod>> {
        match unit {
            Unit::Pod(key) => self.pods.get(key).into_iter().collect(),
            Unit::Group(key) => self.context.caches.pods.of_group(key),
        }
    }

    /// What to do; `None` if there is nothing of ours.
    fn plan(&self, unit: &Unit, pods: &[Arc<Pod>], now: Timestamp) -> Option<Plan> {
        let Context { caches, settings, .. } = &*self.context;
        let key = unit.key();
        let workloads = match unit {
            Unit::Pod(key) => {
                let index = controller(POD.group, POD.kind, &key.namespace, &key.name);
                caches.workloads.by(CONTROLLER, &index)
            }
            Unit::Group(key) => caches.workloads.get(key).into_iter().collect(),
        };
        let Some(first) = pods.first() else {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
            return match unit {
                Unit::Pod(_) => framework::plan::gone(&workloads, now).map(Plan::from),
                Unit::Group(_) => workloads.first().filter(|it| !self.is_expected(it)).and_then(gone),
            };
        };
        let metadata = &first.metadata;
        if *unit != Unit::of(first) || !self.is_ours(metadata) {
            return None;
        }
        let all: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let observed = match unit {
            Unit::Pod(_) => pod::Unit::single(first, now),
            Unit::Group(key) => pod::Unit::group(&key.name, all, now)?,
        };
        let prebuilt = prebuilt_workload(metadata)
            .and_then(|name| caches.workloads.get(&Key::new(key.namespace.as_str(), name)));
        Some(self.context.with_classes(|classes| {
            let seen = Seen {
                unit: &observed,
                workloads: &workloads,
                prebuilt: prebuilt.as_ref(),
                runs_elsewhere: &|workload| self.context.runs_elsewhere(workload),
                flavor: &|name| caches.flavor(name),
                classes,
            };
            decide(&seen, &settings.jobs, now)
        }))
    }

    /// Whether a pod is ours to decide about. One that leaves is let go wherever it is; one that is about to join a group of what
    /// it is part of is not decided about alone.
    fn is_ours(&self, pod: &ObjectMeta) -> bool {
        let settings = &self.context.settings;
        let is_part = annotation(pod, SUSPENDING_PARENT).is_some();
        let joins = is_grouped(pod) && pod::group_name(pod).is_none();
        let is_queued = queue_name(pod).is_some() || settings.manage_jobs_without_queue_name;
        let leaves = pod.deletion_timestamp.is_some();
        let namespace = pod.namespace.as_deref().unwrap_or_default();
        (is_part || settings.manages(&POD))
            && !joins
            && (leaves || is_queued && self.context.manages_in(namespace))
    }

    /// Whether somebody is about to make pods for a Workload, or waits for what another cluster still has of it.
    fn is_expected(&self, workload: &Workload) -> bool {
        let leaves = workload.metadata.deletion_timestamp.is_some();
        if leaves && dispatch::held(workload).is_none() {
            return false;
        }
        let Some(name) = annotation(&workload.metadata, JOB_OWNER_NAME) else { return false };
        let key = Key::new(workload.metadata.namespace.as_deref().unwrap_or_default(), name);
        let caches = &self.context.caches;
        let whole = if component::whole(workload).is_some() {
            let sets = caches.kinds.seen(&LEADER_WORKER_SET);
            sets.and_then(|sets| sets.get(&key)).map(|set| set.metadata.clone())
        } else {
            let sets = caches.pods.stateful_sets.as_ref();
            sets.and_then(|sets| sets.get(&key)).map(|set| set.metadata.clone())
        };
        whole.is_some_and(|whole| whole.deletion_timestamp.is_none())
    }

    async fn apply(
        &self,
        unit: &Unit,
        pods: &[Arc<Pod>],
        plan: &Plan,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        if let Step::Job(step) = &plan.step
            && !is_about_pods(step)
        {
            let of = pods.first().map(|pod| &pod.metadata);
            return self.context.write_workload(POD.kind, of, step).await;
        }
        let acts = stream::iter(acts(unit, pods, plan, now));
        let each = acts.map(|(pod, act)| self.take(pod, act, now)).buffer_unordered(PODS_AT_ONCE);
        each.try_collect().await
    }

    async fn take(&self, pod: Arc<Pod>, act: Act, now: Timestamp) -> Result<(), kube::Error> {
        match act {
            Act::Open(next, workload) => {
                self.open(&pod, &next).await?;
                let Context { metrics, clock, .. } = &*self.context;
                metrics.ungated(ADMISSION_GATE, &workload, &pod.metadata, clock.now());
                let queue = state::cluster_queue(&workload).unwrap_or_default();
                let told = format!("Admitted by clusterQueue {queue}");
                self.tell_of(&pod, &Event::normal("Started", &told));
            }
            Act::End { reason, why } => self.end(&pod, &reason, &why, now).await?,
            Act::Delete => self.delete(&pod).await?,
            Act::Release => drop(self.release(&pod).await?),
            Act::Excess => {
                let rest = self.release(&pod).await?;
                if rest.metadata.deletion_timestamp.is_none() {
                    self.delete(&rest).await?;
                    self.tell_of(&pod, &Event::normal("ExcessPodDeleted", "Excess pod deleted"));
                }
            }
        }
        Ok(())
    }

    fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.context.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// Lets a pod be scheduled, with what it is given, in one write.
    async fn open(&self, pod: &Pod, next: &Value) -> Result<(), kube::Error> {
        let before = serde_json::to_value(pod).expect("a pod has string keys and finite numbers");
        let version = pod.metadata.resource_version.as_deref();
        let Some(body) = difference_of(&before, next, version) else { return Ok(()) };
        self.pods.put(patch_object(&self.api(pod), pod, body).await?);
        Ok(())
    }

    /// Says why a pod has to go, and deletes it. One that is gone already went by itself.
    async fn end(&self, pod: &Pod, reason: &str, why: &str, now: Timestamp) -> Result<(), kube::Error> {
        let metadata = &pod.metadata;
        let target = json!({
            "type": TERMINATION_TARGET, "status": "True", "reason": reason, "message": why,
            "lastTransitionTime": condition::time(now),
        });
        let body = json!({
            "apiVersion": POD.api_version(), "kind": POD.kind,
            "metadata": { "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid },
            "status": { "conditions": [target] },
        });
        let name = metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams::apply(MANAGER).force();
        match self.api(pod).patch_status(name, &params, &Patch::Apply(body)).await {
            Err(error) if is_not_found(&error) => return Ok(()),
            done => self.pods.put(done?),
        }
        self.delete(pod).await?;
        self.tell_of(pod, &Event::normal("Stopped", why));
        Ok(())
    }

    async fn delete(&self, pod: &Pod) -> Result<(), kube::Error> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let only = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        match self.api(pod).delete(name, &params).await {
            Ok(answer) => match answer.left() {
                Some(leaving) => self.pods.put(leaving),
                None => self.pods.removed(pod),
            },
            Err(error) if is_not_found(&error) => self.pods.removed(pod),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Lets go of a pod, and returns what it is then.
    async fn release(&self, pod: &Pod) -> Result<Pod, kube::Error> {
        let mut next = pod.clone();
        next.metadata.finalizers.iter_mut().for_each(|all| all.retain(|it| it != MANAGED));
        let version = pod.metadata.resource_version.as_deref();
        let Some(body) = difference(pod, &next, version) else { return Ok(next) };
        let is_last = next.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        match patch_object(&self.api(pod), pod, body).await {
            Err(error) if is_not_found(&error) => {
                self.pods.removed(pod);
                Ok(next)
            }
            Err(error) => Err(error),
            Ok(answer) => {
                let is_gone = is_last
                    && pod.metadata.deletion_timestamp.is_some()
                    && pod.metadata.deletion_grace_period_seconds == Some(0);
                if is_gone {
                    self.pods.removed(pod);
                } else {
                    self.pods.put(answer.clone());
                }
                Ok(answer)
            }
        }
    }

    /// What is told without doing anything is told once; of starts and stops each pod is told.
    fn tell(&self, key: &Key, first: &Pod, plan: &Plan) {
        match plan.step {
            Step::Job(framework::Step::Start { .. } | framework::Step::Stop { .. }) => {}
            Step::Job(framework::Step::Wait(_)) => {
                for event in &plan.events {
                    let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                    if told.is_new(key, &event.message) {
                        self.tell_of(first, event);
                    }
                }
            }
            _ => plan.events.iter().for_each(|event| self.tell_of(first, event)),
        }
    }

    fn tell_of(&self, pod: &Pod, event: &Event) {
        let about = About::new(POD.api_version(), POD.kind, &pod.metadata);
        self.context.recorder.tell_of("pod-kueue-controller", about, event.clone());
    }
}

/// What is done about one pod.
enum Act {
    /// It becomes this, because this Workload is admitted.
    Open(Value, Arc<Workload>),
    /// It has to go.
    End { reason: String, why: String },
    /// It is deleted.
    Delete,
    /// It is let go.
    Release,
    /// It is let go and deleted.
    Excess,
}

fn is_about_pods(step: &framework::Step) -> bool {
    use framework::Step::{DeleteJob, Start, Stop};
    matches!(step, Start { .. } | Stop { .. } | DeleteJob)
}

/// What a plan does about which pods.
fn acts(unit: &Unit, pods: &[Arc<Pod>], plan: &Plan, now: Timestamp) -> Vec<(Arc<Pod>, Act)> {
    let all: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
    let observed = match (unit, all.first()) {
        (Unit::Pod(_), Some(pod)) => Some(pod::Unit::single(pod, now)),
        (Unit::Group(key), _) => pod::Unit::group(&key.name, all.clone(), now),
        (Unit::Pod(_), None) => None,
    };
    let Some(observed) = observed else { return Vec::new() };
    let held = |pod: &Pod| pods.iter().find(|it| it.metadata.uid == pod.metadata.uid).cloned();
    let of = |pod: &Pod, act: Act| held(pod).map(|pod| (pod, act));
    let named = |names: &[String], act: fn() -> Act| -> Vec<(Arc<Pod>, Act)> {
        let is_named = |pod: &&&Pod| pod.metadata.name.as_ref().is_some_and(|it| names.contains(it));
        all.iter().filter(is_named).filter_map(|pod| of(pod, act())).collect()
    };
    match &plan.step {
        Step::Job(framework::Step::Start { of: workload, given }) => {
            // A contradiction is found when it is decided, and ends the Workload there.
            let Ok(writes) = observed.started(given) else { return Vec::new() };
            let opened = observed.gated().zip(writes).filter_map(|(pod, write)| match write {
                Write::Object(next) => of(pod, Act::Open(next, Arc::clone(workload))),
                Write::Status(_) => None,
            });
            opened.collect()
        }
        Step::Job(framework::Step::Stop { reason, why, .. }) => {
            let stopped = observed.stoppable(reason == WORKLOAD_DELETED);
            let end = || Act::End { reason: reason.clone(), why: why.clone() };
            stopped.filter_map(|pod| of(pod, end())).collect()
        }
        Step::Job(framework::Step::DeleteJob) => {
            observed.pods().iter().filter_map(|pod| of(pod, Act::Delete)).collect()
        }
        Step::Job(_) => Vec::new(),
        Step::Release(names) => named(names, || Act::Release),
        Step::Excess(names) => named(names, || Act::Excess),
    }
}

fn failure(step: &Step, job: Key, source: kube::Error) -> Error {
    let doing = match step {
        Step::Job(step) => return crate::jobs::failure(step, job, POD.kind, source),
        Step::Release(_) => "let go of",
        Step::Excess(_) => "delete",
    };
    Error::Job { doing, kind: POD.kind, job, source: Box::new(source) }
}
