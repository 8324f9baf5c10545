//! What a cluster holds of one kind, kept by a watch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _};
use kube::core::Status;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{Key, Tasks, flag::Flag};

/// The first wait after a watch fails; each further failure in a row doubles it.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// No failed watch waits longer: a cluster that is back, and a kind that is served at last, is seen within this time.
const LAST_RETRY: Duration = Duration::from_secs(5);

/// A watch that was refused so long ago, and has not been since, is open: that it is, nobody says.
const REFUSED: Duration = Duration::from_secs(15);

/// One kind of one cluster, as last seen. Cheap to clone; all clones are the same cache.
pub struct Cache<K> {
    shared: Arc<Shared<K>>,
}

/// An object that came, changed or went.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// Which.
    pub key: &'a Key,
    /// What it was; `None` if it is new.
    pub old: Option<&'a Arc<K>>,
    /// What it is; `None` if it is gone.
    pub new: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// What it is, or was if it is gone.
    pub fn latest(&self) -> Option<&'a Arc<K>> {
        self.new.or(self.old)
    }
}

type Source<K> = Box<dyn FnOnce(watcher::Config) -> BoxStream<'static, watcher::Result<Event<K>>> + Send>;
type OnChange<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type OnError = Box<dyn Fn(&watcher::Error) + Send + Sync>;
type Trim<K> = Box<dyn Fn(&mut K) + Send + Sync>;
type Indexer<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// A cache before its watch begins.
pub struct Builder<K> {
    kind: String,
    source: Source<K>,
    config: watcher::Config,
    trim: Option<Trim<K>>,
    indexers: BTreeMap<&'static str, Indexer<K>>,
    on_change: Vec<OnChange<K>>,
    on_error: Vec<OnError>,
}

struct Shared<K> {
    trim: Option<Trim<K>>,
    indexers: BTreeMap<&'static str, Indexer<K>>,
    on_change: Vec<OnChange<K>>,
    on_error: Vec<OnError>,
    held: Mutex<Held<K>>,
    /// What the server said when it last refused the watch, and when that was.
    refused: Mutex<Option<(Instant, Status)>>,
    ready: Flag,
    settled: Flag,
}

struct Held<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// By the names of indexes, and the values that they gave.
    indexes: BTreeMap<&'static str, BTreeMap<String, BTreeSet<Key>>>,
    /// The newest revision that the watch has told of.
    seen: u64,
    /// What we deleted ourselves and the watch has not told of yet, by uid: its older news are no news.
    removed: BTreeMap<Key, String>,
    /// The list that is being read, if one is.
    listing: Option<BTreeMap<Key, Arc<K>>>,
}

impl<K> Cache<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone,
{
    /// A cache of what `api` reads: of metadata alone if `K` is a `PartialObjectMeta`.
    #[expect(clippy::new_ret_no_self, reason = "a cache exists once its watch runs")]
    pub fn new(api: Api<K>) -> Builder<K> {
        let kind = api.resource_url().to_owned();
        Builder::of(kind, Box::new(move |config| watcher::watcher(api, config).boxed()))
    }
}

impl<K: Resource + Debug + Send + Sync + 'static> Builder<K> {
    fn of(kind: String, source: Source<K>) -> Self {
        Builder {
            kind,
            source,
            config: watcher::Config::default(),
            trim: None,
            indexers: BTreeMap::new(),
            on_change: Vec::new(),
            on_error: Vec::new(),
        }
    }

    /// Only objects whose labels match.
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Only objects whose fields match.
    pub fn fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self
    }

    /// Lets `trim` make every object smaller before it is kept, indexed and shown.
    pub fn trim(mut self, trim: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.trim = Some(Box::new(trim));
        self
    }

    /// Makes objects findable by the values that `values` gives for them.
    pub fn index(
        mut self,
        name: &'static str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.indexers.insert(name, Box::new(values));
        self
    }

    /// Calls `tell` for every object that comes, changes or goes, after the cache shows it. It must not wait: it adds
    /// keys to queues.
    pub fn on_change(mut self, tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Self {
        self.on_change.push(Box::new(tell));
        self
    }

    /// Calls `tell` whenever the watch fails, before it is tried again.
    pub fn on_error(mut self, tell: impl Fn(&watcher::Error) + Send + Sync + 'static) -> Self {
        self.on_error.push(Box::new(tell));
        self
    }

    /// Begins to watch, for as long as `tasks` live.
    pub fn start(self, tasks: &mut Tasks) -> Cache<K> {
        let held = Held {
            objects: BTreeMap::new(),
            indexes: BTreeMap::new(),
            seen: 0,
            removed: BTreeMap::new(),
            listing: None,
        };
        let shared = Arc::new(Shared {
            trim: self.trim,
            indexers: self.indexers,
            on_change: self.on_change,
            on_error: self.on_error,
            held: Mutex::new(held),
            refused: Mutex::default(),
            ready: Flag::default(),
            settled: Flag::default(),
        });
        let cache = Cache { shared };
        let events = (self.source)(self.config);
        tasks.spawn("watch", cache.clone().follow(self.kind, events));
        cache
    }
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Cache { shared: Arc::clone(&self.shared) }
    }
}

