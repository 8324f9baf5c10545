//! Jobs as the management cluster holds them: all of them, or one by its name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, Resource};
use rules::dispatch::Adapter;
use rules::workload::{has_quota, is_finished};
use serde::de::DeserializeOwned;
use types::kueue::Workload;

use crate::connect::Manager;
use crate::failure::{Code, Failure};
use crate::live::Live;
use crate::names;
use crate::view::{Status, View, owner, prebuilt};

/// How long an operator may take to make the Workload of a Job.
const MADE: Duration = Duration::from_secs(10);

/// A Job, whatever its kind, and its Workload.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) view: View,
    /// Itself, if it is a Job of Kubernetes.
    pub(crate) job: Option<Arc<Job>>,
    pub(crate) workload: Option<Arc<Workload>>,
}

/// All Jobs of a namespace, or of all namespaces, by namespace and name.
pub(crate) async fn list(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<Found>> {
    let jobs = objects::<Job>(client, namespace);
    let workloads = objects::<Workload>(client, namespace);
    let (jobs, workloads) = tokio::try_join!(jobs, workloads)?;
    Ok(join(shared(jobs), shared(workloads)))
}

fn shared<K>(objects: Vec<K>) -> Vec<Arc<K>> {
    objects.into_iter().map(Arc::new).collect()
}

/// Jobs with their Workloads, and what else has a Workload.
pub(crate) fn join(jobs: Vec<Arc<Job>>, workloads: Vec<Arc<Workload>>) -> Vec<Found> {
    let mut by_owner = HashMap::new();
    let mut by_name = HashMap::new();
    // Of the slices of an elastic Job the one counts that it runs by, or else the one that has not ended.
    let mut in_order: Vec<&Arc<Workload>> = workloads.iter().collect();
    in_order.sort_by_key(|workload| (!is_finished(workload), has_quota(workload)));
    for workload in in_order {
        let owners = workload.metadata.owner_references.iter().flatten();
        by_owner
            .extend(owners.filter(|owner| owner.kind == "Job").map(|owner| (owner.uid.as_str(), workload)));
        by_name.insert((workload.metadata.namespace.as_deref(), workload.metadata.name.as_deref()), workload);
    }
    let stands_for = |job: &Job| {
        let owned = job.metadata.uid.as_deref().and_then(|uid| by_owner.get(uid));
        let named = || by_name.get(&(job.metadata.namespace.as_deref(), Some(prebuilt(&job.metadata)?)));
        owned.or_else(named).map(|workload| Arc::clone(workload))
    };
    let mut found: Vec<Found> = jobs
        .into_iter()
        .map(|job| {
            let workload = stands_for(&job);
            Found { view: View::of_job(&job, workload.as_deref()), job: Some(job), workload }
        })
        .collect();
    let others = workloads.iter().filter(|workload| owner(workload).is_none_or(|owner| owner.kind != "Job"));
    found.extend(others.map(|workload| Found {
        view: View::of_workload(workload),
        job: None,
        workload: Some(Arc::clone(workload)),
    }));
    found.sort_by_cached_key(|found| (found.view.namespace.clone(), found.view.title()));
    found
}

/// The one that is called so: a Job by its name, anything else by `kind/name`, or by its name alone if no Job has it.
pub(crate) async fn find(manager: &Manager, name: &str) -> anyhow::Result<Found> {
    let all = list(&manager.client, Some(&manager.namespace)).await?;
    named(&all, name, manager).cloned()
}

/// The one of them that is called so.
pub(crate) fn named<'a>(all: &'a [Found], name: &str, manager: &Manager) -> anyhow::Result<&'a Found> {
    pick(all, name).ok_or_else(|| {
        let message = format!("there is no Job {name} in namespace {}", manager.namespace);
        let there: Vec<String> = all.iter().map(|found| found.view.title()).collect();
        let none = "ferry get jobs -A shows those of all namespaces; -n chooses one";
        let hint = names::hint("Jobs", name, &there, none);
        Failure::new(Code::NotFound, message).hint(hint).into()
    })
}

