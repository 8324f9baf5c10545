//! What a plugin is and what it is shown.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};

use crate::auth::User;
use crate::cluster::Context;
use crate::registry::Resource;
use crate::status::Refusal;

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed, in whole or in part.
    Update,
    /// It is removed, or marked to be.
    Delete,
    /// Somebody talks to what it stands for.
    Connect,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        })
    }
}

/// A write that plugins have a say in.
pub struct Request<'a> {
    /// What is done.
    pub operation: Operation,
    /// With what kind of object.
    pub resource: &'a Resource,
    /// With which part of it; empty for the whole.
    pub subresource: &'a str,
    /// What kind `object` is of. What is posted to a subresource is of another kind than the resource.
    pub of: &'a Resource,
    /// In which namespace; empty for objects without one.
    pub namespace: &'a str,
    /// The name of the object; empty if it is to be generated.
    pub name: String,
    /// Who does it.
    pub user: &'a User,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The options of the request, such as `CreateOptions`.
    pub options: &'a Value,
    /// The object as it is to become; `None` when it is removed.
    pub object: Option<Value>,
    /// The object as it is; `None` when it is made.
    pub old: Option<&'a Value>,
    pub(super) warnings: Mutex<Vec<String>>,
    pub(super) again: Again,
    pub(super) context: &'a Context<'a>,
}

/// Who is to be asked again because the object was changed afterwards (3.17).
#[derive(Default)]
pub(super) struct Again {
    /// This is the second round. There is no third.
    pub(super) is_second_round: bool,
    /// There is to be one.
    pub(super) is_wanted: bool,
    /// Those who want to be asked again should anything change.
    pub(super) previous: HashSet<String>,
    /// Those of them after whom something did.
    pub(super) wanted: HashSet<String>,
    /// The object as the last of them left it.
    pub(super) last: Option<Value>,
}

impl Again {
    /// Something changed: all who were asked so far and want to be asked again are.
    pub(super) fn remember_previous(&mut self) {
        self.wanted.extend(self.previous.drain());
    }
}

impl Request<'_> {
    /// Warns the client; the write goes on.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning.into());
    }

    /// An object that somebody else wrote, in the form in which the others expect to see it: with its defaults.
    pub(super) fn settled(&self, object: Value) -> Result<Value, Refusal> {
        if self.of.custom.is_some() {
            return Ok(object);
        }
        let decoded = schema::decode_value(self.of.of_type(), &object);
        let decoded = decoded.map_err(|why| Refusal::internal(why.to_string()))?;
        if self.is_foreign() {
            return Ok(whole(self.of, decoded.value));
        }
        Ok(self.context.canonical(&decoded.value, self.old).unwrap_or(decoded.value))
    }

    /// Whether the object is of another kind than the resource.
    fn is_foreign(&self) -> bool {
        (&self.of.group, &self.of.kind) != (&self.resource.group, &self.resource.kind)
    }

    /// Whether the request is about objects of this resource, and not about a part of them.
    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.resource.group == group && self.resource.plural == resource
    }
}

/// An object that has no rules of its own, with everything that says what it is.
pub(super) fn whole(of: &Resource, mut object: Value) -> Value {
    schema::settle(of.of_type(), &mut object);
    object["apiVersion"] = json!(of.api_version());
    object["kind"] = json!(of.kind);
    object
}

/// Somebody who has a say in writes. Plugins in the same process are asked in the order in which they were added, after
/// the cluster's own and before webhooks.
///
/// ```
/// # use apiserver::admission::{Operation, Plugin, Request};
/// # use apiserver::registry::Resource;
/// # use apiserver::status::{About, Refusal};
/// # use futures::future::{BoxFuture, ready};
/// struct NoSecrets;
///
/// impl Plugin for NoSecrets {
///     fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
///         operation == Operation::Create && resource.plural == "secrets" && subresource.is_empty()
///     }
///
///     fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
///         let about = About { group: "", resource: "secrets", name: &request.name };
///         Box::pin(ready(Err(Refusal::forbidden(about, "there are no secrets here"))))
///     }
/// }
/// ```
pub trait Plugin: Send + Sync {
    /// Whether it has a say in such requests at all. Asked for every write: what nobody wants costs nothing.
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool;

    /// Whether it may change objects, of those requests that it wants. Those that only look are not asked before everybody
    /// else has spoken.
    fn mutates(&self, operation: Operation, resource: &Resource) -> bool {
        let _ = (operation, resource);
        true
    }

    /// Whether it is shown who manages the fields of objects. Few want to know, and it is the larger part of many objects.
    fn sees_managers(&self) -> bool {
        false
    }

    /// Changes `request.object`, or refuses the request.
    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let _ = request;
        Box::pin(ready(Ok(())))
    }

    /// Refuses the request, seeing the object as it would be stored.
    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let _ = request;
        Box::pin(ready(Ok(())))
    }
}
