//! GET with `watch` (2.12–2.23): what is there now if the client wants it, and then every change.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::stream;
use serde_json::json;
use store::{Event, Object, Revision, View, Watch};

use crate::answer::{self, Answer};
use crate::cluster::Context;
use crate::registry::Resource;
use crate::status::Refusal;
use crate::verbs::list::Selection;

/// How often an idle watch is told how far it has come, so that it can resume from there.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lasts at least, if the client does not say.
const LASTS: Duration = Duration::from_secs(30 * 60);
/// As many bytes as are gathered into one write.
const WRITE: usize = 64 * 1024;

pub(crate) async fn watch(context: &Context<'_>) -> Result<Answer, Refusal> {
    let selection = Selection::read(context)?;
    let scope = selection.scope(context);
    let start = Start::read(context)?;
    let store = context.cluster.store();
    let (initial, watch) = match start {
        Start::Everything { at_least } => {
            wait_for(context, at_least).await?;
            let (view, watch) = store.view_and_watch(&scope);
            (Some(view), watch)
        }
        Start::After(revision) => match store.watch(&scope, revision) {
            Ok(watch) => (None, watch),
            // A client that asks for what is no longer known gets an event that says so, not an error: some only then
            // start again (8.14).
            Err(why) => {
                tracing::debug!(%why, "a watch starts too far back");
                let oldest = store.revision();
                let refusal = Refusal::expired(format!("too old resource version: {revision} ({oldest})"));
                return Ok(answer::json(http::StatusCode::OK, error_frame(&refusal)));
            }
        },
    };
    let initial: Vec<Arc<Object>> = initial
        .iter()
        .flat_map(|view: &View| {
            view.list(&scope).filter(|object| selection.matches(object)).cloned().collect::<Vec<_>>()
        })
        .collect();
    let begins = matches!(start, Start::Everything { .. });
    let initial = context.shown(&initial).await?;
    let follower = Follower {
        watch,
        selection,
        bookmarks: context.query.is_on("allowWatchBookmarks"),
        resource: context.resource.clone(),
        ends: tokio::time::Instant::now() + lasts(context),
        done: false,
    };
    let first = follower.begin(&initial, begins);
    let rest = stream::unfold(follower, |mut follower| async move {
        follower.next().await.map(|chunk| (chunk, follower))
    });
    Ok(answer::stream(futures::StreamExt::chain(stream::iter(first), rest)))
}

/// Where a watch starts.
#[derive(Clone, Copy)]
enum Start {
    /// With everything that is there, in a state that is not older than this.
    Everything { at_least: Revision },
    /// With the first change after this.
    After(Revision),
}

impl Start {
    fn read(context: &Context<'_>) -> Result<Self, Refusal> {
        let query = context.query;
        let text = query.get("resourceVersion").unwrap_or("");
        let revision = match text {
            "" => Revision(0),
            text => text.parse().map(Revision).map_err(|_| {
                Refusal::bad_request(format!("invalid resource version: {}", types::go::quote(text)))
            })?,
        };
        let matches = query.get("resourceVersionMatch").unwrap_or("");
        let initial = query.get("sendInitialEvents").map(|_| query.is_on("sendInitialEvents"));
        if initial.is_some() && matches != "NotOlderThan" {
            let path = rules::field::Path::new("resourceVersionMatch");
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let about = crate::status::About { group: "meta.k8s.io", resource: "ListOptions", name: "" };
            return Err(Refusal::invalid(about, &vec![path.forbidden(why)]));
        }
        Ok(match (initial, revision) {
            (Some(true), at_least) => Start::Everything { at_least },
            (Some(false), Revision(0)) => Start::After(context.cluster.store().revision()),
            (None, Revision(0)) => Start::Everything { at_least: Revision(0) },
            (_, revision) => Start::After(revision),
        })
    }
}

/// Waits a moment for a state that the client has seen elsewhere (2.15).
async fn wait_for(context: &Context<'_>, revision: Revision) -> Result<(), Refusal> {
    let store = context.cluster.store();
    let reached = tokio::time::timeout(Duration::from_secs(3), store.reached(revision)).await;
    reached.map_err(|_| Refusal::too_large_resource_version(revision.0, store.revision().0))
}

