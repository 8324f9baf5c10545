//! Events: what is told about objects to whoever looks at them.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event as Told},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Client, Resource, api::PostParams};
use reconcile::{Clock, Tasks};
use rules::workload::plan::Event;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::metrics::Metrics;

/// Events wait here while the cluster is slow or away: all that there are to 8,000 Jobs from their submission to their end.
/// Kueue's recorder keeps any number, so that what is dropped here, and counted, is what there is no memory for: they are
/// for the eye, and nothing depends on them.
const WAITING: usize = 65_536;
/// How many are told at once: fewer than there are writes that somebody waits for.
const AT_ONCE: usize = 4;
/// How many are told at once while more than [`BUSY`] wait: a cluster that takes its time for each takes many together.
const AT_ONCE_WHILE_BUSY: usize = 16;
/// How many may wait before they count as many.
const BUSY: usize = 1_024;
/// How often an event is tried on a cluster that does not answer, and how long after each time, as Kueue's recorder does.
/// What a cluster refuses is not tried again.
const TRIES: u32 = 12;
const AGAIN: Duration = Duration::from_secs(10);
/// One of so many that are dropped in a row is worth a warning.
const WORTH_A_WORD: u64 = 1_000;

/// Who tells what the admission loop decides, and what becomes of Workloads, by Kueue's names.
pub(crate) const ADMISSION: &str = "kueue-admission";
pub(crate) const WORKLOADS: &str = "kueue-workload-controller";

/// Tells events, without anybody waiting for it.
#[derive(Clone)]
pub(crate) struct Recorder {
    events: mpsc::Sender<Box<Waiting>>,
    clock: Clock,
    metrics: Arc<Metrics>,
    dropped: Arc<AtomicU64>,
}

/// An event that is to be told, with no more than that takes.
struct Waiting {
    by: Cow<'static, str>,
    about: About,
    event: Event,
    at: Timestamp,
}

