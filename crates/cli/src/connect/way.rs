//! The way to a cluster: its address, and where that address is from. Whoever cannot take it says so.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use tower_service::Service;

/// How long to wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the management cluster may take until its answer begins. An API server itself gives up after a minute.
pub(super) const ANSWER: Duration = Duration::from_secs(65);
/// The same for a worker. One that is silent must not keep the others from being shown.
pub(super) const WORKER_ANSWER: Duration = Duration::from_secs(20);

/// Where the address of a cluster is from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A context of the user's kubeconfig.
    Context { name: String, files: Vec<PathBuf> },
    /// What the operator has for a worker.
    Worker { name: String, place: String },
    /// The service account of the pod that this runs in.
    Pod,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Context { name, files } => {
                let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                write!(f, "context {name} of {}", files.join(":"))
            }
            Source::Worker { name, place } => write!(f, "worker {name}, by {place}"),
            Source::Pod => f.write_str("the cluster of this pod"),
        }
    }
}

/// A cluster that could not be talked to.
#[derive(Debug)]
pub(crate) struct Unreachable {
    server: String,
    source: Source,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to reach {} ({})", self.server, self.source)
    }
}

impl std::error::Error for Unreachable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.cause.as_ref())
    }
}

impl Unreachable {
    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match &self.source {
            Source::Context { name, .. } if name.starts_with(&fleet::context("")) => {
                "does the fleet run? ferry up starts it; --kubeconfig and --context choose another cluster"
                    .to_owned()
            }
            Source::Context { .. } => {
                "is the cluster up, and its address right? --kubeconfig and --context choose another one"
                    .to_owned()
            }
            Source::Worker { name, .. } => {
                format!(
                    "is it up? ferry doctor says more; ferry join CONTEXT --name {name} gives another address"
                )
            }
            Source::Pod => "may this pod talk to its API server? look at network policies".to_owned(),
        }
    }
}

/// A cluster took a request and said nothing.
#[derive(Debug)]
struct NoAnswer(Duration);

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer in {} s", self.0.as_secs())
    }
}

impl std::error::Error for NoAnswer {}

/// A client whose errors say where it could not get to.
pub(super) fn client(mut config: Config, source: Source, patience: Duration) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT);
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let namespace = config.default_namespace.clone();
    let way = Way { client: Client::try_from(config)?, at: Arc::new((server, source)), patience };
    Ok(Client::new(way, namespace))
}

struct Way {
    client: Client,
    at: Arc<(String, Source)>,
    patience: Duration,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Service<Request<Body>> for Way {
    type Response = Response<Body>;
    type Error = Failed;
    type Future = BoxFuture<'static, Result<Response<Body>, Failed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, at, patience) = (self.client.clone(), Arc::clone(&self.at), self.patience);
        Box::pin(async move {
            let cause: Failed = match tokio::time::timeout(patience, client.send(request)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error @ (kube::Error::Service(_) | kube::Error::HyperError(_)))) => error.into(),
                Ok(Err(other)) => return Err(other.into()),
                Err(_) => NoAnswer(patience).into(),
            };
            let (server, source) = (at.0.clone(), at.1.clone());
            Err(Unreachable { server, source, cause }.into())
        })
    }
}
