//! Events about pods: what a person would like to know of what the node does.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{Api, Client, api::PostParams};
use reconcile::{Clock, Tasks};
use tokio::sync::mpsc;
use tracing::debug;

/// Events that wait to be written. When there are more, the newest are not written: they are a courtesy.
const WAITING: usize = 1024;

/// Writes events, one after another, without anybody waiting for them.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    waiting: mpsc::Sender<Event>,
    clock: Clock,
    node: String,
}

impl Events {
    pub(crate) fn start(client: Client, clock: Clock, node: &str, tasks: &mut Tasks) -> Events {
        let (sender, mut waiting) = mpsc::channel::<Event>(WAITING);
        tasks.spawn("events of pods", async move {
            while let Some(event) = waiting.recv().await {
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
                if let Err(error) = api.create(&PostParams::default(), &event).await {
                    debug!(%error, "failed to write an event");
                }
            }
        });
        Events { waiting: sender, clock, node: node.to_owned() }
    }

    pub(crate) fn normal(&self, pod: &Pod, container: Option<&str>, reason: &str, message: String) {
        self.tell(pod, container, "Normal", reason, message);
    }

    pub(crate) fn warning(&self, pod: &Pod, container: Option<&str>, reason: &str, message: String) {
        self.tell(pod, container, "Warning", reason, message);
    }

    fn tell(&self, pod: &Pod, container: Option<&str>, kind: &str, reason: &str, message: String) {
        let now = self.clock.now();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", unique(now))),
                namespace: pod.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(name),
                namespace: pod.metadata.namespace.clone(),
                uid: pod.metadata.uid.clone(),
                resource_version: pod.metadata.resource_version.clone(),
                field_path: container.map(|container| format!("spec.containers{{{container}}}")),
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(EventSource {
                component: Some("kubelet".to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some("kubelet".to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        };
        if self.waiting.try_send(event).is_err() {
            debug!(reason, "too many events wait to be written");
        }
    }
}

/// A number that grows with time, and never comes twice.
fn unique(now: Timestamp) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
    let before = LAST.fetch_max(now, Ordering::Relaxed);
    if before < now { now } else { LAST.fetch_add(1, Ordering::Relaxed) + 1 }
}
