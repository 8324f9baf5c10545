//! All objects at one revision, and how a change leads from one state to the next. Replaying the log and committing a
//! write take the same two functions.

use std::sync::Arc;

use crate::event::{Event, Kind};
use crate::key::{Key, Scope};
use crate::map::Map;
use crate::object::Object;
use crate::record::Record;
use crate::revision::Revision;

/// All objects at one revision. A copy costs nothing and shares everything.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) revision: Revision,
    objects: Map<Arc<Object>>,
    bytes: usize,
}

impl State {
    pub(crate) fn empty(revision: Revision) -> Self {
        State { revision, objects: Map::new(), bytes: 0 }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// About how much memory the objects take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.iter()
    }

    /// The objects of a scope in key order, from the first one after a path on, if one is given.
    pub(crate) fn scope<'a>(
        &'a self,
        scope: &'a Scope,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        self.objects
            .iter_from(|key| scope.starts_after(key) || is_behind(scope, after, key))
            .take_while(|object| !scope.ends_before(&object.key))
            .filter(|object| scope.contains(object))
    }

    /// How many objects of a scope follow a path.
    pub(crate) fn count(&self, scope: &Scope, after: Option<&str>) -> usize {
        if !scope.is_range() {
            return self.scope(scope, after).count();
        }
        let start = self.objects.count(|key| scope.starts_after(key) || is_behind(scope, after, key));
        self.objects.count(|key| !scope.ends_before(key)).saturating_sub(start)
    }

    pub(crate) fn put(&mut self, object: Object) -> Arc<Event> {
        let object = Arc::new(object);
        let previous = self.load(object.clone());
        let kind = if previous.is_some() { Kind::Updated } else { Kind::Created };
        Event::new(kind, object, previous)
    }

    /// `None` if there is no such object.
    pub(crate) fn delete(&mut self, key: &Key, revision: Revision) -> Option<Arc<Event>> {
        let previous = self.objects.remove(key)?;
        self.revision = revision;
        self.bytes -= previous.size();
        Some(Event::new(Kind::Deleted, Arc::new(previous.deleted_at(revision)), Some(previous)))
    }

    /// `None` if the record does not fit the state: a deletion of nothing.
    pub(crate) fn replay(&mut self, record: Record) -> Option<Arc<Event>> {
        match record {
            Record::Put(object) => Some(self.put(object)),
            Record::Delete { key, revision } => self.delete(&key, revision),
        }
    }

    /// Applies a change that already happened once, to reach a state between two that were kept.
    pub(crate) fn repeat(&mut self, event: &Event) {
        if let Some(object) = event.after() {
            self.load(object.clone());
        } else if let Some(previous) = self.objects.remove(event.key()) {
            self.bytes -= previous.size();
        }
        self.revision = event.revision();
    }

    /// Puts an object in its place and returns the one that stood there.
    pub(crate) fn load(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        self.revision = object.revision;
        self.bytes += object.size();
        let previous = self.objects.insert(object);
        self.bytes -= previous.as_ref().map_or(0, |previous| previous.size());
        previous
    }
}

fn is_behind(scope: &Scope, after: Option<&str>, key: &Key) -> bool {
    after.is_some_and(|after| *key.resource() <= *scope.resource && key.path() <= after)
}

/// A state to read from: it stays as it is for as long as it is held, whatever is written meanwhile.
#[derive(Clone)]
pub struct View(pub(crate) Arc<State>);

impl View {
    /// The revision of the state.
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.0.get(key)
    }

    /// The objects of a scope in key order.
    pub fn list<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Arc<Object>> {
        self.0.scope(scope, None)
    }

    /// The objects of a scope in key order that come after a path (`namespace/name`).
    pub fn list_after<'a>(
        &'a self,
        scope: &'a Scope,
        path: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        self.0.scope(scope, Some(path))
    }

    /// How many objects of a scope come after a path, or how many there are. Costs two lookups for a resource or a
    /// namespace, a walk for anything narrower.
    pub fn count(&self, scope: &Scope, after: Option<&str>) -> usize {
        self.0.count(scope, after)
    }
}
