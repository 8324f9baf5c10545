//! The webhooks over HTTP, for real clusters: admission reviews and conversion reviews, and the configurations that make
//! a cluster send them.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use reconcile::Tasks;
use rules::conversion::{self, Version};
use rules::webhook;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use super::certificate::{self, Authority};
use super::configurations::{self, Mode};
use super::{ASKED, Asked};
use crate::Operator;
use crate::definitions::{self, Conversion};

/// The largest review that is read. An API server sends the object twice, and none is larger than 3 MiB.
const MAX_REVIEW: usize = 16 * 1024 * 1024;
/// An API server waits no longer for an answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// How often it is looked whether the certificate is to be renewed.
const LOOK: Duration = Duration::from_secs(3600);
/// Where objects are converted.
const CONVERT: &str = "/convert";

/// How the cluster reaches the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// By the address that it listens on: the operator runs outside of the cluster.
    Url,
    /// By a Service: the operator runs inside.
    Service {
        /// The Service's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// What keeps the webhooks from being served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address.
    #[error("failed to listen for webhooks on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The certificate.
    #[error(transparent)]
    Certificate(#[from] certificate::Error),
    /// The configurations that make the cluster ask.
    #[error("failed to {doing} the webhook configurations")]
    Configure {
        /// What was being done.
        doing: &'static str,
        /// What the cluster said.
        source: kube::Error,
    },
    /// The definitions of what is converted.
    #[error(transparent)]
    Definitions(#[from] definitions::Error),
}

/// Webhooks that a cluster asks.
pub struct Webhooks {
    operator: Operator,
    reach: Reach,
    address: SocketAddr,
    /// The certificates by which the cluster knows that it is us.
    bundle: String,
    /// What keeps the configurations as they are to be.
    keeping: Tasks,
}

impl Webhooks {
    /// Listens, and has the cluster ask.
    pub async fn start(
        operator: Operator,
        listen: SocketAddr,
        reach: Reach,
        tasks: &mut Tasks,
    ) -> Result<Self, Error> {
        let mut webhooks = Webhooks::listen(operator, listen, reach, tasks).await?;
        webhooks.ask().await?;
        Ok(webhooks)
    }

    /// Listens. Among several, everyone does.
    pub async fn listen(
        operator: Operator,
        listen: SocketAddr,
        reach: Reach,
        tasks: &mut Tasks,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (authority, names) = match &reach {
            Reach::Url => (Authority::new()?, vec![address.ip().to_string(), "localhost".to_owned()]),
            Reach::Service { namespace, name } => {
                let names = ["", ".svc", ".svc.cluster.local"].map(|end| format!("{name}.{namespace}{end}"));
                (Authority::shared(&operator.context.client, namespace).await?, names.to_vec())
            }
        };
        let clock = operator.context.clock.clone();
        let made = clock.now();
        let serving = Arc::new(ArcSwap::from(authority.serving(&names, made)?));
        let bundle = BASE64.encode(authority.bundle());
        tasks.spawn("webhooks", accept(listener, Arc::clone(&serving), operator.clone()));
        let now = move || clock.now();
        let renewing = Renewing { authority, names, made, serving };
        tasks.spawn("webhook certificate", renewing.run(LOOK, now));
        Ok(Webhooks { operator, reach, address, bundle, keeping: Tasks::new() })
    }

    /// Tells the cluster to ask from now on: how to get from one version to the other, without which not even we can read
    /// what is there; and about writes, once everything was seen. Among several, who leads does.
    pub async fn ask(&mut self) -> Result<(), Error> {
        let context = &self.operator.context;
        let client = &context.client;
        definitions::convert_by(client, &Conversion::Webhook(self.client_config(CONVERT))).await?;
        self.operator.ready().await;
        let not_in = ["kube-system", context.settings.namespace.as_str()];
        for mode in Mode::BOTH {
            let to = |path: &str| self.client_config(path);
            let configuration = configurations::configuration(mode, &self.operator.asked(), to, &not_in);
            let written = configurations::write(client, mode, &configuration).await;
            written.map_err(|source| Error::Configure { doing: "write", source })?;
            let keep = configurations::keep(client.clone(), mode, configuration);
            self.keeping.spawn("webhook configuration", keep);
        }
        Ok(())
    }

    /// How the cluster reaches a path.
    fn client_config(&self, path: &str) -> Value {
        let mut to = match &self.reach {
            Reach::Url => json!({ "url": format!("https://{}{path}", self.address) }),
            Reach::Service { namespace, name } => {
                json!({ "service": { "namespace": namespace, "name": name, "path": path } })
            }
        };
        to["caBundle"] = json!(self.bundle);
        to
    }

    /// Where they are served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes the configurations away again, so that the cluster goes on without us; to be called before the server ends.
    /// One that is reached by a Service leaves them, because another replica answers.
    pub async fn leave(&mut self) -> Result<(), Error> {
        self.keeping.stop().await;
        if self.reach != Reach::Url {
            return Ok(());
        }
        let client = &self.operator.context.client;
        for mode in Mode::BOTH {
            let removed = configurations::remove(client, mode).await;
            removed.map_err(|source| Error::Configure { doing: "remove", source })?;
        }
        Ok(definitions::convert_by(client, &Conversion::Embedded).await?)
    }
}

/// Renews the serving certificate in time; connections that are there keep theirs.
struct Renewing {
    authority: Authority,
    names: Vec<String>,
    /// When the one that is served was made.
    made: Timestamp,
    serving: Arc<ArcSwap<ServerConfig>>,
}

impl Renewing {
    /// Looks at the clock every so often: a machine may sleep, and a certificate that could not be made is tried again.
    async fn run(mut self, every: Duration, now: impl Fn() -> Timestamp) {
        loop {
            tokio::time::sleep(every).await;
            let now = now();
            if now < certificate::renewed_at(self.made) {
                continue;
            }
            match self.authority.serving(&self.names, now) {
                Ok(renewed) => {
                    self.serving.store(renewed);
                    self.made = now;
                    info!("the webhooks' certificate was renewed");
                }
                Err(error) => {
                    warn!(error = %reconcile::chain(&error), "failed to renew the webhooks' certificate");
                }
            }
        }
    }
}

async fn accept(listener: TcpListener, serving: Arc<ArcSwap<ServerConfig>>, operator: Operator) {
    let mut connections = Tasks::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let acceptor = TlsAcceptor::from(serving.load_full());
                connections.spawn("webhook connection", converse(stream, acceptor, operator.clone()));
            }
            Err(error) => {
                warn!(%error, "failed to accept a connection to the webhooks");
                // Out of file descriptors, most likely: a moment later there may be some.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, operator: Operator) {
    let Ok(Ok(stream)) = tokio::time::timeout(DEADLINE, acceptor.accept(stream)).await else {
        debug!("a connection to the webhooks ended before it began");
        return;
    };
    let service = service_fn(move |request| {
        let operator = operator.clone();
        async move { Ok::<_, Infallible>(answer(&operator, request).await) }
    });
    let served = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = served.serve_connection(TokioIo::new(stream), service).await {
        debug!(error, "a connection to the webhooks ended");
    }
}

async fn answer(operator: &Operator, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let asked = ASKED.iter().find_map(|asked| {
        let mode = Mode::BOTH.into_iter().find(|mode| configurations::path(*mode, asked) == path);
        mode.map(|mode| (mode, asked))
    });
    if asked.is_none() && path != CONVERT {
        return text(StatusCode::NOT_FOUND, "there is no such webhook\n");
    }
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "webhooks are asked with POST\n");
    }
    let body = tokio::time::timeout(DEADLINE, Limited::new(request.into_body(), MAX_REVIEW).collect()).await;
    let Ok(Ok(body)) = body else {
        return text(StatusCode::BAD_REQUEST, "the review did not arrive whole\n");
    };
    let review: Value = match serde_json::from_slice(&body.to_bytes()) {
        Ok(review) => review,
        Err(error) => return text(StatusCode::BAD_REQUEST, &format!("the review is no JSON: {error}\n")),
    };
    let response = match asked {
        Some((mode, asked)) => {
            // A server that has seen nothing yet says nothing wrong, and nothing for the moment.
            operator.ready().await;
            review_of(operator, mode, asked, &review["request"]).await
        }
        None => converted(&review["request"]),
    };
    let answer = json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response });
    let mut answer = Response::new(Full::new(Bytes::from(answer.to_string())));
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}

