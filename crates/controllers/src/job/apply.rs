//! Carries out a plan: claims, pods, the status, finalizers, and the status again.

use futures::FutureExt as _;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch};
use kube::core::Resource as _;
use reconcile::Key;
use rules::job::claims::{Claim, may_adopt, remove_finalizer_patch};
use rules::job::events::Event;
use rules::job::plan::{Fate, Plan, PodStep, slow_start};
use rules::job::pods::PodRef;

use super::{Controller, Error, SOURCE};
use crate::api;

/// Requests about the pods of one Job that are under way at once.
const AT_ONCE: usize = 64;

impl Controller {
    pub(super) async fn apply(&self, job: &Job, plan: &Plan) -> Result<(), Error> {
        self.tell(job, &plan.events);
        self.claim(job, &plan.claims).await?;
        let fates = self.carry_out(job, &plan.pods).await;
        self.context.metrics.count(&plan.pod_metrics(&fates));
        let record = plan.record(&fates);
        let mut current = None;
        if let Some(status) = &record.status {
            current = Some(self.write_status(job, status).await?);
            self.backoffs().insert(job.uid().unwrap_or_default(), record.backoff);
            self.tell(job, &record.events);
            self.context.metrics.count(&record.metrics);
        }
        let released = self.release(job, &record.release).await;
        let settled = record.settle(&released);
        if let Some(status) = &settled.status {
            self.write_status(current.as_ref().unwrap_or(job), status).await?;
            self.tell(job, &settled.events);
            self.context.metrics.count(&settled.metrics);
            if settled.finished {
                self.backoffs().remove(&job.uid().unwrap_or_default());
            }
        }
        if let PodStep::Refuse(why) = plan.pods {
            return Err(Error::Refused { job: Key::of(job), why });
        }
        if fates.contains(&Fate::Failed) || released.contains(&Fate::Failed) {
            return Err(Error::Pods { job: Key::of(job) });
        }
        Ok(())
    }

    fn pods(&self, job: &Job) -> Api<Pod> {
        Api::namespaced(self.context.client.clone(), &job.namespace().unwrap_or_default())
    }

    fn tell(&self, job: &Job, events: &[Event]) {
        for Event { kind, reason, message } in events {
            self.context.events.tell(SOURCE, job, kind.as_str(), reason, message);
        }
    }

    /// A-02…A-06.
    async fn claim(&self, job: &Job, claims: &[Claim]) -> Result<(), Error> {
        if claims.iter().any(|claim| matches!(claim, Claim::Adopt(_))) {
            let jobs: Api<Job> =
                Api::namespaced(self.context.client.clone(), &job.namespace().unwrap_or_default());
            let read = |source| Error::Read { job: Key::of(job), source };
            let fresh = jobs.get(&job.name_any()).await.map_err(read)?;
            if !may_adopt(job, &fresh) {
                self.context.kinds.jobs.put(fresh);
                return Err(Error::Pods { job: Key::of(job) });
            }
        }
        let pods = self.pods(job);
        for claim in claims {
            let name = &claim.pod().name;
            match pods.patch(name, &api::patch(), &Patch::Strategic(claim.patch(job))).await {
                Ok(pod) => self.context.kinds.pods.put(pod),
                Err(error) if api::is_not_found(&error) => {}
                // There is nothing left to release.
                Err(error) if matches!(claim, Claim::Release(_)) && api::is_invalid(&error) => {}
                Err(source) => return Err(Error::Claim { pod: name.clone(), source }),
            }
        }
        Ok(())
    }

    /// Sees to the pods; says what became of each.
    async fn carry_out(&self, job: &Job, step: &PodStep) -> Vec<Fate> {
        match step {
            PodStep::Nothing | PodStep::Refuse(_) => Vec::new(),
            PodStep::Create(pods) => {
                let mut fates = vec![Fate::Skipped; pods.len()];
                for batch in slow_start(pods.len()) {
                    let creations = pods[batch.clone()].iter().map(|pod| self.create(job, pod).boxed());
                    let done = api::together(AT_ONCE, creations.collect()).await;
                    let failed = done.contains(&Fate::Failed);
                    fates[batch].copy_from_slice(&done);
                    if failed {
                        break;
                    }
                }
                fates
            }
            PodStep::End(pods) => {
                let deletions = pods.iter().map(|pod| self.delete(job, pod).boxed());
                api::together(AT_ONCE, deletions.collect()).await
            }
            PodStep::Remove(pods) => {
                let removals = pods.iter().map(|pod| self.remove(job, pod).boxed());
                api::together(AT_ONCE, removals.collect()).await
            }
        }
    }

    async fn create(&self, job: &Job, pod: &Pod) -> Fate {
        match self.pods(job).create(&api::post(), pod).await {
            Ok(created) => {
                self.tell(job, &[Event::pod_created(&created.name_any())]);
                self.context.kinds.pods.put(created);
                Fate::Done
            }
            Err(error) if api::is_namespace_terminating(&error) => Fate::Done,
            Err(error) => {
                self.tell(job, &[Event::pod_not_created(&api::message(&error))]);
                Fate::Failed
            }
        }
    }

