//! What whoever can reach a port can take of the operator: so many connections, and so long to begin. Files that are open are
//! counted all together, and one who took them all would take the Lease, too, which is renewed over a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;

/// How often a client that says nothing is asked whether it is there, and how long it may take to answer.
const PING: Duration = Duration::from_secs(30);

/// Where connections come in. Those for which there is no place wait.
pub(crate) struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    title: &'static str,
}

impl Door {
    /// For so many at a time, who come to what is called so.
    pub(crate) fn new(listener: TcpListener, places: usize, title: &'static str) -> Door {
        Door { listener, places: Arc::new(Semaphore::new(places)), title }
    }

    /// The next one, and its place, which it has until that is dropped.
    pub(crate) async fn next(&self) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            let place = Arc::clone(&self.places).acquire_owned().await.expect("places are not taken away");
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(error) => {
                    warn!(title = self.title, %error, "failed to accept a connection");
                    // Out of file descriptors, most likely: a moment later there may be some.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// How HTTP is spoken with a client that takes no longer than this for what it asks, from the end of what it asked before.
pub(crate) fn http(deadline: Duration) -> auto::Builder<TokioExecutor> {
    let mut spoken = auto::Builder::new(TokioExecutor::new());
    spoken.http1().timer(TokioTimer::new()).header_read_timeout(deadline);
    // Others keep their connection; one that is gone without a word is found out.
    spoken.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    spoken
}

/// Whether a client has asked anything yet.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<AtomicBool>);

impl Begun {
    /// It has.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets a conversation go on to its end if it has begun by then; `None` if it has not. Before that, HTTP has no time of its
    /// own: it waits for the first words to tell in which version they are.
    pub(crate) async fn in_time<T>(
        self,
        deadline: Duration,
        conversation: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(conversation);
        match tokio::time::timeout(deadline, &mut conversation).await {
            Ok(ended) => Some(ended),
            Err(_) if self.0.load(Ordering::Relaxed) => Some(conversation.await),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use http_body_util::Full;
    use hyper::body::Bytes;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use reconcile::Tasks;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(300);

    /// Who says nothing, or not all of it, keeps a place only for a while, and the others wait for it.
    #[tokio::test]
    async fn silent_clients_keep_nobody_away_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let door = Door::new(listener, 2, "test");
        let mut tasks = Tasks::new();
        tasks.spawn("test", async move {
            let mut connections = Tasks::new();
            loop {
                let (stream, place) = door.next().await;
                connections.spawn("test connection", async move {
                    let begun = Begun::default();
                    let heard = begun.clone();
                    let service = service_fn(move |_| {
                        heard.set();
                        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done")))) }
                    });
                    let spoken = http(DEADLINE);
                    let connection = spoken.serve_connection(TokioIo::new(stream), service);
                    let _ = begun.in_time(DEADLINE, connection).await;
                    drop(place);
                });
            }
        });
        let ask = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.expect("it listens");
            stream.write_all(request.as_bytes()).await.expect("it reads");
            stream
        };
        // One says nothing, one not all, one nothing more, and one how HTTP/2 begins.
        let whole = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for words in ["", "GET / HTTP/1.1\r\n", whole, "PRI * HTTP/2.0\r\n"] {
            // They come first, and there are two places.
            let silent = [ask(words).await, ask(words).await];
            let mut next = ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
            let mut answer = String::new();
            let answered = tokio::time::timeout(20 * DEADLINE, next.read_to_string(&mut answer)).await;
            answered.expect("in time").expect("an answer");
            assert!(answer.ends_with("done"), "{words:?}: {answer}");
            drop(silent);
        }
    }
}
