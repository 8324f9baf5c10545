//! GET with `watch` (2.12–2.23): what is there now if the client wants it, and then every change.

mod frames;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use store::{Event, Object, Revision, View, Watch};
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::cluster::Context;
use crate::options::{self, ListOptions};
use crate::registry::Resource;
use crate::status::Refusal;
use crate::verbs::list::{Selection, wait_for};
use frames::Frames;

/// How often a watch is told how far it has come, so that it can resume from there: also where much happens that it has not
/// selected (2.18).
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// So long before the end a client is told how far it has come.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// How long a watch lasts at least, if the client does not say; at most twice as long, so that those that begin together do
/// not end together (2.19).
const LASTS: Duration = Duration::from_secs(30 * 60);
/// No watch lasts longer, whatever a client asks for.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// As many bytes as are gathered into one write.
const WRITE: usize = 64 * 1024;

pub(crate) async fn watch(context: &Context<'_>) -> Result<Answer, Refusal> {
    let selection = Selection::read(context)?;
    if !context.name().is_empty() && !selection.is_of_name(context.name()) {
        // What is wrong with other options is told first.
        ListOptions::read(context.query, true)?;
        let why = "fieldSelector metadata.name doesn't match requested name";
        return Err(Refusal::bad_request(why));
    }
    let scope = selection.scope(context);
    let start = Start::read(context)?;
    let frames = Frames::of(context)?;
    let store = context.cluster.store();
    let failed = |frames: &Frames, refusal: &Refusal| {
        let mut out = BytesMut::new();
        frames.error(&mut out, refusal);
        answer::stream(frames.media(), stream::iter([out.freeze()]))
    };
    let (initial, watch, after) = match start {
        Start::Everything { at_least } => {
            if let Err(refusal) = wait_for(context, at_least).await {
                return Ok(failed(&frames, &refusal));
            }
            let (view, watch) = store.view_and_watch(&scope);
            (Some(view), watch, Revision(0))
        }
        // Who is ahead of the store hears nothing until it has caught up.
        Start::After(revision) => match store.watch(&scope, revision.min(store.revision())) {
            Ok(watch) => (None, watch, revision),
            // A client that asks for what is no longer known gets an event that says so, not an error: some only then
            // start again (8.14).
            Err(why) => {
                tracing::debug!(%why, "a watch starts too far back");
                return Ok(failed(&frames, &too_old(context, revision, why)));
            }
        },
    };
    // Whatever happens from here on comes after the initial events, be it before or after their end was told.
    let begins = initial.as_ref().map(View::revision);
    let mut there: Vec<Arc<Object>> =
        initial.iter().flat_map(|view| view.list(&scope).cloned().collect::<Vec<_>>()).collect();
    let selected = selection.among(&there).await?;
    there.retain(|object| selected.has(object));
    let initial = there;
    if !frames.can_tell()
        && (!initial.is_empty() || begins.is_some_and(|_| context.query.is_on("allowWatchBookmarks")))
    {
        return Ok(answer::stream(frames.media(), stream::iter(None)));
    }
    let bookmarks = context.query.is_on("allowWatchBookmarks");
    let mut follower = Follower {
        initial: initial.into_iter(),
        begins: begins.filter(|_| bookmarks),
        watch,
        after,
        selection,
        bookmarks,
        resource: context.resource.clone(),
        frames,
        ends: Instant::now() + lasts(context)?,
        next_bookmark: Instant::now() + BOOKMARK_EVERY,
        done: false,
    };
    // If the first objects cannot be shown, that is an answer and no event.
    let mut first = BytesMut::new();
    follower.begin(&mut first).await?;
    let first = (!first.is_empty()).then(|| first.freeze());
    let media = follower.frames.media();
    let rest = stream::unfold(follower, |mut follower| async move {
        follower.next().await.map(|chunk| (chunk, follower))
    });
    Ok(answer::stream(media, futures::StreamExt::chain(stream::iter(first), rest)))
}

/// Upstream words it by who refuses: the cache that answers for most kinds, or the storage behind events.
fn too_old(context: &Context<'_>, wanted: Revision, why: store::error::Read) -> Refusal {
    let is_event = context.resource.is_event();
    match why {
        store::error::Read::Expired { oldest, .. } if !is_event => {
            Refusal::expired(format!("too old resource version: {wanted} ({oldest})"))
        }
        _ => Refusal::expired("The resourceVersion for the provided watch is too old."),
    }
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
        let options = ListOptions::read(context.query, true)?;
        let revision = match options.version() {
            "" => Revision(0),
            text => options::revision(text).map_err(Refusal::unknown)?,
        };
        Ok(match (options.initial_events, revision) {
            (Some(true), at_least) => Start::Everything { at_least },
            (Some(false), Revision(0)) => Start::After(context.cluster.store().revision()),
            (None, Revision(0)) => Start::Everything { at_least: Revision(0) },
            (_, revision) => Start::After(revision),
        })
    }
}

/// How long the stream lasts.
fn lasts(context: &Context<'_>) -> Result<Duration, Refusal> {
    let asked = ListOptions::read(context.query, true)?.timeout;
    Ok(asked.map_or_else(|| LASTS.mul_f64(1.0 + random()), |asked| asked.min(LONGEST)))
}

