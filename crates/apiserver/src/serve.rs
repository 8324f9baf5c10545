//! A cluster on a port: TLS, HTTP/1.1 and HTTP/2 (1.1), and who is at the other end.

mod certificate;
mod in_flight;
mod limits;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header, request};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use crate::answer::{self, Answer};
use crate::auth::authn::{Authenticator, Shown};
use crate::auth::front_proxy;
use crate::auth::user::MASTERS;
use crate::cluster::Cluster;
use crate::credentials::Credentials;
use crate::service::BodyWithin;
use crate::{deadline, published};
use certificate::Serving;
use in_flight::InFlight;
pub use limits::Limits;
use limits::{Activity, Crowd, Patient};

/// The largest head of a request that is read (1.1).
const MAX_HEAD: usize = 1024 * 1024;
/// How long short requests may go on once the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);

/// A cluster could not be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port could not be listened on.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address that was wanted.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// The certificate is no good.
    #[error("failed to set up TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A cluster that listens. It stops when this is dropped; [`Server::stop`] waits for it.
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// What works beside it, and ends with it.
    _background: JoinSet<()>,
}

/// An address that was taken.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    /// By which others reach it.
    outward: Option<IpAddr>,
    /// By which clients know it, besides its addresses.
    names: Vec<String>,
}

impl Listener {
    /// The address, with the port that was free if any would do.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Others reach it at this address, to which somebody forwards.
    #[must_use]
    pub fn known_at(self, outward: Option<IpAddr>) -> Self {
        Listener { outward, ..self }
    }

    /// Clients know it by these names and addresses, too.
    #[must_use]
    pub fn known_as(self, names: Vec<String>) -> Self {
        Listener { names, ..self }
    }
}

impl Server {
    /// Listens, and answers from now on. Port 0 is any free one.
    pub async fn start(
        cluster: Cluster,
        credentials: Arc<Credentials>,
        address: SocketAddr,
    ) -> Result<Self, Error> {
        Server::start_on(cluster, credentials, Server::listen(address).await?).await
    }

    /// Takes an address. Whoever comes before anything is served there waits.
    pub async fn listen(address: SocketAddr) -> Result<Listener, Error> {
        let listen = |source| Error::Listen { address, source };
        let socket = TcpListener::bind(address).await.map_err(listen)?;
        let address = socket.local_addr().map_err(listen)?;
        Ok(Listener { socket, address, outward: None, names: Vec::new() })
    }

    /// Serves where somebody listens already.
    pub async fn start_on(
        cluster: Cluster,
        credentials: Arc<Credentials>,
        listener: Listener,
    ) -> Result<Self, Error> {
        Server::start_within(cluster, credentials, listener, Limits::default()).await
    }

    /// As [`Server::start_on`], with other limits to what clients may do.
    pub async fn start_within(
        cluster: Cluster,
        credentials: Arc<Credentials>,
        Listener { socket, address, outward, names }: Listener,
        limits: Limits,
    ) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let front_proxies = cluster.aggregator().front_proxies();
        let authenticator =
            Authenticator::new(credentials.clone(), cluster.shared_tokens(), front_proxies, &provider);
        let authenticator = Arc::new(authenticator.map_err(Error::Tls)?);
        cluster.authenticated_by(&authenticator);
        let addresses =
            [address.ip()].into_iter().chain(outward.or_else(|| published::outward(address.ip())));
        let known_as = addresses.map(|address| address.to_string()).chain(names).collect();
        let serving = Serving::new(credentials.clone(), known_as, provider.clone());
        let serving = Arc::new(serving.map_err(Error::Tls)?);
        let acceptor = TlsAcceptor::from(Arc::new(tls(serving, provider, &authenticator)?));
        if let Err(refusal) = published::publish(&cluster, &credentials, address, outward).await {
            tracing::warn!(%refusal, "the cluster does not tell where its API is");
        }
        let (stop, stopped) = watch::channel(false);
        let mut background = JoinSet::new();
        background.spawn(published::keep(cluster.handle(), credentials, address, outward));
        let task = tokio::spawn(accept(
            socket,
            acceptor,
            Gate { cluster, authenticator, limits, in_flight: Arc::default() },
            stopped,
        ));
        Ok(Server { address, stop, task, _background: background })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, lets short requests end, ends watches and then whatever is still open, and returns.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "the listener did not end by itself");
        }
    }
}

