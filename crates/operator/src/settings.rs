//! What the operator can be told to do differently. The defaults are those of Kueue's configuration v1beta2.

use std::{collections::BTreeSet, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use rules::{
    dispatch::{Adapter, adapter},
    framework::{
        self, Kind,
        apps::{DEPLOYMENT, LEADER_WORKER_SET, STATEFUL_SET},
        pod::POD,
    },
    quota,
    workload::{
        self,
        change::BackOff,
        plan::{self, PodsReady},
    },
};

use crate::dispatch;

/// Settings of an operator.
#[derive(Clone)]
pub struct Settings {
    /// The namespace that the operator is at home in.
    pub namespace: String,
    /// How long a call to its own cluster may take.
    pub deadline: Duration,
    /// Whether Jobs are managed that name no queue.
    pub manage_jobs_without_queue_name: bool,
    /// The namespaces whose Jobs are managed.
    pub managed_namespaces: LabelSelector,
    /// The kinds of Jobs that are managed, by Kueue's names. Of those that the cluster does not know, nothing is missed.
    pub frameworks: BTreeSet<&'static str>,
    /// Kinds that somebody else manages, by API group and kind: a Job may be part of one of them.
    pub external_frameworks: Vec<(String, String)>,
    /// How quota is given.
    pub quota: quota::Policy,
    /// Which resources are counted, and as what.
    pub accounting: quota::requests::Accounting,
    /// From when a Workload counts whose pods were not ready in time.
    pub requeuing_timestamp: quota::wire::RequeuingTimestamp,
    /// Whether metrics show quota and usage of every ClusterQueue, flavor by flavor. Those of LocalQueues always do.
    pub resource_metrics: bool,
    /// What holds for all Workloads.
    pub workloads: workload::plan::Settings,
    /// What holds for all Jobs.
    pub jobs: framework::plan::Settings,
    /// What holds for Workloads that run on other clusters.
    pub dispatch: dispatch::Settings,
}

impl Settings {
    /// Makes the operator at home in another namespace, in which no Jobs are managed unless that was asked for.
    pub fn move_to(&mut self, namespace: &str) {
        if self.managed_namespaces == all_but(&["kube-system", &self.namespace]) {
            self.managed_namespaces = all_but(&["kube-system", namespace]);
        }
        namespace.clone_into(&mut self.namespace);
    }
}

impl Default for Settings {
    fn default() -> Self {
        let namespace = "kueue-system".to_owned();
        let timeout = SignedDuration::from_mins(30);
        Settings {
            managed_namespaces: all_but(&["kube-system", &namespace]),
            namespace,
            deadline: Duration::from_secs(30),
            manage_jobs_without_queue_name: false,
            frameworks: frameworks(),
            external_frameworks: Vec::new(),
            quota: quota::Policy::default(),
            accounting: quota::requests::Accounting::default(),
            requeuing_timestamp: quota::wire::RequeuingTimestamp::default(),
            resource_metrics: false,
            workloads: plan::Settings {
                pods_ready: Some(PodsReady {
                    timeout,
                    recovery_timeout: Some(timeout),
                    back_off: BackOff::default(),
                }),
                retention: None,
            },
            jobs: framework::plan::Settings { pods_ready: true, ..framework::plan::Settings::default() },
            dispatch: dispatch::Settings { kinds: dispatched(), ..dispatch::Settings::default() },
        }
    }
}

impl Settings {
    /// Whether Jobs of a kind are managed.
    pub(crate) fn manages(&self, kind: &Kind) -> bool {
        self.frameworks.contains(kind.framework)
    }

    /// Whether pods are queued at all: by themselves, or as parts of what is made of them.
    pub(crate) fn queues_pods(&self) -> bool {
        [POD, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET].iter().any(|kind| self.manages(kind))
    }

    /// Whether somebody else manages Jobs of a kind.
    pub(crate) fn is_external(&self, group: &str, kind: &str) -> bool {
        self.external_frameworks.iter().any(|(its_group, its_kind)| its_group == group && its_kind == kind)
    }

    /// Whether Jobs of a kind are queued, by us or by somebody else.
    pub(crate) fn is_queued(&self, group: &str, kind: &str) -> bool {
        self.managed(group, kind).is_some() || self.is_external(group, kind)
    }

    /// The kind of Job that an object is of, if it is managed.
    pub(crate) fn managed(&self, group: &str, kind: &str) -> Option<Kind> {
        framework::kinds().find(|it| it.group == group && it.kind == kind && self.manages(it))
    }
}

/// Every kind of Job that can be managed.
fn frameworks() -> BTreeSet<&'static str> {
    framework::kinds().map(|kind| kind.framework).collect()
}

/// Every kind of job that can run on another cluster and that others than us may have queued.
fn dispatched() -> Vec<&'static Adapter> {
    adapter::ALL.iter().collect()
}

/// All namespaces but these.
pub(crate) fn all_but(names: &[&str]) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(names.iter().map(ToString::to_string).collect()),
        }]),
        match_labels: None,
    }
}