impl<K> Cache<K> {
    /// Waits until the cache has seen everything once; for ever if its tasks are gone before.
    pub async fn ready(&self) {
        self.shared.ready.wait().await;
    }

    /// Waits until the cache has seen everything once, or was told that there is no such kind; it may still come.
    pub async fn settled(&self) {
        self.shared.settled.wait().await;
    }

    /// Whether the cache has seen everything once, or was told that there is no such kind.
    pub fn is_settled(&self) -> bool {
        self.shared.settled.is_set()
    }

    /// Whether the cache has seen everything once.
    pub fn is_ready(&self) -> bool {
        self.shared.ready.is_set()
    }

    /// What the server says, as long as it refuses to show what there is, or what becomes of it: what is held here is old then.
    pub fn refusal(&self) -> Option<Status> {
        let refused = self.refused();
        refused.as_ref().filter(|(at, _)| at.elapsed() < REFUSED).map(|(_, status)| status.clone())
    }

    fn refused(&self) -> MutexGuard<'_, Option<(Instant, Status)>> {
        // Every holder makes one change.
        self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of a key.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.held().objects.get(key).cloned()
    }

    /// All objects, by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.held().objects.values().cloned().collect()
    }

    /// The objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let held = self.held();
        let from = held.objects.range(Key::new(namespace, "")..);
        from.take_while(|(key, _)| key.namespace == namespace).map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The objects for which an index gave `value`, by key.
    pub fn by(&self, index: &'static str, value: &str) -> Vec<Arc<K>> {
        let held = self.held();
        let keys = held.indexes.get(index).and_then(|values| values.get(value));
        keys.into_iter().flatten().filter_map(|key| held.objects.get(key).cloned()).collect()
    }

    /// For how many objects an index gave `value`.
    pub fn count(&self, index: &'static str, value: &str) -> usize {
        let held = self.held();
        held.indexes.get(index).and_then(|values| values.get(value)).map_or(0, BTreeSet::len)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.held().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn held(&self) -> MutexGuard<'_, Held<K>> {
        // Holders only move values; a panic between two moves is a bug in an indexer, which the next event repairs.
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Resource + Debug + Send + Sync + 'static> Cache<K> {
    /// Takes the answer to a write of our own, so that the next decision sees it before the watch tells of it.
    pub fn put(&self, object: K) {
        let object = self.trimmed(object);
        let key = Key::of(&object);
        let mut held = self.held();
        let newer = match held.objects.get(&key) {
            Some(known) => revision(&object) > revision(known.as_ref()),
            // The watch has told of everything up to `seen`: what it does not show of before is gone.
            None => revision(&object) > held.seen && !held.is_removed(&key, &object),
        };
        if !newer {
            return;
        }
        let object = Arc::new(object);
        if let Some(listing) = &mut held.listing {
            listed(listing, &key, &object);
        }
        let old = held.set(&self.shared.indexers, &key, Some(&object));
        drop(held);
        self.tell(&key, old.as_ref(), Some(&object));
    }

    /// Forgets an object that a delete of our own has removed, before the watch tells of it.
    pub fn removed(&self, object: &K) {
        let key = Key::of(object);
        let mut held = self.held();
        if held.objects.get(&key).is_none_or(|known| known.meta().uid != object.meta().uid) {
            return;
        }
        if let Some(uid) = &object.meta().uid {
            held.removed.insert(key.clone(), uid.clone());
        }
        // A list that is being read may be older than that.
        let is_it = |listed: &Arc<K>| listed.meta().uid == object.meta().uid;
        if let Some(listing) = &mut held.listing
            && listing.get(&key).is_some_and(is_it)
        {
            listing.remove(&key);
        }
        let old = held.set(&self.shared.indexers, &key, None);
        drop(held);
        self.tell(&key, old.as_ref(), None);
    }

    async fn follow(self, kind: String, events: BoxStream<'static, watcher::Result<Event<K>>>) {
        let mut events = pin!(events);
        let mut failures = 0_u32;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // That a list begins does not say that it will be answered.
                    if !matches!(event, Event::Init) {
                        failures = 0;
                        *self.refused() = None;
                    }
                    self.take(event);
                }
                Err(failure) => {
                    for tell in &self.shared.on_error {
                        tell(&failure);
                    }
                    *self.refused() = refusal(&failure).map(|status| (Instant::now(), status.clone()));
                    let absent = is_absent(&failure);
                    if absent {
                        self.shared.settled.set();
                    }
                    let wait = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failures)).min(LAST_RETRY);
                    let error = crate::chain(&failure);
                    if failures == 0 && !absent {
                        warn!(%kind, retry = ?wait, %error, "a watch failed");
                    } else {
                        debug!(%kind, retry = ?wait, %error, "a watch failed again");
                    }
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    fn take(&self, event: Event<K>) {
        match event {
            Event::Init => self.held().listing = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                let object = self.trimmed(object);
                let mut held = self.held();
                held.seen = held.seen.max(revision(&object));
                let key = Key::of(&object);
                // The list may be older than our own deletes.
                if held.is_removed(&key, &object) {
                    return;
                }
                let Some(listing) = &mut held.listing else { return };
                listed(listing, &key, &Arc::new(object));
            }
            Event::InitDone => self.replace(),
            Event::Apply(object) => self.applied(self.trimmed(object)),
            Event::Delete(object) => self.deleted(&object),
        }
    }

    /// An object as it is kept: without the record of who wrote which field, which is often the larger part of it and
    /// nothing that anybody decides by.
    fn trimmed(&self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        if let Some(trim) = &self.shared.trim {
            trim(&mut object);
        }
        object
    }

    /// What was listed is what there is.
    fn replace(&self) {
        let mut held = self.held();
        let listing = held.listing.take().unwrap_or_default();
        held.removed.clear();
        let gone: Vec<Key> = held.objects.keys().filter(|key| !listing.contains_key(key)).cloned().collect();
        let mut changes = Vec::new();
        for key in gone {
            let old = held.set(&self.shared.indexers, &key, None);
            changes.push((key, old, None));
        }
        for (key, object) in listing {
            let known = held.objects.get(&key).map_or(0, |known| revision(known.as_ref()));
            if known < revision(object.as_ref()) {
                let old = held.set(&self.shared.indexers, &key, Some(&object));
                changes.push((key, old, Some(object)));
            }
        }
        drop(held);
        for (key, old, new) in changes {
            self.tell(&key, old.as_ref(), new.as_ref());
        }
        self.shared.ready.set();
        self.shared.settled.set();
    }

    fn applied(&self, object: K) {
        let key = Key::of(&object);
        let mut held = self.held();
        held.seen = held.seen.max(revision(&object));
        let known = held.objects.get(&key);
        let stale = known.is_some_and(|known| revision(known.as_ref()) >= revision(&object));
        if stale || held.is_removed(&key, &object) {
            return;
        }
        let object = Arc::new(object);
        let old = held.set(&self.shared.indexers, &key, Some(&object));
        drop(held);
        self.tell(&key, old.as_ref(), Some(&object));
    }

    fn deleted(&self, object: &K) {
        let key = Key::of(object);
        let mut held = self.held();
        held.seen = held.seen.max(revision(object));
        if held.is_removed(&key, object) {
            held.removed.remove(&key);
        }
        // An object of the same name may have been made since, and put here by ourselves.
        if held.objects.get(&key).is_none_or(|known| known.meta().uid != object.meta().uid) {
            return;
        }
        let old = held.set(&self.shared.indexers, &key, None);
        drop(held);
        self.tell(&key, old.as_ref(), None);
    }

    fn tell(&self, key: &Key, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        let change = Change { key, old, new };
        for tell in &self.shared.on_change {
            tell(&change);
        }
    }
}

