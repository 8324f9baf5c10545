//! The pods of a Job, wherever they are.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use rules::job;

use crate::connect::{Manager, within};
use crate::failure::{self, Code, Failure};
use crate::view::View;

/// Where the pods of a Job are: on a worker, or where the Job is.
#[derive(Clone)]
pub(crate) struct Place {
    /// What to call it.
    pub(crate) cluster: String,
    pub(crate) client: Client,
    /// Whether it is a worker.
    is_worker: bool,
}

impl Place {
    /// Where the Job is.
    pub(crate) fn here(client: Client) -> Place {
        Place { cluster: "the management cluster".to_owned(), client, is_worker: false }
    }

    pub(crate) fn pods(&self, view: &View) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &view.namespace)
    }

    /// What was asked about pods here. Who may not is told who may be let: what a manager may do on its workers covers neither
    /// their logs nor, perhaps, their pods.
    pub(crate) fn permitted<T>(&self, asked: anyhow::Result<T>) -> anyhow::Result<T> {
        let Err(error) = asked else { return asked };
        if !self.is_worker || !failure::is_forbidden(&error) {
            return Err(error);
        }
        let cluster = &self.cluster;
        let hint = format!(
            "add a context named {cluster} or {} to your kubeconfig; or let an administrator join it with \
             --logs: ferry join CONTEXT --name {cluster} --logs",
            fleet::context(cluster)
        );
        Err(Failure::new(Code::Forbidden, failure::text(&error)).hint(hint).into())
    }

    /// The pods of a Job that are here, by index and age.
    pub(crate) async fn list(&self, view: &View) -> anyhow::Result<Vec<Pod>> {
        let params = ListParams::default().labels(&selector(view));
        let list = within(&self.cluster, "list pods", self.pods(view).list(&params)).await;
        let list = self.permitted(list)?;
        let mut pods = list.items;
        if view.kind == "Pod" {
            pods.retain(|pod| pod.name_any() == view.name);
        }
        pods.sort_by_key(|pod| {
            (index_of(&pod.metadata), pod.creation_timestamp().map(|time| time.0), pod.name_any())
        });
        Ok(pods)
    }
}

/// Where the pods of a Job are.
pub(crate) async fn place(manager: &Manager, view: &View) -> anyhow::Result<Place> {
    match &view.cluster {
        Some(cluster) => {
            let worker = manager.reader(cluster).await?;
            Ok(Place { cluster: worker.name, client: worker.client, is_worker: true })
        }
        None => Ok(Place::here(manager.client.clone())),
    }
}

/// The labels by which the pods of a job are known: those that the controllers of each kind give them.
pub(crate) fn selector(view: &View) -> String {
    let name = &view.name;
    match view.kind.as_str() {
        "Job" => format!("{}={name}", job::JOB_NAME_LABEL),
        "JobSet" => format!("jobset.sigs.k8s.io/jobset-name={name}"),
        "RayCluster" => format!("ray.io/cluster={name}"),
        "RayJob" | "RayService" => format!("ray.io/originated-from-cr-name={name}"),
        "AppWrapper" => format!("workload.codeflare.dev/appwrapper={name}"),
        "PipelineRun" => format!("tekton.dev/pipelineRun={name}"),
        "Pod" => String::new(),
        _ => format!("training.kubeflow.org/job-name={name}"),
    }
}

/// The index of a pod of an Indexed Job.
pub(crate) fn index_of(pod: &ObjectMeta) -> Option<i32> {
    let text = |map: &Option<BTreeMap<String, String>>| map.as_ref()?.get(job::pods::INDEX_KEY).cloned();
    text(&pod.labels).or_else(|| text(&pod.annotations))?.parse().ok()
}

/// What a pod is at, as kubectl says it: the reason of a container that waits or failed, else its phase.
pub(crate) fn state(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    let reason = status.container_statuses.iter().flatten().find_map(|container| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
        let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0);
        let failed = ended
            .map(|ended| format!("{} ({})", ended.reason.as_deref().unwrap_or("Error"), ended.exit_code));
        waiting.or(failed)
    });
    reason.or(status.reason).or(status.phase).unwrap_or_else(|| "Unknown".to_owned())
}
