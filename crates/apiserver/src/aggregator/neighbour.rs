//! An API server of others that lives in this process.

use futures::future::BoxFuture;
use http::request;
use serde_json::Value;

use crate::answer::Answer;

/// An API server in this process that serves a group beside the cluster's own: it is called, after it was found out who asks
/// and that he may.
pub trait Neighbour: Send + Sync {
    /// Its API group.
    fn group(&self) -> &str;

    /// The versions that it serves now, the preferred one first.
    fn versions(&self) -> Vec<&str>;

    /// The entries of the `APIResourceList` of a version.
    fn resources(&self, version: &str) -> Vec<Value>;

    /// The entry of a version in the index of OpenAPI documents, if it has a document.
    fn document(&self, version: &str) -> Option<Value>;

    /// Answers a request for one of its versions, or for the document of one.
    fn answer<'a>(&'a self, head: &'a request::Parts) -> BoxFuture<'a, Answer>;
}
