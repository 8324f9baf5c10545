//! How the controllers of a cluster are set up.

use std::time::Duration;

/// How the controllers of a cluster are set up. The defaults are kube-controller-manager's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the Job API of this cluster does differently.
    pub job: rules::job::Settings,
    /// The certificates that sign the API server's own, in PEM: published in every namespace. None are published if
    /// there are none.
    pub root_ca: Option<String>,
    /// So many ended pods are kept; the oldest beyond that are deleted. Zero keeps all.
    pub terminated_pods: usize,
    /// A node that is not heard of for so long counts as lost.
    pub node_patience: Duration,
    /// A Job that somebody else manages and that has had no status for so long is counted as waiting.
    pub external_job_patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            job: rules::job::Settings::default(),
            root_ca: None,
            terminated_pods: 12_500,
            node_patience: Duration::from_secs(50),
            external_job_patience: Duration::from_secs(600),
        }
    }
}
