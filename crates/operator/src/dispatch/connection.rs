//! One worker cluster, kept up: connected, asked again and again whether it is there, and connected anew when it was not.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ListParams, WatchParams},
    client::Body,
    core::Status,
};
use reconcile::{Key, Tasks};
use rules::dispatch::{ClusterName, Link, ORIGIN, held, held_by_another, observed::leaves_within};
use serde_json::Value;
use tokio::sync::Notify;
use tracing::{info, warn};
use types::kueue::Workload;

use super::{
    Shared,
    book::Book,
    call::{Error, within},
    worker::Worker,
};

/// What a cluster's condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) active: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A worker cluster.
pub(super) struct Connection {
    pub(super) name: ClusterName,
    pub(super) book: Arc<Book>,
    /// Told when it may be another cluster that answers now.
    pub(super) doubted: Notify,
    state: Mutex<State>,
}

struct State {
    link: Link,
    /// Since when it is out of reach, as somebody before us has written down.
    lost_before: Option<Timestamp>,
    report: Option<Report>,
    worker: Option<Arc<Worker>>,
    identity: Option<String>,
}

impl Connection {
    pub(super) fn new(name: ClusterName, lost_before: Option<Timestamp>, shared: &Shared) -> Connection {
        let book = Arc::new(Book::new(shared.settings.doubt));
        let link = Link::Connecting;
        let state = State { link, lost_before, report: None, worker: None, identity: None };
        Connection { name, book, doubted: Notify::new(), state: Mutex::new(state) }
    }

    pub(super) fn link(&self) -> Link {
        self.state().link
    }

    pub(super) fn report(&self) -> Option<Report> {
        self.state().report.clone()
    }

    /// What it holds, as last seen.
    pub(super) fn worker(&self) -> Option<Arc<Worker>> {
        self.state().worker.clone()
    }

    /// What tells it from other clusters that may come to have its name, if we may know.
    pub(super) fn identity(&self) -> Option<String> {
        self.state().identity.clone()
    }

    /// It cannot be reached. The time counts from the first of such failures in a row, whoever noticed it.
    pub(super) fn failed(&self, reason: &'static str, message: String, shared: &Shared) {
        let report = Report { active: false, reason, message };
        let mut state = self.state();
        let is_news = state.report.as_ref() != Some(&report);
        let was_lost = matches!(state.link, Link::Lost { .. });
        if !was_lost {
            let since = state.lost_before.take().unwrap_or_else(|| shared.clock.now());
            state.link = Link::Lost { since, given_up: false };
        }
        state.report = Some(report);
        drop(state);
        shared.metrics.worker(self.name.as_str(), false);
        if is_news {
            shared.clusters.changed.add(self.name.to_string());
        }
        if !was_lost {
            shared.wake_all();
        }
    }

