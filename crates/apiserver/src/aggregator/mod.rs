//! API servers of others behind this one (3.33): an APIService that names a Service says that a group and version is
//! served there, and requests for it go on to it, with who asks in headers that a certificate vouches for.
//!
//! - `identity`: that certificate, and who signs it; `published` tells servers of it.
//! - `remote`: what an APIService says, and how its server is asked.
//! - `availability`: the task that finds out whether it answers, and what it serves.
//! - `neighbour`: one that lives in this process and is just called.
//! - `groups`: what clients are told of all of them.
//!
//! What is built in is never served by others, and what an APIService sends elsewhere not by a neighbour.

pub(crate) mod availability;
mod groups;
mod identity;
mod neighbour;
mod remote;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{StatusCode, request};
use serde_json::Value;
use store::Scope;

use crate::answer::{self, Answer};
use crate::auth::User;
use crate::auth::front_proxy::FrontProxies;
use crate::cluster::Cluster;
use crate::object;
use crate::registry::Registry;
use crate::request::Asked;
pub(crate) use groups::Groups;
pub(crate) use identity::Identity;
pub use neighbour::Neighbour;
pub(crate) use remote::Remote;

const SERVICES: &str = "apiservices.apiregistration.k8s.io";

/// What is known of the servers of others.
pub(crate) struct Aggregator {
    identity: Identity,
    front_proxies: FrontProxies,
    neighbours: Vec<Arc<dyn Neighbour>>,
    /// What each said last, by the name of its APIService.
    said: Mutex<BTreeMap<String, Arc<Said>>>,
}

/// What a server says of itself.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The entries of its `APIResourceList`.
    pub(crate) resources: Vec<Value>,
    /// Its entry in the index of OpenAPI documents.
    pub(crate) document: Option<Value>,
}

impl Aggregator {
    /// Others are told to believe this server, and these, in what they say for whom they ask.
    pub(crate) fn new(
        others: Option<FrontProxies>,
        neighbours: Vec<Arc<dyn Neighbour>>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let identity = Identity::generate()?;
        let own = identity.as_front_proxy()?;
        let front_proxies = others.map_or(own.clone(), |others| own.and(others));
        Ok(Aggregator { identity, front_proxies, neighbours, said: Mutex::default() })
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Who is believed when he says for whom he asks, here and by others.
    pub(crate) fn front_proxies(&self) -> &FrontProxies {
        &self.front_proxies
    }

    /// Those in this process.
    fn neighbours(&self) -> impl Iterator<Item = &dyn Neighbour> {
        self.neighbours.iter().map(|neighbour| &**neighbour)
    }

    fn said(&self, name: &str) -> Option<Arc<Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn keep(&self, name: &str, said: Said) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Arc::new(said));
    }

    fn forget(&self, name: &str) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// Whose a request is, if it is for the server of others.
pub(crate) fn responsible(cluster: &Cluster, asked: &Asked) -> Option<Remote> {
    let (group, version) = group_version(asked)?;
    serving(cluster, group, version)
}

/// The neighbour that a request is for.
pub(crate) fn neighbour<'a>(cluster: &'a Cluster, asked: &Asked) -> Option<&'a dyn Neighbour> {
    let (group, version) = group_version(asked)?;
    let serves = |it: &&dyn Neighbour| it.group() == group && it.versions().contains(&version);
    cluster.aggregator().neighbours().find(serves)
}

/// The group and version that a request is about.
fn group_version(asked: &Asked) -> Option<(&str, &str)> {
    match asked {
        Asked::Resource(target) => Some((&target.group, &target.version)),
        Asked::Path(path) => {
            let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
            match parts.as_slice() {
                ["apis" | "openapi", ..] => {
                    let parts = parts.strip_prefix(&["openapi", "v3"]).unwrap_or(&parts);
                    let ["apis", group, version, ..] = parts else { return None };
                    Some((group, version))
                }
                _ => None,
            }
        }
    }
}

/// The server of others that serves a group and version.
fn serving(cluster: &Cluster, group: &str, version: &str) -> Option<Remote> {
    if is_built_in(group, version) {
        return None;
    }
    let key = store::Key::new(SERVICES, "", &format!("{version}.{group}"));
    Remote::read(&object::read(&*cluster.store().get(&key)?))
}

fn is_built_in(group: &str, version: &str) -> bool {
    group.is_empty()
        || Registry::built_in().iter().any(|known| known.group == group && known.version == version)
}

/// All servers of others.
fn all(cluster: &Cluster) -> Vec<Remote> {
    let (view, scope) = (cluster.store().view(), Scope::resource(SERVICES));
    let found = view.list(&scope).filter_map(|service| Remote::read(&object::read(service)));
    found.filter(|remote| !is_built_in(&remote.group, &remote.version)).collect()
}

/// Passes a request on, and its answer back.
pub(crate) async fn pass_on(
    cluster: &Cluster,
    remote: &Remote,
    head: &request::Parts,
    body: Bytes,
    user: &User,
) -> Answer {
    if !remote.is_available {
        return answer::text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n");
    }
    match remote.pass_on(cluster, head, body, user).await {
        Ok(answer) => answer,
        Err(why) => {
            tracing::debug!(service = remote.name, %why, "the API server of others was not reached");
            answer::text(StatusCode::SERVICE_UNAVAILABLE, format!("error trying to reach service: {why}\n"))
        }
    }
}
