//! Who may have a say in a write before it is stored: the chain of admission plugins (3.14).
//!
//! Whoever mutates sees the object before the kind's own rules do, whoever validates sees it as it would be stored. No
//! lock and no slot of the writer is held meanwhile, so a plugin may ask the cluster something.
//!
//! Nothing here knows who is authenticated how, or what the kind's own rules are.

mod certificates;
mod chain;
mod claims;
mod classes;
pub(crate) mod compiled;
mod conditions;
mod criteria;
mod marks;
mod plugin;
mod pods;
mod policies;
mod quotas;
mod webhooks;

pub(crate) use chain::{Chain, Sent, connected, deleted, mutated, mutated_part, validated, validated_part};
pub use plugin::{Operation, Plugin, Request};
