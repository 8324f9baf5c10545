//! One change of one object, as watchers see it.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bytes::Bytes;

use crate::key::Key;
use crate::object::Object;
use crate::revision::Revision;

/// A change. It carries the states before and after, because whether an object enters or leaves a watcher's selection
/// depends on both.
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The state after the change; of a deleted object its last content under the revision of the deletion.
    pub object: Arc<Object>,
    /// The state before the change; none for a created object.
    pub previous: Option<Arc<Object>>,
    pub(crate) at: Instant,
    departed: OnceLock<Bytes>,
    renderings: Mutex<Vec<(u64, Bytes)>>,
}

/// The kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The object was not there before.
    Created,
    /// The object has another state than before.
    Updated,
    /// The object is gone.
    Deleted,
}

impl Event {
    pub(crate) fn new(kind: Kind, object: Arc<Object>, previous: Option<Arc<Object>>) -> Arc<Self> {
        Arc::new(Event {
            kind,
            object,
            previous,
            at: Instant::now(),
            departed: OnceLock::new(),
            renderings: Mutex::default(),
        })
    }

    /// The revision of the change.
    pub fn revision(&self) -> Revision {
        self.object.revision
    }

    /// The object that changed.
    pub fn key(&self) -> &Key {
        &self.object.key
    }

    /// The state before, if there was one.
    pub fn before(&self) -> Option<&Arc<Object>> {
        self.previous.as_ref()
    }

    /// The state after, if there is one.
    pub fn after(&self) -> Option<&Arc<Object>> {
        (self.kind != Kind::Deleted).then_some(&self.object)
    }

    /// The bytes of before under the revision of the change: what a watcher gets whose selection the object has left.
    /// Made when first asked for. `None` for a created object, which can leave nothing.
    pub fn departed(&self) -> Option<Bytes> {
        let previous = self.previous.as_ref()?;
        Some(self.departed.get_or_init(|| previous.value_at(self.revision())).clone())
    }

    /// Another form of this event (a table row, another version), made by the first watcher that needs it and shared
    /// by all others. The caller chooses the numbers of the forms.
    pub fn rendering(&self, form: u64, render: impl FnOnce() -> Bytes) -> Bytes {
        let mut renderings = self.renderings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = renderings.iter().find(|(other, _)| *other == form) {
            return bytes.clone();
        }
        let bytes = render();
        renderings.push((form, bytes.clone()));
        bytes
    }

    /// About how many bytes of memory are held because of this event and would not be without it.
    pub(crate) fn size(&self) -> usize {
        let last = if self.kind == Kind::Deleted { self.object.size() } else { 0 };
        size_of::<Event>() + self.previous.as_ref().map_or(0, |object| object.size()) + last
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} at {}", self.kind, self.key(), self.revision())
    }
}
