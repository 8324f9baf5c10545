//! ResourceQuotas: nothing is let into a namespace beyond what its quotas allow.
//!
//! What a write uses is added to the status of the quotas before it is stored. All writes that wait in one namespace are
//! decided together and cost one write of each quota; meanwhile the next ones gather. Whoever counts the objects puts
//! right what was taken for writes that failed later.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use http::{Method, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use rules::resource_quota::Object;
use rules::resource_quota::admit::{Standing, Write, admit, is_charged};
use rules::wire;
use serde_json::{Value, json};
use store::{Scope, Store};
use tokio::sync::oneshot;

use super::plugin::{Operation, Plugin, Request};
use super::pods::forbidden;
use crate::cluster::Cluster;
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

/// How often quotas that somebody else changed meanwhile are read again.
const ATTEMPTS: usize = 16;
/// A write does not wait longer for its decision.
const PATIENCE: Duration = Duration::from_secs(10);
/// Kinds that are not stored, or that nobody counts.
const IGNORED: [(&str, &str); 3] = [("", "bindings"), ("", "events"), ("events.k8s.io", "events")];

/// Refuses what the quotas of a namespace do not allow.
pub(super) struct Quotas {
    store: Store,
    lines: Arc<Mutex<HashMap<String, Line>>>,
}

/// The writes that wait in a namespace while others are decided.
type Line = Vec<Waiting>;

struct Waiting {
    write: Weighed,
    is_dry_run: bool,
    answer: oneshot::Sender<Result<(), Refused>>,
}

/// Why a write is not let in.
enum Refused {
    /// Quotas do not allow it.
    Exceeds(String),
    /// The quotas could not be written.
    Failed(Refusal),
}

/// A write with its objects read.
struct Weighed {
    object: Owned,
    old: Option<Owned>,
    is_status: bool,
}

enum Owned {
    Pod(Box<Pod>),
    Service(Box<Service>),
    Claim(Box<PersistentVolumeClaim>),
    Devices(Box<ResourceClaim>),
    Other { resource: String, group: String },
}

impl Quotas {
    pub(super) fn new(store: &Store) -> Self {
        Quotas { store: store.clone(), lines: Arc::default() }
    }
}

impl Plugin for Quotas {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        let kind = (resource.group.as_str(), resource.plural.as_str());
        let is_weighed = matches!(
            kind,
            ("", "pods" | "services" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims")
        );
        resource.namespaced
            && match operation {
                Operation::Create => subresource.is_empty() && !IGNORED.contains(&kind),
                Operation::Update => is_weighed && matches!(subresource, "" | "status" | "resize"),
                Operation::Delete | Operation::Connect => false,
            }
    }

    fn mutates(&self, _: Operation, _: &Resource) -> bool {
        false
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let scope = Scope::resource("resourcequotas").namespace(request.namespace);
        let has_quotas = self.store.view().list(&scope).next().is_some();
        let weighed = has_quotas.then(|| Weighed::read(request)).flatten();
        let Some(write) = weighed.filter(|write| is_charged(&write.as_write(), request.subresource)) else {
            return Box::pin(ready(Ok(())));
        };
        Box::pin(async move {
            let (answer, decided) = oneshot::channel();
            self.enter(request, Waiting { write, is_dry_run: request.dry_run, answer });
            match tokio::time::timeout(PATIENCE, decided).await {
                Ok(Ok(Ok(()))) => Ok(()),
                Ok(Ok(Err(Refused::Exceeds(why)))) => Err(forbidden(request, &why)),
                Ok(Ok(Err(Refused::Failed(refusal)))) => Err(refusal),
                Ok(Err(_)) | Err(_) => Err(Refusal::internal("resource quota evaluation timed out")),
            }
        })
    }
}

impl Quotas {
    /// Lines up, and sees to it that somebody decides for those who wait. It is a task of its own, because whoever asked
    /// may go away before the others have their answer.
    fn enter(&self, request: &Request<'_>, waiting: Waiting) {
        let namespace = request.namespace.to_owned();
        let mut lines = locked(&self.lines);
        if let Some(line) = lines.get_mut(&namespace) {
            line.push(waiting);
            return;
        }
        lines.insert(namespace.clone(), vec![waiting]);
        drop(lines);
        let (cluster, lines) = (request.context.cluster.clone(), Arc::clone(&self.lines));
        tokio::spawn(async move {
            while let Some(batch) = next(&lines, &namespace) {
                decide(&cluster, &namespace, batch).await;
            }
        });
    }
}

fn locked(lines: &Mutex<HashMap<String, Line>>) -> MutexGuard<'_, HashMap<String, Line>> {
    // Lines are changed whole.
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those who wait; nobody, and then the line is closed.
fn next(lines: &Mutex<HashMap<String, Line>>, namespace: &str) -> Option<Line> {
    let mut lines = locked(lines);
    let batch = lines.get_mut(namespace).map(std::mem::take).filter(|line| !line.is_empty());
    if batch.is_none() {
        lines.remove(namespace);
    }
    batch
}