fn lasts(context: &Context<'_>) -> Duration {
    let seconds =
        context.query.get("timeoutSeconds").and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
    seconds.map_or(LASTS, Duration::from_secs)
}

/// A watch on its way to a client.
struct Follower {
    watch: Watch,
    selection: Selection,
    bookmarks: bool,
    resource: Arc<Resource>,
    ends: tokio::time::Instant,
    done: bool,
}

impl Follower {
    /// What is there at the start, and the mark that ends it (2.15).
    fn begin(&self, objects: &[Bytes], begins: bool) -> Option<Bytes> {
        let mut out = BytesMut::new();
        for object in objects {
            frame(&mut out, "ADDED", object);
        }
        if begins
            && self.bookmarks
            && let Some(revision) = self.watch.bookmark()
        {
            self.bookmark(&mut out, revision, true);
        }
        (!out.is_empty()).then(|| out.freeze())
    }

    /// The next bytes: everything that is ready, or a bookmark after a while of silence. `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        while out.is_empty() {
            if self.done {
                return None;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.ends) => self.done = true,
                () = ended(&self.resource) => self.done = true,
                next = self.watch.next() => self.take(next, &mut out).await,
                () = tokio::time::sleep(BOOKMARK_EVERY), if self.bookmarks => {
                    if let Some(revision) = self.watch.bookmark() {
                        self.bookmark(&mut out, revision, false);
                    }
                }
            }
        }
        while out.len() < WRITE
            && !self.done
            && let Some(next) = self.watch.try_next()
        {
            self.take(Some(next), &mut out).await;
        }
        Some(out.freeze())
    }

    async fn take(&mut self, next: Option<Result<Arc<Event>, store::error::Watch>>, out: &mut BytesMut) {
        match next {
            Some(Ok(event)) => {
                if let Err(refusal) = self.tell(&event, out).await {
                    out.put(error_frame(&refusal));
                    self.done = true;
                }
            }
            Some(Err(why)) => {
                tracing::debug!(%why, "a watch ends early");
                let refusal = Refusal::expired("too old resource version: the client was too slow");
                out.put(error_frame(&refusal));
                self.done = true;
            }
            None => self.done = true,
        }
    }

    /// An object that comes to be selected was added, one that ceases to be was deleted (2.20).
    async fn tell(&self, event: &Event, out: &mut BytesMut) -> Result<(), Refusal> {
        let selected =
            |object: Option<&Arc<Object>>| object.filter(|object| self.selection.matches(object)).cloned();
        let (word, object, bytes) = match (selected(event.before()), selected(event.after())) {
            (None, Some(after)) => ("ADDED", after.clone(), after.value.clone()),
            (Some(_), Some(after)) => ("MODIFIED", after.clone(), after.value.clone()),
            (Some(before), None) => ("DELETED", before.clone(), before.value_at(event.revision())),
            (None, None) => return Ok(()),
        };
        for shown in self.resource.shown(vec![(object.revision, bytes)]).await? {
            frame(out, word, &shown);
        }
        Ok(())
    }

    fn bookmark(&self, out: &mut BytesMut, revision: Revision, ends_initial: bool) {
        let mut object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
        });
        if ends_initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        frame(out, "BOOKMARK", object.to_string().as_bytes());
    }
}

/// Ends when the definition of a custom resource is replaced by another one: whoever watches starts again with that
/// (3.22).
async fn ended(resource: &Resource) {
    match &resource.custom {
        Some(custom) => custom.ended().await,
        None => std::future::pending().await,
    }
}

fn frame(out: &mut BytesMut, word: &str, object: &[u8]) {
    out.put_slice(b"{\"type\":\"");
    out.put_slice(word.as_bytes());
    out.put_slice(b"\",\"object\":");
    out.put_slice(object);
    out.put_slice(b"}\n");
}

fn error_frame(refusal: &Refusal) -> Bytes {
    let mut out = BytesMut::new();
    frame(&mut out, "ERROR", refusal.to_status().to_string().as_bytes());
    out.freeze()
}
