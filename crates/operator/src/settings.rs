//! What the operator can be told to do differently. The defaults are those of Kueue's configuration v1beta2.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use rules::{
    framework, quota,
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
    /// Whether Jobs are managed that name no queue.
    pub manage_jobs_without_queue_name: bool,
    /// The namespaces whose Jobs are managed.
    pub managed_namespaces: LabelSelector,
    /// How quota is given.
    pub quota: quota::Policy,
    /// Which resources are counted, and as what.
    pub accounting: quota::requests::Accounting,
    /// From when a Workload counts whose pods were not ready in time.
    pub requeuing_timestamp: quota::wire::RequeuingTimestamp,
    /// What holds for all Workloads.
    pub workloads: workload::plan::Settings,
    /// What holds for all Jobs.
    pub jobs: framework::plan::Settings,
    /// What holds for Workloads that run on other clusters.
    pub dispatch: dispatch::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        let namespace = "kueue-system".to_owned();
        let timeout = SignedDuration::from_mins(30);
        Settings {
            managed_namespaces: all_but(&["kube-system", &namespace]),
            namespace,
            manage_jobs_without_queue_name: false,
            quota: quota::Policy::default(),
            accounting: quota::requests::Accounting::default(),
            requeuing_timestamp: quota::wire::RequeuingTimestamp::default(),
            workloads: plan::Settings {
                pods_ready: Some(PodsReady {
                    timeout,
                    recovery_timeout: Some(timeout),
                    back_off: BackOff::default(),
                }),
                retention: None,
            },
            jobs: framework::plan::Settings { pods_ready: true, ..framework::plan::Settings::default() },
            dispatch: dispatch::Settings::default(),
        }
    }
}

/// All namespaces but these.
fn all_but(names: &[&str]) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(names.iter().map(ToString::to_string).collect()),
        }]),
        match_labels: None,
    }
}
