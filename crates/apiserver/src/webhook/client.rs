//! The client: HTTP/1.1 over TLS, with connections that are kept for the next question.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use store::Store;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::service;
use super::target::{Place, Target};
use crate::cluster::MAX_BODY;

/// Idle connections that are kept for a target.
const KEPT: usize = 8;

type Connection = SendRequest<Full<Bytes>>;

/// Asks. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Inner>);

struct Inner {
    store: Store,
    idle: Mutex<HashMap<Target, Vec<Connection>>>,
}

impl Caller {
    /// Asks those whom the Services of this store lead to, and others.
    pub(crate) fn new(store: Store) -> Self {
        Caller(Arc::new(Inner { store, idle: Mutex::default() }))
    }

    /// Posts a question and returns the answer, or what a Go client would say of its failure.
    pub(crate) async fn post(
        &self,
        target: &Target,
        body: &Value,
        timeout: Duration,
    ) -> Result<Value, String> {
        let query = format!("timeout={}s", timeout.as_secs().max(1));
        let body = Bytes::from(serde_json::to_vec(body).expect("JSON prints"));
        let answered = match tokio::time::timeout(timeout, self.exchange(target, &query, body)).await {
            Ok(answered) => answered,
            Err(_) => Err(Failure::Transport("context deadline exceeded".to_owned())),
        };
        answered.map_err(|failure| match failure {
            Failure::Transport(why) => {
                let url = types::go::quote(&format!("{}?{query}", target.url()));
                format!("Post {url}: {why}")
            }
            Failure::Answer(why) => why,
        })
    }

    async fn exchange(&self, target: &Target, query: &str, body: Bytes) -> Result<Value, Failure> {
        // A kept connection may have been closed meanwhile; then a fresh one is made.
        while let Some(mut kept) = self.take(target) {
            if kept.ready().await.is_ok()
                && let Ok(answer) = self.ask(target, kept, query, body.clone()).await
            {
                return answer;
            }
        }
        let fresh = self.connect(target).await.map_err(Failure::Transport)?;
        let asked = self.ask(target, fresh, query, body).await;
        asked.map_err(|error| Failure::Transport(error.to_string()))?
    }

    fn take(&self, target: &Target) -> Option<Connection> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(target)?.pop()
    }

    fn keep(&self, target: &Target, connection: Connection) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.entry(target.clone()).or_default();
        if kept.len() < KEPT && !connection.is_closed() {
            kept.push(connection);
        }
    }

    /// The outer error says that the connection is no good, the inner one that the answer is not.
    async fn ask(
        &self,
        target: &Target,
        mut connection: Connection,
        query: &str,
        body: Bytes,
    ) -> Result<Result<Value, Failure>, hyper::Error> {
        let host = target.url();
        let host = host.trim_start_matches("https://").split('/').next().unwrap_or("").to_owned();
        let request = Request::post(format!("{}?{query}", target.path()))
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body));
        let Ok(request) = request else {
            return Ok(Err(Failure::Transport("invalid path".to_owned())));
        };
        let answer = connection.send_request(request).await?;
        let status = answer.status();
        let Ok(bytes) = Limited::new(answer.into_body(), MAX_BODY).collect().await else {
            return Ok(Err(Failure::Transport("unexpected EOF".to_owned())));
        };
        self.keep(target, connection);
        Ok(read(status, &bytes.to_bytes()))
    }

    async fn connect(&self, target: &Target) -> Result<Connection, String> {
        let (host, port) = match &target.place {
            Place::Url { host, port, .. } => (host.trim_matches(['[', ']']).to_owned(), *port),
            Place::Service { namespace, name, port, .. } => {
                service::resolve(&self.0.store, namespace, name, *port)?
            }
        };
        let stream = TcpStream::connect((host.as_str(), port));
        let stream = stream.await.map_err(|error| {
            let shown =
                if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            dial_error(&shown, &error)
        })?;
        // Small questions are not to wait for each other; that they may does no harm.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection to a webhook may be slow");
        }
        let name = ServerName::try_from(target.server_name()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(tls(&target.authority)?));
        let stream = connector.connect(name, stream).await.map_err(|error| tls_error(&error))?;
        let (connection, driver) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to a webhook ended early");
            }
        });
        Ok(connection)
    }
}

/// What went wrong: on the way, or in what came back.
enum Failure {
    Transport(String),
    Answer(String),
}

fn read(status: StatusCode, bytes: &[u8]) -> Result<Value, Failure> {
    if !status.is_success() {
        let said = String::from_utf8_lossy(bytes);
        return Err(Failure::Answer(match status {
            StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
            StatusCode::UNAUTHORIZED => {
                "the server has asked for the client to provide credentials".to_owned()
            }
            _ if status.is_server_error() => format!(
                "an error on the server ({}) has prevented the request from succeeding",
                types::go::quote(said.trim_end())
            ),
            _ => format!(
                "the server responded with the status code {} but did not return more information",
                status.as_u16()
            ),
        }));
    }
    serde_json::from_slice(bytes).map_err(|_| {
        let said = String::from_utf8_lossy(bytes).into_owned();
        let why = "couldn't get version/kind; json parse error: invalid character";
        Failure::Answer(format!("{why} in {}", types::go::quote(&said)))
    })
}

/// The certificates that sign a server's, in PEM; without any those that this machine trusts.
pub(crate) fn trusting(authority: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if authority.is_empty() {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for certificate in CertificateDer::pem_slice_iter(authority) {
        let certificate =
            certificate.map_err(|error| format!("unable to load root certificates: {error}"))?;
        roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
    }
    Ok(roots)
}

fn tls(authority: &[u8]) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    let mut config = config.with_root_certificates(trusting(authority)?).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn dial_error(address: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
        io::ErrorKind::TimedOut => format!("dial tcp {address}: i/o timeout"),
        _ => format!("dial tcp {address}: {error}"),
    }
}

fn tls_error(error: &io::Error) -> String {
    use rustls::CertificateError as Bad;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let start = "tls: failed to verify certificate: x509:";
    match inner {
        Some(rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
            format!("{start} certificate signed by unknown authority")
        }
        Some(rustls::Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. })) => {
            format!("{start} certificate has expired or is not yet valid")
        }
        Some(rustls::Error::InvalidCertificate(why)) => format!("{start} {why}"),
        _ => error.to_string(),
    }
}