fn tls(
    serving: Arc<Serving>,
    provider: Arc<CryptoProvider>,
    authenticator: &Authenticator,
) -> Result<ServerConfig, Error> {
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| Error::Tls(Box::new(error)))?;
    let config = config.with_client_cert_verifier(authenticator.any_certificate());
    let mut config = config.with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    gate: Gate,
    mut stopped: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let places = gate.limits.connections;
    let slots = Arc::new(Semaphore::new(places));
    let crowd = Arc::new(Crowd::default());
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = told_to_stop(&mut stopped) => break,
            Some(_) = conversations.join_next() => {}
            (slot, accepted) = next(&listener, &slots) => match accepted {
                Ok((stream, _)) => {
                    // Answers are written whole; waiting for more only delays them.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "a connection delays what it sends");
                    }
                    crowd.count(slots.available_permits(), places);
                    let conversation =
                        converse(stream, acceptor.clone(), gate.clone(), crowd.clone(), graceful.watcher());
                    let (slots, crowd) = (slots.clone(), crowd.clone());
                    conversations.spawn(async move {
                        conversation.await;
                        drop(slot);
                        crowd.count(slots.available_permits(), places);
                    });
                }
                // Out of file descriptors, most likely: those who are connected go on, and the next one is tried again.
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::debug!("connections were still open and are closed");
    }
    conversations.shutdown().await;
}

/// The next connection, once there is a place for it.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (Option<OwnedSemaphorePermit>, io::Result<(TcpStream, SocketAddr)>) {
    // The semaphore is never closed.
    let slot = slots.clone().acquire_owned().await.ok();
    (slot, listener.accept().await)
}

/// Returns when the server is told to stop, or nobody is left who could tell it.
async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

async fn converse(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    gate: Gate,
    crowd: Arc<Crowd>,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let stream = match tokio::time::timeout(gate.limits.hello, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "no TLS"),
        Err(_) => return tracing::debug!("a client took too long to say who it is"),
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .max_header_list_size(1024 * 1024)
        .keep_alive_interval(Duration::from_secs(30));
    let shown = Arc::new(gate.authenticator.shown(stream.get_ref().1.peer_certificates()));
    let (limits, activity) = (gate.limits, Arc::new(Activity::default()));
    let seen = activity.clone();
    let service = service_fn(move |request| {
        let (gate, shown, seen) = (gate.clone(), shown.clone(), seen.clone());
        async move {
            let busy = seen.begin();
            let answer = gate.answer(&shown, request).await;
            if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                seen.upgrade();
            }
            // It is busy until the last piece of the answer is on its way.
            Ok::<_, Infallible>(answer.map(|body| busy.until_end_of(body)))
        }
    });
    // Frames of HTTP/2 come at any time, and its heads are small; what counts there is how long nothing is asked.
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let head = if is_http2 { Duration::from_secs(u64::from(u32::MAX)) } else { limits.head };
    let stream = TokioIo::new(Patient::new(stream, activity.clone(), head));
    let connection = builder.serve_connection_with_upgrades(stream, service).into_owned();
    tokio::select! {
        ended = watcher.watch(connection) => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        },
        () = activity.idle(&limits, &crowd) => tracing::debug!("nothing was asked for long"),
    }
}

/// Finds out who asks.
#[derive(Clone)]
struct Gate {
    cluster: Cluster,
    authenticator: Arc<Authenticator>,
    limits: Limits,
    in_flight: Arc<InFlight>,
}

/// 429 as a client of a real server gets it.
async fn come_back(head: &request::Parts) -> Answer {
    let why = "Too many requests, please try again later.\n";
    let mut answer = answer::text(StatusCode::TOO_MANY_REQUESTS, why);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer::finish::finished(head, answer).await
}

impl Gate {
    async fn answer(&self, shown: &Shown, mut request: Request<Incoming>) -> Answer {
        let sender = match self.authenticator.sender(shown, request.headers()) {
            Ok(sender) => sender,
            Err(refusal) => {
                let (head, _) = request.into_parts();
                return answer::finish::refused(&head, &refusal).await;
            }
        };
        // Nobody behind this server is to believe what was judged here.
        front_proxy::strip(request.headers_mut());
        let mut place = None;
        if !sender.is_in(MASTERS) && !deadline::lasts(request.method(), request.uri()) {
            place = self.in_flight.begin(&sender.name, self.limits.requests);
            if place.is_none() {
                let (head, _) = request.into_parts();
                return come_back(&head).await;
            }
        }
        request.extensions_mut().insert(sender);
        request.extensions_mut().insert(BodyWithin(self.limits.body));
        let Ok(answer) = self.cluster.clone().call(request).await;
        drop(place);
        answer
    }
}
