//! What is served over HTTP: whether the operator is well, and what it counted.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Bytes, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reconcile::Tasks;
use tokio::net::TcpListener;
use tracing::debug;

use crate::Operator;

/// Serves `/healthz`, `/readyz` and `/metrics` on `listener`, for as long as `tasks` live. Returns where.
pub fn serve(operator: Operator, listener: TcpListener, tasks: &mut Tasks) -> std::io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let operator = Arc::new(operator);
    tasks.spawn("http", async move {
        // Connections end with the tasks that they belong to.
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors, most likely: a moment later there may be some.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let operator = Arc::clone(&operator);
            connections.spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let response = answer(&operator, request.method(), request.uri().path());
                    async move { Ok::<_, Infallible>(response) }
                });
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                    debug!(%error, "a connection ended");
                }
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