/// A number from 0 to 1.
fn random() -> f64 {
    let (number, _) = uuid::Uuid::new_v4().as_u64_pair();
    f64::from(u32::try_from(number >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

/// A watch on its way to a client.
struct Follower {
    /// What was there when it began and is not told yet: each piece is made when the client has taken the one before, however
    /// much is there and however many watch it.
    initial: std::vec::IntoIter<Arc<Object>>,
    /// Where it began, if that is to be told after all that was there.
    begins: Option<Revision>,
    watch: Watch,
    /// Nothing up to here is told.
    after: Revision,
    selection: Selection,
    bookmarks: bool,
    resource: Arc<Resource>,
    frames: Frames,
    ends: Instant,
    next_bookmark: Instant,
    done: bool,
}

impl Follower {
    /// The next bytes: everything that is ready, or a bookmark after a while or before the end. `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        while out.is_empty() {
            if self.done {
                return None;
            }
            let now = Instant::now();
            if self.has_to_begin() {
                if now >= self.ends {
                    return None;
                }
                if let Err(refusal) = self.begin(&mut out).await {
                    self.frames.error(&mut out, &refusal);
                    self.done = true;
                }
                return Some(out.freeze());
            }
            // Once the last moments have begun, no bookmark is due any more.
            let before_end = self.ends.checked_sub(LAST_BOOKMARK).filter(|time| *time > now);
            let due = before_end.map(|time| time.min(self.next_bookmark));
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.ends) => self.done = true,
                () = ended(&self.resource) => self.done = true,
                () = tokio::time::sleep_until(due.unwrap_or(self.ends)), if self.bookmarks && due.is_some() => {
                    self.bookmark(&mut out).await;
                }
                next = self.watch.next() => self.take(next, &mut out).await,
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

    fn has_to_begin(&self) -> bool {
        self.initial.len() > 0 || self.begins.is_some()
    }

    /// Tells a piece of what was there, and after the last one that this was all.
    async fn begin(&mut self, out: &mut BytesMut) -> Result<(), Refusal> {
        let mut size = 0;
        let mut is_next = |object: &Arc<Object>| {
            let fits = size < WRITE;
            size += object.value.len();
            fits
        };
        let many = self.initial.as_slice().iter().take_while(|object| is_next(object)).count();
        let objects: Vec<Arc<Object>> = self.initial.by_ref().take(many).collect();
        let stored = objects.iter().map(|object| (object.revision, object.value.clone())).collect();
        for (object, shown) in objects.iter().zip(self.resource.shown(stored).await?) {
            self.frames.event(out, "ADDED", &shown, place_of_revision(object, &object.value, &shown));
        }
        if self.initial.len() == 0
            && let Some(revision) = self.begins.take()
        {
            self.frames.bookmark(out, revision, true);
        }
        Ok(())
    }

    /// Tells how far the client has come, after what it has not heard of yet.
    async fn bookmark(&mut self, out: &mut BytesMut) {
        self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
        if !self.frames.can_tell() {
            self.done = true;
            return;
        }
        while out.len() < WRITE && !self.done {
            if let Some(revision) = self.watch.bookmark() {
                return self.frames.bookmark(out, revision.max(self.after), false);
            }
            let Some(next) = self.watch.try_next() else { return };
            self.take(Some(next), out).await;
        }
        self.next_bookmark = Instant::now(); // as soon as this is sent
    }

    async fn take(&mut self, next: Option<Result<Arc<Event>, store::error::Watch>>, out: &mut BytesMut) {
        match next {
            Some(Ok(_)) if !self.frames.can_tell() => self.done = true,
            Some(Ok(event)) => {
                if let Err(refusal) = self.tell(&event, out).await {
                    self.frames.error(out, &refusal);
                    self.done = true;
                }
            }
            // A client that was too slow finds out when it wants to go on from where it was, as with a real server.
            Some(Err(why)) => {
                tracing::debug!(%why, "a watch ends early");
                self.done = true;
            }
            None => self.done = true,
        }
    }

    /// One side of an event, if it is selected.
    async fn selected(&self, object: Option<&Arc<Object>>) -> Result<Option<Arc<Object>>, Refusal> {
        let selected = self.selection.among(object).await?;
        Ok(object.filter(|object| selected.has(object)).cloned())
    }

    /// An object that comes to be selected was added, one that ceases to be was deleted (2.20).
    async fn tell(&mut self, event: &Event, out: &mut BytesMut) -> Result<(), Refusal> {
        if event.revision() <= self.after {
            return Ok(());
        }
        let before = self.selected(event.before()).await?;
        let (word, object, bytes) = match (before, self.selected(event.after()).await?) {
            (None, Some(after)) => ("ADDED", after.clone(), after.value.clone()),
            (Some(_), Some(after)) => ("MODIFIED", after.clone(), after.value.clone()),
            (Some(before), None) => ("DELETED", before.clone(), before.value_at(event.revision())),
            (None, None) => return Ok(()),
        };
        for shown in self.resource.shown(vec![(object.revision, bytes.clone())]).await? {
            self.frames.event(out, word, &shown, place_of_revision(&object, &bytes, &shown));
        }
        Ok(())
    }
}

/// Where the revision stands in what is shown of an object, if that is what is stored.
fn place_of_revision(object: &Object, stored: &Bytes, shown: &Bytes) -> Option<usize> {
    object.revision_at().filter(|_| stored.as_ptr() == shown.as_ptr())
}

/// Ends when the definition of a custom resource is replaced by another one: whoever watches starts again with that
/// (3.22).
async fn ended(resource: &Resource) {
    match &resource.custom {
        Some(custom) => custom.ended().await,
        None => std::future::pending().await,
    }
}