/// A Job once its Workload is there: the operator makes it a moment after a Job was submitted. Where none is made in
/// time, the Job alone.
pub(crate) async fn queued(manager: &Manager, found: Found) -> anyhow::Result<Found> {
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

/// The objects of the kind of a job; `None` if the kind is not known here.
pub(crate) fn api(manager: &Manager, view: &View) -> Option<Api<DynamicObject>> {
    let (group, version) = view.api_version.split_once('/').unwrap_or(("", &view.api_version));
    let kind = GroupVersionKind::gvk(group, version, &view.kind);
    let resource = match Adapter::of(&view.api_version, &view.kind) {
        Some(adapter) => ApiResource::from_gvk_with_plural(&kind, adapter.plural),
        None if view.kind == "Workload" => ApiResource::from_gvk(&kind),
        None => return None,
    };
    Some(Api::namespaced_with(manager.client.clone(), &view.namespace, &resource))
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// The title of each, and the Workload that it was given.
    fn joined(jobs: &[Value], workloads: &[Value]) -> Vec<(String, Option<String>)> {
        fn read<K: DeserializeOwned>(objects: &[Value]) -> Vec<Arc<K>> {
            let read =
                objects.iter().map(|object| serde_json::from_value(object.clone()).expect("an object"));
            read.map(Arc::new).collect()
        }
        let found = join(read(jobs), read(workloads));
        found.into_iter().map(|found| (found.view.title(), found.view.workload)).collect()
    }

    #[test]
    fn a_workload_stands_for_its_owner_and_for_who_names_it() {
        let job = |namespace: &str, uid: &str, prebuilt: &str| {
            let labels = json!({ "kueue.x-k8s.io/prebuilt-workload-name": prebuilt });
            json!({ "metadata": { "namespace": namespace, "name": "a", "uid": uid, "labels": labels } })
        };
        let workload = |name: &str, kind: &str| {
            let owner =
                json!({ "apiVersion": "x/v1", "kind": kind, "name": "a", "uid": "1", "controller": true });
            let metadata = json!({ "namespace": "here", "name": name, "ownerReferences": [owner] });
            json!({ "metadata": metadata, "spec": { "podSets": [] } })
        };
        let of = |job| joined(&[job], &[workload("job-a", "Job")]);
        let with = |workload: Option<&str>| vec![("a".to_owned(), workload.map(str::to_owned))];
        assert_eq!(of(job("here", "1", "")), with(Some("job-a")));
        assert_eq!(of(job("here", "2", "")), with(None), "an earlier Job of this name is another Job");
        assert_eq!(of(job("here", "2", "job-a")), with(Some("job-a")));
        assert_eq!(of(job("there", "2", "job-a")), with(None), "a name counts in its namespace");
        let both =
            joined(&[job("here", "1", "")], &[workload("job-a", "Job"), workload("jobset-a", "JobSet")]);
        let set = ("jobset/a".to_owned(), Some("jobset-a".to_owned()));
        assert_eq!(both, [with(Some("job-a")), vec![set]].concat());
        let slice = |name: &str, conditions: &[&str]| {
            let condition = |kind: &&str| {
                let at = "2026-01-01T00:00:00Z";
                json!({ "type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": at })
            };
            let mut slice = workload(name, "Job");
            slice["status"] = json!({ "conditions": conditions.iter().map(condition).collect::<Vec<_>>() });
            slice
        };
        let slices = [
            slice("job-a-1", &["QuotaReserved", "Finished"]),
            slice("job-a-2", &["QuotaReserved"]),
            slice("job-a-3", &[]),
        ];
        assert_eq!(joined(&[job("here", "1", "")], &slices), with(Some("job-a-2")));
        assert_eq!(joined(&[job("here", "1", "")], &slices[..1]), with(Some("job-a-1")));
    }
}
