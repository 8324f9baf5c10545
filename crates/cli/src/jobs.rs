//! Jobs as the management cluster holds them: all of them, or one by its name.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::batch::v1::Job;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use types::kueue::Workload;

use crate::connect::Manager;
use crate::failure::{Code, Failure};
use crate::live::Live;
use crate::names;
use crate::view::{Status, View, owner, stands_for};

/// How long an operator may take to make the Workload of a Job.
const MADE: Duration = Duration::from_secs(10);

/// A Job, whatever its kind, and its Workload.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) view: View,
    /// Itself, if it is a Job of Kubernetes.
    pub(crate) job: Option<Job>,
    pub(crate) workload: Option<Workload>,
}

/// All Jobs of a namespace, or of all namespaces, by namespace and name.
pub(crate) async fn list(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<Found>> {
    let jobs = objects::<Job>(client, namespace);
    let workloads = objects::<Workload>(client, namespace);
    let (jobs, workloads) = tokio::try_join!(jobs, workloads)?;
    Ok(join(&jobs, &workloads))
}

/// Jobs with their Workloads, and what else has a Workload.
pub(crate) fn join(jobs: &[Job], workloads: &[Workload]) -> Vec<Found> {
    let mut found: Vec<Found> = jobs
        .iter()
        .map(|job| {
            let workload = workloads.iter().find(|workload| stands_for(workload, "Job", &job.metadata));
            let view = View::of_job(job, workload);
            Found { view, job: Some(job.clone()), workload: workload.cloned() }
        })
        .collect();
    let others = workloads.iter().filter(|workload| owner(workload).is_none_or(|owner| owner.kind != "Job"));
    found.extend(others.map(|workload| Found {
        view: View::of_workload(workload),
        job: None,
        workload: Some(workload.clone()),
    }));
    found.sort_by(|one, other| {
        let key = |found: &Found| (found.view.namespace.clone(), found.view.title());
        key(one).cmp(&key(other))
    });
    found
}

/// The one that is called so: a Job by its name, anything else by `kind/name`, or by its name alone if no Job has it.
pub(crate) async fn find(manager: &Manager, name: &str) -> anyhow::Result<Found> {
    let all = list(&manager.client, Some(&manager.namespace)).await?;
    pick(&all, name).cloned().ok_or_else(|| {
        let message = format!("there is no Job {name} in namespace {}", manager.namespace);
        let there: Vec<String> = all.iter().map(|found| found.view.title()).collect();
        let none = "ferry get jobs -A shows those of all namespaces; -n chooses one";
        let hint = names::hint("Jobs", name, &there, none);
        Failure::new(Code::NotFound, message).hint(hint).into()
    })
}

/// The same, once its Workload is there: the operator makes it a moment after a Job was submitted. Where none is made in
/// time, the Job alone.
pub(crate) async fn find_queued(manager: &Manager, name: &str) -> anyhow::Result<Found> {
    let found = find(manager, name).await?;
    let view = &found.view;
    let is_due = view.queue.is_some() && !view.status.has_ended() && view.status != Status::External;
    if found.workload.is_some() || !is_due {
        return Ok(found);
    }
    let live = Live::start(&manager.client, Some(&manager.namespace)).await?;
    let made = async {
        loop {
            match live.by_uid(&view.uid) {
                Some(found) if found.workload.is_none() => live.changed().await,
                found => return found,
            }
        }
    };
    let made = tokio::time::timeout(MADE, made).await;
    live.stop().await;
    Ok(made.ok().flatten().unwrap_or(found))
}

fn pick<'a>(all: &'a [Found], name: &str) -> Option<&'a Found> {
    let (kind, name) = name.split_once('/').map_or((None, name), |(kind, name)| (Some(kind), name));
    let is_kind = |found: &Found| {
        let singular = found.view.kind.to_lowercase();
        kind.is_none_or(|kind| {
            let kind = kind.to_lowercase();
            let kind = kind.split('.').next().unwrap_or_default();
            kind == singular || kind.strip_suffix('s') == Some(singular.as_str())
        })
    };
    let mut named = all.iter().filter(|found| found.view.name == name && is_kind(found));
    // Jobs come before what else has the same name.
    let job = all.iter().find(|found| found.view.name == name && is_kind(found) && found.job.is_some());
    job.or_else(|| named.next())
}

/// Objects of a kind; none where the kind is not known.
pub(crate) async fn objects<K>(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    K: Resource<Scope = kube::core::NamespaceResourceScope>,
{
    let api: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    known(api.list(&ListParams::default()).await)
        .with_context(|| format!("failed to list {}", K::plural(&())))
}

/// Objects without a namespace; none where the kind is not known.
pub(crate) async fn cluster_objects<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    known(api.list(&ListParams::default()).await)
        .with_context(|| format!("failed to list {}", K::plural(&())))
}

fn known<K: Clone>(answer: Result<kube::core::ObjectList<K>, kube::Error>) -> Result<Vec<K>, kube::Error> {
    match answer {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