/// The answer to an admission review.
async fn review_of(operator: &Operator, mode: Mode, asked: &Asked, request: &Value) -> Value {
    let (object, namespace) = (&request["object"], request["namespace"].as_str().unwrap_or_default());
    let refused = |code: u16, reason: &str, message: String| {
        let status = json!({ "metadata": {}, "code": code, "reason": reason, "message": message });
        json!({ "uid": request["uid"], "allowed": false, "status": status })
    };
    let broken = |error: super::Error| refused(500, "InternalError", reconcile::chain(&error));
    if mode == Mode::Mutating {
        return match operator.default(asked.kind, namespace, object).await {
            Err(error) => broken(error),
            Ok(after) => {
                let mut answer = json!({ "uid": request["uid"], "allowed": true });
                let patch = json_patch::diff(object, &after);
                if !patch.0.is_empty() {
                    let patch = serde_json::to_vec(&patch).expect("a patch is JSON");
                    answer["patchType"] = json!("JSONPatch");
                    answer["patch"] = json!(BASE64.encode(patch));
                }
                answer
            }
        };
    }
    let old = Some(&request["oldObject"]).filter(|old| !old.is_null());
    match operator.validate(asked.kind, namespace, object, old) {
        Err(error) => broken(error),
        Ok((errors, warnings)) => {
            let mut answer = if errors.is_empty() {
                json!({ "uid": request["uid"], "allowed": true })
            } else {
                refused(403, "Forbidden", webhook::message(&errors))
            };
            if !warnings.is_empty() {
                answer["warnings"] = json!(warnings);
            }
            answer
        }
    }
}

