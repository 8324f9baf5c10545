//! What is written to the Workload of a Job, whatever its kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, api::PostParams};
use reconcile::Key;
use rules::{
    framework::{Step, plan::What},
    workload::{
        FINISHED, PODS_READY, WAITING_FOR_REPLACEMENT_PODS,
        patch::{self, Manner, PODS_READY_MANAGER, RECLAIMABLE_PODS_MANAGER, REPLACEMENTS_MANAGER},
        plan::Event,
        slice, state,
    },
};
use types::kueue::{Workload, WorkloadStatus};

use crate::{Context, Error, events::ADMISSION, workloads::delete};

impl Context {
    /// Takes a step that concerns the Workload of a Job. Steps that concern the Job itself are not taken here.
    pub(crate) async fn write_workload(
        &self,
        kind: &'static str,
        job: Option<&ObjectMeta>,
        step: &Step,
    ) -> Result<(), kube::Error> {
        match step {
            Step::Create(workload) => self.create_workload(kind, job, workload).await,
            Step::Update { of, next, .. } => self.patch_workload(of, next).await.map(drop),
            Step::Delete(workload) => delete(self, workload).await,
            Step::Status { of, next, what } => self.write_job_status(of, next, what).await,
            Step::Finalize(of) => self.finalize_workload(of).await.map(drop),
            Step::Wait(_)
            | Step::Retry(_)
            | Step::Start { .. }
            | Step::Stop { .. }
            | Step::Ungate { .. }
            | Step::DeleteJob => Ok(()),
        }
    }

    async fn create_workload(
        &self,
        kind: &'static str,
        job: Option<&ObjectMeta>,
        workload: &Workload,
    ) -> Result<(), kube::Error> {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Workload> = Api::namespaced(self.client.clone(), namespace);
        let answer = api.create(&PostParams::default(), workload).await?;
        if let Some(job) = job {
            self.metrics.created(kind, job, &answer);
        }
        self.caches.workloads.put(answer);
        Ok(())
    }

    async fn write_job_status(
        &self,
        of: &Workload,
        next: &WorkloadStatus,
        what: &What,
    ) -> Result<(), kube::Error> {
        let (body, manager) = match what {
            What::Finished(_) | What::Released | What::OnHold(_) => {
                let answer = self.apply_admission(of, next, Manner::Strict).await?;
                match what {
                    What::Finished(reason) if reason == slice::REPLACED => self.tell_replaced(of, &answer),
                    What::Finished(_) => {
                        self.metrics.finished(state::cluster_queue(of).unwrap_or_default(), &answer);
                    }
                    What::OnHold(false) => {}
                    _ => self.metrics.released(of, self.clock.now()),
                }
                return Ok(());
            }
            What::PodsReady { .. } => {
                (patch::one_condition(of, next, PODS_READY, Manner::Strict), PODS_READY_MANAGER)
            }
            What::Reclaimable(pods) => {
                (patch::reclaimable_pods(of, pods, Manner::Strict), RECLAIMABLE_PODS_MANAGER)
            }
            What::Replacements => (
                patch::one_condition(of, next, WAITING_FOR_REPLACEMENT_PODS, Manner::Strict),
                REPLACEMENTS_MANAGER,
            ),
        };
        let answer = self.apply_workload_status(of, body, manager).await?;
        if let What::PodsReady { ready: true, first: true } = what {
            self.metrics.ready(state::cluster_queue(of).unwrap_or_default(), &answer, self.clock.now());
        }
        Ok(())
    }

    /// Tells of a slice whose place another one has taken.
    fn tell_replaced(&self, before: &Workload, after: &Workload) {
        let queue = state::cluster_queue(before).unwrap_or_default();
        self.metrics.replaced(queue);
        let why = state::find(after, FINISHED).map_or("", |end| end.message.as_str());
        self.recorder.tell(ADMISSION, after, &Event::normal(slice::REPLACED, why));
    }
}

/// What failed.
pub(crate) fn failure(step: &Step, job: Key, kind: &'static str, source: kube::Error) -> Error {
    let source = Box::new(source);
    let key = |workload: &Workload| Key::of(workload);
    let (doing, workload) = match step {
        Step::Wait(_) | Step::Retry(_) => return Error::Job { doing: "look at", kind, job, source },
        Step::Start { .. } => return Error::Job { doing: "start", kind, job, source },
        Step::Stop { .. } => return Error::Job { doing: "stop", kind, job, source },
        Step::DeleteJob => return Error::Job { doing: "delete", kind, job, source },
        Step::Ungate { .. } => return Error::Job { doing: "let pods be scheduled of", kind, job, source },
        Step::Create(workload) => ("create", key(workload)),
        Step::Update { of, .. } => ("update", key(of)),
        Step::Delete(of) => ("delete", key(of)),
        Step::Status { of, .. } => ("write the status of", key(of)),
        Step::Finalize(of) => ("let go of", key(of)),
    };
    Error::Workload { doing, workload, source }
}