    fn connected(&self, worker: Arc<Worker>, shared: &Shared) {
        let known = shared.workloads.all();
        let known = known.iter().map(|workload| {
            let key = Key::of(&**workload);
            // A mirror that is there has its pods with it.
            let is_missing = held(workload).as_ref() == Some(&self.name) && !worker.has_mirror(&key);
            (key, leaves_within(workload).filter(|_| is_missing))
        });
        self.book.opened(known, shared.clock.now());
        let mut state = self.state();
        state.link = Link::Connected;
        state.lost_before = None;
        state.report = Some(Report { active: true, reason: "Active", message: "Connected".to_owned() });
        state.worker = Some(worker);
        drop(state);
        shared.metrics.worker(self.name.as_str(), true);
        shared.clusters.changed.add(self.name.to_string());
        // Everything that waits for a cluster, and everything that the cluster holds (MK-TRG-01).
        shared.wake_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every holder makes one change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a cluster connected, for as long as this runs.
pub(super) async fn keep_up(shared: Arc<Shared>, connection: Arc<Connection>, config: Value) {
    shared.ready().await;
    let mut failures = 0_u32;
    loop {
        // What one attempt started ends with it.
        let mut tasks = Tasks::new();
        match connect(&shared, &connection, &config, &mut tasks).await {
            Ok(worker) => {
                info!(cluster = %connection.name, "connected");
                failures = 0;
                connection.connected(Arc::clone(&worker), &shared);
                worker.wake_held(&shared);
                let lost = listen(&shared, &connection, &worker).await;
                warn!(cluster = %connection.name, error = %reconcile::chain(&lost), "lost");
                connection.failed(reason(&lost), lost.said(), &shared);
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                connection.failed(reason(&error), error.said(), &shared);
            }
        }
        drop(tasks);
        let object = shared.objects.get(&Key::new("", connection.name.as_str()));
        let uid = object.and_then(|object| object.metadata.uid.clone()).unwrap_or_default();
        tokio::time::sleep(spread(back_off(shared.settings.heartbeat, failures), &uid, failures)).await;
    }
}

fn reason(error: &Error) -> &'static str {
    match error {
        Error::AnotherCluster { .. } => "AnotherCluster",
        Error::Call { .. } | Error::Silence { .. } => "ClientConnectionFailed",
    }
}

/// Takes up to a quarter off a wait, and another part for everybody: the managers of a worker that is back do not come all
/// at once. What comes of it is no chance: the same object waits the same.
fn spread(wait: Duration, uid: &str, failures: u32) -> Duration {
    let mut hasher = DefaultHasher::new();
    (uid, failures).hash(&mut hasher);
    let part = u32::try_from(hasher.finish() % 256).unwrap_or_default();
    wait.saturating_sub(wait / 1024 * part)
}

/// A cluster that is back is seen within a few heartbeats, however long it was away.
fn back_off(heartbeat: Duration, failures: u32) -> Duration {
    (heartbeat / 5).saturating_mul(2_u32.saturating_pow(failures.min(5))).min(heartbeat.saturating_mul(6))
}

async fn connect(
    shared: &Arc<Shared>,
    connection: &Arc<Connection>,
    config: &Value,
    tasks: &mut Tasks,
) -> Result<Arc<Worker>, Error> {
    let (deadline, name) = (shared.settings.deadline, connection.name.as_str());
    let client = within(deadline, "connect", name, (shared.settings.connect)(config.clone())).await?;
    ask(shared, name, &client).await?;
    ask_to_watch(shared, name, &client).await?;
    let identity = identity(shared, name, &client).await?;
    let all = shared.workloads.all();
    let records = all.iter().map(|workload| &**workload);
    // Who does not say which cluster it is may be any.
    let now = identity.as_deref().unwrap_or_default();
    if let Some(before) = held_by_another(records, &connection.name, now) {
        return Err(another(name, before, identity.as_deref()));
    }
    connection.state().identity = identity;
    let worker = Worker::start(shared, connection, client, tasks);
    let seen = async {
        worker.workloads.ready().await;
        Ok(())
    };
    within(deadline, "see what there is", name, seen).await?;
    // Most often all kinds come at about the same time. Jobs of one that is late are left alone until it is seen.
    let _ = tokio::time::timeout(deadline / 4, worker.kinds_settled()).await;
    Ok(worker)
}

/// Asks a cluster whether it is there, and may be used.
async fn ask(shared: &Shared, name: &str, client: &kube::Client) -> Result<(), Error> {
    let api: Api<Workload> = Api::all(client.clone());
    let params = ListParams::default().labels(&format!("{ORIGIN}={}", shared.settings.origin)).limit(1);
    within(shared.settings.deadline, "list Workloads", name, api.list_metadata(&params)).await.map(|_| ())
}

/// Asks a cluster whether it may be watched: what it only lists is soon no longer so (MK-CONN-13).
async fn ask_to_watch(shared: &Shared, name: &str, client: &kube::Client) -> Result<(), Error> {
    let api: Api<Workload> = Api::all(client.clone());
    let params = WatchParams::default().labels(&format!("{ORIGIN}={}", shared.settings.origin));
    let opened = async {
        let request = kube::core::Request::new(api.resource_url()).watch(&params, "0");
        let answer = client.send(request.map_err(kube::Error::BuildRequest)?.map(Body::from)).await?;
        if answer.status().is_success() {
            return Ok(());
        }
        let code = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await?;
        let said = serde_json::from_slice::<Status>(&body).unwrap_or_default();
        Err(kube::Error::Api(Status { code, ..said }.boxed()))
    };
    within(shared.settings.deadline, "watch Workloads", name, opened).await
}

/// What tells a cluster from all others: the uid of a namespace that lives as long as it does. `None` if we may not know.
async fn identity(shared: &Shared, name: &str, client: &kube::Client) -> Result<Option<String>, Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let call = api.get_metadata("kube-system");
    match within(shared.settings.deadline, "ask which cluster it is", name, call).await {
        Ok(namespace) => Ok(namespace.metadata.uid),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the cluster that answers is the one that did when it was connected. A name may come to mean another one at any
/// time, and whatever is not there then is not gone from the first.
pub(super) async fn is_still_itself(
    shared: &Shared,
    connection: &Connection,
    client: &kube::Client,
) -> Result<(), Error> {
    let Some(before) = connection.identity() else { return Ok(()) };
    let now = identity(shared, connection.name.as_str(), client).await?;
    if now.as_deref() == Some(before.as_str()) {
        return Ok(());
    }
    connection.doubted.notify_one();
    Err(another(connection.name.as_str(), &before, now.as_deref()))
}

fn another(cluster: &str, before: &str, now: Option<&str>) -> Error {
    let now = now.map_or_else(|| "that does not say which it is".to_owned(), str::to_owned);
    Error::AnotherCluster { cluster: cluster.to_owned(), before: before.to_owned(), now }
}

/// What a watch told that may not be had any more is not what there is.
fn is_watched(connection: &Connection, worker: &Worker) -> Result<(), Error> {
    let Some(refusal) = worker.workloads.refusal() else { return Ok(()) };
    let (cluster, source) = (connection.name.to_string(), kube::Error::Api(refusal.boxed()));
    Err(Error::Call { doing: "watch Workloads", cluster, source })
}

/// Returns when the cluster no longer answers, or another one does.
async fn listen(shared: &Shared, connection: &Connection, worker: &Worker) -> Error {
    loop {
        tokio::select! {
            () = connection.doubted.notified() => {}
            () = tokio::time::sleep(shared.settings.heartbeat) => {}
        }
        let asked = async {
            ask(shared, connection.name.as_str(), &worker.client).await?;
            is_still_itself(shared, connection, &worker.client).await?;
            is_watched(connection, worker)
        };
        if let Err(error) = asked.await {
            return error;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MK-CONN-13, MK-CONN-14: Kueue waits 5 seconds, then twice as long each time, up to more than five minutes; and as long again
    /// before it starts with a worker that has long been back. We ask at least twice a minute.
    #[test]
    fn mk_conn_14_waits_double_and_stay_short() {
        let waits: Vec<u64> =
            (0..8).map(|failures| back_off(Duration::from_secs(5), failures).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(back_off(Duration::from_secs(5), u32::MAX), Duration::from_secs(30));
    }

    #[test]
    fn managers_of_one_worker_do_not_come_at_once() {
        let wait = Duration::from_secs(30);
        let waits: std::collections::BTreeSet<Duration> =
            (0..20).map(|manager| spread(wait, &format!("uid-{manager}"), 5)).collect();
        assert!(waits.len() > 15, "{waits:?}");
        assert!(waits.iter().all(|it| *it <= wait && *it > wait * 3 / 4), "{waits:?}");
        assert_eq!(spread(wait, "uid", 5), spread(wait, "uid", 5));
    }
}
