//! Recent events by resource, and who is to be woken by which.
//!
//! Each resource has a window: a ring with its recent events. A watcher of the whole resource reads the window itself;
//! watchers of one object, one namespace or one field value read a ring of their own that holds exactly those events of
//! the window that concern them. Such a ring exists while somebody watches it. So an event costs a few lookups and wakes
//! those whom it concerns, however many others there are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::error;
use crate::event::Event;
use crate::key::Scope;
use crate::revision::Revision;
use crate::ring::Ring;
use crate::watch::Watch;

/// How much a resource's window holds. A client that comes back after a longer time has to list again.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// At least so many events, however old and large they are.
    pub events: usize,
    /// Beyond that, events up to this age.
    pub age: Duration,
    /// Beyond that, as many as fit in about so much memory.
    pub bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Window { events: 1024, age: Duration::from_secs(300), bytes: 64 << 20 }
    }
}

pub(crate) struct Hub {
    window: Window,
    resources: Mutex<Resources>,
    /// All events up to here are in the rings.
    published: AtomicU64,
    watchers: AtomicUsize,
    next_watcher: AtomicU64,
}

#[derive(Default)]
struct Resources {
    by_name: HashMap<Arc<str>, Arc<Resource>>,
    /// What the windows of resources not seen yet reach back to.
    since: Revision,
    /// Revisions between these pairs were never given to anybody, or to changes that a crash has taken back.
    gaps: Vec<(Revision, Revision)>,
    closed: bool,
}

/// The rings of one resource.
pub(crate) struct Resource {
    window: Arc<Ring>,
    narrow: Mutex<Narrow>,
}

/// The rings for less than the whole resource, with the number of watchers of each.
#[derive(Default)]
struct Narrow {
    /// By `namespace/name`.
    objects: Rings,
    namespaces: Rings,
    /// By field, then by value.
    fields: HashMap<Arc<str>, Rings>,
    /// How much memory the window takes.
    bytes: usize,
}

type Rings = HashMap<Arc<str>, (Arc<Ring>, usize)>;

impl Hub {
    pub(crate) fn new(window: Window) -> Self {
        Hub {
            window,
            resources: Mutex::default(),
            published: AtomicU64::new(0),
            watchers: AtomicUsize::new(0),
            next_watcher: AtomicU64::new(0),
        }
    }

    /// Says from which revision on events will be published.
    pub(crate) fn begin(&self, since: Revision) {
        self.resources().since = since;
        self.published.store(since.0, Ordering::Release);
    }

    /// Says that the store went on with revision `start` after it had come to `last`.
    pub(crate) fn leap(&self, last: Revision, start: Revision) {
        self.resources().gaps.push((last, start));
        self.published.store(start.0, Ordering::Release);
    }

    /// Adds the events of a batch, in order, and wakes whom they concern.
    pub(crate) fn publish(&self, events: &[Arc<Event>], now: Instant) {
        let mut wake = Vec::new();
        for event in events {
            self.resource(event.key().resource()).publish(event, &self.window, now, &mut wake);
        }
        if let Some(last) = events.last() {
            self.published.store(last.revision().0, Ordering::Release);
        }
        for ring in wake {
            ring.wake();
        }
    }

    /// Lets go of what has become too old. True if there is more that will.
    pub(crate) fn trim(&self, now: Instant) -> bool {
        let resources: Vec<_> = self.resources().by_name.values().cloned().collect();
        for resource in &resources {
            resource.evict(&mut resource.narrow(), &self.window, now);
        }
        resources.iter().any(|resource| resource.window.len() > self.window.events)
    }

    /// Starts a watch of everything in a scope that happens after a revision.
    pub(crate) fn watch(self: &Arc<Self>, scope: &Scope, after: Revision) -> Result<Watch, error::Read> {
        let resource = self.resource(&scope.resource);
        let ring = resource.join(scope, after)?;
        if let Some(oldest) = self.gap_around(after) {
            resource.leave(scope);
            return Err(error::Read::Expired { requested: after, oldest });
        }
        if self.resources().closed {
            ring.close();
        }
        self.watchers.fetch_add(1, Ordering::Relaxed);
        let number = self.next_watcher.fetch_add(1, Ordering::Relaxed);
        Ok(Watch::new(self.clone(), resource, ring, scope.clone(), number, after))
    }

    pub(crate) fn leave(&self, resource: &Resource, scope: &Scope) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
        resource.leave(scope);
    }

    /// The end of the gap that a revision lies in, if it lies in one: a client that knows it may have seen what is lost.
    pub(crate) fn gap_around(&self, revision: Revision) -> Option<Revision> {
        let resources = self.resources();
        resources
            .gaps
            .iter()
            .find(|(last, start)| *last < revision && revision < *start)
            .map(|(_, start)| *start)
    }

    /// Everything up to here has been published.
    pub(crate) fn published(&self) -> Revision {
        Revision(self.published.load(Ordering::Acquire))
    }

    /// Ends all watches, once they have read what is there.
    pub(crate) fn close(&self) {
        let resources: Vec<_> = {
            let mut resources = self.resources();
            resources.closed = true;
            resources.by_name.values().cloned().collect()
        };
        for ring in resources.iter().flat_map(|resource| resource.rings()) {
            ring.close();
        }
    }

    /// How many watches there are, how many events are in windows, and about how much memory these take.
    pub(crate) fn size(&self) -> (usize, usize, usize) {
        let resources = self.resources();
        let events = resources.by_name.values().map(|resource| resource.window.len()).sum();
        let bytes = resources.by_name.values().map(|resource| resource.narrow().bytes).sum();
        (self.watchers.load(Ordering::Relaxed), events, bytes)
    }

    fn resource(&self, name: &str) -> Arc<Resource> {
        let mut resources = self.resources();
        if let Some(resource) = resources.by_name.get(name) {
            return resource.clone();
        }
        let resource = Arc::new(Resource { window: Ring::new(resources.since), narrow: Mutex::default() });
        resources.by_name.insert(name.into(), resource.clone());
        resource
    }

    fn resources(&self) -> MutexGuard<'_, Resources> {
        self.resources.lock().expect("nothing panics while it holds the resources")
    }
}

