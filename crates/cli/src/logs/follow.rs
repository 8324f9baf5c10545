//! Logs as they are written: of all pods of a Job, those to come included, until the Job has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, ResourceExt as _};
use reconcile::{Cache, Tasks};
use tokio::sync::mpsc;

use super::cursor::Cursor;
use super::{Extent, Read, What, next_line};
use crate::connect::Manager;
use crate::failure::{self, Code};
use crate::live::Live;
use crate::output;
use crate::pods::{self, Place};
use crate::view::{Status, View};

/// How long pods of a Job that has ended may still have something to say.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How long to wait before a log that broke off is asked for again.
const AGAIN: Duration = Duration::from_secs(1);
/// How many lines wait to be printed before who reads them has to wait.
const LINES: usize = 1024;

/// Prints what the pods of a Job write, until it has ended or is gone.
pub(crate) async fn follow(manager: &Manager, view: &View, what: &What) -> anyhow::Result<()> {
    let live = Live::start(&manager.client, Some(&view.namespace)).await?;
    let (tell, mut lines) = mpsc::channel(LINES);
    let mut sources: BTreeMap<Option<String>, Source> = BTreeMap::new();
    let mut last = None;
    loop {
        let now = live.by_uid(&view.uid).map(|found| found.view);
        last = now.clone().or(last);
        if let Some(now) = &now
            && has_pods(now)
            && !sources.contains_key(&now.cluster)
        {
            let place = pods::place(manager, now).await?;
            expect_pods(&place, now).await?;
            sources.insert(now.cluster.clone(), Source::start(place, now, what, tell.clone()));
        }
        if now.is_none_or(|now| now.status.has_ended()) {
            break;
        }
        tokio::select! {
            biased;
            Some(line) = lines.recv() => output::line(line?)?,
            () = live.changed() => {}
        }
    }
    // What still reads holds a sender; when the last of them is gone, everything was said.
    drop(tell);
    for source in sources.values() {
        source.no_more();
    }
    let rest = async {
        while let Some(line) = lines.recv().await {
            output::line(line?)?;
        }
        anyhow::Ok(())
    };
    // A pod that does not end by itself is no reason to wait forever.
    tokio::time::timeout(LAST_WORDS, rest).await.unwrap_or(Ok(()))?;
    // Pods that were gone before they could be read, or before their end.
    let mut read = Read::default();
    for source in sources.values() {
        source.note(&mut read);
    }
    let last = last.unwrap_or_else(|| view.clone());
    if super::is_being_kept(manager, &last, Timestamp::now()) {
        super::all_kept(manager, &last, what, &read).await;
    }
    super::print_kept(manager, &last, what, &read).await.map(|_| ())
}

/// A watch tries forever; whether the pods may be read at all is asked once. A worker that is away just now may be back.
async fn expect_pods(place: &Place, view: &View) -> anyhow::Result<()> {
    let Err(error) = place.list(view).await else { return Ok(()) };
    if failure::is_answer(&error) || failure::code_of(&error) == Code::Forbidden {
        return Err(error);
    }
    output::note(format!("warning: {}", failure::text(&error)));
    Ok(())
}

/// Whether there may be pods to look for.
fn has_pods(view: &View) -> bool {
    let is_placed = view.cluster.is_some() || view.started.is_some();
    is_placed && !matches!(view.status, Status::Queued | Status::Held | Status::External)
}

/// The pods of one cluster, whose logs are read from the moment on that there are any.
struct Source {
    readers: Arc<Readers>,
    _tasks: Tasks,
}

/// Where lines go, or why there are none.
type Lines = mpsc::Sender<anyhow::Result<String>>;
/// A life of a container: its pod by uid, its name, and how often it was started before.
type Life = (String, String, i32);

struct Readers {
    place: Place,
    pods: Api<Pod>,
    what: What,
    /// Containers that are read, each of their lives once, and how far.
    known: Mutex<HashMap<Life, Extent>>,
    /// Where lines go; `None` when no more pods are read.
    tell: Mutex<Option<Lines>>,
}

impl Source {
    fn start(place: Place, view: &View, what: &What, tell: Lines) -> Source {
        let mut tasks = Tasks::new();
        let pods = place.pods(view);
        let readers = Arc::new(Readers {
            place,
            pods: pods.clone(),
            what: what.clone(),
            known: Mutex::default(),
            tell: Mutex::new(Some(tell)),
        });
        let seeing = Arc::clone(&readers);
        let mut cache = Cache::new(pods);
        let selector = pods::selector(view);
        if selector.is_empty() {
            cache = cache.fields(&format!("metadata.name={}", view.name));
        } else {
            cache = cache.labels(&selector);
        }
        cache
            .on_change(move |change| change.new.into_iter().for_each(|pod| seeing.see(pod)))
            .start(&mut tasks);
        Source { readers, _tasks: tasks }
    }

    /// Notes what was read.
    fn note(&self, read: &mut Read) {
        let known = self.readers.known.lock().unwrap_or_else(PoisonError::into_inner);
        for ((uid, container, _), extent) in known.iter() {
            read.note(uid, container, extent.clone());
        }
    }

