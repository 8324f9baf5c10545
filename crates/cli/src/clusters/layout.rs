//! What a management cluster knows of its workers: who they are, which queues lead to them, what is there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use rules::dispatch::observed;
use rules::quota::readiness;
use rules::workload;
use types::kueue::{AdmissionCheck, ClusterQueue, LocalQueue, MultiKueueCluster, MultiKueueConfig, Workload};

use crate::failure::{Code, Failure};
use crate::{jobs, names};

/// Everything about workers, as it was when it was read.
pub(crate) struct Layout {
    pub(crate) clusters: Vec<MultiKueueCluster>,
    pub(crate) configs: Vec<MultiKueueConfig>,
    pub(crate) checks: Vec<AdmissionCheck>,
    pub(crate) cluster_queues: Vec<ClusterQueue>,
    pub(crate) local_queues: Vec<LocalQueue>,
    pub(crate) workloads: Vec<Workload>,
}

impl Layout {
    pub(crate) async fn read(client: &Client) -> anyhow::Result<Layout> {
        let (clusters, configs, checks, cluster_queues, local_queues, workloads) = tokio::try_join!(
            jobs::cluster_objects(client),
            jobs::cluster_objects(client),
            jobs::cluster_objects(client),
            jobs::cluster_objects(client),
            jobs::objects(client, None),
            jobs::objects(client, None),
        )?;
        Ok(Layout { clusters, configs, checks, cluster_queues, local_queues, workloads })
    }

    /// A worker by its name.
    pub(crate) fn cluster(&self, name: &str) -> anyhow::Result<&MultiKueueCluster> {
        let found = self.clusters.iter().find(|cluster| cluster.metadata.name.as_deref() == Some(name));
        found.ok_or_else(|| {
            let there: Vec<String> = self.clusters.iter().filter_map(|it| it.metadata.name.clone()).collect();
            let hint = names::hint("clusters", name, &there, "there is none yet: ferry join adds one");
            Failure::new(Code::NotFound, format!("there is no cluster {name}")).hint(hint).into()
        })
    }

    /// The queues whose Jobs may run on a worker.
    pub(crate) fn queues_to<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a LocalQueue> {
        self.local_queues.iter().filter(move |queue| {
            let leads_to = self.cluster_queue(&queue.spec.cluster_queue);
            leads_to.is_some_and(|leads_to| self.clusters_of(leads_to).any(|it| it == cluster))
        })
    }

    pub(crate) fn cluster_queue(&self, name: &str) -> Option<&ClusterQueue> {
        self.cluster_queues.iter().find(|queue| queue.metadata.name.as_deref() == Some(name))
    }

    /// The workers that a ClusterQueue sends Jobs to.
    pub(crate) fn clusters_of<'a>(&'a self, queue: &'a ClusterQueue) -> impl Iterator<Item = &'a str> {
        let checks = self.checks.iter().filter(|check| {
            readiness::check_names(queue).any(|name| check.metadata.name.as_deref() == Some(name))
        });
        checks.filter_map(config_of).flat_map(|name| {
            let configs = self.configs.iter().filter(move |it| it.metadata.name.as_deref() == Some(name));
            configs.flat_map(|config| config.spec.clusters.iter().map(String::as_str))
        })
    }

    /// The Workloads that are on a worker now.
    pub(crate) fn on<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a Workload> {
        self.workloads.iter().filter(move |workload| is_on(workload, cluster))
    }

    /// The Workloads that wait for a worker, and for others perhaps.
    pub(crate) fn waiting_for<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a Workload> {
        self.workloads.iter().filter(move |workload| {
            let status = workload.status.as_ref();
            status.is_some_and(|status| {
                status.cluster_name.is_none() && status.nominated_cluster_names.iter().any(|it| it == cluster)
            }) && !workload::is_finished(workload)
        })
    }
}

/// Whether a Workload is on a worker now: it runs there, or its pods have not all ended there yet.
pub(crate) fn is_on(workload: &Workload, cluster: &str) -> bool {
    let name = workload.status.as_ref().and_then(|status| status.cluster_name.as_deref());
    let is_held = || observed::held(workload).is_some_and(|held| held.as_str() == cluster);
    (name == Some(cluster) || is_held()) && !workload::is_finished(workload)
}

/// What is said about the connection to a worker.
pub(crate) fn active(cluster: &MultiKueueCluster) -> Option<&Condition> {
    cluster.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Active")
}

/// What somebody noted about a worker.
pub(crate) fn annotation<'a>(cluster: &'a MultiKueueCluster, key: &str) -> Option<&'a str> {
    cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The configuration that a check leads to, if it is one that sends Jobs elsewhere.
pub(crate) fn config_of(check: &AdmissionCheck) -> Option<&str> {
    let is_ours = check.spec.controller_name == rules::dispatch::CONTROLLER;
    let parameters = check.spec.parameters.as_ref().filter(|_| is_ours)?;
    Some(parameters.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: serde_json::Value) -> K {
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
            "metadata": { "name": name, "namespace": "team" }, "spec": spec,
        });
        serde_json::from_value(object).expect("an object")
    }

    /// A worker is not empty while something of a Job may be left there, whoever gets it next.
    #[test]
    fn a_workload_is_where_it_may_still_run() {
        let condition = |kind: &str, message: &str| {
            json!({
                "type": kind, "status": "True", "reason": "Assigned", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let held = condition("ferry.dev/Held", "The job may exist on worker cluster \"east\"");
        let workload = |cluster: Option<&str>, conditions: serde_json::Value| -> Workload {
            let mut workload = read::<serde_json::Value>("Workload", "a", json!({ "podSets": [] }));
            workload["status"] = json!({ "clusterName": cluster, "conditions": conditions });
            serde_json::from_value(workload).expect("a Workload")
        };
        assert!(is_on(&workload(Some("east"), json!([])), "east"));
        assert!(is_on(&workload(None, json!([held])), "east"));
        assert!(!is_on(&workload(None, json!([held])), "west"));
        assert!(!is_on(&workload(None, json!([])), "east"));
        assert!(!is_on(&workload(Some("east"), json!([held, condition("Finished", "")])), "east"));
    }

    #[test]
    fn queues_lead_to_workers_by_checks_and_configurations() {
        let parameters = json!({ "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all" });
        let check = json!({ "controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters });
        let sends = json!({ "admissionChecksStrategy": { "admissionChecks": [{ "name": "mk" }] } });
        let layout = Layout {
            clusters: vec![read("MultiKueueCluster", "east", json!({ "clusterSource": {} }))],
            configs: vec![read("MultiKueueConfig", "all", json!({ "clusters": ["east"] }))],
            checks: vec![read("AdmissionCheck", "mk", check)],
            cluster_queues: vec![
                read("ClusterQueue", "away", sends),
                read("ClusterQueue", "here", json!({})),
            ],
            local_queues: vec![
                read("LocalQueue", "away", json!({ "clusterQueue": "away" })),
                read("LocalQueue", "here", json!({ "clusterQueue": "here" })),
            ],
            workloads: Vec::new(),
        };
        let names = |cluster: &str| -> Vec<String> {
            layout.queues_to(cluster).filter_map(|queue| queue.metadata.name.clone()).collect()
        };
        assert_eq!((names("east"), names("west")), (vec!["away".to_owned()], Vec::new()));
        assert!(layout.cluster("east").is_ok() && layout.cluster("west").is_err());
    }
}
