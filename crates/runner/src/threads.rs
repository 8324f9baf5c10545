//! Work that takes a while, done where it keeps nobody else waiting.

use std::{io, thread};

use futures::FutureExt as _;
use tokio::sync::oneshot;

/// Does something that blocks, from now on.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> impl Future<Output = io::Result<T>> + Send {
    tokio::task::spawn_blocking(work).map(|done| done.map_err(io::Error::other)?)
}

/// The same on a thread that nobody else will use, because it is in other namespaces after that.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name("namespace".to_owned()).spawn(move || {
        let _ = done.send(work()); // whoever wanted it may have gone
    })?;
    result.await.map_err(|_| io::Error::other("a thread in another namespace panicked"))?
}
