//! A cluster as a service: a client in the same process talks to it without sockets or TLS.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::answer::finish::{finished, refused};
use crate::answer::{self, Answer, Body};
use crate::cluster::{Cluster, MAX_BODY};
use crate::status::Refusal;

/// How long a client may take to send the body of a request, unless [`BodyWithin`] says otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long this client may take to send the body of this request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyWithin(pub(crate) Duration);

impl<B> tower_service::Service<Request<B>> for Cluster
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let cluster = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            // Whoever may not do it needs not send it: the answer is the same.
            if !body.is_end_stream() && !cluster.may_ask(&head) {
                return Ok(cluster.answer(Request::from_parts(head, Bytes::new())).await);
            }
            let patience = head.extensions.get::<BodyWithin>().map_or(PATIENCE, |within| within.0);
            let body = tokio::time::timeout(patience, Limited::new(body, MAX_BODY).collect());
            let Ok(body) = body.await else {
                let late = answer::text(StatusCode::REQUEST_TIMEOUT, "the request was not sent in time");
                return Ok(finished(&head, late).await);
            };
            Ok(match body {
                Ok(body) => cluster.answer(Request::from_parts(head, body.to_bytes())).await,
                Err(error) if error.is::<LengthLimitError>() => {
                    refused(&head, &Refusal::too_large(MAX_BODY)).await
                }
                Err(error) => {
                    let why = format!("failed to read the body: {error}");
                    finished(&head, answer::text(StatusCode::BAD_REQUEST, why)).await
                }
            })
        })
    }
}

/// A cluster for clients in this process that keep what they watch and write. Neither events nor the answers to writes tell
/// them who manages which fields: that is the larger part of many objects, and none of them decides by it.
#[derive(Clone)]
pub struct WithoutManagers(pub Cluster);

/// Marks a request of [`WithoutManagers`].
#[derive(Clone, Copy)]
pub(crate) struct LeavesOutManagers;

impl<B> tower_service::Service<Request<B>> for WithoutManagers
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = <Cluster as tower_service::Service<Request<B>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(LeavesOutManagers);
        self.0.call(request)
    }
}