impl Resource {
    fn publish(&self, event: &Arc<Event>, limits: &Window, now: Instant, wake: &mut Vec<Arc<Ring>>) {
        let mut narrow = self.narrow();
        narrow.bytes += event.size();
        let mut add = |ring: &Arc<Ring>| {
            if ring.push(event.clone()) {
                wake.push(ring.clone());
            }
        };
        add(&self.window);
        narrow.each_concerned(event, &mut add);
        self.evict(&mut narrow, limits, now);
    }

    /// Lets go of the oldest events as far as the limits say.
    fn evict(&self, narrow: &mut Narrow, limits: &Window, now: Instant) {
        while let Some((oldest, events)) = self.window.front()
            && events > limits.events
            && (narrow.bytes > limits.bytes || now.duration_since(oldest.at) > limits.age)
        {
            narrow.bytes -= oldest.size();
            self.window.forget(oldest.revision());
            narrow.each_concerned(&oldest, &mut |ring| ring.forget(oldest.revision()));
        }
    }

    /// The ring for a scope, with one more watcher.
    fn join(&self, scope: &Scope, after: Revision) -> Result<Arc<Ring>, error::Read> {
        let mut narrow = self.narrow(); // nothing is published meanwhile
        let oldest = self.window.lost();
        if after < oldest {
            return Err(error::Read::Expired { requested: after, oldest });
        }
        let Some((rings, key)) = narrow.rings_for(scope) else { return Ok(self.window.clone()) };
        let (ring, watchers) = rings.entry(key).or_insert_with(|| (Ring::new(self.window.newest()), 0));
        let wanted = ring_scope(scope);
        ring.reach_back(after, &self.window, |event| wanted.concerns(event));
        *watchers += 1;
        Ok(ring.clone())
    }

    /// Takes a watcher away, and the ring with the last one.
    fn leave(&self, scope: &Scope) {
        let mut narrow = self.narrow();
        let Some((rings, key)) = narrow.rings_for(scope) else { return };
        if let Entry::Occupied(mut entry) = rings.entry(key) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
        narrow.fields.retain(|_, rings| !rings.is_empty());
    }

    fn rings(&self) -> Vec<Arc<Ring>> {
        let narrow = self.narrow();
        let fields = narrow.fields.values().flat_map(HashMap::values);
        let rings = narrow.objects.values().chain(narrow.namespaces.values()).chain(fields);
        rings.map(|(ring, _)| ring.clone()).chain([self.window.clone()]).collect()
    }

    fn narrow(&self) -> MutexGuard<'_, Narrow> {
        self.narrow.lock().expect("nothing panics while it holds the rings")
    }
}

impl Narrow {
    /// Where the ring for a scope stands; none for a scope that reads the window.
    fn rings_for(&mut self, scope: &Scope) -> Option<(&mut Rings, Arc<str>)> {
        match (&scope.namespace, &scope.name, &scope.field) {
            (Some(namespace), Some(name), _) => {
                Some((&mut self.objects, format!("{namespace}/{name}").into()))
            }
            (_, _, Some((field, value))) => {
                Some((self.fields.entry(field.clone()).or_default(), value.clone()))
            }
            (Some(namespace), None, None) => Some((&mut self.namespaces, namespace.clone())),
            (None, _, None) => None,
        }
    }

    /// Calls `act` once for each ring that an event belongs to.
    fn each_concerned(&self, event: &Event, act: &mut impl FnMut(&Arc<Ring>)) {
        let key = event.key();
        let exact = [(&self.objects, key.path()), (&self.namespaces, key.namespace())];
        for (ring, _) in exact.into_iter().filter_map(|(rings, key)| rings.get(key)) {
            act(ring);
        }
        for (field, rings) in &self.fields {
            // An event belongs to the rings of all values that the field had before or has now, once each.
            let mut values: Vec<&str> = [event.before(), event.after()]
                .into_iter()
                .flatten()
                .flat_map(|object| object.index.fields.iter())
                .filter(|(other, _)| *other == &**field)
                .map(|(_, value)| value)
                .collect();
            values.sort_unstable();
            values.dedup();
            for (ring, _) in values.into_iter().filter_map(|value| rings.get(value)) {
                act(ring);
            }
        }
    }
}

/// The scope of everything that is in the ring for `scope`: as narrow as the ring's key says, no narrower.
fn ring_scope(scope: &Scope) -> Scope {
    let all = Scope::resource(&scope.resource);
    match (&scope.namespace, &scope.name, &scope.field) {
        (Some(namespace), Some(name), _) => all.namespace(namespace).name(name),
        (_, _, Some((field, value))) => all.field(field, value),
        (Some(namespace), None, None) => all.namespace(namespace),
        (None, _, None) => all,
    }
}
