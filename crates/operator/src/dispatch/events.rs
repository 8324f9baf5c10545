//! Events about Workloads and MultiKueueClusters, told without anybody waiting for it.

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams};
use reconcile::{Clock, Tasks};
use tokio::sync::mpsc;
use tracing::debug;

/// Events wait here while the cluster is slow. What does not fit is dropped: nothing depends on them.
const WAITING: usize = 1024;
/// The longest note that an event may have (MK-EVT-01).
const LONGEST: usize = 1024;

/// Tells events.
#[derive(Clone)]
pub(super) struct Recorder {
    events: mpsc::Sender<Event>,
    clock: Clock,
}

/// Who tells.
pub(super) struct Told {
    /// The controller (MK-EVT-01).
    pub(super) by: &'static str,
    /// In a word.
    pub(super) reason: &'static str,
    /// In words.
    pub(super) note: String,
    /// Whether somebody should look.
    pub(super) warning: bool,
}

impl Recorder {
    pub(super) fn start(client: Client, clock: Clock, tasks: &mut Tasks) -> Recorder {
        let (events, mut waiting) = mpsc::channel::<Event>(WAITING);
        tasks.spawn("events", async move {
            while let Some(event) = waiting.recv().await {
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
                if let Err(error) = api.create(&PostParams::default(), &event).await {
                    debug!(error = %reconcile::chain(&error), "an event could not be told");
                }
            }
        });
        Recorder { events, clock }
    }

    pub(super) fn tell<K: Resource<DynamicType = ()>>(&self, about: &K, told: Told) {
        let (now, about_meta) = (self.clock.now(), about.meta());
        let name = about_meta.name.clone().unwrap_or_default();
        let namespace = about_meta.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(told.by.to_owned()),
            reporting_instance: Some(format!("{}-ferry", told.by)),
            action: Some(told.reason.to_owned()),
            reason: Some(told.reason.to_owned()),
            note: Some(truncated(told.note)),
            type_: Some(if told.warning { "Warning" } else { "Normal" }.to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(K::api_version(&()).into_owned()),
                kind: Some(K::kind(&()).into_owned()),
                name: about_meta.name.clone(),
                namespace: about_meta.namespace.clone(),
                uid: about_meta.uid.clone(),
                resource_version: about_meta.resource_version.clone(),
                ..ObjectReference::default()
            }),
            ..Event::default()
        };
        if self.events.try_send(event).is_err() {
            debug!(object = %name, reason = told.reason, "an event was dropped");
        }
    }
}

fn truncated(note: String) -> String {
    const DOTS: &str = " ...";
    if note.len() <= LONGEST {
        return note;
    }
    let end = (0..=LONGEST - DOTS.len()).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{DOTS}", &note[..end])
}
