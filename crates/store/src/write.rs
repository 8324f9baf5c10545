//! A change that somebody wants: of what, to what, and under which conditions.
//!
//! Everything that takes time (patching, admission, validation, encoding) is done before a [`Write`] is made; the
//! writer only compares, splices the revision into the bytes and appends.

use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::error;
use crate::key::Key;
use crate::object::{Index, Object, splice};
use crate::revision::Revision;

/// A change of one object, to be committed if its conditions hold.
#[derive(Debug)]
pub struct Write {
    pub(crate) key: Key,
    pub(crate) change: Change,
    pub(crate) relaxed: bool,
    conditions: Conditions,
}

#[derive(Debug)]
pub(crate) enum Change {
    Put(Draft),
    Delete,
}

/// An object before it has a revision.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    value: Bytes,
    revision_at: Option<u32>,
    index: Index,
}

/// What a committed write did.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The state after the change; of a deleted object its last content under the revision of the deletion.
    pub object: Arc<Object>,
    /// The state before the change.
    pub previous: Option<Arc<Object>>,
}

impl Committed {
    /// The revision of the change.
    pub fn revision(&self) -> Revision {
        self.object.revision
    }
}

#[derive(Default)]
struct Conditions {
    absent: bool,
    revision: Option<Revision>,
    token: Option<Arc<str>>,
    check: Option<Box<Check>>,
}

type Check = dyn Fn(Option<&Object>) -> Result<(), Refusal> + Send;

/// Why a check of the caller's own refused a write; comes back as the source of [`error::Commit::Refused`].
pub type Refusal = Box<dyn StdError + Send + Sync>;

impl Draft {
    /// A draft of an object with these bytes.
    pub fn new(value: impl Into<Bytes>, index: Index) -> Self {
        Draft { value: value.into(), revision_at: None, index }
    }

    /// Says where in the bytes the decimal digits of the revision are to be inserted.
    ///
    /// # Panics
    /// If the offset lies outside of the bytes.
    pub fn revision_at(self, offset: usize) -> Self {
        assert!(offset <= self.value.len(), "the revision goes into the bytes, not behind them");
        let offset = u32::try_from(offset).expect("no object is as long as 4 GiB");
        Draft { revision_at: Some(offset), ..self }
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        self.value.len() + self.index.size()
    }

    pub(crate) fn finish(self, key: Key, revision: Revision, created: Revision) -> Object {
        let value = match self.revision_at {
            None => self.value,
            Some(at) => splice(&self.value[..at as usize], revision, &self.value[at as usize..]),
        };
        Object { key, revision, created, value, index: self.index, revision_at: self.revision_at }
    }
}

impl Write {
    /// Creates or replaces an object.
    pub fn put(key: Key, draft: Draft) -> Self {
        Write { key, change: Change::Put(draft), relaxed: false, conditions: Conditions::default() }
    }

    /// Deletes an object, which has to be there.
    pub fn delete(key: Key) -> Self {
        Write { key, change: Change::Delete, relaxed: false, conditions: Conditions::default() }
    }

    /// Only if there is no such object.
    pub fn if_absent(mut self) -> Self {
        self.conditions.absent = true;
        self
    }

    /// Only if the object is there and its last change was this one.
    pub fn if_revision(mut self, revision: Revision) -> Self {
        self.conditions.revision = Some(revision);
        self
    }

    /// Only if the object is there and has this token.
    pub fn if_token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.conditions.token = Some(token.into());
        self
    }

    /// Only if the check says so of the object as the writer finds it. Runs on the writer's thread, where everybody
    /// waits for it: compare, do not compute.
    pub fn if_check(
        mut self,
        check: impl Fn(Option<&Object>) -> Result<(), Refusal> + Send + 'static,
    ) -> Self {
        self.conditions.check = Some(Box::new(check));
        self
    }

    /// Acknowledges the write before it is synced, which follows soon. A power loss in between takes it back; the end
    /// of the process alone does not. For heartbeats and events, which are many and soon outdated.
    pub fn relaxed(mut self) -> Self {
        self.relaxed = true;
        self
    }

    /// About how many bytes it will take in the log.
    pub(crate) fn size(&self) -> usize {
        let draft = match &self.change {
            Change::Put(draft) => draft.size(),
            Change::Delete => 0,
        };
        self.key.len() + draft
    }

    /// Whether the conditions hold for the object as it is now.
    pub(crate) fn admit(&self, current: Option<&Arc<Object>>) -> Result<(), error::Commit> {
        let Conditions { absent, revision, token, check } = &self.conditions;
        if let Some(current) = current {
            if *absent {
                return Err(error::Commit::Exists { current: current.clone() });
            }
            if token.as_ref().is_some_and(|token| *token != current.index.token) {
                return Err(error::Commit::Token { current: current.clone() });
            }
            if revision.is_some_and(|revision| revision != current.revision) {
                return Err(error::Commit::Conflict { current: current.clone() });
            }
        } else if revision.is_some() || token.is_some() || matches!(self.change, Change::Delete) {
            return Err(error::Commit::Absent { key: self.key.clone() });
        }
        let Some(check) = check else { return Ok(()) };
        // A panic in somebody's check is that request's problem, not everybody's.
        catch_unwind(AssertUnwindSafe(|| check(current.map(|object| &**object))))
            .unwrap_or_else(|_| Err("the check panicked".into()))
            .map_err(|source| error::Commit::Refused { key: self.key.clone(), source })
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conditions")
            .field("absent", &self.absent)
            .field("revision", &self.revision)
            .field("token", &self.token)
            .field("check", &self.check.is_some())
            .finish()
    }
}