impl<K: Resource> Held<K> {
    /// Puts an object in the place of another, in the indexes too, and returns that other.
    fn set(
        &mut self,
        indexers: &BTreeMap<&'static str, Indexer<K>>,
        key: &Key,
        new: Option<&Arc<K>>,
    ) -> Option<Arc<K>> {
        let old = match new {
            Some(new) => self.objects.insert(key.clone(), Arc::clone(new)),
            None => self.objects.remove(key),
        };
        for (name, values) in indexers {
            let before = old.as_deref().map(values).unwrap_or_default();
            let after = new.map(|new| values(new)).unwrap_or_default();
            // Most changes are of what nobody looks for.
            if before == after {
                continue;
            }
            let index = self.indexes.entry(name).or_default();
            for value in before.iter().filter(|value| !after.contains(value)) {
                if let Some(keys) = index.get_mut(value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.remove(value);
                    }
                }
            }
            for value in after {
                index.entry(value).or_default().insert(key.clone());
            }
        }
        old
    }

    fn is_removed(&self, key: &Key, object: &K) -> bool {
        self.removed.get(key).is_some_and(|uid| object.meta().uid.as_ref() == Some(uid))
    }
}

/// Adds an object to a list unless the list has a newer one: what we wrote ourselves since the list began may be newer
/// than what it says, or older.
fn listed<K: Resource>(listing: &mut BTreeMap<Key, Arc<K>>, key: &Key, object: &Arc<K>) {
    let known = listing.get(key).map_or(0, |known| revision(known.as_ref()));
    if known < revision(object.as_ref()) {
        listing.insert(key.clone(), Arc::clone(object));
    }
}

/// What the server said, if it does not permit what the watch asks for.
fn refusal(failure: &watcher::Error) -> Option<&Status> {
    let status: &Status = match failure {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    matches!(status.code, 401 | 403).then_some(status)
}

/// Whether a watch failed because there is no such kind.
fn is_absent(failure: &watcher::Error) -> bool {
    matches!(failure, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Revisions of one kind can be compared as numbers, as Kubernetes promises since v1.35.
fn revision<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
