//! The CronJob controller: starts Jobs at their time, and keeps the history short.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use kube::ResourceExt as _;
use kube::api::{Api, PropagationPolicy};
use reconcile::{Key, Next, Queue};
use rules::cron::{Schedule, time_zone};
use rules::cron_job::{self, Event, Now, clean_up, forget, history, started, unseen, wait_after_change};
use rules::meta::controller_of;
use tracing::info;

use crate::context::Context;
use crate::{Run, api};

/// Events are told under this name.
const SOURCE: &str = "cronjob-controller";
/// CronJobs that are worked on at once.
const AT_ONCE: usize = 16;
/// Index of Jobs by the uid of their CronJob.
const BY_OWNER: &str = "cron-job";

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let (cron_jobs, jobs) = (context.kinds.cron_jobs.wanted(), context.kinds.jobs.wanted());
    let (line, clock) = (queue.clone(), context.clock.clone());
    cron_jobs.on_change(move |change| {
        let Some(new) = change.new else { return };
        let wait = wait_after_change(change.old.map(|old| &**old), new, clock.now());
        match Duration::try_from(wait).unwrap_or_default() {
            Duration::ZERO => line.add(change.key.clone()),
            wait => line.add_after(change.key.clone(), wait),
        }
    });
    let owner = |job: &Job| controller_of(&job.metadata).filter(|owner| owner.kind == "CronJob").cloned();
    jobs.index(BY_OWNER, move |job| owner(job).map(|owner| owner.uid).into_iter().collect());
    jobs.feed_controller("CronJob", &queue);
    context.work(queue, AT_ONCE, [cron_jobs.filled(), jobs.filled()], sync)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let Some(cron_job) = context.kinds.cron_jobs.get(&key) else { return Ok(Next::Done) };
    let mut status = cron_job.status.clone().unwrap_or_default();
    let jobs = Api::namespaced(context.client.clone(), &key.namespace);
    let worked = Worked { context, key: &key, cron_job: &cron_job, jobs };
    let next = worked.reconcile(&mut status).await;
    // Whatever failed, what was done is written.
    if Some(&status) != cron_job.status.as_ref()
        && !(cron_job.status.is_none() && status == CronJobStatus::default())
    {
        let mut changed = (*cron_job).clone();
        changed.status = Some(status);
        let cron_jobs: Api<CronJob> = Api::namespaced(context.client.clone(), &key.namespace);
        match cron_jobs.replace_status(&key.name, &api::post(), &changed).await {
            Ok(written) => context.kinds.cron_jobs.put(written),
            Err(error) if api::is_not_found(&error) => return Ok(Next::Done),
            // What was started is found again by its name.
            Err(error) if api::is_conflict(&error) => return Ok(Next::After(Duration::from_millis(50))),
            Err(source) => return Err(Error::Status { cron_job: key, source }),
        }
    }
    next
}

/// A CronJob that is worked on.
struct Worked<'a> {
    context: &'a Context,
    key: &'a Key,
    cron_job: &'a CronJob,
    /// Of its namespace.
    jobs: Api<Job>,
}

