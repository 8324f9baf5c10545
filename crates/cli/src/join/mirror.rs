//! What a worker lacks of the queues that lead to it.

use std::collections::BTreeSet;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use rules::quota::readiness;
use serde_json::{Value, json};
use types::kueue::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology, WorkloadPriorityClass};

use crate::clusters::layout::{Layout, config_of};
use crate::failure::{Code, Failure};
use crate::install::apply::Target;
use crate::{jobs, names};

/// The queues that lead to workers.
pub(super) struct Queues<'a> {
    cluster_queues: Vec<&'a ClusterQueue>,
    local_queues: Vec<&'a LocalQueue>,
}

/// Those that lead to a configuration; of these namespaces, or of all if none is named.
pub(super) fn chosen<'a>(
    layout: &'a Layout,
    config: &str,
    namespaces: &[String],
) -> anyhow::Result<Queues<'a>> {
    let leading = layout.checks.iter().filter(|check| config_of(check) == Some(config));
    let mut checks: Vec<&str> = leading.filter_map(|check| check.metadata.name.as_deref()).collect();
    if checks.is_empty() {
        // The one that is going to be made.
        checks.push(config);
    }
    let sends = |queue: &&ClusterQueue| readiness::check_names(queue).any(|check| checks.contains(&check));
    let sending: Vec<&ClusterQueue> = layout.cluster_queues.iter().filter(sends).collect();
    let leads = |queue: &&LocalQueue| {
        let leads_to = |it: &&ClusterQueue| it.metadata.name.as_deref() == Some(&queue.spec.cluster_queue);
        sending.iter().any(leads_to)
    };
    let mut local_queues: Vec<&LocalQueue> = layout.local_queues.iter().filter(leads).collect();
    let of = |queue: &LocalQueue| queue.metadata.namespace.clone().unwrap_or_default();
    let there: BTreeSet<String> = local_queues.iter().map(|queue| of(queue)).collect();
    if let Some(missing) = namespaces.iter().find(|name| !there.contains(*name)) {
        let message = format!("no queue of namespace {missing} leads to workers");
        let there: Vec<String> = there.into_iter().collect();
        let hint =
            names::hint("namespaces with such queues", missing, &there, "create a LocalQueue there first");
        return Err(Failure::new(Code::NotFound, message).hint(hint).into());
    }
    local_queues.retain(|queue| namespaces.is_empty() || namespaces.contains(&of(queue)));
    let used = |queue: &&ClusterQueue| {
        local_queues.iter().any(|it| Some(it.spec.cluster_queue.as_str()) == queue.metadata.name.as_deref())
    };
    Ok(Queues { cluster_queues: sending.into_iter().filter(used).collect(), local_queues })
}

/// Creates what the worker lacks of them.
pub(super) async fn queues(manager: &Target, worker: &Target, queues: &Queues<'_>) -> anyhow::Result<()> {
    let Queues { cluster_queues, local_queues } = queues;
    let names: BTreeSet<&str> =
        local_queues.iter().filter_map(|queue| queue.metadata.namespace.as_deref()).collect();
    for name in names {
        worker.keep_or_create(&namespace(manager, name).await?).await?;
    }
    let all = jobs::cluster_objects::<Cohort>(&manager.client).await?;
    let cohorts = above(&all, cluster_queues.iter().filter_map(|queue| queue.spec.cohort_name.as_deref()));
    let groups = cohorts.iter().flat_map(|cohort| &cohort.spec.resource_groups);
    let mut flavors: BTreeSet<&str> =
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect();
    flavors.extend(cluster_queues.iter().flat_map(|queue| readiness::flavors(queue)));
    let all = jobs::cluster_objects::<ResourceFlavor>(&manager.client).await?;
    let named =
        |flavor: &&ResourceFlavor| flavor.metadata.name.as_deref().is_some_and(|name| flavors.contains(name));
    let flavors: Vec<&ResourceFlavor> = all.iter().filter(named).collect();
    for topology in jobs::cluster_objects::<Topology>(&manager.client).await? {
        if flavors.iter().any(|flavor| flavor.spec.topology_name == topology.metadata.name) {
            worker.keep_or_create(&copy("Topology", &topology, None)?).await?;
        }
    }
    for flavor in flavors {
        worker.keep_or_create(&copy("ResourceFlavor", flavor, None)?).await?;
    }
    for class in jobs::cluster_objects::<WorkloadPriorityClass>(&manager.client).await? {
        worker.keep_or_create(&copy("WorkloadPriorityClass", &class, None)?).await?;
    }
    for cohort in cohorts {
        worker.keep_or_create(&copy("Cohort", cohort, None)?).await?;
    }
    for queue in cluster_queues {
        let mut copy = copy("ClusterQueue", *queue, None)?;
        // Jobs run on the worker, and are not sent on.
        if let Some(spec) = copy["spec"].as_object_mut() {
            spec.remove("admissionChecksStrategy");
            spec.remove("stopPolicy");
        }
        worker.keep_or_create(&copy).await?;
    }
    for queue in local_queues {
        let mut copy = copy("LocalQueue", *queue, queue.metadata.namespace.as_deref())?;
        if let Some(spec) = copy["spec"].as_object_mut() {
            spec.remove("stopPolicy");
        }
        worker.keep_or_create(&copy).await?;
    }
    Ok(())
}

/// A namespace with the labels that it has on the manager: by them queues select whose Jobs they take.
async fn namespace(manager: &Target, name: &str) -> anyhow::Result<Value> {
    let api: Api<Namespace> = Api::all(manager.client.clone());
    let there = api.get_opt(name).await.with_context(|| format!("failed to read namespace {name}"))?;
    let labels = there.and_then(|there| there.metadata.labels).unwrap_or_default();
    Ok(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } }))
}

/// The cohorts of these names, and those that they are in themselves.
fn above<'a>(all: &'a [Cohort], names: impl Iterator<Item = &'a str>) -> Vec<&'a Cohort> {
    let mut found: Vec<&Cohort> = Vec::new();
    let mut wanted: Vec<&str> = names.collect();
    while let Some(name) = wanted.pop() {
        let named = |cohort: &&Cohort| cohort.metadata.name.as_deref() == Some(name);
        if found.iter().any(named) {
            continue;
        }
        if let Some(cohort) = all.iter().find(named) {
            wanted.extend(cohort.spec.parent_name.as_deref());
            found.push(cohort);
        }
    }
    found
}

/// What an object says, and nothing of what it was or who had it.
fn copy<K>(kind: &str, object: &K, namespace: Option<&str>) -> anyhow::Result<Value>
where
    K: kube::Resource + serde::Serialize,
{
    let from = serde_json::to_value(object).with_context(|| format!("failed to copy a {kind}"))?;
    let mut copy = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": object.meta().name },
    });
    if let Some(namespace) = namespace {
        copy["metadata"]["namespace"] = json!(namespace);
    }
    for field in ["spec", "value", "description"] {
        if let Some(value) = from.get(field) {
            copy[field] = value.clone();
        }
    }
    Ok(copy)
}
