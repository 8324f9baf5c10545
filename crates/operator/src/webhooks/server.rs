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
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use reconcile::Tasks;
use rules::conversion::{self, Version};
use rules::webhook;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::configurations::{self, Mode};
use super::{ASKED, Asked};
use crate::Operator;
use crate::certificate::{self, Authority, Renewing, Server, names_of_service};
use crate::connections::{Begun, Door, http};
use crate::definitions::{self, Conversion};

/// The largest review that is read. An API server sends the object twice, and none is larger than 3 MiB.
const MAX_REVIEW: usize = 16 * 1024 * 1024;
/// An API server waits no longer for an answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a connection is kept on which nothing more is asked: an API server is the first to give one up.
const IDLE: Duration = Duration::from_secs(120);
/// How many connections there are at most; an API server has one or a few.
const CONNECTIONS: usize = 512;
/// How long those who asked before we stop are waited for. Nobody keeps the Lease meanwhile, and nobody acts.
const GRACE: Duration = Duration::from_secs(5);
/// How long it is waited before the same is tried again.
const PEACE: Duration = Duration::from_secs(1);
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
        /// The name of one by which it asks how to get from one version to the other. It leads here also while we are not
        /// ready, since without an answer we never would be.
        conversion: String,
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
    way: Way,
    /// What keeps the configurations as they are to be.
    keeping: Tasks,
    /// Whether the server is to end; heard by it for as long as it is there.
    ending: watch::Sender<bool>,
}

/// How the cluster finds us, and knows that it is us.
#[derive(Clone)]
struct Way {
    reach: Reach,
    address: SocketAddr,
    authority: certificate::Current,
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
            Reach::Url => (Authority::own()?, vec![address.ip().to_string(), "localhost".to_owned()]),
            Reach::Service { namespace, name, conversion } => {
                let authority = Authority::shared(&operator.context.client, namespace, tasks).await?;
                let mut names = names_of_service(namespace, name);
                if conversion != name {
                    names.extend(names_of_service(namespace, conversion));
                }
                (authority, names)
            }
        };
        let server = Server { title: "ferry-webhooks", names, clients: None };
        let clock = operator.context.clock.clone();
        let renewing = Renewing::begin(authority.clone(), server, clock.now())?;
        let (ending, told) = watch::channel(false);
        tasks.spawn("webhooks", accept(listener, renewing.serving(), operator.clone(), told));
        tasks.spawn("webhook certificate", renewing.run(certificate::LOOK, move || clock.now()));
        let way = Way { reach, address, authority };
        Ok(Webhooks { operator, way, keeping: Tasks::new(), ending })
    }

    /// Tells the cluster to ask from now on: how to get from one version to the other, without which not even we can read
    /// what is there; and about writes, once everything was seen. Among several, who leads does.
    pub async fn ask(&mut self) -> Result<(), Error> {
        let client = &self.operator.context.client;
        definitions::convert_by(client, &self.way.conversion()).await?;
        self.operator.ready().await;
        for (mode, configuration) in self.way.configurations(&self.operator) {
            let written = configurations::write(client, mode, &configuration).await;
            written.map_err(|source| Error::Configure { doing: "write", source })?;
        }
        self.keeping.spawn("webhook configurations", keep(self.operator.clone(), self.way.clone()));
        Ok(())
    }

    /// Where they are served.
    pub fn address(&self) -> SocketAddr {
        self.way.address
    }

    /// Takes the configurations away again, so that the cluster goes on without us; to be called before the server ends.
    /// One that is reached by a Service leaves them, because another replica answers.
    pub async fn leave(&mut self) -> Result<(), Error> {
        self.keeping.stop().await;
        if self.way.reach != Reach::Url {
            return Ok(());
        }
        let client = &self.operator.context.client;
        for mode in Mode::BOTH {
            let removed = configurations::remove(client, mode).await;
            removed.map_err(|source| Error::Configure { doing: "remove", source })?;
        }
        Ok(definitions::convert_by(client, &Conversion::without_us(client).await?).await?)
    }

    /// Ends the server, once those who have asked are answered: what they ask is refused if nobody answers. Who they ask is
    /// not ours to say any more.
    pub async fn end(mut self) {
        self.keeping.stop().await;
        self.ending.send_replace(true);
        self.ending.closed().await;
    }
}

