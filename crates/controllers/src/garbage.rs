//! The garbage collector: watches the metadata of everything that can be deleted, and does what [`rules::garbage`]
//! decides.
//!
//! Kinds come and go while it runs, custom ones with their definitions; each has a watch of its own, which feeds one
//! graph. Whether an owner that the graph does not know exists is asked of the cluster, at the last moment.

mod apply;
mod metadata;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::api::Api;
use reconcile::{Cache, Next, Queue, Tasks};
use rules::garbage::{Graph, Object};
use tokio::sync::Notify;
use tracing::{debug, warn};

use crate::Run;
use crate::context::Context;
use crate::discovery::{Discovered, Served, discover};

use metadata::Metadata;

/// Events are told under this name.
const SOURCE: &str = "garbage-collector-controller";
/// Objects that are worked on at once.
const AT_ONCE: usize = 32;
/// An owner that is not known yet is likely to be on its way: its kind is watched apart.
const OWNER_PATIENCE: Duration = Duration::from_millis(100);
/// Kinds of other API servers come and go unseen: the cluster is asked so often what it serves.
const REDISCOVER: Duration = Duration::from_secs(30);
/// An owner that waits for all of its dependents waits so long for a kind that cannot be listed, as Kubernetes does.
const KIND_PATIENCE: Duration = Duration::from_secs(30);
/// Changes of definitions come in crowds.
const SETTLE: Duration = Duration::from_millis(200);

/// The garbage collector. Cheap to clone.
#[derive(Clone)]
struct Collector {
    context: Context,
    shared: Arc<Shared>,
    queue: Queue<String>,
}

struct Shared {
    graph: Mutex<Graph>,
    kinds: Mutex<BTreeMap<String, Watched>>,
    changed: Notify,
}

/// A kind that is watched.
struct Watched {
    served: Served,
    cache: Cache<Metadata>,
    since: Instant,
    /// The watch ends with it.
    _task: Tasks,
}

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let shared = Shared {
        graph: Mutex::new(Graph::default()),
        kinds: Mutex::new(BTreeMap::new()),
        changed: Notify::new(),
    };
    let collector = Collector { context: context.clone(), shared: Arc::new(shared), queue: Queue::new() };
    let definitions = context.kinds.definitions.wanted();
    let this = collector.clone();
    definitions.on_change(move |_| this.shared.changed.notify_one());
    Box::pin(async move {
        let _ending = Ending(Arc::clone(&collector.shared));
        let queue = collector.queue.clone();
        let (discovering, this) = (collector.clone(), collector.clone());
        futures::future::join(
            discovering.keep_watching(),
            queue.run(AT_ONCE, move |uid| {
                let this = this.clone();
                async move { this.look(uid).await }
            }),
        )
        .await;
    })
}

