//! Who waits where, asked of the operator without HTTP.

use std::sync::OnceLock;

use apiserver::Neighbour;
use apiserver::answer::Answer;
use futures::future::BoxFuture;
use http::request;
use http_body_util::{BodyExt as _, Full};
use operator::{Operator, visibility};
use serde_json::Value;

/// The operator of a cluster as one of its API servers. Before there is an operator it serves nothing.
#[derive(Default)]
pub(crate) struct Visibility {
    operator: OnceLock<Operator>,
}

impl Visibility {
    /// From now on this one is asked.
    pub(crate) fn ask(&self, operator: Operator) {
        assert!(self.operator.set(operator).is_ok(), "a cluster has one operator");
    }
}

impl Neighbour for Visibility {
    fn group(&self) -> &str {
        visibility::GROUP
    }

    fn versions(&self) -> Vec<&str> {
        self.operator.get().map(|_| visibility::VERSIONS.to_vec()).unwrap_or_default()
    }

    fn resources(&self, _version: &str) -> Vec<Value> {
        visibility::resources()
    }

    fn document(&self, version: &str) -> Option<Value> {
        Some(visibility::entry(version))
    }

    fn answer<'a>(&'a self, head: &'a request::Parts) -> BoxFuture<'a, Answer> {
        let operator = self.operator.get().expect("who has no operator serves no version");
        Box::pin(async move {
            let answer = visibility::answer(operator, &head.method, &head.uri, &head.headers).await;
            answer.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
        })
    }
}
