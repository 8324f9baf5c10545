//! Tells events, in the background: a controller never waits for one, and none is worth more than the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ObjectMeta, Patch};
use kube::{Client, Resource};
use reconcile::{Clock, Tasks, create_unread};
use rules::events::{Lately, News, Subject, Telling};
use serde_json::json;
use tokio::sync::mpsc;
use tracing::debug;

use crate::api;

/// Events that wait to be told; what comes when so many wait is not told.
const WAITING: usize = 4096;

/// Tells events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Recorder {
    clock: Clock,
    waiting: mpsc::Sender<Told>,
    lost: Arc<AtomicU64>,
}

struct Told {
    source: &'static str,
    about: ObjectReference,
    news: News,
    at: Timestamp,
}

impl Recorder {
    pub(crate) fn start(client: Client, clock: Clock, tasks: &mut Tasks) -> Self {
        let (waiting, told) = mpsc::channel(WAITING);
        tasks.spawn("events", write(client, told));
        Recorder { clock, waiting, lost: Arc::default() }
    }

    /// Tells that something happened to an object.
    pub(crate) fn tell<K: Resource<DynamicType = ()>>(
        &self,
        source: &'static str,
        about: &K,
        kind: &str,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.tell_of(source, about.object_ref(&()), kind, reason, message);
    }

    /// Tells that something happened to the object of a reference.
    pub(crate) fn tell_of(
        &self,
        source: &'static str,
        about: ObjectReference,
        kind: &str,
        reason: &str,
        message: impl Into<String>,
    ) {
        let news = News { kind: kind.to_owned(), reason: reason.to_owned(), message: message.into() };
        let told = Told { source, about, news, at: self.clock.now() };
        if self.waiting.try_send(told).is_err() {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            debug!(lost, "an event was not told: too many wait");
        }
    }
}

async fn write(client: Client, mut told: mpsc::Receiver<Told>) {
    let mut lately = Lately::default();
    while let Some(Told { source, about, news, at }) = told.recv().await {
        let subject = Subject::new(source, &about);
        // Unique among the events about one object: their times are, or they are the same event.
        let name = rules::events::name(about.name.as_deref().unwrap_or_default(), at.as_nanosecond());
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let post = api::post();
        let (kind, reason) = (news.kind.clone(), news.reason.clone());
        let new = |message: String, name: &str| Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: about.clone(),
            type_: Some(kind.clone()),
            reason: Some(reason.clone()),
            message: Some(message),
            source: Some(EventSource { component: Some(source.to_owned()), host: None }),
            reporting_component: Some(source.to_owned()),
            first_timestamp: Some(Time(at)),
            last_timestamp: Some(Time(at)),
            count: Some(1),
            ..Event::default()
        };
        let result = match lately.tell(&subject, news, &name, at) {
            Telling::Never => continue,
            Telling::New(message) => create_unread(&client, &namespace, &post, &new(message, &name)).await,
            Telling::Again { name, count, message, .. } => {
                let change = json!({"count": count, "lastTimestamp": Time(at), "message": &message});
                let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
                let again = events.patch(&name, &api::patch(), &Patch::Merge(change)).await;
                match again {
                    Err(error) if api::is_not_found(&error) => {
                        lately.forget(&name);
                        create_unread(&client, &namespace, &post, &new(message, &name)).await
                    }
                    other => other.map(drop),
                }
            }
        };
        if let Err(error) = result {
            let object = subject.object;
            debug!(%object, %reason, error = reconcile::chain(&error), "an event was not written");
        }
    }
}