    fn no_more(&self) {
        self.readers.tell.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Readers {
    /// Begins to read the containers of a pod that have begun to write.
    fn see(self: &Arc<Self>, pod: &Pod) {
        if !self.what.is_wanted(&pod.metadata) {
            return;
        }
        for container in self.what.containers(pod) {
            let Some(life) = life(pod, &container) else { continue };
            let life = (pod.uid().unwrap_or_default(), container, life);
            let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let is_new = {
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = !known.contains_key(&life);
                known.entry(life.clone()).or_default();
                is_new
            };
            if let (true, Some(tell)) = (is_new, tell) {
                let (readers, name) = (Arc::clone(self), pod.name_any());
                let several = pod.spec.as_ref().is_some_and(|spec| spec.containers.len() > 1);
                let prefix = self.what.prefix(&name, &life.1, several);
                tokio::spawn(async move { readers.read(&name, &life, &prefix, &tell).await });
            }
        }
    }

    /// Reads a log to its end. One that breaks off is taken up again, for as long as the pod is there and somebody listens.
    async fn read(&self, pod: &str, life: &Life, prefix: &str, tell: &Lines) {
        let mut cursor = Cursor::default();
        let mut is_told = false;
        loop {
            let read = self.read_once(pod, life, prefix, tell, &mut cursor).await;
            self.note(life, Extent { cursor: cursor.clone(), is_whole: read.is_ok() });
            let Err(error) = read else { return };
            if failure::is_not_found(&error) || tell.is_closed() {
                return;
            }
            if failure::is_forbidden(&error) {
                // Who no longer listens has no use for it.
                let _ = tell.send(self.place.permitted(Err(error))).await;
                return;
            }
            if !is_told {
                output::note(format!("warning: the log of pod {pod} broke off: {}", failure::text(&error)));
                is_told = true;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Reads a log from where it was read before until it ends or breaks off.
    async fn read_once(
        &self,
        pod: &str,
        life: &Life,
        prefix: &str,
        tell: &Lines,
        cursor: &mut Cursor,
    ) -> anyhow::Result<()> {
        let mut params = LogParams { follow: true, timestamps: true, ..self.what.params(&life.1) };
        if let Some(since) = cursor.resume() {
            (params.since_time, params.since_seconds, params.tail_lines) = (Some(since), None, None);
        }
        let mut stream = std::pin::pin!(self.pods.log_stream(pod, &params).await?);
        while let Some(line) = next_line(&mut stream).await? {
            let Some(line) = cursor.take(&line, self.what.timestamps) else { continue };
            if tell.send(Ok(format!("{prefix}{line}"))).await.is_err() {
                anyhow::bail!("nobody listens any more");
            }
            self.note(life, Extent { cursor: cursor.clone(), is_whole: false });
        }
        Ok(())
    }

    fn note(&self, life: &Life, extent: Extent) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(life.clone(), extent);
    }
}

/// Which life of a container this is, if it has begun: one that was restarted writes a new log.
fn life(pod: &Pod, container: &str) -> Option<i32> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let status = all.into_iter().find(|status| status.name == container)?;
    let state = status.state.as_ref()?;
    (state.running.is_some() || state.terminated.is_some()).then_some(status.restart_count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use futures::future::{Ready, ready};
    use http::{Request, Response};
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt as _, StreamBody};
    use hyper::body::{Bytes, Frame};
    use kube::Client;
    use kube::client::Body;

    type Piece = UnsyncBoxBody<Bytes, std::io::Error>;

    /// A cluster with one log, which comes in pieces: each is what one request gets, and whether it ends well.
    #[derive(Clone, Default)]
    struct Pieces {
        left: Arc<Mutex<VecDeque<(&'static str, bool)>>>,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl tower_service::Service<Request<Body>> for Pieces {
        type Response = Response<Piece>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Piece>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            self.asked.lock().expect("a list").push(request.uri().to_string());
            let (text, ends_well) = self.left.lock().expect("a list").pop_front().expect("another piece");
            let text = Ok(Frame::data(Bytes::from_static(text.as_bytes())));
            let broken = Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            let parts = std::iter::once(text).chain((!ends_well).then_some(broken));
            ready(Ok(Response::new(StreamBody::new(futures::stream::iter(parts)).boxed_unsync())))
        }
    }

    /// No line is lost with a connection, and none is shown twice.
    #[tokio::test]
    async fn a_log_that_breaks_off_is_read_on() {
        let pieces = Pieces::default();
        *pieces.left.lock().expect("a list") = VecDeque::from([
            ("2026-01-01T00:00:01.1Z a\n2026-01-01T00:00:02.2Z b\n", false),
            ("2026-01-01T00:00:02.2Z b\n2026-01-01T00:00:02.3Z c\n", true),
        ]);
        let client = Client::new(pieces.clone(), "default");
        let readers = Readers {
            place: Place::here(client.clone()),
            pods: Api::default_namespaced(client),
            what: What { tail: Some(2), ..What::default() },
            known: Mutex::default(),
            tell: Mutex::default(),
        };
        let life: Life = ("uid".to_owned(), "c".to_owned(), 0);
        let (tell, mut lines) = mpsc::channel(LINES);
        readers.read("pod", &life, "", &tell).await;
        drop(tell);
        let mut shown = Vec::new();
        while let Some(line) = lines.recv().await {
            shown.push(line.expect("a line"));
        }
        assert_eq!(shown, ["a", "b", "c"]);
        assert!(readers.known.lock().expect("a list")[&life].is_whole);
        let asked = pieces.asked.lock().expect("a list");
        assert!(asked[0].contains("tailLines=2") && !asked[0].contains("sinceTime"), "{asked:?}");
        assert!(!asked[1].contains("tailLines") && asked[1].contains("sinceTime=2026-01-01T00"), "{asked:?}");
    }
}
