//! What is served over HTTP: whether the operator is well, and what it counted.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use reconcile::Tasks;
use tokio::net::TcpListener;
use tracing::debug;

use crate::Operator;
use crate::connections::{Begun, Door, http};

/// How many connections there are at most. Few ask, and everybody can: those beyond wait.
const CONNECTIONS: usize = 64;
/// How long a client may take to ask. Whether we are ready is asked in time, too, and waits behind who does not.
const DEADLINE: Duration = Duration::from_secs(5);

/// Serves `/healthz`, `/readyz` and `/metrics` on `listener`, for as long as `tasks` live. Returns where.
pub fn serve(operator: Operator, listener: TcpListener, tasks: &mut Tasks) -> std::io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let operator = Arc::new(operator);
    tasks.spawn("http", async move {
        // Connections end with the tasks that they belong to.
        let mut connections = Tasks::new();
        let door = Door::new(listener, CONNECTIONS, "metrics");
        loop {
            let (stream, place) = door.next().await;
            let operator = Arc::clone(&operator);
            connections.spawn("metrics connection", async move {
                let begun = Begun::default();
                let heard = begun.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    heard.set();
                    let response = answer(&operator, request.method(), request.uri().path());
                    async move { Ok::<_, Infallible>(response) }
                });
                let spoken = http(DEADLINE);
                let connection = spoken.serve_connection(TokioIo::new(stream), service);
                if let Some(Err(error)) = begun.in_time(DEADLINE, connection).await {
                    debug!(%error, "a connection ended");
                }
                drop(place);
            });
        }
    });
    Ok(address)
}

fn answer(operator: &Operator, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, kind, text) = match path {
        _ if method != Method::GET => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", String::new()),
        "/healthz" => (StatusCode::OK, "text/plain", "ok".to_owned()),
        "/readyz" if operator.is_ready() => (StatusCode::OK, "text/plain", "ok".to_owned()),
        "/readyz" => {
            (StatusCode::SERVICE_UNAVAILABLE, "text/plain", "not everything was seen yet".to_owned())
        }
        "/metrics" => (StatusCode::OK, "text/plain; version=0.0.4", operator.metrics()),
        _ => (StatusCode::NOT_FOUND, "text/plain", String::new()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
