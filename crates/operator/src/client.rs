//! The way to a cluster.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, Config, client::Body};
use tower_service::Service;

/// A connection on which nothing was heard for so long is given up. A watch is ended by the cluster before that, so that one
/// that has fallen silent is no longer there.
const SILENCE: Duration = Duration::from_secs(295);

/// A client that notices when a cluster has fallen silent: without that a watch whose connection is dead waits for ever.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    (config.read_timeout, config.reset_reader_on_write) = (Some(SILENCE), true);
    Client::try_from(config)
}

/// The same client, whose calls end in time: the whole answer is there by then, or it is an error. The answer to a watch
/// has begun by then, and has no end.
pub(crate) fn in_time(client: Client, deadline: Duration) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(InTime { client, deadline }, namespace)
}

/// The cluster took a request and said nothing, or not all of it.
#[derive(Debug, thiserror::Error)]
#[error("no answer in {0:?}")]
struct NoAnswer(Duration);

struct InTime {
    client: Client,
    deadline: Duration,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Service<Request<Body>> for InTime {
    type Response = Response<Body>;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Response<Body>, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, deadline) = (self.client.clone(), self.deadline);
        let watches =
            request.uri().query().is_some_and(|query| query.split('&').any(|it| it == "watch=true"));
        let answer = async move {
            let (head, mut body) = client.send(request).await?.into_parts();
            if !watches {
                body = Body::from(body.collect().await?.to_bytes().to_vec());
            }
            Ok(Response::from_parts(head, body))
        };
        tokio::time::timeout(deadline, answer)
            .map(move |answer| answer.unwrap_or_else(|_| Err(NoAnswer(deadline).into())))
            .boxed()
    }
}
