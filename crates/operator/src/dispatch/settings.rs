//! What dispatch can be told to do differently.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::Client;
use rules::dispatch::{Adapter, Policy, adapter};
use serde_json::Value;

/// Makes a client out of a kubeconfig that was not refused.
pub type Connect = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Client, kube::Error>> + Send + Sync>;

/// Settings of dispatch. The defaults are those of Kueue's configuration v1beta2, but for the timeout of lost workers:
/// without one, a Job never runs twice.
#[derive(Clone)]
pub struct Settings {
    /// Who this manager is on its workers: what it creates there carries this name, and it touches nothing else.
    pub origin: String,
    /// The namespace of the Secrets with kubeconfigs.
    pub namespace: String,
    /// How clusters are chosen, and how long one is waited for.
    pub policy: Policy,
    /// Kinds of jobs that run on workers.
    pub kinds: Vec<&'static Adapter>,
    /// Kubeconfigs in files are read only from below this directory, if there is one.
    pub kubeconfig_directory: Option<PathBuf>,
    /// How a client is made.
    pub connect: Connect,
    /// How long a call to a cluster may take.
    pub deadline: Duration,
    /// How often a worker is asked whether it is there.
    pub heartbeat: Duration,
    /// How often everything that workers hold of ours is looked at.
    pub clean_up: Duration,
    /// How long a request whose answer was lost may still be carried out.
    pub doubt: Duration,
    /// How long news of a running job are collected before they are shown.
    pub collect: Duration,
    /// How many Workloads a lane works on at once.
    pub concurrency: usize,
    /// A bug.
    #[cfg(feature = "planted")]
    pub planted: Option<super::Planted>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("origin", &self.origin)
            .field("policy", &self.policy)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            origin: "multikueue".to_owned(),
            namespace: "kueue-system".to_owned(),
            policy: Policy::default(),
            kinds: vec![adapter::job()],
            kubeconfig_directory: None,
            connect: Arc::new(|config| Box::pin(super::kubeconfig::connect(config))),
            deadline: Duration::from_secs(10),
            heartbeat: Duration::from_secs(5),
            clean_up: Duration::from_secs(60),
            // An API server gives up on a request after a minute.
            doubt: Duration::from_secs(65),
            collect: Duration::from_millis(100),
            concurrency: 32,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }
}