impl Worked<'_> {
    async fn reconcile(&self, status: &mut CronJobStatus) -> Result<Next, Error> {
        let owned = self.context.kinds.jobs.by(BY_OWNER, &self.cron_job.uid().unwrap_or_default());
        let owned: Vec<&Job> = owned.iter().map(Arc::as_ref).collect();
        self.shorten_history(status, &owned).await;
        // Those that were deleted are still among the owned: their end counts.
        self.see_ends(status, &owned).await?;
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let Some((schedule, zone)) = self.read_schedule() else { return Ok(Next::Done) };
        let plan = cron_job::start(self.cron_job, status, &schedule, &zone, self.context.clock.now());
        self.tell(&plan.events);
        if let Some(Now { scheduled, job, replace }) = plan.now {
            if replace {
                self.delete_active(status).await?;
            }
            let Some(job) = self.create(&job).await? else { return Ok(Next::Done) };
            started(status, &job, scheduled);
        }
        let wait = plan.look_again.map(|wait| Duration::try_from(wait).unwrap_or_default());
        Ok(wait.map_or(Next::Done, Next::After))
    }

    fn tell(&self, events: &[Event]) {
        for Event { kind, reason, message } in events {
            self.context.events.tell(SOURCE, self.cron_job, kind, reason, message.clone());
        }
    }

    fn failed(&self, source: kube::Error) -> Error {
        Error::Job { cron_job: self.key.clone(), source }
    }

    /// Deletes Jobs that ended long ago. What cannot be deleted now is left to the next time.
    async fn shorten_history(&self, status: &mut CronJobStatus, owned: &[&Job]) {
        for job in history(self.cron_job, owned) {
            match self.delete(job).await {
                Ok(()) => {
                    forget(status, &job.uid().unwrap_or_default());
                    self.tell(&[Event::deleted(&job.name_any())]);
                }
                Err(error) => self.tell(&[Event::not_deleted(&api::message(&error))]),
            }
        }
    }

    /// Takes those off the active ones that have ended or are gone.
    async fn see_ends(&self, status: &mut CronJobStatus, owned: &[&Job]) -> Result<(), Error> {
        let mut missing = Vec::new();
        for active in unseen(status, owned) {
            let name = active.name.clone().unwrap_or_default();
            if self.jobs.get_opt(&name).await.map_err(|error| self.failed(error))?.is_none() {
                missing.extend(active.uid.clone());
            }
        }
        self.tell(&clean_up(status, owned, &missing));
        Ok(())
    }

    /// When its Jobs start; `None`, said aloud, if nobody can tell.
    fn read_schedule(&self) -> Option<(Schedule, TimeZone)> {
        let spec = self.cron_job.spec.as_ref()?;
        let zone = match spec.time_zone.as_deref() {
            None => TimeZone::UTC,
            Some(name) => match time_zone(name) {
                Ok(zone) => zone,
                Err(error) => {
                    self.tell(&[Event::unknown_zone(name, &error)]);
                    return None;
                }
            },
        };
        if spec.suspend == Some(true) {
            return None;
        }
        if spec.schedule.contains("TZ") {
            self.tell(&[Event::unsupported(&spec.schedule)]);
        }
        match Schedule::parse(&spec.schedule) {
            Ok(schedule) => Some((schedule, zone)),
            Err(error) => {
                self.tell(&[Event::unparseable(&spec.schedule, &error)]);
                None
            }
        }
    }

    /// Makes room for the next Job.
    async fn delete_active(&self, status: &mut CronJobStatus) -> Result<(), Error> {
        for active in status.active.clone().unwrap_or_default() {
            let name = active.name.unwrap_or_default();
            if let Some(job) = self.jobs.get_opt(&name).await.map_err(|error| self.failed(error))? {
                if let Err(error) = self.delete(&job).await {
                    self.tell(&[Event::not_deleted(&api::message(&error))]);
                    return Err(self.failed(error));
                }
                self.tell(&[Event::deleted(&name)]);
            }
            forget(status, &active.uid.unwrap_or_default());
        }
        Ok(())
    }

    /// Creates a Job, or finds the one that was created before; `None` if there can be none.
    async fn create(&self, job: &Job) -> Result<Option<Job>, Error> {
        match self.jobs.create(&api::post(), job).await {
            Ok(created) => {
                info!(cron_job = %self.key, job = created.name_any(), "started");
                self.tell(&[Event::created(&created.name_any())]);
                self.context.kinds.jobs.put(created.clone());
                Ok(Some(created))
            }
            Err(error) if api::is_namespace_terminating(&error) => Ok(None),
            Err(error) if api::is_already_exists(&error) => {
                // It was created and the status was not written; or it is somebody else's.
                let existing = self.jobs.get(&job.name_any()).await.map_err(|error| self.failed(error))?;
                let owner = controller_of(&existing.metadata).map(|owner| &owner.uid);
                let is_ours = owner.is_some() && owner == self.cron_job.metadata.uid.as_ref();
                Ok(is_ours.then_some(existing))
            }
            Err(error) => {
                self.tell(&[Event::not_created(&api::message(&error))]);
                Err(self.failed(error))
            }
        }
    }

    async fn delete(&self, job: &Job) -> kube::Result<()> {
        let params = api::delete(job.uid().as_deref(), Some(PropagationPolicy::Background));
        match self.jobs.delete(&job.name_any(), &params).await {
            Ok(_) => {
                if job.finalizers().is_empty() {
                    self.context.kinds.jobs.removed(job);
                }
                Ok(())
            }
            Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => {
                self.context.kinds.jobs.removed(job);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to see to a job of cron job {cron_job}")]
    Job { cron_job: Key, source: kube::Error },
    #[error("failed to write the status of cron job {cron_job}")]
    Status { cron_job: Key, source: kube::Error },
}
