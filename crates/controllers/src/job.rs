//! The Job controller: observes a Job and its pods, decides by [`rules::job::plan`], and carries the plan out.
//!
//! What is written is put into the caches at once, so that no decision is taken on what was seen before the last write;
//! the expectations that Kubernetes' own controller counts are not needed here. All that is remembered of a Job is how
//! its pods failed lately, which delays the next one.
//!
//! A Job that somebody else manages gets nothing from here, ever (E-02): it is counted, and if it waits long for any
//! status it is counted again, so that a mistyped name is seen.

mod apply;
mod orphans;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use reconcile::{Change, Key, Next, Queue};
use rules::job::backoff::Backoff;
use rules::job::claims::controller_of;
use rules::job::memory::Memory;
use rules::job::plan::{Because, Observed, Plan, decide};
use rules::job::{external_controller, metrics, spec, status, triggers};
use rules::meta::selector;
use tracing::debug;

use crate::context::Context;
use crate::metrics::Bounds;
use crate::{Run, Sample};

/// Events are told under this name.
const SOURCE: &str = "job-controller";
/// Jobs that are worked on at once. They wait for the API server more than they work.
const AT_ONCE: usize = 32;
/// How long a look at a Job takes is counted within these (N-01).
const SYNC_DURATION: Bounds = Bounds { first: 0.004, count: 15 };
/// Index of pods by the uid of their controller.
pub(crate) const BY_CONTROLLER: &str = "controller";
/// Index of pods that nobody controls, by namespace, and by namespace and label.
pub(crate) const FREE: &str = "free";
/// Pods change in crowds. A Job waits for so long per pod that it runs at once before it looks at a change: one with a
/// single pod hardly waits.
const BATCH_PER_POD: Duration = Duration::from_millis(2);
/// And never longer than this, at which looking at ten thousand pods costs little of what their changes cost. A wait of a
/// second, as in Kubernetes, would be most of the time of a Job of many short pods.
const LONGEST_BATCH: Duration = Duration::from_millis(100);

/// A pod that goes on changes what is shown of its Job and nothing else. It waits for so long for what else happens to the
/// Job: of a short pod nobody needs to read that it became ready just before it ended.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);

/// The controller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Controller {
    context: Context,
    queue: Queue<Key>,
    orphans: Queue<Key>,
    /// How the pods of a Job failed lately, by the Job's uid.
    backoffs: Arc<Mutex<BTreeMap<String, Backoff>>>,
}

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let controller = Controller {
        context: context.clone(),
        queue: Queue::new(),
        orphans: Queue::new(),
        backoffs: Arc::default(),
    };
    let (jobs, pods) = (context.kinds.jobs.wanted(), context.kinds.pods.wanted());
    pods.index(BY_CONTROLLER, controller_uid);
    pods.index(FREE, free_labels);
    let this = controller.clone();
    jobs.on_change(move |change| this.job_changed(change));
    let this = controller.clone();
    pods.on_change(move |change| this.pod_changed(change));
    let this = controller.clone();
    context.metrics.gauge(move || this.waiting_for_others());
    Box::pin(async move {
        jobs.ready().await;
        pods.ready().await;
        let (queue, orphans) = (controller.queue.clone(), controller.orphans.clone());
        futures::future::join(
            queue.run(AT_ONCE, |key| controller.sync(key)),
            orphans.run(AT_ONCE, |key| controller.release_orphan(key)),
        )
        .await;
    })
}

/// The uid of a pod's controller.
pub(crate) fn controller_uid(pod: &Pod) -> Vec<String> {
    controller_of(pod).map(|controller| controller.uid.clone()).into_iter().collect()
}

pub(crate) fn free_labels(pod: &Pod) -> Vec<String> {
    if controller_of(pod).is_some() {
        return Vec::new();
    }
    let namespace = pod.namespace().unwrap_or_default();
    let labels = pod.labels().iter().map(|(key, value)| format!("{namespace}/{key}={value}"));
    labels.chain([namespace.clone()]).collect()
}

impl Controller {
    /// J-01…J-05.
    fn job_changed(&self, change: &Change<'_, Job>) {
        let now = self.context.clock.now();
        if change.old.is_none() {
            self.context.metrics.count(change.new.and_then(|job| metrics::job_added(job)).as_ref());
        }
        let reaction = triggers::job_changed(change.old.map(|job| &**job), change.new.map(|job| &**job), now);
        let uid = change.latest().and_then(|job| job.uid()).unwrap_or_default();
        if reaction.forget {
            self.backoffs().remove(&uid);
        }
        if reaction.look_for_orphans && self.context.kinds.pods.is_ready() {
            for pod in self.context.kinds.pods.by(BY_CONTROLLER, &uid) {
                self.orphans.add(Key::of(&*pod));
            }
        }
        for at in [reaction.decide_at, reaction.deadline_at].into_iter().flatten() {
            match until(now, at) {
                Duration::ZERO => self.queue.add(change.key.clone()),
                wait => self.queue.add_after(change.key.clone(), wait),
            }
        }
    }

