//! The way to a simulated cluster: requests and answers take their time, get lost, arrive twice, arrive late.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tower_service::Service;

use super::{
    memory::{Event, JOBS, Memory, PODS, Place, Refused, written},
    random::Random,
};

/// The answer's body.
type Stream = UnsyncBoxBody<Bytes, Infallible>;

/// How much goes wrong, in a thousand requests of each kind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    /// Requests that never arrive.
    pub(super) lost: u64,
    /// Requests whose answer never arrives.
    pub(super) unheard: u64,
    /// Requests that arrive twice.
    pub(super) twice: u64,
    /// Requests that arrive when nobody waits for the answer any more.
    pub(super) late: u64,
    /// Watches that end after some event.
    pub(super) ended: u64,
    /// Events that keep a watch waiting, while requests are answered.
    pub(super) stalled: u64,
    /// Where it hurts most: jobs that are created late or without an answer, and news of new jobs that are kept back.
    pub(super) aimed: u64,
    /// Of what is lost or unheard, what nobody is told of; the rest is a broken connection.
    pub(super) silent: u64,
}

/// The connection broke.
#[derive(Debug, thiserror::Error)]
#[error("connection reset by peer")]
pub(super) struct Broken;

/// A client gives a connection up on which it has heard nothing for so long. That is for watches; whoever writes has to
/// have a deadline, and without one it waits here for ever.
const READ_TIMEOUT: Duration = Duration::from_secs(295);

/// A simulated cluster, and the way to it.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) memory: Arc<Mutex<Memory>>,
    random: Arc<Mutex<Random>>,
    weather: Arc<Mutex<Weather>>,
    frozen: Arc<Frozen>,
    /// What the workers' players count as pods, asked when a Job is deleted.
    pods: Arc<dyn Fn(&Place) -> bool + Send + Sync>,
}

/// Whether a cluster is frozen. Those that wait for it are woken in the order in which they came.
#[derive(Default)]
struct Frozen {
    is: AtomicBool,
    thaws: Notify,
}

impl Frozen {
    async fn thawed(&self) {
        let thaws = self.thaws.notified();
        if self.is.load(Ordering::SeqCst) {
            thaws.await;
        }
    }
}

impl Way {
    pub(super) fn new(
        memory: Arc<Mutex<Memory>>,
        random: Random,
        pods: Arc<dyn Fn(&Place) -> bool + Send + Sync>,
    ) -> Way {
        let weather = Arc::new(Mutex::new(Weather::default()));
        Way { memory, random: Arc::new(Mutex::new(random)), weather, frozen: Arc::default(), pods }
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub(super) fn set_weather(&self, weather: Weather) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
    }