/// Ends the watches with the work: what they tell holds on to who began them.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Collector {
    /// Watches what is served, as that changes.
    async fn keep_watching(self) {
        loop {
            match discover(&self.context.client).await {
                Ok(found) => self.watch(found),
                Err(error) => {
                    warn!(error = reconcile::chain(&error), "failed to ask what the cluster serves");
                }
            }
            tokio::select! {
                () = self.shared.changed.notified() => tokio::time::sleep(SETTLE).await,
                () = tokio::time::sleep(REDISCOVER) => {}
            }
        }
    }

    fn watch(&self, found: Discovered) {
        let Discovered { served, silent } = found;
        let served: BTreeMap<String, Served> = served
            .into_iter()
            .filter(|kind| kind.is_collectable() && !is_ignored(kind))
            .map(|kind| (format!("{}/{}", kind.name(), kind.resource.version), kind))
            .collect();
        if served.is_empty() {
            // No cluster serves nothing.
            return;
        }
        let mut kinds = self.kinds();
        let is_over = |name: &String, kind: &Watched| {
            !served.contains_key(name) && !silent.contains(&kind.served.resource.api_version)
        };
        let over: Vec<String> =
            kinds.iter().filter(|(name, kind)| is_over(name, kind)).map(|(name, _)| name.clone()).collect();
        for name in over {
            debug!(kind = name, "no longer served");
            if let Some(kind) = kinds.remove(&name) {
                self.lose_sight_of(&kind.served);
            }
        }
        for (name, served) in served {
            kinds.entry(name).or_insert_with(|| {
                let mut task = Tasks::new();
                let cache = self.follow(&served, &mut task);
                Watched { served, cache, since: Instant::now(), _task: task }
            });
        }
    }

    /// Feeds the graph for as long as the task lives.
    fn follow(&self, served: &Served, task: &mut Tasks) -> Cache<Metadata> {
        let api: Api<Metadata> = Api::all_with(self.context.client.clone(), &served.resource);
        let resource = served.resource.clone();
        let (this, notified) = (self.clone(), self.clone());
        Cache::new(api)
            .on_change(move |change| match (change.old, change.new) {
                (_, Some(new)) => {
                    // Another object may have taken the name of one that went unseen.
                    if let Some(old) = change.old.filter(|old| old.0.uid != new.0.uid) {
                        this.gone(old.0.uid.as_deref().unwrap_or_default());
                    }
                    let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
                    if let Some(object) = Object::read(group, version, kind, &new.0) {
                        this.seen(object);
                    }
                }
                (Some(old), None) => this.gone(old.0.uid.as_deref().unwrap_or_default()),
                (None, None) => {}
            })
            // The kind may be gone; then its watch ends.
            .on_error(move |_| notified.shared.changed.notify_one())
            .start(task)
    }

    /// Its objects cannot be watched any more. They may exist, and so own what they own; but nothing waits for them.
    fn lose_sight_of(&self, served: &Served) {
        let mut graph = self.graph();
        let (group, kind) = (&served.resource.group, &served.resource.kind);
        let lost: Vec<String> = graph.of_kind(group, kind).map(str::to_owned).collect();
        let look: BTreeSet<String> = lost.iter().flat_map(|uid| graph.lost_sight_of(uid)).collect();
        drop(graph);
        self.enqueue(look);
    }

    /// Whether all objects are known, as far as that can be waited for.
    fn is_ready(&self) -> bool {
        let kinds = self.kinds();
        let known = |kind: &Watched| kind.cache.is_ready() || kind.since.elapsed() >= KIND_PATIENCE;
        !kinds.is_empty() && kinds.values().all(known)
    }

    fn seen(&self, object: Object) {
        let uid = object.uid.clone();
        let (look, unknown) = {
            let mut graph = self.graph();
            let look = graph.seen(object);
            let unknown = look.contains(&uid) && !graph.unknown_owners(&uid).is_empty();
            (look, unknown)
        };
        for looked in look {
            if unknown && looked == uid {
                self.queue.add_after(looked, OWNER_PATIENCE);
            } else {
                self.queue.add(looked);
            }
        }
    }

    fn gone(&self, uid: &str) {
        let look = self.graph().gone(uid);
        self.enqueue(look);
    }

    fn enqueue(&self, look: BTreeSet<String>) {
        for uid in look {
            self.queue.add(uid);
        }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        // The graph keeps its own order even if a caller panics: it is changed by whole methods only.
        self.shared.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<String, Watched>> {
        self.shared.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kind that an owner reference means, and whether it lives in namespaces.
    fn kind_of(&self, api_version: &str, kind: &str) -> Option<Served> {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let kinds = self.kinds();
        let mut served = kinds.values().map(|watched| &watched.served);
        served.find(|served| served.resource.group == group && served.resource.kind == kind).cloned()
    }

    async fn look(&self, uid: String) -> Result<Next, Error> {
        let waiting = self.graph().get(&uid).is_some_and(|object| object.deleting);
        if waiting && !self.is_ready() {
            // Some of its dependents may not be known yet.
            return Ok(Next::After(OWNER_PATIENCE));
        }
        self.report_owners_elsewhere(&uid);
        let Some(found) = self.ask_for_owners(&uid).await? else { return Ok(Next::Done) };
        let (step, object) = {
            let graph = self.graph();
            (graph.decide(&uid, &found), graph.get(&uid).cloned())
        };
        let Some(object) = object else { return Ok(Next::Done) };
        debug!(kind = object.kind, namespace = object.namespace, name = object.name, ?step, "decided");
        self.apply(&object, step).await
    }
}

/// Events own nothing and are owned by nobody, and there are many.
fn is_ignored(kind: &Served) -> bool {
    matches!(kind.name().as_str(), "events" | "events.events.k8s.io")
}

/// What keeps an object from being collected.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the owner of {object} is of a kind that is not served: {kind} of {api_version}")]
    UnknownKind { object: String, kind: String, api_version: String },
    #[error("failed to read the owner {owner} of {object}")]
    ReadOwner { object: String, owner: String, source: kube::Error },
    #[error("failed to change {object}")]
    Change { object: String, source: kube::Error },
    #[error("failed to delete {object}")]
    Delete { object: String, source: kube::Error },
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use reconcile::Clock;

    use super::*;

    /// One kind that cannot be listed does not keep all that is deleted in the foreground.
    #[tokio::test]
    async fn a_kind_that_cannot_be_listed_is_not_waited_for_for_ever() {
        let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let client = Client::try_from(nowhere).expect("a client");
        let mut tasks = Tasks::new();
        let context = Context::new(client, crate::Settings::default(), Clock::system(), &mut tasks);
        let shared = Shared {
            graph: Mutex::new(Graph::default()),
            kinds: Mutex::new(BTreeMap::new()),
            changed: Notify::new(),
        };
        let collector = Collector { context, shared: Arc::new(shared), queue: Queue::new() };
        assert!(!collector.is_ready(), "nothing is known");
        collector.watch(Discovered { served: vec![Served::collectable("things")], ..Discovered::default() });
        assert!(!collector.is_ready(), "its objects may still be told");
        let long_ago = Instant::now().checked_sub(KIND_PATIENCE).expect("a machine that has run for a while");
        collector.kinds().values_mut().for_each(|kind| kind.since = long_ago);
        assert!(collector.is_ready());
        // Nothing served at all is a mistake, and a server that does not answer has not lost its objects.
        collector.watch(Discovered::default());
        let other = || vec![Served::collectable("others")];
        let silent = BTreeSet::from(["example.com/v1".to_owned()]);
        collector.watch(Discovered { served: other(), silent });
        assert_eq!(collector.kinds().len(), 2);
        collector.watch(Discovered { served: other(), ..Discovered::default() });
        assert_eq!(collector.kinds().len(), 1);
    }
}
