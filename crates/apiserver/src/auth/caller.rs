//! A client in the same process with an identity of its own, such as a controller with its service account.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use tower_service::Service;

use super::User;
use crate::answer::Answer;
use crate::cluster::Cluster;

/// A cluster as one user sees it: a service for a client, like the cluster itself.
#[derive(Clone)]
pub struct Caller {
    cluster: Cluster,
    user: Arc<User>,
}

impl Caller {
    pub(crate) fn new(cluster: Cluster, user: User) -> Self {
        Caller { cluster, user: Arc::new(user.authenticated()) }
    }
}

impl<B> Service<Request<B>> for Caller
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = <Cluster as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.user.clone());
        self.cluster.call(request)
    }
}