/// Decides writes in the order in which they came, and writes what they take.
async fn decide(cluster: &Cluster, namespace: &str, mut batch: Line) {
    let mut written = BTreeSet::new();
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        let mut quotas = read(cluster.store(), namespace);
        // What was taken from these is taken; only the others were changed by somebody else.
        quotas.retain(|quota| !written.contains(&quota.standing.name));
        let mut standings: Vec<Standing> = quotas.iter().map(|quota| quota.standing.clone()).collect();
        let mut admitted = Vec::new();
        for waiting in batch {
            let mut then = standings.clone();
            match admit(&mut then, &waiting.write.as_write(), Timestamp::now()) {
                Err(why) => waiting.answer(Err(Refused::Exceeds(why))),
                Ok(()) if waiting.is_dry_run => waiting.answer(Ok(())),
                Ok(()) => {
                    standings = then;
                    admitted.push(waiting);
                }
            }
        }
        batch = admitted;
        failure = write(cluster, namespace, &quotas, &standings, &mut written).await.err();
        match failure.as_ref().map(Refusal::code) {
            Some(StatusCode::CONFLICT | StatusCode::NOT_FOUND) => {}
            _ => break,
        }
    }
    for waiting in batch {
        waiting.answer(failure.clone().map_or(Ok(()), |refusal| Err(Refused::Failed(refusal))));
    }
}

/// A quota as it is stored, and how it stands.
struct Quota {
    value: Value,
    standing: Standing,
}

fn read(store: &Store, namespace: &str) -> Vec<Quota> {
    let scope = Scope::resource("resourcequotas").namespace(namespace);
    let view = store.view();
    let quotas = view.list(&scope).map(|quota| {
        let value = object::read(quota);
        let typed: ResourceQuota = wire::typed(&value);
        Quota { value, standing: Standing::of(&typed) }
    });
    quotas.collect()
}

/// Writes the quotas of which something was taken. If a later one refuses what an earlier one allowed, that one keeps it
/// until somebody counts: too little is let in meanwhile, and never too much.
async fn write(
    cluster: &Cluster,
    namespace: &str,
    quotas: &[Quota],
    standings: &[Standing],
    written: &mut BTreeSet<String>,
) -> Result<(), Refusal> {
    for (quota, after) in quotas.iter().zip(standings).filter(|(quota, after)| quota.standing != **after) {
        let mut value = quota.value.clone();
        let taken =
            after.used.iter().filter(|(name, amount)| quota.standing.used.get(*name) != Some(*amount));
        for (name, amount) in taken {
            value["status"]["used"][name.as_str()] = json!(amount.to_string());
        }
        let path = format!(
            "/api/v1/namespaces/{namespace}/resourcequotas/{}/status?fieldManager=kube-apiserver",
            after.name
        );
        let request = http::Request::builder()
            .method(Method::PUT)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Bytes::from(value.to_string()))
            .map_err(Refusal::internal)?;
        cluster.asked_by_itself(request).await?;
        written.insert(after.name.clone());
    }
    Ok(())
}

impl Waiting {
    fn answer(self, answer: Result<(), Refused>) {
        // Whoever does not wait any more has gone away.
        drop(self.answer.send(answer));
    }
}

impl Weighed {
    fn read(request: &Request<'_>) -> Option<Self> {
        Some(Weighed {
            object: Owned::read(request.resource, request.object.as_ref()?),
            old: request.old.map(|old| Owned::read(request.resource, old)),
            is_status: request.subresource == "status",
        })
    }

    fn as_write(&self) -> Write<'_> {
        Write {
            object: self.object.as_object(),
            old: self.old.as_ref().map(Owned::as_object),
            is_status: self.is_status,
        }
    }
}

impl Owned {
    fn read(resource: &Resource, object: &Value) -> Self {
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("", "pods") => Owned::Pod(Box::new(wire::typed(object))),
            ("", "services") => Owned::Service(Box::new(wire::typed(object))),
            ("", "persistentvolumeclaims") => Owned::Claim(Box::new(wire::typed(object))),
            ("resource.k8s.io", "resourceclaims") => Owned::Devices(Box::new(wire::typed(object))),
            (group, plural) => Owned::Other { resource: plural.to_owned(), group: group.to_owned() },
        }
    }

    fn as_object(&self) -> Object<'_> {
        match self {
            Owned::Pod(pod) => Object::Pod(pod),
            Owned::Service(service) => Object::Service(service),
            Owned::Claim(claim) => Object::Claim(claim),
            Owned::Devices(claim) => Object::Devices(claim),
            Owned::Other { resource, group } => Object::Other { resource, group },
        }
    }
}