    /// J-06, J-07.
    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let (old, new) = (change.old.map(|pod| &**pod), change.new.map(|pod| &**pod));
        self.context.metrics.count(metrics::tracked_pod_changed(old, new).as_ref());
        let reaction = triggers::pod_changed(old, new);
        if reaction.maybe_orphan {
            self.orphans.add(change.key.clone());
        }
        let jobs = &self.context.kinds.jobs;
        let Some(pod) = change.latest() else { return };
        for owner in reaction.owners {
            let key = Key::new(&change.key.namespace, &owner.name);
            if let Some(job) = jobs.get(&key).filter(|job| job.uid().as_ref() == Some(&owner.uid)) {
                self.queue.add_after(key, if reaction.goes_on { SHOWN_WITHIN } else { batch(&job) });
            } else if new.is_none_or(|pod| pod.metadata.deletion_timestamp.is_none()) {
                // Its Job is gone: nobody will count it.
                self.orphans.add(change.key.clone());
            }
        }
        if reaction.adopters {
            for job in jobs.in_namespace(&change.key.namespace) {
                if selector::matches(spec(&job).selector.as_ref(), pod.labels()) == Some(true) {
                    self.queue.add_after(Key::of(&*job), batch(&job));
                }
            }
        }
    }

    async fn sync(&self, key: Key) -> Result<Next, Error> {
        let Some(job) = self.context.kinds.jobs.get(&key) else { return Ok(Next::Done) };
        let now = self.context.clock.now();
        let plan = self.decide(&job, now);
        debug!(job = %key, %plan, "decided");
        if let Because::ManagedBy(_) | Because::Finished | Because::FinishUnseen = plan.because {
            return Ok(Next::Done);
        }
        let result = self.apply(&job, &plan).await;
        if let Some(action) = plan.action() {
            let mode = if rules::job::is_indexed(spec(&job)) { "Indexed" } else { "NonIndexed" };
            let labels = vec![
                ("completion_mode", mode.to_owned()),
                ("result", if result.is_ok() { "success" } else { "error" }.to_owned()),
                ("action", action.as_str().to_owned()),
            ];
            let took = self.context.clock.now().duration_since(now);
            let metrics = &self.context.metrics;
            metrics.took("job_controller_job_sync_duration_seconds", labels.clone(), took, SYNC_DURATION);
            metrics.add("job_controller_job_syncs_total", labels, 1);
        }
        match result {
            Ok(()) => {}
            // The Job has changed meanwhile: its new version is on its way here, or here already.
            Err(Error::Status { ref source, .. }) if crate::api::is_conflict(source) => {
                return Ok(Next::After(Duration::from_millis(20)));
            }
            Err(Error::Status { ref source, .. }) if crate::api::is_not_found(source) => {
                return Ok(Next::Done);
            }
            Err(error) => {
                // It is tried again later and later, but what has its time is not put off by that.
                if let Some(at) = plan.look_again {
                    self.queue.add_after(key, until(self.context.clock.now(), at));
                }
                return Err(error);
            }
        }
        Ok(plan.look_again.map_or(Next::Done, |at| Next::After(until(self.context.clock.now(), at))))
    }

    fn decide(&self, job: &Job, now: Timestamp) -> Plan {
        let pods = &self.context.kinds.pods;
        let uid = job.uid().unwrap_or_default();
        let mut candidates = pods.by(BY_CONTROLLER, &uid);
        let namespace = job.namespace().unwrap_or_default();
        let labels = spec(job).selector.as_ref().and_then(|selector| selector.match_labels.as_ref());
        let free = match labels.and_then(|labels| labels.first_key_value()) {
            Some((key, value)) => pods.by(FREE, &format!("{namespace}/{key}={value}")),
            None => pods.by(FREE, &namespace),
        };
        candidates.extend(free);
        let backoff = self.backoffs().get(&uid).copied().unwrap_or_default();
        let mut memory = Memory::default();
        memory.backoff = backoff;
        let seen = Observed {
            job,
            pods: candidates.iter().map(|pod| &**pod).collect(),
            memory: &memory,
            settings: self.context.settings.job,
        };
        decide(&seen, now)
    }

    fn backoffs(&self) -> MutexGuard<'_, BTreeMap<String, Backoff>> {
        // Nothing that holds it can panic half-way: entries are set and removed one at a time.
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Jobs of other controllers that have had no status for long, by controller.
    fn waiting_for_others(&self) -> Vec<Sample> {
        let patience = SignedDuration::try_from(self.context.settings.external_job_patience)
            .unwrap_or(SignedDuration::MAX);
        let now = self.context.clock.now();
        let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
        for job in self.context.kinds.jobs.all() {
            let Some(manager) = external_controller(&job) else { continue };
            let created = job.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
            let waits = status(&job) == &JobStatus::default() && now.duration_since(created) > patience;
            *waiting.entry(manager.to_owned()).or_default() += u64::from(waits);
        }
        let sample = |(manager, value)| Sample {
            name: "job_controller_jobs_without_status_from_external_controller".to_owned(),
            kind: "gauge",
            labels: vec![("controller_name", manager)],
            value,
        };
        waiting.into_iter().map(sample).collect()
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

fn batch(job: &Job) -> Duration {
    let pods = spec(job).parallelism.unwrap_or(1).clamp(1, 1000).unsigned_abs();
    (BATCH_PER_POD * pods).min(LONGEST_BATCH)
}

/// What keeps a Job from being carried on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("failed to read job {job}")]
    Read { job: Key, source: kube::Error },
    #[error("failed to change the owner of pod {pod}")]
    Claim { pod: String, source: kube::Error },
    #[error("failed to write the status of job {job}")]
    Status { job: Key, source: kube::Error },
    #[error("failed to take the finalizer off pod {pod}")]
    Release { pod: Key, source: kube::Error },
    #[error("some pods of job {job} are not as they should be")]
    Pods { job: Key },
    #[error("pods of job {job} cannot be created: {why}")]
    Refused { job: Key, why: &'static str },
}
