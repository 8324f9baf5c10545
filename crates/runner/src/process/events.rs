//! Events about pods: what a person would like to know of what the node does.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use reconcile::{Clock, Tasks};
use rules::events::{Lately, News, Subject, Telling};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::debug;

/// Events that wait to be written. When there are more, the newest are not written: they are a courtesy.
const WAITING: usize = 1024;
/// Who tells them: what would be a kubelet.
const SOURCE: &str = "kubelet";

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
            let mut lately = Lately::default();
            while let Some(event) = waiting.recv().await {
                if let Err(error) = write(&client, &mut lately, event).await {
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
                name: Some(rules::events::name(&name, unique(now).into())),
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
            source: Some(EventSource { component: Some(SOURCE.to_owned()), host: Some(self.node.clone()) }),
            reporting_component: Some(SOURCE.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        };
        if self.waiting.try_send(event).is_err() {
            debug!(reason, "too many events wait to be written");
        }
    }
}

/// Writes an event, or adds to one that says the same; or neither, if too much was said of one object lately.
async fn write(client: &Client, lately: &mut Lately, mut event: Event) -> kube::Result<()> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let subject = Subject::new(SOURCE, &event.involved_object);
    let (kind, reason) = (text(&event.type_), text(&event.reason));
    let news = News { kind, reason, message: text(&event.message) };
    let Some(at) = event.last_timestamp.clone() else { return Ok(()) };
    let api: Api<Event> = Api::namespaced(client.clone(), &text(&event.metadata.namespace));
    match lately.tell(&subject, news, &text(&event.metadata.name), at.0) {
        Telling::Never => return Ok(()),
        Telling::New(message) => event.message = Some(message),
        Telling::Again { name, count, message, .. } => {
            let change = json!({ "count": count, "lastTimestamp": at, "message": &message });
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await {
                // Events go after some time; then it is told anew.
                Err(kube::Error::Api(status)) if status.is_not_found() => lately.forget(&name),
                answer => return answer.map(drop),
            }
            event.message = Some(message);
        }
    }
    api.create(&PostParams::default(), &event).await.map(drop)
}

/// A number that grows with time, and never comes twice.
fn unique(now: Timestamp) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = u64::try_from(now.as_nanosecond()).unwrap_or_default();
    let before = LAST.fetch_max(now, Ordering::Relaxed);
    if before < now { now } else { LAST.fetch_add(1, Ordering::Relaxed) + 1 }
}