    async fn remove(&self, job: &Job, pod: &PodRef) -> Fate {
        match self.release_one(job, pod).await {
            Fate::Failed => Fate::Failed,
            Fate::Gone => Fate::Gone,
            Fate::Done | Fate::Skipped => self.delete(job, pod).await,
        }
    }

    async fn delete(&self, job: &Job, pod: &PodRef) -> Fate {
        let key = Key::new(job.namespace().unwrap_or_default(), &pod.name);
        match self.pods(job).delete(&pod.name, &api::delete(Some(&pod.uid), None)).await {
            Ok(answer) => {
                self.tell(job, &[Event::pod_deleted(&pod.name)]);
                if let Some(deleted) = answer.left() {
                    let at_once = deleted.meta().deletion_grace_period_seconds.unwrap_or(0) == 0
                        && deleted.finalizers().is_empty();
                    if at_once {
                        self.context.kinds.pods.removed(&deleted);
                    } else {
                        self.context.kinds.pods.put(deleted);
                    }
                }
                Fate::Done
            }
            // Another pod has its name by now.
            Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => {
                self.forget(&key, &pod.uid);
                Fate::Gone
            }
            Err(error) => {
                self.tell(job, &[Event::pod_not_deleted(&api::message(&error))]);
                Fate::Failed
            }
        }
    }

    /// A pod is gone, whatever the cache shows.
    fn forget(&self, key: &Key, uid: &str) {
        let pods = &self.context.kinds.pods;
        if let Some(pod) = pods.get(key).filter(|pod| pod.uid().as_deref() == Some(uid)) {
            pods.removed(&pod);
        }
    }

    async fn release(&self, job: &Job, pods: &[PodRef]) -> Vec<Fate> {
        let releases = pods.iter().map(|pod| self.release_one(job, pod).boxed());
        api::together(AT_ONCE, releases.collect()).await
    }

    async fn release_one(&self, job: &Job, pod: &PodRef) -> Fate {
        let key = Key::new(job.namespace().unwrap_or_default(), &pod.name);
        let known = self.context.kinds.pods.get(&key).filter(|known| known.uid().as_ref() == Some(&pod.uid));
        let Some(known) = known else { return Fate::Gone };
        match self.take_off_finalizer(&known).await {
            Ok(fate) => fate,
            Err(error) => {
                tracing::warn!(pod = %key, error = reconcile::chain(&error), "failed to take the finalizer off");
                Fate::Failed
            }
        }
    }

    /// Takes the tracking finalizer off a pod.
    pub(super) async fn take_off_finalizer(&self, pod: &Pod) -> kube::Result<Fate> {
        let pods: Api<Pod> =
            Api::namespaced(self.context.client.clone(), &pod.namespace().unwrap_or_default());
        let mut patch = remove_finalizer_patch();
        // Another pod of this name is none of our business; the API server refuses to change a uid.
        patch["metadata"]["uid"] = serde_json::json!(pod.uid());
        match pods.patch(&pod.name_any(), &api::patch(), &Patch::Strategic(patch)).await {
            Ok(answer) => {
                // A pod that was waiting for this only is gone with it.
                let gone = answer.meta().deletion_timestamp.is_some()
                    && answer.meta().deletion_grace_period_seconds.unwrap_or(0) == 0
                    && answer.finalizers().is_empty();
                if gone {
                    self.context.kinds.pods.removed(pod);
                } else {
                    self.context.kinds.pods.put(answer);
                }
                Ok(Fate::Done)
            }
            Err(error) if api::is_not_found(&error) => {
                self.context.kinds.pods.removed(pod);
                Ok(Fate::Gone)
            }
            // Another pod may have its name by now; or somebody who has a say in pods does not want this one changed.
            Err(error) if api::is_conflict(&error) || api::is_invalid(&error) => {
                let there = pods.get_opt(&pod.name_any()).await?;
                if there.is_some_and(|there| there.uid() == pod.uid()) {
                    return Err(error);
                }
                self.context.kinds.pods.removed(pod);
                Ok(Fate::Gone)
            }
            Err(error) => Err(error),
        }
    }

    async fn write_status(&self, job: &Job, status: &JobStatus) -> Result<Job, Error> {
        let jobs: Api<Job> =
            Api::namespaced(self.context.client.clone(), &job.namespace().unwrap_or_default());
        let mut changed = job.clone();
        changed.status = Some(status.clone());
        let failed = |source| Error::Status { job: Key::of(job), source };
        let written = jobs.replace_status(&job.name_any(), &api::post(), &changed).await.map_err(failed)?;
        self.context.kinds.jobs.put(written.clone());
        Ok(written)
    }
}
