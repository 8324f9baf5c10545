//! A controller around our plan, as simple as one can be: it reads everything before each decision.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use rules::job::Settings;
use rules::job::claims::{Claim, may_adopt, remove_finalizer_patch};
use rules::job::events::Event;
use rules::job::memory::{Memory, Seen};
use rules::job::plan::{Fate, Observed, Plan, PodStep, decide, slow_start};
use rules::job::pods::PodRef;
use tokio::time::sleep;

use crate::now;
use crate::world::{JOB, World};

/// Keeps kube-controller-manager away from our copy of the Job. Our plan is shown the Job without it.
pub(crate) const MANAGER: &str = "ferry.dev/test";

/// A plan that wants to be looked at again later than this is at rest.
const LONG: SignedDuration = SignedDuration::from_secs(30);

/// What it remembers, sees and has told.
#[derive(Default)]
pub(crate) struct Ours {
    memory: Memory,
    seen: BTreeMap<String, Pod>,
    events: Vec<Event>,
    masked: Vec<String>,
}

impl Ours {
    /// Everything told so far, sorted.
    pub(crate) fn events(&self) -> Vec<String> {
        let mut events = self.masked.clone();
        events.sort();
        events
    }

    /// Decides and does, until there is nothing to do.
    pub(crate) async fn run_until_at_rest(&mut self, world: &World) -> anyhow::Result<()> {
        loop {
            let began = now();
            let job = world.jobs.get(JOB).await?;
            let mut shown = job.clone();
            shown.spec.as_mut().context("a Job has a spec")?.managed_by = None;
            self.look(world).await?;
            let seen = Observed {
                job: &shown,
                pods: self.seen.values().collect(),
                memory: &self.memory,
                settings: Settings::default(),
            };
            let plan = decide(&seen, began);
            let wrote = self.carry_out(world, job, &plan, began).await.with_context(|| plan.to_string())?;
            for event in self.events.drain(..) {
                let message = world.mask(&event.message);
                self.masked.push(format!("{} {}: {message}", event.kind.as_str(), event.reason));
            }
            if !wrote {
                match plan.look_again.map(|at| at.duration_since(now())) {
                    Some(wait) if wait < LONG => sleep(Duration::try_from(wait).unwrap_or_default()).await,
                    _ => return Ok(()),
                }
            }
        }
    }

    /// Sees what has become of the pods.
    async fn look(&mut self, world: &World) -> anyhow::Result<()> {
        let mut now = BTreeMap::new();
        for pod in world.pods.list(&ListParams::default()).await? {
            now.insert(pod.metadata.name.clone().context("a stored pod has a name")?, pod);
        }
        for (name, pod) in &now {
            match self.seen.get(name) {
                None => self.memory.observe(Seen::Added, pod),
                Some(old) if old.metadata.resource_version != pod.metadata.resource_version => {
                    self.memory.observe(Seen::Updated, pod);
                }
                Some(_) => {}
            }
        }
        for (_, pod) in self.seen.iter().filter(|(name, _)| !now.contains_key(*name)) {
            self.memory.observe(Seen::Deleted, pod);
        }
        self.seen = now;
        Ok(())
    }

    /// Carries out a plan, as `rules::job::plan` says it is done. Returns whether that took any write.
    async fn carry_out(
        &mut self,
        world: &World,
        job: Job,
        plan: &Plan,
        now: Timestamp,
    ) -> anyhow::Result<bool> {
        self.events.extend(plan.events.iter().cloned());
        for claim in &plan.claims {
            if matches!(claim, Claim::Adopt(_)) {
                anyhow::ensure!(may_adopt(&job, &world.jobs.get(JOB).await?), "the Job changed");
            }
            let patch = Patch::Strategic(claim.patch(&job));
            world.pods.patch(&claim.pod().name, &PatchParams::default(), &patch).await?;
        }
        self.memory.begin(&plan.pods, now);
        let fates = self.carry_out_pods(world, &plan.pods).await?;
        self.memory.end(&plan.pods, &fates);
        let record = plan.record(&fates);
        let mut job = job;
        if let Some(status) = &record.status {
            job = write_status(world, job, status).await?;
            self.memory.backoff = record.backoff;
            self.events.extend(record.events.iter().cloned());
        }
        self.memory.begin_release(&record.release);
        let mut released = Vec::new();
        for pod in &record.release {
            released.push(release(world, pod).await?);
        }
        self.memory.end_release(&record.release, &released);
        let settled = record.settle(&released);
        if let Some(status) = &settled.status {
            write_status(world, job, status).await?;
            self.memory.finished |= settled.finished;
            self.events.extend(settled.events.iter().cloned());
        }
        // What was refused is tried again when something else has happened; until then it would be refused again.
        let done = fates.iter().filter(|fate| **fate != Fate::Failed && **fate != Fate::Skipped).count();
        let writes = plan.claims.len() + done + record.release.len();
        Ok(writes > 0 || record.status.is_some() || settled.status.is_some())
    }

    async fn create(&mut self, world: &World, pod: &Pod) -> anyhow::Result<Fate> {
        match world.pods.create(&PostParams::default(), pod).await {
            Ok(created) => {
                let name = created.metadata.name.context("a stored pod has a name")?;
                self.events.push(Event::pod_created(&name));
                Ok(Fate::Done)
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                self.events.push(Event::pod_not_created(&status.message));
                Ok(Fate::Failed)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn carry_out_pods(&mut self, world: &World, step: &PodStep) -> anyhow::Result<Vec<Fate>> {
        let mut fates = Vec::new();
        match step {
            PodStep::Nothing => {}
            PodStep::Refuse(why) => anyhow::bail!("{why}"),
            PodStep::Create(pods) => {
                fates = vec![Fate::Skipped; pods.len()];
                for batch in slow_start(pods.len()) {
                    for place in batch.clone() {
                        fates[place] = self.create(world, &pods[place]).await?;
                    }
                    if fates[batch].contains(&Fate::Failed) {
                        break;
                    }
                }
            }
            PodStep::End(pods) | PodStep::Remove(pods) => {
                for pod in pods {
                    if matches!(step, PodStep::Remove(_)) {
                        release(world, pod).await?;
                    }
                    let deleted = world.pods.delete(&pod.name, &DeleteParams::default()).await;
                    let fate = fate(deleted)?;
                    if fate == Fate::Done {
                        self.events.push(Event::pod_deleted(&pod.name));
                    }
                    fates.push(fate);
                }
            }
        }
        Ok(fates)
    }
}

async fn release(world: &World, pod: &PodRef) -> anyhow::Result<Fate> {
    let patch = Patch::Strategic(remove_finalizer_patch());
    fate(world.pods.patch(&pod.name, &PatchParams::default(), &patch).await)
}

async fn write_status(world: &World, mut job: Job, status: &JobStatus) -> anyhow::Result<Job> {
    job.status = Some(status.clone());
    world.jobs.replace_status(JOB, &PostParams::default(), &job).await.context("the status")
}

fn fate<T>(result: kube::Result<T>) -> anyhow::Result<Fate> {
    match result {
        Ok(_) => Ok(Fate::Done),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Fate::Gone),
        Err(error) => Err(error.into()),
    }
}
