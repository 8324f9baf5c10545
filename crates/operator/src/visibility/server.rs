//! The API over HTTP, for real clusters: their API server passes requests on to it, for which an APIService names a Service
//! that leads here.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use reconcile::Tasks;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info};

use super::access::Gate;
use super::registration;
use crate::Operator;
use crate::certificate::{self, Authority, Renewing, Server, names_of_service};
use crate::connections::{Begun, Door, http};

/// How long a client may take to begin, and to say what it asks for.
const DEADLINE: Duration = Duration::from_secs(30);
/// How many connections there are at most. Those beyond wait: whoever holds many open keeps others from asking, and nobody
/// from getting quota.
const CONNECTIONS: usize = 512;

/// What keeps the API from being served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address.
    #[error("failed to serve {} on {address}", rules::visibility::GROUP)]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The certificate.
    #[error(transparent)]
    Certificate(#[from] certificate::Error),
}

/// Serves the API for as long as `tasks` live, and returns where. Among several, everyone does (VI-3). The cluster finds it by
/// a Service of this name in the operator's namespace; APIServices that name that one are told our authority.
pub async fn serve(
    operator: Operator,
    listen: SocketAddr,
    service: &str,
    tasks: &mut Tasks,
) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Listen { address: listen, source };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let client = operator.context.client.clone();
    let namespace = operator.context.settings.namespace.clone();
    let authority = Authority::shared(&client, &namespace, tasks).await?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = Server {
        title: "ferry-visibility",
        names: names_of_service(&namespace, service),
        clients: Some(tls::any_certificate(provider, Vec::new())),
    };
    let clock = operator.context.clock.clone();
    let renewing = Renewing::begin(authority.clone(), server, clock.now())?;
    let gate = Gate::new(client.clone()).await;
    tasks.spawn("visibility", accept(listener, renewing.serving(), operator, Arc::clone(&gate)));
    tasks.spawn("visibility certificate", renewing.run(certificate::LOOK, move || clock.now()));
    tasks.spawn("visibility front proxies", gate.follow());
    for name in registration::names() {
        let service = (namespace.clone(), service.to_owned());
        tasks.spawn(
            "visibility API service",
            registration::keep(client.clone(), name, service, authority.clone()),
        );
    }
    info!(%address, service, "who waits where is said");
    Ok(address)
}

async fn accept(
    listener: TcpListener,
    serving: Arc<ArcSwap<ServerConfig>>,
    operator: Operator,
    gate: Arc<Gate>,
) {
    let mut connections = Tasks::new();
    let door = Door::new(listener, CONNECTIONS, "visibility");
    loop {
        let (stream, place) = door.next().await;
        let acceptor = TlsAcceptor::from(serving.load_full());
        let conversation = converse(stream, acceptor, operator.clone(), Arc::clone(&gate));
        connections.spawn("visibility connection", async move {
            conversation.await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, operator: Operator, gate: Arc<Gate>) {
    let Ok(Ok(stream)) = tokio::time::timeout(DEADLINE, acceptor.accept(stream)).await else {
        debug!("a connection of somebody who asks who waits ended before it began");
        return;
    };
    let chain = stream.get_ref().1.peer_certificates();
    let chain: Option<Arc<[CertificateDer<'static>]>> = chain.map(Arc::from);
    let begun = Begun::default();
    let heard = begun.clone();
    let service = service_fn(move |request| {
        heard.set();
        let (operator, gate, chain) = (operator.clone(), Arc::clone(&gate), chain.clone());
        async move { Ok::<_, Infallible>(answer(&operator, &gate, chain.as_deref(), request).await) }
    });
    let spoken = http(DEADLINE);
    let connection = spoken.serve_connection(TokioIo::new(stream), service);
    if let Some(Err(error)) = begun.in_time(DEADLINE, connection).await {
        debug!(error, "a connection of somebody who asks who waits ended");
    }
}

async fn answer(
    operator: &Operator,
    gate: &Gate,
    chain: Option<&[CertificateDer<'_>]>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    // Nothing here has a use for a body.
    let (head, _) = request.into_parts();
    let is_open = matches!(head.uri.path(), "/healthz" | "/livez" | "/readyz");
    let admitted = if is_open { Ok(()) } else { gate.admit(chain, &head).await };
    let answer = match admitted {
        Ok(()) => super::answer(operator, &head.method, &head.uri, &head.headers).await,
        Err(refusal) => refusal.answer(),
    };
    answer.map(Full::new)
}
