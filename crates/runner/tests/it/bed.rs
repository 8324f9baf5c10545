//! What a test stands on: a cluster, a namespace of its own in it, and names that no other test uses.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
    runtime::wait::{Condition, await_condition},
};
use reconcile::{Clock, Tasks};
use runner::Settings;
use serde_json::Value;
use testkit::{Borrowed, ControlPlane, Shared};
use tracing_subscriber::EnvFilter;

/// No wait in these tests is longer: what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

static REAL: Shared = Shared::new(ControlPlane::builder);

/// A namespace of a cluster.
pub(crate) struct Bed {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    _real: Borrowed,
}

impl Bed {
    /// A namespace of a real cluster; `None` where none can be had.
    pub(crate) async fn new(prefix: &str) -> Option<Bed> {
        // A second test finds the first one's in place.
        let filter = EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let real = REAL.for_test().await?;
        let namespace = real.namespace(prefix).await.expect("a namespace");
        Some(Bed { client: real.client(), namespace, _real: real })
    }

    /// The name of a node that belongs to this test alone.
    pub(crate) fn node(&self, name: &str) -> String {
        format!("{name}-{}", self.namespace)
    }

    /// Starts simulated nodes.
    pub(crate) async fn simulated(&self, names: &[&str]) -> Tasks {
        let mut tasks = Tasks::new();
        let settings = names.iter().map(|name| Settings::simulated(&self.node(name))).collect();
        runner::start(self.client.clone(), settings, Clock::system(), &mut tasks).await.expect("nodes");
        tasks
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a pod from its JSON.
    pub(crate) async fn create(&self, pod: Value) -> Pod {
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("a new pod")
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.expect("deletion");
    }

    /// Waits until `condition` holds of the pod, and returns it as it then is; `None` if it is gone.
    pub(crate) async fn until(&self, name: &str, condition: impl Condition<Pod>) -> Option<Pod> {
        let pods = self.pods();
        let wait = tokio::time::timeout(PATIENCE, await_condition(pods.clone(), name, condition));
        if let Ok(pod) = wait.await {
            return pod.expect("the watch goes on");
        }
        let pod = pods.get_opt(name).await.expect("an answer");
        panic!("{name} did not come that far: {:#?}", pod.and_then(|pod| pod.status));
    }

    /// Waits until the pod has this phase.
    pub(crate) async fn until_phase(&self, name: &str, expected: &str) -> Pod {
        let has = |pod: Option<&Pod>| pod.is_some_and(|pod| phase(pod) == expected);
        self.until(name, has).await.expect("a pod with a phase")
    }

    /// Waits until the pod is gone.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(name, |pod: Option<&Pod>| pod.is_none()).await;
    }
}

/// The phase that a pod's status gives.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The status of one container, as JSON; null if there is none.
pub(crate) fn container(pod: &Pod, name: &str) -> Value {
    let status = pod.status.as_ref();
    let mains = status.and_then(|status| status.container_statuses.as_ref());
    let inits = status.and_then(|status| status.init_container_statuses.as_ref());
    let all = mains.into_iter().flatten().chain(inits.into_iter().flatten());
    let found = all.into_iter().find(|status| status.name == name);
    serde_json::to_value(found).expect("JSON")
}

/// The conditions of a pod, each as `Type=Status Reason`, in order.
pub(crate) fn conditions(pod: &Pod) -> Vec<String> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut lines: Vec<String> = conditions
        .into_iter()
        .flatten()
        .map(|one| format!("{}={} {}", one.type_, one.status, one.reason.as_deref().unwrap_or_default()))
        .collect();
    lines.sort();
    lines
}