    /// A frozen cluster takes requests and does nothing about them until it is thawed; then its watches have ended.
    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.is.store(frozen, Ordering::SeqCst);
        if !frozen {
            self.memory().end_watches();
            self.frozen.thaws.notify_waiters();
        }
    }

    pub(super) fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance<T>(&self, draw: impl FnOnce(&mut Random, Weather) -> T) -> T {
        let weather = *self.weather.lock().unwrap_or_else(PoisonError::into_inner);
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner), weather)
    }

    async fn carry(self, request: Request<Body>) -> Result<Response<Stream>, Broken> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let asked = Arc::new(Asked::of(&head.method, &head.uri.to_string(), &head.headers, &body));
        let fate = self.chance(|random, weather| Fate::draw(random, weather, &asked));
        if fate.lost {
            return fate.without_answer().await;
        }
        // Whoever asks may go away; what was sent arrives and is carried out nevertheless.
        let (answer, heard) = tokio::sync::oneshot::channel();
        let way = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(fate.there).await;
            way.frozen.thawed().await;
            let first = way.answer(&asked);
            if fate.twice {
                tokio::time::sleep(fate.back).await;
                drop(way.answer(&asked));
            }
            // Nobody may be there to hear it.
            let _ = answer.send(first);
        });
        if fate.heard != Heard::Answer {
            return fate.without_answer().await;
        }
        let Ok(answer) = heard.await else { return Err(Broken) };
        tokio::time::sleep(fate.back).await;
        Ok(answer)
    }

    fn answer(&self, asked: &Asked) -> Response<Stream> {
        if asked.watches {
            return self.watch(asked);
        }
        // An event is for the eye.
        if asked.resource.ends_with("/events") {
            return reply(201, &asked.body);
        }
        let has_pods = asked.place().is_some_and(|place| (self.pods)(&place));
        // The pods of a Job are no objects here, and are told of nevertheless.
        let runs = asked.job().map(|job| (self.pods)(&job));
        let mut memory = self.memory();
        let answer = match (asked.method.as_str(), asked.place()) {
            ("GET", None) if let Some(runs) = runs => {
                let pod = json!({"metadata": {"name": "pod", "namespace": asked.namespace}});
                let pods = if runs { vec![pod] } else { Vec::new() };
                Ok(Arc::new(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": pods})))
            }
            ("GET", None) => {
                Ok(Arc::new(memory.list(&asked.resource, asked.namespace.as_deref(), &asked.labels)))
            }
            ("GET", Some(place)) => {
                memory.get(&place).cloned().ok_or((404, "NotFound", "not found".to_owned()))
            }
            ("POST", _) => {
                let name = asked.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let place = (asked.resource.clone(), asked.namespace.clone().unwrap_or_default(), name);
                memory.create(place, asked.body.clone())
            }
            ("PATCH" | "PUT", Some(place)) => {
                memory.patch(&place, &asked.body, asked.status, asked.apply.as_deref())
            }
            ("DELETE", Some(place)) => memory.delete(&place, &asked.body, has_pods),
            (method, _) => Err((405, "MethodNotAllowed", method.to_owned())),
        };
        match answer {
            Ok(object) => reply(200, &object),
            Err(refused) => refuse(&refused),
        }
    }

    fn watch(&self, asked: &Asked) -> Response<Stream> {
        let events = self.memory().watch(
            &asked.resource,
            asked.namespace.as_deref(),
            asked.labels.clone(),
            asked.after,
        );
        let way = self.clone();
        let state = Some((events, way));
        let lines = stream::unfold(state, |state| async move {
            let (mut events, way): (mpsc::UnboundedReceiver<Arc<Event>>, Way) = state?;
            let event = events.recv().await?;
            let (wait, ends) = way.chance(|random, weather| {
                let aimed = event.is_new_job() && random.happens(weather.aimed);
                let stalls = aimed || random.happens(weather.stalled);
                let wait = if stalls { Duration::from_millis(random.below(45_000)) } else { delay(random) };
                (wait, random.happens(weather.ended))
            });
            tokio::time::sleep(wait).await;
            way.frozen.thawed().await;
            Some((Ok(Frame::data(event.line())), (!ends).then_some((events, way))))
        });
        let body = StreamBody::new(lines.boxed()).boxed_unsync();
        Response::builder()
            .status(200)
            .header("content-type", "application/json")
            .body(body)
            .expect("it is well formed")
    }
}

impl Service<Request<Body>> for Way {
    type Response = Response<Stream>;
    type Error = Broken;
    type Future = BoxFuture<'static, Result<Self::Response, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().carry(request))
    }
}

/// What becomes of a request.
struct Fate {
    there: Duration,
    back: Duration,
    lost: bool,
    twice: bool,
    writes: bool,
    heard: Heard,
}

/// What somebody hears who sent a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    Answer,
    Break,
    Nothing,
}

