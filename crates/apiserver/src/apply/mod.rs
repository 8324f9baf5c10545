//! Server-side apply: who manages which fields of an object, and what a manager's configuration makes of it.
//!
//! The behaviour is that of Kubernetes' structured-merge-diff and of the chain of field managers around it, to the
//! message. From the bottom: a [`path`] leads to a field, a [`Set`] holds paths, a [`Schema`] says how a type's parts
//! merge, a [`Typed`] value can be merged and compared, [`FieldManager`] follows requests.
//!
//! Objects are JSON. Nothing here knows HTTP, storage or the time of day.

mod built_in;
mod conflict;
mod custom;
mod field_manager;
pub mod filter;
pub(crate) mod go;
#[cfg(test)]
mod hostile;
pub mod managers;
pub mod path;
pub mod scale;
pub mod schema;
pub mod set;
mod tracked;
pub mod typed;
mod updater;

pub use built_in::{BuiltIn, empty};
pub use conflict::{Conflict, Conflicts};
pub use custom::custom_resource;
pub use field_manager::{ApplyError, FieldManager, UpdateError};
pub use filter::{Filter, Filters};
pub use path::{Path, PathElement};
pub use schema::{Schema, TypeId};
pub use set::Set;
pub use tracked::{Entries, Tracked};
pub(crate) use tracked::{remove_managed_fields, set_managed_fields};
pub use typed::{Comparison, Duplicates, Typed};
pub use updater::Versions;