impl Way {
    /// How the cluster gets from one version to the other.
    fn conversion(&self) -> Conversion {
        Conversion::Webhook(self.client_config(CONVERT))
    }

    /// What the cluster is to ask.
    fn configurations(&self, operator: &Operator) -> [(Mode, Value); 2] {
        let not_in = ["kube-system", operator.context.settings.namespace.as_str()];
        Mode::BOTH.map(|mode| {
            let to = |path: &str| self.client_config(path);
            (mode, configurations::configuration(mode, &operator.asked(), to, &not_in))
        })
    }

    /// How the cluster reaches a path.
    fn client_config(&self, path: &str) -> Value {
        let mut to = match &self.reach {
            Reach::Url => json!({ "url": format!("https://{}{path}", self.address) }),
            Reach::Service { namespace, name, conversion } => {
                let name = if path == CONVERT { conversion } else { name };
                json!({ "service": { "namespace": namespace, "name": name, "path": path } })
            }
        };
        to["caBundle"] = json!(BASE64.encode(self.authority.borrow().bundle()));
        to
    }
}

/// Keeps what the cluster asks as it is to be, by the authority that there is at any time.
async fn keep(operator: Operator, mut way: Way) {
    let client = &operator.context.client;
    let away = match way.reach {
        Reach::Url => Duration::ZERO,
        Reach::Service { .. } => configurations::UNINSTALLED,
    };
    let mut is_another = false;
    loop {
        let mut keeping = Tasks::new();
        for (mode, configuration) in way.configurations(&operator) {
            let keep = configurations::keep(client.clone(), mode, configuration, away);
            keeping.spawn("webhook configuration", keep);
        }
        while is_another && let Err(error) = definitions::convert_by(client, &way.conversion()).await {
            warn!(error = %reconcile::chain(&error), "failed to tell the definitions our authority");
            tokio::time::sleep(PEACE).await;
        }
        certificate::replaced(&mut way.authority).await;
        is_another = true;
    }
}

async fn accept(
    listener: TcpListener,
    serving: Arc<ArcSwap<ServerConfig>>,
    operator: Operator,
    mut told: watch::Receiver<bool>,
) {
    let (mut connections, graceful) = (Tasks::new(), GracefulShutdown::new());
    let door = Door::new(listener, CONNECTIONS, "webhooks");
    loop {
        let (stream, place) = tokio::select! {
            biased;
            () = told_to_end(&mut told) => break,
            next = door.next() => next,
        };
        let acceptor = TlsAcceptor::from(serving.load_full());
        let conversation = converse(stream, acceptor, operator.clone(), graceful.watcher());
        connections.spawn("webhook connection", async move {
            conversation.await;
            drop(place);
        });
    }
    drop(door);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        debug!("somebody still asked the webhooks when they ended");
    }
}

/// Returns when the server is to end by itself. Otherwise it ends with its tasks.
async fn told_to_end(told: &mut watch::Receiver<bool>) {
    if told.wait_for(|ends| *ends).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, operator: Operator, watcher: Watcher) {
    let Ok(Ok(stream)) = tokio::time::timeout(DEADLINE, acceptor.accept(stream)).await else {
        debug!("a connection to the webhooks ended before it began");
        return;
    };
    let begun = Begun::default();
    let heard = begun.clone();
    let service = service_fn(move |request| {
        heard.set();
        let operator = operator.clone();
        async move { Ok::<_, Infallible>(answer(&operator, request).await) }
    });
    let connection = http(IDLE).serve_connection(TokioIo::new(stream), service).into_owned();
    if let Some(Err(error)) = begun.in_time(DEADLINE, watcher.watch(connection)).await {
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