impl Fate {
    fn draw(random: &mut Random, weather: Weather, asked: &Asked) -> Fate {
        let writes = asked.method != Method::GET;
        let starts_a_job = asked.method == Method::POST && [JOBS, PODS].contains(&asked.resource.as_str());
        let aimed = starts_a_job && random.happens(weather.aimed);
        let is_late = aimed && random.happens(500);
        let late = is_late || writes && random.happens(weather.late);
        let there = if late { Duration::from_millis(10_000 + random.below(40_000)) } else { delay(random) };
        let back = delay(random);
        let lost = random.happens(weather.lost) && !aimed;
        let unheard = aimed || random.happens(weather.unheard);
        let twice = writes && random.happens(weather.twice);
        let heard = match (lost || unheard, aimed || random.happens(weather.silent)) {
            (false, _) => Heard::Answer,
            (true, false) => Heard::Break,
            (true, true) => Heard::Nothing,
        };
        Fate { there, back, lost, twice, writes, heard }
    }

    /// What somebody notices who gets no answer.
    async fn without_answer<T>(&self) -> Result<T, Broken> {
        match self.heard {
            Heard::Nothing if self.writes => futures::future::pending().await,
            Heard::Nothing => tokio::time::sleep(READ_TIMEOUT).await,
            Heard::Answer | Heard::Break => tokio::time::sleep(self.back).await,
        }
        Err(Broken)
    }
}

/// Mostly a few milliseconds, sometimes half a second.
fn delay(random: &mut Random) -> Duration {
    let most = if random.happens(100) { 500 } else { 8 };
    Duration::from_millis(random.below(most))
}

/// A request, understood.
struct Asked {
    method: Method,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
    status: bool,
    watches: bool,
    after: u64,
    labels: Vec<(String, String)>,
    apply: Option<String>,
    body: Value,
}

impl Asked {
    fn of(method: &Method, uri: &str, headers: &http::HeaderMap, body: &[u8]) -> Asked {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let path = path.split_once("://").map_or(path, |(_, rest)| &rest[rest.find('/').unwrap_or(0)..]);
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let group = if parts.first() == Some(&"apis") { parts.get(1).copied().unwrap_or("") } else { "" };
        parts.drain(..parts.len().min(if group.is_empty() { 2 } else { 3 }));
        let namespace =
            (parts.first() == Some(&"namespaces") && parts.len() > 2).then(|| parts[1].to_owned());
        if namespace.is_some() {
            parts.drain(..2);
        }
        let resource = format!("{group}/{}", parts.first().copied().unwrap_or(""));
        let parameter = |name: &str| {
            let found =
                query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
            found.map(|(_, value)| {
                percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
            })
        };
        let labels = parameter("labelSelector").unwrap_or_default();
        let labels = labels.split(',').filter_map(|pair| pair.split_once('='));
        let applies =
            headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply"));
        Asked {
            method: method.clone(),
            resource,
            namespace,
            name: parts.get(1).map(|name| (*name).to_owned()),
            status: parts.get(2) == Some(&"status"),
            watches: parameter("watch").as_deref() == Some("true"),
            after: parameter("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0),
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.trim_start_matches('=').to_owned()))
                .collect(),
            apply: applies.then(|| parameter("fieldManager").unwrap_or_default()),
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
        }
    }

    /// The Job whose pods are asked for.
    fn job(&self) -> Option<Place> {
        let (_, name) = self.labels.iter().find(|(key, _)| key == "batch.kubernetes.io/job-name")?;
        let namespace = self.namespace.clone().unwrap_or_default();
        (self.resource == PODS).then(|| (JOBS.to_owned(), namespace, name.clone()))
    }

    fn place(&self) -> Option<Place> {
        Some((self.resource.clone(), self.namespace.clone().unwrap_or_default(), self.name.clone()?))
    }
}

fn reply(code: u16, body: &Value) -> Response<Stream> {
    let body = Full::new(Bytes::from(written(body))).boxed_unsync();
    let code = StatusCode::from_u16(code).expect("codes are written here");
    Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body)
        .expect("it is well formed")
}

fn refuse((code, reason, message): &Refused) -> Response<Stream> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    reply(*code, &status)
}