/// The answer to a conversion review.
fn converted(request: &Value) -> Value {
    let failed = |message: String| json!({ "uid": request["uid"], "result": { "status": "Failure", "message": message } });
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let Some(version) = Version::of(wanted) else {
        return failed(conversion::Error::UnknownVersion(wanted.to_owned()).to_string());
    };
    let objects = request["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let done: Result<Vec<Value>, _> =
        objects.iter().map(|object| conversion::convert(object, version)).collect();
    match done {
        Ok(objects) => {
            json!({ "uid": request["uid"], "convertedObjects": objects, "result": { "status": "Success" } })
        }
        Err(error) => failed(error.to_string()),
    }
}

fn text(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(text.to_owned())));
    *answer.status_mut() = code;
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use jiff::SignedDuration;

    use super::*;

    /// A clock that goes a day with each look at it.
    #[tokio::test]
    async fn certificates_are_renewed_long_before_their_end() {
        let began = Timestamp::from_second(1_700_000_000).expect("a time");
        let (authority, names) = (Authority::new().expect("an authority"), vec!["localhost".to_owned()]);
        let serving = Arc::new(ArcSwap::from(authority.serving(&names, began).expect("a certificate")));
        let renewing = Renewing { authority, names, made: began, serving: Arc::clone(&serving) };
        // On each day, what is served.
        let served: Arc<Mutex<Vec<Arc<ServerConfig>>>> = Arc::default();
        let looked = Arc::clone(&served);
        let now = move || {
            let mut served = looked.lock().expect("nobody panics here");
            served.push(serving.load_full());
            began + SignedDuration::from_hours(24 * i64::try_from(served.len()).expect("a few days"))
        };
        let mut tasks = Tasks::new();
        tasks.spawn("renewing", renewing.run(Duration::from_millis(1), now));
        while served.lock().expect("nobody panics here").len() < 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tasks.stop().await;
        let served = served.lock().expect("nobody panics here");
        let changed: Vec<usize> =
            (1..200).filter(|day| !Arc::ptr_eq(&served[*day], &served[*day - 1])).collect();
        assert_eq!(changed, [60, 120, 180]);
    }
}
