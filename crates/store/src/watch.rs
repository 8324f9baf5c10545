//! A watcher's view of the hub: a stream of the events in its scope.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::stream::{FusedStream, Stream, StreamExt};

use crate::error;
use crate::event::Event;
use crate::hub::{Hub, Resource};
use crate::key::Scope;
use crate::revision::Revision;
use crate::ring::{Read, Ring};

/// How many events are taken from the ring at once; so many a watcher that stands still keeps from being freed.
const TAKEN: usize = 64;

/// The events of a scope after a revision, in order, each once and none left out. Ends with an error if the watcher is
/// too slow, and without one when the store is closed.
pub struct Watch {
    hub: Arc<Hub>,
    resource: Arc<Resource>,
    ring: Arc<Ring>,
    scope: Scope,
    number: u64,
    /// Everything up to here was taken from the ring.
    seen: Revision,
    /// What was taken and is not delivered yet.
    taken: VecDeque<Arc<Event>>,
    end: Option<End>,
}

/// How a watch ends, once everything taken is delivered.
enum End {
    Lagged(error::Watch),
    Quietly,
}

impl Watch {
    pub(crate) fn new(
        hub: Arc<Hub>,
        resource: Arc<Resource>,
        ring: Arc<Ring>,
        scope: Scope,
        number: u64,
        seen: Revision,
    ) -> Self {
        Watch { hub, resource, ring, scope, number, seen, taken: VecDeque::new(), end: None }
    }

    /// The next event. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, error::Watch>> {
        StreamExt::next(self).await
    }

    /// The next event if there is one already: for putting everything that is ready into one write.
    pub fn try_next(&mut self) -> Option<Result<Arc<Event>, error::Watch>> {
        loop {
            match self.next_taken() {
                Poll::Ready(next) => return next,
                Poll::Pending => self.receive(self.ring.read(self.seen, TAKEN)?),
            }
        }
    }

    /// The revision for a bookmark: this watch has delivered everything up to it, and a new watch after it misses
    /// nothing. `None` while events wait to be read.
    pub fn bookmark(&self) -> Option<Revision> {
        // In this order: what is published after the first line is also after the revision.
        let published = self.hub.published();
        let read = self.taken.is_empty() && self.ring.is_read(self.seen);
        (read && self.end.is_none()).then(|| published.max(self.seen))
    }

    /// What of the taken is to be delivered next; pending if there is nothing left of it.
    fn next_taken(&mut self) -> Poll<Option<Result<Arc<Event>, error::Watch>>> {
        if let Some(event) = self.taken.pop_front() {
            return Poll::Ready(Some(Ok(event)));
        }
        match self.end {
            None => Poll::Pending,
            Some(End::Quietly) => Poll::Ready(None),
            Some(End::Lagged(error)) => {
                self.end = Some(End::Quietly);
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn receive(&mut self, read: Read) {
        match read {
            Read::Events(events) => {
                self.seen = events.last().map_or(self.seen, |event| event.revision());
                self.taken.extend(events.into_iter().filter(|event| self.scope.concerns(event)));
            }
            Read::Lost(lost) => self.end = Some(End::Lagged(error::Watch::Lagged { seen: self.seen, lost })),
            Read::Closed => self.end = Some(End::Quietly),
        }
    }
}

impl Stream for Watch {
    type Item = Result<Arc<Event>, error::Watch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.next_taken() {
                Poll::Ready(next) => return Poll::Ready(next),
                Poll::Pending => {
                    let read = ready!(self.ring.poll(self.number, self.seen, TAKEN, cx));
                    self.receive(read);
                }
            }
        }
    }
}

impl FusedStream for Watch {
    fn is_terminated(&self) -> bool {
        matches!(self.end, Some(End::Quietly)) && self.taken.is_empty()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ring.leave(self.number);
        self.hub.leave(&self.resource, &self.scope);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watch of {:?} after {}", self.scope, self.seen)
    }
}
