//! How the controllers of a cluster are set up.

use std::time::Duration;

/// How the controllers of a cluster are set up. The defaults are kube-controller-manager's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the Job API of this cluster does differently.
    pub job: rules::job::Settings,
    /// A Job that somebody else manages and that has had no status for so long is counted as waiting.
    pub external_job_patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { job: rules::job::Settings::default(), external_job_patience: Duration::from_secs(600) }
    }
}