/// What an event is about.
pub(crate) struct About {
    api_version: Cow<'static, str>,
    kind: Cow<'static, str>,
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl About {
    /// An object of which this much is known.
    pub(crate) fn new(
        api_version: impl Into<Cow<'static, str>>,
        kind: impl Into<Cow<'static, str>>,
        metadata: &ObjectMeta,
    ) -> About {
        About {
            api_version: api_version.into(),
            kind: kind.into(),
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone().filter(|it| !it.is_empty()),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }
}

impl Recorder {
    /// Starts to tell.
    pub(crate) fn start(client: Client, clock: Clock, metrics: Arc<Metrics>, tasks: &mut Tasks) -> Recorder {
        let (events, waiting) = mpsc::channel::<Box<Waiting>>(WAITING);
        tasks.spawn("events", run(client, waiting, Arc::clone(&metrics), AGAIN));
        Recorder { events, clock, metrics, dropped: Arc::default() }
    }

    /// Tells something about an object, under the name of a controller.
    pub(crate) fn tell<K>(&self, by: &'static str, about: &K, event: &Event)
    where
        K: Resource<DynamicType = ()>,
    {
        self.tell_of(by, About::new(K::api_version(&()), K::kind(&()), about.meta()), event.clone());
    }

    /// The same about an object of which this much is known.
    pub(crate) fn tell_of(&self, by: impl Into<Cow<'static, str>>, about: About, event: Event) {
        let waiting = Waiting { by: by.into(), about, event, at: self.clock.now() };
        let Err(lost) = self.events.try_send(Box::new(waiting)) else { return };
        let (mpsc::error::TrySendError::Full(lost) | mpsc::error::TrySendError::Closed(lost)) = lost;
        self.metrics.event_lost("dropped");
        let before = self.dropped.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(WORTH_A_WORD) {
            warn!(dropped = before + 1, "events are dropped, since the cluster takes them too slowly");
        }
        debug!(object = ?lost.about.name, reason = %lost.event.reason, "an event was dropped");
    }
}

/// Tells what waits, in its order but not one by one.
async fn run(
    client: Client,
    mut waiting: mpsc::Receiver<Box<Waiting>>,
    metrics: Arc<Metrics>,
    again: Duration,
) {
    let mut telling = FuturesUnordered::new();
    loop {
        let at_once = if waiting.len() > BUSY { AT_ONCE_WHILE_BUSY } else { AT_ONCE };
        let more = telling.len() < at_once;
        tokio::select! {
            Some(()) = telling.next() => {}
            next = waiting.recv(), if more => {
                let Some(next) = next else { return };
                telling.push(tell(client.clone(), told(*next), &metrics, again));
            }
        }
    }
}

/// Tells one event, if the cluster takes it.
async fn tell(client: Client, event: Told, metrics: &Metrics, again: Duration) {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let params = PostParams::default();
    for tries in 1..=TRIES {
        let told = reconcile::create_unread(&client, namespace, &params, &event);
        let Err(error) = told.await else { return };
        let is_refused = matches!(error, kube::Error::Api(_));
        // An answer that was lost on its way may have been a yes.
        if tries > 1 && is_already_there(&error) {
            return;
        }
        if is_refused || tries == TRIES {
            metrics.event_lost(if is_refused { "refused" } else { "unanswered" });
            debug!(error = %reconcile::chain(&error), "an event could not be told");
            return;
        }
        tokio::time::sleep(again).await;
    }
}

fn is_already_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// The event as it is written.
fn told(waiting: Waiting) -> Told {
    let Waiting { by, about, event, at } = waiting;
    // Cluster-scoped objects have their events where everybody looks.
    let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    Told {
        metadata: ObjectMeta {
            name: Some(rules::events::name(about.name.as_deref().unwrap_or_default(), at.as_nanosecond())),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        reporting_instance: Some(format!("{by}-ferry")),
        reporting_controller: Some(by.into_owned()),
        action: Some(event.reason.clone()),
        reason: Some(event.reason),
        note: Some(event.message),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(about.api_version.into_owned()),
            kind: Some(about.kind.into_owned()),
            name: about.name,
            namespace: about.namespace,
            uid: about.uid,
            resource_version: about.resource_version,
            ..ObjectReference::default()
        }),
        ..Told::default()
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

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        future::{Pending, pending},
        io,
        sync::{Mutex, atomic::AtomicUsize},
        task::{Context, Poll},
    };

    use http::{Request, Response};
    use k8s_openapi::api::batch::v1::Job;
    use kube::client::Body;

    use super::*;

    /// A cluster that does not answer.
    #[derive(Clone)]
    struct Nobody;

    impl tower_service::Service<Request<Body>> for Nobody {
        type Response = Response<Body>;
        type Error = io::Error;
        type Future = Pending<io::Result<Response<Body>>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            pending()
        }
    }

    /// A cluster that does not answer the first time, takes its time, and remembers what it was told.
    #[derive(Clone, Default)]
    struct Slow {
        told: Arc<Mutex<BTreeSet<String>>>,
        calls: Arc<AtomicUsize>,
        at_once: Arc<AtomicUsize>,
        most_at_once: Arc<AtomicUsize>,
    }

    impl tower_service::Service<Request<Body>> for Slow {
        type Response = Response<Body>;
        type Error = io::Error;
        type Future = futures::future::BoxFuture<'static, io::Result<Response<Body>>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let this = self.clone();
            Box::pin(async move {
                let bytes = request.into_body().collect_bytes().await.map_err(io::Error::other)?;
                let event: Told = serde_json::from_slice(&bytes)?;
                this.told.lock().expect("nobody panics here").insert(event.note.unwrap_or_default());
                let now = this.at_once.fetch_add(1, Ordering::Relaxed) + 1;
                this.most_at_once.fetch_max(now, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
                this.at_once.fetch_sub(1, Ordering::Relaxed);
                if this.calls.fetch_add(1, Ordering::Relaxed) < AT_ONCE {
                    return Err(io::Error::other("the answer is lost"));
                }
                Ok(Response::new(Body::from(bytes.to_vec())))
            })
        }
    }

    /// The events of thousands of Jobs are told on a cluster that takes its time, those included whose answer was lost; few at
    /// once while few wait.
    #[tokio::test]
    async fn all_are_told_on_a_slow_cluster() {
        let (metrics, mut tasks, slow) = (Arc::<Metrics>::default(), Tasks::new(), Slow::default());
        let client = Client::new(slow.clone(), "default");
        let (events, waiting) = mpsc::channel(WAITING);
        let recorder = Recorder {
            events,
            clock: Clock::system(),
            metrics: Arc::clone(&metrics),
            dropped: Arc::default(),
        };
        let again = Duration::from_millis(1);
        tasks.spawn("events", run(client, waiting, Arc::clone(&metrics), again));
        let told = || slow.told.lock().expect("nobody panics here").len();
        let job = Job::default();
        let tell = |number: usize| {
            recorder.tell(ADMISSION, &job, &Event::normal("Started", &number.to_string()));
        };
        let all = 2 * BUSY + 100;
        for (upto, at_once) in [(100, AT_ONCE), (all, AT_ONCE_WHILE_BUSY)] {
            (told()..upto).for_each(tell);
            // Those whose answer was lost are told twice.
            while told() < upto || slow.calls.load(Ordering::Relaxed) < upto + AT_ONCE {
                tokio::time::sleep(again).await;
            }
            assert_eq!(slow.most_at_once.load(Ordering::Relaxed), at_once);
        }
        assert_eq!(slow.calls.load(Ordering::Relaxed), all + AT_ONCE, "and no others");
        assert!(!metrics.text("leader").contains("ferry_events_lost_total"));
        tasks.stop().await;
    }

    /// 10,000 Jobs that come at once and end at once, with five events each, on a cluster that takes none meanwhile.
    #[tokio::test]
    async fn what_does_not_fit_is_counted() {
        let (metrics, mut tasks) = (Arc::<Metrics>::default(), Tasks::new());
        let client = Client::new(Nobody, "default");
        let recorder = Recorder::start(client, Clock::system(), Arc::clone(&metrics), &mut tasks);
        let (job, event) = (Job::default(), Event::normal("Started", "it started"));
        for _ in 0..5 * 10_000 {
            recorder.tell(ADMISSION, &job, &event);
        }
        assert!(!metrics.text("leader").contains("ferry_events_lost_total"));
        for _ in 5 * 10_000..WAITING + 3 {
            recorder.tell(ADMISSION, &job, &event);
        }
        let counted = r#"ferry_events_lost_total{why="dropped",replica_role="leader"} 3"#;
        assert!(metrics.text("leader").contains(counted), "{}", metrics.text("leader"));
        tasks.stop().await;
    }
}
