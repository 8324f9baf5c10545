//! What a worker lacks of the queues that lead to it.

use std::collections::BTreeSet;

use anyhow::Context as _;
use rules::quota::readiness;
use serde_json::{Value, json};
use types::kueue::{ClusterQueue, LocalQueue, ResourceFlavor, WorkloadPriorityClass};

use super::checks_of;
use crate::install::apply::Target;
use crate::jobs;

/// Creates it. Of namespaces, all if none is named.
pub(super) async fn queues(
    manager: &Target,
    worker: &Target,
    config: &str,
    namespaces: &[String],
) -> anyhow::Result<()> {
    let checks = checks_of(&manager.client, config).await?;
    let all: Vec<ClusterQueue> = jobs::cluster_objects(&manager.client).await?;
    let sends = |queue: &&ClusterQueue| {
        readiness::check_names(queue).any(|check| checks.iter().any(|it| it == check))
    };
    let cluster_queues: Vec<&ClusterQueue> = all.iter().filter(sends).collect();
    let local_queues: Vec<LocalQueue> = jobs::objects(&manager.client, None).await?;
    let leads = |queue: &&LocalQueue| {
        let leads_to =
            |other: &&ClusterQueue| other.metadata.name.as_deref() == Some(&queue.spec.cluster_queue);
        let namespace = queue.metadata.namespace.as_deref().unwrap_or_default();
        cluster_queues.iter().any(leads_to)
            && (namespaces.is_empty() || namespaces.iter().any(|it| it == namespace))
    };
    let local_queues: Vec<&LocalQueue> = local_queues.iter().filter(leads).collect();
    let used = |queue: &&&ClusterQueue| {
        local_queues.iter().any(|it| Some(it.spec.cluster_queue.as_str()) == queue.metadata.name.as_deref())
    };
    let cluster_queues: Vec<&ClusterQueue> = cluster_queues.iter().filter(used).copied().collect();

    let names: BTreeSet<&str> =
        local_queues.iter().filter_map(|queue| queue.metadata.namespace.as_deref()).collect();
    for name in names {
        worker
            .keep_or_create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
            .await?;
    }
    let flavors: BTreeSet<&str> = cluster_queues.iter().flat_map(|queue| readiness::flavors(queue)).collect();
    for flavor in jobs::cluster_objects::<ResourceFlavor>(&manager.client).await? {
        if flavor.metadata.name.as_deref().is_some_and(|name| flavors.contains(name)) {
            worker.keep_or_create(&copy("ResourceFlavor", &flavor, None)?).await?;
        }
    }
    for class in jobs::cluster_objects::<WorkloadPriorityClass>(&manager.client).await? {
        worker.keep_or_create(&copy("WorkloadPriorityClass", &class, None)?).await?;
    }
    for queue in cluster_queues {
        let mut copy = copy("ClusterQueue", queue, None)?;
        // Jobs run on the worker, and are not sent on.
        if let Some(spec) = copy["spec"].as_object_mut() {
            spec.remove("admissionChecksStrategy");
            spec.remove("stopPolicy");
        }
        worker.keep_or_create(&copy).await?;
    }
    for queue in local_queues {
        let mut copy = copy("LocalQueue", queue, queue.metadata.namespace.as_deref())?;
        if let Some(spec) = copy["spec"].as_object_mut() {
            spec.remove("stopPolicy");
        }
        worker.keep_or_create(&copy).await?;
    }
    Ok(())
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
