//! How long a client may take, and what is done about one that takes longer.
//!
//! A connection is busy while a request is answered. Between two requests it is idle, for [`Limits::idle`] at most, and less
//! when places are scarce. From the first byte of a head to its end a client has [`Limits::head`], which no byte prolongs.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep};

/// How long clients may take, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// To say who they are: the handshake of TLS.
    pub hello: Duration,
    /// To send the head of a request (HTTP/1.1), once they have begun.
    pub head: Duration,
    /// To send the body of a request.
    pub body: Duration,
    /// Between two requests. A shorter time would close connections that clients keep for later, some of them just as they
    /// are used again; kube-apiserver keeps them as long.
    pub idle: Duration,
    /// Between two requests while three quarters of the places are taken.
    pub idle_in_a_crowd: Duration,
    /// Connections at one time. More of them wait until one ends.
    pub connections: usize,
    /// Requests at one time, without those that last; more of them are told to come back. Masters are never told so.
    pub requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            hello: Duration::from_secs(20),
            head: Duration::from_secs(20),
            body: Duration::from_secs(60),
            idle: Duration::from_secs(90),
            idle_in_a_crowd: Duration::from_secs(2),
            connections: 8192,
            // As many as kube-apiserver answers at one time.
            requests: 600,
        }
    }
}

/// What is going on on one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests that are being answered.
    open: AtomicUsize,
    /// Requests that have begun.
    begun: AtomicUsize,
    /// Whether it speaks another protocol by now, of which nothing is known here.
    is_upgraded: AtomicBool,
    changed: Notify,
}

/// A request that is being answered, until this is dropped.
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    /// A request whose head was read.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        Busy(self.clone())
    }

    /// From now on the connection is somebody else's.
    pub(super) fn upgrade(&self) {
        self.is_upgraded.store(true, Ordering::SeqCst);
    }

    fn is_busy(&self) -> bool {
        self.is_upgraded.load(Ordering::SeqCst) || self.open.load(Ordering::SeqCst) > 0
    }

    /// Returns once nothing has been asked for too long.
    pub(super) async fn idle(&self, limits: &Limits, crowd: &Crowd) {
        let mut since = Instant::now();
        loop {
            let (changed, pressed) = (self.changed.notified(), crowd.pressed.notified());
            tokio::pin!(changed, pressed);
            changed.as_mut().enable();
            pressed.as_mut().enable();
            if self.is_busy() {
                changed.await;
                since = Instant::now();
                continue;
            }
            let patience = if crowd.is_dense() { limits.idle_in_a_crowd } else { limits.idle };
            tokio::select! {
                () = tokio::time::sleep_until(since + patience) => return,
                () = changed => since = Instant::now(),
                () = pressed => {}
            }
        }
    }
}

impl Busy {
    /// A body with whose end the request ends.
    pub(super) fn until_end_of<B>(self, body: B) -> Answering<B> {
        Answering { body, _busy: self }
    }
}

/// The body of an answer, on whose connection something is going on as long as it is there.
pub(super) struct Answering<B> {
    body: B,
    _busy: Busy,
}

impl<B: http_body::Body + Unpin> http_body::Body for Answering<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

/// How many connections there are.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    is_dense: AtomicBool,
    pressed: Notify,
}

impl Crowd {
    /// So many places are free of so many.
    pub(super) fn count(&self, free: usize, all: usize) {
        let is_dense = free < all / 4;
        self.is_dense.store(is_dense, Ordering::SeqCst);
        if is_dense {
            self.pressed.notify_waiters();
        }
    }

    fn is_dense(&self) -> bool {
        self.is_dense.load(Ordering::SeqCst)
    }
}

/// A connection on which a head that has begun must end in time.
pub(super) struct Patient<S> {
    inner: S,
    activity: Arc<Activity>,
    limit: Duration,
    head: Option<Head>,
}

/// A head that has begun.
struct Head {
    /// Requests that had begun before it.
    after: usize,
    ends: Pin<Box<Sleep>>,
}

impl<S> Patient<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>, limit: Duration) -> Self {
        Patient { inner, activity, limit, head: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let begun = this.activity.begun.load(Ordering::SeqCst);
        if this.head.as_ref().is_some_and(|head| head.after != begun) || this.activity.is_busy() {
            this.head = None;
        }
        if let Some(head) = &mut this.head
            && head.ends.as_mut().poll(context).is_ready()
        {
            let why = "the head of a request was not sent in time";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        let filled = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > filled && this.head.is_none() && !this.activity.is_busy() {
            this.head = Some(Head { after: begun, ends: Box::pin(sleep(this.limit)) });
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
