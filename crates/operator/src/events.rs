//! Events: what is told about objects to whoever looks at them.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream::poll_fn};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event as Told},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams};
use reconcile::{Clock, Tasks};
use rules::workload::plan::Event;
use tokio::sync::mpsc;
use tracing::debug;

/// Events wait here while the cluster is slow. What does not fit is dropped: they are for the eye, and nothing depends
/// on them.
const WAITING: usize = 4096;
/// How many are told at once: fewer than there are writes that somebody waits for.
const AT_ONCE: usize = 4;

/// Tells events, without anybody waiting for it.
#[derive(Clone)]
pub(crate) struct Recorder {
    events: mpsc::Sender<Told>,
    clock: Clock,
}

impl Recorder {
    /// Starts to tell.
    pub(crate) fn start(client: Client, clock: Clock, tasks: &mut Tasks) -> Recorder {
        let (events, mut waiting) = mpsc::channel::<Told>(WAITING);
        tasks.spawn("events", async move {
            let next = poll_fn(|context| waiting.poll_recv(context));
            let tell = |event: Told| {
                let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
                let api: Api<Told> = Api::namespaced(client.clone(), namespace);
                async move {
                    if let Err(error) = api.create(&PostParams::default(), &event).await {
                        debug!(error = %reconcile::chain(&error), "an event could not be told");
                    }
                }
            };
            next.for_each_concurrent(AT_ONCE, tell).await;
        });
        Recorder { events, clock }
    }

    /// Tells something about an object.
    pub(crate) fn tell<K>(&self, about: &K, event: &Event)
    where
        K: Resource<DynamicType = ()>,
    {
        self.tell_of(K::api_version(&()).into_owned(), K::kind(&()).into_owned(), about.meta(), event);
    }

    /// Tells something about an object of which this much is known.
    pub(crate) fn tell_of(&self, api_version: String, kind: String, about: &ObjectMeta, event: &Event) {
        let now = self.clock.now();
        let name = about.name.clone().unwrap_or_default();
        // Cluster-scoped objects have their events where everybody looks.
        let namespace =
            about.namespace.clone().filter(|it| !it.is_empty()).unwrap_or_else(|| "default".into());
        let told = Told {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            reporting_controller: Some("kueue".to_owned()),
            reporting_instance: Some("kueue-controller-manager".to_owned()),
            action: Some(event.reason.clone()),
            reason: Some(event.reason.clone()),
            note: Some(event.message.clone()),
            type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
            regarding: Some(ObjectReference {
                api_version: Some(api_version),
                kind: Some(kind),
                name: about.name.clone(),
                namespace: about.namespace.clone(),
                uid: about.uid.clone(),
                resource_version: about.resource_version.clone(),
                ..ObjectReference::default()
            }),
            ..Told::default()
        };
        if self.events.try_send(told).is_err() {
            debug!(object = %name, reason = %event.reason, "an event was dropped");
        }
    }
}

/// Remembers what was told last about each object, so that the same is not told again with every look at it.
#[derive(Debug, Default)]
pub(crate) struct Once {
    last: BTreeMap<reconcile::Key, String>,
}

impl Once {
    /// Whether this is new.
    pub(crate) fn is_new(&mut self, key: &reconcile::Key, message: &str) -> bool {
        self.last.insert(key.clone(), message.to_owned()).is_none_or(|before| before != message)
    }

    /// Forgets what was told about an object that is gone.
    pub(crate) fn forget(&mut self, key: &reconcile::Key) {
        self.last.remove(key);
    }
}
